"""The options of a run: the options of one attempt, and the options that are recorded when it
begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypedDict, Unpack

from understudy._base.clock import Clock, NewId, SystemClock, new_random_id
from understudy._base.points_in_time import checked_clock
from understudy._base.type_variables import DepsT
from understudy.events import Event
from understudy.journal import Journal
from understudy.run.cancellation import CancellationSource, as_sources
from understudy.run.definition import PauseWhen
from understudy.run.environment import RunEnvironment
from understudy.run.instrument import GivesInstrument, instrument_of


class EnvironmentOptions(TypedDict, Generic[DepsT], total=False):
    """The options that `Agent.execute` and `Agent.resume` have in common; none is stored."""

    deps: DepsT | None
    pause_when: PauseWhen | None
    clock: Clock | None
    new_id: NewId | None
    journal: Journal | None
    on_event: Callable[[Event], None] | None
    cancellation: CancellationSource | Sequence[CancellationSource] | None
    telemetry: GivesInstrument | None


def environment_of(**options: Unpack[EnvironmentOptions]) -> RunEnvironment:
    """The environment that these options of `execute` or `resume` describe."""
    return RunEnvironment(
        deps=options.get("deps"),
        pause_when=options.get("pause_when"),
        clock=checked_clock(options.get("clock"), what="`clock`") or SystemClock(),
        new_id=options.get("new_id") or new_random_id,
        journal=options.get("journal"),
        emit=options.get("on_event"),
        cancellation=as_sources(options.get("cancellation")),
        instrument=instrument_of(options.get("telemetry")),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options that are recorded when a run begins."""

    until_tool: tuple[str, ...] | None = None
    require_tool_success: bool = False
    force: bool = False
    """Whether the model must call the until tool."""
    max_runs: int = 50
    deadline: float | None = None
    early_stopping_prompt: str | None = None
    """The prompt for an early stop; None = the agent's own."""
    ends_at: datetime | None = None
