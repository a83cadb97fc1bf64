"""Actors that start other actors, and start them again: OTP's rules by OTP's names.

    root = Supervisor.start([ChildSpec("counter", Counter.start)], strategy="one_for_one")
    counter = await root.child("counter")       # .get() from a thread

What differs from OTP is said in `docs/supervisor.md`.
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

__all__ = ["Supervisor"]

logger = logging.getLogger(__name__)
P = ParamSpec("P")


class Supervisor(LoopActor):
    """An actor that starts children in order, starts those that fail again, and stops them all.

    1. It starts its children in order, each when the one before has run its `on_start`. If one
       does not start, those before it are stopped in reverse order and the supervisor fails.
    2. When a child ends, its restart type says whether it comes back, and the strategy who comes
       back with it.
    3. More than `max_restarts` restarts within `period` seconds: it stops its children in reverse
       start order, then itself, with `RestartIntensityExceeded`.
    4. When it stops or fails it stops its children in reverse start order, each within its
       `shutdown`. When it ends in any other way (`stop_now`, the end of its loop) its children
       are cancelled with it, before anybody hears of its end.

    Args of `start`:
        children: the specs, in start order.
        strategy: see `Strategy`.
        max_restarts, period: the intensity; 3 within 5 seconds unless said otherwise.
        wait: a Tenacity wait between a failure and the restart; none by default. Its attempt
            number counts the child's restarts since it last stayed up for a whole `period`. The
            waits pass within `period` like any time, so a longer wait than `period` /
            `max_restarts` means that it never gives up.
        name: shown in its tree and its errors; the class's name by default.
        clock, sleep: the seams of time.
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
        self._actor_ref.monitor(self._ended)  # the first watcher: others find no child alive

    if TYPE_CHECKING:
        # Pykka's `start` takes anything; this one takes what `__init__` of the class takes.
        @classmethod
        def start(
            cls: Callable[P, Supervisor], *args: P.args, **kwargs: P.kwargs
        ) -> SupervisorRef: ...

    # What a supervisor is asked: `SupervisorRef` has the contracts.

    async def start_child(self, spec: ChildSpec) -> LoopActorRef[Any]:
        child = self._table.add(spec)
        try:
            return await self._actors.start(child)
        except ChildStartFailed:
            self._table.forget(child)
            raise

    async def start_simple(self, start: StartChild) -> LoopActorRef[Any]:
        strategy = self._policy.strategy
        if strategy != "one_for_one":
            raise UsageError(
                f"start_simple needs the strategy 'one_for_one', and this is {strategy!r}: "
                "use start_child with restart='temporary', or a supervisor of its own"
            )
        return await self._simple.start(start)

    async def terminate_child(self, id: str) -> None:
        child = self._table.find(id)
        await self._actors.stop(child)
        child.answer()
        if child.spec.restart == "temporary":
            self._table.forget(child)

    async def restart_child(self, id: str) -> LoopActorRef[Any]:
        child = self._table.find_stopped(id, "restart_child starts")
        return await self._actors.start(child)

    async def delete_child(self, id: str) -> None:
        self._table.forget(self._table.find_stopped(id, "delete_child forgets"))

    def child(self, id: str) -> LoopActorRef[Any]:
        child = self._table.find(id)
        if child.ref is None:
            raise child.not_running()
        return child.ref

    def _tell_child(self, id: str, answer: ChildAnswer) -> object:
        child = self._table.find(id)
        if child.status in (ChildStatus.EXITED, ChildStatus.RESTARTING):
            child.askers += (answer,)
            return ChildAnswer.LATER
        return self.child(id)

    def which_children(self) -> tuple[ChildInfo, ...]:
        return tuple(child.info() for child in self._table.in_order())

    def count_children(self) -> ChildCounts:
        children, simple = self._table.in_order(), self._table.simple.values()
        specs = len(children) + len(simple)
        supervisors = sum(child.below is not None for child in children)
        supervisors += sum(isinstance(ref, SupervisorRef) for ref in simple)
        return ChildCounts(
            specs=specs,
            active=len(simple) + sum(child.ref is not None for child in children),
            supervisors=supervisors,
            workers=specs - supervisors,
        )

    # Its life.

    @async_hook
    async def on_start(self) -> None:
        """Start the children; a subclass that overrides it calls this one."""
        try:
            for child in self._table.in_order():
                await self._actors.start(child)
        except ChildStartFailed:
            await self._stop_children()
            raise
        self._table.status = ChildStatus.RUNNING

    @async_hook
    async def on_stop(self) -> None:
        """Stop the children; a subclass that overrides it calls this one."""
        await self._stop_children()

    @async_hook
    async def on_failure(self, *_exc_info: object) -> None:
        """Stop the children; a subclass that overrides it calls this one."""
        await self._stop_children()

    async def _stop_children(self) -> None:
        """Stop the simple children together, then the others in reverse start order."""
        self._table.status = ChildStatus.STOPPING
        await self._simple.stop()
        for child in reversed(self._table.in_order()):
            await self._actors.stop(child)

    def _ended(self, _down: Down) -> None:
        """Take along what still runs: after `stop_now`, or when the loop shuts down."""
        self._table.status = ChildStatus.STOPPED
        reason = Shutdown(f"its supervisor {self._table.name!r} ended")
        told = ActorDeadError(f"{self.actor_ref} stopped before the child was back")
        self._simple.stop_now(reason)
        for child in reversed(self._table.in_order()):
            self._actors.stop_now(child, reason, told)

    # A child ended.

    def _note_exit(self, child: Child, reason: BaseException | None) -> None:
        child.status = ChildStatus.EXITED
        child.exit = Exit(child, reason)
        self._post("_handle_exit", child.exit)

    async def _handle_exit(self, exit: Exit) -> None:
        child = exit.child
        if child.exit is not exit:
            return  # stopped or started again by what was handled in between
        child.exit = None
        kind = child.spec.restart
        if kind == "temporary" or (kind == "transient" and _is_orderly(exit.reason)):
            child.status = ChildStatus.STOPPED
            if kind == "temporary":
                self._table.forget(child)
            child.answer()
        else:
            await self._restart(child, exit.reason)

    async def _restart(self, child: Child, reason: BaseException | None) -> None:
        """Bring a failed child back.

        1. Count it; beyond the intensity, give up: `on_failure` stops the children.
        2. Stop those that come back with it, in reverse start order.
        3. Wait, without holding up the mailbox.
        4. Start them in start order: `_start_again`.
        """
        if not self._policy.count(child):
            child.status = ChildStatus.STOPPED
            raise self._gave_up(child) from reason
        pending = PendingRestart(await self._stop_group(child))
        delay = self._policy.delay(child, reason)
        child_id, name = child.spec.id, self._table.name
        logger.info("child %r of %r starts again in %g s: %r", child_id, name, delay, reason)
        if delay > 0:
            pending.task = self.loop.create_task(self._start_later(delay, pending))
        else:
            await self._start_again(pending)

    def _gave_up(self, child: Child) -> RestartIntensityExceeded:
        return RestartIntensityExceeded(
            supervisor=self._table.name,
            child_id=child.spec.id,
            max_restarts=self._policy.max_restarts,
            period=self._policy.period,
        )

    async def _stop_group(self, child: Child) -> list[Child]:
        """Stop those that come back with the child, in reverse; return them in start order."""
        stopped = []
        for sibling in reversed(self._policy.group(child, self._table.in_order())):
            await self._actors.stop(sibling)
            if sibling.spec.restart == "temporary":
                self._table.forget(sibling)
                sibling.answer()
            else:
                sibling.status = ChildStatus.RESTARTING
                stopped.append(sibling)
        return stopped[::-1]

    async def _start_later(self, delay: float, pending: PendingRestart) -> None:
        await self._sleep(delay)
        self._post("_start_again", pending)

    async def _start_again(self, pending: PendingRestart) -> None:
        for child in pending.group:
            if child.pending is not pending:
                continue  # terminated while it waited, or in a newer restart
            try:
                await self._actors.start(child)
            except ChildStartFailed as error:
                logger.warning("%s", error)
                child.status = ChildStatus.RESTARTING
                # Handled as a message, so that a stop or terminate_child can come first.
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
            await self._start_again(pending)

    def _post(self, method: str, *args: Any) -> None:
        """Send a message to itself; one who has ended has nothing more to do."""
        with contextlib.suppress(ActorDeadError):
            self.actor_ref.tell(ProxyCall(attr_path=(method,), args=args, kwargs={}))


def _is_orderly(reason: BaseException | None) -> bool:
    return reason is None or isinstance(reason, Shutdown)
