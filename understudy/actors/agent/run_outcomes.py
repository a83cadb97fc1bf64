"""What came of runs, told from a state: the same in memory and from the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from understudy.actors.agent.events import Status
from understudy.agent.agent import Agent
from understudy.errors import (
    Quarantined,
    UnknownMessage,
    UsageError,
    error_from_dict,
)
from understudy.journal import IndexStatus, StoreReads, index_status_of, rest_status
from understudy.outcomes import Failed, Interrupted, Outcome, Paused, Waiting
from understudy.state.agent_state import AgentState
from understudy.state.fold import apply
from understudy.state.plans import run_named_by

GOES_ON = frozenset({IndexStatus.OPEN, IndexStatus.SUSPECT, IndexStatus.QUEUED})
"""Of an agent whose run goes on, or begins, where it has an owner."""


_STATUSES: Mapping[type[Outcome], Status] = {
    Interrupted: Status.INTERRUPTED,
    Paused: Status.PAUSED,
    Waiting: Status.WAITING,
    Failed: Status.FAILED,
}
"""The status of an agent by the outcome of its last run. The end of the run tells the others."""


def with_status(outcome: Outcome) -> Outcome:
    """The outcome. The status in its state is the one that follows from it, whoever tells it.

    The status is recorded behind what led to it: one host has read it by now, another one has not
    (test_the_state_of_an_outcome_has_the_status_that_follows_from_it).
    """
    state, status = outcome.state, _STATUSES.get(type(outcome))
    state.status = rest_status(state) if status is None else status.value
    return outcome


def has_outcome(state: AgentState) -> bool:
    """Whether the last run of this state has an outcome that lasts; also where it had no run."""
    index_status = index_status_of(state)
    if index_status is IndexStatus.WAITS:  # for a person, or paused; else the run goes on by itself
        return bool(state.requests) or state.pause is not None
    return index_status not in GOES_ON


def last_outcome(agent: Agent, state: AgentState) -> Outcome | None:
    """The outcome of the last run of a state, if it has one; None without any run.

    It is over, interrupted, paused or quarantined.
    """
    run = state.run
    outcome: Outcome | None
    if run is None:
        return None
    if run.over:
        outcome = agent.runner.ended(state)
    elif run.quarantined is not None:
        error = Quarantined(attempts=run.fruitless, cause=run.quarantined)
        outcome = Failed(error=error, run_id=run.run_id, state=state.copied(), usage=run.usage)
    else:
        outcome = agent.runner.suspended_outcome(state)
    return None if outcome is None else with_status(outcome)


def held_outcome(agent: Agent, state: AgentState) -> Outcome | None:
    """The outcome of a run of an agent that goes on by itself, but not at the host that has it.

    It has paused the run, because it lacks what that was given. Or the run is over, and the next
    ones are by messages of the agent to itself, of which as many as may be have begun a run.
    """
    run = state.run
    if run is None:
        return None
    if run.over:
        is_held = state.status == "idle" and all(each.self_sent for each in state.queue.values())
        return last_outcome(agent, state) if is_held else None
    if state.status != "paused" or state.pause is not None:
        return None
    reason = "needs deps" if run.deps_given else "needs pause_when"
    paused = Paused(reason=reason, run_id=run.run_id, state=state.copied(), usage=state.usage)
    return with_status(paused)


def run_of_message(agent_id: str, state: AgentState, message_id: str) -> str | None:
    """The id of the run that took this message; None while it is in the queue.

    Raises:
        UnknownMessage: if there is no such message.
        UnderstudyError: the error of a `run` that was refused when its turn came.
        UsageError: if it waits for its time.

    """
    if message_id in state.refused:
        raise refusal(agent_id, state, message_id)
    run, own = state.run, run_named_by(message_id)
    if run is not None and run.run_id == own:
        return own
    if message_id not in state.message_ids:
        raise UnknownMessage(agent_id=agent_id, message_id=message_id)
    taken = state.message_ids[message_id]
    if taken is None and message_id not in state.queue:
        raise UsageError(
            f"The message {message_id!r} waits for its time: wait for the outcome after that, "
            "or cancel the message first"
        )
    return None if taken is None else taken.run_id


def refusal(agent_id: str, state: AgentState, message_id: str) -> Exception:
    """The error of a `run` that was refused when its turn came, or cancelled before that."""
    error = state.refused[message_id]
    if not error:
        return UnknownMessage(agent_id=agent_id, message_id=message_id, is_cancelled=True)
    return error_from_dict(error)


class Moment(NamedTuple):
    """What tells the state of one outcome from the other states of its agent. It goes as JSON."""

    run_id: str
    is_over: bool
    requests: tuple[str, ...] = ()
    """The ids of those that were pending."""
    why: str | None = None
    """Why the run was paused or quarantined."""
    model_calls: int = 0
    """So far. It may be paused again for the same reason, after other ones."""
    status: str = "idle"
    """The one that follows from the outcome. It is recorded later, or not yet."""


def moment_of(state: AgentState) -> Moment:
    """The moment at which the run of this state has its outcome."""
    run = state.run
    assert run is not None, "an outcome is of a run"
    if run.over:
        return Moment(run.run_id, True, status=state.status)
    requests = tuple(request.id for request in state.requests)
    why = run.quarantined or state.pause
    return Moment(run.run_id, False, requests, why, state.usage.requests, state.status)


async def state_at(store: StoreReads, agent_id: str, moment: Moment) -> AgentState:
    """The state of an agent at a moment: the last one, or else the first that its records fold to.

    Raises:
        UsageError: if these records are compacted away or deleted.

    """
    latest = await store.load_latest(agent_id)
    if latest is not None and _is_at(state := latest.folded(), moment):
        state.status = moment.status
        return state
    loaded = await store.load(agent_id)
    if loaded is not None:
        state = AgentState()
        with loaded.as_damage():
            for record in loaded.records:
                apply(state, record)
                if _is_at(state, moment):
                    state.status = moment.status
                    return state
    raise UsageError(
        f"The state of an outcome of agent {agent_id!r}, run {moment.run_id!r}, is no longer in "
        "the store: the agent was compacted or deleted. Read `outcome.state` before that"
    )


def _is_at(state: AgentState, moment: Moment) -> bool:
    run = state.run
    if run is None or run.run_id != moment.run_id:
        return False
    return moment_of(state) == moment._replace(status=state.status)
