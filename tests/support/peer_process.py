"""A process that shares a store with a test, and runs the same agents.

`python -m tests.support.peer_process URL SCHEMA NAME LEASE FOLDER [WITHOUT]`: it runs until its
input ends. WITHOUT names what its version of the library lacks, for controls.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from tests.support.loops import soon
from tests.support.postgres import Hosts
from understudy import Agent, Run, Runtime, ScriptedModel, call, tool
from understudy.journal.database_store import DatabaseStore
from understudy.journal.postgres.backend import PostgresBackend
from understudy.middleware import Middleware

__all__ = ["THERE", "Peer", "desk", "entered", "lines", "one_that_lives_at", "peer"]

THERE = "there"
"""The name of the process beside the test."""


def lines(path: Path) -> list[str]:
    """What was written to a file, by whichever process."""
    return path.read_text().split() if path.exists() else []


def _write(path: Path, word: str) -> None:
    with path.open("a") as file:
        file.write(f"{word}\n")


async def entered(path: Path, count: int = 1) -> None:
    """Until so many lines were written to a file."""

    async def look() -> None:
        while len(lines(path)) < count:  # noqa: ASYNC110  # a process writes it
            await asyncio.sleep(0.02)

    await soon(look())


class Told(Middleware):
    """Writes down the messages that it gets."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def on_message(self, run: Run, message: object) -> None:
        _write(self._folder / "told", str(message))


def desk(folder: Path) -> Agent:
    """On "work" it pays, and then waits until the file `go` is there. Else it says hello."""

    @tool
    async def pay() -> str:
        _write(folder / "paid", str(os.getpid()))
        return "paid"

    @tool(idempotent=True)
    async def hold() -> str:
        _write(folder / "held", str(os.getpid()))
        while not (folder / "go").exists():  # noqa: ASYNC110  # the test makes it
            await asyncio.sleep(0.02)
        return "released"

    def reply(request: Any) -> Any:
        if request.prompt != "work":
            return "hello"
        done = [
            part.tool_name
            for message in request.messages
            for part in message.parts
            if part.part_kind == "tool-return"
        ]
        return "done" if "hold" in done else call("hold") if "pay" in done else call("pay")

    return Agent("desk", ScriptedModel(reply), tools=[pay, hold], middleware=[Told(folder)])


class Peer:
    """A process beside the test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    @property
    def pid(self) -> int:
        return self._process.pid


@contextmanager
def peer(
    hosts: Hosts, folder: Path, *, lease: float = 60, name: str = THERE, without: str = ""
) -> Iterator[Peer]:
    """A process that runs the desk on the store of the test."""
    command = [sys.executable, "-m", __name__, hosts.url, hosts.schema, name, str(lease)]
    with subprocess.Popen(
        [*command, str(folder), without],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            yield Peer(process)
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


@asynccontextmanager
async def one_that_lives_at(runtime: Runtime, name: str, tag: str = "t") -> AsyncIterator[Any]:
    """A ref of an agent at rest whose home is the process of this name."""

    async def found() -> Any:
        number = 0
        while True:
            ref = runtime.spawn("desk", f"{tag}{number}")
            await ref.run("hello")
            if (await ref.info()).host == name:
                return ref
            number += 1
            await asyncio.sleep(0.02)

    yield await soon(found())


async def _serve(
    url: str, schema: str, name: str, lease: str, folder: str, without: str = ""
) -> None:
    _leave_out(without, Path(folder))
    backend = PostgresBackend(url, host=name, schema=schema, lease=float(lease))
    async with Runtime([desk(Path(folder))], store=DatabaseStore(backend), sweep=None):
        print("open", flush=True)  # noqa: T201  # the test reads it
        await asyncio.to_thread(sys.stdin.read)


def _leave_out(without: str, folder: Path) -> None:
    """Make it a process that lacks something, for a control."""
    if not without:
        return
    from understudy.actors.hosts.peers import calls, peers

    if without == "freshness":
        mock.patch.object(calls, "FRESH", 1e9).start()
        mock.patch.object(calls.ServedCall, "withdraw", return_value=None).start()
    elif without == "version":
        mock.patch.object(peers, "library", return_value="another").start()
    else:
        mock.patch.object(calls, "FRESH", _RefusesOne(folder / "refuse")).start()


class _RefusesOne:
    """The age up to which a call is done: of the first one behind the making of a file, none."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __lt__(self, age: float) -> bool:
        refuses = self._file.exists()
        self._file.unlink(missing_ok=True)
        return refuses


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:]))
