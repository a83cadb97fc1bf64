"""The events of an agent, with the numbers of its records: from the store first, then live."""

from __future__ import annotations

import asyncio
import enum
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from understudy._base import forks
from understudy._base.json_values import text_of
from understudy.errors import ForkedRuntime, StoreDamaged
from understudy.events import (
    Event,
    TextDelta,
    ThinkingDelta,
    ToolCallAnnounced,
    ToolEmitted,
    events_of,
)
from understudy.loop_actors.future import Future
from understudy.state.records import Record, Snapshot, StatusNoted

MAX_DELTAS = 1000
"""How many deltas are kept for a slow subscriber. Beyond that the oldest are dropped."""


class Status(enum.Enum):
    """The status of an agent."""

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
    """The agent's status has changed. What led to it is recorded before."""

    status: Status
    kind: Literal["status_changed"] = "status_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsDropped:
    """This subscriber was too slow: `count` deltas were dropped."""

    count: int
    kind: Literal["events_dropped"] = "events_dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfRunsBounded:
    """The agent started too many runs in a row by messages to itself. It is idle now."""

    runs: int
    kind: Literal["self_runs_bounded"] = "self_runs_bounded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Events up to record number `floor` are compacted away; `ref.state()` has what they led to."""

    floor: int
    kind: Literal["gap"] = "gap"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBlocked:
    """Something blocked the event loop, and so every agent on it: perhaps an async tool."""

    seconds: float
    where: str
    """The function that blocked it."""
    kind: Literal["loop_blocked"] = "loop_blocked"


_DELTAS = (TextDelta, ThinkingDelta, ToolCallAnnounced, ToolEmitted)
AgentOnlyEvent = StatusChanged | EventsDropped | SelfRunsBounded | Gap | LoopBlocked


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """One event of one agent."""

    agent_id: str
    seq: int | None
    """The number of its record; the events of one record share it.

    None for events that are not stored: deltas, what tools emit, activation and passivation.
    """
    event: Event | AgentOnlyEvent
    at: datetime | None = None
    """When it was recorded, by the runtime's clock.

    None for events that are not stored, and for those from before records had times.
    """


def agent_events_of(
    seq: int, record: Record, agent_id: str, path: tuple[str, ...]
) -> Iterator[AgentEvent]:
    """The events of a record: the same live as from the store."""
    if isinstance(record, StatusNoted):
        if record.runs is not None:
            bounded = SelfRunsBounded(runs=record.runs)
            yield AgentEvent(agent_id=agent_id, seq=seq, event=bounded, at=record.at)
        changed = StatusChanged(status=_status(record.status, agent_id))
        yield AgentEvent(agent_id=agent_id, seq=seq, event=changed, at=record.at)
    elif isinstance(record, Snapshot):
        yield AgentEvent(agent_id=agent_id, seq=seq, event=Gap(floor=seq), at=record.at)
    else:
        for event in events_of(record, path):
            yield AgentEvent(agent_id=agent_id, seq=seq, event=event, at=record.at)


def _status(word: str, agent_id: str) -> Status:
    try:
        return Status(word)
    except ValueError as error:
        raise StoreDamaged(what=f"agent {agent_id!r}", cause=text_of(error)) from error


RecordView = Callable[[int, Record, str, tuple[str, ...]], Iterator[AgentEvent]]
"""What a subscription gets of a record: `agent_events_of`, or another view."""
OnEventsRead = Callable[[list[AgentEvent] | BaseException], None]
ReadEvents = Callable[[int, OnEventsRead], None]
"""Reads the events after a number from the store, and calls back with them or with an error."""


