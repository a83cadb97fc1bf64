"""`AgentCell`: what belongs to an agent's id and outlives its actor.

Its inbox, its subscribers, its status; and, while it is in memory, its state and the run that is
being driven. An actor that is restarted finds all of it here.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from understudy.actors.activation import Awake, Waiting
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
from understudy.actors.services import Home
from understudy.agent.agent import Agent
from understudy.agent.runner import Host
from understudy.errors import UnknownAgent
from understudy.loop_actors.future import refuse
from understudy.loop_actors.monitor import Down
from understudy.outcomes import Outcome
from understudy.state.agent_state import AgentState
from understudy.state.records import Record, Snapshot, StatusNoted

if TYPE_CHECKING:
    from understudy.loop_actors.ref import LoopActorRef

__all__ = ["AgentCell", "running_agents"]

logger = logging.getLogger(__name__)

running_agents: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar(
    "running_agents", default=()
)
"""The ids of the agents in whose runs this code runs, outermost first."""


class AgentCell:
    """Everything of one agent id but its actor."""

    __slots__ = (
        "__weakref__",
        "actor_ref",
        "agent",
        "awake",
        "changing",
        "deps",
        "home",
        "id",
        "inbox",
        "known_to_supervisor",
        "log",
        "on_progress",
        "status",
        "values",
        "waiting",
    )

    def __init__(
        self,
        id: str,
        agent: Agent | None,
        home: Home[AgentCell, Awake],
        *,
        deps: Any = None,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        self.id = id
        self.agent = agent
        """What it is; None until it is read back from the store."""
        self.home = home
        self.deps = deps
        self.values = values
        """What a new agent begins with."""
        self.inbox: list[AgentMessage] = []  # a deque takes 0.7 KB, though it is empty
        self.status = Status.PASSIVE
        self.log = EventLog(id, home.lock)
        self.awake: Awake | None = None
        self.waiting: Waiting | None = None
        """Who went on waiting when it lay down."""
        self.changing = 0
        """Its actor is about to be started, or it is being put away."""
        self.known_to_supervisor = False
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
        self.home.wake(self)

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

        loop, reading = self.home.loop, self.home.tasks
        try:
            loop.call_soon_threadsafe(begin)
        except RuntimeError:  # the runtime has stopped, and its loop with it
            came_before([])

    async def _told_before(self, after: int) -> list[AgentEvent]:
        loaded = await self.home.store.load(self.id, max(after, 0))
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
        assert self.awake is not None, "only asked for while it is awake"
        return self.awake.ledger.state

    def tell_fact(self, seq: int, record: Record) -> None:
        """A durable fact: tell subscribers, and whoever wants to know that it gets further."""
        if self.log.is_followed():
            assert self.agent is not None, "it is known from the first record on"
            self.log.tell_fact(seq, record, (self.agent.name,))
        if self.on_progress is not None and self.awake is not None:
            run = self.awake.state.run
            if run is None or run.over or run.fruitless == 0:
                self.on_progress.set()

    def set_status(self, status: Status, *, runs: int | None = None) -> None:
        """Change the status and tell it; what led to it is recorded before (A1).

        A status that came of a run is recorded itself; waking up and lying down are not.
        """
        if status is self.status and runs is None:
            return
        self.status = status
        awake = self.awake
        if awake is None or status is Status.PASSIVE or status.value == awake.state.status:
            self.log.tell(StatusChanged(status=status))
        else:
            awake.ledger.record(StatusNoted(status=status.value, runs=runs))

    def host(self) -> Host:
        """What surrounds the next drive."""
        deps = self.deps
        if deps is None and self.home.deps_for is not None:
            deps = self.home.deps_for(self.id)
        return self._host(deps)

    def host_to_go_on(self) -> Host:
        """What surrounds a run that goes on: what was given to it, or it stands still (J12)."""
        try:
            return self.host()
        except Exception:
            logger.exception("deps_for(%r) raised", self.id)
            return self._host(None)

    def _host(self, deps: Any) -> Host:
        home, awake = self.home, self.awake
        assert awake is not None, "only an agent that is awake is driven"
        return Host(
            deps=deps,
            clock=home.clock,
            new_id=home.new_id,
            emit=self.log.tell,
            streaming=self.log.is_followed,
            agent_id=self.id,
            halting=lambda: awake.halting,
            pause_requested=lambda: awake.pause_reason,
            threads=home.threads,
        )

    def ended(self, down: Down) -> None:
        """The actor has ended. By request it is passive; of a failure another one is started."""
        if down.reason is not None:
            return
        self.actor_ref = None
        awake = self.awake
        if awake is None or awake.task is None:
            self.fall_asleep()
        if self.inbox:  # while the runtime stops, they are told that it does
            self.home.wake(self)

    def fall_asleep(self) -> None:
        """Out of memory: all that was recorded is in the store."""
        awake, self.awake = self.awake, None
        if awake is not None:
            awake.ledger.lasts = False
        self.waiting = awake.bequeath() if awake is not None else None
        self.set_status(Status.PASSIVE)
        if self.on_progress is not None:
            self.on_progress.set()
        self.home.let_go(self, awake)

    def keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something in a task of its own, which the runtime waits for when it stops."""
        task = self.home.loop.create_task(work)
        self.home.tasks.add(task)
        task.add_done_callback(self.home.tasks.discard)
        return task

    def settle(self, outcome: Outcome) -> None:
        """Answer everybody who waits for the run."""
        awake = self.awake
        assert awake is not None, "only the run of an agent that is awake ends"
        waiters, awake.waiters = awake.waiters, ()
        for waiter in waiters:
            if not waiter.done():
                waiter.set(outcome)

    def refuse(self, error: BaseException) -> None:
        """Answer with an error whoever waits for the run that could not begin, or go on."""
        awake = self.awake
        waiters = awake.waiters if awake is not None else ()
        if awake is not None:
            awake.waiters = ()
        for waiter in waiters:
            refuse(waiter, error)

    def refuse_waiting(self, error: BaseException) -> None:
        """Answer with an error whoever waits for a run, now or later."""
        futures = self.awake.waiting_futures() if self.awake is not None else []
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
        if self.awake is not None:
            self.awake.rested(error)
        self.log.close()

    def forget(self) -> None:
        """The agent of this id is deleted; another one may begin under it."""
        self.agent = self.deps = self.values = None
        self.refuse_waiting(UnknownAgent(agent_id=self.id))
        log, self.log = self.log, EventLog(self.id, self.home.lock)
        log.close()
