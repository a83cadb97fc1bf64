"""Why runs stop: the signals, their order, and what is decided before and after each step."""

from __future__ import annotations

import asyncio
import json
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import ModelRequest, UserPromptPart

from tests.support.agents import Held, assert_valid_history, completed, reloaded, results
from tests.support.loops import never, soon
from understudy import (
    Agent,
    Completed,
    Failed,
    InMemoryCancellation,
    Interrupt,
    Interrupted,
    MiddlewareError,
    Outcome,
    Paused,
    Run,
    Runtime,
    ScriptedModel,
    Stopped,
    StopReason,
    StopSignal,
    StopSignals,
    ToolContext,
    ToolResult,
    UntilToolNotCalled,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.middleware import Cancellation, Limits, Middleware, Next, SubAgent
from understudy.modes import AgentExecution
from understudy.run.tool_call import ToolCall
from understudy.stopping import ExecutionContinuation, StopAgent

SIGNAL = StopSignal.stop_requested("enough", source="guard", seen=3)
HOOKS = ("on_run_start", "before_step", "before_model", "after_model", "around_tool", "after_step")


WRONG: Any = "tired"
WRONG_TEXT: Any = 3


@tool
def look(x: int) -> str:
    """Look something up."""
    return f"saw {x}"


def looking(x: int = 1) -> Any:
    return call("look", {"x": x})


class At(Middleware):
    """Does something with the run in one hook, at one time that it is called, or at all of them."""

    def __init__(self, hook: str, act: Callable[[Run], None], *, time: int | None = None) -> None:
        self.hook = hook
        self.act = act
        self.time = time
        self.count = 0

    def _at(self, hook: str, run: Run) -> None:
        if hook == self.hook:
            self.count += 1
            if self.time in (None, self.count):
                self.act(run)

    async def on_run_start(self, run: Run) -> None:
        self._at("on_run_start", run)

    async def before_step(self, run: Run) -> None:
        self._at("before_step", run)

    async def before_model(self, run: Run, request: Any) -> None:
        self._at("before_model", run)

    async def after_model(self, run: Run, reply: Any) -> None:
        self._at("after_model", run)

    async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
        self._at("around_tool", run)
        return await next(call)

    async def after_step(self, run: Run) -> None:
        self._at("after_step", run)

    async def on_run_end(self, run: Run, outcome: Outcome) -> None:
        self._at("on_run_end", run)


def signals(run: Run) -> None:
    run.signal(SIGNAL)


def goes_on(run: Run) -> None:
    run.request_continuation(source="boss")


def stopped(outcome: Outcome) -> Stopped:
    assert isinstance(outcome, Stopped), outcome
    return outcome


def run_with(*middleware: Middleware, turns: Any, **options: Any) -> tuple[Outcome, ScriptedModel]:
    model = ScriptedModel(turns)
    agent = Agent("a", model, tools=[look], middleware=middleware, **options)
    return agent.execute_sync("go"), model


# --------------------------------------------------------------------- the values (P1, P2)


def test_each_reason_has_its_value_and_priority() -> None:
    """P1."""
    assert {reason.value: reason.priority for reason in StopReason} == {
        "error": 0,
        "stop_requested": 1,
        "steps_limit": 2,
        "user_requested": 2,
        "token_limit": 3,
        "cost_limit": 3,
        "budget": 3,
        "time_limit": 4,
        "retry_limit": 5,
        "finish_reason": 6,
        "completed": 8,
        "unknown": 9,
    }


def test_only_completed_and_finish_reason_are_no_forced_stop() -> None:
    """P1."""
    soft = {reason for reason in StopReason if not reason.was_force_stopped}
    assert soft == {StopReason.COMPLETED, StopReason.FINISH_REASON}


@pytest.mark.parametrize("reason", [r for r in StopReason if r is not StopReason.UNKNOWN])
def test_each_reason_has_a_factory_whose_keywords_are_the_context(reason: StopReason) -> None:
    """P2."""
    made = getattr(StopSignal, reason.value)("why", source="me", used=3)
    assert made == StopSignal(reason, "why", {"used": 3}, "me")


def test_a_reason_may_be_given_by_its_name() -> None:
    """P2."""
    named: Any = "token_limit"
    assert StopSignal(named).reason is StopReason.TOKEN_LIMIT


@pytest.mark.parametrize(
    "make",
    [
        lambda: StopSignal(WRONG),
        lambda: StopReason.of("tired"),
        lambda: StopSignal.from_dict({"reason": "tired"}),
    ],
)
def test_an_unknown_reason_is_refused_with_those_that_there_are(make: Callable[[], Any]) -> None:
    """P1."""
    with pytest.raises(
        UsageError, match=r"'tired' is not a stop reason; there are: error, stop_req"
    ):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: StopSignal(StopReason.ERROR, context={"live": object()}),
        lambda: StopSignal(StopReason.ERROR, context=WRONG),
        lambda: StopSignal(StopReason.ERROR, message=WRONG_TEXT),
        lambda: StopSignal(StopReason.ERROR, source=WRONG_TEXT),
        lambda: StopSignal.from_dict({}),
        lambda: StopAgent(WRONG),
        lambda: StopSignals((WRONG,)),
        lambda: StopSignals(WRONG),
        lambda: StopSignals().with_signal(WRONG),
        lambda: StopSignals.from_dict({}),
        lambda: StopSignals.from_dict({"signals": 3}),
        lambda: StopSignals.from_dict(WRONG),
        lambda: ExecutionContinuation.from_dict({"signals": []}),
        lambda: ExecutionContinuation.from_dict({"signals": [], "continuation_requested": 1}),
    ],
)
def test_what_is_no_signal_is_refused_when_it_is_made(make: Callable[[], Any]) -> None:
    """P2."""
    with pytest.raises(UsageError):
        make()


