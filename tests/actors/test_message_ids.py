"""The ids of messages: how many an agent keeps in memory, and who answers for older ones (J14)."""

from __future__ import annotations

import gc
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.agents import completed
from tests.support.loops import soon
from tests.support.places import Place, SqlitePlace
from understudy import Agent, AgentRef, AgentState, Runtime, ScriptedModel
from understudy.actors.agent import message_ids
from understudy.errors import UnknownMessage, UsageError
from understudy.journal import DatabaseStore, MemoryStore, Store
from understudy.testing import FaultyBackend


def counting() -> Agent:
    """Its n-th model call answers with n."""
    numbers = itertools.count(1)
    return Agent("counter", ScriptedModel(lambda _: str(next(numbers))))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ids of few messages stay in the state."""
    monkeypatch.setattr(message_ids, "KEPT", 3)
    monkeypatch.setattr(message_ids, "AT_ONCE", 2)
    monkeypatch.setattr(message_ids, "KEPT_FOR", message_ids.KEPT_FOR * 0)


@asynccontextmanager
async def counter(store: Store, *, runs: int = 0) -> AsyncIterator[tuple[Runtime, AgentRef]]:
    """An agent with so many runs more, the n-th by the message `m<n>`."""
    async with Runtime([counting()], store=store) as runtime:
        ref = runtime.spawn("counter", "t")
        for number in range(1, runs + 1):
            assert completed(await soon(ref.run("go", message_id=f"m{number}"))).text == str(number)
        yield runtime, ref


def kept_states() -> int:
    gc.collect()
    return sum(isinstance(each, AgentState) for each in gc.get_objects())


@pytest.mark.parametrize("how", ["run", "send"])
@pytest.mark.slow
async def test_a_busy_agent_keeps_no_state_of_a_run_that_is_over(how: str) -> None:
    async with counter(MemoryStore()) as (_, ref):

        async def go(id: str) -> None:
            if how == "send":
                await soon(ref.send("go", message_id=id))
                await soon(ref.outcome(message_id=id))
            else:
                await soon(ref.run("go", message_id=id))

        await go("first")
        before = kept_states()
        for number in range(100):
            await go(f"m{number}")
        assert kept_states() <= before + 2


async def test_an_old_message_that_is_sent_again_brings_the_outcome_of_its_run(
    place: Place, few: None
) -> None:
    """J14: its id is in the store alone, also for the next runtime, and where it is passive."""
    async with counter(place.store(), runs=12) as (_, ref):
        state = await soon(ref.state())
        assert state.has_archive
        assert "m1" not in state.message_ids
        assert len(state.message_ids) <= 5
        assert completed(await soon(ref.run("go", message_id="m1"))).text == "1"
        assert await soon(ref.send("go", message_id="m2")) == "m2"
        found = await soon(ref.outcome(message_id="m3"))
        assert found is not None
        assert completed(found).text == "3"
        assert not await soon(ref.cancel_message("m4"))
        with pytest.raises(UnknownMessage):
            await soon(ref.outcome(message_id="other"))
        await soon(ref.stop(block=False))
        found = await soon(ref.outcome(message_id="m5"))
        assert found is not None
        assert completed(found).text == "5"
    async with counter(place.store()) as (_, ref):
        assert completed(await soon(ref.run("go", message_id="m6"))).text == "6"
        assert await soon(ref.send("go", message_id="m7")) == "m7"
        assert completed(await soon(ref.run("go", message_id="new"))).text == "1"
        assert len([m for m in (await soon(ref.state())).messages if m.kind == "response"]) == 13


async def test_what_is_asked_for_behind_a_message_that_is_looked_up_is_done_behind_it(
    place: Place, few: None
) -> None:
    async with counter(place.store(), runs=8) as (_, ref):
        futures = [ref.run("go", message_id=id) for id in ("a", "m1", "b", "m2", "c")]
        sent = ref.send("go", message_id="d")
        texts = [completed(await soon(future)).text for future in futures]
        assert texts == ["9", "1", "10", "2", "11"]
        assert await soon(sent) == "d"


@pytest.mark.quick
async def test_a_message_id_is_one_message_also_where_its_records_are_compacted_away(
    place: Place, few: None
) -> None:
    """J14: a `UsageError` that says so, and no second run."""
    async with counter(place.store(), runs=8) as (runtime, ref):
        await soon(ref.compact())
        for _ in range(2):
            with pytest.raises(UsageError, match="compacted away"):
                await soon(ref.run("go", message_id="m1"))
            assert await soon(ref.send("go", message_id="m1")) == "m1"
        exported = await soon(runtime.export("t"))
        await soon(runtime.delete("t"))
        await soon(runtime.import_(exported))
        with pytest.raises(UsageError, match="compacted away"):
            await soon(runtime.get("t").run("go", message_id="m1"))
        assert len([m for m in (await soon(ref.state())).messages if m.kind == "response"]) == 8


async def test_the_message_ids_of_a_deleted_agent_are_free(place: Place, few: None) -> None:
    async with counter(place.store(), runs=8) as (runtime, ref):
        await soon(runtime.delete("t"))
        ref = runtime.spawn("counter", "t")
        assert completed(await soon(ref.run("go", message_id="m1"))).text == "9"
        assert not (await soon(ref.state())).has_archive


async def test_a_message_whose_id_cannot_be_looked_up_is_refused(
    sqlite: SqlitePlace, few: None
) -> None:
    backend = FaultyBackend(sqlite.backend())
    store = DatabaseStore(backend, patience=0.0)
    async with counter(store, runs=8) as (_, ref):
        backend.fail("message_runs", times=1)
        refused, done = ref.run("go", message_id="m1"), ref.run("go", message_id="new")
        with pytest.raises(Exception, match="the test says so"):
            await soon(refused)
        assert completed(await soon(done)).text == "9"
        assert completed(await soon(ref.run("go", message_id="m1"))).text == "1"


@pytest.mark.parametrize("id", ["", "x" * 501, "a\0b", "\ud800"])
async def test_a_message_id_that_no_store_could_index_is_refused(id: str) -> None:
    async with Runtime([counting()]) as runtime:
        ref = runtime.spawn("counter", "t")
        for use in (ref.run, ref.send):
            with pytest.raises(UsageError, match="message_id"):
                use("go", message_id=id)
