"""`RuntimeServices`: what all agents of a runtime share."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from understudy._base import forks
from understudy._base.clock import Clock, NewId
from understudy._base.context_codecs import ContextCodec, ContextCodecs
from understudy._base.json_values import shown
from understudy._base.worker_threads import WorkerThreads
from understudy.actors.agent.abandoned_tasks import AbandonedTasks
from understudy.actors.agent.factory import AgentFactory, MadeAtActivation
from understudy.actors.agent.histories import Histories
from understudy.actors.agent.placement import Placement
from understudy.actors.presence import Presence
from understudy.agent.agent import Agent
from understudy.errors import UsageError
from understudy.journal import Owned, Store
from understudy.journal.shared_store import SharedStore
from understudy.loop_actors.future import Future
from understudy.run.account import BudgetKeeper
from understudy.run.environment import RunEnvironment
from understudy.run.instrument import GivesInstrument, Instrument
from understudy.run.run import Run
from understudy.state.agent_state import AgentState

S = TypeVar("S")
A = TypeVar("A")
T = TypeVar("T")
S_contra = TypeVar("S_contra", contravariant=True)


StartTask = Callable[..., asyncio.Task[Any]]
"""A function that starts a task of a coroutine, with a name. When the runtime stops, it waits for
the task, or cancels it."""


class Looks(ABC, Generic[S]):
    """The interface that answers looks from the store; see `reads.stored_queries.StoredQueries`."""

    @abstractmethod
    def answer(self, slot: S, message: Any, here: Future[Any] | None = None) -> None: ...

    @abstractmethod
    def follow_waiters(self, slot: S, state: AgentState, owned: Owned) -> None: ...

    @abstractmethod
    def follow_events(self, slot: S) -> None: ...

    @abstractmethod
    async def info(self, slot: S) -> Any: ...

    @abstractmethod
    async def outcome_of(self, slot: S, look: Any) -> Any: ...

    @abstractmethod
    async def state_at(self, agent_id: str, run_id: str, at: int, status: str) -> AgentState: ...

    @abstractmethod
    def look_again(self, agent_id: str | None = None) -> None: ...

    @abstractmethod
    def looking(self, agent_id: str) -> AbstractContextManager[Any]: ...


class Calls(ABC, Generic[S]):
    """The interface that has calls done by the host that can; see `hosts.outgoing.Outgoing`."""

    @abstractmethod
    def call(self, slot: S, message: Any) -> None: ...

    @abstractmethod
    async def claimed(self, slot: S) -> None: ...

    @abstractmethod
    def answered(self, slot: S) -> None: ...

    @abstractmethod
    def call_elsewhere(self, slot: S, message: Any) -> None: ...

    @abstractmethod
    def asked(self, slot: S, message_id: str) -> Future[Any] | None: ...


class Live(ABC):
    """The interface that passes unrecorded events to hosts; see `hosts.live_events.LiveEvents`."""

    @abstractmethod
    def follow(self, agent_id: str, epoch: int | None = None) -> None: ...


class RuntimeTelemetry(GivesInstrument):
    """Measures a runtime; see `understudy.telemetry.Telemetry`. No method raises or blocks."""

    @property
    @abstractmethod
    def codec(self) -> ContextCodec:
        """The codec that carries the caller's span to the run of its message."""

    @abstractmethod
    def watch(self, services: RuntimeServices[Any, Any]) -> Instrument[Run] | None:
        """Measure a runtime that opens. Returns what watches its runs; None if nothing listens."""

    @abstractmethod
    def leave(self, services: RuntimeServices[Any, Any]) -> None:
        """Measure a runtime no more, because it closes."""