def test_a_signal_that_is_not_valid_unicode_is_mended() -> None:
    """P1: a stop must not get lost because of its wording."""
    signal = StopSignal.error("no file \ud800", source="disk \udfff")
    assert (signal.message, signal.source) == ("no file \ufffd", "disk \ufffd")
    assert StopSignal.from_dict(json.loads(json.dumps(signal.to_dict()).encode())) == signal


BAD_TEXT = "no file \ud800"


class Answers:
    def check(self, state: Any) -> str:
        return BAD_TEXT


@pytest.mark.parametrize("by", ["tool", "hook", "source", "switch", "ref"])
async def test_a_stop_that_is_not_valid_unicode_stops(by: str) -> None:
    """P1: wherever it comes from."""

    @tool
    def ends() -> str:
        raise StopAgent(StopSignal.user_requested(BAD_TEXT))

    class Signals(Middleware):
        async def after_step(self, run: Run) -> None:
            run.signal(StopSignal.user_requested(BAD_TEXT))

    switch = InMemoryCancellation()
    switch.cancel(BAD_TEXT)
    given: dict[str, list[Any]] = {"source": [Answers()], "switch": [switch]}
    sources = given.get(by, [])
    held = Held(call("ends") if by == "tool" else call("look", {"x": 1}))
    model = ScriptedModel([held, "went on"])
    stack: list[Middleware] = [Signals()] if by == "hook" else []
    stack += [Cancellation(*sources)] if sources else []
    agent = Agent("a", model, tools=[ends, look], middleware=stack)
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        if by == "ref":
            await soon(held.entered.wait())
            ref.cancel(BAD_TEXT)
        held.release.set()
        outcome = await soon(run)
        assert isinstance(outcome, Stopped)
        (signal,) = outcome.signals
        assert signal.message == "no file \ufffd"
        assert reloaded(outcome.state) == outcome.state


def test_what_json_has_no_number_for_is_none_at_once() -> None:
    """P2: what a signal says is the same before and after it was stored."""
    signal = StopSignal.error("odd", loss=float("nan"), deep=[{"limit": float("inf")}])
    assert signal.context == {"loss": None, "deep": [{"limit": None}]}
    assert StopSignal.from_dict(json.loads(json.dumps(signal.to_dict()))) == signal


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
reasons = st.sampled_from(StopReason)
some_signals = st.builds(StopSignal, reason=reasons, message=st.text(max_size=2))
detailed_signals = st.builds(
    StopSignal,
    reason=reasons,
    message=st.text(max_size=5),
    context=st.dictionaries(st.text(max_size=3), json_values, max_size=2),
    source=st.none() | st.text(max_size=5),
)


FEW = settings(max_examples=40)


def many(signals: st.SearchStrategy[StopSignal]) -> st.SearchStrategy[StopSignals]:
    return st.lists(signals, max_size=6).map(lambda given: StopSignals(tuple(given)))


@FEW
@given(st.builds(ExecutionContinuation, many(detailed_signals), st.booleans()))
def test_signals_and_continuations_go_through_json_and_pickle_without_loss(
    continuation: ExecutionContinuation,
) -> None:
    """P2."""
    stored = json.loads(json.dumps(continuation.to_dict()))
    assert ExecutionContinuation.from_dict(stored) == continuation
    assert StopSignals.from_dict(stored) == continuation.signals
    assert pickle.loads(pickle.dumps(continuation)) == continuation


@FEW
@given(many(some_signals))
def test_the_highest_is_the_strongest_then_the_users_then_the_earliest(given: StopSignals) -> None:
    """P1."""
    order = [
        (s.reason.priority, s.reason is not StopReason.USER_REQUESTED, i)
        for i, s in enumerate(given)
    ]
    assert given.highest is (given.signals[min(order)[2]] if order else None)
    assert given.first is (given.signals[0] if order else None)


