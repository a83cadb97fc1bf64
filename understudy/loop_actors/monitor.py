"""Monitors: a watcher of an actor gets one `Down` when the actor ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pykka

from understudy._base.forks import call_in_child

logger: logging.Logger = logging.getLogger(__name__)

# One lock for all actors saves memory: it is taken seldom in the life of an actor, and held for a
# few assignments. It is re-entrant, because a finalizer may stop an actor while its thread holds
# the lock.
_lock = threading.RLock()
_FEW_WATCHERS = 8


def _make_lock() -> None:
    global _lock
    _lock = threading.RLock()  # a thread of the parent of this process may have it


call_in_child(_make_lock)


@dataclass(frozen=True, slots=True)
class Down:
    """The message that an actor has ended. Its last hook has returned, and every ask is
    answered.
    """

    ref: pykka.ActorRef[Any]
    """The actor that ended."""

    reason: BaseException | None
    """The exception that killed it; None if it stopped on request."""


Watcher: TypeAlias = pykka.ActorRef[Any] | Callable[[Down], object]
"""An actor that gets the `Down` as a message, or a function that is called on the ended actor's
loop."""


class Lifetime(threading.Event):
    """Pykka's `actor_stopped` flag, the watchers of the actor, and its end.

    The flag is set when the actor takes no more messages; it has ended when its last hook has
    returned. A `threading.Event` takes 1.1 KB more for its condition, which the first wait makes
    here.
    """

    _set = False
    _ended = False
    _reason: BaseException | None = None
    _condition: threading.Condition | None = None
    _watchers: tuple[Watcher, ...] | dict[Watcher, None] = ()  # a dict of two takes 0.2 KB

    def __init__(self) -> None:
        # Not Event's __init__: it makes the condition.
        pass

    def __repr__(self) -> str:
        life = "ended" if self._ended else "stopped" if self._set else "running"
        return f"<Lifetime: {life}>"

    @property
    def ended(self) -> bool:
        """True when the last hook has returned and `Down` is being delivered."""
        return self._ended

    @property
    def reason(self) -> BaseException | None:
        """The exception that killed the actor, once it has ended."""
        return self._reason

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        with _lock:
            self._set = True
            condition = self._condition
        if condition is not None:
            with condition:
                condition.notify_all()

    def set_in_child(self) -> None:
        """Set the flag in the child of a fork, where nothing runs the actor, without the lock."""
        self._set = self._ended = True

    def clear(self) -> None:
        with _lock:
            self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        # Race with `set`, which reads the condition under the lock: this wait sees the flag, or
        # `set` sees its condition. test_actor_stopped_is_waited_for_as_an_event
        with _lock:
            if self._set:
                return True
            if self._condition is None:
                self._condition = threading.Condition()
            condition = self._condition
        with condition:
            condition.wait_for(self.is_set, timeout)
            return self._set

    def watch(self, watcher: Watcher, ref: pykka.ActorRef[Any]) -> None:
        """Give `watcher` one `Down(ref, reason)` at the end; at once, if it has ended already."""
        # Race with `end`, which takes the watchers and sets the flag in one step: this watcher is
        # among them, or gets its `Down` here.
        # test_threads_that_monitor_while_it_stops_get_one_down_each
        with _lock:
            if not self._ended:
                self._add(watcher)
                return
        _deliver(watcher, Down(ref, self._reason))

    def unwatch(self, watcher: Watcher) -> bool:
        """True if this removed `watcher`; False if it got its `Down`, or never watched."""
        with _lock:
            watchers = self._watchers
            if watcher not in watchers:
                return False
            if isinstance(watchers, dict):
                del watchers[watcher]
            else:
                self._watchers = tuple(other for other in watchers if other != watcher)
            return True

    def _add(self, watcher: Watcher) -> None:
        watchers = self._watchers
        if isinstance(watchers, dict):
            watchers[watcher] = None
        elif watcher not in watchers:
            more = (*watchers, watcher)
            self._watchers = more if len(more) <= _FEW_WATCHERS else dict.fromkeys(more)

    def end(
        self,
        reason: BaseException | None,
        ref: pykka.ActorRef[Any] | None = None,
        *first: Watcher,
    ) -> bool:
        """Deliver `Down` to each watcher; False if that was done before.

        Args:
            reason: the exception that killed the actor; None for a regular end.
            ref: the ref of the actor; None for a lifetime that is no actor's and has no watchers.
            first: watchers that get it before all others.

        """
        with _lock:
            if self._ended:
                return False
            self._ended = True
            self._reason = reason
            watchers, self._watchers = self._watchers, ()
        if ref is not None:
            for watcher in (*first, *watchers):
                _deliver(watcher, Down(ref, reason))
        return True


def _deliver(watcher: Watcher, down: Down) -> None:
    try:
        if isinstance(watcher, pykka.ActorRef):
            watcher.tell(down)
        else:
            watcher(down)
    except pykka.ActorDeadError:
        logger.debug("%s ended, but its watcher %r had ended before", down.ref, watcher)
    except BaseException:  # a faulty watcher must stop neither the other ones nor the loop
        logger.exception("a watcher of %s raised", down.ref)
