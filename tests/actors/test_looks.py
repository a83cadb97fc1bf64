"""Looks at agents: they activate and claim nobody, and need no owner, on any store and host.

Rules: A6.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from tests.support.agents import (
    Held,
    by_turn,
    completed,
    desk,
    interrupted,
    told_by_users,
    until_status,
    wake,
)
from tests.support.held_commits import turns
from tests.support.hosts import host, opened
from tests.support.loops import soon, until
from tests.support.places import NewStore, Place
from tests.support.plain_store import PlainStore
from tests.support.postgres import Hosts
from understudy import (
    Agent,
    AgentRef,
    AgentState,
    Completed,
    Failed,
    Outcome,
    Paused,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    Stopped,
    ToolContext,
    approve,
    call,
    reject,
)
from understudy.actors import AgentEvent, Subscription
from understudy.actors.agent.runs import ends
from understudy.errors import (
    NotInterrupted,
    OtherAgent,
    OtherRun,
    UnknownAgent,
    UnknownMessage,
    UsageError,
)
from understudy.events import RunFinished
from understudy.journal import (
    Loaded,
    MemoryStore,
    Store,
    StoredAgent,
)

Look = Callable[[Runtime, AgentRef], Awaitable[Any]]
LOOKS: dict[str, Look] = {
    "state": lambda _, ref: ref.state(),
    "decisions": lambda _, ref: ref.decisions(),
    "outcome": lambda _, ref: ref.outcome(),
    "outcome of a message": lambda _, ref: ref.outcome(message_id="m"),
    "history": lambda _, ref: ref.history(limit=1000),
    "info": lambda _, ref: ref.info(),
    "schedules": lambda runtime, ref: runtime.schedules(ref).list(),
}


@pytest.fixture(params=LOOKS)
def look(request: pytest.FixtureRequest) -> Look:
    return LOOKS[request.param]


def paying() -> Agent:
    def pay() -> str:
        return "paid"

    return desk(call("pay"), "done", tools=[pay], interrupt_on={"pay": True})


async def epoch(store: Store, id: str = "t") -> int:
    row = await store.find_agent(id)
    assert row is not None
    return row.epoch


# ------------------------------------------------------------------ nobody is activated


async def test_a_look_at_a_passive_agent_activates_and_claims_nobody(
    place: Place, look: Look
) -> None:
    """J33: not even after a restart, and not by a second look."""
    async with opened(place.store(), paying()) as runtime:
        ref = runtime.spawn("desk", "t")
        interrupted(await soon(ref.run("go", message_id="m")))
        await soon(ref.state())  # also the record of its status is durable
        there = await soon(look(runtime, ref))
        assert await soon(ref.stop(block=False))
        assert _plain(await soon(look(runtime, ref))) == _plain(there)
        assert ref.status() is Status.PASSIVE
    store = place.store()
    async with opened(store, paying()) as runtime:
        ref, before = runtime.get("t"), await epoch(store)
        for _ in range(2):
            assert _plain(await soon(look(runtime, ref))) == _plain(there)
        assert (ref.status(), runtime.status().agents) == (Status.PASSIVE, 0)
        assert await epoch(store) == before
        await wake(ref)
        assert await epoch(store) > before, "the control: a message activates it"


def _plain(found: Any) -> Any:
    """What a look tells, without what differs between hosts."""
    if isinstance(found, AgentState):
        return found.to_dict()
    if isinstance(found, Outcome):
        return type(found), found.run_id, found.state.to_dict()
    if hasattr(found, "index_status"):
        return found.id, found.agent, found.status, found.index_status
    return found


@pytest.mark.parametrize("name", ["state", "outcome", "decisions", "info"])
async def test_of_an_agent_that_is_only_spawned_a_look_tells_what_it_begins_with(
    place: Place, name: str
) -> None:
    store = place.store()
    async with opened(store, desk("hello")) as runtime:
        ref = runtime.spawn("desk", "t", values={"shop": "Acme"})
        found = await soon(LOOKS[name](runtime, ref))
        if name == "state":
            assert found.values == {"shop": "Acme"}
        elif name == "info":
            assert (found.id, found.status, found.is_active) == ("t", Status.IDLE, False)
        else:
            assert not found
        assert await store.find_agent("t") is None, "nothing was created"
        with pytest.raises(UnknownMessage, match="'m'"):
            await soon(ref.outcome(message_id="m"))
        done = completed(await soon(ref.run("go")))
        assert done.state.values == {"shop": "Acme"}


async def test_a_look_at_nobody_is_an_error(place: Place, look: Look) -> None:
    async with opened(place.store(), desk()) as runtime:
        with pytest.raises(UnknownAgent):
            await soon(look(runtime, runtime.get("nobody")))


async def test_a_look_by_a_spawn_with_another_definition_is_refused(place: Place) -> None:
    """A9."""
    async with opened(place.store(), desk("one")) as runtime:
        await soon(runtime.spawn("desk", "t").run("go"))
    other = Agent("other", by_turn("never"))
    async with opened(place.store(), desk("one", "two"), other) as runtime:
        for look in (AgentRef.state, AgentRef.outcome):
            with pytest.raises(OtherAgent):
                await soon(look(runtime.spawn("other", "t")))
        assert completed(await soon(runtime.spawn("desk", "t").run("go"))).text == "two"


async def test_a_look_comes_after_what_was_asked_before_it(place: Place) -> None:
    async with opened(place.store(), desk("one", "two")) as runtime:
        ref = runtime.spawn("desk", "t")
        await soon(ref.run("go"))
        await soon(ref.stop(block=False))
        ref.send("and this", message_id="n")
        state, outcome = ref.state(), ref.outcome(message_id="n")
        assert "n" in (await soon(state)).message_ids
        assert completed(_some(await soon(outcome))).text == "two"


async def test_looks_need_no_definition_but_for_an_outcome(place: Place) -> None:
    async with opened(place.store(), paying()) as runtime:
        asked = interrupted(await soon(runtime.spawn("desk", "t").run("go")))
    async with opened(place.store(), Agent("other", by_turn())) as runtime:
        ref = runtime.get("t")
        assert (await soon(ref.state())).requests == asked.requests
        assert (await soon(ref.info())).status is Status.INTERRUPTED
        with pytest.raises(UsageError, match=r"'desk'.*'other'"):
            await soon(ref.outcome())


async def test_after_a_number_that_no_database_takes_there_are_no_events(place: Place) -> None:
    async with opened(place.store(), paying()) as runtime:
        await soon(runtime.spawn("desk", "t").run("go"))
    async with opened(place.store(), paying()) as runtime:
        events = runtime.get("t").events(after=1 << 70)
        reading = asyncio.create_task(_all(events))
        await until(lambda: not events.is_reading)
    assert await soon(reading) == []


class Unanswering(MemoryStore):
    """Says that its records are read, and answers nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = asyncio.Event()

    async def load_part(self, agent_id: str, after: int, limit: int) -> Loaded | None:
        self.entered.set()
        await asyncio.Event().wait()
        raise AssertionError