def test_a_user_is_stronger_than_a_limit_of_steps_whoever_came_first() -> None:
    """P1: they are of one priority."""
    user, steps = StopSignal.user_requested("enough"), StopSignal.steps_limit("3 of 3")
    tokens, again = StopSignal.token_limit("900 of 800"), StopSignal.user_requested("really")
    for signals in ((user, steps), (steps, user), (tokens, steps, user), (steps, user, again)):
        assert StopSignals(signals).highest is user
    assert StopSignals((tokens, steps)).highest is steps


@FEW
@given(many(some_signals), some_signals)
def test_adding_a_signal_changes_nothing_that_was_there(
    given: StopSignals, more: StopSignal
) -> None:
    """P2."""
    before = given.signals
    assert given.with_signal(more).signals == (*before, more)
    assert given.signals == before
    assert len(given.with_signal(more)) == len(given) + 1


@FEW
@given(st.builds(ExecutionContinuation, many(some_signals), st.booleans()), some_signals)
def test_a_continuation_stops_by_a_signal_that_nobody_overrides(
    continuation: ExecutionContinuation, more: StopSignal
) -> None:
    """P3."""
    assert continuation.should_stop == (
        len(continuation.signals) > 0 and not continuation.continuation_requested
    )
    assert continuation.with_continuation(requested=False).with_signal(more).should_stop
    assert not continuation.with_signal(more).with_continuation().should_stop


def test_a_continuation_explains_itself_in_a_sentence() -> None:
    """P2."""
    nothing = ExecutionContinuation()
    one = nothing.with_signal(SIGNAL)
    two = one.with_signal(StopSignal.error("worse"))
    assert nothing.explain() == "Goes on: nothing asks to stop."
    assert one.explain() == "Stops: stop_requested: enough (from 'guard')."
    assert two.explain() == "Stops: error: worse, and 1 more."
    assert one.with_continuation().explain() == (
        "Goes on: a continuation was requested, although this asks to stop: stop_requested: enough "
        "(from 'guard')."
    )


# ---------------------------------------------------------------- before and after a step (P3)


@pytest.mark.parametrize("override", [False, True])
@pytest.mark.parametrize("signal", [False, True])
@pytest.mark.parametrize("tools", [False, True])
def test_what_follows_a_step(tools: bool, signal: bool, override: bool) -> None:
    """P3: signal and no override: stop; override: continue; tool calls: continue; else finish."""
    acts = [act for act, wanted in ((signals, signal), (goes_on, override)) if wanted]
    stack = [At("after_step", act, time=1) for act in acts]
    outcome, model = run_with(*stack, turns=[looking() if tools else "first", "second"])
    if signal and not override:
        assert stopped(outcome).signals == StopSignals((SIGNAL,))
        assert len(model.requests) == 1
        assert len(results(outcome.state)) == tools, "the step is whole"
    elif override or tools:
        assert completed(outcome).text == "second"
    else:
        assert completed(outcome).text == "first"
    assert_valid_history(outcome.state)


@pytest.mark.parametrize("override", [False, True])
@pytest.mark.parametrize("signal", [False, True])
def test_what_precedes_a_step(signal: bool, override: bool) -> None:
    """P3: stop on a signal without override."""
    acts = [act for act, wanted in ((signals, signal), (goes_on, override)) if wanted]
    stack = [At("before_step", act, time=2) for act in acts]
    outcome, model = run_with(*stack, turns=[looking(), "second"])
    if signal and not override:
        assert stopped(outcome).signals == StopSignals((SIGNAL,))
        assert len(model.requests) == 1
    else:
        assert completed(outcome).text == "second"


@pytest.mark.parametrize("hook", HOOKS)
def test_a_signal_of_any_hook_stops_the_run(hook: str) -> None:
    """P3."""
    outcome, model = run_with(At(hook, signals, time=1), turns=[looking(), "second"])
    assert stopped(outcome).signals == StopSignals((SIGNAL,))
    early = hook in ("on_run_start", "before_step")
    assert len(model.requests) == (0 if early else 1)
    assert len(results(outcome.state)) == (0 if early else 1), "a step that began is done"


@pytest.mark.parametrize("asks", HOOKS)
@pytest.mark.parametrize("tells", HOOKS)
def test_a_continuation_asked_for_in_any_hook_is_honoured(tells: str, asks: str) -> None:
    """P3: any request in the same step, or before the step that is to come."""
    early = ("on_run_start", "before_step")
    time = 1
    if tells in early and asks not in early:
        tells, time = "before_step", 2  # the boundary after the step in which it is asked
    elif asks in early and tells not in early:
        asks = "after_step"
    stack = [At(tells, signals, time=time), At(asks, goes_on, time=1)]
    outcome, _ = run_with(*stack, turns=[looking(), "second"])
    assert completed(outcome).text == "second"


