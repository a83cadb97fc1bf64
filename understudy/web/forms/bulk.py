"""A decision on many requests, by a form: the chosen requests are shown again, then decided."""

from __future__ import annotations

from collections import Counter
from typing import Any

from understudy._base.request_summary import LEFT_OUT, why_alone
from understudy.agent.standing import Standing, standing_of
from understudy.errors import UnderstudyError
from understudy.interrupts import Decision
from understudy.login.problems import refused
from understudy.state.agent_state import AgentState
from understudy.state.next_due import votes_of
from understudy.web.decide import take_all
from understudy.web.views.asks import doubts_about, voter
from understudy.web.visit import Form, Visit

MAX_CHOSEN = 500


async def bulk_by_form(visit: Visit) -> tuple[int, str, dict[str, Any]]:
    """Show what was chosen; or, confirmed, decide on it."""
    form = await visit.form()
    visit.need("decide")
    chosen = _chosen(form)
    if not chosen:
        raise refused(400, "UsageError", "Choose at least one request.")
    if form.get("decision") in ("approve", "reject") and form.get("confirmed") == "yes":
        return await _decided(visit, form, chosen)
    rows = await _rows(visit, chosen)
    pending = [row for row in rows if row["request"] is not None and row["left_out"] is None]
    allowed = [
        word
        for word in ("approve", "reject")
        if pending and all(word in row["request"]["allowed"] for row in pending)
    ]
    tools = Counter(row["request"]["tool_name"] for row in pending)
    values = {"rows": rows, "allowed": allowed, "tools": tools.most_common(), "page": None}
    return 200, "pages/bulk.html", values


async def _decided(
    visit: Visit, form: Form, chosen: list[tuple[str, str, str]]
) -> tuple[int, str, dict[str, Any]]:
    note = form.get("note").strip() or None
    message = form.get("message").strip() or None
    if form.get("decision") == "approve":
        decision = Decision(type="approve", by=visit.user.by, note=note)
    else:
        decision = Decision(type="reject", message=message, by=visit.user.by, note=note)
    result = await take_all(visit, chosen, decision)
    return 200, "pages/bulk_done.html", {"result": result, "decision": decision, "page": None}


def _chosen(form: Form) -> list[tuple[str, str, str]]:
    """Agent, request and digest of each that is chosen. No agent's id has a slash in it."""
    found = []
    for value in dict.fromkeys(form.all("chosen")):
        parts = value.split("/")
        if len(parts) != 3 or not all(parts):
            raise refused(400, "NotAForm", "The form cannot be read.")
        found.append((parts[0], parts[1], parts[2]))
    if len(found) > MAX_CHOSEN:
        raise refused(400, "UsageError", f"Choose at most {MAX_CHOSEN} requests at once.")
    return found


async def _rows(visit: Visit, chosen: list[tuple[str, str, str]]) -> list[dict[str, Any]]:
    """What was chosen, as it is now."""
    rows = []
    user, now = await voter(visit), await visit.time()
    states: dict[str, AgentState | None] = {}
    for at, (agent_id, request_id, digest) in enumerate(chosen):
        about = visit.about(agent_id)
        if agent_id not in states:
            try:
                states[agent_id] = await about.state()
            except UnderstudyError:
                states[agent_id] = None
        state, shown, standing = states[agent_id], None, Standing()
        for found in () if state is None else state.requests:
            if state is not None and found.id == request_id and found.digest == digest:
                doubts = await doubts_about(about, state, found)
                shown = {**found.to_dict(), "doubts": doubts}
                votes = votes_of(state).get(found.id, ())
                standing = standing_of(found, found.approval, votes, user, now)
        why = None if shown is None else why_alone(shown)
        left_out = None if why is None else LEFT_OUT[why]
        if left_out is None and standing.why_no_vote is not None:
            left_out = f"you may not vote on it: {standing.why_no_vote}"
        rows.append(
            {
                "agent_id": agent_id,
                "request_id": request_id,
                "value": f"{agent_id}/{request_id}/{digest}",
                "request": None if shown is None else visit.redacted(shown, "requests", at),
                "standing": standing.to_dict(),
                "left_out": left_out,
            }
        )
    return rows
