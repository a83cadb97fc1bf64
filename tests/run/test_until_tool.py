"""Runs that end by a tool: `until_tool`, `until_tool_success` and `extract`.

Rules: U1, U3, U4, U5, U7, U8.
"""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, PlainSerializer

from tests.support.agents import completed, interrupted, reloaded, results
from tests.support.loops import soon
from understudy import (
    Agent,
    AgentState,
    Completed,
    Failed,
    Interrupt,
    Interrupted,
    NotExtracted,
    Outcome,
    Run,
    Runtime,
    ScriptedModel,
    ToolContext,
    ToolResult,
    UntilToolNotCalled,
    UsageError,
    approve,
    call,
    edit,
    reject,
    respond,
    tool,
)
from understudy.errors import EffectUnknown, ResultNotKept
from understudy.middleware import Middleware, ModelInput, SubAgent
from understudy.modes import collapse_until_tool


class Report(BaseModel):
    title: str
    pages: int = 1


@dataclass(frozen=True)
class Point:
    x: int
    y: int


def finish(title: str) -> Report:
    return Report(title=title)


def other(text: str = "") -> str:
    return f"other {text}"


@tool
def broken(text: str) -> str:
    raise ValueError(text)


def ended_by(outcome: Outcome) -> Any:
    assert isinstance(outcome, Completed), outcome
    assert outcome.tool_result is not None
    return outcome.tool_result


def only(option: str, given: Any) -> dict[str, Any]:
    return {option: given}


BOTH_WAYS = pytest.mark.parametrize("option", ["until_tool", "until_tool_success"])


# ------------------------------------------------------------------------- U1


@BOTH_WAYS
@pytest.mark.parametrize("given", ["finish", ["finish"], ("other", "finish"), finish, tool(finish)])
def test_the_run_ends_as_soon_as_the_tool_has_a_result(option: str, given: Any) -> None:
    """U1: a name, a tool, or a list of them; no further model call."""
    model = ScriptedModel([call("finish", {"title": "x"})])
    outcome = Agent("a", model, tools=[finish, other]).execute_sync("go", **only(option, given))
    assert ended_by(outcome).tool_name == "finish"
    assert len(model.requests) == 1


@BOTH_WAYS
def test_another_tool_does_not_end_the_run(option: str) -> None:
    """U1."""
    model = ScriptedModel([call("other"), call("finish", {"title": "x"})])
    outcome = Agent("a", model, tools=[finish, other]).execute_sync("go", **only(option, "finish"))
    assert ended_by(outcome).tool_name == "finish"
    assert len(model.requests) == 2


@pytest.mark.parametrize("arguments", [{"text": "raises"}, {"wrong": "arguments"}])
def test_an_error_of_an_until_tool_ends_the_run(arguments: dict[str, str]) -> None:
    """U1."""
    model = ScriptedModel([call("broken", arguments)])
    result = ended_by(Agent("a", model, tools=[broken]).execute_sync("go", until_tool="broken"))
    assert result.is_error
    assert result.arguments == arguments
    assert len(model.requests) == 1


def test_with_success_required_an_error_goes_back_to_the_model() -> None:
    """U1."""
    model = ScriptedModel([call("finish", {"headline": "x"}), call("finish", {"title": "y"})])
    outcome = Agent("a", model, tools=[finish]).execute_sync("go", until_tool_success="finish")
    result = ended_by(outcome)
    assert not result.is_error
    assert result.value == Report(title="y")
    assert len(model.requests) == 2
    assert [part.outcome for part in results(outcome.state)] == ["failed", "success"]


def test_without_an_until_tool_no_tool_ends_the_run() -> None:
    model = ScriptedModel([call("finish", {"title": "x"}), "done"])
    outcome = Agent("a", model, tools=[finish]).execute_sync("go")
    assert isinstance(outcome, Completed)
    assert outcome.tool_result is None
    assert outcome.text == "done"


