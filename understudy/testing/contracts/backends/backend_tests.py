"""`BackendTests`: the base of the tests of a backend, which makes the backends to judge."""

from __future__ import annotations

import os
import signal
import sys
import traceback
import unittest
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import ClassVar

from understudy.journal.backend import Backend
from understudy.journal.shared import SharedBackend
from understudy.testing.contracts.contract import Contract, in_thread


class BackendTests(Contract):
    """Tests of backends on the database of one test, which is empty at first."""

    _required: ClassVar[tuple[str, ...]] = ("new_backend",)

    def new_backend(self, host: str) -> Backend:
        """A backend of this test's database, not open yet. Override it.

        It is called for each host of a test, and for the next process; `self.folder` is an empty
        folder of this test.

        Args:
            host: the name of the runtime, as in `Backend.host`.

        """
        raise self._missing("new_backend")

    @cached_property
    def _backends(self) -> list[Backend]:
        return []

    @cached_property
    def _many_hosts(self) -> bool:
        """Whether several runtimes may have the database open at once."""
        return isinstance(self.new_backend("here"), SharedBackend)

    def open(self, host: str = "here") -> Backend:
        """An open backend. It is closed when the test ends."""
        backend = self.new_backend(host)
        backend.open()
        self._backends.append(backend)
        return backend

    def _two(self) -> tuple[Backend, Backend]:
        """Two hosts that have the database open."""
        if not self._many_hosts:
            self.skip("one runtime at a time has the database")
        return self.open("first"), self.open("second")

    def _killed_after(self, work: Callable[[], None]) -> None:
        """Do the work in a process that is killed right after it."""
        if sys.platform == "win32":
            raise unittest.SkipTest("processes are not forked here")
        failed = self.folder / "failed"  # the path is made here, not in the other process
        with warnings.catch_warnings():
            # The threads of a test runner may hold locks, which the child does not touch.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            try:
                work()
            except BaseException:
                failed.write_text(traceback.format_exc(), encoding="utf-8")
            finally:
                os.kill(os.getpid(), signal.SIGKILL)
        try:
            in_thread(lambda: os.waitpid(pid, 0))
        except AssertionError:
            os.kill(pid, signal.SIGKILL)
            raise
        assert not failed.exists(), failed.read_text(encoding="utf-8")

    def teardown_method(self) -> None:
        for backend in self._backends:
            backend.close()
        super().teardown_method()
