"""Hosts behind a real PgBouncer: in which of its modes a store works, and what ends it there."""

from __future__ import annotations

import asyncio
import logging
import queue
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import psycopg
import pytest

from tests.support.agents import by_turn, completed, interrupted
from tests.support.batches import append, batch, claim, commit, texts
from tests.support.hosts import opened
from tests.support.loops import soon, until
from tests.support.owner import owner
from tests.support.pgbouncer import Mode, PgBouncer, program
from tests.support.postgres import Hosts, Server
from understudy import Agent, Observer, Runtime, ToolContext, approve, call, tool
from understudy.errors import Fenced, OwnedElsewhere, StoreBroken, StoreUnavailable
from understudy.journal.database_store import DatabaseStore
from understudy.journal.shared import Hint

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(
        program() is None, reason="there is no pgbouncer: `make test-faults` installs it"
    ),
]
Pooler = Callable[..., PgBouncer]
IN_TURN = {"server_round_robin": 1, "min_pool_size": 3}


@pytest.fixture
def hosts(new_hosts: Hosts) -> Hosts:
    """There are no tables that a session could find by mistake."""
    return new_hosts


@pytest.fixture
def pooler(postgres_url: str) -> Iterator[Pooler]:
    """Starts a PgBouncer before the server; it ends with the test."""
    with ExitStack() as stack:

        def start(mode: Mode = "session", *, url: str = postgres_url, **more: object) -> PgBouncer:
            found = PgBouncer(url, mode, **more)
            stack.callback(found.remove)
            return found

        yield start


def host(hosts: Hosts, bouncer: PgBouncer, name: str) -> DatabaseStore:
    return DatabaseStore(hosts.new(name, url=bouncer.url, lease=10))


def settings(bouncer: PgBouncer, sessions: int = 3) -> set[tuple[object, ...]]:
    """Those that another application finds, in each of its sessions."""
    names = ("search_path", "synchronous_commit", "statement_timeout", "enable_seqscan")
    query = "SELECT " + ", ".join(f"current_setting('{name}')" for name in names)
    with ExitStack() as stack:
        found = []
        for _ in range(sessions):
            connection = psycopg.connect(bouncer.url, prepare_threshold=None)  # in a transaction
            stack.enter_context(connection)
            found.append(connection.execute(query).fetchone())
    return {row for row in found if row is not None}


DEFAULTS = {('"$user", public', "on", "0", "on")}


# ------------------------------------------------------------------------ in session mode


async def test_any_host_answers_behind_a_pooler_of_sessions(hosts: Hosts, pooler: Pooler) -> None:
    bouncer, ran = pooler(), []

    @tool
    async def pay() -> str:
        ran.append("pay")
        return "paid"

    def desk() -> Agent:
        return Agent("desk", by_turn(call("pay"), "done"), tools=[pay], interrupt_on={"pay": True})

    async with (
        opened(host(hosts, bouncer, "a"), desk()) as a,
        opened(host(hosts, bouncer, "b"), desk()) as b,
    ):
        for number in range(10):
            asked = interrupted(await soon(a.spawn("desk", f"t{number}").run("go")))
            completed(await soon(b.get(f"t{number}").resume(asked.decide(approve()))))
    assert ran == ["pay"] * 10
    assert settings(bouncer) == DEFAULTS


def test_hosts_behind_a_pooler_of_sessions_hear_each_other(hosts: Hosts, pooler: Pooler) -> None:
    bouncer = pooler()
    heard: queue.Queue[str | None] = queue.Queue()
    a = hosts.new("a", url=bouncer.url)
    a.listen(heard.put)
    a.open()
    b = hosts.open("b", url=bouncer.url)
    assert heard.get(timeout=60) is None, "it listens"
    assert a.host_id is not None
    with commit(b):
        b.tell(a.host_id, Hint("look"))
    assert heard.get(timeout=60) == str(Hint("look"))
    bouncer.restart()
    assert heard.get(timeout=60) is None, "it listens again"
    b.reconnect()
    with commit(b):
        b.tell(a.host_id, Hint("look"))
    assert heard.get(timeout=60) == str(Hint("look"))


def test_leases_and_epochs_hold_behind_a_pooler_of_sessions(hosts: Hosts, pooler: Pooler) -> None:
    """J6, J7."""
    bouncer = pooler()
    a, b = (hosts.open(name, url=bouncer.url) for name in "ab")
    owned = claim(a)
    append(a, owned, "one")
    with pytest.raises(OwnedElsewhere), commit(b):
        b.claim("a", "support")
    b.rollback()
    hosts.end_lease("a")
    assert claim(b).epoch == 2
    with pytest.raises(Fenced), commit(a):
        a.append(batch(owned, "two", first_seq=2))
    a.rollback()
    with pytest.raises(Fenced):
        a.renew()
    assert texts(b) == ["one"]


