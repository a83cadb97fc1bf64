"""The state of one child of a supervisor, of its exit, and of its pending restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from understudy.loop_actors.future import Future
from understudy.loop_actors.loop_actor import LoopActor
from understudy.loop_actors.ref import LoopActorRef
from understudy.loop_actors.supervisor.errors import ChildNotRunning
from understudy.loop_actors.supervisor.snapshots import ChildInfo, ChildStatus, SupervisorTree
from understudy.loop_actors.supervisor.spec import ChildSpec


class ChildAnswer(Future[LoopActorRef[Any]]):
    """The reply to `child`: the supervisor may defer it until the child has restarted."""

    DEFERRED: ClassVar[object] = object()
    """The supervisor's handler returns this when it will answer later."""

    def _answer(self, value: object) -> bool:
        return value is not self.DEFERRED and super()._answer(value)


class Child:
    """The state of one child.

    The supervisor's ref reads it too, from any thread, so each change is one assignment.
    """

    __slots__ = (
        "actor_class", "attempt", "ended", "exit", "pending", "ref", "restarts", "running_since",
        "spec", "status", "subtree", "waiters",
    )  # fmt: skip

    def __init__(self, spec: ChildSpec) -> None:
        self.spec: ChildSpec = spec
        self.status: ChildStatus = ChildStatus.STOPPED
        self.ref: LoopActorRef[Any] | None = None
        self.actor_class: type[LoopActor] | None = None  # of its latest actor
        # Makes a snapshot of the children of its latest actor, under this id; None for a worker.
        self.subtree: Callable[[str, str, int], SupervisorTree] | None = None
        self.restarts: int = 0
        self.attempt: int = 0  # restarts since it last ran for a whole period
        self.running_since: float | None = None  # None once the restart is counted
        self.exit: Exit | None = None  # the exit that is not handled yet
        self.pending: PendingRestart | None = None
        self.ended: asyncio.Future[BaseException | None] | None = None  # if the supervisor waits
        self.waiters: tuple[ChildAnswer, ...] = ()  # for its restart

    def answer(self, error: Exception | None = None) -> None:
        """Answer the waiters with the ref, or with the error if it will not restart."""
        waiters, self.waiters = self.waiters, ()
        for waiter in waiters:
            if self.ref is not None:
                waiter._answer(self.ref)
            else:
                waiter._fail(error or self.not_running())

    def not_running(self) -> ChildNotRunning:
        return ChildNotRunning(child_id=self.spec.id, status=self.status.value)

    def info(self) -> ChildInfo:
        return ChildInfo(
            id=self.spec.id,
            status=self.status,
            restart=self.spec.restart,
            restarts=self.restarts,
            ref=self.ref,
        )

    def tree(self) -> SupervisorTree:
        class_name = self.actor_class.__name__ if self.actor_class is not None else ""
        if self.ref is not None and self.subtree is not None:
            return self.subtree(self.spec.id, class_name, self.restarts)
        return SupervisorTree(self.spec.id, class_name, self.status, self.restarts)


@dataclass(frozen=True, slots=True, eq=False)
class Exit:
    """A child ended by itself. Compared by identity, so that a stale one is recognized."""

    child: Child
    reason: BaseException | None


class PendingRestart:
    """One restart of a group of children, and the task that waits before it."""

    __slots__ = ("group", "remaining", "task")

    def __init__(self, group: list[Child]) -> None:
        self.group: list[Child] = group
        self.remaining: int = len(group)
        self.task: asyncio.Task[None] | None = None
        for child in group:
            child.pending = self

    def drop(self, child: Child) -> None:
        """Remove a child; with the last one the wait is cancelled."""
        child.pending = None
        self.remaining -= 1
        if not self.remaining and self.task is not None:
            self.task.cancel()
