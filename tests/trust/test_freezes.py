"""Freezes: nothing of a store, a definition or a tool begins, until it is thawed."""

from __future__ import annotations

import asyncio
import platform
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tenacity import AsyncRetrying, stop_after_attempt

from tests.support.agents import Held, by_turn, completed, interrupted
from tests.support.freezes import ATTACKS, BROKEN, Desk, Waits, built, ended, runs
from tests.support.hosts import host, opened
from tests.support.loops import soon, until
from tests.support.places import NewStore
from tests.support.postgres import Hosts
from tests.support.programs import PIPE, started
from understudy import (
    Agent,
    Interrupt,
    ScriptedModel,
    SimulatedClock,
    Status,
    ToolContext,
    UsageError,
    approve,
    call,
    reject,
    respond,
    tool,
)
from understudy.errors import ApprovalNeeded
from understudy.journal import MemoryStore
from understudy.middleware import Retry, SubAgent
from understudy.modes import Parallel, Sequential
from understudy.outcomes import Stopped
from understudy.trust import Budget, Rules, approval, calls

# ------------------------------------------------------------------------- the whole store


async def test_what_is_sent_to_a_frozen_store_is_recorded_and_begins_after_the_thaw(
    new_store: NewStore,
) -> None:
    """V50: also in another process, which finds it frozen."""
    desk = Desk(7)
    async with opened(new_store(), desk.agent) as runtime:
        freeze = await soon(runtime.freeze(why="a leak", by="ann"))
        assert (freeze.what, freeze.name, freeze.why, freeze.by) == ("store", "", "a leak", "ann")
        assert freeze.text == "frozen by ann: a leak"
        assert runtime.status().frozen == ("frozen by ann: a leak",)
        assert runtime.status().ready
        await soon(runtime.spawn("desk", "t").send("go", message_id="m"))
        run = runtime.spawn("desk", "u").run("go")
        await soon(runtime.get("u").state())
        assert not runs()
        assert not run.done()
    assert (desk.asked, desk.paid) == (0, [])
    async with opened(new_store(), desk.agent) as runtime:
        assert [each.text for each in await soon(runtime.freezes())] == [freeze.text]
        recovery = await soon(runtime.recover())
        await soon(recovery.settled)
        assert sorted(each.id for each in recovery) == ["t", "u"]
        assert desk.asked == 0
        assert await soon(runtime.thaw(freeze.id, by="bob")) is True
        assert await soon(runtime.thaw(freeze.id, by="bob")) is False
        for id in ("t", "u"):
            await ended(runtime.get(id))
        assert await soon(runtime.freezes()) == []
    assert desk.paid == [7, 7]


async def test_a_body_under_way_ends_and_no_model_is_asked_after_it(new_store: NewStore) -> None:
    """V50: its result is recorded, and the answer says that it is under way."""
    desk = Desk(7, 8)
    desk.waits_at.add(7)
    async with opened(new_store(), desk.agent) as runtime:
        run = runtime.spawn("desk", "t").run("go")
        await soon(desk.held.entered.wait())
        freeze = await soon(runtime.freeze(why="a leak"))
        (entered,) = freeze.entered
        assert (entered.agent_id, entered.path, entered.tool) == ("t", ("desk",), "refund")
        state = await soon(runtime.get("t").state())
        assert state.run is not None
        assert entered.run_id == state.run.run_id
        assert entered.since is not None
        desk.held.release.set()
        await until(lambda: not runs())
        assert (desk.asked, desk.paid) == (1, [7])
        assert runtime.get("t").status() is Status.RUNNING
        assert not run.done()
        await soon(runtime.thaw(freeze.id))
        completed(await soon(run))
    assert desk.paid == [7, 8]


async def test_no_body_is_entered_once_freeze_has_returned(new_store: NewStore) -> None:
    """V51: not of a call whose start is recorded either; it counts as never entered."""
    held = Held()
    desk = Desk(7, middleware=[Waits(held)])
    async with opened(new_store(), desk.agent) as runtime:
        run = runtime.spawn("desk", "t").run("go")
        await soon(held.entered.wait())
        freeze = await soon(runtime.freeze(why="a leak"))
        held.release.set()
        await until(lambda: not runs())
        assert desk.paid == []
        state = await soon(runtime.get("t").state())
        assert state.run is not None
        (only,) = state.run.calls
        assert (only.attempts, only.not_entered, only.running) == (1, 1, False)
        assert await soon(runtime.doubts()) == []
        await soon(runtime.thaw(freeze.id))
        completed(await soon(run))
    assert desk.paid == [7]


