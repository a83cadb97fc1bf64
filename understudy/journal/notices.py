"""The outbox: what people are to be told of requests, kept in the store until they are told.

A row is written in the transaction that changes the rows of `asks`, by triggers of the database.
So any host of the store writes it, and a host that tells nobody knows nothing of it. The triggers
are made by the first host that tells people, and can be removed.

A row without a channel says that something happened. Whoever finds it adds a row for each channel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from understudy._base.json_values import shown
from understudy.journal.contracts import from_row, time_number

Happened = Literal["asked", "reminder", "escalation", "ended", "expired"]
"""What happened to a request. `ended`: it does not wait any more; `expired` is one way to end."""
NoticeState = Literal["new", "done", "dropped", "failed"]
"""`new`: it is to be delivered. `dropped`: nobody needed it any more. `failed`: it was given up."""
STATES: tuple[NoticeState, ...] = ("new", "done", "dropped", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredNotice:
    """One row of the outbox."""

    no: int
    agent_id: str
    agent: str
    """The name of the agent's definition."""
    request_id: str
    what: Happened
    count: int
    """The number of the reminder, or of the escalation; else 0."""
    channel: str
    """The name of the channel by which people are told; empty in the row from which the rows of
    channels are made."""
    state: NoticeState
    due: datetime | None
    """The time at which the notice is tried next, or by which the host that tries it now must have
    done so."""
    attempts: int
    at: datetime | None
    """The time at which a host found the notice, or tried it last."""
    host: str
    """The name of the host that tried the notice last."""
    detail: str
    """Why the last attempt failed, or why the notice was dropped."""
    receipt: str
    """The text that the channel needs to change its message later; empty where it does not."""
    is_deleted: bool
    """Whether the agent is deleted."""

    def to_dict(self) -> dict[str, Any]:
        """The notice as plain data, to be shown."""
        data = asdict(self)
        del data["receipt"], data["is_deleted"]
        due = self.due if self.state == "new" else None
        times = {"due": due, "at": self.at}
        return data | {name: time and time.isoformat() for name, time in times.items()}


Fetch: TypeAlias = Callable[[str, Any], list[tuple[Any, ...]]]

# The id of a request in the id of its row: without the number of its votes.
_CUT = "rtrim({row}.id, '0123456789')"
_REQUEST = (
    f"CASE WHEN length({_CUT}) < length({{row}}.id) AND substr({_CUT}, length({_CUT}), 1) = '/'"
    f" THEN substr({{row}}.id, 1, length({_CUT}) - 1) ELSE {{row}}.id END"
)
_NEW, _OLD = _REQUEST.format(row="NEW"), _REQUEST.format(row="OLD")
_NOTE = "INSERT INTO notices (agent, request, what, count) SELECT"
_REMINDED = (
    f"{_NOTE} NEW.agent, {_NEW}, 'reminder', NEW.reminders WHERE NEW.reminders > {{before}}"
    " ON CONFLICT DO NOTHING;"
)
_ESCALATED = (
    f"{_NOTE} NEW.agent, {_NEW}, 'escalation', NEW.escalations WHERE NEW.escalations > {{before}}"
    " ON CONFLICT DO NOTHING;"
)
# A vote replaces the row of a request, and so does a run that goes on with another answer: the new
# row comes in the same transaction, or later. What is asked again has not ended.
ON_INSERT = (
    f"DELETE FROM notices WHERE agent = NEW.agent AND request = {_NEW} AND what = 'ended'"  # noqa: S608
    " AND channel = '';"
    f" {_NOTE} NEW.agent, {_NEW}, 'asked', 0 WHERE true ON CONFLICT DO NOTHING;"
    f" {_REMINDED.format(before='0')} {_ESCALATED.format(before='0')}"
)
ON_UPDATE = f"{_REMINDED.format(before='OLD.reminders')} " + _ESCALATED.format(
    before="OLD.escalations"
)
ON_DELETE = (
    f"{_NOTE} OLD.agent, {_OLD}, 'ended', 0 WHERE true"
    " ON CONFLICT (agent, request, what, count, channel) DO UPDATE SET state = 'new', due = 0,"
    " attempts = 0;"
)
"""Statements of the triggers, as both databases take them."""

