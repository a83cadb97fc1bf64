"""`LoopActor`: Pykka's actor on an event loop, without a thread, and without a task while idle."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
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
from understudy.loop_actors import live_actors
from understudy.loop_actors.errors import ActorDied
from understudy.loop_actors.future import Future
from understudy.loop_actors.loop_thread import shared_loop
from understudy.loop_actors.mailbox import Mailbox
from understudy.loop_actors.monitor import Down, Lifetime
from understudy.loop_actors.ref import LoopActorRef
from understudy.loop_actors.registry import LoopActorRegistry

logger: logging.Logger = logging.getLogger(__name__)
pykka_logger: logging.Logger = logging.getLogger("pykka")  # for what Pykka logs of its actors, too

P = ParamSpec("P")

MESSAGES_PER_TURN = 64
"""The number of messages after which an actor lets its loop run other callbacks."""

loop_for_start: contextvars.ContextVar[asyncio.AbstractEventLoop | None] = contextvars.ContextVar(
    "loop_for_start", default=None
)
"""The event loop for actors that are started in this context; None = see `LoopActor.start`."""


def async_hook(hook: Callable[P, Coroutine[Any, Any, None]], /) -> Callable[P, Any]:
    """Declare an async `on_start`, `on_stop` or `on_failure` where Pykka declares a plain hook.

        class Clerk(LoopActor):
            @async_hook
            async def on_start(self) -> None: ...

    It helps type checkers that compare a method with all base classes, as mypy does. The function
    is returned unchanged. The actor awaits an async hook with or without this decorator.

    Raises:
        UsageError: if `hook` is not an `async def`.

    """
    if not inspect.iscoroutinefunction(hook):
        raise UsageError(f"async_hook takes an `async def`, got {hook!r}: leave it out there")
    return hook


class LoopActor(pykka.Actor, live_actors.LiveActor):
    """Pykka's actor, run on an event loop.

    `on_receive`, `on_start`, `on_stop`, `on_failure` and the methods called through a proxy may be
    plain or async. The actor handles one message at a time, in order: the next message waits while
    an async handler awaits. A plain handler runs on the loop and must not block it.

    Differences from Pykka's `ThreadingActor`:

    - An exception that is not an `Exception` (`SystemExit`, a cancellation) stops this actor alone.
    - `on_failure` is called for these exceptions too. `on_stop` is called only when the actor stops
      on request.
    - Every ask is answered before `on_stop` or `on_failure` is called. Stop requests are answered
      afterwards.
    - From `start()` until it has ended, the actor stays in memory without a reference to it. It
      ends at the latest when its loop shuts down.
    - It is registered in `LoopActorRegistry`, not in `pykka.ActorRegistry`.
    """

    actor_inbox: Mailbox
    actor_stopped: Lifetime
    loop: asyncio.AbstractEventLoop
    """The event loop that the actor runs on, from its start."""

    # Class attributes, so that an idle instance holds only what differs from them.
    _started = False
    _messages_left = 0  # in this turn of the loop
    _task: asyncio.Task[None] | None = None
    _async_call: _AsyncCall | None = None  # in progress
    _stop_requests: tuple[Envelope[Any], ...] = ()  # to answer at the end

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> LoopActorRef[Self]:
        """Start an actor with these arguments of its constructor. Never waits.

        1. `__init__` runs in this thread. `super().__init__()` makes the ref, the mailbox and the
        urn.
        2. The actor is registered in `LoopActorRegistry`.
        3. Its loop is chosen: the loop in `loop_for_start`; else the loop that runs in this thread;
        else a loop in a daemon thread, which all actors share that are started without a loop.
        4. On that loop, in a copy of this context, `on_start` is called. Then messages are handled.

        Raises:
            UsageError: if the loop is closed.

        """
        # Not Pykka's `start`: it registers in Pykka's registry, and an actor that could not be
        # started would stay registered. test_the_context_may_choose_the_loop
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
        # Not Pykka's __init__: it makes a threading.Event (1.2 KB) and a plain ActorRef.
        self.actor_urn: str = uuid.uuid4().urn
        self.actor_inbox = self._create_actor_inbox()
        self.actor_inbox.owner = self
        self.actor_stopped = Lifetime()
        self._actor_ref = LoopActorRef(self)

    @property
    def actor_ref(self) -> LoopActorRef[Self]:
        """The reference to this actor."""
        return cast("LoopActorRef[Self]", self._actor_ref)

    # These may be async, so they declare less than Pykka's do.

    def on_start(self) -> Awaitable[None] | None:  # type: ignore[override]  # may be async
        """Called on the loop before the first message. An exception stops the actor."""
        return None

    def on_stop(self) -> Awaitable[None] | None:  # type: ignore[override]  # may be async
        """Called when the actor stops on request. An exception is logged and becomes
        `Down.reason`.
        """
        return None

    def on_failure(  # type: ignore[override]  # may be async
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> Awaitable[None] | None:
        """Called when an exception killed the actor. An exception that it raises is logged."""
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
        live_actors.register(self, loop)
        self.actor_inbox.open_on(loop, self, contextvars.copy_context())

    # Setup

    def _set_up(self) -> _AsyncCall | None:
        self._started = True
        if self.actor_stopped.ended:  # by stop_now, before this first turn of the loop
            return None
        live_actors.watch_running_loop(self.loop)
        return self._call_hook(self.on_start, (), lambda _: None, self._start_failed)

    def _start_failed(self, error: BaseException) -> None:
        if self.actor_stopped.ended:  # by stop_now, which cancelled on_start
            return
        # As with Pykka, on_failure is not called.
        self._close(error)
        self._log_failure(error)
        self._end(error)

    # Running. `_drain` is a callback of the loop, and handles messages without a task as long as
    # their handlers are plain. The first async handler makes a task, which continues with the
    # mailbox until it is empty. Neither lets an exception out: a SystemExit would end the loop.

    def _drain(self) -> None:
        try:
            self._messages_left = MESSAGES_PER_TURN
            call = None if self._started else self._set_up()
            if call is None:
                call = self._handle_messages()
            if call is not None:
                self._async_call = call
                # Not loop.create_task: an eager task factory would enter this context twice.
                self._task = asyncio.Task(
                    self._run_task(),
                    loop=self.loop,
                    name=type(self).__name__,
                    context=self.actor_inbox.context,
                )
                self._task.add_done_callback(self._task_done)
        except BaseException as error:  # a logging handler of the application, for instance
            self._crash(error)

    def _handle_messages(self) -> _AsyncCall | None:
        """Handle messages until a handler is to be awaited, none is left, or the turn's maximum is
        reached.
        """
        while self._messages_left > 0:
            envelope = self.actor_inbox.take()
            if envelope is None:
                return None
            self._messages_left -= 1
            call = self._receive(envelope)
            if call is not None:
                return call
        self.actor_inbox.reschedule()
        return None

    async def _run_task(self) -> None:
        # It awaits only handlers and hooks, so a cancellation is always raised in one of them.
        try:
            while (call := self._async_call) is not None:
                try:
                    value = await call.coroutine
                except BaseException as error:
                    if isinstance(error, GeneratorExit) and self.loop.is_closed():
                        raise  # this coroutine is being finalized
                    following = call.failed(error)
                else:
                    following = call.then(value)
                self._async_call = following
                if following is None:
                    self._async_call = self._handle_messages()
            self._task = None
        except BaseException as error:  # as in `_drain`
            self._crash(error)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        """Handle the one end that `_run_task` cannot: cancelled before its first step.

        test_cancelling_its_task_kills_the_actor_and_answers_what_waits
        """
        call = self._async_call
        if not task.cancelled() or call is None:
            return
        call.coroutine.close()
        error = asyncio.CancelledError()
        try:
            self._async_call = following = call.failed(error)
            if following is not None:  # an async on_failure; cancelling all tasks ends the loop
                following.coroutine.close()
                self._crash(error)
        except BaseException as raised:
            self._crash(raised)

    def _receive(self, envelope: Envelope[Any]) -> _AsyncCall | None:
        """Handle a message; the call to await, if its handler is async."""
        message = envelope.message
        reply_to: Any = envelope.reply_to  # a future that `_create_future` made, or None
        if type(message) is _ActorStop:
            return self._stop_on_request(envelope)
        try:
            value = self._handle_receive(message)
        except BaseException as error:
            return self._failed(reply_to, error)
        if asyncio.iscoroutine(value) and type(message) is not ProxyGetAttr:
            return _AsyncCall(
                value, partial(_reply, reply_to), partial(self._failed, reply_to), reply_to
            )
        if reply_to is not None:
            _reply(reply_to, value)
        return None

    def _failed(self, reply_to: Future[Any] | None, error: BaseException) -> _AsyncCall | None:
        if self.actor_stopped.ended:  # by stop_now, which has answered the ask
            return None
        fatal = not isinstance(error, Exception) or isinstance(error, MemoryError)
        if reply_to is None:
            return self._die(error)
        if fatal:
            reply_to._fail(self._died(error))
            return self._die(error)
        try:
            pykka_logger.info("Exception returned from %s to caller:", self, exc_info=error)
        finally:  # also if a logging handler raises
            reply_to._fail(error)
        return None

    def _call_hook(
        self,
        hook: Callable[..., Any],
        args: tuple[Any, ...],
        then: Callable[[Any], _AsyncCall | None],
        failed: Callable[[BaseException], _AsyncCall | None],
    ) -> _AsyncCall | None:
        try:
            value = hook(*args)
        except BaseException as error:
            return failed(error)
        if asyncio.iscoroutine(value):
            return _AsyncCall(value, then, failed, None)
        return then(value)

    # Teardown: take no more messages, answer those that wait, call the hook, notify the watchers

    def _stop_on_request(self, envelope: Envelope[Any]) -> _AsyncCall | None:
        self._stop_requests += (envelope,)
        self._close(None)
        pykka_logger.debug("Stopped %s", self)
        return self._call_hook(self.on_stop, (), lambda _: self._end(None), self._hook_failed)

    def _die(self, error: BaseException) -> _AsyncCall | None:
        self._close(error)
        self._log_failure(error)
        return self._call_hook(
            self.on_failure,
            (type(error), error, error.__traceback__),
            lambda _: self._end(error),
            partial(self._hook_failed, reason=error),
        )

    def _hook_failed(self, error: BaseException, reason: BaseException | None = None) -> None:
        if not self.actor_stopped.ended:  # else stop_now has cancelled the hook
            self._log_failure(error)
        self._end(reason or error)

    def _log_failure(self, error: BaseException) -> None:
        # Not Pykka's `_handle_failure`, which goes to Pykka's registry.
        pykka_logger.error("Unhandled exception in %s:", self, exc_info=error)

    def _close(self, reason: BaseException | None) -> None:
        """Close the mailbox; answer the asks in it, and keep the stop requests for the end."""
        self._stop_requests += self._close_mailbox(reason)

    def _close_mailbox(self, reason: BaseException | None) -> tuple[Envelope[Any], ...]:
        """Close the mailbox and answer the asks in it; return the stop requests.

        From any thread. The mailbox lets one caller close it; for the others nothing is left, so
        no ask is answered twice. test_stop_now_from_a_thread_stops_at_once_what_waits
        """
        remaining = self.actor_inbox.close()
        if remaining is None:
            return ()
        self.actor_stopped.set()
        LoopActorRegistry.unregister(self.actor_ref)
        stop_requests = []
        for envelope in remaining:
            if type(envelope.message) is _ActorStop:
                stop_requests.append(envelope)
            elif envelope.reply_to is not None:
                error: Exception = (
                    pykka.ActorDeadError(f"{self.actor_ref} stopped before handling the message")
                    if reason is None
                    else self._died(reason)
                )
                cast("Future[Any]", envelope.reply_to)._fail(error)
        return tuple(stop_requests)

    def _forked(self) -> None:
        """Take no more messages in the child of a fork. The parent keeps the messages that it
        got.
        """
        self.actor_inbox.close_in_child()
        self.actor_stopped.set_in_child()

    def _end(self, reason: BaseException | None) -> None:
        """Drop the references to the actor, answer the stop requests, and notify the watchers."""
        if self.actor_stopped.ended:
            return
        self.actor_inbox.release()
        live_actors.unregister(self, self.loop)
        for envelope in self._stop_requests:
            _reply(cast("Future[Any] | None", envelope.reply_to), None)
        self._stop_requests = ()
        self.actor_stopped.end(reason, self.actor_ref, self._ended)

    def _ended(self, down: Down) -> None:
        """Called once the actor has ended, before its watchers get the `Down`."""

    def _stop_now(self, reason: BaseException | None, done: Future[bool]) -> None:
        # The mailbox is closed in this thread, so nothing is accepted after the call. All else is
        # done on the loop, where no handler or hook of this actor runs at the same time.
        stop_requests = self._close_mailbox(reason)
        abort = partial(self._abort, reason, done, stop_requests)
        if not call_on(self.loop, abort):
            abort()

    def _abort(
        self,
        reason: BaseException | None,
        done: Future[bool] | None = None,
        stop_requests: tuple[Envelope[Any], ...] = (),
    ) -> None:
        """End at once, on the loop, or in any thread if the loop is closed."""
        self._stop_requests += stop_requests
        ended_before = self.actor_stopped.ended
        call, task = self._async_call, self._task
        if call is not None and call.reply_to is not None:
            call.reply_to._fail(self._died(reason))
        self._end(reason)
        if not ended_before and task is not None and not task.done() and not self.loop.is_closed():
            task.cancel()
        if done is not None:
            done._answer(not ended_before)

    def _crash(self, error: BaseException) -> None:
        """End at once, because the regular end has raised."""
        if self.actor_stopped.ended:
            return
        logger.error("%s crashed", type(self).__name__, exc_info=error)
        self._close(error)
        self._abort(error)

    def _loop_closed(self) -> None:
        error = self._died(None, "its event loop was closed")
        self._close(error)
        self._abort(error)

    def _died(self, error: BaseException | None, cause: str | None = None) -> ActorDied:
        died = ActorDied(
            actor_urn=self.actor_urn,
            actor_class=type(self).__name__,
            cause=cause or _cause(error),
        )
        died.__cause__ = error
        return died


class _AsyncCall(NamedTuple):
    """An async handler or hook to await, and what to do with its value or its exception."""

    coroutine: Coroutine[Any, Any, Any]
    then: Callable[[Any], _AsyncCall | None]
    failed: Callable[[BaseException], _AsyncCall | None]
    reply_to: Future[Any] | None


def _cause(error: BaseException | None) -> str:
    if error is None:
        return "it was stopped"
    try:
        return repr(error)
    except BaseException:  # a faulty __repr__ must not leave the ask without an answer
        return type(error).__name__


def _reply(reply_to: Future[Any] | None, value: Any) -> None:
    """Answer an ask, unless it is answered: by `stop_now`, or by the caller that set its future."""
    if reply_to is not None:
        reply_to._answer(value)
