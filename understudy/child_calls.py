"""Agents inside tool calls: how a call runs another agent, and waits with it (S3-S7)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from pydantic_ai.messages import ModelRequest, UserPromptPart

from understudy.definition import AgentDefinition, ChildAgent
from understudy.errors import UsageError
from understudy.outcomes import Interrupted, Outcome, Paused
from understudy.run import Run
from understudy.state import Call

__all__ = ["ChildWaits", "child_runs"]


class ChildWaits(BaseException):
    """An agent that a call runs waits for a person, so the call does: nothing is recorded of it.

    No `Exception`, so that a tool that catches everything does not take it for a failure.
    """


def child_runs(run: Run, call: Call) -> Callable[[Any, Any], Coroutine[Any, Any, Outcome]]:
    """What `ctx.run_agent` of this call does; its n-th agent has the same key each time (J11)."""
    count = 0

    async def run_agent(agent: Any, input: Any) -> Outcome:
        nonlocal count
        child = _child(run, agent)
        key = call.key if count == 0 else f"{call.key}+{count}"
        count += 1
        if run.children is None:
            raise UsageError("this run cannot run other agents")
        part = UserPromptPart(input, timestamp=run.clock.now())
        message = ModelRequest(parts=[part], timestamp=run.clock.now())
        outcome = await run.children.run(run, key, child, message)
        if isinstance(outcome, (Interrupted, Paused)):
            raise ChildWaits
        return outcome

    return run_agent


def _child(run: Run, agent: Any) -> ChildAgent:
    if isinstance(agent, str):
        child = run.definition.children.get(agent)
        if child is None:
            known = ", ".join(map(repr, run.definition.children)) or "none"
            raise UsageError(f"No agent {agent!r} to run here; there are: {known}")
        return child
    definition = getattr(agent, "definition", None)
    if not isinstance(definition, AgentDefinition):
        raise UsageError(f"run_agent takes an Agent or a name, not {agent!r}")
    return ChildAgent(definition=definition)
