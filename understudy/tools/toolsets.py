"""The tools that `Agent(tools=[...])` takes, including tools of other libraries and toolsets.

Toolsets of Pydantic AI hold functions here: they must need no agent of Pydantic AI.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.tools import Tool as PydanticTool
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import (
    AbstractToolset,
    ApprovalRequiredToolset,
    CombinedToolset,
    FilteredToolset,
    FunctionToolset,
    PrefixedToolset,
    RenamedToolset,
)

from understudy._base.json_values import shown
from understudy.errors import UsageError
from understudy.tools.context import ToolContext
from understudy.tools.foreign.readers import reader_of
from understudy.tools.function_tool import Tool, as_tool
from understudy.tools.gate_rule import Rule
from understudy.tools.predicates import checked_predicate
from understudy.tools.tool_defaults import Undeclared

_LETS_ALL_THROUGH = "any"
"""The title of the validator of a tool that has a JSON schema and no signature."""
_KNOWN = (
    FunctionToolset,
    CombinedToolset,
    PrefixedToolset,
    RenamedToolset,
    FilteredToolset,
    ApprovalRequiredToolset,
)


@dataclass(frozen=True, slots=True)
class _Found:
    """A tool in a toolset, with its name there."""

    name: str
    tool: PydanticTool[Any]
    asks: tuple[Callable[[dict[str, Any]], Any], ...] = ()
    """Functions of the toolsets around it that say whether a call needs approval."""
    timeout: float | None = None
    """The time limit that its toolset sets, in seconds; None without a limit."""

    @property
    def definition(self) -> ToolDefinition:
        return replace(self.tool.tool_def, name=self.name)


def as_tools(given: object, *, undeclared: Undeclared | None = None) -> list[Tool]:
    """Return the tools that are given: a tool, a function, or the tools of a toolset of Pydantic
    AI.

    A tool of another library is converted: of Pydantic AI, LangChain or the OpenAI Agents SDK. A
    toolset must be one of functions; it may have a prefix, and be renamed, filtered, combined, or
    with approval.

    Args:
        given: a tool, a function, or a toolset.
        undeclared: the effect of tools of other libraries, which do not declare what calling
            them again does; see `Agent`.

    Raises:
        UsageError: as `as_tool`, `tool.from_langchain` and `tool.from_openai_agents` do; for
            any other toolset; and for a toolset that needs the context of Pydantic AI's agent
            or does more than hold functions, because that would be lost here.

    """
    if isinstance(given, AbstractToolset):
        return [_tool(each, undeclared) for each in _found(given)]
    if isinstance(given, PydanticTool):
        return [_tool(_Found(given.name, given), undeclared)]
    reader = reader_of(given)
    if reader is not None:
        from understudy.tools.foreign.foreign_tool import ForeignTool  # few agents have one

        return [ForeignTool(reader(given), {"undeclared": undeclared})]
    return [as_tool(given)]


def _found(toolset: AbstractToolset[Any]) -> list[_Found]:
    _check_calls(toolset)
    if isinstance(toolset, FunctionToolset):
        if toolset._instructions:
            raise UsageError(
                f"{toolset.label} has instructions, which an agent does not read from a toolset: "
                "give them to the agent"
            )
        limit = toolset.timeout
        return [_Found(name, each, timeout=limit) for name, each in toolset.tools.items()]
    if isinstance(toolset, CombinedToolset):
        return [each for inner in toolset.toolsets for each in _found(inner)]
    if isinstance(toolset, PrefixedToolset):
        inside = _found(toolset.wrapped)
        return [replace(each, name=f"{toolset.prefix}_{each.name}") for each in inside]
    if isinstance(toolset, RenamedToolset):
        names = {old: new for new, old in toolset.name_map.items()}
        inside = _found(toolset.wrapped)
        return [replace(each, name=names.get(each.name, each.name)) for each in inside]
    if isinstance(toolset, FilteredToolset):
        return [each for each in _found(toolset.wrapped) if _passes(toolset, each)]
    if isinstance(toolset, ApprovalRequiredToolset):
        inside = _found(toolset.wrapped)
        return [replace(each, asks=(*each.asks, _asks(toolset, each))) for each in inside]
    if type(toolset).__name__ == "MCPToolset":
        raise UsageError(
            "tools=[...] takes no MCPToolset: list its tools by `await mcp_tools(toolset, id=...)` "
            "of understudy.mcp"
        )
    raise UsageError(
        "tools=[...] takes toolsets of functions (FunctionToolset, also prefixed, renamed, "
        f"filtered, combined, or with approval), got {shown(toolset)}: it needs an agent of "
        "Pydantic AI"
    )


def _check_calls(toolset: AbstractToolset[Any]) -> None:
    """Refuse a toolset class of the application: what it does around a call would be lost."""
    for known in _KNOWN:
        if isinstance(toolset, known):
            for method in ("call_tool", "get_tools", "get_instructions"):
                if getattr(type(toolset), method) is not getattr(known, method):
                    raise UsageError(
                        f"{toolset.label} has a {method}() of its own, which an agent does not "
                        "call: write its functions as tools, or a middleware"
                    )


def _passes(toolset: FilteredToolset[Any], found: _Found) -> bool:
    function = toolset.filter_func
    name = getattr(function, "__qualname__", type(function).__name__)
    what = f"The function {name!r} of a FilteredToolset, asked about the tool {found.name!r},"
    return checked_predicate(function, _NoContext(what), found.definition, what=what)


def _asks(toolset: ApprovalRequiredToolset[Any], found: _Found) -> Callable[[dict[str, Any]], Any]:
    context: Any = _NoContext(f"The function that approves calls of the tool {found.name!r}")

    def asks(arguments: dict[str, Any]) -> Any:
        return toolset.approval_required_func(context, found.definition, arguments)

    return asks


class _NoContext:
    """A placeholder for the context that Pydantic AI's agent gives to a function."""

    def __init__(self, function: str) -> None:
        self._function = function

    def __getattr__(self, name: str) -> Any:
        raise UsageError(
            f"{self._function} needs {name!r} of the context, which only an agent of Pydantic AI "
            "has: use the other arguments instead"
        )


