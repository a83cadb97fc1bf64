"""The keys of calls in each kind of store, in the words of `Backend`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from tests.support.batches import batch, claim, commit
from tests.support.databases import Database
from understudy.journal.backend import Backend
from understudy.journal.call_keys import KeyEnd, KeyTaking, KeyUse, key_hash
from understudy.journal.contracts import Owned
from understudy.journal.memory_keys import MemoryKeys

__all__ = ["DAY", "KEPT", "NOON", "InDatabase", "InMemory", "KeptKeys", "taking"]

NOON = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)
DAY = timedelta(days=1)
KEPT = 90 * DAY


def taking(
    call_key: str,
    key: str = "refund:17",
    *,
    at: datetime = NOON,
    kept: timedelta = KEPT,
    passes: Collection[tuple[str, str]] = (),
    passes_done: bool = False,
    secret: bytes = b"",
) -> KeyTaking:
    return KeyTaking(
        key_hash=key_hash(key, secret),
        call_key=call_key,
        tool_name="refund",
        tool_call_id=f"id of {call_key}",
        at=at,
        kept=kept,
        passes=passes,
        passes_done=passes_done,
    )


class KeptKeys(ABC):
    """The keys of one store, and its agents."""

    @abstractmethod
    def begin(self, agent_id: str) -> None:
        """An agent begins, after a deletion the next one of this id."""

    @abstractmethod
    def take(self, agent_id: str, taking: KeyTaking) -> list[KeyUse]: ...

    @abstractmethod
    def uses(self, key: str = "refund:17", *, at: datetime = NOON) -> list[KeyUse]: ...

    @abstractmethod
    def end(self, agent_id: str, call_key: str, *, is_done: bool, at: datetime = NOON) -> None: ...

    @abstractmethod
    def free(self, use: KeyUse, key: str = "refund:17") -> None: ...

    @abstractmethod
    def delete(self, agent_id: str) -> None: ...

    @abstractmethod
    def delete_old(self, before: datetime) -> None: ...

    def calls(self, key: str = "refund:17", *, at: datetime = NOON) -> list[tuple[str, str]]:
        """Which calls have the key."""
        return [use.call for use in self.uses(key, at=at)]


class InDatabase(KeptKeys):
    def __init__(self, database: Database) -> None:
        self.backend: Backend = database.open()
        self._owned: dict[str, Owned] = {}

    @property
    def keys(self) -> Backend:
        return self.backend

    def owned(self, agent_id: str) -> Owned:
        return self._owned[agent_id]

    def begin(self, agent_id: str) -> None:
        self._owned[agent_id] = claim(self.backend, agent_id)
        self.append(agent_id)

    def append(self, agent_id: str, *ends: KeyEnd, at: datetime = NOON) -> None:
        """One record more, with what it says of keys."""
        owned = self._owned[agent_id]
        with commit(self.backend):
            next_one = batch(owned, "x")
            next_one.at, next_one.key_ends = at, ends
            self.backend.append(next_one)
        self._owned[agent_id] = replace(owned, last_seq=next_one.last_seq)

    def take(self, agent_id: str, taking: KeyTaking) -> list[KeyUse]:
        with commit(self.backend):
            found = self.keys.take_key(self._owned[agent_id], taking)
        assert found is not None, "no other host takes one"
        return found

    def uses(self, key: str = "refund:17", *, at: datetime = NOON) -> list[KeyUse]:
        with commit(self.backend):
            return self.keys.key_uses(key_hash(key, b""), at)

    def end(self, agent_id: str, call_key: str, *, is_done: bool, at: datetime = NOON) -> None:
        self.append(agent_id, KeyEnd(call_key, is_done), at=at)

    def free(self, use: KeyUse, key: str = "refund:17") -> None:
        with commit(self.backend):
            self.keys.free_key(key_hash(key, b""), use)

    def delete(self, agent_id: str) -> None:
        with commit(self.backend):
            assert self.backend.delete(agent_id)

    def delete_old(self, before: datetime) -> None:
        with commit(self.backend):
            self.keys.delete_old_keys(before)


class InMemory(KeptKeys):
    def __init__(self) -> None:
        self._keys = MemoryKeys()
        self._incarnations: dict[str, int] = {}

    def begin(self, agent_id: str) -> None:
        self._incarnations[agent_id] = self._incarnations.get(agent_id, 0) + 1

    def take(self, agent_id: str, taking: KeyTaking) -> list[KeyUse]:
        return list(self._keys.take(agent_id, self._incarnations[agent_id], taking))

    def uses(self, key: str = "refund:17", *, at: datetime = NOON) -> list[KeyUse]:
        return self._keys.uses(key_hash(key, b""), at)

    def end(self, agent_id: str, call_key: str, *, is_done: bool, at: datetime = NOON) -> None:
        ends = [KeyEnd(call_key, is_done)]
        self._keys.end(agent_id, self._incarnations[agent_id], ends, at)

    def free(self, use: KeyUse, key: str = "refund:17") -> None:
        self._keys.free(key_hash(key, b""), use)

    def delete(self, agent_id: str) -> None:
        self._keys.leave(agent_id)

    def delete_old(self, before: datetime) -> None:
        self._keys.delete_old(before)
