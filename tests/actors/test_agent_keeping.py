"""What is done with agents in a store: told, compacted, deleted, carried elsewhere, put away.

Rules: A9.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import random
import weakref
from collections.abc import Mapping
from functools import partial
from typing import Any

import pykka
import pytest

from tests.support.agents import Held, by_turn, completed, interrupted, results, until_status, wake
from tests.support.held_commits import turns
from tests.support.hosts import opened
from tests.support.loops import soon
from tests.support.places import MemoryPlace, Place, SqlitePlace
from tests.support.refunds import ONE, TWO, desk, refund
from understudy import (
    Agent,
    AgentState,
    Completed,
    DecisionError,
    Interrupted,
    MiddlewareError,
    Runtime,
    RuntimeStopped,
    ScriptedModel,
    Status,
    Stopped,
    UnknownAgent,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.actors import AgentActor, AgentEvent, Gap, LoopActorRegistry, Subscription
from understudy.events import RunFinished
from understudy.journal import Loaded, MemoryStore
from understudy.middleware import Middleware


class Notes(Middleware):
    """Takes messages, and says when it is awake."""

    def __init__(self) -> None:
        self.woken: list[str] = []
        self.gate: Held | None = None

    async def on_start(self, actor: Any) -> None:
        self.woken.append(actor.id)

    async def on_message(self, run: Any, message: Any) -> Mapping[str, Any] | None:
        if self.gate is not None:
            await self.gate.wait()
        if message == "raise":
            raise ValueError("no such note")
        return {"notes": {message: True}} if message else None


# ------------------------------------------------------------- messages to middleware (A7)


async def test_what_middleware_is_told_is_merged_asleep_idle_and_in_the_middle_of_a_run(
    place: Place, ran: list[str]
) -> None:
    """A7: never overwritten by the run's end, nor by what its tools bring."""
    held = Held()

    @tool
    async def slow() -> Any:
        from understudy import ToolResult

        await held.wait()
        return ToolResult("ok", state={"notes": {"by tool": True}})

    def agent() -> Agent:
        return desk(ran, call("slow"), "done", tools=[slow], interrupt_on={}, middleware=[Notes()])

    async with opened(place.store(), agent()) as runtime:
        ref = runtime.spawn("desk", "t", values={"notes": {"first": True}})
        await soon(ref.notify("Notes", "idle"))
        run = ref.run("go")
        await soon(held.entered.wait())
        await soon(ref.notify("Notes", "running"))
        await soon(ref.notify("Notes", ""))  # nothing to merge
        held.release.set()
        kept = completed(await soon(run)).state.values["notes"]
        assert set(kept) == {"first", "idle", "running", "by tool"}
    async with opened(place.store(), agent()) as runtime:
        ref = runtime.get("t")
        await soon(ref.notify("Notes", "asleep"))
        assert set((await soon(ref.state())).values["notes"]) == {*kept, "asleep"}


async def test_a_message_that_middleware_cannot_take_is_the_callers_error(ran: list[str]) -> None:
    """A7: the agent is not concerned."""
    async with opened(MemoryStore(), desk(ran, "one", "two", middleware=[Notes()])) as runtime:
        ref = runtime.spawn("desk", "t")
        with pytest.raises(MiddlewareError, match="no such note"):
            await soon(ref.notify("Notes", "raise"))
        with pytest.raises(UsageError, match=r"'Notess'.*'Notes'"):
            await soon(ref.notify("Notess", "x"))
        assert completed(await soon(ref.run("go"))).text == "one"


async def test_an_agent_does_not_lie_down_before_its_middleware_has_heard(
    sqlite: SqlitePlace, ran: list[str]
) -> None:
    """A5, A7."""
    notes = Notes()
    gate = notes.gate = Held()
    async with opened(sqlite.store(), desk(ran, middleware=[notes]), idle_timeout=0.001) as runtime:
        ref = runtime.spawn("desk", "t")
        told = ref.notify("Notes", "late")
        await soon(gate.entered.wait())
        resting = ref.stop(block=False)
        await soon(runtime.agents())
        assert not told.done()
        gate.release.set()
        await soon(told)
        assert await soon(resting) is True
        assert (await soon(ref.state())).values["notes"] == {"late": True}


