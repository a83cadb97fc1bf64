"""Agents' records in PostgreSQL, for many runtimes."""

from understudy.journal.postgres.backend import PostgresBackend

__all__ = ["PostgresBackend"]
