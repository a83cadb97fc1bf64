"""`Disk`: a journal that is cut off after a number of records, and the rest of its run."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from understudy import AgentState
from understudy.journal import replay
from understudy.state.records import (
    Record,
    Result,
    agents_inside,
    innermost,
    record_from_dict,
    record_to_dict,
)


class Crash(BaseException):
    """The end of the process."""


@dataclass
class Disk:
    """A journal that keeps `limit` records; then the process ends."""

    limit: int | None = None
    lines: list[str] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    refused: Record | None = None
    """The record that was to be written when the process ended."""

    def append(self, records: Sequence[Record]) -> None:
        """Keep the records, as a store would."""
        for record in records:
            if self.limit is not None and len(self.lines) >= self.limit:
                self.refused = self.refused or unwrapped(record)[1]
                raise Crash
            self.lines.append(json.dumps(record_to_dict(record)))

    @property
    def has_unflushed(self) -> bool:
        """Return False: nothing waits."""
        return False

    async def durable(self) -> None:
        """Return at once: everything is durable."""

    def keep_blobs(self, blobs: Mapping[str, bytes]) -> None:
        """Keep the bytes of files."""
        self.blobs.update(blobs)

    async def load_blobs(self, hashes: Collection[str]) -> Mapping[str, bytes]:
        """The bytes of files."""
        return {hash: self.blobs[hash] for hash in hashes if hash in self.blobs}

    def load(self) -> AgentState:
        """The state of the run, as the next process reads it."""
        state = replay(record_from_dict(json.loads(line)) for line in self.lines)
        state.blobs = dict(self.blobs) or None
        return state

    def records(self) -> Iterator[tuple[tuple[str, ...], Record]]:
        """Each record, with the path of the inner agent that made it."""
        for line in self.lines:
            path, record = unwrapped(record_from_dict(json.loads(line)))
            yield tuple(path), record

    def finished_calls(self) -> set[str]:
        """The keys of the calls that have a result, including calls of inner agents."""
        return {record.call_key for _, record in self.records() if isinstance(record, Result)}


def unwrapped(record: Record) -> tuple[list[str], Record]:
    """The record inside, with the path of the inner agent that made it."""
    return [each.child for each in agents_inside(record)], innermost(record)
