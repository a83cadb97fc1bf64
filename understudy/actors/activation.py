"""`Activation`: what an agent has while it is in memory, and how it is read from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from understudy.actors.messages import RunRequest
from understudy.actors.services import RuntimeServices
from understudy.agent.agent import Agent
from understudy.errors import OtherAgent, StoreDamaged, UnderstudyError, UnknownAgent
from understudy.events import Event
from understudy.journal import IndexStatus, Loaded, Owned, OwnedJournal, index_status_of
from understudy.loop_actors.future import Future, refuse
from understudy.outcomes import Outcome
from understudy.run.ledger import FactListener, Ledger
from understudy.state.agent_state import AgentState
from understudy.state.fold import replay
from understudy.state.records import AgentCreated
from understudy.stopping import StopSignal

__all__ = ["Activation", "DetachedWaiters", "RunTaskResult", "activate", "folded"]


@dataclass(frozen=True, slots=True)
class RunTaskResult:
    """A drive of the run is over: by an outcome, by the host's wish, or by a crash."""

    outcome: Outcome | None = None
    crash: BaseException | None = None


@dataclass(frozen=True, slots=True)
class DetachedWaiters:
    """Who waits for runs of an agent, and goes on waiting while it lies passive."""

    outcome_futures: tuple[Future[Any], ...]
    waiting: list[tuple[RunRequest, tuple[str, ...]]]
    asked: dict[str, Future[Outcome]] | None

    @property
    def futures(self) -> list[Future[Any]]:
        return [*self.outcome_futures, *(wanted.future for wanted, _ in self.waiting)]


class Activation:
    """An agent in memory: its definition, its state, the run that is being driven."""

    __slots__ = (
        "agent",
        "asked",
        "compact_futures",
        "delete_futures",
        "early_cancel",
        "finished",
        "halting",
        "is_beginning",
        "journal",
        "ledger",
        "outcome_futures",
        "passivate_futures",
        "pause_reason",
        "self_runs",
        "task",
        "told",
        "waiting",
    )

    ledger: Ledger
    journal: OwnedJournal

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.task: asyncio.Task[None] | None = None
        self.finished: RunTaskResult | None = None
        """A drive that ended and that no actor has looked at yet."""
        self.waiting: list[tuple[RunRequest, tuple[str, ...]]] = []  # a deque takes 0.7 KB
        """Runs that wait their turn, each with the messages that were queued before it (A2)."""
        self.outcome_futures: tuple[Future[Any], ...] = ()
        """Who waits for the outcome of the run that is going on."""
        self.asked: dict[str, Future[Outcome]] | None = None
        """Runs that were wanted under an id of the caller's, by that id (J14)."""
        self.passivate_futures: tuple[Future[bool], ...] = ()
        """Who wants the agent to lie down after the step in progress."""
        self.compact_futures: tuple[Future[None], ...] = ()
        """Who wants its records replaced by a snapshot, when it has lain down."""
        self.delete_futures: tuple[Future[bool], ...] = ()
        """Who wants it deleted, when it has lain down."""
        self.told: tuple[asyncio.Task[None], ...] = ()
        """Messages that its middleware is handling (A7): it does not lie down before they are."""
        self.pause_reason: str | None = None
        self.halting = False
        self.is_beginning = False
        """The drive that goes on has yet to record that its run begins."""
        self.early_cancel: StopSignal | None = None
        """A cancel that came before the run's first record (P7)."""
        self.self_runs = 0

    @property
    def state(self) -> AgentState:
        return self.ledger.state

    def index_status(self) -> IndexStatus:
        """How it stands, for the index of the store."""
        return index_status_of(self.ledger.state)

    def on_durable(self, seq: int) -> None:
        """Its facts up to this number are durable."""
        self.ledger.tell_until(seq)

    def wait_turn(self, wanted: RunRequest) -> None:
        """Somebody wants a run after those that are wanted already."""
        self.waiting.append((wanted, tuple(self.state.queue)))

    def attach_waiters(self, before: DetachedWaiters) -> None:
        """Who waited when the agent lay down waits on."""
        self.outcome_futures, self.waiting, self.asked = (
            before.outcome_futures,
            before.waiting,
            before.asked,
        )

    def detach_waiters(self) -> DetachedWaiters | None:
        """Who waits on while the agent lies passive, if anybody does."""
        if not self.outcome_futures and not self.waiting:
            return None
        return DetachedWaiters(self.outcome_futures, self.waiting, self.asked)

    def passivated(self, error: BaseException | None = None) -> None:
        """It is put away, and compacted where that was wanted; or not, for this reason."""
        for future in self.passivate_futures:
            future.set(True)
        for done in self.compact_futures:
            if error is None:
                done.set(None)
            else:
                refuse(done, error)
        for deleted in self.delete_futures:
            refuse(deleted, error or UnknownAgent(agent_id=self.journal.owned.agent_id))
        self.passivate_futures = self.compact_futures = self.delete_futures = ()

    def take_futures(self) -> list[Future[Any]]:
        """Everybody who waits for a run, now or later; they are handed over."""
        futures = [*self.outcome_futures, *(wanted.future for wanted, _ in self.waiting)]
        self.outcome_futures, self.waiting = (), []
        return futures


