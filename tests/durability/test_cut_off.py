"""A run that is cut off after any record, and goes on elsewhere, ends the same way (DESIGN §1)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import BinaryContent, ModelResponse, ToolReturn

from tests.support.agents import FakeClock
from tests.support.cut_off import Crash, Disk, finished_calls, ids, told
from tests.support.programs import ran
from understudy import (
    Agent,
    Completed,
    Decision,
    Defer,
    Failed,
    Interrupt,
    Interrupted,
    Outcome,
    Paused,
    Request,
    Run,
    ScriptedModel,
    ToolContext,
    ToolResult,
    Waiting,
    approve,
    call,
    edit,
    reject,
    respond,
    tool,
)
from understudy.middleware import (
    Guard,
    HumanInTheLoop,
    Middleware,
    ModelInput,
    Next,
    NextModelCall,
    ToolCall,
)
from understudy.models import ScriptedRequest

TOOLS = ("note", "plain", "gated", "ask", "fail", "alone", "photo")
PIXEL = BinaryContent(b"\x89PNG\r\n\x1a\n not a real picture", media_type="image/png")


@dataclass(frozen=True)
class Scenario:
    """What the model asks for in each turn, then its last words."""

    turns: tuple[tuple[tuple[str, int], ...], ...]
    until_tool: str | None = None
    pauses: bool = False
    """Whether the host pauses after each reply."""
    stack: tuple[str, ...] = ()
    """The middleware besides its gate, in this order."""


class Before(Middleware):
    """Asks before each model call."""

    async def before_model(self, run: Run, request: ModelInput) -> None:
        key = f"before/{run.current.turns}"
        if run.answer(key) is None:
            raise Interrupt("before", key=key)


class After(Middleware):
    """Asks about each reply."""

    async def after_model(self, run: Run, reply: ModelResponse) -> None:
        key = f"after/{run.current.turns}"
        if run.answer(key) is None:
            raise Interrupt(reply.text, key=key, schema={"type": "integer"})


class Around(Middleware):
    """Asks before some tools run."""

    async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
        key = f"around/{call.key}"
        if call.arguments["x"] % 3 == 0 and run.answer(key) is None:
            raise Interrupt("around", key=key)
        return await next(call)


class Late(Middleware):
    """Puts the model calls off until it opens."""

    async def wrap_model_call(
        self, run: Run, request: ModelInput, next: NextModelCall
    ) -> ModelResponse:
        if run.clock.now() < OPENS:
            raise Defer(OPENS)
        return await next(request)


def changes(text: str, run: Run) -> str:
    return text.removesuffix("!") + "!"


OPENS = FakeClock().now() + timedelta(hours=1)
STACK: dict[str, Callable[[], Middleware]] = {
    "before": Before,
    "after": After,
    "around": Around,
    "late": Late,
    "guard": lambda: Guard(input=changes, output=changes),
}


def make_agent(scenario: Scenario, ran: list[str]) -> Agent:
    """The agent as each process builds it: nothing of it is shared but the records."""

    def ran_once(ctx: ToolContext) -> None:
        ran.append(ctx.call_key)

    @tool(idempotent=True)
    async def note(ctx: ToolContext, x: int) -> ToolResult[int]:
        ran_once(ctx)
        return ToolResult(f"noted {x}", value=x, state={"noted": {str(x): True}, "last": x})

    @tool(idempotent=True, inline=True)
    def plain(ctx: ToolContext, x: int) -> dict[str, int]:
        ran_once(ctx)
        return {"x": x}

    @tool(idempotent=True)
    async def gated(ctx: ToolContext, x: int, why: str = "because") -> str:
        ran_once(ctx)
        return f"did {x} {why}"

    @tool(idempotent=True)
    async def ask(ctx: ToolContext, x: int) -> str:
        if ctx.resume_value is None:
            raise Interrupt({"question": x})
        ran_once(ctx)
        return f"answered {ctx.resume_value}"

    @tool(idempotent=True)
    async def fail(ctx: ToolContext, x: int) -> str:
        ran_once(ctx)
        raise ValueError(f"no {x}")

    @tool(idempotent=True, sequential=True)
    async def alone(ctx: ToolContext, x: int) -> int:
        ran_once(ctx)
        return x

    @tool(idempotent=True)
    async def photo(ctx: ToolContext, x: int) -> ToolReturn[list[str | BinaryContent]]:
        ran_once(ctx)
        return ToolReturn([f"picture {x}", PIXEL], content=["as seen", PIXEL], metadata={"x": x})

    def reply(request: ScriptedRequest) -> Any:
        turn = sum(isinstance(message, ModelResponse) for message in request.messages)
        if turn >= len(scenario.turns):
            return "the end"
        return [
            f"turn {turn}",
            *(
                call(name, {"x": x}, id=f"c{turn}-{i}")
                for i, (name, x) in enumerate(scenario.turns[turn])
            ),
        ]

    return Agent(
        "crashing",
        ScriptedModel(reply),
        tools=[note, plain, gated, ask, fail, alone, photo],
        middleware=[
            HumanInTheLoop({"gated": True}),
            *(STACK[name]() for name in scenario.stack),
        ],
    )


def answers(requests: Sequence[Request]) -> Mapping[str, Decision]:
    """A person who always decides the same about the same."""
    return {request.id: answer(request) for request in requests}


def answer(request: Request) -> Decision:
    if request.question_key:
        return respond(7)
    x = request.arguments["x"]
    if request.kind == "interrupt":
        return respond(x * 2) if x % 2 else reject("not now")
    choices = (
        approve(),
        edit({"x": x + 100, "why": "edited"}),
        reject("too much"),
        respond({"by": "hand"}),
    )
    return choices[x % 4]


def pause_when(scenario: Scenario) -> dict[str, Any]:
    return {"pause_when": lambda: "look first"} if scenario.pauses else {}


def to_the_end(
    agent: Agent, outcome: Outcome, scenario: Scenario, disk: Disk | None = None
) -> Outcome:
    """What the host does until the run is over."""
    clock = FakeClock()
    while not isinstance(outcome, (Completed, Failed)):
        decisions = answers(outcome.requests) if isinstance(outcome, Interrupted) else None
        if isinstance(outcome, Waiting):
            clock.time = OPENS
        outcome = agent.resume_sync(
            outcome.state,
            decisions,
            new_id=ids(),
            journal=disk,
            clock=clock,
            **pause_when(scenario),
        )
    return outcome


def live(scenario: Scenario, disk: Disk, ran: list[str]) -> Outcome:
    """A whole life in one process: the run, and every answer of the host."""
    agent = make_agent(scenario, ran)
    outcome = agent.execute_sync(
        "go",
        until_tool=scenario.until_tool,
        journal=disk,
        new_id=ids(),
        clock=FakeClock(),
        **pause_when(scenario),
    )
    return to_the_end(agent, outcome, scenario, disk)


def cut_and_go_on(scenario: Scenario, limit: int) -> dict[str, Any]:
    """The same life, whose process goes away after `limit` records; another goes on."""
    disk = Disk(limit)
    with pytest.raises(Crash):
        live(scenario, disk, [])
    after: list[str] = []
    agent = make_agent(scenario, after)
    outcome = agent.resume_sync(
        disk.load(), new_id=ids(), clock=FakeClock(), **pause_when(scenario)
    )
    end = told(to_the_end(agent, outcome, scenario))
    repeated = finished_calls(disk) & set(after)
    assert not repeated, f"finished calls ran again: {repeated}"
    assert len(after) == len(set(after))
    return end


calls = st.tuples(st.sampled_from(TOOLS), st.integers(0, 7))
scenarios = st.builds(
    Scenario,
    turns=st.lists(st.lists(calls, min_size=1, max_size=3).map(tuple), min_size=0, max_size=3).map(
        tuple
    ),
    until_tool=st.sampled_from([None, None, "note", "ask"]),
    pauses=st.booleans(),
    stack=st.permutations(tuple(STACK)).flatmap(
        lambda names: st.integers(0, len(names)).map(lambda count: tuple(names[:count]))
    ),
)


@pytest.mark.slow
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(scenarios)
def test_a_run_cut_off_after_any_record_ends_the_same_way_elsewhere(scenario: Scenario) -> None:
    disk, ran = Disk(), list[str]()
    whole = told(live(scenario, disk, ran))
    assert len(ran) == len(set(ran)), "undisturbed, each call runs once"
    for limit in range(1, len(disk.lines)):
        assert cut_and_go_on(scenario, limit) == whole, f"cut after record {limit}"


def test_a_run_with_all_that_asks_and_waits_is_cut_off_after_any_record() -> None:
    scenario = Scenario(turns=((("note", 3), ("gated", 0)),), stack=tuple(STACK))
    disk = Disk()
    whole = told(live(scenario, disk, []))
    assert len(whole["audit"]) == 7  # twice before, twice after, twice around, and the gate
    for limit in range(1, len(disk.lines)):
        assert cut_and_go_on(scenario, limit) == whole, f"cut after record {limit}"


RICH = Scenario(
    turns=(
        (("note", 1), ("plain", 2)),
        (("gated", 0), ("gated", 1), ("note", 3)),
        (("ask", 5), ("fail", 1), ("alone", 2)),
    )
)


@pytest.mark.slow
def test_a_run_goes_on_in_another_process() -> None:
    """The state crosses as JSON text; nothing else does."""
    agent = make_agent(RICH, [])
    outcome = agent.execute_sync("go")
    assert isinstance(outcome, Interrupted)
    script = (
        "import json, sys\n"
        "from tests.durability.test_cut_off import RICH, answers, make_agent, to_the_end, told\n"
        "from understudy import AgentState\n"
        "state = AgentState.from_dict(json.load(sys.stdin))\n"
        "agent = make_agent(RICH, [])\n"
        "outcome = agent.resume_sync(state, answers(state.requests))\n"
        "print(json.dumps(told(to_the_end(agent, outcome, RICH))))\n"
    )
    other = ran("-c", script, input=json.dumps(outcome.state.to_dict()))
    assert other.returncode == 0, other.stderr
    here = told(to_the_end(agent, outcome, RICH))
    assert json.loads(other.stdout) == json.loads(json.dumps(here))


def test_a_paused_run_goes_on_where_it_stood() -> None:
    ran: list[str] = []
    scenario = Scenario(turns=((("note", 1),),), pauses=True)
    agent = make_agent(scenario, ran)
    outcome = agent.execute_sync("go", pause_when=lambda: "look first")
    assert isinstance(outcome, Paused)
    assert ran == [], "its tools have not started"
