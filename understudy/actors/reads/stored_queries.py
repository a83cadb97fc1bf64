"""`StoredQueries`: looks of refs at agents that this runtime does not have in memory.

They are answered from the store: no agent is activated or claimed for a look, and it does not
matter which host owns it.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from understudy._base.pieces import in_pieces
from understudy.actors.agent.activation import Activation
from understudy.actors.agent.directory import Directory
from understudy.actors.agent.factory import made_by
from understudy.actors.agent.message_ids import archived_run
from understudy.actors.agent.messages import AgentCall, Expectation, WaitOutcome
from understudy.actors.agent.phase import Phase
from understudy.actors.agent.replies import answer_with
from understudy.actors.agent.run_outcomes import (
    GOES_ON,
    has_outcome,
    held_outcome,
    last_outcome,
    run_of_message,
)
from understudy.actors.agent.services import Looks, RuntimeServices
from understudy.actors.agent.slot import AgentSlot, message_waited_for, waits_for
from understudy.actors.agent.stored_agents import (
    AgentInfo,
    info_of,
    spawned_agent,
    unknown_agent,
)
from understudy.actors.reads.shared_reads import SharedReads
from understudy.actors.reads.watch import POLL, Watch
from understudy.agent.agent import Agent
from understudy.errors import (
    Fenced,
    OtherAgent,
    OwnedElsewhere,
    UnfitHost,
    UnknownAgent,
    UnknownMessage,
    UsageError,
)
from understudy.journal import (
    Owned,
    StoredAgent,
    index_status_of,
)
from understudy.loop_actors.future import Future
from understudy.outcomes import Outcome
from understudy.state.agent_state import AgentState
from understudy.state.plans import run_named_by

T = TypeVar("T")
NOT_HERE = (OwnedElsewhere, Fenced)
"""The errors of a call for an agent that another host has by now."""


class StoredQueries(Looks[AgentSlot]):
    """Answers looks from the store. Lives on the runtime's loop; see `Looks`.

    Args:
        services: of the runtime.
        directory: its agents.

    """

    def __init__(
        self, services: RuntimeServices[AgentSlot, Activation], directory: Directory
    ) -> None:
        self._services = services
        self._directory = directory
        self._reads: dict[str, SharedReads] = {}
        """The shared reads of the agents that callers look at, by agent id."""
        self._watch: Watch | None = None
        self._followed: weakref.WeakSet[AgentSlot] = weakref.WeakSet()
        """The slots of agents whose subscribers get what other hosts record."""
        if services.shared_store is not None:
            self._watch = Watch(services.store, services.start_task)

    def answer(self, slot: AgentSlot, call: AgentCall, here: Future[Any] | None = None) -> None:
        """Answer a look from the store. It activates the agent only to continue a cut-off run.

        Args:
            slot: of the agent.
            call: the look.
            here: the answer of the agent in memory, which counts unless another host has the agent.

        """

        async def answer() -> Any:
            if here is not None:
                with suppress(*NOT_HERE):
                    return await here
            return await self._answer(slot, call)

        answer_with(slot, call.future, answer)

    async def _answer(self, slot: AgentSlot, call: AgentCall) -> Any:
        look, expectation = call.message, call.expectation
        if isinstance(look, WaitOutcome):
            return await self.outcome_of(slot, look, expectation)
        loaded = await self._services.store.load_latest(slot.id)
        if loaded is not None:
            self._check_definition(slot, loaded.agent.agent, expectation)
            return look.what(await in_pieces(loaded.folding()))
        if not slot.is_spawned:
            raise await unknown_agent(self._services.store, slot.id)
        return look.what(AgentState(values=slot.values))  # no store has it yet

    async def info(self, slot: AgentSlot) -> AgentInfo:
        """The agent as `runtime.agents()` lists it; see `AgentRef.info`."""
        await slot.rest_is_durable()
        row = await self._services.store.find_agent(slot.id)
        if row is None:
            if slot.agent is None or not slot.is_spawned:
                raise await unknown_agent(self._services.store, slot.id)
            row = spawned_agent(slot.id, slot.agent.name)
        await slot.has_emitted(row.last_seq)
        return info_of(row, is_active=slot.activation is not None)

    def follow_waiters(self, slot: AgentSlot, state: AgentState, owned: Owned) -> None:
        """Give the calls that wait for runs of an agent that leaves memory the stored outcomes.

        Where hosts share it, another one may go on with the run: a timer activates it there.
        """
        if self._watch is None or slot.waits is None or self._services.closing:
            return  # where the runtime closes, they are told that it stops
        run = state.run
        for key, waiters in slot.waits.items():
            message_id = message_waited_for(key)
            run_id = key if message_id is None else None
            if run_id is not None and (run is None or run.over or run.run_id != run_id):
                continue  # the run has not begun
            for waiter in waiters:
                look = WaitOutcome(message_id, run_id, owned.incarnation)
                self._follow_waiter(slot, waiter, look)

    def _follow_waiter(self, slot: AgentSlot, waiter: AgentCall, look: WaitOutcome) -> None:
        """Answer a waiting call from the store, unless the outcome is in memory first."""
        outcome = partial(self.outcome_of, slot, look, activates=False)
        following = answer_with(slot, waiter.future, outcome)
        following.add_done_callback(lambda _: slot.drop_wait(waiter))

    def follow_events(self, slot: AgentSlot) -> None:
        """Emit what other hosts record to the agent's subscribers, as long as it has any."""
        if self._watch is not None and slot not in self._followed:
            self._followed.add(slot)
            self._watch.add(slot.id, _Follower(slot, self._watch, self._followed))
            if slot.activation is None and self._services.live is not None:
                self._services.live.follow(slot.id)  # do not wait for the first look

    def _check_definition(
        self, slot: AgentSlot, name: str, expectation: Expectation | None
    ) -> None:
        """Check that the agent has the definition that its caller expects.

        Raises:
            OtherAgent: if it has another one.

        """
        if expectation is None:
            return
        try:
            expectation.check(slot.id, name)
        except OtherAgent:
            if slot.phase is Phase.PASSIVE:
                self._services.settle_definition(slot, None)
            raise

    async def _definition(self, slot: AgentSlot, name: str, state: AgentState) -> Agent:
        agent = self._services.definition(name)
        if isinstance(agent, Agent):
            return agent
        if slot.activation is not None:
            return slot.activation.agent
        assert self._services.factory is not None, "without one, every name is declared"
        return await made_by(self._services.factory, name, slot.id, state.values)

    # ------------------------------------------------------------------- outcomes

    async def outcome_of(
        self,
        slot: AgentSlot,
        look: WaitOutcome,
        expectation: Expectation | None = None,
        *,
        activates: bool = True,
    ) -> Outcome | None:
        """The outcome of a run, or of the run of a message, once it is there, on whatever host.

        Args:
            slot: of the agent.
            look: which outcome it is.
            expectation: what is expected of the agent.
            activates: whether a run without an owner is continued.

        """
        calls, id = self._services.calls, look.message_id
        with self.looking(slot.id) as reads:
            while True:
                # Race: what is read may be from before the message was recorded, and its call may
                # be answered by the end of the look
                # (test_a_message_that_arrives_at_another_host_during_a_look_is_not_unknown).
                asked = None if calls is None or id is None else calls.asked(slot, id)
                try:
                    return await self._outcome_of(
                        slot, look, expectation, reads, activates=activates
                    )
                except UnknownMessage:
                    if asked is None:
                        raise
                # It was asked for here, and is on its way to another host
                # (test_a_run_on_its_way_to_another_host_is_not_unknown).
                with suppress(Exception):
                    await asked

    @contextmanager
    def looking(self, agent_id: str) -> Iterator[SharedReads]:
        """Keep what is read of the agent while a caller looks at it again and again."""
        if agent_id not in self._reads:
            self._reads[agent_id] = SharedReads(self._services.store, agent_id)
        reads = self._reads[agent_id]
        reads.callers += 1
        try:
            yield reads
        finally:
            reads.callers -= 1
            if not reads.callers:
                del self._reads[agent_id]

    def look_again(self, agent_id: str | None = None) -> None:
        """Look at once at an agent, or at all: what callers wait for may have changed."""
        if self._watch is not None and (agent_id is None or agent_id in self._reads):
            self._watch.look_now()

    async def state_at(self, agent_id: str, run_id: str, at: int, status: str) -> AgentState:
        """The state of an outcome that was told without its state.

        Args:
            agent_id: of the agent.
            run_id: of the run.
            at: the number of the record at which the outcome was there.
            status: the one that follows from the outcome.

        Raises:
            UsageError: if these records are compacted away or deleted.

        """
        with self.looking(agent_id) as reads, suppress(UsageError, UnknownAgent):
            found = await reads.latest()
            incarnation = 0 if found is None else found[0].incarnation
            state = (await reads.after(at, incarnation)).copied()
            if state.run is not None and state.run.run_id == run_id:
                state.status = status
                return state
        raise UsageError(
            f"The state of an outcome of agent {agent_id!r}, run {run_id!r}, is no longer in the "
            "store: the agent was compacted or deleted. Read `outcome.state` before that"
        )

    async def _outcome_of(
        self,
        slot: AgentSlot,
        look: WaitOutcome,
        expectation: Expectation | None,
        reads: SharedReads,
        *,
        activates: bool,
    ) -> Outcome | None:
        agent: Agent | None = None
        while True:
            hints = self._watch.hints if self._watch is not None else 0
            found = await reads.latest()
            if found is None:
                if agent is not None or not slot.is_spawned:
                    raise await unknown_agent(self._services.store, slot.id)
                if look.message_id is not None:
                    raise UnknownMessage(agent_id=slot.id, message_id=look.message_id)
                return None  # no store has it yet
            row, state = found
            self._check_definition(slot, row.agent, expectation)
            if look.incarnation not in (None, row.incarnation):
                raise UnknownAgent(agent_id=slot.id)  # it is deleted: another one has its id by now
            agent = agent or await self._definition(slot, row.agent, state)
            if look.at is not None:
                with suppress(UsageError):  # its records are no more: whichever is there next
                    then = await reads.after(look.at, row.incarnation)
                    if there := last_outcome(agent, then, look.at):
                        return there
            run_id = await self._run_of(slot, look, state)
            look = replace(look, run_id=run_id, incarnation=row.incarnation, at=None)
            run = state.run
            if run_id is not None and (run is None or run.run_id != run_id):
                if look.message_id is not None and run_named_by(look.message_id) == run_id:
                    # Race: the run may have begun between the two looks at the store
                    # (test_a_run_that_begins_between_two_looks_at_the_store_has_its_outcome).
                    look = replace(look, message_id=None)
                    continue
                then = await reads.after(run_id, row.incarnation)
                return last_outcome(agent, then, row.last_seq)
            # A run that is named and over has its outcome, though messages are queued behind it
            # (test_who_asks_for_a_run_that_is_over_is_told_though_a_message_is_queued_behind_it).
            is_it_over = run_id is not None and run is not None and run.over
            is_queued = look.message_id is not None and run_id is None
            if is_it_over or (not is_queued and has_outcome(state)):
                return last_outcome(agent, state, row.last_seq)
            goes_on = activates and index_status_of(state) in GOES_ON
            if self._watch is None:
                return await self._wait_here(slot, look, activates=goes_on)
            if slot.phase.is_in_memory or (goes_on and row.host is None):
                try:
                    return await self._wait_here(slot, look, activates=True)
                except UnfitHost:
                    activates = False  # a host that fits goes on with it
                except NOT_HERE:  # another host has it by now
                    await asyncio.sleep(POLL)  # or it lost it just now: not again and again
                continue
            if row.host is not None and not is_queued:
                held = held_outcome(agent, state, row.last_seq)
                if held is not None:
                    return held
            await self._watch.changed(row, hints)

    async def _run_of(self, slot: AgentSlot, look: WaitOutcome, state: AgentState) -> str | None:
        """The id of the run whose outcome a look wants; None while the run has not begun."""
        message_id, run = look.message_id, state.run
        if message_id is not None:
            run_id = await archived_run(self._services.store, state, slot.id, message_id)
            return run_id or run_of_message(slot.id, state, message_id)
        if look.run_id is None and run is not None and not run.over:
            # The current one is meant, and not those that are queued behind it
            # (test_who_waits_at_another_host_gets_the_outcome_when_it_is_there).
            return run.run_id
        return look.run_id

    async def _wait_here(
        self, slot: AgentSlot, look: WaitOutcome, *, activates: bool
    ) -> Outcome | None:
        """Wait as the agent in memory does; if nothing goes on, until it is in memory again."""
        waiting: AgentCall = AgentCall(replace(look, is_look=False), Future())
        if activates or slot.phase.is_in_memory:
            slot.put(waiting)
        else:
            assert look.run_id is not None or look.message_id is not None, "it waits for a run"
            slot.wait(look.run_id or waits_for(look.message_id or ""), waiting)
            self._directory.hold(slot)
        outcome: Outcome | None = await waiting.future
        return outcome


