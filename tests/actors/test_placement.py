"""Which host runs an agent: labels, versions, and hosts of which is known that they have ended."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.support.agents import completed, desk, interrupted, results
from tests.support.hosts import host, opened
from tests.support.loops import soon
from tests.support.places import NewStore, Place, SqlitePlace
from tests.support.postgres import Hosts, new_database
from tests.support.programs import PIPE, Started, started
from understudy import (
    Agent,
    OwnedElsewhere,
    Runtime,
    ScriptedModel,
    ToolContext,
    UnfitHost,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.modes import Sequential

# ------------------------------------------------------------------- the options


async def test_the_lease_the_name_and_the_labels_are_in_the_table_of_hosts(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J51: other hosts read them there."""
    with new_database(postgres_url) as url, psycopg.connect(url, autocommit=True) as connection:
        options: dict[str, Any] = {"lease": 7777, "host": "worker 3", "labels": ["gpu", "eu"]}
        async with opened(url, desk(needs=["eu"]), **options):
            rows = connection.execute(
                "SELECT name, labels, extract(epoch FROM lease_until - clock_timestamp()) > 7000,"
                " cardinality(definitions) FROM understudy.hosts"
            ).fetchall()
            needs = connection.execute("SELECT needs FROM understudy.definitions").fetchall()
    assert rows == [("worker 3", ["eu", "gpu"], True, 1)]
    assert needs == [(["eu"],)]


@pytest.mark.parametrize("lease", [0, -1, 0.05, 86_401, "10", True, float("nan"), float("inf"), []])
def test_a_lease_that_is_none_is_refused(lease: Any) -> None:
    with pytest.raises(UsageError, match="`lease` must be 0"):
        Runtime(lease=lease)


NO_NAMES: list[object] = ["", " ", "a\nb", "a\0b", "\ud800", "x" * 201, 7, b"a"]


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_of_a_host_that_is_none_is_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="`host` must be a name"):
        Runtime(host=name)


NO_LABELS: list[object] = [
    "gpu",
    b"gpu",
    7,
    [""],
    [7],
    [" gpu"],
    ["x" * 101],
    ["a\0"],
    ["\ud800"],
    [["gpu"]],
    [str(n) for n in range(101)],
]


@pytest.mark.parametrize("labels", NO_LABELS)
def test_labels_that_are_none_are_refused(labels: Any) -> None:
    with pytest.raises(UsageError, match="label"):
        Runtime(labels=labels)
    with pytest.raises(UsageError, match=r"'desk'.*`needs`"):
        desk(needs=labels)


NO_OPTIONS: list[tuple[str, object]] = [
    ("movable", 1),
    ("version", -1),
    ("version", True),
    ("version", "2"),
    ("version", 1 << 63),
    ("on_version", "oldest"),
    ("on_version", []),
]


@pytest.mark.parametrize(("name", "given"), NO_OPTIONS)
def test_an_option_of_placement_that_is_none_is_refused(name: str, given: object) -> None:
    with pytest.raises(UsageError, match=f"'desk'.*`{name}`"):
        desk(**{name: given})


def test_any_host_is_true_or_false() -> None:
    with pytest.raises(UsageError, match="`any_host`"):
        opened("memory:", any_host="no")


def test_a_lease_is_not_given_beside_a_store_that_has_one(sqlite: SqlitePlace) -> None:
    store = sqlite.store()
    for name, given in (("lease", 5.0), ("host", "a")):
        with pytest.raises(UsageError, match=f"`{name}` is given beside"):
            opened(store, **{name: given})


async def test_a_store_of_one_host_takes_the_options_of_many() -> None:
    """A program that runs on any store gives them always."""
    agent = desk("ok", movable=False, needs={"gpu"}, version=3, on_version="wait")
    options: dict[str, Any] = {"lease": 5, "host": "a", "labels": {"gpu"}, "any_host": False}
    async with opened("memory:", agent, **options) as runtime:
        assert completed(await soon(runtime.spawn("desk", "t").run("go"))).text == "ok"


def test_a_version_is_part_of_a_definition_and_its_default_changes_nothing() -> None:
    """J52."""
    prints = {desk(version=version).definition.fingerprint for version in (1, 2)}
    assert len(prints) == 2
    assert desk().definition.fingerprint == desk(version=0).definition.fingerprint
    assert desk(movable=False, needs={"a"}).definition.fingerprint not in prints


