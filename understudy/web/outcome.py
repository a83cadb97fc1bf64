"""How the run of an agent stands, as JSON."""

from __future__ import annotations

import asyncio
from typing import Any

from understudy.state.agent_state import AgentState
from understudy.web.visit import Visit

LONGEST = 60
POLL = 0.2


async def outcome(visit: Visit) -> dict[str, Any]:
    """The outcome of the current run, or of the last one; it may wait until there is one."""
    seconds = visit.number("wait", 0, most=LONGEST)
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        state = await visit.state()
        found = outcome_of(state)
        if found["outcome"] is not None or loop.time() >= end:
            return {"id": visit.agent_id, **found}
        await asyncio.sleep(POLL)


def outcome_of(state: AgentState) -> dict[str, Any]:
    """How the run stands: `outcome` is None while it goes on, or if there was none."""
    run = state.run
    if run is None:
        return {"outcome": None, "run_id": None}
    found: dict[str, Any] = {"outcome": None, "run_id": run.run_id, "model_calls": run.model_calls}
    if run.end is not None:
        end = run.end
        found |= {"outcome": end.outcome, "text": end.text}
        found |= {"error": end.error, "signals": end.signals}
        if state.queue:
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
