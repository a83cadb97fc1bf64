"""An observer reads a store that a runtime has open, takes nothing from it, and changes nothing.

Rules: R8, J30.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.agents import Held, by_turn, completed, interrupted
from tests.support.loops import soon
from tests.support.postgres import Hosts
from tests.support.programs import ran
from understudy import Agent, Observer, Runtime, ScriptedModel, Status, UsageError, approve, call
from understudy.errors import (
    StoreBroken,
    StoreDamaged,
    UnknownAgent,
)
from understudy.journal import DatabaseStore, IndexStatus
from understudy.journal.sqlite.backend import SqliteBackend


def desk(effects: list[int]) -> Agent:
    def pay(amount: int) -> str:
        effects.append(amount)
        return "paid"

    model = by_turn(call("pay", {"amount": 5}), "done")
    return Agent("desk", model, tools=[pay], interrupt_on={"pay": True})


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], DatabaseStore]:
    """Makes stores of one database."""
    if request.param == "postgres":
        hosts: Hosts = request.getfixturevalue("hosts")
        return lambda: DatabaseStore(hosts.new())
    path = str(tmp_path / "store.db")
    return lambda: DatabaseStore(SqliteBackend(path, durability="off", host="here"))


async def test_an_observer_goes_on_between_two_events_of_a_record(
    new_store: Callable[[], DatabaseStore],
) -> None:
    """A6."""

    def pay(amount: int) -> None: ...

    two = [call("pay", {"amount": 5}), call("pay", {"amount": 6})]
    agent = Agent("desk", by_turn(two), tools=[pay], interrupt_on={"pay": True})
    async with Runtime([agent], store=new_store()) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        interrupted(await ref.run("go"))
        await ref.state()  # its status is recorded, too
        async with Observer(new_store()) as observer:
            whole = await observer.events("desk-1")
            assert len({event.seq for event in whole}) < len(whole), "a record has two events"
            for count, event in enumerate(whole, 1):
                assert await observer.events("desk-1", str(event.position)) == whole[count:]


@pytest.mark.quick
async def test_an_observer_sees_what_a_live_runtime_has_committed(
    new_store: Callable[[], DatabaseStore],
) -> None:
    effects: list[int] = []
    agent = desk(effects)
    async with Runtime([agent], store=new_store()) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        asked = interrupted(await ref.run("pay"))
        async with Observer(new_store()) as observer:
            (info,) = await observer.agents()
            assert (info.id, info.index_status) == ("desk-1", IndexStatus.WAITS)
            (pending,) = await observer.pending()
            assert pending.request == asked.requests[0]
            assert (await observer.count())[Status.INTERRUPTED] == 1
            assert (await observer.state("desk-1")).requests == asked.requests

            completed(await ref.resume(asked.decide(approve(by="ada"))))
            await ref.stop(block=False)  # its last status is recorded

            assert await observer.pending() == []
            history = await observer.history("desk-1", limit=1000)
            assert history == await ref.history(limit=1000)
            kinds = [emitted.event.kind for emitted in await observer.events("desk-1")]
            assert "run_finished" in kinds
            assert await observer.export("desk-1") == await runtime.export("desk-1")
    assert effects == [5]


async def test_on_postgres_an_observer_needs_a_role_that_may_select(hosts: Hosts) -> None:
    role = f"reader_of_{hosts.schema}"
    agent = desk([])
    async with Runtime([agent], store=DatabaseStore(hosts.new()), feed=True) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        asked = interrupted(await ref.run("pay"))
        with psycopg.connect(hosts.url, autocommit=True) as admin:
            admin.execute(f"CREATE ROLE {role}".encode())
            try:
                admin.execute(f"GRANT USAGE ON SCHEMA {hosts.schema} TO {role}".encode())
                tables = f"ALL TABLES IN SCHEMA {hosts.schema}"
                admin.execute(f"GRANT SELECT ON {tables} TO {role}".encode())
                url = f"{hosts.url}{'&' if '?' in hosts.url else '?'}options=-crole%3D{role}"
                async with Observer(DatabaseStore(hosts.new("b", url=url))) as observer:
                    (pending,) = await observer.pending()
                    assert pending.request == asked.requests[0]
                    assert await observer.waiting() == []
                    assert [info.id for info in await observer.agents()] == ["desk-1"]
                    assert (await observer.state("desk-1")).requests == asked.requests
                    assert (await observer.history("desk-1")).entries
                    feed = observer.events(start="oldest").until_now()
                    assert "request_made" in [event.event.kind async for event in feed]
            finally:
                admin.execute(f"DROP OWNED BY {role}".encode())
                admin.execute(f"DROP ROLE {role}".encode())


def test_an_observer_works_without_an_event_loop_and_after_the_runtime(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    agent = Agent("desk", ScriptedModel(["done"]))
    with Runtime([agent], store=url) as runtime:
        runtime.spawn(agent, "desk-1").run("go").get(timeout=60)
    with Observer(url) as observer:
        assert [info.id for info in observer.agents().get(timeout=60)] == ["desk-1"]
    with pytest.raises(UsageError, match="not open"):
        observer.agents()


async def test_an_observer_keeps_no_runtime_out_and_is_kept_out_by_none(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    agent = Agent("desk", by_turn("one", "two"))
    async with Runtime([agent], store=url) as runtime:
        await runtime.spawn(agent, "desk-1").run("go")
    async with (
        Observer(url) as first,
        Observer(url) as second,
        Runtime([agent], store=url) as runtime,
    ):
        await runtime.get("desk-1").run("again")
        assert len(await first.agents()) == len(await second.agents()) == 1


@pytest.mark.slow
async def test_an_observer_in_another_process_reads_while_a_run_is_under_way(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    held = Held()

    async def wait() -> str:
        await held.wait()
        return "waited"

    agent = Agent("desk", ScriptedModel([call("wait"), "done"]), tools=[wait])
    async with Runtime([agent], store=url) as runtime:
        run = runtime.spawn(agent, "desk-1").run("go")
        await held.entered.wait()
        code = (
            "import sys; from understudy import Observer\n"
            "with Observer(sys.argv[1]) as o:\n"
            "    print(o.history('desk-1').get(timeout=60).entries[-1].what)"
        )
        read = await asyncio.to_thread(ran, "-c", code, url)
        held.release.set()
        completed(await run)
    assert (read.stdout.strip(), read.stderr) == ("tool_started", "")


@pytest.mark.parametrize("call_", ["state", "history", "events", "export"])
async def test_an_agent_that_is_not_there_is_unknown(call_: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    async with Runtime(store=url):
        pass
    async with Observer(url) as observer:
        with pytest.raises(UnknownAgent):
            await getattr(observer, call_)("nobody")


@pytest.mark.parametrize("store", ["memory:", "mysql://host/db", "", 5])
def test_what_no_other_process_can_have_is_refused(store: Any) -> None:
    with pytest.raises(UsageError, match="store"):
        Observer(store)


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with (
        pytest.raises(StoreBroken, match=r"there is no SQLite file '.*store.db'. Check the path"),
        Observer(f"sqlite:///{path}"),
    ):
        pass
    assert not path.exists()


@pytest.mark.parametrize("looks", [Observer, lambda store: Runtime(store=store)])
@pytest.mark.parametrize("options", ["mode=ro", "cache=shared&mode=rwc", "immutable=1"])
def test_options_in_the_url_of_a_file_are_refused_and_nothing_is_made(
    tmp_path: Path, options: str, looks: Callable[[str], Any]
) -> None:
    """They would be part of the file's name."""
    with (
        pytest.raises(
            UsageError, match=rf"no options .* got '\?{options}': leave them out.*Observer"
        ),
        looks(f"sqlite:///{tmp_path / 'store.db'}?{options}"),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_may_have_a_question_mark_in_its_name(tmp_path: Path) -> None:
    with Runtime(store=f"sqlite:///{tmp_path / 'why?.db'}"):
        assert (tmp_path / "why?.db").exists()


async def test_a_call_right_before_an_observer_closes_is_answered(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with Runtime(store=url):
        pass
    async with Observer(url) as observer:
        asked = observer.count()
    with pytest.raises((UsageError, StoreBroken)):
        await soon(asked)


async def test_a_damaged_word_of_a_record_is_told_as_damage(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    agent = Agent("desk", ScriptedModel(["done"]))
    async with Runtime([agent], store=f"sqlite:///{path}") as runtime:
        completed(await soon(runtime.spawn(agent, "a").run("go")))
    with closing(sqlite3.connect(path)) as other, other:
        other.execute(
            "UPDATE records SET payload = CAST(replace(CAST(payload AS TEXT), 'running', 'r5nning')"
            " AS BLOB) WHERE kind = 'run_started'"
        )
    async with Observer(f"sqlite:///{path}") as observer:
        with pytest.raises(StoreDamaged, match="r5nning"):
            await soon(observer.events("a"))


def test_an_observer_is_not_entered_twice(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    with Runtime([desk([])], store=store), Observer(store) as observer:
        with pytest.raises(UsageError, match="open already"), observer:
            pass
        assert observer.agents().get(timeout=60) == []
