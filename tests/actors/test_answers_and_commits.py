"""No operation answers before its commit (J16): each of them, on a store whose commits are held."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import datetime, timedelta, timezone
from typing import Any

import pykka
import pytest

from tests.support.agents import Held, by_turn, completed, interrupted
from tests.support.held_commits import HeldCommits, turns
from tests.support.loops import soon, until
from tests.support.places import SqlitePlace
from understudy import (
    Agent,
    AgentRef,
    Completed,
    Failed,
    Interrupted,
    Paused,
    Quarantined,
    Run,
    Runtime,
    ScriptedModel,
    Status,
    ToolContext,
    approve,
    call,
    tool,
)
from understudy.actors import AgentActor, LoopActorRegistry, Schedules
from understudy.journal.database_store import DatabaseStore
from understudy.middleware import Middleware, Next, SubAgent
from understudy.run.tool_call import ToolCall

ID = "t"


@tool
async def pay() -> str:
    return "paid"


class Stage:
    """One runtime on the store whose commits are held, with one agent."""

    def __init__(self, commits: HeldCommits, stack: AsyncExitStack) -> None:
        self.commits = commits
        self.stack = stack
        self.runtime: Runtime

    async def open(self, *turns: Any, model: Any = None, **options: Any) -> AgentRef:
        """The agent, in memory: to claim it takes a commit of its own."""
        host = {key: options.pop(key) for key in ("stop_timeout", "deps_for") if key in options}
        host.setdefault("stop_timeout", 0.001)
        options.setdefault("tools", [pay])
        agent = Agent("desk", model or by_turn(*turns), **options)
        store = DatabaseStore(self.commits)
        self.runtime = Runtime([agent], store=store, idle_timeout=None, **host)
        await self.stack.enter_async_context(self.runtime)
        ref = self.runtime.spawn("desk", ID)
        await soon(ref.state())
        return ref

    async def rested(self, *turns: Any, **options: Any) -> AgentRef:
        """The agent after its first run, with all of it durable."""
        ref = await self.open(*turns, **options)
        completed(await soon(ref.run("hello")))
        await soon(ref.state())
        return ref

    async def asked(self, *turns: Any, **options: Any) -> tuple[AgentRef, Interrupted]:
        """The agent while it waits for a person, with all of it durable."""
        options.setdefault("interrupt_on", {"pay": True})
        ref = await self.open(*turns or (call("pay"), "done"), **options)
        outcome = interrupted(await soon(ref.run("go")))
        await soon(ref.state())
        return ref, outcome


Begin = Callable[[], Awaitable[Any]]
"""Begins the operation, and gives what its caller waits for."""
Prepare = Callable[[Stage], Awaitable[Begin]]

OPERATIONS: list[tuple[Prepare, int]] = []
"""Each with the number of commits before the one that it waits for."""


def operation(prepare: Prepare) -> Prepare:
    OPERATIONS.append((prepare, 0))
    return prepare


def operation_that_claims(prepare: Prepare) -> Prepare:
    """The claim of an agent is a commit of its own."""
    OPERATIONS.append((prepare, 1))
    return prepare


# ------------------------------------------------------------------------------ runs


@operation
async def run(stage: Stage) -> Begin:
    ref = await stage.rested("hello", "done")
    return lambda: ref.run("go")


@operation_that_claims
async def run_of_a_new_agent(stage: Stage) -> Begin:
    await stage.open("done")
    return lambda: stage.runtime.spawn("desk", "new").run("go")


@operation
async def run_that_fails(stage: Stage) -> Begin:
    ref = await stage.open(ValueError("no model"))
    return lambda: ref.run("go")


@operation
async def run_that_asks(stage: Stage) -> Begin:
    ref = await stage.open(call("pay"), interrupt_on={"pay": True})
    return lambda: ref.run("go")


@operation
async def run_that_is_asked_for_again(stage: Stage) -> Begin:
    ref = await stage.open("done")

    def twice() -> Awaitable[Any]:
        ref.run("go", message_id="m")
        return ref.run("go", message_id="m")

    return twice


@operation
async def run_that_withdraws_another(stage: Stage) -> Begin:
    ref, _ = await stage.asked()
    return lambda: ref.run("never mind")


@operation
async def run_that_is_quarantined(stage: Stage) -> Begin:
    third = Held(SystemExit("bang"))
    ref = await stage.open(model=ScriptedModel([SystemExit("bang"), SystemExit("bang"), third]))
    outcome = ref.run("go")
    await soon(third.entered.wait())

    def bang() -> Awaitable[Any]:
        third.release.set()
        return outcome

    return bang


@operation
async def run_of_a_quarantined_agent(stage: Stage) -> Begin:
    third = Held(SystemExit("bang"))
    ref = await stage.open(model=ScriptedModel([SystemExit("bang"), SystemExit("bang"), third]))
    ref.run("go")
    await soon(third.entered.wait())

    async def bang() -> Any:
        third.release.set()
        await turns()
        outcome = await ref.run("once more")
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, Quarantined)

    return bang


@operation
async def extract(stage: Stage) -> Begin:
    ref = await stage.open(call("pay"))
    return lambda: ref.extract("pay", "go")


@operation
async def outcome_of_a_run(stage: Stage) -> Begin:
    ref = await stage.open("done")

    def ask() -> Awaitable[Any]:
        ref.send("go")
        return ref.outcome()

    return ask


def after_a_note(ref: AgentRef, begin: Begin) -> Begin:
    """The operation, once a value is recorded that is in the state of now."""

    async def noted() -> Any:
        ref.notify("Listens", 1)
        await turns()
        return await begin()

    return noted


@operation
async def outcome_with_values_of_since(stage: Stage) -> Begin:
    ref = await stage.rested("hello", middleware=[Listens()])
    return after_a_note(ref, ref.outcome)


@operation
async def outcome_of_a_waiting_run_with_values_of_since(stage: Stage) -> Begin:
    ref, _ = await stage.asked(middleware=[Listens()])
    return after_a_note(ref, ref.outcome)


# --------------------------------------------------------------------- messages, steering


class Listens(Middleware):
    async def on_message(self, run: Run, message: Any) -> dict[str, Any]:
        return {"heard": message}


@operation
async def send(stage: Stage) -> Begin:
    ref = await stage.rested("hello")
    return lambda: ref.send("more")


@operation
async def send_of_a_message_that_is_known(stage: Stage) -> Begin:
    held = Held()
    ref = await stage.open(model=ScriptedModel([held]))
    ref.run("go")
    await soon(held.entered.wait())

    def twice() -> Awaitable[Any]:
        ref.send("more", message_id="m")
        return ref.send("more", message_id="m")

    return twice


@operation
async def notify(stage: Stage) -> Begin:
    ref = await stage.rested("hello", middleware=[Listens()])
    return lambda: ref.notify("Listens", 1)


@operation
async def resume(stage: Stage) -> Begin:
    ref, asked = await stage.asked()
    return lambda: ref.resume(asked.decide(approve()))


@operation
async def resume_that_leaves_requests(stage: Stage) -> Begin:
    ref, asked = await stage.asked([call("pay"), call("pay")])
    return lambda: ref.resume({asked.requests[0].id: approve()})


@operation
async def resume_given_again_with_values_of_since(stage: Stage) -> Begin:
    ref, asked = await stage.asked(middleware=[Listens()])
    decisions = asked.decide(approve())
    completed(await soon(ref.resume(decisions)))
    await soon(ref.state())
    return after_a_note(ref, lambda: ref.resume(decisions))


@operation
async def resume_of_a_run_that_needs_its_deps(stage: Stage) -> Begin:
    deps: list[Any] = ["shop"]
    ref, asked = await stage.asked(deps_for=lambda _: deps[0])
    deps[0] = None

    async def resumed() -> None:
        assert isinstance(await ref.resume(asked.decide(approve())), Paused)

    return resumed


@operation
async def cancel_of_a_running_agent(stage: Stage) -> Begin:
    held = Held()
    ref = await stage.open(model=ScriptedModel([held]))
    ref.run("go")
    await soon(held.entered.wait())
    await soon(ref.state())
    return ref.cancel


@operation
async def cancel_of_a_waiting_agent(stage: Stage) -> Begin:
    ref, _ = await stage.asked()
    return ref.cancel


@operation
async def unpause(stage: Stage) -> Begin:
    held = Held()
    ref = await stage.open(model=ScriptedModel([held, "more"]))
    outcome = ref.run("go")
    await soon(held.entered.wait())
    await soon(ref.pause("look"))
    held.release.set()
    assert isinstance(await soon(outcome), Paused)
    await soon(ref.state())
    return ref.unpause


@operation
async def retry(stage: Stage) -> Begin:
    replies = [SystemExit("bang")] * 3
    ref = await stage.open(model=ScriptedModel([*replies, "cured"]))
    await soon(ref.run("go"))
    return ref.retry


@operation
async def revoke(stage: Stage) -> Begin:
    ref, asked = await stage.asked()
    completed(await soon(ref.resume(asked.decide(approve(always=True)))))
    await soon(ref.state())
    return lambda: ref.revoke(asked.requests[0].id)


@operation
async def settle(stage: Stage) -> Begin:
    held = Held()

    @tool
    async def slow() -> str:
        await held.wait()
        return "slow"

    ref = await stage.open(call("slow"), tools=[slow])
    ref.run("go")
    await soon(held.entered.wait())
    await soon(ref.cancel())
    (key,) = (await soon(ref.state())).doubts
    return lambda: ref.settle(key, how="looked")


# ------------------------------------------------------------------------------ looking


@operation
async def state_after_send(stage: Stage) -> Begin:
    ref = await stage.rested("hello")

    def look() -> Awaitable[Any]:
        ref.send("more")
        return ref.state()

    return look


@operation
async def decisions(stage: Stage) -> Begin:
    ref, asked = await stage.asked([call("pay"), call("pay")])

    def look() -> Awaitable[Any]:
        ref.resume({asked.requests[0].id: approve()})
        return ref.decisions()

    return look


# ------------------------------------------------------------------------------- keeping


@operation
async def stop(stage: Stage) -> Begin:
    ref = await stage.rested("hello", middleware=[Listens()])
    return after_a_note(ref, lambda: ref.stop(block=False))


@operation
async def stop_in_the_middle_of_a_run(stage: Stage) -> Begin:
    held = Held(call("pay"))
    ref = await stage.open(model=ScriptedModel([held, "done"]))
    ref.run("go")
    await soon(held.entered.wait())
    await soon(ref.state())

    def stopped() -> Awaitable[Any]:
        answer: Awaitable[Any] = ref.stop(block=False)
        held.release.set()
        return answer

    return stopped


@operation
async def compact(stage: Stage) -> Begin:
    ref = await stage.rested("hello")
    return ref.compact


@operation
async def delete_of_an_agent_in_memory(stage: Stage) -> Begin:
    await stage.rested("hello")
    return lambda: stage.runtime.delete(ID)


@operation
async def delete_of_a_running_agent(stage: Stage) -> Begin:
    held = Held()
    ref = await stage.open(model=ScriptedModel([held]))
    ref.run("go")
    await soon(held.entered.wait())
    return lambda: stage.runtime.delete(ID)


@operation
async def delete_of_a_passive_agent(stage: Stage) -> Begin:
    ref = await stage.rested("hello")
    await soon(ref.stop(block=False))
    return lambda: stage.runtime.delete(ID)


@operation_that_claims
async def import_(stage: Stage) -> Begin:
    await stage.rested("hello")
    data = await soon(stage.runtime.export(ID))
    return lambda: stage.runtime.import_(data, id="copy")


@operation
async def leaving_the_runtime(stage: Stage) -> Begin:
    ref = await stage.rested("hello", middleware=[Listens()])
    return after_a_note(ref, stage.stack.aclose)


# -------------------------------------------------------------- what else waits for a commit


class Told(Middleware):
    """Reports when one of its hooks is called, and what the function that it runs gives."""

    def __init__(self, hook: str, do: Callable[[Run], Awaitable[Any]] | None = None) -> None:
        self._hook, self._do = hook, do
        self.told = asyncio.Event()

    async def _called(self, hook: str, run: Run) -> None:
        if hook == self._hook:
            if self._do is not None:
                await self._do(run)
            self.told.set()

    async def before_model(self, run: Run, request: Any) -> None:
        await self._called("before_model", run)

    async def after_model(self, run: Run, reply: Any) -> None:
        if run.current.turns:  # the first reply has seen no result
            await self._called("after_model", run)

    async def on_resume(self, run: Run, decisions: Any) -> None:
        await self._called("on_resume", run)


def runs_until(ref: AgentRef, told: asyncio.Event) -> Begin:
    def begin() -> Awaitable[Any]:
        ref.run("go")
        return told.wait()

    return begin


def entered_tool(entered: asyncio.Event, **options: Any) -> Any:
    @tool(**options)
    async def enter() -> str:
        entered.set()
        return "entered"

    return enter


@operation
async def the_first_model_call_for_a_message_with_an_id(stage: Stage) -> Begin:
    """J10: such a run is found again if this kills the process, so it must be counted."""
    held = Held()
    ref = await stage.open(model=ScriptedModel([held]))

    def begin() -> Awaitable[Any]:
        ref.send("go", message_id="m")
        return held.entered.wait()

    return begin


@operation
async def the_body_of_a_tool(stage: Stage) -> Begin:
    entered = asyncio.Event()
    ref = await stage.open(call("enter"), tools=[entered_tool(entered)])
    return runs_until(ref, entered)


@operation
async def the_body_of_a_tool_of_a_sub_agent(stage: Stage) -> Begin:
    entered, reply = asyncio.Event(), Held(call("enter"))
    helper = Agent("helper", ScriptedModel([reply]), tools=[entered_tool(entered)])
    task = call("task", {"task_name": "helper", "instructions": "enter"})
    sub_agents = SubAgent(agents=[helper], general_purpose=False)
    ref = await stage.open(task, middleware=[sub_agents])
    ref.run("go")
    await soon(reply.entered.wait())
    await soon(ref.state())

    def begin() -> Awaitable[Any]:
        reply.release.set()
        return entered.wait()

    return begin


@operation
async def the_second_entry_of_an_idempotent_tool(stage: Stage) -> Begin:
    entries, entered_again, between = list[int](), asyncio.Event(), Held()

    @tool(idempotent=True)
    async def enter() -> str:
        entries.append(1)
        if len(entries) == 2:
            entered_again.set()
        return "entered"

    class Twice(Middleware):
        async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
            await next(call)
            await between.wait()
            return await next(call)

    ref = await stage.open(call("enter"), tools=[enter], middleware=[Twice()])
    ref.run("go")
    await soon(between.entered.wait())
    await soon(ref.state())

    def again() -> Awaitable[Any]:
        between.release.set()
        return entered_again.wait()

    return again


@operation
async def the_code_behind_once(stage: Stage) -> Begin:
    told = Told("before_model", lambda run: run.once("key", lambda: 1))
    return runs_until(await stage.open("done", middleware=[told]), told.told)


@operation
async def the_code_behind_replace_history(stage: Stage) -> Begin:
    told = Told("before_model", lambda run: run.replace_history(run.state.messages))
    return runs_until(await stage.open("done", middleware=[told]), told.told)


@operation
async def after_model(stage: Stage) -> Begin:
    """J2: the results that the reply saw come first."""
    told, held = Told("after_model"), Held()

    @tool
    async def slow() -> str:
        await held.wait()
        return "slow"

    ref = await stage.open(call("slow"), "done", tools=[slow], middleware=[told])
    ref.run("go")
    await soon(held.entered.wait())
    await soon(ref.state())

    def begin() -> Awaitable[Any]:
        held.release.set()
        return told.told.wait()

    return begin


@operation
async def on_resume(stage: Stage) -> Begin:
    told = Told("on_resume")
    ref, asked = await stage.asked(middleware=[told])

    def decide() -> Awaitable[Any]:
        ref.resume(asked.decide(approve()))
        return told.told.wait()

    return decide


@operation
async def the_event_of_a_record(stage: Stage) -> Begin:
    ref = await stage.open("done")
    subscription = ref.events()

    async def first() -> None:
        ref.run("go")
        async for event in subscription:
            if event.seq is not None:
                subscription.close()
                return

    return first


# ---------------------------------------------------------------------- time, and waits

TOMORROW = datetime.now(timezone.utc) + timedelta(days=1)


@operation
async def send_at_a_time(stage: Stage) -> Begin:
    ref = await stage.rested("hello", "done")
    return lambda: ref.send("go", at=TOMORROW)


@operation
async def cancel_of_a_message(stage: Stage) -> Begin:
    ref = await stage.rested("hello", "done")
    message_id = await soon(ref.send("go", at=TOMORROW))
    return lambda: ref.cancel_message(message_id)


@operation
async def pause_of_an_idle_agent(stage: Stage) -> Begin:
    ref = await stage.rested("hello", "done")
    return lambda: ref.pause("look")


async def scheduled(stage: Stage) -> Schedules:
    ref = await stage.rested("hello", "done", "done")
    await soon(stage.runtime.schedule(ref, "daily", cron="0 9 * * *", input="go"))
    return stage.runtime.schedules(ref)


@operation
async def schedule(stage: Stage) -> Begin:
    ref = await stage.rested("hello", "done")
    return lambda: stage.runtime.schedule(ref, "daily", cron="0 9 * * *", input="go")


@operation
async def pause_of_a_schedule(stage: Stage) -> Begin:
    schedules = await scheduled(stage)
    return lambda: schedules.pause("daily")


@operation
async def resume_of_a_schedule(stage: Stage) -> Begin:
    schedules = await scheduled(stage)
    await soon(schedules.pause("daily"))
    return lambda: schedules.resume("daily")


@operation
async def trigger_of_a_schedule(stage: Stage) -> Begin:
    schedules = await scheduled(stage)
    return lambda: schedules.trigger("daily")


@operation
async def removal_of_a_schedule(stage: Stage) -> Begin:
    schedules = await scheduled(stage)
    return lambda: schedules.remove("daily")


async def waits(stage: Stage) -> str:
    """The token of a tool that waits."""
    tokens: list[str] = []

    @tool
    async def wait(ctx: ToolContext) -> str:
        tokens.append(await ctx.token("paid"))
        return str(await ctx.wait_for("paid"))

    ref = await stage.open(call("wait"), "done", tools=[wait])
    ref.run("go")
    await until(lambda: ref.status() is Status.WAITING)
    await soon(ref.state())
    return tokens[0]


@operation
async def resolve(stage: Stage) -> Begin:
    token = await waits(stage)
    return lambda: stage.runtime.resolve(token, "ann")


@operation
async def reject_of_a_wait(stage: Stage) -> Begin:
    token = await waits(stage)
    return lambda: stage.runtime.reject(token, "no")


# ------------------------------------------------------------------------------- the tests


@pytest.mark.parametrize(
    ("prepare", "before"), OPERATIONS, ids=[prepare.__name__ for prepare, _ in OPERATIONS]
)
async def test_what_follows_from_a_record_waits_for_its_commit(
    sqlite: SqlitePlace, prepare: Prepare, before: int
) -> None:
    commits = HeldCommits(sqlite.backend())
    async with AsyncExitStack() as stack:
        begin = await prepare(Stage(commits, stack))
        with commits.held():
            answer = asyncio.ensure_future(begin())
            for _ in range(before):
                await commits.reached()
                commits.let_one_pass()
            await commits.reached()
            await turns()
            assert not answer.done(), "it did not wait for its commit"
        await soon(answer)


async def test_an_outcome_tells_nothing_that_was_recorded_while_it_waited(
    sqlite: SqlitePlace,
) -> None:
    """J16: what came behind the end of the run is in a later commit."""
    commits, held = HeldCommits(sqlite.backend()), Held("done")
    async with AsyncExitStack() as stack:
        stage = Stage(commits, stack)
        ref = await stage.open(model=ScriptedModel([held]), middleware=[Listens()])
        outcome = ref.run("go")
        await soon(held.entered.wait())
        await soon(ref.state())
        with commits.held():
            held.release.set()
            await commits.reached()
            ref.notify("Listens", 1)
            await turns()
            commits.let_one_pass()
            done = completed(await soon(outcome))
            assert dict(done.state.values) == {}
        assert (await soon(ref.state())).values["heard"] == 1


async def test_a_cancelled_run_tells_nothing_that_was_recorded_while_its_outcome_waited(
    sqlite: SqlitePlace,
) -> None:
    """J16: as for a run that ends by itself."""
    commits = HeldCommits(sqlite.backend())
    async with AsyncExitStack() as stack:
        ref, _ = await Stage(commits, stack).asked(middleware=[Listens()])
        with commits.held():
            outcome = ref.cancel()
            await commits.reached()
            ref.notify("Listens", 1)
            await turns()
            commits.let_one_pass()
            stopped = await soon(outcome)
            assert stopped is not None
            assert dict(stopped.state.values) == {}


async def test_an_agent_is_not_activated_for_a_message_while_the_runtime_closes(
    sqlite: SqlitePlace,
) -> None:
    """The message is refused, and no run of it is recorded."""
    commits, model = HeldCommits(sqlite.backend()), ScriptedModel(["hello", "never said"])
    async with AsyncExitStack() as stack:
        ref = await Stage(commits, stack).rested(model=model, stop_timeout=None)
        with commits.held():
            compacted = ref.compact()
            await commits.reached()  # it is being released: messages wait
            outcome = ref.run("go")
            leaving = asyncio.ensure_future(stack.aclose())
            await turns()
            assert not outcome.done()
        await soon(leaving)
        await soon(compacted)
        with pytest.raises(pykka.ActorDeadError):
            await soon(outcome)
    async with AsyncExitStack() as stack:
        later = Stage(HeldCommits(sqlite.backend()), stack)
        ref = await later.open()
        assert len((await soon(ref.state())).messages) == 2
        assert await soon(later.runtime.recover()) == []


async def test_an_actor_that_is_killed_while_it_reads_its_agent_leaves_it_to_the_next_one(
    sqlite: SqlitePlace,
) -> None:
    """A3: what the first one has read by then is not used."""
    commits, woken = HeldCommits(sqlite.backend()), list[str]()

    class Wakes(Middleware):
        async def on_start(self, ref: Any) -> None:
            woken.append(ref.id)

    async with AsyncExitStack() as stack:
        stage = Stage(commits, stack)
        await stage.open("done", middleware=[Wakes()])
        woken.clear()
        known = {*LoopActorRegistry.get_by_class(AgentActor)}
        with commits.held():
            outcome = stage.runtime.spawn("desk", "new").run("go")
            await commits.reached()
            (reading,) = {*LoopActorRegistry.get_by_class(AgentActor)} - known
            victim: Any = reading
            victim.stop_now(RuntimeError("killed"))
            await turns()
        completed(await soon(outcome))
        assert woken == ["new"]


async def test_who_waits_for_a_run_is_told_where_the_runtime_ends_while_its_agent_is_read_again(
    sqlite: SqlitePlace,
) -> None:
    """A8: the run was halted, and its waiters wait on while the agent is passive."""
    commits, held = HeldCommits(sqlite.backend()), Held(call("pay"))
    async with AsyncExitStack() as stack:
        ref = await Stage(commits, stack).open(model=ScriptedModel([held, "done"]))
        outcome = ref.run("go")
        await soon(held.entered.wait())
        stopped = ref.stop(block=False)
        held.release.set()
        assert await soon(stopped)
        assert not outcome.done()
        with commits.held():
            looking = ref.cancel_message("none")
            await commits.reached()
            leaving = asyncio.ensure_future(stack.aclose())
            await until(lambda: outcome.done() and looking.done())
        await soon(leaving)
        for future in (outcome, looking):
            with pytest.raises(pykka.ActorDeadError):
                await soon(future)


@pytest.mark.parametrize("at", [1, 2])
async def test_an_unpause_that_comes_while_the_run_pauses_is_not_lost(
    sqlite: SqlitePlace, at: int
) -> None:
    """It comes while one of the run's commits is under way."""
    commits = HeldCommits(sqlite.backend())
    async with AsyncExitStack() as stack:
        ref = await Stage(commits, stack).rested("hello", "done")
        await soon(ref.pause("look"))
        with commits.held():
            outcome = ref.run("go")
            for _ in range(at - 1):
                await commits.reached()
                commits.let_one_pass()
            await commits.reached()
            await turns()
            lifted = ref.unpause()
        await soon(lifted)
        await soon(outcome)
        await until(lambda: ref.status() is Status.IDLE)
        assert isinstance(await soon(ref.outcome()), Completed)
