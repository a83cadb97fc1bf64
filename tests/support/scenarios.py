"""Runs of all kinds: what the model asks for, what is in the stack, and a person who answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturn,
)
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt

from tests.support.agents import FakeClock
from tests.support.cut_off import Disk, ids
from understudy import (
    Agent,
    Completed,
    Decision,
    Defer,
    Failed,
    Interrupt,
    Interrupted,
    Outcome,
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
from understudy.errors import ModelFailed
from understudy.middleware import (
    AskUser,
    Fallback,
    Guard,
    HumanInTheLoop,
    Limits,
    Middleware,
    ModelInput,
    Next,
    NextModelCall,
    RateLimit,
    Retry,
    SubAgent,
    Summarization,
    TodoList,
    ToolCall,
    Workspace,
)
from understudy.models import ScriptedRequest

__all__ = [
    "PARTS",
    "RICH",
    "Scenario",
    "answers",
    "live",
    "make_agent",
    "pause_when",
    "scenarios",
    "to_the_end",
]

TOOLS = ("note", "plain", "gated", "ask", "fail", "alone", "photo", "judge")
PIXEL = BinaryContent(b"\x89PNG\r\n\x1a\n not a real picture", media_type="image/png")


@dataclass(frozen=True)
class Scenario:
    """What the model asks for in each turn, then its last words."""

    turns: tuple[tuple[tuple[str, int], ...], ...]
    until_tool: str | None = None
    pauses: bool = False
    """Whether the host pauses after each reply."""
    stack: tuple[str, ...] = ()
    """Its middleware, in this order."""
    nested: bool = False
    """Whether another agent runs it."""


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
        if call.arguments.get("x", 1) % 3 == 0 and run.answer(key) is None:
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


class Hints(Middleware):
    """Asks a model before each model call, and puts the answer into what is sent."""

    async def before_model(self, run: Run, request: ModelInput) -> ModelInput:
        turn = run.current.turns
        hint = await run.ask_model(f"hint {turn}", f"hint {turn}", small_model())
        return request.replace(instructions=f"{request.instructions} {hint}")


class Unanswered(Middleware):
    """Asks a model that never answers, and continues without."""

    async def after_step(self, run: Run) -> None:
        try:
            await run.ask_model("never", "go", ScriptedModel(down))
        except ModelFailed:
            return


def down(request: ScriptedRequest) -> Any:
    raise ConnectionError("down")


def small_model() -> ScriptedModel:
    return ScriptedModel(lambda request: f"{len(request.prompt)} letters")


def changes(text: str, run: Run) -> str:
    return text.removesuffix("!") + "!"


def shorter(older: Sequence[ModelMessage]) -> str:
    return f"{len(older)} messages"


def twice() -> AsyncRetrying:
    return AsyncRetrying(stop=stop_after_attempt(2), retry=retry_if_exception_type(ConnectionError))


OPENS = FakeClock().now() + timedelta(hours=1)
STACK: dict[str, Callable[[], Middleware]] = {
    "gate": lambda: HumanInTheLoop({"gated": True}),
    "before": Before,
    "after": After,
    "around": Around,
    "late": Late,
    "guard": lambda: Guard(input=changes, output=changes),
    "hints": Hints,
    "unanswered": Unanswered,
    "summary": lambda: Summarization(40, keep_turns=1, model=small_model()),
    "retry": lambda: Retry(twice()),
    "rate": lambda: RateLimit(1_000_000, 1_000_000_000),
    "limits": lambda: Limits(max_tokens=1_000_000),
    "user": AskUser,
    "todos": TodoList,
    "files": lambda: Workspace(sub_agents="copy"),
}
"""Parts; `fallback` and `helper` are made with the agent."""
PARTS = (*STACK, "fallback", "helper")
QUESTION = {"question": "Which size?", "kind": "one_of", "options": ["small", "large"]}
CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "user": [("ask_user", {"questions": [QUESTION]})],
    "files": [
        ("write_file", {"path": "a.txt", "text": "one\ntwo\n"}),
        ("edit_file", {"path": "a.txt", "old": "two", "new": "three"}),
        ("move_file", {"path": "a.txt", "to": "b.txt"}),
    ],
    "todos": [
        ("write_todos", {"items": [{"id": "1", "text": "read"}, {"id": "2", "text": "write"}]}),
        ("write_todos", {"items": [{"id": "1", "status": "completed"}], "merge": True}),
    ],
    "helper": [("task", {"task_name": "helper", "instructions": "Help."})],
}
"""What the model calls besides, of the tools that a part brings: one a turn."""


def calls_of(scenario: Scenario, turn: int) -> list[tuple[str, dict[str, Any]]]:
    own = [(name, {"x": x}) for name, x in scenario.turns[turn]]
    return own + [CALLS[p][turn] for p in scenario.stack if turn < len(CALLS.get(p, ()))]


def next_turn(messages: Sequence[ModelMessage]) -> int:
    """From the conversation alone, of which a summary may have the beginning."""
    last = next((each for each in reversed(messages) if isinstance(each, ModelResponse)), None)
    return 0 if last is None else int(last.tool_calls[0].tool_call_id[1:].partition("-")[0]) + 1


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

    @tool(read_only=True)  # after a crash, the rejection of any other one would be a doubt
    async def ask(ctx: ToolContext, x: int) -> str:
        if ctx.resume_value is None:
            raise Interrupt({"question": x})
        ran_once(ctx)
        return f"answered {ctx.resume_value}"

    @tool(read_only=True)  # after a crash, the failure of any other one would be a doubt
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

    @tool(idempotent=True)
    async def judge(ctx: ToolContext, x: int) -> str:
        verdict = await ctx.ask_model("verdict", f"{x} {'long ' * 60}", small_model())
        ran_once(ctx)
        return f"judged {x}: {verdict} {'word ' * 30}"

    def reply(request: ScriptedRequest) -> Any:
        turn = next_turn(request.messages)
        if turn >= len(scenario.turns):
            return "the end"
        calls = [
            ToolCallPart(name, arguments, tool_call_id=f"c{turn}-{i}")
            for i, (name, arguments) in enumerate(calls_of(scenario, turn))
        ]
        # Without a count of tokens: they are estimated.
        return ModelResponse(parts=[TextPart(f"turn {turn}"), *calls])

    failed: list[int] = []

    def fails_at_first(request: ScriptedRequest) -> Any:
        turn = next_turn(request.messages)
        if turn not in failed and {"retry", "fallback"} & set(scenario.stack):
            failed.append(turn)
            raise ConnectionError("down")
        return reply(request)

    def help_out(request: ScriptedRequest) -> Any:
        replies = sum(isinstance(message, ModelResponse) for message in request.messages)
        if replies == 0:
            return call("note", {"x": 50}, id="h0")
        if replies == 1 and "files" in scenario.stack:
            return call("write_file", {"path": "mine.txt", "text": "mine"}, id="h1")
        return "helped"

    def part(name: str) -> Middleware:
        if name == "fallback":
            return Fallback([ScriptedModel(reply)])
        if name == "helper":
            below = [STACK["files"]()] if "files" in scenario.stack else []
            helper = Agent("helper", ScriptedModel(help_out), tools=[note], middleware=below)
            return SubAgent([helper], general_purpose=False)
        return STACK[name]()

    agent = Agent(
        "crashing",
        ScriptedModel(fails_at_first),
        tools=[note, plain, gated, ask, fail, alone, photo, judge],
        middleware=[part(name) for name in scenario.stack],
    )
    if not scenario.nested:
        return agent

    def hand_on(request: ScriptedRequest) -> Any:
        done = any(isinstance(message, ModelResponse) for message in request.messages)
        task = call("task", {"task_name": "crashing", "instructions": "go"}, id="t")
        return "done" if done else task

    chief = SubAgent([agent], general_purpose=False)
    return Agent("chief", ScriptedModel(hand_on), middleware=[chief])


def answers(requests: Sequence[Request]) -> Mapping[str, Decision]:
    """A person who always decides the same about the same."""
    return {request.id: answer(request) for request in requests}


def answer(request: Request) -> Decision:
    if request.question_key:
        return respond(7)
    if request.tool_name == "ask_user":
        return respond({"Which size?": "large"})
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
        until_tool=None if scenario.nested else scenario.until_tool,
        journal=disk,
        new_id=ids(),
        clock=FakeClock(),
        **pause_when(scenario),
    )
    return to_the_end(agent, outcome, scenario, disk)


calls = st.tuples(st.sampled_from(TOOLS), st.integers(0, 7))
scenarios = st.builds(
    Scenario,
    turns=st.lists(st.lists(calls, min_size=1, max_size=3).map(tuple), min_size=0, max_size=3).map(
        tuple
    ),
    until_tool=st.sampled_from([None, None, "note", "ask"]),
    pauses=st.booleans(),
    stack=st.permutations(PARTS).flatmap(
        lambda names: st.integers(0, len(names)).map(lambda count: tuple(names[:count]))
    ),
    nested=st.booleans(),
)


RICH = Scenario(
    turns=(
        (("note", 1), ("plain", 2)),
        (("gated", 0), ("gated", 1), ("note", 3)),
        (("ask", 5), ("fail", 1), ("alone", 2)),
    ),
    stack=("gate",),
)
