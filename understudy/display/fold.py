"""`Display`: folds the records of an agent, and its live events, into rows.

It reads no clock and makes no ids: the same records give the same rows in any process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolReturnPart,
)

from understudy._base.authors import By, who_cancelled
from understudy._base.json_values import jsonable
from understudy._base.points_in_time import time_text
from understudy.approvals import tally
from understudy.display.rows import DisplayUpdate, Row, RowKind
from understudy.display.table import (
    OPEN_CALLS,
    PUT_OFF,
    Place,
    Table,
    by_detail,
    decision_detail,
    kind_of_stop,
    message_id,
    part_id,
    request_id,
)
from understudy.events import (
    Event,
    ReplyStarted,
    TextDelta,
    ThinkingDelta,
    ToolCallAnnounced,
    ToolEmitted,
)
from understudy.interrupts import DecisionRecord, approved_at
from understudy.models.attribution import is_for_itself, senders_of
from understudy.models.display_halves import display_of, halves_of
from understudy.state import records as r
from understudy.state.agent_state import AgentState
from understudy.state.plans import SENDER_OF_RESULTS, is_result
from understudy.state.run_state import Call, RunState, is_child_of

ASKED_AGAIN = "The model is asked again"


class LiveRows:
    """The live rows of a table.

    Args:
        table: the table that holds them, beside the recorded rows.

    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def event(self, event: Event) -> DisplayUpdate | None:
        """Fold a live event, which is not recorded. None if no row changes by it."""
        self._table.changed = {}
        match event:
            case ReplyStarted(run_id=run_id, turn=turn):
                place = self._writing(run_id, turn)
                if place is not None:  # another model is asked: the earlier model's text is void
                    self.drop(place)
            case TextDelta():
                self._add_delta("text", event)
            case ThinkingDelta():
                self._add_delta("thinking", event)
            case ToolCallAnnounced():
                self._announce(event)
            case ToolEmitted():
                row = self._table.by_id.get(self._table.row_of_call(event.call_key) or "")
                if row is not None and row.state in OPEN_CALLS:
                    emitted = jsonable(event.data)
                    text = emitted if isinstance(emitted, str) else display_of(emitted)
                    detail = {**row.detail, "emitted": emitted, "progress": text}
                    self._table.put(replace(row, detail=detail))
            case _:
                pass
        return self._table.update_of_changed(None) if self._table.changed else None

    def _writing(self, run_id: str, turn: int, attempt: int | None = None) -> Place | None:
        """The agent that writes this reply; None if the reply is recorded, or void."""
        for place in self._table.places.values():
            if place.run_id == run_id and place.turn <= turn:
                # An event from another host may come late.
                return place if attempt is None or attempt >= place.attempt else None
        return None

    def _live(self, place: Place, id: str, kind: RowKind, part: int) -> Row:
        row = self._table.by_id.get(id)
        if row is not None and row.kind == kind:
            return row
        place.live.append(id)
        return Row(
            id=id,
            kind=kind,
            state="streaming",
            text="",
            agent_path=place.path,
            run_id=place.run_id,
            parent=place.parent,
            position=(self._table.seq + 1, part),
            seq=None,
        )

    def _add_delta(self, kind: RowKind, event: TextDelta | ThinkingDelta) -> None:
        place = self._writing(event.run_id, event.turn, event.attempt)
        if place is not None:
            row = self._live(place, part_id(event.run_id, event.turn, event.part), kind, event.part)
            self._table.put(replace(row, text=row.text + event.text))

    def _announce(self, event: ToolCallAnnounced) -> None:
        place = self._writing(event.run_id, event.turn, event.attempt)
        if place is not None:
            id = part_id(event.run_id, event.turn, event.part)
            row = self._live(place, id, "call", event.part)
            text = event.display_text or event.tool_name
            detail = {"tool_name": event.tool_name}
            self._table.put(replace(row, state="announced", text=text, detail=detail))

    def drop(self, place: Place) -> None:
        for id in place.live:
            row = self._table.by_id.get(id)
            if row is not None and row.seq is None:
                self._table.put(replace(row, state="void"))
        place.live = []


