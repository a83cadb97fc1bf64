"""The ids of an agent's messages: which are known, and which run took each message.

A message whose id is known is not taken again. The state has the ids of the newest messages, and
the index of the store those of older ones. An id that is not in the state is looked up before its
message is handled, if there are older ones.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import NamedTuple

from understudy.actors.agent.activation import MessageLookup
from understudy.actors.agent.messages import (
    AgentCall,
    AgentMessage,
    Cancel,
    CancelMessage,
    Retry,
    RunRequest,
    Send,
    WaitOutcome,
)
from understudy.actors.agent.run_outcomes import own_run
from understudy.actors.agent.slot import AgentSlot
from understudy.errors import JournalFailed, UsageError
from understudy.journal import StoreReads
from understudy.journal.parts import read_in_parts
from understudy.state.agent_state import AgentState
from understudy.state.plans import BACKGROUND_ID, RETRY_ID, RUN_ID, retry_id, run_named_by
from understudy.state.records import MessagesArchived, Record, RunStarted, Snapshot

MAX_LENGTH = 500
"""The most characters of a message id. A database indexes them."""
KEPT = 10_000
"""The number of newest messages whose ids stay in the state, however old they are."""
KEPT_FOR = timedelta(days=7)
"""The age up to which message ids stay in the state, measured back from the newest message."""
AT_ONCE = 1_000
"""The number of message ids that leave the state by one record."""


def check_message_id(given: object, *, is_new: bool = False) -> None:
    """Check that every store can keep and index this id of a message.

    Args:
        given: by the caller.
        is_new: whether it is for a new message, which has an id of the caller.

    Raises:
        UsageError: if it cannot.

    """
    if not isinstance(given, str) or not 0 < len(given) <= MAX_LENGTH or "\0" in given:
        raise UsageError(
            f"`message_id` must be text of 1 to {MAX_LENGTH} characters without NUL, "
            f"got {given!r:.100}"
        )
    if given.startswith(RETRY_ID) or (is_new and given.startswith((RUN_ID, BACKGROUND_ID))):
        raise UsageError(
            f"`message_id` must not begin with {RETRY_ID!r}, {RUN_ID!r} or {BACKGROUND_ID!r}: the "
            "runtime makes such ids itself. Ask for the outcome of such a message by "
            f"`outcome(message_id=...)`, or send it with an id of your own, got {given!r:.100}"
        )
    try:
        given.encode()
    except UnicodeEncodeError:
        raise UsageError(
            "`message_id` is not valid Unicode, as it holds half of a surrogate pair, "
            f"got {given!r:.100}"
        ) from None


def run_of(slot: AgentSlot, message_id: str | None) -> str | None:
    """The id of the run that took this message, or that begins with it; None if no run did."""
    if message_id is None:
        return None
    taken = slot.state.message_ids.get(message_id)
    if taken is not None:
        return taken.run_id
    begins = slot.current.beginning
    if begins is not None and message_id in begins.message_ids:
        return begins.run_id
    return own_run(slot.state, message_id) or _looked_up(slot, message_id)


def message_of(state: AgentState, run_id: str) -> str | None:
    """The id of a message that this run has taken, if one was given to it by a caller."""
    taken = reversed(state.message_ids.items())
    return next((id for id, each in taken if each is not None and each.run_id == run_id), None)


def is_known(slot: AgentSlot, message_id: str) -> bool:
    """Whether a message of this id is recorded: in the queue, or taken by a run."""
    if message_id in slot.state.message_ids:
        return True
    return (own_run(slot.state, message_id) or _looked_up(slot, message_id)) is not None


def _looked_up(slot: AgentSlot, message_id: str) -> str | None:
    lookup = slot.current.lookup
    return lookup.run_id if lookup is not None and lookup.message_id == message_id else None


async def archived_run(
    store: StoreReads, state: AgentState, agent_id: str, id: str, *, is_for_outcome: bool = True
) -> str | None:
    """The id of the run that took a message of which the state has nothing; None if none did.

    Raises:
        UsageError: if it is to be known for the outcome of that run, and cannot be: `run` has made
            the id, and the first records of the agent are compacted away.

    """
    if id in state.message_ids or id in state.refused or own_run(state, id) is not None:
        return None
    own = run_named_by(id)
    found = await recorded_runs(store, agent_id) if own is not None else RecordedRuns()
    if own in found.ids:
        return own
    runs = await store.message_runs(agent_id, [id]) if state.has_archive else {}
    if id not in runs and found.floor and is_for_outcome:
        raise UsageError(
            f"Agent {agent_id!r} has no message {id!r} any more: its first records are compacted "
            "away. If they had the run of this message, that is over, and its reply is in the "
            "history of ref.state()"
        )
    return runs.get(id)


class RecordedRuns(NamedTuple):
    """The ids of the runs that the records of an agent tell of."""

    ids: frozenset[str] = frozenset()
    floor: int = 0
    """The number of the last record that was compacted away; 0 = none was."""


async def recorded_runs(store: StoreReads, agent_id: str) -> RecordedRuns:
    """The runs that begin in an agent's records, and the run that is open at the first record."""
    read = await read_in_parts(store, agent_id, lambda _: _RunIds())
    if read is None:
        return RecordedRuns()
    first, found = read
    return RecordedRuns(frozenset(found.ids), first.agent.floor)


