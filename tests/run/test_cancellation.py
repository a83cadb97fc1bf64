"""Cancellation sources: asked at the start of a run and before each of its steps (P7)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.agents import (
    Held,
    assert_valid_history,
    completed,
    interrupted,
    reloaded,
    results,
)
from tests.support.loops import soon
from understudy import (
    Agent,
    AgentState,
    CancellationSource,
    Failed,
    InMemoryCancellation,
    MiddlewareError,
    Outcome,
    Run,
    Runtime,
    ScriptedModel,
    Status,
    Stopped,
    StopReason,
    StopSignal,
    StopSignals,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.middleware import Cancellation, Limits, Middleware, SubAgent


@tool
async def work() -> str:
    """Work."""
    return "worked"


WORK = call("work")


class Counting:
    """A source that gives an answer at its n-th question, and nothing before."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []
        """How many model calls had been made, each time."""

    async def check(self, state: AgentState) -> Any:
        assert state.run is not None
        self.asked.append(state.run.model_calls)
        return self.answers.pop(0) if self.answers else None


def stopped(outcome: Outcome) -> Stopped:
    assert isinstance(outcome, Stopped), outcome
    assert_valid_history(outcome.state)
    return outcome


def test_a_source_is_asked_at_the_start_and_before_each_step() -> None:
    """P7."""
    source = Counting()
    agent = Agent("a", ScriptedModel([WORK, WORK, "done"]), tools=[work])
    completed(agent.execute_sync("go", cancellation=source))
    assert source.asked == [0, 0, 1, 2]


def test_cancelled_before_the_start_no_model_is_asked_and_no_run_is_started() -> None:
    """P7."""
    called: list[str] = []

    class Looks(Middleware):
        async def on_run_start(self, run: Run) -> None:
            called.append("start")

        async def on_run_end(self, run: Run, outcome: Outcome) -> None:
            called.append("end")

    source = InMemoryCancellation()
    source.cancel("not today")
    model = ScriptedModel(["never"])
    agent = Agent("a", model, middleware=[Looks()])
    outcome = stopped(agent.execute_sync("go", cancellation=source))
    assert model.requests == []
    assert called == ["end"]
    assert outcome.signals == StopSignals(
        (StopSignal.user_requested("not today", source="cancellation"),)
    )
    assert outcome.explain() == (
        "Stopped after 0 model calls: user_requested: not today (from 'cancellation')."
    )


def test_cancelled_in_the_middle_what_was_finished_is_kept() -> None:
    """P7."""
    source = InMemoryCancellation()

    @tool
    async def switch() -> str:
        """Cancel it from within, as somebody else might meanwhile."""
        source.cancel()
        return "switched"

    model = ScriptedModel([[call("switch"), WORK], "never"])
    outcome = stopped(
        Agent("a", model, tools=[work, switch]).execute_sync("go", cancellation=[source])
    )
    assert len(model.requests) == 1
    assert [part.content for part in results(outcome.state)] == ["switched", "worked"]


def test_the_signal_of_a_cancellation_keeps_who_cancelled_and_why() -> None:
    """P7: also where it is stored."""
    source: CancellationSource = InMemoryCancellation()
    assert isinstance(source, InMemoryCancellation)
    source.cancel("not today", context={"by": "ann", "ticket": 7})
    outcome = stopped(Agent("a", ScriptedModel(["no"])).execute_sync("go", cancellation=source))
    expected = StopSignal.user_requested("not today", source="cancellation", by="ann", ticket=7)
    assert outcome.signals == StopSignals((expected,))
    assert expected.context == {"by": "ann", "ticket": 7}
    run = reloaded(outcome.state).run
    assert run is not None
    assert run.cancelled == expected.to_dict()


async def test_the_signal_of_a_cancelled_actor_keeps_who_cancelled_and_why() -> None:
    """P7."""
    held = Held()
    async with Runtime([Agent("a", ScriptedModel([held]))]) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        await soon(held.entered.wait())
        await soon(ref.cancel("not today", context={"by": "ann"}))
        outcome = stopped(await soon(run))
    highest = outcome.signals.highest
    assert highest is not None
    assert (highest.message, highest.context) == ("not today", {"by": "ann"})


def test_a_context_that_cannot_be_stored_is_refused() -> None:
    """R8."""
    with pytest.raises(UsageError, match="context"):
        InMemoryCancellation().cancel(context={"by": object()})


