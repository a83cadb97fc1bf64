"""Frozen snapshots of the children of a supervisor."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from understudy.loop_actors.ref import LoopActorRef
from understudy.loop_actors.supervisor.spec import Restart


class ChildStatus(str, enum.Enum):
    """The phase in the life of a child. It is equal to its text, such as `"running"`."""

    STARTING = "starting"  # its start callable or its on_start runs
    RUNNING = "running"  # its on_start has returned
    STOPPING = "stopping"  # the supervisor has requested its stop
    EXITED = "exited"  # it ended by itself, and the supervisor has not handled that yet
    RESTARTING = "restarting"  # its restart is pending, after a wait or after its siblings
    STOPPED = "stopped"  # terminated, or a transient one that ended normally; its spec is kept


@dataclass(frozen=True, slots=True)
class ChildInfo:
    """One child, as `which_children` returns it."""

    id: str
    status: ChildStatus
    restart: Restart
    restarts: int
    """The number of restarts."""
    ref: LoopActorRef[Any] | None
    """The ref of the child's actor; None while it has no actor."""


@dataclass(frozen=True, slots=True)
class ChildCounts:
    """The numbers of children of a supervisor, simple children included."""

    specs: int
    """The number of children, whether they have an actor now or not."""
    active: int
    """The number of children that have an actor now."""
    supervisors: int
    """The number of children that are supervisors."""
    workers: int
    """The number of children that are not supervisors."""


@dataclass(frozen=True, slots=True)
class SupervisorTree:
    """A supervisor or child, and the children below it; `str` draws it."""

    id: str
    class_name: str
    """The name of the actor's class; empty for a child that was never started."""
    status: ChildStatus
    restarts: int
    children: tuple[SupervisorTree, ...] = ()
    simple: int = 0
    """The number of simple children that it also has."""

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        restarts = f", {_count(self.restarts, 'restart')}" if self.restarts else ""
        yield f"{self.id} ({self.class_name or 'not started'}) {self.status.value}{restarts}"
        yield from self._drawn(self._branches())

    def _branches(self) -> list[list[str]]:
        """The lines of its branches, a list for each branch."""
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
