"""Toolsets of Pydantic AI as tools: those that hold functions, and need no agent of Pydantic AI."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic_ai.tools import Tool as PydanticTool
from pydantic_ai.toolsets import (
    AbstractToolset,
    CombinedToolset,
    FilteredToolset,
    FunctionToolset,
    PrefixedToolset,
)

from understudy._base.json_values import shown
from understudy.errors import UsageError
from understudy.tools.function_tool import Tool


def tools_of(toolset: AbstractToolset[Any]) -> list[Tool]:
    """The tools of a toolset: of functions, also with a prefix, filtered, or combined.

    Raises:
        UsageError: for any other toolset, or one that needs the context of Pydantic AI's agent.

    """
    return [_tool(name, each) for name, each in _named(toolset)]


def _named(toolset: AbstractToolset[Any]) -> list[tuple[str, PydanticTool[Any]]]:
    if isinstance(toolset, FunctionToolset):
        return list(toolset.tools.items())
    if isinstance(toolset, CombinedToolset):
        return [found for inner in toolset.toolsets for found in _named(inner)]
    if isinstance(toolset, PrefixedToolset):
        return [(f"{toolset.prefix}_{name}", each) for name, each in _named(toolset.wrapped)]
    if isinstance(toolset, FilteredToolset):
        return [
            (name, each) for name, each in _named(toolset.wrapped) if _passes(toolset, name, each)
        ]
    if type(toolset).__name__ == "MCPToolset":
        raise UsageError(
            "tools=[...] takes no MCPToolset: list its tools by `await mcp_tools(toolset, id=...)` "
            "of understudy.mcp"
        )
    raise UsageError(
        f"tools=[...] takes toolsets of functions (FunctionToolset, also prefixed, filtered or "
        f"combined), got {shown(toolset)}: it needs an agent of Pydantic AI"
    )


def _passes(toolset: FilteredToolset[Any], name: str, tool: PydanticTool[Any]) -> bool:
    definition = replace(tool.tool_def, name=name)
    try:
        passes: Any = toolset.filter_func(_NoContext(), definition)  # type: ignore[arg-type]
    except _NeedsContextError as error:
        raise UsageError(
            f"A FilteredToolset asks the context for {error}, which is of an agent of Pydantic AI: "
            "filter by the definition of the tool alone"
        ) from None
    if not isinstance(passes, bool):
        if hasattr(passes, "close"):
            passes.close()
        raise UsageError("A FilteredToolset must have a plain function that returns True or False")
    return passes


class _NeedsContextError(Exception):
    pass


class _NoContext:
    def __getattr__(self, name: str) -> Any:
        raise _NeedsContextError(name)


def _tool(name: str, tool: PydanticTool[Any]) -> Tool:
    if tool.takes_ctx or tool.prepare is not None:
        raise UsageError(
            f"The tool {name!r} of a toolset takes the RunContext of Pydantic AI's agent: write "
            "it as a tool with a ToolContext"
        )
    return Tool(
        tool.function,
        name=name,
        description=tool.description,
        sequential=tool.sequential,
        timeout=tool.timeout,
        ask=tool.requires_approval,
    )