def test_a_host_that_is_killed_behind_a_pooler_leaves_its_agents_to_others(
    hosts: Hosts, pooler: Pooler
) -> None:
    """J50: as a process of its own."""
    bouncer = pooler()
    with owner(bouncer.url, hosts.schema) as process:
        process.kill()
        process.wait()
        assert hosts.open("next", url=bouncer.url).end_dead_hosts() == 1


async def test_nothing_is_lost_or_done_twice_though_a_pooler_is_killed_again_and_again(
    hosts: Hosts, pooler: Pooler
) -> None:
    """J6, J8, J16."""
    bouncer, ran = pooler(), list[str]()

    @tool
    async def pay(context: ToolContext) -> str:
        ran.append(f"{context.agent_id} {context.call_key}")
        if len(ran) % 16 == 0:  # others write, wait and claim meanwhile
            await asyncio.to_thread(bouncer.restart)
        return "paid"

    def desk() -> Agent:
        return Agent("desk", by_turn(*[[call("pay"), call("pay")]] * 3, "done"), tools=[pay])

    async with (
        opened(host(hosts, bouncer, "a"), desk()) as a,
        opened(host(hosts, bouncer, "b"), desk()) as b,
    ):
        both = [(n, each) for n in range(8) for each in (a, b)]
        runs = [each.spawn("desk", f"t{n}{each is a}").run("go") for n, each in both]
        for run in runs:
            assert completed(await soon(run)).text == "done"
    assert len(ran) == len(set(ran)) == 16 * 6


async def test_runs_wait_while_a_pooler_lets_nobody_in(hosts: Hosts, pooler: Pooler) -> None:
    bouncer, ran = pooler(), list[str]()
    gone, back = asyncio.Event(), asyncio.Event()

    @tool
    async def pay() -> str:
        ran.append("pay")
        gone.set()
        await back.wait()
        return "paid"

    desk = Agent("desk", by_turn(call("pay"), "done"), tools=[pay])
    async with opened(host(hosts, bouncer, "a"), desk) as a:
        run = a.spawn("desk", "t").run("go")
        await soon(gone.wait())
        with bouncer.closed():
            late = a.spawn("desk", "late").run("go")
            await until(lambda: bouncer.clients_that_wait() > 0)
            back.set()
        assert completed(await soon(run)).text == "done"
        assert completed(await soon(late)).text == "done"
    assert ran == ["pay", "pay"]


async def test_a_run_goes_on_when_the_server_behind_a_pooler_is_back(
    postgres_server: Server, pooler: Pooler
) -> None:
    """J16."""
    bouncer = pooler(url=postgres_server.url)
    hosts = Hosts(postgres_server.url)

    @tool
    async def pay() -> str:
        await asyncio.to_thread(postgres_server.crash)
        await asyncio.to_thread(postgres_server.start)
        return "paid"

    desk = Agent("desk", by_turn(call("pay"), "done"), tools=[pay])
    try:
        async with opened(host(hosts, bouncer, "a"), desk) as runtime:
            assert completed(await soon(runtime.spawn("desk", "t").run("go"))).text == "done"
    finally:
        hosts.close()


# ------------------------------------------------------------------------ too few sessions


def test_a_pool_without_a_free_session_is_named(hosts: Hosts, pooler: Pooler) -> None:
    bouncer = pooler(default_pool_size=4, query_wait_timeout=1)
    hosts.open("a", url=bouncer.url)
    with (
        psycopg.connect(bouncer.url),
        pytest.raises(StoreUnavailable, match="needs four"),
    ):
        hosts.open("b", url=bouncer.url)


def test_who_gets_no_session_does_not_wait_for_ever(hosts: Hosts, pooler: Pooler) -> None:
    bouncer = pooler(default_pool_size=1, query_wait_timeout=0)
    hosts.open("a")  # the tables are made
    with psycopg.connect(bouncer.url) as other:
        other.execute("SELECT 1")  # it has the only one
        with pytest.raises(StoreUnavailable, match="no free session"):
            hosts.open("b", url=bouncer.url)


