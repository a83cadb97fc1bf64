"""A block whose code reaches nothing outside of the process: no socket, no program, no file.

Code of an application runs in a replay: hooks of middleware, instructions, rules. It is stopped by
an audit hook of Python (PEP 578), which asks a context variable whether it runs in a sealed block.
So other threads and tasks of the process are not concerned. The variable goes with tasks, and with
the threads of this library.

What it does not stop:

- code in a thread that the application starts itself, before Python 3.14, for such a thread has a
  context of its own;
- data sent over a connection that was open before;
- a library of C that makes no audit events, such as libpq or uvloop;
- writes to a file that is mapped into memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any

_NETWORK = {
    "socket.connect": "connect to {1}",
    "socket.getaddrinfo": "look up the host {0}",
    "socket.gethostbyname": "look up the host {0}",
    "socket.sendto": "send to {1}",
    "socket.sendmsg": "send to {1}",
    "socket.bind": "listen at {1}",
}
_PROGRAMS = {
    "subprocess.Popen": "start {0}",
    "os.system": "start {0}",
    "os.exec": "start {0}",
    "os.posix_spawn": "start {0}",
    "os.spawn": "start {1}",
    "os.fork": "fork",
    "os.forkpty": "fork",
    "os.startfile": "open {0}",
    "os.kill": "signal the process {0}",
}
_FILES = {
    "os.remove": "remove {0}",
    "os.rename": "rename {0}",
    "os.rmdir": "remove {0}",
    "os.mkdir": "make {0}",
    "os.truncate": "truncate {0}",
    "os.link": "link {0}",
    "os.symlink": "link {0}",
    "os.chmod": "change {0}",
    "os.chown": "change {0}",
    "sqlite3.connect": "open the database {0}",
}
_EVENTS = {**_NETWORK, **_PROGRAMS, **_FILES}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC


class Sealed(OSError):
    """The error of code that tried to leave a sealed block. Many clients take it for a network
    failure.
    """


class Seal:
    """A sealed block, with the attempts of its code to leave it, in order."""

    def __init__(self) -> None:
        self.tried: list[str] = []


_seal: ContextVar[Seal | None] = ContextVar("understudy_seal", default=None)
_installing = Lock()
_is_installed = False


@contextmanager
def sealed(seal: Seal) -> Iterator[None]:
    """Seal the block. An attempt to leave it raises `Sealed`, and is noted even if that is
    caught.
    """
    _install()
    token = _seal.set(seal)
    try:
        yield
    finally:
        _seal.reset(token)


@contextmanager
def unsealed() -> Iterator[None]:
    """Open the seal around a request to a model."""
    token = _seal.set(None)
    try:
        yield
    finally:
        _seal.reset(token)


def _install() -> None:
    """Add the audit hook. It stays to the end of the process, as Python has it."""
    global _is_installed
    with _installing:
        if not _is_installed:
            sys.addaudithook(_audit)
            _is_installed = True


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    # The hook is called for each audit event of the process; outside of a block it returns here.
    if event == "open":
        if not _writes(arguments):
            return
        what = "write {0}"
    elif event in _EVENTS:
        what = _EVENTS[event]
    else:
        return
    seal = _seal.get()
    if seal is None:
        return
    said = what.format(*(_shown(each) for each in arguments), "?", "?")
    seal.tried.append(said)
    raise Sealed(f"a replay reaches nothing outside: it tried to {said}")


def _writes(arguments: tuple[Any, ...]) -> bool:
    path, mode, flags = arguments
    if isinstance(path, int) or path == os.devnull:
        return False
    changes = any(sign in mode for sign in "wax+") if isinstance(mode, str) else flags & _WRITES
    # An import writes the code that it has compiled.
    return bool(changes) and "__pycache__" not in str(path)


def _shown(value: object) -> str:
    if isinstance(value, tuple) and len(value) >= 2:
        return f"{value[0]}:{value[1]}"
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
