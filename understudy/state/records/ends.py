"""Records of the ends of runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The end of a run, as data. The outcome of the run can be rebuilt from it."""

    outcome: Literal["completed", "failed", "stopped", "withdrawn"]
    text: str = ""
    tool_call: str | None = None
    """The key of the until tool's call that ended the run; None if no call ended it."""
    tool_arguments: dict[str, Any] | None = None
    """The arguments with which this call ran."""
    error: dict[str, Any] | None = None
    signals: dict[str, Any] | None = None
    """The signals that stopped the run."""
    early_stopped: bool = False
    """Whether the run reached a limit, and the model then answered with what it had."""
    output: Any = None
    """The final text as a value of the agent's `output_type`, as JSON."""
    has_output: bool = False
    """Whether there is an `output`. The output itself may be None."""
    output_key: str | None = None
    """The key in the agent's values for the output, or for the text if there is no output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The record that the run has ended.

    Calls of an open turn that did not run get a result that says so.
    """

    end: End
    at: datetime
    cut_off: bool = False
    """Whether the run was stopped because another agent of the workflow failed.

    If the workflow continues, this run continues too.
    """
    closes_turn: bool = False
    """Whether it also ends the open turn, as `TurnClosed` does, because nothing came between the
    two."""
    status: str | None = None
    """The agent's new status; None if the end does not change it, because the next run of the queue
    follows at once, for instance."""
    kind: Literal["run_ended"] = "run_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubRunEnded:
    """The record that an agent of this workflow has ended.

    Its messages and changes are the workflow's from now on.
    """

    child: str
    agent: str
    round: int
    index: int
    """The agent's index among the workflow's agents."""
    outcome: Literal["completed", "failed", "stopped"]
    escalated: bool = False
    """Whether a tool of the agent asked to end the nearest loop."""
    passes_on: bool = False
    """Whether the escalation goes to the workflow around this one, because this one is not a
    loop."""
    at: datetime
    kind: Literal["sub_run_ended"] = "sub_run_ended"