def test_a_plain_hook_may_signal_from_its_thread() -> None:
    """P3."""

    class Plain(Middleware):
        def before_step(self, run: Run) -> None:  # type: ignore[override]  # plain hooks may be
            run.signal(SIGNAL)

    recorded_in = set[int]()

    class Journal:
        has_unflushed = False

        def append(self, records: Any) -> None:
            recorded_in.add(threading.get_ident())

        async def durable(self) -> None: ...

    model = ScriptedModel(["never"])
    agent = Agent("a", model, middleware=[Plain()])
    outcome = agent.execute_sync("go", journal=Journal())
    assert stopped(outcome).signals.highest == SIGNAL
    assert model.requests == []
    assert recorded_in == {threading.get_ident()}, "on the loop, whichever thread asks for it"


@pytest.mark.parametrize("loop_is", ["closed", "stopped"])
@pytest.mark.parametrize("caller", ["thread", "other loop"])
def test_a_signal_after_the_loop_of_the_run_has_ended_is_refused(loop_is: str, caller: str) -> None:
    """P3: a late hook gets the promised error, and does not hang."""
    runs: list[Run] = []

    class Keeps(Middleware):
        async def before_step(self, run: Run) -> None:
            runs.append(run)

    agent = Agent("a", ScriptedModel(["done"]), middleware=[Keeps()])
    loop = asyncio.new_event_loop()
    loop.run_until_complete(agent.execute("go"))
    if loop_is == "closed":
        loop.close()

    async def signals() -> None:
        runs[0].signal(SIGNAL)

    def signal() -> None:
        runs[0].signal(SIGNAL) if caller == "thread" else asyncio.run(signals())

    with pytest.raises(UsageError, match="the run is over"):
        signal()
    with pytest.raises(UsageError, match="the run is over"):
        runs[0].request_continuation()
    loop.close()


async def test_an_attempt_that_has_returned_its_outcome_takes_no_more_signals() -> None:
    """P3: the run waits for a person, and its state is the caller's by now."""
    runs: list[Run] = []

    class Keeps(Middleware):
        async def before_model(self, run: Run, request: Any) -> None:
            runs.append(run)

    agent = Agent(
        "a",
        ScriptedModel([call("look", {"x": 1}), "done"]),
        tools=[look],
        middleware=[Keeps()],
        interrupt_on={"look": True},
    )
    asked = await agent.execute("go")
    assert isinstance(asked, Interrupted)
    with pytest.raises(UsageError, match="the run is over"):
        runs[0].signal(SIGNAL)
    with pytest.raises(UsageError, match="the run is over"):
        runs[0].escalate()
    completed(await agent.resume(asked.state, asked.decide(approve())))


def test_a_continuation_after_a_final_reply_asks_the_model_again_with_a_user_message() -> None:
    """P3: providers want the user to speak before the model does again."""

    def more(run: Run) -> None:
        run.request_continuation(prompt="Check it once more.")

    outcome, model = run_with(At("after_model", more, time=1), turns=["first", "second"])
    assert completed(outcome).text == "second"
    assert model.requests[1].prompt == "Check it once more."
    outcome, model = run_with(At("after_model", goes_on, time=1), turns=["first", "second"])
    last = model.requests[1].messages[-1]
    assert isinstance(last, ModelRequest)
    assert [part.content for part in last.parts if isinstance(part, UserPromptPart)] == ["Go on."]


@pytest.mark.parametrize("has_run", [False, True], ids=["before any run", "after a run"])
@pytest.mark.parametrize(
    "ask",
    [lambda run: run.signal(SIGNAL), lambda run: run.request_continuation(), Run.escalate],
    ids=["signal", "request_continuation", "escalate"],
)
async def test_a_message_to_a_middleware_stops_nothing_where_no_run_is_open(
    ask: Callable[[Run], None], has_run: bool
) -> None:
    """P3: the hook gets an error."""

    class Phone(Middleware):
        async def on_message(self, run: Run, message: Any) -> None:
            ask(run)

    agent = Agent("a", ScriptedModel(["hello", "again"]), middleware=[Phone()])
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("a")
        if has_run:
            completed(await soon(ref.run("go")))
        with pytest.raises(MiddlewareError, match="UsageError: the run is over"):
            await soon(ref.notify("Phone", "come home"))
        completed(await soon(ref.run("go")))


