"""`Table`: the rows of one agent, with the methods that add and change them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from typing import Any

from pydantic_ai.messages import (
    FilePart,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
)

from understudy._base.authors import By, Login, logins_of, shown_authors
from understudy._base.json_values import jsonable
from understudy._base.points_in_time import time_text
from understudy.display.rows import DisplayUpdate, Row, RowKind
from understudy.interrupts import Decision, DecisionRecord, Request
from understudy.models.display_halves import display_of, display_texts_of, halves_of
from understudy.state import records as r
from understudy.state.run_state import is_child_of

OPEN_CALLS = ("announced", "ready", "asked", "running", "waiting")
"""The states of a call that has no result yet."""

PUT_OFF = "put off"
"""The name of the notice that the model call of the next turn waits."""


@dataclass(slots=True)
class Place:
    """An agent of the tree, where rows come from: the outermost agent, or one that it runs."""

    path: tuple[str, ...]
    key: str = ""
    """The key of the agent among the agents that run; empty for the outermost agent."""
    parent: str | None = None
    """The id of the row of the call that runs the agent."""
    run_id: str | None = None
    turn: int = 0
    """The number of the next reply."""
    attempt: int = 0
    """The number of the open attempt; 0 if it is not known."""
    calls: dict[str, str] = field(default_factory=dict)
    """The ids of the rows of the open turn's calls, by call key."""
    live: list[str] = field(default_factory=list)
    """The ids of the rows of the reply that is being written, which is not recorded."""
    open: dict[str, str] = field(default_factory=dict)
    """The ids of the rows that hold until another record: a pause, a quarantine."""


def part_id(run_id: str, turn: int, part: int) -> str:
    """The id of the row of a part of a reply."""
    return f"{run_id}.{turn}.part{part}"


def request_id(id: str) -> str:
    """The id of the row of a request."""
    return f"request:{id}"


def message_id(id: str) -> str:
    """The id of the row of a message that waits."""
    return f"message:{id}"


