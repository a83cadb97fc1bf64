"""Agents that die, are quarantined, fall asleep and are stopped: nothing is lost, nothing hangs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pykka
import pytest

from tests.support.agents import (
    Held,
    assert_valid_history,
    completed,
    interrupted,
    quarantined,
    results,
    until_status,
    wake,
)
from tests.support.loops import never, soon
from understudy import (
    Agent,
    AgentRef,
    Completed,
    Runtime,
    ScriptedModel,
    Status,
    Stopped,
    ToolContext,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.actors import AgentActor, Future, LoopActorRegistry, StatusChanged
from understudy.errors import NotInterrupted
from understudy.middleware import Middleware, Run


class OwnKind(BaseException):
    pass


DEADLY: list[type[BaseException]] = [SystemExit, KeyboardInterrupt, OwnKind]
deadly = pytest.mark.parametrize("kind", DEADLY)


def quick(ran: list[str]) -> Any:
    @tool(sequential=True)
    async def quick() -> str:
        ran.append("quick")
        return "quick result"

    return quick


def beside(ran: list[str]) -> Any:
    @tool
    async def beside() -> str:
        ran.append("beside")
        return "beside"

    return beside


def dying(ran: list[str], kind: type[BaseException], how: str, **options: Any) -> Any:
    """A tool that dies of it the first time."""

    def body() -> str:
        ran.append("dies")
        if ran.count("dies") == 1:
            raise kind("bang")
        return "survived"

    if how == "async":

        @tool(**options)
        async def dies() -> str:
            return body()

        return dies

    @tool(inline=how == "inline", **options)
    def dies_plain() -> str:
        return body()

    return dies_plain


async def is_well(runtime: Runtime, ref: AgentRef) -> None:
    """The agent, its neighbour and the runtime go on as before."""
    assert isinstance(await soon(ref.run("again")), Completed)
    neighbour = Agent("neighbour", ScriptedModel(["fine"]))
    assert isinstance(await soon(runtime.spawn(neighbour).run("and you?")), Completed)


# -------------------------------------------------------------------------- deaths (A3, A8)


@deadly
@pytest.mark.parametrize("how", ["async", "inline", "thread"])
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside another"])
async def test_a_run_goes_on_from_its_line_after_a_tool_killed_it(
    kind: type[BaseException], how: str, alone: bool, ran: list[str]
) -> None:
    """A3, A8, J3, J4: finished calls are not repeated, the one in the middle is in doubt."""
    dies = dying(ran, kind, how)
    calls = [call("quick"), call(dies.name), *([] if alone else [call("beside")])]
    model = ScriptedModel([calls, "went on", "well again"])
    async with Runtime([Agent("a", model, tools=[quick(ran), dies, beside(ran)])]) as runtime:
        ref = runtime.spawn("a")
        outcome = completed(await soon(ref.run("go")))
        assert outcome.text == "went on"
        kept, doubtful = results(outcome.state)[:2]
        assert (kept.content, kept.outcome) == ("quick result", "success")
        assert doubtful.outcome == "interrupted"
        assert "unknown" in str(doubtful.content)
        assert ran.count("quick") == ran.count("dies") == 1
        assert ran.count("beside") <= 1
        assert [d.tool_name for d in outcome.state.doubts.values()][:1] == [dies.name]
        assert_valid_history(outcome.state)
        await is_well(runtime, ref)


@deadly
@pytest.mark.parametrize("how", ["async", "inline", "thread"])
async def test_an_idempotent_tool_that_killed_its_run_runs_again(
    kind: type[BaseException], how: str, ran: list[str]
) -> None:
    """J3, J4."""
    dies = dying(ran, kind, how, idempotent=True)
    model = ScriptedModel([call(dies.name), "went on", "well again"])
    async with Runtime([Agent("a", model, tools=[dies])]) as runtime:
        ref = runtime.spawn("a")
        outcome = completed(await soon(ref.run("go")))
        assert [part.content for part in results(outcome.state)] == ["survived"]
        assert ran == ["dies", "dies"]
        assert len(model.requests) == 2
        await is_well(runtime, ref)


async def test_a_tool_that_runs_out_of_memory_failed_and_the_run_goes_on(ran: list[str]) -> None:
    """A8, T2."""
    dies = dying(ran, MemoryError, "async")
    model = ScriptedModel([call("dies"), "went on", "well again"])
    async with Runtime([Agent("a", model, tools=[dies])]) as runtime:
        ref = runtime.spawn("a")
        outcome = completed(await soon(ref.run("go")))
        assert outcome.text == "went on"
        assert len(results(outcome.state)) == 1
        await is_well(runtime, ref)


@pytest.mark.parametrize("kind", DEADLY)
async def test_a_model_call_that_killed_its_run_is_made_again(
    kind: type[BaseException], ran: list[str]
) -> None:
    """A3."""
    model = ScriptedModel([call("quick"), kind("bang"), "went on", "well again"])
    async with Runtime([Agent("a", model, tools=[quick(ran)])]) as runtime:
        ref = runtime.spawn("a")
        outcome = completed(await soon(ref.run("go")))
        assert outcome.text == "went on"
        assert ran == ["quick"]
        await is_well(runtime, ref)


async def test_the_run_goes_on_while_its_actor_dies() -> None:
    """A3: the new actor attaches to what is alive; the model is asked once."""
    held = Held("done")
    model = ScriptedModel([held, "well again"])
    async with Runtime([Agent("a", model)]) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        await soon(held.entered.wait())
        (actor,) = LoopActorRegistry.get_by_class(AgentActor)
        victim: Any = actor
        victim.stop_now(RuntimeError("killed"))
        assert (await soon(ref.state())).run is not None
        (other,) = LoopActorRegistry.get_by_class(AgentActor)
        assert other.actor_urn != actor.actor_urn
        held.release.set()
        assert completed(await soon(run)).text == "done"
        assert len(model.requests) == 1
        await is_well(runtime, ref)


@pytest.mark.parametrize("is_first", [True, False], ids=["a first actor", "a second actor"])
async def test_an_actor_that_is_stopped_before_its_first_turn_leaves_nobody_waiting(
    is_first: bool,
) -> None:
    """A3: who started it does not start another, so the next message does."""
    async with Runtime([Agent("a", ScriptedModel(["done", "well again"]))]) as runtime:
        ref = runtime.spawn("a")
        actors: list[Any] = []
        if not is_first:
            completed(await soon(ref.run("go")))
            actors = LoopActorRegistry.get_by_class(AgentActor)
            actors[0].stop_now(RuntimeError("killed"))  # the supervisor starts a second one
        run = ref.run("go on")
        (new,) = await soon(_new_actors({actor.actor_urn for actor in actors}))
        new.stop_now()
        completed(await soon(run))


@pytest.mark.parametrize("reason", [None, RuntimeError("killed")], ids=["stopped", "killed"])
async def test_the_result_of_a_run_task_is_looked_at_whenever_its_actor_is_stopped(
    reason: Exception | None,
) -> None:
    """A3: the run has ended while no actor was there, and the one that was to look is gone."""
    held = Held("done")
    async with Runtime([Agent("a", ScriptedModel([held, "well again"]))]) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        await soon(held.entered.wait())
        actors: list[Any] = LoopActorRegistry.get_by_class(AgentActor)
        actors[0].stop_now()
        held.release.set()
        (new,) = await soon(_new_actors({actors[0].actor_urn}))
        new.stop_now(reason)
        assert completed(await soon(run)).text == "done"
        await is_well(runtime, ref)


async def _new_actors(before: set[str]) -> list[Any]:
    """Those of agents that were started since; in the turn of the loop in which they are."""
    while True:
        await asyncio.sleep(0)
        actors = LoopActorRegistry.get_by_class(AgentActor)
        if new := [actor for actor in actors if actor.actor_urn not in before]:
            return new


# --------------------------------------------------------------------- quarantine (J10)


def sick() -> tuple[ScriptedModel, list[str]]:
    """A model that kills the run until it is cured."""
    illness = ["ill"]

    def reply(_: object) -> Any:
        return SystemExit("bang") if illness else "cured"

    return ScriptedModel(reply), illness


async def test_three_attempts_without_progress_quarantine_the_run_until_retry() -> None:
    """J10."""
    model, illness = sick()
    async with Runtime([Agent("a", model)]) as runtime:
        ref = runtime.spawn("a")
        error = quarantined(await soon(ref.run("go")))
        assert error.attempts == 3
        assert "bang" in error.cause
        assert len(model.requests) == 3
        assert ref.status() is Status.FAILED

        illness.clear()
        quarantined(await soon(ref.run("wake up")))
        await soon(ref.send("for later"))
        assert len(model.requests) == 3, "messages do not wake it"

        assert completed(await soon(ref.retry())).text == "cured"
        await until_status(ref, Status.IDLE)
        state = await soon(ref.state())
        assert not state.queue
        assert_valid_history(state)
        await is_well(runtime, ref)


@pytest.mark.slow
async def test_progress_begins_the_count_anew(ran: list[str]) -> None:
    """J10: only attempts without a new fact count."""
    bang = SystemExit("bang")

    replies: list[Any] = [
        bang,
        bang,
        call("quick"),
        bang,
        bang,
        call("quick"),
        bang,
        bang,
        "through",
    ]
    async with Runtime([Agent("a", ScriptedModel(replies), tools=[quick(ran)])]) as runtime:
        assert completed(await soon(runtime.spawn("a").run("go"))).text == "through"
        assert ran == ["quick", "quick"]


@pytest.mark.slow
async def test_a_run_that_gets_further_before_its_first_reply_is_not_quarantined() -> None:
    """J10: what its hooks have recorded is progress, too."""
    lives = 0

    class InStages(Middleware):
        async def before_model(self, run: Run, request: Any) -> None:
            nonlocal lives
            done = False

            def work() -> None:
                nonlocal done
                done = True

            for stage in range(6):
                await run.once(f"stage-{stage}", work)
                if done:
                    lives += 1
                    raise SystemExit("killed right after this stage")

    agent = Agent("a", ScriptedModel(["through"]), middleware=[InStages()])
    async with Runtime([agent]) as runtime:
        assert completed(await soon(runtime.spawn("a").run("go"))).text == "through"
    assert lives == 6


async def test_who_waits_for_his_turn_behind_a_quarantined_run_is_told() -> None:
    """J10: its futures get Failed(Quarantined)."""
    model, _ = sick()
    async with Runtime([Agent("a", model)]) as runtime:
        ref = runtime.spawn("a")
        first, second = ref.run("one"), ref.run("two")
        quarantined(await soon(first))
        quarantined(await soon(second))


async def test_a_quarantined_run_that_is_cancelled_is_over() -> None:
    """J10, P7."""
    model, illness = sick()
    async with Runtime([Agent("a", model)]) as runtime:
        ref = runtime.spawn("a")
        quarantined(await soon(ref.run("go")))
        illness.clear()
        assert isinstance(await soon(ref.cancel()), Stopped)
        assert ref.status() is Status.CANCELLED
        await is_well(runtime, ref)


async def test_a_retry_right_behind_a_cancel_releases_nothing() -> None:
    """J10: the run is being stopped."""
    model, _ = sick()
    async with Runtime([Agent("a", model)]) as runtime:
        ref = runtime.spawn("a")
        run_id = (await soon(ref.run("go"))).run_id
        cancelled, again, named = ref.cancel(), ref.retry(), ref.retry(run_id=run_id)
        assert type(await soon(cancelled)) is Stopped
        with pytest.raises(NotInterrupted):
            await soon(again)
        assert type(await soon(named)) is Stopped
        assert ref.status() is Status.CANCELLED


async def test_agents_that_give_up_do_not_count_against_their_neighbours() -> None:
    """J10."""
    model, _ = sick()
    well = Agent("well", ScriptedModel(lambda _: "fine"))
    async with Runtime([Agent("sick", model), well]) as runtime:
        neighbour = runtime.spawn("well")
        runs = [runtime.spawn("sick").run("go") for _ in range(20)]
        for run in runs:
            quarantined(await soon(run))
        assert completed(await soon(neighbour.run("go"))).text == "fine"


# ------------------------------------------------------------------- falling asleep (A5)


async def test_an_idle_agent_falls_asleep_and_the_next_message_wakes_it_where_it_stood() -> None:
    """A5."""
    model = ScriptedModel(lambda request: f"{len(request.messages)}")
    async with Runtime([Agent("a", model)], idle_timeout=0.001) as runtime:
        ref = runtime.spawn("a")
        for number in (1, 3, 5):
            assert completed(await soon(ref.run("go"))).text == f"{number}"
            await until_status(ref, Status.PASSIVE)
            assert LoopActorRegistry.get_by_class(AgentActor) == []
            assert ref.is_alive()


async def test_an_agents_own_idle_timeout_goes_before_the_runtimes() -> None:
    """A5."""
    shy = Agent("shy", ScriptedModel(lambda _: "ok"), idle_timeout=0.001)
    bold = Agent("bold", ScriptedModel(lambda _: "ok"), idle_timeout=None)
    async with Runtime([shy, bold], idle_timeout=0.002) as runtime:
        stays, goes = runtime.spawn("bold"), runtime.spawn("shy")
        events = goes.events()
        await soon(stays.run("go"))
        await soon(goes.run("go"))
        async with asyncio.timeout(60):
            async for told in events:
                if told.event == StatusChanged(status=Status.PASSIVE):
                    break
        assert stays.status() is Status.IDLE


@pytest.mark.parametrize("bad", [0, -1, "5", True])
def test_an_idle_timeout_is_seconds_above_0(bad: Any) -> None:
    """R8."""
    with pytest.raises(UsageError, match="idle_timeout"):
        Agent("a", ScriptedModel([]), idle_timeout=bad)


async def test_an_interrupted_agent_asleep_is_listed_and_wakes_by_its_answer(
    ran: list[str],
) -> None:
    """A5, I10."""
    model = ScriptedModel([call("quick"), "done"])
    agent = Agent("a", model, tools=[quick(ran)], interrupt_on={"quick": True})
    async with Runtime([agent], idle_timeout=0.001) as runtime:
        ref = runtime.spawn("a")
        outcome = interrupted(await soon(ref.run("go")))
        await until_status(ref, Status.PASSIVE)
        assert [p.request for p in await soon(runtime.pending())] == list(outcome.requests)
        assert ref.status() is Status.PASSIVE
        assert completed(await soon(ref.resume(outcome.decide(approve())))).text == "done"
        assert ran == ["quick"]


async def test_an_agent_does_not_fall_asleep_while_it_runs() -> None:
    """A5: its neighbours' timers, started later, fire many times meanwhile."""
    held = Held("done")
    agents = [Agent("busy", ScriptedModel([held])), Agent("b", ScriptedModel(lambda _: "ok"))]
    async with Runtime(agents, idle_timeout=0.001) as runtime:
        busy, other = runtime.spawn("busy"), runtime.spawn("b")
        run = busy.run("go")
        await soon(held.entered.wait())
        for _ in range(5):
            await soon(busy.state())  # a message begins no timer during a run
            await soon(other.run("go"))
            await until_status(other, Status.PASSIVE)
        assert busy.status() is Status.RUNNING
        held.release.set()
        assert completed(await soon(run)).text == "done"


