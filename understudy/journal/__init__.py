"""Append-only stores of agents' records."""

from understudy.journal.contracts import (
    IndexEntry,
    IndexStatus,
    Journal,
    LostAttempt,
    Owned,
    StoredAgent,
)
from understudy.journal.feed import FeedStore
from understudy.journal.index_status import (
    has_next_run,
    index_entry_of,
    index_status_of,
    is_busy,
    is_waiting,
    rest_status,
)
from understudy.journal.lists import ListStore
from understudy.journal.memory import MemoryJournal, MemoryStore
from understudy.journal.store import (
    AgentFinder,
    CheckpointJournal,
    CheckpointStore,
    DatabaseStore,
    DueStore,
    IndexJournal,
    Loaded,
    OwnedJournal,
    Readable,
    Store,
    find_agent,
    is_shared,
    load_latest,
)
from understudy.state.fold import replay

Standing = IndexStatus
"""The earlier name of `IndexStatus`."""
standing_of = index_status_of
"""The earlier name of `index_status_of`."""

__all__ = [
    "AgentFinder",
    "CheckpointJournal",
    "CheckpointStore",
    "DatabaseStore",
    "DueStore",
    "FeedStore",
    "IndexEntry",
    "IndexJournal",
    "IndexStatus",
    "Journal",
    "ListStore",
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
    "find_agent",
    "has_next_run",
    "index_entry_of",
    "index_status_of",
    "is_busy",
    "is_shared",
    "is_waiting",
    "load_latest",
    "replay",
    "rest_status",
    "standing_of",
]