async def test_events_end_with_their_runtime_also_while_the_store_is_read() -> None:
    store = Unanswering()
    async with Runtime([paying()], store=store) as runtime:
        events = runtime.get("t").events()
        reading = asyncio.create_task(_all(events))
        await soon(store.entered.wait())
    assert await soon(reading) == []


async def _all(events: Subscription) -> list[AgentEvent]:
    return [event async for event in events]


class Invoice(BaseModel):
    total: float


async def test_an_outcome_from_the_store_has_its_typed_output(place: Place) -> None:
    def typed() -> Agent[Any, Invoice]:
        return Agent("desk", by_turn('{"total": 4.5}'), output_type=Invoice)

    async with opened(place.store(), typed()) as runtime:
        await soon(runtime.spawn("desk", "t").run("go"))
    async with opened(place.store(), typed()) as runtime:
        assert completed(_some(await soon(runtime.get("t").outcome()))).output == Invoice(total=4.5)
        assert runtime.status().agents == 0


async def test_who_waits_for_an_agent_whose_tool_sleeps_is_told_when_it_wakes(
    new_store: NewStore,
) -> None:
    """It is passive meanwhile, and `outcome` does not activate it."""

    async def nap(ctx: ToolContext) -> str:
        await ctx.sleep("nap", 3600)
        return "slept"

    def agent() -> Agent:
        return desk(call("nap"), "awake", tools=[nap])

    clock = SimulatedClock()
    async with opened(new_store(), agent(), clock=clock) as runtime:
        ref = runtime.spawn("desk", "t")
        await soon(ref.send("go", message_id="m"))
        await until_status(ref, Status.WAITING)
        await soon(ref.stop(block=False))
        waiting = [ref.outcome(), ref.outcome(message_id="m"), ref.outcome()]
        await soon(ref.state())
        assert (ref.status(), [each.done() for each in waiting]) == (Status.PASSIVE, [False] * 3)
        await soon(clock.advance(3600))
        assert [completed(_some(await soon(each))).text for each in waiting] == ["awake"] * 3