def test_no_message_is_lost_between_falling_asleep_and_waking() -> None:
    """A5: put and close are ordered; a message after close wakes the agent."""
    with Runtime([Agent("a", ScriptedModel(lambda _: "ok"))], idle_timeout=None) as runtime:
        ref = runtime.spawn("a")
        over = threading.Event()

        def put_to_sleep() -> None:
            while not over.is_set():
                ref.stop(block=True, timeout=60)

        thread = threading.Thread(target=put_to_sleep, daemon=True)
        thread.start()
        try:
            for _ in range(300):
                ref.state().get(timeout=60)
        finally:
            over.set()
        thread.join(60)
        assert not thread.is_alive()
        assert isinstance(ref.run("go").get(timeout=60), Completed)


# --------------------------------------------------------------------------- stop (A5)


async def test_stop_waits_for_the_step_in_progress_and_the_run_goes_on_when_woken(
    ran: list[str],
) -> None:
    """A5."""
    held = Held()

    @tool
    async def slow(context: ToolContext) -> str:
        ran.append("slow")
        await held.wait()
        return "slow result"

    model = ScriptedModel([call("slow"), "done", "well again"])
    async with Runtime([Agent("a", model, tools=[slow])]) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        await soon(held.entered.wait())
        stop = ref.stop(block=False)
        waiting = ref.run("next")
        assert ref.status() is Status.RUNNING
        assert not stop.done()
        held.release.set()
        assert await soon(stop) is True
        assert ref.status() is Status.PASSIVE
        assert len(model.requests) == 1
        assert not run.done()

        state = await soon(ref.state())
        await wake(ref)
        assert [part.content for part in results(state)] in ([], ["slow result"])
        assert completed(await soon(run)).text == "done"
        assert completed(await soon(waiting)).text == "well again"
        assert ran == ["slow"]


