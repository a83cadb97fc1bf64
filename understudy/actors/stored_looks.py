"""`StoredLooks`: looks of refs at agents that this runtime does not have in memory.

They are answered from the store: no agent is activated or claimed for a look, and it does not
matter which host owns it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from understudy.actors.activation import Activation, DetachedWaiters, folded
from understudy.actors.agent_directory import Directory
from understudy.actors.agent_slot import AgentSlot
from understudy.actors.messages import AgentMessage, Expectation, Query, WaitOutcome, look_in
from understudy.actors.phase import Phase
from understudy.actors.replies import answer_with
from understudy.actors.run_outcomes import (
    GOES_ON,
    earlier_outcome,
    has_outcome,
    lacking_outcome,
    last_outcome,
    run_of_message,
)
from understudy.actors.services import RuntimeServices
from understudy.actors.stored_agents import AgentInfo, info_of, spawned_agent
from understudy.actors.watch import Watch
from understudy.errors import Fenced, OtherAgent, OwnedElsewhere, UnknownAgent, UnknownMessage
from understudy.journal import (
    AgentFinder,
    Loaded,
    find_agent,
    index_status_of,
    is_shared,
    load_latest,
)
from understudy.loop_actors.future import Future
from understudy.outcomes import Outcome
from understudy.state.agent_state import AgentState

T = TypeVar("T")
NOT_HERE = (OwnedElsewhere, Fenced)
"""Errors of what is asked of an agent that another host has by now."""


class StoredLooks:
    """Answers looks from the store. Lives on the runtime's loop.

    Args:
        services: of the runtime.
        directory: its agents.

    """

    def __init__(
        self, services: RuntimeServices[AgentSlot, Activation], directory: Directory
    ) -> None:
        self._services = services
        self._directory = directory
        store = services.store
        self._watch: Watch | None = None
        if is_shared(store) and isinstance(store, AgentFinder):
            self._watch = Watch(store, services.start_task)

    def answer(self, slot: AgentSlot, message: AgentMessage) -> None:
        """Answer a look from the store. It activates the agent only to continue a cut-off run."""
        answer_with(slot, message.future, self._answer_of(slot, message))

    def follow(self, slot: AgentSlot, message: AgentMessage, here: Future[Any]) -> None:
        """Answer a look as the agent in memory does; from the store if that is another host's."""

        async def follow() -> Any:
            try:
                return await here
            except NOT_HERE:
                return await self._answer_of(slot, message)()

        answer_with(slot, message.future, follow)

    async def info(self, slot: AgentSlot) -> AgentInfo:
        """As `AgentRef.info`."""
        await slot.rest_is_durable()
        row = await find_agent(self._services.store, slot.id)
        if row is None:
            if slot.agent is None or not slot.is_spawned:
                raise UnknownAgent(agent_id=slot.id)
            row = spawned_agent(slot.id, slot.agent.name)
        return info_of(row, is_active=slot.activation is not None)

    def _answer_of(self, slot: AgentSlot, message: AgentMessage) -> Callable[[], Awaitable[Any]]:
        found = look_in(message)
        assert found is not None, "only looks are answered from the store"
        look, expectation = found
        if isinstance(look, Query):
            return partial(self._queried, slot, look.what, expectation)
        return partial(self._outcome, slot, look.message_id, expectation)

    async def _load(self, slot: AgentSlot, expectation: Expectation | None) -> Loaded | None:
        """What the store has of the agent; None if it is only spawned here so far."""
        loaded = await load_latest(self._services.store, slot.id)
        if loaded is None:
            if slot.is_spawned:
                return None
            raise UnknownAgent(agent_id=slot.id)
        if expectation is not None and not expectation.is_met:
            wanted, name = expectation.agent.name, loaded.agent.agent
            if name != wanted:
                if slot.phase is Phase.PASSIVE:
                    self._services.settle_definition(slot, None)
                raise OtherAgent(agent_id=slot.id, agent=name, wanted=wanted)
            expectation.is_met = True
        return loaded

    async def _queried(
        self, slot: AgentSlot, what: Callable[[AgentState], T], expectation: Expectation | None
    ) -> T:
        loaded = await self._load(slot, expectation)
        return what(AgentState(values=slot.values) if loaded is None else folded(loaded))

    # ------------------------------------------------------------------- outcomes

    async def _outcome(
        self, slot: AgentSlot, message_id: str | None, expectation: Expectation | None
    ) -> Outcome | None:
        """The outcome of the current or last run, or of that of a message, when it has one."""
        while True:
            loaded = await self._load(slot, expectation)
            if loaded is None:
                if message_id is not None:
                    raise UnknownMessage(agent_id=slot.id, message_id=message_id)
                return None
            agent, state = self._services.definition(loaded.agent.agent), folded(loaded)
            run_id = None if message_id is None else run_of_message(slot.id, state, message_id)
            if run_id is not None and (state.run is None or state.run.run_id != run_id):
                return await earlier_outcome(self._services.store, slot.id, agent, run_id)
            if (run_id is not None or message_id is None) and has_outcome(state):
                return last_outcome(agent, state)
            goes_on = index_status_of(state) in GOES_ON
            if self._watch is None:
                return await self._wait_here(slot, message_id, activates=goes_on)
            try:
                if slot.phase.is_in_memory or (goes_on and loaded.agent.host is None):
                    return await self._wait_here(slot, message_id, activates=True)
            except NOT_HERE:  # another host has it by now
                continue
            if loaded.agent.host is not None and (lacking := lacking_outcome(state)) is not None:
                return lacking
            await self._watch.changed(loaded.agent)

    async def _wait_here(
        self, slot: AgentSlot, message_id: str | None, *, activates: bool
    ) -> Outcome | None:
        """Wait as the agent in memory does; if nothing goes on, for when it is in memory again."""
        outcome: Future[Outcome | None] = Future()
        waiting = WaitOutcome(outcome, message_id)
        if activates or slot.phase.is_in_memory:
            slot.post(waiting)
        else:
            waiters = slot.detached_waiters or DetachedWaiters((), [], None)
            slot.detached_waiters = waiters.with_wait(waiting)
            self._directory.hold(slot)
        return await outcome
