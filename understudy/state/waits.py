"""The waits of an agent's calls: points of their tools that are not answered yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from understudy.state.children import agents_of_call
from understudy.state.run_state import Call
from understudy.state.state_tree import StateTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A point at which a tool call waits: a sleep, or a wait for an answer from outside.

    It is also a call in doubt that waits for its check, or a model call that is put off. A model
    call has no `tool_name` and no `tool_call_id`.
    """

    agent_id: str
    """The id of the agent whose run waits; without a runtime, the agent's name."""
    agent_path: tuple[str, ...]
    """The names of the agents, from the outermost agent to the agent whose tool waits."""
    run_id: str
    """The id of the run of that agent."""
    call_key: str
    tool_call_id: str
    tool_name: str
    name: str
    """The tool's name for the point."""
    kind: Literal["sleep", "wait", "check"]
    since: datetime
    """The time at which the call first came to the point. For a check: the time at which the doubt
    began."""
    expires_at: datetime | None
    """The time at which the sleep is over, the wait has timed out, or the check is asked; None =
    never."""


def open_calls(state: StateTree) -> Iterator[Call]:
    """The open calls, in this agent and in agents inside it."""
    for inner in state.tree:
        run = inner.run
        if run is not None and run.end is None:
            yield from run.calls


def may_wait(state: StateTree) -> bool:
    """Whether a call may wait for something, in this agent or in an agent that it runs.

    The common case, that no call waits, is found at no cost.
    """
    if state.children:
        return True
    run = state.run
    if run is None:
        return False
    if run.turn is None:
        return run.model_call is not None
    for call in run.turn.calls.values():  # noqa: SIM110  # as in `Turn.has_requests`
        if call.requests or call.points:
            return True
    return False


def has_waits(state: StateTree) -> bool:
    """Whether a call waits at a point, in this agent or in an agent that it runs."""
    return may_wait(state) and any(call.waits_at for call in open_calls(state))


def is_woken(state: StateTree) -> bool:
    """Whether a call can continue because its point is answered, in this agent or inside it."""
    return next(woken_calls(state), None) is not None


def woken_calls(state: StateTree) -> Iterator[Call]:
    """The calls that can continue because a point is answered, in this agent and inside it.

    Calls inside a call about which a person is asked continue with the answer
    (`test_what_is_over_inside_a_call_that_asks_goes_on_with_the_answer`). So do calls inside a call
    in doubt that waits for its check.
    """
    run = state.run
    if run is None or run.end is not None:
        return
    yield from (call for call in run.calls if call.is_woken)
    children = state.children
    if not children:
        return
    asking = [call.key for call in run.calls if call.pending_requests or call.check is not None]
    asked = {key for each in asking for key in agents_of_call(children, each)}
    for key, child in children.items():
        if key not in asked:
            yield from woken_calls(child)


def waits_of(state: StateTree, agent_id: str | None = None) -> tuple[Wait, ...]:
    """Everything that the agent's open run waits for, oldest first.

    Args:
        state: the state of the agent.
        agent_id: the agent's id, if it differs from the id that its run has recorded.

    """
    run = state.run
    if run is None or run.over or run.halt is not None:
        return ()
    waits = list(_waits(state, agent_id or run.agent_id, (run.agent,)))
    return tuple(sorted(waits, key=lambda wait: wait.since))


def _waits(state: StateTree, agent_id: str, path: tuple[str, ...]) -> Iterator[Wait]:
    run = state.run
    if run is None or run.over:
        return
    for call in run.calls:
        for point in call.waits_at:
            assert point.kind != "once", "a call is suspended at sleeps and waits alone"
            assert point.since is not None, "what it is suspended at, it has come to"
            yield Wait(
                agent_id=agent_id,
                agent_path=path,
                run_id=run.run_id,
                call_key=call.key,
                tool_call_id=call.part.tool_call_id,
                tool_name=call.part.tool_name,
                name=point.name,
                kind=point.kind,
                since=point.since,
                expires_at=point.due,
            )
    for child in state.children.values():
        if child.run is not None:
            yield from _waits(child, agent_id, (*path, child.run.agent))
