"""The reference through which everybody else speaks to an actor."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeVar, cast, overload

import pykka
from pykka._envelope import Envelope
from pykka.messages import _ActorStop

from understudy.loop_actors.future import Future, refuse_on_a_loop
from understudy.loop_actors.mailbox import Mailbox
from understudy.loop_actors.monitor import Lifetime, Watcher

__all__ = ["LoopActorRef"]

A = TypeVar("A", bound=pykka.Actor)


class _Stops(Protocol):
    """What the ref asks of its actor beside Pykka's calls."""

    def _stop_now(self, reason: BaseException | None, done: Future[bool]) -> None: ...


class LoopActorRef(pykka.ActorRef[A]):
    """A reference to a `LoopActor`: Pykka's, with futures to await, and monitors."""

    actor_inbox: Mailbox
    actor_stopped: Lifetime

    def tell(self, message: Any) -> None:
        """Send a message without waiting for anything.

        Raises:
            pykka.ActorDeadError: if the actor takes no more messages; this one is not sent.

        """
        if not self.actor_inbox.offer(Envelope(message)):
            raise pykka.ActorDeadError(f"{self} not found")

    @overload
    def ask(
        self, message: Any, *, block: Literal[False], timeout: float | None = None
    ) -> Future[Any]: ...
    @overload
    def ask(self, message: Any, *, block: Literal[True], timeout: float | None = None) -> Any: ...
    @overload
    def ask(
        self, message: Any, *, block: bool = True, timeout: float | None = None
    ) -> Any | Future[Any]: ...
    def ask(
        self, message: Any, *, block: bool = True, timeout: float | None = None
    ) -> Any | Future[Any]:
        """Send a message and wait for the reply, or with `block=False` return its future at once.

        The future always settles: with the reply, with what the handler raised, with
        `pykka.ActorDeadError` if the actor takes no more messages or stops before this one, or
        with `ActorDied`, one of these, if something kills the actor before it has answered.

        Args:
            message: what to send.
            block: wait in this thread.
            timeout: seconds to wait; None waits for ever.

        Raises:
            WouldDeadlock: if it is to block where an event loop runs; nothing is sent.
            pykka.Timeout: if `timeout` passes; the message may still be handled.

        """
        if block:
            refuse_on_a_loop("ask", "await ask(message, block=False)")
        future = cast("Future[Any]", self.actor_class._create_future())
        if not self.actor_inbox.offer(Envelope(message, reply_to=future)):
            future._fail(pykka.ActorDeadError(f"{self} not found"))
        return future.get(timeout=timeout) if block else future

    @overload
    def stop(self, *, block: Literal[True], timeout: float | None = None) -> bool: ...
    @overload
    def stop(self, *, block: Literal[False], timeout: float | None = None) -> Future[bool]: ...
    @overload
    def stop(self, *, block: bool = True, timeout: float | None = None) -> bool | Future[bool]: ...
    def stop(self, *, block: bool = True, timeout: float | None = None) -> bool | Future[bool]:
        """Ask the actor to stop when it has handled what it was sent before.

        Returns:
            True once it has stopped, `on_stop` included; False if it was dead already. With
            `block=False` the future of this.

        Raises:
            WouldDeadlock: if it is to block where an event loop runs; nothing is sent.
            pykka.Timeout: if `timeout` passes; the actor will still stop.

        """
        if block:
            refuse_on_a_loop("stop", "await stop(block=False)")
        future = _Stopped()
        if not self.actor_inbox.offer(Envelope(_ActorStop(), reply_to=future)):
            future._answer(False)
        return future.get(timeout=timeout) if block else future

    def stop_now(self, reason: BaseException | None = None) -> Future[bool]:
        """Stop the actor without waiting for its mailbox, nor for the handler in progress.

        In this order: it takes no more messages; every ask of it is answered, by `ActorDied` if
        it was in progress; watchers get `Down(ref, reason)`; the handler or hook in progress is
        cancelled, and unwinds on its own time. No hook is called.

        Returns:
            The future of True once this is done; of False if the actor had ended before.

        """
        future: Future[bool] = Future()
        actor = self._actor_weakref()
        if actor is None:
            future.set(False)
        else:
            cast("_Stops", actor)._stop_now(reason, future)
        return future

    def monitor(self, watcher: Watcher) -> None:
        """Give `watcher` one `Down` when the actor ends: at once, if it has ended already.

        An actor gets it as a message; a function is called on the actor's loop, or here if the
        actor has ended already. Monitoring again changes nothing while the first one stands.
        """
        self.actor_stopped.watch(watcher, self)

    def demonitor(self, watcher: Watcher) -> bool:
        """End a monitor. True: no `Down` will come of it; False: it came, or there was none."""
        return self.actor_stopped.unwatch(watcher)


class _Stopped(Future[bool]):
    """The reply to a stop request: whatever the actor says to it, it has stopped."""

    def _answer(self, value: object) -> bool:
        return super()._answer(value is not False)
