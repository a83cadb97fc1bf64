"""What a supervisor tells of its children: frozen values, true at one moment."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from understudy.loop_actors.ref import LoopActorRef
from understudy.loop_actors.supervisor.spec import Restart

__all__ = ["ChildCounts", "ChildInfo", "ChildStatus", "SupervisorTree"]


class ChildStatus(enum.Enum):
    """Where a child stands."""

    STARTING = "starting"  # its start callable or its on_start is under way
    RUNNING = "running"  # it has started
    STOPPING = "stopping"  # the supervisor has told it to stop
    EXITED = "exited"  # it ended by itself; the supervisor has not yet decided what follows
    RESTARTING = "restarting"  # it is to be started again, after a wait or after its siblings
    STOPPED = "stopped"  # terminated, or a transient one that ended normally; its spec is kept


@dataclass(frozen=True, slots=True)
class ChildInfo:
    """One child, as `which_children` found it."""

    id: str
    status: ChildStatus
    restart: Restart
    restarts: int
    """How often it was started again."""
    ref: LoopActorRef[Any] | None
    """None while no actor is there."""


@dataclass(frozen=True, slots=True)
class ChildCounts:
    """How many children a supervisor has; simple ones are in each number."""

    specs: int
    active: int
    """Those that have an actor now."""
    supervisors: int
    workers: int


@dataclass(frozen=True, slots=True)
class SupervisorTree:
    """A supervisor or child and what is below it; `str` draws it."""

    id: str
    class_name: str
    """The actor's class; empty for a child that was never started."""
    status: ChildStatus
    restarts: int
    children: tuple[SupervisorTree, ...] = ()
    simple: int = 0
    """How many simple children it has beside these."""

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        restarts = f", {_count(self.restarts, 'restart')}" if self.restarts else ""
        yield f"{self.id} ({self.class_name or 'not started'}) {self.status.value}{restarts}"
        yield from self._drawn(self._branches())

    def _branches(self) -> list[list[str]]:
        """The lines of what is below it, a list for each branch."""
        branches = [list(child._lines()) for child in self.children]
        if self.simple:
            branches.append([_count(self.simple, "simple child", "simple children")])
        return branches

    @staticmethod
    def _drawn(branches: list[list[str]]) -> Iterator[str]:
        for branch in branches:
            last = branch is branches[-1]
            yield ("└── " if last else "├── ") + branch[0]
            yield from (("    " if last else "│   ") + line for line in branch[1:])


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