async def test_middleware_is_told_each_time_that_the_agent_wakes(
    place: Place, ran: list[str]
) -> None:
    """`on_start`, with the agent's ref."""
    first, second = Notes(), Notes()

    async with opened(place.store(), desk(ran, middleware=[first])) as runtime:
        ref = runtime.spawn("desk", "t")
        assert first.woken == []
        await soon(ref.run("go"))
        assert await soon(ref.stop(block=False))
        await soon(ref.run("go"))
        assert first.woken == ["t", "t"]
    async with opened(place.store(), desk(ran, middleware=[second])) as runtime:
        await wake(runtime.get("t"))
        assert second.woken == ["t"]


async def test_an_on_start_that_raises_is_told_and_tried_again(ran: list[str]) -> None:
    """As any hook, it is named."""

    class Fails(Middleware):
        ill = True

        async def on_start(self, actor: Any) -> None:
            if self.ill:
                raise ConnectionError("no desk")

    fails = Fails()
    async with opened(MemoryStore(), desk(ran, "well", middleware=[fails])) as runtime:
        ref = runtime.spawn("desk", "t")
        with pytest.raises(MiddlewareError, match=r"on_start.*'Fails'.*no desk"):
            await soon(ref.run("go"))
        fails.ill = False
        assert completed(await soon(ref.run("go"))).text == "well"


# -------------------------------------------------------------------- compacting (J17)


async def read(subscription: Subscription, *, runs: int = 1) -> list[AgentEvent]:
    """The events up to the end of so many runs."""
    events = []
    async with asyncio.timeout(60):
        async for event in subscription:
            events.append(event)
            runs -= isinstance(event.event, RunFinished)
            if not runs:
                break
    subscription.close()
    return events


async def told_until_now(subscription: Subscription) -> list[AgentEvent]:
    subscription.close()
    return [event async for event in subscription]


def whole(state: AgentState) -> dict[str, Any]:
    return state.to_dict()


@pytest.mark.quick
async def test_a_compacted_agent_is_the_same_agent(place: Place, ran: list[str]) -> None:
    """J17: requests, doubts, grants, message ids and counts survive."""

    @tool
    async def wobbles() -> str:
        raise asyncio.CancelledError

    def agent() -> Agent:
        return desk(
            ran,
            ONE,
            call("wobbles"),
            "first done",
            TWO,
            tools=[refund(ran), wobbles],
            interrupt_on={"refund": True},
        )

    def _closing(subscription: Subscription) -> Subscription:
        subscription.close()
        return subscription

    async with opened(place.store(), agent()) as runtime:
        ref = runtime.spawn("desk", "t", values={"shop": 1})
        asked = interrupted(await soon(ref.run("go", message_id="m1")))
        await soon(ref.resume(asked.decide(approve())))
        asked = interrupted(await soon(ref.run("again", message_id="m2")))
        before = whole(await soon(ref.state()))
        await soon(ref.compact())
        assert whole(await soon(ref.state())) == before
    async with opened(place.store(), agent()) as runtime:
        await soon(runtime.compact("t"))
        ref = runtime.get("t")
        assert whole(await soon(ref.state())) == before
        assert [p.request for p in await soon(runtime.pending())] == list(asked.requests)
        assert await soon(ref.send("go", message_id="m1")) == "m1"
        first, *_ = [event async for event in _closing(ref.events())]
        assert isinstance(first.event, Gap)
        assert len((await soon(runtime.export("t")))["records"]) < 10
        done = completed(await soon(ref.resume(asked.decide(approve(), approve()))))
        assert ran == ["refund 1", "refund 1", "refund 2"]
        assert len(results(done.state)) == 4


async def test_who_has_read_all_that_was_compacted_sees_no_gap(
    place: Place, ran: list[str]
) -> None:
    """J17: no gap, no duplicate, also across a compaction."""
    async with opened(place.store(), desk(ran, "one", "two")) as runtime:
        ref = runtime.spawn("desk", "t")
        await soon(ref.run("go"))
        await soon(ref.state())
        before = await told_until_now(ref.events())
        newest = max(event.seq or 0 for event in before)
        await soon(ref.compact())
    async with opened(place.store(), desk(ran, "one", "two")) as runtime:
        ref = runtime.get("t")
        assert [e for e in await told_until_now(ref.events(newest)) if e.seq] == []
        late = await told_until_now(ref.events(newest - 1))
        assert isinstance(late[0].event, Gap)
        assert (late[0].event.floor or 0) > newest


