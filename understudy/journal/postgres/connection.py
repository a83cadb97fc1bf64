"""The connections to PostgreSQL: made, kept from hanging, and made again.

Each is for one thread: the writer's, the reader's, the heartbeat's, the listener's and the
spender's. Imported only where psycopg is installed.
"""

from __future__ import annotations

import math
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from understudy._base.secrets_in_urls import secrets_of, without_secrets
from understudy.errors import StoreBroken, StoreUnavailable, UsageError
from understudy.journal.postgres.errors import NO_SESSION, OF_ANOTHER_SESSION, store_error

T = TypeVar("T")
PsycopgConnection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

# A server that is gone is noticed in about ten seconds, in the middle of a statement too.
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
    "default_transaction_isolation": "read committed",  # the module `sql` says why
    "client_min_messages": "warning",
    # The server notices a client that is gone as soon, and releases its locks.
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}
_FIRST_ANSWER = 10.0
"""Seconds that a new connection may wait for it: behind a pooler it gets its session then."""
_NAME_SESSION = "SELECT pg_backend_pid(), set_config('understudy.session', %s, false)"
_DEMAND_SESSION = """
SELECT CASE WHEN current_setting('understudy.session', true) = %s::text THEN 0
    ELSE ('a session of: ' || coalesce(current_setting('understudy.session', true), '-'))::date
        - current_date END"""
"""A text that is no date is its way to fail: the server's log says what it is."""


