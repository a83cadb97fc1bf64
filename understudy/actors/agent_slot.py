"""`AgentSlot`: what belongs to an agent's id and outlives its actor.

Its inbox, its subscribers, its status; and, while it is in memory, its state and the run that is
being driven. An actor that is restarted finds all of it here.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from understudy.actors.activation import Activation, DetachedWaiters
from understudy.actors.agent_events import (
    AgentEvent,
    CameBefore,
    EventLog,
    Status,
    StatusChanged,
    Subscription,
    told_by,
)
from understudy.actors.messages import AgentMessage
from understudy.actors.services import RuntimeServices
from understudy.agent.agent import Agent
from understudy.agent.runner import RunEnvironment
from understudy.errors import UnknownAgent
from understudy.loop_actors.future import refuse
from understudy.loop_actors.monitor import Down
from understudy.outcomes import Outcome
from understudy.state.agent_state import AgentState
from understudy.state.records import Record, Snapshot, StatusNoted

if TYPE_CHECKING:
    from understudy.loop_actors.ref import LoopActorRef

__all__ = ["AgentSlot", "running_agents"]

logger = logging.getLogger(__name__)

running_agents: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar(
    "running_agents", default=()
)
"""The ids of the agents in whose runs this code runs, outermost first."""


class AgentSlot:
    """Everything of one agent id but its actor."""

    __slots__ = (
        "__weakref__",
        "activation",
        "actor_ref",
        "agent",
        "changing",
        "deps",
        "id",
        "inbox",
        "is_supervised",
        "log",
        "on_progress",
        "services",
        "status",
        "values",
        "waiting",
    )

    def __init__(
        self,
        id: str,
        agent: Agent | None,
        services: RuntimeServices[AgentSlot, Activation],
        *,
        deps: Any = None,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        self.id = id
        self.agent = agent
        """What it is; None until it is read back from the store."""
        self.services = services
        self.deps = deps
        self.values = values
        """What a new agent begins with."""
        self.inbox: list[AgentMessage] = []  # a deque takes 0.7 KB, though it is empty
        self.status = Status.PASSIVE
        self.log = EventLog(id, services.lock)
        self.activation: Activation | None = None
        self.waiting: DetachedWaiters | None = None
        """Who went on waiting when it lay down."""
        self.changing = 0
        """Its actor is about to be started, or it is being put away."""
        self.is_supervised = False
        self.actor_ref: LoopActorRef[Any] | None = None
        self.on_progress: asyncio.Event | None = None
        """Set when it gets further, or ends: for whoever recovers it."""

    def __repr__(self) -> str:
        what = f" of agent {self.agent.name!r}" if self.agent is not None else ""
        return f"<agent {self.id!r}{what}, {self.status.value}>"

    # ------------------------------------------------------------------- from any thread

    def post(self, message: AgentMessage) -> None:
        """Put a message into the inbox."""
        self.inbox.append(message)
        self.services.wake(self)

    def subscribe(self, after: int) -> Subscription:
        """Its events after a number, then those to come."""
        return self.log.subscribe(after, self._read_back, keeps=self)

    def _read_back(self, after: int, came_before: CameBefore) -> None:
        async def read() -> None:
            try:
                came_before(await self._told_before(after))
            except Exception as error:  # the subscriber's to know
                came_before(error)

        def begin() -> None:
            task = loop.create_task(read(), name=f"events of {self.id}")
            reading.add(task)
            task.add_done_callback(reading.discard)

        loop, reading = self.services.loop, self.services.tasks
        try:
            loop.call_soon_threadsafe(begin)
        except RuntimeError:  # the runtime has stopped, and its loop with it
            came_before([])

    async def _told_before(self, after: int) -> list[AgentEvent]:
        loaded = await self.services.store.load(self.id, max(after, 0))
        if loaded is None:
            return []
        path = (loaded.agent.agent,)
        numbered = enumerate(loaded.records, loaded.first_seq)
        known = after > 0 and loaded.agent.floor <= after
        if known and loaded.records and isinstance(loaded.records[0], Snapshot):
            next(numbered)  # whoever asks has read all that it stands for: no gap (J17)
        return [told for seq, record in numbered for told in told_by(seq, record, self.id, path)]

    # ------------------------------------------------------------------- on the loop

    @property
    def state(self) -> AgentState:
        assert self.activation is not None, "only asked for while it is awake"
        return self.activation.ledger.state

    def tell_fact(self, seq: int, record: Record) -> None:
        """A durable fact: tell subscribers, and whoever wants to know that it gets further."""
        if self.log.is_followed():
            assert self.agent is not None, "it is known from the first record on"
            self.log.tell_fact(seq, record, (self.agent.name,))
        if self.on_progress is not None and self.activation is not None:
            run = self.activation.state.run
            if run is None or run.over or run.fruitless == 0:
                self.on_progress.set()

    def set_status(self, status: Status, *, runs: int | None = None) -> None:
        """Change the status and tell it; what led to it is recorded before (A1).

        A status that came of a run is recorded itself; waking up and lying down are not.
        """
        if status is self.status and runs is None:
            return
        self.status = status
        activation = self.activation
        if (
            activation is None
            or status is Status.PASSIVE
            or status.value == activation.state.status
        ):
            self.log.tell(StatusChanged(status=status))
        else:
            activation.ledger.record(StatusNoted(status=status.value, runs=runs))

    def environment(self) -> RunEnvironment:
        """What surrounds the next drive."""
        deps = self.deps
        if deps is None and self.services.deps_for is not None:
            deps = self.services.deps_for(self.id)
        return self._environment(deps)

    def environment_to_continue(self) -> RunEnvironment:
        """What surrounds a run that goes on: what was given to it, or it stands still (J12)."""
        try:
            return self.environment()
        except Exception:
            logger.exception("deps_for(%r) raised", self.id)
            return self._environment(None)

    def _environment(self, deps: Any) -> RunEnvironment:
        services, activation = self.services, self.activation
        assert activation is not None, "only an agent that is awake is driven"
        return RunEnvironment(
            deps=deps,
            clock=services.clock,
            new_id=services.new_id,
            emit=self.log.tell,
            streaming=self.log.is_followed,
            agent_id=self.id,
            halting=lambda: activation.halting,
            pause_requested=lambda: activation.pause_reason,
            threads=services.threads,
        )

    def ended(self, down: Down) -> None:
        """The actor has ended. By request it is passive; of a failure another one is started."""
        if down.reason is not None:
            return
        self.actor_ref = None
        activation = self.activation
        if activation is None or activation.task is None:
            self.passivate()
        if self.inbox:  # while the runtime stops, they are told that it does
            self.services.wake(self)

    def passivate(self) -> None:
        """Out of memory: all that was recorded is in the store."""
        activation, self.activation = self.activation, None
        if activation is not None:
            activation.ledger.outlives_run = False
        self.waiting = activation.detach_waiters() if activation is not None else None
        self.set_status(Status.PASSIVE)
        if self.on_progress is not None:
            self.on_progress.set()
        self.services.passivated(self, activation)

    def keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something in a task of its own, which the runtime waits for when it stops."""
        task = self.services.loop.create_task(work)
        self.services.tasks.add(task)
        task.add_done_callback(self.services.tasks.discard)
        return task

    def settle(self, outcome: Outcome) -> None:
        """Answer everybody who waits for the run."""
        activation = self.activation
        assert activation is not None, "only the run of an agent that is awake ends"
        outcome_futures, activation.outcome_futures = activation.outcome_futures, ()
        for waiter in outcome_futures:
            if not waiter.done():
                waiter.set(outcome)

    def refuse(self, error: BaseException) -> None:
        """Answer with an error whoever waits for the run that could not begin, or go on."""
        activation = self.activation
        outcome_futures = activation.outcome_futures if activation is not None else ()
        if activation is not None:
            activation.outcome_futures = ()
        for waiter in outcome_futures:
            refuse(waiter, error)

    def refuse_waiting(self, error: BaseException) -> None:
        """Answer with an error whoever waits for a run, now or later."""
        futures = self.activation.take_futures() if self.activation is not None else []
        if self.waiting is not None:
            futures += self.waiting.futures
            self.waiting = None
        for future in futures:
            refuse(future, error)

    def refuse_all(self, error: BaseException) -> None:
        """Answer everybody with an error, also those whose message nobody has looked at."""
        while self.inbox:  # the list stays: another thread may be about to put something into it
            refuse(self.inbox.pop(0).future, error)
        self.refuse_waiting(error)

    def abandon(self, error: BaseException) -> None:
        """Answer everybody with an error: the runtime is gone."""
        self.refuse_all(error)
        if self.activation is not None:
            self.activation.passivated(error)
        self.log.close()

    def forget(self) -> None:
        """The agent of this id is deleted; another one may begin under it."""
        self.agent = self.deps = self.values = None
        self.refuse_waiting(UnknownAgent(agent_id=self.id))
        log, self.log = self.log, EventLog(self.id, self.services.lock)
        log.close()
