"""The events of an agent, with the numbers of its records: from the store first, then live."""

from __future__ import annotations

import asyncio
import enum
import re
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal, NamedTuple

from understudy._base import forks
from understudy._base.json_values import jsonable, shown, text_of
from understudy._base.points_in_time import time_text
from understudy._base.quickly_made import quickly_made
from understudy.errors import ForkedRuntime, StoreDamaged, UsageError
from understudy.events import (
    AgentEnded,
    AttemptDiscarded,
    Event,
    ReplyEnded,
    ReplyStarted,
    RequestMade,
    RunFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallAnnounced,
    ToolEmitted,
    events_of,
)
from understudy.loop_actors.future import Future
from understudy.loop_actors.stream import Stream
from understudy.state.records import Record, RunEnded, Snapshot, StatusNoted, status_in

MAX_DELTAS = 1000
"""How many deltas are kept for a slow subscriber. Beyond that the oldest are dropped."""


class Status(str, enum.Enum):
    """The status of an agent. It is equal to its text: `Status.IDLE == "idle"`."""

    IDLE = "idle"  # its last run completed, was stopped by a limit, or it has had none
    RUNNING = "running"  # a run is under way
    INTERRUPTED = "interrupted"  # its run waits for a person's decision
    PAUSED = "paused"  # its run is paused, by `pause` or by `pause_when`
    WAITING = "waiting"  # its run sleeps, or waits for the outside, and for no person
    CANCELLED = "cancelled"  # its last run was cancelled
    FAILED = "failed"  # its last run failed, or its run is quarantined
    PASSIVE = "passive"  # not in memory; the next message activates it


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChanged:
    """The agent's status has changed. What led to the change is recorded before."""

    status: Status
    """The new status."""
    kind: Literal["status_changed"] = "status_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsDropped:
    """Deltas are missing: this subscriber was too slow, or they were lost between hosts."""

    count: int
    """The number of missing deltas."""
    kind: Literal["events_dropped"] = "events_dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfRunsBounded:
    """The agent started too many runs in a row by messages to itself. It is idle now."""

    runs: int
    """The number of runs in a row."""
    kind: Literal["self_runs_bounded"] = "self_runs_bounded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Earlier events are missing, because their records are compacted. `ref.state()` has the
    result.
    """

    floor: int
    """The number of the last missing record."""
    kind: Literal["gap"] = "gap"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBlocked:
    """Something blocked the event loop, and so every agent on it. It may be an async tool."""

    seconds: float
    """The number of seconds for which the loop was blocked."""
    where: str
    """The function that blocked the loop."""
    kind: Literal["loop_blocked"] = "loop_blocked"


_DELTAS = (TextDelta, ThinkingDelta, ToolCallAnnounced, ToolEmitted)
_OF_A_REPLY = (ReplyStarted, TextDelta, ThinkingDelta, ToolCallAnnounced)
_ENDS_A_REPLY = (ReplyEnded, AttemptDiscarded, RunFinished, AgentEnded)
AgentOnlyEvent = StatusChanged | EventsDropped | SelfRunsBounded | Gap | LoopBlocked


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """One event of one agent."""

    agent_id: str
    """The id of the agent."""
    seq: int | None
    """The number of the event's record. The events of one record have the same number.

    None for events that are not stored: deltas, what tools emit, activation and passivation.
    """
    event: Event | AgentOnlyEvent
    """The event itself."""
    at: datetime | None = None
    """The time at which the event was recorded, by the runtime's clock.

    None for events that are not stored, and for records without a time.
    """
    part: int = 0
    """The number of events of this record that a reader has once they have read this one.

    0 if the reader then has all events of the record.
    """

    @property
    def position(self) -> str | None:
        """The place of the event. `ref.events(after=event.position)` continues after it.

        The text sorts in the order of the events. Unlike `seq`, it tells the events of one record
        apart. None for events that are not stored.
        """
        if self.seq is None:
            return None
        return f"{self.seq - 1:012}.{self.part:06}" if self.part else f"{self.seq:012}"

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON. Values that JSON lacks become text."""
        return {
            "agent_id": self.agent_id,
            "seq": self.seq,
            "position": self.position,
            "at": time_text(self.at),
            "event": event_to_dict(self.event),
        }


