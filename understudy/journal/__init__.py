"""Append-only stores of agents' records."""

from understudy.journal.contracts import Journal, Owned, Standing, StoredAgent
from understudy.journal.index_status import is_busy, rest_status, standing_of
from understudy.journal.memory import MemoryJournal, MemoryStore
from understudy.journal.store import DatabaseStore, Loaded, OwnedJournal, Store
from understudy.state.fold import replay

__all__ = [
    "DatabaseStore",
    "Journal",
    "Loaded",
    "MemoryJournal",
    "MemoryStore",
    "Owned",
    "OwnedJournal",
    "Standing",
    "Store",
    "StoredAgent",
    "is_busy",
    "replay",
    "rest_status",
    "standing_of",
]
