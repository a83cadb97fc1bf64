"""`Runtime`: both forms, spawning and finding agents, and everything that a caller may do wrong.

Rules: A10.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pykka
import pytest

from tests.support.agents import Held, by_turn, completed, interrupted
from tests.support.interrupts import ctrl_c
from tests.support.loops import soon
from understudy import (
    Agent,
    AgentRef,
    Completed,
    NotExtracted,
    Runtime,
    ScriptedModel,
    Status,
    ToolContext,
    UntilToolNotCalled,
    UsageError,
    WouldDeadlock,
    call,
    respond,
    tool,
)
from understudy._base.clock import SystemClock
from understudy._base.json_values import shown
from understudy.actors import AgentInfo, AgentTree, Future, RuntimeStopped
from understudy.errors import ForkedRuntime
from understudy.events import RunFinished
from understudy.middleware import SubAgent

HALF = "half \ud800"
"""Text that is not valid Unicode."""


def echo(name: str = "echo", **options: Any) -> Agent:
    return Agent(name, ScriptedModel(lambda request: f"you said {request.prompt}"), **options)


def in_time(work: Callable[[], object]) -> None:
    """Do it in a thread; what would block for ever fails instead."""
    future: Future[object] = Future()

    def go() -> None:
        try:
            future.set(work())
        except BaseException as error:
            future.set_exception((type(error), error, error.__traceback__))

    threading.Thread(target=go, daemon=True).start()
    future.get(timeout=60)


# ---------------------------------------------------------------------- the two forms


def test_with_starts_a_loop_of_its_own_and_a_thread_gets_the_outcome() -> None:
    def work() -> None:
        with Runtime([echo()]) as runtime:
            outcome = runtime.spawn("echo", "one").run("hello").get(timeout=60)
            assert completed(outcome).text == "you said hello"

    in_time(work)


async def test_async_with_lives_on_the_hosts_loop_and_so_do_async_tools() -> None:
    loops = []

    @tool
    async def where() -> str:
        loops.append(asyncio.get_running_loop())
        return "here"

    agent = Agent("host", ScriptedModel([call("where"), "done"]), tools=[where])
    async with Runtime([agent]) as runtime:
        assert isinstance(await soon(runtime.spawn("host").run("go")), Completed)
    assert loops == [asyncio.get_running_loop()]


def test_many_threads_run_agents_of_one_runtime() -> None:
    texts: dict[int, str] = {}

    def work() -> None:
        with Runtime([echo()]) as runtime:

            def use(number: int) -> None:
                ref = runtime.spawn("echo", f"agent {number % 4}")
                texts[number] = completed(ref.run(f"{number}").get(timeout=60)).text

            threads = [threading.Thread(target=use, args=(n,), daemon=True) for n in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)

    in_time(work)
    assert texts == {number: f"you said {number}" for number in range(16)}


async def test_two_runtimes_know_nothing_of_each_other() -> None:
    async with Runtime([echo()]) as one, Runtime([echo()]) as other:
        here, there = one.spawn("echo", "same"), other.spawn("echo", "same")
        assert here != there
        await soon(here.run("one"))
        assert len((await soon(there.state())).messages) == 0


async def test_get_on_the_runtimes_own_loop_raises_at_once() -> None:
    async with Runtime([echo()]) as runtime:
        future = runtime.spawn("echo").run("go")
        with pytest.raises(WouldDeadlock, match="await"):
            future.get()
        assert completed(await soon(future)).text == "you said go"


def test_an_async_tool_that_gets_in_the_runtimes_own_thread_is_told() -> None:
    errors: list[BaseException] = []

    @tool
    async def blocks(context: ToolContext) -> str:
        future = context.deps.run("go")
        try:
            future.get()
        except WouldDeadlock as error:
            errors.append(error)
        return completed(await future).text

    def work() -> None:
        agent = Agent("outer", ScriptedModel([call("blocks"), "done"]), tools=[blocks])
        with Runtime([agent, echo()]) as runtime:
            ref = runtime.spawn("outer", deps=runtime.spawn("echo"))
            assert completed(ref.run("go").get(timeout=60)).text == "done"

    in_time(work)
    assert len(errors) == 1


async def test_with_works_where_a_loop_runs_and_every_call_may_wait(tmp_path: Path) -> None:
    """A10: as in a cell of a notebook: the runtime has a loop of its own."""

    @tool
    def save(text: str) -> str:
        return text.upper()

    steps = [call("save", {"text": "x"}), "saved"]
    model = ScriptedModel(lambda request: steps[len(request.messages) // 2])
    saver = Agent("saver", model, tools=[save])
    for _ in range(2):  # the first one has given the file back
        with Runtime([echo(), saver], store=f"sqlite:///{tmp_path / 'agents.db'}") as runtime:
            ref = runtime.spawn("echo", "one")
            events = ref.events()
            assert completed(ref.run("hello").get(timeout=60)).text == "you said hello"
            assert completed(ref.ask("again", timeout=60)).text == "you said again"
            assert runtime.spawn("saver").extract("save", "x").get(timeout=60) == "X"
            names = {info.agent for info in runtime.agents().get(timeout=60)}
            assert names == {"echo", "saver"}
            assert ref.stop(timeout=60) is True
            events.close()
            assert any(isinstance(emitted.event, RunFinished) for emitted in events)


async def test_the_body_of_with_raises_its_own_error_where_a_loop_runs(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'agents.db'}"

    def cell() -> None:
        with Runtime([echo()], store=store) as runtime:
            runtime.spawn("echo").run("hello").get(timeout=60)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        cell()
    with Runtime([echo()], store=store) as runtime:
        assert len(runtime.agents().get(timeout=60)) == 1


def test_a_tool_may_run_agents_in_a_runtime_of_its_own() -> None:
    """Also one of the same id: it is another agent."""

    said: list[str] = []

    @tool
    def nested() -> str:
        with Runtime([echo("outer")]) as inner:
            said.append(completed(inner.spawn("outer", "same").run("go").get(timeout=60)).text)
        return said[0]

    def work() -> None:
        agent = Agent("outer", ScriptedModel([call("nested"), "done"]), tools=[nested])
        with Runtime([agent]) as runtime:
            outcome = runtime.spawn("outer", "same").run("go").get(timeout=60)
            assert completed(outcome).text == "done"

    in_time(work)
    assert said == ["you said go"]


def test_a_second_interrupt_cuts_off_what_the_first_waits_for(
    ctrl_c_raises: None, tmp_path: Path
) -> None:
    """A process that goes on, as a notebook's does, can open the store again."""
    entered, let_go = threading.Event(), threading.Event()

    @tool(idempotent=True)
    def work() -> str:
        entered.set()
        let_go.wait(60)
        return "worked"

    def agents() -> list[Agent]:
        return [Agent("worker", by_turn(call("work")), tools=[work])]

    def interrupt_twice() -> None:
        entered.wait(60)
        ctrl_c()
        with contextlib.suppress(UsageError):  # raised once the block is left, which waits
            while True:
                runtime.get("one")
        ctrl_c()

    store = f"sqlite:///{tmp_path / 'agents.db'}"
    runtime = Runtime(agents(), store=store)

    def program() -> None:
        with runtime:
            future = runtime.spawn("worker", "one").run("go")
            threading.Thread(target=interrupt_twice, daemon=True).start()
            future.get(timeout=60)

    with pytest.raises(KeyboardInterrupt):
        program()
    let_go.set()

    with Runtime(agents(), store=store) as again:
        (ref,) = again.recover().get(timeout=60)
        outcome = ref.outcome().get(timeout=60)
        assert outcome is not None
        assert completed(outcome).text == "done"


