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
    from understudy.journal.backend import Backend
    from understudy.journal.database_store import DatabaseStore
    from understudy.journal.index_status import (
        has_next_run,
        index_entry_of,
        index_status_of,
        is_busy,
        is_waiting,
        rest_status,
    )
    from understudy.journal.loaded import Loaded
    from understudy.journal.memory import MemoryJournal, MemoryStore
    from understudy.journal.owned_journal import FoldedAgent, JournalledAgent, OwnedJournal
    from understudy.journal.reads import StoreReads
    from understudy.journal.store import Store
    from understudy.state.fold import replay
else:  # who has no store needs none of them
    __getattr__, __dir__ = _load_lazily(
        __name__,
        {
            "understudy.journal.backend": ["Backend"],
            "understudy.journal.database_store": ["DatabaseStore"],
            "understudy.journal.index_status": [
                *("has_next_run", "index_entry_of", "index_status_of", "is_busy", "is_waiting"),
                "rest_status",
            ],
            "understudy.journal.memory": ["MemoryJournal", "MemoryStore"],
            "understudy.journal.owned_journal": ["FoldedAgent", "JournalledAgent", "OwnedJournal"],
            "understudy.journal.reads": ["StoreReads"],
            "understudy.journal.store": ["Store"],
            "understudy.journal.loaded": ["Loaded"],
            "understudy.state.fold": ["replay"],
        },
    )

__all__ = [
    "Backend",
    "DatabaseStore",
    "FoldedAgent",
    "IndexEntry",
    "IndexStatus",
    "Journal",
    "JournalledAgent",
    "Loaded",
    "LostAttempt",
    "MemoryJournal",
    "MemoryStore",
    "Owned",
    "OwnedJournal",
    "Store",
    "StoreReads",
    "StoredAgent",
    "has_next_run",
    "index_entry_of",
    "index_status_of",
    "is_busy",
    "is_waiting",
    "replay",
    "rest_status",
]