async def test_stop_right_before_run_leaves_no_running_agent_asleep() -> None:
    """A5: a running agent is never passive."""
    held = Held("done")
    async with Runtime([Agent("a", ScriptedModel([held, "more"]))]) as runtime:
        ref = runtime.spawn("a")
        await wake(ref)
        stop, run = ref.stop(block=False), ref.run("go")
        await soon(held.entered.wait())
        assert await soon(stop) is True
        assert ref.status() is Status.RUNNING
        held.release.set()
        assert completed(await soon(run)).text == "done"
        events = ref.events()
        events.close()
        told = [e.event.status async for e in events if isinstance(e.event, StatusChanged)]
        assert told[-2:] == [Status.RUNNING, Status.IDLE]


async def test_stopping_an_agent_that_sleeps_says_so() -> None:
    async with Runtime([Agent("a", ScriptedModel(lambda _: "ok"))]) as runtime:
        ref = runtime.spawn("a")
        assert await soon(ref.stop(block=False)) is False
        await soon(ref.run("go"))
        assert await soon(ref.stop(block=False)) is True
        assert await soon(ref.stop(block=False)) is False
        await is_well(runtime, ref)


async def test_two_hundred_agents_stop_at_once_after_their_steps_and_answer_everybody(
    ran: list[str],
) -> None:
    """A5, A8: no task, no actor and no unsettled future is left."""
    gate, entered = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> str:
        ran.append("begun")
        if len(ran) == 200:
            entered.set()
        await gate.wait()
        ran.append("ended")
        return "ok"

    model = ScriptedModel(lambda request: call("slow") if len(request.messages) == 1 else "ok")
    futures: list[Future[Any]] = []
    async with Runtime([Agent("a", model, tools=[slow])]) as runtime:
        refs = [runtime.spawn("a") for _ in range(200)]
        futures += [ref.run("go") for ref in refs]
        futures += [ref.run("next") for ref in refs]
        await soon(entered.wait())
        asyncio.get_running_loop().call_soon(gate.set)
    assert ran.count("ended") == 200
    assert len(model.requests) == 200
    for future in futures:
        with pytest.raises(pykka.ActorDeadError):
            await soon(future)
    assert LoopActorRegistry.get_all() == []


