"""How each record changes the state. None walks the history.

Every function here and in `state.folds` is deterministic: it reads no clock and creates no id, so
the same records give the same state in any process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from understudy.state import records as r
from understudy.state.agent_state import AgentState
from understudy.state.children import with_child
from understudy.state.folds import (
    agents,
    calls,
    ends,
    grants,
    places,
    queue,
    replies,
    requests,
    runs,
)
from understudy.state.records import ChildRecord
from understudy.state.run_state import RunState
from understudy.state.workflow_sharing import new_child, note_view

FOLD_VERSION = 2
"""The version of the states that records fold to. A checkpoint of another version is not used.
Raise it if the same records fold to another state, or if a state has another field."""

_WITH_FILES = frozenset({r.Result, r.FilesChanged})


def apply(state: AgentState, record: r.Record) -> None:
    """Change the state of an agent in place by one record."""
    used = grants.calls_with_uses(state) if state.grants else None
    inner, kind = record, type(record)
    if kind is ChildRecord:
        inner = _child_record(state, record)  # type: ignore[arg-type]  # by its kind
        kind = type(inner)
    else:
        _APPLY[kind](state, record)
    if kind in _PROGRESS and state.run is not None:
        _note_progress(state.run, inner)
    if kind in _WITH_FILES and inner.files:  # type: ignore[union-attr]  # by its kind
        agents.change_files(state, record, cast("agents.WithFiles", inner))
    if used is not None or (kind is r.Decided and inner.decision.grant is not None):  # type: ignore[union-attr]  # as above
        grants.change_grants(state, record, inner, used or {})


def replay(records: Iterable[r.Record], state: AgentState | None = None) -> AgentState:
    """Return the fold of an agent's records, from the first record on, or after `state`."""
    state = AgentState() if state is None else state
    for record in records:
        apply(state, record)
    return state


def _child_record(state: AgentState, record: ChildRecord) -> r.Record:
    """Change the state of an inner agent. Returns the innermost record."""
    key = record.child
    inner: r.Record = record.record
    child = state.children.get(key)
    is_new = child is None
    if child is None:
        child = new_child(state, record)
        state.children = with_child(state.children, key, child)
    kind = type(inner)
    if kind is ChildRecord:
        inner = _child_record(child, inner)  # type: ignore[arg-type]  # by its kind
        kind = type(inner)
    else:
        _APPLY[kind](child, inner)
    run = child.run
    if child.may_be_in_doubt:
        state.note_doubts_of(key)
    if run is None:
        return inner
    if is_new:
        note_view(state, child)
    if kind in _PROGRESS:
        _note_progress(run, inner)
    if run.halt is not None:  # a halt holds for all agents above, too
        places.open_run(state).halt = run.halt
    if kind is r.UserMessage:  # it may have been in the queue of this agent
        said = cast("r.UserMessage", inner)
        queue.dequeue(state, said.message_ids, said.at)
        queue.note_authors(state, (said.by,))
    elif kind is r.PointAnswered or kind is r.Settled:
        calls.note_answer(state, cast("r.PointAnswered | r.Settled", inner))
    return inner


def _note_progress(run: RunState, record: r.Record) -> None:
    run.fruitless = 0
    if run.continues is not None and _gets_further(record):
        run.continues.retries = 0


def _gets_further(record: r.Record) -> bool:
    """Whether the record shows that a run which continues a failed run got further than that
    run.
    """
    if isinstance(record, r.TurnClosed):
        return record.end is None or record.end.outcome != "failed"
    return isinstance(record, r.Result | r.SubRunEnded)


# A run that records one of these has got further: no attempt records again what an earlier attempt
# has recorded. So a run that only repeats itself is quarantined in the end.
_PROGRESS = frozenset(
    {
        r.HooksRan,
        r.Reply,
        r.ReplyHeld,
        r.Once,
        r.ModelAsked,
        r.PauseChecked,
        r.InterruptsChecked,
        r.Result,
        r.Voted,
        r.Decided,
        r.PointReached,
        r.PointAnswered,
        r.Propagated,
        r.TurnClosed,
        r.SubRunEnded,
    }
)

_APPLY: dict[type[r.Record], Callable[[AgentState, Any], object]] = {
    r.Snapshot: agents.snapshot,
    r.SnapshotMessages: agents.snapshot_messages,
    r.AgentCreated: agents.agent_created,
    r.Imported: agents.imported,
    r.StatusNoted: agents.status_noted,
    r.ValuesMerged: agents.values_merged,
    r.Quarantined: runs.quarantined,
    r.Released: runs.released,
    r.RunStarted: runs.run_started,
    r.Attempt: runs.attempt,
    r.AttemptClosed: runs.attempt_closed,
    r.UserMessage: queue.user_message,
    r.MessageQueued: queue.message_queued,
    r.BackgroundStarted: queue.background_started,
    r.MessageDue: queue.message_due,
    r.MessageCancelled: queue.message_cancelled,
    r.MessageRefused: queue.message_refused,
    r.MessagesArchived: queue.messages_archived,
    r.PauseRequested: queue.pause_requested,
    r.ScheduleSet: queue.schedule_set,
    r.ScheduleRemoved: queue.schedule_removed,
    r.Occurred: queue.occurred,
    r.CancelRequested: runs.cancel_requested,
    r.Signalled: runs.signalled,
    r.Override: runs.override,
    r.EarlyStopBegun: runs.early_stop_begun,
    r.TimeSpent: runs.time_spent,
    r.HooksRan: runs.hooks_ran,
    r.Reply: replies.reply,
    r.ReplyHeld: replies.reply_held,
    r.PauseChecked: replies.pause_checked,
    r.Paused: replies.paused,
    r.Unpaused: replies.unpaused,
    r.Requested: requests.requested,
    r.InterruptsChecked: requests.interrupts_checked,
    r.Reminded: requests.reminded,
    r.Escalated: requests.escalated,
    r.Voted: requests.voted,
    r.GlassBroken: requests.glass_broken,
    r.ReviewClosed: requests.review_closed,
    r.Decided: requests.decided,
    r.Revoked: grants.revoked,
    r.Started: calls.started,
    r.Result: calls.result,
    r.FilesChanged: agents.files_changed,
    r.Suspended: calls.suspended,
    r.PointReached: calls.point_reached,
    r.TokenMade: calls.token_made,
    r.PointAnswered: calls.point_answered,
    r.ChildRecord: _child_record,
    r.Settled: calls.settled,
    r.Propagated: replies.propagated,
    r.TurnClosed: replies.turn_closed,
    r.SubRunEnded: ends.sub_run_ended,
    r.HistoryReplaced: agents.history_replaced,
    r.Once: runs.once,
    r.ModelAsked: replies.model_asked,
    r.ModelGaveNoAnswer: replies.model_gave_no_answer,
    r.Withdrawn: requests.withdrawn,
    r.RunEnded: ends.run_ended,
}
