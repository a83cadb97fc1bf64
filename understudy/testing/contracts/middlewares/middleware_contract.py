"""The contract of a `Middleware`: the rules for any middleware."""

from __future__ import annotations

from understudy.testing.contracts.middlewares.company import Company
from understudy.testing.contracts.middlewares.hook_order import HookOrder
from understudy.testing.contracts.middlewares.hosted import Hosted
from understudy.testing.contracts.middlewares.restarts import Restarts
from understudy.testing.contracts.middlewares.side_effects import SideEffects


class MiddlewareContract(Hosted, Company, HookOrder, SideEffects, Restarts):
    """The rules for every middleware, whatever its purpose. Override `new_middleware`.

    The middleware is put into an agent whose model calls three tools, one of which must not run
    twice. Set `changes` to what it may change in a run, and override `answer` for a person's
    answers to its questions. Override `reply`, `tools` or `prompt` if the agent has to do something
    else for it.
    """