async def test_a_call_that_is_held_spends_its_budget_once(new_store: NewStore) -> None:
    """V50: there is room for one call, which is made after the thaw."""
    held = Held()
    desk = Desk(7, 8, middleware=[Waits(held)])
    budgets = [Budget("one", calls("refund", 1))]
    async with opened(new_store(), desk.agent, budgets=budgets) as runtime:
        run = runtime.spawn("desk", "t").run("go")
        await soon(held.entered.wait())
        freeze = await soon(runtime.freeze(tool="refund", why="a leak"))
        held.release.set()
        await until(lambda: not runs())
        assert desk.paid == []
        await soon(runtime.thaw(freeze.id))
        assert isinstance(await soon(run), Stopped)
        assert [each.used for each in await soon(runtime.budgets())] == [1]
    assert desk.paid == [7]


async def test_a_body_that_waits_for_a_thread_is_not_entered_while_it_is_frozen() -> None:
    """V51: it is judged in the thread once more."""
    ran: list[str] = []
    entered, release = threading.Event(), threading.Event()

    @tool
    def work(name: str) -> str:
        """Work."""
        ran.append(name)
        if name == "first":
            entered.set()
            assert release.wait(60)
        return "done"

    both = [call("work", {"name": "first"}), call("work", {"name": "second"})]
    agent = Agent("desk", by_turn(both), tools=[work])
    async with opened(MemoryStore(), agent, max_threads=1) as runtime:
        run = runtime.spawn("desk", "t").run("go")
        assert await soon(asyncio.to_thread(entered.wait, 60))
        freeze = await soon(runtime.freeze(why="a leak"))
        release.set()
        await until(lambda: not runs())
        assert ran == ["first"]
        await soon(runtime.thaw(freeze.id))
        completed(await soon(run))
    assert ran == ["first", "second"]


async def test_a_model_that_fails_is_not_asked_again_while_it_is_frozen() -> None:
    """V50: by no middleware, and by no fallback; and that is no failure of the run."""
    held, asked = Held(), list[int]()

    async def reply(request: Any) -> Any:
        asked.append(1)
        if len(asked) == 1:
            await held.wait()
            raise ConnectionError("away")
        return "done"

    agent = Agent(
        "desk", ScriptedModel(reply), middleware=[Retry(AsyncRetrying(stop=stop_after_attempt(3)))]
    )
    async with opened(MemoryStore(), agent) as runtime:
        run = runtime.spawn("desk", "t").run("go")
        await soon(held.entered.wait())
        freeze = await soon(runtime.freeze(why="a leak"))
        held.release.set()
        await until(lambda: not runs())
        assert len(asked) == 1
        await soon(runtime.thaw(freeze.id))
        completed(await soon(run))
    assert len(asked) == 2


# ------------------------------------------------------------------------- what people do


async def test_people_decide_and_cancel_while_it_is_frozen(new_store: NewStore) -> None:
    """V50: what is approved starts after the thaw."""
    desk = Desk(7, interrupt_on={"refund": True})
    async with opened(new_store(), desk.agent) as runtime:
        for id in ("yes", "no", "stopped"):
            interrupted(await soon(runtime.spawn("desk", id).run("go")))
        freeze = await soon(runtime.freeze(why="a leak"))
        assert len(await soon(runtime.pending())) == 3
        for id, decision in (("yes", approve(by="ann")), ("no", reject("no", by="ann"))):
            await soon(runtime.get(id).decide(decision))
        stopped = await soon(runtime.get("stopped").cancel())
        assert isinstance(stopped, Stopped)
        assert await soon(runtime.pending()) == []
        assert (desk.asked, desk.paid) == (3, [])
        await soon(runtime.thaw(freeze.id))
        for id in ("yes", "no"):
            await ended(runtime.get(id))
    assert desk.paid == [7]


