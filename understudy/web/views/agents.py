"""The agents: their list, and a single agent with its actions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from understudy._base.authors import logins_of
from understudy._base.json_values import jsonable
from understudy._base.points_in_time import time_text
from understudy.actors import AgentInfo, Runtime, Status
from understudy.actors.verbs import VERBS, Right
from understudy.costs import costs_of
from understudy.history import HistoryEntry, HistoryPage
from understudy.interrupts import DecisionRecord
from understudy.login.guard import is_same_origin
from understudy.login.problems import refused
from understudy.models.messages import dumped_messages
from understudy.models.prices import PUBLISHED, Prices
from understudy.state.agent_state import AgentState
from understudy.state.costs import NO_COST, Cost
from understudy.state.files import listed
from understudy.state.now import now_of
from understudy.state.why import background_of, queue_of, why
from understudy.web.views.again import again_of
from understudy.web.views.asks import review_rows
from understudy.web.views.freezing import frozen_by, frozen_rows
from understudy.web.views.newest_first import (
    STEP,
    asked_before,
    entries_back,
    is_newest,
    page_before,
)
from understudy.web.visit import Visit

DECISIONS = 50
"""The minimum number of decisions on a page, if there are as many."""
MOST_LOOKED_THROUGH = 5_000
"""The maximum number of records in which a page looks for decisions."""
EARLIER_RUNS = "earlier runs"
"""The name for runs whose records were compacted, or of which a page has only the end."""


async def agents(visit: Visit) -> dict[str, Any]:
    """The agents, in pages."""
    page = await visit.wait(
        visit.source.agents(
            status=visit.asked("status"),
            agent=visit.asked("agent"),
            prefix=visit.asked("prefix") or "",
            version=visit.asked("version"),
            after=visit.asked("after"),
            limit=visit.limit(),
        )
    )
    await visit.look_at_freezes()
    return {
        "agents": await frozen_rows(visit, [info.to_dict() for info in page]),
        "next": page.after,
        "filters": {name: visit.asked(name) for name in ("status", "agent", "prefix")},
        "statuses": [status.value for status in Status if status is not Status.PASSIVE],
    }


async def agent_page(visit: Visit) -> dict[str, Any]:
    """An agent, with its current work, its requests, and its actions."""
    state = await visit.state()
    info = await info_of(visit)
    run = state.run
    await visit.look_at_freezes()
    return {
        **info.to_dict(),
        "frozen": frozen_by(visit, info.agent, state),
        "why": why(state),
        "run_id": None if run is None else run.run_id,
        "is_open": run is not None and not run.over,
        "quarantined": None if run is None or run.over else run.quarantined,
        "requests": [request.to_dict() for request in state.requests],
        "waits": jsonable(list(state.waits)),
        "doubts": jsonable(list(state.doubts_in_tree.values())),
        "reviews": await review_rows(visit, state.reviews.values()),
        "grants": await _grants(visit, state),
        "queue": queue_of(state),
        "background": background_of(state),
        "next_due": time_text(state.next_due),
        "files": len(listed(state.files)),
        "cost": _recorded(state.total_cost),
        "reserved": await _reserved(visit),
        "again": again_of(visit, state),
        "actions": [action.to_dict() for action in actions_of(visit, state)],
    }


async def agent_now(visit: Visit) -> dict[str, Any]:
    """The current facts of an agent: its run, its requests, its files, and its inner agents."""
    info = await info_of(visit)
    return {"id": visit.agent_id, **now_of(await visit.state(), info.agent)}


async def _grants(visit: Visit, state: AgentState) -> list[dict[str, Any]]:
    """The grants, oldest first, each with whether its time is over."""
    if not state.grants:
        return []
    now = await visit.time()
    return [{**each.to_dict(), "is_over": each.is_over(now)} for each in state.grants.values()]


async def _reserved(visit: Visit) -> dict[str, str]:
    """The amounts that the agent has reserved from budgets now, by the names of the budgets."""
    source = visit.source
    if not isinstance(source, Runtime) or not source.has_budgets:
        return {}
    return await visit.wait(source.reserved(visit.agent_id))


def _recorded(cost: Cost) -> dict[str, Any] | None:
    """The cost of all runs that were priced; None if none was: the usage tab estimates it."""
    return None if cost.unknown == cost.requests else cost.to_dict()


async def info_of(visit: Visit) -> AgentInfo:
    """The row of the agent in the path."""
    return await visit.wait(visit.watched.info())


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something that may be done with an agent, or the reason why not."""

    name: str
    right: Right
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the action as JSON-able data."""
        return {"name": self.name, "enabled": self.reason is None, "reason": self.reason}


def actions_of(visit: Visit, state: AgentState) -> list[Action]:
    """All actions on the agent, each with the reason why it cannot be done now."""
    run = state.run if state.run is not None and not state.run.over else None
    is_running = run is not None and state.status == Status.RUNNING.value
    is_paused = run is not None and state.pause is not None
    is_quarantined = run is not None and run.quarantined is not None
    may_retry = is_quarantined or (state.run is not None and state.run.has_failed)
    no_run = "No run is open."
    return allowed_actions(
        visit,
        [
            ("send", "send", None),
            ("steer", "send", None if is_running else "No run is under way that it could steer."),
            ("pause", "pause", "It is paused already." if is_paused else None),
            ("unpause", "unpause", None if is_paused else "It is not paused."),
            ("cancel", "cancel", None if run is not None else no_run),
            ("retry", "retry", None if may_retry else "Its last run has not failed."),
            ("compact", "compact", "A run is under way." if is_running else None),
            ("export", "export", None),
            ("delete", "delete", None),
        ],
    )


def allowed_actions(visit: Visit, reasons: Iterable[tuple[str, str, str | None]]) -> list[Action]:
    """The actions with these names, verbs and reasons. A missing right is a reason too."""
    return [
        # An export changes nothing, but it shows everything.
        Action(
            name=name,
            right=VERBS[verb].right,
            reason=visit.why_not(VERBS[verb].right, changes=verb != "export") or reason,
        )
        for name, verb, reason in reasons
    ]


# ------------------------------------------------------------------- more of an agent


async def agent_state(visit: Visit) -> dict[str, Any]:
    """The values and the whole state of the agent."""
    state = await visit.state()
    shown = await asyncio.to_thread(lambda: _without_salts(state.to_dict()))
    return {"id": visit.agent_id, "values": dict(state.values), "state": shown}


def _without_salts(data: Any) -> Any:
    """A state with empty salts in its requests, because salts are kept only with the requests."""
    if isinstance(data, list):
        return [_without_salts(each) for each in data]
    if not isinstance(data, dict):
        return data
    is_request = {"salt", "digest", "fingerprint", "call_key"} <= data.keys()
    hidden = {"salt": ""} if is_request else {}
    return {name: _without_salts(each) for name, each in data.items()} | hidden


async def decisions(visit: Visit) -> dict[str, Any]:
    """The decisions, newest first, in pages."""
    found: list[dict[str, Any]] = []
    tools: dict[str, str | None] = {}
    votes: dict[str, list[dict[str, Any]]] = {}
    proposed: dict[str, Any] = {}
    first = asked_before(visit)
    imported_by = None if is_newest(visit) else await _imported_by(visit, first)
    before: int | None = first
    compacted: HistoryEntry | None = None
    looked = 0
    while before is not None and len(found) < DECISIONS and looked < MOST_LOOKED_THROUGH:
        page = await page_before(visit, before)
        before, looked = page.next, looked + STEP
        for entry in reversed(page.entries):
            if entry.what == "imported" and entry.who is not None:
                imported_by = entry.who
            elif entry.what == "decision":
                found.append(_decided(entry, imported_by))
            elif entry.what == "compacted":
                compacted = entry
        tools |= _tools_asked_about(page)
        proposed |= _proposed(page)
        _add_votes(page, votes)
    if before is not None and any(row["request_id"] not in tools for row in found):
        page = await page_before(visit, before)
        tools |= _tools_asked_about(page)
        proposed |= _proposed(page)
        _add_votes(page, votes)
    if compacted is not None:
        audit = (await visit.state()).decisions
        tools |= {each.request.id: each.request.tool_name or None for each in audit}
        proposed |= {each.request.id: each.request.arguments for each in audit}
        found += _from_before(compacted, audit, imported_by)
    for row in found:
        row["tool_name"] = tools.get(row["request_id"])
        is_edit = row["decision"].get("type") == "edit"
        # The arguments are below the name by which an application hides them.
        is_known = is_edit and row["request_id"] in proposed
        row["proposed"] = {"arguments": proposed[row["request_id"]]} if is_known else None
        row["votes"] = row["votes"] or votes.get(row["request_id"], [])
    newest = is_newest(visit)
    return {"id": visit.agent_id, "decisions": found, "earlier": before, "is_newest": newest}


async def _imported_by(visit: Visit, before: int) -> str | None:
    """The person who imported the agent after these records, whose decisions came from
    elsewhere.
    """
    looked = 0
    async for entry in entries_back(visit):
        looked += 1
        if entry.seq < before or looked > MOST_LOOKED_THROUGH:
            return None
        if entry.what == "imported" and entry.who is not None:
            return entry.who
    return None


def _decided(entry: HistoryEntry, imported_by: str | None) -> dict[str, Any]:
    detail = entry.detail
    return {
        "request_id": detail["request_id"],
        "at": time_text(entry.at),
        "by": entry.who,
        "logins": detail.get("logins", []),
        "waited_seconds": entry.seconds,
        "agent_path": list(entry.agent_path),
        "decision": {k: v for k, v in detail.items() if k not in ("request_id", "logins")},
        "tool_name": None,
        "proposed": None,
        "imported_by": imported_by,
        "votes": [],
    }


def _from_before(
    compacted: HistoryEntry, audit: Sequence[DecisionRecord], imported_by: str | None
) -> Iterator[dict[str, Any]]:
    """The decisions whose records were compacted away, newest first: the audit has them."""
    for each in reversed(audit):
        if compacted.at is None or each.at <= compacted.at:
            request, decision = each.request, each.decision
            yield {
                "request_id": request.id,
                "at": time_text(each.at),
                "by": decision.by,
                "logins": logins_of([each.login]),
                "waited_seconds": (each.at - request.created_at).total_seconds(),
                "agent_path": list(request.agent_path),
                "decision": decision.to_dict(),
                "tool_name": None,
                "proposed": None,
                "imported_by": imported_by,
                "votes": [vote.to_dict() for vote in each.votes],
            }


def _tools_asked_about(page: HistoryPage) -> dict[str, str | None]:
    """The tools of the requests, by request id."""
    asked = (entry for entry in page.entries if entry.what == "request")
    return {entry.detail["request_id"]: entry.tool_name or entry.who for entry in asked}


def _proposed(page: HistoryPage) -> dict[str, Any]:
    """The arguments before an edit, by request id."""
    asked = (entry for entry in page.entries if entry.what == "request")
    return {entry.detail["request_id"]: entry.detail.get("arguments") for entry in asked}


def _add_votes(page: HistoryPage, votes: dict[str, list[dict[str, Any]]]) -> None:
    """Put the votes of a page before the votes of later pages, by request id."""
    for entry in reversed(page.entries):
        if entry.what == "vote":
            vote = {k: v for k, v in entry.detail.items() if k != "request_id"}
            votes.setdefault(entry.detail["request_id"], []).insert(0, vote)


async def history(visit: Visit) -> dict[str, Any]:
    """The history, in pages."""
    page = await visit.wait(
        visit.watched.history(after=visit.number("after", 0), limit=visit.limit(100))
    )
    return {
        "id": visit.agent_id,
        "entries": [entry.to_dict() for entry in page.entries],
        "next": page.next,
    }


async def messages(visit: Visit) -> dict[str, Any]:
    """The conversation, as the model's messages."""
    state = await visit.state()
    dumped = await asyncio.to_thread(dumped_messages, state.messages)
    return {"id": visit.agent_id, "messages": dumped}


