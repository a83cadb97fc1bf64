"""A process that goes away after so many records, and what is left of its run."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from understudy import AgentState, Completed, Failed, Outcome
from understudy.state.fold import replay
from understudy.state.records import (
    ChildRecord,
    ModelAsked,
    Record,
    Reply,
    ReplyHeld,
    Result,
    record_from_dict,
    record_to_dict,
)

__all__ = ["Crash", "CutBefore", "Disk", "finished_calls", "ids", "model_calls", "told"]

_NUMBERS = count()
_TOLD = ("part_kind", "content", "tool_name", "args", "tool_call_id", "outcome", "metadata")


class Crash(BaseException):
    """The process goes away."""


@dataclass
class Disk:
    """Keeps `limit` records; then the process goes away."""

    limit: int | None = None
    lines: list[str] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)

    def append(self, records: Sequence[Record]) -> None:
        for record in records:
            if self.limit is not None and len(self.lines) >= self.limit:
                raise Crash
            self.lines.append(json.dumps(record_to_dict(record)))

    @property
    def has_unflushed(self) -> bool:
        return False

    async def durable(self) -> None:
        return

    def keep_blobs(self, blobs: Mapping[str, bytes]) -> None:
        self.blobs.update(blobs)

    async def load_blobs(self, hashes: Collection[str]) -> Mapping[str, bytes]:
        return {hash: self.blobs[hash] for hash in hashes if hash in self.blobs}

    def load(self) -> AgentState:
        state = replay(record_from_dict(json.loads(line)) for line in self.lines)
        state.blobs = dict(self.blobs) or None
        return state


class CutBefore(Disk):
    """Keeps all records before the first of a kind, and then the process goes away.

    Of the agents inside, too. With `inside=True` only of those.
    """

    def __init__(self, kind: str, *, inside: bool = False) -> None:
        super().__init__()
        self.kind, self.inside = kind, inside

    def append(self, records: Sequence[Record]) -> None:
        for record in records:
            path, own = _unwrapped(record)
            if self.limit is None and own.kind == self.kind and (path or not self.inside):
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
        + [[getattr(part, name, None) for name in _TOLD] for part in message.parts]
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
    return {record.call_key for _, record in _records(disk) if isinstance(record, Result)}


def model_calls(disk: Disk) -> list[tuple[object, ...]]:
    """Which replies and answers of models are recorded, each by its place in the run."""
    found: list[tuple[object, ...]] = []
    for path, record in _records(disk):
        if isinstance(record, (Reply, ReplyHeld)):
            found.append((*path, record.kind, record.turn))
        elif isinstance(record, ModelAsked):
            found.append((*path, record.kind, record.key))
    return found


def _unwrapped(record: Record) -> tuple[list[str], Record]:
    """The record with the path of the agent below whose it is."""
    path: list[str] = []
    while isinstance(record, ChildRecord):
        path.append(record.child)
        record = record.record
    return path, record


def _records(disk: Disk) -> Iterator[tuple[tuple[str, ...], Record]]:
    """Each record with the path of the agent below whose it is."""
    for line in disk.lines:
        path, record = _unwrapped(record_from_dict(json.loads(line)))
        yield tuple(path), record
