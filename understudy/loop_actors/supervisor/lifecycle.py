"""Starting and stopping one actor: what children with an id and simple ones share."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from pykka import ActorDeadError, ActorRef
from pykka.messages import ProxyGetAttr

from understudy.errors import UsageError
from understudy.loop_actors.ref import LoopActorRef
from understudy.loop_actors.supervisor.errors import ChildStartFailed, Shutdown
from understudy.loop_actors.supervisor.spec import StartChild

__all__ = [
    "SHUTDOWN_SECONDS",
    "Sleep",
    "gone_in_time",
    "is_own_cancellation",
    "start_failed",
    "started_by",
    "too_late",
    "until_started",
]

logger = logging.getLogger(__name__)

Sleep = Callable[[float], Awaitable[None]]
"""Waits for so many seconds: `asyncio.sleep`, or a test's own."""

SHUTDOWN_SECONDS = 5.0
"""How long a worker may take to stop, unless its spec says otherwise."""


async def started_by(start: StartChild) -> LoopActorRef[Any]:
    """The ref of a new actor.

    Raises:
        UsageError: if `start` returns no ref of a `LoopActor`.

    """
    ref = start()
    if inspect.isawaitable(ref):
        ref = await ref
    if isinstance(ref, LoopActorRef):
        return ref
    if isinstance(ref, ActorRef):
        ref.stop(block=False)
    raise UsageError(
        f"start must return the ref of a LoopActor, which can be monitored, not {ref!r}"
    )


async def until_started(ref: LoopActorRef[Any], gone: asyncio.Future[BaseException | None]) -> None:
    """Return when `on_start` is through; raise what it raised. `gone` brings how it ended.

    One that was stopped on request meanwhile has not failed: that is a normal end, for its restart
    type to decide on. So an actor that finds nothing to do may stop itself in `on_start`.
    """
    try:
        # Any message is handled after on_start; this one is handled by Pykka, not by the child.
        await ref.ask(ProxyGetAttr(attr_path=("actor_urn",)), block=False)
    except ActorDeadError:
        reason = await gone
        if reason is not None:
            raise reason from None
    except Exception as error:
        # An actor that takes no such message has answered, so it has started.
        logger.debug("%s refused to be asked for its urn: %r", ref, error)


async def gone_in_time(seconds: float | None, gone: asyncio.Future[Any], sleep: Sleep) -> bool:
    """Wait until `gone` is there; False if the seconds have passed before. None: for ever."""
    if seconds is None:
        await gone
        return True
    timer = asyncio.ensure_future(sleep(seconds))
    try:
        await asyncio.wait({gone, timer}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
    return gone.done()


def too_late(seconds: float | None) -> Shutdown:
    """Why an actor is cancelled that was told to stop."""
    return Shutdown(f"it did not stop within {seconds:g} s")


def start_failed(id: str, error: BaseException) -> ChildStartFailed:
    return ChildStartFailed(child_id=id, cause=f"{type(error).__name__}: {error}")


def is_own_cancellation(error: BaseException) -> bool:
    """Whether it ends the supervisor: a cancellation of its own task, not one in a child."""
    task = asyncio.current_task()
    return isinstance(error, GeneratorExit) or (
        isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
    )
