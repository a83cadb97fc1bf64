"""`MemoryOutbox`: the outbox of a store in memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone

from understudy.journal.asks import Ask, AskChanges
from understudy.journal.contracts import StoredAgent
from understudy.journal.memory_index import MemoryIndex
from understudy.journal.notices import Happened, NoticeState, Outbox, StoredNotice

_AT_ONCE = datetime.min.replace(tzinfo=timezone.utc)
_Key = tuple[str, str, Happened, int, str]


class MemoryOutbox(Outbox):
    """Keeps notices while the process lives.

    Args:
        index: of the store, which tells of what agents ask.

    """

    def __init__(self, index: MemoryIndex) -> None:
        self._index = index
        self._numbers = itertools.count(1)
        self._rows: dict[_Key, StoredNotice] = {}

    def turn(self, on: bool) -> bool:
        changed = on != (self._index.on_asks is not None)
        self._index.on_asks = self._note if on else None
        if not on:
            self._rows.clear()
        return changed

    def has_new(self, agent_id: str) -> bool:
        """Whether something about an agent is to be told."""
        return any(row.agent_id == agent_id and row.state == "new" for row in self._rows.values())

    def _note(self, agent: StoredAgent, changed: AskChanges) -> None:
        of = (agent.agent_id, agent.agent)
        for id in changed.gone:
            gone = self._index.ask_by_id(agent.agent_id, id)
            if gone is not None and gone.kind == "request":
                self._put(of, gone.request().id, "ended", again=True)
        for ask in changed.new:
            if ask.kind == "request":
                self._rows.pop((agent.agent_id, _request_of(ask), "ended", 0, ""), None)
                self._put(of, _request_of(ask), "asked")
        for ask in (*changed.new, *changed.told):
            if ask.kind == "request" and ask.told.reminders:
                self._put(of, _request_of(ask), "reminder", ask.told.reminders)
            if ask.kind == "request" and ask.told.escalations:
                self._put(of, _request_of(ask), "escalation", ask.told.escalations)

    def _put(
        self,
        agent: tuple[str, str],
        request_id: str,
        what: Happened,
        count: int = 0,
        *,
        channel: str = "",
        receipt: str = "",
        at: datetime | None = None,
        again: bool = False,
    ) -> None:
        agent_id, name = agent
        key = (agent_id, request_id, what, count, channel)
        before = self._rows.get(key)
        if before is not None:
            if again:
                self._rows[key] = replace(
                    before, state="new", due=_AT_ONCE, attempts=0, receipt=receipt
                )
            return
        self._rows[key] = StoredNotice(
            no=next(self._numbers),
            agent_id=agent_id,
            agent=name,
            request_id=request_id,
            what=what,
            count=count,
            channel=channel,
            state="new",
            due=_AT_ONCE,
            attempts=0,
            at=at,
            host="",
            detail="",
            receipt=receipt,
            is_deleted=False,
        )

    def claim(self, now: datetime, until: datetime, host: str, limit: int) -> list[StoredNotice]:
        due = sorted(
            (row.due, row.no, key)
            for key, row in self._rows.items()
            if row.state == "new" and row.due is not None and row.due <= now
        )
        for _, _, key in due[:limit]:
            row = self._rows[key]
            self._rows[key] = replace(row, due=until, at=now, host=host, attempts=row.attempts + 1)
        return sorted((self._seen(key) for _, _, key in due[:limit]), key=lambda row: row.no)

    def _seen(self, key: _Key) -> StoredNotice:
        return replace(self._rows[key], is_deleted=self._index.get(key[0]) is None)

    def _key(self, no: int) -> _Key | None:
        return next((key for key, row in self._rows.items() if row.no == no), None)

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
        key = self._key(no)
        if key is not None and (self._rows[key].state == "new" or state == "done"):
            row = self._rows[key]
            self._rows[key] = replace(
                row,
                state=state,
                attempts=row.attempts - (not counts),
                at=at,
                due=due or at,
                detail=detail,
                receipt=receipt or row.receipt,
            )

    def add(self, no: int, what: Happened, channel: str, *, at: datetime, receipt: str) -> None:
        key = self._key(no)
        if key is None:
            return
        row = self._rows[key]
        there = self._rows.get((row.agent_id, row.request_id, what, row.count, channel))
        again = there is not None and what == "ended" and there.receipt != receipt
        self._put(
            *((row.agent_id, row.agent), row.request_id, what, row.count),
            channel=channel,
            receipt=receipt,
            at=at,
            again=again,
        )

    def look_again(self, no: int) -> None:
        key = self._key(no)
        row = None if key is None else self._rows.get((key[0], key[1], "ended", 0, ""))
        if key is not None and row is not None:
            self._rows[key[0], key[1], "ended", 0, ""] = replace(
                row, state="new", due=_AT_ONCE, attempts=0
            )

    def receipts(self, no: int) -> list[tuple[str, str]]:
        key = self._key(no)
        rows = sorted(self._rows.values(), key=lambda row: row.no)
        return [
            (row.channel, row.receipt)
            for row in rows
            if key is not None
            and (row.agent_id, row.request_id) == key[:2]
            and row.receipt
            and row.what != "ended"
        ]

    def retry(self, no: int, at: datetime) -> bool:
        key = self._key(no)
        if key is None or self._rows[key].state != "failed":
            return False
        self._rows[key] = replace(self._rows[key], state="new", due=at, attempts=0)
        return True

    def clean(self, before: datetime) -> None:
        for key, row in list(self._rows.items()):
            is_old = row.state != "new" and row.at is not None and row.at < before
            if is_old and self._index.ask_of(row.agent_id, row.request_id) is None:
                del self._rows[key]

    def listed(
        self, states: Sequence[NoticeState], after: int | None, limit: int
    ) -> list[StoredNotice]:
        """As `Backend.notices`."""
        found = [
            self._seen(key)
            for key, row in self._rows.items()
            if row.channel and row.state in states and (after is None or row.no < after)
        ]
        return sorted(found, key=lambda row: -row.no)[:limit]


def _request_of(ask: Ask) -> str:
    base, _, votes = ask.id.rpartition("/")
    return base if base and votes.isdecimal() else ask.id
