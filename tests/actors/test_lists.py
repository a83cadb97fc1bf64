"""Lists of agents and of what they ask: in pages, from the store's index, which is always right."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.agents import by_turn, completed, interrupted, until_status
from tests.support.frozen.places import DATA
from tests.support.held_commits import HeldCommits, turns
from tests.support.left_out import LeftOut
from tests.support.loops import SECONDS, soon
from tests.support.places import NewStore
from tests.support.plain_store import PlainStore
from tests.support.plans import left_after
from understudy import (
    Agent,
    Decision,
    Interrupted,
    Observer,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    ToolContext,
    UnderstudyError,
    UsageError,
    approve,
    call,
    reject,
    tool,
)
from understudy.actors import Listing, PendingRequest
from understudy.errors import StoreBroken, StoreDamaged, StoreUnavailable, WouldDeadlock
from understudy.journal import (
    DatabaseStore,
    IndexStatus,
    MemoryStore,
    Store,
    asks,
    index_entry_of,
    index_status_of,
    sql_backend,
)
from understudy.journal.lists import NEVER, AgentQuery, AskQuery, ids_from, key_of, listed_ask
from understudy.journal.sqlite.backend import SqliteBackend
from understudy.middleware import HumanInTheLoop, SubAgent
from understudy.state.fold import replay
from understudy.state.next_due import notices_of
from understudy.state.run_state import NO_NOTICES
from understudy.testing import FaultyBackend

MINUTE = 60


@tool
def refund(order: str) -> str:
    """Pay money back."""
    return "refunded"


@tool
def deploy(version: str) -> str:
    """Deploy a version."""
    return "deployed"


@tool
def lose(order: str) -> str:
    """Pay money back, and never learn whether it was paid."""
    raise ConnectionError("the line is dead")


def desk(name: str = "desk", *replies: Any) -> Agent:
    """An agent that asks about one refund; or about what it is told to call."""
    gate = HumanInTheLoop(
        {"refund": True, "deploy": {"expires_after": 5 * MINUTE}},
        remind_after=MINUTE,
        escalate_after={2 * MINUTE: "the head of sales"},
    )
    model = by_turn(*(replies or (call("refund", {"order": "17"}), "Done.")))
    return Agent(name, model, tools=[refund, deploy, lose], middleware=[gate])


def talker() -> Agent:
    return Agent("talker", ScriptedModel(lambda _: "hello"))


async def ask(runtime: Runtime, *ids: str, agent: str = "desk") -> None:
    """Agents that wait for a person."""
    for id in ids:
        interrupted(await soon(runtime.spawn(agent, id).run("Go.")))


def names(requests: list[PendingRequest]) -> list[str]:
    return [request.agent_id for request in requests]


# ----------------------------------------------------------------------------- pages


@pytest.mark.quick
async def test_pages_of_requests_together_are_all_requests(new_store: NewStore) -> None:
    async with Runtime([desk()], store=new_store()) as runtime:
        await ask(runtime, "c", "a", "e", "b", "d")
        first = await soon(runtime.pending(limit=2))
        second = await soon(runtime.pending(limit=2, after=first.after))
        third = await soon(runtime.pending(limit=2, after=second.after))
        everything = await soon(runtime.pending())
        iterated = [request async for request in runtime.pending(limit=2)]
        rest = [request async for request in runtime.pending(after=first.after)]

    assert [names(page) for page in (first, second, third)] == [["c", "a"], ["e", "b"], ["d"]]
    assert third.after is None
    assert [*first, *second, *third] == everything == iterated
    assert rest == everything[2:]
    assert everything.after is None


def test_in_a_thread_a_plain_for_goes_over_all_pages(new_store: NewStore) -> None:
    store = new_store()
    with Runtime([desk()], store=store) as runtime:
        for id in "caebd":
            interrupted(runtime.spawn("desk", id).run("Go.").get(timeout=SECONDS))
        listing = runtime.pending(limit=2)
        assert [request.agent_id for request in listing] == [*"caebd"]
        first = listing.get(timeout=SECONDS)
        assert names(list(listing)) == [*"caebd"], "also once it is a page, too"
        assert names(list(runtime.pending(after=first.after))) == [*"ebd"]
        assert [info.id for info in runtime.agents(limit=1)] == [*"abcde"]
        assert list(runtime.waiting()) == []
        if not isinstance(store, MemoryStore):
            other: Any = new_store()
            with Observer(other) as observer:
                assert names(list(observer.pending(limit=2))) == [*"caebd"]
                assert [info.id for info in observer.agents(limit=2)] == [*"abcde"]


async def test_on_its_loop_a_plain_for_is_refused_and_names_async_for() -> None:
    async with Runtime([desk()]) as runtime:
        await ask(runtime, "a")
        listing = runtime.pending()
        for _ in range(2):
            with pytest.raises(WouldDeadlock, match=r"^for would block .* use `async for` instead"):
                list(listing)
            assert names(await soon(listing)) == ["a"]
        assert names([request async for request in listing]) == ["a"]


async def test_pages_of_agents_together_are_all_agents(new_store: NewStore) -> None:
    async with Runtime([talker()], store=new_store()) as runtime:
        for id in "dacb":
            await soon(runtime.spawn("talker", id).run("Go."))
        runtime.spawn("talker", "aa")  # no store has it yet
        page = await soon(runtime.agents(limit=2))
        pages = [[info.id for info in page]]
        while page.after is not None:
            page = await soon(runtime.agents(limit=2, after=page.after))
            pages.append([info.id for info in page])
        iterated = [info.id async for info in runtime.agents(limit=1)]
    assert pages == [["a", "aa"], ["b", "c"], ["d"]]
    assert iterated == ["a", "aa", "b", "c", "d"]


async def test_what_is_answered_between_two_pages_moves_nothing(new_store: NewStore) -> None:
    async with Runtime([desk()], store=new_store()) as runtime:
        await ask(runtime, *"abcdef")
        first = await soon(runtime.pending(limit=3))
        for gone in ("a", "b", "d"):
            ref = runtime.get(gone)
            outcome = await soon(ref.outcome())
            assert isinstance(outcome, Interrupted)
            completed(await soon(ref.resume(outcome.decide(approve()))))
        await ask(runtime, "0")
        rest = await soon(runtime.pending(limit=10, after=first.after))
    assert (names(first), names(rest)) == (["a", "b", "c"], ["e", "f", "0"])


def test_a_thread_gets_a_page_and_passes_its_cursor_on(new_store: NewStore) -> None:
    with Runtime([desk()], store=new_store()) as runtime:
        for id in "ab":
            runtime.spawn("desk", id).run("Go.").get(timeout=60)
        first = runtime.pending(limit=1).get(timeout=60)
        second = runtime.pending(limit=1, after=first.after).get(timeout=60)
    assert (names(first), names(second), second.after) == (["a"], ["b"], None)


async def test_a_listing_that_nobody_asks_reads_nothing(tmp_path: Path) -> None:
    backend = FaultyBackend(SqliteBackend(str(tmp_path / "s.db"), durability="off", host="here"))
    async with Runtime([desk()], store=DatabaseStore(backend)) as runtime:
        await ask(runtime, "a")
        backend.fail("list_asks", fault=lambda: StoreBroken(cause="read", remedy="none"))
        listing = runtime.pending()
        await soon(runtime.agents())
        with pytest.raises(StoreBroken):
            await soon(listing)


async def test_a_listing_that_is_asked_after_the_end_is_refused() -> None:
    async with Runtime([desk()]) as runtime:
        listing, iterated = runtime.pending(), runtime.agents()
    with pytest.raises(UsageError, match="stopped"):
        await soon(listing)
    with pytest.raises(UsageError, match="stopped"):
        [info async for info in iterated]


async def test_a_list_activates_and_loads_no_agent(tmp_path: Path) -> None:
    """J30."""
    path = str(tmp_path / "store.db")
    async with Runtime([desk()], store=f"sqlite:///{path}") as runtime:
        await ask(runtime, "a", "b")
    backend = FaultyBackend(SqliteBackend(path, durability="off", host="here"))
    async with Runtime([desk()], store=DatabaseStore(backend)) as runtime:
        await soon(runtime.count())
        backend.fail("load", times=1000)
        assert names(await soon(runtime.pending())) == ["a", "b"]
        assert [info.is_active for info in await soon(runtime.agents())] == [False, False]
        assert (await soon(runtime.count()))[Status.INTERRUPTED] == 2
        assert not backend.mend()


async def test_sleeps_and_waits_are_listed_in_pages_and_load_no_agent(new_store: NewStore) -> None:
    """J30: beside the requests, each in its own list."""

    @tool
    async def nap(ctx: ToolContext, seconds: float) -> str:
        await ctx.sleep("nap", seconds)
        return "rested"

    def sleeper() -> Agent:
        calls = [call("nap", {"seconds": 30.0}), call("nap", {"seconds": 20.0})]
        return Agent("sleeper", by_turn(calls, "Done."), tools=[nap])

    clock = SimulatedClock()
    agents = [sleeper(), desk()]
    async with Runtime(agents, store=new_store(), clock=clock) as runtime:
        for id in ("a", "b"):
            outcome = runtime.spawn("sleeper", id).run("Go.")
            await until_status(runtime.get(id), Status.WAITING)
            await soon(runtime.get(id).state())
            assert not outcome.done()
        await ask(runtime, "c")
        first = await soon(runtime.waiting(limit=3))
        rest = await soon(runtime.waiting(limit=3, after=first.after))
        expiring = [wait async for wait in runtime.waiting(order="expiring")]
        assert [wait.agent_id for wait in [*first, *rest]] == ["a", "a", "b", "b"]
        assert sorted(expiring, key=repr) == sorted([*first, *rest], key=repr)
        assert [wait.expires_at for wait in expiring] == sorted(
            wait.expires_at for wait in expiring if wait.expires_at is not None
        )
        assert await soon(runtime.waiting(tool="refund")) == []
        assert names(await soon(runtime.pending())) == ["c"]
        assert (await soon(runtime.count()))[Status.WAITING] == 2
        await soon(clock.advance(25))
        for id in ("a", "b"):
            await until_status(runtime.get(id), Status.WAITING)
            await soon(runtime.get(id).state())
        left = await soon(runtime.waiting(agent="sleeper"))
        # Both continued at the same instant: which of them is older is not said.
        assert sorted(wait.agent_id for wait in left) == ["a", "b"]
        with pytest.raises(UsageError, match="cursor of 'waiting'"):
            runtime.pending(after=first.after)


async def test_a_list_has_what_an_agent_waits_for_once_its_status_says_so(tmp_path: Path) -> None:
    """J30: the commit of the status may be under way yet."""

    @tool
    async def nap(ctx: ToolContext) -> str:
        await ctx.sleep("nap", 30.0)
        return "rested"

    sleeper = Agent("sleeper", by_turn(call("nap", {}), "Done."), tools=[nap])
    backend = HeldCommits(SqliteBackend(str(tmp_path / "store.db"), durability="off", host="here"))
    async with Runtime([sleeper], store=DatabaseStore(backend)) as runtime:
        await soon(runtime.waiting())
        with backend.held():
            ref = runtime.spawn("sleeper", "a")
            outcome = ref.run("Go.")
            while ref.status() is not Status.WAITING:
                await backend.reached()
                backend.let_one_pass()
                await turns()
            listed = asyncio.create_task(soon(runtime.waiting()))
            for _ in range(10):  # a list that does not wait is read meanwhile
                await turns()
                await asyncio.to_thread(backend.load, "a", 0)
        assert [wait.name for wait in await listed] == ["nap"]
        assert not outcome.done()


# --------------------------------------------------------------------------- filters


async def test_requests_are_found_by_tool_and_agent_and_in_the_order_of_their_expiry(
    new_store: NewStore,
) -> None:
    clock = SimulatedClock()
    agents = [
        desk(),
        desk("ops", call("deploy", {"version": "2"}), "Done."),
        desk("both", [call("refund", {"order": "1"}), call("deploy", {"version": "1"})], "Done."),
    ]
    async with Runtime(agents, store=new_store(), clock=clock) as runtime:
        for id, agent in (("1", "desk"), ("2", "both"), ("3", "ops"), ("4", "desk"), ("5", "ops")):
            await ask(runtime, id, agent=agent)
            await soon(clock.advance(1))

        async def found(**filters: Any) -> list[tuple[str, str]]:
            listed = [request async for request in runtime.pending(limit=2, **filters)]
            assert listed == await soon(runtime.pending(**filters))
            return [(request.agent_id, request.request.tool_name) for request in listed]

        refunds = [("1", "refund"), ("2", "refund"), ("4", "refund")]
        deploys = [("2", "deploy"), ("3", "deploy"), ("5", "deploy")]
        assert await found(tool="refund") == refunds
        assert await found(tool="deploy") == deploys
        assert await found(agent="both") == [refunds[1], deploys[0]]
        assert await found(agent="both", tool="deploy") == [deploys[0]]
        assert await found(agent="nobody") == await found(tool="") == []
        assert await found(order="expiring") == [*deploys, *refunds]
        assert await found() == [*refunds[:2], *deploys[:2], refunds[2], deploys[2]]


@pytest.mark.quick
async def test_agents_are_found_by_status_definition_and_prefix(new_store: NewStore) -> None:
    agents = [desk(), talker(), Agent("broken", ScriptedModel(_raises))]
    async with Runtime(agents, store=new_store()) as runtime:
        await ask(runtime, "eu/1".replace("/", ":"), "us:1")
        for id in ("eu:2", "eu:\U0010ffff"):
            await soon(runtime.spawn("talker", id).run("Go."))
        await soon(runtime.spawn("broken", "us:3").run("Go."))

        async def found(**filters: Any) -> list[str]:
            listed = [info.id async for info in runtime.agents(limit=1, **filters)]
            assert listed == [info.id for info in await soon(runtime.agents(**filters))]
            return listed

        assert await found(prefix="eu:") == ["eu:1", "eu:2", "eu:\U0010ffff"]
        assert await found(prefix="eu:\U0010ffff") == ["eu:\U0010ffff"]
        assert await found(status=Status.INTERRUPTED) == ["eu:1", "us:1"]
        assert await found(status="interrupted", prefix="us") == ["us:1"]
        assert await found(status="failed") == ["us:3"]
        assert (
            await found(agent="talker") == await found(status="idle") == ["eu:2", "eu:\U0010ffff"]
        )
        assert await found(agent="talker", status="failed") == await found(prefix="asia") == []
        counts = await soon(runtime.count())
        assert {status.value: n for status, n in counts.items() if n} == {
            "idle": 2,
            "interrupted": 2,
            "failed": 1,
        }


def _raises(_: object) -> str:
    raise ValueError("no")


async def test_times_before_1970_are_kept_as_they_are(new_store: NewStore) -> None:
    clock = SimulatedClock(datetime(1961, 4, 12, tzinfo=timezone.utc))
    asked = []
    agent = desk("desk", call("deploy", {"version": "1"}))
    async with Runtime([agent], store=new_store(), clock=clock, feed=True) as runtime:
        feed = runtime.events(start="oldest")
        for id in ("c", "a", "b"):
            asked.append(clock.now())
            await ask(runtime, id)
            await soon(clock.advance(10))
        expiries = [at + timedelta(seconds=5 * MINUTE) for at in asked]

        for order in ("oldest", "expiring"):
            found = [request async for request in runtime.pending(order=order, limit=1)]
            assert names(found) == ["c", "a", "b"]
            assert [pending.request.created_at for pending in found] == asked
            assert [pending.request.expires_at for pending in found] == expiries
        changed = [info async for info in runtime.agents(updated_since=asked[1], limit=1)]
        assert [(info.id, info.status_at) for info in changed] == [("a", asked[1]), ("b", asked[2])]
        assert [info.due for info in changed] == [at + timedelta(minutes=1) for at in asked[1:]]
        assert list(dict.fromkeys([told.at async for told in feed.until_now()])) == asked
        await soon(clock.advance(6 * MINUTE))
        assert await soon(runtime.pending()) == []


async def test_agents_are_found_by_when_their_status_changed(new_store: NewStore) -> None:
    clock = SimulatedClock()
    times = []
    async with Runtime([desk(), talker()], store=new_store(), clock=clock) as runtime:
        for id in ("c", "a", "b"):
            times.append(clock.now())
            await soon(runtime.spawn("talker", id).run("Go."))
            await soon(clock.advance(10))

        async def since(time: datetime) -> list[tuple[str, datetime | None]]:
            listed = [info async for info in runtime.agents(updated_since=time, limit=1)]
            assert listed == await soon(runtime.agents(updated_since=time))
            return [(info.id, info.status_at) for info in listed]

        assert await since(times[0]) == [("c", times[0]), ("a", times[1]), ("b", times[2])]
        assert await since(times[1]) == [("a", times[1]), ("b", times[2])]
        assert await since(clock.now()) == []
        await soon(runtime.get("c").run("Again."))  # it is idle before and after
        assert await since(times[2]) == [("b", times[2]), ("c", clock.now())]


async def test_the_status_of_an_agent_is_the_same_whether_it_is_in_memory_or_not(
    new_store: NewStore,
) -> None:
    """J30."""
    calls = by_turn(call("refund", {"order": "1"}))
    paused = Agent("paused", calls, tools=[refund], pause_when=lambda: True)
    wanted = {
        "a": Status.INTERRUPTED,
        "b": Status.IDLE,
        "c": Status.PAUSED,
        "d": Status.CANCELLED,
        "e": Status.FAILED,
    }
    agents = [desk(), talker(), paused, Agent("broken", ScriptedModel(_raises))]
    async with Runtime(agents, store=new_store()) as runtime:
        await ask(runtime, "a", "d")
        await soon(runtime.spawn("talker", "b").run("Go."))
        await soon(runtime.spawn("paused", "c").run("Go."))
        await soon(runtime.get("d").cancel())
        await soon(runtime.spawn("broken", "e").run("Go."))
        before = await soon(runtime.agents())
        assert {info.id: info.status for info in before} == wanted
        assert all(info.is_active for info in before)
        assert {info.id: runtime.get(info.id).status() for info in before} == wanted
    async with Runtime(agents, store=new_store()) as runtime:
        after = await soon(runtime.agents())
        assert {info.id: info.status for info in after} == wanted
        assert not any(info.is_active for info in after)
        assert all(info.status_at is not None for info in after)


# --------------------------------------------------------------------- what a tool is


async def test_a_request_comes_with_what_its_tool_says_of_itself(new_store: NewStore) -> None:
    kid = Agent(
        "kid",
        by_turn(call("refund", {"order": "17"}), "Done."),
        description="Refunds.",
        tools=[refund],
        middleware=[HumanInTheLoop({"refund": True})],
    )
    model = by_turn(call("task", {"task_name": "kid", "instructions": "refund"}), "Done.")
    boss = Agent("boss", model, middleware=[SubAgent([kid], general_purpose=False)])
    async with Runtime([desk(), boss], store=new_store()) as runtime:
        await ask(runtime, "own")
        await ask(runtime, "nested", agent="boss")
        own, nested = await soon(runtime.pending())
    for found in (own, nested):
        assert found.tool_description == "Pay money back."
        assert found.tool_parameters is not None
        assert found.tool_parameters["properties"]["order"]["type"] == "string"
    assert (own.agent, nested.agent) == ("desk", "boss")
    if not isinstance(new_store(), MemoryStore):
        async with Runtime(store=new_store()) as elsewhere:
            for found in await soon(elsewhere.pending()):
                assert (found.tool_description, found.tool_parameters) == (None, None)


# -------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("listed", "argument", "given", "says"),
    [
        ("pending", "limit", 0, "`limit`.*1 to 10,000"),
        ("pending", "limit", -1, "`limit`"),
        ("agents", "limit", 10_001, "`limit`.*async for"),
        ("agents", "limit", 1 << 80, "`limit`"),
        ("agents", "limit", True, "`limit`"),
        ("agents", "limit", 2.0, "`limit`"),
        ("agents", "limit", "5", "`limit`"),
        ("agents", "status", "waiting for godot", "`status`.*'idle'.*Status"),
        ("agents", "status", Status.PASSIVE, "`status`.*is_active"),
        ("agents", "status", 5, "`status`"),
        ("agents", "agent", 5, "`agent`"),
        ("agents", "agent", "\0", "`agent`"),
        ("agents", "prefix", 5, "`prefix`"),
        ("agents", "prefix", "\ud800", "`prefix`"),
        ("agents", "updated_since", datetime(2026, 1, 1), "`updated_since`.*time zone"),
        ("agents", "updated_since", "2026-01-01", "`updated_since`"),
        ("agents", "updated_since", 5.0, "`updated_since`"),
        ("agents", "after", "nonsense", "`after`.*cursor.*agents"),
        ("agents", "after", "", "`after`"),
        ("agents", "after", "é", "`after`"),
        ("agents", "after", 5, "`after`"),
        ("agents", "after", "e30", "`after`"),
        ("agents", "after", "x" * 100_000, "`after`"),
        ("pending", "after", "bnVsbA", "`after`"),
        ("pending", "order", "newest", "`order`.*'oldest' or 'expiring'"),
        ("pending", "order", None, "`order`"),
        ("pending", "tool", 5, "`tool`"),
        ("pending", "agent", b"desk", "`agent`"),
    ],
)
async def test_a_wrong_argument_of_a_list_is_refused_at_once(
    listed: str, argument: str, given: Any, says: str
) -> None:
    async with Runtime([desk()]) as runtime:
        with pytest.raises(UsageError, match=says):
            getattr(runtime, listed)(**{argument: given})


async def test_a_cursor_of_another_list_is_refused() -> None:
    async with Runtime([desk()]) as runtime:
        await ask(runtime, "a", "b")
        agents = (await soon(runtime.agents(limit=1))).after
        pending = (await soon(runtime.pending(limit=1))).after
        since = datetime(2020, 1, 1, tzinfo=timezone.utc)
        changed = (await soon(runtime.agents(updated_since=since, limit=1))).after
        for what, call_ in (
            ("cursor of 'agents'", lambda: runtime.pending(after=agents)),
            ("cursor of 'pending'", lambda: runtime.agents(after=pending)),
            ("other filters", lambda: runtime.pending(after=pending, order="expiring")),
            ("other filters", lambda: runtime.agents(after=agents, status="idle")),
            ("other filters", lambda: runtime.agents(after=changed)),
        ):
            with pytest.raises(UsageError, match=what):
                call_()


@pytest.mark.parametrize("prefix", ["", "a", "a\U0010ffff", "\ud7ff", "\U0010ffff", "é~"])
def test_the_ids_of_a_prefix_are_those_that_begin_with_it(prefix: str) -> None:
    first, end = ids_from(prefix)
    for id in (
        "",
        "a",
        "a\U0010ffff",
        "a\U0010ffffb",
        "b",
        "\ud7ff",
        "\ue000",
        "é~x",
        "\U0010ffff",
    ):
        is_in = first <= id and (end is None or id < end)
        assert is_in == id.startswith(prefix)


# ------------------------------------------------------------------ the index is right


async def loaded_asks(store: Store) -> tuple[list[tuple[Any, ...]], dict[str, IndexStatus]]:
    """What the records of all agents say, and how their runs stand."""
    found: list[tuple[Any, ...]] = []
    stand: dict[str, IndexStatus] = {}
    async for stored in store.agents():
        loaded = await store.load(stored.agent_id)
        assert loaded is not None
        state = replay(loaded.records)
        stand[stored.agent_id] = index_status_of(state)
        if stand[stored.agent_id] is IndexStatus.WAITS:
            told = notices_of(state)
            found += [
                (stored.agent_id, stored.agent, r, told.get(r.id, NO_NOTICES), r.expires_at)
                for r in state.requests
            ]
    return sorted(found, key=lambda ask: (ask[0], ask[2].id)), stand


async def loaded_doubts(store: Store) -> list[tuple[Any, ...]]:
    """What the records of all agents say that is in doubt."""
    found: list[tuple[Any, ...]] = []
    async for stored in store.agents():
        loaded = await store.load(stored.agent_id)
        assert loaded is not None
        state = replay(loaded.records)
        for doubt in state.doubts_in_tree.values():
            found.append((stored.agent_id, doubt.call_key, "", doubt.since, doubt.ends_at))
        if index_status_of(state) is IndexStatus.WAITS:
            asked = [request for request in state.requests if request.kind == "doubt"]
            found += [(stored.agent_id, r.call_key, r.id, r.created_at, None) for r in asked]
    return sorted(found)


async def check_index(store: Store) -> None:
    """The index says what loading each agent says."""
    rows = await store.list_asks(AskQuery(kind="doubt"), None, 10_000)
    doubts = [row.doubt() for row in rows]
    assert await loaded_doubts(store) == sorted(
        (each.agent_id, each.call_key, each.request_id or "", each.since, each.ends_at)
        for each in doubts
    )
    asks = await store.list_asks(AskQuery(), None, 10_000)
    listed = [(ask.agent_id, ask.agent, ask.request(), ask.told, ask.expires_at) for ask in asks]
    loaded, stand = await loaded_asks(store)
    assert sorted(listed, key=lambda ask: (ask[0], ask[2].id)) == loaded
    agents = await store.list_agents(AgentQuery(), None, 10_000)
    assert {agent.agent_id: agent.index_status for agent in agents} == stand
    for agent in agents:
        there = await store.load(agent.agent_id)
        assert there is not None
        assert agent.run_version == index_entry_of(there.folded()).run_version
    counts = await store.count_agents()
    assert sum(counts.values()) == len(agents)
    for status, count in counts.items():
        assert count == sum(agent.agent_status == status for agent in agents)


ACTS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("run", "run", "approve", "reject", "one", "cancel", "stop", "compact", "delete"),
                *("later", "send", "copy", "settle", "week"),
            ]
        ),
        st.sampled_from("ab"),
    ),
    max_size=12,
)


async def act(runtime: Runtime, clock: SimulatedClock, what: str, id: str) -> None:
    ref = runtime.spawn("both", id)
    if what == "run":
        await soon(ref.run("Go."))
    elif what == "send":
        await soon(ref.send("And?"))
    elif what in ("approve", "reject", "one"):
        state = await soon(ref.state())
        requests = list(state.requests)[: 1 if what == "one" else None]
        decision: Decision = reject() if what == "reject" else approve()
        if requests:
            await soon(ref.resume({request.id: decision for request in requests}))
    elif what == "cancel":
        await soon(ref.cancel())
    elif what == "stop":
        await soon(ref.stop(block=False))
    elif what == "compact":
        await soon(ref.compact())
    elif what == "delete":
        await soon(runtime.delete(id))
    elif what == "later":
        await soon(clock.advance(MINUTE))
    elif what == "week":
        await soon(clock.advance(7 * 24 * 60 * MINUTE))
    elif what == "settle":
        for doubt in await soon(runtime.doubts(limit=1)):
            await soon(runtime.get(doubt.agent_id).settle(doubt.call_key, how="it was paid"))
    else:
        await soon(runtime.delete(f"{id}-copy"))
        await soon(runtime.import_(await soon(runtime.export(id)), id=f"{id}-copy"))


async def settle(runtime: Runtime) -> None:
    """Until nothing is written any more."""
    for info in await soon(runtime.agents()):
        ref = runtime.get(info.id)
        with suppress(UnderstudyError):
            await soon(ref.outcome())
        await soon(ref.stop(block=False))


def both() -> Agent:
    calls = [call("refund", {"order": "1"}), call("deploy", {"version": "1"})]
    lost = [*calls, call("lose", {"order": "1"})]
    return desk("both", lost, "Half.", lost, call("refund", {"order": "2"}), "Done.")


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ACTS)
def test_whatever_happens_the_index_says_what_the_records_say(
    new_store: NewStore, acts: list[tuple[str, str]]
) -> None:
    """J30."""

    async def play() -> None:
        clock = SimulatedClock()
        store = new_store()
        async with Runtime([both()], store=store, clock=clock) as runtime:
            for id in ("a", "b", "a-copy", "b-copy"):
                await soon(runtime.delete(id))
            for what, id in acts:
                with suppress(UnderstudyError):  # it is not possible now
                    await act(runtime, clock, what, id)
                await settle(runtime)
                await check_index(store)

    asyncio.run(play())


@pytest.mark.slow
@pytest.mark.parametrize("at", range(1, 20))
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_crash_at_any_commit_leaves_the_index_right(
    tmp_path: Path, at: int, after: bool
) -> None:
    """J30."""
    path = str(tmp_path / "store.db")
    backend = FaultyBackend(SqliteBackend(path, durability="off", host="here"))
    clock = SimulatedClock()
    with suppress(UnderstudyError):
        async with Runtime([both()], store=DatabaseStore(backend), clock=clock) as runtime:
            backend.fail(
                "commit",
                at=at,
                times=10**6,
                after=after,
                fault=lambda: StoreBroken(cause="cut off", remedy="none", is_final=True),
            )
            first = ("run", "later", "one", "later", "approve", "compact", "run", "settle", "week")
            for what in (*first, "delete"):
                await act(runtime, clock, what, "a")
    store = DatabaseStore(SqliteBackend(path, durability="off", host="here"))
    await store.open(lambda: None)
    await check_index(store)
    await store.close()


@pytest.mark.slow
async def test_what_is_answered_and_stays_in_the_index_is_noticed(
    left_out: LeftOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J30."""
    inner = asks.changes
    await left_out(
        lambda: monkeypatch.setattr(
            sql_backend, "changes", lambda *given: inner(*given)._replace(gone=[])
        ),
        lambda folder: test_a_crash_at_any_commit_leaves_the_index_right(folder, 13, False),
    )


