"""What an agent tells: events with the numbers of its records, from the store and then live."""

from __future__ import annotations

import enum
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from understudy.events import Event, TextDelta, ThinkingDelta, ToolEmitted, events_of
from understudy.loop_actors.future import Future
from understudy.state.records import Record, Snapshot, StatusNoted

__all__ = [
    "AgentEvent",
    "EventLog",
    "EventsDropped",
    "Gap",
    "LoopBlocked",
    "SelfRunsBounded",
    "Status",
    "StatusChanged",
    "Subscription",
    "told_by",
]

MAX_DELTAS = 1000
"""How many deltas wait for a slow subscriber; then the oldest are dropped, and said so (A6)."""


class Status(enum.Enum):
    """How an agent stands (A1)."""

    IDLE = "idle"  # its last run completed, or it never had one
    RUNNING = "running"  # a run is being driven
    INTERRUPTED = "interrupted"  # a person is asked
    PAUSED = "paused"  # somebody, or pause_when, holds the run
    CANCELLED = "cancelled"  # its last run was cancelled
    FAILED = "failed"  # its last run failed, or is quarantined
    PASSIVE = "passive"  # not in memory as an actor; the next message wakes it


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChanged:
    """The agent's status is another one now; what led to it is recorded (A1)."""

    status: Status
    kind: Literal["status_changed"] = "status_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsDropped:
    """This subscriber was too slow for so many deltas."""

    count: int
    kind: Literal["events_dropped"] = "events_dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfRunsBounded:
    """The agent sent itself messages that started too many runs in a row: it waits now (A4)."""

    runs: int
    kind: Literal["self_runs_bounded"] = "self_runs_bounded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What came before `floor` is compacted away: read `ref.state()` for what it led to (J17)."""

    floor: int
    kind: Literal["gap"] = "gap"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBlocked:
    """Something held the event loop up, and every agent on it: blocking work in an async tool?"""

    seconds: float
    where: str
    """The function that did not give the loop back."""
    kind: Literal["loop_blocked"] = "loop_blocked"


_DELTAS = (TextDelta, ThinkingDelta, ToolEmitted)
AgentOnlyEvent = StatusChanged | EventsDropped | SelfRunsBounded | Gap | LoopBlocked


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """One event of one agent."""

    agent_id: str
    seq: int | None
    """The number of the record that it tells of; the events of one record share it.

    None for what is not kept: deltas, what tools emit, and an agent's waking and lying down.
    """
    event: Event | AgentOnlyEvent


def told_by(seq: int, record: Record, agent_id: str, path: tuple[str, ...]) -> Iterator[AgentEvent]:
    """What a record tells: the same live as when it is read back."""
    if isinstance(record, StatusNoted):
        if record.runs is not None:
            bounded = SelfRunsBounded(runs=record.runs)
            yield AgentEvent(agent_id=agent_id, seq=seq, event=bounded)
        changed = StatusChanged(status=Status(record.status))
        yield AgentEvent(agent_id=agent_id, seq=seq, event=changed)
    elif isinstance(record, Snapshot):
        yield AgentEvent(agent_id=agent_id, seq=seq, event=Gap(floor=seq))
    else:
        for event in events_of(record, path):
            yield AgentEvent(agent_id=agent_id, seq=seq, event=event)


CameBefore = Callable[[list[AgentEvent] | BaseException], None]
ReadBack = Callable[[int, CameBefore], None]
"""Reads the events after a number back from the store, and hands them over."""


class EventLog:
    """Hands an agent's events on to whoever subscribes. Thread-safe; keeps nothing."""

    __slots__ = ("_agent_id", "_closed", "_lock", "_subscriptions")

    def __init__(self, agent_id: str, lock: threading.Lock) -> None:
        self._agent_id = agent_id
        self._lock = lock
        self._subscriptions: tuple[Subscription, ...] = ()
        self._closed = False

    def tell(self, event: Event | AgentOnlyEvent) -> None:
        """Hand on an event that is no fact; a slow listener never holds up the agent (A6)."""
        if self._subscriptions:
            told = AgentEvent(agent_id=self._agent_id, seq=None, event=event)
            for subscription in self._subscriptions:
                subscription._put(told)

    def tell_fact(self, seq: int, record: Record, path: tuple[str, ...]) -> None:
        """Hand on what a durable record tells."""
        if self._subscriptions:
            for told in told_by(seq, record, self._agent_id, path):
                for subscription in self._subscriptions:
                    subscription._put(told)

    def is_followed(self) -> bool:
        """Whether anybody subscribes now: only then is a reply streamed."""
        return bool(self._subscriptions)

    def subscribe(self, after: int, read_back: ReadBack, *, keeps: object = None) -> Subscription:
        """What came after event number `after`, then what comes: no gap, no duplicate.

        Args:
            keeps: what must stay in memory, for this log to be told anything.

        """
        with self._lock:
            subscription = Subscription(self, after, keeps)
            if self._closed:
                subscription._end()
            else:
                self._subscriptions += (subscription,)
        # Only now: what is told from here on is in the subscription already.
        read_back(after, subscription._came_before)
        return subscription

    def close(self) -> None:
        """No more events: subscriptions end when they are read up."""
        with self._lock:
            self._closed = True
            ended, self._subscriptions = self._subscriptions, ()
        for subscription in ended:
            subscription._end()

    def _leave(self, subscription: Subscription) -> None:
        with self._lock:
            left = tuple(s for s in self._subscriptions if s is not subscription)
            self._subscriptions = left


class Subscription:
    """The events of an agent, to iterate with `for` in a thread or `async for` on a loop.

    It ends when the runtime stops. Call `close()` when you leave it early.
    """

    def __init__(self, log: EventLog, after: int, keeps: object = None) -> None:
        self._log = log
        self._keeps = keeps
        self._after = after
        self._lock = threading.Lock()
        self._reading = True
        """What came before is still being read: nothing can be given yet."""
        self._failure: BaseException | None = None
        self._buffer: deque[AgentEvent] = deque()
        self._deltas = 0
        self._dropped = 0
        self._ended = False
        self._changed: Future[None] | None = None

    def __iter__(self) -> Iterator[AgentEvent]:
        while (taken := self._take()) is not None:
            if isinstance(taken, Future):
                taken.get()
            else:
                yield taken

    async def __aiter__(self) -> AsyncIterator[AgentEvent]:
        while (taken := self._take()) is not None:
            if isinstance(taken, Future):
                await taken
            else:
                yield taken

    def close(self) -> None:
        """Listen no more. What was told until now can still be read."""
        self._log._leave(self)
        self._end()

    def _take(self) -> AgentEvent | Future[None] | None:
        """The next event, or what to wait for, or None at the end."""
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
                self._changed = Future()
            return self._changed

    def _came_before(self, read: list[AgentEvent] | BaseException) -> None:
        """What the store had. From the first fact on that was told live meanwhile, that is it."""
        with self._lock:
            if isinstance(read, BaseException):
                self._failure = read
            else:
                live = next((e.seq for e in self._buffer if e.seq is not None), None)
                before = [e for e in read if e.seq is None or live is None or e.seq < live]
                self._buffer.extendleft(reversed(before))
                if read and read[-1].seq is not None:
                    self._after = max(self._after, read[-1].seq)  # the store was ahead of the tale
            self._reading = False
        self._tell_change()

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
        self._tell_change()

    def _end(self) -> None:
        with self._lock:
            self._ended = True
        self._tell_change()

    def _tell_change(self) -> None:
        with self._lock:
            changed, self._changed = self._changed, None
        if changed is not None:
            changed.set(None)
