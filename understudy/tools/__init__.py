"""Tools: functions that a model may call, their context and their results."""

from understudy.tools.checks import DidNotHappen, Happened, Unknown
from understudy.tools.context import ToolContext
from understudy.tools.function_tool import Tool, ToolFunction, ToolOptions, exit_loop
from understudy.tools.result import (
    InvalidArguments,
    OutcomeUnknown,
    Retry,
    ToolFailed,
    ToolResult,
)
from understudy.tools.shared_resources import ToolSource
from understudy.tools.tool_decorator import ToolDecorator, tool
from understudy.tools.toolsets import as_tools

__all__ = [
    "DidNotHappen",
    "Happened",
    "InvalidArguments",
    "OutcomeUnknown",
    "Retry",
    "Tool",
    "ToolContext",
    "ToolDecorator",
    "ToolFailed",
    "ToolFunction",
    "ToolOptions",
    "ToolResult",
    "ToolSource",
    "Unknown",
    "as_tools",
    "exit_loop",
    "tool",
]
