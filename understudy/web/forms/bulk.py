"""A form for a decision on many requests: the chosen requests are shown again, then decided."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from understudy._base.request_summary import LEFT_OUT, headline, why_alone
from understudy.agent.standing import standing_of
from understudy.approvals import Vote, Voter
from understudy.errors import DecisionError, UnderstudyError, UnknownAgent
from understudy.interrupts import Decision, Request
from understudy.login.problems import refused
from understudy.state.agent_state import AgentState
from understudy.state.next_due import votes_of
from understudy.web.decide import take_all
from understudy.web.forms.bulk_tables import tables_of
from understudy.web.forms.request import seen_in
from understudy.web.views.asks import doubts_about, voter
from understudy.web.views.queue import Queue, page_of, queue_of
from understudy.web.visit import Form, Visit

MAX_CHOSEN = 500
MOST = 200
"""The maximum number of requests of a queue that are shown beside each other."""


async def bulk_of_queue(visit: Visit) -> tuple[int, str, dict[str, Any]]:
    """Show the first requests of a queue beside each other. Requests that do not stand out are
    chosen.
    """
    visit.need("decide")
    queue = queue_of(visit)
    found, after = await page_of(visit, queue, MOST)
    user, now = await voter(visit), await visit.time()
    doubtful = {doubt.agent_id async for doubt in visit.source.doubts()}
    rows = []
    for at, pending in enumerate(found):
        about = visit.about(pending.agent_id)
        request, votes = pending.request, pending.votes
        doubts: list[dict[str, Any]] = []
        if request.doubts or pending.agent_id in doubtful:
            try:
                doubts = await doubts_about(about, await about.state(), request)
            except UnderstudyError:  # the agent is deleted meanwhile, or cannot be read
                rows.append(_gone(pending.agent_id, request.id))
                continue
        rows.append(_row(visit, pending.agent_id, request, doubts, votes, user, now, at))
    return 200, "pages/bulk.html", _values(visit, rows, queue, is_cut=after is not None)


async def bulk_by_form(visit: Visit) -> tuple[int, str, dict[str, Any]]:
    """Show the chosen requests; once confirmed, decide on them."""
    form = await visit.form()
    visit.need("decide")
    chosen = _chosen(form)
    if not chosen:
        raise refused(400, "UsageError", "Choose at least one request.")
    if form.get("decision") in ("approve", "reject") and form.get("confirmed") == "yes":
        return await _decided(visit, form, chosen)
    rows = await _rows(visit, chosen)
    return 200, "pages/bulk.html", _values(visit, rows, queue_of(visit), is_chosen=True)


async def take_chosen(visit: Visit) -> Response:
    """Let the user take each chosen request for an hour, and lead back to the inbox."""
    visit.need("decide")
    chosen = _chosen(await visit.form())
    if not chosen:
        raise refused(400, "UsageError", "Choose at least one request.")
    taken = 0
    for agent_id, request_id, _ in chosen:
        try:
            await visit.wait(visit.runtime.take(agent_id, request_id, by=visit.user.by))
            taken += 1
        except (DecisionError, UnknownAgent):
            pass  # the request waits no more, which the list shows
    said = "taken" if taken == len(chosen) else "taken-some"
    query = urlencode({**queue_of(visit).query, "said": said})
    return RedirectResponse(f"{visit.link('/')}?{query}", 303)


def _values(
    visit: Visit,
    rows: list[dict[str, Any]],
    queue: Queue,
    *,
    is_cut: bool = False,
    is_chosen: bool = False,
) -> dict[str, Any]:
    """The values of the page.

    Args:
        visit: of the page.
        rows: the requests to decide on, and the requests that are left out.
        queue: the queue to which the page leads back.
        is_cut: whether the queue has more.
        is_chosen: whether a person has chosen each request: then requests that stand out are chosen
            too.

    """
    pending = [row for row in rows if row["request"] is not None and row["left_out"] is None]
    tables = tables_of(pending)
    allowed = [
        word
        for word in ("approve", "reject")
        if pending and all(word in row["request"]["allowed"] for row in pending)
    ]
    return {
        "tables": tables,
        "left_out": [row for row in rows if row["request"] is None or row["left_out"] is not None],
        "count": len(pending),
        "odd": sum(bool(row["odd"]) for table in tables for row in table.rows),
        "allowed": allowed,
        "queue": queue,
        "is_cut": is_cut,
        "is_chosen": is_chosen,
        "page": None,
    }


async def _decided(
    visit: Visit, form: Form, chosen: list[tuple[str, str, str]]
) -> tuple[int, str, dict[str, Any]]:
    note = form.get("note").strip() or None
    message = form.get("message").strip() or None
    who: dict[str, Any] = {"by": visit.user.by, "note": note, "seen": seen_in(form)}
    if form.get("decision") == "approve":
        decision = Decision(type="approve", **who)
    else:
        decision = Decision(type="reject", message=message, **who)
    result = await take_all(visit, chosen, decision)
    values = {"result": result, "decision": decision, "queue": queue_of(visit), "page": None}
    return 200, "pages/bulk_done.html", values


def _chosen(form: Form) -> list[tuple[str, str, str]]:
    """The agent, request and digest of each chosen request. No agent's id has a slash in it."""
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
    """The chosen requests, as they are now."""
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
        state = states[agent_id]
        asked = () if state is None else state.requests
        found = next((r for r in asked if r.id == request_id and r.digest == digest), None)
        if state is None or found is None:
            rows.append(_gone(agent_id, request_id))
            continue
        doubts = await doubts_about(about, state, found)
        votes = votes_of(state).get(found.id, ())
        rows.append(_row(visit, agent_id, found, doubts, votes, user, now, at))
    return rows


def _gone(agent_id: str, request_id: str) -> dict[str, Any]:
    return {
        "agent_id": agent_id,
        "request_id": request_id,
        "request": None,
        "left_out": "it is not asked any more as it was shown",
    }


def _row(
    visit: Visit,
    agent_id: str,
    request: Request,
    doubts: list[dict[str, Any]],
    votes: Sequence[Vote],
    user: Voter | None,
    now: datetime,
    at: int,
) -> dict[str, Any]:
    """A request as the user may see it, with the reason why it is left out, or None."""
    data = {**request.to_dict(), "doubts": doubts}
    standing = standing_of(request, request.approval, votes, user, now)
    why = why_alone(data)
    left_out = None if why is None else LEFT_OUT[why]
    if left_out is None and standing.why_no_vote is not None:
        left_out = f"you may not vote on it: {standing.why_no_vote}"
    seen = visit.redacted(data, "requests", at)
    return {
        "agent_id": agent_id,
        "request_id": request.id,
        "value": f"{agent_id}/{request.id}/{request.digest}",
        "request": seen,
        "title": headline(seen),
        "standing": standing.to_dict(),
        "impossible": visit.source.why_impossible(request),
        **visit.redacted({"rule": request.rule, "budget": request.budget}, "requests", at),
        "left_out": left_out,
    }
