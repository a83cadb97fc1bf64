"""Append-only stores of an agent's records."""

from understudy.journal.base import Journal
from understudy.journal.memory import MemoryJournal

__all__ = ["Journal", "MemoryJournal"]