async def test_a_message_to_a_middleware_during_a_model_call_stops_the_run_after_that_step() -> (
    None
):
    """P3, A7: the signal is not lost, though the step was decided about before it came."""

    class Phone(Middleware):
        async def on_message(self, run: Run, message: Any) -> None:
            run.signal(StopSignal.user_requested(str(message), source="phone"))

    entered, release = asyncio.Event(), asyncio.Event()

    @tool
    async def note() -> str:
        return "noted"

    async def reply(_request: Any) -> Any:
        entered.set()
        await release.wait()
        return call("note")

    model = ScriptedModel([reply, "never"])

    async def main() -> Outcome:
        agent = Agent("a", model, tools=[note], middleware=[Phone()])
        async with Runtime(agents=[agent]) as runtime:
            ref = runtime.spawn("a", id="one")
            future = ref.run("go")
            await soon(entered.wait())
            await soon(ref.notify("Phone", "come home"))
            release.set()
            return await soon(future)

    outcome = await main()
    assert isinstance(outcome, Stopped), outcome
    assert [signal.message for signal in outcome.signals] == ["come home"]
    assert len(results(outcome.state)) == 1
    assert len(model.requests) == 1


def test_a_signal_stops_a_run_whose_reply_was_final() -> None:
    """P3: signal and no override: stop. What the model said is in the state."""
    outcome, _ = run_with(At("after_model", signals), turns=["my answer"])
    assert stopped(outcome).signals.highest == SIGNAL
    assert outcome.state.messages[-1].parts[0].content == "my answer"  # type: ignore[union-attr]  # text


def test_signals_of_several_hooks_coexist_and_the_strongest_is_highest() -> None:
    """P1, P3."""
    worse = StopSignal.error("broken", source="other")
    stack = [At("before_step", signals), At("before_step", lambda run: run.signal(worse))]
    outcome, _ = run_with(*stack, turns=[])
    assert stopped(outcome).signals.signals == (SIGNAL, worse)
    assert stopped(outcome).signals.highest == worse


def test_the_same_signal_for_the_same_place_is_kept_once() -> None:
    """P3: hooks run at least once."""
    stack = [At("on_run_start", signals), At("before_step", signals)]
    outcome, _ = run_with(*stack, turns=[])
    assert len(stopped(outcome).signals) == 1


@pytest.mark.parametrize(
    "signal", [StopSignal.completed("All is done."), StopSignal.finish_reason("enough")]
)
def test_a_signal_that_forces_nothing_ends_the_run_as_completed(signal: StopSignal) -> None:
    """P1, P5."""
    stack = [At("after_step", lambda run: run.signal(signal))]
    outcome, model = run_with(*stack, turns=[["So far.", looking()]])
    assert completed(outcome).text == "So far."
    assert len(model.requests) == 1
    outcome, _ = run_with(At("before_step", lambda run: run.signal(signal)), turns=[])
    assert completed(outcome).text == (signal.message if signal.reason.value == "completed" else "")


def test_a_run_that_must_end_by_a_tool_fails_where_a_soft_signal_ends_it() -> None:
    """U5: nothing called the tool."""
    done = StopSignal.completed("done")
    for hook in ("before_step", "after_step"):
        model = ScriptedModel(["text"])
        stack = [At(hook, lambda run: run.signal(done))]
        agent = Agent("a", model, tools=[look], middleware=stack)
        outcome = agent.execute_sync("go", until_tool=look)
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, UntilToolNotCalled)


def test_a_run_that_reached_its_until_tool_is_completed_whatever_is_signalled() -> None:
    """U1."""
    agent = Agent(
        "a", ScriptedModel([looking()]), tools=[look], middleware=[At("around_tool", signals)]
    )
    outcome = completed(agent.execute_sync("go", until_tool=look))
    assert outcome.tool_result is not None


def test_hooks_see_how_the_run_would_go_on() -> None:
    """P3."""
    seen: list[str] = []
    stack = [
        At("before_step", signals, time=1),
        At("before_step", goes_on, time=1),
        At("before_step", lambda run: seen.append(run.continuation.explain())),
    ]
    run_with(*stack, turns=[looking(), "end"])
    assert [text[:7] for text in seen] == ["Goes on", "Goes on"]
    assert "although" in seen[0]
    assert "nothing" in seen[1]


@pytest.mark.parametrize("act", [signals, goes_on])
def test_when_the_run_is_over_nothing_can_be_signalled(act: Callable[[Run], None]) -> None:
    """P3."""
    kept: list[Run] = []
    run_with(At("before_step", kept.append), turns=["done"])
    with pytest.raises(UsageError, match="the run is over"):
        asyncio.run(as_coroutine(lambda: act(kept[0])))


async def as_coroutine(act: Callable[[], None]) -> None:
    act()


def test_what_is_no_signal_fails_the_hook_that_gave_it() -> None:
    given: Any = "enough"
    outcome, _ = run_with(At("before_step", lambda run: run.signal(given)), turns=[])
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, MiddlewareError)
    assert "takes a StopSignal" in outcome.error.message


@pytest.mark.parametrize("answer", ["no", 1, None])
def test_a_signal_whose_answer_is_no_bool_fails_its_hook(answer: Any) -> None:
    hook = At("before_step", lambda run: run.signal(SIGNAL, answer=answer))
    outcome, _ = run_with(hook, turns=[])
    assert isinstance(outcome, Failed)
    assert "run.signal(answer=...) must be True or False" in outcome.error.message


