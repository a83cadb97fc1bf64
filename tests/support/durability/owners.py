"""Two who want to write to one store: the second gets an error, or the first is refused."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.durability.broken import break_
from tests.support.durability.forks import forked
from tests.support.durability.lives import in_time
from tests.support.durability.points import kill
from tests.support.durability.side_log import SideLog
from tests.support.durability.stage import Stage, book, call_of, decision, publish
from understudy import (
    Agent,
    Completed,
    Interrupted,
    Run,
    Runtime,
    ScriptedModel,
    StoreInUse,
    UnderstudyError,
)
from understudy._base.clock import suspend_aware_seconds
from understudy.errors import StoreUnavailable
from understudy.journal import DatabaseStore
from understudy.journal.lease import Lease
from understudy.journal.sqlite.backend import SqliteBackend
from understudy.middleware import Middleware

__all__ = ["lapsed", "second_runtime", "stale_writer", "unknown_commits"]

ID = "case"


def _agent(*middleware: Middleware) -> Agent:
    """One call that is not to be repeated, then the end."""
    name = "publish" if middleware else "book"  # the latter waits before it does anything
    replies = [call_of(name, "a flight"), "done"]

    def reply(request: Any) -> Any:
        return replies[min(len(request.messages) // 2, 1)]

    return Agent("clerk", ScriptedModel(reply), tools=[book, publish], middleware=list(middleware))


def _runtime(
    folder: Path, log: SideLog, point: Callable[[str], None], *more: Any, patience: float = 30.0
) -> Runtime:
    stage = Stage(log, point)
    store = DatabaseStore(
        SqliteBackend(f"{folder}/store.db", host=str(os.getpid())), patience=patience
    )
    return Runtime([_agent(*more)], store=store, deps_for=lambda _: stage)


@contextmanager
def _beside(body: Callable[[], None]) -> Iterator[int]:
    """Another process that does `body` meanwhile, and is killed at the end."""
    pid = os.fork()
    if pid == 0:
        try:
            body()
        finally:
            os._exit(0)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


class _Signals:
    """Two processes that wait for each other."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def give(self) -> None:
        os.write(self._write, b"x")

    def wait(self) -> None:
        os.read(self._read, 1)


def second_runtime(folder: Path, *, broken: str | None = None) -> dict[str, Any]:
    """A second runtime on one SQLite file fails at once; right after a `kill -9` it is free."""
    break_(broken)
    log = SideLog(folder / "log", 0)
    opened = _Signals()
    found: dict[str, float] = {}

    def hold() -> None:
        with _runtime(folder, log, lambda _: None):
            opened.give()
            signal.pause()

    def intrude() -> None:
        begin = time.perf_counter()
        try:
            with _runtime(folder, log, lambda _: None):
                log.write("violation", "J6: two runtimes have one SQLite file open")
        except StoreInUse as error:
            if "PostgreSQL" not in str(error):
                log.write("violation", f"the error names no remedy: {error}")
        log.write("refused after", str(time.perf_counter() - begin))

    with _beside(hold):
        opened.wait()
        forked(intrude, killed=False)
    begin = time.perf_counter()

    def follow() -> None:
        with _runtime(folder, log, lambda _: None) as runtime:
            assert isinstance(runtime.spawn("clerk", id=ID).run("go").get(timeout=60), Completed)

    forked(follow, killed=False)
    found["open again"] = time.perf_counter() - begin
    found["refused"] = float(log.read("refused after")[0].of[0])
    if found["refused"] > 1:
        log.write("violation", f"the second runtime waited {found['refused']:.1f} seconds")
    return {"violations": [entry.of[0] for entry in log.read("violation")], **found}