_HAS_SQLITE_TRIGGERS = (
    "SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND name = 'notices_of_new'"
)
_SQLITE_TRIGGERS = {
    f"notices_of_{name}": f"CREATE TRIGGER notices_of_{name} AFTER {change} ON asks"
    f" WHEN {row}.kind = 'request' BEGIN {statements} END"
    for name, change, row, statements in (
        ("new", "INSERT", "NEW", ON_INSERT),
        ("told", "UPDATE", "NEW", ON_UPDATE),
        ("gone", "DELETE", "OLD", ON_DELETE),
    )
}


def turn_sqlite_triggers(fetch: Fetch, on: bool) -> bool:
    """Make the triggers in a database of SQLite, or remove them; whether something changed."""
    if on == bool(fetch(_HAS_SQLITE_TRIGGERS, ())):
        return False
    for name, statement in _SQLITE_TRIGGERS.items():
        fetch(statement if on else f"DROP TRIGGER {name}", ())
    return True


_COLUMNS = """
SELECT n.no, a.agent_id, a.definition, n.request, n.what, n.count, n.channel, n.state, n.due,
    n.attempts, n.at, n.host, n.detail, n.receipt, a.deleted
FROM notices n JOIN agents a ON a.key = n.agent"""
_DUE = "SELECT no FROM notices WHERE state = 'new' AND due <= %s ORDER BY due, no LIMIT %s"
_LOOK_AGAIN = """
UPDATE notices SET state = 'new', due = 0, attempts = 0
FROM notices o WHERE o.no = %s AND notices.agent = o.agent AND notices.request = o.request
    AND notices.what = 'ended' AND notices.channel = ''"""
IS_ASKED = """
EXISTS (SELECT 1 FROM asks k WHERE k.agent = notices.agent AND (k.id = notices.request
    OR (k.id >= notices.request || '/' AND k.id < notices.request || '0')))"""
"""Whether the request of a row waits, whatever votes it has."""
ASK_OF = "a.agent_id = %s AND (k.id = %s OR (k.id >= %s AND k.id < %s)) AND k.kind = 'request'"
"""The condition of the row of `asks` of a request; see `ask_values`."""


def ask_values(agent_id: str, request_id: str) -> list[str]:
    """The values of `ASK_OF`."""
    return [agent_id, request_id, f"{request_id}/", f"{request_id}0"]


def notices_query(
    states: Sequence[NoticeState], after: int | None, limit: int
) -> tuple[str, list[Any]]:
    """The rows of channels with one of these states, newest first, below a number."""
    marks = ", ".join(["%s"] * len(states))
    where = f"n.channel <> '' AND n.state IN ({marks})"
    values: list[Any] = [*states]
    if after is not None:
        where, values = f"{where} AND n.no < %s", [*values, after]
    return f"{_COLUMNS} WHERE {where} ORDER BY n.no DESC LIMIT %s", [*values, limit]


def stored_notice(row: Sequence[Any]) -> StoredNotice:
    """The notice of a database's row.

    Raises:
        StoreDamaged: if it cannot be what a store has written.

    """
    return from_row(StoredNotice, row, f"a notice of agent {shown(row[1])}")


