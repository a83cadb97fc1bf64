"""`serve --processes`: processes that listen on one socket, and the one that watches them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable

from understudy.cli.exits import USAGE, refuse
from understudy.cli.output import note

SETTINGS = "UNDERSTUDY_SERVE"
"""The environment variable by which a process that is started gets its settings."""
PAUSE = 0.5
"""Seconds before a process that has ended is started again; twice as many each time."""
MOST_PAUSE = 30.0
LONG = 60.0
"""The seconds of life after which the first pause counts again."""
TIME_TO_END = 30.0
"""Seconds that processes have to end, before they are killed."""


def check(processes: int, name: str | None, *, reload: bool) -> None:
    """Refuse what cannot be served by several processes.

    Args:
        processes: the number of processes.
        name: the name of the store.
        reload: whether code is reloaded.

    """
    if reload:
        refuse(USAGE, "--reload is for one process: leave --processes out")
    if sys.platform == "win32":
        refuse(USAGE, "--processes needs Linux or macOS: Windows shares no socket so")
    if name is None or not name.startswith("postgresql:"):
        what = "that is in memory" if name is None else name
        refuse(
            USAGE,
            f"--processes {processes} needs a store that processes share, which is PostgreSQL: "
            f"{what} is for one process",
        )


class Processes:
    """Keeps a number of processes running until this process is asked to end.

    Args:
        settings: the settings of each process, as JSON.
        count: the number of processes.
        listener: the socket on which all listen.

    """

    def __init__(self, settings: str, count: int, listener: socket.socket) -> None:
        self._listener = listener
        self._count = count
        self._environment = {**os.environ, SETTINGS: settings}
        self._running: set[asyncio.subprocess.Process] = set()
        self._ends = asyncio.Event()
        self._failed = 0

    async def run(self) -> int:
        """Keep them running. Returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._end)
        keeping = [asyncio.create_task(self._keep(number)) for number in range(1, self._count + 1)]
        try:
            await self._ends.wait()
            for process in list(self._running):
                _unless_gone(process.terminate)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TIME_TO_END):
                    await asyncio.gather(*keeping)
        finally:
            for process in list(self._running):
                note(f"process {process.pid} does not end: it is killed")
                _unless_gone(process.kill)
            for task in keeping:
                task.cancel()
            await asyncio.gather(*keeping, return_exceptions=True)
        return self._failed

    def _end(self) -> None:
        if self._ends.is_set():  # a second Ctrl-C ends it at once
            for process in list(self._running):
                _unless_gone(process.kill)
        self._ends.set()

    async def _keep(self, number: int) -> None:
        """Keep one process running."""
        loop = asyncio.get_running_loop()
        pause, was_ready = PAUSE, False
        while not self._ends.is_set():
            began = loop.time()
            # The child reads from a pipe that this process holds, and ends if this process is
            # killed.
            watched, held = os.pipe()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "understudy.cli.serve"),
                *(str(self._listener.fileno()), str(watched)),
                pass_fds=(self._listener.fileno(), watched),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                env=self._environment,
                # Ctrl-C is for this process, which passes it on.
                start_new_session=True,
            )
            os.close(watched)
            self._running.add(process)
            if self._ends.is_set():
                _unless_gone(process.terminate)
            try:
                assert process.stdout is not None, "it has a pipe"
                if await process.stdout.readline():
                    was_ready = True
                    note(f"process {process.pid} serves ({number} of {self._count})")
                code = await process.wait()
            finally:
                self._running.discard(process)
                os.close(held)
            if self._ends.is_set():
                return
            if not was_ready and code > 0:  # it said why: a next one could not start either
                self._failed = code
                self._end()
                return
            if loop.time() - began > LONG:
                pause = PAUSE
            how = f"by signal {-code}" if code < 0 else f"with code {code}"
            note(f"process {process.pid} has ended {how}: another one starts in {pause:g} s")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._ends.wait()
            pause = min(2 * pause, MOST_PAUSE)


def _unless_gone(act: Callable[[], None]) -> None:
    with contextlib.suppress(ProcessLookupError):
        act()


async def parent_ends(watched: int) -> None:
    """Return when the process that started this one has ended."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(watched, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(watched)
