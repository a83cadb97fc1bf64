"""`open_store`: from the name of a store, such as `"sqlite:///support.db"`, to the store."""

from __future__ import annotations

import os
import re
import socket
import sys
from typing import Any

from understudy._base.json_values import is_storable_text, shown
from understudy._base.secrets_in_urls import without_secrets
from understudy.errors import UsageError
from understudy.journal.contracts import LEASE, Durability, check_durability, check_lease
from understudy.journal.database_store import DatabaseStore
from understudy.journal.memory import MemoryStore
from understudy.journal.reads import DatabaseReads
from understudy.journal.store import Store

_OPTIONS = re.compile(r"\?\w+=.*")
"""As `?mode=ro`, which others read in such a URL: here it would be part of the file's name."""

_SCHEME = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]*://")
"""Else what is before `://` may be of a password."""


def open_store(
    store: str | Store,
    *,
    durability: Durability = "full",
    lease: float | None = None,
    host: str | None = None,
) -> Store:
    """The store of this name. It connects to nothing yet.

    Args:
        store: `"memory:"`, `"sqlite:///relative.db"`, `"sqlite:////absolute.db"`,
            `"postgresql://user@host/database"`, or a store.
        durability: `"full"`, `"normal"` or `"off"`; see the docs on stores.
        lease: seconds, of a store that hosts share; None = the default of its backend.
        host: the name of this runtime; None = that of the machine, and the number of the process.

    Raises:
        UsageError: for a wrong argument, also for options in the URL of a file; and for a lease or
            a host beside a store that has its own.

    """
    check_durability(durability)
    given = {"lease": lease is not None, "host": host is not None}
    if lease is not None:
        lease = check_lease(lease)
    host = host_name() if host is None else checked_host(host)
    if not isinstance(store, str):
        if own := [name for name, is_given in given.items() if is_given]:
            raise UsageError(
                f"`{own[0]}` is given beside {store!r}: give it to the store's backend"
            )
        if isinstance(store, Store):
            return store
        if hasattr(store, "claim"):
            raise UsageError(
                f"{store!r} must be a `Store`: derive it from understudy.journal.Store"
            )
        raise _no_store(shown(store))
    if store == "memory:":
        return MemoryStore()
    scheme, separator, rest = store.partition("://")
    if separator and scheme == "sqlite":
        return DatabaseStore(_sqlite(store, rest, durability, host))
    if separator and scheme in ("postgresql", "postgres"):
        from understudy.journal.postgres.backend import PostgresBackend

        seconds = LEASE if lease is None else lease
        return DatabaseStore(
            PostgresBackend(store, durability=durability, host=host, lease=seconds)
        )
    raise _no_store(repr(_without_login(store)), _meant(scheme, rest) if separator else "")


def open_reader(store: str | Store) -> DatabaseReads:
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


def _sqlite(url: str, rest: str, durability: Durability, host: str) -> Any:
    if sys.platform == "win32":
        raise UsageError(
            f"`store={url!r}` cannot be used on Windows: its lock needs flock. Use 'memory:', "
            "'postgresql://user@host/database', or the Windows Subsystem for Linux"
        )
    from understudy.journal.sqlite.backend import SqliteBackend

    path = rest.removeprefix("/")
    if not rest.startswith("/") or not path:
        raise UsageError(
            f"{url!r} names no file: write 'sqlite:///relative.db' or 'sqlite:////absolute.db'"
        )
    if options := _OPTIONS.search(path):
        raise UsageError(
            f"{url!r}: a SQLite store has no options in its URL, got {options[0]!r}: leave them "
            "out. To read and change nothing, use Observer(store). A file that has this name is "
            "opened by DatabaseStore(SqliteBackend(path, host=...))"
        )
    return SqliteBackend(path, durability=durability, host=host)


LONGEST_HOST = 200
"""Characters of the name of a host."""


def checked_host(host: object) -> str:
    """The name of a host.

    Raises:
        UsageError: if it is not short text that a store can keep.

    """
    is_text = isinstance(host, str) and is_storable_text(host) and host.isprintable()
    if not is_text or not 1 <= len(str(host).strip()) <= LONGEST_HOST or "\0" in str(host):
        raise UsageError(
            f"`host` must be a name of 1 to {LONGEST_HOST} printable characters, such as "
            f"'worker-3', got {shown(host)}"
        )
    return str(host)


def host_name() -> str:
    """The name of this runtime, which other runtimes see as the owner of its agents."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _no_store(given: str, remedy: str = "") -> UsageError:
    return UsageError(
        "`store` must be 'memory:', 'sqlite:///path' or 'postgresql://user@host/database', got "
        f"{given}{remedy}"
    )


def _meant(scheme: str, rest: str) -> str:
    """What to write for the scheme of another library's URL; empty if it is none that is known."""
    database = scheme.lower().partition("+")[0]  # a driver may follow, as in SQLAlchemy
    if database in ("postgresql", "postgres", "psql", "pgsql"):
        meant = "postgresql://"
    elif database in ("sqlite", "sqlite3"):
        meant = "sqlite://" if rest.startswith("/") else "sqlite:///"
    else:
        return ""
    return f". Write {meant!r} in the place of {shown(f'{scheme}://')}"


def _without_login(url: str) -> str:
    """The name without user and password: it goes into messages."""
    url = without_secrets(url)
    before, at, after = url.rpartition("@")
    scheme = _SCHEME.match(url)
    return f"{scheme[0] if scheme else ''}...@{after}" if at and before else after
