"""One-way watching: a watcher of an actor gets one `Down` when it ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pykka

__all__ = ["Down", "Lifetime", "Watcher"]

logger = logging.getLogger(__name__)

# One lock for all actors: it is held for moments, at the rare events of an actor's life.
_lock = threading.RLock()


@dataclass(frozen=True, slots=True)
class Down:
    """An actor has ended: its last hook has returned and every ask of it is answered."""

    ref: pykka.ActorRef[Any]
    """The actor that ended."""

    reason: BaseException | None
    """What killed it; None if it stopped on request."""


Watcher: TypeAlias = pykka.ActorRef[Any] | Callable[[Down], object]
"""An actor, told by a message, or a plain function, called on the loop of the actor that ended."""


class Lifetime(threading.Event):
    """Pykka's `actor_stopped` flag, the watchers of the actor, and how it ended.

    The flag says that it takes no more messages; it has ended when its last hook has returned.
    It is 1.1 KB smaller than `threading.Event`, whose condition is made when first waited for.
    """

    _set = False
    _ended = False
    _reason: BaseException | None = None
    _condition: threading.Condition | None = None
    _watchers: dict[Watcher, pykka.ActorRef[Any]] | None = None

    def __init__(self) -> None:
        # Not Event's __init__: it makes the condition.
        pass

    def __repr__(self) -> str:
        life = "ended" if self._ended else "stopped" if self._set else "running"
        return f"<Lifetime: {life}>"

    @property
    def ended(self) -> bool:
        """True when the last hook has returned and `Down` goes out."""
        return self._ended

    @property
    def reason(self) -> BaseException | None:
        """What killed the actor, once it has ended."""
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

    def clear(self) -> None:
        with _lock:
            self._set = False

    def wait(self, timeout: float | None = None) -> bool:
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
        """Give `watcher` one `Down(ref, reason)` at the end: at once, if that was before."""
        with _lock:
            if not self._ended:
                if self._watchers is None:
                    self._watchers = {}
                self._watchers[watcher] = ref
                return
        _deliver(watcher, Down(ref, self._reason))

    def unwatch(self, watcher: Watcher) -> bool:
        """True if `watcher` will get no `Down` from here; False if it did, or never watched."""
        with _lock:
            return self._watchers is not None and self._watchers.pop(watcher, None) is not None

    def end(self, reason: BaseException | None) -> bool:
        """Deliver the `Down`s; False if that was done before."""
        with _lock:
            if self._ended:
                return False
            self._ended = True
            self._reason = reason
            watchers, self._watchers = self._watchers, None
        for watcher, ref in (watchers or {}).items():
            _deliver(watcher, Down(ref, reason))
        return True


def _deliver(watcher: Watcher, down: Down) -> None:
    try:
        if isinstance(watcher, pykka.ActorRef):
            watcher.tell(down)
        else:
            watcher(down)
    except pykka.ActorDeadError:
        logger.debug("%s ended, and so had its watcher %r", down.ref, watcher)
    except BaseException:  # a faulty watcher stops neither the others nor the loop
        logger.exception("a watcher of %s raised", down.ref)