def test_reset_arms_a_source_again() -> None:
    """P7."""
    source = InMemoryCancellation()
    agent = Agent("a", ScriptedModel(["one", "two"]), middleware=[Cancellation(source)])
    assert completed(agent.execute_sync("go")).text == "one"
    source.cancel()
    assert source.cancelled
    stopped(agent.execute_sync("go"))
    stopped(agent.execute_sync("go"))
    source.reset()
    assert not source.cancelled
    assert completed(agent.execute_sync("go")).text == "two"


def test_no_override_lifts_a_cancellation() -> None:
    """P7: always."""

    class Extends(Middleware):
        async def before_step(self, run: Run) -> None:
            run.request_continuation()

        async def after_step(self, run: Run) -> None:
            run.request_continuation()

    source = Counting(None, None, True)
    model = ScriptedModel([WORK, "never"])
    agent = Agent("a", model, tools=[work], middleware=[Extends()])
    assert stopped(agent.execute_sync("go", cancellation=source)).signals.highest is not None
    assert len(model.requests) == 1


@pytest.mark.parametrize("reason", [StopSignal.completed, StopSignal.finish_reason])
def test_a_source_stops_the_run_whatever_the_reason_of_its_signal_is(reason: Any) -> None:
    """P7: what a source says is a cancellation."""
    signal = reason("all done")
    outcome = Agent("a", ScriptedModel(["no"])).execute_sync("go", cancellation=Counting(signal))
    assert stopped(outcome).signals == StopSignals((signal,))


def test_a_source_is_asked_whatever_else_asks_the_run_to_stop() -> None:
    """P7: always; a cancellation is what the run ends by."""
    source = Counting(None, None, True)
    agent = Agent("a", ScriptedModel([WORK]), tools=[work], middleware=[Limits(max_steps=1)])
    outcome = stopped(agent.execute_sync("go", cancellation=source))
    assert [signal.reason for signal in outcome.signals] == [StopReason.USER_REQUESTED]


def test_a_run_that_waited_for_a_person_is_cancelled_before_its_tools_run() -> None:
    """P7: asked at the start of each drive. The source must be given again."""
    ran: list[int] = []

    @tool
    async def deed() -> str:
        """Do it."""
        ran.append(1)
        return "done"

    agent = Agent("a", ScriptedModel([call("deed")]), tools=[deed], interrupt_on={"deed": True})
    source = InMemoryCancellation()
    outcome = interrupted(agent.execute_sync("go", cancellation=source))
    source.cancel()
    answers = outcome.decide(approve())
    end = stopped(agent.resume_sync(reloaded(outcome.state), answers, cancellation=source))
    assert ran == []
    assert results(end.state)[0].outcome == "interrupted"


@pytest.mark.parametrize(
    ("answer", "message", "source"),
    [
        (True, "cancelled", "Counting"),
        ("the shop is closed", "the shop is closed", "Counting"),
        (StopSignal.error("worse", source="me"), "worse", "me"),
    ],
)
def test_a_source_may_say_true_or_why_or_a_signal_of_its_own(
    answer: Any, message: str, source: str
) -> None:
    """P7."""
    agent = Agent("a", ScriptedModel(["never"]))
    signal = stopped(agent.execute_sync("go", cancellation=Counting(answer))).signals.highest
    assert signal is not None
    assert (signal.message, signal.source) == (message, source)


@pytest.mark.parametrize("answer", [None, False, ""])
def test_a_source_that_says_nothing_cancels_nothing(answer: Any) -> None:
    """P7."""
    agent = Agent("a", ScriptedModel(["done"]))
    completed(agent.execute_sync("go", cancellation=Counting(answer, answer)))


def test_a_plain_source_is_asked_in_a_thread() -> None:
    """P7: it may look into a file or a database."""
    threads: list[threading.Thread] = []

    class Plain:
        def check(self, state: AgentState) -> bool:
            threads.append(threading.current_thread())
            return True

    stopped(Agent("a", ScriptedModel([])).execute_sync("go", cancellation=Plain()))
    assert threads != []
    assert threading.main_thread() not in threads


class Breaks:
    async def check(self, state: AgentState) -> bool:
        raise OSError("no such file")