async def test_a_message_to_a_run_that_a_freeze_holds_steers_it_and_withdraws_nothing() -> None:
    """V52: as a message to any run that is under way."""
    desk = Desk(7, 8)
    desk.waits_at.add(7)
    async with opened(MemoryStore(), desk.agent) as runtime:
        ref = runtime.spawn("desk", "t")
        run = ref.run("go")
        await soon(desk.held.entered.wait())
        freeze = await soon(runtime.freeze(why="a leak"))
        desk.held.release.set()
        await until(lambda: not runs())
        await soon(ref.send("and hurry", steer=True))
        second = ref.run("again", if_interrupted="error")
        await soon(ref.state())
        await soon(runtime.thaw(freeze.id))
        first = completed(await soon(run))
        completed(await soon(second))
        assert "and hurry" in str(first.state.messages)
    assert desk.paid == [7, 8]


async def test_a_message_to_an_agent_that_asks_withdraws_its_request_while_it_is_frozen() -> None:
    """V52: and its run continues with the message after the thaw."""
    desk = Desk(7, interrupt_on={"refund": True})
    async with opened(MemoryStore(), desk.agent) as runtime:
        ref = runtime.spawn("desk", "t")
        interrupted(await soon(ref.run("go")))
        freeze = await soon(runtime.freeze(why="a leak"))
        run = ref.run("never mind")
        await soon(ref.state())
        assert await soon(runtime.pending()) == []
        await soon(runtime.thaw(freeze.id))
        assert "never mind" in str(completed(await soon(run)).state.messages)
    assert desk.paid == []


async def test_a_failed_run_that_is_retried_waits_for_the_thaw() -> None:
    """V52."""
    asked = list[int]()

    def reply(request: Any) -> Any:
        asked.append(1)
        if len(asked) == 1:
            raise RuntimeError("no model today")
        return "done"

    agent = Agent("desk", ScriptedModel(reply))
    async with opened(MemoryStore(), agent) as runtime:
        ref = runtime.spawn("desk", "t")
        await soon(ref.run("go"))
        freeze = await soon(runtime.freeze(why="a leak"))
        again = ref.retry()
        await soon(ref.state())
        assert not again.done()
        await soon(runtime.thaw(freeze.id))
        completed(await soon(again))
    assert len(asked) == 2


async def test_sleeps_and_plans_that_are_over_while_it_is_frozen_go_on_after_the_thaw(
    clock: SimulatedClock,
) -> None:
    """V52."""
    woken: list[str] = []

    @tool
    async def nap(ctx: ToolContext) -> str:
        """Sleep."""
        await ctx.sleep("nap", 60)
        woken.append(ctx.agent_id)
        return "slept"

    agent = Agent("desk", by_turn(call("nap")), tools=[nap])
    async with opened(MemoryStore(), agent, clock=clock) as runtime:
        ref = runtime.spawn("desk", "sleeper")
        run = ref.run("go")
        await until(lambda: ref.status() is Status.WAITING)
        await soon(runtime.spawn("desk", "later").send("go", at=clock.now() + timedelta(minutes=1)))
        planned = runtime.spawn("desk", "planned")
        await soon(runtime.schedule(planned, "each", cron="* * * * *", input="go"))
        freeze = await soon(runtime.freeze(why="a leak"))
        await soon(clock.advance(90))
        assert woken == []
        for id in ("sleeper", "later", "planned"):
            assert not runs(id)
        await soon(runtime.thaw(freeze.id))
        completed(await soon(run))
        await until(lambda: len(woken) == 1)
        others = [runtime.get("later"), runtime.get("planned")]
        await until(lambda: all(each.status() is Status.WAITING for each in others))
        await soon(clock.advance(61))
        await until(lambda: {"later", "planned"} <= set(woken))


# -------------------------------------------------------------------- definitions and tools


