"""What a caller gives to a run: to one attempt at it, and what is recorded when it begins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypedDict, Unpack

from understudy._base.clock import Clock, NewId, SystemClock, new_random_id
from understudy._base.context_codecs import NO_CODECS, ContextCodecs
from understudy._base.points_in_time import checked_clock
from understudy._base.type_variables import DepsT
from understudy._base.worker_threads import WorkerThreads
from understudy.errors import UsageError
from understudy.events import Event
from understudy.interrupts import DOUBT_ENDS
from understudy.journal import Journal
from understudy.models.prices import Prices
from understudy.run.cancellation import CancellationSource, as_sources
from understudy.run.definition import PauseWhen
from understudy.run.instrument import GivesInstrument, Instrument, instrument_of
from understudy.run.run import Run
from understudy.tools.effect_defaults import NO_DEFAULTS, EffectDefaults
from understudy.tools.shared_resources import SharedResources


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnvironment:
    """What a caller gives to one attempt at a run. None of it is stored."""

    deps: Any = None
    pause_when: PauseWhen | None = None
    clock: Clock = field(default_factory=SystemClock)
    new_id: NewId = new_random_id
    journal: Journal | None = None
    emit: Callable[[Event], None] | None = None
    """Called with each event."""
    streaming: Callable[[], bool] | None = None
    """Whether replies are streamed now; by default they are if there is an `emit`."""
    agent_id: str | None = None
    """The id of the actor that runs the agent; None without one: then it is the agent's name."""
    is_to_end_attempt: Callable[[], bool] | None = None
    """Called before each step: True ends this attempt, and leaves the run open."""
    pause_requested: Callable[[], str | None] | None = None
    """Called after each reply: a reason pauses the run."""
    abandon_later: Callable[[], asyncio.Task[None]] | None = None
    """As `Run.abandon_later`; None without a runtime."""
    threads: WorkerThreads | None = None
    """Where plain tools and hooks run; by default a pool that the whole process shares."""
    shared: SharedResources = field(default_factory=SharedResources)
    """What its tools have opened; closed by its owner."""
    cancellation: tuple[CancellationSource, ...] = ()
    """Called before each step, in addition to those of the agent's middleware."""
    codecs: ContextCodecs = NO_CODECS
    """By which the context of a run holds for its code."""
    instrument: Instrument[Run] | None = None
    """What watches the run."""
    prices: Prices | None = None
    """By which replies are priced; None where only what the definition wants is."""
    effect_defaults: EffectDefaults = NO_DEFAULTS
    """What the runtime says of tools and agents that do not say it themselves."""
    doubt_ends: float | None = DOUBT_ENDS
    """Seconds after which a doubt of a run ends of which only the model was notified; None: never.
    A run has the value from its beginning."""

    @classmethod
    def of(cls, **options: Unpack[EnvironmentOptions]) -> RunEnvironment:
        """The environment that these options of `execute` or `resume` describe."""
        return cls(
            deps=options.get("deps"),
            pause_when=options.get("pause_when"),
            clock=checked_clock(options.get("clock"), what="`clock`") or SystemClock(),
            new_id=options.get("new_id") or new_random_id,
            journal=options.get("journal"),
            emit=options.get("on_event"),
            cancellation=as_sources(options.get("cancellation")),
            instrument=instrument_of(options.get("telemetry")),
        )

    def __post_init__(self) -> None:
        for what, function in (
            ("pause_when", self.pause_when),
            ("new_id", self.new_id),
            ("on_event", self.emit),
        ):
            if function is not None and not callable(function):
                raise UsageError(f"`{what}` must be a function, got {function!r}")
        if self.journal is not None:
            _check_methods("journal", self.journal, "append", "durable")


def _check_methods(what: str, given: object, *methods: str) -> None:
    for method in methods:
        if not callable(getattr(given, method, None)):
            raise UsageError(f"`{what}` must have a method {method}(), got {given!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options that are recorded when a run begins."""

    until_tool: tuple[str, ...] | None = None
    require_tool_success: bool = False
    force: bool = False
    """The model must call the until tool."""
    max_runs: int = 50
    deadline: float | None = None
    early_stopping_prompt: str | None = None
    """Instead of the agent's own; None for that."""
    ends_at: datetime | None = None
