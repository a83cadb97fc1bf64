"""Three hosts on one PostgreSQL, and the callers who ask them: every call at a random one.

The callers live in a process that is never stopped. The call of a caller whose host was killed is
made again at another one, with the same ids: so does a person who loads the page again.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.support.durability.any_host import Setting, play
from tests.support.durability.side_log import SideLog

__all__ = ["NAMES", "SOON", "Answer", "Fleet", "Script", "Stuck", "Wrong"]

NAMES = ("one", "two", "three")
SOON = 60.0
"""Seconds after which what is waited for does not come."""

LISTENING = """
SELECT a.pid FROM pg_stat_activity a JOIN hosts h ON a.query = format('LISTEN "%%s"', h.channel)
WHERE h.name = coalesce(%s::text, h.name)"""
"""The connections on which hosts, or this one, listen."""

Answer = dict[str, Any]
Script = Generator[Callable[[], bool], None, None]
"""A caller: it gives the condition that it waits for."""


class Stuck(Exception):
    """Something that a caller waits for does not come."""


class Wrong(Exception):
    """There is a violation, and that was the question."""


@dataclass(slots=True)
class _Process:
    name: str
    pid: int
    commands: int
    errors: Path
    life: int
    stops: int = 0
    """How often it has stopped itself."""
    is_stopped: bool = False
    since: float = 0.0
    """When it was stopped."""
    wake_at: float | None = None
    """When it continues; None: when it is asked to."""
    drain: int | None = None
    """The number of the call by which it gives its agents up: it leaves behind that."""
    leaves: bool = False
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Those that it has not answered, by their numbers."""


