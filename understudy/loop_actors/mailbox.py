"""The FIFO inbox of an actor on an event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from typing import Any, Protocol

import pykka
from pykka._envelope import Envelope

from understudy._base.event_loops import call_soon_on

__all__ = ["Mailbox", "MailboxOwner"]


class MailboxOwner(Protocol):
    """What a mailbox asks of its actor. The names are private so that no proxy shows them."""

    def _drain(self) -> None:
        """Called on the loop when there is something to take."""

    def _lose_loop(self) -> None:
        """Called where a put finds that the loop is closed for good."""


class Mailbox:
    """Messages in the order in which they were put, for one taker on one event loop.

    - A put and a close share one lock: what was put is taken, or is among what `close` returns.
    - An idle mailbox owns no task: a put schedules the owner's drain, and no second one until
      `take` has said that the mailbox is empty.
    - The lock is re-entrant, so a signal handler or a finalizer may put in the middle of a put.
    - The queue is made with the first message that waits and dropped with the last (it is 0.8 KB).
    """

    __slots__ = ("_closed", "_context", "_lock", "_loop", "_owner", "_queue", "_scheduled")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._queue: deque[Envelope[Any]] | None = None
        self._owner: MailboxOwner | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
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
        owner: MailboxOwner,
        context: contextvars.Context,
    ) -> None:
        """Schedule the owner's first drain on `loop`, in `context`; earlier puts wait for it."""
        with self._lock:
            self._loop, self._owner, self._context = loop, owner, context
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
        """As `put`; False instead of the exception."""
        with self._lock:
            if self._closed:
                return False
            if self._queue is None:
                self._queue = deque()
            self._queue.append(envelope)
            if self._scheduled or self._owner is None:
                return True
            self._scheduled = True
        return self._schedule()

    def take(self) -> Envelope[Any] | None:
        """The next message; None means that the next put schedules a drain again."""
        with self._lock:
            if not self._queue:
                self._queue = None
                self._scheduled = False
                return None
            return self._queue.popleft()

    def get(self) -> Envelope[Any]:
        """Pykka's name for `take`; it does not wait.

        Raises:
            IndexError: if the mailbox is empty.

        """
        with self._lock:
            if not self._queue:
                raise IndexError("the mailbox is empty")
            return self._queue.popleft()

    def empty(self) -> bool:
        """True when no message waits."""
        return not self._queue

    def __len__(self) -> int:
        return len(self._queue or ())

    def close(self) -> list[Envelope[Any]] | None:
        """Refuse further messages and return those that wait; None if it is closed already."""
        with self._lock:
            if self._closed:
                return None
            self._closed = True
            left = list(self._queue or ())
            self._queue = None
            return left

    def reschedule(self) -> None:
        """Call the drain again after the loop had its turn; on the loop, in the drain alone."""
        self._schedule()

    def release(self) -> None:
        """Let go of the owner: the last thing that is done with a closed mailbox."""
        self._owner = None
        self._context = None

    def _schedule(self) -> bool:
        owner, loop = self._owner, self._loop
        if owner is None or loop is None:  # released since: it is closed
            return False
        if call_soon_on(loop, owner._drain, context=self._context):
            return True
        owner._lose_loop()
        return False
