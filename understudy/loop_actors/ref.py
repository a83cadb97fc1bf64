"""The reference to an actor: the way to send to it, stop it and watch it."""

from __future__ import annotations

from typing import Any, Literal, TypeVar, cast, overload

import pykka
from pykka._envelope import Envelope
from pykka.messages import _ActorStop

from understudy.loop_actors.future import Future, refuse_on_its_loop
from understudy.loop_actors.mailbox import Mailbox
from understudy.loop_actors.monitor import Lifetime, Watcher

A = TypeVar("A", bound=pykka.Actor)


class LoopActorRef(pykka.ActorRef[A]):
    """A reference to a `LoopActor`: Pykka's, with futures that can be awaited, and with
    monitors.
    """

    actor_inbox: Mailbox
    actor_stopped: Lifetime

    def __init__(self, actor: A) -> None:
        # Not Pykka's __init__: its weak reference, beside that of the mailbox, takes 80 bytes.
        self.actor_class: type[A] = type(actor)
        self.actor_urn: str = actor.actor_urn
        self.actor_inbox = cast("Mailbox", actor.actor_inbox)
        self.actor_stopped = cast("Lifetime", actor.actor_stopped)

    def _actor_weakref(self) -> A | None:  # type: ignore[override]  # Pykka's proxies call it
        """The actor; None once it has ended."""
        return cast("A | None", self.actor_inbox.owner)

    def tell(self, message: Any) -> None:
        """Send a message. Never waits.

        Raises:
            pykka.ActorDeadError: if the actor takes no more messages; this message is not sent.

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

        The future always settles: with the reply, or with the exception of the handler. If the
        actor takes no more messages, or stops before this message, the future raises
        `pykka.ActorDeadError`. If the actor is killed before it answers, the future raises
        `ActorDied`, a subclass.

        Args:
            message: any object.
            block: wait in this thread.
            timeout: seconds to wait; None = no limit.

        Raises:
            WouldDeadlock: if `block` is true on the actor's own event loop; nothing is sent.
            TimeoutError: if `timeout` passes; the message may still be handled.

        """
        if block:
            refuse_on_its_loop(self.actor_inbox.loop, "ask", "await ask(message, block=False)")
        future = cast("Future[Any]", self.actor_class._create_future())
        future._loop = self.actor_inbox.loop
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
        """Ask the actor to stop after the messages that were sent before.

        Args:
            block: wait in this thread.
            timeout: seconds to wait; None = no limit.

        Returns:
            True once the actor has stopped and `on_stop` has returned; False if it was dead
                already. With `block=False`, a future of this value.

        Raises:
            WouldDeadlock: if `block` is true on the actor's own event loop; nothing is sent.
            TimeoutError: if `timeout` passes; the actor will still stop.

        """
        if block:
            self._refuse_to_wait_for_stop()
        future = _StopReply(self.actor_inbox.loop)
        if not self.actor_inbox.offer(Envelope(_ActorStop(), reply_to=future)):
            future._answer(False)
        return future.get(timeout=timeout) if block else future

    def stop_now(self, reason: BaseException | None = None) -> Future[bool]:
        """Stop the actor without waiting for its mailbox or for the handler in progress.

        This happens in order: the actor takes no more messages. Every ask is answered; an ask in
        progress gets `ActorDied`. Watchers get `Down(ref, reason)`. The handler or hook in progress
        is cancelled, and nothing waits for it. No hook is called.

        Returns:
            A future of True once this is done; of False if the actor had ended before.

        """
        future: Future[bool] = Future(self.actor_inbox.loop)
        actor = self._actor_weakref()
        if actor is None or self.actor_stopped.ended:
            future.set(False)
        else:
            cast("Any", actor)._stop_now(reason, future)
        return future

    def monitor(self, watcher: Watcher) -> None:
        """Give `watcher` one `Down` when the actor ends; at once if it has ended already.

        If `watcher` is an actor, it gets a message. If it is a function, it is called on the
        actor's loop, or in this thread if the actor has ended already. A second call before the
        `Down` changes nothing.
        """
        self.actor_stopped.watch(watcher, self)

    def _refuse_to_wait_for_stop(self) -> None:
        refuse_on_its_loop(self.actor_inbox.loop, "stop", "await stop(block=False)")

    def demonitor(self, watcher: Watcher) -> bool:
        """End a monitor. Return False if the `Down` came already, or there was no monitor."""
        return self.actor_stopped.unwatch(watcher)


class _StopReply(Future[bool]):
    """The reply to a stop request: the actor answers None, as Pykka's does, and that is True."""

    def _answer(self, value: object) -> bool:
        return super()._answer(value is not False)
