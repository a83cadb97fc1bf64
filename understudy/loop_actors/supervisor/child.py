"""What a supervisor knows of one child, of its end, and of the restart it waits for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from understudy.loop_actors.future import Future
from understudy.loop_actors.loop_actor import LoopActor
from understudy.loop_actors.ref import LoopActorRef
from understudy.loop_actors.supervisor.errors import ChildNotRunning
from understudy.loop_actors.supervisor.snapshots import ChildInfo, ChildStatus, SupervisorTree
from understudy.loop_actors.supervisor.spec import ChildSpec

__all__ = ["Child", "ChildAnswer", "Exit", "PendingRestart", "Subtree"]


class ChildAnswer(Future[LoopActorRef[Any]]):
    """The reply to `child`: the supervisor may keep it, and answer when the child is back."""

    LATER: ClassVar[object] = object()
    """What the supervisor returns from the message whose answer it keeps."""

    def _answer(self, value: object) -> bool:
        return value is not self.LATER and super()._answer(value)


class Subtree(Protocol):
    """What is below a child that is a supervisor itself."""

    def tree(self, id: str, class_name: str, restarts: int) -> SupervisorTree:
        """A snapshot of it, under the child's name."""
        ...


class Child:
    """What the supervisor knows of one child.

    Its ref reads it too, from any thread, so each change is one assignment.
    """

    __slots__ = (
        "actor_class", "askers", "attempt", "below", "exit", "gone", "pending", "ref", "restarts",
        "since", "spec", "status",
    )  # fmt: skip

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.status = ChildStatus.STOPPED
        self.ref: LoopActorRef[Any] | None = None
        self.actor_class: type[LoopActor] | None = None  # of its latest actor
        self.below: Subtree | None = None  # of its latest actor; None for a worker
        self.restarts = 0
        self.attempt = 0  # restarts since it last stayed up for a whole period
        self.since: float | None = None  # when it was last up
        self.exit: Exit | None = None  # the end that is not yet dealt with
        self.pending: PendingRestart | None = None  # the restart that it waits for
        self.gone: asyncio.Future[BaseException | None] | None = None  # who waits for its end
        self.askers: tuple[ChildAnswer, ...] = ()  # who waits for its return

    def answer(self, error: Exception | None = None) -> None:
        """Give those who wait for its return the ref, or the error if it will not come back."""
        askers, self.askers = self.askers, ()
        for asker in askers:
            if self.ref is not None:
                asker._answer(self.ref)
            else:
                asker._fail(error or self.not_running())

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
        if self.ref is not None and self.below is not None:
            return self.below.tree(self.spec.id, class_name, self.restarts)
        return SupervisorTree(self.spec.id, class_name, self.status, self.restarts)


@dataclass(frozen=True, slots=True, eq=False)
class Exit:
    """A child ended by itself. Compared by identity: an older one of the same child is stale."""

    child: Child
    reason: BaseException | None


class PendingRestart:
    """One restart of a group: who it is for, and the task that waits for its time."""

    __slots__ = ("group", "left", "task")

    def __init__(self, group: list[Child]) -> None:
        self.group = group
        self.left = len(group)
        self.task: asyncio.Task[None] | None = None
        for child in group:
            child.pending = self

    def drop(self, child: Child) -> None:
        """Take a child out; the last one cancels the wait."""
        child.pending = None
        self.left -= 1
        if not self.left and self.task is not None:
            self.task.cancel()
