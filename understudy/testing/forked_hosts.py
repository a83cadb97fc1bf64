"""Hosts of a story that are separate processes: forks, which end by `SIGKILL`."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
import traceback
import warnings
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NoReturn

from understudy._base.json_values import shown
from understudy.errors import UsageError
from understudy.testing.effects import Effect
from understudy.testing.story_hosts import (
    PATIENCE,
    Hangs,
    InProcessHost,
    Killed,
    Setting,
    StoryHost,
)

if sys.platform == "win32":
    raise ImportError("a host that is a fork needs os.fork")


class Notes:
    """A file in which hosts in other processes note what happens."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0
        self._lock = threading.Lock()

    def take(self, setting: Setting, *, but_of: int = 0) -> None:
        """Take over what was noted since the last look, except by the process `but_of`."""
        with self._lock:
            if not self.path.exists():
                return
            with self.path.open() as file:
                file.seek(self._read)
                lines = [line for line in file if line.endswith("\n")]
            self._read += sum(len(line.encode()) for line in lines)
            entries = setting.watch.take(lines, but_of=but_of)
        effects = [each for each in entries if each.what == "effect"]
        requests = [each for each in entries if each.what == "request"]
        setting.effects.take(
            [Effect(each.text, each.key) for each in effects],
            [(each.first, Effect(each.text, each.key)) for each in requests],
        )


class ForkedHost(StoryHost):
    """A runtime in a fork of this process, which ends by `SIGKILL`."""

    def __init__(self, setting: Setting, notes: Notes) -> None:
        self.setting = setting
        self._notes = notes
        ours, theirs = Pipe()
        with warnings.catch_warnings():
            # The threads of a test runner may hold locks, which the child does not touch.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid == 0:
            ours.close()
            _serve(setting, notes, theirs)
        theirs.close()
        self._pipe = ours
        try:
            self._receive()
        except BaseException:
            # The caller does not get this host, so it must be ended here.
            if not self._pipe.closed:
                self.end()
            raise

    def do(self, verb: str, *given: Any) -> Any:
        # The next host gets the clock and the persons as they are at this host.
        if verb == "advance":
            self.setting.clock.advance(*given)
        elif verb == "people":
            method, *of = given
            getattr(self.setting.options["people"], method)(*of)
        try:
            asked = pickle.dumps((verb, given))
        except Exception as error:
            raise UsageError(
                f"with kill='process' all that a story says goes to another process, and "
                f"{shown(given)} cannot: {error}"
            ) from error
        try:
            self._pipe.send_bytes(asked)
        except OSError:
            self._killed()
        return self._receive()

    def is_there(self) -> bool:
        # The host says nothing unasked: anything to read is the end of the pipe.
        if not self._pipe.closed and self._pipe.poll(0):
            with suppress(Killed):
                self._killed()
        return not self._pipe.closed

    def end(self) -> bool:
        if self._pipe.closed:
            return False
        with suppress(OSError):
            _send(self._pipe, None)
        return self._reap() == -signal.SIGKILL

    def _receive(self) -> Any:
        try:
            if not self._pipe.poll(2 * PATIENCE):
                self._reap()
                raise Hangs
            is_error, answer = _received(self._pipe)
        except (EOFError, OSError):
            self._killed()
        self._notes.take(self.setting)
        if is_error:
            raise answer
        return answer

    def _killed(self) -> NoReturn:
        """Say that it was killed.

        Raises:
            Killed: if it was killed.
            RuntimeError: if it ended in another way: each further host would do the same.

        """
        code = self._reap()
        if code == -signal.SIGKILL:
            raise Killed
        raise RuntimeError(
            f"the process of a host has ended by itself, with the exit code {code}: see what it "
            "has written to stderr"
        )

    def _reap(self) -> int:
        """Wait for the end of the process, and kill it if it hangs. Returns its exit code."""
        end = time.monotonic() + PATIENCE
        with suppress(EOFError, OSError):
            while self._pipe.poll(max(0.0, end - time.monotonic())):
                self._pipe.recv_bytes()  # an answer that nobody waits for
            os.kill(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        self._pipe.close()
        self._notes.take(self.setting)
        return os.waitstatus_to_exitcode(status)


def _serve(setting: Setting, notes: Notes, pipe: Connection) -> None:
    """Live as a host, in a fork, until the story ends it or it is killed."""
    status = 1
    # Ctrl-C reaches each process of the terminal: the story's process ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with notes.path.open("a") as file:
            setting.watch.file = file
            # There may be another host, whose notes are in the same file.
            refresh = partial(notes.take, setting, but_of=os.getpid())
            setting.watch.refresh = refresh
            setting.effects.refreshed_by(refresh)
            try:
                host = InProcessHost(setting)
            except Exception as error:
                _send(pipe, _sendable((True, error)))
                _received(pipe)  # wait until the story has taken it
                return
            host.on_killed = lambda: os.kill(os.getpid(), signal.SIGKILL)
            _send(pipe, (False, None))
            while (asked := _received(pipe)) is not None:
                verb, given = asked
                try:
                    answer = False, host.do(verb, *given)
                except Killed:
                    signal.pause()  # SIGKILL is on its way
                except Exception as error:
                    answer = True, error
                _send(pipe, _sendable(answer))
            host.end()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


# `Connection.send` and `recv` leave views of their buffers to the garbage collector, which since
# Python 3.13 complains about them if a frame of an error keeps them.


def _send(pipe: Connection, what: Any) -> None:
    pipe.send_bytes(pickle.dumps(what))


def _received(pipe: Connection) -> Any:
    return pickle.loads(pipe.recv_bytes())  # noqa: S301  # it is our own


def _sendable(answer: tuple[bool, Any]) -> tuple[bool, Any]:
    try:
        # Some errors can be pickled but not unpickled.
        pickle.loads(pickle.dumps(answer))  # noqa: S301  # it is our own
    except Exception as error:
        return True, RuntimeError(
            f"with kill='process' {shown(answer[1])} cannot be sent to the story: {error}"
        )
    return answer
