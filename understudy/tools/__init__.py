"""Tools: functions that a model may call, their context and their results."""

from understudy.tools.context import ToolContext
from understudy.tools.function_tool import Tool, ToolFunction, exit_loop, tool
from understudy.tools.result import InvalidArguments, Retry, ToolFailed, ToolResult

__all__ = [
    "InvalidArguments",
    "Retry",
    "Tool",
    "ToolContext",
    "ToolFailed",
    "ToolFunction",
    "ToolResult",
    "exit_loop",
    "tool",
]
