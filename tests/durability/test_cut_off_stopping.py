"""A run with signals, overrides and early stopping, cut off after any record, ends the same way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import ModelResponse

from tests.support.agents import FakeClock, assert_valid_history
from tests.support.cut_off import Crash, Disk, finished_calls, ids
from understudy import (
    Agent,
    Completed,
    Failed,
    InMemoryCancellation,
    Interrupted,
    Outcome,
    Run,
    ScriptedModel,
    StopAgent,
    Stopped,
    StopSignal,
    ToolContext,
    ToolResult,
    approve,
    call,
    tool,
)
from understudy.middleware import Limits, Middleware, Next
from understudy.models import ScriptedRequest
from understudy.run.tool_call import ToolCall
from understudy.tools import ToolFailed

TOOLS = ("note", "fail", "alone", "halt", "gated")
HOOKS = ("on_run_start", "before_step", "before_model", "after_model", "around_tool", "after_step")
ACTS = ("signal", "soft", "answer", "continue")


@dataclass(frozen=True)
class Story:
    """What the model asks for in each turn, and what a middleware does in which hook of which."""

    turns: tuple[tuple[str, ...], ...] = ()
    acts: tuple[tuple[str, int, str], ...] = ()
    limit: int | None = None
    on_limit: Any = "stop"
    max_runs: int = 4
    early_stopping: Literal["force", "generate"] = "force"
    max_overrides: int = 1


class Acts(Middleware):
    """Does what the story says; it keeps nothing by itself."""

    def __init__(self, story: Story) -> None:
        self.story = story

    def _at(self, run: Run, hook: str) -> None:
        number = run.current.turns
        for index, (where, when, act) in enumerate(self.story.acts):
            if where != hook or when != number:
                continue
            told = f"{index}"
            if act == "continue":
                run.request_continuation(source=told)
            elif act == "soft":
                run.signal(StopSignal.completed(told, source="soft"))
            else:
                signal = StopSignal.stop_requested(told, source=act)
                run.signal(signal, answer=act == "answer")

    async def on_run_start(self, run: Run) -> None:
        self._at(run, "on_run_start")

    async def before_step(self, run: Run) -> None:
        self._at(run, "before_step")

    async def before_model(self, run: Run, request: Any) -> None:
        self._at(run, "before_model")

    async def after_model(self, run: Run, reply: Any) -> None:
        self._at(run, "after_model")

    async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
        self._at(run, "around_tool")
        return await next(call)

    async def after_step(self, run: Run) -> None:
        self._at(run, "after_step")


def make_agent(story: Story, ran: list[str]) -> Agent:
    """The agent as each process builds it."""

    @tool(idempotent=True)
    async def note(ctx: ToolContext) -> ToolResult[str]:
        ran.append(ctx.call_key)
        key = ctx.call_key.split(".", 1)[1].replace(".", "-")
        return ToolResult("noted", state={"noted": {key: True}})

    @tool(read_only=True)  # after a crash, the failure of any other one would be a doubt
    async def fail(ctx: ToolContext) -> str:
        ran.append(ctx.call_key)
        raise ToolFailed("no")

    @tool(idempotent=True, sequential=True)
    async def alone(ctx: ToolContext) -> str:
        ran.append(ctx.call_key)
        return "alone"

    @tool(read_only=True)  # as above: it brings no result either
    async def halt(ctx: ToolContext) -> str:
        ran.append(ctx.call_key)
        raise StopAgent(StopSignal.error("halted", source="halt"))

    @tool(idempotent=True)
    async def gated(ctx: ToolContext) -> str:
        ran.append(ctx.call_key)
        return "allowed"

    def reply(request: ScriptedRequest) -> Any:
        turn = sum(isinstance(message, ModelResponse) for message in request.messages)
        if turn >= len(story.turns):
            return f"the end after {turn}"
        calls = [call(name, id=f"c{turn}-{i}") for i, name in enumerate(story.turns[turn])]
        return [f"turn {turn}", *calls]

    limits = Limits(max_steps=story.limit, max_consecutive_tool_errors=2, on_limit=story.on_limit)
    return Agent(
        "stopping",
        ScriptedModel(reply),
        tools=[note, fail, alone, halt, gated],
        middleware=[Acts(story), limits],
        interrupt_on={"gated": True},
        max_runs=story.max_runs,
        early_stopping=story.early_stopping,
        max_overrides=story.max_overrides,
    )


def to_the_end(agent: Agent, outcome: Outcome, disk: Disk | None = None) -> Outcome:
    """What the host does until the run is over: it approves everything."""
    while isinstance(outcome, Interrupted):
        answers = {request.id: approve() for request in outcome.requests}
        outcome = agent.resume_sync(outcome.state, answers, new_id=ids(), journal=disk)
    return outcome


def live(story: Story, disk: Disk, ran: list[str]) -> Outcome:
    agent = make_agent(story, ran)
    outcome = agent.execute_sync("go", journal=disk, new_id=ids())
    return to_the_end(agent, outcome, disk)


def told(outcome: Outcome) -> dict[str, Any]:
    """Everything of an outcome but times and ids of our own."""
    assert isinstance(outcome, (Completed, Stopped, Failed))
    assert_valid_history(outcome.state)
    run = outcome.state.run
    assert run is not None
    return {
        "outcome": type(outcome).__name__,
        "explained": outcome.explain(),
        "text": getattr(outcome, "text", None),
        "early": getattr(outcome, "early_stopped", None),
        "signals": [(given.turn, given.signal, given.answer) for given in run.signals],
        "overrides": [(given.turn, given.source) for given in run.overrides],
        "messages": [
            [(part.part_kind, getattr(part, "content", None)) for part in message.parts]
            for message in outcome.state.messages
        ],
        "values": dict(outcome.state.values),
        "calls": (outcome.usage.requests, outcome.usage.tool_calls),
    }


def check_every_cut(story: Story) -> dict[str, Any]:
    disk, ran = Disk(), list[str]()
    whole = told(live(story, disk, ran))
    assert len(ran) == len(set(ran)), "undisturbed, each call runs once"
    for limit in range(1, len(disk.lines)):
        cut = Disk(limit)
        with pytest.raises(Crash):
            live(story, cut, [])
        after: list[str] = []
        agent = make_agent(story, after)
        outcome = agent.resume_sync(cut.load(), new_id=ids())
        assert told(to_the_end(agent, outcome)) == whole, f"cut after record {limit}"
        assert not finished_calls(cut) & set(after), "finished calls ran again"
    return whole


stories = st.builds(
    Story,
    turns=st.lists(
        st.lists(st.sampled_from(TOOLS), min_size=1, max_size=3).map(tuple), max_size=3
    ).map(tuple),
    acts=st.lists(
        st.tuples(st.sampled_from(HOOKS), st.integers(0, 3), st.sampled_from(ACTS)), max_size=4
    ).map(tuple),
    limit=st.sampled_from([None, None, 1, 2]),
    on_limit=st.sampled_from(["stop", "generate"]),
    max_runs=st.sampled_from([2, 4]),
    early_stopping=st.sampled_from(["force", "generate"]),
    max_overrides=st.sampled_from([0, 1, 3]),
)


ALWAYS_THE_SAME = settings(derandomize=True)


@pytest.mark.slow
@settings(ALWAYS_THE_SAME, max_examples=20)
@given(stories)
def test_a_run_cut_off_after_any_record_stops_or_goes_on_as_it_would_have(story: Story) -> None:
    """P3, P4, P6, R1."""
    check_every_cut(story)


@pytest.mark.slow
@pytest.mark.faults
@settings(ALWAYS_THE_SAME, max_examples=200)
@given(stories)
def test_many_runs_cut_off_after_any_record_stop_or_go_on_as_they_would_have(story: Story) -> None:
    """P3, P4, P6, R1."""
    check_every_cut(story)


@pytest.mark.parametrize(
    ("story", "ends"),
    [
        (Story((("note",), ("note",)), limit=1, on_limit="generate"), "early"),
        (Story((("note",), ("note",)), max_runs=1, early_stopping="generate"), "early"),
        (Story((("note", "halt", "alone", "gated"),)), "Stopped"),
        (Story((("halt", "note"),), acts=(("after_step", 1, "continue"),)), "Completed"),
        (Story((), acts=(("after_model", 0, "continue"),)), "Completed"),
        (
            Story(
                (("note",),) * 3,
                acts=tuple(
                    ("before_step", n, act) for n in (1, 2) for act in ("signal", "continue")
                ),
            ),
            "Stopped",
        ),
    ],
)
@pytest.mark.slow
def test_a_story_told_by_name_ends_so_wherever_it_is_cut(story: Story, ends: str) -> None:
    """P3, P4, P6, R1."""
    end = check_every_cut(story)
    assert ends == ("early" if end["early"] else end["outcome"])


def test_a_cancelled_run_that_was_cut_off_stays_cancelled() -> None:
    """P7, J13: the wish is a fact, the source need not be there any more."""
    source = InMemoryCancellation()
    source.cancel("no")
    story = Story((("note",),))
    disk = Disk()
    outcome = make_agent(story, []).execute_sync("go", journal=disk, cancellation=source)
    assert isinstance(outcome, Stopped)
    wished = next(i for i, line in enumerate(disk.lines) if '"cancel_requested"' in line)
    for limit in range(wished + 1, len(disk.lines)):
        cut = Disk(limit)
        with pytest.raises(Crash):
            make_agent(story, []).execute_sync("go", journal=cut, cancellation=source)
        ran: list[str] = []
        again = make_agent(story, ran).resume_sync(cut.load())
        assert isinstance(again, Stopped)
        assert again.signals == outcome.signals
        assert ran == []


def test_the_time_that_a_run_took_survives_a_crash() -> None:
    """P5: all but that of the model call or the tools that the crash cut off."""
    clock = FakeClock()

    @tool(idempotent=True)
    async def slow() -> str:
        clock.advance(4)
        return "done"

    def reply(request: ScriptedRequest) -> Any:
        clock.advance(1)
        return call("slow")

    def build() -> Agent:
        return Agent("a", ScriptedModel(reply), tools=[slow], middleware=[Limits(max_seconds=12)])

    disk = Disk()
    whole = build().execute_sync("go", journal=disk, clock=clock)
    assert isinstance(whole, Stopped)
    assert whole.usage.requests == 3, "five seconds each"
    spent: list[float] = []
    for limit in range(1, len(disk.lines)):
        cut = Disk(limit)
        with pytest.raises(Crash):
            build().execute_sync("go", journal=cut, clock=clock)
        state = cut.load()
        assert state.run is not None
        spent.append(state.run.seconds)
        end = build().resume_sync(state, clock=clock)
        assert isinstance(end, Stopped)
        assert end.usage.requests in (3, 4), "a step that was cut off may be lost"
    assert spent == sorted(spent)
    assert set(spent) == {0, 1, 5, 6, 10, 11, 15}


@tool(idempotent=True)
async def note() -> str:
    return "noted"


@pytest.mark.parametrize("early_stopping", ["force", "generate"])
def test_a_run_that_ends_within_its_limit_ends_so_wherever_it_is_cut(
    early_stopping: Literal["force", "generate"],
) -> None:
    """R1, J1: the end that the last turn decided is not decided anew."""
    disk = Disk()

    def agent() -> Agent:
        def reply(request: ScriptedRequest) -> Any:
            return "in time" if len(request.messages) == 3 else call("note", {})

        return Agent(
            "a",
            ScriptedModel(reply),
            tools=[note],
            max_runs=2,
            early_stopping=early_stopping,
        )

    whole = agent().execute_sync("go", journal=disk)
    assert isinstance(whole, Completed)
    for limit in range(1, len(disk.lines)):
        cut = Disk(limit)
        with pytest.raises(Crash):
            agent().execute_sync("go", journal=cut)
        outcome = agent().resume_sync(cut.load())
        assert isinstance(outcome, Completed), f"cut after record {limit}"
        assert (outcome.text, outcome.early_stopped) == ("in time", False)
        assert outcome.usage.requests == 2