class Position(NamedTuple):
    """A place among the events of an agent: behind a record, and some events of the next record."""

    seq: int
    part: int = 0

    def has(self, event: AgentEvent) -> bool:
        """Whether a reader at this place has this event, which is of a later record than `seq`."""
        return 0 < event.part <= self.part and event.seq == self.seq + 1


_POSITION = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,6}))?")


def is_position(text: str) -> bool:
    """Whether a value names a place among the events of an agent."""
    return _POSITION.fullmatch(text) is not None


def position_of(after: object) -> Position:
    """The place that `after` names: the number of a record, or the position of an event.

    Raises:
        UsageError: if it is neither.

    """
    if isinstance(after, int) and not isinstance(after, bool) and after >= 0:
        return Position(after)
    found = _POSITION.fullmatch(after) if isinstance(after, str) else None
    if found is None:
        raise UsageError(
            "`after` must be an integer from 0 on, or the `position` of an event, "
            f"got {shown(after)}"
        )
    return Position(int(found[1]), int(found[2] or 0))


def event_to_dict(event: Any) -> dict[str, Any]:
    """The fields of an event as JSON; what JSON lacks as text."""
    data = {field.name: jsonable(getattr(event, field.name)) for field in fields(event)}
    if isinstance(event, RequestMade):
        del data["request"]["salt"]  # it is kept with the request alone
    return data


def agent_events_of(
    seq: int, record: Record, agent_id: str, path: tuple[str, ...]
) -> Iterator[AgentEvent]:
    """The events of a record: the same live as from the store."""
    found = tuple(_events_of(seq, record, agent_id, path))
    for part, event in enumerate(found, 1):
        part %= len(found)  # 0: with the last one a reader has all of them
        yield AgentEvent(agent_id=agent_id, seq=seq, event=event, at=record.at, part=part)


def _events_of(
    seq: int, record: Record, agent_id: str, path: tuple[str, ...]
) -> Iterator[Event | AgentOnlyEvent]:
    if isinstance(record, Snapshot):
        yield Gap(floor=seq)
        return
    if isinstance(record, StatusNoted) and record.runs is not None:
        yield SelfRunsBounded(runs=record.runs)
    word = status_in(record)
    if word is None:
        yield from events_of(record, path)
        return
    changed = StatusChanged(status=status_of(word, agent_id))
    if isinstance(record, RunEnded):
        yield from events_of(record, path)
        yield changed
    else:
        yield changed
        yield from events_of(record, path)


def status_of(word: str, agent_id: str) -> Status:
    """The status with this name.

    Raises:
        StoreDamaged: if there is none.

    """
    try:
        return Status(word)
    except ValueError as error:
        raise StoreDamaged(what=f"agent {agent_id!r}", cause=text_of(error)) from error


class StoredEvents(NamedTuple):
    """The events that a store has of an agent after a record's number."""

    events: list[AgentEvent]
    last: int
    """The number of the newest record that was read; not every record has events."""
    incarnation: int | None = None
    """The incarnation of the agent; None where there is none."""
    more: bool = False
    """Whether the store had further records, which are read later."""


class Emitted(NamedTuple):
    """The events of one record, with its number; or one event without a record."""

    seq: int | None
    events: tuple[AgentEvent, ...]
    behind: int | None = None
    """The number of the last record before an event of another host, as that host has it. Where
    there is no event, the number up to which the store has records. None for this host's events."""

    @property
    def needs(self) -> int:
        """The number of the record that must come before these events; 0 for none."""
        return (self.seq or 1) - 1 if self.behind is None else self.behind


