"""`until_tool` and `until_tool_success`: two public options for one internal setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from understudy._base.json_values import checked_flag
from understudy.errors import UsageError
from understudy.tools import Tool

UntilTool = str | Callable[..., Any] | Sequence[str | Callable[..., Any]]
"""One tool or several, each by name or as the tool itself."""


def collapse_until_tool(
    until_tool: UntilTool | None, until_tool_success: UntilTool | None
) -> tuple[tuple[str, ...] | None, bool]:
    """Return the names of the tools that end the run, and whether only a successful result does.

    If both options are given, `until_tool_success` wins. Callers refuse this case first: see
    `refuse_both`.
    """
    if until_tool_success is not None:
        return _names(until_tool_success, "until_tool_success"), True
    if until_tool is not None:
        return _names(until_tool, "until_tool"), False
    return None, False


def refuse_both(until_tool: object, until_tool_success: object) -> None:
    """Raise a `UsageError` if both options are given."""
    if until_tool is not None and until_tool_success is not None:
        raise UsageError(
            "until_tool and until_tool_success are both given: use until_tool_success if the model "
            "is to see the tool's errors and try again, else until_tool"
        )


def check_force(force: object, names: Sequence[str] | None, *, agent: str) -> None:
    """Raise a `UsageError` if there is no until tool that could be forced."""
    checked_flag(force, what=f"Agent {agent!r}: `force`")
    if force and names is None:
        raise UsageError(
            f"Agent {agent!r}: force=True makes the model call the until tool: give until_tool or "
            "until_tool_success"
        )


def check_known(names: Sequence[str], tools: Mapping[str, Tool], *, agent: str) -> None:
    """Raise a `UsageError` for a name that is not a tool of the agent."""
    for name in names:
        if name not in tools:
            known = ", ".join(repr(tool) for tool in tools) or "none"
            raise UsageError(
                f"until_tool names {name!r}, but agent {agent!r} has no such tool; it has: {known}"
            )


def _names(given: UntilTool, option: str) -> tuple[str, ...]:
    items = [given] if isinstance(given, (str, Tool)) or callable(given) else given
    if not isinstance(items, Sequence) or not items:
        raise UsageError(f"`{option}` must be a tool or a non-empty list of tools, got {given!r}")
    names = []
    for item in items:
        name = item if isinstance(item, str) else getattr(item, "name", None)
        name = name if name is not None else getattr(item, "__name__", None)
        if not isinstance(name, str) or not name:
            raise UsageError(f"`{option}` must hold tools or names of tools, got {item!r}")
        names.append(name)
    return tuple(names)