@pytest.mark.parametrize("by", ["recover", "import"])
async def test_what_an_outcome_asks_is_listed_wherever_its_run_was_cut_off(by: str) -> None:
    """J30: also while another call, cut off in its middle, waits for the answer to go on."""
    note = tool(idempotent=True)(_noted)
    gate = HumanInTheLoop({"refund": True})
    turn = [call("refund", {"order": "1"}), call("note", {})]
    agent = Agent("desk", by_turn(turn, "Done."), tools=[refund, note], middleware=[gate])
    store = MemoryStore()
    async with Runtime([agent], store=store) as runtime:
        ref = runtime.spawn("desk", "a")
        (request,) = interrupted(await soon(ref.run("Go."))).requests
        completed(await soon(ref.resume({request.id: approve()})))
    loaded = await store.load("a")
    assert loaded is not None
    records, asked = loaded.records, 0
    first = [record.kind for record in records].index("run_started")
    for cut in range(first + 1, len(records)):
        left = await left_after(records[:cut], agent="desk")
        if by == "import":
            async with Runtime([agent], store=left, sweep=None) as runtime:
                exported = await soon(runtime.export("a"))
            left = MemoryStore()
        async with Runtime([agent], store=left) as runtime:
            if by == "import":
                await soon(runtime.import_(exported))
            await soon(runtime.recover())
            outcome = await soon(runtime.get("a").outcome())
            listed = {pending.request.id for pending in await soon(runtime.pending())}
        requests = outcome.requests if isinstance(outcome, Interrupted) else ()
        assert listed == {request.id for request in requests}, (cut, records[cut - 1].kind)
        asked += bool(listed)
    assert asked > 3


