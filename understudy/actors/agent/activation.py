"""`Activation`: what an agent has while it is in memory, and how it is read from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

from understudy._base.pieces import in_pieces
from understudy.actors.agent.factory import MadeAtActivation
from understudy.actors.agent.messages import (
    AgentCall,
    Compact,
    Delete,
    Passivate,
    Unpause,
)
from understudy.actors.agent.services import RuntimeServices
from understudy.actors.agent.stored_agents import unknown_agent
from understudy.agent.agent import Agent
from understudy.errors import (
    AgentNotMade,
    Fenced,
    OtherAgent,
    UnderstudyError,
    UnfitHost,
    UnknownAgent,
    UsageError,
)
from understudy.journal import (
    IndexEntry,
    JournalledAgent,
    Loaded,
    LostAttempt,
    Owned,
    OwnedJournal,
    index_entry_of,
)
from understudy.journal.shared import Hint, Sent, Taken
from understudy.loop_actors.future import Future, refuse
from understudy.outcomes import Outcome
from understudy.run.account import SpendingLedger
from understudy.run.hooks import Passivation
from understudy.run.ledger import Audience, Ledger
from understudy.state.agent_state import AgentState
from understudy.state.records import AgentCreated
from understudy.stopping import StopSignal
from understudy.trust.freezes import Stop


class RunAbandoned(Fenced):
    """The runtime does not wait for a run task any longer, and gives up the epoch of its run.

    The task was cancelled, and its code went on. What it does later is refused by this error.
    """

    def __init__(self, *, agent_id: str) -> None:
        UnderstudyError.__init__(
            self,
            f"The run task of agent {agent_id!r} is abandoned, because its code went on after it "
            "was cancelled: nothing that it does is recorded any more",
            agent_id=agent_id,
        )


@dataclass(frozen=True, slots=True)
class RunTaskResult:
    """How a run task ended: by an outcome, by a crash, or, with neither, because it was halted."""

    outcome: Outcome | None = None
    crash: BaseException | None = None
    is_uncounted: bool = False
    """Whether the run task crashed before its attempt was recorded."""
    stop: Stop | None = None
    """Why the run task was halted, if the run, or a call of it, may not go on now."""


@dataclass(slots=True)
class MessageLookup:
    """A message id that the store is asked for."""

    call: AgentCall
    """The call that waits for the lookup. Another call with this id has the store asked anew."""
    message_id: str
    is_done: bool = False
    run_id: str | None = None
    """The run that took the message; None if none did."""


class Beginning(NamedTuple):
    """A run that begins: its first record is not made yet."""

    run_id: str
    message_ids: tuple[str, ...]
    """The ids of the messages that the run takes; for a retry, the id of the retry."""
    asked: str | None = None
    """The id of the run's own message, if it is in the queue: a `run` that waited for its turn."""
    retries: str | None = None
    """The id of the failed run that this run continues."""


Leaving = Passivate | Compact | Delete
"""A request that an agent leaves memory."""
_NO_ATTEMPTS: frozenset[int] = frozenset()
"""The empty set of attempts, one for all agents: each empty set takes 0.2 KB."""