# ------------------------------------------------------------------- labels


async def test_a_host_that_lacks_a_label_runs_no_agent_that_needs_it(new_store: NewStore) -> None:
    """J51: in any store; it says which, and what would be right."""
    async with opened(new_store(), desk("never", needs={"gpu", "eu"}), labels={"eu"}) as runtime:
        ref = runtime.spawn("desk", "t")
        for ask in (ref.run("go"), ref.send("go"), ref.run("again")):
            with pytest.raises(UnfitHost, match=r"needs a host with 'gpu'.*labels=\{'gpu'\}") as no:
                await soon(ask)
            assert (no.value.agent_id, no.value.agent, no.value.missing) == ("t", "desk", ["gpu"])
    async with opened(new_store(), desk("ok", needs={"gpu"}), labels={"gpu", "eu"}) as runtime:
        assert completed(await soon(runtime.spawn("desk", "t").run("go"))).text == "ok"


async def test_what_an_agent_inside_needs_the_agent_around_it_needs(new_store: NewStore) -> None:
    """J51: it runs in the same process."""
    inner = Agent("inner", ScriptedModel([]), needs={"gpu"})
    around = Agent("around", mode=Sequential([inner]))
    async with opened(new_store(), around) as runtime:
        with pytest.raises(UnfitHost, match="'gpu'"):
            await soon(runtime.spawn("around", "t").run("go"))


async def test_a_host_that_lacks_a_label_leaves_the_agent_to_others(place: Place) -> None:
    """J51: neither `recover` nor a sweep takes it, and its run goes on where the label is."""
    entered = asyncio.Event()

    @tool(idempotent=True)
    async def work() -> str:
        if not entered.is_set():
            entered.set()
            await asyncio.Event().wait()
        return "worked"

    def agent() -> Agent:
        return desk(call("work"), "done", tools=[work], needs={"gpu"})

    async with opened(place.store(), agent(), labels={"gpu"}) as first:
        first.spawn("desk", "t").run("go")
        await soon(entered.wait())
        store = place.after_crash()
    async with opened(store, agent(), sweep=0.05) as plain:
        recovery = await soon(plain.recover())
        await soon(recovery.settled)
        assert isinstance(recovery.left["t"], UnfitHost)
        with pytest.raises(UnfitHost):
            await soon(plain.get("t").run("hello"))
    async with opened(place.after_crash(), agent(), labels={"gpu"}) as able:
        (ref,) = await soon(able.recover())
        outcome = await soon(ref.outcome())
        assert outcome is not None
        assert completed(outcome).text == "done"


@pytest.mark.quick
async def test_an_agent_is_created_and_run_by_a_host_that_has_what_it_needs(hosts: Hosts) -> None:
    """J51: whoever is asked; with its values, and again after that host has given it up."""

    def agent() -> Agent:
        says = ScriptedModel(lambda request: request.instructions or "nothing")
        return Agent("desk", says, "You help {shop}.", needs={"gpu"})

    async with (
        opened(host(hosts, "plain"), agent()) as plain,
        opened(host(hosts, "able"), agent(), labels={"gpu"}) as able,
    ):
        ref = plain.spawn("desk", "t", values={"shop": "Acme"})
        assert completed(await soon(ref.run("go"))).text == "You help Acme."
        assert [info.host for info in await soon(plain.agents())] == ["able"]
        await soon(able.get("t").stop(block=False))
        assert completed(await soon(plain.get("t").run("again"))).text == "You help Acme."
        assert await soon(plain.delete("t"))
        again = plain.spawn("desk", "t", values={"shop": "Bcme"})
        assert completed(await soon(again.run("go"))).text == "You help Bcme."
        assert len(await soon(able.agents())) == 1
    assert hosts.sql("SELECT count(*) FROM inbox") == [(0,)]


