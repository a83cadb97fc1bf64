"""Agents that wake from a checkpoint are those that wake from their records (J32)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import ModelMessagesTypeAdapter

from tests.support.agents import by_turn, completed, interrupted, until_status, wake
from tests.support.loops import soon
from tests.support.places import Place, SqlitePlace
from understudy import (
    Agent,
    AgentRef,
    AgentState,
    Completed,
    Interrupted,
    Run,
    Runtime,
    ScriptedModel,
    Status,
    approve,
    call,
    tool,
)
from understudy.actors import Observer
from understudy.journal import DatabaseStore, Loaded, Store, replay
from understudy.middleware import Middleware, ModelInput, SubAgent

STEPS, FEW = 30, 8
"""Steps of a run with, and without, a checkpoint at the end."""


@tool
async def note(what: str) -> str:
    return f"noted {what}"


@tool
async def pay(amount: int) -> str:
    return f"paid {amount}"


def desk(*turns: Any, **options: Any) -> Agent:
    return Agent("desk", by_turn(*turns), tools=[note, pay], interrupt_on={"pay": True}, **options)


def notes(count: int) -> list[Any]:
    return [call("note", {"what": f"thing {number}"}) for number in range(count)]


def opened(store: Store, *agents: Agent, **options: Any) -> Runtime:
    options.setdefault("idle_timeout", None)
    return Runtime(agents, store=store, **options)


async def passive(ref: AgentRef, store: Store) -> None:
    """Return when the agent has left memory, and what it leaves is in the store."""
    await until_status(ref, Status.PASSIVE)
    assert await soon(store.claim("nobody", None)) is None


async def folded(store: Store, id: str = "a") -> AgentState:
    """The fold of all its records."""
    loaded = await soon(store.load(id))
    assert loaded is not None
    return replay(loaded.records)


async def newest(store: Store, id: str = "a") -> Loaded:
    """What it wakes from."""
    assert isinstance(store, DatabaseStore)
    loaded = await soon(store.load_latest(id))
    assert loaded is not None
    return loaded


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A line for each time that messages were decoded."""
    lines: list[str] = []
    adapter = ModelMessagesTypeAdapter
    whole = adapter.validate_json

    def noted(data: Any, **options: Any) -> Any:
        lines.append("decoded")
        return whole(data, **options)

    monkeypatch.setattr(adapter, "validate_json", noted)
    return lines


@pytest.mark.quick
async def test_an_agent_wakes_from_a_checkpoint_as_from_its_records(place: Place) -> None:
    """J32."""
    async with opened(place.store(), desk(*notes(STEPS))) as runtime:
        before = completed(await soon(runtime.spawn("desk", id="a").run("go"))).state
    store = place.store()
    async with opened(store, desk(*notes(STEPS), "done", "and so it is")) as runtime:
        ref = runtime.get("a")
        state = await soon(ref.state())
        assert state.to_dict() == (await folded(store)).to_dict()
        assert state.messages == before.messages
        again = await soon(ref.run("and?"))
    assert completed(again).text == "and so it is"
    assert len(completed(again).state.messages) == len(before.messages) + 2


async def test_waking_decodes_no_message_before_one_is_looked_at(
    sqlite: SqlitePlace, decoded: list[str]
) -> None:
    """J32. Status, requests, the outcome and what is recorded beside the conversation."""
    turns = [*notes(STEPS), call("pay", {"amount": 5})]
    async with opened(sqlite.store(), desk(*turns)) as runtime:
        interrupted(await soon(runtime.spawn("desk", id="a").run("go")))
    store = sqlite.store()
    async with opened(store, desk(*turns), idle_timeout=0.001) as runtime:
        assert (await newest(store)).checkpoint is not None
        assert [request.agent_id for request in await soon(runtime.pending())] == ["a"]
        ref = runtime.get("a")
        outcome = await soon(ref.outcome())
        assert isinstance(outcome, Interrupted)
        assert [request.tool_name for request in outcome.requests] == ["pay"]
        state = await soon(ref.state())
        assert len(state.messages) == 2 * STEPS + 2
        assert (state.status, list(state.decisions), state.run is not None) == (
            "interrupted",
            [],
            True,
        )
        await passive(ref, store)
        await soon(ref.outcome())
        assert decoded == []
        assert state.messages[0] == (await folded(store)).messages[0]
        assert decoded == ["decoded"]
        done = await soon(ref.resume({outcome.requests[0].id: approve()}))
    assert completed(done).text == "done"


async def test_an_observer_reads_a_state_from_its_checkpoint(
    sqlite: SqlitePlace, decoded: list[str]
) -> None:
    """J32."""
    async with opened(sqlite.store(), desk(*notes(STEPS))) as runtime:
        done = completed(await soon(runtime.spawn("desk", id="a").run("go")))
    async with Observer(DatabaseStore(sqlite.backend())) as observer:
        state = await soon(observer.state("a"))
        assert decoded == []
        assert state.messages == done.state.messages
        assert (await soon(observer.history("a"))).entries


async def test_an_agent_with_few_records_never_has_a_checkpoint(sqlite: SqlitePlace) -> None:
    """J32. It costs nothing where it brings nothing."""
    store = sqlite.store()
    async with opened(store, desk(*notes(FEW)), idle_timeout=0.001) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.run("go"))
        await passive(ref, store)
        loaded = await newest(store)
        assert loaded.checkpoint is None
        assert loaded.first_seq == 1


