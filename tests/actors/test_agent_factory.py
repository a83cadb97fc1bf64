"""`Runtime(factory=)`: the definition of an agent is made when it is activated (J10)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any

import pytest

from tests.support.agents import Held, by_turn, completed, interrupted, until_status
from tests.support.loops import soon
from tests.support.places import NewStore, Place
from tests.support.postgres import Hosts
from understudy import (
    Agent,
    OwnedElsewhere,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    ToolContext,
    UnfitHost,
    UnknownAgent,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.actors import AgentFactory
from understudy.errors import AgentNotMade, OtherAgent
from understudy.journal import IndexStatus, Store, StoredAgent
from understudy.journal.backend import Backend
from understudy.journal.database_store import DatabaseStore
from understudy.middleware import Middleware

TURNS = ("one", "two", "three")


class Made:
    """A factory that knows agents named `desk`, and what it was asked for."""

    def __init__(self, **options: Any) -> None:
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.options = options

    def __call__(self, name: str, agent_id: str, values: Mapping[str, Any]) -> Agent | None:
        self.asked.append((name, agent_id, dict(values)))
        if name != "desk":
            return None
        turns = [f"{values.get('customer')} {turn}" for turn in TURNS]
        return Agent(name, by_turn(*turns), **self.options)


def opened(store: Store, factory: AgentFactory | None, *agents: Agent, **options: Any) -> Runtime:
    options.setdefault("idle_timeout", None)
    options.setdefault("sweep", None)
    options.setdefault("stop_timeout", 0.001)
    return Runtime(agents, store=store, factory=factory, **options)


class Ends(Middleware):
    def __init__(self, ended: asyncio.Event) -> None:
        self.ended = ended

    async def on_completed(self, actor: Any, outcome: Any) -> None:
        self.ended.set()


async def test_a_definition_is_made_from_the_id_and_the_values_at_each_activation(
    place: Place,
) -> None:
    """A11: of a new agent, after a passivation, and in the next runtime."""
    made = Made()
    async with opened(place.store(), made) as runtime:
        ref = runtime.spawn("desk", "a", values={"customer": "Ann"})
        assert completed(await soon(ref.run("go"))).text == "Ann one"
        assert made.asked == [("desk", "a", {"customer": "Ann"})]
        assert await soon(ref.stop(block=False))
        assert completed(await soon(runtime.spawn("desk", "a").run("go"))).text == "Ann two"
        assert len(made.asked) == 2
        assert runtime.definitions == ()
    async with opened(place.store(), made) as runtime:
        ref = runtime.get("a")
        assert completed(await soon(ref.run("go"))).text == "Ann three"
        assert made.asked == [("desk", "a", {"customer": "Ann"})] * 3


async def test_a_run_that_a_crash_cut_off_goes_on_on_what_is_made_again(place: Place) -> None:
    """A11: by `recover`, and by the factory of another process."""
    held, ran = Held(), list[str]()

    def making(end: str, held: Held | None) -> AgentFactory:
        @tool(idempotent=True)
        async def work() -> str:
            if held is not None:
                await held.wait()
            ran.append(end)
            return end

        async def factory(name: str, agent_id: str, values: Mapping[str, Any]) -> Agent:
            return Agent(name, by_turn(call("work"), end), tools=[work])

        return factory

    async with opened(place.store(), making("first", held)) as first:
        first.spawn("desk", "a").run("go")
        await soon(held.entered.wait())
        async with opened(place.after_crash(), making("second", None)) as second:
            [ref] = await soon(second.recover())
            outcome = await soon(ref.outcome())
            assert outcome is not None
            assert completed(outcome).text == "second"
            assert ran == ["second"]


async def test_a_request_is_answered_where_the_definition_is_made_again(place: Place) -> None:
    """A11: the decision activates the agent; what it is about is found in what is made."""
    ran: list[str] = []

    @tool
    def refund() -> str:
        ran.append("refund")
        return "refunded"

    def factory(name: str, agent_id: str, values: Mapping[str, Any]) -> Agent:
        model = by_turn(call("refund"), "done")
        return Agent(name, model, tools=[refund], interrupt_on={"refund": True})

    async with opened(place.store(), factory) as runtime:
        asked = interrupted(await soon(runtime.spawn("desk", "a").run("go")))
        found = runtime.tool_of(asked.requests[0])
        assert found is not None
        assert found.name == "refund"
    async with opened(place.store(), factory) as runtime:
        ref = runtime.get("a")
        found_again = await soon(ref.outcome())
        assert found_again is not None
        assert interrupted(found_again).requests == asked.requests
        assert completed(await soon(ref.resume(asked.decide(approve())))).text == "done"
        assert ran == ["refund"]


async def test_an_agent_that_is_imported_is_made(new_store: NewStore) -> None:
    """A11."""
    made = Made()
    async with opened(new_store(), made) as runtime:
        ref = runtime.spawn("desk", "a", values={"customer": "Ann"})
        completed(await soon(ref.run("go")))
        data = await soon(runtime.export("a"))
        copied = await soon(runtime.import_(data, "b"))
        assert completed(await soon(copied.run("go"))).text == "Ann two"
        assert made.asked[-1] == ("desk", "b", {"customer": "Ann"})


async def test_a_declared_definition_is_not_asked_of_the_factory() -> None:
    """A11: also one that is declared by a spawn, after the name was asked of the factory."""
    made = Made()
    async with Runtime([Agent("till", by_turn("paid"))], factory=made) as runtime:
        assert completed(await soon(runtime.spawn("till", "a").run("go"))).text == "paid"
        assert made.asked == []
        completed(await soon(runtime.spawn("desk", "b").run("go")))
        assert await soon(runtime.get("b").stop(block=False))
        declared = Agent("desk", by_turn("declared one", "declared two"))
        ref = runtime.spawn(declared, "b")
        assert completed(await soon(ref.run("go"))).text == "declared two"
        assert len(made.asked) == 1
        with pytest.raises(OtherAgent):
            runtime.spawn("till", "b")


async def test_a_name_that_the_factory_does_not_know_is_an_error_of_its_callers() -> None:
    """A11: nothing is kept of it, and an unknown id is unknown."""
    made = Made()
    async with Runtime(factory=made) as runtime:
        for _ in range(2):
            with pytest.raises(UsageError, match=r"factory=.*'dsk'.*'a'.*knows none"):
                await soon(runtime.spawn("dsk", "a").run("go"))
        with pytest.raises(UnknownAgent):
            await soon(runtime.get("b").run("go"))
        assert completed(await soon(runtime.spawn("desk", "a2").run("go"))).text == "None one"
        assert [info.id for info in await soon(runtime.agents(agent="dsk"))] == ["a"]
        with pytest.raises(UsageError, match="letters"):
            runtime.spawn("no name", "c")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("desk", r"factory=.*'desk'.*must return an Agent or None, not 'desk'"),
        (Agent("till", ScriptedModel(["x"])), r"factory=.*'desk'.*'till': name it 'desk'"),
    ],
)
async def test_what_is_no_definition_of_the_name_is_refused(made: Any, said: str) -> None:
    """A11."""
    async with Runtime(factory=lambda *_: made) as runtime:
        with pytest.raises(UsageError, match=said):
            await soon(runtime.spawn("desk", "a").run("go"))


@pytest.mark.parametrize("error", [LookupError("no customer"), SystemExit("no"), TimeoutError()])
async def test_a_factory_that_raises_fails_the_activation_and_is_asked_again(
    error: BaseException,
) -> None:
    """A11: no other agent is disturbed, and the next call makes it."""
    made, broken = Made(), [True]

    async def factory(name: str, agent_id: str, values: Mapping[str, Any]) -> Agent | None:
        if broken and agent_id == "a":
            raise error
        return made(name, agent_id, values)

    async with Runtime(factory=factory) as runtime:
        ref = runtime.spawn("desk", "a", values={"customer": "Ann"})
        with pytest.raises(AgentNotMade, match=r"'a'.*factory=.*'desk'") as raised:
            await soon(ref.run("go"))
        assert type(error).__name__ in raised.value.cause
        assert completed(await soon(runtime.spawn("desk", "b").run("go"))).text == "None one"
        broken.clear()
        assert completed(await soon(ref.run("go"))).text == "Ann one"


async def test_a_factory_that_does_not_return_keeps_no_deletion_waiting() -> None:
    """A11."""
    entered = asyncio.Event()

    async def factory(name: str, agent_id: str, values: Mapping[str, Any]) -> Agent | None:
        entered.set()
        await asyncio.Event().wait()
        return None

    async with Runtime(factory=factory, cancel_timeout=0.05) as runtime:
        ref = runtime.spawn("desk", "a")
        running = ref.run("go")
        await soon(entered.wait())
        assert await soon(runtime.delete("a")) is False
        with pytest.raises(UnknownAgent):
            await soon(running)
        entered.clear()
        runtime.spawn("desk", "b").run("go")
        await soon(entered.wait())


@pytest.mark.parametrize("wrong", [5, "my.module:factory", Agent("desk", ScriptedModel(["x"]))])
def test_a_factory_that_is_no_function_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="`factory`"):
        Runtime(factory=wrong)


async def test_a_sweep_continues_what_a_factory_makes(place: Place) -> None:
    """A11."""
    held = Held()

    @tool(idempotent=True)
    async def work() -> str:
        await held.wait()
        return "worked"

    def first(name: str, agent_id: str, values: Mapping[str, Any]) -> Agent:
        return Agent(name, by_turn(call("work"), "first"), tools=[work])

    @tool(name="work", idempotent=True)
    def free() -> str:
        return "worked"

    ended = asyncio.Event()

    def second(name: str, agent_id: str, values: Mapping[str, Any]) -> Agent:
        model = by_turn(call("work"), "second")
        return Agent(name, model, tools=[free], middleware=[Ends(ended)])

    async with opened(place.store(), first) as before:
        before.spawn("desk", "a").run("go")
        await soon(held.entered.wait())
        async with opened(place.after_crash(), second, sweep=0.01) as after:
            await soon(ended.wait())
            outcome = await soon(after.get("a").outcome())
            assert outcome is not None
            assert completed(outcome).text == "second"


# ------------------------------------------------------------------- hosts


async def test_a_call_from_a_host_that_drains_is_done_by_one_with_a_factory(hosts: Hosts) -> None:
    """A11: and the definition is made there, from the values that the agent began with."""
    here, there = Made(), Made()
    first_store, second_store = (DatabaseStore(hosts.new(name)) for name in ("first", "second"))
    async with opened(first_store, here) as first, opened(second_store, there):
        assert await soon(first.drain())
        ref = first.spawn("desk", "a", values={"customer": "Ann"})
        assert completed(await soon(ref.run("go"))).text == "Ann one"
        assert there.asked == [("desk", "a", {"customer": "Ann"})]


async def test_what_is_made_runs_at_a_host_that_has_what_it_needs(hosts: Hosts) -> None:
    """A11: where there is none, the caller is told what is missing."""
    here, there = Made(needs=["gpu"]), Made(needs=["gpu"])
    first_store = DatabaseStore(hosts.new("first"))
    async with opened(first_store, here) as first:
        with pytest.raises(UnfitHost, match="gpu"):
            await soon(first.spawn("desk", "a").run("go"))
        second_store = DatabaseStore(hosts.new("second"))
        async with opened(second_store, there, labels=["gpu"]):
            assert completed(await soon(first.spawn("desk", "a").run("go"))).text == "None one"
            assert [asked[1] for asked in there.asked] == ["a"]


@tool
def other() -> str:
    """Makes the definition another one."""
    return "other"


def makes_none(name: str, agent_id: str, values: Mapping[str, Any]) -> Agent | None:
    return None


def fails(name: str, agent_id: str, values: Mapping[str, Any]) -> Agent | None:
    raise LookupError("no customer")


def makes_another(name: str, agent_id: str, values: Mapping[str, Any]) -> Agent | None:
    return Agent(name, by_turn("another"), tools=[other], on_version="wait")


@pytest.mark.parametrize("unable", [makes_none, fails, makes_another])
async def test_an_agent_that_is_handed_over_to_a_host_that_does_not_make_it_is_free_again(
    hosts: Hosts, unable: AgentFactory
) -> None:
    """A11: by a drain, in the middle of a run. A host that makes it goes on with it."""
    held, ended = Held(), asyncio.Event()

    def making(end: str, *middleware: Middleware) -> AgentFactory:
        @tool(idempotent=True)
        async def work() -> str:
            await held.wait()
            return end

        def factory(name: str, agent_id: str, values: Mapping[str, Any]) -> Agent:
            model = by_turn(call("work"), end)
            return Agent(name, model, tools=[work], middleware=middleware)

        return factory

    stores = [DatabaseStore(hosts.new(name)) for name in ("first", "second", "third")]
    async with opened(stores[0], making("first")) as first, opened(stores[1], unable):
        first.spawn("desk", "a").run("go")
        await soon(held.entered.wait())
        drained = first.drain()
        assert await soon(first.drain(timeout=0.01)) is False, "the call goes on"
        held.release.set()
        assert await soon(drained)
        async with opened(stores[2], making("third", Ends(ended)), sweep=0.01) as third:
            await soon(ended.wait())
            outcome = await soon(third.get("a").outcome())
            assert outcome is not None
            assert completed(outcome).text == "third"


class Looked(DatabaseStore):
    """Says that its host has looked for runs without an owner."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.has_looked = asyncio.Event()

    async def agents(
        self, index_statuses: Collection[IndexStatus] | None = None
    ) -> AsyncIterator[StoredAgent]:
        async for agent in super().agents(index_statuses):
            yield agent
        self.has_looked.set()


