"""What an agent tells: a log of events with numbers, and subscriptions that read it and go on."""

from __future__ import annotations

import enum
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Literal

from understudy.actors.future import Future
from understudy.events import Event, TextDelta, ThinkingDelta, ToolEmitted
from understudy.outcomes import Outcome

__all__ = ["AgentEvent", "EventsDropped", "RunFinished", "Status", "StatusChanged", "Subscription"]

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
class RunFinished:
    """A run gave an outcome; an interrupted or paused one goes on later."""

    outcome: Outcome
    kind: Literal["run_finished"] = "run_finished"


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
class AgentEvent:
    """One event of one agent."""

    agent_id: str
    seq: int | None
    """Its number, from 1; None for what is not kept: deltas and what tools emit."""
    event: Event | StatusChanged | RunFinished | EventsDropped | SelfRunsBounded


class EventLog:
    """Keeps the numbered events of an agent and hands all of them on. Thread-safe."""

    def __init__(self, agent_id: str) -> None:
        self._agent_id = agent_id
        self._lock = threading.Lock()
        self._kept: list[AgentEvent] = []
        self._subscriptions: list[Subscription] = []
        self._closed = False

    def tell(self, event: Event | StatusChanged | RunFinished | SelfRunsBounded) -> None:
        """Hand an event to whoever listens; a slow one never holds up the agent (A6)."""
        with self._lock:
            keep = not isinstance(event, (TextDelta, ThinkingDelta, ToolEmitted))
            seq = len(self._kept) + 1 if keep else None
            told = AgentEvent(agent_id=self._agent_id, seq=seq, event=event)
            if keep:
                self._kept.append(told)
            for subscription in self._subscriptions:
                subscription._put(told)

    def is_followed(self) -> bool:
        """Whether anybody subscribes now: only then is a reply streamed."""
        return bool(self._subscriptions)

    def subscribe(self, after: int) -> Subscription:
        """What came after event number `after`, then what comes: no gap, no duplicate."""
        with self._lock:
            subscription = Subscription(self, self._kept[max(after, 0) :], after)
            if self._closed:
                subscription._end()
            else:
                self._subscriptions.append(subscription)
            return subscription

    def close(self) -> None:
        """No more events: subscriptions end when they are read up."""
        with self._lock:
            self._closed = True
            for subscription in self._subscriptions:
                subscription._end()
            self._subscriptions.clear()

    def _leave(self, subscription: Subscription) -> None:
        with self._lock:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)


class Subscription:
    """The events of an agent, to iterate with `for` in a thread or `async for` on a loop.

    It ends when the runtime stops. Call `close()` when you leave it early.
    """

    def __init__(self, log: EventLog, events: list[AgentEvent], after: int) -> None:
        self._log = log
        self._after = after
        self._lock = threading.Lock()
        self._buffer: deque[AgentEvent] = deque(events)
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
        """Listen no more."""
        self._log._leave(self)
        self._end()

    def _take(self) -> AgentEvent | Future[None] | None:
        """The next event, or what to wait for, or None at the end."""
        with self._lock:
            if self._dropped:
                count, self._dropped = self._dropped, 0
                dropped = EventsDropped(count=count)
                return AgentEvent(agent_id=self._log._agent_id, seq=None, event=dropped)
            if self._buffer:
                event = self._buffer.popleft()
                self._deltas -= event.seq is None
                return event
            if self._ended:
                return None
            if self._changed is None:
                self._changed = Future()
            return self._changed

    def _put(self, event: AgentEvent) -> None:
        if event.seq is not None and event.seq <= self._after:
            return
        with self._lock:
            self._buffer.append(event)
            self._deltas += event.seq is None
            if self._deltas > MAX_DELTAS:
                oldest = next(i for i, e in enumerate(self._buffer) if e.seq is None)
                del self._buffer[oldest]
                self._deltas -= 1
                self._dropped += 1
            changed, self._changed = self._changed, None
        if changed is not None:
            changed.set(None)

    def _end(self) -> None:
        with self._lock:
            self._ended = True
            changed, self._changed = self._changed, None
        if changed is not None:
            changed.set(None)
