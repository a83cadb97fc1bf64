"""The outcome of an agent's run, as JSON."""

from __future__ import annotations

import asyncio
from typing import Any

from understudy._base.lookout import Hints
from understudy.journal import has_next_run
from understudy.state.agent_state import AgentState
from understudy.state.why import what_stopped
from understudy.web.live import Watching, follow_feed
from understudy.web.visit import Visit

LONGEST = 60
"""The maximum seconds that a request may wait for an outcome."""
POLL = 0.2
"""Seconds between two reads of a store without a feed."""
SLOWEST = 5.0
"""Seconds between two reads of a store whose feed reports events."""


async def outcome(visit: Visit) -> dict[str, Any]:
    """The outcome of the current or last run. The request may wait for it."""
    seconds = visit.number("wait", 0, most=LONGEST)
    found = outcome_of(await visit.state())
    if found["outcome"] is None and seconds:
        found = await _outcome_within(visit, seconds)
    return {"id": visit.agent_id, **found}


async def _outcome_within(visit: Visit, seconds: float) -> dict[str, Any]:
    now = asyncio.get_running_loop().time
    end = now() + seconds
    # It follows the feed, not the agent's events: following events makes a model stream its
    # replies.
    watching = Watching(_follow, visit)
    try:
        while True:
            found = outcome_of(await visit.state())
            left = end - now()
            if found["outcome"] is not None or left <= 0:
                return found
            await watching.wait(min(POLL, left), min(SLOWEST, left))
    finally:
        await watching.end()


async def _follow(visit: Visit, hints: Hints) -> None:
    """Give a hint when something happens to the agent."""
    await follow_feed(visit, hints, lambda event: event.agent_id in (visit.agent_id, ""))


def outcome_of(state: AgentState) -> dict[str, Any]:
    """The outcome as JSON-able data; `outcome` is None while the run continues, or without a
    run.
    """
    run = state.run
    if run is None:
        return {"outcome": None, "run_id": None}
    found: dict[str, Any] = {"outcome": None, "run_id": run.run_id, "model_calls": run.model_calls}
    if run.end is not None:
        end = run.end
        found |= {"outcome": end.outcome, "text": end.text}
        found |= {"error": end.error, "signals": end.signals}
        if end.outcome == "stopped":
            found["reason"] = what_stopped(end)
        if has_next_run(state):
            found["outcome"] = None  # the next run begins
    elif run.quarantined is not None:
        error = {"type": "Quarantined", "message": run.quarantined}
        found |= {"outcome": "failed", "error": error}
    elif state.status == "running":
        pass
    elif state.requests:
        requests = [request.to_dict() for request in state.requests]
        found |= {"outcome": "interrupted", "requests": requests}
    elif state.pause is not None:
        found |= {"outcome": "paused", "reason": state.pause}
    elif state.waits:
        found |= {"outcome": "waiting", "waits": [wait.name for wait in state.waits]}
    return found
