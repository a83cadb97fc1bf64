"""The keys of calls of a `MemoryStore`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from understudy.journal.call_keys import SECRET_BYTES, KeyEnd, KeyTaking, KeyUse, may_take


@dataclass(slots=True)
class _Row:
    """A call that has taken a key."""

    use: KeyUse
    kept: timedelta
    kept_until: datetime | None = None


class MemoryKeys:
    """Which calls have taken a key, of all agents."""

    def __init__(self) -> None:
        self.secret: bytes = secrets.token_bytes(SECRET_BYTES)
        self._rows: dict[str, list[_Row]] = {}
        """By the hash of the key, in the order in which they were taken."""
        self.note: dict[str, Callable[[], None]] = {}
        """By agent id: notes which of its calls are over, of an agent that has keys."""

    def let_go(self, agent_id: str) -> None:
        """The agent leaves memory: note for the last time which of its calls are over."""
        note = self.note.pop(agent_id, None)
        if note is not None:
            note()

    def uses(self, key_hash: str, at: datetime) -> list[KeyUse]:
        """As `Backend.key_uses`."""
        for note in list(self.note.values()):
            note()
        return [row.use for row in self._rows.get(key_hash, ()) if not _is_old(row, at)]

    def take(self, agent_id: str, incarnation: int, taking: KeyTaking) -> Sequence[KeyUse]:
        """As `Backend.take_key`."""
        uses = self.uses(taking.key_hash, taking.at)
        if not may_take(taking, agent_id, incarnation, uses):
            return uses
        use = taking.use_of(agent_id, incarnation)
        for hash, rows in list(self._rows.items()):
            for row in rows:
                if row.use[:3] != use[:3]:
                    continue
                if hash == taking.key_hash or row.kept_until is not None:
                    return ()
                self._remove(hash, [row])
        self._rows.setdefault(taking.key_hash, []).append(_Row(use, taking.kept))
        return ()

    def free(self, key_hash: str, use: KeyUse) -> None:
        """As `Backend.free_key`."""
        rows = self._rows.get(key_hash, ())
        gone = [row for row in rows if row.use[:3] == use[:3] and row.kept_until is None]
        self._remove(key_hash, gone)

    def held_by(self, agent_id: str, incarnation: int) -> set[str]:
        """The calls of an agent that have a key and are not done, by call key."""
        of = (agent_id, incarnation)
        rows = (row for rows in self._rows.values() for row in rows if row.kept_until is None)
        return {row.use.call_key for row in rows if row.use[:2] == of}

    def end(
        self, agent_id: str, incarnation: int, ends: Sequence[KeyEnd], at: datetime | None
    ) -> None:
        """What becomes of the keys of calls that are over."""
        done = {(agent_id, incarnation, end.call_key): end.is_done for end in ends}
        for hash, rows in list(self._rows.items()):
            over = [row for row in rows if row.use[:3] in done and row.kept_until is None]
            for row in over:
                if done[row.use[:3]]:
                    done_at = at or row.use.taken_at
                    row.use, row.kept_until = row.use._replace(done_at=done_at), done_at + row.kept
            self._remove(hash, [row for row in over if row.kept_until is None])

    def leave(self, agent_id: str) -> None:
        """The agent is deleted: nobody will know what its open calls did."""
        self.note.pop(agent_id, None)
        for row in [row for rows in self._rows.values() for row in rows]:
            if row.use.agent_id == agent_id and row.kept_until is None:
                row.kept_until = row.use.taken_at + row.kept
                row.use = row.use._replace(is_left=True)

    def delete_old(self, before: datetime) -> None:
        """As `Backend.delete_old_keys`."""
        for hash, rows in list(self._rows.items()):
            self._remove(hash, [row for row in rows if _is_old(row, before)])

    def _remove(self, key_hash: str, gone: Sequence[_Row]) -> None:
        rows = [row for row in self._rows.get(key_hash, ()) if row not in gone]
        if rows:
            self._rows[key_hash] = rows
        else:
            self._rows.pop(key_hash, None)


def _is_old(row: _Row, at: datetime) -> bool:
    return row.kept_until is not None and row.kept_until <= at
