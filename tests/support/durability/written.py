"""The story of an agent that writes files: what is recorded of a file and its bytes are one fact.

Each process that lives continues what the one before has left; the last one reads all files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support.agents import by_turn
from tests.support.durability import play
from tests.support.durability.forks import be_hasty
from tests.support.durability.points import Points
from tests.support.durability.side_log import SideLog
from understudy import Agent, Runtime, call
from understudy.middleware import Workspace
from understudy.modes.steps.tool_call import invocation
from understudy.run.ledger import Ledger

__all__ = ["BROKEN", "warm_up", "written"]

LINES = [f"line {number}: {number * 2654435761:x}\n" for number in range(3_000)]
LONG = "".join(LINES)
"""Of several pieces, so that an edit shares most of them."""
OLD, NEW = LINES[1_500], "line 1500 is another one\n"
FILES = {"long.md": LONG.replace(OLD, NEW), "kept/copy.md": LONG}
"""What there is in the end."""
TURNS = [
    call("write_file", {"path": "long.md", "text": LONG}),
    [
        call("write_file", {"path": "copy.md", "text": LONG}),
        call("edit_file", {"path": "long.md", "old": OLD, "new": NEW}),
    ],
    call("move_file", {"path": "copy.md", "to": "kept/copy.md"}),
    [
        call("write_file", {"path": "draft.md", "text": "soon gone"}),
        call("delete_file", {"path": "draft.md"}),
    ],
    call("read_file", {"path": "long.md", "first_line": 1501, "lines": 1}),
    "written",
]


def _not_kept() -> None:
    Ledger.keep_blobs = lambda *_: None  # type: ignore[method-assign]  # the broken build


def _kept_later() -> None:
    inner = Ledger.keep_blobs

    def later(ledger: Ledger, blobs: Any) -> None:
        async def keep() -> None:
            await ledger.durable()
            inner(ledger, blobs)

        tasks.append(asyncio.ensure_future(keep()))

    tasks: list[asyncio.Future[None]] = []
    Ledger.keep_blobs = later  # type: ignore[method-assign, assignment]  # the broken build


def _without_files(run: Any, ready: Any, result: Any, edits: Any) -> Any:
    return result


def _not_recorded() -> None:
    assert hasattr(invocation, "with_files")
    invocation.with_files = _without_files


BROKEN: dict[str, Callable[[], None]] = {
    "J80: the bytes of a file are not kept": _not_kept,
    "J80: the bytes of a file are in a later commit than what is recorded of it": _kept_later,
    "J80: a call's result says nothing of the files that it has written": _not_recorded,
}
"""Each broken build, by what is wrong with it."""


def warm_up() -> None:
    """Do once what is slow the first time."""
    play.warm_up(_life)


def written(
    folder: Path,
    *,
    stops: list[int],
    named: str = "",
    power: bool = False,
    broken: str | None = None,
) -> dict[str, Any]:
    """The n-th process is stopped at the n-th point, the last one lives.

    Args:
        stops: these points.
        named: not before a point whose name begins so.
        power: the machine loses its power there; else the process is killed.
        broken: the build that plays it.

    """
    if broken is not None:
        be_hasty()
        BROKEN[broken]()
    log = play.play(folder, _life, stops=stops, named=named, power=power)
    return {
        "violations": list(_violations(log)),
        "stopped": [entry.of[0] for entry in log.read("stopped")],
        "points": [entry.of for entry in log.read("points")],
    }


async def _life(store: str, number: int, log: SideLog, points: Points) -> None:
    agent = Agent("writer", by_turn(*TURNS), middleware=[Workspace()])
    async with Runtime([agent], store=store, sweep=None) as runtime:
        await _run(runtime, log)


async def _run(runtime: Runtime, log: SideLog) -> None:
    ref = runtime.spawn("writer", id="a")
    await ref.run("Write.", message_id="only")
    records = (await runtime.export("a"))["records"]
    for record in records:
        if record["kind"] == "result":
            log.write("result", record["call_key"], record["part"].get("outcome", "success"))
    log.write("ended", *[record["kind"] for record in records if record["kind"] == "run_ended"])
    await ref.compact()  # bytes that nothing refers to are gone with it, and no others
    files = Workspace.of(ref)
    for file in await files.list():
        log.write("file", file.path, await files.read(file.path))


def _violations(log: SideLog) -> Iterator[str]:
    """What is lost, and what was done twice."""
    ends, last = log.read("ended"), log.read("points")[-1].life
    files = {entry.of[0]: entry.of[1] for entry in log.read("file") if entry.life == last}
    for path in sorted(files.keys() ^ FILES.keys()):
        yield f"{path} is {'too much' if path in files else 'not there'}"
    for path in sorted(files.keys() & FILES.keys()):
        if files[path] != FILES[path]:
            yield f"{path} has {len(files[path])} characters of another text"
    # The first process that got there tells of the results: they are compacted then.
    done = [entry.of for entry in log.read("result") if entry.life == ends[0].life]
    if len(done) != len({key for key, _ in done}):
        yield "a call has two results"
    if len(done) != sum(len(turn) if isinstance(turn, list) else 1 for turn in TURNS[:-1]):
        yield f"there are {len(done)} results"
    for key, outcome in done:
        if outcome != "success":
            yield f"the result of {key} is {outcome}"
    if len(ends[0].of) != 1:
        yield "the run has not ended once"
