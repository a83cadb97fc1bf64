"""The points at which a process can be stopped: each write of the journal, and each effect."""

from __future__ import annotations

import asyncio
import functools
import math
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from understudy.journal.agent_journal import AgentJournal
from understudy.journal.contracts import Batch
from understudy.journal.sqlite.backend import SqliteBackend

__all__ = ["NO_POINTS", "Points", "kill"]

NO_POINTS = -1
"""As `stop_at`: nothing is counted, and nothing of the library is wrapped."""


TURNS = 100
"""Of the loop, while a thread is held: so many steps are enough to tell a caller something."""
TURN_SECONDS = 5.0


def kill() -> None:
    """End this process as a power switch would: nothing is flushed, nobody is notified."""
    os.kill(os.getpid(), signal.SIGKILL)


class Points:
    """Counts the points that a process passes, and stops it at one of them.

    Their order differs a little from process to process: the loop and the store's thread run side
    by side.

    Args:
        stop_at: the number of that point, from 1 on; None = none.
        stop: called there, in whichever thread it is, with the point's name.
        named: not before a point whose name begins so.
        since: `stop_at` counts only the points in whose name this expression is found.
        hold: seconds for which that thread is held first, while all others continue: whatever they
            show too early is seen then. The loop gets so many turns at least, on a busy machine
            too.

    """

    def __init__(
        self,
        stop_at: int | None,
        stop: Callable[[str], None],
        *,
        named: str = "",
        since: str = "",
        hold: float = 0.0,
    ) -> None:
        self._stop_at = math.inf if stop_at in (None, NO_POINTS) else stop_at
        self._stop = stop
        self._named = named
        self._since = re.compile(since)
        self._passed = 0
        self._hold = hold
        self._lock = threading.Lock()
        self._counts: Callable[[], bool] = lambda: True
        self._loop: asyncio.AbstractEventLoop | None = None
        self.passed: list[str] = []

    def __call__(self, name: str) -> None:
        """A point is passed."""
        with self._lock:
            if not self._counts():
                return
            self.passed.append(name)
            self._passed += self._since.search(name) is not None
            due = self._passed >= self._stop_at and name.startswith(self._named)
            if due:
                self._stop_at = math.inf
        if due:
            if self._hold:
                self._wait()
            self._stop(name)

    def _wait(self) -> None:
        time.sleep(self._hold)
        if self._loop is None:
            return  # no record was appended yet: there is nothing to show
        for _ in range(TURNS):
            turned = threading.Event()
            self._loop.call_soon_threadsafe(turned.set)
            turned.wait(TURN_SECONDS)

    def only_when(self, counts: Callable[[], bool]) -> None:
        """Count the points that are passed while this is so."""
        self._counts = counts

    def install(self, backend: type[Any] = SqliteBackend) -> None:
        """Have each write pass a point before and after it, from now on, in this process."""
        self._around(AgentJournal, "append", self._appended)
        self._around(backend, "begin", lambda *_: "begin", after=False)
        self._around(backend, "claim", lambda _, agent_id, __: "claim", after=False)
        self._around(backend, "append_all", _written, after=False)
        self._around(backend, "commit", lambda *_: "commit")

    def _appended(self, journal: AgentJournal, records: Any) -> str:
        self._loop = journal.loop
        return f"append {'+'.join(_kind(record) for record in records)}"

    def _around(
        self, owner: type[Any], method: str, named: Callable[..., str], *, after: bool = True
    ) -> None:
        inner = getattr(owner, method)

        @functools.wraps(inner)
        def outer(*args: Any) -> Any:
            name = named(*args)
            self(f"before {name}")
            returned = inner(*args)
            if after:
                self(f"after {name}")
            return returned

        setattr(owner, method, outer)


def _kind(record: Any) -> str:
    inner = getattr(record, "record", None)
    return f"child:{_kind(inner)}" if inner is not None else str(record.kind)


def _written(_: Any, batches: list[Batch]) -> str:
    kinds = [record.kind for batch in batches for record in batch.records]
    return f"write {'+'.join(kinds)}"
