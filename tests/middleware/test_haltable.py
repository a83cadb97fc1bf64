"""I11: a tool halts the run for good, and a person can only dismiss it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai.messages import ToolReturnPart

from tests.support.agents import (
    assert_valid_history,
    authors,
    completed,
    interrupted,
    reloaded,
    results,
)
from tests.support.cut_off import Crash, Disk
from tests.support.loops import soon
from understudy import (
    Agent,
    DecisionError,
    Failed,
    Halt,
    Interrupt,
    Interrupted,
    NotInterrupted,
    Outcome,
    Runtime,
    ScriptedModel,
    Status,
    Stopped,
    StopReason,
    ToolContext,
    UsageError,
    approve,
    call,
    dismiss,
    edit,
    reject,
    respond,
    tool,
)
from understudy.errors import NotHaltable
from understudy.middleware import Haltable, HumanInTheLoop, Middleware, SubAgent
from understudy.models import ScriptedRequest
from understudy.modes import Loop, Parallel, Sequential


@tool
async def alarm() -> str:
    """Stop everything."""
    raise Halt("smoke in the kitchen")


@tool
async def note(text: str) -> str:
    """Note something."""
    return f"noted {text}"


@tool
async def ask() -> str:
    """Ask something."""
    raise Interrupt("why?")


def halting(*replies: Any, name: str = "cook", **options: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel([*replies, "never said"])
    options.setdefault("middleware", [Haltable()])
    return Agent(name, model, tools=[alarm, note, ask], **options), model


def test_a_halt_interrupts_the_run_with_one_request_that_says_why() -> None:
    """I11."""
    agent, model = halting([call("note", {"text": "x"}), call("alarm")])
    outcome = interrupted(agent.execute_sync("go"))
    (request,) = outcome.requests
    assert (request.kind, request.allowed, request.payload) == (
        "halt",
        ("dismiss",),
        "smoke in the kitchen",
    )
    assert (request.tool_name, request.agent_path) == ("alarm", ("cook",))
    assert len(model.requests) == 1
    assert outcome.state.requests == reloaded(outcome.state).requests == (request,)


def test_a_dismissed_run_is_over_and_says_what_stopped_it() -> None:
    """I11: it is Stopped; the model is not asked again, and results that came are kept."""
    agent, model = halting([call("note", {"text": "x"}), call("alarm")])
    outcome = interrupted(agent.execute_sync("go"))
    answers = outcome.decide(dismiss(by="ann", note="put out"))
    done = agent.resume_sync(reloaded(outcome.state), answers)
    assert isinstance(done, Stopped)
    highest = done.signals.highest
    assert highest is not None
    assert (highest.reason, highest.message, highest.source) == (
        StopReason.STOP_REQUESTED,
        "smoke in the kitchen",
        "alarm",
    )
    assert len(model.requests) == 1
    assert [part.outcome for part in results(done.state)] == ["success", "interrupted"]
    assert "smoke in the kitchen" in str(results(done.state)[1].content)
    assert_valid_history(done.state)
    assert done.state.requests == ()
    assert [(d.decision.type, d.decision.by) for d in done.state.decisions] == [("dismiss", "ann")]


def test_after_it_is_dismissed_a_new_message_starts_a_new_run() -> None:
    agent, _ = halting([call("alarm")])
    outcome = interrupted(agent.execute_sync("go"))
    done = agent.resume_sync(outcome.state, outcome.decide(dismiss()))
    assert completed(agent.execute_sync("better?", state=done.state)).text == "never said"


@pytest.mark.parametrize(
    "answer", [approve(), reject(), respond("ok"), edit({}), dismiss, {"type": "approve"}]
)
def test_a_halt_can_only_be_dismissed(answer: Any) -> None:
    """I11, I5: anything else is refused, and the halt still stands."""
    agent, _ = halting([call("alarm")])
    outcome = interrupted(agent.execute_sync("go"))
    with pytest.raises(DecisionError):
        agent.resume_sync(outcome.state, {outcome.requests[0].id: answer})
    plain = {outcome.requests[0].id: {"type": "dismiss"}}
    assert isinstance(agent.resume_sync(outcome.state, plain), Stopped)


def test_going_on_without_an_answer_asks_again() -> None:
    agent, model = halting([call("alarm")])
    outcome = interrupted(agent.execute_sync("go"))
    again = interrupted(agent.resume_sync(reloaded(outcome.state)))
    assert again.requests == outcome.requests
    assert len(model.requests) == 1


def test_the_same_dismissal_again_gives_the_same_outcome() -> None:
    """I5."""
    agent, _ = halting([call("alarm")])
    outcome = interrupted(agent.execute_sync("go"))
    answers = outcome.decide(dismiss())
    done = agent.resume_sync(outcome.state, answers)
    again = agent.resume_sync(reloaded(done.state), answers)
    assert isinstance(again, Stopped)
    with pytest.raises((NotInterrupted, DecisionError)):
        agent.resume_sync(done.state, {outcome.requests[0].id: approve()})


def test_an_approval_cannot_be_dismissed() -> None:
    agent, _ = halting([call("note", {"text": "x"})], interrupt_on={"note": True})
    outcome = interrupted(agent.execute_sync("go"))
    with pytest.raises(DecisionError, match="does not allow 'dismiss'"):
        agent.resume_sync(outcome.state, {outcome.requests[0].id: dismiss()})


def test_a_gate_cannot_offer_to_dismiss() -> None:
    """I1."""
    with pytest.raises(UsageError, match="'dismiss'"):
        HumanInTheLoop({"note": ["approve", "dismiss"]})


def test_a_halt_beats_every_other_request_of_its_batch() -> None:
    """I11: siblings finish; what they asked is not asked any more."""
    agent, _ = halting([call("ask"), call("alarm"), call("note", {"text": "x"})])
    outcome = interrupted(agent.execute_sync("go"))
    assert [request.kind for request in outcome.requests] == ["halt"]
    done = agent.resume_sync(outcome.state, outcome.decide(dismiss()))
    assert [part.outcome for part in results(done.state)] == [
        "interrupted",
        "interrupted",
        "success",
    ]
    assert_valid_history(done.state)


def test_the_first_of_several_halts_stands() -> None:
    agent, _ = halting([call("alarm", id="a"), call("alarm", id="b")])
    outcome = interrupted(agent.execute_sync("go"))
    assert len(outcome.requests) == 1
    done = agent.resume_sync(outcome.state, outcome.decide(dismiss()))
    assert isinstance(done, Stopped)
    assert_valid_history(done.state)


def test_calls_that_have_not_begun_do_not_begin_after_a_halt() -> None:
    """I11."""
    ran: list[str] = []

    @tool(sequential=True)
    async def later() -> str:
        ran.append("later")
        return ""

    model = ScriptedModel([[call("alarm"), call("later")]])
    agent = Agent("cook", model, tools=[alarm, later], middleware=[Haltable()])
    outcome = interrupted(agent.execute_sync("go"))
    agent.resume_sync(outcome.state, outcome.decide(dismiss()))
    assert ran == []


async def test_siblings_that_are_running_finish_and_are_recorded() -> None:
    halted, release = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> str:
        await release.wait()
        return "finished"

    @tool
    async def stop() -> str:
        halted.set()
        raise Halt("now")

    model = ScriptedModel([[call("slow"), call("stop")]])
    agent = Agent("cook", model, tools=[slow, stop], middleware=[Haltable()])
    running = asyncio.ensure_future(agent.execute("go"))
    await soon(halted.wait())
    release.set()
    outcome = interrupted(await soon(running))
    done = await agent.resume(outcome.state, outcome.decide(dismiss()))
    assert results(done.state)[0].content == "finished"


def test_a_halt_passes_through_the_middleware_around_the_tool() -> None:
    """Whatever a hook does with exceptions."""

    class Catches(Middleware):
        async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
            try:
                return await next(call)
            except Exception:
                return "all is well"

    agent, _ = halting([call("alarm")], middleware=[Catches(), Haltable()])
    interrupted(agent.execute_sync("go"))


def test_a_halt_in_a_worker_thread_or_in_an_exception_group_is_a_halt() -> None:
    @tool
    def plain() -> str:
        raise Halt("from a thread")

    @tool
    async def grouped() -> str:
        raise ExceptionGroup("as task groups raise", [Halt("from a group")])

    for each in (plain, grouped):
        model = ScriptedModel([[call(each.name)]])
        agent = Agent("a", model, tools=[each], middleware=[Haltable()])
        assert interrupted(agent.execute_sync("go")).requests[0].payload.startswith("from a")


# -------------------------------------------------------------------------- from below


def family(**options: Any) -> tuple[Agent, list[ScriptedModel]]:
    """A boss whose first task halts, beside one that works on."""
    boss_model = ScriptedModel(
        [
            [
                call("task", {"task_name": "cook", "instructions": "x"}),
                call("task", {"task_name": "helper", "instructions": "y"}),
                call("note", {"text": "z"}),
            ],
            "never said",
        ]
    )
    cook, cook_model = halting([call("alarm")], **options)
    helper_model = ScriptedModel([[call("note", {"text": str(i)})] for i in range(30)])
    helper = Agent("helper", helper_model, tools=[note])
    boss = Agent(
        "boss",
        boss_model,
        tools=[note],
        middleware=[SubAgent([cook, helper], general_purpose=False), Haltable()],
    )
    return boss, [boss_model, cook_model, helper_model]


@pytest.mark.parametrize("below", [[], [Haltable()]])
def test_a_halt_of_a_sub_agent_halts_the_root(below: Any) -> None:
    """I11: its siblings stop after the step that they are in; none continues."""
    boss, models = family(middleware=below)
    outcome = interrupted(boss.execute_sync("go"))
    (request,) = outcome.requests
    assert (request.kind, request.agent_path) == ("halt", ("boss", "cook"))
    assert [len(model.requests) for model in models[:2]] == [1, 1]
    assert len(models[2].requests) < 5
    done = boss.resume_sync(reloaded(outcome.state), outcome.decide(dismiss()))
    assert isinstance(done, Stopped)
    assert_valid_history(done.state)
    assert done.state.children == {}
    assert [len(model.requests) for model in models[:2]] == [1, 1]


def test_a_tool_cannot_catch_the_halt_of_an_agent_that_it_runs() -> None:
    """It gets no outcome: the whole run is halted."""
    told: list[Any] = []
    cook, _ = halting([call("alarm")])

    @tool
    async def run(ctx: ToolContext) -> str:
        try:
            told.append(await ctx.run_agent(cook, "x"))
        except Exception as error:
            told.append(error)
        return "went on"

    boss = Agent("boss", ScriptedModel([[call("run")], "never"]), tools=[run])
    interrupted(boss.execute_sync("go"))
    assert told == []


def test_a_halt_in_a_workflow_halts_all_of_it() -> None:
    cook, _ = halting("ready", [call("alarm")], name="cook", middleware=[])
    after = ScriptedModel(["never"])
    rounds = Agent("rounds", mode=Loop([cook], max_iterations=3))
    flow = Agent(
        "flow",
        mode=Parallel(
            [
                Agent("line", mode=Sequential([rounds, Agent("after", after)])),
                Agent("beside", ScriptedModel(["done"])),
            ]
        ),
        middleware=[Haltable()],
    )
    outcome = interrupted(flow.execute_sync("go"))
    assert outcome.requests[0].agent_path == ("flow", "line", "rounds", "cook")
    done = flow.resume_sync(reloaded(outcome.state), outcome.decide(dismiss()))
    assert isinstance(done, Stopped)
    assert after.requests == []
    assert authors(done.state)[:4] == [None, "cook", "cook", "cook"]
    assert done.state.children == {}


def test_a_halt_beats_the_pause_of_a_sibling() -> None:
    """I11: nobody can continue a halted run, so it does not say that it is paused."""
    cook, _ = halting([call("alarm")])
    paused = Agent("paused", ScriptedModel(["x"]), pause_when=lambda: True)
    flow = Agent("flow", mode=Parallel([paused, cook]))
    outcome = interrupted(flow.execute_sync("go"))
    assert [request.kind for request in outcome.requests] == ["halt"]
    assert outcome.state.pause is None
    assert flow.runner.suspended_outcome(outcome.state) == outcome


def test_without_the_middleware_a_halt_fails_the_whole_run() -> None:
    """A halt is never ignored: the error names who could not be halted, and the remedy."""
    for agent in (halting([call("alarm")], middleware=[])[0], unprepared_family()):
        outcome = agent.execute_sync("go")
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, NotHaltable)
        assert "middleware=[Haltable()]" in str(outcome.error)
        assert "smoke in the kitchen" in str(outcome.error)
        assert outcome.state.requests == ()


def unprepared_family() -> Agent:
    cook, _ = halting([call("alarm")], middleware=[])
    model = ScriptedModel([[call("task", {"task_name": "cook", "instructions": "x"})], "never"])
    return Agent("boss", model, middleware=[SubAgent([cook], general_purpose=False)])


@pytest.mark.parametrize("wrong", ["", "  ", None, 3])
def test_a_halt_says_why(wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"Halt\(message\)"):
        Halt(wrong)


# ----------------------------------------------------------------- crashes and actors


def test_a_halt_that_was_recorded_stands_after_a_crash_at_any_record() -> None:
    """J3: nothing of the run continues after it, in any process that loads it."""
    disk = Disk()
    boss, _ = family()
    interrupted(boss.execute_sync("go", journal=disk))
    halted_from = next(i for i, line in enumerate(disk.lines) if '"halt"' in line) + 1
    for limit in range(halted_from, len(disk.lines)):
        cut = Disk(limit)
        with pytest.raises(Crash):
            family()[0].execute_sync("go", journal=cut)
        other, models = family()
        outcome = interrupted(other.resume_sync(cut.load()))
        assert [request.kind for request in outcome.requests] == ["halt"]
        assert [len(model.requests) for model in models] == [0, 0, 0], f"cut after {limit}"


def test_a_dismissal_that_was_recorded_ends_the_run_after_a_crash() -> None:
    agent, _ = halting([call("alarm")])
    outcome = interrupted(agent.execute_sync("go"))
    for limit in range(2, 4):  # after the snapshot and the decision
        disk = Disk(limit)
        with pytest.raises(Crash):
            agent.resume_sync(outcome.state, outcome.decide(dismiss()), journal=disk)
        assert isinstance(agent.resume_sync(disk.load()), Stopped)


def test_a_halted_agent_actor_is_interrupted_and_after_the_dismissal_idle() -> None:
    """A1, I11."""
    agent, _ = halting([call("alarm")])
    with Runtime(agents=[agent]) as runtime:
        ref = runtime.spawn("cook", id="one")
        outcome = ref.run("go").get(timeout=60)
        assert isinstance(outcome, Interrupted)
        assert ref.status() is Status.INTERRUPTED
        (pending,) = runtime.pending().get(timeout=60)
        assert pending.request.kind == "halt"
        done: Outcome = ref.resume(outcome.decide(dismiss())).get(timeout=60)
        assert isinstance(done, Stopped)
        assert ref.status() is Status.IDLE


def test_a_new_message_moves_on_from_a_halt() -> None:
    """I10: as from any request; the halted run is over, and history says what happened."""
    agent, _ = halting([call("alarm")])
    outcome = interrupted(agent.execute_sync("go"))
    done = completed(agent.execute_sync("and now?", state=reloaded(outcome.state)))
    assert done.text == "never said"
    assert "Halted the run" in str(results(done.state)[0].content)
    assert_valid_history(done.state)


@pytest.mark.parametrize("how", ["dismissed", "withdrawn"])
def test_the_parents_model_learns_why_its_sub_agent_halted_the_run(how: str) -> None:
    """I11."""
    seen: list[str] = []

    def reply(request: ScriptedRequest) -> Any:
        parts = [part for message in request.messages for part in message.parts]
        seen[:] = [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]
        return "I see" if seen else call("task", {"task_name": "cook", "instructions": "cook"})

    cook, _ = halting([call("alarm")], middleware=[])
    boss = Agent(
        "boss",
        ScriptedModel(reply),
        middleware=[SubAgent([cook], general_purpose=False), Haltable()],
    )
    outcome: Outcome = interrupted(boss.execute_sync("go"))
    if how == "dismissed":
        assert isinstance(outcome, Interrupted)
        outcome = boss.resume_sync(reloaded(outcome.state), outcome.decide(dismiss()))
        assert isinstance(outcome, Stopped)
    completed(boss.execute_sync("what happened?", state=reloaded(outcome.state)))
    why = "The agent that this call ran halted the run: smoke in the kitchen."
    assert seen == [f"{why} It had done this: cook: alarm({{}})."]
