"""`Supervisor`: an actor that starts, restarts and stops other actors by OTP's rules and names.

    root = Supervisor.start([ChildSpec("counter", Counter.start)], strategy="one_for_one")
    counter = await root.child("counter")       # .get() in a thread

The docstring of the class lists the differences from OTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ParamSpec

from pykka import ActorDeadError
from pykka.messages import ProxyCall

from understudy._base.clock import Clock, SystemClock
from understudy.errors import UsageError
from understudy.loop_actors.loop_actor import LoopActor, async_hook
from understudy.loop_actors.monitor import Down
from understudy.loop_actors.ref import LoopActorRef
from understudy.loop_actors.supervisor.child import Child, ChildAnswer, Exit, PendingRestart
from understudy.loop_actors.supervisor.child_actors import ChildActors
from understudy.loop_actors.supervisor.errors import (
    ChildStartFailed,
    RestartIntensityExceeded,
    Shutdown,
)
from understudy.loop_actors.supervisor.lifecycle import Sleep
from understudy.loop_actors.supervisor.ref import SupervisorRef
from understudy.loop_actors.supervisor.restart_policy import RestartPolicy, RestartWait, Strategy
from understudy.loop_actors.supervisor.simple import SimpleChildren
from understudy.loop_actors.supervisor.snapshots import ChildCounts, ChildInfo, ChildStatus
from understudy.loop_actors.supervisor.spec import ChildSpec, StartChild
from understudy.loop_actors.supervisor.table import Table

logger: logging.Logger = logging.getLogger(__name__)
P = ParamSpec("P")


class Supervisor(LoopActor):
    """An actor that starts children in order, restarts those that fail, and stops them all.

    1. It starts its children in order, each when `on_start` of the one before has returned. If one
       does not start, those before it are stopped in reverse order and the supervisor fails.
    2. When a child ends, its restart type decides whether it restarts, and the strategy which
       others restart with it.
    3. After more than `max_restarts` restarts within `period` seconds it stops its children in
       reverse start order, then itself, with `RestartIntensityExceeded`.
    4. When it stops or fails it stops its children in reverse start order, each within its
       `shutdown`. When it ends in any other way (`stop_now`, the end of its loop) its children are
       cancelled before the watchers of the supervisor get its `Down`.

    It differs from OTP: a child handles messages that it was sent before it stops; a supervisor
    that gives up ends abnormally; a group is stopped at once, then `wait` passes; a child that is
    terminated while its group waits is left out, and the others come back; `max_restarts` is 3;
    there are no significant children, no `ignore` and no change of specs at run time.

    Args of `start`:
        children: the specs, in start order.
        strategy: see `Strategy`.
        max_restarts, period: the restart intensity; 3 within 5 seconds by default.
        wait: a Tenacity wait between a failure and the restart; none by default. Its attempt
            number counts the child's restarts since it last ran for a whole `period`. A wait is
            part of `period`, so with waits longer than `period` / `max_restarts` the supervisor
            never gives up.
        name: shown in its tree and its errors; the name of the class by default.
        clock, sleep: replacements for tests.
    """

    def __init__(
        self,
        children: Iterable[ChildSpec] = (),
        *,
        strategy: Strategy = "one_for_one",
        max_restarts: int = 3,
        period: float = 5.0,
        wait: RestartWait | None = None,
        name: str | None = None,
        clock: Clock | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        super().__init__()
        clock = clock or SystemClock()
        self._policy = RestartPolicy(
            strategy, max_restarts=max_restarts, period=period, wait=wait, clock=clock
        )
        self._sleep = sleep
        self._table = Table(name or type(self).__name__)
        self._actors = ChildActors(clock, sleep, self._note_exit)
        self._simple = SimpleChildren(self._table.simple, sleep)
        for spec in children:
            self._table.add(spec)
        self._actor_ref = SupervisorRef(self, self._table)

    if TYPE_CHECKING:
        # Pykka's `start` takes any arguments; this one takes those of `__init__` of the class.
        @classmethod
        def start(
            cls: Callable[P, Supervisor], *args: P.args, **kwargs: P.kwargs
        ) -> SupervisorRef: ...

    # Called by `SupervisorRef`, whose methods have the contracts.

    async def start_child(self, spec: ChildSpec) -> LoopActorRef[Any]:
        """Add and start a child, as `SupervisorRef.start_child`."""
        child = self._table.add(spec)
        try:
            return await self._actors.start(child)
        except ChildStartFailed:
            self._table.remove(child)
            raise

    async def start_simple(self, start: StartChild) -> LoopActorRef[Any]:
        """Start a simple child, as `SupervisorRef.start_simple`."""
        strategy = self._policy.strategy
        if strategy != "one_for_one":
            raise UsageError(
                f"start_simple needs the strategy 'one_for_one', got {strategy!r}: "
                "use start_child with restart='temporary', or a supervisor of its own"
            )
        return await self._simple.start(start)

    async def terminate_child(self, id: str) -> None:
        """Stop a child, as `SupervisorRef.terminate_child`."""
        child = self._table.find(id)
        await self._actors.stop(child)
        child.answer()
        if child.spec.restart == "temporary":
            self._table.remove(child)

    async def restart_child(self, id: str) -> LoopActorRef[Any]:
        """Start a stopped child, as `SupervisorRef.restart_child`."""
        child = self._table.find_stopped(id, "restart_child starts")
        return await self._actors.start(child)

    async def delete_child(self, id: str) -> None:
        """Remove a stopped child, as `SupervisorRef.delete_child`."""
        self._table.remove(self._table.find_stopped(id, "delete_child removes"))

    def child(self, id: str) -> LoopActorRef[Any]:
        """Return the ref of a running child, without waiting for a restart."""
        child = self._table.find(id)
        if child.ref is None:
            raise child.not_running()
        return child.ref

    def _child_when_running(self, id: str, answer: ChildAnswer) -> object:
        child = self._table.find(id)
        # EXITED waits too: the child's exit is a message after this one.
        # test_who_asks_for_a_child_whose_end_is_not_yet_dealt_with_is_told_the_result
        if child.status in (ChildStatus.EXITED, ChildStatus.RESTARTING):
            child.waiters += (answer,)
            return ChildAnswer.DEFERRED
        return self.child(id)

    def which_children(self) -> tuple[ChildInfo, ...]:
        """Return the children, as `SupervisorRef.which_children`."""
        return tuple(child.info() for child in self._table.in_order())

    def count_children(self) -> ChildCounts:
        """Return the number of children, as `SupervisorRef.count_children`."""
        children, simple = self._table.in_order(), self._table.simple.values()
        specs = len(children) + len(simple)
        supervisors = sum(child.subtree is not None for child in children)
        supervisors += sum(isinstance(ref, SupervisorRef) for ref in simple)
        return ChildCounts(
            specs=specs,
            active=len(simple) + sum(child.ref is not None for child in children),
            supervisors=supervisors,
            workers=specs - supervisors,
        )

    # Hooks

    @async_hook
    async def on_start(self) -> None:
        """Start the children. A subclass that overrides it must call this method."""
        try:
            for child in self._table.in_order():
                await self._actors.start(child)
        except ChildStartFailed:
            await self._stop_children()
            raise
        self._table.status = ChildStatus.RUNNING

    @async_hook
    async def on_stop(self) -> None:
        """Stop the children. A subclass that overrides it must call this method."""
        await self._stop_children()

    @async_hook
    async def on_failure(self, *_exc_info: object) -> None:
        """Stop the children. A subclass that overrides it must call this method."""
        await self._stop_children()

    async def _stop_children(self) -> None:
        """Stop the simple children together, then the others in reverse start order."""
        self._table.status = ChildStatus.STOPPING
        await self._simple.stop()
        for child in reversed(self._table.in_order()):
            await self._actors.stop(child)

    def _ended(self, down: Down) -> None:
        """Cancel the children that still run: after `stop_now`, or when the loop shuts down."""
        self._table.status = ChildStatus.STOPPED
        reason = Shutdown(f"its supervisor {self._table.name!r} ended")
        error = ActorDeadError(f"{self.actor_ref} stopped before the child restarted")
        self._simple.stop_now(reason)
        for child in reversed(self._table.in_order()):
            self._actors.stop_now(child, reason, error)

    # Exits and restarts

    def _note_exit(self, child: Child, reason: BaseException | None) -> None:
        child.status = ChildStatus.EXITED
        child.exit = Exit(child, reason)
        self._post("_handle_exit", child.exit)

    async def _handle_exit(self, exit: Exit) -> None:
        child = exit.child
        if child.exit is not exit:
            # Stopped, or restarted with a sibling, by a message that was handled before this one:
            # test_siblings_that_fail_together_come_back_once
            return
        child.exit = None
        kind = child.spec.restart
        if kind == "temporary" or (kind == "transient" and _is_orderly(exit.reason)):
            child.status = ChildStatus.STOPPED
            if kind == "temporary":
                self._table.remove(child)
            child.answer()
        else:
            await self._restart(child, exit.reason)

    async def _restart(self, child: Child, reason: BaseException | None) -> None:
        """Restart a failed child.

        1. Count it; beyond the intensity, give up: `on_failure` stops the children.
        2. Stop the children that restart with it, in reverse start order. 3. Wait in a task, while
        the supervisor handles messages. 4. Start them in start order: `_start_group`.
        """
        if not self._policy.count(child):
            child.status = ChildStatus.STOPPED
            raise self._gave_up(child) from reason
        pending = PendingRestart(await self._stop_group(child))
        delay = self._policy.delay(child, reason)
        child_id, name = child.spec.id, self._table.name
        logger.info("child %r of %r restarts in %g s: %r", child_id, name, delay, reason)
        if delay > 0:
            pending.task = self.loop.create_task(self._start_later(delay, pending))
        else:
            await self._start_group(pending)

    def _gave_up(self, child: Child) -> RestartIntensityExceeded:
        return RestartIntensityExceeded(
            supervisor=self._table.name,
            child_id=child.spec.id,
            max_restarts=self._policy.max_restarts,
            period=self._policy.period,
        )

    async def _stop_group(self, child: Child) -> list[Child]:
        """Stop the children that restart with this one, in reverse; return them in start order."""
        stopped = []
        for sibling in reversed(self._policy.group(child, self._table.in_order())):
            await self._actors.stop(sibling)
            if sibling.spec.restart == "temporary":
                self._table.remove(sibling)
                sibling.answer()
            else:
                sibling.status = ChildStatus.RESTARTING
                stopped.append(sibling)
        return stopped[::-1]

    async def _start_later(self, delay: float, pending: PendingRestart) -> None:
        await self._sleep(delay)
        self._post("_start_group", pending)

    async def _start_group(self, pending: PendingRestart) -> None:
        for child in pending.group:
            if child.pending is not pending:
                # Terminated while the restart was pending, or part of a newer one:
                # test_an_earlier_sibling_that_fails_meanwhile_takes_over_the_wait
                continue
            try:
                await self._actors.start(child)
            except ChildStartFailed as error:
                logger.warning("%s", error)
                child.status = ChildStatus.RESTARTING
                # It is sent as a message, so that a waiting stop or terminate_child is handled
                # before:
                # test_a_child_terminated_before_its_failed_restart_is_tried_again_is_left_out
                self._post("_handle_failed_start", pending, child, error)
                return
            pending.drop(child)
            child.restarts += 1

    async def _handle_failed_start(
        self, pending: PendingRestart, child: Child, error: ChildStartFailed
    ) -> None:
        if child.pending is pending:
            await self._restart(child, error)
        else:
            await self._start_group(pending)

    def _post(self, method: str, *args: Any) -> None:
        """Send a message to itself. After its end nothing is left to do."""
        with contextlib.suppress(ActorDeadError):
            self.actor_ref.tell(ProxyCall(attr_path=(method,), args=args, kwargs={}))


def _is_orderly(reason: BaseException | None) -> bool:
    return reason is None or isinstance(reason, Shutdown)