class PostgresConnection:
    """A connection in autocommit mode, used by one thread at a time.

    It raises the store's errors in place of psycopg's.

    Not a psycopg_pool: with one pool of one connection for each role, a commit of 5 records takes
    0.99 to 1.08 times as long, and each pool runs 4 threads. It saves a few lines of `connect`
    alone: the errors, the second attempt and the watchdog stay ours. And it reconnects in the
    background, while a writer must know when: after that it reads back what was committed.

    Args:
        parameters: of libpq.
        settings: of the server, for this connection.
        limit: seconds that a call may take, see `Watchdog`.

    """

    def __init__(
        self, parameters: Mapping[str, Any], settings: Mapping[str, str], *, limit: float
    ) -> None:
        self._parameters = dict(parameters)
        self._settings = {**_SETTINGS, **settings}
        self._limit = limit
        self._connection: PsycopgConnection | None = None
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        """Held to change which connection, and which socket, this is."""
        self._in_use = threading.RLock()
        """Held by the thread that makes a call."""
        self._is_open = False
        self._left: list[float] | None = None
        """The seconds that the present call may still take; None between calls."""
        self._session: str | None = None
        """How the session is named, if a pooler is in between."""

    def open(self) -> None:
        """Allow `connect`. A connection that is lost later is replaced, until `close`."""
        self._is_open = True

    def connect(self) -> None:
        """Connect again.

        Raises:
            StoreUnavailable: if the server cannot be reached, or is not ready.
            StoreBroken: if it refuses this user, or has no such database; or after `close`.

        """
        self.connect_only()
        self.set_up()

    def connect_only(self) -> None:
        """Connect, and set nothing yet but the name of the session. As `connect`."""
        self._disconnect()
        if not self._is_open:
            raise _not_open()
        try:
            connection = psycopg.connect(**self._parameters, autocommit=True)
        except (psycopg.Error, OSError) as error:
            raise store_error(error, lost=False) from error
        with self._lock:
            # Race: this in the reader's thread against `close`, which finds no connection to close
            # while this one is being made, and against the `open` after it
            # (test_a_store_that_closes_while_a_reader_reconnects_leaves_no_connection).
            if not self._is_open or self._connection is not None:
                connection.close()
                raise StoreUnavailable(cause="it was closed") if self._is_open else _not_open()
            try:
                handle = socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)
            except OSError as error:
                connection.close()
                raise store_error(error, lost=True) from error
            self._connection, self._socket = connection, handle
        # Else the type of an array of numbers depends on how large they are, and the server
        # converts it for each row that it compares with it.
        connection.adapters.register_dumper(int, Int8Dumper)
        connection.adapters.register_dumper(int, Int8BinaryDumper)
        name = secrets.token_hex(8)
        pid = self._ask_first(_NAME_SESSION, [name])
        self._session = None if pid == connection.info.backend_pid else name

    def set_up(self) -> None:
        """Give the session its settings. As `connect`."""
        settings = dict(self._settings)
        if self._session is not None:
            # Another name, in the same statement: a session that has it has these settings.
            self._session = settings["understudy.session"] = secrets.token_hex(8)
        calls = ", ".join("set_config(%s, %s, false)" for _ in settings)
        self._ask_first(f"SELECT {calls}", [part for item in settings.items() for part in item])

    def _ask_first(self, query: str, values: Sequence[Any]) -> Any:
        """The first value of the answer; without one this is no connection."""
        try:
            with self.use(is_first=True) as connection:
                return connection.execute(query, values).fetchall()[0][0]
        except BaseException:
            self._disconnect()
            raise

    def close(self) -> None:
        """Disconnect for good: until `open`. Raises nothing."""
        self._is_open = False
        self._disconnect()

    def _disconnect(self) -> None:
        # Race: this at the end of a store against a read whose caller has stopped waiting. libpq
        # frees what the read uses, and the process dies of it
        # (test_a_store_that_closes_ends_the_read_that_nobody_waits_for_before_its_connection).
        if not self._in_use.acquire(blocking=False):
            self.interrupt()
            self._in_use.acquire()
        try:
            with self._lock:
                connection, self._connection = self._connection, None
                handle, self._socket = self._socket, None
                if handle is not None:
                    handle.close()
            if connection is not None:
                with suppress(psycopg.Error):
                    connection.close()
        finally:
            self._in_use.release()

    def add_wait(self, seconds: float) -> None:
        """Count this time to the present call. Shut the connection down if it is over its limit.

        The call fails as by a lost connection then.
        """
        # Race: this in the watchdog's thread against `use`. Each call has a count of its own, which
        # this thread alone changes: it cannot put an older call's time on a new one.
        left = self._left
        if left is None:
            return
        left[0] -= seconds
        if left[0] < 0:
            self.interrupt()

    def interrupt(self) -> None:
        """Let the present call fail as by a lost connection. In any thread."""
        # Race: this against `close`. A socket of our own, closed under the same lock: the
        # number of a closed one may belong to another file by now.
        with self._lock, suppress(OSError):  # the other side may have closed it
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)

    @property
    def lost(self) -> bool:
        """Whether there is no connection now."""
        return self._connection is None or self._connection.closed

    @property
    def is_pooled(self) -> bool:
        """Whether a pooler is in between: it tells its clients a number of its own."""
        return self._session is not None

    @contextmanager
    def use(self, *, is_first: bool = False) -> Iterator[PsycopgConnection]:
        """The connection, for one call. Errors of psycopg inside are raised as the store's.

        A call of another thread waits until this call ends.

        Args:
            is_first: whether it is a call by which it is set up.

        """
        with self._in_use:
            connection = self._connection
            if connection is None:
                raise StoreUnavailable(cause="there is no connection")
            limit = _FIRST_ANSWER if is_first else self._limit
            self._left = left = [limit]
            try:
                yield connection
            except OSError as error:
                # What waits for the socket could not be opened: no answer can come any more.
                self._disconnect()
                raise store_error(error, lost=True) from error
            except psycopg.Error as error:
                raised = store_error(error, lost=connection.closed)
                if left[0] < 0:
                    why = f": {NO_SESSION}" if is_first else ""
                    raised = StoreUnavailable(cause=f"no answer came for {limit:g} s{why}")
                if self.is_pooled and error.sqlstate in OF_ANOTHER_SESSION:
                    self._disconnect()  # the next call gets one of its own
                raise raised from error
            finally:
                self._left = None

    def demand_session(self, connection: PsycopgConnection) -> None:
        """Have the server refuse what follows where the session is another connection's.

        A pooler has passed the session on then, or another one here. Nothing without a pooler in
        between. The error is `StoreBroken`, and the next call connects anew.
        """
        if self.is_pooled:
            connection.execute(_DEMAND_SESSION, [self._session], prepare=True)

    def run_repeatable(self, work: Callable[[PsycopgConnection], T]) -> T:
        """Do work that may be done twice: if the connection is lost, do it on a new one."""
        if not self.lost:
            try:
                return self._run(work)
            except StoreUnavailable:
                if not self.lost:
                    raise
        self.connect()
        return self._run(work)

    @contextmanager
    def alone(self) -> Iterator[PsycopgConnection]:
        """Another connection to the same server, for what takes long and is no transaction."""
        try:
            with psycopg.connect(**self._parameters, autocommit=True) as connection:
                connection.execute("SET statement_timeout = 0")
                yield connection
        except (psycopg.Error, OSError) as error:
            raise store_error(error, lost=True) from error

    def _run(self, work: Callable[[PsycopgConnection], T]) -> T:
        """Do work that leaves no transaction open, also where it fails."""
        with self.use() as connection:
            try:
                return work(connection)
            except BaseException:  # also of values that psycopg itself refuses: else all later
                # reads are of the moment at which this one began
                # (test_a_read_that_fails_before_it_is_sent_leaves_the_reader_as_it_was).
                with suppress(psycopg.Error):
                    if connection.info.transaction_status != TransactionStatus.IDLE:
                        connection.execute("ROLLBACK")
                raise