def test_the_until_pair_is_of_one_run_and_lives_in_its_state() -> None:
    """U1: `resume` does not need it; the next run has its own."""
    model = ScriptedModel([call("finish", {"title": "x"}), "talk"])
    agent = Agent("a", model, tools=[finish], interrupt_on={"finish": True})
    interrupted = agent.execute_sync("go", until_tool="finish")
    assert isinstance(interrupted, Interrupted)
    stored = AgentState.from_dict(interrupted.state.to_dict())
    first = agent.resume_sync(stored, interrupted.decide(approve()))
    ended_by(first)

    second = agent.execute_sync("and now?", state=first.state)
    assert isinstance(second, Completed)
    assert second.text == "talk"


# ------------------------------------------------------------------------- U1


def test_giving_both_variants_is_an_error_before_any_hook_or_model_call() -> None:
    """U1."""
    log: list[str] = []

    class Watching(Middleware):
        async def on_run_start(self, run: Run) -> None:
            log.append("hook")

    model = ScriptedModel(["done"])
    agent = Agent("a", model, tools=[finish], middleware=[Watching()])
    with pytest.raises(UsageError, match=r"until_tool and until_tool_success.*use "):
        agent.execute_sync("go", until_tool="finish", until_tool_success="finish")
    assert log == []
    assert model.requests == []


@pytest.mark.parametrize(
    ("until_tool", "until_tool_success", "expected"),
    [
        (None, None, (None, False)),
        ("x", None, (("x",), False)),
        (["x", "y"], None, (("x", "y"), False)),
        (None, "x", (("x",), True)),
        (None, ["x", "y"], (("x", "y"), True)),
        ("x", "y", (("y",), True)),
        (["x"], ["y", "z"], (("y", "z"), True)),
        (finish, None, (("finish",), False)),
        (None, [broken, "x"], (("broken", "x"), True)),
    ],
)
def test_both_options_collapse_into_names_and_whether_success_is_required(
    until_tool: Any, until_tool_success: Any, expected: Any
) -> None:
    """U1: should both reach it, the success variant wins."""
    assert collapse_until_tool(until_tool, until_tool_success) == expected


@pytest.mark.parametrize("given", [[], (), "", 3, [3], [""], {"finish": True}])
@BOTH_WAYS
def test_what_names_no_tool_is_refused_before_any_model_call(option: str, given: Any) -> None:
    """U1, R8: an empty list would never end the run."""
    model = ScriptedModel(["done"])
    with pytest.raises(UsageError, match=option):
        Agent("a", model, tools=[finish]).execute_sync("go", **only(option, given))
    assert model.requests == []


# ------------------------------------------------------------------------- U3


async def test_of_several_results_the_first_in_call_order_wins_not_the_first_to_finish() -> None:
    """U3."""
    second_is_done = asyncio.Event()

    async def slow() -> str:
        await second_is_done.wait()
        return "slow"

    async def quick() -> str:
        second_is_done.set()
        return "quick"

    model = ScriptedModel([[call("slow"), call("quick")]])
    # The names come the other way round: their order means nothing.
    outcome = await Agent("a", model, tools=[slow, quick]).execute(
        "go", until_tool=["quick", "slow"]
    )
    assert ended_by(outcome).value == "slow"


def test_without_success_required_an_error_that_comes_first_wins() -> None:
    """U3."""
    model = ScriptedModel([[call("broken", {"text": "x"}), call("other")]])
    outcome = Agent("a", model, tools=[broken, other]).execute_sync(
        "go", until_tool=["other", "broken"]
    )
    assert ended_by(outcome).is_error


def test_with_success_required_a_success_beats_an_earlier_error_of_the_turn() -> None:
    """U3."""
    model = ScriptedModel([[call("broken", {"text": "x"}), call("other", {"text": "y"})]])
    outcome = Agent("a", model, tools=[broken, other]).execute_sync(
        "go", until_tool_success=["broken", "other"]
    )
    assert ended_by(outcome).value == "other y"


# ------------------------------------------------------------------------- U4


def test_all_calls_of_the_reply_are_executed_before_the_run_ends() -> None:
    """U4: a sequential one after the until tool, too."""
    ran: list[str] = []

    @tool(sequential=True)
    def last(text: str) -> str:
        ran.append(text)
        return text

    calls = [call("other"), call("finish", {"title": "x"}), call("last", {"text": "z"})]
    model = ScriptedModel([calls])
    outcome = Agent("a", model, tools=[finish, other, last]).execute_sync("go", until_tool="finish")
    assert ended_by(outcome).tool_name == "finish"
    assert ran == ["z"]
    assert [part.tool_name for part in results(outcome.state)] == ["other", "finish", "last"]