async def test_deps_that_do_not_go_to_another_host_are_asked_for_there(hosts: Hosts) -> None:
    """J51: a run is not begun without the deps that its agent was spawned with."""

    async def use(ctx: ToolContext) -> str:
        return f"with {ctx.deps}"

    def agent() -> Agent:
        return desk(call("use"), "done", tools=[use], needs={"gpu"})

    for name, deps_for in [("able", None), ("rich", lambda _: "its own")]:
        async with (
            opened(host(hosts, "plain"), agent()) as plain,
            opened(host(hosts, name), agent(), labels={"gpu"}, deps_for=deps_for) as able,
        ):
            ref = plain.spawn("desk", name, deps="mine")
            if deps_for is None:
                for asked in (ref.run("go"), ref.send("go", message_id="m")):
                    with pytest.raises(UsageError, match=f"'{name}'.*deps_for"):
                        await soon(asked)
                completed(await soon(able.get(name).run("go", message_id="m")))
                assert completed(await soon(ref.run("go", message_id="m"))).text == "done"
            else:
                outcome = completed(await soon(ref.run("go")))
                assert [each.content for each in results(outcome.state)] == ["with its own"]
                assert await soon(ref.send("more", steer=True, message_id="m")) == "m"


async def test_a_host_that_lacks_a_definition_says_so_and_leaves_the_agent_alone(
    hosts: Hosts,
) -> None:
    """J51: it could not read what comes of a call. Looks need no definition."""
    async with (
        opened(host(hosts, "bare")) as bare,
        opened(host(hosts, "able"), desk("a", "b", "c")) as able,
    ):
        ref = able.spawn("desk", "t")
        for text in "ab":
            assert completed(await soon(ref.run("go"))).text == text
            with pytest.raises(UsageError, match="No agent is named 'desk'"):
                await soon(bare.get("t").run("more"))
            assert len((await soon(bare.get("t").state())).messages) == len(
                (await soon(ref.state())).messages
            )
            await soon(ref.stop(block=False))


async def test_a_host_that_has_ended_with_what_it_was_given_loses_nothing(hosts: Hosts) -> None:
    """J51: whoever asked gives the agent to another one, once the lease of the first is over."""
    async with (
        opened(host(hosts, "plain"), desk("ok", needs={"gpu"})) as plain,
        opened(host(hosts, "second"), desk("ok", needs={"gpu"}), labels={"gpu"}),
    ):
        hosts.sql(
            "INSERT INTO hosts (name, channel, labels, definitions, lease_until)"
            " SELECT 'first', 'nobody', labels, definitions, clock_timestamp() + interval '1 hour'"
            " FROM hosts WHERE name = 'second'"
        )
        hosts.sql("UPDATE hosts SET draining = true WHERE name = 'second'")
        run = plain.spawn("desk", "t").run("go")
        async with asyncio.timeout(60):
            while not hosts.sql("SELECT FROM inbox"):
                await asyncio.to_thread(time.sleep, 0.01)
        hosts.sql("UPDATE hosts SET draining = false WHERE name = 'second'")
        hosts.end_lease("first")
        assert completed(await soon(run)).text == "ok"


# ------------------------------------------------------------------- who may take


async def test_an_agent_that_is_bound_to_its_host_is_never_taken(hosts: Hosts) -> None:
    """J51: calls reach it there, while its host lives; then whoever fits goes on."""
    async with opened(host(hosts, "second"), desk("a", "b", "c", movable=False)) as second:
        async with opened(host(hosts, "first"), desk("a", "b", "c", movable=False)) as first:
            assert completed(await soon(first.spawn("desk", "t").run("go"))).text == "a"
            assert completed(await soon(second.get("t").run("more"))).text == "b"
            assert [info.host for info in await soon(second.agents())] == ["first"]
            assert hosts.sql("SELECT epoch, takeable FROM agents") == [(1, False)]
        assert completed(await soon(second.get("t").run("more"))).text == "c"


async def test_a_runtime_for_itself_neither_takes_nor_posts_nor_is_taken_from(
    hosts: Hosts,
) -> None:
    """J51: `any_host=False` at either side."""
    async with (
        opened(host(hosts, "alone"), desk("a", "b"), any_host=False) as alone,
        opened(host(hosts, "other"), desk("a", "b")) as other,
    ):
        completed(await soon(alone.spawn("desk", "t").run("go")))
        completed(await soon(other.spawn("desk", "u").run("go")))
        for runtime, id, owner in ((other, "t", "alone"), (alone, "u", "other")):
            with pytest.raises(OwnedElsewhere, match=f"'{owner}'"):
                await soon(runtime.get(id).run("more"))
        assert hosts.sql("SELECT count(*) FROM inbox") == [(0,)]