# ------------------------------------------------------------------- spawn and get


async def test_spawn_returns_at_once_and_asks_nobody() -> None:
    agent = echo()
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("echo", "one")
        assert ref.status() is Status.PASSIVE
        assert ref.id == "one"
        assert isinstance(ref, pykka.ActorRef)


async def test_spawning_an_agent_object_registers_it() -> None:
    agent = echo()
    async with Runtime() as runtime:
        one = runtime.spawn(agent, "one")
        two = runtime.spawn("echo", "two")
        assert one.id != two.id
        assert isinstance(await soon(two.run("hello")), Completed)


async def test_the_same_id_gives_the_same_agent() -> None:
    async with Runtime([echo()]) as runtime:
        first = runtime.spawn("echo", "one")
        await soon(first.run("hello"))
        again, found = runtime.spawn("echo", "one"), runtime.get("one")
        assert first == again == found
        assert len({first, again, found}) == 1
        assert len((await soon(again.state())).messages) == 2


async def test_agents_without_an_id_get_ids_of_their_own() -> None:
    async with Runtime([echo()]) as runtime:
        refs = [runtime.spawn("echo") for _ in range(10)]
        assert len({ref.id for ref in refs}) == 10
        assert all(runtime.get(ref.id) == ref for ref in refs)


async def test_an_id_that_another_definition_has_is_refused_and_nothing_changes() -> None:
    async with Runtime([echo("echo"), echo("other")]) as runtime:
        ref = runtime.spawn("echo", "one")
        with pytest.raises(UsageError, match=r"'one'.*'echo'.*'other'"):
            runtime.spawn("other", "one")
        assert await soon(runtime.agents()) == [
            AgentInfo(id="one", agent="echo", status=Status.IDLE)
        ]
        assert isinstance(await soon(ref.run("hello")), Completed)