class Display:
    """The rows of one agent, folded from its records and from its live events.

    Args:
        agent: the name of its definition.

    """

    def __init__(self, agent: str) -> None:
        self._table = Table(agent)
        self._live = LiveRows(self._table)
        self._beginning: _Beginning | None = None
        """The snapshot whose messages are still to follow."""

    # ------------------------------------------------------------------- looking

    @property
    def seq(self) -> int:
        """The number of the last record that is folded."""
        return self._table.seq

    @property
    def floor(self) -> int:
        """The number of the record that stands for all before it; 0 if there is none."""
        return self._table.floor

    @property
    def rows(self) -> list[Row]:
        """All rows, in the order of their positions."""
        return self._table.rows

    def update(self, after: int = 0, limit: int | None = None) -> DisplayUpdate:
        """The recorded rows that have changed after a number.

        Args:
            after: the `seq` of the update before; 0 for all rows.
            limit: how many rows; those of one record stay together, so there may be some more.

        """
        return self._table.update(after, limit)

    # ------------------------------------------------------------------- folding

    def event(self, event: Event) -> DisplayUpdate | None:
        """Fold a live event, which is not recorded. None if no row changes by it."""
        return self._live.event(event)

    def add(self, seq: int, record: r.Record) -> None:
        """Fold the next record, as `record` does."""
        self.record(seq, record)

    def record(self, seq: int, record: r.Record) -> DisplayUpdate:
        """Fold the next record. Returns all its changes, which may be none."""
        self._table.seq, self._table.n, self._table.changed = seq, 0, {}
        self._table.at = record.at
        reset = isinstance(record, r.Snapshot)
        self._fold(record, self._table.root)
        return self._table.update_of_changed(seq, reset=reset)

    # ------------------------------------------------------------------- records

    def _fold(self, record: r.Record, place: Place) -> None:
        match record:
            case r.ChildRecord():
                self._table.at = self._table.at or record.at
                self._fold(record.record, self._table.child(place, record.child, record.name))
            case r.Snapshot():
                self._begin_with(record)
            case r.SnapshotMessages():
                if self._beginning is not None and self._beginning.add(record.messages):
                    self._beginning = None
            case r.RunStarted():
                place.run_id, place.turn, place.calls = record.run_id, 0, {}
                place.attempt = 0
                if record.continues is not None:
                    self._continue(place, record.continues)
                    if record.message is not None and is_for_itself(record.message):
                        self._tell_model(place, ASKED_AGAIN, record.message)
                        return
                schedule = record.occurrence.schedule_id if record.occurrence is not None else None
                id = f"{record.run_id}.input"
                self._taken(place, id, record.message, record.message_ids, schedule, record.by)
            case r.UserMessage():
                id = f"message:{self._table.seq}"
                by = () if record.by is None else (record.by,)
                self._taken(place, id, record.message, record.message_ids, None, by)
            case r.ReplyHeld():
                self._live.drop(place)
            case r.Attempt():
                place.attempt = record.number
                self._live.drop(place)
            case r.Reply():
                self._live.drop(place)
                place.turn, place.calls = record.turn + 1, {}
                self._table.add_reply(place, record.response, turn=record.turn, cut=record.cut)
            case r.Started():
                self._call(place, record.call_key, "running", attempt=record.attempt)
                self._since(place, record.call_key, "started_at")
            case r.Result():
                self._result(place, record)
            case r.Suspended():
                self._call(place, record.call_key, "waiting")
            case r.PointReached():
                until = time_text(record.due)
                if record.call_key in place.calls:
                    waits = {"name": record.name, "what": record.what, "until": until}
                    self._call(place, record.call_key, "waiting", waits_for=waits)
                else:
                    self._end_notice(place, PUT_OFF)
                    self._table.add_put_off(place, until, record.reason)
            case r.PointAnswered(what="sleep" | "wait" | "check"):
                self._call(place, record.call_key, None, waits_for=None)
                if record.call_key not in place.calls:
                    self._end_notice(place, PUT_OFF)
            case r.Requested():
                for replaced in record.replaces:
                    self._table.change(request_id(replaced), "withdrawn")
                self._table.add_request(place, record.request)
            case r.InterruptsChecked():
                for request in record.requests:
                    self._table.add_request(place, request)
                for decided in record.decided:
                    self._decided(place, decided)
            case r.Voted():
                self._voted(record)
            case r.Decided():
                self._decided(place, record)
            case r.Reminded():
                self._table.change(request_id(record.request_id), reminders=record.number)
            case r.Escalated():
                row = self._table.by_id.get(request_id(record.request_id))
                before = [] if row is None else row.detail.get("escalated_to", [])
                escalated = [*before, record.audience]
                self._table.change(request_id(record.request_id), escalated_to=escalated)
            case r.Withdrawn():
                for id in record.request_ids:
                    self._table.change(request_id(id), "withdrawn")
            case r.Settled():
                over: dict[str, Any] = (
                    {"doubt_ended": True} if record.ended else {"settled": record.how}
                )
                for row in list(self._table.by_id.values()):
                    if row.detail.get("call_key") == record.call_key:
                        known: dict[str, Any] = {"in_doubt": None, **over}
                        if (row.detail.get("waits_for") or {}).get("what") == "check":
                            known["waits_for"] = None
                        self._table.change(row.id, **known)
            case r.Imported():
                self._imported(record)
            case r.RunEnded():
                self._run_ended(place, record.end)
            case r.SubRunEnded():
                self._close(record.child)
            case _:
                self._note(record, place)

    def _note(self, record: r.Record, place: Place) -> None:
        """Fold the agent's other records: notices, and waiting messages."""
        match record:
            case r.MessageQueued():
                due = time_text(record.due)
                self._table.add_queued(
                    record.message_id,
                    record.message,
                    due=due,
                    steer=record.steer,
                    by=SENDER_OF_RESULTS if is_result(record.message_id) else record.by,
                )
            case r.MessageDue():
                self._table.change(message_id(record.message_id), due=None)
            case r.MessageCancelled():
                row = message_id(record.message_id)
                self._table.change(row, "cancelled", **by_detail(record.by, "cancelled_by"))
            case r.MessageRefused():
                self._table.change(message_id(record.message_id), "cancelled")
            case r.Paused():
                text = f"Paused: {record.reason}"
                self._table.add_notice(place, "paused", text, **by_detail(record.by))
            case r.Unpaused():
                self._end_notice(place, "paused")
            case r.Quarantined():
                text = f"Not continued any more: {record.cause}"
                self._table.add_notice(place, "quarantined", text, kind="error")
                self._table.interrupt_running()
            case r.Released():
                self._end_notice(place, "quarantined")
            case r.CancelRequested():
                text = str(record.signal.get("message") or "cancelled")
                kind = kind_of_stop([record.signal])
                detail: dict[str, Any] = {
                    "signals": [record.signal],
                    **by_detail(who_cancelled(record.signal)),
                }
                self._table.add_notice(place, "cancelled", text, kind=kind, **detail)
            case r.StatusNoted(runs=int(runs)):
                text = f"Stopped after {runs} runs in a row by messages to itself"
                self._table.add(place, f"notice:{self._table.seq}", "notice", text)
            case r.FilesChanged(own=False, files=changes) if changes:
                written = [each.path for each in changes if each.file is not None]
                gone = [each.path for each in changes if each.file is None]
                said = [f"written: {', '.join(written)}"] if written else []
                said += [f"gone: {', '.join(gone)}"] if gone else []
                id, text = f"notice:{self._table.seq}", f"Files {'; '.join(said)}"
                self._table.add(place, id, "notice", text, written=written, gone=gone)
            case r.GlassBroken(review=review):
                id = f"notice:{self._table.seq}"
                self._table.add(place, id, "notice", review.text, review=review.to_dict())
            case r.ReviewClosed():
                note = f": {record.note}" if record.note else ""
                text = f"{record.by} has reviewed why the glass was broken{note}"
                closed = {"review_id": record.review_id, **by_detail(record.by)}
                self._table.add(place, f"notice:{self._table.seq}", "notice", text, **closed)
            case r.HistoryReplaced():
                text = "The conversation that the model gets was replaced"
                self._table.add(place, f"notice:{self._table.seq}", "notice", text)
            case (
                r.EarlyStopBegun(message=message) | r.TurnClosed(message=ModelRequest() as message)
            ):
                text = "The model is asked to answer now"
                if isinstance(record, r.TurnClosed):
                    text = ASKED_AGAIN
                self._tell_model(place, text, message)
            case r.Override():
                text = "It goes on in spite of a limit"
                self._table.add(
                    place, f"notice:{self._table.seq}", "notice", text, source=record.source
                )
            case r.Occurred(occurrence=occurrence) if occurrence.skipped is not None:
                text = f"Schedule {occurrence.schedule_id}: left out ({occurrence.skipped})"
                due = time_text(occurrence.due)
                self._table.add(place, f"notice:{self._table.seq}", "notice", text, due=due)
            case _:
                pass

    def _tell_model(self, place: Place, text: str, message: ModelRequest) -> None:
        """Add a message that the model gets and no person has written."""
        model_text = halves_of(message)[1]
        self._table.add(place, f"notice:{self._table.seq}", "notice", text, model_text=model_text)

    def _continue(self, place: Place, failed: str) -> None:
        """Reopen the calls without a result of a failed run, because another run continues it."""
        place.calls = {
            str(row.detail["call_key"]): row.id
            for row in self._table.by_id.values()
            if row.state == "interrupted" and row.run_id == failed and row.detail.get("call_key")
        }

    # -------------------------------------------------------------- user messages

    def _taken(
        self,
        place: Place,
        id: str,
        message: ModelRequest | None,
        message_ids: tuple[str, ...],
        schedule_id: str | None,
        by: tuple[By, ...],
    ) -> None:
        """Change the rows of the messages that a run takes, or add a new row."""
        waited = [row for each in message_ids if (row := self._table.by_id.get(message_id(each)))]
        for row in waited:
            position, at = self._table.next_position(), row.at
            self._table.put(
                replace(
                    row,
                    state="done",
                    position=position,
                    at=at,
                    seq=self._table.seq,
                    run_id=place.run_id,
                )
            )
        if message is not None and len(waited) < max(1, len(message_ids)):
            text, model_text = halves_of(message)
            detail: dict[str, Any] = {} if schedule_id is None else {"schedule_id": schedule_id}
            detail |= by_detail(by)
            if text or model_text:
                self._table.add(place, id, "user", text, model_text=model_text, **detail)

    # ------------------------------------------------------------------- replies

    def _call(self, place: Place, call_key: str, state: str | None, **detail: Any) -> None:
        self._table.change(place.calls.get(call_key), state, **detail)

    def _since(self, place: Place, call_key: str, name: str) -> None:
        at = time_text(self._table.at)
        self._table.change(place.calls.get(call_key), **{name: at})

    def _result(self, place: Place, record: r.Result) -> None:
        self._close_children(record.call_key)
        self._table.end_requests_of(place.calls.get(record.call_key))
        # The call key is used, because an id of a provider may come again in a later run.
        row = self._table.by_id.get(place.calls.get(record.call_key, ""))
        if row is not None:
            self._table.by_tool_call_id[record.part.tool_call_id] = row.id
        ended = time_text(self._table.at)
        detail = {"ended_at": ended, "in_doubt": record.doubt, "waits_for": None}
        if record.settled is not None:
            detail["settled"] = record.settled
        self._table.add_result(record.part, **detail)
        if record.halt is not None:
            self._table.add_request(place, record.halt)

    # ------------------------------------------------------------------ requests

    def _decided(self, place: Place, record: r.Decided) -> None:
        id, decision = request_id(record.request_id), record.decision
        self._table.change(id, "decided", **decision_detail(decision, record.at, record.login))
        row = self._table.by_id.get(id)
        call = self._table.by_id.get(row.parent or "") if row is not None else None
        if call is not None and call.state == "asked":
            if decision.arguments is not None:
                self._table.change(call.id, arguments=decision.arguments, edited=True)
            if not any(each.state == "pending" for each in self._table.requests_of(call.id)):
                self._table.change(call.id, "ready")

    def _voted(self, record: r.Voted) -> None:
        id = request_id(record.request_id)
        row = self._table.by_id.get(id)
        before = [] if row is None else row.detail.get("votes", [])
        cast = [*before, record.vote.to_dict()]
        self._table.change(
            id, votes=cast, missing=record.missing, approved_at=time_text(record.approved_at)
        )

    def _imported(self, record: r.Imported) -> None:
        self._table.add(
            self._table.root,
            f"notice:{self._table.seq}",
            "notice",
            f"Imported from {record.agent_id}{'' if record.by is None else f' by {record.by}'}: "
            "what was under way there is in doubt",
        )
        for row in list(self._table.by_id.values()):
            if row.kind == "request" and row.state == "pending":
                self._table.change(row.id, "withdrawn")
            elif row.kind == "call" and row.state == "asked":
                self._table.change(row.id, "ready")

    # ------------------------------------------------------------------- notices

    def _end_notice(self, place: Place, name: str) -> None:
        self._table.change(place.open.pop(name, None), "done")

    # ---------------------------------------------------------------------- ends

    def _run_ended(self, place: Place, end: r.End) -> None:
        self._end_turn(place)
        for key in [key for key in self._table.places if key and _is_below(key, place.run_id)]:
            self._close(key)
        cancelled = place.open.get("cancelled")
        for name in list(place.open):
            self._end_notice(place, name)
        self._table.add_end(place, end, has_notice=cancelled is not None)
        place.calls = {}

    def _end_turn(self, place: Place) -> None:
        """End the turn: nothing more comes of its reply and its open calls."""
        self._live.drop(place)
        self._table.end_requests_of(f"{place.run_id}.{place.turn}.model")
        for call_key, id in place.calls.items():
            self._close_children(call_key)
            row = self._table.by_id.get(id)
            if row is not None and row.state in OPEN_CALLS:
                self._table.end_requests_of(id)
                self._table.change(id, "interrupted", waits_for=None)

    def _close_children(self, call_key: str) -> None:
        for key in [key for key in self._table.places if is_child_of(key, call_key)]:
            self._close(key)

    def _close(self, key: str) -> None:
        """Close a nested agent whose run is over, or is given up with the call around it."""
        place = self._table.places.pop(key, None)
        if place is None:
            return
        self._end_turn(place)
        for name in list(place.open):
            self._end_notice(place, name)

    # ---------------------------------------------------------------- a snapshot

    def _begin_with(self, record: r.Snapshot) -> None:
        """Begin anew, from the state that stands for all records so far."""
        (
            self._table.by_id,
            self._table.changed,
            self._table.by_tool_call_id,
            self._table.requests,
        ) = {}, {}, {}, {}
        self._table.root = Place(self._table.root.path)
        self._table.places = {"": self._table.root}
        self._table.floor = self._table.seq
        begun = _Beginning(self._table, AgentState.from_dict(record.state), record.following)
        self._beginning = None if begun.add(()) else begun


