"""The hosts of a story: runtimes that can be killed at a point, in this process or in a fork."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any, cast

from understudy.actors import Runtime, SimulatedClock
from understudy.actors.agent_ref import AgentRef, of_login
from understudy.agent.agent import Agent
from understudy.approvals import Caller
from understudy.errors import Fenced
from understudy.journal import Store
from understudy.journal.contracts import IndexStatus
from understudy.journal.index_status import WAITING, index_entry_of
from understudy.models.scripted_model import counts_by_conversation
from understudy.outcomes import Waiting
from understudy.state.agent_state import AgentState
from understudy.state.fold import apply
from understudy.state.next_due import next_due
from understudy.state.records import Record
from understudy.state.waits import is_woken, waits_of
from understudy.testing.effects import Effect, Effects, Gone, current_host
from understudy.testing.points import Entry, Watch

PATIENCE = 30.0
"""Seconds after which a call of a story counts as hanging, though nothing in a story takes time."""


_CHANGES = ("claim", "claim_to_keep", "compact", "delete", "add_trust")
WATCHED = ("journal", "release", *_CHANGES)
"""The methods of a store through which a host of a story writes."""


LOOK = 0.02
"""Seconds between two looks at an agent that has no outcome yet."""


class Killed(Exception):
    """The error of a host that was killed before it had answered."""


class Hangs(Exception):
    """The error of a call without an answer, when nothing happens any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The setting that the hosts of one play of a story share."""

    open_store: Callable[[], Store]
    """A function that opens the store, as a starting host does."""
    watch: Watch
    effects: Effects
    clock: SimulatedClock
    agents: dict[str, Agent] = field(default_factory=dict)
    """The agents by name. A deployment changes them."""
    deps: dict[str, Any] = field(default_factory=dict)
    """The deps of the agents' tools, by agent id. A fork has a copy of its moment."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of the runtimes."""
    thread: int = field(default_factory=threading.get_ident)
    """The id of the thread in which the test runs."""


class StoryHost(ABC):
    """A host of a story: it does what the callers of the story ask for."""

    @abstractmethod
    def do(self, verb: str, *given: Any) -> Any:
        """Do what a caller asks for; `verb` is a method of `_Verbs`.

        Raises:
            Killed: if the host was killed before it had answered.
            Hangs: if there is no answer.
            Exception: as the runtime raises it.

        """

    @abstractmethod
    def is_there(self) -> bool:
        """Whether the host is still alive."""

    @abstractmethod
    def end(self) -> bool:
        """Stop the host. Returns whether it was killed before it had ended."""


class _Verbs:
    """The calls of callers to a runtime, from another thread."""

    def __init__(self, runtime: Runtime, setting: Setting) -> None:
        self._runtime = runtime
        self._clock = setting.clock
        self._people = setting.options.get("people")

    def run(
        self, agent: str, id: str, prompt: Any, message_id: str, options: dict[str, Any]
    ) -> Any:
        ref = self._runtime.spawn(agent, id=id)
        return self._outcome(id, ref.run(prompt, message_id=message_id, **options))

    def send(
        self, agent: str, id: str, prompt: Any, message_id: str, options: dict[str, Any]
    ) -> Any:
        ref = self._runtime.spawn(agent, id=id)
        return _answer(ref.send(prompt, message_id=message_id, **options))

    def resume(self, id: str, decisions: Any, login: str | None = None) -> Any:
        return self._outcome(id, self._ref(id, login).resume(decisions))

    def decide(self, id: str, decisions: Any, login: str | None = None) -> None:
        _answer(self._ref(id, login).decide(decisions))

    def _ref(self, id: str, login: str | None) -> AgentRef:
        """The ref of an agent for a person with this login; None = for the host."""
        ref = self._runtime.get(id)
        if login is None:
            return ref
        return of_login(ref, Caller(name=login, assurance="login"))

    def people(self, method: str, name: str, role: str) -> None:
        getattr(self._people, method)(name, role)

    def cancel(self, id: str) -> Any:
        return self._outcome(id, self._runtime.get(id).cancel())

    def retry(self, id: str) -> Any:
        return self._outcome(id, self._runtime.get(id).retry())

    def outcome(self, id: str) -> Any:
        return self._outcome(id, self._runtime.get(id).outcome())

    def recover(self) -> None:
        recovery = _answer(self._runtime.recover())
        _answer(recovery.settled)

    def advance(self, seconds: float) -> None:
        _answer(self._clock.advance(seconds))

    def _outcome(self, id: str, future: Any) -> Any:
        """The outcome of a run; `Waiting` if it sleeps, or waits for the outside.

        Callers of a runtime would wait on. A story lets the time pass.
        """
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with suppress(TimeoutError):
                return future.get(timeout=LOOK)
            state = _answer(self._runtime.get(id).state())
            if state.run is not None and self._waits(state):
                return Waiting(
                    waits=waits_of(state, id),
                    run_id=state.run.run_id,
                    state=state,
                    usage=state.usage,
                )
        raise Hangs

    def _waits(self, state: AgentState) -> bool:
        """Whether nothing happens before more time passes, or a message comes."""
        due = next_due(state)
        is_due = due is not None and due <= self._clock.now()
        entry = index_entry_of(state)
        is_asleep = entry.agent_status == WAITING and entry.status is IndexStatus.WAITS
        return is_asleep and not is_due and not is_woken(state)