async def test_a_store_of_the_application_that_finds_no_agents_is_loaded() -> None:
    async with opened(PlainStore(), paying()) as runtime:
        ref = runtime.spawn("desk", "t")
        asked = interrupted(await soon(ref.run("go")))
        await soon(ref.stop(block=False))
        assert (await soon(ref.info())).status is Status.INTERRUPTED
        assert (await soon(ref.state())).requests == asked.requests
        with pytest.raises(UnknownAgent):
            await soon(runtime.get("nobody").info())


# ----------------------------------------------------------------------- of a message


async def test_the_outcome_of_a_message_is_that_of_its_run_also_after_later_ones(
    place: Place,
) -> None:
    """J14, J33."""
    async with opened(place.store(), desk("one", "two", "three")) as runtime:
        ref = runtime.spawn("desk", "t")
        for name in ("a", "b", "c"):
            await soon(ref.run("go", message_id=name))
        told = [completed(_some(await soon(ref.outcome(message_id=name)))).text for name in "abc"]
    async with opened(place.store(), desk()) as runtime:
        found = [await soon(runtime.outcome("t", message_id=name)) for name in "abc"]
        assert [completed(each).text for each in found if each] == told == ["one", "two", "three"]
        assert runtime.status().agents == 0, "from the store"
        with pytest.raises(UnknownMessage, match="'d'"):
            await soon(runtime.outcome("t", message_id="d"))
        with pytest.raises(UnknownAgent):
            await soon(runtime.outcome("nobody", message_id="a"))
        await soon(runtime.compact("t"))
        with pytest.raises(UsageError, match="compacted"):
            await soon(runtime.outcome("t", message_id="a"))
        last = await soon(runtime.outcome("t", message_id="c"))
        assert last is not None
        assert completed(last).text == "three"


async def test_who_asks_for_a_message_in_the_queue_waits_for_its_run(place: Place) -> None:
    held = Held("one")
    async with opened(place.store(), Agent("desk", ScriptedModel([held, "two"]))) as runtime:
        ref = runtime.spawn("desk", "t")
        first = ref.run("go")
        await soon(held.entered.wait())
        await soon(ref.send("later", message_id="m"))
        await soon(ref.send("no", message_id="n"))
        second, cancelled = ref.outcome(message_id="m"), ref.outcome(message_id="n")
        assert await soon(ref.cancel_message("n"))
        with pytest.raises(UnknownMessage, match="'n'"):
            await soon(cancelled)
        held.release.set()
        assert completed(await soon(first)).text == "one"
        found = await soon(second)
        assert found is not None
        assert completed(found).text == "two"
        assert not await soon(ref.cancel_message("m"))