@pytest.mark.slow
async def test_one_that_passivates_again_and_again_is_read_from_near_its_end(
    sqlite: SqlitePlace,
) -> None:
    """J32. Each activation adds to the checkpoints of those before."""
    store = sqlite.store()
    model = ScriptedModel(lambda _: "hello again")
    async with opened(store, Agent("desk", model), idle_timeout=0.001) as runtime:
        ref = runtime.spawn("desk", id="a")
        for number in range(40):
            await soon(ref.run(f"hello {number}"))
            await passive(ref, store)
        loaded = await newest(store)
        assert loaded.checkpoint is not None
        assert len(loaded.records) < 80 < loaded.agent.last_seq
        assert loaded.folded() == await folded(store)


async def test_what_a_crash_leaves_in_the_middle_of_a_run_wakes_from_its_checkpoint(
    place: Place,
) -> None:
    """J32."""
    turns = [*notes(120), call("pay", {"amount": 5})]
    async with opened(place.store(), desk(*turns, max_runs=150)) as runtime:
        waiting = interrupted(await soon(runtime.spawn("desk", id="a").run("go")))
        store = place.after_crash()
        async with opened(store, desk(*turns, max_runs=150), stop_timeout=0.1) as other:
            state = await soon(other.get("a").state())
            assert state.messages == waiting.state.messages
            if isinstance(store, DatabaseStore):
                loaded, whole = await newest(store), await soon(store.load("a"))
                assert loaded.checkpoint is not None
                assert whole is not None
                # Its status may be recorded in between.
                assert loaded.folded() == replay(whole.records[: loaded.agent.last_seq])
            answer = {waiting.requests[0].id: approve()}
            assert completed(await soon(other.get("a").resume(answer))).text == "done"


async def test_a_compacted_agent_gets_a_checkpoint_when_it_is_worth_one(
    sqlite: SqlitePlace, decoded: list[str]
) -> None:
    """J32. A snapshot is one record, and holds all messages."""
    store = sqlite.store()
    async with opened(store, desk(*notes(STEPS * 2), max_runs=100), idle_timeout=0.001) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.run("go"))
        await passive(ref, store)
        assert (await newest(store)).checkpoint is not None
        await soon(runtime.compact("a"))
        assert (await newest(store)).checkpoint is None
        before = await soon(ref.state())
        await wake(ref)
        await passive(ref, store)
        loaded = await newest(store)
        assert loaded.checkpoint is not None
        assert not loaded.records
        assert loaded.folded().to_dict() == before.to_dict()


async def test_nothing_of_a_deleted_agent_wakes_with_the_next_one_of_its_id(
    place: Place,
) -> None:
    """J32."""
    store = place.store()
    async with opened(store, desk(*notes(STEPS)), idle_timeout=0.001) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.run("go"))
        await passive(ref, store)
        assert await soon(runtime.delete("a"))
        again = runtime.spawn("desk", id="a")
        assert len((await soon(again.state())).messages) == 0
        await soon(again.run("go"))
        await passive(ref, store)
        assert len((await soon(again.state())).messages) == 2 * STEPS + 2


@pytest.mark.slow
async def test_a_middleware_that_replaces_the_history_wakes_with_the_new_one(
    sqlite: SqlitePlace,
) -> None:
    """J32."""

    class Forgets(Middleware):
        async def before_model(self, run: Run, request: ModelInput) -> None:
            if len(request.messages) > 20:
                await run.replace_history(request.messages[:1])

    store = sqlite.store()
    numbers = iter(range(10_000))

    def reply(_: Any) -> Any:
        number = next(numbers)
        return call("note", {"what": str(number)}) if number % 100 < 99 else "done"

    agent = Agent("desk", ScriptedModel(reply), tools=[note], middleware=[Forgets()], max_runs=200)
    async with opened(store, agent, idle_timeout=0.001) as runtime:
        ref = runtime.spawn("desk", id="a")
        for _ in range(3):
            await soon(ref.run("go"))
            await passive(ref, store)
            loaded = await newest(store)
            assert loaded.checkpoint is not None
            assert loaded.folded().to_dict() == (await folded(store)).to_dict()


async def test_an_agent_with_agents_inside_wakes_with_them(sqlite: SqlitePlace) -> None:
    """J32."""
    inner = Agent(
        "inner",
        by_turn(*notes(STEPS), call("pay", {"amount": 5})),
        "Notes things.",
        tools=[note, pay],
        interrupt_on={"pay": True},
    )
    turns = [*notes(STEPS), call("task", {"task_name": "inner", "instructions": "note it"})]
    outer = Agent("desk", by_turn(*turns), tools=[note], middleware=[SubAgent([inner])])
    async with opened(sqlite.store(), outer) as runtime:
        asked = interrupted(await soon(runtime.spawn("desk", id="a").run("go")))
    store = sqlite.store()
    async with opened(store, outer) as runtime:
        loaded = await newest(store)
        assert loaded.checkpoint is not None
        assert loaded.folded().to_dict() == (await folded(store)).to_dict()
        answer = {asked.requests[0].id: approve()}
        assert isinstance(await soon(runtime.get("a").resume(answer)), Completed)