def _noted() -> str:
    """Note."""
    return "noted"


async def test_a_step_that_asks_nothing_writes_nothing_about_asks(tmp_path: Path) -> None:
    """J30: so it does not notice that the table is gone."""
    path = tmp_path / "store.db"
    quiet = Agent("quiet", by_turn(call("refund", {"order": "1"}), "Done."), tools=[refund])
    async with Runtime([quiet, desk()], store=f"sqlite:///{path}") as runtime:
        await soon(runtime.count())
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("DROP TABLE asks")
        completed(await soon(runtime.spawn("quiet", "a").run("Go.")))
        with pytest.raises(StoreBroken):
            await soon(runtime.spawn("desk", "b").run("Go."))


# ------------------------------------------------------------- frozen and other stores


async def test_all_agents_of_a_frozen_store_are_listed(tmp_path: Path) -> None:
    """J30."""
    path = tmp_path / "store.db"
    path.write_bytes((DATA / "store.sqlite").read_bytes())
    store = DatabaseStore(SqliteBackend(str(path), durability="off", host="here"))
    async with Runtime(store=store, sweep=None) as runtime:
        listed = await soon(runtime.pending())
        await check_index(store)
        infos = await soon(runtime.agents())
    assert listed
    assert {info.index_status for info in infos} == set(IndexStatus)
    by_status = {info.index_status: info.status for info in infos}
    assert by_status[IndexStatus.OPEN] is Status.RUNNING
    assert by_status[IndexStatus.QUARANTINED] is Status.FAILED