async def test_a_run_that_is_given_back_goes_on_where_it_can(hosts: Hosts) -> None:
    """A11: who gives it back says so to the others, and no sweep is waited for."""
    held, asked, ended = Held(), Held(), asyncio.Event()

    @tool(idempotent=True)
    async def work() -> str:
        await held.wait()
        return "worked"

    def makes(name: str, agent_id: str, values: Mapping[str, Any]) -> Agent:
        return Agent(name, by_turn(call("work"), "made"), tools=[work], middleware=[Ends(ended)])

    async def fails_late(name: str, agent_id: str, values: Mapping[str, Any]) -> Agent | None:
        await asked.wait()
        return None

    stores = [DatabaseStore(hosts.new(name)) for name in ("first", "second")]
    third = Looked(hosts.new("third"))
    async with opened(stores[0], makes) as first, opened(stores[1], fails_late):
        first.spawn("desk", "a").run("go")
        await soon(held.entered.wait())
        drained = first.drain()
        assert await soon(first.drain(timeout=0.01)) is False, "the call goes on"
        held.release.set()
        assert await soon(drained)
        await soon(asked.entered.wait())
        async with opened(third, makes, sweep=1000) as runtime:
            await soon(third.has_looked.wait())
            asked.release.set()
            await soon(ended.wait())
            assert [info.host for info in await soon(runtime.agents())] == ["third"]