async def test_a_frozen_definition_holds_its_agents_and_the_calls_that_run_it() -> None:
    """V53: also where it runs inside of another one, and nothing else."""
    clerk, other = Desk(7, name="clerk"), Desk(8, name="other")
    boss = Agent(
        "boss",
        by_turn(call("task", {"task_name": "clerk", "instructions": "go"})),
        middleware=[SubAgent([clerk.agent])],
    )
    agents = (boss, clerk.agent, other.agent)
    async with opened(MemoryStore(), *agents) as runtime:
        freeze = await soon(runtime.freeze(definition="clerk", why="a leak", by="ann"))
        assert freeze.warning == ""
        assert freeze.text == "definition 'clerk' is frozen by ann: a leak"
        own, above = runtime.spawn("clerk").run("go"), runtime.spawn("boss", "t").run("go")
        completed(await soon(runtime.spawn("other").run("go")))
        await until(lambda: not runs())
        assert (clerk.asked, clerk.paid, other.paid) == (0, [], [8])
        assert not own.done()
        assert not above.done()
        await soon(runtime.thaw(freeze.id))
        completed(await soon(own))
        completed(await soon(above))
    assert clerk.paid == [7, 7]


async def test_an_agent_inside_that_is_frozen_in_the_middle_rests_where_it_is() -> None:
    """V53: and continues there."""
    clerk = Desk(7, 8, name="clerk")
    clerk.waits_at.add(7)
    boss = Agent(
        "boss",
        by_turn(call("task", {"task_name": "clerk", "instructions": "go"})),
        middleware=[SubAgent([clerk.agent])],
    )
    async with opened(MemoryStore(), boss, clerk.agent) as runtime:
        run = runtime.spawn("boss", "t").run("go")
        await soon(clerk.held.entered.wait())
        freeze = await soon(runtime.freeze(definition="clerk", why="a leak"))
        (entered,) = freeze.entered
        assert (entered.path, entered.tool) == (("boss", "clerk"), "refund")
        clerk.held.release.set()
        await until(lambda: not runs())
        assert (clerk.asked, clerk.paid) == (1, [7])
        await soon(runtime.thaw(freeze.id))
        completed(await soon(run))
    assert clerk.paid == [7, 8]


@pytest.mark.parametrize("mode", [Sequential, Parallel])
async def test_an_agent_of_a_workflow_that_is_frozen_holds_the_workflow(mode: Any) -> None:
    """V53: what the others have done is kept, and nothing of it is done again."""
    first, second = Desk(7, name="first"), Desk(8, name="second")
    flow = Agent("flow", mode=mode([first.agent, second.agent]))
    async with opened(MemoryStore(), flow) as runtime:
        freeze = await soon(runtime.freeze(definition="second", why="a leak"))
        assert freeze.warning == ""
        run = runtime.spawn("flow", "t").run("go")
        await until(lambda: first.paid == [7] and not runs())
        assert (second.asked, second.paid) == (0, [])
        assert not run.done()
        await soon(runtime.thaw(freeze.id))
        completed(await soon(run))
    assert (first.paid, second.paid) == ([7], [8])


async def test_a_frozen_tool_holds_its_calls_alone(new_store: NewStore) -> None:
    """V53: the others of the reply run, and so do other agents. The run rests at the call."""
    ran: list[str] = []

    @tool
    async def wipe() -> str:
        """Wipe."""
        ran.append("wipe")
        return "wiped"

    @tool
    async def look() -> str:
        """Look."""
        ran.append("look")
        return "seen"

    both = [call("wipe"), call("look")]
    agent = Agent("desk", by_turn(both), tools=[wipe, look])
    other = Agent("other", by_turn(call("look")), tools=[look])
    async with opened(new_store(), agent, other) as runtime:
        freeze = await soon(runtime.freeze(tool="wipe", why="a leak", by="ann"))
        assert freeze.text == "tool 'wipe' is frozen by ann: a leak"
        run = runtime.spawn("desk", "t").run("go")
        completed(await soon(runtime.spawn("other").run("go")))
        await until(lambda: ran.count("look") == 2 and not runs())
        assert runtime.get("t").status() is Status.RUNNING
        await soon(runtime.get("t").send("hurry"))
        await soon(runtime.get("t").state())
        assert not run.done()
    async with opened(new_store(), agent, other) as runtime:
        recovery = await soon(runtime.recover())
        await soon(recovery.settled)
        await until(lambda: not runs())
        assert "wipe" not in ran
        await soon(runtime.thaw(freeze.id))
        await ended(runtime.get("t"))
    assert ran.count("wipe") == 1
    assert ran.count("look") == 2


