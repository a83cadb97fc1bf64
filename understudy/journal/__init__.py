"""Append-only stores of agents' records."""

from understudy.journal.base import Journal, Owned, Standing, StoredAgent
from understudy.journal.memory import MemoryJournal, MemoryStore
from understudy.journal.standing import is_busy, rest_status, standing_of
from understudy.journal.store import DatabaseStore, Loaded, OwnedJournal, Store

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
    "rest_status",
    "standing_of",
]
