"""A real PgBouncer before a PostgreSQL server, as a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import psycopg
import psycopg.sql
from psycopg.conninfo import conninfo_to_dict

from tests.support.postgres import make_conninfo_url

Mode: TypeAlias = Literal["session", "transaction", "statement"]
PORT = 6432
"""A part of the name of its socket."""


def program() -> str | None:
    """The program: that of `PGBOUNCER=...`, or the machine's."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"  # where Debian has it
    return os.environ.get("PGBOUNCER") or shutil.which("pgbouncer", path=path)


class PgBouncer:
    """A pooler before the server of this URL.

    Args:
        url: of the server.
        mode: `pool_mode`.
        settings: further ones, as of its file.

    """

    def __init__(self, url: str, mode: Mode = "session", **settings: object) -> None:
        found = program()
        assert found, "there is no pgbouncer: `make test-faults` installs it"
        self._program = found
        self._server = conninfo_to_dict(url)
        self._folder = Path(tempfile.mkdtemp(prefix="bouncer"))  # short: it is the name of a socket
        self._options: dict[str, object] = {
            "listen_addr": "",
            "listen_port": PORT,
            "unix_socket_dir": self._folder,
            "auth_type": "any",
            "admin_users": self._server.get("user") or "postgres",
            "pool_mode": mode,
            "default_pool_size": 20,
            "max_client_conn": 200,
            "server_login_retry": 1,
            **settings,
        }
        self._user = _user_of(self._server)
        if self._user is not None:
            os.chown(self._folder, self._user, -1)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self.url = f"{make_conninfo_url(self._server, self._folder)}&port={PORT}"
        self.start()

    def start(self) -> None:
        """Start it, again if it has ended."""
        self._write()
        self._process = process = subprocess.Popen(
            [self._program, self._folder / "pgbouncer.ini"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            user=self._user,
        )
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "process up" in line:
                break
        else:
            raise AssertionError(f"PgBouncer does not start: {''.join(said)}")
        self._log = threading.Thread(target=_read_all, args=[process.stderr], daemon=True)
        self._log.start()

    def kill(self) -> None:
        """End it at once: each connection through it is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(60)
        self._log.join(60)

    def restart(self) -> None:
        with self._lock:
            self.kill()
            self.start()

    def set(self, **settings: object) -> None:
        """Change settings, as an operator does while it runs."""
        self._options.update(settings)
        self._write()
        self.console("RELOAD")

    def console(self, command: str) -> list[Mapping[str, Any]]:
        """What its console answers to a command, such as `SHOW POOLS`."""
        target = {**self._server, "dbname": "pgbouncer"}
        url = f"{make_conninfo_url(target, self._folder)}&port={PORT}"
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
            cursor = connection.execute(command.encode())
            rows = cursor.fetchall() if cursor.description else []
            names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in rows]

    @contextmanager
    def closed(self) -> Iterator[None]:
        """All connections are cut, and new ones wait for a session meanwhile."""
        database = psycopg.sql.Identifier(str(self._server.get("dbname") or "postgres"))
        self.console(psycopg.sql.SQL("KILL {}").format(database).as_string())
        try:
            yield
        finally:
            self.console(psycopg.sql.SQL("RESUME {}").format(database).as_string())

    def clients_that_wait(self) -> int:
        return sum(int(pool["cl_waiting"]) for pool in self.console("SHOW POOLS"))

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _write(self) -> None:
        names = {"host": "host", "port": "port", "user": "user", "password": "password"}
        given = " ".join(
            f"{name}='{self._server[key]}'" for key, name in names.items() if self._server.get(key)
        )
        lines = [f"{name} = {value}" for name, value in self._options.items()]
        text = "\n".join(["[databases]", f"* = {given}", "[pgbouncer]", *lines, ""])
        (self._folder / "pgbouncer.ini").write_text(text)


def _read_all(log: IO[str]) -> None:
    with log:
        log.read()


def _user_of(server: Mapping[str, Any]) -> int | None:
    """Whose process it is: it refuses to be root's, and must get to the server's socket."""
    if os.geteuid() != 0:
        return None
    host = Path(str(server.get("host")))
    return host.stat().st_uid if host.is_absolute() else 65534
