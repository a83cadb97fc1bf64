"""The contracts of a store, a backend and a middleware, as tests to inherit."""

from understudy.testing.contracts.backends.backend_contract import BackendContract
from understudy.testing.contracts.contract import Contract, Judgement, Violation, judge
from understudy.testing.contracts.middlewares.middleware_contract import MiddlewareContract
from understudy.testing.contracts.stores.store_contract import StoreContract

__all__ = [
    "BackendContract",
    "Contract",
    "Judgement",
    "MiddlewareContract",
    "StoreContract",
    "Violation",
    "judge",
]