@pytest.mark.parametrize(
    ("source", "told"), [(Breaks(), "no such file"), (Counting(0), "check returned 0")]
)
def test_a_source_that_cannot_say_fails_the_run(source: CancellationSource, told: str) -> None:
    """P7: a cancellation must not get lost, so the run does not continue without knowing."""
    model = ScriptedModel(["never"])
    outcome = Agent("a", model).execute_sync("go", cancellation=source)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, MiddlewareError)
    assert outcome.error.hook == "check"
    assert told in outcome.error.message
    assert model.requests == []


@pytest.mark.parametrize(
    "give",
    [
        lambda wrong: Agent("a", ScriptedModel([])).execute_sync("go", cancellation=wrong),
        lambda wrong: Cancellation(wrong),
    ],
)
@pytest.mark.parametrize("wrong", [object(), InMemoryCancellation, True])
def test_what_is_no_source_is_refused(give: Callable[[Any], Any], wrong: Any) -> None:
    """R8."""
    with pytest.raises(UsageError, match="check"):
        give(wrong)


def test_an_empty_middleware_and_an_empty_scope_are_refused() -> None:
    """R8."""
    with pytest.raises(UsageError):
        Cancellation()
    with pytest.raises(UsageError, match="agent_id"):
        InMemoryCancellation(agent_id="")


# ------------------------------------------------------------------------------- scopes


def test_a_source_may_be_scoped_to_an_agent_or_to_a_run() -> None:
    """P7."""
    agent = Agent("a", ScriptedModel(lambda request: "done"))
    for scope, is_met in (
        ({"agent_id": "a"}, True),
        ({"agent_id": "b"}, False),
        ({"run_id": "r1"}, True),
        ({"run_id": "r"}, False),
        ({"agent_id": "a", "run_id": "r2"}, False),
    ):
        source = InMemoryCancellation(**scope)
        source.cancel()
        outcome = agent.execute_sync("go", cancellation=source, new_id=lambda: "r1")
        assert isinstance(outcome, Stopped) == is_met, scope


def nested(parent: ScriptedModel, child: ScriptedModel, *middleware: Middleware) -> Agent:
    inner = Agent("child", child, tools=[work])
    stack = [SubAgent(agents=[inner], general_purpose=False), *middleware]
    return Agent("parent", parent, middleware=stack)


TASK = call("task", {"task_name": "child", "instructions": "go"})


def test_a_source_is_asked_inside_the_agents_that_tools_run() -> None:
    """S6, P7: it stops both, and leaves nothing behind."""
    source = InMemoryCancellation(agent_id="parent")

    def cancels(request: Any) -> Any:
        source.cancel()
        return WORK

    child = ScriptedModel([cancels, "never"])
    model = ScriptedModel([TASK, "never"])
    outcome = stopped(nested(model, child).execute_sync("go", cancellation=source))
    assert (len(model.requests), len(child.requests)) == (1, 1)
    assert results(outcome.state)[0].outcome == "failed", "the child's task was not finished"
    assert outcome.state.children == {}


def test_one_nested_agent_alone_may_be_cancelled() -> None:
    """P7, P8: its parent continues."""
    seen: list[str] = []

    class OnlyChildren:
        async def check(self, state: AgentState) -> bool:
            assert state.run is not None
            seen.append(state.run.agent_id)
            return "/" in state.run.agent_id

    child = ScriptedModel(["never"])
    model = ScriptedModel([TASK, "went on"])
    outcome = nested(model, child, Cancellation(OnlyChildren())).execute_sync("go")
    assert completed(outcome).text == "went on"
    assert child.requests == []
    assert "user_requested" in str(results(outcome.state)[0].content)
    assert "parent" in seen


def test_a_source_of_the_agents_own_is_asked_under_a_runtime() -> None:
    """P7, A1: its id there is the actor's; the status says cancelled."""
    source = InMemoryCancellation(agent_id="ticket-42")
    agent = Agent("a", ScriptedModel(lambda request: "done"), middleware=[Cancellation(source)])
    with Runtime(agents=[agent]) as runtime:
        source.cancel()
        ref, other = runtime.spawn("a", id="ticket-42"), runtime.spawn("a", id="ticket-43")
        stopped(ref.run("go").get(timeout=60))
        assert ref.status() is Status.CANCELLED
        completed(other.run("go").get(timeout=60))
        source.reset()
        completed(ref.run("go").get(timeout=60))
