"""`RunEnvironment`: what a caller gives to one attempt at a run, and to the runs inside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from understudy._base.clock import Clock, NewId, SystemClock, new_random_id
from understudy._base.context_codecs import NO_CODECS, ContextCodecs
from understudy._base.worker_threads import WorkerThreads
from understudy.errors import UsageError
from understudy.events import Event
from understudy.interrupts import DOUBT_ENDS
from understudy.journal import Journal
from understudy.models.prices import Prices
from understudy.run.cancellation import CancellationSource
from understudy.run.definition import PauseWhen
from understudy.run.instrument import Instrument
from understudy.state.agent_state import AgentState
from understudy.state.plans import PauseAsked
from understudy.state.records import End
from understudy.tools.shared_resources import SharedResources
from understudy.tools.tool_defaults import NO_DEFAULTS, ToolDefaults
from understudy.trust.trust import NO_TRUST, Trust

if TYPE_CHECKING:
    from understudy.run.background import BackgroundCalls

_THREADS = WorkerThreads()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnvironment:
    """What a caller gives to one attempt at a run. None of it is stored."""

    deps: Any = None
    pause_when: PauseWhen | None = None
    clock: Clock = field(default_factory=SystemClock)
    new_id: NewId = new_random_id
    journal: Journal | None = None
    emit: Callable[[Event], None] | None = None
    """A function that is called with each event."""
    streaming: Callable[[], bool] | None = None
    """Whether replies are streamed now; by default they are if there is an `emit`."""
    agent_id: str | None = None
    """The id of the actor that runs the agent; None without an actor: then the agent's name is its
    id."""
    is_to_end_attempt: Callable[[], bool] | None = None
    """A function that is called before each step: True ends this attempt, not the run."""
    pause_requested: Callable[[], PauseAsked | None] | None = None
    """A function that is called after each reply: what it returns pauses the run."""
    status_after: Callable[[End], str | None] | None = None
    """A function that gives the agent's status after the end of its run, or None if the next run
    follows at once. The field is None without an actor: only an actor has a status."""
    by: str | None = None
    """The person who has the run recovered by this attempt; None if nobody is named."""
    abandon_later: Callable[[], asyncio.Task[None]] | None = None
    """A function that is called when cancelled code of the attempt is waited for. Unless the task
    that it returns is cancelled in time, the runtime gives the attempt up. None if the attempt runs
    in a task of the caller, which waits as long as that code continues.
    """
    threads: WorkerThreads = _THREADS
    """The threads of plain tools and hooks; by default a pool that the process shares."""
    shared: SharedResources = field(default_factory=SharedResources)
    """The resources that the tools have opened; the owner closes them."""
    cancellation: tuple[CancellationSource, ...] = ()
    """The sources that may cancel the run, in addition to those of the agent's middleware."""
    codecs: ContextCodecs = NO_CODECS
    """The codecs that apply the context of a run to its code."""
    instrument: Instrument[Any] | None = None
    """The instrument that watches the run."""
    prices: Prices | None = None
    """The prices of replies; None if only the definition has prices."""
    tool_defaults: ToolDefaults = NO_DEFAULTS
    """The defaults for tools, if neither the tools nor their agents say something else."""
    trust: Trust = NO_TRUST
    """The people who may vote, and the rules for the calls of all agents."""
    background: Callable[[], BackgroundCalls] | None = None
    """A function that gives the maker of background calls; None without a runtime."""
    doubt_ends: float | None = DOUBT_ENDS
    """Seconds after which a doubt ends that nobody is asked about; None = never.

    A run keeps the value that it began with."""

    def status_in_run(self, state: AgentState) -> str | None:
        """The status that a record of its open run gives the agent; None if it has the status."""
        is_noted = self.status_after is None or state.status == "running"
        return None if is_noted else "running"

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