@dataclass(slots=True, eq=False)
class Activation(JournalledAgent):
    """An agent in memory: its definition, its state and its run task."""

    agent: Agent
    ledger: Ledger = field(init=False)
    journal: OwnedJournal = field(init=False)
    task: asyncio.Task[None] | None = None
    """The run task, until it has ended or is abandoned."""
    ending: asyncio.Task[None] | None = None
    """The task that waits for the end of the cancelled run task, and then abandons the run task."""
    passivated_because: Passivation = "closing"
    """The reason why the agent was passivated, once it is."""
    ends_attempt: asyncio.Event | None = None
    """An event that is set once the run task should end. None while nobody waits for it."""
    is_given_up: bool = False
    """Whether the run task is abandoned: the agent is activated again at once, in a new epoch."""
    is_taken: bool = False
    """Whether another host has claimed the agent since: there is nothing to release."""
    unpause_asked: Unpause | None = None
    """The call of `unpause` that came while a run task was under way."""
    result: RunTaskResult | None = None
    """The result of a run task that has ended, until an actor handles it."""
    leaving: tuple[AgentCall, ...] = ()
    """The requests to let the agent leave memory. Their futures settle once it has left."""
    notifying: tuple[tuple[asyncio.Task[None], Future[None]], ...] = ()
    """The tasks and futures of messages in middleware. The agent is passivated after they end."""
    early_cancel: StopSignal | None = None
    """The stop signal of a cancel that came before the first record of its run."""
    lost_attempts: frozenset[int] = _NO_ATTEMPTS
    """The numbers of the open run's attempts that were cut off while their runtime lived."""
    lost_attempt: LostAttempt | None = None
    """The attempt here that was cut off because another runtime took over."""
    kept_back: Stop | None = None
    """The stop that kept back a run of the agent; None if nothing was kept back."""
    beginning: Beginning | None = None
    lookup: MessageLookup | None = None
    """The lookup of the id of the message in hand, if the state does not have the id."""
    place: Any = None
    """The `AgentSlot` of this activation. The slot's module imports this module."""
    self_started_runs: int = 0
    """How many runs in a row the agent has started by messages to itself."""

    @property
    def state(self) -> AgentState:
        return self.ledger.state

    def ledger_state(self) -> AgentState:
        """The state that all records of the agent so far fold to."""
        return self.ledger.state

    def index_entry(self) -> IndexEntry:
        """What the store's index says of the agent."""
        entry = index_entry_of(self.ledger.state)
        if not entry.takeable:
            return entry
        # What no record tells: whether another host may take it.
        has_deps = self.place is not None and self.place.has_deps()
        stays = self.notifying or has_deps or not self.agent.definition.movable
        return entry._replace(takeable=False) if stays else entry

    def on_durable(self, seq: int) -> None:
        """Emit the events of the records up to this number, which are durable."""
        self.ledger.tell_until(seq)

    def attempt_ended(self, error: BaseException | None) -> None:
        """Remember the attempt that this error has ended, if another runtime has taken over."""
        run = self.state.run  # in memory it may be over, and cut off for all others
        own = isinstance(error, Fenced) and error.agent_id == self.journal.owned.agent_id
        if own and run is not None:
            self.lost_attempt = LostAttempt(run.run_id, run.attempts)

    def leave(self, request: AgentCall[Passivate | Compact | Delete]) -> None:
        """Have the agent leave memory, once no run task is under way."""
        self.leaving += (request,)
        if self.ends_attempt is not None and self.is_to_end_attempt():
            self.ends_attempt.set()

    def end_of_attempt(self) -> asyncio.Event:
        """The event that is set once `is_to_end_attempt`, for code that waits in the run task."""
        if self.ends_attempt is None:
            self.ends_attempt = asyncio.Event()
            if self.is_to_end_attempt():
                self.ends_attempt.set()
        return self.ends_attempt

    def is_to_end_attempt(self) -> bool:
        """Whether the run task should end after the step in progress."""
        return bool(self.leaving) and self.asked_to(Passivate)

    def asked_to(self, *kinds: type[Leaving]) -> bool:
        """Whether the agent is to leave memory by a request of one of these kinds."""
        return any(isinstance(each.message, kinds) for each in self.leaving)

    def take_deletions(self) -> list[AgentCall[Delete]]:
        """Remove and return the requests to delete the agent. The caller answers them."""
        taken = [each for each in self.leaving if isinstance(each.message, Delete)]
        self.leaving = tuple(each for each in self.leaving if each not in taken)
        return taken

    def cancellation_arrived(self) -> None:
        """Note that the cancellation has arrived in the run task, whose code does not go on."""
        ending, self.ending = self.ending, None
        if ending is not None:
            ending.cancel()

    def refuse_messages(self, error: BaseException) -> None:
        """Give an error to the callers whose messages middleware is still handling."""
        for _, future in self.notifying:
            refuse(future, error)

    def answer_released(self, error: BaseException | None = None) -> None:
        """Answer the requests to leave memory: the agent is released, or this error prevents it."""
        if error is not None:
            self.refuse_messages(error)
        leaving, self.leaving = self.leaving, ()
        for each in leaving:
            if isinstance(each.message, Delete):
                refuse(each.future, error or UnknownAgent(agent_id=self.journal.owned.agent_id))
            elif isinstance(each.message, Passivate) and not isinstance(error, Fenced):
                each.future.set(True)
            elif error is not None:  # also of a stop: the copy that left is not the agent
                refuse(each.future, error)
            else:
                each.future.set(None)