@dataclass(slots=True, eq=False)
class RuntimeServices(Generic[S, A]):
    """What all agents of a runtime share, and what they ask of the runtime.

    `S` is an agent's slot and `A` its activation. Both use these services, so they are parameters
    here: an import of their modules would be a circle.
    """

    abandoned: AbandonedTasks
    """The tasks that were cancelled and go on."""
    store: Store
    idle_timeout: float | None
    """The seconds after which an idle agent is passivated; None = never."""
    deps_for: Callable[[str], Any] | None
    runs: RunEnvironment
    """The environment of all runs: what they have that is not of one agent."""
    placement: Placement
    """The placement, which says which agents this runtime may run."""
    definition: Callable[[str], Agent | MadeAtActivation]
    """Finds the agent definition of a name; raises a `UsageError` that lists the known names."""
    factory: AgentFactory | None
    """Makes the definitions of names that are not declared."""
    check_inbox: Callable[[S], None]
    """Has an agent's actor look at its inbox, and activates the agent if need be. Thread-safe."""
    release: Callable[[S, A | None], None]
    """Gives an agent back to the store once its actor has stopped. Called on the loop.

    It gets the activation that ended; None where the agent could not be read.
    """
    settle_definition: Callable[[S, Agent | None], None]
    """Sets the definition of an agent to the one that the store names. See `Directory`."""
    ref_of: Callable[[S], Any]
    """Makes the ref of an agent."""
    tell_due: Callable[[str, datetime | None], None]
    """Tells the due clock, by the agent's id, when an agent is due next. Called on the loop."""
    loop: asyncio.AbstractEventLoop
    budgets: BudgetKeeper | None = None
    """The budgets of all agents; None where the runtime has none."""
    clock: Clock = field(init=False)
    new_id: NewId = field(init=False)
    threads: WorkerThreads = field(init=False)
    codecs: ContextCodecs = field(init=False)
    shared_store: SharedStore | None = field(init=False)
    """The part of the store that hosts share; None if the store is for one host."""
    histories: Histories = field(init=False)
    """The histories of all agents of the store, in pages."""
    host: str | None = field(init=False)
    """The name of this runtime in the store's index; None where it needs none."""
    looks: Looks[S] = field(init=False)
    """Answers looks at agents that are not in memory. Set when the runtime opens."""
    calls: Calls[S] | None = None
    """Has calls done by whichever host can do them. None where the store is for one host."""
    instrument: Instrument[Run] | None = None
    """The instrument that watches the runs. Set when the runtime opens."""
    presence: Presence = field(default_factory=Presence)
    """The people who look at requests now."""
    live: Live | None = None
    """Brings unrecorded events of other hosts. None where the store is for one host."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """The lock that guards the lists of subscriptions."""
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    """The tasks that the runtime waits for when it stops, besides run tasks."""
    telling: set[asyncio.Task[Any]] = field(default_factory=set)
    """The tasks among `tasks` that tell hooks what has happened: the runtime lets them end."""
    forks: int = field(default_factory=lambda: forks.count)
    """The count of forks before the loop ran. A forked child has no thread that runs the loop."""
    closing: bool = False
    """Whether the runtime is stopping: then no new run task begins."""

    def __post_init__(self) -> None:
        runs = self.runs
        self.clock, self.new_id = runs.clock, runs.new_id
        self.threads, self.codecs = runs.threads, runs.codecs
        self.shared_store, self.host = self.store.shared, self.store.host
        self.histories = Histories(self.store)

    def start_task(self, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Run a coroutine in a task of its own, which the runtime waits for when it stops."""
        task = self.loop.create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task


def checked_runtime_telemetry(given: object) -> RuntimeTelemetry | None:
    """The `telemetry` argument of `Runtime`, checked.

    Raises:
        UsageError: if it is something else.

    """
    if given is None or (isinstance(given, RuntimeTelemetry) and not isinstance(given, type)):
        return given
    raise UsageError(f"`telemetry` must be a Telemetry of understudy.telemetry, got {shown(given)}")


def codecs_with(
    telemetry: RuntimeTelemetry | None, context: Iterable[ContextCodec]
) -> ContextCodecs:
    """The given codecs, and the telemetry's codec unless a codec of its name is given.

    Raises:
        UsageError: as of `ContextCodecs`.

    """
    codecs = ContextCodecs(given := context if telemetry is None else list(context))
    if telemetry is None or codecs.knows(telemetry.codec.name):
        return codecs
    return ContextCodecs([telemetry.codec, *given])
