"""The keys of calls of a `MemoryStore`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from understudy.journal.call_keys import SECRET_BYTES, KeyEnd, KeyTaking, KeyUse, may_take

_Call: TypeAlias = tuple[str, int, str]
"""The id and the incarnation of an agent, and the call key of one of its calls."""


@dataclass(slots=True)
class _Row:
    """A call that has taken a key."""

    key_hash: str
    use: KeyUse
    kept: timedelta
    kept_until: datetime | None = None


class MemoryKeys:
    """Which calls have taken a key, of all agents. A call has one key."""

    def __init__(self) -> None:
        self.secret: bytes = secrets.token_bytes(SECRET_BYTES)
        self._rows: dict[_Call, _Row] = {}
        """The keys by the calls that took them, in the order in which they were taken."""
        self.note: dict[str, Callable[[], None]] = {}
        """The function by agent id that notes which calls of the agent are over, of an agent with
        keys."""

    def let_go(self, agent_id: str) -> None:
        """The agent leaves memory: note for the last time which of its calls are over."""
        note = self.note.pop(agent_id, None)
        if note is not None:
            note()

    def uses(self, key_hash: str, at: datetime) -> list[KeyUse]:
        """The calls that have a key; see `Backend.key_uses`."""
        for note in list(self.note.values()):
            note()
        rows = (row for row in self._rows.values() if row.key_hash == key_hash)
        return [row.use for row in rows if not _is_old(row, at)]

    def take(self, agent_id: str, incarnation: int, taking: KeyTaking) -> Sequence[KeyUse]:
        """Take a key for a call; see `Backend.take_key`."""
        uses = self.uses(taking.key_hash, taking.at)
        if not may_take(taking, agent_id, incarnation, uses):
            return uses
        call = (agent_id, incarnation, taking.call_key)
        row = self._rows.get(call)
        if row is None or (row.key_hash != taking.key_hash and row.kept_until is None):
            self._rows.pop(call, None)
            use = taking.use_of(agent_id, incarnation)
            self._rows[call] = _Row(taking.key_hash, use, taking.kept)
        return ()

    def free(self, key_hash: str, use: KeyUse) -> None:
        """Give back the key of a call that is over; see `Backend.free_key`."""
        row = self._rows.get(use[:3])
        if row is not None and row.key_hash == key_hash and row.kept_until is None:
            del self._rows[use[:3]]

    def held_by(self, agent_id: str, incarnation: int) -> set[str]:
        """The calls of an agent that have a key and are not done, by call key."""
        of = (agent_id, incarnation)
        rows = self._rows.items()
        return {call[2] for call, row in rows if call[:2] == of and row.kept_until is None}

    def end(
        self, agent_id: str, incarnation: int, ends: Sequence[KeyEnd], at: datetime | None
    ) -> None:
        """What becomes of the keys of calls that are over."""
        for end in ends:
            call = (agent_id, incarnation, end.call_key)
            row = self._rows.get(call)
            if row is None or row.kept_until is not None:
                continue
            if end.is_done:
                done_at = at or row.use.taken_at
                row.use, row.kept_until = row.use._replace(done_at=done_at), done_at + row.kept
            else:
                del self._rows[call]

    def leave(self, agent_id: str) -> None:
        """The agent is deleted: nobody will know what its open calls did."""
        self.note.pop(agent_id, None)
        for row in self._rows.values():
            if row.use.agent_id == agent_id and row.kept_until is None:
                row.kept_until = row.use.taken_at + row.kept
                row.use = row.use._replace(is_left=True)

    def delete_old(self, before: datetime) -> None:
        """Delete the keys whose time is over; see `Backend.delete_old_keys`."""
        kept = self._rows.items()
        self._rows = {call: row for call, row in kept if not _is_old(row, before)}


def _is_old(row: _Row, at: datetime) -> bool:
    return row.kept_until is not None and row.kept_until <= at
