"""Two parts in one agent, in both orders: it is made, or the error says which and what to do."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement

import pytest
from tenacity import AsyncRetrying, stop_after_attempt

from understudy import Agent, ScriptedModel, UsageError, tool
from understudy.middleware import (
    AskUser,
    Fallback,
    Guard,
    Haltable,
    HumanInTheLoop,
    Limits,
    Middleware,
    RateLimit,
    Retry,
    SubAgent,
    Summarization,
    TodoList,
    Workspace,
)

PARTS: dict[str, Callable[[], Middleware]] = {
    "AskUser": AskUser,
    "Fallback": lambda: Fallback([ScriptedModel([])]),
    "Guard": lambda: Guard(input=lambda text, run: None),
    "Haltable": Haltable,
    "HumanInTheLoop": lambda: HumanInTheLoop({"look": True}),
    "Limits": lambda: Limits(max_tokens=10),
    "RateLimit": lambda: RateLimit(10),
    "Retry": lambda: Retry(AsyncRetrying(stop=stop_after_attempt(2))),
    "SubAgent": SubAgent,
    "Summarization": lambda: Summarization(100),
    "TodoList": TodoList,
    "Workspace": Workspace,
}
TWICE = {
    "AskUser": "two tools named 'ask_user'",
    "Fallback": "fallback models are given twice",
    "Guard": "two Guards named 'InputGuard'",
    "RateLimit": "two RateLimits",
    "SubAgent": "two children named 'general-purpose'",
    "Summarization": "two Summarizations",
    "TodoList": "both add the value 'todo_lists'",
    "Workspace": "two tools named 'list_files'",
}
"""Which of them an agent has once, and what is said of a second one."""


@tool
def look() -> str:
    """Look."""
    return "seen"


def make(*names: str) -> Agent:
    stack = [PARTS[name]() for name in names]
    return Agent("a", ScriptedModel([]), tools=[look], middleware=stack)


@pytest.mark.slow
def test_any_two_parts_fit_in_both_orders_or_are_refused_clearly() -> None:
    for one, other in combinations_with_replacement(PARTS, 2):
        for pair in {(one, other), (other, one)}:
            if one == other and one in TWICE:
                with pytest.raises(UsageError, match=TWICE[one]):
                    make(*pair)
            else:
                assert len(make(*pair).definition.middleware) == 2
