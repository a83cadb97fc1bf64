"""What an agent is doing, in a sentence, and what waits for a run: for pages and terminals."""

from __future__ import annotations

from typing import Any

from understudy._base.authors import shown_author
from understudy._base.points_in_time import time_text
from understudy.models.display_halves import halves_of
from understudy.state.agent_state import AgentState
from understudy.state.plans import QueuedMessage
from understudy.state.records import End
from understudy.state.run_state import RunState
from understudy.state.waits import Wait
from understudy.stopping import StopSignals


def why(state: AgentState) -> str:
    """What the agent is doing, in a sentence."""
    run = state.run
    if run is None:
        return "It has not run yet."
    if run.end is not None:
        error = run.end.error
        if error is not None:
            return f"Its last run failed: {error.get('type')}: {error.get('message')}"
        if run.end.outcome == "stopped":
            return f"Its last run was stopped: {what_stopped(run.end)}."
        return f"Its last run is {run.end.outcome}, after {model_calls(state, run)}."
    if run.quarantined is not None:
        return f"Its run is in quarantine: {run.quarantined}"
    if state.requests:
        count = len(state.requests)
        return f"It waits for a person: {count} request{'' if count == 1 else 's'}."
    if state.pause is not None:
        by = "" if state.paused_by is None else f" by {state.paused_by}"
        return f"It is paused{by}: {state.pause}"
    if state.waits:
        return f"It waits: {'; '.join(map(_waits, state.waits))}."
    return f"A run is under way, after {model_calls(state, run)}."


def queue_of(state: AgentState) -> list[dict[str, Any]]:
    """The messages of an agent that wait for a run, in the order in which they came."""
    return [
        {
            "message_id": queued.message_id,
            "text": halves_of(queued.message)[0],
            "what": _kind_of(queued, is_open=state.run is not None and not state.run.over),
            "at": time_text(queued.message.timestamp),
            "by": shown_author(queued.by),
        }
        for queued in state.queue.values()
    ]


def _kind_of(queued: QueuedMessage, *, is_open: bool) -> str:
    if queued.occurrence is not None:
        return "schedule"
    if queued.steer and is_open:
        return "steer"
    return "send" if queued.choices is None else "run"


def background_of(state: AgentState) -> list[dict[str, Any]]:
    """The calls of an agent that continue in the background, oldest first."""
    return [
        {
            "agent_id": made.agent_id,
            "tool_name": made.tool_name,
            "call_key": made.call_key,
            "at": time_text(made.at),
        }
        for made in state.background
    ]


def what_stopped(end: End) -> str:
    """The strongest of the signals that stopped a run, with its source."""
    highest = None if end.signals is None else StopSignals.from_dict(end.signals).highest
    return "by no signal" if highest is None else str(highest)


def model_calls(state: AgentState, run: RunState) -> str:
    """The number of model calls that the run made; for a workflow, the calls of its agents."""
    n = run.model_calls if run.workflow is None else state.usage.requests
    return "1 model call" if n == 1 else f"{n} model calls"


def _waits(wait: Wait) -> str:
    until = "" if wait.expires_at is None else f" until {wait.expires_at:%Y-%m-%d %H:%M:%S %Z}"
    if not wait.tool_name:
        return f"a call of the model is put off{until}"
    if wait.kind == "check":
        return f"{wait.tool_name} is in doubt, and waits for its check{until}"
    what = "sleeps at" if wait.kind == "sleep" else "waits for the outside at"
    return f"{wait.tool_name} {what} {wait.name!r}{until}"