Make = Callable[[str, Mapping[str, Any]], Awaitable[Agent]]
"""Makes a definition by its name and the agent's values."""


async def activate(
    agent_id: str,
    agent: Agent | MadeAtActivation | None,
    services: RuntimeServices[Any, Any],
    *,
    values: Mapping[str, Any] | None,
    make: Make,
    audience: Audience,
    creates: bool,
    take: bool = False,
) -> Activation:
    """Claim an agent and read it from the store; or create it.

    Nothing is claimed where its definition is not known.

    Args:
        agent_id: its id.
        agent: the definition that the caller expects, or that it had; None for the one that the
            store names.
        services: of the runtime.
        values: the state's values if the agent is new.
        make: makes the definition of a name that is not declared.
        audience: gets events that are not records, and records once they are durable.
        creates: whether it is begun where there is none.
        take: claim it also from a living owner, if nothing of it goes on.

    Raises:
        UnknownAgent: if there is no agent of this id, unless it is begun.
        OtherAgent: if the agent of this id has another definition than `agent`.
        UsageError: if its definition is not known here.
        AgentNotMade: if the factory raises that was to make it.
        OwnedElsewhere: if another runtime owns it.
        UnfitHost: if this one must not run it.
        StoreError: if it cannot be read.

    """
    claiming = _Claiming(agent_id, services, values, make, take=take, creates=creates)
    try:
        if isinstance(agent, Agent):
            agent, owned, loaded = await claiming.by_definition(agent)
        else:
            wanted = None if agent is None or not creates else agent.name
            agent, owned, loaded = await claiming.by_name(wanted)
    except (AgentNotMade, UnfitHost, UsageError):
        await _give_back(agent_id, services)
        raise
    state = await in_pieces(loaded.folding()) if loaded is not None else AgentState()
    services.placement.check(agent_id, agent, state)
    activation = Activation(agent)
    journal = activation.journal = services.store.journal(owned, activation)
    ledger = activation.ledger = (Ledger if services.budgets is None else SpendingLedger)(
        state,
        journal,
        agent_path=agent.definition.path,
        audience=audience,
        clock=services.clock,
        last_seq=owned.last_seq,
        epoch=owned.epoch,
        host=services.host if services.shared_store is not None else None,
    )
    ledger.outlives_run = True
    if isinstance(ledger, SpendingLedger) and services.budgets is not None:
        await ledger.open_account(services.budgets, owned, journal)
    if services.instrument is not None:
        services.instrument.follow(ledger)
    journal.write_checkpoints(loaded)
    if state.held_keys_in_tree:
        journal.follow_keys()
    if state.run is not None and state.run.fruitless and not state.run.over:
        lost = await services.store.lost_attempts(agent_id, state.run.run_id)
        activation.lost_attempts = lost
    if owned.last_seq == 0 and values:
        ledger.record(AgentCreated(values=AgentState(values=values).stored_values()))
    return activation


async def _give_back(agent_id: str, services: RuntimeServices[Any, Any]) -> None:
    """Release an agent that another host has given to this one, which cannot run it.

    Else it is this host's for as long as that lives, and a run that was handed over stands still
    (test_an_agent_that_is_handed_over_to_a_host_that_does_not_make_it_is_free_again). The others
    are told: one of them may run it (test_a_run_that_is_given_back_goes_on_where_it_can).
    """
    shared = services.shared_store
    if shared is None:
        return
    stored = await services.store.find_agent(agent_id)
    if stored is not None and stored.host == services.host:
        owned = Owned(
            agent_id=agent_id,
            agent=stored.agent,
            incarnation=stored.incarnation,
            epoch=stored.epoch,
            last_seq=stored.last_seq,
        )
        await services.store.release(owned)
        await shared.send([Sent(None, str(Hint("left")))])