async def test_a_store_of_the_application_without_an_index_is_loaded() -> None:
    async with Runtime([desk(), talker()], store=PlainStore()) as runtime:
        await ask(runtime, "a", "b")
        await soon(runtime.spawn("talker", "c").run("Go."))
        first = await soon(runtime.pending(limit=1))
        second = await soon(runtime.pending(limit=1, after=first.after))
        assert (names(first), names(second)) == (["a"], ["b"])
        assert (await soon(runtime.count()))[Status.INTERRUPTED] == 2
        assert [info.id for info in await soon(runtime.agents(status="idle"))] == ["c"]


async def test_a_request_that_cannot_be_read_is_logged_and_hides_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """J16."""
    path = tmp_path / "store.db"
    async with Runtime([desk()], store=f"sqlite:///{path}") as runtime:
        await ask(runtime, "a", "b", "c")
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("UPDATE asks SET payload = x'00' WHERE no = 2")
        page = await soon(runtime.pending(limit=2))
        rest = await soon(runtime.pending(limit=2, after=page.after))
    assert (names(page), names(rest)) == (["a"], ["c"])
    assert "a request of agent 'b' is left out" in caplog.text


DAMAGES = [
    "payload = x'00'",
    "version = 99",
    "asked_at = 1000000000000000000",
    "expires_at = 1000000000000000000",
]


