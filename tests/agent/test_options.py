"""The options of agents, refs and tools: one list, whichever method takes them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

import pytest
from tenacity import AsyncRetrying

from understudy import Agent, AgentRef, Tool
from understudy._base.type_variables import DepsT, DepsT_contra
from understudy.actors.agent_ref import RefExtractOptions
from understudy.agent.agent import ExecuteOptions, ExtractOptions
from understudy.agent.run_environment import EnvironmentOptions
from understudy.mcp import mcp_tools
from understudy.mcp.tools_of_server import McpOptions
from understudy.tools.function_tool import ToolOptions

LATER = {"AsyncRetrying": AsyncRetrying}  # not loaded with the tools
UNTIL = {"until_tool", "until_tool_success"}


@pytest.mark.parametrize(
    ("method", "options", "left_out"),
    [
        (Agent.execute, ExecuteOptions, set()),
        (Agent.execute, ExtractOptions, UNTIL),
        (Agent.resume, EnvironmentOptions, set()),
        (AgentRef.run, RefExtractOptions, UNTIL),
        (Tool.__init__, ToolOptions, {"name", "description"}),
        (mcp_tools, McpOptions, {"id", "headers"}),
    ],
    ids=["execute", "extract", "resume", "ref.extract", "tool", "mcp_tools"],
)
def test_the_options_of_the_other_forms_are_those_of_the_method(
    method: Callable[..., Any], options: type, left_out: set[str]
) -> None:
    hints = typing.get_type_hints(method, localns=LATER)
    named = {
        name: hints[name]
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name not in left_out
    }
    if named.get("deps") == DepsT_contra | None:
        named["deps"] = DepsT | None  # of a method that takes them, and of a mapping
    assert named == typing.get_type_hints(options, localns=LATER)
