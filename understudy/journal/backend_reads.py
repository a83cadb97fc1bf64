"""`ReadsByReader`: the reading half of a backend that has a reader of its own for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from understudy.journal.asks import StoredAsk
from understudy.journal.checkpoints import Checkpoint
from understudy.journal.contracts import IndexStatus, StoredAgent, StoredRecords
from understudy.journal.feed import FeedKey, FeedPage
from understudy.journal.lists import AgentKey, AgentQuery, AskKey, AskQuery


class BackendReader(Protocol):
    """What the reader's thread asks of a database: as of `Backend` and its optional parts."""

    def load(self, agent_id: str, after: int) -> StoredRecords | None: ...

    def load_part(self, agent_id: str, after: int, limit: int) -> StoredRecords | None: ...

    def load_latest(self, agent_id: str) -> tuple[Checkpoint | None, StoredRecords] | None: ...

    def load_blobs(self, agent_id: str, hashes: Collection[str] | None) -> Mapping[str, bytes]: ...

    def message_runs(
        self, agent_id: str, message_ids: Collection[str] | None
    ) -> Mapping[str, str]: ...

    def key_secret(self) -> bytes: ...

    def has_old_keys(self, before: datetime) -> bool: ...

    def has_text(self, agent_id: str, kinds: Sequence[str], text: str) -> bool: ...

    def agents(
        self, index_statuses: Collection[IndexStatus] | None, after_id: str, limit: int
    ) -> list[StoredAgent]: ...

    def find_agents(self, agent_ids: Collection[str]) -> list[StoredAgent]: ...

    def due(
        self, until: datetime, after: tuple[datetime, str] | None, limit: int
    ) -> list[StoredAgent]: ...

    def list_agents(
        self, query: AgentQuery, after: AgentKey | None, limit: int
    ) -> list[StoredAgent]: ...

    def list_asks(self, query: AskQuery, after: AskKey | None, limit: int) -> list[StoredAsk]: ...

    def count_agents(self) -> Mapping[str, int]: ...

    def read_feed(self, after: FeedKey | None, limit: int) -> FeedPage | None: ...


class ReadsByReader:
    """Hands each of the reader's calls on to `_reader`."""

    _reader: BackendReader

    def load(self, agent_id: str, after: int) -> StoredRecords | None:
        return self._reader.load(agent_id, after)

    def load_part(self, agent_id: str, after: int, limit: int) -> StoredRecords | None:
        return self._reader.load_part(agent_id, after, limit)

    def load_latest(self, agent_id: str) -> tuple[Checkpoint | None, StoredRecords] | None:
        return self._reader.load_latest(agent_id)

    def load_blobs(self, agent_id: str, hashes: Collection[str] | None) -> Mapping[str, bytes]:
        return self._reader.load_blobs(agent_id, hashes)

    def message_runs(self, agent_id: str, message_ids: Collection[str] | None) -> Mapping[str, str]:
        return self._reader.message_runs(agent_id, message_ids)

    def key_secret(self) -> bytes:
        return self._reader.key_secret()

    def has_old_keys(self, before: datetime) -> bool:
        return self._reader.has_old_keys(before)

    def has_text(self, agent_id: str, kinds: Sequence[str], text: str) -> bool:
        return self._reader.has_text(agent_id, kinds, text)

    def agents(
        self, index_statuses: Collection[IndexStatus] | None, after_id: str, limit: int
    ) -> list[StoredAgent]:
        return self._reader.agents(index_statuses, after_id, limit)

    def find_agents(self, agent_ids: Collection[str]) -> list[StoredAgent]:
        return self._reader.find_agents(agent_ids)

    def due(
        self, until: datetime, after: tuple[datetime, str] | None, limit: int
    ) -> list[StoredAgent]:
        return self._reader.due(until, after, limit)

    def list_agents(
        self, query: AgentQuery, after: AgentKey | None, limit: int
    ) -> list[StoredAgent]:
        return self._reader.list_agents(query, after, limit)

    def list_asks(self, query: AskQuery, after: AskKey | None, limit: int) -> list[StoredAsk]:
        return self._reader.list_asks(query, after, limit)

    def count_agents(self) -> Mapping[str, int]:
        return self._reader.count_agents()

    def read_feed(self, after: FeedKey | None, limit: int) -> FeedPage | None:
        return self._reader.read_feed(after, limit)
