"""What an agent's actor answers, and when: no answer precedes the commit of what it tells of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from understudy._base.authors import shown_author
from understudy._base.json_values import checked_json, shown
from understudy.actors.agent.activation import Activation
from understudy.actors.agent.messages import (
    AgentCall,
    ChangeFiles,
    Notify,
    WaitOutcome,
    handles,
)
from understudy.actors.agent.slot import AgentSlot
from understudy.approvals import Voter, why_not_settled_by
from understudy.errors import JournalFailed, UnderstudyError, UsageError, VoteRefused
from understudy.loop_actors.errors import ActorDied, RuntimeStopped
from understudy.loop_actors.future import Future, refuse, settle_in_task
from understudy.outcomes import Outcome
from understudy.run.hooks import HookFailed
from understudy.state.agent_state import AgentState
from understudy.state.doubts import why_not_settled
from understudy.state.records import ReviewClosed, Revoked, Settled, ValuesMerged

T = TypeVar("T")


def answer_when_durable(slot: AgentSlot, future: Future[T], value: T) -> None:
    """Answer a call once everything recorded is durable; with the store's error if that fails.

    An answer that recorded nothing is checked where hosts share the store: what is in memory may be
    a copy that another host has gone on from. Then it is `Fenced`, and the copy leaves memory.
    """
    activation = slot.current
    if not activation.ledger.has_unflushed and slot.services.shared_store is None:
        future.set(value)
        return

    async def durable_value() -> T:
        await confirm(slot, activation)
        return value

    answer_with(slot, future, durable_value)


def refuse_when_confirmed(slot: AgentSlot, future: Future[Any], error: Exception) -> None:
    """Give an error to a caller, once it is certain that this host still has the agent."""
    is_ours = slot.activation is not None and slot.services.shared_store is not None
    if not is_ours or isinstance(error, JournalFailed):
        refuse(future, error)
        return

    refuse_when_durable(slot, future, error)


def refuse_when_durable(slot: AgentSlot, future: Future[Any], error: Exception) -> None:
    """Give an error to a caller as soon as all that was recorded is durable."""
    activation = slot.current

    async def raise_it() -> None:
        await confirm(slot, activation)
        raise error

    answer_with(slot, future, raise_it)


async def confirm(slot: AgentSlot, activation: Activation) -> None:
    """Wait until everything is durable, or raise `Fenced` if another host has the agent by now."""
    if activation.ledger.has_unflushed:
        await activation.ledger.durable()  # its commit compares the epochs
        return
    if slot.services.shared_store is None:
        return
    owned, row = activation.journal.owned, await slot.services.store.find_agent(slot.id)
    if row is None or (row.incarnation, row.epoch) != (owned.incarnation, owned.epoch):
        activation.journal.fence("another runtime has claimed it since")
        if slot.activation is activation:
            slot.services.check_inbox(slot)
        activation.journal.check_owner()


def answer_with(
    slot: AgentSlot, future: Future[T], work: Callable[[], Awaitable[T]]
) -> asyncio.Task[None]:
    """Answer a call, in a task, with what `work` returns or raises. The future always settles."""

    def told(error: BaseException) -> Exception:
        return as_exception(slot.id, error.error if isinstance(error, HookFailed) else error)

    return settle_in_task(
        future,
        work,
        partial(slot.services.start_task, name=f"answering for {slot.id}"),
        told=told,
        gone=partial(runtime_stopped, slot.id),
    )


def answer_earlier(slot: AgentSlot, future: Future[Any], run_id: str) -> None:
    """Answer a call with the outcome of a run that later runs followed, read from the store."""
    activation = slot.current
    look = WaitOutcome(run_id=run_id, incarnation=activation.journal.owned.incarnation)

    async def outcome() -> Outcome:
        await confirm(slot, activation)
        return await slot.services.looks.outcome_of(slot, look)  # type: ignore[no-any-return]

    answer_with(slot, future, outcome)


def as_exception(agent_id: str, error: BaseException) -> Exception:
    """The error for a caller, who must not be ended by a `SystemExit` of an agent's code."""
    if isinstance(error, Exception):
        return error
    died = ActorDied(
        actor_urn=f"urn:understudy:agent:{agent_id}", actor_class="AgentActor", cause=shown(error)
    )
    died.__cause__ = error
    return died


