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
    """The default mode: it asks the model, waits for decisions and runs tools until the run is
    done.

    Its steps, in order:

    - `check_stop` calls `before_step`. It ends the run at a signal or at `max_runs`.
    - `call_llm` asks the model, if no turn is open.
    - `check_pause` asks `pause_when`, once after each reply and before its tools.
    - `check_interrupts` interrupts the run if a call of the reply needs a person.
    - `execute_tools` runs the calls that have no result yet. A call that was started before is in
      doubt, unless it is idempotent or read-only.
    - `propagate_state` adds the results to the conversation, and merges the changed values.
    - `check_tool_interrupts` interrupts the run if a tool asked a question of its own.
    - `check_until_tool` ends the run if an until tool has a result that counts.
    - `continue_or_finish` calls `after_step`, and obeys signals. After tool calls it starts the
      next turn. After a reply without tool calls it finishes the run.

    A step of this list is not called if it has nothing to do. A step of your own is called each
    time.
    """

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
"""The steps of the default mode. A mode with steps of an application records more of a turn: see
`AgentDefinition.has_plain_turns`."""
