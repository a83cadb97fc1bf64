"""The rows of what is not recorded yet: text that is written, calls that are announced."""

from __future__ import annotations

from dataclasses import replace

from understudy._base.json_values import jsonable
from understudy.display.places import Place, part_id
from understudy.display.rows import DisplayUpdate, Row, RowKind
from understudy.display.table import OPEN_CALLS, Table
from understudy.events import (
    Event,
    ReplyStarted,
    TextDelta,
    ThinkingDelta,
    ToolCallAnnounced,
    ToolEmitted,
)
from understudy.models.display_halves import display_of


class LiveRows:
    """The live rows of a table.

    Args:
        table: where they stand, beside what is recorded.

    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def event(self, event: Event) -> DisplayUpdate | None:
        """Fold a live event, which is not recorded. None where no row changes by it."""
        self._table.changed = {}
        match event:
            case ReplyStarted(run_id=run_id, turn=turn):
                place = self._writing(run_id, turn)
                if place is not None:  # another model is asked: what the one before said is void
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
        return self._table.told(None) if self._table.changed else None

    def _writing(self, run_id: str, turn: int, attempt: int | None = None) -> Place | None:
        """The agent that writes this reply; None if the reply is recorded, or void."""
        for place in self._table.places.values():
            if place.run_id == run_id and place.turn <= turn:
                # From another host it may come late.
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