class _Beginning:
    """The rows of a snapshot, whose messages may follow in separate records."""

    def __init__(self, table: Table, state: AgentState, following: int) -> None:
        self._table = table
        self._state = state
        self._count = len(state.messages) + following
        self._rows = _MessageRows(table, table.root, state)
        self._waiting: list[ModelMessage] = list(state.messages)

    def add(self, messages: Sequence[ModelMessage]) -> bool:
        """Add the rows of the messages that follow. Returns whether these were the last."""
        self._waiting += messages
        is_whole = self._rows.added + len(self._waiting) >= self._count
        # The last reply may belong to the open turn: it waits for what follows.
        until = len(self._waiting) if is_whole else _last_reply(self._waiting)
        now, self._waiting = self._waiting[:until], self._waiting[until:]
        self._rows.add(now, is_end=is_whole)
        if is_whole:
            add_run(self._table, self._table.root, self._state)
        return is_whole


def _last_reply(messages: Sequence[ModelMessage]) -> int:
    """The index of the last reply; 0 if there is none."""
    return next(
        (at for at in reversed(range(len(messages))) if isinstance(messages[at], ModelResponse)), 0
    )


def _is_below(key: str, run_id: str | None) -> bool:
    return run_id is not None and key.startswith(run_id + ".")


def add_state(table: Table, place: Place, state: AgentState) -> None:
    """Add the rows of an agent: its conversation, and what is open in its run."""
    shared = state.run.shared if state.run is not None else None
    # For an agent of a workflow, the conversation before its run is the workflow's.
    first = shared.inherited if shared is not None else 0
    _MessageRows(table, place, state).add(state.messages[first:], is_end=True)
    add_run(table, place, state)


