"""What a store, a backend and a middleware must keep, as tests to inherit."""

from understudy.testing.contracts.backends import BackendContract
from understudy.testing.contracts.contract import Contract, Judgement, Violation, judge

__all__ = ["BackendContract", "Contract", "Judgement", "Violation", "judge"]