async def usage(visit: Visit) -> dict[str, Any]:
    """The usage and costs of replies, by model, by agent and by run, in pages, newest first."""
    state = await visit.state()
    page = await page_before(visit, asked_before(visit))
    entries = page.entries
    # Each estimate takes about 0.2 ms.
    costs = await asyncio.to_thread(costs_of, entries, pricing=prices_of(visit))
    total = costs.total
    found: dict[str, dict[str, dict[str, Any]]] = {
        "by_model": {name or "?": _row(cost) for name, cost in total.by_model.items()},
        "by_agent": {
            " / ".join(path.split("/")): _row(cost) for path, cost in total.by_agent.items()
        },
        "by_run": {id or EARLIER_RUNS: _row(cost) for id, cost in costs.by_run.items()},
    }
    run = EARLIER_RUNS
    for entry in entries:
        if len(entry.agent_path) == 1 and entry.run_id is not None:
            run = entry.run_id
        if entry.what not in ("reply", "model_asked"):
            continue
        keys = {
            "by_model": entry.who or "?",
            "by_agent": " / ".join(entry.agent_path),
            "by_run": run,
        }
        for table, key in keys.items():
            row = found[table].setdefault(key, _row(NO_COST))
            row["replies"] += 1
            row["input_tokens"] += entry.detail["input_tokens"]
            row["output_tokens"] += entry.detail["output_tokens"]
    return {
        "id": visit.agent_id,
        "cost": total.to_dict(),
        "total": _recorded(state.total_cost),
        **found,
        "earlier": page.next,
        "is_newest": is_newest(visit),
    }


