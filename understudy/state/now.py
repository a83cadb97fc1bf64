"""What an agent is doing now, as plain data, for commands on a store and on a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from understudy._base.json_values import jsonable
from understudy._base.points_in_time import time_text
from understudy.approvals import Vote, tally
from understudy.interrupts import Request, approved_at
from understudy.state.agent_state import AgentState
from understudy.state.children import agents_of_call
from understudy.state.files import listed
from understudy.state.next_due import open_votes, votes_of
from understudy.state.run_state import Call
from understudy.state.why import background_of, queue_of, why


def now_of(state: AgentState, agent: str) -> dict[str, Any]:
    """What an agent does, asks, and has.

    Args:
        state: the state of the agent.
        agent: the name of its definition.

    """
    run, usage = state.run, state.usage
    votes = votes_of(state)
    waits = open_votes(state, [request.id for request in state.requests])
    return {
        "why": why(state),
        "run_id": None if run is None else run.run_id,
        "model_calls": 0 if run is None else run.model_calls,
        "usage": {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens},
        "cost": state.cost.to_dict(),
        "total_cost": state.total_cost.to_dict(),
        "requests": [
            {
                **request.to_dict(),
                **_voting(request, votes.get(request.id, ())),
                "still": waits.get(request.id, ""),
            }
            for request in state.requests
        ],
        "waits": jsonable(list(state.waits)),
        "doubts": jsonable(list(state.doubts_in_tree.values())),
        "reviews": [review.to_dict() for review in state.reviews.values()],
        "grants": [grant.to_dict() for grant in state.grants.values()],
        "queue": queue_of(state),
        "background": background_of(state),
        "next_due": time_text(state.next_due),
        "files": [{"path": path, "size": file.size} for path, file in listed(state.files)],
        "tree": list(tree_rows(state, agent)),
    }


def _voting(request: Request, votes: Sequence[Vote]) -> dict[str, Any]:
    """The votes that a request to several persons waits for."""
    asked = request.approval
    return {
        "missing": "" if asked is None else tally(asked, votes).text,
        "approved_at": time_text(approved_at(request, votes)),
    }


def tree_rows(state: AgentState, name: str) -> Iterator[dict[str, Any]]:
    """Rows for the agents inside an agent and for their open calls, with their depths."""
    run = state.run
    is_quarantined = run is not None and not run.over and run.quarantined is not None
    yield from _tree(state, name, 0, is_quarantined)


def _tree(
    state: AgentState, name: str, depth: int, is_quarantined: bool
) -> Iterator[dict[str, Any]]:
    run = state.run
    is_open = "quarantined" if is_quarantined else "open"
    status = "idle" if run is None else "over" if run.over else is_open
    yield {"depth": depth, "what": "agent", "name": name, "state": status, "call_key": None}
    shown: set[str] = set()
    for call in run.calls if run is not None and not run.over else ():
        found = _state_of(call)
        yield {
            "depth": depth + 1,
            "what": "call",
            "name": call.part.tool_name or "model",
            "state": "interrupted" if found == "running" and is_quarantined else found,
            "call_key": call.key,
        }
        for key in agents_of_call(state.children, call.key):
            child = state.children[key]
            if child.run is not None:
                shown.add(key)
                yield from _tree(child, child.run.agent, depth + 2, is_quarantined)
    for key, child in state.children.items():
        if key not in shown and child.run is not None:
            yield from _tree(child, child.run.agent, depth + 1, is_quarantined)


def _state_of(call: Call) -> str:
    if call.result is not None:
        return str(call.result.part.outcome)
    if call.pending_requests:
        return "asked"
    if call.running:
        return "running"
    return "waiting" if call.attempts else "ready"
