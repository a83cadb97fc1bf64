"""`AgentExecution`: the pipeline of an agent that talks to a model and runs tools."""

from __future__ import annotations

from understudy.modes.pipeline import Mode
from understudy.modes.steps.call_llm import call_llm
from understudy.modes.steps.check_interrupts import (
    check_interrupts,
    check_pause,
    check_tool_interrupts,
)
from understudy.modes.steps.check_stop import check_stop
from understudy.modes.steps.execute_tools import execute_tools, propagate_state
from understudy.modes.steps.finish import check_until_tool, continue_or_finish


class AgentExecution(Mode):
    """Ask the model, wait for decisions, run tools; again and again until the run is done."""

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


OWN_STEPS = AgentExecution().steps
"""Its steps. Between the steps of an application the records of a turn tell more: see
`AgentDefinition.has_plain_turns`."""