def _row(cost: Cost) -> dict[str, Any]:
    return {"replies": 0, "input_tokens": 0, "output_tokens": 0, "cost": cost.to_dict()}


def prices_of(visit: Visit) -> Prices:
    """The prices for estimates of costs: the runtime's, or else the published prices."""
    return getattr(visit.source, "prices", None) or PUBLISHED


async def export(visit: Visit) -> dict[str, Any]:
    """All records of the agent, for a user with the right `admin`."""
    visit.need("admin", changes=False)
    source = visit.runtime if isinstance(visit.source, Runtime) else visit.source
    headers = visit.request.headers
    # If it is protected, a GET asks persons, so no page of another site may trigger it.
    asks = isinstance(source, Runtime) and source.people is not None and source.trust.guard
    if asks and not is_same_origin(headers, headers.get("host", "")):
        raise refused(403, "CrossSite", "The request comes from a page of another site.")
    data = await visit.wait(source.export(visit.agent_id, by=visit.user.by))
    # It is written in a thread: the records of years would hold the loop.
    if visit.site.redaction.is_on and await asyncio.to_thread(visit.hides, data):
        raise visit.hidden(
            "export",
            "Some of it is hidden from you, and an export is whole: the application exports it, or "
            "its `redact` shows all to you.",
        )
    return data


async def overview(visit: Visit) -> dict[str, Any]:
    """The runtime: the number of its agents, and its current work."""
    counts = await visit.wait(visit.source.count())
    runtime = visit.runtime if isinstance(visit.source, Runtime) else None
    status = None if runtime is None else await _now(visit, runtime.status())
    tree = None if runtime is None else await _now(visit, runtime.tree())
    return {
        "title": visit.site.title,
        "user": {"name": visit.user.by, "may": sorted(visit.user.may)},
        "read_only": visit.site.read_only or runtime is None,
        "agents": {status.value: count for status, count in counts.items()},
        # None if the pages have no runtime of their own: the values belong to one process.
        "in_memory": None if status is None else status.agents,
        "running": None if status is None else status.running,
        "abandoned_threads": None if status is None else status.abandoned_threads,
        "abandoned_tasks": None if status is None else status.abandoned_tasks,
        "held": None if status is None else status.held or None,
        "tree": None if tree is None else str(tree),
        "now": time_text(await visit.time()),
    }


async def _now(visit: Visit, found: Any) -> Any:
    """A value that a runtime has at once, and for which a cluster asks its hosts."""
    return await visit.wait(found) if isinstance(found, Awaitable) else found
