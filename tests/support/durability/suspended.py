"""Owners that are stopped past their lease (SIGSTOP), and wake when another host has taken over.

Two hosts own agents in turns. In each round one is stopped in the middle of its calls: at a point
between the record of a start and that of its result, or at random. The other one takes over, a
person settles what is in doubt, and the first one is woken at a moment of its own.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.support.durability.broken import break_
from tests.support.durability.hosts import stale_records
from tests.support.durability.side_log import SideLog
from tests.support.durability.suspended_host import KINDS, POINTS, Setting, now, play
from tests.support.durability.suspended_judge import Judge

__all__ = ["ASKED", "Round", "rounds_of", "suspended"]

AT_RANDOM = "at random"
NAMES = ("one", "other")
CLAIMED, ASKED, SERVED, UNCLAIMED = WAKES = (
    "when it is claimed",
    "when a person is asked",
    "at the end",
    "unclaimed",
)
"""When the owner is woken; in the last case nobody has claimed anything."""
SOON = 60.0
"""Seconds after which what is waited for does not come."""
BURNERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What is done in one round."""

    owner: int
    point: str
    nth: int
    kind: str
    agents: int
    wake: str
    delay: float
    """Seconds until an owner is stopped that is stopped at random."""
    pause: float
    """Seconds for which it is stopped at least, in leases."""
    seconds: float
    """How long each call takes."""