async def test_compacting_waits_for_the_run_and_keeps_who_waits_behind_it(place: Place) -> None:
    """J17: nothing else is written meanwhile."""
    held = Held("one")

    agent = Agent("desk", ScriptedModel([held, "two"]))
    async with opened(place.store(), agent) as runtime:
        ref = runtime.spawn("desk", "t")
        first = ref.run("go")
        await soon(held.entered.wait())
        compacted = ref.compact()
        second = ref.run("go on")
        held.release.set()
        assert completed(await soon(first)).text == "one"
        assert completed(await soon(second)).text == "two"
        await soon(compacted)
        assert len((await soon(ref.state())).messages) == 4


# ------------------------------------------------------------------------------ deleting


@pytest.mark.quick
async def test_a_deleted_agent_is_gone_and_its_id_begins_anew(place: Place, ran: list[str]) -> None:
    """J7: nothing of the old one reaches the new one."""
    async with opened(place.store(), desk(ran, ONE), Agent("other", by_turn("new"))) as runtime:
        ref = runtime.spawn("desk", "t", deps="shop", values={"shop": 1})
        asked = interrupted(await soon(ref.run("go", message_id="m")))
        events = ref.events()
        assert await soon(runtime.delete("t")) is True
        assert await soon(runtime.delete("t")) is False
        assert await soon(runtime.agents()) == []
        assert await soon(runtime.pending()) == []
        assert [event async for event in events], "the subscription of the old life ends"
        for future in (ref.run("hello"), ref.state(), runtime.get("t").compact()):
            with pytest.raises(UnknownAgent):
                await soon(future)

        new = runtime.spawn("other", "t")
        with pytest.raises(UsageError):
            await soon(new.resume(asked.decide(approve())))
        done = completed(await soon(new.run("hello", message_id="m")))
        assert (done.text, len(done.state.messages), dict(done.state.values)) == ("new", 2, {})
        assert (await soon(ref.state())).run is not None, "a ref speaks to an id"
    async with opened(place.store(), desk(ran, ONE), Agent("other", by_turn("new"))) as runtime:
        assert len((await soon(runtime.get("t").state())).messages) == 2
        assert await soon(runtime.delete("t")) is True
        with pytest.raises(UnknownAgent):
            await soon(runtime.get("t").run("hello"))
    assert ran == []


async def test_deleting_a_running_agent_answers_everybody(place: Place) -> None:
    """J7, J11: its run is cancelled, and none of those that wait begins."""
    held = Held()

    model = ScriptedModel([held, "never"])
    async with opened(place.store(), Agent("desk", model)) as runtime:
        ref = runtime.spawn("desk", "t")
        run, behind = ref.run("go"), ref.run("next", message_id="m")
        again = ref.run("next", message_id="m")
        await soon(held.entered.wait())
        await soon(ref.send("queued"))
        assert await soon(runtime.delete("t")) is True
        assert isinstance(await soon(run), Stopped)
        for future in (behind, again, ref.state()):
            with pytest.raises(UnknownAgent):
                await soon(future)
        assert len(model.requests) == 1


async def test_what_was_asked_right_before_a_deletion_leaves_no_agent_behind(
    place: Place, ran: list[str]
) -> None:
    """J7: the deletion comes after it, also where it has not been looked at yet."""
    async with opened(place.store(), desk(ran, "one")) as runtime:
        for _ in range(5):
            ref = runtime.spawn("desk", "t")
            run = ref.run("go")
            deleted = runtime.delete("t")
            await soon(deleted)
            assert isinstance(await soon(run), (Completed, Stopped))
            assert await soon(runtime.agents()) == []