class Outbox:
    """The changes of the outbox, in a transaction of an SQL database. A change may be made twice.

    A database without SQL overrides all methods.

    Args:
        fetch: makes a statement in the writer's transaction.
        turn: makes or removes the triggers, and says whether something changed.
        locks: ends a statement that locks the rows which it brings.

    """

    def __init__(self, fetch: Fetch, turn: Callable[[bool], bool], locks: str) -> None:
        self._fetch = fetch
        self._turn = turn
        self._locks = locks

    def turn(self, on: bool) -> bool:
        """Make the triggers, or remove them and all rows. Returns whether something changed."""
        changed = self._turn(on)
        if not on:
            self._fetch("DELETE FROM notices", ())
        return changed

    def claim(self, now: datetime, until: datetime, host: str, limit: int) -> list[StoredNotice]:
        """The rows to be delivered that are due, which are due again at `until`.

        No other host gets them before that. Each counts one attempt more.
        """
        due = f"{_DUE}{self._locks}{' SKIP LOCKED' if self._locks else ''}"
        claim = (
            "UPDATE notices SET due = %s, at = %s, host = %s, attempts = attempts + 1"  # noqa: S608
            f" WHERE no IN ({due}) RETURNING no"
        )
        number = time_number(now)
        claimed = self._fetch(claim, [time_number(until), number, host, number, limit])
        found = sorted(no for (no,) in claimed)
        if not found:
            return []
        marks = ", ".join(["%s"] * len(found))
        rows = self._fetch(f"{_COLUMNS} WHERE n.no IN ({marks}) ORDER BY n.no", found)
        return [stored_notice(row) for row in rows]

    def settle(
        self,
        no: int,
        state: NoticeState,
        *,
        at: datetime,
        due: datetime | None = None,
        detail: str = "",
        receipt: str = "",
        counts: bool = True,
    ) -> None:
        """Say what came of a row. A row that is done stays done.

        Args:
            no: of the row.
            state: of it from now on.
            at: now.
            due: when a row that stays `new` is tried next.
            detail: why it failed, or was dropped.
            receipt: what the channel needs to change its message later.
            counts: whether this was an attempt.

        """
        settled = (
            "UPDATE notices SET state = %s, due = %s, at = %s, detail = %s,"
            " attempts = attempts - %s,"
            " receipt = CASE WHEN %s = '' THEN receipt ELSE %s END WHERE no = %s"
            " AND (state = 'new' OR %s = 'done')"
        )
        number = time_number(at)
        due_number = number if due is None else time_number(due)
        undone = 0 if counts else 1
        values = [state, due_number, number, detail, undone, receipt, receipt, no, state]
        self._fetch(settled, values)

    def add(self, no: int, what: Happened, channel: str, *, at: datetime, receipt: str) -> None:
        """Add the row of a channel, beside the row of what happened. It is there once.

        A row of `ended` is delivered again where its receipt is another one.
        """
        added = (
            "INSERT INTO notices (agent, request, what, count, channel, at, receipt)"
            " SELECT agent, request, %s, count, %s, %s, %s FROM notices WHERE no = %s"
            " ON CONFLICT (agent, request, what, count, channel) DO UPDATE SET state = 'new',"
            " due = 0, attempts = 0, receipt = excluded.receipt"
            " WHERE notices.what = 'ended' AND notices.receipt <> excluded.receipt"
        )
        self._fetch(added, [what, channel, time_number(at), receipt, no])

    def look_again(self, no: int) -> None:
        """Look once more at how the request of a row ended, if it has ended already."""
        self._fetch(_LOOK_AGAIN, [no])

    def receipts(self, no: int) -> list[tuple[str, str]]:
        """Channel and receipt of all messages about the request of a row.

        Nobody else changes the row until the end of the transaction.
        """
        self._fetch(f"SELECT no FROM notices WHERE no = %s{self._locks}", [no])  # noqa: S608
        found = (
            "SELECT notices.channel, notices.receipt FROM notices, notices o WHERE o.no = %s"
            " AND notices.agent = o.agent AND notices.request = o.request"
            " AND notices.receipt <> '' AND notices.what <> 'ended' ORDER BY notices.no"
        )
        return [(channel, receipt) for channel, receipt in self._fetch(found, [no])]

    def retry(self, no: int, at: datetime) -> bool:
        """Deliver a row that has failed, from its first attempt on. Returns whether it had."""
        again = (
            "UPDATE notices SET state = 'new', due = %s, attempts = 0"
            " WHERE no = %s AND state = 'failed' RETURNING no"
        )
        return bool(self._fetch(again, [time_number(at), no]))

    def clean(self, before: datetime) -> None:
        """Remove rows that are over, and older, unless their request still waits."""
        gone = f"DELETE FROM notices WHERE state <> 'new' AND at < %s AND NOT {IS_ASKED}"  # noqa: S608
        self._fetch(gone, [time_number(before)])
