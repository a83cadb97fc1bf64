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
    """One part of what happened, as a screen shows it. It changes in place: by its `id`."""

    id: str
    """The same as long as the part exists; after a restart, and in another process."""
    kind: RowKind
    state: str
    """How far it is.

    `user`: `queued`, `done` or `cancelled`. `text`, `thinking`: `streaming`, `done` or `cut`.
    `call`: `announced` (its arguments are being written), `ready`, `asked` (a person decides),
    `running`, `waiting` (for a time, for the outside, or with the agent inside), then its outcome:
    `success`, `failed`, `denied` or `interrupted`. `request`: `pending`, `decided` or
    `withdrawn`. `notice`, `cancelled`, `error`: `open` while it holds, else `done`.
    Any row: `void` where it was never recorded: it is to be removed.
    """
    text: str
    """What a person reads. Of a call the tool's `display_text`, or else its name."""
    model_text: str | None = None
    """What the model has in its place; None where that is the same, or there is nothing."""
    agent_path: tuple[str, ...]
    """The names of the agents from the outermost one to the one that it is of."""
    run_id: str | None = None
    parent: str | None = None
    """The id of the row of the call that it belongs to: a request about it, or what an agent
    does that the call runs."""
    at: datetime | None = None
    """When it was recorded first; None while it is not, and where that is not known."""
    position: tuple[int, int]
    """Rows are shown in the order of their positions."""
    seq: int | None
    """The number of the record that changed it last; None while it is not recorded."""
    detail: dict[str, Any] = field(default_factory=dict)
    """The rest of it, by `kind`; JSON-able. A key is missing where there is nothing to say.

    `user`: `by`, `due`, `steer`, `schedule_id`, `cancelled_by`. `call`: `tool_name`, `arguments`,
    `edited`, `call_key`, `started_at`, `ended_at`, `result`, `result_display`, `metadata`,
    `in_doubt` (then `settled`, or `doubt_ended`), `waits_for`, and of a live call `emitted` and
    `progress`. `request`: `request`, `decision`, `by`, `decided_at`, `reminders`, `escalated_to`,
    and of votes `votes`, `missing`, `approved_at`. `notice`, `cancelled`, `error`: `error`,
    `signals`, `by`. A `by` of a login of an identity provider has `logins` beside it.
    """

    @property
    def depth(self) -> int:
        """How far it is indented: 0 for the outermost agent."""
        return len(self.agent_path) - 1

    @property
    def place(self) -> str:
        """The position as text that sorts as the positions do."""
        return "{:012}.{:06}".format(*self.position)

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON-able data. Its `position` is text that sorts as the positions do."""
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
    seq: int | None
    """The `after` of what follows. None where nothing is recorded: the rows are live ones."""
    reset: bool = False
    """Drop the rows that you have: these are all. What was before `seq` is compacted, or it is
    another agent of the same id."""
    more: bool = False
    """There is more now: ask again after `seq`."""

    def to_dict(self) -> dict[str, Any]:
        """The update as JSON-able data."""
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
