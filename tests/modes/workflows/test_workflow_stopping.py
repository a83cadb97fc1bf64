"""Where workflows meet what stops a run: time, signals, persons, usage, explanations."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import (
    FakeClock,
    assert_valid_history,
    by_turn,
    completed,
    interrupted,
    reloaded,
    told_by_users,
    until_status,
)
from tests.support.cut_off import Crash, Disk, ids
from tests.support.loops import never, soon
from understudy import (
    Agent,
    Halt,
    InMemoryCancellation,
    Interrupted,
    Paused,
    Run,
    Runtime,
    ScriptedModel,
    Status,
    StopAgent,
    Stopped,
    StopReason,
    StopSignal,
    ToolContext,
    UsageError,
    approve,
    call,
    dismiss,
    tool,
)
from understudy.middleware import Cancellation, Haltable, Limits, Middleware, SubAgent
from understudy.models import ScriptedRequest
from understudy.modes import Loop, Parallel, Sequential
from understudy.tools import exit_loop


@tool
async def publish(text: str = "kettles") -> str:
    """Publish a text."""
    return f"published {text}"


@tool
async def strike() -> str:
    """Stop working."""
    raise StopAgent(StopSignal.error("no pay", source="union"))


@tool
async def alarm() -> str:
    """Halt everything."""
    raise Halt("fire")


def says(name: str, *turns: Any, **options: Any) -> Agent:
    return Agent(name, by_turn(*turns), **options)


def publisher(name: str, **options: Any) -> Agent:
    turns = [call("publish", id=name)], f"{name} is out"
    return says(name, *turns, tools=[publish], interrupt_on={"publish": True}, **options)


def in_a_task_of(name: str, agent: Agent) -> Agent:
    task = call("task", {"task_name": agent.name, "instructions": "go"}, id="t")
    return says(name, [task], "done", middleware=[SubAgent([agent], general_purpose=False)])


def alone(payer: Agent) -> Agent:
    return payer


def in_a_workflow(payer: Agent) -> Agent:
    return Agent("flow", mode=Sequential([Agent("inner", mode=Parallel([payer]))]))


def in_a_task(payer: Agent) -> Agent:
    return in_a_task_of("boss", payer)


# ---------------------------------------------------------------------------- time


def slow_desk(clock: FakeClock) -> Agent:
    """Three agents, two of them in a workflow of their own; each takes ten seconds."""

    def writes(name: str) -> Agent:
        def reply(_request: Any) -> str:
            clock.advance(10)
            return name

        return Agent(name, ScriptedModel(reply))

    inner = Agent("inner", mode=Sequential([writes("b"), writes("c")]))
    return Agent("desk", mode=Sequential([writes("a"), inner]))


def test_the_time_that_a_workflow_took_survives_a_crash() -> None:
    """P5, P9: all but that of the model call that the crash cut off, at any depth."""
    disk = Disk()
    clock = FakeClock()
    slow_desk(clock).execute_sync("go", deadline=100, clock=clock, journal=disk, new_id=ids())
    for limit in range(1, len(disk.lines)):
        clock, cut = FakeClock(), Disk(limit)
        began = clock.monotonic()
        with pytest.raises(Crash):
            slow_desk(clock).execute_sync(
                "go", deadline=100, clock=clock, journal=cut, new_id=ids()
            )
        run = cut.load().run
        assert run is not None
        assert clock.monotonic() - began - run.seconds <= 10, limit


def test_a_workflow_that_crashes_again_and_again_still_meets_its_deadline() -> None:
    """P9: what is left is not filled up by a restart."""
    disk = Disk()
    clock = FakeClock()
    slow_desk(clock).execute_sync("go", deadline=100, clock=clock, journal=disk, new_id=ids())
    kinds = [json.loads(line)["kind"] for line in disk.lines]
    cut = Disk(kinds.index("sub_run_ended") + 1)
    clock = FakeClock()
    with pytest.raises(Crash):
        slow_desk(clock).execute_sync("go", deadline=15, clock=clock, journal=cut, new_id=ids())
    state = cut.load()
    outcome = slow_desk(clock).resume_sync(state, clock=clock)
    assert isinstance(outcome, Stopped), outcome
    assert [signal.reason for signal in outcome.signals] == [StopReason.TIME_LIMIT]
    assert outcome.usage.requests == 2, "the third agent had no time left"


def test_the_time_of_an_agent_in_a_tool_counts_for_a_limited_parent_after_a_crash() -> None:
    """P5: the agent inside has no limit of its own."""

    def boss(clock: FakeClock) -> Agent:
        def reply(request: Any) -> Any:
            clock.advance(10)
            return [call("publish", id=f"p{len(request.messages)}")] if request.tools else "x"

        helper = Agent("helper", ScriptedModel(reply), tools=[publish], max_runs=3)
        task = call("task", {"task_name": "helper", "instructions": "go"}, id="t")
        return Agent(
            "boss",
            by_turn([task]),
            middleware=[SubAgent([helper], general_purpose=False), Limits(max_seconds=100)],
        )

    disk, clock = Disk(), FakeClock()
    boss(clock).execute_sync("go", clock=clock, journal=disk, new_id=ids())
    clock, cut = FakeClock(), Disk(len(disk.lines) - 12)
    began = clock.monotonic()
    with pytest.raises(Crash):
        boss(clock).execute_sync("go", clock=clock, journal=cut, new_id=ids())
    state = cut.load()
    assert state.run is not None
    assert state.children, "cut off inside the agent"
    assert clock.monotonic() - began == 30
    assert state.run.seconds >= 20


# ------------------------------------------------------------------------- signals


class Closes(Middleware):
    """Signals when a run starts."""

    def __init__(self, signal: StopSignal, *, answer: bool = False) -> None:
        self.signal = signal
        self.answer = answer

    async def on_run_start(self, run: Run) -> None:
        run.signal(self.signal, answer=self.answer)


@pytest.mark.parametrize("answer", [False, True])
def test_a_signal_of_a_workflows_own_hook_stops_it_before_the_next_agent(answer: bool) -> None:
    """P3."""
    model = by_turn("never")
    closed = StopSignal.stop_requested("closed", source="hours")
    outcome = Agent(
        "flow",
        mode=Sequential([Agent("a", model)]),
        middleware=[Closes(closed, answer=answer)],
    ).execute_sync("go")
    assert isinstance(outcome, Stopped), outcome
    assert list(outcome.signals) == [closed]
    assert not model.requests
    assert "closed" in outcome.explain()


def test_a_signal_that_forces_nothing_completes_a_workflow() -> None:
    """P3, P5."""
    outcome = Agent(
        "flow",
        mode=Sequential([says("a", "never")]),
        middleware=[Closes(StopSignal.completed("nothing to do"))],
    ).execute_sync("go")
    assert completed(outcome).text == "nothing to do"
    assert "nothing to do" in outcome.explain()


def test_an_override_lets_a_workflow_go_on() -> None:
    """P3."""

    class GoesOn(Middleware):
        async def on_run_start(self, run: Run) -> None:
            run.request_continuation(source="boss")

    outcome = Agent(
        "flow",
        mode=Sequential([says("a", "done by a")]),
        middleware=[Closes(StopSignal.stop_requested("closed")), GoesOn()],
    ).execute_sync("go")
    assert completed(outcome).text == "done by a"


async def test_a_message_to_a_middleware_stops_a_workflow_that_is_at_work() -> None:
    """P3, A7: what an agent is doing is finished first."""

    class Phone(Middleware):
        async def on_message(self, run: Run, message: Any) -> None:
            run.signal(StopSignal.user_requested(str(message), source="phone"))

    entered, release = asyncio.Event(), asyncio.Event()

    async def reply(_request: Any) -> str:
        entered.set()
        await release.wait()
        return "first"

    second = by_turn("second")
    flow = Agent(
        "flow",
        mode=Sequential([Agent("a", ScriptedModel(reply)), Agent("b", second)]),
        middleware=[Phone()],
    )

    async with Runtime(agents=[flow]) as runtime:
        ref = runtime.spawn("flow", id="f")
        future = ref.run("go")
        await soon(entered.wait())
        await soon(ref.notify("Phone", "come home"))
        release.set()
        outcome = await soon(future)
    assert isinstance(outcome, Stopped), outcome
    assert [signal.message for signal in outcome.signals] == ["come home"]
    assert not second.requests
    assert outcome.usage.requests == 1


def test_what_stopped_an_agent_of_a_workflow_is_told_and_leaks_nowhere() -> None:
    """P6, P8: the workflow continues; its outcome says what happened."""
    for mode in (
        Sequential([says("a", [call("strike")], tools=[strike]), says("z", "z is done")]),
        Parallel([says("a", [call("strike")], tools=[strike]), says("z", "z is done")]),
        Loop([says("a", [call("strike")], tools=[strike]), says("z", "z is done")], 1),
    ):
        outcome = completed(Agent("flow", mode=mode).execute_sync("go"))
        first, last = outcome.results
        assert (first.outcome, last.outcome) == ("stopped", "completed")
        assert first.signals == {"signals": [signal_of_union().to_dict()]}
        assert last.signals is None
        assert "'a' was stopped by error: no pay" in outcome.explain()
        assert outcome.state.run is not None
        assert outcome.state.run.signals == []
        again = reloaded(outcome.state)
        assert again.run == outcome.state.run
        assert_valid_history(outcome.state)


def signal_of_union() -> StopSignal:
    return StopSignal.error("no pay", source="union")


@pytest.mark.parametrize("hook", ["before_model", "after_model", "wrap_tool_call"])
def test_a_hook_that_a_workflow_would_never_call_is_refused(hook: str) -> None:
    """R8: it would be silently off."""

    async def called(self: Middleware, *_args: Any) -> None:
        raise AssertionError

    watcher = type("Watcher", (Middleware,), {hook: called})()
    with pytest.raises(UsageError, match=f"Watcher has {hook}.*agents of the workflow"):
        Agent("flow", mode=Sequential([says("a", "x")]), middleware=[watcher])


def test_a_gate_of_ones_own_on_a_workflow_is_refused_because_it_would_not_hold() -> None:
    """R8, I1: a gate is never silently off."""

    class Gate(Middleware):
        async def check_tool_calls(self, run: Run, calls: Any) -> Any:
            raise AssertionError

    with pytest.raises(UsageError, match="Gate has check_tool_calls"):
        Agent("flow", mode=Sequential([says("a", "x")]), middleware=[Gate()])


async def test_a_loop_whose_agents_do_nothing_holds_nobody_up() -> None:
    """P7: with no limit on its rounds it continues, and can be cancelled."""
    off = InMemoryCancellation(agent_id="f/a")
    off.cancel()
    flow = Agent("flow", mode=Loop([says("a", "x")]), middleware=[Cancellation(off)])

    async with Runtime(agents=[flow]) as runtime:
        ref = runtime.spawn("flow", id="f")
        future = ref.run("go", deadline=2)  # a loop that is held up cannot be cancelled
        await until_status(ref, Status.RUNNING)
        await soon(ref.cancel())
        outcome = await soon(future)
    assert isinstance(outcome, Stopped), outcome
    assert [signal.reason for signal in outcome.signals] == [StopReason.USER_REQUESTED]


# ------------------------------------------------------------------ persons, pauses


def nested(ran: list[str]) -> Agent:
    """A loop in a `Parallel` in a sequence in a task: three of its agents ask a person."""

    @tool
    async def sends(ctx: ToolContext) -> str:
        """Send it."""
        ran.append(ctx.agent_path[-1])
        return "sent"

    def sender(name: str) -> Agent:
        return says(name, [call("sends", id=name)], f"{name} sent", tools=[sends])

    leaves = says("leaves", [call("exit_loop", id="x")], tools=[exit_loop])
    rounds = Agent("rounds", mode=Loop([sender("c"), leaves]))
    branches = Agent("branches", mode=Parallel([sender("a"), sender("b"), rounds]))
    flow = Agent(
        "flow",
        mode=Sequential([says("first", "begun"), branches]),
        interrupt_on={"sends": True},
    )
    task = call("task", {"task_name": "flow", "instructions": "go"}, id="t")
    return says("boss", [task], "all done", middleware=[SubAgent([flow], general_purpose=False)])


def test_branches_are_answered_one_at_a_time_each_in_a_process_of_its_own(
    tmp_path: Path,
) -> None:
    """W6, W7, I10: a restart in between; each call runs once, and usage counts once."""
    store = f"sqlite:///{tmp_path}/desk.db"
    ran: list[str] = []
    with Runtime(agents=[nested(ran)], store=store) as runtime:
        outcome = runtime.spawn("boss", id="t").run("go").get(timeout=60)
    seen: list[int] = []
    while isinstance(outcome, Interrupted):
        paths = [request.agent_path[-1] for request in outcome.requests]
        assert paths == ["a", "b", "c"][: len(paths)]
        seen.append(outcome.usage.requests)
        with Runtime(agents=[nested(ran)], store=store) as runtime:
            runtime.recover().get(timeout=60)
            pending = runtime.pending().get(timeout=60)
            assert [p.request for p in pending] == list(outcome.requests)
            last = outcome.requests[-1].id
            outcome = runtime.get("t").resume({last: approve()}).get(timeout=60)
    assert completed(outcome).text == "all done"
    assert ran == ["c", "b", "a"]
    assert outcome.usage.requests == 10
    assert seen == [5, 7, 8], "what agents inside have used so far is told at once"
    assert_valid_history(outcome.state)


def test_a_waiting_agent_inside_counts_in_what_was_used_so_far() -> None:
    """S3, W7: once, while it waits and afterwards."""
    flow = Agent("flow", mode=Sequential([publisher("a")]))
    outcome = interrupted(flow.execute_sync("go"))
    assert outcome.usage.requests == 1
    state = reloaded(outcome.state)
    assert state.usage == outcome.usage
    done = flow.resume_sync(state, outcome.decide(approve()))
    assert (done.usage.requests, done.state.usage) == (2, done.usage)


def test_a_branch_that_asks_is_told_before_one_that_is_paused_after_a_restart_too(
    tmp_path: Path,
) -> None:
    """W6, A1, I10, J14."""
    store = f"sqlite:///{tmp_path}/desk.db"

    def desk() -> Agent:
        rests = says("b", "b is done", pause_when=lambda: "tired")
        return Agent("desk", mode=Parallel([publisher("a"), rests]))

    with Runtime(agents=[desk()], store=store) as runtime:
        ref = runtime.spawn("desk", id="d")
        outcome = interrupted(ref.run("go", message_id="m").get(timeout=60))
        assert ref.status() is Status.INTERRUPTED
    with Runtime(agents=[desk()], store=store) as runtime:
        ref = runtime.get("d")
        state = ref.state().get(timeout=60)
        assert ref.info().get(timeout=60).status is Status.INTERRUPTED
        assert state.requests == outcome.requests
        again = interrupted(ref.run("go", message_id="m").get(timeout=60))
        assert (again.requests, again.usage) == (outcome.requests, outcome.usage)
        paused = ref.resume(outcome.decide(approve())).get(timeout=60)
        assert isinstance(paused, Paused), paused
    with Runtime(agents=[desk()], store=store) as runtime:
        ref = runtime.get("d")
        assert ref.info().get(timeout=60).status is Status.PAUSED


def test_a_halt_in_a_branch_beats_the_question_of_another_after_a_restart_too() -> None:
    """I11, W6: also where failures are returned, and the rest of the sequence does not run."""

    def desk() -> Agent:
        halts = says("b", [call("alarm", id="b")], tools=[alarm])
        both = Agent("both", mode=Parallel([publisher("a"), halts], return_failures=True))
        return Agent("desk", mode=Sequential([both, says("z", "z")]), middleware=[Haltable()])

    outcome = interrupted(desk().execute_sync("go"))
    assert [request.kind for request in outcome.requests] == ["halt"]
    assert outcome.requests[0].agent_path == ("desk", "both", "b")
    state = reloaded(outcome.state)
    done = desk().resume_sync(state, outcome.decide(dismiss()))
    assert isinstance(done, Stopped), done
    assert done.usage.requests == 2
    assert done.explain().startswith("Stopped after 2 model calls: stop_requested: fire")
    assert_valid_history(done.state)


@pytest.mark.parametrize("place", [alone, in_a_workflow, in_a_task])
def test_a_halt_stands_where_the_time_is_over_before_its_siblings_are_done(
    place: Callable[[Agent], Agent], tmp_path: Path
) -> None:
    """I11, P9: a person is notified, also after a restart; what was interrupted is in doubt."""
    clock = FakeClock()

    @tool
    async def hangs() -> None:
        """Never end."""
        clock.advance(60)
        await never()

    def agent() -> Agent:
        calls = [call("alarm", id="a"), call("hangs", id="h")]
        guard = says("payer", calls, tools=[alarm, hangs], middleware=[Haltable()])
        return place(guard)

    direct = interrupted(agent().execute_sync("go", deadline=0.05, clock=clock))
    assert [request.kind for request in direct.requests] == ["halt"]
    store, name = f"sqlite:///{tmp_path}/halts.db", agent().name
    with Runtime(agents=[agent()], store=store, clock=clock) as runtime:
        ref = runtime.spawn(name, id="a")
        outcome = interrupted(ref.run("go", deadline=0.05).get(timeout=60))
        assert [request.kind for request in outcome.requests] == ["halt"]
        assert ref.status() is Status.INTERRUPTED
    with Runtime(agents=[agent()], store=store, clock=clock) as runtime:
        ref = runtime.get("a")
        assert [p.request for p in runtime.pending().get(timeout=60)] == list(outcome.requests)
        done = ref.resume(outcome.decide(dismiss())).get(timeout=60)
    assert isinstance(done, Stopped), done
    assert [signal.message for signal in done.signals] == ["fire"]
    assert [doubt.tool_name for doubt in done.state.doubts.values()] == ["hangs"]
    assert_valid_history(done.state)


def test_a_halt_beats_a_cancellation_that_comes_with_it() -> None:
    """I11: whether the source is asked before or after the halt is recorded."""
    off = InMemoryCancellation()

    @tool
    async def alarms() -> None:
        """Halt everything."""
        off.cancel()
        raise Halt("fire")

    halts = says("a", [call("alarms", id="a")], tools=[alarms])
    fails = Agent("b", ScriptedModel([RuntimeError("no line")]))
    flow = Agent("flow", mode=Parallel([halts, fails]), middleware=[Haltable()])
    for agent in (says("a", [call("alarms")], tools=[alarms], middleware=[Haltable()]), flow):
        off.reset()
        outcome = interrupted(agent.execute_sync("go", cancellation=off))
        assert [request.kind for request in outcome.requests] == ["halt"]


# -------------------------------------------------------------------- explanations


def exits(name: str = "x") -> Agent:
    return says(name, [call("exit_loop", id=name)], tools=[exit_loop])


def breaks(name: str = "x") -> Agent:
    return Agent(name, ScriptedModel([RuntimeError("no line")]))


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        (
            lambda: Sequential([says("a", "a"), says("b", "b")]),
            "Completed after 2 model calls: its agents have done their part.",
        ),
        (
            lambda: Loop([says("a", "a", "a")], 2),
            "Completed after 2 model calls: its agents have done their part in round 2.",
        ),
        (lambda: Loop([exits()]), "Completed after 1 model call: its agent 'x' escalated."),
        (
            lambda: Parallel([says("a", "a"), breaks()], return_failures=True),
            "Completed after 1 model call: its agents have done their part; 'x' failed: No model "
            "answered: scripted: RuntimeError: no line.",
        ),
        (
            lambda: Sequential([says("a", "a"), breaks()]),
            "Failed after 1 model call: AgentFailed: Agent 'x' failed: ModelFailed: No model "
            "answered: scripted: RuntimeError: no line.",
        ),
        (
            lambda: Sequential([says("a", "a"), publisher("p")]),
            "Waits for a person after 2 model calls: 1 request is pending: approval of 'publish'.",
        ),
        (
            lambda: Sequential([says("a", "a", pause_when=lambda: "tired")]),
            "Paused after 1 model call: tired.",
        ),
    ],
)
def test_a_workflow_explains_its_outcome(mode: Callable[[], Any], told: str) -> None:
    """P2, W1: counting the model calls of its agents, for it makes none itself."""
    assert Agent("flow", mode=mode()).execute_sync("go").explain() == told


def test_a_run_that_a_tool_ended_says_so() -> None:
    """W3."""
    told = exits().execute_sync("go").explain()
    assert told == "Completed after 1 model call: a tool that it called ended it."


def test_a_sequence_in_a_task_of_a_looping_agent_has_no_loop_around_it() -> None:
    """W2: the loop is another tree's, so the sequence continues to its end."""
    last = by_turn("the end")
    flow = Agent("flow", mode=Sequential([exits(), Agent("last", last)]))
    boss = in_a_task_of("boss", flow)
    outcome = completed(Agent("rounds", mode=Loop([boss], 1)).execute_sync("go"))
    assert len(last.requests) == 1
    assert not outcome.results[0].escalated


