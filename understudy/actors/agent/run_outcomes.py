"""What came of runs, told from a state: the same in memory and from the store."""

from __future__ import annotations

from collections.abc import Mapping

from understudy.actors.agent.events import Status
from understudy.agent.agent import Agent
from understudy.errors import (
    Quarantined,
    UnknownMessage,
    UsageError,
    error_from_dict,
)
from understudy.journal import IndexStatus, index_status_of, rest_status
from understudy.outcomes import Failed, Interrupted, Outcome, Paused, Waiting
from understudy.state.agent_state import AgentState
from understudy.state.plans import run_named_by

GOES_ON = frozenset({IndexStatus.OPEN, IndexStatus.SUSPECT, IndexStatus.QUEUED})
"""The index statuses of an agent whose run goes on, or begins, once the agent has an owner."""


_STATUSES: Mapping[type[Outcome], Status] = {
    Interrupted: Status.INTERRUPTED,
    Paused: Status.PAUSED,
    Waiting: Status.WAITING,
    Failed: Status.FAILED,
}
"""The status of an agent by the type of its last outcome. The run's end tells other statuses."""


def status_after(outcome: Outcome) -> Status:
    """The status of an agent whose run ended or was suspended with this outcome."""
    return _STATUSES.get(type(outcome)) or Status(rest_status(outcome.state))


def noted(outcome: Outcome, seq: int) -> Outcome:
    """The outcome, marked with the number of records that its agent had then.

    The status in its state is the one that follows from it. It is recorded behind what led to it:
    one host has read it by now, another one has not
    (test_the_state_of_an_outcome_has_the_status_that_follows_from_it).
    """
    outcome.state.status = status_after(outcome).value
    object.__setattr__(outcome, "_seq", seq)
    return outcome


def has_outcome(state: AgentState) -> bool:
    """Whether the last run of this state has an outcome that lasts; also if there was no run."""
    index_status = index_status_of(state)
    if index_status is IndexStatus.WAITS:  # for a person, or paused; else the run goes on by itself
        return bool(state.requests) or state.pause is not None
    return index_status not in GOES_ON


def last_outcome(agent: Agent, state: AgentState, seq: int) -> Outcome | None:
    """The outcome of the last run of a state, if it has one; None without any run.

    It is over, interrupted, paused or quarantined.

    Args:
        agent: its definition.
        state: the fold of its records.
        seq: the number of the last of them.

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
    return None if outcome is None else noted(outcome, seq)


def held_outcome(agent: Agent, state: AgentState, seq: int) -> Outcome | None:
    """The outcome of an agent's run that would go on by itself, but not at the host that has it.

    It has paused the run, because it lacks what that was given. Or the run is over, and the next
    ones are by messages of the agent to itself, of which as many as may be have begun a run.
    """
    run = state.run
    if run is None:
        return None
    if run.over:
        is_held = state.status == "idle" and all(each.self_sent for each in state.queue.values())
        return last_outcome(agent, state, seq) if is_held else None
    if state.status != "paused" or state.pause is not None:
        return None
    reason = "needs deps" if run.deps_given else "needs pause_when"
    paused = Paused(reason=reason, run_id=run.run_id, state=state.copied(), usage=state.usage)
    return noted(paused, seq)


def run_of_message(agent_id: str, state: AgentState, message_id: str) -> str | None:
    """The id of the run that took this message; None while it is in the queue.

    Raises:
        UnknownMessage: if there is no such message.
        UnderstudyError: the error of a `run` that was refused when its turn came.
        UsageError: if it waits for its time.

    """
    if message_id in state.refused:
        raise refusal(agent_id, state, message_id)
    own = own_run(state, message_id)
    if own is not None:
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


def own_run(state: AgentState, message_id: str) -> str | None:
    """The id of the open or last run, if it has begun by a message with the id of that run."""
    run = state.run
    return run.run_id if run is not None and run.run_id == run_named_by(message_id) else None


def refusal(agent_id: str, state: AgentState, message_id: str) -> Exception:
    """The error of a `run` that was refused when its turn came, or cancelled before that."""
    error = state.refused[message_id]
    if not error:
        return UnknownMessage(agent_id=agent_id, message_id=message_id, is_cancelled=True)
    return error_from_dict(error)
