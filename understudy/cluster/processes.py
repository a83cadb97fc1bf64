"""`Processes`: the engine whose hosts are processes on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time

from understudy._base.json_values import text_of
from understudy.cluster.engine import HostLine, Hosts, HostSpec, NodeStatus, RunningHost
from understudy.cluster.frames import dumps
from understudy.cluster.host_process import LENGTH
from understudy.errors import UsageError

logger: logging.Logger = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""Seconds before a process that has ended is started again; longer where it ends again and again.
"""
SETTLED = 30.0
"""A process that has lived that long is started again after the first pause."""


class Processes:
    """An engine whose hosts are processes on this machine. It needs no other package.

    A host that ends is started again. It inherits the environment, the import path and the working
    directory of this process. Its output goes to the standard error of this process.
    """

    def __repr__(self) -> str:
        return "Processes()"

    async def open(self) -> None:
        """Do nothing: processes need no preparation."""

    async def close(self) -> None:
        """Do nothing: nothing is held."""

    async def start(self, spec: HostSpec, pool: Hosts, line: HostLine) -> RunningHost:
        """Start a host as a process, as `Engine.start`."""
        if pool.num_gpus or pool.resources:
            raise UsageError(
                f"Hosts({pool.factory!r}): processes on this machine are not placed by "
                "`num_gpus` and `resources`: leave them out, or use engine='ray'"
            )
        return _Process(spec, line)

    def nodes(self) -> list[NodeStatus]:
        """Return this machine."""
        name = os.uname().nodename if hasattr(os, "uname") else ""
        return [NodeStatus(id=name, address="localhost", is_alive=True)]


class _Process:
    def __init__(self, spec: HostSpec, line: HostLine) -> None:
        self._spec = spec
        self._line = line
        self._process: asyncio.subprocess.Process | None = None
        self._is_ending = False
        self._task = asyncio.create_task(self._keep())

    def send(self, frame: bytes) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.write(LENGTH.pack(len(frame)) + frame)

    def restart(self, why: str) -> None:
        logger.warning("host %r is killed and started again: %s", self._spec.name, why)
        self._kill()

    async def end(self, timeout: float) -> None:
        self._is_ending = True
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
        await asyncio.wait([self._task], timeout=timeout)
        self._kill()
        self._task.cancel()  # it may be between two processes
        await asyncio.wait([self._task])

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                self._process.kill()

    async def _keep(self) -> None:
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                why = await self._run()
            except OSError as error:  # no process could be started
                why = text_of(error)
            self._process = None
            if self._is_ending:
                return
            logger.warning("host %r has ended (%s), and is started again", self._spec.name, why)
            self._line.lost(why)
            pause = FIRST_PAUSE if time.monotonic() - began > SETTLED else pause
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _run(self) -> str:
        # A session of its own: Ctrl-C in a terminal is for the cluster, which drains its hosts.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from understudy.cluster.host_process import main; main()",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )
        self._process = process
        assert process.stdout is not None
        try:
            self.send(dumps(self._spec))
            with contextlib.suppress(asyncio.IncompleteReadError):
                while True:
                    (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
                    self._line.received(await process.stdout.readexactly(length))
            return f"exit code {await process.wait()}"
        finally:
            if process.returncode is None:
                self._kill()
                await process.wait()
