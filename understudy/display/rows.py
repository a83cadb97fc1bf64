"""`Row`: one part of what a screen shows; and `DisplayUpdate`: the rows that have changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from understudy._base.points_in_time import time_text

RowKind = Literal[
    "user",
    "text",
    "thinking",
    "call",
    "native_call",
    "file",
    "request",
    "notice",
    "cancelled",
    "error",
]
"""What a row shows; `docs/display.md` has a line for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One part of what happened, as a screen shows it. A row keeps its `id` while it changes."""

    id: str
    """The id of the row. It stays the same after a restart, and in another process."""
    kind: RowKind
    """The kind of the row."""
    state: str
    """The state of the row, by its kind.

    - `user`: `queued`, `done` or `cancelled`.
    - `text`, `thinking`: `streaming`, `done` or `cut`.
    - `call`: `announced` (its arguments are being written), `ready`, `asked` (a person decides),
      `running`, `waiting` (for a time, for the outside, or with the agent inside), then its
      outcome: `success`, `failed`, `denied` or `interrupted`.
    - `request`: `pending`, `decided` or `withdrawn`.
    - `notice`, `cancelled`, `error`: `open` while it holds, else `done`.
    - Any row: `void` if it was never recorded. Remove it.
    """
    text: str
    """The text for people. For a call, the tool's `display_text`, or else its name."""
    model_text: str | None = None
    """The text that the model has instead; None if it is the same, or there is no text."""
    agent_path: tuple[str, ...]
    """The names of the agents from the outermost to the agent of the row."""
    run_id: str | None = None
    """The id of the run."""
    parent: str | None = None
    """The id of the row of the call that this row belongs to; None if it belongs to no call.

    A request belongs to the call that it is about. What a sub-agent does belongs to the call that
    runs the sub-agent.
    """
    at: datetime | None = None
    """The time at which the row was first recorded; None if it is not recorded, or not known."""
    position: tuple[int, int]
    """The position of the row. Show rows in the order of their positions."""
    seq: int | None
    """The number of the record that changed the row last; None while it is not recorded."""
    detail: dict[str, Any] = field(default_factory=dict)
    """The other data of the row, JSON-able. A key is missing if it has no value.

    - `user`: `by`, `due`, `steer`, `schedule_id`, `cancelled_by`.
    - `call`: `tool_name`, `arguments`, `edited`, `call_key`, `started_at`, `ended_at`, `result`,
      `result_display`, `metadata`, `in_doubt` (then `settled`, or `doubt_ended`), `waits_for`. A
      live call also has `emitted` and `progress`.
    - `request`: `request`, `decision`, `by`, `decided_at`, `reminders`, `escalated_to`. With votes,
      also `votes`, `missing`, `approved_at`.
    - `notice`, `cancelled`, `error`: `error`, `signals`, `by`.

    If a `by` comes from a login at an identity provider, `logins` is beside it.
    """

    @property
    def depth(self) -> int:
        """The depth of indentation; 0 for the outermost agent."""
        return len(self.agent_path) - 1

    @property
    def place(self) -> str:
        """The position as text that sorts in the order of the positions."""
        return "{:012}.{:06}".format(*self.position)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON-able data. Its `position` is the text of `place`."""
        data = {name: getattr(self, name) for name in Row.__dataclass_fields__}
        return {
            **data,
            "agent_path": list(self.agent_path),
            "depth": self.depth,
            "at": time_text(self.at),
            "position": self.place,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayUpdate:
    """Rows that have changed, in the order of their positions."""

    rows: tuple[Row, ...]
    """The rows."""
    seq: int | None
    """The value of `after` for the next call. None if the rows are live and nothing is recorded."""
    reset: bool = False
    """Whether these rows replace all rows that you have.

    True if the records before `seq` are compacted, or if the id belongs to another agent now.
    """
    more: bool = False
    """Whether there are more rows now. Ask again with `after=seq`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the update as JSON-able data."""
        return {
            "rows": [row.to_dict() for row in self.rows],
            "seq": self.seq,
            "reset": self.reset,
            "more": self.more,
        }


def merged(rows: Iterable[Row], update: DisplayUpdate) -> list[Row]:
    """The rows that a screen has, after an update."""
    kept = {} if update.reset else {row.id: row for row in rows}
    kept.update((row.id, row) for row in update.rows)
    return sorted((row for row in kept.values() if row.state != "void"), key=_position)


def _position(row: Row) -> tuple[int, int]:
    return row.position
