"""The events of a story, in order, and the points at which a host may be killed."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import IO, Any

from understudy._base.json_values import shown
from understudy.state.records import Record, Result, agents_inside, innermost


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of a story."""

    what: str
    """The kind of the entry: `records`, `effect`, `request`, `killed`, `host`, or a caller's
    verb."""
    agent: str = ""
    """The id of the agent."""
    first: int = 0
    """For records that became durable together, the number of the first one in its agent. For a
    request, the number of the service."""
    last: int = 0
    """The number of the last record."""
    text: str = ""
    """The text of the entry, for a person."""
    key: str = ""
    """The key of an effect or a request."""
    call: str = ""
    """For an effect, the key of its call, if known; for a doubt, the key of the call in doubt."""
    is_doubt: bool = False
    """Whether a record says that a call was in doubt."""
    is_believed: bool = False
    """Whether a doubt has ended with the belief that the call took effect."""

    @property
    def name(self) -> str:
        """The name of the records or the event. It is the same in each play of a story."""
        if self.what == "effect":
            return f"effect {self.text}"
        numbers = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.agent}#{numbers}"


@dataclass(slots=True)
class Watch:
    """A watch over one play of a story: it notes events, and decides where a host is killed.

    Thread-safe. A host in another process writes what it notes into a file, and the process of the
    story reads it from there.
    """

    kills: list[str] = field(default_factory=list)
    """The names of the points at which hosts are killed, in this order."""
    entries: list[Entry] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    """The points that were passed, by name."""
    file: IO[str] | None = None
    """The file in which a host in another process notes everything."""
    refresh: Callable[[], None] | None = None
    """A function that takes over the notes of other hosts: a host may have ended at the point."""
    _open_calls: set[str] = field(default_factory=set)
    """The keys of the calls that are under way."""
    _effects: dict[str, int] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def note(self, entry: Entry) -> None:
        """Note what has happened."""
        with self._lock:
            self.entries.append(entry)
            if self.file is not None:
                self._write("entry", asdict(entry))

    def is_due(self, name: str) -> bool:
        """Whether the host is killed at this point, which is passed now."""
        if self.kills and self.refresh is not None:
            self.refresh()
        with self._lock:
            self.passed.append(name)
            if self.file is not None:
                self._write("passed", name)
            if not self.kills or self.kills[0] != name:
                return False
            del self.kills[0]
            self.note(Entry(what="killed", text=name))
            return True

    def note_request(self, remote: int, what: str, key: str) -> None:
        """Note a request to a service."""
        self.note(Entry(what="request", first=remote, text=what, key=key))

    def take(self, lines: Iterable[str], *, but_of: int = 0) -> list[Entry]:
        """Take over the notes of hosts in other processes.

        Args:
            lines: the lines of their file.
            but_of: the id of the process whose own notes are left out.

        Returns:
            The entries among the lines.

        """
        found = [json.loads(line) for line in lines]
        taken: list[Entry] = []
        with self._lock:
            for noted in found:
                if noted["of"] == but_of:
                    continue
                if "passed" in noted:
                    self.passed.append(noted["passed"])
                    continue
                entry = Entry(**noted["entry"])
                taken.append(entry)
                self.entries.append(entry)
                if entry.what == "effect":
                    self._effects[entry.text] = self._effects.get(entry.text, 0) + 1
                elif entry.what == "killed" and entry.text in self.kills:
                    self.kills.remove(entry.text)
        return taken

    def before(self, agent: str, first: int, records: Sequence[Record]) -> bool:
        """Whether the host is killed before these records are written."""
        return self.is_due(f"before {_of_records(agent, first, records).name}")

    def after(self, agent: str, first: int, records: Sequence[Record]) -> bool:
        """Note records. Returns whether the host is killed once they are durable."""
        entry = _of_records(agent, first, records)
        with self._lock:
            for record in records:
                self._follow(record)
            self.note(entry)
            return self.is_due(f"after {entry.name}")

    def after_effect(self, what: str, key: str) -> bool:
        """Note an effect. Returns whether the host is killed right after it."""
        with self._lock:
            number = self._effects[what] = self._effects.get(what, 0) + 1
            call = key if key in self._open_calls else self._only_call()
            self.note(Entry(what="effect", text=what, key=key, call=call))
            return self.is_due(f"after effect {what!r}" + (f" {number}" if number > 1 else ""))

    def forget_calls(self) -> None:
        """Forget the calls under way, because the host is dead."""
        with self._lock:
            self._open_calls.clear()

    def happened(self, call_key: str) -> list[str]:
        """The effects that a call has had."""
        with self._lock:
            effects = [each for each in self.entries if each.what == "effect"]
        return [each.text for each in effects if each.call == call_key]

    def effects_of_unknown_calls(self) -> list[str]:
        """The effects whose call is not known."""
        with self._lock:
            return [each.text for each in self.entries if each.what == "effect" and not each.call]

    def doubts(self) -> list[Entry]:
        """The records that say that a call was in doubt."""
        with self._lock:
            return [each for each in self.entries if each.is_doubt]

    def excuses(self) -> list[Entry]:
        """The doubts that excuse a missing effect: nobody believes that it has happened."""
        return [each for each in self.doubts() if not each.is_believed]

    def _write(self, what: str, noted: Any) -> None:
        print(json.dumps({"of": os.getpid(), what: noted}), file=self.file, flush=True)

    def _only_call(self) -> str:
        return next(iter(self._open_calls)) if len(self._open_calls) == 1 else ""

    def _follow(self, record: Any) -> None:
        record = innermost(record)
        if record.kind == "started":
            self._open_calls.add(record.call_key)
        elif record.kind == "result":
            self._open_calls.discard(record.call_key)


def _of_records(agent: str, first: int, records: Sequence[Record]) -> Entry:
    said = [_said(record) for record in records]
    last = first + len(records) - 1
    doubt = [
        each for each in map(innermost, records) if isinstance(each, Result) and _was_in_doubt(each)
    ]
    return Entry(
        what="records",
        agent=agent,
        first=first,
        last=last,
        text=", ".join(said),
        call=doubt[0].call_key if doubt else "",
        is_doubt=bool(doubt),
        is_believed=bool(doubt) and all(map(_is_believed, doubt)),
    )


def _was_in_doubt(result: Result) -> bool:
    """Whether a result says that its call is, or was, in doubt."""
    return result.doubt is not None or result.settled is not None


def _is_believed(result: Result) -> bool:
    """Whether the settlement of a doubt says that the call took effect."""
    return result.doubt is None and result.part.outcome == "success"


def _said(record: Any) -> str:
    """The text of a record, for a person."""
    where = [each.name for each in agents_inside(record)]
    record = innermost(record)
    about = ""
    if record.kind == "started":
        about = f" {record.tool_name}"
    elif record.kind == "result":
        about = f" {record.part.tool_name}"
        if record.doubt:
            about += " (in doubt)"
        elif record.part.outcome != "success":
            about += f" ({record.part.outcome}: {shown(record.part.content)})"
    elif record.kind == "reply":
        calls = [part.tool_name for part in record.response.parts if part.part_kind == "tool-call"]
        about = f" calls {', '.join(calls)}" if calls else ""
    elif record.kind == "status_noted":
        about = f" {record.status}"
    return f"{''.join(f'{name} › ' for name in where)}{record.kind}{about}"