def rounds_of(
    count: int,
    seed: int,
    *,
    points: Sequence[str] = POINTS,
    wakes: Sequence[str] = (*WAKES, CLAIMED, ASKED),
) -> list[Round]:
    """So many rounds: half of them at the points in turn, half at random; the rest by chance."""
    chance = random.Random(seed)
    rounds = []
    for number in range(count):
        point = points[number // 2 % len(points)] if number % 2 else AT_RANDOM
        slow = "renewal" in point
        rounds.append(
            Round(
                owner=chance.randrange(2),
                point=point,
                nth=chance.choice((1, 1, 2, 3)),
                kind="plain" if "thread" in point else chance.choice(KINDS),
                agents=chance.choice((1, 2, 6)),
                wake=chance.choice(wakes),
                delay=chance.random() * 0.2,
                pause=0.3 + 1.7 * chance.random(),
                seconds=0.1 if slow else chance.choice((0.0, 0.01, 0.05)),
            )
        )
    return rounds


class _Host:
    """A process that may be stopped."""

    def __init__(self, setting: Setting, name: str, folder: Path, life: int) -> None:
        self.name = name
        self.errors = folder / f"{name}.err"
        read, self._commands = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            status = 1
            try:
                os.close(self._commands)
                errors = os.open(self.errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(errors, 2)
                play(setting, name, SideLog(folder / "log", life), read)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(read)

    def command(self, do: str, ids: Sequence[str], round: Round, point: str = "") -> None:
        """Have it own or take over these agents."""
        told = {
            "do": do,
            "ids": ids,
            "kind": round.kind,
            "point": point,
            "nth": round.nth,
            "seconds": round.seconds,
        }
        os.write(self._commands, f"{json.dumps(told)}\n".encode())

    def stop(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def wake(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    def is_stopped(self) -> bool:
        """Whether it has stopped since the last call.

        Raises:
            AssertionError: if it has ended.

        """
        pid, status = os.waitpid(self._pid, os.WNOHANG | os.WUNTRACED)
        assert not pid or os.WIFSTOPPED(status), f"{self.name} ended: {self.errors.read_text()}"
        return bool(pid)

    def say_where(self) -> None:
        """Have it write down its stacks."""
        os.kill(self._pid, signal.SIGUSR1)
        time.sleep(0.5)

    def end(self) -> str:
        """Let it end; what was wrong with it."""
        os.write(self._commands, b"null\n")
        os.close(self._commands)
        status = os.waitpid(self._pid, 0)[1]
        said = self.errors.read_text()[-2000:]
        return f"{self.name} ended with status {status}: {said}" if status else ""

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)


class _Play:
    """The rounds of one play, one after the other, with the same two hosts."""

    def __init__(self, setting: Setting, folder: Path, judge: Judge) -> None:
        self._log = SideLog(folder / "log", -1)
        self._judge = judge
        self._setting = setting
        self._hosts = [_Host(setting, name, folder, n) for n, name in enumerate(NAMES)]
        self._number = 0

    def rounds(self, rounds: Sequence[Round]) -> Iterator[str]:
        """Play them, and end the hosts. What was wrong with these."""
        ended = False
        try:
            self._until(lambda: len(self._log.read("open")) == len(NAMES))
            for round in rounds:
                self._play(round)
            wrong = [host.end() for host in self._hosts]
            ended = True
            yield from filter(None, wrong)
        finally:
            if not ended:
                for host in self._hosts:
                    host.wake()
                    host.say_where()
                    host.kill()

    def _play(self, round: Round) -> None:
        self._number += 1
        ids = [f"{round.kind}-{self._number}-{n}" for n in range(round.agents)]
        owner, other = self._hosts[round.owner], self._hosts[1 - round.owner]
        armed = len(self._log.read("armed"))
        at_random = round.point == AT_RANDOM
        owner.command("own", ids, round, "" if at_random else round.point)
        if at_random:
            self._until(lambda: len(self._log.read("armed")) > armed)
            time.sleep(round.delay)
            owner.stop()
        if not self._has_stopped(owner, ids, round):
            self._judge.missed(round)
            return
        stopped = now()
        told = {entry.of[0] for entry in self._log.read("told")}
        if round.wake == UNCLAIMED:
            time.sleep(round.pause * self._setting.lease)
        else:
            other.command("take", ids, round)
            self._until(lambda: self._is_time(round.wake, ids, other))
        owner.wake()
        self._until(lambda: self._all("told", ids))
        if round.wake != UNCLAIMED:
            self._until(lambda: self._all("served", ids))
        entries = self._log.read("claimed", "enter", "effected", "doubt", "told", "wrote")
        self._judge.judge(
            round,
            ids,
            entries,
            stopped=stopped,
            taken_from=None if round.wake == UNCLAIMED else owner.name,
            released=told,
        )

    def _has_stopped(self, owner: _Host, ids: Sequence[str], round: Round) -> bool:
        """Wait until it has; False if it did not come to the point."""
        while not owner.is_stopped():
            if round.point != AT_RANDOM and self._all("told", ids):
                return self._stops_after_all(owner, round)
            time.sleep(0.002)
        return True

    def _stops_after_all(self, owner: _Host, round: Round) -> bool:
        """Disarm it; whether it stops before it knows."""
        armed = len(self._log.read("armed"))
        owner.command("own", [], round)
        while len(self._log.read("armed")) == armed:
            if owner.is_stopped():
                return True
            time.sleep(0.002)
        return False

    def _is_time(self, wake: str, ids: Sequence[str], other: _Host) -> bool:
        if wake == CLAIMED:
            claims = [entry.of for entry in self._log.read("claimed")]
            return any(of[0] in ids and of[2] == other.name for of in claims)
        asked = any(entry.of[0] in ids for entry in self._log.read("doubt"))
        return (wake == ASKED and asked) or self._all("served", ids)

    def _all(self, what: str, ids: Sequence[str]) -> bool:
        return {entry.of[0] for entry in self._log.read(what)} >= set(ids)

    def _until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + SOON
        while not condition():
            assert time.monotonic() < end, f"round {self._number} hangs"
            time.sleep(0.005)


def suspended(
    folder: Path,
    *,
    url: str,
    schema: str,
    rounds: list[dict[str, Any]],
    lease: float = 1.0,
    load: bool = False,
    logs: str | None = None,
    broken: str | None = None,
) -> dict[str, Any]:
    """Play these rounds, and count.

    Args:
        lease: of both hosts, in seconds.
        load: whether other processes want the CPUs too.
        logs: a folder that gets all that was logged.

    """
    break_(broken)
    judge = Judge(lease)
    try:
        with _burning(BURNERS if load else 0):
            play = _Play(Setting(url, schema, lease), folder, judge)
            judge.found.violations += play.rounds([Round(**each) for each in rounds])
        judge.stale(stale_records(url, schema))
    finally:
        if logs is not None:
            Path(logs).mkdir(parents=True, exist_ok=True)
            for file in folder.iterdir():
                if file.is_file():
                    shutil.copy(file, logs)
    return asdict(judge.found)


@contextmanager
def _burning(count: int) -> Iterator[None]:
    pids = []
    try:
        for _ in range(count):
            pid = os.fork()
            if pid == 0:
                while True:
                    pass
            pids.append(pid)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