def test_a_row_that_no_store_has_written_is_told_as_damaged() -> None:
    row: tuple[Any, ...] = (7, "a", "desk", "request", "refund", 10, NEVER, 0, 0, 1, b"{}", 0)
    assert listed_ask(row).damage is None
    for at, wrong in [(at, wrong) for at in range(len(row) - 1) for wrong in (None, object(), 1.5)]:
        ask = listed_ask((*row[:at], wrong, *row[at + 1 :]))
        assert ask.damage is not None, (at, wrong)
        with pytest.raises(StoreDamaged):
            ask.request()
        assert key_of(ask, "oldest") == (None if at in (0, 5) else (10, 7))
        assert key_of(ask, "expiring") == (None if at in (0, 6) else (NEVER, 7))


@pytest.mark.parametrize("order", ["oldest", "expiring"])
@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_row_of_a_request_hides_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str, order: Any
) -> None:
    """J30: it is told, and each page brings the others."""
    path = tmp_path / "store.db"
    async with Runtime([desk()], store=f"sqlite:///{path}") as runtime:
        await ask(runtime, "a", "b", "c", "d")
        with closing(sqlite3.connect(path)) as other, other:
            other.execute(f"UPDATE asks SET {damage} WHERE no = 2")
        for limit in (1, 2, 100):
            pages, after = list[str](), None
            for _ in range(9):
                page = await soon(runtime.pending(limit=limit, order=order, after=after))
                pages += names(page)
                if (after := page.after) is None:
                    break
            assert after is None, "it goes on for ever"
            assert sorted(pages) == ["a", "c", "d"]
    assert "a request of agent 'b' is left out" in caplog.text


