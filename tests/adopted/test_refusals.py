"""What cannot be carried over is an error that names it, before anything runs (M9)."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import BinaryImage, RunContext, Tool
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.capabilities import (
    AbstractCapability,
    Capability,
    HandleDeferredToolCalls,
    Hooks,
    Instrumentation,
    LocalWorkspace,
    ModelFallback,
    ProcessEventStream,
)
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

from tests.support.agents import by_turn
from understudy import Agent, UsageError


class Wrapping(AbstractCapability[Any]):
    """Stands around a run."""

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> Any:
        return await handler()


def ending() -> Hooks[Any]:
    hooks: Hooks[Any] = Hooks()

    @hooks.on.after_run
    async def end(ctx: RunContext[Any], *, result: Any) -> Any:
        return result

    return hooks


class Listing(AbstractToolset[Any]):
    """Knows its tools by the deps of a run alone."""

    @property
    def id(self) -> str | None:
        return "listing"

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {name: ctx.deps[name] for name in ctx.deps["tools"]}

    async def call_tool(self, *_: Any) -> Any:
        raise NotImplementedError


def look() -> int:
    """Look."""
    return 1


async def nothing(*_: Any) -> None:
    """Answer no deferred call."""


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"end_strategy": "early"}, "end_strategy='early'"),
        ({"max_concurrency": 3}, "max_concurrency"),
        ({"output_type": [str, BinaryImage]}, "output type BinaryImage"),
        ({"capabilities": [Wrapping()]}, r"capability Wrapping with wrap_run\(\)"),
        ({"capabilities": [ending()]}, r"capability Hooks with after_run\(\)"),
        (
            {"capabilities": [HandleDeferredToolCalls(nothing)]},
            r"HandleDeferredToolCalls with handle_deferred_tool_calls\(\)",
        ),
        ({"capabilities": [LocalWorkspace(".")]}, r"LocalWorkspace with get_workspace\(\)"),
        ({"capabilities": [ProcessEventStream(nothing)]}, r"wrap_run_event_stream\(\)"),
        ({"capabilities": [ModelFallback("test")]}, r"ModelFallback with get_model\(\)"),
        ({"capabilities": [Instrumentation()]}, r"Instrumentation.*telemetry="),
        (
            {"capabilities": [Capability(id="later", description="x", defer_loading=True)]},
            "capability Capability with defer_loading=True",
        ),
        ({"tools": [Tool(look, defer_loading=True)]}, "tool 'look' with defer_loading=True"),
        ({"toolsets": [MCPToolset("https://example.com/mcp")]}, r"mcp_tools\(toolset, id=...\)"),
        ({"toolsets": [Listing()]}, r"Listing 'listing' raised .*listed_with=deps"),
        ({"name": None}, r"has no name.*name=\"support\""),
        ({"model": None}, "`model` is None"),
    ],
)
def test_what_cannot_be_carried_over_is_named(options: dict[str, Any], error: str) -> None:
    """M9."""
    agent: Any = PydanticAgent(**{"model": by_turn(), "name": "support", **options})
    with pytest.raises(UsageError, match=error):
        Agent.from_pydantic_ai(agent)


def test_functions_for_events_of_an_agent_are_named() -> None:
    agent: PydanticAgent[Any, str] = PydanticAgent(by_turn(), name="support")

    @agent.on_event
    async def listen(ctx: RunContext[Any], event: Any) -> None:
        """Listen."""

    with pytest.raises(UsageError, match=r"@agent\.on_event"):
        Agent.from_pydantic_ai(agent)


def test_anything_but_an_agent_of_pydantic_ai_is_refused() -> None:
    given: Any = object()
    with pytest.raises(UsageError, match="takes an Agent of pydantic_ai, got"):
        Agent.from_pydantic_ai(given)
    wrapped: Any = WrapperAgent(PydanticAgent(by_turn(), name="support"))
    with pytest.raises(UsageError, match="WrapperAgent wraps one"):
        Agent.from_pydantic_ai(wrapped)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"tool_options": {"find": {"read_only": True}}}, "no tool 'find'.*it has 'look'"),
        ({"tool_options": {"look": {"readonly": True}}}, "option 'readonly'; options are"),
        ({"usage_limits": 3}, "`usage_limits` must be UsageLimits"),
        ({"tools": [look]}, "two tools named 'look': remove it from the agent of Pydantic AI"),
        ({"interrupt_on": {"find": True}}, "find"),
        ({"name": "a b"}, "name"),
    ],
)
def test_options_that_do_not_fit_are_named(options: dict[str, Any], error: str) -> None:
    agent = PydanticAgent(by_turn(), name="support", tools=[look])
    with pytest.raises(UsageError, match=error):
        Agent.from_pydantic_ai(agent, **options)


def test_options_of_a_tool_are_those_of_any_tool() -> None:
    agent = PydanticAgent(by_turn(), name="support", tools=[look])
    adopted = Agent.from_pydantic_ai(agent, tool_options={"look": {"read_only": True}})
    assert adopted.definition.tools["look"].effect == "read_only"


@pytest.mark.slow
def test_nothing_of_it_is_imported_before_the_first_one() -> None:
    """M9."""
    code = (
        "import sys, understudy\n"
        "understudy.Agent('a', understudy.ScriptedModel(['hello'])).execute_sync('Hello.')\n"
        "assert not [name for name in sys.modules if name.startswith('understudy.adopted')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_agent_that_is_instrumented_is_refused() -> None:
    agent = PydanticAgent("test", name="desk")
    agent.instrument = True
    with pytest.raises(UsageError, match=r"instrument=.*telemetry="):
        Agent.from_pydantic_ai(agent)