def test_a_stop_with_a_limit_cuts_off_what_does_not_end(ran: list[str]) -> None:
    """A5, A8."""
    entered = threading.Event()

    async def hangs(_: object) -> str:
        ran.append("asked")
        entered.set()
        await never()
        return "never"

    runtime = Runtime([Agent("a", ScriptedModel(hangs))])
    runtime.__enter__()
    run = runtime.spawn("a").run("go")
    assert entered.wait(60)
    stopping = threading.Thread(target=lambda: runtime.stop(timeout=0.01), daemon=True)
    stopping.start()
    stopping.join(60)
    assert not stopping.is_alive()
    with pytest.raises(pykka.ActorDeadError):
        run.get(timeout=60)
    assert ran == ["asked"], "it is not driven on"
    assert LoopActorRegistry.get_all() == []


@pytest.mark.slow
def test_whatever_is_asked_while_the_runtime_stops_is_answered() -> None:
    """A8: by an outcome or by an ActorDeadError, never by silence."""
    for _ in range(20):
        futures: list[Future[Any]] = []
        with Runtime([Agent("a", ScriptedModel(lambda _: "ok"))]) as runtime:
            refs = [runtime.spawn("a") for _ in range(4)]
            started = threading.Barrier(len(refs) + 1)

            def ask(ref: AgentRef) -> None:
                started.wait(60)  # noqa: B023  # the threads end in this round
                with contextlib.suppress(pykka.ActorDeadError):
                    while True:
                        futures.append(ref.run("go"))  # noqa: B023  # so too
                        futures.append(ref.state())  # noqa: B023  # so too

            threads = [threading.Thread(target=ask, args=(ref,), daemon=True) for ref in refs]
            for thread in threads:
                thread.start()
            started.wait(60)
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        for future in futures:
            with contextlib.suppress(pykka.ActorDeadError):
                future.get(timeout=60)
