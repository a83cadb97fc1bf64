"""The pipeline: modes, their named steps, and workflows of several agents."""

from understudy.modes.agent_execution import AgentExecution
from understudy.modes.pipeline import Mode, Step
from understudy.modes.steps.call_llm import call_llm
from understudy.modes.steps.check_interrupts import (
    check_interrupts,
    check_pause,
    check_tool_interrupts,
)
from understudy.modes.steps.check_stop import check_stop
from understudy.modes.steps.execute_tools import execute_tools, propagate_state
from understudy.modes.steps.finish import check_until_tool, continue_or_finish
from understudy.modes.workflows.loop import Loop
from understudy.modes.workflows.parallel import Parallel
from understudy.modes.workflows.sequential import Sequential
from understudy.run.until_tool import collapse_until_tool

__all__ = [
    "AgentExecution",
    "Loop",
    "Mode",
    "Parallel",
    "Sequential",
    "Step",
    "call_llm",
    "check_interrupts",
    "check_pause",
    "check_stop",
    "check_tool_interrupts",
    "check_until_tool",
    "collapse_until_tool",
    "continue_or_finish",
    "execute_tools",
    "propagate_state",
]
