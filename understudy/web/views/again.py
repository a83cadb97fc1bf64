"""Says what would happen if a failed run is continued, before anybody does it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from understudy.state.agent_state import AgentState
from understudy.state.run_state import Call, is_child_of
from understudy.web.visit import Visit

NAMED = 5
"""The maximum number of tools that the sentence names. Further tools are counted."""


def again_of(visit: Visit, state: AgentState) -> dict[str, Any] | None:
    """The run that may be continued, and what is then repeated and what is not; None if none may.

    The tools are named as the model named them, where the user may see that.
    """
    run = state.run
    if run is None:
        return None
    if run.is_held:
        text = (
            "The same run continues from its last record. "
            "Calls that have a result are not repeated. " + _said_of(visit, state_calls(state))
        )
        return {"run_id": run.run_id, "label": "Release from quarantine", "text": text.strip()}
    if not run.has_failed:
        return None
    text = (
        "A new run continues where this one failed. What has finished is kept: no call that has a "
        "result is repeated. " + _said_of(visit, left_calls(state))
    )
    return {"run_id": run.run_id, "label": "Again from here", "text": text.strip()}


def left_calls(state: AgentState) -> Iterator[tuple[AgentState, Call]]:
    """The calls without a result when a run failed, also of inner agents, each with its agent."""
    run = state.run
    if run is not None and run.left is not None and run.left.turn is not None:
        yield from ((state, c) for c in run.left.turn.calls.values() if c.result is None)
    for child in state.left.values():
        yield from left_calls(child)


def state_calls(state: AgentState) -> Iterator[tuple[AgentState, Call]]:
    """The calls without a result of a run that is held, also of inner agents."""
    if state.run is not None:
        yield from ((state, c) for c in state.run.calls if c.result is None)
    for child in state.children.values():
        yield from state_calls(child)


def _said_of(visit: Visit, calls: Iterable[tuple[AgentState, Call]]) -> str:
    """The sentences about what happens to these calls, and what happens first."""
    doubtful: list[str] = []
    settled: list[str] = []
    repeated: list[str] = []
    started: list[str] = []
    inside: list[str] = []
    for state, call in calls:
        # The name is hidden before it is put into a sentence.
        name = str(visit.redacted({"tool_name": call.part.tool_name}, "again")["tool_name"])
        if any(is_child_of(key, call.key) for key in (*state.children, *state.left)):
            inside.append(name)
        elif not call.entered:
            started.append(name)
        elif call.effect == "effects":
            is_open = call.key in state.doubts or state.run is None or not state.run.has_failed
            (doubtful if is_open else settled).append(name)
        else:
            repeated.append(name)
    said = [
        (doubtful, "was cut off, and is not repeated by itself: what it did is in doubt",
         "were cut off, and are not repeated by themselves: what they did is in doubt"),
        (settled, "was cut off, and somebody has said since what it did: it is not repeated",
         "were cut off, and somebody has said since what they did: they are not repeated"),
        (repeated, "was cut off, and is repeated: it is declared so that this does no harm",
         "were cut off, and are repeated: they are declared so that this does no harm"),
        (started, "did not begin: it is asked about again where a person must agree, and runs",
         "did not begin: they are asked about again where a person must agree, and run"),
        (inside, "continues with the agent inside it", "continue with the agents inside them"),
    ]  # fmt: skip
    parts = [
        f"{_named(names)} {one if len(names) == 1 else many}" for names, one, many in said if names
    ]
    return f"{'; '.join(parts)}." if parts else "Next, the model is asked again."


def _named(names: list[str]) -> str:
    first = [f"“{name}”" for name in names[:NAMED]]
    more = len(names) - len(first)
    if more:
        return f"{', '.join(first)} and {more} more"
    return first[0] if len(first) == 1 else f"{', '.join(first[:-1])} and {first[-1]}"