async def activate(
    agent_id: str,
    agent: Agent | None,
    services: RuntimeServices[Any, Any],
    *,
    values: Mapping[str, Any] | None,
    listener: Callable[[Event], None],
    on_fact: FactListener,
) -> Activation:
    """Read an agent back from the store and become its owner; or begin it.

    Nothing is touched where its definition is not known.

    Args:
        agent: what it is to be; None for what it is.
        values: what a new agent begins with.
        listener, on_fact: told what happens.

    Raises:
        UnknownAgent: if there is none of this id, and `agent` is None.
        OtherAgent: if it is another agent than this one.
        UsageError: if its definition is not known here.
        OwnedElsewhere: if another runtime has it.
        StoreError: if it cannot be read.

    """
    agent, owned, loaded = await (
        _claimed(agent_id, services) if agent is None else _begun(agent_id, agent, services)
    )
    state = folded(loaded) if loaded is not None else AgentState()
    return _activation(
        agent, owned, state, services, values=values, listener=listener, on_fact=on_fact
    )


def folded(loaded: Loaded) -> AgentState:
    """The state that an agent's records add up to.

    Raises:
        StoreDamaged: if they do not fit together.

    """
    try:
        return replay(loaded.records)
    except (UnderstudyError, LookupError, TypeError, ValueError, AssertionError) as error:
        cause = f"its records do not fit together: {error!r}"
        raise StoreDamaged(what=f"agent {loaded.agent.agent_id!r}", cause=cause) from error


async def _begun(
    agent_id: str, agent: Agent, services: RuntimeServices[Any, Any]
) -> tuple[Agent, Owned, Loaded | None]:
    """Claimed as what it is to be: a new agent needs no look into the store."""
    store = services.store
    owned = await store.claim(agent_id, agent.name)
    assert owned is not None, "an agent with a definition is begun where there is none"
    if owned.agent != agent.name:
        await store.release(owned)
        raise OtherAgent(agent_id=agent_id, agent=owned.agent, wanted=agent.name)
    return agent, owned, await store.load(agent_id) if owned.last_seq else None


async def _claimed(
    agent_id: str, services: RuntimeServices[Any, Any]
) -> tuple[Agent, Owned, Loaded]:
    """Claimed as what the store says that it is, if that is known here."""
    store = services.store
    loaded = await store.load(agent_id)
    if loaded is None:
        raise UnknownAgent(agent_id=agent_id)
    agent = services.definition(loaded.agent.agent)
    owned = await store.claim(agent_id, agent.name)
    assert owned is not None, "an agent with a definition is begun where there is none"
    if owned.last_seq != loaded.agent.last_seq:  # it went on elsewhere between the two
        loaded = await store.load(agent_id)
        assert loaded is not None, "nobody but its owner deletes an agent"
    return agent, owned, loaded


def _activation(
    agent: Agent,
    owned: Owned,
    state: AgentState,
    services: RuntimeServices[Any, Any],
    *,
    values: Mapping[str, Any] | None,
    listener: Callable[[Event], None],
    on_fact: FactListener,
) -> Activation:
    activation = Activation(agent)
    journal = activation.journal = services.store.journal(
        owned, index_status=activation.index_status, on_durable=activation.on_durable
    )
    ledger = activation.ledger = Ledger(
        state,
        journal,
        agent_path=(agent.name,),
        listener=listener,
        on_fact=on_fact,
        last_seq=owned.last_seq,
        epoch=owned.epoch,
    )
    ledger.outlives_run = True
    if owned.last_seq == 0 and values:
        ledger.record(AgentCreated(values=AgentState(values=values).stored_values()))
    return activation
