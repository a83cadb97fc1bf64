"""Agents that say what a search is to find."""

from __future__ import annotations

from typing import Any

from tests.support.loops import SECONDS
from understudy import Agent, AgentRef, Runtime, ScriptedModel, call, tool
from understudy.models import ScriptedRequest

__all__ = ["agents", "begin"]


@tool
def refund(order: str, customer: str) -> dict[str, str]:
    """Pay money back."""
    return {"receipt": f"R-{order}", "payee": customer}


def _reply(request: ScriptedRequest) -> Any:
    last = request.messages[-1].parts[-1]
    if last.part_kind == "tool-return":
        return "It is refunded, Zoë."
    text = str(getattr(last, "content", ""))
    if text.startswith("refund"):
        return call("refund", {"order": text.split()[1], "customer": "Ada Lovelace"})
    return f"You said: {text}"


def agents() -> list[Agent[Any, Any]]:
    gated = {"refund": True}
    return [Agent("desk", ScriptedModel(_reply), tools=[refund], interrupt_on=gated)]


def begin(runtime: Runtime, id: str, text: str) -> AgentRef:
    ref = runtime.spawn("desk", id)
    ref.run(text).get(timeout=SECONDS)
    return ref
