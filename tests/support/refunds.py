"""A desk whose tools note what they did, and which asks a person about each refund."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.agents import by_turn
from understudy import Agent, ToolContext, call, tool

__all__ = ["ONE", "TWO", "desk", "refund"]

ONE = call("refund", {"order": 1})
TWO = [call("refund", {"order": 1}), call("refund", {"order": 2})]


def refund(ran: list[str]) -> Any:
    @tool
    async def refund(order: int) -> str:
        ran.append(f"refund {order}")
        return f"refunded {order}"

    return refund


def look(ran: list[str]) -> Any:
    @tool(idempotent=True)
    async def look(context: ToolContext) -> str:
        ran.append(f"look with {context.deps}")
        return "seen"

    return look


def desk(ran: list[str], *turns: Any, tools: Sequence[Any] | None = None, **options: Any) -> Agent:
    options.setdefault("interrupt_on", {"refund": True})
    given = [refund(ran), look(ran)] if tools is None else tools
    return Agent("desk", by_turn(*turns), tools=given, **options)
