"""The children of one supervisor, by id and in start order."""

from __future__ import annotations

from typing import Any

from understudy.errors import UsageError
from understudy.loop_actors.ref import LoopActorRef
from understudy.loop_actors.supervisor.child import Child
from understudy.loop_actors.supervisor.errors import NoSuchChild
from understudy.loop_actors.supervisor.snapshots import ChildStatus, SupervisorTree
from understudy.loop_actors.supervisor.spec import ChildSpec


class Table:
    """The children of one supervisor. Its ref reads it from any thread: changes are atomic."""

    __slots__ = ("children", "name", "simple", "status")

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.status: ChildStatus = ChildStatus.STARTING
        self.children: dict[str, Child] = {}  # in start order
        self.simple: dict[str, LoopActorRef[Any]] = {}

    def add(self, spec: ChildSpec) -> Child:
        """Add a child after the others.

        Raises:
            UsageError: if this is no `ChildSpec`, or a child with its id exists.

        """
        if not isinstance(spec, ChildSpec):
            raise UsageError(f"A child must be a ChildSpec, got {spec!r}")
        if (known := self.children.get(spec.id)) is not None:
            raise UsageError(
                f"There is a child {spec.id!r}, {known.status.value}: choose another id"
                + (", or use restart_child" if known.status is ChildStatus.STOPPED else "")
            )
        child = self.children[spec.id] = Child(spec)
        return child

    def find(self, id: str) -> Child:
        """The child with this id.

        Raises:
            NoSuchChild: if there is none.

        """
        child = self.children.get(id)
        if child is None:
            raise NoSuchChild(child_id=id, known=self.children)
        return child

    def find_stopped(self, id: str, action: str) -> Child:
        """The child with this id, which must be stopped for the action.

        Raises:
            NoSuchChild: if there is none.
            UsageError: if it is not stopped.

        """
        child = self.find(id)
        if child.status is not ChildStatus.STOPPED:
            raise UsageError(
                f"Child {id!r} is {child.status.value}: {action} a stopped one; "
                "terminate_child stops it first"
            )
        return child

    def remove(self, child: Child) -> None:
        del self.children[child.spec.id]

    def in_order(self) -> list[Child]:
        """A copy of the children in start order."""
        return list(self.children.values())

    def tree(self, id: str, class_name: str, restarts: int) -> SupervisorTree:
        """A snapshot of this supervisor, under the id that its own supervisor gives it."""
        return SupervisorTree(
            id=id,
            class_name=class_name,
            status=self.status,
            restarts=restarts,
            children=tuple(child.tree() for child in self.in_order()),
            simple=len(self.simple),
        )
