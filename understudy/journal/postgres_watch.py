"""Ends calls that a server leaves without an answer: a frozen one keeps its connections alive."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

__all__ = ["Watch", "Watched"]


class Watched(Protocol):
    """A connection that knows how long a call on it may take."""

    def tick(self, seconds: float) -> None:
        """So much time has passed, about."""


class Watch:
    """A thread that ticks while the store is open."""

    def __init__(self, watched: Sequence[Watched], seconds: float) -> None:
        self._watched = watched
        self._seconds = seconds
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin to tick. It stops when `stop` is called, or the process ends."""
        self._stopped = stopped = threading.Event()
        thread = threading.Thread(
            target=self._run, args=(stopped,), name="understudy-postgres-watch", daemon=True
        )
        thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self, stopped: threading.Event) -> None:
        while not stopped.wait(self._seconds):
            for each in self._watched:
                each.tick(self._seconds)