def stale_writer(folder: Path, *, broken: str | None = None) -> dict[str, Any]:
    """An owner in the middle of a tool loses its lock file, and another one takes its agent."""
    break_(broken)
    entered, released, over = _Signals(), _Signals(), _Signals()

    def hold(name: str) -> None:
        if name == "after effect of book":
            entered.give()
            released.wait()

    def first() -> None:
        async def main() -> None:
            async with _runtime(folder, SideLog(folder / "log", 0), hold) as runtime:
                try:
                    outcome = await runtime.spawn("clerk", id=ID).run("go")
                except UnderstudyError as error:
                    SideLog(folder / "log", 0).write("refused", type(error).__name__)
                else:
                    told = f"J7: an owner of long ago told {outcome!r}"
                    SideLog(folder / "log", 0).write("violation", told)
            over.give()

        asyncio.run(main())

    def second() -> None:
        async def main() -> None:
            log = SideLog(folder / "log", 1)
            async with _runtime(folder, log, lambda _: None) as runtime:
                await runtime.recover()
                ref = runtime.get(ID)
                while isinstance(await ref.outcome(), Interrupted):
                    asked = [pending.request for pending in await runtime.pending()]
                    await ref.resume({request.id: decision(log, request) for request in asked})
                released.give()
                over.wait()
                state = await ref.state()
                assert state.run is not None

        asyncio.run(main())

    with _beside(first):
        entered.wait()
        (folder / "store.db.lock").unlink()  # somebody tidies up
        forked(second, killed=False)
    log = SideLog(folder / "log", -1)
    found = [entry.of[0] for entry in log.read("violation")]
    return {"violations": [*found, *stale_records(folder / "store.db")]}


def stale_records(database: Path) -> Iterator[str]:
    """Records of an epoch behind those of a later one: nobody may have written them (J7)."""
    connection = sqlite3.connect(database)
    newest: dict[int, int] = {}
    for agent, epoch in connection.execute("SELECT id >> 32, epoch FROM records ORDER BY id"):
        if epoch < newest.get(agent, 0):
            yield f"J7: a record of epoch {epoch} stands behind one of epoch {newest[agent]}"
        newest[agent] = epoch
    connection.close()


class _Suspended(Middleware):
    """Right before a tool, the machine is suspended for longer than the lease lasts."""

    def __init__(self, suspend: Callable[[], None]) -> None:
        self._suspend = suspend

    async def wrap_tool_call(self, run: Run, call: Any, next: Any) -> Any:
        self._suspend()
        run.deps.log.write("lease is over")
        return await next(call)


def lapsed(folder: Path, *, broken: str | None = None) -> dict[str, Any]:
    """The lease ends between the commit of `started` and the tool: the tool is not entered."""
    break_(broken)
    answers = iter([60.0])
    suspended = [0.0]

    def renew(_: SqliteBackend) -> float:
        for seconds in answers:
            return seconds
        raise StoreUnavailable(cause="the network is away")

    def suspend() -> None:
        suspended[0] += 100.0

    SqliteBackend.renew = renew  # type: ignore[method-assign, assignment]  # only in this process
    defaults = Lease.__init__.__kwdefaults__
    assert defaults is not None
    defaults["seconds"] = lambda: suspend_aware_seconds() + suspended[0]  # so is this
    log = SideLog(folder / "log", 0)

    async def main() -> None:
        lapsing = _runtime(folder, log, lambda _: None, _Suspended(suspend), patience=0.5)
        async with lapsing as runtime:
            try:
                await runtime.spawn("clerk", id=ID).run("go")
            except UnderstudyError:
                kill()
            log.write("violation", "J8: a run went on after its lease")
            kill()

    forked(lambda: asyncio.run(in_time(main())), killed=True)
    found = [entry.of[0] for entry in log.read("violation")]
    assert log.read("lease is over"), "it came to the tool"
    if log.read("enter"):
        found.append("J8: a tool was entered after the lease had ended")
    return {"violations": found}


def unknown_commits(folder: Path, *, broken: str | None = None) -> dict[str, Any]:
    """Every commit succeeds, and says that the database went away: it is read back (J16)."""
    break_(broken)
    log = SideLog(folder / "log", 0)
    commit = SqliteBackend.commit
    said: list[bool] = []

    def unsure(backend: SqliteBackend) -> None:
        commit(backend)
        said.append(len(said) % 2 == 0)
        if said[-1]:
            raise StoreUnavailable(cause="the answer to the commit got lost")

    SqliteBackend.commit = unsure  # type: ignore[method-assign, assignment]  # only in this process

    async def main() -> None:
        async with _runtime(folder, log, lambda _: None) as runtime:
            try:
                outcome = await runtime.spawn("clerk", id=ID).run("go")
            except UnderstudyError as error:
                log.write("violation", f"J16: a commit that was made counts as failed: {error}")
            else:
                if not isinstance(outcome, Completed):
                    log.write("violation", f"J16: {outcome!r}")

    forked(lambda: asyncio.run(in_time(main())), killed=False)
    found = [entry.of[0] for entry in log.read("violation")]
    if len(log.read("effect")) != 1:
        found.append(f"J16: {len(log.read('effect'))} effects")
    return {"violations": found}