class LateLoads(MemoryStore):
    """Its agents are loaded when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.answers = asyncio.Event()

    async def load_latest(self, agent_id: str) -> Loaded | None:
        self.asked.set()
        await self.answers.wait()
        return await super().load_latest(agent_id)


async def test_a_deletion_that_the_end_of_the_runtime_cuts_off_deletes_nothing(
    ran: list[str],
) -> None:
    """A8."""
    store = LateLoads()
    store.answers.set()
    async with Runtime([desk(ran, "one")], store=store, stop_timeout=0) as runtime:
        ref = runtime.spawn("desk", "t")
        completed(await soon(ref.run("go")))
        await soon(ref.stop(block=False))
        await until_status(ref, Status.PASSIVE)
        store.answers.clear()
        store.asked.clear()
        state = ref.run("again")
        await soon(store.asked.wait())
        deleted = runtime.delete("t")
        await turns()
    with pytest.raises(RuntimeStopped):
        await soon(state)
    with pytest.raises(UsageError, match="stopped before it answered"):
        await soon(deleted)
    assert await store.find_agent("t") is not None


async def test_an_agent_is_deleted_whose_definition_is_not_known_here(
    place: Place, ran: list[str]
) -> None:
    async with opened(place.store(), desk(ran, "one")) as runtime:
        await soon(runtime.spawn("desk", "t").run("go"))
    async with opened(place.store()) as runtime:
        ref = runtime.get("t")
        asked = ref.send("go")
        assert await soon(runtime.delete("t")) is True
        with pytest.raises(UsageError):
            await soon(asked)
        assert await soon(runtime.agents()) == []


@pytest.mark.slow
async def test_messages_that_come_while_an_agent_is_deleted_wait_in_the_inbox(
    place: Place,
) -> None:
    """What comes then is for the next agent of its id, or finds none."""
    chance = random.Random(0)
    agent = Agent("desk", ScriptedModel(lambda request: "yes"))

    async def asks(runtime: Runtime, what: str) -> None:
        for _ in range(chance.randrange(30)):
            await asyncio.sleep(0)
        with contextlib.suppress(UnknownAgent):
            if what == "run":
                await soon(runtime.spawn("desk", "t").run("go"))
            elif what == "send":
                await soon(runtime.spawn("desk", "t").send("go"))
            else:
                await soon(runtime.delete("t"))

    async with opened(place.store(), agent) as runtime:
        for _ in range(60):
            wanted = chance.choices(["run", "delete", "send"], k=5)
            await asyncio.gather(*(asks(runtime, what) for what in wanted))


# -------------------------------------------------------------------- export and import


async def test_an_imported_agent_asks_anew_and_old_answers_are_stale(
    place: Place, ran: list[str]
) -> None:
    """J5, J7."""
    async with opened(place.store(), desk(ran, TWO)) as runtime:
        asked = interrupted(await soon(runtime.spawn("desk", "t", values={"a": 1}).run("go")))
        left = await soon(runtime.get("t").resume({asked.requests[0].id: approve(always=True)}))
        assert isinstance(left, Interrupted)
        data = json.loads(json.dumps(await soon(runtime.export("t"))))
        with pytest.raises(UsageError, match="There is an agent 't'"):
            await soon(runtime.import_(data))
    async with opened(MemoryPlace().store(), desk(ran, TWO)) as elsewhere:
        ref = await soon(elsewhere.import_(data, id="u"))
        anew = interrupted(await _outcome(ref))
        assert [r.arguments for r in anew.requests] == [{"order": 1}, {"order": 2}]
        assert not {r.id for r in anew.requests} & {r.id for r in asked.requests}
        assert [(p.agent_id, p.request) for p in await soon(elsewhere.pending())] == [
            ("u", request) for request in anew.requests
        ]
        with pytest.raises(DecisionError, match="is not pending"):
            await soon(ref.resume({asked.requests[1].id: approve()}))
        done = completed(await soon(ref.resume(anew.decide(approve(), approve()))))
        assert done.state.values["a"] == 1
        assert sorted(ran) == ["refund 1", "refund 2"]


async def _outcome(ref: Any) -> Any:
    return await soon(ref.outcome())


@pytest.mark.parametrize("idempotent", [False, True], ids=["once", "idempotent"])
async def test_what_was_started_in_an_exported_agent_is_in_doubt_where_it_is_imported(
    place: Place, ran: list[str], idempotent: bool
) -> None:
    """J7: also an idempotent call may have been made, or be under way, elsewhere."""
    held = Held()

    @tool(idempotent=idempotent)
    async def slow() -> str:
        ran.append("slow")
        await held.wait()
        return "slow"

    def agent() -> Agent:
        return desk(ran, call("slow"), "went on", tools=[slow], interrupt_on={})

    async with opened(place.store(), agent()) as runtime:
        ref = runtime.spawn("desk", "t")
        run = ref.run("go")
        await soon(held.entered.wait())
        data = await soon(runtime.export("t"))
        async with opened(MemoryStore(), agent()) as elsewhere:
            there = await soon(elsewhere.import_(data))
            done = completed(await _outcome(there))
            assert [part.outcome for part in results(done.state)] == ["interrupted"]
            assert ran == ["slow"]
        held.release.set()
        assert completed(await soon(run)).text == "went on"


async def test_a_doubt_that_a_person_was_asked_about_is_still_one_where_it_is_imported(
    place: Place, ran: list[str]
) -> None:
    """J7, J5: it is asked about anew, and nothing runs again by itself."""
    held = Held()

    @tool(on_unknown="ask")
    async def slow() -> str:
        ran.append("slow")
        await held.wait()
        return "slow"

    def agent() -> Agent:
        return desk(ran, call("slow"), "went on", tools=[slow], interrupt_on={})

    async with opened(place.store(), agent()) as first:
        first.spawn("desk", "t").run("go")
        await soon(held.entered.wait())
        async with opened(place.after_crash(), agent()) as second:
            ref = second.get("t")
            asked = interrupted(await _outcome(ref))
            assert [request.kind for request in asked.requests] == ["doubt"]
            await soon(ref.state())
            data = await soon(second.export("t"))
        held.release.set()
        async with opened(MemoryStore(), agent()) as elsewhere:
            anew = interrupted(await _outcome(await soon(elsewhere.import_(data))))
            assert [request.kind for request in anew.requests] == ["doubt"]
            assert anew.requests[0].id != asked.requests[0].id
            assert ran == ["slow"]


@pytest.mark.parametrize("id", ["a/b", "", "nul\0", "\ud800", "x" * 501, 17])
async def test_an_id_that_no_store_can_keep_is_refused_at_once(id: Any, ran: list[str]) -> None:
    """The error names it, before anything runs."""
    async with opened(MemoryStore(), desk(ran, "one")) as runtime:
        data: dict[str, Any] = {}
        for attempt in (
            partial(runtime.spawn, "desk", id),
            partial(runtime.get, id),
            partial(runtime.delete, id),
            partial(runtime.export, id),
            partial(runtime.import_, data, id),
        ):
            with pytest.raises(UsageError, match="An agent's id must be text"):
                attempt()


async def test_an_export_with_an_id_that_no_store_can_keep_is_damaged(ran: list[str]) -> None:
    async with opened(MemoryStore(), desk(ran, "one")) as runtime:
        await soon(runtime.spawn("desk", "t").run("go"))
        data = {**await soon(runtime.export("t")), "agent_id": "a/b"}
        with pytest.raises(UsageError, match="a/b"):
            await soon(runtime.import_(data))
        assert [info.id for info in await soon(runtime.agents())] == ["t"]


@pytest.mark.parametrize(
    "id", [" ", "x" * 500, "\n", "ключ 🔑", "'; DROP TABLE agents; --", "%s{}"]
)
async def test_an_odd_id_is_an_id(place: Place, id: str, ran: list[str]) -> None:
    async with opened(place.store(), desk(ran, "one", "two")) as runtime:
        await soon(runtime.spawn("desk", id).run("go"))
    async with opened(place.store(), desk(ran, "one", "two")) as runtime:
        assert [info.id for info in await soon(runtime.agents())] == [id]
        assert completed(await soon(runtime.get(id).run("go"))).text == "two"


# ------------------------------------------------------------------- events across restarts


@pytest.mark.quick
async def test_events_go_on_across_restarts_without_gap_or_duplicate(
    place: Place, ran: list[str]
) -> None:
    """J17, A6: each runtime's subscriber takes up where the last one ended."""
    turns = ("one", "two", "three")
    live: list[AgentEvent] = []
    seq = 0
    for _ in turns:
        async with opened(place.store(), desk(ran, *turns)) as runtime:
            ref = runtime.spawn("desk", "t")
            subscription = ref.events(seq)
            await soon(ref.run("go"))
            await soon(ref.state())
            live += [e for e in await told_until_now(subscription) if e.seq is not None]
            seq = live[-1].seq or 0
    async with opened(place.store(), desk(ran, *turns)) as runtime:
        kept = [e for e in await told_until_now(runtime.get("t").events()) if e.seq is not None]
        assert kept[: len(live)] == live
        seqs = [event.seq for event in kept]
        assert seqs == sorted(seqs, key=lambda each: each or 0)
        for after in seqs:
            later = await told_until_now(runtime.get("t").events(after or 0))
            assert [e for e in later if e.seq] == [e for e in kept if (e.seq or 0) > (after or 0)]


