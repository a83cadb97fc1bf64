"""`Host`: one process of a cluster. It has a runtime, and calls it for the cluster."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import fields
from typing import Any

from understudy._base.security_log import asked_from
from understudy.actors import AgentRef, DisplaySubscription, Recovery, Runtime, Subscription
from understudy.actors.agent_ref import of_login
from understudy.actors.reads.listing import Listing
from understudy.cluster.definitions import Definitions, made
from understudy.cluster.engine import HostSpec
from understudy.cluster.frames import (
    Call,
    CannotStart,
    Drain,
    Greeting,
    Target,
    dump_answer,
    dumps,
    loads,
    portable_error,
)
from understudy.errors import UsageError
from understudy.journal.opening import host_name
from understudy.state.agent_state import AgentState
from understudy.state.loaded_later import Place

logger: logging.Logger = logging.getLogger(__name__)

_SETTINGS = [each for each in fields(Definitions) if each.name != "agents"]
MAX_EVENTS = 200
"""Events that wait for the cluster, of one subscription. Then the subscription itself keeps them,
and drops deltas."""


class Host:
    """Serves one line.

    Args:
        spec: what it is started with.
        node: the machine, as the engine calls it.
        send: sends a frame to the cluster. Never waits.

    """

    def __init__(self, spec: HostSpec, *, node: str, send: Callable[[bytes], None]) -> None:
        self._spec = spec
        self._node = node
        self._send = send
        self._ended = asyncio.Event()
        self._runtime: Runtime
        self._readers: dict[int, _Reader] = {}
        self._recoveries: dict[int, Recovery] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Run until a `Drain` comes, or `stop` is called. All agents are released then."""
        try:
            async with made(self._spec.factory) as definitions:
                # They are options of a runtime by the same names.
                made_here = {each.name: getattr(definitions, each.name) for each in _SETTINGS}
                options: dict[str, Any] = {**made_here, **self._spec.options}
                runtime = Runtime(definitions.agents, store=self._spec.store, **options)
                runtime._agent_host.has_peers = False
                async with runtime:
                    self._runtime = runtime
                    self._greet(definitions)
                    # What this host, or one that is gone, has left.
                    self._task(self._recover())
                    await self._ended.wait()
                    for reader in list(self._readers.values()):
                        reader.close()
                for task in list(self._tasks):
                    await asyncio.wait([task])  # they tell that the runtime has stopped
        except Exception as error:
            if not self._ended.is_set():
                told = portable_error(error)
                where = "".join(traceback.format_exception(error))
                told.add_note(f"In host {self._spec.name!r} of {self._spec.factory!r}:\n{where}")
                self._send(dumps(CannotStart(told)))
            raise

    def stop(self) -> None:
        """Release all agents, and end."""
        self._ended.set()

    def leave(self) -> None:
        """As `stop`, though the cluster has not said so: it asks another host what is left."""
        self._send = _unsent
        self._ended.set()

    def receive(self, frame: bytes) -> None:
        """Take a frame. What it calls is called in the order of the frames; it may answer later."""
        found = loads(frame)
        if isinstance(found, Drain):
            self.stop()
            return
        assert isinstance(found, Call), "nothing else is sent to a host"
        try:
            arguments, named, context, address = loads(found.arguments)
            codecs = self._runtime._agent_host.services.codecs
            with codecs.applied(context), asked_from(address):
                answer = self._called(found, arguments, named)
        except Exception as error:
            self._send(dump_answer(found.number, None, error))
            return
        self._task(self._answer(found.number, answer))

    def _greet(self, definitions: Definitions) -> None:
        names = tuple(agent.name for agent in definitions.agents)
        makes = definitions.factory is not None
        self._send(dumps(Greeting(os.getpid(), self._node, host_name(), names, makes)))

    async def _recover(self) -> None:
        try:
            await self._runtime.recover()
        except Exception:
            if not self._ended.is_set():
                logger.exception("host %r could not recover; its sweep does", self._spec.name)

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, number: int, answer: Any) -> None:
        try:
            value = await answer if inspect.isawaitable(answer) else answer
        except Exception as error:
            frame = dump_answer(number, None, error)
        else:
            frame = dump_answer(number, _sent(value), None)
        self._send(frame)

    def _called(self, call: Call, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        own = getattr(self, f"_asked_{call.method}", None)
        if own is not None:
            return own(call, *arguments, **named)
        target: Any = self._runtime if not call.target.id else self._agent(call.target)
        if call.method.startswith("schedules."):
            schedules = self._runtime.schedules(target)
            return getattr(schedules, call.method.partition(".")[2])(*arguments, **named)
        return getattr(target, call.method)(*arguments, **named)

    def _agent(self, target: Target) -> AgentRef:
        if target.agent is None:
            ref = self._runtime.get(target.id)
        else:
            ref = self._runtime.spawn(target.agent, target.id, values=target.values)
        return ref if target.caller is None else of_login(ref, target.caller)

    # ------------------------------------- calls that only a cluster makes, by `_asked_{method}`

    def _asked_ping(self, _call: Call) -> int:
        return os.getpid()

    def _asked_subscribe(self, call: Call, what: str, after: int | str) -> int:
        """Subscribe to an agent; the answer names the subscription."""
        ref = self._agent(call.target)
        self._readers[call.number] = _Reader(getattr(ref, what)(after))
        return call.number

    def _asked_next_events(self, _call: Call, number: int) -> Coroutine[Any, Any, list[Any]]:
        reader = self._readers.get(number)
        if reader is None:
            raise UsageError("the subscription is closed")
        return reader.next()

    def _asked_unsubscribe(self, _call: Call, number: int) -> None:
        reader = self._readers.pop(number, None)
        if reader is not None:
            reader.close()

    async def _asked_recovery(
        self, call: Call, at_once: int, by: str | None = None
    ) -> tuple[int, list[str], _Left]:
        """The number of a recovery, the agents that it continues, and those that it does not."""
        recovery = await self._runtime.recover(at_once=at_once, by=by)
        self._recoveries[call.number] = recovery
        return call.number, [ref.id for ref in recovery], _left(recovery)

    async def _asked_settled(self, _call: Call, number: int) -> _Left:
        """The agents that a recovery does not continue, once that is known of all."""
        return _left(await self._recoveries.pop(number).settled)

    def _asked_page(self, _call: Call, name: str, options: dict[str, Any]) -> Listing[Any]:
        listing: Listing[Any] = getattr(self._runtime, name)(**options)
        return listing

    async def _asked_read_feed(self, _call: Call, after: Any, limit: int) -> Any:
        store = self._runtime._agent_host.services.store
        if not hasattr(store, "read_feed"):
            raise UsageError(f"{store!r} keeps no feed")
        return await store.read_feed(after, limit)

    def _asked_state_at(self, call: Call, place: Place) -> Coroutine[Any, Any, AgentState]:
        """The state of an outcome."""
        return self._runtime._agent_host.services.looks.state_at(call.target.id, *place)


class _Reader:
    """Reads a subscription, for calls that take what has come."""

    def __init__(self, subscription: Subscription | DisplaySubscription) -> None:
        self._subscription = subscription
        self._events: asyncio.Queue[Any] = asyncio.Queue(MAX_EVENTS)
        self._error: Exception | None = None
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            async for event in self._subscription:
                await self._events.put(event)
        except Exception as error:
            self._error = error
        await self._events.put(None)

    async def next(self) -> list[Any]:
        """The events that have come; waits for the first. None of them: it has ended."""
        event = await self._events.get()
        found: list[Any] = []
        while event is not None:
            found.append(event)
            if self._events.empty():
                return found
            event = self._events.get_nowait()
        self._events.put_nowait(None)
        if not found and self._error is not None:
            raise self._error
        return found

    def close(self) -> None:
        self._subscription.close()
        self._task.cancel()
        while not self._events.empty():
            self._events.get_nowait()
        self._events.put_nowait(None)


_Left = dict[str, Exception]
"""The agents, by id, that are not continued, with the reasons."""


def _left(recovery: Recovery) -> _Left:
    return {id: portable_error(error) for id, error in recovery.left.items()}


def _unsent(frame: bytes) -> None:
    """Else the callers of what is under way here would be told that the runtime has stopped."""


def _sent(value: Any) -> Any:
    """A ref is sent as the id of its agent."""
    if isinstance(value, Recovery):
        return [ref.id for ref in value]
    return value.id if isinstance(value, AgentRef) else value