class Table:
    """The rows of one agent.

    Args:
        agent: the name of its definition.

    """

    def __init__(self, agent: str) -> None:
        self.seq: int = 0
        """The number of the last record that is folded."""
        self.floor: int = 0
        """The number of the record that stands for all before it; 0 if there is none."""
        self.by_id: dict[str, Row] = {}
        self.root: Place = Place((agent,))
        self.places: dict[str, Place] = {"": self.root}
        self.by_tool_call_id: dict[str, str] = {}
        self.requests: dict[str, list[str]] = {}
        """The rows of the requests about a call, by the id of the call's row."""
        self.changed: dict[str, None] = {}
        self.at: datetime | None = None
        self.n: int = 0

    # ------------------------------------------------------------------- looking

    @property
    def rows(self) -> list[Row]:
        """All rows, in the order of their positions."""
        return _in_order(self.by_id.values())

    def update(self, after: int = 0, limit: int | None = None) -> DisplayUpdate:
        """The recorded rows that have changed after a number.

        Args:
            after: the `seq` of the update before; 0 for all rows.
            limit: how many rows; those of one record stay together, so there may be some more.

        """
        reset = after < self.floor or after > self.seq
        after = 0 if reset else after
        if limit is None:
            rows = _in_order(row for row in self.by_id.values() if (row.seq or 0) > after)
            return DisplayUpdate(rows=tuple(rows), seq=self.seq, reset=reset)
        changed = [(row.seq, row) for row in self.by_id.values() if (row.seq or 0) > after]
        changed.sort(key=lambda each: each[0] or 0)
        seq, more = self.seq, False
        if len(changed) > limit:
            last = changed[limit - 1][0]
            assert last is not None, "rows without a number are not among them"
            more = changed[-1][0] != last
            if more:
                seq = last
                changed = [each for each in changed if (each[0] or 0) <= last]
        rows = _in_order(row for _, row in changed)
        return DisplayUpdate(rows=tuple(rows), seq=seq, reset=reset, more=more)

    def update_of_changed(self, seq: int | None, *, reset: bool = False) -> DisplayUpdate:
        rows = [self.by_id[id] for id in self.changed]
        for id in [row.id for row in rows if row.state == "void"]:
            del self.by_id[id]
        return DisplayUpdate(rows=tuple(_in_order(rows)), seq=seq, reset=reset)

    # ---------------------------------------------------------------------- rows

    def put(self, row: Row) -> None:
        self.by_id[row.id] = row
        self.changed[row.id] = None

    def next_position(self) -> tuple[int, int]:
        self.n += 1
        return self.seq, self.n - 1

    def add(
        self,
        place: Place,
        id: str,
        kind: RowKind,
        text: str,
        *,
        state: str = "done",
        model_text: str | None = None,
        parent: str | None = None,
        at: datetime | None = None,
        **detail: Any,
    ) -> Row:
        """A new row of what is recorded now, in the place of one with the same id."""
        row = Row(
            id=id,
            kind=kind,
            state=state,
            text=text,
            model_text=model_text if model_text != text else None,
            agent_path=place.path,
            run_id=place.run_id,
            parent=parent or place.parent,
            at=at or self.at,
            position=self.next_position(),
            seq=self.seq,
            detail=detail,
        )
        self.put(row)
        return row

    def change(self, id: str | None, state: str | None = None, **detail: Any) -> None:
        """Change a recorded row; one that is not there was compacted away."""
        row = self.by_id.get(id or "")
        if row is not None:
            details = {**row.detail, **detail} if detail else row.detail
            self.put(replace(row, state=state or row.state, seq=self.seq, detail=details))

    def interrupt_running(self) -> None:
        """The run is in quarantine: nothing in it runs, and no record says so of each call."""
        for id in [row.id for row in self.by_id.values() if row.state == "running"]:
            self.change(id, "interrupted")

    def row_of_call(self, call_key: str) -> str | None:
        for place in self.places.values():
            if call_key in place.calls:
                return place.calls[call_key]
        return None

    # -------------------------------------------------------------------- parts

    def add_reply(
        self,
        place: Place,
        response: ModelResponse,
        *,
        turn: int | None,
        cut: bool = False,
        prefix: str = "",
    ) -> None:
        """The rows of a reply, part by part.

        Args:
            turn: its number in the open run, whose calls have keys; None for a reply of an earlier
                run, in a state.
            prefix: of the ids of such rows.

        """
        texts = display_texts_of(response)
        calls = 0
        for index, part in enumerate(response.parts):
            id = f"{prefix}{index}" if turn is None else part_id(place.run_id or "", turn, index)
            match part:
                case TextPart(content=text) if text:
                    self.add(place, id, "text", text, state="cut" if cut else "done")
                case ThinkingPart(content=text) if text:
                    self.add(place, id, "thinking", text, state="cut" if cut else "done")
                case ToolCallPart():
                    key = None if turn is None else f"{place.run_id}.{turn}.{calls}"
                    calls += 1
                    if key is not None:
                        place.calls[key] = id
                    self.by_tool_call_id[part.tool_call_id] = id
                    self.add(
                        place,
                        id,
                        "call",
                        texts.get(part.tool_call_id, part.tool_name),
                        state="interrupted" if cut else "ready",
                        tool_name=part.tool_name,
                        tool_call_id=part.tool_call_id,
                        call_key=key,
                        arguments=jsonable(part.args),
                    )
                case NativeToolCallPart():
                    self.by_tool_call_id[part.tool_call_id] = id
                    self.add(
                        place,
                        id,
                        "native_call",
                        part.tool_name,
                        state="running",
                        tool_name=part.tool_name,
                        arguments=jsonable(part.args),
                    )
                case NativeToolReturnPart():
                    called = self.by_tool_call_id.get(part.tool_call_id)
                    self.change(called, part.outcome, result=jsonable(part.content))
                case FilePart():
                    self.add(place, id, "file", f"[{part.content.media_type}]")
                case _:
                    pass  # what only one provider understands

    def add_result(self, part: ToolReturnPart, **detail: Any) -> None:
        """A call has its result."""
        display = display_of(part.metadata)
        result = {"result": part.model_response_str(), "result_display": display}
        self.change(
            self.by_tool_call_id.get(part.tool_call_id),
            part.outcome,
            **result,
            metadata=jsonable(part.metadata),
            **detail,
        )

    def add_request(
        self, place: Place, request: Request, *, state: str = "pending", **detail: Any
    ) -> None:
        """The row of a request. Its call waits for the answer."""
        call = self.row_of_call(request.call_key) or self.by_tool_call_id.get(request.tool_call_id)
        # The question of a middleware before a turn is about no row: about the model call.
        about = call or request.call_key
        self.requests.setdefault(about, []).append(request_id(request.id))
        summary = request.display if isinstance(request.display, str) else None
        if summary is None and request.kind in ("interrupt", "halt"):
            summary = request.payload if isinstance(request.payload, str) else None
        self.add(
            place,
            request_id(request.id),
            "request",
            summary or f"{request.kind}: {request.about}",
            state=state,
            parent=call,
            at=request.created_at,
            request=request.to_dict(),
            **detail,
        )
        if state == "pending" and request.kind != "halt":
            self.change(call, "asked")

    def requests_of(self, call: str) -> Iterator[Row]:
        for id in self.requests.get(call, ()):
            if id in self.by_id:
                yield self.by_id[id]

    def end_requests_of(self, call: str | None) -> None:
        for row in self.requests_of(call) if call is not None else ():
            if row.state == "pending":
                self.change(row.id, "withdrawn")

    def add_queued(
        self,
        id: str,
        message: ModelRequest,
        *,
        due: str | None,
        steer: bool = False,
        by: By | None = None,
    ) -> None:
        """The row of a message that waits for a run."""
        text, model_text = halves_of(message)
        self.add(
            self.root,
            message_id(id),
            "user",
            text,
            state="queued",
            model_text=model_text,
            due=due,
            steer=steer,
            **by_detail(by),
        )

    def child(self, place: Place, key: str, name: str) -> Place:
        """The nested agent of this key."""
        child = self.places.get(key)
        if child is None:
            parent = next(
                (row for call, row in place.calls.items() if is_child_of(key, call)), None
            )
            child = Place((*place.path, name), key, parent or place.parent)
            self.places[key] = child
        return child

    def add_decided(self, place: Place, record: DecisionRecord) -> None:
        """The row of a request of an earlier turn, with the decision on it."""
        decided = decision_detail(record.decision, record.at, record.login)
        self.add_request(place, record.request, state="decided", **decided)

    def add_notice(
        self, place: Place, name: str, text: str, *, kind: RowKind = "notice", **detail: Any
    ) -> None:
        """The row of what holds until a later record ends it."""
        place.open[name] = f"{name}:{place.key}:{self.seq}"
        self.add(place, place.open[name], kind, text, state="open", **detail)

    def add_put_off(self, place: Place, until: str | None, reason: str | None = None) -> None:
        """The row of a model call that waits: there is no reply yet that it could be a part of."""
        text = f"The model is asked later{f': {reason}' if reason else ''}"
        self.add_notice(place, PUT_OFF, text, until=until)

    def add_end(self, place: Place, end: r.End, *, has_notice: bool = False) -> None:
        """The row of how a run has ended, unless it is completed."""
        id = f"{place.run_id}.end"
        if end.outcome == "failed":
            error = end.error or {}
            text = str(error.get("message") or error.get("type") or "failed")
            self.add(place, id, "error", text, error=end.error)
        elif end.outcome == "stopped" and not has_notice:
            signals = (end.signals or {}).get("signals") or [{}]
            text = str(signals[0].get("message") or signals[0].get("reason") or "stopped")
            self.add(place, id, kind_of_stop(signals), text, signals=signals)
        elif end.outcome == "withdrawn":
            self.add(place, id, "notice", "The run was ended by a new message")


def kind_of_stop(signals: Sequence[Mapping[str, Any]]) -> RowKind:
    """Whether somebody has cancelled the run, or a limit stopped it."""
    cancelled = any(signal.get("reason") == "user_requested" for signal in signals)
    return "cancelled" if cancelled else "notice"


def by_detail(by: object, name: str = "by") -> dict[str, Any]:
    """What a row says of the person who did it: nothing if nobody was named."""
    given = by if isinstance(by, tuple) else (by,)
    authors = [each for each in given if isinstance(each, (str, Login))]
    logins = logins_of(authors)
    found: dict[str, Any] = {name: shown_authors(authors)} if authors else {}
    key = "logins" if name == "by" else f"{name}_logins"
    return found | ({key: logins} if logins else {})


def decision_detail(decision: Decision, at: datetime, login: Login | None) -> dict[str, Any]:
    """What the row of a request says of the decision on it."""
    logins = logins_of([login])
    return {
        "decision": decision.to_dict(),
        "by": decision.by,
        **({"logins": logins} if logins else {}),
        "decided_at": time_text(at),
    }


_POSITION = attrgetter("position")


def _in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=_POSITION)
