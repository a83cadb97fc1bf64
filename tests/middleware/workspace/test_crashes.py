"""A write and the result of its call are one fact, whenever the process ends (J80)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.agents import Held, by_turn, completed, results
from tests.support.loops import soon
from tests.support.places import SqlitePlace
from tests.support.postgres import Hosts
from understudy import Agent, Runtime, call, tool
from understudy.journal import DatabaseStore, Store
from understudy.journal.backend import Backend
from understudy.middleware import Workspace
from understudy.testing import FaultyBackend

GROW = call("edit_file", {"path": "a", "old": "x", "new": "x+"})
TURNS = [
    call("write_file", {"path": "a", "text": "x"}),
    [GROW, GROW],
    call("move_file", {"path": "a", "to": "b"}),
    call("read_file", {"path": "b"}),
]


class CopiedAtEachCommit(FaultyBackend):
    """Keeps what the process would leave if it ended right after a commit, for each of them."""

    def __init__(self, backend: Backend, place: SqlitePlace) -> None:
        super().__init__(backend)
        self._place = place
        self.copies: list[Store] = []

    def commit(self) -> None:
        self.__getattr__("commit")()
        self.copies.append(self._place.after_crash())


def writer(*turns: Any, **options: Any) -> Agent:
    return Agent("writer", by_turn(*turns), middleware=[Workspace()], **options)


async def test_a_write_is_made_once_wherever_the_process_ends(sqlite: SqlitePlace) -> None:
    backend = CopiedAtEachCommit(sqlite.backend(), sqlite)
    async with Runtime([writer(*TURNS)], store=DatabaseStore(backend)) as runtime:
        ref = runtime.spawn("writer", id="a")
        completed(await soon(ref.run("go", message_id="m")))
    assert len(backend.copies) > 5
    for store in backend.copies:
        async with Runtime([writer(*TURNS)], store=store) as runtime:
            ref = runtime.spawn("writer", id="a")
            files = Workspace.of(ref)
            for file in await soon(files.list()):  # what is named there is there
                assert (await soon(files.read(file.path))).startswith("x")
            outcome = completed(await soon(ref.run("go", message_id="m")))
            texts = [str(part.content) for part in results(outcome.state)]
            assert texts[-1] == "1\tx++"
            assert await soon(files.read("b")) == "x++"
            assert [file.path for file in await soon(files.list())] == ["b"]


@pytest.mark.postgres
async def test_another_host_reads_and_writes_the_files_of_a_run(hosts: Hosts) -> None:
    held = Held()

    @tool
    async def wait() -> str:
        """Wait."""
        await held.wait()
        return "waited"

    turns = [TURNS[0], call("wait"), call("read_file", {"path": "a"})]
    agent = writer(*turns, tools=[wait])
    async with (
        Runtime([agent], store=DatabaseStore(hosts.new("one"))) as one,
        Runtime([agent], store=DatabaseStore(hosts.new("two"))) as two,
    ):
        run = one.spawn("writer", id="a").run("go")
        await soon(held.entered.wait())
        files = Workspace.of(two.get("a"))
        assert await soon(files.read("a")) == "x"
        await soon(files.write_all({"a": "from two", "c.bin": b"\0"}))
        await soon(files.move("c.bin", "d.bin"))
        held.release.set()
        outcome = completed(await soon(run))
        assert str(results(outcome.state)[-1].content) == "1\tfrom two"
        assert await soon(files.read_bytes("d.bin")) == b"\0"


@pytest.mark.postgres
async def test_an_agent_takes_its_files_to_another_host(hosts: Hosts) -> None:
    agent = writer(TURNS[0], "written", GROW, call("read_file", {"path": "a"}))
    async with (
        Runtime([agent], store=DatabaseStore(hosts.new("one"))) as one,
        Runtime([agent], store=DatabaseStore(hosts.new("two"))) as two,
    ):
        ref = one.spawn("writer", id="a")
        completed(await soon(ref.run("go")))
        await soon(ref.stop(block=False))
        outcome = completed(await soon(two.get("a").run("go on")))
        assert str(results(outcome.state)[-1].content) == "1\tx+"
