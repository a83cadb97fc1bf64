"""Records of the ends of runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a run ends, as data: its outcome can be rebuilt from it."""

    outcome: Literal["completed", "failed", "stopped", "withdrawn"]
    text: str = ""
    tool_call: str | None = None
    """The key of the until tool's call that ended the run."""
    tool_arguments: dict[str, Any] | None = None
    """The arguments that this call ran with."""
    error: dict[str, Any] | None = None
    signals: dict[str, Any] | None = None
    """The signals that stopped the run."""
    early_stopped: bool = False
    """The run reached a limit, and the model answered with what it had."""
    output: Any = None
    """The final text as a value of the agent's `output_type`, as JSON."""
    has_output: bool = False
    """Whether there is an `output`, which may be None itself."""
    output_key: str | None = None
    """The key of the agent's values under which the output, or else the text, is put."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The run has ended. Calls of an open turn that did not run get a result that says so."""

    end: End
    at: datetime
    cut_off: bool = False
    """It was stopped because an agent beside it failed: where the workflow goes on, it does too."""
    closes_turn: bool = False
    """It ends the open turn, as by `TurnClosed`: nothing came between the two."""
    kind: Literal["run_ended"] = "run_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubRunEnded:
    """An agent of this workflow has ended: its messages and changes are now the workflow's."""

    child: str
    agent: str
    round: int
    index: int
    """The agent's index among the workflow's agents."""
    outcome: Literal["completed", "failed", "stopped"]
    escalated: bool = False
    """One of its tools asked to end the nearest loop."""
    passes_on: bool = False
    """This workflow is not a loop, so the escalation goes on to the workflow around it."""
    at: datetime
    kind: Literal["sub_run_ended"] = "sub_run_ended"
