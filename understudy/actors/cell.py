"""`AgentCell`: what belongs to an agent's id and outlives its actor.

The inbox, the ledger, the run that is being driven, who waits for it and who listens. An actor
that is restarted, or woken after it was passive, finds all of it here.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic_ai.messages import ModelRequest

from understudy.actors.agent_events import EventLog, RunFinished, Status, StatusChanged
from understudy.actors.future import Future
from understudy.actors.monitor import Down
from understudy.agent import Agent
from understudy.clock import Clock, NewId
from understudy.errors import Quarantined
from understudy.ledger import Ledger
from understudy.outcomes import Outcome
from understudy.runner import Host, RunOptions
from understudy.state import AgentState
from understudy.stopping import StopSignal
from understudy.threads import WorkerThreads

if TYPE_CHECKING:
    from understudy.actors.ref import LoopActorRef

__all__ = ["AgentCell", "Finished", "RunWanted", "running_agents"]

running_agents: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar(
    "running_agents", default=()
)
"""The ids of the agents in whose runs this code runs, outermost first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWanted:
    """Somebody wants a run and waits for its outcome."""

    message: ModelRequest | None
    """None where the message stands in the queue already."""
    options: RunOptions
    future: Future[Outcome]
    message_id: str
    refuse_if_interrupted: bool = False
    callers: tuple[str, ...] = ()
    """The agents in whose runs it was wanted: none of them can answer meanwhile."""
    named: bool = False
    """The caller gave the message id: a repeat attaches to this run (J14)."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A drive of the run is over: by an outcome, by the host's wish, or by a crash."""

    outcome: Outcome | None = None
    crash: BaseException | None = None


@dataclass(slots=True)
class AgentCell:
    """Everything of one agent id but its actor."""

    id: str
    agent: Agent
    clock: Clock
    new_id: NewId
    threads: WorkerThreads
    idle_timeout: float | None
    deps_for: Callable[[str], Any] | None
    deps: Any = None
    values: Mapping[str, Any] | None = None
    wake: Callable[[AgentCell], None] = field(repr=False, kw_only=True)
    """Has the actor look into the inbox, from any thread."""

    inbox: deque[Any] = field(default_factory=deque)
    status: Status = Status.PASSIVE
    resting: Status = Status.IDLE
    """The status it has whenever it is awake and runs nothing."""
    activating: bool = False
    activated: bool = False
    """Somebody has started its actor, and its supervisor keeps it."""
    actor_ref: LoopActorRef[Any] | None = None
    task: asyncio.Task[None] | None = None
    finished: Finished | None = None
    """A drive that ended and that no actor has looked at yet."""
    waiting: deque[tuple[RunWanted, tuple[str, ...]]] = field(default_factory=deque)
    """Runs that wait their turn, each with the messages that were queued before it (A2)."""
    waiters: list[Future[Outcome]] = field(default_factory=list)
    """Who waits for the outcome of the run that is going on."""
    pause_reason: str | None = None
    halting: bool = False
    quarantined: Quarantined | None = None
    """Why the run is not tried any more (J10)."""
    closing: bool = False
    """The runtime stops: no new drive begins."""
    early_cancel: StopSignal | None = None
    """A cancel that came before the run's first record (P7)."""
    asked: dict[str, Future[Outcome]] = field(default_factory=dict)
    """Runs that were wanted under an id of the caller's, by that id (J14)."""
    self_runs: int = 0
    rest_wanted: list[Future[bool]] = field(default_factory=list)
    """Who wants the agent to lie down after the step in progress."""
    ledger: Ledger = field(init=False)
    log: EventLog = field(init=False)

    def __post_init__(self) -> None:
        self.log = EventLog(self.id)
        self.ledger = Ledger(
            AgentState(values=self.values),
            agent_path=(self.agent.name,),
            listener=self.log.tell,
        )

    @property
    def state(self) -> AgentState:
        return self.ledger.state

    def post(self, message: Any) -> None:
        """Put a message into the inbox, from any thread."""
        self.inbox.append(message)
        self.wake(self)

    def set_status(self, status: Status) -> None:
        """Change the status and tell it; what led to it is recorded before (A1)."""
        if status is not self.status:
            self.status = status
            if status is not Status.PASSIVE:
                self.resting = status
            self.log.tell(StatusChanged(status=status))

    def host(self) -> Host:
        """What surrounds the next drive."""
        deps = self.deps
        if deps is None and self.deps_for is not None:
            deps = self.deps_for(self.id)
        return Host(
            deps=deps,
            clock=self.clock,
            new_id=self.new_id,
            emit=self.log.tell,
            streaming=self.log.is_followed,
            agent_id=self.id,
            halting=lambda: self.halting,
            pause_requested=lambda: self.pause_reason,
            threads=self.threads,
        )

    def ended(self, down: Down) -> None:
        """The actor has ended. By request it is passive; of a failure another one is started."""
        if down.reason is None:
            self.actor_ref = None
            if self.task is None:
                self.set_status(Status.PASSIVE)
            self.rested(done=True)
            if self.inbox and not self.closing:
                self.wake(self)

    def settle(self, outcome: Outcome) -> None:
        """Answer everybody who waits for the run."""
        self.log.tell(RunFinished(outcome=outcome))
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter.set(outcome)

    def refuse(self, error: BaseException) -> None:
        """Answer with an error whoever waits for the run that could not begin."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter.set_exception((type(error), error, error.__traceback__))

    def abandon(self, error: BaseException) -> None:
        """Answer everybody with an error: the runtime is gone."""
        self.waiters += [wanted.future for wanted, _ in self.waiting]
        self.waiters += [message.future for message in self.inbox]
        self.waiting.clear()
        self.inbox.clear()
        self.refuse(error)
        self.rested(done=True)
        self.log.close()

    def rested(self, *, done: bool) -> None:
        """Answer whoever wanted the agent to rest."""
        futures, self.rest_wanted = self.rest_wanted, []
        for future in futures:
            future.set(done)
