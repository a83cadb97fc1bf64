"""`AgentExecution`: the pipeline of an agent that talks to a model and runs tools."""

from __future__ import annotations

from understudy.modes.end_steps import check_until_tool, continue_or_finish
from understudy.modes.interrupt_steps import check_interrupts, check_pause, check_tool_interrupts
from understudy.modes.model_steps import call_llm
from understudy.modes.pipeline import Mode
from understudy.modes.stop_steps import check_stop
from understudy.modes.tool_steps import execute_tools, propagate_state

__all__ = ["AgentExecution"]


class AgentExecution(Mode):
    """Ask the model, check for people, run tools, and so on until the run is done."""

    def __init__(self) -> None:
        super().__init__(
            (
                check_stop,
                call_llm,
                check_pause,
                check_interrupts,
                execute_tools,
                propagate_state,
                check_tool_interrupts,
                check_until_tool,
                continue_or_finish,
            )
        )