@BOTH_WAYS
def test_an_interrupt_in_the_same_reply_is_reported_first(option: str) -> None:
    """U4: the until tool has its result already, and runs no second time."""
    ran: list[str] = []

    def mark(text: str) -> str:
        ran.append(text)
        return text

    def ask(ctx: ToolContext) -> str:
        if ctx.resume_value is None:
            raise Interrupt("which one?")
        return str(ctx.resume_value)

    model = ScriptedModel([[call("mark", {"text": "x"}), call("ask")]])
    agent = Agent("a", model, tools=[mark, ask])
    interrupted = agent.execute_sync("go", **only(option, "mark"))
    assert isinstance(interrupted, Interrupted)
    assert [request.tool_name for request in interrupted.requests] == ["ask"]
    assert ran == ["x"]

    outcome = agent.resume_sync(interrupted.state, interrupted.decide(respond("this one")))
    assert ended_by(outcome).value == "x"
    assert ran == ["x"]
    assert [part.content for part in results(outcome.state)] == ["x", "this one"]


def test_a_gate_on_a_sibling_is_reported_before_the_until_tool_runs() -> None:
    """U4, I2."""
    model = ScriptedModel([[call("finish", {"title": "x"}), call("other")]])
    agent = Agent("a", model, tools=[finish, other], interrupt_on={"other": True})
    interrupted = agent.execute_sync("go", until_tool="finish")
    assert isinstance(interrupted, Interrupted)
    outcome = agent.resume_sync(interrupted.state, interrupted.decide(reject()))
    assert ended_by(outcome).tool_name == "finish"


# ------------------------------------------------------------------------- U5


@BOTH_WAYS
def test_a_model_that_stops_without_the_tool_fails_the_run(option: str) -> None:
    """U5."""
    model = ScriptedModel([call("other"), "I would rather not"])
    outcome = Agent("a", model, tools=[finish, other]).execute_sync("go", **only(option, "finish"))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, UntilToolNotCalled)
    assert "finish" in str(outcome.error)
    assert outcome.error.tools == ["finish"]


def test_with_success_required_errors_alone_do_not_count() -> None:
    """U5."""
    model = ScriptedModel([call("broken", {"text": "x"}), "I give up"])
    outcome = Agent("a", model, tools=[broken]).execute_sync("go", until_tool_success="broken")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, UntilToolNotCalled)
    assert outcome.error.success_required


# ------------------------------------------------------------------------- U1


@BOTH_WAYS
def test_a_target_that_a_person_approves_ends_the_run_without_another_model_call(
    option: str,
) -> None:
    """U1."""
    model = ScriptedModel([call("finish", {"title": "x"})])
    agent = Agent("a", model, tools=[finish], interrupt_on={"finish": True})
    interrupted = agent.execute_sync("go", **only(option, "finish"))
    assert isinstance(interrupted, Interrupted)
    stored = AgentState.from_dict(json.loads(json.dumps(interrupted.state.to_dict())))
    outcome = agent.resume_sync(stored, interrupted.decide(approve()))
    assert ended_by(outcome).value == Report(title="x")
    assert len(model.requests) == 1


def test_an_edited_target_brings_the_arguments_that_were_run() -> None:
    """U1, U7."""
    model = ScriptedModel([call("finish", {"title": "x"})])
    agent = Agent("a", model, tools=[finish], interrupt_on={"finish": True})
    interrupted = agent.execute_sync("go", until_tool="finish")
    assert isinstance(interrupted, Interrupted)
    outcome = agent.resume_sync(interrupted.state, interrupted.decide(edit({"title": "better"})))
    result = ended_by(outcome)
    assert result.arguments == {"title": "better"}
    assert result.value == Report(title="better")


# ------------------------------------------------------------------------- U7