def check_sessions(first: PostgresConnection, second: PostgresConnection) -> None:
    """Check that two connections, of which nothing is set up yet, have a session each.

    Raises:
        StoreBroken: if a pooler gives them one for each transaction alone.

    """
    # Each twice: a pooler may take its sessions in turn, and the other one's would never come.
    for each in 3 * (first, first, second, second):
        with each.use() as connection:
            each.demand_session(connection)


def _not_open() -> StoreBroken:
    return StoreBroken(cause="the store is not open", remedy="Open it.")


class Watchdog:
    """A thread that ends calls which a server does not answer, while the store is open.

    The server's own timeouts are shorter. This is for one that is frozen on a live machine, which
    keeps its connections alive.
    """

    def __init__(self, connections: Sequence[PostgresConnection], seconds: float) -> None:
        self._connections = connections
        self._seconds = seconds
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin. It ends at `stop`, or with the process."""
        # An event of its own for each thread: the one before may not have seen its stop yet.
        self._stopped = stopped = threading.Event()
        thread = threading.Thread(
            target=self._run, args=(stopped,), name="understudy-postgres-watchdog", daemon=True
        )
        thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self, stopped: threading.Event) -> None:
        while not stopped.wait(self._seconds):
            for connection in self._connections:
                connection.add_wait(self._seconds)


def make_connections(
    url: str, *, host: str, schema: str, commit: str, lease: float, patience: float
) -> tuple[PostgresConnection, ...]:
    """The writer's, the reader's, the heartbeat's, the listener's and the spender's.

    They are not connected yet. That of the spender makes reservations, if there are any.

    The arguments are those of `PostgresBackend`; `commit` is the value of `synchronous_commit`.

    Raises:
        UsageError: if `url` is not the URL of a PostgreSQL database.

    """
    parameters = _parameters(url, host=host)
    beat = max(1.0, lease / 4)

    def made(limit: float, *, timeout: float | None = None, **more: str) -> PostgresConnection:
        settings = {"search_path": schema, "lock_timeout": "5s", **more}
        if timeout is not None:
            settings["statement_timeout"] = f"{1000 * timeout:.0f}"
        return PostgresConnection(parameters, settings, limit=limit)

    # Every statement finds its rows by an index, one by one, whatever the statistics say about
    # young tables (test_who_leaves_looks_at_no_agent_at_rest).
    by_index = dict.fromkeys(_UNWANTED_PLANS, "off")
    # So nothing has to be planned again each time.
    planned = {**by_index, "plan_cache_mode": "force_generic_plan"}
    writer = made(
        1.5 * patience,
        timeout=patience,
        # A runtime that is suspended in the middle of a transaction must not keep agents locked
        # (test_a_host_suspended_in_the_middle_of_a_commit_does_not_keep_agents_locked).
        idle_in_transaction_session_timeout=f"{max(1.0, lease):g}s",
        # Nor where that does not end its session: `PostgresWriter.reconnect` ends it then.
        lock_timeout=f"{min(5.0, max(1.0, lease)):g}s",
        synchronous_commit=commit,
        **planned,
    )
    # The reader writes nothing. Texts that it sends to other hosts are commits all the same, one at
    # a time for the whole server: they must not wait for a disk.
    reader = made(6 * patience, timeout=4 * patience, synchronous_commit="off")
    lasting = "local" if commit == "off" else commit
    heartbeat = made(1.5 * beat, timeout=beat, synchronous_commit=lasting, **by_index)
    listener = made(math.inf)  # it waits for ever
    return writer, reader, heartbeat, listener, made(1.5 * patience, timeout=patience, **planned)


def _parameters(url: str, *, host: str) -> dict[str, Any]:
    """The parameters of libpq: those of the URL, and defaults for the others."""
    form = "postgresql://user:password@server:5432/database"
    if not url.startswith(("postgresql://", "postgres://")):
        got = without_secrets(url)
        raise UsageError(f"The URL of a PostgreSQL store must be {form}, got {got!r}")
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        why = str(error).strip()
        raise UsageError(
            f"{without_secrets(url)!r} is not the URL of a PostgreSQL database "
            f"({_without_secrets(url, why)}): write {form}, with special characters percent-encoded"
        ) from None
    defaults = {**_DEFAULTS, "fallback_application_name": f"understudy {host}"}
    if "," in str(given.get("host", "")) + str(given.get("hostaddr", "")):
        defaults["target_session_attrs"] = "read-write"  # of several servers, the primary
    return {**defaults, **given}


def _without_secrets(url: str, text: str) -> str:
    """The text, unless it repeats a part of the URL that could be a password."""
    if any(secret in text for secret in secrets_of(url)):
        return "a part of it cannot be read"
    return text