async def test_a_call_that_is_handed_over_to_a_host_that_does_not_make_its_agent_may_be_made_again(
    hosts: Hosts,
) -> None:
    """A11: its caller is told which factory, and the agent belongs to nobody."""
    here = Made()
    first_store, second_store, third_store = (
        DatabaseStore(hosts.new(name)) for name in ("first", "second", "third")
    )
    async with opened(first_store, here) as first, opened(second_store, makes_none):
        assert completed(await soon(first.spawn("desk", "a").run("go"))).text == "None one"
        assert await soon(first.drain())
        with pytest.raises(UsageError, match=r"factory=.*'desk'.*'a'.*knows none"):
            await soon(first.get("a").run("go", message_id="mail"))
        async with opened(third_store, here) as third:
            again = third.get("a").run("go", message_id="mail")
            assert completed(await soon(again)).text == "None two"


async def test_an_agent_that_is_owned_elsewhere_is_refused_or_asked_there(hosts: Hosts) -> None:
    """A11: as any other."""
    made = Made()
    first_store, second_store = (DatabaseStore(hosts.new(name)) for name in ("first", "second"))
    async with opened(first_store, made) as first, opened(second_store, made, any_host=False) as no:
        completed(await soon(first.spawn("desk", "a").run("go")))
        with pytest.raises(OwnedElsewhere):
            await soon(no.get("a").run("go"))