# -------------------------------------------------------------------------- observers


async def test_an_observer_lists_as_the_runtime_does(new_store: NewStore) -> None:
    store = new_store()
    if isinstance(store, MemoryStore):
        pytest.skip("no other process can have it")
    async with Runtime([desk(), talker()], store=store) as runtime:
        await ask(runtime, "a", "b", "c")
        await soon(runtime.spawn("talker", "d").run("Go."))
        other: Any = new_store()
        async with Observer(other) as observer:
            page = await soon(observer.pending(limit=2))
            assert names(page) == ["a", "b"]
            assert names([r async for r in observer.pending(after=page.after)]) == ["c"]
            (idle,) = await soon(observer.agents(status=Status.IDLE))
            assert (idle.id, idle.is_active) == ("d", False)
            assert await soon(observer.count()) == await soon(runtime.count())
            with pytest.raises(UsageError, match="`limit`"):
                observer.pending(limit=0)
            last = observer.pending()
    with pytest.raises(UsageError, match="not open"):
        await soon(last)


async def test_an_agent_that_is_spawned_is_listed_as_it_is_stored(new_store: NewStore) -> None:
    """One that no store has yet is idle; one that is stored and not read yet is what that says."""
    async with Runtime([desk()], store=new_store()) as runtime:
        await ask(runtime, "asks")
    async with Runtime([desk()], store=new_store()) as runtime:
        for id in ("asks", "asks-nothing"):
            runtime.spawn("desk", id)

        async def found(**filters: Any) -> list[str]:
            return [info.id for info in await soon(runtime.agents(**filters))]

        assert await found(status="idle") == ["asks-nothing"]
        assert await found(status="interrupted") == ["asks"]
        assert await found() == await found(agent="desk") == ["asks", "asks-nothing"]