def test_the_result_carries_the_tools_own_value_and_the_calls_arguments() -> None:
    """U7: the very object, not its text; defaults of the arguments are filled in."""
    made: list[Report] = []

    def report(title: str, pages: int = 3) -> Report:
        made.append(Report(title=title, pages=pages))
        return made[0]

    model = ScriptedModel([call("report", {"title": "x"}, id="c-1")])
    outcome = Agent("a", model, tools=[report]).execute_sync("go", until_tool="report")
    result = ended_by(outcome)
    assert result.value is made[0]
    assert result.arguments == {"title": "x", "pages": 3}
    assert result.tool_call_id == "c-1"
    assert result.call_key == f"{outcome.run_id}.0.0"
    assert not result.is_error


def test_a_value_apart_from_the_content_is_what_the_result_carries() -> None:
    """U7, T4."""

    def locate() -> ToolResult[Point]:
        return ToolResult("at home", value=Point(1, 2))

    model = ScriptedModel([call("locate")])
    outcome = Agent("a", model, tools=[locate]).execute_sync("go", until_tool="locate")
    result = ended_by(outcome)
    assert result.value == Point(1, 2)
    assert result.content == "at home"


def locate_report(title: str) -> Report:
    return Report(title=title, pages=7)


def locate_point(title: str) -> Point:
    return Point(1, 2)


def locate_points(title: str) -> dict[str, list[Point]]:
    return {title: [Point(1, 2)]}


def locate_result(title: str) -> ToolResult[Point]:
    return ToolResult("told", value=Point(3, 4))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (locate_report, Report(title="x", pages=7)),
        (locate_point, Point(1, 2)),
        (locate_points, {"x": [Point(1, 2)]}),
        (locate_result, Point(3, 4)),
    ],
)
def test_a_recorded_value_is_rebuilt_by_the_return_annotation(function: Any, expected: Any) -> None:
    """U7, J18: the process that had the value itself is gone when the run ends."""

    def ask(ctx: ToolContext) -> str:
        if ctx.resume_value is None:
            raise Interrupt("sure?")
        return "yes"

    name = function.__name__
    model = ScriptedModel([[call(name, {"title": "x"}), call("ask")]])
    agent = Agent("a", model, tools=[function, ask])
    interrupted = agent.execute_sync("go", until_tool=name)
    assert isinstance(interrupted, Interrupted)
    stored = AgentState.from_dict(json.loads(json.dumps(interrupted.state.to_dict())))
    outcome = agent.resume_sync(stored, interrupted.decide(respond(True)))
    result = ended_by(outcome)
    assert result.value == expected
    assert type(result.value) is type(expected)
    assert not result.value_lost
    assert result.arguments == {"title": "x"}


def test_an_until_tool_whose_value_cannot_be_stored_gets_an_error_and_is_not_run_again() -> None:
    """J18, U7."""
    ran: list[int] = []

    def connect() -> Any:
        ran.append(1)
        return object()

    model = ScriptedModel([call("connect"), "done"])
    outcome = Agent("a", model, tools=[connect]).execute_sync("go", until_tool="connect")
    result = ended_by(outcome)
    assert result.is_error
    assert "connect" in str(result.content)
    assert "cannot be sent to the model" in str(result.content)
    assert ran == [1]


async def test_extract_returns_the_value_of_the_first_success() -> None:
    """U7."""
    model = ScriptedModel([call("finish", {"headline": "x"}), call("finish", {"title": "y"})])
    agent = Agent("a", model, tools=[finish])
    for given in ("finish", finish):
        model.requests.clear()
        assert await agent.extract(given, "go") == Report(title="y")


class Measured(BaseModel):
    value: float


NOT_FINITE: list[tuple[Any, Any]] = [
    (float, math.nan),
    (float, -math.inf),
    (float | None, math.nan),
    (Any, math.inf),
    (list[float], [1.0, math.nan]),
    (dict[str, Any], {"deep": [{"x": math.nan}]}),
    (Measured, Measured(value=math.nan)),
    (ToolResult[float], ToolResult("measured", value=math.nan)),
]