async def test_who_subscribes_to_an_agent_asleep_hears_what_it_does_later(
    place: Place, ran: list[str]
) -> None:
    """A6: also where nobody keeps its ref, and across its falling asleep and waking."""
    async with opened(place.store(), desk(ran, "one")) as runtime:
        await soon(runtime.spawn("desk", "t").run("go"))
    async with opened(place.store(), desk(ran, "one", "two", "three")) as runtime:
        newest = (await told_until_now(runtime.get("t").events()))[-1].seq
        assert newest is not None
        subscription = runtime.get("t").events(newest)
        gc.collect()
        await soon(runtime.get("t").run("go"))
        await soon(runtime.get("t").stop(block=False))
        gc.collect()
        await soon(runtime.get("t").run("go"))
        events = await read(subscription, runs=2)
        assert [e.event.outcome for e in events if isinstance(e.event, RunFinished)] == [
            "completed",
            "completed",
        ]


# ------------------------------------------------------------------------- put away (A5)


async def test_who_waits_goes_on_waiting_while_the_agent_lies_passive(
    place: Place, ran: list[str]
) -> None:
    """A5: by `stop`, with a run in its middle and another one behind it."""
    held = Held()

    @tool
    async def slow() -> str:
        await held.wait()
        return "slow"

    agent = desk(ran, call("slow"), "one", "two", tools=[slow], interrupt_on={})
    async with opened(place.store(), agent) as runtime:
        ref = runtime.spawn("desk", "t", deps="kept")
        run, behind = ref.run("go"), ref.run("next", message_id="m")
        await soon(held.entered.wait())
        resting = ref.stop(block=False)
        held.release.set()
        assert await soon(resting) is True
        again = ref.run("next", message_id="m")
        assert completed(await soon(run)).text == "one"
        assert completed(await soon(behind)).text == "two"
        assert completed(await soon(again)).run_id == completed(await soon(behind)).run_id


