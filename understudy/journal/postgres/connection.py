"""One connection to PostgreSQL: how it is made, kept from hanging, and made anew.

Imported only where psycopg is installed.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeAlias, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from understudy.errors import StoreUnavailable, UsageError
from understudy.journal.postgres.errors import store_error

T = TypeVar("T")
Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

# A server that vanished is noticed in about ten seconds, in the middle of a statement too.
_DEFAULTS: Mapping[str, Any] = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_UNWANTED_PLANS = ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin")
_SETTINGS = {
    "default_transaction_isolation": "read committed",  # postgres_sql.py says why
    "client_min_messages": "warning",
    # The server notices a client that vanished as soon: what it had locked is free again.
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}


def parameters(url: str, *, host: str) -> dict[str, Any]:
    """What to connect with: the URL, and what it leaves open.

    Raises:
        UsageError: if it is no URL of a PostgreSQL database.

    """
    wanted = "postgresql://user:password@server:5432/database"
    if not url.startswith(("postgresql://", "postgres://")):
        raise UsageError(f"A PostgreSQL store is named by {wanted}, not {_masked(url)!r}")
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        why = str(error).strip()
        raise UsageError(
            f"{_masked(url)!r} is no URL of a PostgreSQL database ({_without_secrets(url, why)}): "
            f"write {wanted}, with special characters percent-encoded"
        ) from None
    defaults = {**_DEFAULTS, "fallback_application_name": f"understudy {host}"}
    if "," in str(given.get("host", "")) + str(given.get("hostaddr", "")):
        defaults["target_session_attrs"] = "read-write"  # of several servers, the primary
    return {**defaults, **given}


class Line:
    """A connection in autocommit mode, used by one thread at a time.

    The errors of psycopg leave it as the store's.
    """

    def __init__(
        self, parameters: Mapping[str, Any], settings: Mapping[str, str], *, limit: float
    ) -> None:
        """The settings are the server's; `limit`: seconds that a call may take (see `tick`)."""
        self._parameters = dict(parameters)
        self._settings = {**_SETTINGS, **settings}
        self._limit = limit
        self._connection: Connection | None = None
        self._handle: socket.socket | None = None
        self._handle_lock = threading.Lock()
        self._busy = False
        self._waited = 0.0

    def connect(self) -> None:
        """Connect anew.

        Raises:
            StoreUnavailable: if the server cannot be reached, or is not ready.
            StoreBroken: if it refuses this user, or has no such database.

        """
        self.close()
        try:
            connection = psycopg.connect(**self._parameters, autocommit=True)
        except psycopg.Error as error:
            raise store_error(error, lost=False) from error
        self._connection = connection
        self._handle = socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        # Else the type of an array of numbers depends on how large they are, and the server
        # would convert it anew for each row that looks into it.
        connection.adapters.register_dumper(int, Int8Dumper)
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        calls = ", ".join("set_config(%s, %s, false)" for _ in self._settings)
        values = [part for setting in self._settings.items() for part in setting]
        try:
            with self.use():
                connection.execute(f"SELECT {calls}", values)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Disconnect. Raises nothing."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()
        with self._handle_lock:
            handle, self._handle = self._handle, None
            if handle is not None:
                handle.close()

    def tick(self, seconds: float) -> None:
        """So much time has passed; a call that is over its limit fails as by a lost connection.

        The server's own timeouts are shorter: this is for one that is frozen, on a live machine.
        """
        self._waited += seconds
        if self._busy and self._waited > self._limit:
            with self._handle_lock, suppress(OSError):  # it may be gone already
                if self._handle is not None:
                    self._handle.shutdown(socket.SHUT_RDWR)

    @property
    def lost(self) -> bool:
        """Whether there is no connection now."""
        return self._connection is None or self._connection.closed

    @contextmanager
    def use(self) -> Iterator[Connection]:
        """The connection; what psycopg raises inside is told as the store's error."""
        connection = self._connection
        if connection is None:
            raise StoreUnavailable(cause="there is no connection")
        self._waited, self._busy = 0.0, True
        try:
            yield connection
        except psycopg.Error as error:
            raise store_error(error, lost=connection.closed) from error
        finally:
            self._busy = False

    def repeatable(self, work: Callable[[Connection], T]) -> T:
        """Do work that may be done twice: where the connection was lost, on a new one."""
        if not self.lost:
            try:
                return self._whole(work)
            except StoreUnavailable:
                if not self.lost:
                    raise
        self.connect()
        return self._whole(work)

    def _whole(self, work: Callable[[Connection], T]) -> T:
        with self.use() as connection:
            try:
                return work(connection)
            except psycopg.Error:
                with suppress(psycopg.Error):
                    if connection.info.transaction_status != TransactionStatus.IDLE:
                        connection.execute("ROLLBACK")
                raise


def three_lines(
    url: str, *, host: str, schema: str, durability: str, lease: float, patience: float
) -> tuple[Line, Line, Line]:
    """The writer's, the reader's and the heartbeat's; the options are those of the backend."""
    given = parameters(url, host=host)
    commit = {"full": "on", "normal": "local", "off": "off"}[durability]
    shared = {"search_path": schema, "lock_timeout": "5s"}
    writer = {
        **shared,
        "statement_timeout": f"{1000 * patience:.0f}",
        # A runtime that is suspended in the middle of a transaction keeps no agents locked.
        "idle_in_transaction_session_timeout": f"{max(1.0, lease):g}s",
        "synchronous_commit": commit,
        # Every statement finds its rows by an index, one by one, whatever the statistics say of
        # young tables; so there is nothing to plan anew each time.
        **dict.fromkeys(_UNWANTED_PLANS, "off"),
        "plan_cache_mode": "force_generic_plan",
    }
    reader = {**shared, "statement_timeout": f"{4000 * patience:.0f}"}
    beat = max(1.0, lease / 4)
    heart = {
        **shared,
        "statement_timeout": f"{1000 * beat:.0f}",
        "synchronous_commit": "local" if durability == "off" else commit,
    }
    return (
        Line(given, writer, limit=1.5 * patience),
        Line(given, reader, limit=6 * patience),
        Line(given, heart, limit=1.5 * beat),
    )


def _masked(url: str) -> str:
    """The URL without its password: this goes into messages and logs."""
    scheme, mark, rest = url.partition("://")
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    place = re.sub(r"(password=)[^&]*", r"\1***", place)
    return f"{scheme}{mark}{user}{colon}{'***' if colon else ''}{at}{place}"


def _without_secrets(url: str, text: str) -> str:
    """The text, if it repeats nothing of the URL that could be a password."""
    login = url.partition("://")[2].rpartition("@")[0]
    secrets = [login.partition(":")[2], *re.findall(r"password=([^&]*)", url)]
    if any(secret and secret in text for secret in secrets):
        return "a part of it cannot be read"
    return text


class Watched(Protocol):
    """A connection that knows how long a call on it may take."""

    def tick(self, seconds: float) -> None:
        """So much time has passed, about."""


class Watch:
    """A thread that ticks while the store is open."""

    def __init__(self, watched: Sequence[Watched], seconds: float) -> None:
        self._watched = watched
        self._seconds = seconds
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin to tick. It stops when `stop` is called, or the process ends."""
        self._stopped = stopped = threading.Event()
        thread = threading.Thread(
            target=self._run, args=(stopped,), name="understudy-postgres-watch", daemon=True
        )
        thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self, stopped: threading.Event) -> None:
        while not stopped.wait(self._seconds):
            for each in self._watched:
                each.tick(self._seconds)
