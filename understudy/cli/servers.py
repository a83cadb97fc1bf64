"""The running servers of this user, found by files in the user's runtime directory."""

from __future__ import annotations

import json
import os
import platform
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from understudy._base.secrets_in_urls import HIDDEN, is_secret_option, without_secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A process that serves a store: `understudy serve`."""

    url: str
    token: str | None
    pid: int
    store: str | None
    """The name of its store, as in `store_name`; None if the store has no name."""


def store_name(store: str) -> str:
    """The one name of a store, however its URL is written, without a password."""
    scheme, separator, rest = store.partition("://")
    if separator and scheme == "sqlite" and rest.startswith("/"):
        path = rest[1:]
        return f"sqlite:///{Path(path).resolve()}" if path else store
    if separator:
        if without_secrets(store).endswith(f"://{HIDDEN}"):
            return f"postgresql://{HIDDEN}"  # nobody can tell where its password ends
        parts = urlsplit(store)
        hosts = parts.netloc.rpartition("@")[2].lower()  # any number of hosts, with ports
        options = [
            each for each in parts.query.split("&") if not is_secret_option(each.partition("=")[0])
        ]
        query = f"?{'&'.join(options)}" if any(options) else ""
        return f"postgresql://{hosts}{parts.path}{query}"
    return store


def file_of(store: str) -> Path | None:
    """The file of a store; None if it is in no file."""
    scheme, _, rest = store_name(store).partition("://")
    return Path(rest[1:] if rest.startswith("//") else rest) if scheme == "sqlite" else None


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that has a file open, or had it last."""

    name: str
    """The machine and the process id."""
    may_run: bool
    """Whether the process may run: False if it is of this machine and has ended."""


def holder_of(database: Path) -> Holder | None:
    """The process that has the file open, or had it last; None if there is none."""
    path = Path(f"{database}.lock")
    try:
        if not path.is_file():  # reading a pipe would wait for its writer
            return None
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    name = "".join(text.splitlines()[1:2]).strip()
    pid = name.rpartition(":")[2]
    is_here = name.startswith(f"{platform.node()}:") and pid.isdecimal()
    return Holder(name, not is_here or is_alive(int(pid))) if name else None


def directory() -> Path:
    """The folder of the files, which only this user can read."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and Path(base).is_dir():
        return Path(base) / "understudy"
    who = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    return Path(tempfile.gettempdir()) / f"understudy-{who}"


@contextmanager
def announced(server: Server) -> Iterator[Path]:
    """Let the commands of this user find the server while the context is open."""
    folder = directory()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_own(folder):
        raise PermissionError(f"{folder} is not a directory of this user alone")
    path = folder / f"server-{server.pid}.json"
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(server), file)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def running() -> list[Server]:
    """The running servers. Files that other users could have written are ignored."""
    folder = directory()
    if not folder.is_dir() or not _is_own(folder):
        return []
    found = []
    for path in sorted(folder.glob("server-*.json")):
        server = _read(path)
        if server is None:
            continue
        if is_alive(server.pid):
            found.append(server)
        else:
            path.unlink(missing_ok=True)
    return found


def _read(path: Path) -> Server | None:
    with suppress(OSError, ValueError, TypeError):
        if _is_own(path):
            data = json.loads(path.read_text(encoding="utf-8"))
            server = Server(**data)
            if isinstance(server.url, str) and type(server.pid) is int:
                return server
    return None


def _is_own(path: Path) -> bool:
    """Whether the file belongs to this user, and nobody else can read or write it."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        return False
    if hasattr(os, "getuid"):
        return found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077
    return True


def is_alive(pid: int) -> bool:
    """Whether a process with this id runs."""
    if sys.platform == "win32":
        return True  # a signal to ask would end the process
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