# ------------------------------------------------------------------- versions


def asking(*, version: int, **options: Any) -> Agent:
    """Its run waits for a person; the version is that of its definition."""

    @tool
    async def pay() -> str:
        return f"paid by {version}"

    turns = (call("pay"), f"said by {version}")
    return desk(*turns, tools=[pay], interrupt_on={"pay": True}, version=version, **options)


@pytest.mark.quick
async def test_a_run_goes_on_on_the_newest_definition(new_store: NewStore) -> None:
    """J52: by default."""
    async with opened(new_store(), asking(version=1)) as old:
        asked = interrupted(await soon(old.spawn("desk", "t").run("go")))
    async with opened(new_store(), asking(version=2)) as new:
        outcome = await soon(new.get("t").resume(asked.decide(approve())))
        assert completed(outcome).text == "said by 2"


async def test_a_run_waits_for_a_host_that_has_its_definition(new_store: NewStore) -> None:
    """J52: with on_version="wait". A new run of the same agent needs nothing."""
    async with opened(new_store(), asking(version=1)) as old:
        asked = interrupted(await soon(old.spawn("desk", "t").run("go")))
    decision = asked.decide(approve())
    async with opened(new_store(), asking(version=2, on_version="wait")) as new:
        for _ in range(2):
            with pytest.raises(UnfitHost, match="on_version='newest'"):
                await soon(new.get("t").resume(decision))
    async with opened(new_store(), asking(version=1)) as old:
        assert completed(await soon(old.get("t").resume(decision))).text == "said by 1"
    async with opened(new_store(), asking(version=2, on_version="wait")) as new:
        outcome = await soon(new.get("t").run("again"))
        assert completed(outcome).text == "done"


async def test_a_host_that_lacks_a_label_and_the_definition_of_a_run_names_both(
    hosts: Hosts,
) -> None:
    """J52: one with the label lives, and would not help."""

    def gpu(name: str, version: int, *labels: str) -> Runtime:
        agent = asking(version=version, needs={"gpu"}, on_version="wait")
        return opened(host(hosts, name), agent, labels=labels)

    async with gpu("old", 1, "gpu") as old:
        asked = interrupted(await soon(old.spawn("desk", "t").run("go")))
    async with gpu("new", 2, "gpu"), gpu("plain", 2) as plain:
        with pytest.raises(UnfitHost, match=r"labels={'gpu'}.*on_version='newest'") as refused:
            await soon(plain.get("t").resume(asked.decide(approve())))
    began = asking(version=1, needs={"gpu"}, on_version="wait").definition.fingerprint
    assert (refused.value.missing, refused.value.version) == (["gpu"], began)


async def test_a_run_never_moves_back(hosts: Hosts) -> None:
    """J52: a host that still has the older definition leaves it alone, also when it recovers."""
    async with (
        opened(host(hosts, "old"), asking(version=1), sweep=0.05) as old,
        opened(host(hosts, "new"), asking(version=2)) as new,
    ):
        asked = interrupted(await soon(new.spawn("desk", "t").run("go")))
        await soon(new.get("t").stop(block=False))
        # The newer definition goes on with it, whoever is asked.
        outcome = await soon(old.get("t").resume(asked.decide(approve())))
        assert completed(outcome).text == "said by 2"
        await soon(new.get("t").stop(block=False))
        assert completed(await soon(old.get("t").run("next"))).text == "done"  # a run of its own
        interrupted(await soon(new.spawn("desk", "u").run("go")))
        await soon(new.drain())
        with pytest.raises(UnfitHost, match="higher `version`"):
            await soon(old.get("u").run("next"))