def add_run(table: Table, place: Place, state: AgentState) -> None:
    """Add the rows of what is open in the run of an agent, after the rows of its conversation."""
    run = state.run
    if run is not None:
        if not run.over:
            _add_open_run(table, place, state, run)
        elif run.end is not None:
            table.add_end(place, run.end)
    for queued in state.queue.values():
        table.add_queued(
            queued.message_id,
            queued.message,
            due=None,
            steer=queued.steer,
            by=queued.by,
        )
    for timed in (state.plans.timed if state.plans is not None else {}).values():
        due = time_text(timed.due)
        table.add_queued(timed.message_id, timed.message, due=due, by=timed.by)


class _MessageRows:
    """The rows of the conversation of a state, added as its messages come."""

    def __init__(self, table: Table, place: Place, state: AgentState) -> None:
        run = state.run
        if run is not None:
            place.run_id, place.turn = run.run_id, run.turns
        self.added: int = 0
        """The number of messages that have their rows."""
        self._table = table
        self._place = place
        self._prefix = f"{place.key}snapshot:{table.seq}"
        self._turn = run.turn if run is not None and not run.over else None
        self._decided: dict[str, list[DecisionRecord]] = {}
        for record in state.decisions:
            self._decided.setdefault(record.request.tool_call_id, []).append(record)

    def add(self, messages: Sequence[ModelMessage], *, is_end: bool) -> None:
        """Add the rows of the messages that follow.

        Args:
            messages: the messages.
            is_end: whether they are the last; otherwise no reply of the open turn is among them.

        """
        table, place, turn = self._table, self._place, self._turn if is_end else None
        last = _last_reply(messages)
        for at, message in enumerate(messages):
            prefix = f"{self._prefix}.{self.added}."
            self.added += 1
            if isinstance(message, ModelResponse):
                is_open = turn is not None and at == last
                table.add_reply(
                    place,
                    message,
                    turn=turn.index if turn is not None and is_open else None,
                    cut=turn is not None and is_open and turn.cut,
                    prefix=prefix,
                )
                for part in message.tool_calls:
                    for record in self._decided.pop(part.tool_call_id, ()):
                        table.add_decided(place, record)
            else:
                _add_request_message(table, place, message, prefix)


