"""Folds of what is to be run: queued messages, and plans for times to come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from understudy._base.authors import By
from understudy.models.attribution import from_user, sent_by
from understudy.state import records as r
from understudy.state.agent_state import AgentState
from understudy.state.folds.places import open_run
from understudy.state.plans import (
    BACKGROUND_ID,
    NO_PLANS,
    SENDER_OF_RESULTS,
    QueuedMessage,
    TakenMessage,
    is_result,
)
from understudy.state.shared_empties import with_item

REFUSALS_KEPT = 100
"""The number of refused messages whose errors stay in the state, newest kept."""


def queued_message(record: r.MessageQueued) -> QueuedMessage:
    """A message as it is in the queue, or among the messages that wait for their time."""
    return QueuedMessage(
        record.message_id,
        record.message,
        record.steer,
        record.self_sent,
        record.due,
        context=record.context,
        choices=record.choices,
        by=record.by,
        makes=record.makes,
    )


def background_started(state: AgentState, record: r.BackgroundStarted) -> None:
    calls = (state.plans or NO_PLANS).background
    change_plans(state, background={**calls, record.call.code: record.call})


def message_queued(state: AgentState, record: r.MessageQueued) -> None:
    queued = queued_message(record)
    state.refused.pop(record.message_id, None)
    if record.due is None:
        state.queue = with_item(state.queue, record.message_id, queued)
    else:
        timed = state.plans.timed if state.plans is not None else {}
        change_plans(state, timed={**timed, record.message_id: queued})
    state.message_ids = with_item(state.message_ids, record.message_id, None)
    if state.plans is not None and is_result(record.message_id):
        code = record.message_id.removeprefix(BACKGROUND_ID)
        change_plans(state, background=without(state.plans.background, code))


def message_due(state: AgentState, record: r.MessageDue) -> None:
    timed = (state.plans or NO_PLANS).timed
    # Time has passed, so a run that it starts does not count as started by the agent itself.
    queued = replace(timed[record.message_id], self_sent=False)
    state.queue = with_item(state.queue, record.message_id, queued)
    change_plans(state, timed=without(timed, record.message_id))


def message_cancelled(state: AgentState, record: r.MessageCancelled) -> None:
    queued = state.queue.pop(record.message_id, None)
    state.message_ids.pop(record.message_id, None)
    if queued is not None and queued.choices is not None:
        refuse(state, record.message_id, {})
    if state.plans is not None and record.message_id in state.plans.timed:
        change_plans(state, timed=without(state.plans.timed, record.message_id))


def message_refused(state: AgentState, record: r.MessageRefused) -> None:
    state.queue.pop(record.message_id, None)
    state.message_ids.pop(record.message_id, None)
    refuse(state, record.message_id, record.error)


def refuse(state: AgentState, message_id: str, error: dict[str, Any]) -> None:
    state.refused.pop(message_id, None)  # so that the newest is last
    state.refused = with_item(state.refused, message_id, error)
    while len(state.refused) > REFUSALS_KEPT:
        del state.refused[next(iter(state.refused))]


def messages_archived(state: AgentState, record: r.MessagesArchived) -> None:
    for message_id in record.runs:
        state.message_ids.pop(message_id, None)
    state.has_archive = True


def user_message(state: AgentState, record: r.UserMessage) -> None:
    shares = state.run is not None and state.run.shared is not None
    message = from_user(record.message) if shares else record.message
    if all_are_results(record.message_ids):
        message = sent_by(message, (SENDER_OF_RESULTS,))
    else:
        note_authors(state, (record.by,))
        message = sent_by(message, () if record.by is None else (record.by,))
    state.messages = state.messages.appending(message)
    dequeue(state, record.message_ids, record.at)


def all_are_results(message_ids: tuple[str, ...]) -> bool:
    """Whether all messages are results of background calls, which nobody has sent."""
    return bool(message_ids) and all(map(is_result, message_ids))


def note_authors(state: AgentState, by: Iterable[By | None]) -> None:
    """Add the senders of what enters the conversation now to `AgentState.authors`."""
    known = state.authors
    for author in by:
        if author is not None and not known and state.messages:
            known = (None,)  # the earlier messages have no name
        if author not in known and (known or author is not None):
            known = (*known, author)
    state.authors = known


def dequeue(state: AgentState, message_ids: tuple[str, ...], at: datetime | None) -> None:
    for message_id in message_ids:
        queued = state.queue.pop(message_id, None)
        state.refused.pop(message_id, None)
        # The ids of occurrences are not kept: their schedule knows which have come.
        if queued is None or queued.occurrence is None:
            taken = TakenMessage(open_run(state).run_id, at)
            state.message_ids = with_item(state.message_ids, message_id, taken)


def pause_requested(state: AgentState, record: r.PauseRequested) -> None:
    change_plans(state, pause=record.reason, pause_by=record.by if record.reason else None)


def schedule_set(state: AgentState, record: r.ScheduleSet) -> None:
    schedules = (state.plans or NO_PLANS).schedules
    change_plans(state, schedules={**schedules, record.schedule.id: record.schedule})


def schedule_removed(state: AgentState, record: r.ScheduleRemoved) -> None:
    id = record.schedule_id
    change_plans(state, schedules=without((state.plans or NO_PLANS).schedules, id))
    for message_id, queued in list(state.queue.items()):
        if queued.occurrence is not None and queued.occurrence.schedule_id == id:
            del state.queue[message_id]


def occurred(state: AgentState, record: r.Occurred) -> None:
    occurrence = record.occurrence
    schedules = (state.plans or NO_PLANS).schedules
    before = schedules[occurrence.schedule_id]
    next_due = before.next_due if occurrence.triggered else record.next_due
    after = replace(before, next_due=next_due, latest=occurrence)
    change_plans(state, schedules={**schedules, before.id: after})
    if occurrence.skipped is None:
        queued = QueuedMessage(
            record.message_id,
            before.message,
            steer=False,
            self_sent=False,
            occurrence=occurrence,
            context=before.context,
            by=occurrence.by,
        )
        state.queue = with_item(state.queue, record.message_id, queued)


def change_plans(state: AgentState, **changes: Any) -> None:
    plans = replace(state.plans or NO_PLANS, **changes)
    state.plans = None if plans == NO_PLANS else plans


def without(mapping: dict[str, Any], key: str) -> dict[str, Any]:
    return {other: value for other, value in mapping.items() if other != key}