async def test_what_was_made_before_another_host_wrote_is_made_again(hosts: Hosts) -> None:
    """A11: what is made depends on what is recorded."""
    here = Made()
    made: list[str] = []
    entered, go = asyncio.Event(), asyncio.Event()

    async def there(name: str, agent_id: str, values: Mapping[str, Any]) -> Agent:
        made.append(agent_id)
        if len(made) == 1:
            entered.set()
            await go.wait()
            return Agent(name, by_turn(*["stale"] * 9))
        return Agent(name, by_turn(*["fresh"] * 9))

    first_store, second_store = (DatabaseStore(hosts.new(name)) for name in ("first", "second"))
    async with opened(first_store, here) as first, opened(second_store, there) as second:
        ref = first.spawn("desk", "a")
        completed(await soon(ref.run("go")))
        assert await soon(ref.stop(block=False))
        running = second.get("a").run("there")
        await soon(entered.wait())
        completed(await soon(ref.run("here")))
        assert await soon(ref.stop(block=False))
        go.set()
        assert completed(await soon(running)).text == "fresh"
    assert made == ["a", "a"]


async def test_a_run_waits_for_a_factory_that_makes_its_definition(new_store: NewStore) -> None:
    """A11: with on_version="wait", as of a declared one."""

    def making(version: int, **options: Any) -> AgentFactory:
        @tool
        def refund() -> str:
            return f"refunded by {version}"

        def factory(name: str, agent_id: str, values: Mapping[str, Any]) -> Agent:
            options.update(version=version, tools=[refund], interrupt_on={"refund": True})
            return Agent(name, by_turn(call("refund"), f"done by {version}"), **options)

        return factory

    async with opened(new_store(), making(1)) as old:
        asked = interrupted(await soon(old.spawn("desk", "a").run("go")))
    decision = asked.decide(approve())
    async with opened(new_store(), making(2, on_version="wait")) as new:
        for _ in range(2):
            with pytest.raises(UnfitHost, match="on_version='newest'"):
                await soon(new.get("a").resume(decision))
        assert [each.request.id for each in await soon(new.pending())] == [asked.requests[0].id]
    async with opened(new_store(), making(1)) as old:
        assert completed(await soon(old.get("a").resume(decision))).text == "done by 1"