class EventLog:
    """Passes an agent's events to its subscriptions. Thread-safe; keeps no event."""

    __slots__ = ("_agent_id", "_closed", "_lock", "_subscriptions")

    def __init__(self, agent_id: str, lock: threading.Lock) -> None:
        self._agent_id = agent_id
        self._lock = lock
        self._subscriptions: tuple[Subscription, ...] = ()
        self._closed = False

    def emit(self, event: Event | AgentOnlyEvent) -> None:
        """Emit an event that has no record. A slow subscriber never slows the agent."""
        if self._subscriptions:
            emitted = AgentEvent(agent_id=self._agent_id, seq=None, event=event)
            for subscription in self._subscriptions:
                subscription._put(emitted)

    def emit_record(self, seq: int, record: Record, path: tuple[str, ...]) -> None:
        """Emit the events of a durable record."""
        subscriptions = self._subscriptions
        for view in {subscription._view for subscription in subscriptions}:
            for event in view(seq, record, self._agent_id, path):
                for subscription in subscriptions:
                    if subscription._view is view:
                        subscription._put(event)

    def has_subscribers(self) -> bool:
        """Whether there is a subscription now: only then is a model's reply streamed."""
        return bool(self._subscriptions)

    def subscribe(
        self,
        after: int,
        read: ReadEvents,
        *,
        loop: asyncio.AbstractEventLoop,
        keeps: object = None,
        view: RecordView = agent_events_of,
    ) -> Subscription:
        """The events after number `after`, then those to come: no gap, no duplicate.

        Args:
            after: the number of the last event that the subscriber has.
            read: reads the earlier events from the store.
            loop: the loop on which events are emitted.
            keeps: what the subscription keeps in memory, so that this log goes on emitting.
            view: what it gets of a record; `read` brings the same of the earlier ones.

        """
        with self._lock:
            subscription = Subscription(self, after, loop, keeps, view)
            if self._closed:
                subscription._end()
            else:
                self._subscriptions += (subscription,)
        # Closes the gap between the store and the live events: the store is read only now, when
        # everything that is emitted meanwhile is in the subscription already.
        read(after, subscription._stored_events_read)
        return subscription

    def close(self) -> None:
        """Emit no more events: subscriptions end once their events are read."""
        with self._lock:
            self._closed = True
            ended, self._subscriptions = self._subscriptions, ()
        for subscription in ended:
            subscription._end()

    def _remove(self, subscription: Subscription) -> None:
        with self._lock:
            others = tuple(s for s in self._subscriptions if s is not subscription)
            self._subscriptions = others


class Subscription:
    """The events of an agent, to iterate with `for` in a thread or `async for` on a loop.

    It ends when the runtime stops. Call `close()` to end it earlier.
    """

    def __init__(
        self,
        log: EventLog,
        after: int,
        loop: asyncio.AbstractEventLoop,
        keeps: object,
        view: RecordView,
    ) -> None:
        self._view = view
        self._log = log
        self._loop = loop
        self._keeps = keeps
        self._forks = forks.count
        self._after = after
        self._lock = threading.Lock()
        self._reading = True
        """The stored events are still being read: nothing can be returned before them."""
        self._failure: BaseException | None = None
        self._buffer: deque[AgentEvent] = deque()
        self._deltas = 0
        self._dropped = 0
        self._ended = False
        self._changed: Future[None] | None = None

    def __iter__(self) -> Iterator[AgentEvent]:
        while (event := self._next()) is not None:
            if isinstance(event, Future):
                event.get()
            else:
                yield event

    async def __aiter__(self) -> AsyncIterator[AgentEvent]:
        while (event := self._next()) is not None:
            if isinstance(event, Future):
                await event
            else:
                yield event

    def close(self) -> None:
        """End the subscription. Events that were emitted until now can still be read."""
        self._log._remove(self)
        self._end()

    def _next(self) -> AgentEvent | Future[None] | None:
        """The next event, or what to wait for, or None at the end."""
        if self._forks != forks.count:  # before the lock, which a thread of the parent may have
            raise ForkedRuntime
        with self._lock:
            if self._failure is not None:
                failure, self._failure, self._ended = self._failure, None, True
                raise failure
            if not self._reading:
                if self._dropped:
                    count, self._dropped = self._dropped, 0
                    dropped = EventsDropped(count=count)
                    return AgentEvent(agent_id=self._log._agent_id, seq=None, event=dropped)
                if self._buffer:
                    event = self._buffer.popleft()
                    self._deltas -= isinstance(event.event, _DELTAS)
                    return event
                if self._ended:
                    return None
            if self._changed is None:
                self._changed = Future(self._loop)
            return self._changed

    def _stored_events_read(self, read: list[AgentEvent] | BaseException) -> None:
        """Put the stored events before the live ones; of an event that is both, one is kept."""
        with self._lock:
            if isinstance(read, BaseException):
                self._failure = read
            else:
                live = next((e.seq for e in self._buffer if e.seq is not None), None)
                before = [e for e in read if e.seq is None or live is None or e.seq < live]
                self._buffer.extendleft(reversed(before))
                if read and read[-1].seq is not None:
                    self._after = max(
                        self._after, read[-1].seq
                    )  # the store was ahead of the live events
            self._reading = False
        self._notify()

    def _put(self, event: AgentEvent) -> None:
        with self._lock:
            if event.seq is not None and event.seq <= self._after:
                return
            self._buffer.append(event)
            self._deltas += isinstance(event.event, _DELTAS)
            if self._deltas > MAX_DELTAS:
                buffered = enumerate(self._buffer)
                oldest = next(i for i, e in buffered if isinstance(e.event, _DELTAS))
                del self._buffer[oldest]
                self._deltas -= 1
                self._dropped += 1
        self._notify()

    def _end(self) -> None:
        with self._lock:
            self._ended = True
        self._notify()

    def _notify(self) -> None:
        with self._lock:
            changed, self._changed = self._changed, None
        if changed is not None:
            changed.set(None)