async def test_a_host_that_gets_no_session_to_listen_works_and_says_so(
    hosts: Hosts, pooler: Pooler, caplog: pytest.LogCaptureFixture
) -> None:
    bouncer = pooler(default_pool_size=3, query_wait_timeout=1)
    desk = Agent("desk", by_turn("done"))
    with caplog.at_level(logging.WARNING, "understudy"):
        async with opened(host(hosts, bouncer, "a"), desk) as a:
            completed(await soon(a.spawn("desk", "t").run("go")))
            await until(lambda: "does not hear other ones" in caplog.text)
    assert "no free session" in caplog.text


# ----------------------------------------------------------- in transaction and statement mode


@pytest.mark.parametrize("more", [{}, IN_TURN, {"default_pool_size": 1}], ids=str)
@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_pooler_of_transactions_is_refused_before_anything_is_set(
    new_hosts: Hosts, pooler: Pooler, mode: Mode, more: dict[str, object]
) -> None:
    """J7: neither tables nor settings, which others would get."""
    bouncer = pooler(mode, **more)
    tables = new_hosts.sql("SELECT count(*) FROM pg_class")
    with pytest.raises(StoreBroken, match="have it pool sessions"):
        new_hosts.open("a", url=bouncer.url)
    assert new_hosts.sql("SELECT 1 FROM pg_namespace WHERE nspname = %s", new_hosts.schema) == []
    assert new_hosts.sql("SELECT count(*) FROM pg_class") == tables
    bouncer.set(pool_mode="transaction")
    assert settings(bouncer, 1) == DEFAULTS


async def test_a_runtime_and_an_observer_are_refused_by_a_pooler_of_transactions(
    hosts: Hosts, pooler: Pooler
) -> None:
    bouncer = pooler("transaction")
    with pytest.raises(StoreBroken, match="pool_mode = session"):
        await soon(Runtime([], store=host(hosts, bouncer, "a")).__aenter__())
    hosts.open("b")
    with pytest.raises(StoreBroken, match="pool_mode = session"):
        await soon(Observer(host(hosts, bouncer, "c")).__aenter__())


async def test_a_pooler_of_transactions_is_refused_while_others_use_it(
    hosts: Hosts, pooler: Pooler
) -> None:
    bouncer = pooler("transaction", default_pool_size=3)
    stop = asyncio.Event()

    async def other() -> None:
        connecting = psycopg.AsyncConnection.connect(
            bouncer.url, autocommit=True, prepare_threshold=None
        )
        async with await connecting as connection:
            while not stop.is_set():
                await connection.execute("SELECT 1")

    others = [asyncio.create_task(other()) for _ in range(4)]
    for number in range(10):
        with pytest.raises(StoreBroken, match="have it pool sessions"):
            await asyncio.to_thread(hosts.open, f"a{number}", url=bouncer.url)
    stop.set()
    await asyncio.gather(*others)


def test_a_pooler_that_comes_to_pool_transactions_loses_nothing_silently(
    hosts: Hosts, pooler: Pooler
) -> None:
    """J7: what was not committed by the settings of its host is not told to be committed."""
    bouncer = pooler()
    a = hosts.open("a", url=bouncer.url)
    owned = claim(a)
    append(a, owned, "one")
    bouncer.set(pool_mode="transaction")
    with psycopg.connect(bouncer.url, autocommit=True, prepare_threshold=None) as other:
        try:
            append(a, owned, "two", "three", first_seq=2)  # its session is free from now on
        except StoreUnavailable:  # newer ones end a connection that has prepared something
            a.reconnect()
            append(a, owned, "two", "three", first_seq=2)
        other.execute("SELECT set_config('understudy.session', 'another', false)")
        other.execute("SET synchronous_commit = off")
        a.begin()
        with pytest.raises(StoreBroken, match="have it pool sessions"):
            a.append(batch(owned, "four", first_seq=4))
        a.rollback()
    assert texts(hosts.open("b")) == ["one", "two", "three"]
    bouncer.set(pool_mode="session")
    a.reconnect()
    append(a, owned, "four", first_seq=4)
    with suppress(StoreBroken):  # it has a session of somebody else at first
        texts(a)
    assert texts(a)[-1] == "four"


# --------------------------------------------------------------------- what it refuses itself


@pytest.mark.parametrize(
    ("changed", "remedy"),
    [
        ("&options=-c%20work_mem%3D8MB", "leave it out of the URL"),
        ("&dbname=nowhere", "Create the database"),
    ],
)
def test_what_a_pooler_refuses_is_told_with_its_remedy(
    hosts: Hosts, pooler: Pooler, changed: str, remedy: str
) -> None:
    with pytest.raises(StoreBroken, match=remedy):
        hosts.open("a", url=pooler().url + changed)
