"""Append-only stores of agents' records."""

from understudy.journal.contracts import (
    IndexEntry,
    IndexStatus,
    Journal,
    LostAttempt,
    Owned,
    StoredAgent,
)
from understudy.journal.index_status import (
    index_entry_of,
    index_status_of,
    is_busy,
    rest_status,
)
from understudy.journal.memory import MemoryJournal, MemoryStore
from understudy.journal.store import (
    CheckpointJournal,
    CheckpointStore,
    DatabaseStore,
    DueStore,
    Loaded,
    OwnedJournal,
    Readable,
    Store,
    load_latest,
)
from understudy.state.fold import replay

Standing = IndexStatus
"""The earlier name of `IndexStatus`."""
standing_of = index_status_of
"""The earlier name of `index_status_of`."""

__all__ = [
    "CheckpointJournal",
    "CheckpointStore",
    "DatabaseStore",
    "DueStore",
    "IndexEntry",
    "IndexStatus",
    "Journal",
    "Loaded",
    "LostAttempt",
    "MemoryJournal",
    "MemoryStore",
    "Owned",
    "OwnedJournal",
    "Readable",
    "Standing",
    "Store",
    "StoredAgent",
    "index_entry_of",
    "index_status_of",
    "is_busy",
    "load_latest",
    "replay",
    "rest_status",
    "standing_of",
]