@pytest.mark.parametrize(
    ("hook", "step"), [("before_step", "check_stop"), ("after_step", "continue_or_finish")]
)
def test_a_mode_that_would_never_call_a_hook_is_refused(hook: str, step: str) -> None:
    """R8: a guard is never silently off."""

    async def other(run: Run) -> None:
        return None

    async def of_them(self: Any, run: Run) -> None:
        return None

    guard = type("Guard", (Middleware,), {hook: of_them})
    mode = AgentExecution().replacing(step, other)
    with pytest.raises(UsageError, match=f"Guard has {hook}, but the mode has no step {step}"):
        Agent("a", ScriptedModel([]), middleware=[guard()], mode=mode)


def test_a_signal_of_a_step_of_ones_own_stops_before_the_model_is_asked() -> None:
    """P3."""

    async def guard(run: Run) -> None:
        if run.current.turn is None:
            run.signal(SIGNAL)

    model = ScriptedModel(["never"])
    agent = Agent("a", model, mode=AgentExecution().inserting(before="call_llm", step=guard))
    assert stopped(agent.execute_sync("go")).signals.highest == SIGNAL
    assert model.requests == []


# -------------------------------------------------------------------------- overrides (P4)


def test_an_override_lasts_for_one_step() -> None:
    """P4: a guard whose cause persists emits again."""
    stack = [At("before_step", signals), At("before_step", goes_on, time=1)]
    outcome, model = run_with(*stack, turns=[looking(), "never"])
    assert stopped(outcome).signals == StopSignals((SIGNAL,))
    assert len(model.requests) == 1


def test_an_override_that_met_no_signal_does_not_wait_for_one() -> None:
    """P4."""
    stack = [At("on_run_start", goes_on), At("before_step", signals, time=2)]
    outcome, _ = run_with(*stack, turns=[looking(), "never"])
    assert stopped(outcome).signals.highest == SIGNAL


def test_an_overridden_signal_is_retired_and_stays_in_the_record() -> None:
    """P4."""
    stack = [At("before_step", signals, time=1), At("before_step", goes_on, time=1)]
    outcome, _ = run_with(*stack, turns=[looking(), "end"])
    state = completed(outcome).state
    assert state.run is not None
    assert [given.signal for given in state.run.signals] == [SIGNAL.to_dict()]
    assert [given.source for given in state.run.overrides] == ["boss"]
    assert "it had gone on in spite of stop_requested: enough (from 'guard')" in outcome.explain()


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_the_same_guard_can_be_overridden_so_often_in_a_row(limit: int) -> None:
    """P4: no endless loop."""
    stack = [At("before_step", signals), At("before_step", goes_on)]
    outcome, model = run_with(*stack, turns=[looking()] * 9, max_overrides=limit)
    assert stopped(outcome).signals == StopSignals((SIGNAL,))
    assert len(model.requests) == limit
    assert f"guard was overridden {limit} times in a row" in outcome.explain()


def test_three_overrides_in_a_row_are_the_default() -> None:
    """P4."""
    stack = [At("after_step", signals), At("after_step", goes_on)]
    _, model = run_with(*stack, turns=["again"] * 9)
    assert len(model.requests) == 4, "the step after each of three overrides, and the first"


def test_a_guard_that_was_silent_in_between_may_be_overridden_anew() -> None:
    """P4: in a row."""

    def now_and_then(run: Run) -> None:
        if run.current.turns % 3:
            run.signal(SIGNAL)

    stack = [At("before_step", now_and_then), At("before_step", goes_on)]
    turns = [looking()] * 8
    outcome, _ = run_with(*stack, turns=[*turns, "end"], max_overrides=2)
    assert completed(outcome).text == "end"


def test_guards_are_told_apart_by_their_source() -> None:
    """P4."""

    def by_turns(run: Run) -> None:
        source = "odd" if run.current.turns % 2 else "even"
        run.signal(StopSignal.stop_requested("x", source=source))

    stack = [At("before_step", by_turns), At("before_step", goes_on)]
    outcome, _ = run_with(*stack, turns=[*[looking()] * 6, "end"], max_overrides=1)
    assert completed(outcome).text == "end"


def test_an_override_does_not_lift_max_runs() -> None:
    """R1."""
    outcome, model = run_with(At("after_step", goes_on), turns=["again"] * 9, max_runs=2)
    assert isinstance(outcome, Failed)
    assert len(model.requests) == 2


def test_the_steps_that_one_override_lets_by_are_counted_once_for_both_its_sides() -> None:
    """P4: after a step and before the next is one place."""
    stack = [
        At("after_step", signals, time=1),
        At("before_step", signals, time=2),
        At("after_step", goes_on, time=1),
    ]
    outcome, _ = run_with(*stack, turns=[looking(), "end"], max_overrides=1)
    assert completed(outcome).text == "end"


