"""Append-only stores of agents' records."""

import typing

from understudy._base.lazy_names import load_lazily as _load_lazily
from understudy.journal.contracts import (
    IndexEntry,
    IndexStatus,
    Journal,
    LostAttempt,
    Owned,
    StoredAgent,
)

if typing.TYPE_CHECKING:
    from understudy.journal.database_store import DatabaseStore
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
    from understudy.journal.loaded import Loaded
    from understudy.journal.memory import MemoryJournal, MemoryStore
    from understudy.journal.shared import is_shared
    from understudy.journal.store import (
        AgentFinder,
        CheckpointJournal,
        CheckpointStore,
        DueStore,
        IndexJournal,
        OwnedJournal,
        Readable,
        Store,
        find_agent,
        load_latest,
    )
    from understudy.state.fold import replay
else:  # who has no store needs none of them
    __getattr__, __dir__ = _load_lazily(
        __name__,
        {
            "understudy.journal.database_store": ["DatabaseStore"],
            "understudy.journal.feed": ["FeedStore"],
            "understudy.journal.index_status": [
                *("has_next_run", "index_entry_of", "index_status_of", "is_busy", "is_waiting"),
                "rest_status",
            ],
            "understudy.journal.lists": ["ListStore"],
            "understudy.journal.memory": ["MemoryJournal", "MemoryStore"],
            "understudy.journal.shared": ["is_shared"],
            "understudy.journal.store": [
                *("AgentFinder", "CheckpointJournal", "CheckpointStore", "DueStore"),
                *("IndexJournal", "OwnedJournal", "Readable", "Store", "find_agent"),
                "load_latest",
            ],
            "understudy.journal.loaded": ["Loaded"],
            "understudy.state.fold": ["replay"],
        },
    )

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
]