async def test_a_refused_spawn_registers_no_definition() -> None:
    async with Runtime([echo()]) as runtime:
        runtime.spawn("echo", "one")
        for bad in ("one", "a/b", ""):
            with pytest.raises(UsageError):
                runtime.spawn(echo("new"), bad)
        with pytest.raises(UsageError, match="No agent is named 'new'"):
            runtime.spawn("new")


@pytest.mark.parametrize("bad", ["a/b", "/", "", 3, b"x"])
async def test_an_id_is_text_without_a_slash(bad: Any) -> None:
    async with Runtime([echo()]) as runtime:
        with pytest.raises(UsageError, match="without '/' or NUL"):
            runtime.spawn("echo", bad)
        assert await soon(runtime.agents()) == []


@pytest.mark.parametrize("bad", ["nobody", "", 3, None])
async def test_an_unknown_agent_name_is_refused_naming_the_known_ones(bad: Any) -> None:
    async with Runtime([echo(), echo("second")]) as runtime:
        with pytest.raises(UsageError, match=r"'echo', 'second'"):
            runtime.spawn(bad)


async def test_an_unknown_id_is_told_before_anything_runs() -> None:
    async with Runtime([echo()]) as runtime:
        with pytest.raises(UsageError, match="'nobody'"):
            await soon(runtime.get("nobody").run("hello"))
        assert await soon(runtime.agents()) == []


async def test_two_agents_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="Two different agents are named 'echo'"):
        Runtime([echo(), echo()])
    async with Runtime([echo()]) as runtime:
        with pytest.raises(UsageError, match="Two different agents are named 'echo'"):
            runtime.spawn(echo())


@pytest.mark.parametrize(
    "options",
    [
        {"agents": ["echo"]},
        {"agents": [None]},
        {"store": "redis://"},
        {"store": ""},
        {"idle_timeout": 0},
        {"idle_timeout": -1},
        *({"idle_timeout": value} for value in ("5", math.nan, math.inf, True, 10**400)),
        *({"sweep": value} for value in (0, "5", math.nan, True)),
        *({"stop_timeout": value} for value in (-1, "x", math.nan, math.inf, False)),
        *({"cancel_timeout": value} for value in (0, None, "x", math.nan)),
        *({"max_threads": value} for value in (0, "many", 2.5, True, None)),
        {"deps_for": 5},
        {"new_id": "a"},
        {"clock": 3},
        {"feed": "on"},
    ],
    ids=str,
)
def test_wrong_options_are_refused_at_construction(options: dict[str, Any]) -> None:
    """R8."""
    ((name, value),) = options.items()
    with pytest.raises(UsageError) as error:
        Runtime(**options)
    if name not in ("agents", "store"):
        assert f"`{name}` must" in str(error.value)
        assert shown(value) in str(error.value)