@pytest.mark.slow
@pytest.mark.quick
async def test_a_call_is_posted_to_the_host_that_runs_what_it_made(hosts: Hosts) -> None:
    """A11."""
    held, here = Held(), Made()

    @tool(idempotent=True)
    async def work() -> str:
        await held.wait()
        return "worked"

    def there(name: str, agent_id: str, values: Mapping[str, Any]) -> Agent:
        return Agent(name, by_turn(call("work"), "one", "two"), tools=[work])

    first_store, second_store = (DatabaseStore(hosts.new(name)) for name in ("first", "second"))
    async with opened(first_store, here) as first, opened(second_store, there) as second:
        running = second.spawn("desk", "a").run("go")
        await soon(held.entered.wait())
        assert await soon(first.get("a").send("More.", steer=True, message_id="m")) == "m"
        held.release.set()
        assert completed(await soon(running)).text == "one"
        state = await soon(second.get("a").state())
        assert "More." in str(state.messages)


async def test_what_is_due_wakes_an_agent_that_is_made(place: Place) -> None:
    """A11: in the next process too, where nobody asked for it yet."""
    clock, ended = SimulatedClock(), asyncio.Event()

    @tool
    async def nap(ctx: ToolContext) -> str:
        await ctx.sleep("nap", 3600)
        return "slept"

    made: list[str] = []

    def factory(name: str, agent_id: str, values: Mapping[str, Any]) -> Agent:
        made.append(agent_id)
        return Agent(name, by_turn(call("nap"), "up"), tools=[nap], middleware=[Ends(ended)])

    async with opened(place.store(), factory, clock=clock) as runtime:
        runtime.spawn("desk", "a").run("go")
        await until_status(runtime.get("a"), Status.WAITING)
    async with opened(place.store(), factory, clock=clock) as runtime:
        assert made == ["a"]
        await soon(clock.advance(3601))
        await soon(ended.wait())
        assert made == ["a", "a"]
        state = await soon(runtime.get("a").state())
        assert "slept" in str(state.messages)


async def test_what_was_begun_by_a_definition_that_is_not_made_now_is_listed(
    new_store: NewStore,
) -> None:
    """A11: `version="other"` knows the definitions of the agents that are in memory."""

    def making(version: int) -> AgentFactory:
        @tool
        def refund() -> str:
            return "refunded"

        def factory(name: str, agent_id: str, values: Mapping[str, Any]) -> Agent:
            options: dict[str, Any] = {"tools": [refund], "interrupt_on": {"refund": True}}
            return Agent(name, by_turn(call("refund"), "done"), version=version, **options)

        return factory

    async with opened(new_store(), making(1)) as old:
        interrupted(await soon(old.spawn("desk", "old").run("go")))
        assert list(await soon(old.agents(version="other"))) == []
    async with opened(new_store(), making(2)) as new:
        interrupted(await soon(new.spawn("desk", "new").run("go")))
        others = await soon(new.agents(version="other"))
        assert [each.id for each in others] == ["old"]