class _RunIds:
    """Collects the ids of the runs of which records tell."""

    def __init__(self) -> None:
        self.ids: set[str] = set()

    def add(self, seq: int, record: Record) -> None:
        if isinstance(record, RunStarted):
            self.ids.add(record.run_id)
        elif isinstance(record, Snapshot) and record.state.get("run"):
            self.ids.add(record.state["run"]["run_id"])


def must_look_up(slot: AgentSlot, call: AgentCall) -> bool:
    """Whether the store must be asked for a message's id before the message is handled.

    If so, the store is asked now. The message waits in the inbox, and all that are behind it: what
    a caller asks for is done in its order.
    """
    state, asked = slot.state, call.message
    message_id = _id_in(asked)
    if message_id is None or is_known(slot, message_id) or run_of(slot, message_id) is not None:
        return False
    if run_named_by(message_id) is None:
        if not state.has_archive:
            return False
    elif isinstance(asked, RunRequest):
        return False  # its id was made for it: `Outgoing` asks where a call is in doubt
    activation = slot.current
    if activation.lookup is not None and activation.lookup.call is call:
        return not activation.lookup.is_done
    lookup = activation.lookup = MessageLookup(call, message_id)

    async def look_up() -> None:
        try:
            lookup.run_id = await archived_run(
                slot.services.store,
                state,
                slot.id,
                message_id,
                is_for_outcome=isinstance(asked, WaitOutcome),
            )
            lookup.is_done = True
        except (JournalFailed, UsageError) as error:
            activation.lookup = None
            # Race: this against the end of the activation. Its inbox stays, and the next activation
            # looks the id up anew.
            slot.refuse_those(lambda each: each is call, error)
        slot.services.check_inbox(slot)

    slot.services.start_task(look_up(), f"looking up a message of {slot.id}")
    return True


def _id_in(message: AgentMessage) -> str | None:
    if isinstance(message, Send | CancelMessage | Cancel | WaitOutcome):
        return message.message_id
    if isinstance(message, Retry) and message.run_id is not None:
        return retry_id(message.run_id)
    return None


def archive(slot: AgentSlot) -> None:
    """Move the ids of old messages from the state to the store's index, once there are many."""
    state = slot.state
    surplus = len(state.message_ids) - KEPT
    if surplus < AT_ONCE:
        return
    store = slot.services.store
    if "messages" not in store.keeps:
        return
    times = (taken.at for taken in reversed(state.message_ids.values()) if taken is not None)
    newest = next((at for at in times if at is not None), None)
    # The last run's ids stay: its end answers those who wait for them, also after weeks.
    last = None if state.run is None else state.run.run_id
    runs = {
        id: taken.run_id
        for id, taken in islice(state.message_ids.items(), surplus)
        if taken is not None
        and taken.run_id != last
        and (taken.at is None or newest is None or taken.at < newest - KEPT_FOR)
    }
    ids = iter(runs.items())
    while len(part := dict(islice(ids, AT_ONCE))) == AT_ONCE:
        slot.current.ledger.record(MessagesArchived(runs=part))