def as_stored(error: Exception) -> UnderstudyError:
    """The error as records and other hosts have it; an error of another library as its text."""
    if isinstance(error, UnderstudyError):
        return error
    return UnderstudyError(f"{type(error).__name__}: {shown(error)}")


def runtime_stopped(agent_id: str) -> RuntimeStopped:
    """The error of every call that the end of the runtime leaves without an answer."""
    return RuntimeStopped(f"agent {agent_id!r}: its runtime has stopped", agent_id=agent_id)


@handles(Notify)
def notify(slot: AgentSlot, call: AgentCall) -> None:
    """Pass a message to a middleware, and merge the values that its hooks return.

    Raises:
        UsageError: if no middleware of this name takes messages.

    """
    activation, message = slot.current, call.message
    all_hooks = activation.agent.definition.hooks.on_message
    hooks = [hook for hook in all_hooks if hook.middleware == message.middleware]
    if not hooks:
        known = ", ".join(repr(hook.middleware) for hook in all_hooks) or "none"
        raise UsageError(
            f"Agent {slot.id!r} has no middleware {message.middleware!r} that takes messages; "
            f"there are: {known}"
        )

    async def call_hooks() -> None:
        if slot.services.calls is not None:
            # Else another host could take the agent meanwhile
            # (test_an_agent_whose_middleware_handles_a_message_is_not_taken).
            await activation.journal.note_index()
            call.notes.on_begun()
        view = activation.agent.runner.view(activation.ledger, slot.environment())
        for hook in hooks:
            delta = await hook(slot.services.threads, view, message.message)
            if delta is not None:
                changes = checked_json(delta, what=f"{hook.middleware}.on_message")
                activation.ledger.record(ValuesMerged(delta=changes, source=hook.middleware))
        await activation.ledger.durable()

    def ended(task: asyncio.Task[None]) -> None:
        activation.notifying = tuple(pair for pair in activation.notifying if pair[0] is not task)
        if slot.activation is activation and slot.services.calls is not None:
            slot.services.start_task(note())

    async def note() -> None:
        with suppress(JournalFailed):  # the caller that waits for a record is told
            await activation.journal.note_index()

    task = answer_with(slot, call.future, call_hooks)
    activation.notifying += ((task, call.future),)
    task.add_done_callback(ended)


def check_known(
    agent_id: str,
    state: AgentState,
    fact: Revoked | Settled | ReviewClosed,
    voter: Voter | None,
    now: datetime,
) -> None:
    """Check that there is a grant, doubt or review for a fact, and that this person may end it.

    Raises:
        UsageError: if there is not; it lists what there is.
        VoteRefused: if this person may not settle or review it.

    """
    known: dict[str, Any]
    why = ""
    if isinstance(fact, ReviewClosed):
        known, wanted, what = state.reviews, fact.review_id, "open review"
    elif isinstance(fact, Revoked):
        known, wanted, what = state.grants, fact.grant_id, "grant"
    else:
        known, wanted, what = state.doubts_in_tree, fact.call_key, "doubt about call"
        why = why_not_settled(state.requests, wanted)
    if wanted not in known:
        there = ", ".join(map(repr, known)) or "none"
        raise UsageError(f"Agent {agent_id!r} has no {what} {wanted!r}; there are: {there}{why}")
    if isinstance(fact, Revoked):
        return
    if isinstance(fact, Settled):
        about, review_id, name = "The doubt about call", "", shown_author(fact.by)
        refused = why_not_settled_by(state.doubts_in_tree[wanted], name, voter, now)
    else:
        about, review_id, name = "Review", wanted, fact.by
        refused = state.reviews[wanted].why_not_by(fact.person)
    if refused is not None:
        text = f"{about} {wanted!r} of agent {agent_id!r}: {refused}"
        raise VoteRefused(text, request_id=review_id, person=name or "")


@handles(ChangeFiles)
def record_files(slot: AgentSlot, call: AgentCall) -> None:
    """Record that the application has changed files.

    Raises:
        UsageError: if a path is not what it must be; nothing is changed then.

    """
    message, ledger = call.message, slot.current.ledger
    for path, file in message.expected.items():
        if ledger.files.get(path) != file:
            raise UsageError(
                f"{path!r} of agent {slot.id!r} was changed meanwhile, and nothing is written: "
                "read it again"
            )
    ledger.record(message.fact)
    if message.blobs:
        ledger.keep_blobs(message.blobs)
    answer_when_durable(slot, call.future, None)
