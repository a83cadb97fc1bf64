"""The reference to a supervisor; its methods document what a supervisor does."""

from __future__ import annotations

from typing import Any

from pykka import ActorDeadError
from pykka._envelope import Envelope
from pykka.messages import ProxyCall

from understudy.loop_actors.future import Future
from understudy.loop_actors.loop_actor import LoopActor
from understudy.loop_actors.ref import LoopActorRef
from understudy.loop_actors.supervisor.child import ChildAnswer
from understudy.loop_actors.supervisor.snapshots import ChildCounts, ChildInfo, SupervisorTree
from understudy.loop_actors.supervisor.spec import ChildSpec, StartChild
from understudy.loop_actors.supervisor.table import Table


class SupervisorRef(LoopActorRef[Any]):
    """A reference to a supervisor.

    Each method except `tree` sends a message and returns a future at once: `.get(timeout=seconds)`
    in a thread, `await` on a loop. The supervisor handles one message at a time. It answers while a
    restart is pending, but not while a child starts or stops. A child that waits for its own
    supervisor in `on_start` waits forever.

    A future raises `pykka.ActorDeadError` if the supervisor stops before it answers.
    """

    _table: Table

    def __init__(self, actor: LoopActor, table: Table) -> None:
        super().__init__(actor)
        self._table = table

    def start_child(self, spec: ChildSpec) -> Future[LoopActorRef[Any]]:
        """Add a child after the other children and start it.

        Raises:
            UsageError: if there is a child with this id, stopped or not.
            ChildStartFailed: if it does not start; its spec is not kept.

        """
        return self._call("start_child", spec)

    def start_simple(self, start: StartChild) -> Future[LoopActorRef[Any]]:
        """Start a temporary child that has no id, no spec and no place in the order.

        It is cheap enough for thousands. The future does not wait for `on_start`. A child that ends
        for any reason is removed. Simple children are stopped first, and all together.

        Raises:
            UsageError: if the strategy is not one_for_one.
            ChildStartFailed: if `start` raises.

        """
        return self._call("start_simple", start)

    def terminate_child(self, id: str) -> Future[None]:
        """Stop a child within its `shutdown` time, and cancel its pending restart.

        The spec is kept for `restart_child`, except the spec of a temporary child. A restart of its
        group (one_for_all, rest_for_one) starts the child again.

        Raises:
            NoSuchChild: if the id is not known.

        """
        return self._call("terminate_child", id)

    def restart_child(self, id: str) -> Future[LoopActorRef[Any]]:
        """Start a stopped child. This does not count as a restart.

        Raises:
            NoSuchChild: if the id is not known.
            UsageError: if it is not stopped.
            ChildStartFailed: if it does not start; it stays stopped.

        """
        return self._call("restart_child", id)

    def delete_child(self, id: str) -> Future[None]:
        """Remove a stopped child and its spec; its id is free again.

        Raises:
            NoSuchChild: if the id is not known.
            UsageError: if it is not stopped; `terminate_child` stops it.

        """
        return self._call("delete_child", id)

    def child(self, id: str) -> Future[LoopActorRef[Any]]:
        """Return the ref of the child's current actor. A restarted child has a new actor.

        The future waits while a restart is pending.

        Raises:
            NoSuchChild: if the id is not known.
            ChildNotRunning: if the child is stopped, or is stopped before its restart.

        """
        answer = ChildAnswer(self.actor_inbox.loop)
        message = ProxyCall(attr_path=("_child_when_running",), args=(id, answer), kwargs={})
        if not self.actor_inbox.offer(Envelope(message, reply_to=answer)):
            answer._fail(ActorDeadError(f"{self} not found"))
        return answer

    def which_children(self) -> Future[tuple[ChildInfo, ...]]:
        """Return the children in start order, without simple children."""
        return self._call("which_children")

    def count_children(self) -> Future[ChildCounts]:
        """Return the number of children, simple children included."""
        return self._call("count_children")

    def tree(self) -> SupervisorTree:
        """Return a snapshot of all children and their children. It sends no message and never
        waits.
        """
        return self._table.tree(self._table.name, self.actor_class.__name__, 0)

    def _call(self, method: str, *args: Any) -> Future[Any]:
        message = ProxyCall(attr_path=(method,), args=args, kwargs={})
        return self.ask(message, block=False)
