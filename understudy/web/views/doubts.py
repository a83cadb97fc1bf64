"""The page of the calls in doubt: each with its evidence, and with its choices."""

from __future__ import annotations

from typing import Any

from understudy.approvals import InDoubt, why_not_settled_by
from understudy.errors import UnderstudyError
from understudy.interrupts import Request
from understudy.state.agent_state import AgentState
from understudy.web.views import asks
from understudy.web.views.evidence import evidence
from understudy.web.visit import Visit

ROWS = 20
"""The maximum number of doubts on a page."""


async def doubts_page(visit: Visit) -> dict[str, Any]:
    """The calls in doubt, each with its evidence, and with the data for a decision."""
    data, user, now = await asks.doubts(visit, ROWS), await asks.voter(visit), await visit.time()
    for row in data["doubts"]:
        about = visit.about(row["agent_id"])
        try:
            state: AgentState | None = await about.state()
        except UnderstudyError:  # the agent is deleted or unreadable: its page says so
            state = None
        asked = None if state is None else _request(state, row["request_id"])
        row["asked"] = None if asked is None else _answers(about, asked)
        doubt: InDoubt | None = asked
        if state is not None and asked is None:
            doubt = state.doubts_in_tree.get(row["call_key"])
        by = visit.user.by
        row["why_not"] = None if doubt is None else why_not_settled_by(doubt, by, user, now)
        row["evidence"] = await evidence(
            about, state, call_key=row["call_key"], tool=row["tool_name"], given=row["arguments"]
        )
    return data


def _request(state: AgentState, request_id: str | None) -> Request | None:
    return next((each for each in state.requests if each.id == request_id), None)


def _answers(visit: Visit, request: Request) -> dict[str, Any]:
    """The values for a form in the list that answers a request."""
    return {
        "digest": request.digest,
        "allowed": list(request.allowed),
        "schema": request.schema,
        "asks_several": request.approval is not None,
        "impossible": visit.source.why_impossible(request),
    }
