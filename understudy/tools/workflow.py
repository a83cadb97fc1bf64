"""Tools with which an agent of a workflow says how the workflow goes on."""

from __future__ import annotations

from understudy.tools.function_tool import Tool
from understudy.tools.result import ToolResult

__all__ = ["exit_loop"]


def _exit_loop() -> ToolResult[str]:
    """Ends the loop that you work in. Call this only when your instructions tell you to."""
    return ToolResult("", escalate=True, skip_summarization=True)


exit_loop = Tool(_exit_loop, name="exit_loop", inline=True, idempotent=True)
"""Ends the nearest loop around the agent that calls it, and that agent's own run (W3)."""