async def test_a_tool_is_frozen_by_each_name_that_it_has_or_had() -> None:
    """V53."""
    ran: list[str] = []

    @tool(aliases=["wipe"])
    async def erase() -> str:
        """Erase."""
        ran.append("erase")
        return "gone"

    agent = Agent("desk", by_turn(call("erase")), tools=[erase])
    async with opened(MemoryStore(), agent) as runtime:
        freeze = await soon(runtime.freeze(tool="wipe", why="a leak"))
        assert freeze.warning == ""
        run = runtime.spawn("desk", "t").run("go")
        await until(lambda: runs())
        await until(lambda: not runs())
        assert ran == []
        await soon(runtime.thaw(freeze.id))
        completed(await soon(run))


async def test_a_run_rests_at_a_frozen_call_and_a_person_is_asked_about_another_one() -> None:
    """V53: the request is seen, and its answer counts."""
    ran: list[str] = []

    @tool
    async def wipe() -> str:
        """Wipe."""
        ran.append("wipe")
        return "wiped"

    @tool
    async def question(ctx: ToolContext) -> str:
        """Ask."""
        if not ctx.resumed:
            raise Interrupt("sure?")
        ran.append(ctx.resume_value)
        return "asked"

    agent = Agent("desk", by_turn([call("wipe"), call("question")]), tools=[wipe, question])
    async with opened(MemoryStore(), agent) as runtime:
        freeze = await soon(runtime.freeze(tool="wipe", why="a leak"))
        ref = runtime.spawn("desk", "t")
        interrupted(await soon(ref.run("go")))
        resumed = ref.resume(respond("yes"))
        await until(lambda: ran == ["yes"] and not runs())
        assert not resumed.done()
        await soon(runtime.thaw(freeze.id))
        completed(await soon(resumed))
    assert ran == ["yes", "wipe"]


async def test_a_sleep_that_is_over_beside_a_frozen_call_makes_no_circle(
    clock: SimulatedClock,
) -> None:
    """V53: a call that waits is frozen, and its time comes."""
    attempts: list[str] = []

    @tool
    async def nap(ctx: ToolContext) -> str:
        """Sleep."""
        await ctx.sleep("nap", 60)
        attempts.append("woken")
        return "slept"

    agent = Agent("desk", by_turn([call("nap"), call("nap")]), tools=[nap])
    async with opened(MemoryStore(), agent, clock=clock) as runtime:
        ref = runtime.spawn("desk", "t")
        run = ref.run("go")
        await until(lambda: ref.status() is Status.WAITING)
        freeze = await soon(runtime.freeze(tool="nap", why="a leak"))
        await soon(clock.advance(61))
        await until(lambda: not runs())
        state = await soon(ref.state())
        assert state.run is not None
        assert state.run.attempts <= 3
        assert attempts == []
        await soon(runtime.thaw(freeze.id))
        completed(await soon(run))
    assert attempts == ["woken"] * 2


async def test_what_two_freezes_hold_begins_after_both_are_over() -> None:
    """V52."""
    desk = Desk(7)
    async with opened(MemoryStore(), desk.agent) as runtime:
        all_, one = [
            await soon(freezing)
            for freezing in (
                runtime.freeze(why="a leak", by="ann"),
                runtime.freeze(tool="refund", why="a leak", by="ann"),
            )
        ]
        run = runtime.spawn("desk", "t").run("go")
        await soon(runtime.get("t").state())
        await soon(runtime.thaw(all_.id))
        await until(lambda: desk.asked == 1 and not runs())
        assert desk.paid == []
        await soon(runtime.thaw(one.id))
        completed(await soon(run))
    assert desk.paid == [7]


@pytest.mark.parametrize("turns", range(0, 24, 3))
async def test_what_is_thawed_while_its_attempt_ends_goes_on(turns: int) -> None:
    """V52: whichever comes first."""
    desk = Desk(7, 8)
    desk.waits_at.add(7)
    async with opened(MemoryStore(), desk.agent) as runtime:
        run = runtime.spawn("desk", "t").run("go")
        await soon(desk.held.entered.wait())
        freeze = await soon(runtime.freeze(why="a leak"))
        desk.held.release.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        await soon(runtime.thaw(freeze.id))
        completed(await soon(run))
    assert desk.paid == [7, 8]


