"""`Observer`: looks at the agents of a store that runtimes have open, and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar, overload

from understudy._base.clock import SharedClock
from understudy._base.json_values import shown
from understudy.actors.agent.directory import Directory, checked_id
from understudy.actors.agent.events import AgentEvent, StoredEvents, position_of
from understudy.actors.agent.histories import Histories
from understudy.actors.agent.stored_agents import (
    AgentInfo,
    info_of,
    stored_events,
    stored_state,
    unknown_agent,
)
from understudy.actors.displays import DisplaySubscription, recorded, stored_display
from understudy.actors.opened import Opened
from understudy.actors.reads.feed import Feed, Start
from understudy.actors.reads.recorded_events import RecordedEvents
from understudy.actors.reads.rule_trials import try_rules
from understudy.actors.reads.store_views import OTHER
from understudy.agent.agent import Agent
from understudy.agent.rule_checks import known_tools
from understudy.display import DisplayUpdate
from understudy.errors import UsageError
from understudy.history import HistoryPage, check_page
from understudy.journal import DatabaseStore, StoredAgent
from understudy.journal.opening import open_reader
from understudy.journal.reads import DatabaseReads
from understudy.journal.spending import CounterSums
from understudy.loop_actors.future import Future
from understudy.state.agent_state import AgentState
from understudy.state.blobs import checked_hashes
from understudy.trust.fold import RegisteredRules, TrustState, apply_fact
from understudy.trust.freezes import Freeze
from understudy.trust.rules import Rules
from understudy.trust.trial import Trial

T = TypeVar("T")


class Observer(Opened):
    """A reader of a store, beside the runtimes that use it. It takes no lock and owns no agent.

    It shows what is durable. Its methods are methods of a `Runtime` or a ref and return futures as
    they do. Each method reads in short transactions. No definition is needed.

    Args:
        store: `"sqlite:///path"` or `"postgresql://..."`; or a `DatabaseStore` that is not
            open.

    Raises:
        UsageError: for any other store.
        StoreUnavailable, StoreBroken, StoreDamaged: by `with` and `async with`, if the store
            cannot be read.
        SchemaVersionError: by `with` and `async with`, if the store has another format.

    """

    _closed_too_soon = "the Observer was closed before it answered"

    def __init__(self, store: str | DatabaseStore) -> None:
        super().__init__()
        self._store: DatabaseReads = open_reader(store)
        self._clock = SharedClock(lambda: self._store.time_offset)
        self._directory = Directory([])
        self._histories = Histories(self._store)
        self._tasks: set[asyncio.Task[None]] = set()

    async def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        await self._store.open_to_read()

    async def _close(self, timeout: float | None) -> None:
        self._loop = None  # from now on calls are refused
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._store.disconnect()

    # ------------------------------------------------------------------- looking

    def try_rules(
        self,
        rules: Rules,
        *,
        since: datetime | timedelta | None = None,
        agents: Iterable[Agent[Any, Any]] = (),
    ) -> Future[Trial]:
        """Return what rules would have said about the recorded calls. Nothing is changed.

        Agents are read one after the other, page by page, so little is in memory at a time.

        Args:
            rules: the rules to try.
            since: a time, or a duration before now. Calls that ended earlier are left out.
            agents: today's definitions. With them, rules see arguments as a runtime shows them,
                with defaults and former names. Without them, rules see arguments as the model
                wrote them.

        """
        if not isinstance(rules, Rules):
            raise UsageError(f"try_rules() takes Rules(...), got {shown(rules)}")
        known = known_tools(agents := list(agents)) if agents else None
        return self._call(lambda: try_rules(self._store, rules, self._time_of(since), known))

    def registered_rules(self) -> Future[RegisteredRules | None]:
        """Return the newest rules that hold for the whole store; None if no rules were
        registered.
        """
        return self._call(self._trust_state).map(lambda state: state.rules)

    def freezes(self) -> Future[list[Freeze]]:
        """Return what is frozen now, the oldest freeze first."""
        return self._call(self._trust_state).map(lambda state: list(state.freezes.values()))

    async def _frozen(self) -> list[Freeze]:
        return list((await self._trust_state()).freezes.values())

    async def _trust_state(self) -> TrustState:
        state = TrustState()
        for fact in await self._store.trust_after(0):
            state = apply_fact(state, fact)
        return state

    def counters(self) -> Future[Sequence[CounterSums]]:
        """Return what runtimes have counted for budgets, by the names under which the store keeps
        them.

        Only a runtime with the budgets knows their limits.
        """
        return self._call(self._store.stored_counters)

    def _time_of(self, since: datetime | timedelta | None) -> datetime | None:
        return self._clock.now() - since if isinstance(since, timedelta) else since

    def state(self, id: str) -> Future[AgentState]:
        """Return the state of an agent; the future raises `UnknownAgent` if there is none."""
        checked_id(id)
        return self._call(lambda: stored_state(self._store, id))

    def info(self, id: str) -> Future[AgentInfo]:
        """Return the agent as `agents()` lists it; the future raises `UnknownAgent` if there is
        none.
        """
        checked_id(id)
        return self._call(lambda: self._row(id)).map(info_of)

    def history(
        self, id: str, *, after: int = 0, limit: int = 100, before: int | None = None
    ) -> Future[HistoryPage]:
        """Return a page of the history of an agent; see `ref.history`.

        Raises:
            UsageError: for a bad id, and as `ref.history`.

        """
        checked_id(id)
        check_page(after, limit, before)
        return self._call(lambda: self._histories.page(id, after, limit, before))

    def display(
        self, id: str, *, after: int | None = 0, limit: int | None = None
    ) -> Future[DisplayUpdate]:
        """Return the rows of an agent for a chat screen; see `ref.display`.

        No definition is needed, because the texts are recorded.

        Raises:
            UsageError: for a bad id, `after` below 0 or `limit` below 1.

        """
        checked_id(id)
        after = 0 if after is None else after
        check_page(after, 1 if limit is None else limit)
        return self._call(lambda: stored_display(self._store, id, after, limit))

    def load_blobs(self, id: str, hashes: Sequence[str]) -> Future[dict[str, bytes]]:
        """Return the bytes that the store keeps of an agent's files; see `ref.load_blobs`.

        Raises:
            UsageError: for a bad id, or a value that is not a hash.

        """
        checked_id(id)
        wanted = checked_hashes(hashes)
        return self._call(lambda: self._store.load_blobs(id, wanted)).map(dict)

    @overload
    def events(self, id: str, after: int | str = 0) -> Future[list[AgentEvent]]: ...
    @overload
    def events(self, *, after: str | None = None, start: Start = "now") -> Feed: ...
    def events(
        self, id: str | None = None, after: Any = None, start: Start = "now"
    ) -> Future[list[AgentEvent]] | Feed:
        """Return the recorded events of one agent until now; without `id`, as `Runtime.events`.

        Args:
            id: the id of the agent. For live events use a ref.
            after: with `id`, the number or the position of the last event that you have;
                without `id`, a cursor.
            start: as of `Runtime.events`.

        Raises:
            UsageError: for a bad id, cursor, position or `start`, or a number below 0.

        """
        if id is None:
            return self._feed(after, start)
        checked_id(id)
        begin = position_of(0 if after is None else after)

        async def events() -> list[AgentEvent]:
            await self._row(id)
            found = StoredEvents([], begin.seq, more=True)
            events: list[AgentEvent] = []
            while found.more:
                found = await stored_events(self._store, id, found.last)
                events += (event for event in found.events if not begin.has(event))
            return events

        return self._call(events)

    # -------------------------------------------------------------------- inside

    async def _row(self, id: str) -> StoredAgent:
        row = await self._store.find_agent(id)
        if row is None:
            raise await unknown_agent(self._store, id)
        return row

    def _versions(self) -> tuple[str, ...]:
        raise UsageError(f"`version` must be a fingerprint here: {OTHER!r} is of a runtime alone")

    def _has_ended(self) -> bool:
        return self._loop is None

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class ObservedAgent:
    """One agent of an observer, with the calls of an `AgentRef` that look at it.

    Args:
        observer: reads the store.
        id: of the agent.

    """

    def __init__(self, observer: Observer, id: str) -> None:
        self.state: partial[Future[AgentState]] = partial(observer.state, id)
        self.info: partial[Future[AgentInfo]] = partial(observer.info, id)
        self.history: partial[Future[HistoryPage]] = partial(observer.history, id)
        self.load_blobs: partial[Future[dict[str, bytes]]] = partial(observer.load_blobs, id)
        self.display: partial[Future[DisplayUpdate]] = partial(observer.display, id)
        self._recorded = partial(RecordedEvents, observer._call, observer._store, id)

    def display_events(self, after: int = 0) -> DisplaySubscription:
        """Return the recorded rows that change, as they change; see `AgentRef.display_events`."""
        check_page(after, 1)
        return DisplaySubscription(self._recorded(0, recorded), after, None)

    def events(self, after: int | str = 0) -> RecordedEvents:
        """Return the recorded events, from the store and as they come; see `AgentRef.events`."""
        return self._recorded(after)