@pytest.mark.slow
async def test_a_thousand_agents_run_and_leave_nothing_in_memory(sqlite: SqlitePlace) -> None:
    """Passive ones cost nothing."""
    agent = Agent("desk", ScriptedModel(lambda _: "ok"))
    async with opened(sqlite.store(), agent, idle_timeout=0.001) as runtime:
        refs = [runtime.spawn("desk", f"a{number}") for number in range(1000)]
        for run in [ref.run("go") for ref in refs]:
            assert isinstance(await soon(run), Completed)
        for ref in refs:
            await until_status(ref, Status.PASSIVE)
            await soon(ref.stop(block=False))
        weak = [weakref.ref(ref) for ref in refs]
        cells = [weakref.ref(ref._slot) for ref in refs]
        del refs, ref, run
        while runtime.status().agents:
            await soon(runtime.delete("nobody"))  # a round trip to the store
        await soon(runtime.agents())  # behind what subscribers wanted to read
        gc.collect()
        assert [ref() for ref in weak] == [None] * 1000
        assert [cell() for cell in cells] == [None] * 1000
        assert LoopActorRegistry.get_by_class(AgentActor) == []
        assert len(await soon(runtime.agents())) == 1000
        assert completed(await soon(runtime.get("a17").run("go"))).text == "ok"


# --------------------------------------------------------- nobody is left waiting (A8)


async def test_whoever_waits_when_the_runtime_stops_is_told(place: Place) -> None:
    """A8: each future is settled, whatever it waits for."""
    held = Held()

    notes = Notes()
    agent = Agent("desk", ScriptedModel([held]), middleware=[notes])
    async with opened(place.store(), agent) as runtime:
        ref = runtime.spawn("desk", "t")
        futures: list[Any] = [ref.run("go", message_id="m"), ref.run("go", message_id="m")]
        await soon(held.entered.wait())
        notes.gate = Held()
        futures += [ref.notify("Notes", "x"), ref.compact(), ref.outcome(), ref.run("next")]
        await soon(notes.gate.entered.wait())
        futures += [ref.cancel(), runtime.delete("t"), runtime.delete("none")]
        futures += [runtime.pending(), runtime.agents(), runtime.recover(), runtime.export("t")]
    for future in futures:
        with contextlib.suppress(pykka.ActorDeadError, UsageError):
            await soon(future)
