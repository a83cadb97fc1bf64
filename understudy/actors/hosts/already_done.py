"""What the store tells of calls whose owner lost the agent, or went away, before it answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from understudy.actors.agent.message_ids import archived_run
from understudy.actors.agent.messages import (
    AgentMessage,
    Cancel,
    Decide,
    Resume,
    Retry,
    RunRequest,
    Send,
)
from understudy.errors import DecisionError
from understudy.interrupts import Decision, checked_decision
from understudy.journal import Loaded, Readable, load_latest
from understudy.state.agent_state import AgentState
from understudy.state.plans import retry_id
from understudy.state.records import RunStarted
from understudy.state.run_state import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came of a call."""

    value: Any = None
    run_id: str | None = None
    """The run whose outcome is the answer; None: `value` is."""
    message_id: str | None = None
    """The message whose run, which has not begun, brings the outcome that is the answer."""


class KnownCalls:
    """What the store tells of the calls of one agent, as of now. It is read once, when first asked.

    Args:
        store: what is in it is durable.
        agent_id: of the agent.

    """

    def __init__(self, store: Readable, agent_id: str) -> None:
        self._store = store
        self._agent_id = agent_id
        self._loaded: Loaded | None = None
        self._state: AgentState | None = None
        self._is_read = False

    async def what_became_of(self, message: AgentMessage, *, run_id: str | None) -> Found | None:
        """What came of a call; None if nothing of it is recorded, or to do it again does no harm.

        Args:
            message: the call.
            run_id: of the run that it has begun, or is for, as far as the owner could tell.

        """
        if not isinstance(message, RunRequest | Send | Resume | Decide | Cancel | Retry):
            return None
        state = await self._read()
        if state is None:
            return None
        match message:
            case RunRequest(message_id=message_id):
                if message_id in state.queue or message_id in state.refused:
                    return Found(message_id=message_id)
                begun = await self._run_of(state, message_id) or run_id
                if begun is not None and await self._is_recorded(state, begun):
                    return Found(run_id=begun)
            case Send(message_id=message_id):
                if message_id in state.message_ids or await self._run_of(state, message_id):
                    return Found(value=message_id)
            case Resume(decisions=decisions):
                return _decided(state, decisions)
            case Decide(decisions=decisions):
                return None if _decided(state, decisions) is None else Found()
            case Cancel():
                run = state.run
                is_it = run is not None and run.run_id == run_id
                if is_it and run is not None and (run.over or run.cancelled is not None):
                    return Found(run_id=run_id)
            case Retry():
                run, run_id = state.run, message.run_id or run_id
                begun = None if run_id is None else await self._run_of(state, retry_id(run_id))
                if begun is not None:
                    return Found(run_id=begun)
                is_it = run is not None and run.run_id == run_id and not run.has_failed
                if is_it and run is not None and run.quarantined is None:
                    return Found(run_id=run_id)
        return None

    async def _read(self) -> AgentState | None:
        if not self._is_read:
            self._loaded = await load_latest(self._store, self._agent_id)
            self._state = None if self._loaded is None else self._loaded.folded()
            self._is_read = True
        return self._state

    async def _run_of(self, state: AgentState, message_id: str | None) -> str | None:
        """The run that took a message; None if none did."""
        if message_id is None:
            return None
        taken = state.message_ids.get(message_id)
        if taken is not None:
            return taken.run_id
        return await archived_run(self._store, state, self._agent_id, message_id)

    async def _is_recorded(self, state: AgentState, run_id: str) -> bool:
        taken = (each.run_id for each in state.message_ids.values() if each is not None)
        if (state.run is not None and state.run.run_id == run_id) or run_id in taken:
            return True
        everything = self._loaded
        if everything is not None and everything.checkpoint is not None:
            everything = await self._store.load(self._agent_id)
        return everything is not None and any(
            isinstance(record, RunStarted) and record.run_id == run_id
            for record in everything.records
        )


async def latest_state(store: Readable, agent_id: str) -> AgentState | None:
    """The state that the store has of an agent."""
    loaded = await load_latest(store, agent_id)
    return None if loaded is None else loaded.folded()


def run_of_call(state: AgentState | None, message: AgentMessage) -> RunState | None:
    """The run that a call is for that names none: the one that is open now, if it may be meant.

    A retry is for the last one, if that has failed.
    """
    run = state.run if state is not None else None
    if run is None:
        return None
    if isinstance(message, Retry):
        return run if run.has_failed or (run.is_held and not run.over) else None
    return None if run.over else run


def _decided(state: AgentState, decisions: Any) -> Found | None:
    """The run that goes on by these decisions, if all of them are recorded."""
    made = {record.request.id: record for inner in state.tree for record in inner.decisions}
    run_id: str | None = None
    for request_id, given in decisions.items():
        record = made.get(request_id)
        if record is None:
            return None
        try:
            decision: Decision = checked_decision(record.request, given)
        except DecisionError:
            return None
        if not decision.same_as(record.decision):
            return None
        run_id = record.request.run_id.partition(".")[0]
    return None if run_id is None else Found(run_id=run_id)
