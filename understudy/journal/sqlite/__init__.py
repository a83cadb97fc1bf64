"""Agents' records in one SQLite file, for one runtime."""

from understudy.journal.sqlite.backend import SqliteBackend

__all__ = ["SqliteBackend"]