# -------------------------------------------------------------------------- StopAgent (P6)


def halting_tool(signal: StopSignal = SIGNAL) -> Any:
    @tool
    async def halt() -> str:
        """Stop the run."""
        raise StopAgent(signal)

    return halt


def test_a_tool_that_raises_stop_agent_stops_the_run_by_its_own_signal() -> None:
    """P6."""
    model = ScriptedModel([call("halt"), "never"])
    outcome = stopped(Agent("a", model, tools=[halting_tool()]).execute_sync("go"))
    assert outcome.signals == StopSignals((SIGNAL,))
    assert outcome.signals.highest is not None
    assert outcome.signals.highest.context == {"seen": 3}
    assert outcome.signals.highest.source == "guard"
    assert [part.content for part in results(outcome.state)] == [
        "Stopped the run: stop_requested: enough (from 'guard')"
    ]
    assert_valid_history(outcome.state)


def test_the_step_of_a_stop_agent_is_recorded_whole() -> None:
    """P6: siblings' results, usage; calls not started get a result saying so."""
    ran: list[str] = []

    @tool
    async def sibling() -> ToolResult[str]:
        """Run beside it."""
        await asyncio.sleep(0)
        ran.append("sibling")
        return ToolResult("done", state={"done": True})

    @tool(sequential=True)
    async def later() -> str:
        """Run after it."""
        ran.append("later")
        return "never"

    model = ScriptedModel([[call("halt"), call("sibling"), call("later")]])
    agent = Agent("a", model, tools=[halting_tool(), sibling, later])
    outcome = stopped(agent.execute_sync("go"))
    assert ran == ["sibling"]
    parts = results(outcome.state)
    assert [part.tool_name for part in parts] == ["halt", "sibling", "later"]
    assert parts[1].content == "done"
    assert parts[2].content == "Not run: another call of the same reply asked the run to stop."
    assert [part.outcome for part in parts] == ["interrupted", "success", "interrupted"]
    assert outcome.state.values == {"done": True}
    assert (outcome.usage.requests, outcome.usage.tool_calls) == (1, 1)
    assert_valid_history(outcome.state)


def test_a_plain_tool_may_stop_the_run_from_its_thread_and_within_a_task_group() -> None:
    """P6."""

    @tool
    def plain() -> str:
        """Stop it."""
        raise StopAgent(SIGNAL)

    @tool
    async def grouped() -> str:
        """Stop it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(raising())
            await never()
        return "never"

    async def raising() -> None:
        raise StopAgent(SIGNAL)

    for name in ("plain", "grouped"):
        agent = Agent("a", ScriptedModel([call(name)]), tools=[plain, grouped])
        assert stopped(agent.execute_sync("go")).signals.highest == SIGNAL


def test_no_middleware_can_swallow_a_stop_agent() -> None:
    """P6."""
    tried: list[str] = []

    class Swallows(Middleware):
        async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
            for _ in range(2):
                try:
                    return await next(call)
                except BaseException as error:
                    tried.append(type(error).__name__)
            return "all is well"

    model = ScriptedModel([call("halt"), "never"])
    agent = Agent("a", model, tools=[halting_tool()], middleware=[Swallows(), Swallows()])
    assert stopped(agent.execute_sync("go")).signals == StopSignals((SIGNAL,))
    assert tried, "it did try"


def test_a_middleware_around_a_tool_may_raise_stop_agent_itself() -> None:
    """P6."""
    ran: list[int] = []

    @tool
    async def work() -> str:
        """Work."""
        ran.append(1)
        return "worked"

    class Refuses(Middleware):
        async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
            raise StopAgent(SIGNAL)

    class Swallows(Middleware):
        async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
            try:
                return await next(call)
            except BaseException:
                return "all is well"

    agent = Agent(
        "a", ScriptedModel([call("work")]), tools=[work], middleware=[Swallows(), Refuses()]
    )
    assert stopped(agent.execute_sync("go")).signals == StopSignals((SIGNAL,))
    assert ran == []


def test_a_question_beside_a_stop_agent_is_not_asked() -> None:
    """P6: the run is to stop, so nobody is to be waited for."""

    @tool
    async def ask() -> str:
        """Ask."""
        raise Interrupt("really?")

    agent = Agent("a", ScriptedModel([[call("ask"), call("halt")]]), tools=[ask, halting_tool()])
    outcome = stopped(agent.execute_sync("go"))
    assert outcome.state.requests == ()
    assert [part.outcome for part in results(outcome.state)] == ["interrupted", "interrupted"]
    assert_valid_history(outcome.state)


def test_a_stop_agent_can_be_overridden_as_any_signal() -> None:
    """P3, P6: what was left out stays so, and the model learns it."""
    model = ScriptedModel([call("halt"), "went on"])
    agent = Agent(
        "a", model, tools=[halting_tool()], middleware=[At("after_step", goes_on, time=1)]
    )
    assert completed(agent.execute_sync("go")).text == "went on"


def test_a_stop_agent_that_says_completed_completes_the_run() -> None:
    """P1, P6."""
    model = ScriptedModel([call("halt")])
    agent = Agent("a", model, tools=[halting_tool(StopSignal.completed("It is all done."))])
    outcome = completed(agent.execute_sync("go"))
    assert outcome.text == "It is all done."
    assert outcome.explain() == "Completed after 1 model call: completed: It is all done."


def test_an_until_tool_that_stops_the_run_has_brought_no_result() -> None:
    """P6, U1."""
    agent = Agent("a", ScriptedModel([call("halt")]), tools=[halting_tool()])
    assert stopped(agent.execute_sync("go", until_tool="halt")).signals.highest == SIGNAL


# ------------------------------------------------------------------------ nested runs (P8)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tools": [halting_tool()]}, "stop_requested: enough"),
        ({"tools": [look], "middleware": [Limits(max_steps=1)]}, "steps_limit: 1 of 1 steps"),
    ],
)
def test_what_a_nested_agent_stopped_on_leaks_nothing_into_its_parent(
    options: dict[str, Any], told: str
) -> None:
    """P8: the parent's tool gets an error result, and the parent continues."""
    turns = [call("halt") if told.startswith("stop") else looking(), "never"]
    child = Agent("child", ScriptedModel(turns), **options)
    model = ScriptedModel([call("task", {"task_name": "child", "instructions": "go"}), "went on"])
    agent = Agent(
        "parent", model, middleware=[SubAgent(agents=[child], general_purpose=False), Limits(3)]
    )
    outcome = completed(agent.execute_sync("go"))
    assert outcome.text == "went on"
    part = results(outcome.state)[0]
    assert part.outcome == "failed"
    assert "task 'child' was not finished. Stopped after 1 model call: " + told in str(part.content)
    assert outcome.state.run is not None
    assert outcome.state.run.signals == []