@pytest.mark.parametrize(("annotation", "value"), NOT_FINITE, ids=range(len(NOT_FINITE)))
def test_a_value_with_a_number_that_json_lacks_is_an_error_of_the_tool(
    annotation: Any, value: Any
) -> None:
    """U7: another process would read another value, or none."""

    def measure() -> Any:
        return value

    measure.__annotations__["return"] = annotation
    model = ScriptedModel([call("measure"), "I give up."])
    agent = Agent("a", model, tools=[measure])
    outcome = agent.execute_sync("go", until_tool=measure)
    assert isinstance(outcome, Completed)
    assert outcome.tool_result is not None
    assert outcome.tool_result.is_error
    assert "'measure' ran, but its" in outcome.tool_result.content
    assert "NaN or an infinity" in outcome.tool_result.content
    model.requests.clear()
    outcome = agent.execute_sync("go", until_tool_success=measure)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ResultNotKept)
    assert "'measure' ran, but its" in str(outcome.error)
    assert len(model.requests) == 1, "it is not asked to call the tool again"
    model.requests.clear()
    outcome = agent.execute_sync("go")
    is_sent = not isinstance(value, ToolResult)  # else the model gets the content alone
    assert [part.outcome for part in results(outcome.state)] == ["failed" if is_sent else "success"]


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (float, 1.5),
        (float | None, None),
        (Annotated[float, PlainSerializer(str)], math.nan),
        (dict[str, Any], {"nan": None}),
    ],
    ids=["finite", "none", "written as text", "none inside"],
)
def test_a_value_that_json_has_is_none_of_these(annotation: Any, value: Any) -> None:
    """U7."""

    def measure() -> Any:
        return value

    measure.__annotations__["return"] = annotation
    model = ScriptedModel([call("measure")])
    outcome = Agent("a", model, tools=[measure]).execute_sync("go", until_tool=measure)
    assert isinstance(outcome, Completed)
    assert outcome.tool_result is not None
    assert outcome.tool_result.value is value


async def test_extract_hands_a_none_value_back() -> None:
    """U7: None is a value as any other."""

    def note(text: str) -> None: ...

    model = ScriptedModel([call("note", {"text": "x"})])
    assert await Agent("a", model, tools=[note]).extract("note", "go") is None


async def test_extract_without_a_success_says_how_the_run_ended() -> None:
    """U7: the run's own error is the cause."""
    model = ScriptedModel([call("broken", {"text": "x"}), "I give up"])
    with pytest.raises(NotExtracted, match="broken") as raised:
        await Agent("a", model, tools=[broken]).extract("broken", "go")
    assert isinstance(raised.value.__cause__, UntilToolNotCalled)
    assert str(raised.value).startswith(
        "No value of 'broken': the run ended as Failed after 2 model calls: "
    )


async def test_extract_that_needs_a_person_says_so() -> None:
    """U7."""
    model = ScriptedModel([call("finish", {"title": "x"})])
    agent = Agent("a", model, tools=[finish], interrupt_on={"finish": True})
    with pytest.raises(NotExtracted, match="Interrupted: Waits for a person after 1 model call"):
        await agent.extract("finish", "go")


async def test_extract_with_an_unknown_tool_is_an_error_before_any_model_call() -> None:
    """R8, U7."""
    model = ScriptedModel(["done"])
    with pytest.raises(UsageError, match=r"'finsh'.*'finish'"):
        await Agent("a", model, tools=[finish]).extract("finsh", "go")
    assert model.requests == []


# ------------------------------------------------------------------------- U8


def choices(model: ScriptedModel) -> list[Any]:
    return [(request.settings or {}).get("tool_choice") for request in model.requests]


@BOTH_WAYS
def test_a_forced_tool_is_the_models_only_choice_in_each_reply(option: str) -> None:
    """U8: all tools are sent nevertheless."""
    wrong = [] if option == "until_tool" else [call("finish", {"headline": "x"})]
    model = ScriptedModel([*wrong, call("finish", {"title": "y"})])
    settings: Any = {"temperature": 0, "tool_choice": "auto"}
    agent = Agent("a", model, tools=[finish, other], model_settings=settings)
    result = ended_by(agent.execute_sync("go", **only(option, finish), force=True))
    assert result.value == Report(title="y")
    assert choices(model) == [["finish"]] * len(model.requests)
    assert all(request.settings == {**settings, "tool_choice": ["finish"]}
               for request in model.requests)  # fmt: skip
    sent = [[t.name for t in request.parameters.function_tools] for request in model.requests]
    assert sent == [["finish", "other"]] * len(model.requests)
    assert model.requests[0].tools == ("finish",)


