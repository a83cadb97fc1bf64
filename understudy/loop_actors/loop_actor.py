"""Pykka's actor on an event loop: one message at a time, no thread, no task while idle."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import logging
import queue
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, ParamSpec, Self, cast

import pykka
from pykka._envelope import Envelope
from pykka.messages import ProxyGetAttr, _ActorStop

from understudy._base.event_loops import call_on
from understudy.errors import UsageError
from understudy.loop_actors.errors import ActorDied
from understudy.loop_actors.future import Future
from understudy.loop_actors.live_actors import move_in, move_out, watch_running_loop
from understudy.loop_actors.loop_thread import shared_loop
from understudy.loop_actors.mailbox import Mailbox
from understudy.loop_actors.monitor import Lifetime
from understudy.loop_actors.ref import LoopActorRef
from understudy.loop_actors.registry import LoopActorRegistry

__all__ = ["LoopActor", "async_hook", "loop_for_start"]

logger = logging.getLogger(__name__)
pykka_logger = logging.getLogger("pykka")  # what Pykka logs, under Pykka's name

P = ParamSpec("P")

MESSAGES_PER_TURN = 64
"""After so many messages without a pause, an actor lets the rest of its loop have a turn."""

loop_for_start: contextvars.ContextVar[asyncio.AbstractEventLoop | None] = contextvars.ContextVar(
    "loop_for_start", default=None
)
"""The loop on which actors started in this context run; None: see `LoopActor.start`."""


def async_hook(hook: Callable[P, Coroutine[Any, Any, None]], /) -> Callable[P, Any]:
    """Let an async `on_start`, `on_stop` or `on_failure` stand where Pykka declares a plain one.

        class Clerk(LoopActor):
            @async_hook
            async def on_start(self) -> None: ...

    For type checkers that compare a method with all base classes, as mypy does; to the actor it
    makes no difference, it awaits an async hook with or without. The function is returned as it is.

    Raises:
        UsageError: if it is no `async def`.

    """
    if not inspect.iscoroutinefunction(hook):
        raise UsageError(f"async_hook is for an `async def`, and this is {hook!r}: leave it out")
    return hook


class LoopActor(pykka.Actor):
    """Pykka's actor, scheduled on an event loop.

    `on_receive`, `on_start`, `on_stop`, `on_failure` and the methods called through a proxy may be
    plain or async. It handles one message at a time, in order: the next one waits while an async
    handler awaits. A plain handler runs on the loop and must not block it.

    Where it differs from Pykka's `ThreadingActor`:

    - Whatever kills it (`SystemExit`, a cancellation, ...) stops this actor alone.
    - `on_failure` is called for these too; `on_stop` only when it stops on request.
    - All asks of it are answered before `on_stop` or `on_failure` is called, but those to stop it.
    - It is held strongly from `start()` until it stops, or its loop shuts down.
    """

    actor_inbox: Mailbox
    actor_stopped: Lifetime
    loop: asyncio.AbstractEventLoop
    """The loop it runs on, from its start."""

    # Class attributes, so that an idle actor is small.
    _begun = False
    _left = 0
    _task: asyncio.Task[None] | None = None
    _work: _Work | None = None
    _stoppers: tuple[Envelope[Any], ...] = ()

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> LoopActorRef[Self]:
        """Start an actor, giving the arguments to its constructor. Never waits.

        1. `__init__` runs, here; the ref, the mailbox and the urn are there once Pykka's part of
           it has run.
        2. The actor is registered in `LoopActorRegistry`.
        3. Its loop is chosen: that of `loop_for_start`, else the one that runs here, else one
           shared by all actors started where none runs, in a daemon thread.
        4. On that loop, in a copy of this context, `on_start` is called, then messages are handled.
        """
        # Pykka's steps; theirs leave an actor registered for ever that could not be started.
        actor = cls(*args, **kwargs)
        ref = actor.actor_ref
        LoopActorRegistry.register(ref)
        pykka_logger.debug("Starting %s", actor)
        try:
            actor._start_actor_loop()
        except BaseException:
            actor._close(None)
            raise
        return ref

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        # Not Pykka's __init__, which makes a threading.Event (1.2 KB) and a plain ActorRef.
        self.actor_urn = uuid.uuid4().urn
        self.actor_inbox = self._create_actor_inbox()
        self.actor_stopped = Lifetime()
        self._actor_ref = LoopActorRef(self)

    @property
    def actor_ref(self) -> LoopActorRef[Self]:
        """The reference to this actor."""
        return cast("LoopActorRef[Self]", self._actor_ref)

    # An async hook is as good as a plain one, so these promise less than Pykka's.

    def on_start(self) -> Awaitable[None] | None:  # type: ignore[override]  # may be async
        """Called on the loop before the first message. What it raises stops the actor."""
        return None

    def on_stop(self) -> Awaitable[None] | None:  # type: ignore[override]  # may be async
        """Called when the actor stops on request. What it raises is logged and told to monitors."""
        return None

    def on_failure(  # type: ignore[override]  # may be async
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> Awaitable[None] | None:
        """Called when something killed the actor. What it raises is logged."""
        return None

    # Pykka's extension points

    @staticmethod
    def _create_actor_inbox() -> Mailbox:
        return Mailbox()

    @staticmethod
    def _create_future() -> Future[Any]:
        return Future()

    def _start_actor_loop(self) -> None:
        loop = loop_for_start.get() or asyncio._get_running_loop() or shared_loop()
        if loop.is_closed():
            raise UsageError("the event loop to start this actor on is closed: choose another one")
        self.loop = loop
        move_in(self, loop)
        self.actor_inbox.open_on(loop, self, contextvars.copy_context())

    # Setup

    def _begin(self) -> _Work | None:
        self._begun = True
        if self.actor_stopped.ended:
            return None
        watch_running_loop(self.loop)
        return self._call(self.on_start, (), _nothing, self._die_at_start)

    def _die_at_start(self, error: BaseException) -> None:
        if self.actor_stopped.ended:  # by stop_now
            return
        # As Pykka's: on_failure is not called.
        self._leave(error)
        self._log_failure(error)
        self._end(error)

    # Running. A handler that is plain is done with in `_drain`, a loop callback, without a task.
    # The first one that is async makes a task, which goes on with the mailbox until it is empty.
    # Neither lets any exception out: SystemExit in a callback or a task would end the loop.

    def _drain(self) -> None:
        try:
            self._left = MESSAGES_PER_TURN
            work = None if self._begun else self._begin()
            if work is None:
                work = self._handle_some()
            if work is not None:
                self._work = work
                # Not loop.create_task: an eager task factory would enter this context twice.
                self._task = asyncio.Task(
                    self._go_on(),
                    loop=self.loop,
                    name=type(self).__name__,
                    context=self.actor_inbox.context,
                )
                self._task.add_done_callback(self._after_task)
        except BaseException as error:  # nothing above should raise; the loop must not end of it
            self._crash(error)

    def _handle_some(self) -> _Work | None:
        """Handle messages until one leaves something to await, or none is left, or it is enough."""
        while self._left > 0:
            envelope = self.actor_inbox.take()
            if envelope is None:
                return None
            self._left -= 1
            work = self._receive(envelope)
            if work is not None:
                return work
        self.actor_inbox.reschedule()
        return None

    async def _go_on(self) -> None:
        # It awaits nothing but handlers and hooks, so a cancellation always meets one of these.
        try:
            while (work := self._work) is not None:
                try:
                    value = await work.coroutine
                except BaseException as error:
                    if isinstance(error, GeneratorExit) and self.loop.is_closed():
                        raise  # it is this coroutine that is thrown away
                    more = work.failed(error)
                else:
                    more = work.then(value)
                self._work = more
                if more is None:
                    self._work = self._handle_some()
            self._task = None
        except BaseException as error:  # see `_drain`
            self._crash(error)

    def _after_task(self, task: asyncio.Task[None]) -> None:
        work = self._work
        if not task.cancelled() or work is None:
            return
        # Cancelled before its first step, so `_go_on` never ran, nor did its work.
        work.coroutine.close()
        error = asyncio.CancelledError()
        try:
            self._work = more = work.failed(error)
            if more is not None:  # an async on_failure, but whoever cancels all tasks is leaving
                more.coroutine.close()
                self._crash(error)
        except BaseException as raised:
            self._crash(raised)

    def _receive(self, envelope: Envelope[Any]) -> _Work | None:
        """Handle a message; what is left to await, if its handler is async."""
        message, reply_to = envelope.message, envelope.reply_to
        if type(message) is _ActorStop:
            return self._stop_for(envelope)
        try:
            value = self._handle_receive(message)
        except BaseException as error:
            return self._failed(reply_to, error)
        if asyncio.iscoroutine(value) and type(message) is not ProxyGetAttr:
            return _Work(
                value, partial(_reply, reply_to), partial(self._failed, reply_to), reply_to
            )
        if reply_to is not None:
            _reply(reply_to, value)
        return None

    def _failed(self, reply_to: pykka.Future[Any] | None, error: BaseException) -> _Work | None:
        if self.actor_stopped.ended:  # by stop_now, which has answered the ask
            return None
        fatal = not isinstance(error, Exception) or isinstance(error, MemoryError)
        if reply_to is None:
            return self._die(error)
        if fatal:
            _refuse(reply_to, self._died(error))
            return self._die(error)
        try:
            pykka_logger.info("Exception returned from %s to caller:", self, exc_info=error)
        finally:  # whatever the log's own handlers do
            _refuse(reply_to, error)
        return None

    def _call(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        then: Callable[[Any], _Work | None],
        failed: Callable[[BaseException], _Work | None],
    ) -> _Work | None:
        try:
            value = function(*args)
        except BaseException as error:
            return failed(error)
        if asyncio.iscoroutine(value):
            return _Work(value, then, failed, None)
        return then(value)

    # Teardown: take no more messages, answer those that wait, call the hook, tell the watchers

    def _stop_for(self, envelope: Envelope[Any]) -> _Work | None:
        self._stoppers += (envelope,)
        self._leave(None)
        pykka_logger.debug("Stopped %s", self)
        return self._call(self.on_stop, (), lambda _: self._end(None), self._hook_failed)

    def _die(self, error: BaseException) -> _Work | None:
        self._leave(error)
        self._log_failure(error)
        return self._call(
            self.on_failure,
            (type(error), error, error.__traceback__),
            lambda _: self._end(error),
            partial(self._hook_failed, because=error),
        )

    def _hook_failed(self, error: BaseException, because: BaseException | None = None) -> None:
        if not self.actor_stopped.ended:  # else cancelled by stop_now
            self._log_failure(error)
        self._end(because or error)

    def _log_failure(self, error: BaseException) -> None:
        # Not Pykka's `_handle_failure`, which goes to Pykka's registry.
        pykka_logger.error("Unhandled exception in %s:", self, exc_info=error)

    def _leave(self, reason: BaseException | None) -> None:
        self._stoppers += self._close(reason)

    def _close(self, reason: BaseException | None) -> tuple[Envelope[Any], ...]:
        """Close the mailbox and answer the asks in it, but those to stop: these are returned.

        From any thread; the first one does it, for the others there is nothing left.
        """
        left = self.actor_inbox.close()
        if left is None:
            return ()
        self.actor_stopped.set()
        LoopActorRegistry.unregister(self.actor_ref)
        for envelope in left:
            if envelope.reply_to is None or type(envelope.message) is _ActorStop:
                continue
            error: Exception = (
                pykka.ActorDeadError(f"{self.actor_ref} stopped before handling the message")
                if reason is None
                else self._died(reason)
            )
            _refuse(envelope.reply_to, error)
        return tuple(envelope for envelope in left if type(envelope.message) is _ActorStop)

    def _end(self, reason: BaseException | None) -> None:
        """The end of this actor's life: it is let go of."""
        if self.actor_stopped.ended:
            return
        self.actor_inbox.release()
        move_out(self, self.loop)
        for envelope in self._stoppers:
            _reply(envelope.reply_to, None)
        self._stoppers = ()
        self.actor_stopped.end(reason)

    def _stop_now(self, reason: BaseException | None, done: Future[bool]) -> None:
        stoppers = self._close(reason)
        abort = partial(self._abort, reason, done, stoppers)
        if not call_on(self.loop, abort):
            abort()

    def _abort(
        self,
        reason: BaseException | None,
        done: Future[bool] | None = None,
        stoppers: tuple[Envelope[Any], ...] = (),
    ) -> None:
        """End at once, on the loop, or anywhere when that is closed."""
        self._stoppers += stoppers
        stopped_now = not self.actor_stopped.ended
        work, task = self._work, self._task
        if work is not None and work.reply_to is not None:
            _refuse(work.reply_to, self._died(reason))
        self._end(reason)
        if stopped_now and task is not None and not task.done() and not self.loop.is_closed():
            task.cancel()
        if done is not None:
            done._answer(stopped_now)

    def _crash(self, error: BaseException) -> None:
        """What is left to do when even the way to report a failure failed."""
        if self.actor_stopped.ended:
            return
        logger.error("%s crashed", type(self).__name__, exc_info=error)
        self._leave(error)
        self._abort(error)

    def _lose_loop(self) -> None:
        error = self._died(None, "its event loop was closed")
        self._leave(error)
        self._abort(error)

    def _died(self, error: BaseException | None, cause: str | None = None) -> ActorDied:
        died = ActorDied(
            actor_urn=self.actor_urn,
            actor_class=type(self).__name__,
            cause=cause or _told(error),
        )
        died.__cause__ = error
        return died


class _Work(NamedTuple):
    """What is left of a step when its handler is async: await it, then do the one or the other."""

    coroutine: Coroutine[Any, Any, Any]
    then: Callable[[Any], _Work | None]
    failed: Callable[[BaseException], _Work | None]
    reply_to: pykka.Future[Any] | None


def _told(error: BaseException | None) -> str:
    if error is None:
        return "it was stopped"
    try:
        return repr(error)
    except BaseException:  # a faulty __repr__ must not cost the asker the answer
        return type(error).__name__


def _nothing(_value: object) -> None:
    return None


def _reply(reply_to: pykka.Future[Any] | None, value: Any) -> None:
    """Answer an ask that may have been answered already: by `stop_now`, or by its own asker."""
    if isinstance(reply_to, Future):
        reply_to._answer(value)
    elif reply_to is not None:
        with contextlib.suppress(queue.Full):
            reply_to.set(value)


def _refuse(reply_to: pykka.Future[Any], error: BaseException) -> None:
    if isinstance(reply_to, Future):
        reply_to._fail(error)
    else:
        with contextlib.suppress(queue.Full):
            reply_to.set_exception((type(error), error, error.__traceback__))
