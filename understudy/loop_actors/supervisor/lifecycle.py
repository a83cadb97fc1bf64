"""Starting and stopping the actor of a child, with an id or simple."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from pykka import ActorDeadError, ActorRef
from pykka.messages import ProxyGetAttr

from understudy._base.error_texts import error_text
from understudy._base.json_values import shown
from understudy.errors import UsageError
from understudy.loop_actors.ref import LoopActorRef
from understudy.loop_actors.supervisor.errors import ChildStartFailed, Shutdown
from understudy.loop_actors.supervisor.spec import StartChild

logger: logging.Logger = logging.getLogger(__name__)

Sleep = Callable[[float], Awaitable[None]]
"""A function that waits this many seconds: `asyncio.sleep`, or a replacement in tests."""

SHUTDOWN_SECONDS = 5.0
"""The seconds that a worker may take to stop, if its spec has no `shutdown`."""


async def start_actor(start: StartChild) -> LoopActorRef[Any]:
    """Call `start` and return the ref of the new actor.

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
        f"start must return the ref of a LoopActor, which can be monitored, got {ref!r}"
    )


async def wait_until_started(
    ref: LoopActorRef[Any], ended: asyncio.Future[BaseException | None]
) -> None:
    """Return when `on_start` has returned; raise what it raised, which is the result of `ended`.

    An actor that is stopped on request meanwhile has not failed: that is a normal end, and its
    restart type decides. So an actor with nothing to do may stop itself in `on_start`.
    """
    try:
        # Any message is handled after on_start; Pykka's part of the actor handles this one.
        await ref.ask(ProxyGetAttr(attr_path=("actor_urn",)), block=False)
    except ActorDeadError:
        reason = await ended
        if reason is not None:
            raise reason from None
    except Exception as error:
        # It has answered, so it has started: test_an_actor_that_takes_no_proxy_can_be_a_child.
        logger.debug("%s answered a request for its urn by an exception: %s", ref, shown(error))


async def ended_within(seconds: float | None, ended: asyncio.Future[Any], sleep: Sleep) -> bool:
    """Wait for `ended`; False if the seconds pass before. None means no limit."""
    if seconds is None:
        await ended
        return True
    timer = asyncio.ensure_future(sleep(seconds))
    try:
        await asyncio.wait({ended, timer}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
    return ended.done()


def shutdown_exceeded(seconds: float | None) -> Shutdown:
    """The reason with which an actor is cancelled that did not stop in time."""
    return Shutdown(f"it did not stop within {seconds:g} s")


def start_failed(id: str, error: BaseException) -> ChildStartFailed:
    return ChildStartFailed(child_id=id, cause=error_text(error))


def is_own_cancellation(error: BaseException) -> bool:
    """Whether the supervisor's own task is cancelled, and not something in a child."""
    task = asyncio.current_task()
    return isinstance(error, GeneratorExit) or (
        isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
    )