def test_a_wrong_timeout_of_stop_is_refused_and_the_runtime_goes_on() -> None:
    with Runtime([echo()]) as runtime:
        for timeout in ("x", math.nan, -1):
            with pytest.raises(UsageError, match="`timeout` must be a number of seconds"):
                runtime.stop(timeout)  # type: ignore[arg-type]
        completed(runtime.spawn("echo").run("hello").get(timeout=60))


class NaiveClock(SystemClock):
    """Tells a time without a zone."""

    def now(self) -> datetime:
        return datetime(2030, 1, 1)


def test_a_clock_without_a_time_zone_is_refused_before_anything_runs() -> None:
    """R8."""
    match = "`clock`: what now.. of .*NaiveClock.* returns must have a time zone"
    with pytest.raises(UsageError, match=match):
        Runtime([echo()], clock=NaiveClock())
    with pytest.raises(UsageError, match=match):
        echo().execute_sync("hello", clock=NaiveClock())


# --------------------------------------------------------------------- life and death


def test_a_runtime_that_does_not_run_spawns_nothing() -> None:
    with pytest.raises(UsageError, match="is not open"):
        Runtime([echo()]).spawn("echo")


async def test_a_stopped_runtime_spawns_nothing_and_its_refs_are_dead() -> None:
    runtime = Runtime([echo()])
    async with runtime:
        ref = runtime.spawn("echo", "one")
        await soon(ref.run("hello"))
        assert ref.is_alive()
    assert not ref.is_alive()
    assert ref.status() is Status.PASSIVE
    with pytest.raises(UsageError, match="has stopped"):
        runtime.spawn("echo")
    for ask in (
        lambda: ref.run("x"),
        lambda: ref.send("x"),
        ref.state,
        ref.cancel,
        ref.pause,
        ref.unpause,
        ref.retry,
        ref.decisions,
    ):
        with pytest.raises(RuntimeStopped, match="stopped") as stopped:
            ask()
        assert stopped.value.agent_id == "one"
        assert isinstance(stopped.value, pykka.ActorDeadError), "as callers of Pykka catch it"
    assert ref.stop(block=False).get() is False


async def test_a_runtime_is_entered_once() -> None:
    runtime = Runtime([echo()])
    async with runtime:
        with pytest.raises(UsageError, match="open already"):
            await runtime.__aenter__()
        assert isinstance(await soon(runtime.spawn("echo").run("hello")), Completed)
    with pytest.raises(UsageError, match="has stopped"):
        await runtime.__aenter__()


def test_stopping_twice_is_stopping_once() -> None:
    def work() -> None:
        with Runtime([echo()]) as runtime:
            runtime.spawn("echo").run("hello").get(timeout=60)
            runtime.stop()
            runtime.stop()

    in_time(work)


async def test_stop_inside_async_with_says_to_leave_the_block() -> None:
    async with Runtime([echo()]) as runtime:
        with pytest.raises(UsageError, match="leave its `async with`"):
            runtime.stop()


@pytest.mark.parametrize("inline", [True, False], ids=["on the loop", "in a thread"])
def test_a_tool_that_stops_its_own_runtime_is_told_and_blocks_nobody(inline: bool) -> None:
    """A run that waits for itself raises WouldDeadlock."""
    errors: list[BaseException] = []

    @tool(inline=inline)
    def stops(context: ToolContext) -> str:
        try:
            context.deps.stop()
        except WouldDeadlock as error:
            errors.append(error)
        return "still here"

    agent = Agent("suicidal", ScriptedModel([call("stops"), "done"]), tools=[stops])

    def work() -> None:
        runtime = Runtime([agent])
        runtime.__enter__()
        ref = runtime.spawn("suicidal", deps=runtime)
        assert completed(ref.run("go").get(timeout=60)).text == "done"
        runtime.stop()

    in_time(work)
    assert len(errors) == 1


