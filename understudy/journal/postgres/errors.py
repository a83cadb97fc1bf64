"""PostgreSQL's errors as the store's: retry, or repair first.

Imported only where psycopg is installed.
"""

from __future__ import annotations

import psycopg

from understudy._base.descriptors import (
    is_out_of_descriptors,
    lacks_descriptors,
    no_descriptor,
)
from understudy.errors import StoreBroken, StoreError, StoreUnavailable

POOLED = (
    "A pooler before the server pools transactions, or passes sessions on as they were left, and a "
    "store needs sessions of its own: have it pool sessions and clean them (of PgBouncer "
    "pool_mode = session, server_reset_query = DISCARD ALL), or connect to the server itself."
)
NO_SESSION = (
    "a pooler before the server may be paused, or have no free session (a runtime needs four, and "
    "another one to reserve what calls spend: see its default_pool_size)"
)
OF_ANOTHER_SESSION = frozenset({"22007", "26000", "42P01", "42P05"})
"""What statements end with, by SQLSTATE, in a session that was set up by somebody else. The first
is how `PostgresConnection.demand_session` fails."""
# By SQLSTATE, or by its class, the first two characters.
_REMEDIES = {
    "53100": "Free space on the database's disk.",
    "25006": "It accepts no writes: it is a standby, or was set read-only. Connect to the primary "
    "(several hosts in the URL with target_session_attrs=read-write find it), or undo the setting.",
    "42501": "Give the user of the URL the rights to the store's schema and its tables "
    "(or CREATE on the database: then the store makes them itself).",
    "3D000": "Create the database, or name another one in the URL.",
    "28": "Check user and password in the URL, and the server's pg_hba.conf.",
    "22007": POOLED,
    "26000": POOLED,
    "42P05": POOLED,
    "42P01": "Tables of the store were dropped or renamed: restore them from a copy. Or a pooler "
    "before the server pools transactions: have it pool sessions.",
    "startup": "A pooler before the server does not pass this parameter on: leave it out of the "
    "URL, and set it for the user or the database (ALTER ROLE ... SET).",
    "42703": "Tables of the store were altered: restore them from a copy.",
    "XX001": "The database's files are damaged: see the server's log, and restore it from a copy.",
    "XX002": "An index of the database is damaged: REINDEX it, and check the server's disk.",
    "58": "The database's server had an I/O error: see its log, and check its disk.",
}
_TRANSIENT = frozenset({"08", "40", "53", "55", "57", "25P03", "25P04", "54001"})
"""Lost or refused connections, serialization failures and deadlocks, missing resources, locks,
shutdowns, timeouts."""
# The answer of a server that refuses a connection comes as text alone, without a SQLSTATE.
_REFUSALS = {
    "password authentication failed": "28",
    "no password supplied": "28",
    "no pg_hba.conf entry": "28",
    "authentication failed": "28",
    "permission denied for database": "42501",
    "no such user": "28",  # these are PgBouncer's
    "no such database": "3D000",
    "unsupported startup parameter": "startup",
}

_OPENED = 2
"""The files that a connection has open at most: its socket, and what waits for it."""


def store_error(error: psycopg.Error | OSError, *, lost: bool) -> StoreError:
    """The store's error for one of psycopg's, or of what waits for its socket.

    Args:
        lost: whether the connection is lost; then the error says nothing about the database.

    """
    if isinstance(error, OSError):
        is_out, cause = is_out_of_descriptors(error), str(error)
    else:
        cause = _first_line(error)
        # libpq does not say so
        # (test_a_connection_for_which_no_descriptor_is_left_says_so_with_the_remedy).
        is_out = not error.sqlstate and lacks_descriptors(_OPENED)
    if is_out:
        return StoreUnavailable(cause=no_descriptor(f"a connection to PostgreSQL ({cause})"))
    if isinstance(error, OSError):
        return StoreUnavailable(cause=cause)
    code = error.sqlstate or _refusal(str(error))
    remedy = _REMEDIES.get(code) or _REMEDIES.get(code[:2])
    if remedy is not None:
        return StoreBroken(cause=cause, remedy=remedy)
    connecting = not code and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    if lost or connecting or code in _TRANSIENT or code[:2] in _TRANSIENT:
        # PgBouncer's: it has the same code as the breach of a protocol.
        why = f": {NO_SESSION}" if "query_wait_timeout" in cause else ""
        return StoreUnavailable(cause=cause + why)
    return StoreBroken(cause=cause, remedy="This is a defect: report it, with the server's log.")


def _first_line(error: psycopg.Error) -> str:
    """The first line of an error, with its code.

    Further lines are the statement, or other addresses.
    """
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{text} [{error.sqlstate}]" if error.sqlstate else text


def _refusal(text: str) -> str:
    for phrase, code in _REFUSALS.items():
        if phrase in text:
            return code
    missing = "does not exist" in text
    if missing and 'database "' in text:
        return "3D000"
    return "28" if missing and 'role "' in text else ""
