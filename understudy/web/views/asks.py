"""The requests that wait for people: the inbox, a request in full, and the calls in doubt."""

from __future__ import annotations

from collections.abc import Iterable, Set
from datetime import datetime
from typing import Any, cast

from understudy._base.json_values import jsonable
from understudy._base.points_in_time import time_text
from understudy._base.request_summary import details, headline, summary, summary_of_doubt
from understudy.actors import PendingRequest, Runtime
from understudy.agent.standing import NOBODY_KNOWN, Standing, standing_of
from understudy.approvals import Voter, tally
from understudy.errors import UnderstudyError, UnknownAgent
from understudy.history import HistoryEntry
from understudy.interrupts import Request, approved_at, decision_word
from understudy.login.problems import Refused, refused
from understudy.state.agent_state import AgentState
from understudy.state.next_due import votes_of
from understudy.state.reviews import Review
from understudy.web.views import together
from understudy.web.views.conversation import last_rows
from understudy.web.views.evidence import evidence, with_evidence
from understudy.web.views.newest_first import entries_back
from understudy.web.views.queue import counts_of, page_of, queue_of
from understudy.web.visit import Visit

FIRST_REVIEWS = 10
"""The maximum number of reviews on the first page of the inbox."""


async def inbox(visit: Visit) -> dict[str, Any]:
    """The requests that wait, in pages."""
    queue = queue_of(visit)
    # Race: a request between the two reads is in the list, and the next read counts it.
    counts = await counts_of(visit, queue)
    found, after = await page_of(visit, queue, visit.limit(50))
    user = await voter(visit) if any(each.request.approval for each in found) else None
    now = await visit.time()
    rows = [request_row(visit, pending, at, user, now) for at, pending in enumerate(found)]
    is_whole = queue.is_whole and queue.order == "oldest"
    cut = [*(rows[:1] if visit.asked("after") else ()), *(rows[-1:] if after else ())]
    await _count_replies(visit, rows, cut if is_whole else rows)
    return {
        "requests": rows,
        "reviews": await _first_reviews(visit),
        "next": after,
        "counts": counts,
        "filters": queue.filters,
    }


async def _first_reviews(visit: Visit) -> list[dict[str, Any]]:
    """The oldest open reviews, for the first page of an inbox without filters."""
    if visit.asked("after") or not queue_of(visit).is_whole:
        return []
    page = await visit.wait(visit.source.reviews(limit=FIRST_REVIEWS))
    return await review_rows(visit, page)


async def review_rows(visit: Visit, found: Iterable[Review]) -> list[dict[str, Any]]:
    """Reviews as plain data, with the reasons why the user may not close them."""
    reviews = list(found)
    user = await voter(visit) if reviews else None
    return [{**each.to_dict(), "why_not_close": _why_not_close(each, user)} for each in reviews]


def _why_not_close(review: Review, user: Voter | None) -> str | None:
    if user is None:
        return NOBODY_KNOWN
    return user.why_unknown or user.why_no_person("review") or review.why_not_by(user.person)


async def doubts(visit: Visit, rows_of_page: int = 30) -> dict[str, Any]:
    """The calls in doubt, in pages: a person or a check is asked about them, or nobody is."""
    tool, agent = visit.asked("tool"), visit.asked("agent")
    order = visit.asked("order") or "oldest"
    page = await visit.wait(
        visit.source.doubts(
            tool=tool,
            agent=agent,
            order=cast("Any", order),
            after=visit.asked("after"),
            limit=visit.limit(rows_of_page),
        )
    )
    rows = []
    for at, doubt in enumerate(page):
        row = doubt.to_dict()
        seen = visit.redacted(row, "doubts", at)
        rows.append({**row, "summary": summary_of_doubt(seen["arguments"], seen["reason"])})
    return {
        "doubts": rows,
        "next": page.after,
        "filters": {"tool": tool, "agent": agent, "order": order},
    }


async def reviews(visit: Visit) -> dict[str, Any]:
    """The open reviews of calls that one person alone let run, in pages."""
    tool, agent = visit.asked("tool"), visit.asked("agent")
    page = await visit.wait(
        visit.source.reviews(
            tool=tool, agent=agent, after=visit.asked("after"), limit=visit.limit(30)
        )
    )
    return {
        "reviews": await review_rows(visit, page),
        "next": page.after,
        "filters": {"tool": tool, "agent": agent},
    }


