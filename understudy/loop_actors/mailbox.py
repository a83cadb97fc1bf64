"""The FIFO inbox of an actor on an event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from typing import Any

import pykka
from pykka._envelope import Envelope

from understudy._base.event_loops import call_soon_on
from understudy._base.forks import call_in_child
from understudy.loop_actors.live_actors import LiveActor

# All mailboxes share one lock: it is held for a few assignments, and a separate lock would take 96
# bytes of an idle actor.
_lock = threading.RLock()


def _make_lock() -> None:
    global _lock
    _lock = threading.RLock()  # a thread of the parent of this process may have it


call_in_child(_make_lock)


class Mailbox:
    """Messages in the order in which they were put, for one taker on one event loop.

    - A put and a close hold one lock. A message that was accepted is taken, or is among those
      that `close` returns: test_no_message_is_lost_or_doubled_when_threads_put_while_it_closes.
    - An idle mailbox has no task. A put schedules the owner's drain, and no second one until `take`
      has returned None. Both decide under the lock, so no put comes between the last look of a
      drain and its end: test_many_puts_schedule_one_drain_and_an_idle_mailbox_none.
    - The lock is re-entrant, so a signal handler or a finalizer may put in the middle of a put:
      test_a_put_in_the_middle_of_a_put_is_kept.
    - The queue exists only while messages wait: an empty one takes 0.8 KB.
    """

    __slots__ = ("_closed", "_context", "_queue", "_scheduled", "loop", "owner")

    def __init__(self) -> None:
        self._queue: deque[Envelope[Any]] | None = None
        self.owner: LiveActor | None = None
        """The actor whose mailbox it is; None once the actor has ended."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop of its taker; None before `open_on`."""
        self._context: contextvars.Context | None = None
        self._scheduled = False
        self._closed = False

    @property
    def context(self) -> contextvars.Context | None:
        """The context in which the owner's drain is called, until the mailbox is released."""
        return self._context

    def open_on(
        self,
        loop: asyncio.AbstractEventLoop,
        owner: LiveActor,
        context: contextvars.Context,
    ) -> None:
        """Schedule the owner's first drain on `loop`, in `context`; earlier puts wait for it."""
        with _lock:
            self.loop, self.owner, self._context = loop, owner, context
            self._scheduled = True
        self._schedule()

    def put(self, envelope: Envelope[Any], /) -> None:
        """Add a message; never waits.

        Raises:
            pykka.ActorDeadError: if the mailbox is closed; the message is not in it.

        """
        if not self.offer(envelope):
            raise pykka.ActorDeadError("the actor of this mailbox is dead")

    def offer(self, envelope: Envelope[Any]) -> bool:
        """Add a message as `put` does; False instead of the exception."""
        with _lock:
            if self._closed:
                return False
            if self._queue is None:
                self._queue = deque()
            self._queue.append(envelope)
            if self._scheduled or self.loop is None:  # without a loop: `open_on` schedules
                return True
            self._scheduled = True
        return self._schedule()  # called without the lock, because it may end the owner

    def take(self) -> Envelope[Any] | None:
        """The next message; None if there is none, and then the next put schedules a drain."""
        with _lock:
            if not self._queue:
                self._queue = None
                self._scheduled = False
                return None
            return self._queue.popleft()

    def get(self) -> Envelope[Any]:
        """The next message, as Pykka's inboxes return it; but it does not wait.

        Raises:
            IndexError: if the mailbox is empty.

        """
        with _lock:
            if not self._queue:
                raise IndexError("the mailbox is empty")
            return self._queue.popleft()

    def empty(self) -> bool:
        """True when no message waits."""
        return not self._queue

    def __len__(self) -> int:
        return len(self._queue or ())

    def close(self) -> list[Envelope[Any]] | None:
        """Refuse further messages and return the waiting messages; None if it is closed already."""
        with _lock:
            if self._closed:
                return None
            self._closed = True
            remaining = list(self._queue or ())
            self._queue = None
            return remaining

    def close_in_child(self) -> None:
        """Refuse further messages in the child of a fork, whatever a thread of the parent did."""
        self._closed = True
        self._queue = None

    def reschedule(self) -> None:
        """Call the drain again in the next turn of the loop. Only the drain itself may call it."""
        self._schedule()

    def release(self) -> None:
        """Drop the reference to the owner, as the last step of its end; the mailbox is closed."""
        self.owner = None
        self._context = None

    def _schedule(self) -> bool:
        owner, loop = self.owner, self.loop
        if owner is None or loop is None:  # closed and released by another thread meanwhile
            return False
        if call_soon_on(loop, owner._drain, context=self._context):
            return True
        owner._loop_closed()
        return False
