"""One agent's crash stops no other, whatever is raised wherever; and no wait is for ever.

Rules: A8, A9, J14.
"""

from __future__ import annotations

import asyncio
import datetime
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import pykka
import pytest

from tests.support.agents import Held, by_turn, completed
from tests.support.children import error_of, in_child
from tests.support.loops import soon, until
from understudy import (
    Agent,
    AgentRef,
    Completed,
    Interrupted,
    Observer,
    Outcome,
    Paused,
    Runtime,
    ScriptedModel,
    ToolContext,
    call,
    respond,
    tool,
)
from understudy.actors import Future
from understudy.errors import JournalFailed, OtherAgent, UnknownAgent, UsageError
from understudy.journal import IndexStatus, Loaded, MemoryStore, StoredAgent
from understudy.loop_actors.future import refuse
from understudy.middleware import HumanInTheLoop, Middleware

ENDS = [SystemExit, KeyboardInterrupt, MemoryError]


def healthy() -> Agent:
    return Agent("healthy", ScriptedModel(lambda _: "well"))


async def works(runtime: Runtime) -> None:
    """Another agent of this runtime runs as if nothing had happened."""
    outcome = await soon(runtime.spawn("healthy").run("go"))
    assert isinstance(outcome, Completed)


@pytest.mark.parametrize("raised", ENDS)
@pytest.mark.parametrize("is_async", [True, False])
async def test_an_on_start_hook_that_raises_anything_refuses_its_agent_alone(
    raised: type[BaseException], is_async: bool
) -> None:
    """A8."""

    class Plain(Middleware):
        def on_start(self, actor: Any) -> None:  # type: ignore[override]  # plain is allowed
            raise raised("out")

    class Async(Middleware):
        async def on_start(self, actor: Any) -> None:
            raise raised("out")

    sick = Agent("sick", ScriptedModel(["never"]), middleware=[Async() if is_async else Plain()])
    async with Runtime([sick, healthy()]) as runtime:
        with pytest.raises(Exception, match="out"):  # no SystemExit
            await soon(runtime.spawn("sick").run("go"))
        await works(runtime)


@pytest.mark.parametrize("raised", ENDS)
async def test_an_on_message_hook_that_raises_anything_refuses_its_message_alone(
    raised: type[BaseException],
) -> None:
    class Sick(Middleware):
        async def on_message(self, run: Any, message: Any) -> None:
            raise raised("out")

    sick = Agent("sick", ScriptedModel(lambda _: "well"), middleware=[Sick()])
    async with Runtime([sick, healthy()]) as runtime:
        ref = runtime.spawn("sick")
        with pytest.raises(Exception, match="out"):
            await soon(ref.notify("Sick", "hello"))
        assert isinstance(await soon(ref.run("go")), Completed)
        await works(runtime)


@tool
def refund() -> str:
    """Pay money back."""
    return "refunded"


@pytest.mark.parametrize("raised", [*ENDS, ValueError])
async def test_deps_for_that_raises_anything_pauses_a_run_that_needs_its_deps(
    raised: type[BaseException],
) -> None:
    broken = False

    def deps_for(agent_id: str) -> str:
        if broken and agent_id == "gated":
            raise raised("out")
        return "deps"

    model = ScriptedModel([call("refund"), "done"])
    gated = Agent("gated", model, tools=[refund], interrupt_on={"refund": True})
    async with Runtime([gated, healthy()], deps_for=deps_for) as runtime:
        ref = runtime.spawn("gated", "gated")
        outcome = await soon(ref.run("go"))
        assert isinstance(outcome, Interrupted)
        broken = True
        assert isinstance(await soon(ref.resume(outcome.decide(respond("yes")))), Paused)
        await works(runtime)


class Clock:
    """The system's clock, until it breaks."""

    def __init__(self) -> None:
        self.broken: type[BaseException] | None = None

    def now(self) -> datetime.datetime:
        if self.broken is not None:
            raise self.broken("the clock is broken")
        return datetime.datetime.now(datetime.timezone.utc)

    def monotonic(self) -> float:
        return 0.0


@pytest.mark.parametrize("raised", [*ENDS, ValueError])
async def test_a_clock_that_raises_is_an_error_of_the_waiters(raised: type[BaseException]) -> None:
    clock = Clock()

    async def breaks(_: Any) -> str:
        clock.broken = raised
        return "first"

    agent = Agent("a", ScriptedModel([breaks, "second"]))
    async with Runtime([agent, healthy()], clock=clock) as runtime:
        ref = runtime.spawn("a")
        first, second = ref.run("go"), ref.run("next")
        for run in (first, second):
            with pytest.raises(JournalFailed, match="clock"):
                await soon(run)
        clock.broken = None
        await works(runtime)