async def test_who_waits_for_a_message_that_is_held_waits_over_a_passivation(
    new_store: NewStore,
) -> None:
    """A2: after a failure the queue waits for a newer message; a look does not start it."""
    held = Held(ValueError("no model"))

    async def fails(request: Any) -> Any:
        await held(request)
        raise ValueError("no model")

    model = ScriptedModel([fails, "well"])
    async with opened(new_store(), Agent("desk", model)) as runtime:
        ref = runtime.spawn("desk", "t")
        first = ref.run("go")
        await soon(held.entered.wait())
        await soon(ref.send("held", message_id="m"))
        held.release.set()
        assert isinstance(await soon(first), Failed)
        await soon(ref.stop(block=False))
        waiting = ref.outcome(message_id="m")
        await soon(ref.state())
        assert (waiting.done(), ref.status()) == (False, Status.PASSIVE)
        completed(await soon(ref.run("newer")))
        found = await soon(waiting)
        assert found is not None
        assert completed(found).text == "well"
        assert told_by_users(model.requests[-1])[-2:] == ["held", "newer"]


@pytest.mark.parametrize("bad", ["", 5, "\ud800"])
async def test_a_bad_id_of_a_message_or_a_run_is_refused_at_once(bad: Any) -> None:
    async with Runtime([desk()]) as runtime:
        ref = runtime.spawn("desk", "t")
        with pytest.raises(UsageError, match="message_id"):
            ref.outcome(message_id=bad)
        for name in ("cancel", "pause", "unpause", "retry"):
            with pytest.raises(UsageError, match="run_id"):
                getattr(ref, name)(run_id=bad)


# ------------------------------------------------------------------------ of one run


async def test_calls_that_name_a_run_do_nothing_to_another_one(place: Place) -> None:
    """J33: not while it runs, waits or is over."""
    held, again = Held("one"), Held("two")
    model = ScriptedModel([held, again])
    async with opened(place.store(), Agent("desk", model)) as runtime:
        ref = runtime.spawn("desk", "t")
        first = ref.run("go")
        await soon(held.entered.wait())
        run_id = _run_id(await soon(ref.state()))
        await soon(ref.pause("look", run_id=run_id))
        await soon(ref.unpause(run_id=run_id))
        for act in (ref.cancel, ref.pause, ref.unpause, ref.retry):
            with pytest.raises(OtherRun, match="'other'") as refused:
                await soon(act(run_id="other"))
            assert refused.value.open_run == run_id
        held.release.set()
        assert completed(await soon(first)).run_id == run_id

        # It is over: what it was asked to do it cannot do any more.
        assert completed(_some(await soon(ref.cancel(run_id=run_id)))).text == "one"
        assert completed(await soon(ref.retry(run_id=run_id))).text == "one"
        for act in (ref.pause, ref.unpause):
            with pytest.raises(OtherRun, match="no run is open"):
                await soon(act(run_id=run_id))

        second = ref.run("go")
        await soon(again.entered.wait())
        for act in (ref.cancel, ref.pause, ref.unpause, ref.retry):
            with pytest.raises(OtherRun):
                await soon(act(run_id=run_id))
        again.release.set()
        done = completed(await soon(second))
        assert (done.text, done.run_id == run_id) == ("two", False)
        assert isinstance(await soon(ref.cancel()), Outcome | None), "without a run none is meant"


async def test_a_cancel_that_names_the_open_run_stops_it_once(place: Place) -> None:
    held = Held("never")
    async with opened(place.store(), Agent("desk", ScriptedModel([held]))) as runtime:
        ref = runtime.spawn("desk", "t")
        run = ref.run("go")
        await soon(held.entered.wait())
        run_id = _run_id(await soon(ref.state()))
        stopped = [await soon(ref.cancel(run_id=run_id)) for _ in range(2)]
        assert [type(each) for each in (*stopped, await soon(run))] == [Stopped] * 3
        assert {each.run_id for each in stopped if each} == {run_id}


async def test_a_retry_that_names_its_run_is_made_once(place: Place) -> None:
    replies = [SystemExit("bang")] * 3
    async with opened(place.store(), Agent("desk", ScriptedModel([*replies, "cured"]))) as runtime:
        ref = runtime.spawn("desk", "t")
        failed = await soon(ref.run("go"))
        assert isinstance(failed, Failed)
        first = ref.retry(run_id=failed.run_id)
        second = ref.retry(run_id=failed.run_id)
        assert completed(await soon(first)).text == completed(await soon(second)).text == "cured"
        with pytest.raises(NotInterrupted):
            await soon(ref.retry())


