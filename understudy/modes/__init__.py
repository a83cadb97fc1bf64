"""The pipeline: modes, their named steps, and the driver that runs them."""

from understudy.modes.agent_execution import AgentExecution
from understudy.modes.end_steps import check_until_tool, continue_or_finish
from understudy.modes.interrupt_steps import check_interrupts, check_pause, check_tool_interrupts
from understudy.modes.loop import Loop
from understudy.modes.model_steps import call_llm
from understudy.modes.parallel import Parallel
from understudy.modes.pipeline import Mode, Step
from understudy.modes.sequential import Sequential
from understudy.modes.stop_steps import check_stop
from understudy.modes.tool_steps import execute_tools, propagate_state
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