# ------------------------------------------------------------------- early answers


@pytest.mark.parametrize(
    "limited",
    [
        {"max_runs": 1, "early_stopping": "generate"},
        {"middleware": [Limits(max_steps=1, on_limit="generate")]},
    ],
)
def test_what_an_agent_is_told_at_its_limit_is_for_nobody_else_and_no_later_part(
    limited: dict[str, Any],
) -> None:
    """P8, R1, W5: a model that must not call tools would call none in its next part."""

    def reply(request: ScriptedRequest) -> Any:
        return [call("publish", id=f"p{len(request.messages)}")] if request.tools else "I am done"

    hasty, other = ScriptedModel(reply), by_turn("I see", "I see")
    agents = [Agent("a", hasty, tools=[publish], **limited), Agent("b", other)]
    flow = Agent("flow", mode=Loop(agents, 2))
    outcome = completed(flow.execute_sync("go"))
    assert outcome.results[0].text == "I am done"
    told = ["limit" in str(told_by_users(request)[-1]) for request in hasty.requests]
    assert told == [False, True, False, True], "only where it is to answer"
    assert sum("limit" in text for text in told_by_users(hasty.requests[3])) == 1
    assert not any("limit" in text for r in other.requests for text in told_by_users(r))
    assert_valid_history(outcome.state)
    alone = Agent("a", ScriptedModel(reply), tools=[publish], **limited).execute_sync("go")
    assert any("limit" in str(message) for message in alone.state.messages), "R1: it is kept"