@pytest.mark.parametrize("inline", [True, False], ids=["on the loop", "in a thread"])
def test_a_tool_that_waits_for_its_own_agent_to_rest_is_told(inline: bool) -> None:
    errors: list[BaseException] = []

    @tool(inline=inline)
    def rests(context: ToolContext) -> str:
        try:
            context.deps.get("self").stop()
        except WouldDeadlock as error:
            errors.append(error)
        return "still here"

    agent = Agent("tired", ScriptedModel([call("rests"), "done"]), tools=[rests])

    def work() -> None:
        runtime = Runtime([agent])
        runtime.__enter__()
        ref = runtime.spawn("tired", "self", deps=runtime)
        assert completed(ref.run("go").get(timeout=60)).text == "done"
        runtime.stop()

    in_time(work)
    assert len(errors) == 1


async def test_the_body_of_async_with_raises_as_it_would_without() -> None:
    async def raises() -> None:
        async with Runtime([echo()]) as runtime:
            await soon(runtime.spawn("echo").run("hello"))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await raises()


# -------------------------------------------------------------------------- the ref


@pytest.mark.parametrize(
    "wrong",
    [
        lambda ref: ref.run(""),
        lambda ref: ref.run("  "),
        lambda ref: ref.run(3),
        lambda ref: ref.run(None),
        lambda ref: ref.run("x", max_runs=0),
        lambda ref: ref.run("x", max_runs="3"),
        lambda ref: ref.run("x", until_tool="nothing"),
        lambda ref: ref.run("x", until_tool="fine", until_tool_success="fine"),
        lambda ref: ref.run("x", until_tool=[]),
        lambda ref: ref.run("x", if_interrupted="maybe"),
        lambda ref: ref.send(""),
        lambda ref: ref.send(None),
        lambda ref: ref.tell(3),
        lambda ref: ref.ask(3),
        lambda ref: ref.extract("nothing", "x"),
        lambda ref: ref.proxy(),
        lambda ref: ref.events(after="first"),
        lambda ref: ref.events(after=-1),
        lambda ref: ref.run("x", message_id=3),
        lambda ref: ref.send("x", message_id=3),
        lambda ref: ref.run("x", message_id=HALF),
        lambda ref: ref.send("x", message_id=HALF),
        lambda ref: ref.run("x", early_stopping_prompt=HALF),
        lambda ref: ref.pause(HALF),
        lambda ref: ref.settle("x", how=HALF),
        lambda ref: ref.settle("x", how=3),
    ],
    ids=range(26),
)
async def test_what_the_caller_does_wrong_is_raised_at_once_and_nothing_runs(
    wrong: Callable[[AgentRef], object],
) -> None:
    """R8, U1."""

    @tool
    def fine() -> str:
        return "fine"

    model = ScriptedModel([])
    async with Runtime([Agent("echo", model, tools=[fine])]) as runtime:
        ref = runtime.spawn("echo")
        with pytest.raises(UsageError):
            wrong(ref)
        assert (await soon(ref.state())).run is None
        assert model.requests == []


async def test_instructions_that_lack_a_value_fail_each_waiting_run_and_the_agent_lives() -> None:
    """W4, R8: nothing waits for ever."""
    model = ScriptedModel(["never"])
    async with Runtime([Agent("shop", model, instructions="Of {shop}.")]) as runtime:
        ref = runtime.spawn("shop")
        futures = [ref.run("one"), ref.run("two")]
        for future in futures:
            with pytest.raises(UsageError, match="'shop'"):
                await soon(future)
        assert (await soon(ref.state())).run is None
        assert ref.status() is Status.IDLE
        assert model.requests == []