async def test_an_unpause_that_names_its_run_goes_on_with_it(place: Place) -> None:
    held = Held("done")
    async with opened(place.store(), Agent("desk", ScriptedModel([held]))) as runtime:
        ref = runtime.spawn("desk", "t")
        run = ref.run("go")
        await soon(held.entered.wait())
        await soon(ref.pause("look"))
        held.release.set()
        paused = await soon(run)
        assert isinstance(paused, Paused)
        await soon(ref.unpause(run_id=paused.run_id))
        assert completed(_some(await soon(ref.outcome()))).run_id == paused.run_id


def _run_id(state: AgentState) -> str:
    assert state.run is not None
    return state.run.run_id


def _some(outcome: Outcome | None) -> Outcome:
    assert outcome is not None
    return outcome


# ------------------------------------------------------------------------ other hosts


async def test_a_look_needs_no_owner(hosts: Hosts, look: Look) -> None:
    """J33: the agent is in the memory of another host, and stays there."""
    async with (
        opened(host(hosts, "first"), paying()) as first,
        opened(host(hosts, "second"), paying()) as second,
    ):
        here, there = first.spawn("desk", "t"), second.get("t")
        asked = interrupted(await soon(here.run("go", message_id="m")))
        await soon(here.state())  # also the record of its status is durable
        assert _plain(await soon(look(second, there))) == _plain(await soon(look(first, here)))
        info = await soon(there.info())
        assert (info.host, info.is_active, there.status()) == ("first", False, Status.PASSIVE)
        completed(await soon(here.resume(asked.decide(approve()))))
        await soon(here.state())
        assert _plain(await soon(look(second, there))) == _plain(await soon(look(first, here)))
        assert (await soon(here.info())).is_active
        assert second.status().agents == 0


async def test_who_waits_at_another_host_gets_the_outcome_when_it_is_there(hosts: Hosts) -> None:
    """J33: of the run that goes on, and of a message that is queued behind it."""
    held, behind = Held("one"), Held("two")
    store, watches = host(hosts, "second"), asyncio.Event()
    find_agents = store.find_agents

    async def found(agent_ids: Collection[str]) -> Sequence[StoredAgent]:
        watches.set()
        return await find_agents(agent_ids)

    store.find_agents = found  # type: ignore[misc, method-assign]
    async with (
        opened(host(hosts, "first"), Agent("desk", ScriptedModel([held, behind]))) as first,
        opened(store, desk()) as second,
    ):
        here, there = first.spawn("desk", "t"), second.get("t")
        here.run("go", message_id="a")
        await soon(held.entered.wait())
        await soon(here.send("later", message_id="b"))
        waiting = [there.outcome(), there.outcome(message_id="a"), there.outcome(message_id="b")]
        await soon(watches.wait())  # it has read which run is under way
        assert not any(each.done() for each in waiting)
        held.release.set()
        await soon(behind.entered.wait())
        for each in waiting[:2]:  # which are told while the next run is under way
            assert completed(_some(await soon(each))).text == "one"
        behind.release.set()
        assert completed(_some(await soon(waiting[2]))).text == "two"
        assert second.status().agents == 0