def reply_of(request: Request) -> str:
    """The reply of the model that a request belongs to."""
    return f"{'/'.join(request.agent_path)}:{request.call_key.rpartition('.')[0]}"


def request_row(
    visit: Visit, pending: PendingRequest, at: int, user: Voter | None, now: datetime
) -> dict[str, Any]:
    """A request as plain data, with the store's facts, and what the user may do about it.

    Values are hidden before they become the text of its summary.
    """
    row, request = pending.to_dict(), pending.request
    seen = visit.redacted(row, "requests", at)
    return {
        **row,
        "title": headline(seen),
        **standing_of(request, request.approval, pending.votes, user, now).to_dict(),
        "reply": reply_of(pending.request),
        "summary": summary(seen),
        "details": details(seen),
        "impossible": visit.source.why_impossible(pending.request),
        "notes": together.notes_for_user(visit, pending.notes),
    }


async def _count_replies(
    visit: Visit, rows: list[dict[str, Any]], cut: list[dict[str, Any]]
) -> None:
    """Add to each row the number of requests of its reply, and the number of answered ones.

    The index has the number of requests of the reply. An agent is read only if the page lacks some
    of them that may be open.

    Args:
        visit: of the page.
        rows: the rows of the page.
        cut: the rows whose replies may continue elsewhere, by a filter, the order or a page edge.

    """
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["agent_id"], row["reply"]), []).append(row)
    open_elsewhere = {(row["agent_id"], row["reply"]) for row in cut}
    states: dict[str, AgentState | None] = {}
    for key, group in groups.items():
        size = max(row["reply_size"] for row in group)
        answered = max(size - len(group), 0)
        if answered and key in open_elsewhere:
            if key[0] not in states:
                states[key[0]] = await _state_or_none(visit.about(key[0]))
            state = states[key[0]]
            if state is not None:
                answered, size = replies_in(state).get(key[1], (answered, size))
        for row in group:
            row["reply_size"], row["reply_answered"] = max(size, len(group)), answered


async def _state_or_none(visit: Visit) -> AgentState | None:
    try:
        return await visit.state()
    except UnderstudyError:
        return None  # the agent is deleted meanwhile, or cannot be read, which its page says


def replies_in(state: AgentState) -> dict[str, tuple[int, int]]:
    """The numbers of answered requests and of all requests, by open reply."""
    found = {}
    for inner in state.tree:
        if inner.run is None or inner.run.over:
            continue
        unused = [(call, each) for call in inner.run.calls for each in call.unused_requests]
        if unused:
            answered = sum(request.id in call.decisions for call, request in unused)
            found[reply_of(unused[0][1])] = (answered, len(unused))
    return found


# ---------------------------------------------------------------------- one request


async def request_page(visit: Visit) -> dict[str, Any]:
    """A request, whether it waits or not, and what became of it."""
    request_id = visit.request_id
    state = await visit.state()
    request = next((found for found in state.requests if found.id == request_id), None)
    story = None
    if request is None:
        story, request = await story_of(visit, request_id, state)
    visit.shown = request
    tool = None if request is None else visit.source.tool_of(request)
    siblings = [] if request is None else _siblings(visit, state, request)
    voting = await _voting(visit, state, request, story)
    answered, total = (
        (0, 1) if request is None else replies_in(state).get(reply_of(request), (0, 1))
    )
    return {
        "request": None if request is None else request.to_dict(),
        "title": "" if request is None else headline(visit.redacted(request.to_dict(), "request")),
        "is_pending": story is None,
        "is_expired": request is not None and story is None and await is_expired(visit, request),
        "story": story,
        "agent_id": visit.agent_id,
        "agent": None if request is None else request.agent_path[0],
        "tool_description": None if tool is None else tool.description,
        "tool_parameters": None if tool is None else jsonable(tool.parameters),
        "impossible": None if request is None else visit.source.why_impossible(request),
        "doubts": [] if request is None else await _doubts_shown(visit, state, request),
        "evidence": await _evidence(visit, state, request),
        "last_rows": await last_rows(visit),
        "reply": {"answered": answered, "size": total, "others": siblings},
        "notes": await together.notes(visit),
        **voting,
    }