# ------------------------------------------------------------------------------ the calls


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"why": ""}, "why"),
        ({"why": "  "}, "must say why"),
        ({"why": 7}, "why"),
        ({"why": "x", "definition": ""}, "definition"),
        ({"why": "x", "tool": ""}, "tool"),
        ({"why": "x", "tool": "a", "definition": "b"}, "definition= or tool="),
        ({"why": "x", "by": "system"}, "by"),
    ],
)
async def test_what_cannot_be_frozen_is_refused_at_once(options: dict[str, Any], says: str) -> None:
    """V54."""
    async with opened(MemoryStore()) as runtime:
        with pytest.raises(UsageError, match=says):
            runtime.freeze(**options)
        with pytest.raises(UsageError, match="id"):
            runtime.thaw("")
        assert await soon(runtime.freezes()) == []


async def test_a_name_that_nothing_has_is_frozen_and_the_answer_says_so() -> None:
    """V54: another host, or a deploy to come, may have it."""
    desk = Desk(7)
    async with opened(MemoryStore(), desk.agent) as runtime:
        by_tool = await soon(runtime.freeze(tool="refnud", why="a leak"))
        assert by_tool.warning == f"no definition of host {platform.node()!r} has a tool 'refnud'"
        by_name = await soon(runtime.freeze(definition="dekc", why="a leak"))
        assert by_name.warning.endswith("has the name 'dekc'")
        completed(await soon(runtime.spawn("desk").run("go")))


async def test_the_same_freeze_asked_for_again_is_one() -> None:
    """V54: by another person, or for another reason, it is another one."""
    async with opened(MemoryStore()) as runtime:
        first = await soon(runtime.freeze(why="a leak", by="ann"))
        again = await soon(runtime.freeze(why="a leak", by="ann"))
        other = await soon(runtime.freeze(why="a leak", by="bob"))
        assert first.id == again.id != other.id
        assert len(await soon(runtime.freezes())) == 2


async def test_one_person_freezes_and_a_thaw_may_need_several() -> None:
    """V54."""
    people: Any = {"ann": ["ops"], "bob": ["ops"]}
    protect: Any = {"thaw": approval({"ops": 1}, never=["requester"])}
    async with opened(MemoryStore(), people=people, protect=protect) as runtime:
        freeze = await soon(runtime.freeze(why="a leak", by="ann"))
        with pytest.raises(ApprovalNeeded) as needed:
            await soon(runtime.thaw(freeze.id, by="ann"))
        assert len(await soon(runtime.freezes())) == 1
        await soon(runtime.vote(needed.value.request_id, approve(by="bob")))
        assert await soon(runtime.thaw(freeze.id, by="ann")) is True


async def test_a_runtime_where_nothing_is_frozen_judges_nothing_more() -> None:
    """V50: and follows no log."""
    async with opened(MemoryStore()) as runtime:
        assert runtime.trust.stops is None
        assert runtime.trust.log is None
    async with opened(MemoryStore(), rules=Rules(version=1)) as runtime:
        assert runtime.trust.stops is None


# ------------------------------------------------------------------------------ all hosts


@pytest.mark.parametrize("name", ATTACKS)
async def test_a_freeze_holds_against_each_attack(hosts: Hosts, name: str) -> None:
    """V50, V51, V52."""
    await ATTACKS[name](hosts)


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_build_that_freezes_wrongly_is_found_out(hosts: Hosts, broken: str) -> None:
    """V50, V51, V52: the control."""
    with built(broken) as attack, pytest.raises((AssertionError, pytest.fail.Exception)):
        await attack(hosts)


async def test_what_waited_begins_at_each_host_without_a_sweep(hosts: Hosts) -> None:
    """V52: and a run that no host has in memory is found at once."""
    first, second = Desk(7), Desk(7)
    one = opened(host(hosts, "one"), first.agent, sweep=3600)
    two = opened(host(hosts, "two"), second.agent, sweep=3600)
    async with one, two:
        freeze = await soon(one.freeze(why="a leak", by="ann"))
        for runtime, id in ((one, "a"), (two, "b"), (two, "c")):
            await soon(runtime.spawn("desk", id).send("go"))
        await soon(two.get("c").stop(block=False))
        assert (first.asked, second.asked) == (0, 0)
        assert two.status().frozen == ("frozen by ann: a leak",)
        await soon(two.thaw(freeze.id))
        await until(lambda: first.paid + second.paid == [7, 7, 7])