class _Follower:
    """Has the records of other hosts emitted to the subscribers of one agent.

    It does not keep the agent's slot: a subscription does.
    """

    def __init__(self, slot: AgentSlot, watch: Watch, followed: weakref.WeakSet[AgentSlot]) -> None:
        self._agent_id = slot.id
        self._slot = weakref.ref(slot)
        self._watch = watch
        self._followed = followed
        self._known: int | None = None
        """The incarnation of the agent, as far as it was known before the last look."""

    def __call__(self, row: StoredAgent | None) -> None:
        slot = self._slot()
        if slot is None or not slot.log.count():
            self._watch.remove(self._agent_id, self)
            if slot is not None:
                self._followed.discard(slot)
            return
        # Race: the agent may be created, be heard of or be read, and be deleted between two looks.
        # What is heard or read after this look was made tells nothing of its row
        # (test_events_end_where_an_agent_that_was_only_heard_of_is_deleted,
        # test_events_end_where_an_agent_that_was_only_read_is_deleted).
        live = slot.services.live
        known = self._known if self._known == slot.log.incarnation else None
        if known is not None and (row is None or row.incarnation != known):
            if slot.phase is Phase.PASSIVE:  # deleted elsewhere; a copy here learns that first
                self._known = None
                slot.forget()
            return
        if row is not None:
            slot.log.note(row.incarnation)
        self._known = slot.log.incarnation
        if row is None:  # it is not created yet
            if live is not None:
                live.follow(slot.id)
            return
        activation = slot.activation
        if activation is not None and activation.journal.owned.epoch == row.epoch:
            # Race: this host against another one that records, and loses the agent to it, between
            # two looks: nobody emits those records here
            # (test_events_of_another_host_come_though_this_one_takes_the_agent).
            slot.log.catch_up(activation.ledger.last_reported)
            return
        slot.log.catch_up(row.last_seq)
        if live is not None:
            live.follow(slot.id, row.epoch)