def _add_request_message(table: Table, place: Place, message: ModelRequest, prefix: str) -> None:
    text, model_text = halves_of(message)
    results = [part for part in message.parts if isinstance(part, ToolReturnPart)]
    for part in results:
        table.add_result(part)
    if (text or model_text) and not results:
        by = by_detail(", ".join(senders_of(message)) or None)
        at = message.timestamp
        table.add(place, f"{prefix}user", "user", text, model_text=model_text, at=at, **by)


def _add_open_run(table: Table, place: Place, state: AgentState, run: RunState) -> None:
    for call in run.calls:
        _add_call(table, place, call)
    if run.halt is not None and not run.dismissed and run.halt.run_id == run.run_id:
        table.add_request(place, run.halt)
    if run.paused is not None:
        table.add_notice(place, "paused", f"Paused: {run.paused}", **by_detail(run.paused_by))
    if run.quarantined is not None:
        text = f"Not continued any more: {run.quarantined}"
        table.add_notice(place, "quarantined", text, kind="error")
    for key, child in state.children.items():
        name = child.run.agent if child.run is not None else ""
        add_state(table, table.child(place, key, name), child)
    if run.quarantined is not None:  # after the inner agents, whose calls do not run either
        table.interrupt_running()


def _add_call(table: Table, place: Place, call: Call) -> None:
    id = place.calls.get(call.key)
    if call.result is not None:
        table.add_result(call.result.part, in_doubt=call.result.doubt)
        return
    waits = call.waits_at
    if call.running:
        table.change(id, "running", attempt=call.attempts)
    elif waits:
        until = time_text(waits[0].due)
        if id is None:
            table.add_put_off(place, until)
        waits_for = {"name": waits[0].name, "what": waits[0].kind, "until": until}
        table.change(id, "waiting", waits_for=waits_for)
    elif call.attempts:
        table.change(id, "waiting")
    for request in call.pending_requests:
        notices, votes = call.notices.get(request.id), call.votes.get(request.id)
        table.add_request(place, request)
        if votes:
            asked = request.approval
            table.change(
                request_id(request.id),
                votes=[each.to_dict() for each in votes],
                missing="" if asked is None else tally(asked, votes).text,
                approved_at=time_text(approved_at(request, votes)),
            )
        if notices is not None and notices.reminders:
            table.change(request_id(request.id), reminders=notices.reminders)
