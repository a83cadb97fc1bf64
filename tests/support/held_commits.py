"""A database whose commits can be held: what is seen while they are is seen too early."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.support.loops import SECONDS, soon
from understudy.journal.backend import Backend
from understudy.journal.contracts import Batch
from understudy.testing import FaultyBackend

__all__ = ["HeldAnswers", "HeldAppends", "HeldCommits", "held_answers", "turns"]


class HeldCommits(FaultyBackend):
    """Hands every call on to a backend; its commits wait while they are held."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._held = False
        self._may = threading.Semaphore(0)
        self._waits = threading.Event()

    @contextmanager
    def held(self) -> Iterator[None]:
        """No commit is made inside this block, but those that are let pass; at its end all are."""
        self._waits.clear()
        self._may = threading.Semaphore(0)
        self._held = True
        try:
            yield
        finally:
            self._held = False
            self._may.release()

    async def reached(self) -> None:
        """Return when a commit waits to be made."""
        loop = asyncio.get_running_loop()
        assert await soon(loop.run_in_executor(None, self._waits.wait, SECONDS)), "no commit came"

    def let_one_pass(self) -> None:
        """Make the commit that waits, and hold the next one."""
        self._waits.clear()
        self._may.release()

    def commit(self) -> None:
        self._pass()
        self.__getattr__("commit")()

    def _pass(self) -> None:
        may = self._may  # before the look: the end of the block releases this one
        if self._held:
            self._waits.set()
            assert may.acquire(timeout=SECONDS), "the test holds a commit for ever"


class HeldAppends(HeldCommits):
    """The same, held before records are written: others may claim their agents meanwhile."""

    def append_all(self, batches: Any) -> Any:
        self._pass()
        return self.__getattr__("append_all")(batches)

    def commit(self) -> None:
        self.__getattr__("commit")()


class HeldAnswers(HeldCommits):
    """The same, held after commits are made: others read what they wrote meanwhile."""

    def commit(self) -> None:
        self.__getattr__("commit")()
        self._pass()


def held_answers(backend: Backend, kind: str) -> threading.Event:
    """The event that lets commits with a record of this kind be answered. They are made at once."""
    commit_all, may_answer = backend.commit_all, threading.Event()

    def late(batches: Sequence[Batch]) -> list[Any]:
        answers = commit_all(batches)
        if any(record.kind == kind for batch in batches for record in batch.records):
            assert may_answer.wait(SECONDS), "the test holds an answer for ever"
        return answers

    backend.commit_all = late  # type: ignore[method-assign]
    return may_answer


async def turns() -> None:
    """Give the loop so many turns that whatever waits for nothing more is done."""
    for _ in range(300):
        await asyncio.sleep(0)
