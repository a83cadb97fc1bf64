"""What a store, a backend and a middleware must keep, as tests to inherit."""

from understudy.testing.contracts.backends import BackendContract
from understudy.testing.contracts.contract import Contract, Judgement, Violation, judge
from understudy.testing.contracts.middlewares import MiddlewareContract
from understudy.testing.contracts.stores import StoreContract

__all__ = [
    "BackendContract",
    "Contract",
    "Judgement",
    "MiddlewareContract",
    "StoreContract",
    "Violation",
    "judge",
]
