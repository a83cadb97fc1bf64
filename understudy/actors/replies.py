"""What an agent's actor answers, and when: nothing visible precedes its commit (J16)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pykka

from understudy._base.json_values import checked_json
from understudy.actors.activation import Activation
from understudy.actors.agent_events import Status
from understudy.actors.agent_slot import AgentSlot
from understudy.actors.messages import Notify, RunChoices
from understudy.agent.agent import Agent
from understudy.agent.runner import RunOptions
from understudy.errors import Quarantined, UsageError
from understudy.loop_actors.future import Future, refuse
from understudy.outcomes import Completed, Failed, Interrupted, Outcome, Paused, Stopped
from understudy.run.hooks import HookFailed
from understudy.state.agent_state import AgentState
from understudy.state.records import Revoked, Settled, ValuesMerged
from understudy.stopping import StopReason

__all__ = [
    "answer_when_durable",
    "answer_with",
    "check_known",
    "is_refused",
    "mirror",
    "notify",
    "options_of",
    "quarantine_outcome",
    "status_after",
]

T = TypeVar("T")


def options_of(agent: Agent, choices: RunChoices) -> RunOptions:
    """The options of a run, checked against the agent's definition.

    Raises:
        UsageError: as `Agent.execute` does.

    """
    return agent.run_options(
        choices.until_tool, choices.until_tool_success, choices.max_runs, choices.deadline
    )


def answer_when_durable(slot: AgentSlot, future: Future[T], value: T) -> None:
    """Answer as soon as all that was recorded is durable; with the store's error if it fails."""
    activation = slot.activation
    assert activation is not None, "only an agent that is awake answers"
    ledger = activation.ledger
    if not ledger.has_unflushed:
        future.set(value)
        return

    async def answer() -> T:
        await ledger.durable()
        return value

    answer_with(slot, future, answer)


def answer_with(
    slot: AgentSlot, future: Future[T], work: Callable[[], Awaitable[T]]
) -> asyncio.Task[None]:
    """Answer, in a task, with what it brings; whatever becomes of it, the future is settled."""

    async def answered() -> None:
        try:
            future.set(await work())
        except HookFailed as failed:
            refuse(future, failed.error)
        except Exception as error:
            refuse(future, error)

    def ended(_: asyncio.Task[None]) -> None:
        if not future.done():
            refuse(future, pykka.ActorDeadError(f"agent {slot.id!r}: its runtime has stopped"))

    task = slot.keep(answered())
    task.add_done_callback(ended)
    return task


def mirror(slot: AgentSlot, first: Future[Outcome], second: Future[Outcome]) -> None:
    """Give the second what the first gets."""

    async def mirrored() -> Outcome:
        return await first

    answer_with(slot, second, mirrored)


def is_refused(future: Future[Outcome]) -> bool:
    """Whether the run under this future never began: its message id is free again."""
    if not future.done():
        return False
    try:
        future.get()
    except Exception:
        return True
    return False


def notify(slot: AgentSlot, message: Notify) -> None:
    """Hand a message to a middleware; the values that it returns are merged, also mid-run (A7)."""
    activation = slot.activation
    assert activation is not None, "only an agent that is awake is told something"
    named = [
        hook
        for hook in activation.agent.definition.hooks.on_message
        if hook.middleware == message.middleware
    ]
    if not named:
        known = [hook.middleware for hook in activation.agent.definition.hooks.on_message]
        there = ", ".join(map(repr, known)) or "none"
        raise UsageError(
            f"Agent {slot.id!r} has no middleware {message.middleware!r} that takes messages; "
            f"there are: {there}"
        )

    async def told() -> None:
        view = activation.agent.runner.view(activation.ledger, slot.environment())
        for hook in named:
            delta = await hook(slot.services.threads, view, message.message)
            if delta is not None:
                changes = checked_json(delta, what=f"{hook.middleware}.on_message")
                activation.ledger.record(ValuesMerged(delta=changes, source=hook.middleware))
        await activation.ledger.durable()

    def heard(task: asyncio.Task[None]) -> None:
        activation.told = tuple(other for other in activation.told if other is not task)

    task = answer_with(slot, message.future, told)
    activation.told += (task,)
    task.add_done_callback(heard)


def quarantine_outcome(activation: Activation) -> Failed:
    """What everybody gets who wants something of a quarantined run (J10)."""
    run = activation.state.run
    assert run is not None, "what is quarantined is a run"
    assert run.quarantined is not None, "only called for a quarantined run"
    error = Quarantined(attempts=run.fruitless, cause=run.quarantined)
    state: AgentState = activation.state.copied()
    return Failed(error=error, run_id=run.run_id, state=state, usage=run.usage)


def check_known(agent_id: str, state: AgentState, fact: Revoked | Settled) -> None:
    """Raise a `UsageError` where there is nothing to forget."""
    known: dict[str, Any]
    known, wanted = (
        (dict(state.sticky), fact.tool_name)
        if isinstance(fact, Revoked)
        else (dict(state.doubts), fact.call_key)
    )
    if wanted not in known:
        there = ", ".join(map(repr, known)) or "none"
        raise UsageError(f"Agent {agent_id!r} has nothing standing for {wanted!r}; it has: {there}")


def status_after(outcome: Outcome) -> Status:
    """How the agent stands after this outcome (A1)."""
    match outcome:
        case Completed():
            return Status.IDLE
        case Interrupted():
            return Status.INTERRUPTED
        case Paused():
            return Status.PAUSED
        case Failed():
            return Status.FAILED
        case Stopped(signals=signals):
            highest = signals.highest
            asked = highest is not None and highest.reason is StopReason.USER_REQUESTED
            return Status.CANCELLED if asked else Status.IDLE
