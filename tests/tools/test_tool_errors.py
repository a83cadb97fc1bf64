"""An error that a tool raises by accident: the log says it, and tests can have the run fail by it.

Rules: T18.
"""

from __future__ import annotations

import logging
from typing import Any, Literal

import pytest
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import exceptions

from tests.support.agents import FakeClock, completed
from understudy import (
    Agent,
    Completed,
    Failed,
    Outcome,
    Retry,
    Run,
    Runtime,
    ScriptedModel,
    ToolContext,
    UsageError,
    call,
    tool,
)
from understudy.errors import ToolRaised
from understudy.middleware import Middleware, SubAgent, ToolCall
from understudy.tools import OutcomeUnknown, ToolFailed

LOGGER = "understudy.tools.tool_errors"


@tool
def price(item: str) -> int:
    """Look a price up."""
    return {"chair": 40}[item]


@tool
async def owner(ctx: ToolContext[Any], item: str) -> str:
    """Say who owns it."""
    return str(ctx.deps.owner_of(item))


def asks(name: str, arguments: dict[str, Any], times: int = 1) -> ScriptedModel:
    return ScriptedModel([*(call(name, arguments) for _ in range(times)), "Done."])


def entries(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [e.getMessage() for e in caplog.records if e.name == LOGGER and e.levelno == level]


def test_the_log_has_the_first_line_of_an_error_and_names_the_tool(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """T18."""

    @tool
    def pay() -> str:
        """Pay."""
        raise ValueError("no such account\nsecret: 1234")

    desk = Agent("desk", asks("pay", {}), tools=[pay], undeclared="read_only")
    outcome = completed(desk.execute_sync("Pay."))
    assert entries(caplog) == ["tool 'pay' of agent 'desk' raised ValueError: no such account"]
    entry = next(e for e in caplog.records if e.name == LOGGER)
    assert (entry.exc_info, vars(entry)["agent_id"]) == (None, "desk")
    assert vars(entry)["run_id"] == outcome.run_id


def test_forgotten_deps_are_named(caplog: pytest.LogCaptureFixture) -> None:
    desk = Agent("desk", asks("owner", {"item": "chair"}), tools=[owner])
    desk.execute_sync("Whose chair is it?")
    (entry,) = entries(caplog)
    assert entry.endswith("has no attribute 'owner_of' (the run has no deps)")


@pytest.mark.parametrize("undeclared", ["read_only", "effects"])
@pytest.mark.parametrize(
    "error",
    [
        ToolFailed("No."),
        Retry("Try tomorrow."),
        OutcomeUnknown("who knows"),
        exceptions.ToolFailed("No."),
        exceptions.ModelRetry("Try tomorrow."),
    ],
    ids=lambda error: f"{type(error).__module__}.{type(error).__name__}",
)
def test_an_error_that_is_meant_for_the_model_is_no_entry(
    caplog: pytest.LogCaptureFixture, error: Exception, undeclared: Literal["read_only", "effects"]
) -> None:
    @tool
    def pay() -> str:
        """Pay."""
        raise error

    desk = Agent("desk", asks("pay", {}), tools=[pay], undeclared=undeclared, tool_errors="raise")
    assert not isinstance(desk.execute_sync("Pay."), Failed)
    assert entries(caplog) == []


@pytest.mark.parametrize("is_group", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"key": lambda arguments: "one"}, {"idempotent": True}, {"unknown_after": Exception}],
)
@pytest.mark.parametrize("kind", [exceptions.ModelRetry, exceptions.ToolFailed])
def test_what_a_tool_of_pydantic_ai_raises_for_the_model_is_that_in_every_tool(
    kind: type[Exception], options: dict[str, Any], is_group: bool
) -> None:
    """T16."""
    tries = []

    @tool(**options)
    async def pay(ctx: ToolContext) -> str:
        tries.append(1)
        await ctx.once("log", lambda: True)
        error = kind("The bank is closed.")
        raise ExceptionGroup("several", [error]) if is_group else error

    adopted = PydanticAgent(asks("pay", {}), name="desk")
    for desk in (
        Agent("desk", asks("pay", {}), tools=[pay]),
        Agent.from_pydantic_ai(adopted, tools=[pay]),
    ):
        tries.clear()
        outcome = completed(desk.execute_sync("Pay."))
        (part,) = [
            p for m in outcome.state.messages for p in m.parts if p.part_kind == "tool-return"
        ]
        assert (part.content, part.outcome) == ("The bank is closed.", "failed")
        assert len(tries) == 1


def test_arguments_that_do_not_fit_are_no_entry(caplog: pytest.LogCaptureFixture) -> None:
    desk = Agent("desk", asks("price", {"thing": 1}), tools=[price], tool_errors="raise")
    assert isinstance(desk.execute_sync("What is it?"), Completed)
    assert entries(caplog) == []