async def _doubts_shown(visit: Visit, state: AgentState, request: Request) -> list[dict[str, Any]]:
    return await with_evidence(visit, state, request, await doubts_about(visit, state, request))


async def _evidence(
    visit: Visit, state: AgentState, request: Request | None
) -> dict[str, Any] | None:
    """The evidence about the call of a request of this kind."""
    if request is None or request.kind != "doubt":
        return None
    given = jsonable(request.arguments)
    return await evidence(
        visit, state, call_key=request.call_key, tool=request.tool_name, given=given
    )


async def last_of(visit: Visit) -> dict[str, Any] | None:
    """The result of the user's last decision before this page, by `last` in its query.

    None if the query names no request, or an unknown one.
    """
    agent_id, _, request_id = (visit.asked("last") or "").partition("/")
    if not agent_id or not request_id:
        return None
    about = visit.about(agent_id)
    state = await _state_or_none(about)
    request = (
        next((each for each in state.requests if each.id == request_id), None) if state else None
    )
    story = None
    if request is None:
        try:
            story, request = await story_of(about, request_id, state)
        except (Refused, UnderstudyError):
            return None
    seen = visit.redacted(
        {"request": None if request is None else request.to_dict(), "story": story}
    )
    missing = ""
    if state is not None and request is not None and story is None and request.approval:
        missing = tally(request.approval, votes_of(state).get(request_id, ())).text
    return {
        "agent_id": agent_id,
        "request_id": request_id,
        "title": "" if request is None else headline(seen["request"]),
        "about": "" if request is None else request.about,
        "story": seen["story"],
        "missing": missing,
    }


async def _voting(
    visit: Visit, state: AgentState, request: Request | None, story: dict[str, Any] | None
) -> dict[str, Any]:
    """The facts of a vote: who must agree, who has voted, what is missing, what the user may do."""
    asked = None if request is None else request.approval
    votes = [] if story is None else story.pop("votes", [])
    found = {
        "rule": "" if request is None else request.rule,
        "budget": "" if request is None else request.budget,
        "must_agree": "" if asked is None else asked.text,
        "terms": [] if asked is None else list(asked.terms),
        "votes": votes,
        "missing": "",
        "approved_at": None,
    }
    if request is None or story is not None:
        return {**found, **Standing().to_dict()}
    if asked is None:
        standing = standing_of(request, None, (), await voter(visit), await visit.time())
        return {**found, **standing.to_dict()}
    cast = votes_of(state).get(request.id, ())
    found |= {
        "votes": [each.to_dict() for each in cast],
        "missing": tally(asked, cast).text,
        "approved_at": time_text(approved_at(request, cast)),
    }
    standing = standing_of(request, asked, cast, await voter(visit), await visit.time())
    return {**found, **standing.to_dict()}


async def voter(visit: Visit) -> Voter | None:
    """The user as a voter; None if no people are known."""
    if not isinstance(visit.source, Runtime) or visit.source.people is None:
        return None
    return await visit.source.trust.voter(visit.user.caller, await visit.time())


async def is_expired(visit: Visit, request: Request) -> bool:
    """Whether the request's time is over, though no record says so yet."""
    return request.expires_at is not None and request.expires_at <= await visit.time()


def _siblings(visit: Visit, state: AgentState, request: Request) -> list[dict[str, Any]]:
    others = (found for found in state.requests if reply_of(found) == reply_of(request))
    return [
        {
            "id": found.id,
            "tool_name": found.tool_name,
            "about": headline(visit.redacted(found.to_dict(), "request")) or found.about,
            "summary": summary(visit.redacted(found.to_dict(), "request")),
        }
        for found in others
        if found.id != request.id
    ]