# --------------------------------------------------------------------------------- waiting


async def _out(raised: type[BaseException]) -> str:
    raise raised("out")


async def _in_a_gather(raised: type[BaseException]) -> str:
    (said,) = await asyncio.gather(_out(raised))
    return said


async def _in_a_task_group(raised: type[BaseException]) -> str:
    async with asyncio.TaskGroup() as group:
        said = group.create_task(_out(raised))
    return said.result()


@pytest.mark.parametrize("raised", ENDS)
@pytest.mark.parametrize("inside", [_in_a_gather, _in_a_task_group])
def test_a_system_exit_in_a_task_of_a_tool_ends_no_other_agent(
    raised: type[BaseException], inside: Callable[[type[BaseException]], Any]
) -> None:
    """A task of its own, which no code of ours is around: it stops the loop of all agents."""

    @tool
    async def leave() -> str:
        return str(await inside(raised))

    desk = Agent("desk", by_turn(call("leave")), tools=[leave])
    with Runtime([desk, healthy()]) as runtime:
        runtime.spawn("desk").run("go").get(timeout=60)
        assert completed(runtime.spawn("healthy").run("go").get(timeout=60)).text == "well"


def test_a_wait_that_times_out_is_a_timeout_error_and_pykkas() -> None:
    held = Agent("held", ScriptedModel([lambda _: None]), tools=[refund])
    with Runtime([held]) as runtime:
        ref = runtime.spawn("held")
        ref.stop()
        for error in (TimeoutError, pykka.Timeout):
            with pytest.raises(error):
                pykka.Future.join(ref.state(), _never()).get(timeout=0)


def _never() -> Any:
    from understudy.actors import Future

    return Future()


def test_in_a_forked_child_every_call_of_a_ref_and_of_a_runtime_is_refused(store: str) -> None:
    with Runtime([healthy()], store=store, feed=True) as runtime:
        ref = runtime.spawn("healthy", "one")
        ref.run("go").get(timeout=60)
        events = ref.events(after=10**6)
        feed = runtime.events()
        feed.position().get(timeout=60)
        schedules = runtime.schedules(ref)
        calls: list[Callable[[], object]] = [
            lambda: ref.run("go"),
            lambda: ref.send("go"),
            lambda: ref.resume({}),
            ref.cancel,
            ref.pause,
            ref.unpause,
            ref.retry,
            ref.outcome,
            ref.state,
            ref.status,
            ref.history,
            ref.decisions,
            ref.compact,
            ref.events,
            lambda: next(iter(events)),
            lambda: next(iter(feed)),
            lambda: asyncio.run(first_of(events)),
            lambda: asyncio.run(first_of(feed)),
            lambda: runtime.spawn("healthy"),
            lambda: runtime.get("one"),
            runtime.agents,
            runtime.pending,
            runtime.waiting,
            runtime.count,
            runtime.events,
            runtime.recover,
            runtime.tree,
            runtime.status,
            lambda: runtime.delete("one"),
            lambda: runtime.compact("one"),
            lambda: runtime.export("one"),
            lambda: runtime.import_({}),
            lambda: runtime.resolve("token", 1),
            lambda: schedules.list(),
        ]

        def use() -> list[str]:
            said = [error_of(call) for call in calls]
            runtime.stop()  # does nothing: the loop is the parent's
            return said

        assert in_child(use) == ["ForkedRuntime"] * len(calls)
        assert isinstance(ref.run("go").get(timeout=60), Completed)
        events.close()


async def first_of(items: AsyncIterable[object]) -> object:
    return await anext(aiter(items))


def test_what_is_pending_at_a_fork_is_refused_in_the_child(store: str) -> None:
    """Each was begun in the parent, and is settled there."""
    called, release = threading.Event(), threading.Event()

    async def held(_: object) -> str:
        called.set()
        await asyncio.to_thread(release.wait, 60)
        return "well"

    with Runtime([Agent("slow", ScriptedModel(held))], store=store) as runtime:
        ref = runtime.spawn("slow", "one")
        run = ref.run("go")
        assert called.wait(60)
        pending: list[Future[Any]] = [run, ref.outcome(), ref.compact(), run.map(str)]

        def await_it(future: Future[Any]) -> None:
            asyncio.run(soon(future))

        def use() -> list[str]:
            gets = [error_of(partial(future.get, timeout=60)) for future in pending]
            return gets + [error_of(partial(await_it, future)) for future in pending]

        assert in_child(use) == ["ForkedRuntime"] * 2 * len(pending)
        release.set()
        assert isinstance(run.get(timeout=60), Completed)