# ---------------------------------------------------------------------------- explain (P2)


def test_every_outcome_explains_itself_in_one_sentence() -> None:
    """P2."""

    @tool
    async def ask() -> str:
        """Ask."""
        raise Interrupt("which?")

    told: dict[type[Outcome], str] = {}
    for turns, options in (
        (["Hello."], {}),
        ([call("ask")], {}),
        (["Hello."], {"pause_when": lambda: "lunch"}),
        ([call("ask")] * 3, {"middleware": [Limits(max_steps=1)], "interrupt_on": {"ask": True}}),
        ([OSError("no network")], {}),
    ):
        given: dict[str, Any] = dict(options)
        agent = Agent("a", ScriptedModel(turns), tools=[ask], **given)
        outcome = agent.execute_sync("go")
        told[type(outcome)] = outcome.explain()
    assert told == {
        Completed: "Completed after 1 model call: the model gave its final answer.",
        Interrupted: "Waits for a person after 1 model call: 1 request is pending: approval of "
        "'ask'.",
        Paused: "Paused after 1 model call: lunch.",
        Failed: "Failed after 0 model calls: ModelFailed: No model answered: scripted: OSError: "
        "no network.",
    }
    outcome, _ = run_with(
        At("after_step", signals),
        At("after_step", lambda run: run.signal(StopSignal.error("worse"))),
        turns=[looking()],
    )
    assert outcome.explain() == (
        "Stopped after 1 model call: error: worse, and also stop_requested: enough (from 'guard')."
    )
    agent = Agent("a", ScriptedModel([looking()]), tools=[look])
    outcome = agent.execute_sync("go", until_tool=look)
    assert outcome.explain() == "Completed after 1 model call: the tool 'look' has its result."


def test_an_outcome_of_a_stored_state_explains_itself_as_the_first_one_did() -> None:
    """P2, P4."""

    @tool
    def ask(ctx: ToolContext) -> str:
        """Ask."""
        return "yes"

    def build(turns: list[Any]) -> Agent:
        stack = [At("before_step", signals, time=1), At("before_step", goes_on, time=1)]
        return Agent(
            "a", ScriptedModel(turns), tools=[ask], interrupt_on={"ask": True}, middleware=stack
        )

    outcome = build([call("ask")]).execute_sync("go")
    assert isinstance(outcome, Interrupted)
    last = Agent("a", ScriptedModel(["end"]), tools=[ask], interrupt_on={"ask": True})
    ended = last.resume_sync(reloaded(outcome.state), outcome.decide(approve()))
    assert "in spite of stop_requested: enough" in completed(ended).explain()
    # The answer that was given already brings the same end again.
    again = last.resume_sync(reloaded(ended.state), outcome.decide(approve()))
    assert again.explain() == ended.explain()