async def test_who_asks_for_a_run_that_is_over_is_told_though_a_message_is_queued_behind_it(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J33: nothing of the agent changes any more, and its next run is none of the asker's."""
    monkeypatch.setattr(ends, "MAX_SELF_STARTED_RUNS", 0)

    async def again(ctx: ToolContext) -> str:
        await ctx.deps.get("t").send("more")
        return "sent"

    async with (
        opened(host(hosts, "first"), desk(call("again"), "done", tools=[again])) as first,
        opened(host(hosts, "second"), desk()) as second,
    ):
        here, there = first.spawn("desk", "t", deps=first), second.get("t")
        done = completed(await soon(here.run("go", message_id="m")))
        assert len((await soon(there.state())).queue) == 1
        for asked in (there.outcome(message_id="m"), there.outcome(), here.outcome()):
            assert completed(_some(await soon(asked))).run_id == done.run_id
        queued = there.outcome(message_id=next(iter((await soon(there.state())).queue)))
        await soon(here.run("go on"))  # whoever asks the agent starts its messages, too
        assert completed(_some(await soon(queued))).run_id != done.run_id


@pytest.mark.quick
async def test_many_who_wait_for_runs_of_one_agent_cost_no_read_each(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many reads for twelve as for three, and each gets its own outcome."""
    there, reads, may_read = host(hosts, "second"), list[str](), asyncio.Event()

    def noted(name: str) -> None:
        method = getattr(there, name)

        async def read(*given: Any) -> Any:
            reads.append(name)
            await may_read.wait()
            return await method(*given)

        monkeypatch.setattr(there, name, read)

    texts = [str(number) for number in range(13)]
    async with (
        opened(host(hosts, "first"), desk(*texts)) as first,
        opened(there, desk()) as second,
    ):
        here = first.spawn("desk", "t")
        for text in texts:
            completed(await soon(here.run("go", message_id=text)))
        noted("load_latest")
        noted("load")
        for count in (3, 12):
            may_read.clear()
            reads.clear()
            asked = [second.outcome("t", message_id=text) for text in texts[:count]]
            await turns()
            may_read.set()
            told = [completed(_some(await soon(each))).text for each in asked]
            assert told == texts[:count]
            assert reads.count("load_latest") <= 2, "those who come while it is read share the next"
            assert reads.count("load") <= 3


async def test_who_waits_for_a_run_whose_host_is_gone_has_it_continued(hosts: Hosts) -> None:
    held = Held("never")
    async with (
        opened(
            host(hosts, "first"), Agent("desk", ScriptedModel([held])), stop_timeout=0.001
        ) as first,
        opened(host(hosts, "second"), desk("done")) as second,
    ):
        here = first.spawn("desk", "t")
        here.run("go")
        await soon(held.entered.wait())
        await soon(here.state())  # that it runs is durable
        waiting = second.get("t").outcome()
        await soon(second.get("t").state())
        assert not waiting.done()
        hosts.end_lease("first")
        assert completed(_some(await soon(waiting))).text == "done"


async def test_who_waits_at_a_host_that_must_not_run_the_agent_waits_for_one_that_may(
    hosts: Hosts,
) -> None:
    """J33, J51: its host is gone, and the waiting one lacks a label."""
    held = Held("never")
    async with (
        opened(
            host(hosts, "first"),
            Agent("desk", ScriptedModel([held]), needs={"gpu"}),
            stop_timeout=0.001,
            labels={"gpu"},
        ) as first,
        opened(host(hosts, "second"), desk(needs={"gpu"})) as second,
    ):
        here = first.spawn("desk", "t")
        here.run("go")
        await soon(held.entered.wait())
        await soon(here.state())
        waiting = second.get("t").outcome()
        hosts.end_lease("first")
        await soon(second.get("t").state())
        assert not waiting.done()
        third = opened(host(hosts, "third"), desk("done", needs={"gpu"}), labels={"gpu"})
        async with third as runtime:
            await soon(runtime.recover())
            assert completed(_some(await soon(waiting))).text == "done"


@pytest.mark.quick
async def test_a_copy_that_another_host_has_gone_on_from_answers_no_look(hosts: Hosts) -> None:
    """J33: the host has not noticed that it lost the agent. Asked in turn, both tell the same."""
    agents = [desk("one", "two", "three"), desk("one", "two", "three")]
    async with (
        opened(host(hosts, "first"), agents[0]) as first,
        opened(host(hosts, "second"), agents[1]) as second,
    ):
        here, there = first.spawn("desk", "t"), second.get("t")
        completed(await soon(here.run("go", message_id="a")))
        hosts.sql("UPDATE agents SET owner = NULL WHERE agent_id = 't'")
        completed(await soon(there.run("go", message_id="b")))
        told = [completed(_some(await soon(ref.outcome()))).text for ref in (here, there)]
        assert told == ["two", "two"]
        assert "b" in (await soon(here.state())).message_ids
        assert completed(_some(await soon(here.outcome(message_id="b")))).text == "two"
        assert await soon(here.decisions()) == []


async def test_calls_that_record_nothing_are_not_answered_from_a_stale_copy(hosts: Hosts) -> None:
    """J33: whether there is a run, or a message, is not what the copy says."""
    async with (
        opened(host(hosts, "first"), paying()) as first,
        opened(host(hosts, "second"), paying()) as second,
    ):
        here, there = first.spawn("desk", "t"), second.get("t")
        asked = interrupted(await soon(here.run("go")))
        hosts.sql("UPDATE agents SET owner = NULL WHERE agent_id = 't'")
        completed(await soon(there.resume(asked.decide(reject()))))
        stopped = await soon(here.cancel())  # None, or of the run that was open for the copy
        assert stopped is None or completed(stopped).run_id == asked.run_id
        await soon(there.send("more", message_id="m"))
        assert await soon(there.outcome(message_id="m")) is not None
        assert await soon(here.cancel_message("m")) is False


async def test_two_hosts_asked_in_turn_tell_what_came_last(hosts: Hosts) -> None:
    """J33: each run ends at the other host."""
    turns = [str(number) for number in range(6)]
    async with (
        opened(host(hosts, "first"), desk(*turns)) as first,
        opened(host(hosts, "second"), desk(*turns)) as second,
    ):
        first.spawn("desk", "t")
        refs = [first.get("t"), second.get("t")]
        for number in range(6):
            assert completed(await soon(refs[number % 2].run("go"))).text == str(number)
            for ref in (*refs, *refs):
                found = _some(await soon(ref.outcome()))
                assert isinstance(found, Completed)
                assert found.text == str(number)
            hosts.sql("UPDATE agents SET owner = NULL WHERE agent_id = 't'")


async def test_who_waits_for_a_run_that_another_host_goes_on_with_gets_its_outcome(
    hosts: Hosts,
) -> None:
    """J33: its agent was passive, and a webhook that came to the other host has woken it there."""
    tokens: list[str] = []

    async def wait(ctx: ToolContext) -> Any:
        tokens.append(await ctx.token("paid"))
        return await ctx.wait_for("paid")

    def agent() -> Agent:
        return desk(call("wait"), "paid", "later", tools=[wait])

    async with (
        opened(host(hosts, "first"), agent()) as first,
        opened(host(hosts, "second"), agent()) as second,
    ):
        here, there = first.spawn("desk", "t"), second.get("t")
        run = here.run("go")
        await until_status(here, Status.WAITING)
        waiting = here.outcome()
        await soon(here.stop(block=False))
        assert await soon(second.resolve(tokens[0], "yes"))
        completed(_some(await soon(there.outcome())))
        completed(await soon(there.run("more")))
        assert completed(await soon(run)).text == completed(_some(await soon(waiting))).text
        assert completed(await soon(run)).text == "paid", "of its own run"
        assert completed(await soon(there.run("again"))).text == "done"


# ----------------------------------------------------------------------------- events


async def _numbers(events: Subscription, *, runs: int) -> list[tuple[int, str]]:
    """The numbers and kinds of the recorded events up to the end of so many runs."""
    found: list[tuple[int, str]] = []
    async with asyncio.timeout(60):
        async for event in events:
            if event.seq is not None:
                found.append((event.seq, event.event.kind))
                runs -= isinstance(event.event, RunFinished)
            if not runs:
                break
    return found


@pytest.mark.quick
async def test_events_come_to_a_host_that_does_not_own_the_agent(hosts: Hosts) -> None:
    """J34: of one that is only begun later as well, and nobody is activated for it."""
    async with (
        opened(host(hosts, "first"), desk("one", "two")) as first,
        opened(host(hosts, "second"), desk()) as second,
    ):
        followed = second.get("t").events()
        here = first.spawn("desk", "t")
        own = here.events()
        for _ in range(2):
            completed(await soon(here.run("go")))
        assert await _numbers(followed, runs=2) == await _numbers(own, runs=2)
        assert second.status().agents == 0
        late = second.get("t").events(after=3)
        assert min(await _numbers(late, runs=2))[0] > 3


async def test_events_go_on_where_the_agent_goes_to_and_fro_between_hosts(hosts: Hosts) -> None:
    """J34: no gap and no duplicate, at either host, wherever a run was."""
    turns = [call("note"), "one", "two", call("note"), "three", "four", "five", "six"]

    def note() -> str:
        return "noted"

    def agent() -> Agent:
        return desk(*turns, tools=[note])

    async with (
        opened(host(hosts, "first"), agent()) as first,
        opened(host(hosts, "second"), agent()) as second,
    ):
        first.spawn("desk", "t")
        refs = [first.get("t"), second.get("t")]
        followed = [ref.events() for ref in refs]
        for number in (0, 1, 1, 0, 1, 0):
            completed(await soon(refs[number].run("go")))
            assert await soon(refs[number].stop(block=False))
        found = [await _numbers(events, runs=6) for events in followed]
        there = first.get("t").events()
        assert found[0] == found[1] == await _numbers(there, runs=6)
        numbers = [seq for seq, _ in found[0]]
        assert numbers == sorted(numbers)
        assert len(set(found[0])) == len(found[0])


async def test_events_of_a_copy_that_another_host_has_gone_on_from_go_on(hosts: Hosts) -> None:
    """J34: the host has not noticed that it lost the agent."""
    async with (
        opened(host(hosts, "first"), desk("one", "two", "three")) as first,
        opened(host(hosts, "second"), desk("one", "two", "three")) as second,
    ):
        here, there = first.spawn("desk", "t"), second.get("t")
        followed = here.events()
        completed(await soon(here.run("go")))
        hosts.sql("UPDATE agents SET owner = NULL WHERE agent_id = 't'")
        for _ in range(2):
            completed(await soon(there.run("go")))
        assert await _numbers(followed, runs=3) == await _numbers(there.events(), runs=3)


async def test_events_end_where_the_agent_is_deleted_elsewhere(hosts: Hosts) -> None:
    async with (
        opened(host(hosts, "first"), desk("one", "two")) as first,
        opened(host(hosts, "second"), desk()) as second,
    ):
        here = first.spawn("desk", "t")
        followed = second.get("t").events()
        completed(await soon(here.run("go")))
        await _numbers(followed, runs=1)
        assert await soon(first.delete("t"))

        async def rest() -> list[AgentEvent]:
            return [event async for event in followed]

        await soon(rest())


async def test_events_end_where_an_agent_that_was_only_read_is_deleted(hosts: Hosts) -> None:
    """Its records were read when they were subscribed to; its row is gone at the first look."""
    store = host(hosts, "second")
    find, may_look = store.find_agents, asyncio.Event()

    async def find_agents(ids: Any) -> Any:
        await may_look.wait()
        return await find(ids)

    async with (
        opened(host(hosts, "first"), desk("one")) as first,
        opened(store, desk()) as second,
    ):
        completed(await soon(first.spawn("desk", "t").run("go")))
        store.find_agents = find_agents  # type: ignore[misc, method-assign, assignment]  # it waits
        followed = second.get("t").events(after=0)
        await _numbers(followed, runs=1)
        assert await soon(first.delete("t"))
        may_look.set()

        async def rest() -> list[AgentEvent]:
            return [event async for event in followed]

        await soon(rest())


async def test_nobody_asks_the_store_for_what_nobody_follows(hosts: Hosts) -> None:
    asked: list[Any] = []
    store = host(hosts, "first")
    find = store.find_agents

    async def find_agents(ids: Any) -> Any:
        asked.append(ids)
        return await find(ids)

    store.find_agents = find_agents  # type: ignore[misc, method-assign, assignment]  # it counts
    async with opened(store, desk("one", "two")) as runtime:
        ref = runtime.spawn("desk", "t")
        completed(await soon(ref.run("go")))
        assert asked == [], "a step looks at no row"
        events = ref.events()
        await until(lambda: bool(asked))
        events.close()