@dataclass(frozen=True, slots=True)
class _Claiming:
    """Claims an agent: its fields are the arguments of `activate`."""

    agent_id: str
    services: RuntimeServices[Any, Any]
    values: Mapping[str, Any] | None
    make: Make
    _: KW_ONLY
    take: bool
    creates: bool

    async def by_definition(self, agent: Agent) -> tuple[Agent, Owned, Loaded | None]:
        """Claim the agent by its expected definition. A new agent costs one trip to the store."""
        store = self.services.store
        owned, loaded = await self._claimed(agent, self.values, loads=True)
        if owned.agent != agent.name:
            await store.release(owned)
            raise OtherAgent(agent_id=self.agent_id, agent=owned.agent, wanted=agent.name)
        if loaded is None and owned.last_seq:
            loaded = await store.load_latest(self.agent_id)
        return agent, owned, loaded

    async def by_name(self, wanted: str | None) -> tuple[Agent, Owned, Loaded | None]:
        """Claim the agent by the definition that the store names, if it is known here, or is made.

        Args:
            wanted: the name that the caller expects, by which it begins where there is none.

        """
        store, agent_id = self.services.store, self.agent_id
        while True:
            loaded = await store.load_latest(agent_id)
            if loaded is None and wanted is None:
                raise await unknown_agent(store, agent_id)
            name = loaded.agent.agent if loaded is not None else wanted
            assert name is not None, "one of both has it"
            if wanted not in (None, name):
                raise OtherAgent(agent_id=agent_id, agent=name, wanted=wanted)
            agent, made_of = self.services.definition(name), None
            if isinstance(agent, MadeAtActivation):
                made_of = AgentState(values=self.values)
                if loaded is not None:
                    made_of = await in_pieces(loaded.folding())
                agent = await self.make(name, made_of.values)
            values = self.values if loaded is None else None
            owned = (await self._claimed(agent, values, made_of)).owned
            before = owned.incarnation, 0
            if loaded is not None:
                before = loaded.agent.incarnation, loaded.agent.last_seq
            if (owned.incarnation, owned.last_seq) == before:
                return agent, owned, loaded
            # Race: this against other hosts, between the load and the claim. They may have written,
            # or have deleted the agent and made another one, with as many records say
            # (test_an_agent_that_is_made_anew_before_it_is_claimed_is_not_taken_for_the_old_one).
            if made_of is None and owned.agent == name:
                loaded = await store.load_latest(agent_id)
                assert loaded is not None, "only its owner deletes an agent"
                return agent, owned, loaded
            await store.release(owned)  # its definition depends on what was written

    async def _claimed(
        self,
        agent: Agent,
        values: Mapping[str, Any] | None,
        made_of: AgentState | None = None,
        *,
        loads: bool = False,
    ) -> Taken:
        """Claim the agent, unless this host must not run it: nothing is claimed then.

        Args:
            agent: its definition.
            values: those of its state, if it is new.
            made_of: the state of which a factory has made the definition; None: it is declared.
            loads: whether its records are read with the claim, where that costs nothing.

        """
        services, placement = self.services, self.services.placement
        try:
            if made_of is None:
                await placement.register([agent])
            placement.check(self.agent_id, agent, made_of, is_made=made_of is not None)
            shared = services.shared_store
            if shared is not None:
                taken = await shared.take(
                    self.agent_id,
                    agent.name,
                    at_rest=self.take and placement.any_host,
                    creates=self.creates,
                    loads=loads,
                )
            else:
                owned = await services.store.claim(self.agent_id, agent.name)
                taken = None if owned is None else Taken(owned)
        except UnfitHost as unfit:
            needs = None if made_of is None else agent.definition.all_needs
            raise await placement.elsewhere(
                self.agent_id, agent.name, unfit, values, needs=needs
            ) from unfit
        if taken is None:  # another host has deleted it
            raise UnknownAgent(agent_id=self.agent_id)
        return taken
