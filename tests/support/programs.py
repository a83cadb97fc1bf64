"""Python programs as processes, without the seconds in which each of them imports the same.

A server that has imported the library is forked for each. What a program sees is what a fresh
interpreter would show it: its arguments, folder, environment, files, warnings, signals, and the end
of its interpreter. What it imports is there already, so that tests of importing, and one test of
each kind of program, start a fresh interpreter: `is_fresh=True`.

The server never runs an event loop or a thread, so that what it forks is as good as new.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
import types
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from types import TracebackType
from typing import IO, Any, Self

__all__ = ["DEVNULL", "PIPE", "ROOT", "STDOUT", "Program", "Started", "ran", "started"]

ROOT = Path(__file__).parents[2]
IMPORTED = ("understudy", "psycopg", "fastapi", "uvicorn", "uvicorn.main", "uvicorn.loops.auto")
"""What most programs import, with the modules of the first."""
_LENGTH = struct.Struct("!Q")
_ASKING = threading.Lock()


class Program:
    """A program under way: what `subprocess.Popen` is for a fresh interpreter."""

    def __init__(
        self, pid: int, reply: socket.socket, pipes: Sequence[IO[str] | None], command: list[str]
    ) -> None:
        self.args = command
        self.pid = pid
        self.returncode: int | None = None
        self.stdin, self.stdout, self.stderr = pipes
        self._reply = reply
        self._readers: list[threading.Thread] = []

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended; negative for a signal.

        Raises:
            subprocess.TimeoutExpired: if it is still under way after so many seconds.

        """
        if self.returncode is None:
            self._reply.settimeout(timeout)
            try:
                status = self._reply.recv(_LENGTH.size, socket.MSG_WAITALL)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self._reply.close()
            (code,) = _LENGTH.unpack(status)
            self.returncode = os.waitstatus_to_exitcode(code)
        return self.returncode

    def poll(self) -> int | None:
        """Its exit code; None while it is under way."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        """Send it this signal, unless it has ended."""
        if self.poll() is None:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:  # it ended just now
                return

    def kill(self) -> None:
        """End it at once."""
        assert sys.platform != "win32"
        self.send_signal(signal.SIGKILL)

    def communicate(
        self, input: str | None = None, timeout: float | None = None
    ) -> tuple[str, str]:
        """What it prints until it ends: its output and its errors, if they come to a pipe."""
        texts = ["", ""]

        def read(at: int, pipe: IO[str]) -> None:
            texts[at] = pipe.read()

        pipes = [(at, pipe) for at, pipe in enumerate((self.stdout, self.stderr)) if pipe]
        readers = [threading.Thread(target=read, args=each, daemon=True) for each in pipes]
        self._readers = readers
        for reader in readers:
            reader.start()
        if self.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it may end without reading it
                self.stdin.write(input or "")
            with contextlib.suppress(BrokenPipeError):
                self.stdin.close()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
            if reader.is_alive():  # a child of it holds the pipe
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        for _, pipe in pipes:
            pipe.close()
        return texts[0], texts[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if any(reader.is_alive() for reader in self._readers) and self.poll() is not None:
            return  # a child of it holds a pipe: closing it here would wait for that
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # what was written last is not read
                    pipe.close()
        self.wait()


Started = Program | subprocess.Popen[str]


def started(
    *arguments: str,
    cwd: Path | str = ROOT,
    env: Mapping[str, str] | None = None,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    is_fresh: bool = False,
) -> Started:
    """A program under way.

    Args:
        arguments: of the interpreter: `-W error`, then `-m` and a module, or `-c` and code, then
            those of the program.
        cwd: its folder.
        env: its environment; that of this process if None.
        stdin: as for `subprocess.Popen`, like `stdout` and `stderr`.
        stdout: its output.
        stderr: its errors.
        is_fresh: start a fresh interpreter, as a user does.

    """
    command = [sys.executable, *arguments]
    environment = dict(os.environ if env is None else env)
    if is_fresh or sys.platform == "win32":
        return subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            encoding="utf-8",
        )
    reply, its_reply = socket.socketpair()
    ours: list[IO[str] | None] = []
    theirs: list[int] = []
    for number, file in enumerate((stdin, stdout, stderr)):
        pipe: IO[str] | None = None
        if file == PIPE:
            reading, writing = os.pipe()
            own, its = (writing, reading) if number == 0 else (reading, writing)
            pipe = os.fdopen(own, "w" if number == 0 else "r", encoding="utf-8")
        elif file == DEVNULL:
            its = os.open(os.devnull, os.O_RDWR)
        elif file == STDOUT:
            its = os.dup(theirs[1])
        else:
            its = os.dup(
                number if file is None else file if isinstance(file, int) else file.fileno()
            )
        ours.append(pipe)
        theirs.append(its)
    request = {"arguments": arguments, "cwd": str(cwd), "env": environment}
    data = json.dumps(request).encode()
    try:
        with its_reply, _ASKING:
            server = _server()
            fds = [*theirs, its_reply.fileno()]
            socket.send_fds(server, [_LENGTH.pack(len(data))], fds)
            server.sendall(data)
    finally:
        for each in theirs:
            os.close(each)
    (pid,) = _LENGTH.unpack(reply.recv(_LENGTH.size, socket.MSG_WAITALL))
    return Program(pid, reply, ours, command)


def ran(
    *arguments: str,
    cwd: Path | str = ROOT,
    env: Mapping[str, str] | None = None,
    input: str | None = None,
    timeout: float = 60,
    is_fresh: bool = False,
) -> subprocess.CompletedProcess[str]:
    """A program that has ended, with its output and its errors. For the arguments see `started`.

    Raises:
        subprocess.TimeoutExpired: if it takes longer than so many seconds; it is killed then.

    """
    stdin = DEVNULL if input is None else PIPE
    pipes: dict[str, Any] = {"stdin": stdin, "stdout": PIPE, "stderr": PIPE}
    with started(*arguments, cwd=cwd, env=env, **pipes, is_fresh=is_fresh) as program:
        try:
            output, errors = program.communicate(input, timeout)
        finally:
            program.kill()
    assert program.returncode is not None
    return subprocess.CompletedProcess(list(arguments), program.returncode, output, errors)


@functools.cache
def _server() -> socket.socket:
    """To the server of this process. It ends when this is closed, with this process."""
    ours, theirs = socket.socketpair()
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    server.returncode = 0  # nobody waits for it
    atexit.register(ours.close)
    return ours


# ------------------------------------------------------------------------------- in the server


def _import_all() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    import understudy

    for module in pkgutil.walk_packages(understudy.__path__, "understudy."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ImportError:  # a library that is not installed here
            continue


def _keep(request: Mapping[str, Any], fds: Sequence[int]) -> bool:
    """Fork the program and tell what becomes of it.

    Returns:
        Whether this is the program.

    """
    pid = os.fork()
    if pid == 0:
        for number, fd in enumerate(fds[:3]):
            os.dup2(fd, number)
        for fd in fds:
            os.close(fd)
        return True
    for fd in fds[:3]:
        os.close(fd)
    with socket.socket(fileno=fds[3]) as reply:
        try:
            reply.sendall(_LENGTH.pack(pid))
            _, status = os.waitpid(pid, 0)
            reply.sendall(_LENGTH.pack(status))
        except BrokenPipeError:  # nobody waits for it any more
            pass
    os._exit(0)


def _serve(requests: socket.socket) -> Mapping[str, Any] | None:
    """Fork for each request.

    Returns:
        What the program is, in the process of a program; None in the server, when it is over.

    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # one for all that the terminal runs
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what keeps the programs
    with requests:
        while True:
            data, fds, _, _ = socket.recv_fds(requests, _LENGTH.size, 4, socket.MSG_WAITALL)
            if not data:
                return None
            (length,) = _LENGTH.unpack(data)
            request: Mapping[str, Any] = json.loads(requests.recv(length, socket.MSG_WAITALL))
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                if _keep(request, fds):
                    signal.signal(signal.SIGINT, signal.default_int_handler)
                    return request
            for fd in fds:
                os.close(fd)