def test_of_several_forced_tools_the_model_chooses_one() -> None:
    model = ScriptedModel([call("other")])
    agent = Agent("a", model, tools=[finish, other, broken])
    ended_by(agent.execute_sync("go", until_tool=["other", "finish"], force=True))
    assert choices(model) == [["finish", "other"]]


def test_a_tool_that_a_hook_takes_away_is_not_forced() -> None:
    """U8: the provider would refuse a choice of a tool that it is not sent."""

    class Less(Middleware):
        async def before_model(self, run: Run, request: ModelInput) -> ModelInput:
            return request.replace(tools=tuple(t for t in request.tools if t.name != "finish"))

    model = ScriptedModel(["no"])
    agent = Agent("a", model, tools=[finish, other], middleware=[Less()])
    assert isinstance(agent.execute_sync("go", until_tool="finish", force=True), Failed)
    assert choices(model) == [None]


def test_a_run_is_forced_to_its_end_where_it_is_resumed_too() -> None:
    """U8: it is recorded with the run, and the next run is free."""

    def agent(*replies: Any) -> tuple[Agent, ScriptedModel]:
        model = ScriptedModel(replies)
        return Agent("a", model, tools=[finish, broken], interrupt_on={"finish": True}), model

    first, model = agent(call("finish", {"title": "x"}))
    waiting = interrupted(first.execute_sync("go", until_tool_success="finish", force=True))
    second, model = agent(call("finish", {"title": "y"}), "free")
    again = second.resume_sync(reloaded(waiting.state), waiting.decide(reject("not x")))
    assert choices(model) == [["finish"]]
    ended = second.resume_sync(reloaded(again.state), interrupted(again).decide(approve()))
    assert ended_by(ended).value == Report(title="y")
    assert completed(second.execute_sync("and?", state=ended.state)).text == "free"
    assert choices(model) == [["finish"], None]


async def test_an_actor_and_extract_force_too() -> None:
    model = ScriptedModel([call("finish", {"title": "x"})] * 3)
    agent = Agent("a", model, tools=[finish])
    assert await agent.extract(finish, "go", force=True) == Report(title="x")
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("a")
        ended_by(await soon(ref.run("go", until_tool="finish", force=True)))
        assert await soon(ref.extract("finish", "go", force=True)) == Report(title="x")
    assert choices(model) == [["finish"]] * 3


def test_a_child_may_be_forced() -> None:
    """S2, U8."""
    child = {
        "name": "c",
        "description": "",
        "tools": [finish],
        "until_tool": "finish",
        "force": True,
    }
    task = call("task", {"task_name": "c", "instructions": "x"})
    model = ScriptedModel([task, call("finish", {"title": "x"}), "done"])
    parent = Agent("p", model, middleware=[SubAgent([child], general_purpose=False)])
    completed(parent.execute_sync("go"))
    assert choices(model) == [None, ["finish"], None]
    with pytest.raises(UsageError, match="give until_tool"):
        Agent("p", model, middleware=[SubAgent([{**child, "until_tool": None}])])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"force": True}, "give until_tool or until_tool_success"),
        ({"force": "finish", "until_tool": "finish"}, "`force` must be True or False"),
    ],
)
async def test_what_cannot_be_forced_is_refused(options: dict[str, Any], told: str) -> None:
    """R8, U8."""
    model = ScriptedModel([])
    agent = Agent("a", model, tools=[finish])
    with pytest.raises(UsageError, match=told):
        await agent.execute("go", **options)
    async with Runtime([agent]) as runtime:
        with pytest.raises(UsageError, match=told):
            runtime.spawn("a").run("go", **options)
    assert model.requests == []


def test_a_model_that_cannot_be_forced_is_refused_before_any_model_call() -> None:
    """R8, U8: by its profile."""

    class Free(ScriptedModel):
        @property
        def profile(self) -> Any:
            return {**super().profile, "supports_forced_tool_choice": False}

    model = Free([], name="free")
    for agent in (
        Agent("a", model, tools=[finish]),
        Agent("a", ScriptedModel([]), fallback_models=[model], tools=[finish]),
    ):
        with pytest.raises(UsageError, match=r"'free' cannot be made to call a tool"):
            agent.execute_sync("go", until_tool="finish", force=True)
    assert model.requests == []


