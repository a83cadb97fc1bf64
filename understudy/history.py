"""The history of an agent, for people: a stable view of its records, with times and durations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from pydantic_ai.messages import ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.usage import RequestUsage

from understudy._base.authors import By, logins_of, shown_authors, who_cancelled
from understudy._base.context_codecs import Context
from understudy._base.json_values import shown
from understudy._base.points_in_time import time_text
from understudy._base.request_timing import CHECK
from understudy._base.usd import usd_text
from understudy.errors import UsageError
from understudy.interrupts import Decision, Request
from understudy.models.prices import UNPRICED
from understudy.state import records as r
from understudy.state.agent_state import AgentState
from understudy.state.costs import CostLine, complete
from understudy.state.files import FileChange
from understudy.state.plans import Occurrence, RunChoices, Schedule
from understudy.state.run_state import RunState

__all__ = ["HistoryEntry", "HistoryPage", "What", "history_of"]

What = Literal[
    "agent_created",
    "imported",
    "compacted",
    "status",
    "values_changed",
    "history_replaced",
    "reply_held",
    "message_queued",
    "background_started",
    "message_due",
    "message_cancelled",
    "message_refused",
    "pause_requested",
    "schedule_set",
    "schedule_removed",
    "occurrence",
    "message_taken",
    "run_started",
    "attempt_started",
    "reply",
    "request",
    "reminded",
    "escalated",
    "decision",
    "vote",
    "glass_broken",
    "review_closed",
    "withdrawn",
    "revoked",
    "tool_started",
    "tool_suspended",
    "wait_started",
    "wait_over",
    "token_made",
    "done_once",
    "model_asked",
    "tool_ended",
    "files_changed",
    "settled",
    "doubt_ended",
    "paused",
    "unpaused",
    "stop_requested",
    "override",
    "last_answer_asked",
    "agent_ended",
    "quarantined",
    "released",
    "run_ended",
]
"""The kind of a history entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One thing that happened to an agent, or to an agent that it runs."""

    seq: int
    """The number of its record. All entries of one record have the same number."""
    what: What
    at: datetime | None
    """The time of the record; None if the record has no time."""
    agent_path: tuple[str, ...]
    """The names of the agents, from the outermost agent to the agent to which it happened."""
    run_id: str | None = None
    call_key: str | None = None
    """The key of the tool call that the entry is about; None if it is about no call."""
    tool_name: str | None = None
    who: str | None = None
    """The person who decided or wrote, the model that replied, or the source of a stop signal."""
    seconds: float | None = None
    """The duration, in seconds; None if it is unknown.

    For a tool and for a run it counts from the start. For a decision it counts from the request.
    For a reply it counts from the record before it. It is unknown if one of the two times is
    unknown, or if the clock was set back between them.
    """
    detail: dict[str, Any] = field(default_factory=dict)
    """The other facts of the entry, JSON-able. The keys depend on `what`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as JSON-able data."""
        data = {name: getattr(self, name) for name in HistoryEntry.__dataclass_fields__}
        return {**data, "at": time_text(self.at), "agent_path": list(self.agent_path)}


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """A page of history entries, oldest first. A `for` loop goes over them.

    `ref.history(after=page.next)` returns the next page.
    """

    entries: tuple[HistoryEntry, ...]
    next: int | None
    """The value of `after` for the next page, or of `before` for the page of earlier entries.

    None if there are no more entries now.
    """

    def __iter__(self) -> Iterator[HistoryEntry]:
        return iter(self.entries)


def check_page(after: object, limit: object, before: object = None) -> None:
    """Raise `UsageError` for what cannot be the `after`, `limit` or `before` of a page."""
    if before is not None and after != 0:
        raise UsageError("`after` and `before` exclude each other: give one of them")
    number = 1 if before is None else before
    for what, given, least in (("after", after, 0), ("limit", limit, 1), ("before", number, 1)):
        if not isinstance(given, int) or isinstance(given, bool) or given < least:
            raise UsageError(f"`{what}` must be an integer from {least} on, got {shown(given)}")


def history_of(
    records: Iterable[r.Record], agent: str, *, first_seq: int = 1
) -> Iterator[HistoryEntry]:
    """Return the history entries of an agent's records, oldest first.

    Args:
        records: all records of the agent, in order, or all from a snapshot on.
        agent: the name of the agent's definition.
        first_seq: the number of the first of `records`.

    """
    reader = HistoryReader()
    for seq, record in enumerate(records, first_seq):
        yield from reader.read(seq, record, (agent,))


_Place = tuple[str, ...]
"""Of which run a record is: the keys of the children from the outermost agent down to its own. Two
agents of one name may run at once, so their path does not tell."""


class HistoryReader:
    """Reads records in order, and keeps the times from which durations are counted."""

    def __init__(self) -> None:
        self._started: dict[tuple[_Place, str], datetime | None] = {}
        """When calls and runs were started, by call key or run id."""
        self._asked: dict[str, datetime] = {}
        """When requests were made, by id."""
        self._latest: dict[_Place, datetime | None] = {}
        self._runs: dict[_Place, str] = {}
        self._held: set[_Place] = set()
        """The places at which a reply is held, whose request has an entry already."""

    def copy(self) -> HistoryReader:
        """Return a reader that continues from here independently."""
        twin = HistoryReader()
        twin._started, twin._asked = self._started.copy(), self._asked.copy()
        twin._latest, twin._runs = self._latest.copy(), self._runs.copy()
        twin._held = self._held.copy()
        return twin

    def read(
        self,
        seq: int,
        record: r.Record,
        path: tuple[str, ...],
        place: _Place = (),
        at: datetime | None = None,
    ) -> Iterator[HistoryEntry]:
        """The entries of the next record. To be exhausted before the one after it is read."""
        at = record.at or at
        if isinstance(record, r.ChildRecord):
            inner = *path, record.name
            yield from self.read(seq, record.record, inner, (*place, record.child), at)
            return
        for what, fields in self._entries(record, place, at):
            run_id = self._runs.get(place)
            if "by" in fields:
                fields = _named(**fields)
            yield HistoryEntry(
                **{"seq": seq, "what": what, "at": at, "agent_path": path, "run_id": run_id}
                | fields
            )
        self._latest[place] = at

    def _since(self, start: datetime | None, at: datetime | None) -> float | None:
        if start is None or at is None or at < start:
            return None
        return (at - start).total_seconds()

    def _entries(
        self, record: r.Record, place: _Place, at: datetime | None
    ) -> Iterator[tuple[What, dict[str, Any]]]:
        status = None if isinstance(record, r.StatusNoted) else r.status_in(record)
        changed: tuple[What, dict[str, Any]] = "status", {"detail": {"status": status}}
        if status is not None and not isinstance(record, r.RunEnded):
            yield changed
        match record:
            case r.RunStarted():
                self._runs[place] = record.run_id
                self._started[place, record.run_id] = at
                text = None if record.message is None else _text(record.message)
                detail: dict[str, Any] = {"text": text, "agent": record.agent}
                if record.continues is not None:
                    detail["continues"] = record.continues
                if record.occurrence is not None:
                    detail["occurrence"] = _occurrence(record.occurrence)
                detail |= _context(record.context)
                yield "run_started", {"by": record.by, "detail": detail}
            case r.RunEnded(end=end):
                run_id = self._runs.pop(place, None)
                self._held.discard(place)
                seconds = self._since(self._started.pop((place, run_id or ""), None), at)
                yield "run_ended", {"run_id": run_id, "seconds": seconds, "detail": _end(end)}
                if status is not None:
                    yield changed
            case r.Reply():
                seconds = self._since(self._latest.get(place), at)
                reply = _reply(record) | {"seconds": seconds}
                if place in self._held:
                    self._held.discard(place)
                    reply["detail"]["model_requests"] = []
                yield "reply", reply
            case r.ReplyHeld():
                self._held.add(place)
                detail = {"turn": record.turn, "text": record.response.text}
                detail["model_requests"] = _model_requests(record.response)
                yield "reply_held", {"detail": detail}
            case r.Started():
                self._started[place, record.call_key] = at
                call = {"call_key": record.call_key, "tool_name": record.tool_name}
                detail = {"attempt": record.attempt}
                if record.arguments is not None:
                    detail["arguments"] = record.arguments
                yield "tool_started", {**call, "detail": detail}
            case r.Result():
                seconds = self._since(self._started.pop((place, record.call_key), None), at)
                yield "tool_ended", _result(record) | {"seconds": seconds}
                if record.settled is not None:
                    who = CHECK if record.settled == CHECK else None
                    settled = {"call_key": record.call_key, "detail": {"how": record.settled}}
                    yield "settled", {**settled, "who": who}
                if record.files:
                    call = {"call_key": record.call_key, "tool_name": record.part.tool_name}
                    yield "files_changed", {**call, "detail": _files(record.files)}
                if record.halt is not None:
                    yield self._request(record.halt)
            case r.Requested():
                yield self._request(record.request)
            case r.InterruptsChecked():
                for request in record.requests:
                    yield self._request(request)
                for decided in record.decided:
                    yield self._decision(decided)
            case r.Voted():
                detail = {"request_id": record.request_id, **record.vote.to_dict()}
                vote = record.vote
                yield "vote", {"who": vote.shown_name, "detail": detail}
            case r.GlassBroken(review=review):
                broken = {"request_id": review.id, "note": review.note, "roles": list(review.roles)}
                call = {"call_key": review.call_key, "tool_name": review.tool_name}
                yield "glass_broken", {**call, "who": review.by, "detail": broken}
            case r.ReviewClosed():
                closed = {"request_id": record.review_id, "note": record.note}
                yield "review_closed", {"who": record.by, "detail": closed}
            case r.Decided():
                yield self._decision(record)
            case r.Snapshot():
                self._latest.clear()
                state = AgentState.from_dict(record.state)
                runs = dict(_open_runs(state))
                self._runs = {place: run.run_id for place, run in runs.items()}
                self._started = {(place, run.run_id): run.began for place, run in runs.items()}
                self._asked = {request.id: request.created_at for request in state.requests}
                self._held = set(_holding(state))
                yield "compacted", {"who": record.by, "detail": _compacted(state)}
            case _:
                yield from _simple(record)

    def _request(self, request: Request) -> tuple[What, dict[str, Any]]:
        self._asked[request.id] = request.created_at
        return "request", {
            "call_key": request.call_key,
            "tool_name": request.tool_name or None,
            "who": request.source or None,
            "detail": {
                "request_id": request.id,
                "kind": request.kind,
                "arguments": request.arguments,
                "payload": request.payload,
                **_context(request.context),
            },
        }

    def _decision(self, record: r.Decided) -> tuple[What, dict[str, Any]]:
        decision: Decision = record.decision
        seconds = self._since(self._asked.pop(record.request_id, None), record.at)
        detail = {"request_id": record.request_id, **decision.to_dict()}
        detail |= _context(record.context)
        logins = logins_of([record.login])
        detail |= {"logins": logins} if logins else {}
        return "decision", {"who": decision.by, "seconds": seconds, "detail": detail}


def _named(
    *, by: Iterable[By | None], detail: Mapping[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    """The fields of an entry, with the names of its persons, and what distinguishes them."""
    logins = logins_of(by)
    whole = {**(detail or {}), **({"logins": logins} if logins else {})}
    return {**fields, "who": shown_authors(by), "detail": whole}


def _text(message: ModelRequest) -> str:
    """What a user wrote, without images and other files."""
    contents = [part.content for part in message.parts if isinstance(part, UserPromptPart)]
    items = [[content] if isinstance(content, str) else content for content in contents]
    return "\n".join(item for some in items for item in some if isinstance(item, str))


def _context(context: Context) -> dict[str, Any]:
    return {"context": dict(context)} if context else {}


def _choices(choices: RunChoices) -> dict[str, Any]:
    """What was chosen for a run that waits for its turn, without what is left to the agent."""
    chosen = {name: value for name, value in asdict(choices).items() if value not in (None, False)}
    if choices.ends_at is not None:
        chosen["ends_at"] = time_text(choices.ends_at)
    return chosen


def _occurrence(occurrence: Occurrence) -> dict[str, Any]:
    return {
        "schedule_id": occurrence.schedule_id,
        "due": time_text(occurrence.due),
        "triggered": occurrence.triggered,
        "skipped": occurrence.skipped,
    }


def _schedule(schedule: Schedule) -> dict[str, Any]:
    return {
        "schedule_id": schedule.id,
        "name": schedule.name,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "text": _text(schedule.message),
        "missed": schedule.missed,
        "overlap": schedule.overlap,
        "paused": schedule.paused,
        "next_due": time_text(schedule.next_due),
        **_context(schedule.context),
    }


def _end(end: r.End) -> dict[str, Any]:
    return {"outcome": end.outcome, "text": end.text, "error": end.error, "signals": end.signals}


def _reply(record: r.Reply) -> dict[str, Any]:
    response = record.response
    detail = {
        "turn": record.turn,
        "text": "".join(part.content for part in response.parts if part.part_kind == "text"),
        "calls": [part.tool_name for part in response.parts if part.part_kind == "tool-call"],
        "native_calls": [
            part.tool_name for part in response.parts if part.part_kind == "builtin-tool-call"
        ],
        "input_tokens": response.usage.input_tokens,
        "output_tokens": response.usage.output_tokens,
        "finish_reason": response.finish_reason,
        "cut": record.cut,
        "model_requests": _model_requests(response),
    }
    return {"who": response.model_name, "detail": detail}


def _asked(
    record: r.ModelAsked | r.ModelGaveNoAnswer, answer: Any, error: str | None
) -> dict[str, Any]:
    response = record.response
    detail = {
        "key": record.key,
        "answer": answer,
        "error": error,
        "input_tokens": response.usage.input_tokens,
        "output_tokens": response.usage.output_tokens,
        "finish_reason": response.finish_reason,
        "model_requests": _model_requests(response),
    }
    return {"who": response.model_name, "detail": detail}


def _model_requests(response: ModelResponse) -> list[dict[str, Any]]:
    """The requests that were made for a reply: those whose replies were no answer, and its own."""
    attempts = [
        _model_request(each.model_name, each.provider_name, None, each.usage)
        for each in response.failed_attempts or ()
        if each.usage is not None
    ]
    own = _model_request(
        response.model_name, response.provider_name, response.provider_url, response.usage
    )
    return [*attempts, own]


def _model_request(
    model: str | None, provider: str | None, url: str | None, usage: RequestUsage
) -> dict[str, Any]:
    """One request: what it used, and what it cost, as recorded, in USD, as text."""
    counts = {name: count for name, count in vars(usage).items() if type(count) in (int, float)}
    counts.pop(UNPRICED, None)
    return {
        "model": model,
        "provider": provider,
        "provider_url": url,
        "usage": {name: count for name, count in counts.items() if count},
        "cost": None if usage.cost is None else usd_text(usage.cost),
    }


def _line(line: CostLine) -> dict[str, Any]:
    return {**asdict(line), "cost": usd_text(line.cost)}


def _states(state: AgentState, place: _Place = ()) -> Iterator[tuple[_Place, AgentState]]:
    """The agent and all that it runs."""
    yield place, state
    for key, child in state.children.items():
        yield from _states(child, (*place, key))


def _open_runs(state: AgentState) -> Iterator[tuple[_Place, RunState]]:
    for place, inner in _states(state):
        if inner.run is not None and not inner.run.over:
            yield place, inner.run


def _holding(state: AgentState) -> Iterator[_Place]:
    """Where a reply is held."""
    for place, inner in _states(state):
        run = inner.run
        if run is not None and run.model_call is not None and run.model_call.held is not None:
            yield place


def _compacted(state: AgentState) -> dict[str, Any]:
    """The costs of the runs before: of the last one by its id, of earlier ones under ""."""
    lines_of = {"": state.earlier_costs}
    if state.run is not None:
        lines_of[state.run.run_id] = state.cost.lines
    costs = {run_id: [_line(line) for line in lines] for run_id, lines in lines_of.items() if lines}
    return {"costs": costs} if costs else {}


def _result(record: r.Result) -> dict[str, Any]:
    part = record.part
    detail = {
        "outcome": part.outcome,
        "text": part.model_response_str(),
        "metadata": part.metadata,
        "in_doubt": record.doubt,
        "given": record.value_is == "given",
    }
    return {"call_key": record.call_key, "tool_name": part.tool_name, "detail": detail}


def _files(changes: Sequence[FileChange]) -> dict[str, Any]:
    """What was written, with its size in bytes, and what is gone."""
    written = {each.path: each.file.size for each in changes if each.file is not None}
    return {"written": written, "gone": [each.path for each in changes if each.file is None]}


def _simple(record: r.Record) -> Iterator[tuple[What, dict[str, Any]]]:
    """The entries that need nothing but their record. Records of the pipeline alone have none."""
    match record:
        case r.AgentCreated():
            yield "agent_created", {"detail": {"values": record.values}}
        case r.Imported():
            yield "imported", {"who": record.by, "detail": {"from": record.agent_id}}
        case r.StatusNoted():
            yield "status", {"detail": {"status": record.status}}
        case r.ValuesMerged():
            yield "values_changed", {"who": record.source, "detail": {"delta": record.delta}}
        case r.FilesChanged(own=own):
            yield "files_changed", {"detail": {**_files(record.files), "copied": own}}
        case r.HistoryReplaced():
            yield "history_replaced", {"detail": {"messages": len(record.messages)}}
        case r.ModelAsked():
            yield "model_asked", _asked(record, record.value, None)
        case r.ModelGaveNoAnswer():
            yield "model_asked", _asked(record, record.response.text, record.error)
        case r.MessageQueued():
            detail: dict[str, Any] = {
                "message_id": record.message_id,
                "text": _text(record.message),
            }
            due = time_text(record.due)
            detail |= {"steer": record.steer, "due": due, **_context(record.context)}
            if record.choices is not None:
                detail["choices"] = _choices(record.choices)
            yield "message_queued", {"by": (record.by,), "detail": detail}
        case r.BackgroundStarted(call=made):
            about = {"code": made.code, "agent_id": made.agent_id, "arguments": made.arguments}
            named = {"call_key": made.call_key, "tool_name": made.tool_name}
            yield "background_started", {**named, "detail": about}
        case r.MessageDue():
            yield "message_due", {"detail": {"message_id": record.message_id}}
        case r.MessageCancelled():
            cancelled = {"message_id": record.message_id}
            yield "message_cancelled", {"by": (record.by,), "detail": cancelled}
        case r.MessageRefused(error=error):
            refused = {"message_id": record.message_id, "error": error}
            yield "message_refused", {"detail": refused}
        case r.PauseRequested():
            yield "pause_requested", {"by": (record.by,), "detail": {"reason": record.reason}}
        case r.ScheduleSet(schedule=schedule):
            yield "schedule_set", {"by": (record.by or schedule.by,), "detail": _schedule(schedule)}
        case r.ScheduleRemoved():
            removed = {"schedule_id": record.schedule_id}
            yield "schedule_removed", {"by": (record.by,), "detail": removed}
        case r.Occurred():
            since = time_text(record.since)
            occurrence = {**_occurrence(record.occurrence), "since": since}
            yield "occurrence", {"by": (record.occurrence.by,), "detail": occurrence}
        case r.UserMessage():
            yield (
                "message_taken",
                {
                    "by": (record.by,),
                    "detail": {"text": _text(record.message), "ids": list(record.message_ids)},
                },
            )
        case r.Attempt():
            attempt = {"number": record.number, "reply_lost": record.reply_lost}
            detail = {**attempt, "host": record.host}
            yield "attempt_started", {"who": record.by, "detail": detail}
        case r.Reminded():
            reminder = {"request_id": record.request_id, "number": record.number}
            yield "reminded", {"detail": reminder}
        case r.Escalated():
            escalation = {"request_id": record.request_id, "number": record.number}
            yield "escalated", {"who": record.audience, "detail": escalation}
        case r.Withdrawn():
            yield "withdrawn", {"detail": {"request_ids": list(record.request_ids)}}
        case r.Revoked():
            yield "revoked", {"by": (record.by,), "detail": {"grant_id": record.grant_id}}
        case r.Suspended():
            yield "tool_suspended", {"call_key": record.call_key}
        case r.PointReached():
            until = time_text(record.due)
            point: dict[str, Any] = {"name": record.name, "what": record.what, "expires_at": until}
            if record.reason is not None:
                point["reason"] = record.reason
            if record.used is not None:
                lines = complete(record.costs, "", record.used.requests)
                point["costs"] = [_line(line) for line in lines]
            yield "wait_started", {"call_key": record.call_key, "detail": point}
        case r.PointAnswered():
            over: dict[str, Any] = {"name": record.name, "what": record.what, "how": record.how}
            over |= {"value": record.value, "reason": record.reason}
            what: What = "done_once" if record.what == "once" else "wait_over"
            yield what, {"call_key": record.call_key, "by": (record.by,), "detail": over}
        case r.TokenMade():
            yield "token_made", {"call_key": record.call_key, "detail": {"name": record.name}}
        case r.Settled(ended=True):
            yield "doubt_ended", {"call_key": record.call_key}
        case r.Settled():
            settled: dict[str, Any] = {"how": record.how}
            if not record.happened:
                settled["happened"] = False
            yield "settled", {"call_key": record.call_key, "by": (record.by,), "detail": settled}
        case r.Paused():
            yield "paused", {"by": (record.by,), "detail": {"reason": record.reason}}
        case r.Unpaused():
            yield "unpaused", {"by": (record.by,)}
        case r.CancelRequested(signal=signal) | r.Signalled(signal=signal):
            by = who_cancelled(signal) if signal.get("source") == "cancel" else None
            yield (
                "stop_requested",
                {
                    "by": (by or signal.get("source"),),
                    "detail": {"signal": signal},
                },
            )
        case r.Override():
            yield "override", {"who": record.source, "detail": {"prompt": record.prompt}}
        case r.EarlyStopBegun():
            yield "last_answer_asked", {"detail": {"text": _text(record.message)}}
        case r.SubRunEnded():
            ended = {"agent": record.agent, "round": record.round, "outcome": record.outcome}
            yield "agent_ended", {"detail": ended}
        case r.Quarantined():
            yield "quarantined", {"detail": {"cause": record.cause}}
        case r.Released():
            yield "released", {"by": (record.by,)}
        case _:
            pass