@pytest.mark.slow
@pytest.mark.parametrize("hangs", ["list_agents", "list_asks"])
async def test_a_list_of_a_database_that_hangs_is_an_error_after_a_time_limit(
    hangs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it answers again when the database does."""
    monkeypatch.setattr("understudy.actors.reads.store_views.LATE", 0.1)
    answers = threading.Event()

    def hang() -> BaseException:
        answers.wait(SECONDS)
        return StoreUnavailable(cause="the test says so")

    backend = FaultyBackend(SqliteBackend(str(tmp_path / "s.db"), durability="off", host="here"))
    async with Runtime([desk()], store=DatabaseStore(backend, patience=0.1)) as runtime:
        try:
            await ask(runtime, "a")
            lists: dict[str, list[Callable[[], Listing[Any]]]] = {
                "list_agents": [lambda: runtime.agents(), lambda: runtime.agents(limit=1)],
                "list_asks": [
                    lambda: runtime.pending(),
                    lambda: runtime.pending(limit=1),
                    lambda: runtime.doubts(),
                    lambda: runtime.waiting(),
                ],
            }
            backend.fail(hangs, times=1 << 30, fault=hang)
            for listed in lists[hangs]:
                with pytest.raises(StoreUnavailable, match=r"a list got no answer for 0\.2 s"):
                    await soon(listed())
                with pytest.raises(StoreUnavailable, match=r"a list got no answer for 0\.2 s"):
                    await soon(anext(aiter(listed())))
        finally:
            backend.mend()
            answers.set()
        assert names(await soon(runtime.pending())) == ["a"]
        assert [info.id for info in await soon(runtime.agents())] == ["a"]