async def doubts_about(visit: Visit, state: AgentState, request: Request) -> list[dict[str, Any]]:
    """The doubts with which a request was asked, each with how it was `settled` since, or None.

    If a doubt has ended by itself, its `how` is None.

    A request stays as it was asked. If it was asked without doubts, it has the present doubts of
    its tool.
    """
    now = state.doubts_in_tree
    doubts = request.doubts or tuple(
        doubt for doubt in now.values() if doubt.tool_name == request.tool_name
    )
    settled: dict[str, dict[str, Any]] = {}
    open_then = [doubt for doubt in doubts if doubt.status == "in_doubt"]
    for agent_id in {doubt.agent_id for doubt in open_then}:
        theirs = [doubt for doubt in open_then if doubt.agent_id == agent_id]
        about = visit.about(agent_id) if agent_id else visit
        of = await _state_or_none(about) if agent_id else state
        if of is not None:
            over = {doubt.call_key for doubt in theirs} - of.doubts_in_tree.keys()
            first = min(doubt.since for doubt in theirs) if agent_id else None
            settled |= await _settled_since(about, over, request.id, first)
    return [
        {**data, "settled": settled.get(doubt.call_key)}
        for doubt, data in zip(doubts, jsonable(list(doubts)), strict=True)
    ]


async def _settled_since(
    visit: Visit, over: Set[str], request_id: str, first: datetime | None
) -> dict[str, dict[str, Any]]:
    """How the doubts about these calls ended, since the request or since a time."""
    settled: dict[str, dict[str, Any]] = {}
    if not over:
        return settled
    async for entry in entries_back(visit):
        is_request = entry.what == "request" and entry.detail["request_id"] == request_id
        if is_request or (first is not None and entry.at is not None and entry.at < first):
            break
        key = entry.call_key
        if key is not None and key in over and entry.what in ("settled", "doubt_ended"):
            settled[key] = {"how": entry.detail.get("how"), "at": time_text(entry.at)}
            if settled.keys() == over:
                break
    return settled


async def story_of(
    visit: Visit, request_id: str, state: AgentState | None
) -> tuple[dict[str, Any], Request | None]:
    """What became of a request that does not wait any more."""
    decided = None
    for inner in () if state is None else state.tree:
        for record in inner.decisions:
            if record.request.id == request_id:
                decided = record
    try:
        made, ended, story, votes = await _history_of(visit, request_id)
    except UnknownAgent:
        return {"what": "deleted", "at": None, "by": None, "decision": None}, None
    if decided is not None and story is None:
        story = _decision_story(
            decided.decision.to_dict(), decided.decision.by, time_text(decided.at)
        )
        votes = [each.to_dict() for each in decided.votes]
    if story is None and made is None:
        raise refused(404, "UnknownRequest", "This agent has never asked that.")
    if story is None:
        at = None if ended is None else time_text(ended.at)
        story = {"what": "void", "at": at, "by": None, "decision": None}
    story["votes"] = votes
    if decided is not None:
        return story, decided.request
    return story, None


async def _history_of(
    visit: Visit, request_id: str
) -> tuple[HistoryEntry | None, HistoryEntry | None, dict[str, Any] | None, list[dict[str, Any]]]:
    """The history of a request: how it was asked, the end of its run, its story, its votes."""
    ended = story = None
    votes: list[dict[str, Any]] = []
    async for entry in entries_back(visit):
        detail = entry.detail
        if entry.what == "run_ended":
            ended = entry
        elif entry.what == "withdrawn" and request_id in detail["request_ids"]:
            withdrawn = {
                "what": "withdrawn",
                "at": time_text(entry.at),
                "by": None,
                "decision": None,
            }
            story = story or withdrawn
        elif detail.get("request_id") != request_id:
            continue
        elif entry.what == "decision":
            given = {k: v for k, v in detail.items() if k not in ("request_id", "logins")}
            decided = _decision_story(given, entry.who, time_text(entry.at))
            story = story or decided
        elif entry.what == "request":
            return entry, ended, story, votes
        elif entry.what == "vote":
            votes.insert(0, {k: v for k, v in detail.items() if k != "request_id"})
    return None, ended, story, votes


def _decision_story(decision: dict[str, Any], by: str | None, at: str | None) -> dict[str, Any]:
    word = decision_word(decision)
    return {
        "what": word if word in ("expired", "failed") else "decided",
        "at": at,
        "by": by,
        "decision": decision,
    }