async def test_deps_come_from_spawn_or_else_from_deps_for_by_the_id() -> None:
    given: list[Any] = []

    @tool
    def looks(context: ToolContext) -> str:
        given.append((context.agent_id, context.deps))
        return "ok"

    model = ScriptedModel([call("looks"), "done"] * 2)
    agent = Agent("shop", model, tools=[looks])
    async with Runtime([agent], deps_for=lambda agent_id: f"deps of {agent_id}") as runtime:
        await soon(runtime.spawn("shop", "given", deps="mine").run("go"))
        await soon(runtime.spawn("shop", "found").run("go"))
    assert given == [("given", "mine"), ("found", "deps of found")]


async def test_a_deps_for_that_raises_answers_the_caller_and_the_next_run_works() -> None:
    """A8: no future waits for ever."""
    broken = [True]

    def deps_for(id: str) -> str:
        if broken:
            raise LookupError(f"no deps for {id}")
        return "deps"

    async with Runtime([echo()], deps_for=deps_for) as runtime:
        ref = runtime.spawn("echo")
        with pytest.raises(LookupError, match="no deps"):
            await soon(ref.run("one"))
        broken.clear()
        assert isinstance(await soon(ref.run("two")), Completed)


def test_ask_and_tell_are_run_and_send() -> None:
    def work() -> None:
        with Runtime([echo()]) as runtime:
            ref = runtime.spawn("echo")
            assert completed(ref.ask("one", timeout=60)).text == "you said one"
            ref.tell("two")
            assert completed(ref.ask("three", block=False).get(timeout=60)).text
            assert "three" in str(ref.state().get(timeout=60).messages)

    in_time(work)


async def test_extract_brings_the_value_or_says_how_the_run_ended() -> None:
    """U7."""

    @tool
    def answer(number: int) -> int:
        return number

    model = ScriptedModel([call("answer", {"number": 42}), "no number"])
    async with Runtime([Agent("counter", model, tools=[answer])]) as runtime:
        ref = runtime.spawn("counter")
        assert await soon(ref.extract("answer", "How many?")) == 42
        with pytest.raises(NotExtracted, match="'answer'"):
            await soon(ref.extract("answer", "And now?"))


@pytest.mark.parametrize("given", ["name", "tool", "function", "several"])
async def test_extract_of_a_ref_takes_and_says_what_that_of_the_agent_does(given: str) -> None:
    """U7."""

    def answer(number: int) -> int:
        return number

    target: Any = {"name": "answer", "tool": tool(answer), "function": answer}.get(given)
    target = target if target is not None else ["answer", tool(answer)]
    agent = Agent("counter", ScriptedModel(lambda _: "no number"), tools=[answer])
    with pytest.raises(NotExtracted) as of_agent:
        await agent.extract(target, "How many?")
    async with Runtime([agent]) as runtime:
        with pytest.raises(NotExtracted) as of_ref:
            await soon(runtime.spawn("counter").extract(target, "How many?"))
        with pytest.raises(UsageError, match="leave until_tool out"):
            unchecked(runtime.spawn("counter")).extract(target, "x", until_tool="answer")
    assert without_run_id(of_ref.value) == without_run_id(of_agent.value)
    assert type(of_ref.value.__cause__) is type(of_agent.value.__cause__) is UntilToolNotCalled


def without_run_id(error: Exception) -> str:
    return re.sub(r"run_id='[^']*'", "", str(error))


def unchecked(value: object) -> Any:
    """The value, for a call that type checkers refuse as well."""
    return value


# --------------------------------------------------------------- looking at all of them