@pytest.mark.parametrize(
    ("option", "given"), [("max_runs", 3), ("early_stopping", "generate"), ("max_overrides", 1)]
)
def test_a_limit_that_would_count_nothing_in_a_workflow_is_refused(option: str, given: Any) -> None:
    """R8."""
    with pytest.raises(UsageError, match=f"give {option} to its agents"):
        Agent("flow", mode=Sequential([says("a", "x")]), **{option: given})


def test_a_limit_for_one_run_of_a_workflow_is_refused() -> None:
    """R8."""
    flow = Agent("flow", mode=Sequential([says("a", "x")]))
    with pytest.raises(UsageError, match="max_runs would count nothing"):
        flow.execute_sync("go", max_runs=1)


# -------------------------------------------------------------------- late results


class Blocking:
    """A plain tool that blocks until it is released."""

    def __init__(self) -> None:
        self.entered, self.release = threading.Event(), threading.Event()

        @tool
        def pay() -> str:
            """Pay."""
            self.entered.set()
            assert self.release.wait(60)
            return "paid"

        self.payer = says("payer", [call("pay", id="p")], "well", tools=[pay])


@pytest.mark.parametrize("place", [alone, in_a_workflow, in_a_task])
@pytest.mark.parametrize("ended", ["cancel", "deadline"])
async def test_a_late_result_settles_the_doubt_after_a_run_was_stopped(
    place: Callable[[Agent], Agent], ended: str, tmp_path: Path
) -> None:
    """J4, P7, P9: wherever the call was made; nothing else of the state changes."""
    blocking = Blocking()
    agent = place(blocking.payer)
    clock = FakeClock()

    store = f"sqlite:///{tmp_path}/late.db"
    async with Runtime(agents=[agent], store=store, clock=clock) as runtime:
        ref = runtime.spawn(agent.name, id="a")
        future = ref.run("go", deadline=0.05 if ended == "deadline" else None)
        await asyncio.to_thread(blocking.entered.wait, 60)
        if ended == "cancel":
            ref.cancel()
        else:
            clock.advance(1)
        outcome = await soon(future)
        assert isinstance(outcome, Stopped), outcome
        assert len(outcome.state.doubts) == 1
        blocking.release.set()
        state = outcome.state
        async with asyncio.timeout(60):
            while state.doubts:
                state = await ref.state()
        assert state.children == {}
        assert list(state.messages) == list(outcome.state.messages)
        assert state.usage == outcome.usage
    async with Runtime(agents=[agent], store=store) as runtime:
        assert await soon(runtime.get("a").state()) == state
