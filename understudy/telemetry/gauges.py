"""`Gauges`: the current values of a store, from its index, for collectors of metrics.

Each runtime reports the whole store: of several hosts take the greatest value, not the sum.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from datetime import timedelta
from itertools import chain
from typing import Any

from opentelemetry.metrics import Observation

from understudy._base.event_loops import call_on
from understudy.actors.agent.events import Status
from understudy.actors.agent.services import RuntimeServices
from understudy.actors.budgets import BudgetDesk
from understudy.journal import IndexStatus
from understudy.journal.lists import AskQuery
from understudy.run.account import BudgetKeeper
from understudy.telemetry import conventions as c
from understudy.telemetry.guarded import failed
from understudy.telemetry.meters import Meters

MOST = 1000
"""The maximum count of requests, doubts, agents in quarantine and overdue agents."""
LATE = timedelta(seconds=60)
"""The time after which due work counts as overdue: a runtime looks more often."""
PATIENCE = 5.0
"""The seconds that a collection waits for the store. Then it gets the values read before."""

Values = dict[str, list[Observation]]
_READ = (
    c.AGENTS,
    c.OPEN_REQUESTS,
    c.OLDEST_REQUEST,
    c.OPEN_DOUBTS,
    c.QUARANTINED,
    c.OVERDUE,
    c.BUDGET_USED,
    c.BUDGET_LIMIT,
)
_NOT_ADDED = (c.OLDEST_REQUEST, c.BUDGET_USED, c.BUDGET_LIMIT)
_FEW = {"definition", "tool"}
"""The keys of budgets that are reported: there are few definitions and tools."""


class Gauges:
    """The gauges of all runtimes that a `Telemetry` watches.

    Args:
        meters: the meters of the metrics.
        every: the seconds for which read values are reported again.

    """

    def __init__(self, meters: Meters, *, every: float) -> None:
        self._every = every
        self._hosts: dict[int, _HostGauges] = {}
        for metric in _READ:
            meters.observe(metric, self._reading(metric))
        meters.observe(c.COMMIT_QUEUE, self._queues)

    def add(self, services: RuntimeServices[Any, Any]) -> None:
        """Measure this runtime, from its loop."""
        self._hosts = {**self._hosts, id(services): _HostGauges(services, self._every)}

    def remove(self, services: RuntimeServices[Any, Any]) -> None:
        """Measure it no longer."""
        self._hosts = {key: host for key, host in self._hosts.items() if key != id(services)}

    def _reading(self, metric: c.Metric) -> Callable[[], Iterable[Observation]]:
        def read() -> Iterable[Observation]:
            values = [host.values().get(metric.name, ()) for host in self._hosts.values()]
            join = max if metric in _NOT_ADDED else sum
            return _joined(chain.from_iterable(values), join)

        return read

    def _queues(self) -> Iterable[Observation]:
        queues = [
            Observation(queued, host.attributes)
            for host in self._hosts.values()
            if (queued := getattr(host.services.store, "queued", None)) is not None
        ]
        return _joined(queues, sum)


def _joined(
    found: Iterable[Observation], join: Callable[[list[float]], float]
) -> list[Observation]:
    """One value for all with the same attributes, because an SDK keeps only the last.

    Such values come from runtimes with separate stores: hosts of one store have names.
    """
    values: dict[tuple[tuple[str, Any], ...], list[float]] = {}
    for each in found:
        values.setdefault(tuple(sorted((each.attributes or {}).items())), []).append(each.value)
    return [Observation(join(each), dict(attributes)) for attributes, each in values.items()]


class _HostGauges:
    def __init__(self, services: RuntimeServices[Any, Any], every: float) -> None:
        self.services = services
        self.attributes: Mapping[str, str] = {c.HOST: services.host or "local"}
        self._every = every
        self._lock = threading.Lock()
        self._values: Values = {}
        self._kinds = {"approval"}
        self._read_at = float("-inf")
        self._reading: Future[None] | None = None
        self._given_up: Future[None] | None = None
        """The read for which a collection has waited too long; None if there is none."""

    def values(self) -> Values:
        """The values read last, at most `every` seconds ago if the store answers."""
        with self._lock:
            is_old = time.monotonic() - self._read_at > self._every
            if is_old and self._reading is None:
                self._reading = Future()
                call_on(self.services.loop, self._begin, self._reading)
            reading = self._reading
        waits = reading is not None and reading is not self._given_up and not self._is_here()
        # The wait is limited: a collection has a time limit, and a store may be away for hours. It
        # happens only once, although each of the metrics reads
        # (test_a_collection_waits_once_for_a_loop_that_is_blocked).
        if waits and reading is not None and not wait([reading], timeout=PATIENCE).done:
            self._given_up = reading
        return self._values

    def _is_here(self) -> bool:
        """Whether this thread runs the loop that would have to read."""
        try:
            return asyncio.get_running_loop() is self.services.loop
        except RuntimeError:
            return False

    def _begin(self, reading: Future[None]) -> None:
        if self.services.closing:
            self._done(reading)
            return
        task = self.services.start_task(self._read(), name="telemetry gauges")
        task.add_done_callback(lambda _: self._done(reading))

    def _done(self, reading: Future[None]) -> None:
        with self._lock:
            self._reading, self._read_at = None, time.monotonic()
        reading.set_result(None)

    async def _read(self) -> None:
        try:
            self._values = await self._measured()
        except Exception:
            failed("reading the gauges from the store")
            self._values = {}  # no old values: an alert must not stay quiet when a store is away

    async def _measured(self) -> Values:
        store, now = self.services.store, self.services.clock.now()
        asks = await store.list_asks(AskQuery(), None, MOST)
        requests: Counter[str] = Counter()
        oldest = now
        for ask in asks:
            oldest = min(oldest, ask.asked_at) if ask.damage is None else oldest
            requests[_kind(ask)] += 1
        self._kinds |= set(requests)
        doubts = Counter({"asked": 0, "checked": 0, "told": 0})
        doubts.update(map(_state_of, await store.list_asks(AskQuery(kind="doubt"), None, MOST)))
        statuses = {status.value: 0 for status in Status if status is not Status.PASSIVE}
        statuses.update(await store.count_agents())
        quarantined = store.agents([IndexStatus.QUARANTINED])
        found: Values = {
            c.AGENTS.name: [
                self._value(count, {c.STATUS: status}) for status, count in statuses.items()
            ],
            # Zeros are reported too: a value that is not reported stays in a chart.
            c.OPEN_REQUESTS.name: [
                self._value(requests[kind], {c.REQUEST_KIND: kind}) for kind in sorted(self._kinds)
            ],
            c.OLDEST_REQUEST.name: [self._value((now - oldest).total_seconds())],
            c.OPEN_DOUBTS.name: [
                self._value(count, {c.DOUBT: state}) for state, count in sorted(doubts.items())
            ],
            c.QUARANTINED.name: [self._value(await _count(quarantined))],
        }
        found[c.OVERDUE.name] = [self._value(await _count(store.due(now - LATE)))]
        if self.services.budgets is not None:
            await self._add_budgets(self.services.budgets, found)
        return found

    async def _add_budgets(self, keeper: BudgetKeeper, found: Values) -> None:
        few = [budget for budget in keeper.all if _FEW.issuperset(budget.per)]
        if not few:
            return
        for use in await BudgetDesk(self.services, keeper).uses(few):
            about = {c.BUDGET: use.budget.name, c.BUDGET_UNIT: use.budget.unit}
            if use.key:
                about[c.BUDGET_KEY] = use.key
            for metric, value in ((c.BUDGET_USED, use.used), (c.BUDGET_LIMIT, use.limit)):
                found.setdefault(metric.name, []).append(self._value(float(value), about))

    def _value(self, value: float, attributes: Mapping[str, str] | None = None) -> Observation:
        return Observation(value, {**self.attributes, **(attributes or {})})


def _kind(ask: Any) -> str:
    try:
        kind: str = ask.requested().request.kind
    except Exception:  # a newer version, or damaged: the request waits nevertheless
        return "unknown"
    return kind


def _state_of(ask: Any) -> str:
    try:
        state: str = ask.doubt().state
    except Exception:  # as above
        return "unknown"
    return state


async def _count(found: Any) -> int:
    count = 0
    async for _ in found:
        count += 1
        if count == MOST:
            await found.aclose()
            break
    return count
