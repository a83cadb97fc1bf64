"""`open_store`: from the name of a store, such as `"sqlite:///support.db"`, to the store."""

from __future__ import annotations

import os
import socket
from typing import Any

from understudy.errors import UsageError
from understudy.journal.contracts import Durability as Durability
from understudy.journal.contracts import check_durability
from understudy.journal.memory import MemoryStore
from understudy.journal.store import DatabaseStore, Store
from understudy.journal.store_reader import StoreReader

_METHODS = ("open", "close", "claim", "release", "journal", "load", "agents", "compact", "delete")


def open_store(store: str | Store, *, durability: Durability = "full") -> Store:
    """The store of this name. It connects to nothing yet.

    Args:
        store: `"memory:"`, `"sqlite:///relative.db"`, `"sqlite:////absolute.db"`,
            `"postgresql://user@host/database"`, or a store.
        durability: `"full"`, `"normal"` or `"off"`; see the docs on stores.

    Raises:
        UsageError: for any other name or durability.

    """
    check_durability(durability)
    if not isinstance(store, str):
        missing = [name for name in _METHODS if not callable(getattr(store, name, None))]
        if missing:
            raise UsageError(f"{store!r} is not a store: it has no method {missing[0]}()")
        return store
    if store == "memory:":
        return MemoryStore()
    scheme, separator, rest = store.partition("://")
    if separator and scheme == "sqlite":
        return DatabaseStore(_sqlite(store, rest, durability))
    if separator and scheme in ("postgresql", "postgres"):
        return DatabaseStore(_postgres(store, durability))
    raise UsageError(
        "`store` must be 'memory:', 'sqlite:///path' or 'postgresql://user@host/database', got "
        f"{_without_login(store)!r}"
    )


def open_reader(store: str | Store) -> StoreReader:
    """What reads the store of this name, beside the runtimes that use it. It connects to nothing.

    Raises:
        UsageError: for a name that is none of a store that two processes can have.

    """
    found = open_store(store)
    if not isinstance(found, DatabaseStore):
        raise UsageError(
            "a store that is read from outside is a database, 'sqlite:///path' or "
            f"'postgresql://user@host/database', got {store!r}"
        )
    return found.reader


def _sqlite(url: str, rest: str, durability: Durability) -> Any:
    from understudy.journal.sqlite.backend import SqliteBackend

    path = rest.removeprefix("/")
    if not rest.startswith("/") or not path:
        raise UsageError(
            f"{url!r} names no file: write 'sqlite:///relative.db' or 'sqlite:////absolute.db'"
        )
    return SqliteBackend(path, durability=durability, host=host_name())


def _postgres(url: str, durability: Durability) -> Any:
    from understudy.journal.postgres.backend import PostgresBackend

    return PostgresBackend(url, durability=durability, host=host_name())


def host_name() -> str:
    """The name of this runtime, which other runtimes see as the owner of its agents."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _without_login(url: str) -> str:
    """The name without user and password: it goes into messages."""
    before, at, after = url.rpartition("@")
    return f"...@{after}" if at and before else url