async def test_what_holds_up_a_roll_out_is_listed(new_store: NewStore) -> None:
    """J52: by any store, in pages, and no agent is loaded for it."""
    first, second = asking(version=1), asking(version=2)
    async with opened(new_store(), first) as old:
        for n in range(3):
            interrupted(await soon(old.spawn("desk", f"old{n}").run("go")))
        rests = old.spawn("desk", "rests")
        asked = interrupted(await soon(rests.run("go")))
        completed(await soon(rests.resume(asked.decide(approve()))))
    async with opened(new_store(), second) as new:
        interrupted(await soon(new.spawn("desk", "new").run("go")))
        page = await soon(new.agents(version="other", limit=2))
        assert [info.id for info in page] == ["old0", "old1"]
        (last,) = await soon(new.agents(version="other", limit=2, after=page.after))
        assert (last.id, last.version) == ("old2", first.definition.fingerprint)
        for agent, ids in ((first, ["old0", "old1", "old2"]), (second, ["new"])):
            found = await soon(new.agents(version=agent.definition.fingerprint))
            assert [info.id for info in found] == ids
        (over,) = await soon(new.agents(prefix="rests"))
        assert over.version is None
        await soon(new.get("old0").cancel())
        left = await soon(new.agents(version="other"))
        assert [info.id for info in left] == ["old1", "old2"]
        assert await soon(new.delete("old1"))
        left = await soon(new.agents(version="other", agent="desk"))
        assert [info.id for info in left] == ["old2"]
        with pytest.raises(UsageError, match="`version`"):
            new.agents(version=7)  # type: ignore[arg-type]  # what it refuses


# ------------------------------------------------------------------- hosts that have ended

CUT_OFF = """
import asyncio, sys
from tests.support.agents import desk
from understudy import Runtime, call, tool
from understudy.journal.postgres.backend import PostgresBackend
from understudy.journal.database_store import DatabaseStore

@tool(idempotent=True)
async def work() -> str:
    print("works", flush=True)
    await asyncio.Event().wait()
    return "never"

async def main() -> None:
    url, schema, lease = sys.argv[1:]
    store = DatabaseStore(PostgresBackend(url, host="dead", lease=float(lease), schema=schema))
    async with Runtime([desk(call("work"), "done", tools=[work])], store=store) as runtime:
        await runtime.spawn("desk", "t").run("go")

asyncio.run(main())
"""


@contextmanager
def working(hosts: Hosts, lease: float) -> Iterator[Started]:
    """A process in whose tool call an agent is."""
    with started("-c", CUT_OFF, hosts.url, hosts.schema, str(lease), stdout=PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "works\n"
            yield process
        finally:
            process.kill()


def worker() -> Agent:
    @tool(idempotent=True)
    async def work() -> str:
        return "worked"

    return desk(call("work"), "done", tools=[work])


@pytest.mark.faults
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of processes so")
async def test_what_a_killed_process_has_left_goes_on_as_soon_as_its_host_starts_again(
    hosts: Hosts,
) -> None:
    """J50: nobody calls `recover`, and the lease of an hour is not waited for."""
    with working(hosts, lease=3600) as process:
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)
        async with opened(host(hosts, "again"), worker(), sweep=3600) as again:
            ref = again.get("t")
            outcome = await soon(ref.outcome())
            assert outcome is not None
            assert completed(outcome).text == "done"


@pytest.mark.faults
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of processes so")
async def test_what_a_killed_process_has_left_is_continued_by_another_one_of_its_machine(
    hosts: Hosts,
) -> None:
    """J50: with its next heartbeat. Nobody asks for the agent."""
    async with opened(host(hosts, "alive", lease=1), worker(), sweep=3600) as alive:
        with working(hosts, lease=3600) as process:
            process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(process.wait)
            async with asyncio.timeout(60):
                while (await alive.agents())[0].status.value != "idle":  # as the store says
                    await asyncio.to_thread(time.sleep, 0.02)
            outcome = await soon(alive.get("t").outcome())
            assert outcome is not None
            assert completed(outcome).text == "done"


@pytest.mark.faults
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of processes so")
async def test_what_a_stopped_process_has_is_left_to_it(hosts: Hosts) -> None:
    """J50: the control. It may go on at any moment."""
    with working(hosts, lease=3600) as process:
        process.send_signal(signal.SIGSTOP)
        try:
            async with opened(host(hosts, "alive"), worker(), sweep=0.05) as alive:
                recovery = await soon(alive.recover())
                assert recovery == []
                assert isinstance(recovery.left["t"], OwnedElsewhere)
        finally:
            process.send_signal(signal.SIGCONT)
