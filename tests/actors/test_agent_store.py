"""Agents in a store: found again by another runtime, as they stood; nothing is lost or repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic_ai.messages import UserPromptPart

from tests.support.agents import (
    Held,
    assert_valid_history,
    by_turn,
    completed,
    interrupted,
    quarantined,
    results,
    until_status,
    wake,
)
from tests.support.hosts import opened
from tests.support.loops import soon
from tests.support.places import Place
from tests.support.plans import outcome_of
from tests.support.refunds import ONE, TWO, desk, refund
from understudy import (
    Agent,
    AgentRef,
    AgentState,
    Failed,
    NotInterrupted,
    Paused,
    Run,
    Runtime,
    ScriptedModel,
    Status,
    Stopped,
    ToolContext,
    UsageError,
    approve,
    call,
    reject,
    tool,
)
from understudy.journal import Store
from understudy.middleware import Middleware, SubAgent


def told(state: AgentState) -> list[list[str]]:
    """What the user said, message by message."""
    said = [
        [str(part.content) for part in message.parts if isinstance(part, UserPromptPart)]
        for message in state.messages
    ]
    return [texts for texts in said if texts]


# ------------------------------------------------------------------------- found again


async def test_an_agent_goes_on_with_its_conversation_in_another_runtime(
    place: Place, ran: list[str]
) -> None:
    """An id is enough to reach it."""
    async with opened(place.store(), desk(ran, "one", "two")) as runtime:
        ref = runtime.spawn("desk", "t", values={"shop": "Kettles"})
        assert completed(await soon(ref.run("first"))).text == "one"
    async with opened(place.store(), desk(ran, "one", "two")) as runtime:
        ref = runtime.get("t")
        assert ref.status() is Status.PASSIVE
        outcome = completed(await soon(ref.run("second")))
        assert outcome.text == "two"
        assert outcome.state.values["shop"] == "Kettles"
        assert len(outcome.state.messages) == 4


@pytest.mark.quick
async def test_an_interrupted_agent_is_listed_at_once_asleep_and_goes_on_by_its_old_request(
    place: Place, ran: list[str]
) -> None:
    """I10, J5."""
    async with opened(place.store(), desk(ran, TWO)) as runtime:
        asked = interrupted(await soon(runtime.spawn("desk", "t").run("go")))
    async with opened(place.store(), desk(ran, TWO)) as runtime:
        listed = await soon(runtime.pending())
        assert [(p.agent_id, p.request) for p in listed] == [("t", r) for r in asked.requests]
        ref = runtime.get("t")
        assert ref.status() is Status.PASSIVE, "to list wakes nobody"
        assert interrupted(await outcome_of(ref)).requests == asked.requests
        assert ref.status() is Status.PASSIVE, "nor does a look"
        assert (await soon(ref.info())).status is Status.INTERRUPTED
        done = completed(await soon(ref.resume(asked.decide(approve(), reject()))))
        assert [part.outcome for part in results(done.state)] == ["success", "denied"]
        assert ran == ["refund 1"]


@pytest.mark.quick
async def test_a_run_that_was_cut_off_goes_on_when_it_is_recovered(
    place: Place, ran: list[str]
) -> None:
    """J3, J4, J10: what had finished is not repeated; what was begun is in doubt."""
    held = Held()

    @tool(sequential=True)
    async def quick() -> str:
        ran.append("quick")
        return "quick"

    @tool
    async def slow() -> str:
        ran.append("slow")
        await held.wait()
        return "slow"

    def agent() -> Agent:
        return desk(ran, [call("quick"), call("slow")], "went on", tools=[refund(ran), quick, slow])

    async with opened(place.store(), agent()) as first:
        run = first.spawn("desk", "t").run("go")
        await soon(held.entered.wait())
        async with opened(place.after_crash(), agent()) as second:
            (ref,) = await soon(second.recover())
            assert ref.id == "t"
            done = completed(await outcome_of(ref))
            assert done.text == "went on"
            assert [part.outcome for part in results(done.state)] == ["success", "interrupted"]
            assert ran == ["quick", "slow"]
            assert_valid_history(done.state)
    assert run.done(), "whoever waited in the runtime that is gone is told"


async def test_a_sub_agent_that_asks_is_found_again_where_it_stood(
    place: Place, ran: list[str]
) -> None:
    """J11, S5: the same child goes on."""

    def boss() -> Agent:
        child = Agent(
            "helper", by_turn(ONE, "child says"), tools=[refund(ran)], interrupt_on={"refund": True}
        )
        return Agent(
            "desk",
            by_turn(call("task", {"task_name": "helper", "instructions": "do"}), "boss says"),
            middleware=[SubAgent(agents=[child], general_purpose=False)],
        )

    async with opened(place.store(), boss()) as runtime:
        asked = interrupted(await soon(runtime.spawn("desk", "t").run("go")))
    async with opened(place.store(), boss()) as runtime:
        ((pending),) = await soon(runtime.pending())
        assert pending.request == asked.requests[0]
        assert pending.request.agent_path == ("desk", "helper")
        done = completed(await soon(runtime.get("t").resume(asked.decide(approve()))))
        assert done.text == "boss says"
        assert results(done.state)[0].content == "child says"
        assert ran == ["refund 1"]


# --------------------------------------------------------------------- answers (J5, J14)


async def test_a_decision_given_again_after_a_restart_is_the_same_run_and_another_one_is_refused(
    place: Place, ran: list[str]
) -> None:
    """J5."""
    async with opened(place.store(), desk(ran, TWO)) as runtime:
        ref = runtime.spawn("desk", "t")
        asked = interrupted(await soon(ref.run("go")))
        one, two = asked.requests
        left = interrupted(await soon(ref.resume({one.id: approve()})))
        assert left.requests == (two,)
    async with opened(place.store(), desk(ran, TWO)) as runtime:
        ref = runtime.get("t")
        assert interrupted(await soon(ref.resume({one.id: approve()}))).requests == (two,)
        with pytest.raises(NotInterrupted):
            await soon(ref.resume({one.id: reject()}))
        done = completed(await soon(ref.resume({two.id: approve()})))
    async with opened(place.store(), desk(ran, TWO)) as runtime:
        ref = runtime.get("t")
        again = completed(await soon(ref.resume({one.id: approve(), two.id: approve()})))
        assert (again.run_id, again.text) == (done.run_id, done.text)
        with pytest.raises(NotInterrupted):
            await soon(ref.resume({two.id: reject()}))
        assert sorted(ran) == ["refund 1", "refund 2"]


async def test_a_message_id_is_one_message_across_restarts(place: Place, ran: list[str]) -> None:
    """J14."""
    async with opened(place.store(), desk(ran, "one", "two")) as runtime:
        ref = runtime.spawn("desk", "t")
        first = completed(await soon(ref.run("go", message_id="m1")))
    async with opened(place.store(), desk(ran, "one", "two")) as runtime:
        ref = runtime.get("t")
        again = completed(await soon(ref.run("go", message_id="m1")))
        assert (again.run_id, again.text) == (first.run_id, "one")
        assert await soon(ref.send("go", message_id="m1")) == "m1"
        second = completed(await soon(ref.run("go on", message_id="m2")))
        assert second.text == "two"
        assert len(second.state.messages) == 4
        earlier = completed(await soon(ref.run("go", message_id="m1")))
        assert (earlier.run_id, earlier.text) == (first.run_id, "one")
        assert len(earlier.state.messages) == 2


@pytest.mark.quick
async def test_queued_messages_come_back_in_order(place: Place) -> None:
    """A2, J14: they are acknowledged, so they are there."""
    held = Held("first")

    def agent() -> Agent:
        return Agent("desk", ScriptedModel([held, "second"]))

    async with opened(place.store(), agent()) as first:
        ref = first.spawn("desk", "t")
        ref.run("zero")
        await soon(held.entered.wait())
        for number in range(3):
            await soon(ref.send(f"message {number}", message_id=f"m{number}"))
        async with opened(place.after_crash(), Agent("desk", by_turn())) as second:
            found = second.get("t")
            assert completed(await outcome_of(found)).text == "done"
            assert list((await soon(found.state())).queue) in ([], ["m0", "m1", "m2"])
            await until_status(found, Status.IDLE)
            state = await soon(found.state())
            assert told(state) == [["zero"], ["message 0", "message 1", "message 2"]]
            assert not state.queue


# ------------------------------------------------------------------------ how it stands


@pytest.mark.parametrize("how", ["failed", "cancelled"])
@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "crashed"])
async def test_an_agent_that_failed_or_was_cancelled_stays_so_and_holds_its_queue(
    place: Place, how: str, crash: bool
) -> None:
    """A1, A2: also where the process ends before the status itself is recorded."""
    held = Held()

    def agent(*replies: Any) -> Agent:
        return Agent("desk", ScriptedModel([*replies]))

    async def _found(store: Store, how: str) -> None:
        async with opened(store, agent("well again")) as second:
            assert await soon(second.recover()) == []
            found = second.get("t")
            assert list((await soon(found.state())).queue) == ["m"]
            await wake(found)
            assert found.status() is Status(how)
            done = completed(await soon(found.run("newer")))
            assert told(done.state)[-1] == ["held", "newer"]

    async with opened(place.store(), agent(_waits(held))) as first:
        ref = first.spawn("desk", "t")
        run = ref.run("go")
        await soon(held.entered.wait())
        await soon(ref.send("held", message_id="m"))
        if how == "cancelled":
            assert isinstance(await soon(ref.cancel()), Stopped)
        else:
            held.release.set()
            assert isinstance(await soon(run), Failed)
        store = place.after_crash() if crash else None
        if store is not None:
            await _found(store, how)
    if not crash:
        await _found(place.store(), how)


def _waits(held: Held) -> Any:
    async def reply(_: object) -> Any:
        await held.wait()
        return ValueError("no model")

    return reply


async def test_the_count_of_model_calls_goes_on_across_restarts(
    place: Place, ran: list[str]
) -> None:
    """R2, R1: `max_runs=2` allows exactly two calls, however often it is woken."""

    def agent() -> Agent:
        return desk(ran, ONE, call("refund", {"order": 2}), "never said")

    async with opened(place.store(), agent()) as runtime:
        ref = runtime.spawn("desk", "t")
        asked = interrupted(await soon(ref.run("go", max_runs=2)))
        used = asked.usage.requests
    async with opened(place.store(), agent()) as runtime:
        asked = interrupted(await soon(runtime.get("t").resume(asked.decide(approve()))))
        assert asked.usage.requests == used + 1
    async with opened(place.store(), agent()) as runtime:
        failed = await soon(runtime.get("t").resume(asked.decide(approve())))
        assert isinstance(failed, Failed)
        assert failed.usage.requests == 2
        assert ran == ["refund 1", "refund 2"]


async def test_a_quarantine_outlives_the_runtime_and_only_retry_ends_it(
    place: Place, ran: list[str]
) -> None:
    """J10: messages, `recover` and who asks for the outcome do not wake it."""

    def sick(_: object) -> Any:
        ran.append("asked")
        return SystemExit("bang")

    async with opened(place.store(), Agent("desk", ScriptedModel(sick))) as runtime:
        quarantined(await soon(runtime.spawn("desk", "t").run("go")))
        assert ran == ["asked"] * 3
    async with opened(place.store(), Agent("desk", ScriptedModel(sick))) as runtime:
        assert await soon(runtime.recover()) == []
        ref = runtime.get("t")
        quarantined(await outcome_of(ref))
        quarantined(await soon(ref.run("wake up")))
        await soon(ref.send("later"))
        await soon(ref.unpause())
        assert ref.status() is Status.FAILED
        assert ran == ["asked"] * 3
    async with opened(place.store(), Agent("desk", by_turn("cured"))) as runtime:
        ref = runtime.get("t")
        assert completed(await soon(ref.retry())).text == "cured"


async def test_a_quarantined_run_that_has_requests_shows_as_failed_after_a_restart(
    place: Place, ran: list[str]
) -> None:
    """J10: one answer of two was given, and the run crashed by it again and again."""

    class Sick(Middleware):
        async def on_resume(self, run: Run, decisions: Any) -> None:
            raise SystemExit("bang")

    async with opened(place.store(), desk(ran, TWO, middleware=[Sick()])) as runtime:
        ref = runtime.spawn("desk", "t")
        asked = interrupted(await soon(ref.run("go")))
        quarantined(await soon(ref.resume({asked.requests[0].id: approve()})))
        assert ref.status() is Status.FAILED
    async with opened(place.store(), desk(ran, TWO)) as runtime:
        ref = runtime.get("t")
        state = await soon(ref.state())
        assert state.requests == asked.requests[1:]
        await wake(ref)
        assert ref.status() is Status.FAILED
        assert ran == []


# ------------------------------------------------------------------ what is not stored


async def test_a_run_that_lost_its_deps_is_paused_until_they_are_given(
    place: Place, ran: list[str]
) -> None:
    """J12."""

    def agent() -> Agent:
        return desk(ran, [ONE, call("look")], "done")

    async with opened(place.store(), agent()) as runtime:
        asked = interrupted(await soon(runtime.spawn("desk", "t", deps="shop").run("go")))
    async with opened(place.store(), agent()) as runtime:
        ref = runtime.get("t")
        paused = await soon(ref.resume(asked.decide(approve())))
        assert isinstance(paused, Paused)
        assert paused.reason == "needs deps"
        assert ref.status() is Status.PAUSED
        assert ran == []
    async with opened(place.store(), agent()) as runtime:
        ref = runtime.get("t")
        assert isinstance(await outcome_of(ref), Paused)
        runtime.spawn("desk", "t", deps="shop again")
        await soon(ref.unpause())
        assert ref.status() is Status.RUNNING, "unpause alone lets it go on"
        assert completed(await outcome_of(ref)).text == "done"
        assert sorted(ran) == ["look with shop again", "refund 1"]


async def test_deps_for_gives_the_deps_of_an_agent_that_is_woken_by_its_id(
    place: Place, ran: list[str]
) -> None:
    """J12."""

    def agent() -> Agent:
        return desk(ran, [ONE, call("look")], "done")

    def deps_for(id: str) -> str:
        return f"shop of {id}"

    async with opened(place.store(), agent(), deps_for=deps_for) as runtime:
        asked = interrupted(await soon(runtime.spawn("desk", "t").run("go")))
    async with opened(place.store(), agent(), deps_for=deps_for) as runtime:
        completed(await soon(runtime.get("t").resume(asked.decide(approve()))))
        assert sorted(ran) == ["look with shop of t", "refund 1"]


async def test_deps_for_that_raises_for_a_new_run_leaves_the_one_that_asks(
    ran: list[str],
) -> None:
    """J12: who asked for the new run gets the error, and not the outcome of the other one."""
    broken: list[str] = []

    def deps_for(id: str) -> str:
        if broken:
            raise LookupError(f"no deps of {id}")
        return "shop"

    agent = desk(ran, ONE)
    async with Runtime([agent], deps_for=deps_for) as runtime:
        ref = runtime.spawn("desk", "t")
        asked = interrupted(await soon(ref.run("go")))
        broken.append("yes")
        with pytest.raises(LookupError, match="no deps of t"):
            await soon(ref.run("something else"))
        assert ref.status() is Status.INTERRUPTED
        broken.clear()
        completed(await soon(ref.resume(asked.decide(approve()))))


async def test_deps_for_that_raises_refuses_a_new_run_and_pauses_an_old_one(
    place: Place, ran: list[str]
) -> None:
    """J12: and it brings nothing down, however often it is tried."""
    held = Held()

    @tool(idempotent=True)
    async def slow(context: ToolContext) -> str:
        await held.wait()
        return f"with {context.deps}"

    broken: list[str] = []

    def deps_for(id: str) -> str:
        if broken:
            raise LookupError(f"no deps of {id}")
        return "shop"

    def agent() -> Agent:
        return desk(ran, call("slow"), "done", tools=[refund(ran), slow])

    async with opened(place.store(), agent(), deps_for=deps_for) as first:
        first.spawn("desk", "t").run("go")
        await soon(held.entered.wait())
        broken.append("yes")
        async with opened(place.after_crash(), agent(), deps_for=deps_for) as second:
            ref = second.get("t")
            paused = await outcome_of(ref)
            assert isinstance(paused, Paused)
            assert paused.reason == "needs deps"
            with pytest.raises(LookupError, match="no deps of new"):
                await soon(second.spawn("desk", "new").run("go"))
            broken.clear()
            held.release.set()
            await soon(ref.unpause())
            done = completed(await outcome_of(ref))
            assert results(done.state)[0].content == "with shop"


async def test_an_agent_whose_definition_is_not_known_here_stays_untouched(
    place: Place, ran: list[str]
) -> None:
    """The error names it, and those that are known."""
    async with opened(place.store(), desk(ran, ONE)) as runtime:
        asked = interrupted(await soon(runtime.spawn("desk", "t").run("go")))
    async with opened(place.store(), Agent("other", by_turn()), Agent("x", by_turn())) as rt:
        ref = rt.get("t")
        for future in (ref.run("hello"), ref.outcome(), ref.resume(asked.decide(approve()))):
            with pytest.raises(UsageError, match=r"'desk'.*'other', 'x'"):
                await soon(future)
        assert (await soon(ref.state())).requests == asked.requests, "that needs none"
        assert [p.request for p in await soon(rt.pending())] == list(asked.requests)
        assert await soon(rt.recover()) == []
        before = (await soon(rt.export("t")))["records"]
    async with opened(place.store(), desk(ran, ONE)) as runtime:
        assert (await soon(runtime.export("t")))["records"] == before
        completed(await soon(runtime.get("t").resume(asked.decide(approve()))))


async def test_an_id_that_is_another_agents_is_refused_and_still_reached_by_get(
    place: Place, ran: list[str]
) -> None:
    """The error names both, and does as it says: `runtime.get` reaches that one."""
    async with opened(place.store(), desk(ran, "hello")) as runtime:
        await soon(runtime.spawn("desk", "t").run("go"))
    async with opened(place.store(), desk(ran, "hello", "again"), Agent("other", by_turn())) as rt:
        wrong = rt.spawn("other", "t")
        with pytest.raises(UsageError, match=r"'t' is a 'desk' already, not this 'other'"):
            await soon(wrong.run("go"))
        with pytest.raises(UsageError, match="already"):
            await soon(rt.spawn("other", "t").run("go"))
        assert completed(await soon(rt.get("t").run("go"))).text == "again"


async def test_values_are_those_of_spawn_also_where_a_ref_was_there_before(
    place: Place, ran: list[str]
) -> None:
    """The order of `get` and `spawn` makes no difference."""
    async with opened(place.store(), desk(ran, "hello")) as runtime:
        early = runtime.get("t")
        ref = runtime.spawn("desk", "t", values={"shop": "Kettles"})
        assert (await soon(ref.state())).values["shop"] == "Kettles"
        assert ref == early


def ids(refs: Sequence[AgentRef]) -> list[str]:
    return sorted(ref.id for ref in refs)


async def test_recover_drives_what_is_open_or_queued_and_nothing_else(
    place: Place, ran: list[str]
) -> None:
    """J10, J11: who waits for a person, is quarantined, or is at rest, sleeps on."""
    held = Held("late")

    def reply(request: Any) -> Any:
        match request.prompt:
            case "open":
                return held(request)
            case "ask":
                return ONE
            case _:
                return "fine"

    def agent() -> Agent:
        return Agent(
            "desk", ScriptedModel(reply), tools=[refund(ran)], interrupt_on={"refund": True}
        )

    async with opened(place.store(), agent()) as first:
        interrupted(await soon(first.spawn("desk", "asks").run("ask")))
        completed(await soon(first.spawn("desk", "rests").run("hello")))
        opens = first.spawn("desk", "open")
        opens.run("open")
        await soon(held.entered.wait())
        await soon(opens.send("later"))
        async with opened(place.after_crash(), agent()) as second:
            refs = await soon(second.recover(at_once=1))
            held.release.set()
            assert ids(refs) == ["open"]
            await until_status(refs[0], Status.IDLE)
            assert second.get("asks").status() is Status.PASSIVE
            assert second.get("rests").status() is Status.PASSIVE