def _standard(number: int, env: Mapping[str, str]) -> io.TextIOWrapper:
    """A standard file, as an interpreter opens it."""
    encoding, _, errors = env.get("PYTHONIOENCODING", "").partition(":")
    return os.fdopen(
        number,
        "w" if number else "r",
        -1,
        encoding or None,
        "backslashreplace" if number == 2 else errors or None,
        closefd=False,
    )


def _become(request: Mapping[str, Any], path: list[str]) -> None:
    """Run the program: what it raises is for the interpreter, as it would be of a fresh one.

    Args:
        request: what it is.
        path: where modules are found, without the environment.

    """
    env = request["env"]
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(env)
    sys.stdin, sys.stdout, sys.stderr = (_standard(number, env) for number in range(3))
    sys.dont_write_bytecode = bool(env.get("PYTHONDONTWRITEBYTECODE"))
    arguments = list(request["arguments"])
    sys.orig_argv[:] = [sys.executable, *arguments]
    while arguments[0] == "-W":
        sys.warnoptions.append(arguments[1])
        warnings.simplefilter(arguments[1])
        del arguments[:2]
    kind, what, *given = arguments
    own = [each for each in env.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:] = ["" if kind == "-c" else str(Path.cwd()), *own, *path]
    importlib.invalidate_caches()
    if kind == "-m":
        sys.argv[:] = [what, *given]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = ["-c", *given]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), main.__dict__)


def main(given: Sequence[str]) -> None:
    """Serve the requests that come by this file."""
    path = [each for each in sys.path[1:] if each != str(ROOT)]
    _import_all()
    assert threading.active_count() == 1, threading.enumerate()
    gc.collect()
    gc.freeze()
    request = _serve(socket.socket(fileno=int(given[0])))
    if request is not None:
        _become(request, path)


if __name__ == "__main__":
    main(sys.argv[1:])