def _answer(future: Any) -> Any:
    try:
        return future.get(timeout=PATIENCE)
    except TimeoutError:
        raise Hangs from None


class _WithContext(ThreadPoolExecutor):
    """Threads whose functions belong to the host that called them, like the functions of its
    loop.
    """

    def submit(self, fn: Any, /, *given: Any, **keywords: Any) -> Any:
        return super().submit(copy_context().run, fn, *given, **keywords)


class InProcessHost(StoryHost):
    """A runtime on an event loop in a separate thread.

    It is killed by cutting it off: what was recorded before the point becomes durable, nothing is
    written afterwards, and what its code still does has no effect. Then the thread ends.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.is_dead: bool = False
        """Whether it was killed."""
        self._is_unwanted = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event = asyncio.Event()
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._journals: list[Any] = []
        self._verbs: _Verbs | None = None
        self.on_killed: Callable[[], None] | None = None
        """A function that is called on the loop once everything is durable; None if this process
        stays."""
        setting.effects.watched(self._had_effect, self._had_request)
        self._caller = ThreadPoolExecutor(1, thread_name_prefix="understudy-story-caller")
        self._thread = threading.Thread(target=self._live, name="understudy-story", daemon=True)
        self._thread.start()
        try:
            if not self._started.wait(PATIENCE):
                raise Hangs
        except BaseException:
            # The caller does not get this host, so it must be ended here, for instance after
            # Ctrl-C.
            self._is_unwanted = True
            raise
        if self._error is not None:
            raise self._error

    def do(self, verb: str, *given: Any) -> Any:
        if self.is_dead:
            self._join()
            raise Killed
        assert self._verbs is not None, "it has started"
        try:
            # It runs in a separate thread: the story may be a coroutine, whose loop must not be
            # blocked.
            answer = self._caller.submit(getattr(self._verbs, verb), *given).result()
        except Exception:
            if self.is_dead:
                self._join()
                raise Killed from None
            raise
        return answer

    def is_there(self) -> bool:
        if self.is_dead:
            self._join()  # the next host opens the same file
        return not self.is_dead

    def end(self) -> bool:
        if self._loop is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # the loop is closed by now
                self._loop.call_soon_threadsafe(self._over.set)
        self._join()
        return self.is_dead

    def _join(self) -> None:
        self._thread.join(PATIENCE)
        self._caller.shutdown(wait=False)
        if self._thread.is_alive():
            raise Hangs

    # ------------------------------------------------------------------- in its thread

    def _live(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # the story gets the error
            self._error = self._error or error
        finally:
            self._started.set()

    async def _main(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        loop.set_task_factory(cast("Any", self._task))
        loop.set_default_executor(_WithContext())
        setting, store = self.setting, self.setting.open_store()
        self._watch_over(store)
        runtime = Runtime(
            list(setting.agents.values()),
            store=store,
            clock=setting.clock,
            deps_for=setting.deps.get,
            **{"sweep": None, "idle_timeout": None, "stop_timeout": 0.001, **setting.options},
        )
        async with self._says_nothing_once_dead(), runtime:
            self._verbs = _Verbs(runtime, setting)
            self._started.set()
            if not self._is_unwanted:
                await self._over.wait()
            if self.is_dead:
                for journal in self._journals:
                    with suppress(Exception):  # an agent that is gone has nothing to write
                        await type(journal).durable_now(journal)
                if self.on_killed is not None:
                    self.on_killed()
        setting.watch.forget_calls()

    def _task(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, Any],
        context: Context | None = None,
        **options: Any,
    ) -> asyncio.Task[Any]:
        context = copy_context() if context is None else context
        context.run(current_host.set, self)
        context.run(counts_by_conversation.set, True)
        return asyncio.Task(work, loop=loop, context=context, **options)

    @asynccontextmanager
    async def _says_nothing_once_dead(self) -> AsyncIterator[None]:
        """Keep the errors of a runtime that is cut off on purpose out of the log."""
        thread = threading.get_ident()

        def is_said(record: logging.LogRecord) -> bool:
            return not (self.is_dead and record.thread == thread)

        known = list(logging.root.manager.loggerDict)
        names = [name for name in known if name.startswith(("understudy.", "pykka"))]
        loggers = [logging.getLogger(name) for name in names]
        for logger in loggers:
            logger.addFilter(is_said)
        try:
            yield
        finally:
            for logger in loggers:
                logger.removeFilter(is_said)

    # ------------------------------------------------------------------- what is written

    def _watch_over(self, store: Any) -> None:
        """Let the store write nothing more for this host once it is dead."""
        journal = store.journal

        def watched(owned: Any, agent: Any) -> Any:
            made = journal(owned, agent)
            # The class has slots, so nothing can be set on the object itself.
            made.__class__ = _watched_class(type(made), self, agent)
            self._journals.append(made)
            return made

        store.journal = watched
        for name in _CHANGES:
            setattr(store, name, self._refused_when_dead(getattr(store, name)))
        release = store.release

        async def released(owned: Any, lost: Any = None) -> bool:
            return True if self.is_dead else bool(await release(owned, lost))

        store.release = released

    def _refused_when_dead(self, method: Callable[..., Any]) -> Callable[..., Any]:
        async def gated(*given: Any, **options: Any) -> Any:
            self.check("*")
            return await method(*given, **options)

        return gated

    def check(self, agent_id: str) -> None:
        """Raise `Fenced` if the host is dead."""
        if self.is_dead:
            raise Fenced(agent_id=agent_id, why="its host was killed by the test")

    def append(
        self, journal: Any, agent: Any, records: Sequence[Record], append: Callable[..., None]
    ) -> None:
        """Append records, unless the host is killed before them."""
        owned, watch = journal.owned, self.setting.watch
        self.check(owned.agent_id)
        first = owned.last_seq + 1
        if watch.before(owned.agent_id, first, records):
            self._die()
            self.check(owned.agent_id)
        append(journal, records)
        if watch.after(owned.agent_id, first, records):
            # No further line of the agent's code runs. So the records are folded here, because the
            # index entry follows from the state.
            state = agent.ledger_state()
            for record in records:
                apply(state, record)
            self._die()
            self.check(owned.agent_id)

    def _had_effect(self, effect: Effect) -> None:
        if current_host.get() is None and threading.get_ident() == self.setting.thread:
            # It belongs to the test, which no crash of a host cuts off.
            self.setting.watch.note(Entry(what="adds", text=repr(effect.what)))
            return
        if self.setting.watch.after_effect(effect.what, effect.key):
            self._die()
            raise Gone

    def _had_request(self, remote: int, request: Effect) -> None:
        if not self.is_dead:
            self.setting.watch.note_request(remote, request.what, request.key)

    def _die(self) -> None:
        """End the process: from now on nothing is written, and nothing has an effect."""
        if not self.is_dead:
            self.is_dead = True
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._over.set)


def _watched_class(base: Any, host: InProcessHost, agent: Any) -> type[Any]:
    class Watched(base):  # type: ignore[misc]  # whichever class the journals of the store have
        __slots__ = ()

        def append(self, records: Sequence[Record]) -> None:
            host.append(self, agent, records, base.append)

        async def durable(self) -> None:
            host.check(self.owned.agent_id)
            await base.durable(self)

        async def durable_now(self) -> None:
            await base.durable(self)

    return Watched
