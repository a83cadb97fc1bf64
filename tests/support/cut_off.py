"""A process that goes away after so many records, and what is left of its run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from understudy import Completed, Failed, Outcome
from understudy.state.records import ModelAsked, Record, Reply, ReplyHeld
from understudy.testing.contracts.disk import Crash, Disk, unwrapped

__all__ = ["Crash", "CutBefore", "Disk", "finished_calls", "ids", "model_calls", "told"]

_NUMBERS = count()
_FIELDS = ("part_kind", "content", "tool_name", "args", "tool_call_id", "outcome", "metadata")


class CutBefore(Disk):
    """Keeps all records before the first of a kind, and then the process goes away.

    Of the agents inside, too. With `inside=True` only of those. With `tool` only of calls of that.
    """

    def __init__(self, kind: str, *, inside: bool = False, tool: str | None = None) -> None:
        super().__init__()
        self.kind, self.inside, self.tool = kind, inside, tool

    def append(self, records: Sequence[Record]) -> None:
        for record in records:
            path, own = unwrapped(record)
            is_meant = own.kind == self.kind and (path or not self.inside)
            if self.tool is not None and getattr(own, "tool_name", None) != self.tool:
                is_meant = False
            if self.limit is None and is_meant:
                self.limit = len(self.lines)
            super().append([record])


def ids(prefix: str = "id") -> Any:
    numbers = _NUMBERS
    return lambda: f"{prefix}{next(numbers)}"


def told(outcome: Outcome) -> dict[str, Any]:
    """Everything of an outcome but times and ids of our own."""
    assert isinstance(outcome, (Completed, Failed))
    messages = [
        [type(message).__name__]
        + [[getattr(part, name, None) for name in _FIELDS] for part in message.parts]
        for message in outcome.state.messages
    ]
    end: dict[str, Any] = {
        "outcome": type(outcome).__name__,
        "messages": messages,
        "values": dict(outcome.state.values),
        "files": dict(outcome.state.files or {}),
        "model_calls": outcome.usage.requests,
        "tool_calls": outcome.usage.tool_calls,
        "audit": [(r.request.arguments, r.decision.type) for r in outcome.state.decisions],
    }
    if isinstance(outcome, Completed):
        result = outcome.tool_result
        end["text"] = outcome.text
        end["value"] = None if result is None else (result.value, result.arguments)
    else:
        end["error"] = outcome.error.message
    return end


def finished_calls(disk: Disk) -> set[str]:
    """The keys of the calls that have a result, those of agents below too."""
    return disk.finished_calls()


def model_calls(disk: Disk) -> list[tuple[object, ...]]:
    """Which replies and answers of models are recorded, each by its place in the run."""
    found: list[tuple[object, ...]] = []
    for path, record in disk.records():
        if isinstance(record, (Reply, ReplyHeld)):
            found.append((*path, record.kind, record.turn))
        elif isinstance(record, ModelAsked):
            found.append((*path, record.kind, record.key))
    return found