async def test_a_host_that_opens_while_it_is_frozen_begins_nothing(hosts: Hosts) -> None:
    """V51: and is waited for as all others are."""
    desk = Desk(7)
    async with opened(host(hosts, "one"), desk.agent) as one:
        freeze = await soon(one.freeze(why="a leak"))
        async with opened(host(hosts, "two"), desk.agent) as two:
            run = two.spawn("desk", "t").run("go")
            await soon(two.get("t").state())
            assert desk.asked == 0
            again = await soon(one.freeze(why="a leak"))
            assert (again.id, again.silent_hosts) == (freeze.id, ())
            await soon(one.thaw(freeze.id))
            completed(await soon(run))


STOPPED = """
import asyncio, os, sys
from tests.support.freezes import Desk
from understudy import Runtime
from understudy.journal.postgres.backend import PostgresBackend
from understudy.journal.database_store import DatabaseStore
from understudy.middleware import Middleware

class Waits(Middleware):
    async def wrap_tool_call(self, run, call, next):
        print("waits", flush=True)
        while not os.path.exists(sys.argv[3]):
            await asyncio.sleep(0)
        return await next(call)

async def main() -> None:
    url, schema, _, kind = sys.argv[1:]
    desk = Desk(7, middleware=[Waits()])
    store = DatabaseStore(PostgresBackend(url, host="stopped", lease=1.0, schema=schema))
    async with Runtime([desk.agent], store=store, any_host=False, sweep=None) as runtime:
        run = runtime.spawn("desk", "t").run("go")
        while not runtime.status().frozen and not run.done():
            await asyncio.sleep(0)
        while any(task.get_name() == "agent t" for task in asyncio.all_tasks()):
            await asyncio.sleep(0)
        print("paid", desk.paid, flush=True)

asyncio.run(main())
"""


@pytest.mark.faults
@pytest.mark.skipif(sys.platform != "linux", reason="it stops a process")
@pytest.mark.parametrize("seed", range(2))
async def test_a_process_that_was_stopped_across_a_freeze_enters_no_body(
    hosts: Hosts, tmp_path: Path, seed: int
) -> None:
    """V51: whatever continues first. Its lease is over when `freeze` returns."""
    flag = tmp_path / "go"
    with started("-c", STOPPED, hosts.url, hosts.schema, str(flag), "x", stdout=PIPE) as process:
        try:
            assert process.stdout is not None
            assert await asyncio.to_thread(process.stdout.readline) == "waits\n"
            process.send_signal(signal.SIGSTOP)
            async with opened(host(hosts, "here"), Desk(7).agent) as here:
                freeze = await soon(here.freeze(why="a leak"))
                assert freeze.silent_hosts == ("stopped",)
                assert [each.tool for each in freeze.entered] == ["refund"]
                flag.touch()
                process.send_signal(signal.SIGCONT)
                assert await asyncio.to_thread(process.stdout.readline) == "paid []\n"
        finally:
            process.kill()


@pytest.mark.faults
async def test_a_freeze_outlives_a_kill_of_all_hosts(hosts: Hosts, tmp_path: Path) -> None:
    """V50."""
    flag = tmp_path / "go"
    with started("-c", STOPPED, hosts.url, hosts.schema, str(flag), "x", stdout=PIPE) as process:
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == "waits\n"
        async with opened(host(hosts, "here"), Desk(7).agent) as here:
            freeze = await soon(here.freeze(why="a leak"))
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)
    desk = Desk(7)
    async with opened(host(hosts, "again"), desk.agent) as again:
        recovery = await soon(again.recover())
        await soon(recovery.settled)
        await until(lambda: not runs())
        assert (desk.asked, desk.paid) == (0, [])
        await soon(again.thaw(freeze.id))
        await soon(again.get("t").outcome())