# ------------------------------------------------- what must not be called again (U1, J4)


class Bank:
    """An until tool that has paid, and then raises."""

    def __init__(self, error: BaseException, **options: Any) -> None:
        self.paid = 0

        @tool(**options)
        async def pay() -> str:
            self.paid += 1
            raise error

        self.pay = pay

    def agent(self) -> tuple[Agent, ScriptedModel]:
        model = ScriptedModel(lambda _: call("pay"))
        return Agent("a", model, tools=[self.pay]), model


FORMS: dict[str, dict[str, Any]] = {
    "until_tool": {"until_tool": "pay"},
    "until_tool_success": {"until_tool_success": "pay"},
    "force": {"until_tool_success": "pay", "force": True},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "error", [ConnectionResetError("reset"), asyncio.CancelledError()], ids=str
)
def test_a_doubt_about_the_until_tool_ends_the_run(form: str, error: BaseException) -> None:
    """U1, J4: it is paid once, and not as often as the model may be asked."""
    bank = Bank(error)
    agent, model = bank.agent()
    outcome = agent.execute_sync("go", **FORMS[form])
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, EffectUnknown)
    (key,) = outcome.state.doubts
    assert (outcome.error.tool, outcome.error.call_key) == ("pay", key)
    assert bank.paid == len(model.requests) == 1


async def test_extract_ends_with_the_doubt() -> None:
    """U5, J4."""
    bank = Bank(ConnectionResetError("reset"))
    agent, model = bank.agent()
    with pytest.raises(NotExtracted) as raised:
        await agent.extract("pay", "go")
    assert isinstance(raised.value.__cause__, EffectUnknown)
    assert bank.paid == len(model.requests) == 1


def test_a_person_settles_the_doubt_about_the_until_tool_and_the_run_ends_with_it() -> None:
    """U1, J4: where the tool says that one is asked."""
    bank = Bank(ConnectionResetError("reset"), on_unknown="ask")
    agent, model = bank.agent()
    outcome = agent.execute_sync("go", until_tool_success="pay")
    assert isinstance(outcome, Interrupted)
    assert [request.kind for request in outcome.requests] == ["doubt"]
    end = agent.resume_sync(outcome.state, outcome.decide(respond("receipt 17")))
    assert ended_by(end).content == "receipt 17"
    assert bank.paid == len(model.requests) == 1


def test_a_failure_of_the_until_tool_still_goes_back_to_the_model() -> None:
    """U1: of which is known that it has failed."""
    bank = Bank(ValueError("no such account"))
    agent, _ = bank.agent()
    outcome = agent.execute_sync("go", until_tool_success="pay")
    assert isinstance(outcome, Failed)
    assert not isinstance(outcome.error, EffectUnknown)
    assert bank.paid == 50, "so often a model is asked by default"


def test_a_doubt_about_another_tool_does_not_end_the_run() -> None:
    """U1."""
    bank = Bank(ConnectionResetError("reset"))
    model = ScriptedModel([call("pay"), call("finish", {"title": "x"})])
    agent = Agent("a", model, tools=[finish, bank.pay])
    assert ended_by(agent.execute_sync("go", until_tool_success="finish")).tool_name == "finish"
    assert bank.paid == 1


@pytest.mark.parametrize("form", ["until_tool_success", "force"])
def test_an_until_tool_that_ran_and_whose_result_is_lost_ends_the_run(form: str) -> None:
    """U1, T10: it is not called again only for its result."""
    ran: list[int] = []

    @tool
    def pay() -> float:
        ran.append(1)
        return math.nan

    model = ScriptedModel(lambda _: call("pay"))
    outcome = Agent("a", model, tools=[pay]).execute_sync("go", **FORMS[form])
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ResultNotKept)
    assert outcome.error.tool == "pay"
    assert outcome.state.doubts == {}
    assert ran == [1]
    assert len(model.requests) == 1
