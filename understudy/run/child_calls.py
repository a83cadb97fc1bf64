"""Agents inside tool calls: how a call runs another agent, and waits with it (S3-S7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from understudy.errors import UsageError
from understudy.models.messages import user_message
from understudy.outcomes import Interrupted, Outcome, Paused
from understudy.run.definition import AgentDefinition, ChildAgent
from understudy.run.run import Run
from understudy.state.run_state import Call

__all__ = ["ChildWaits", "child_runs", "inner_runs_end"]


class ChildWaits(BaseException):
    """An agent that a call runs waits for a person, so the call does: nothing is recorded of it.

    No `Exception`, so that a tool that catches everything does not take it for a failure.
    """


def child_runs(run: Run, call: Call) -> Callable[[Any, Any, int], Coroutine[Any, Any, Outcome]]:
    """What `ctx.run_agent` of this call does; its n-th agent has the same key each time (J11)."""
    count = 0

    async def run_agent(agent: Any, input: Any, max_depth: int) -> Outcome:
        nonlocal count
        child = _child(run, agent)
        key = call.key if count == 0 else f"{call.key}+{count}"
        count += 1
        if run.children is None:
            raise UsageError("this run cannot run other agents")
        if len(run.agent_path) >= max_depth:
            raise UsageError(f"agents nest at most {max_depth} deep")
        message = user_message(input, at=run.clock.now())
        task = asyncio.current_task()
        running = run.inner_tasks.setdefault(call.key, set())
        if task is not None:
            running.add(task)
        try:
            outcome = await run.children.run(run, key, child, message)
        finally:
            running.discard(task)
        if isinstance(outcome, (Interrupted, Paused)):
            raise ChildWaits
        return outcome

    return run_agent


async def inner_runs_end(run: Run, call: Call) -> None:
    """Wait for the other agents that the call began: none goes on behind its back (S6)."""
    me = asyncio.current_task()
    others = {task for task in run.inner_tasks.get(call.key, ()) if task is not me}
    if others:
        await asyncio.wait(others)


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