def test_in_a_forked_child_an_observer_is_refused_and_can_be_left(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    with Runtime([healthy()], store=store, feed=True) as runtime:
        runtime.spawn("healthy", "one").run("go").get(timeout=60)
        observer = Observer(store)
        with observer:
            feed = observer.events()
            feed.position().get(timeout=60)
            agents = observer.agents()
            calls: list[Callable[[], object]] = [
                lambda: agents.get(timeout=60),
                lambda: next(iter(feed)),
                observer.agents,
                observer.pending,
                observer.waiting,
                observer.count,
                observer.events,
                lambda: observer.state("one"),
                lambda: observer.history("one"),
                lambda: observer.events("one"),
                lambda: observer.export("one"),
            ]

            def use() -> list[str]:
                said = [error_of(call) for call in calls]
                observer.__exit__(None, None, None)
                return said

            assert in_child(use) == ["ForkedRuntime"] * len(calls)
            assert [info.id for info in observer.agents().get(timeout=60)] == ["one"]


class HeldStore(MemoryStore):
    """A store that takes its time to say that there is no such agent."""

    def __init__(self) -> None:
        super().__init__()
        self.held = Held()

    async def load(self, agent_id: str, after: int = 0) -> Loaded | None:
        await self.held.wait()
        return await super().load(agent_id, after)


async def test_an_agent_that_is_spawned_while_a_call_of_its_id_is_refused_runs() -> None:
    store = HeldStore()
    async with Runtime([healthy()], store=store) as runtime:
        early = runtime.get("h-1").state()
        await soon(store.held.entered.wait())
        run = runtime.spawn("healthy", "h-1").run("go")
        store.held.release.set()
        assert isinstance(await soon(run), Completed)
        assert len((await soon(early)).messages) in (0, 2)


async def test_what_is_asked_for_while_a_call_before_it_is_refused_is_not_refused_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread hears at once that there is no such agent, and makes it."""
    runs: list[Future[Outcome]] = []

    async with Runtime([healthy()]) as runtime:

        def spawn_and_run() -> None:
            runs.append(runtime.spawn("healthy", "h-1").run("go"))

        def refuse_and_spawn(future: Future[Any], error: BaseException) -> None:
            refuse(future, error)
            if not runs:
                thread = threading.Thread(target=spawn_and_run)
                thread.start()
                thread.join(60)

        monkeypatch.setattr("understudy.actors.agent.slot.refuse", refuse_and_spawn)
        with pytest.raises(UnknownAgent):
            await soon(runtime.get("h-1").pause())
        assert isinstance(await soon(runs[0]), Completed)


def two_agents(seen: list[object]) -> list[Agent]:
    @tool
    def look(ctx: ToolContext) -> str:
        seen.append(ctx.deps)
        return "seen"

    return [Agent(name, by_turn("hi", call("look"), f"{name} here"), tools=[look]) for name in "ab"]


async def stored(store: MemoryStore, agents: list[Agent]) -> None:
    """The store has an agent 'x' of the definition 'a'."""
    async with Runtime(agents, store=store) as runtime:
        await soon(runtime.spawn("a", "x").run("hello"))


async def is_refused(ref: AgentRef) -> None:
    with pytest.raises(OtherAgent, match="'x' is a 'a' already, not this 'b'"):
        await soon(ref.run("go"))


@pytest.mark.parametrize("late", [False, True], ids=["asks at once", "asks later"])
async def test_a_spawn_with_another_definition_while_the_agent_is_read_is_refused(
    late: bool,
) -> None:
    """J6, A9: neither the agent nor the call that reads it is disturbed; the spawn's values go."""
    seen: list[object] = []
    agents = two_agents(seen)
    store = HeldStore()
    store.held.release.set()
    await stored(store, agents)
    store.held = Held()
    async with Runtime(agents, store=store, idle_timeout=None) as runtime:
        early = runtime.get("x").state()
        await soon(store.held.entered.wait())
        wrong = runtime.spawn("b", "x", deps="for b", values={"for": "b"})
        first = None if late else wrong.run("go")
        store.held.release.set()
        assert (await soon(early)).values == {}
        if first is not None:
            with pytest.raises(OtherAgent, match="'x' is a 'a' already, not this 'b'"):
                await soon(first)
        await is_refused(wrong)
        assert completed(await soon(runtime.get("x").run("go"))).text == "a here"
        assert seen == [None]
        await is_refused(wrong)
        with pytest.raises(OtherAgent):
            runtime.spawn("b", "x")
        assert completed(await soon(runtime.spawn("a", "x").run("go"))).text == "done"


async def test_a_call_is_not_refused_because_of_a_spawn_with_another_definition() -> None:
    """A9: the spawn comes right behind the call, before the agent is read."""
    seen: list[object] = []
    agents = two_agents(seen)
    store = MemoryStore()
    await stored(store, agents)
    async with Runtime(agents, store=store) as runtime:
        early = runtime.get("x").run("go")
        wrong = runtime.spawn("b", "x", deps="for b")
        refused = wrong.run("go")
        assert completed(await soon(early)).text == "a here"
        with pytest.raises(OtherAgent):
            await soon(refused)
        assert seen == [None]
        await is_refused(wrong)


async def test_a_refused_spawn_gives_its_deps_to_nobody() -> None:
    """A9."""
    seen: list[object] = []
    agents = two_agents(seen)
    store = MemoryStore()
    await stored(store, agents)
    async with Runtime(agents, store=store) as runtime:
        await is_refused(runtime.spawn("b", "x", deps="for b"))
        assert completed(await soon(runtime.get("x").run("go"))).text == "a here"
        assert seen == [None]


async def test_a_call_of_an_id_that_nobody_spawns_is_refused() -> None:
    async with Runtime([healthy()]) as runtime:
        with pytest.raises(UnknownAgent):
            await soon(runtime.get("h-1").state())


# ---------------------------------------------------------------- a message of an earlier run


async def test_a_message_sent_again_after_later_runs_brings_the_outcome_of_its_own_run() -> None:
    """J14."""
    model = ScriptedModel(lambda request: f"answer to {request.prompt}")
    async with Runtime([Agent("a", model)]) as runtime:
        ref = runtime.spawn("a")
        first = await soon(ref.run("one", message_id="m-1"))
        await soon(ref.run("two", message_id="m-2"))
        await soon(ref.stop(block=False))
        again = await soon(ref.run("one", message_id="m-1"))
        assert isinstance(first, Completed)
        assert isinstance(again, Completed)
        assert (
            (again.text, again.run_id)
            == (first.text, first.run_id)
            == ("answer to one", first.run_id)
        )
        assert len(again.state.messages) == len(first.state.messages)
        assert len(model.requests) == 2


async def test_the_outcome_of_an_earlier_run_that_is_compacted_away_is_refused_with_a_reason() -> (
    None
):
    async with Runtime([Agent("a", ScriptedModel(lambda _: "done"))]) as runtime:
        ref = runtime.spawn("a")
        await soon(ref.run("one", message_id="m-1"))
        await soon(ref.run("two"))
        await soon(ref.compact())
        with pytest.raises(UsageError, match="compacted away"):
            await soon(ref.run("one", message_id="m-1"))


@pytest.mark.parametrize("raised", [*ENDS, ValueError])
async def test_a_clock_that_raises_while_something_is_due_disturbs_no_agent(
    raised: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    gate = HumanInTheLoop({"refund": True}, remind_after=0.01)
    agent = Agent("a", ScriptedModel([call("refund"), "done"]), tools=[refund], middleware=[gate])
    async with Runtime([agent, healthy()], clock=clock) as runtime:
        clock.broken = None
        assert isinstance(await soon(runtime.spawn("a").run("go")), Interrupted)
        clock.broken = raised
        await until(lambda: "the clock raised" in caplog.text)
        clock.broken = None
        await works(runtime)


@pytest.mark.parametrize("raised", [*ENDS, ValueError])
async def test_a_store_that_raises_anything_in_a_sweep_disturbs_no_agent(
    raised: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    class Sick(MemoryStore):
        async def due(self, until: datetime.datetime) -> AsyncIterator[StoredAgent]:
            raise raised("out")
            yield

        async def agents(
            self, index_statuses: Collection[IndexStatus] | None = None
        ) -> AsyncIterator[StoredAgent]:
            raise raised("out")
            yield

    async with Runtime([healthy()], store=Sick(), sweep=0.01) as runtime:
        await until(lambda: "which runs have no owner is not known" in caplog.text)
        assert "which agents are due cannot be read" in caplog.text
        await works(runtime)
