"""`HostEnd`: the cluster's end of the line to one host, and what it is asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from understudy._base.json_values import text_of
from understudy.cluster.engine import HostLine, Hosts, HostSpec, RunningHost
from understudy.cluster.frames import (
    Answer,
    Call,
    CannotStart,
    Drain,
    Greeting,
    Target,
    dump_arguments,
    dumps,
    loads,
)

logger: logging.Logger = logging.getLogger(__name__)


class HostPhase(str, Enum):
    """The phase of a host of a cluster. It is equal to its text: `HostPhase.ENDED == "ended"`."""

    STARTING = "starting"  # its process has not greeted yet, or there is no place for it
    RUNNING = "running"
    DRAINING = "draining"  # it gets no calls any more, releases its agents, and ends
    ENDED = "ended"


class HostLost(Exception):  # not an error of a caller's: the call is repeated
    """The host has ended before it answered."""


Answered = Callable[["HostEnd", Any, Exception | None], None]
"""Gets the answer of a host, or its error, on the cluster's loop. `HostLost`: the host has ended
before it answered, so whether it did what was asked is not known."""


@dataclass(slots=True, eq=False)
class HostEnd(HostLine):
    """One host, through all of its processes."""

    spec: HostSpec
    pool: Hosts
    changed: Callable[[HostEnd], None]
    """Called when its phase has changed."""
    phase: HostPhase = HostPhase.STARTING
    running: RunningHost | None = None
    greeting: Greeting | None = None
    """What the process that runs now has said of itself, or the last process."""
    error: Exception | None = None
    """Why its last process could not start."""
    ended: str | None = None
    """How its last process ended, if it had not greeted."""
    processes: int = 0
    """How many of its processes have greeted."""
    names: set[str] = field(default_factory=set)
    """What the store calls its processes so far."""
    _number: int = 0
    _asked: dict[int, Answered] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of its definitions, once it has greeted."""
        return self.greeting.agents if self.greeting is not None else ()

    @property
    def makes(self) -> bool:
        """Whether it makes other definitions by a factory, once it has greeted."""
        return self.greeting is not None and self.greeting.makes

    @property
    def process(self) -> Greeting | None:
        """The process that runs now, if it has greeted."""
        return None if self.phase is HostPhase.STARTING else self.greeting

    # ------------------------------------------------------------------------ calls

    def send(self, answered: Answered, target: Target, method: str, arguments: bytes) -> None:
        """Call it. The calls are received in the order in which they are sent."""
        assert self.running is not None, "it has greeted"
        self._number += 1
        self._asked[self._number] = answered
        self.running.send(dumps(Call(self._number, target, method, arguments)))

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Call this very host for the cluster itself.

        Raises:
            HostLost: if it ends meanwhile, or does not run.

        """
        if self.running is None or self.phase in (HostPhase.STARTING, HostPhase.ENDED):
            raise HostLost
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answered(_: HostEnd, value: Any, error: Exception | None) -> None:
            if future.done():
                return  # who awaited it was cancelled
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        self.send(answered, Target(), method, dump_arguments(method, (arguments, {}, {}, None)))
        return await future

    async def drain(self, timeout: float) -> None:
        """Let it release its agents and end; kill it after so many seconds."""
        self._enter(HostPhase.DRAINING)
        if self.running is not None:
            self.running.send(dumps(Drain()))
            await self.running.end(timeout)
        self._enter(HostPhase.ENDED)
        self._lose()

    # ----------------------------------------------------------------- as of `HostLine`

    def received(self, frame: bytes) -> None:
        """Take a frame: a greeting, an answer, or why it cannot start."""
        found: Greeting | CannotStart | Answer = loads(frame)
        if isinstance(found, Greeting):
            self.greeting = found
            self.names.add(found.host)
            self.error = self.ended = None
            self.processes += 1
            if self.phase is HostPhase.STARTING:
                self._enter(HostPhase.RUNNING)
        elif isinstance(found, CannotStart):
            self.error = found.error
            why = text_of(found.error)
            logger.error("host %r cannot start: %s", self.name, why, exc_info=found.error)
            self.changed(self)
        else:
            answered = self._asked.pop(found.number, None)
            if answered is not None:
                answered(self, *found.read())

    def lost(self, why: str) -> None:
        """Lose what was asked of the process, which has ended."""
        if self.phase is HostPhase.RUNNING:
            self._enter(HostPhase.STARTING)
        elif self.phase is HostPhase.STARTING:
            self.ended = why
        self._lose()

    def _lose(self) -> None:
        asked, self._asked = self._asked, {}
        for answered in asked.values():  # in the order in which they were sent
            answered(self, None, HostLost())

    def _enter(self, phase: HostPhase) -> None:
        self.phase = phase
        self.changed(self)
