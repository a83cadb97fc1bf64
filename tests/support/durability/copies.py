"""Answers that come twice, and journals that come back: one answer is one execution at most."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.durability.broken import break_
from tests.support.durability.forks import forked
from tests.support.durability.judge import violations
from tests.support.durability.lives import in_time
from tests.support.durability.points import Points, kill
from tests.support.durability.side_log import SideLog
from tests.support.durability.stage import Stage, clerk, decision
from understudy import (
    DecisionError,
    Interrupted,
    NotInterrupted,
    Outcome,
    Runtime,
    approve,
    reject,
)

__all__ = ["answered_again", "came_back"]

ID = "case"
_FILES = ("store.db", "store.db-wal")


def answered_again(
    folder: Path, *, stop_at: int | None, broken: str | None = None
) -> dict[str, Any]:
    """An answer, a kill at the `stop_at`-th point after it, and the same answer from 8 threads."""
    break_(broken)
    forked(lambda: asyncio.run(_asked(folder, 0, stop_at)), killed=True)
    forked(lambda: _insisted(folder), killed=False)
    return _judged(folder)


def came_back(
    folder: Path, *, stop_at: int | None, by: str, broken: str | None = None
) -> dict[str, Any]:
    """A copy of the store as it was at a kill comes back after the agent has gone on to its end.

    Args:
        by: `restore`, of the file itself; or `import`, into another store.

    """
    break_(broken)
    forked(lambda: asyncio.run(_asked(folder, 0, stop_at)), killed=True)
    backup = folder / "backup"
    backup.mkdir()
    for name in _FILES:
        if (folder / name).exists():
            shutil.copyfile(folder / name, backup / name)
    exported: dict[str, Any] = {}
    if by == "import":
        forked(lambda: asyncio.run(_exported(folder)), killed=False)
        exported = json.loads((folder / "exported").read_text())
    forked(lambda: asyncio.run(_gone_on(folder, 1)), killed=False)
    for name in (*_FILES, "store.db-shm"):
        (folder / name).unlink(missing_ok=True)
    if by == "import":
        (folder / "store.db.lock").unlink()  # another store, elsewhere
    else:
        for file in backup.iterdir():
            shutil.copyfile(file, folder / file.name)
    forked(lambda: asyncio.run(_gone_on(folder, 2, exported)), killed=False)
    return _judged(folder)


def _judged(folder: Path) -> dict[str, Any]:
    log = SideLog(folder / "log", -1)
    found = [text for text in violations(log, None) if "was told" not in text]
    return {"violations": found, "stopped": [entry.of[0] for entry in log.read("stopped")]}


def _runtime(folder: Path, log: SideLog, point: Callable[[str], None]) -> Runtime:
    stage = Stage(log, point)
    store = f"sqlite:///{folder}/store.db"
    return Runtime([clerk()], store=store, deps_for=lambda _: stage)


async def _asked(folder: Path, life: int, stop_at: int | None) -> None:
    """Ask for the approval, answer it, and be killed at a point after that."""
    log = SideLog(folder / "log", life)

    def stop(name: str) -> None:
        log.write("stopped", name)
        kill()

    points = Points(stop_at, stop)
    points.install()
    answered = threading.Event()
    points.only_when(answered.is_set)
    async with _runtime(folder, log, points) as runtime:
        asked = await runtime.spawn("clerk", id=ID).run("begin", message_id="1")
        assert isinstance(asked, Interrupted)
        (request,) = asked.requests
        log.write("asked", request.id)
        answered.set()
        log.write("approved", request.call_key, request.tool_name)
        await runtime.get(ID).resume({request.id: approve()})
        kill()  # as late as can be


def _insisted(folder: Path) -> None:
    """Post the answer again from all sides, and a contrary one; then see the run to its end."""
    log = SideLog(folder / "log", 1)
    (asked,) = log.read("asked")
    answers: list[Outcome | Exception] = []
    refused: list[Outcome | Exception] = []

    def post(answer: Any, into: list[Outcome | Exception]) -> None:
        try:
            into.append(runtime.get(ID).resume({asked.of[0]: answer}).get(timeout=60))
        except Exception as error:
            into.append(error)

    with _runtime(folder, log, lambda _: None) as runtime:
        threads = [threading.Thread(target=post, args=(approve(), answers)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        post(reject(), refused)
        asyncio.run(in_time(_to_the_end(runtime, log)))
    for answer in answers:
        if isinstance(answer, Exception):
            log.write("violation", f"J5: the same answer again brought {answer!r}")
    if not isinstance(refused[0], (NotInterrupted, DecisionError)):
        log.write("violation", f"J5: another answer was taken: {refused[0]!r}")
    log.write("served")


async def _exported(folder: Path) -> None:
    log = SideLog(folder / "log", 1)
    async with _runtime(folder, log, lambda _: None) as runtime:
        (folder / "exported").write_text(json.dumps(await runtime.export(ID)))


async def _gone_on(folder: Path, life: int, exported: dict[str, Any] | None = None) -> None:
    """Post the answer that was given once; then answer what is asked anew."""
    log = SideLog(folder / "log", life)
    async with _runtime(folder, log, lambda _: None) as runtime:
        if exported:
            await runtime.import_(exported)
        if life == 2:
            await in_time(_posted(runtime, log))
        await runtime.recover()
        await in_time(_to_the_end(runtime, log))
    log.write("served")


async def _posted(runtime: Runtime, log: SideLog) -> None:
    """The answer of another life decides nothing here, from any sender (J5)."""
    (asked,) = log.read("asked")
    before = _refunds(log)
    try:
        await runtime.get(ID).resume({asked.of[0]: approve()})
    except (DecisionError, NotInterrupted):
        return
    if _refunds(log) > before:  # the call beside it needs no answer, and continues by itself
        log.write("violation", "J5: an answer from another life ran a call")


def _refunds(log: SideLog) -> int:
    return sum(entry.of[1] == "refund" for entry in log.read("enter"))


async def _to_the_end(runtime: Runtime, log: SideLog) -> None:
    while isinstance(await runtime.get(ID).outcome(), Interrupted):
        asked = [pending.request for pending in await runtime.pending()]
        answers = {request.id: decision(log, request, careful=True) for request in asked}
        if answers:  # else its status is being recorded
            await runtime.get(ID).resume(answers)
