"""The registry of running `LoopActor`s: to find them, to send to many, and to stop them all."""

from __future__ import annotations

import contextlib
import logging
from typing import Any, ClassVar, Literal, TypeVar, cast, overload

import pykka

from understudy.loop_actors.future import Future
from understudy.loop_actors.ref import LoopActorRef

pykka_logger: logging.Logger = logging.getLogger("pykka")

A = TypeVar("A", bound=pykka.Actor)


class LoopActorRegistry:
    """All running `LoopActor`s of this process, with the methods of `pykka.ActorRegistry`.

    `start()` registers an actor. It is unregistered when it takes no more messages. The two
    registries are independent: neither holds the actors of the other, and `stop_all` of one leaves
    the actors of the other alive.

    Every method may be called from any thread. Registering, unregistering and finding by urn take
    constant time.
    """

    # In start order. Each method uses it by one operation of a dict with string keys, which is
    # atomic. So there is no lock that a signal handler or a finalizer could find taken.
    _refs: ClassVar[dict[str, LoopActorRef[Any]]] = {}

    @classmethod
    def broadcast(cls, message: Any, target_class: str | type[pykka.Actor] | None = None) -> None:
        """Send `message` to all running actors of `target_class`, which is a class or its name.

        Without a `target_class`, all running actors get it. An actor that stops at the same time
        does not get it.
        """
        if isinstance(target_class, str):
            targets = cls.get_by_class_name(target_class)
        elif target_class is not None:
            targets = cls.get_by_class(target_class)
        else:
            targets = cls.get_all()
        for ref in targets:
            with contextlib.suppress(pykka.ActorDeadError):
                ref.tell(message)

    @classmethod
    def get_all(cls) -> list[LoopActorRef[Any]]:
        """Return all running actors, in start order."""
        return list(cls._refs.values())

    @classmethod
    def get_by_class(cls, actor_class: type[A]) -> list[LoopActorRef[A]]:
        """Return the running actors of this class or of a subclass, in start order."""
        return [ref for ref in cls.get_all() if issubclass(ref.actor_class, actor_class)]

    @classmethod
    def get_by_class_name(cls, actor_class_name: str) -> list[LoopActorRef[Any]]:
        """Return the running actors whose class has exactly this name, in start order."""
        return [ref for ref in cls.get_all() if ref.actor_class.__name__ == actor_class_name]

    @classmethod
    def get_by_urn(cls, actor_urn: str) -> LoopActorRef[Any] | None:
        """Return the running actor with this urn; None if there is none."""
        return cls._refs.get(actor_urn)

    @classmethod
    def register(cls, actor_ref: LoopActorRef[Any]) -> None:
        """Add an actor; `LoopActor.start` does this."""
        cls._refs[actor_ref.actor_urn] = actor_ref
        pykka_logger.debug("Registered %s", actor_ref)

    @overload
    @classmethod
    def stop_all(cls, *, block: Literal[True], timeout: float | None = ...) -> list[bool]: ...
    @overload
    @classmethod
    def stop_all(
        cls, *, block: Literal[False], timeout: float | None = ...
    ) -> list[Future[bool]]: ...
    @overload
    @classmethod
    def stop_all(
        cls, *, block: bool = True, timeout: float | None = None
    ) -> list[bool] | list[Future[bool]]: ...
    @classmethod
    def stop_all(
        cls, *, block: bool = True, timeout: float | None = None
    ) -> list[bool] | list[Future[bool]]:
        """Stop all running actors, the last started first.

        Args:
            block: wait in this thread for each actor before the next actor is asked to stop.
            timeout: seconds to wait for each actor; None = no limit.

        Returns:
            The results of `LoopActorRef.stop`, one for each actor.

        Raises:
            WouldDeadlock: if `block` is true on the event loop of one of the actors; no actor
                is stopped.
            TimeoutError: if an actor takes longer than `timeout`; the actors started before it
                are not asked to stop.

        """
        refs = cls.get_all()[::-1]
        for ref in refs if block else ():
            ref._refuse_to_wait_for_stop()
        stopped = [ref.stop(block=block, timeout=timeout) for ref in refs]
        return cast("list[bool] | list[Future[bool]]", stopped)

    @classmethod
    def unregister(cls, actor_ref: LoopActorRef[Any]) -> None:
        """Remove an actor from the registry; the actor continues. No error if it is not registered.

        An actor that stops removes itself.
        """
        found = cls._refs.pop(actor_ref.actor_urn, None)
        pykka_logger.debug(
            "Unregistered %s" if found is not None else "Unregistered %s (not found in registry)",
            actor_ref,
        )
