"""An exception of foreign code whose text cannot be read is reported like any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, PlainSerializer

from tests.support.agents import completed, interrupted, reloaded, results
from tests.support.loops import soon
from understudy import (
    Agent,
    AgentState,
    Completed,
    Failed,
    JournalFailed,
    MiddlewareError,
    ModelFailed,
    Outcome,
    Retry,
    Run,
    Runtime,
    ScriptedModel,
    StreamBroken,
    ToolContext,
    ToolResult,
    UsageError,
    call,
    tool,
)
from understudy.actors import ActorDied, ChildSpec, ChildStartFailed, LoopActor, Supervisor
from understudy.errors import Quarantined, StepFailed
from understudy.middleware import Middleware
from understudy.modes import AgentExecution
from understudy.tools import ToolFailed

NO_TEXT = "(no text: its __str__ raised)"


def _raises(self: object) -> str:
    raise RuntimeError("it has no text")


def silent(base: type[BaseException]) -> type[Any]:
    """A subclass of the exception that says nothing to anybody."""
    return type("Silent", (base,), {"__str__": _raises, "__repr__": _raises})


Silent: type[Exception] = silent(Exception)
SilentValue: type[Exception] = silent(ValueError)
SilentKill: type[BaseException] = silent(BaseException)


class NotText(Exception):
    def __str__(self) -> str:
        return 3  # type: ignore[return-value]  # on purpose


class HalfText(Exception):
    def __str__(self) -> str:
        return "no file \ud800"


def fails(*_: Any, **__: Any) -> Any:
    raise Silent


def raising(error: type[BaseException]) -> Any:
    @tool
    async def act() -> str:
        raise error

    return act


def run(*replies: Any, **options: Any) -> Outcome:
    model = ScriptedModel([*replies, "done"])
    return Agent("a", model, **options).execute_sync("go")


# ------------------------------------------------------------------------------- tools


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Silent, f"Silent: {NO_TEXT}"),
        (NotText, f"NotText: {NO_TEXT}"),
        (HalfText, "HalfText: no file \ufffd"),
        (silent(Retry), NO_TEXT),
        (silent(ToolFailed), NO_TEXT),
    ],
    ids=["silent", "not text", "half text", "retry", "tool failed"],
)
def test_an_error_of_a_tool_goes_to_the_model(error: type[Exception], told: str) -> None:
    """T2."""
    outcome = completed(run(call("act"), tools=[raising(error)]))
    (part,) = results(reloaded(outcome.state))
    assert (part.outcome, part.content) == ("failed", told)


class Order(BaseModel):
    number: Annotated[int, AfterValidator(lambda number: fails_as_a_value())]


def fails_as_a_value() -> int:
    raise SilentValue


class Thing:
    pass


def test_what_a_tools_validators_and_serializers_raise_goes_to_the_model() -> None:
    """T2."""

    @tool
    def order(order: Order) -> str:
        return "ordered"

    @tool
    def thing() -> Annotated[Thing, PlainSerializer(fails)]:
        return Thing()

    outcome = completed(run([call("order", {"number": 1}), call("thing")], tools=[order, thing]))
    first, second = results(outcome.state)
    assert [first.outcome, second.outcome] == ["failed", "failed"]
    assert "A validator raised" in str(first.content)
    assert "ran, but its result" in str(second.content)


def test_what_the_validators_of_an_output_type_raise_goes_to_the_model() -> None:
    """W4."""
    model = ScriptedModel(['{"number": 1}', '{"number": 1}'])
    agent = Agent("a", model, output_type=Order, max_runs=2)
    assert isinstance(agent.execute_sync("go"), Failed)
    assert "a validator raised" in model.requests[1].prompt


class Keeps(Middleware):
    class state_schema(BaseModel):  # noqa: N801
        number: Annotated[int, AfterValidator(lambda number: number and fails_as_a_value())] = 0


def test_what_the_validators_of_typed_values_raise_is_an_error_of_who_gave_the_value() -> None:
    """T4, R8."""

    @tool
    def put() -> ToolResult[str]:
        return ToolResult("put", state={"number": 1})

    outcome = completed(run(call("put"), tools=[put], middleware=[Keeps()]))
    assert [part.outcome for part in results(outcome.state)] == ["failed"]
    agent = Agent("a", ScriptedModel([]), middleware=[Keeps()])
    with pytest.raises(UsageError, match="do not fit what Keeps keeps: "):
        agent.execute_sync("go", state=AgentState(values={"number": 1}))


# ------------------------------------------------------------------------------- the run


async def step(run: Run) -> None:
    raise Silent


class Broken:
    def check(self, state: Any) -> bool:
        raise Silent


@pytest.mark.parametrize(
    ("kind", "replies", "options"),
    [
        (ModelFailed, [Silent()], {}),
        (StreamBroken, [["begun", Silent()]], {}),
        (MiddlewareError, [], {"pause_when": fails}),
        (StepFailed, [], {"mode": AgentExecution().inserting(before="call_llm", step=step)}),
        (StepFailed, [], {"instructions": fails}),
    ],
    ids=["model", "stream", "pause_when", "step", "instructions"],
)
def test_it_fails_the_run_by_the_error_of_its_place(
    kind: type[Exception], replies: list[Any], options: dict[str, Any]
) -> None:
    """R4, R5, R6."""
    agent = Agent("a", ScriptedModel([*replies, "done"]), **options)
    outcome = agent.execute_sync("go", on_event=lambda _: None)
    assert isinstance(outcome, Failed)
    assert type(outcome.error) is kind
    assert f"Silent: {NO_TEXT}" in str(outcome.error)
    assert reloaded(outcome.state) == outcome.state


HOOKS = (
    "on_run_start",
    "before_step",
    "before_model",
    "after_model",
    "check_tool_calls",
    "wrap_tool_call",
    "after_step",
    "on_run_end",
)


@pytest.mark.parametrize("error", [Silent, NotText, HalfText])
@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_that_raises_it_has_failed(name: str, error: type[Exception]) -> None:
    """R4: and no tool is said to have raised it."""

    async def hook(self: Middleware, *_: Any) -> Any:
        raise error

    middleware = type("Mine", (Middleware,), {name: hook})
    outcome = run(call("act"), tools=[named_act], middleware=[middleware()])
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, MiddlewareError)
    assert (outcome.error.hook, outcome.error.middleware) == (name, "Mine")
    assert error.__name__ in str(outcome.error)


@tool(name="act")
def named_act() -> str:
    return "acted"


@pytest.mark.parametrize("name", ["prepare", "check"])
def test_a_middleware_that_raises_it_while_the_agent_is_made_is_named(name: str) -> None:
    """R8."""
    middleware = type("Mine", (Middleware,), {name: fails})
    with pytest.raises(UsageError, match=f"{name} of middleware 'Mine' raised Silent"):
        Agent("a", ScriptedModel([]), middleware=[middleware()])


def test_a_gate_that_raises_it_asks_nevertheless() -> None:
    """I1: and so does one whose text for the person cannot be read, or not be stored."""
    shows: list[Any] = [fails, lambda *_: Silent(), lambda *_: "half \ud800"]
    told = []
    for display in shows:
        gate = {"act": {"when": fails, "display": display}}
        (request,) = interrupted(run(call("act"), tools=[named_act], interrupt_on=gate)).requests
        told.append(request.display)
    assert told == [
        f"(display() raised Silent: {NO_TEXT})",
        "(display() raised RuntimeError: it has no text)",
        "half \ufffd",
    ]


def test_a_cancellation_source_that_raises_it_fails_the_run() -> None:
    """P8."""
    outcome = Agent("a", ScriptedModel(["done"])).execute_sync("go", cancellation=Broken())
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, MiddlewareError)
    assert f"Silent: {NO_TEXT}" in str(outcome.error)


class Journal:
    def __init__(self, *, appends: bool) -> None:
        self.has_unflushed = True
        self.appends = appends

    def append(self, records: Any) -> None:
        if not self.appends:
            raise Silent

    async def durable(self) -> None:
        raise Silent


@pytest.mark.parametrize("appends", [False, True])
def test_a_journal_that_raises_it_has_failed(appends: bool) -> None:
    """J16."""
    journal: Any = Journal(appends=appends)
    with pytest.raises(JournalFailed, match="<Silent>"):
        Agent("a", ScriptedModel(["done"])).execute_sync("go", journal=journal)


def test_a_tool_that_runs_an_agent_is_told_of_it() -> None:
    """S4."""

    @tool
    async def delegate(ctx: ToolContext) -> Any:
        return await ctx.run_agent(Agent("child", ScriptedModel([Silent()])), "go")

    outcome = completed(run(call("delegate"), tools=[delegate]))
    (part,) = results(outcome.state)
    assert part.outcome == "failed"
    assert NO_TEXT in str(part.content)


# ------------------------------------------------------------------------------- actors


async def raised_by(work: Callable[[], Any]) -> BaseException:
    """What it raises. Out of the test itself such an error would end the test runner."""
    try:
        await soon(work())
    except BaseException as error:
        return error
    raise AssertionError("it raised nothing")


class Starts(Middleware):
    async def on_start(self, actor: Any) -> None:
        raise Silent


class Listens(Middleware):
    async def on_message(self, run: Run, message: Any) -> None:
        raise message


async def test_what_waits_for_an_agent_is_told_of_it() -> None:
    """A7."""
    starting = Agent("starting", ScriptedModel([]), middleware=[Starts()])
    listening = Agent("listening", ScriptedModel(["ok"]), middleware=[Listens()])
    async with Runtime([starting, listening]) as runtime:
        error = await raised_by(lambda: runtime.spawn("starting").run("go"))
        assert isinstance(error, MiddlewareError)
        ref = runtime.spawn("listening")
        error = await raised_by(lambda: ref.notify("Listens", Silent()))
        assert isinstance(error, MiddlewareError)
        error = await raised_by(lambda: ref.notify("Listens", SilentKill()))
        assert isinstance(error, ActorDied)
        assert isinstance(await soon(ref.run("go")), Completed)


async def test_a_run_that_it_crashes_again_and_again_is_quarantined() -> None:
    """J13."""
    agent = Agent("a", ScriptedModel(lambda _: SilentKill()))
    async with Runtime([agent]) as runtime:
        outcome = await soon(runtime.spawn("a").run("go"))
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, Quarantined)
        assert f"Silent: {NO_TEXT}" in str(outcome.error)


class Child(LoopActor):
    def on_start(self) -> None:
        raise Silent


async def test_a_child_that_does_not_start_by_it_is_told_of() -> None:
    """E3."""
    ref = Supervisor.start([])
    try:
        error = await raised_by(lambda: ref.start_child(ChildSpec("child", Child.start)))
        assert isinstance(error, ChildStartFailed)
        assert f"Silent: {NO_TEXT}" in str(error)
    finally:
        await soon(ref.stop(block=False))