RecordView = Callable[[int, Record, str, tuple[str, ...]], Iterator[AgentEvent]]
"""What a subscription gets of a record: `agent_events_of`, or another view."""
OnEventsRead = Callable[[StoredEvents | BaseException | None], None]
ReadEvents = Callable[[int, OnEventsRead], None]
"""Reads the events after a number from the store, and calls back with them or with an error.

With None where the runtime stops before they are read.
"""


class EventSink(ABC):
    """Gets what happens here of an agent: a subscription, or what brings it to other hosts."""

    _view: RecordView = staticmethod(agent_events_of)
    """The function that makes the events of a record as this sink gets them."""

    @abstractmethod
    def _put(self, emitted: Emitted) -> None:
        """Take the emitted events of one record, or an event without a record."""

    @abstractmethod
    def _end(self) -> None:
        """Note that nothing more is emitted."""


@dataclass(slots=True, eq=False)
class EventLog:
    """Passes an agent's events to its subscriptions. Thread-safe; keeps no event."""

    _agent_id: str
    _lock: threading.Lock
    _subscriptions: tuple[EventSink, ...] = ()
    _closed: bool = False
    incarnation: int | None = None
    """The incarnation of the agent that the events are of, as far as it is known."""

    def emit(self, event: Event | AgentOnlyEvent, behind: int | None = None) -> None:
        """Emit an event that has no record. A slow subscriber never slows the agent.

        Args:
            event: the event.
            behind: of another host's event: the number of the record that it came behind there.

        """
        if self._subscriptions:
            emitted = AgentEvent(agent_id=self._agent_id, seq=None, event=event)
            for subscription in self._subscriptions:
                subscription._put(Emitted(None, (emitted,), behind))

    def emit_record(self, seq: int, record: Record, path: tuple[str, ...]) -> None:
        """Emit the events of a durable record. Also called for those that have none."""
        subscriptions = self._subscriptions
        for view in {subscription._view for subscription in subscriptions}:
            emitted = Emitted(seq, tuple(view(seq, record, self._agent_id, path)))
            for subscription in subscriptions:
                if subscription._view is view:
                    subscription._put(emitted)

    def catch_up(self, seq: int) -> None:
        """Emit the records that the store has up to this number and that were not emitted here."""
        for subscription in self._subscriptions:
            subscription._put(Emitted(None, (), seq))

    def has_subscribers(self) -> bool:
        """Whether anybody follows, here or elsewhere: only then is a model's reply streamed."""
        return bool(self._subscriptions)

    def note(self, incarnation: int | None) -> None:
        """Note which agent of this id the events are of, unless that is known already."""
        if self.incarnation is None:
            self.incarnation = incarnation

    def count(self) -> int:
        """How many subscriptions of this runtime are open."""
        return sum(isinstance(each, Subscription) for each in self._subscriptions)

    def add(self, sink: EventSink) -> None:
        """Pass everything that is emitted to a sink, until `remove` or its `_end`."""
        with self._lock:
            closed = self._closed
            if not closed:
                self._subscriptions += (sink,)
        if closed:
            sink._end()

    def subscribe(
        self,
        after: int,
        read: ReadEvents,
        *,
        loop: asyncio.AbstractEventLoop,
        part: int = 0,
        keeps: object = None,
        view: RecordView = agent_events_of,
    ) -> Subscription:
        """The events after number `after`, then those to come: no gap, no duplicate.

        Args:
            after: the number of the last record of which the subscriber has all events.
            read: reads the earlier events from the store.
            loop: the loop on which events are emitted.
            part: how many events of the next record the subscriber has.
            keeps: what the subscription keeps in memory, so that this log goes on emitting.
            view: what it gets of a record; `read` brings the same of the earlier ones.

        """
        subscription = Subscription(self, Position(after, part), read, loop, keeps, view)
        self.add(subscription)
        # Closes the gap between the store and the live events: the store is read only now, when
        # everything that is emitted meanwhile is in the subscription already.
        read(after, subscription._stored_events_read)
        return subscription

    @property
    def is_closed(self) -> bool:
        """Whether the log emits no more events."""
        return self._closed

    def close(self) -> None:
        """Emit no more events: subscriptions end once their events are read."""
        with self._lock:
            self._closed = True
            ended, self._subscriptions = self._subscriptions, ()
        for subscription in ended:
            subscription._end()

    def remove(self, sink: EventSink) -> None:
        """Pass a sink nothing more."""
        with self._lock:
            others = tuple(each for each in self._subscriptions if each is not sink)
            self._subscriptions = others