class Fleet:
    """The hosts, and what was asked of them.

    Args:
        setting: of all hosts.
        folder: of the logs.
        chance: chooses the hosts.
        absent: seconds after which an answer that a round is about does not come.
        is_over_when_wrong: play on behind no violation.

    """

    def __init__(
        self,
        setting: Setting,
        folder: Path,
        chance: random.Random,
        *,
        absent: float = SOON,
        is_over_when_wrong: bool = False,
    ) -> None:
        self.log = SideLog(folder / "log", -1)
        self.setting = setting
        self.violations: list[str] = []
        self.kills = 0
        self.stops = 0
        self.long_stops = 0
        self.drains = 0
        """How many hosts have given their agents up, and left in order."""
        self._in_order: set[int] = set()
        """The lives that began behind such."""
        self._absent = absent
        self._soon = SOON
        self._is_over_when_wrong = is_over_when_wrong
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._folder = folder
        self._chance = chance
        self._lives = 0
        self._calls = 0
        self._once: set[int] = set()
        """Calls whose callers do not make them again."""
        self.repeated: set[int] = set()
        """Calls that were made again, at another host."""
        self._answers: dict[int, Answer] = {}
        self._read = 0
        self._hosts: dict[str, _Process] = {}

    # ------------------------------------------------------------------- hosts

    def open(self) -> None:
        for name in NAMES:
            self._start(name)
        self._until(lambda: len(self.log.read("open")) == len(NAMES), "the hosts open")
        self._until(lambda: len(self.find(LISTENING, None)) == len(NAMES), "the hosts listen")

    def _start(self, name: str) -> None:
        self._lives += 1
        errors = self._folder / f"{name}.err"
        read, commands = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(commands)
                for other in self._hosts.values():
                    os.close(other.commands)
                os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
                play(self.setting, name, SideLog(self._folder / "log", self._lives), read)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(read)
        self._hosts[name] = _Process(name, pid, commands, errors, self._lives)

    def arm(self, host: str, point: str, action: str, *, pause: float | None, nth: int = 1) -> None:
        """Have a host stop itself at a point. It has heard so when this returns.

        Args:
            host: its name.
            point: see `any_host`.
            action: "kill" or "stop".
            pause: seconds for which it is stopped; None = until `wake`.
            nth: the n-th time that it passes the point.

        """
        armed = {"point": point, "action": action, "nth": nth, "pause": pause}
        self._have(host, {"do": "arm", **armed})

    def deafen(self, host: str) -> None:
        """Have a host hear nothing of what others tell, from now on."""
        self._have(host, {"do": "deafen"})

    def _have(self, host: str, command: dict[str, Any]) -> None:
        armed, life = len(self.log.read("armed")), self._hosts[host].life
        self._write(host, command)
        # It may stop before it reads that, at the point that it was armed for before.
        self._until(
            lambda: len(self.log.read("armed")) > armed or self._hosts[host].life != life,
            f"{host} has heard {command}",
        )

    def wake(self, host: str) -> None:
        found = self._hosts[host]
        self.long_stops += time.monotonic() - found.since > self.setting.lease * 0.6
        found.is_stopped, found.wake_at = False, None
        os.kill(found.pid, signal.SIGCONT)

    def stop(self, host: str) -> None:
        """Stop it now, wherever it is, until `wake`."""
        os.kill(self._hosts[host].pid, signal.SIGSTOP)
        self._until(lambda: self.is_stopped(host), f"{host} is stopped")

    def kill(self, host: str) -> None:
        """Kill it now. The next one of its name begins at once."""
        kills = self.kills
        os.kill(self._hosts[host].pid, signal.SIGKILL)
        self._until(lambda: self.kills > kills, f"{host} is killed")

    def drain(self, host: str) -> None:
        """Have it give its agents up, and leave. The next one of its name begins behind that."""
        self._hosts[host].drain = self.ask(host, "drain", "t", again=False)

    @property
    def is_draining(self) -> bool:
        """Whether one does, or the next one of its name is not open yet."""
        opened = {entry.life for entry in self.log.read("open")}
        hosts = self._hosts.values()
        return any(host.drain is not None or host.life not in opened for host in hosts)

    def _let_leave(self, host: _Process) -> None:
        if host.drain is None or host.drain not in self._answers or host.leaves:
            return
        if self._answers[host.drain] != {"is": "bool", "value": True}:
            self.violations.append(f"{host.name} does not drain: {self._answers[host.drain]}")
        host.leaves = True
        self._write(host.name, None)

    def is_stopped(self, host: str) -> bool:
        return self._hosts[host].is_stopped

    @property
    def was_away(self) -> bool:
        """Whether the lease of a host has ended: it was killed, stopped, or had no time to live.

        Then the host has another number now, or another host has marked it.
        """
        if self.kills:  # a host that opens deletes the rows of such, before it has a number
            return True
        opened = sum(entry.life in self._in_order for entry in self.log.read("open"))
        ((away,),) = self.find(
            "SELECT (SELECT last_value FROM hosts_id_seq) > %s"
            " OR bool_or(lease_until = '-infinity') FROM hosts",
            len(NAMES) + opened,
        )
        return bool(away)

    def running(self) -> list[str]:
        """Hosts that are not stopped."""
        return [host.name for host in self._hosts.values() if not host.is_stopped]

    def tend(self) -> None:
        """See which hosts have stopped or died, and wake or replace them."""
        for host in list(self._hosts.values()):
            pid, status = os.waitpid(host.pid, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                self.stops += 1
                host.is_stopped = True
                host.since = time.monotonic()
                pause = self._pause_of(host)
                host.wake_at = None if pause is None else host.since + pause
            elif pid:
                self._died(host, status)
            elif host.wake_at is not None and time.monotonic() > host.wake_at:
                self.wake(host.name)
            else:
                self._let_leave(host)
        self._hear()

    def _pause_of(self, host: _Process) -> float | None:
        """For how long it is stopped: it may have been armed for another stop since."""
        stops = [entry for entry in self.log.read("stops") if entry.life == host.life]
        if len(stops) == host.stops:
            return None  # it did not stop itself
        host.stops = len(stops)
        pause: float | None = json.loads(stops[-1].of[3])
        return pause

    def _died(self, host: _Process, status: int) -> None:
        os.close(host.commands)
        del self._hosts[host.name]
        if host.leaves and status == 0:
            self.drains += 1
            self._in_order.add(self._lives + 1)
        elif os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            self.kills += 1
        else:
            said = host.errors.read_text()[-3000:]
            raise Stuck(f"{host.name} ended by itself with status {status}: {said}")
        self._start(host.name)
        self._hear()
        for number, command in host.calls.items():
            if number not in self._answers and number not in self._once:
                self.repeated.add(number)
                self._send(self.random_host(), number, command)

    def random_host(self) -> str:
        """One that may be stopped just now: who asks does not know."""
        return self._chance.choice(sorted(self._hosts))

    def end(self) -> None:
        """Let all hosts end, and see that they do so in order."""
        for host in self._hosts.values():
            if host.is_stopped:
                self.wake(host.name)
            self._write(host.name, None)
        for host in self._hosts.values():
            end, status, pid = time.monotonic() + self._soon, 0, 0
            while not pid and time.monotonic() < end:
                pid, status = os.waitpid(host.pid, os.WNOHANG)
                time.sleep(0.005)
            if not pid:
                raise Stuck(f"{host.name} does not end")
            if status:
                said = host.errors.read_text()[-3000:]
                self.violations.append(f"{host.name} ended with status {status}: {said}")
        self._hosts.clear()

    def destroy(self) -> None:
        """Kill what is left, and read what it said."""
        for host in self._hosts.values():
            os.kill(host.pid, signal.SIGCONT)
            os.kill(host.pid, signal.SIGUSR1)
        time.sleep(0.2 if self._hosts else 0)
        if (self._hosts or self.violations) and (kept := os.environ.get("CHAOS_LOGS")):
            shutil.copytree(self._folder, Path(kept, self.setting.schema), dirs_exist_ok=True)
        for host in self._hosts.values():
            os.kill(host.pid, signal.SIGKILL)
            os.waitpid(host.pid, 0)
            self.violations.append(f"{host.name}: {host.errors.read_text()[-1500:]}")
        self._hosts.clear()
        if self._connection is not None:
            self._connection.close()

    # ------------------------------------------------------------------- calls

    def ask(self, host: str, do: str, id: str, *, again: bool = True, **given: Any) -> int:
        """Have a host make a call; the number of the call.

        Args:
            host: its name.
            do: which one.
            id: of the agent.
            again: whether it is made at another host if this one is killed.
            given: its arguments.

        """
        self._calls += 1
        if not again:
            self._once.add(self._calls)
        command = {"do": do, "number": self._calls, "id": id, "given": given}
        self._send(host, self._calls, command)
        return self._calls

    def _send(self, host: str, number: int, command: dict[str, Any]) -> None:
        self._hosts[host].calls[number] = command
        self._write(host, command)

    def _write(self, host: str, command: Any) -> None:
        with suppress(BrokenPipeError):  # it was killed just now: its calls are made again
            os.write(self._hosts[host].commands, f"{json.dumps(command)}\n".encode())

    def _hear(self) -> None:
        told = self.log.read("told")
        for entry in told[self._read :]:
            self._answers.setdefault(int(entry.of[0]), json.loads(entry.of[1]))
            for host in self._hosts.values():
                host.calls.pop(int(entry.of[0]), None)
        self._read = len(told)

    def answer(self, number: int) -> Answer:
        return self._answers[number]

    def is_answered(self, number: int) -> bool:
        return number in self._answers

    def told(
        self, number: int, *, may_be_absent: bool = False
    ) -> Generator[Callable[[], bool], None, Answer]:
        """Wait for the answer to a call.

        Args:
            number: of the call.
            may_be_absent: whether an answer comes is what the round is about, and all that waits.

        """
        self._soon = self._absent if may_be_absent else SOON
        yield lambda: number in self._answers
        self._soon = SOON
        return self._answers[number]

    def absent(self, condition: Callable[[], bool]) -> Script:
        """Wait for what the round is about, and all that waits."""
        self._soon = self._absent
        yield condition
        self._soon = SOON

    def find(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        """What the database says."""
        if self._connection is None:
            options = f"-c search_path={self.setting.schema}"
            self._connection = psycopg.connect(self.setting.url, autocommit=True, options=options)
        return self._connection.execute(text, values).fetchall()

    def cut_ears(self, host: str | None = None) -> int:
        """Cut the connections on which hosts listen; how many those were."""
        rows = self.find(LISTENING, host)
        for (pid,) in rows:
            self.find("SELECT pg_terminate_backend(%s)", pid)
        return len(rows)

    # ------------------------------------------------------------------- callers

    def play(self, scripts: Iterable[Script], *, often: Callable[[], None] | None = None) -> None:
        """Play all of them side by side, until their ends.

        Raises:
            Stuck: if one waits for too long.
            Wrong: if there is a violation, and nothing is to be played behind it.

        """
        waiting: deque[tuple[Script, Callable[[], bool], float]] = deque()
        for script in scripts:
            self._step(script, waiting)
        while waiting:
            self.tend()
            if often is not None:
                often()
            self._check()
            for _ in range(len(waiting)):
                script, condition, since = waiting.popleft()
                if condition():
                    self._step(script, waiting)
                    continue
                if time.monotonic() > since + self._soon:
                    rows = self.find(
                        "SELECT agent_id, index_status, status, takeable, owner FROM agents"
                        " WHERE index_status <> 'rest' OR NOT takeable"
                    )
                    inbox = self.find("SELECT id, agent, kind, asker, begun, reply FROM inbox")
                    raise Stuck(
                        f"a call hangs: {_where(script)}; {self._open_calls()}; not at rest: {rows}"
                        f"; posted: {inbox}"
                    )
                waiting.append((script, condition, since))
            time.sleep(0.004)
        self._check()

    def _check(self) -> None:
        if self.violations and self._is_over_when_wrong:
            raise Wrong

    def _step(self, script: Script, waiting: deque[Any]) -> None:
        with suppress(StopIteration):
            waiting.append((script, next(script), time.monotonic()))

    def _open_calls(self) -> dict[str, list[dict[str, Any]]]:
        """What has no answer, by host; a stopped one is marked."""
        return {
            f"{host.name}{' (stopped)' if host.is_stopped else ''}": list(host.calls.values())
            for host in self._hosts.values()
            if host.calls
        }

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + self._soon
        while not condition():
            self.tend()
            if time.monotonic() > end:
                raise Stuck(f"not so: {what}")
            time.sleep(0.004)

    until = _until

    def lives(self) -> list[str]:
        """The names of the hosts. One that has died begins again under its own."""
        return list(self._hosts)


def _where(script: Any) -> str:
    """Where a caller waits, from the outside to the inside."""
    lines = []
    while getattr(script, "gi_frame", None) is not None:
        known = {name: each for name, each in script.gi_frame.f_locals.items() if name != "self"}
        lines.append(f"{script.__name__}, line {script.gi_frame.f_lineno}, {known}")
        script = script.gi_yieldfrom
    return " > ".join(lines)