async def test_agents_pending_and_status_tell_of_all_agents() -> None:
    """I10: pending requests are listed across agents."""

    @tool
    def ask_first() -> str:
        return "asked"

    asks = Agent(
        "asks",
        ScriptedModel(lambda request: call("ask_first") if len(request.messages) == 1 else "ok"),
        tools=[ask_first],
        interrupt_on={"ask_first": True},
    )
    held = Held()
    busy = Agent("busy", ScriptedModel([held]))
    async with Runtime([asks, busy]) as runtime:
        first, second = runtime.spawn("asks", "1"), runtime.spawn("asks", "2")
        third = runtime.spawn("busy", "3")
        running = third.run("go")
        outcomes = [interrupted(await soon(ref.run("go"))) for ref in (first, second)]
        await soon(held.entered.wait())

        pending = await soon(runtime.pending())
        assert [(p.agent_id, p.request.id) for p in pending] == [
            ("1", outcomes[0].requests[0].id),
            ("2", outcomes[1].requests[0].id),
        ]
        assert [(a.id, a.agent, a.status) for a in await soon(runtime.agents())] == [
            ("1", "asks", Status.INTERRUPTED),
            ("2", "asks", Status.INTERRUPTED),
            ("3", "busy", Status.RUNNING),
        ]
        status = runtime.status()
        assert (status.agents, status.running, status.abandoned_threads) == (3, 1, 0)
        assert "3" in str(runtime.tree())

        await soon(first.resume(outcomes[0].decide(respond("yes"))))
        assert [p.agent_id for p in await soon(runtime.pending())] == ["2"]
        held.release.set()
        await soon(running)


async def test_the_tree_shows_the_sub_agents_that_open_calls_run() -> None:
    """S5."""
    held = Held("found it")
    kid = Agent("kid", ScriptedModel([held]), description="Looks things up.")
    model = ScriptedModel([call("task", {"task_name": "kid", "instructions": "look"}), "done"])
    boss = Agent("boss", model, middleware=[SubAgent([kid], general_purpose=False)])

    async with Runtime([boss]) as runtime:
        run = runtime.spawn("boss", "b-1").run("go")
        await soon(held.entered.wait())
        (agent,) = runtime.tree().children
        assert (agent.id, agent.class_name) == ("b-1", "AgentActor")
        assert isinstance(agent, AgentTree)
        assert agent.children == ()
        (nested,) = agent.nested_runs
        assert (nested.agent, nested.status) == ("kid", Status.RUNNING)
        assert f"└── {nested.key} (nested run of kid) running" in str(runtime.tree())
        held.release.set()
        await soon(run)
        (agent,) = runtime.tree().children
        assert isinstance(agent, AgentTree)
        assert agent.nested_runs == ()


def test_a_runtime_of_the_parent_process_refuses_everything_in_a_forked_child() -> None:
    """The loop's thread is not there, so a wait would be for ever."""
    with Runtime([Agent("a", ScriptedModel(lambda _: "ok"))]) as runtime:
        runtime.spawn("a").run("go").get(timeout=60)
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
            child = os.fork()
        if child == 0:
            try:
                runtime.spawn("a")
            except ForkedRuntime:
                os.write(write, b"refused")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        assert os.read(read, 100) == b"refused"
        os.close(read)


_FEW_FILES = """
import faulthandler, gc, os, resource
from understudy import Agent, Runtime, ScriptedModel
from understudy.errors import OutOfDescriptors

faulthandler.dump_traceback_later(20, exit=True)

def run():
    with Runtime([Agent("a", ScriptedModel(["hello"]))], store="memory:") as runtime:
        return type(runtime.spawn("a").run("go").get(timeout=60)).__name__

run()  # all modules are loaded
resource.setrlimit(resource.RLIMIT_NOFILE, (80, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
for free in range(5):
    gc.collect()  # asyncio leaves the files of a loop that could not be made to the collector
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    for _ in range(free):
        os.close(held.pop())
    try:
        ended = run()
    except OutOfDescriptors as error:
        ended = type(error).__name__
    for file in held:
        os.close(file)
    print(ended)
"""


@pytest.mark.slow
def test_a_runtime_raises_however_few_files_it_may_open() -> None:
    """What the thread of its loop could not open is raised in the caller."""
    ended = subprocess.run(
        [sys.executable, "-c", _FEW_FILES], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["OutOfDescriptors"] * 3 + ["Completed"] * 2