class Subscription(Stream[AgentEvent], EventSink):
    """The events of an agent, to iterate with `for` in a thread or `async for` on a loop.

    The iteration ends when the runtime stops. Call `close()` to end it earlier.
    """

    def __init__(
        self,
        log: EventLog,
        begin: Position,
        read: ReadEvents,
        loop: asyncio.AbstractEventLoop,
        keeps: object,
        view: RecordView,
    ) -> None:
        self._view = view
        self._log = log
        self._read = read
        self._loop = loop
        self._keeps = keeps
        self._forks = forks.count
        self._begin = begin
        self._after = begin.seq
        """The number of the last record whose events are in the buffer, or were."""
        self._lock = threading.Lock()
        self._buffer: deque[AgentEvent] = deque()
        self._held: deque[Emitted] | None = deque()
        """What is emitted while earlier records are read from the store; None if none are read."""
        self._is_newer = False
        """Whether something was emitted since the present read began."""
        self._reply_ends: dict[tuple[str, ...], int] = {}
        """The number of the last record read from the store that ends a reply, by agent path."""
        self._failure: BaseException | None = None
        self._deltas = 0
        self._dropped = 0
        self._ended = False
        self._changed: Future[None] | None = None

    def close(self) -> None:
        """End the subscription. Events that were emitted before can still be read."""
        self._log.remove(self)
        self._end()

    @property
    def is_reading(self) -> bool:
        """Whether stored records are being read, before the events emitted since."""
        return self._held is not None

    def _steps(self) -> Iterator[AgentEvent | Future[None]]:
        while (step := self._next()) is not None:
            yield step

    def _next(self) -> AgentEvent | Future[None] | None:
        """The next event of the subscription, or a future to wait for, or None at the end."""
        if self._forks != forks.count:  # before the lock, which a thread of the parent may have
            raise ForkedRuntime
        with self._lock:
            if self._failure is not None:
                failure, self._failure, self._ended = self._failure, None, True
                raise failure
            if self._dropped and self._held is None:
                count, self._dropped = self._dropped, 0
                dropped = EventsDropped(count=count)
                return AgentEvent(agent_id=self._log._agent_id, seq=None, event=dropped)
            while self._buffer:
                event = self._buffer.popleft()
                self._deltas -= isinstance(event.event, _DELTAS)
                if not self._begin.has(event):
                    return event
            if self._ended and self._held is None:
                return None
            if self._changed is None:
                self._changed = Future(self._loop)
            return self._changed

    def _stored_events_read(self, read: StoredEvents | BaseException | None) -> None:
        """Put the stored events among the held events; an event that is in both is kept once.

        What was emitted is taken as it was, for the events without records between.
        """
        with self._lock:
            held, self._held = self._held or deque(), None
            is_newer, self._is_newer = self._is_newer, False
            before, is_behind = self._after, False
            if isinstance(read, BaseException):
                self._failure, held = read, deque()
            found = read if isinstance(read, StoredEvents) else StoredEvents([], before)
            stored = deque(found.events)
            while held:
                behind = self._comes_behind(held)
                self._add_stored(stored, min(behind, found.last))
                if found.more and behind > found.last:
                    # What it comes behind is in a later part
                    # (test_live_text_stays_behind_a_past_that_is_read_in_parts).
                    break
                if held[0].needs > self._after:
                    # What was emitted behind records that nobody reads any more would leave a gap
                    # (test_a_subscription_whose_past_is_not_read_before_the_end_skips_nothing).
                    if read is None:
                        break
                    # Another host may have had the agent since the read. A store that has nothing
                    # between two numbers is believed, if it was asked after they were known
                    # (test_live_text_stays_behind_a_record_that_is_stored_during_a_read).
                    is_behind = is_newer or found.last > before
                    if is_behind:
                        self._held = held
                        break
                each = held.popleft()
                if self._is_void(each):
                    self._deltas -= isinstance(each.events[0].event, _DELTAS)
                else:
                    self._add(each)
            self._add_stored(stored, found.last)
            after = self._after
            if found.more and not is_behind:
                self._held, is_behind = held, True
        if is_behind:
            self._read(after, self._stored_events_read)
        self._notify()

    def _comes_behind(self, held: deque[Emitted]) -> int:
        """The number of the last stored record that comes before the first held event."""
        first = held[0]
        if first.seq is not None or first.behind is not None:
            return first.needs
        later = (each.seq for each in held if each.seq is not None and each.seq > self._after)
        return next(later, sys.maxsize) - 1

    def _put(self, emitted: Emitted) -> None:
        with self._lock:
            if self._ended and emitted.behind is not None:
                return
            self._is_newer = self._held is not None
            is_behind = self._held is None and emitted.needs > self._after
            if is_behind:  # another host has written the records before it
                self._held = deque()
            if self._held is not None:
                if emitted.events or emitted.seq is not None:
                    self._held.append(emitted)
                self._count_deltas(emitted.events)
            elif not self._is_void(emitted):
                self._count_deltas(emitted.events)
                self._add(emitted)
            after = self._after
        if is_behind:
            self._read(after, self._stored_events_read)
        self._notify()

    def _is_void(self, emitted: Emitted) -> bool:
        """Whether an event is part of a reply that has ended, by a record that came first."""
        behind = emitted.behind
        event = emitted.events[0].event if emitted.events else None
        if behind is None or not isinstance(event, _OF_A_REPLY):
            return False
        path = event.agent_path  # what ends the reply of an agent ends those of agents inside it
        paths = (path[: depth + 1] for depth in range(len(path)))
        return any(self._reply_ends.get(each, 0) > behind for each in paths)

    def _add_stored(self, stored: deque[AgentEvent], until: int) -> None:
        """Add the stored events up to a record, except for events that were emitted."""
        while stored and (stored[0].seq or 0) <= until:
            each = stored.popleft()
            event = each.event
            if each.seq is None or each.seq <= self._after:
                continue
            if isinstance(event, _ENDS_A_REPLY):
                self._reply_ends[event.agent_path] = each.seq
            self._buffer.append(each)
        self._after = max(self._after, until)

    def _add(self, emitted: Emitted) -> None:
        seq, events, _ = emitted
        if seq is not None:
            if seq <= self._after:
                return
            self._after = seq
        self._buffer.extend(events)

    def _count_deltas(self, events: tuple[AgentEvent, ...]) -> None:
        """Count new deltas, and drop the oldest beyond `MAX_DELTAS`."""
        self._deltas += sum(isinstance(event.event, _DELTAS) for event in events)
        if self._deltas <= MAX_DELTAS:
            return
        self._deltas -= 1
        self._dropped += 1
        for at, event in enumerate(self._buffer):
            if isinstance(event.event, _DELTAS):
                del self._buffer[at]
                return
        for at, held in enumerate(self._held or ()):
            if any(isinstance(event.event, _DELTAS) for event in held.events):
                assert self._held is not None, "it has this one"
                del self._held[at]
                return

    def _end(self) -> None:
        with self._lock:
            self._ended = True
        self._notify()

    def _notify(self) -> None:
        with self._lock:
            changed, self._changed = self._changed, None
        if changed is not None:
            changed.set(None)