def test_an_error_that_leaves_open_what_a_call_did_is_an_entry_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool(unknown_after=ConnectionError)
    def pay() -> str:
        """Pay."""
        raise ConnectionResetError("the line is cut")

    Agent("desk", asks("pay", {}), tools=[pay]).execute_sync("Pay.")
    expected = ["tool 'pay' of agent 'desk' raised ConnectionResetError: the line is cut"]
    assert entries(caplog) == expected


def test_an_error_that_a_middleware_handles_is_no_entry(caplog: pytest.LogCaptureFixture) -> None:
    class Guess(Middleware[Any]):
        async def wrap_tool_call(self, run: Run, call: ToolCall, next: Any) -> Any:
            try:
                return await next(call)
            except KeyError:
                return 50

    model = asks("price", {"item": "sofa"})
    desk = Agent(
        "desk",
        model,
        tools=[price],
        middleware=[Guess()],
        tool_errors="raise",
        undeclared="read_only",
    )
    assert isinstance(desk.execute_sync("What is it?"), Completed)
    assert entries(caplog) == []


def test_a_tool_that_fails_again_and_again_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """T18."""
    clock = FakeClock()

    @tool
    def look() -> str:
        """Look."""
        clock.advance(1)
        raise OSError("away")

    desk = Agent("desk", asks("look", {}, times=130), tools=[look], max_runs=200)
    desk.execute_sync("Look.", clock=clock)
    first, *others = entries(caplog)
    assert first == "tool 'look' of agent 'desk' raised OSError: away"
    more = " (and 59 more times since the last entry about it)"
    assert others == [first + more, first + more]


def test_an_error_of_another_class_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    errors = iter([OSError("away"), ValueError("odd"), OSError("away")])

    @tool
    def look() -> str:
        """Look."""
        raise next(errors)

    Agent("desk", asks("look", {}, times=3), tools=[look]).execute_sync("Look.")
    assert [text.split("raised ")[1] for text in entries(caplog)] == [
        "OSError: away",
        "ValueError: odd",
    ]


def test_the_traceback_is_in_the_log_on_demand_or_at_level_debug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def ask(**options: Any) -> None:
        model = asks("price", {"item": "sofa"})
        lost = tool(price.function)
        Agent("desk", model, tools=[lost], **options).execute_sync("What is it?")

    ask(tool_errors="traceback")
    assert "KeyError: 'sofa'" in caplog.text
    assert "Traceback" in caplog.text
    caplog.clear()
    ask()
    assert "Traceback" not in caplog.text
    with caplog.at_level(logging.DEBUG, "understudy.tools"):
        ask()
    assert entries(caplog, logging.DEBUG) == ["the traceback of an error of tool 'price'"]
    assert "Traceback" in caplog.text


def strict_outcome(where: str) -> Outcome:
    model = ScriptedModel(
        [
            [call("price", {"item": "chair"}), call("price", {"item": "sofa"})],
            "Never said.",
        ]
    )
    own: dict[str, Any] = {"tool_errors": "raise"} if where == "agent" else {}
    desk = Agent("desk", model, tools=[price], undeclared="read_only", **own)
    if where == "agent":
        return desk.execute_sync("What are they?")
    with Runtime([desk], tool_errors="raise") as runtime:
        return runtime.spawn("desk", "d1").run("What are they?").get()


@pytest.mark.parametrize("where", ["agent", "runtime"])
def test_in_a_strict_agent_or_runtime_the_run_fails_with_the_error_of_a_tool(where: str) -> None:
    """T18."""
    outcome = strict_outcome(where)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ToolRaised)
    assert (outcome.error.tool, outcome.error.message) == (
        "price",
        "Tool 'price' raised KeyError: 'sofa'",
    )
    assert not outcome.state.doubts
    if where == "agent":  # in this process, and on no way through the store
        assert isinstance(outcome.error.__cause__, KeyError)


def test_in_a_strict_runtime_the_error_of_a_tool_of_an_agent_inside_fails_the_outermost_run() -> (
    None
):
    clerk = Agent("clerk", asks("price", {"item": "sofa"}), tools=[price], undeclared="read_only")
    model = ScriptedModel(
        [call("task", {"task_name": "clerk", "instructions": "A sofa?"}), "Never said."]
    )
    desk = Agent("desk", model, middleware=[SubAgent([clerk])])
    with Runtime([desk], tool_errors="raise") as runtime:
        outcome = runtime.spawn("desk", "d1").run("A sofa?").get()
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ToolRaised)
    assert outcome.error.tool == "price"


def test_what_tool_errors_cannot_be_is_refused() -> None:
    wrong: Any = "loud"
    with pytest.raises(UsageError, match="Agent 'desk': `tool_errors` must be 'log', 'traceback'"):
        Agent("desk", ScriptedModel(["Hi."]), tool_errors=wrong)
    with pytest.raises(UsageError, match="Runtime: `tool_errors` must be"):
        Runtime(tool_errors=wrong)