def _tool(found: _Found, undeclared: Undeclared | None) -> Tool:
    tool = found.tool
    if tool.takes_ctx or tool.prepare is not None or tool.args_validator is not None:
        raise UsageError(
            f"The tool {found.name!r} of Pydantic AI takes the RunContext of its agent, itself or "
            "by `prepare` or `args_validator`: write it as a tool with a ToolContext"
        )
    ask = _rule(found)
    timeout = found.timeout if tool.timeout is None else tool.timeout
    if tool.function_schema.validator.title != _LETS_ALL_THROUGH:
        return Tool(
            tool.function,
            name=found.name,
            description=tool.description,
            sequential=tool.sequential,
            timeout=timeout,
            ask=ask,
            undeclared=undeclared,
        )
    return Tool.from_schema(
        found.name,
        tool.description or "",
        tool.function_schema.json_schema,
        _by_keywords(tool),
        sequential=tool.sequential,
        timeout=timeout,
        ask=ask,
        undeclared=undeclared,
    )


def _rule(found: _Found) -> Rule:
    if found.tool.requires_approval:
        return True

    def when(arguments: dict[str, Any], ctx: ToolContext) -> bool:
        return any(asks(arguments) for asks in found.asks)

    return {"when": when} if found.asks else False


def _by_keywords(tool: PydanticTool[Any]) -> Callable[[dict[str, Any]], Any]:
    """A caller, with arguments as keywords, for a tool that has a schema and no signature."""
    function: Any = tool.function

    async def call_async(arguments: dict[str, Any]) -> Any:
        return await function(**arguments)

    def call(arguments: dict[str, Any]) -> Any:
        return function(**arguments)

    return call_async if tool.function_schema.is_async else call
