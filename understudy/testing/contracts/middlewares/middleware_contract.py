"""The contract of a `Middleware`: what any of them must keep."""

from __future__ import annotations

from understudy.testing.contracts.middlewares.company import Company
from understudy.testing.contracts.middlewares.hook_order import HookOrder
from understudy.testing.contracts.middlewares.hosted import Hosted
from understudy.testing.contracts.middlewares.restarts import Restarts
from understudy.testing.contracts.middlewares.side_effects import SideEffects


class MiddlewareContract(Hosted, Company, HookOrder, SideEffects, Restarts):
    """What every middleware keeps, whatever it is for. Override `new_middleware`.

    It is put into an agent whose model calls three tools, one of which must not run twice. Say by
    `changes` what it may change of a run, and by `answer` what a person says to its questions.
    Override `reply`, `tools` or `prompt` where the agent has to do something else for it.
    """
