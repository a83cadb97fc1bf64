"""`Place`: one agent of the tree, where rows come from; and the ids of rows."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Place:
    """One agent of the tree, where rows come from: the outermost one, or one that it runs."""

    path: tuple[str, ...]
    key: str = ""
    """Its key among the agents that run; empty for the outermost one."""
    parent: str | None = None
    """The row of the call that runs it."""
    run_id: str | None = None
    turn: int = 0
    """The number of the next reply."""
    attempt: int = 0
    """The number of the attempt that goes on; 0 where it is not known."""
    calls: dict[str, str] = field(default_factory=dict)
    """The rows of the calls of the open turn, by call key."""
    live: list[str] = field(default_factory=list)
    """The rows of the reply that is being written, which nothing has recorded."""
    open: dict[str, str] = field(default_factory=dict)
    """The rows of what holds until something else is recorded: a pause, a quarantine."""


def part_id(run_id: str, turn: int, part: int) -> str:
    """The id of the row of a part of a reply."""
    return f"{run_id}.{turn}.part{part}"


def request_id(id: str) -> str:
    """The id of the row of a request."""
    return f"request:{id}"


def message_id(id: str) -> str:
    """The id of the row of a message that waits."""
    return f"message:{id}"
