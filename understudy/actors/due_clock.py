"""`DueClock`: activates each agent when something of it is due.

Each runtime has one due clock, with one timer. It knows the next dues from the store's index and
from the agents in memory. A tick is no fact: the agent asks its own state what is due. So it does
not matter how often an agent is told, or by how many hosts: one host claims the agent, and what is
recorded is not due any more.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from datetime import datetime, timedelta, timezone

from understudy._base.clock import NEAR, TimerClock, jittered
from understudy._base.clock_waits import DueWork
from understudy._base.json_values import text_of
from understudy._base.log_fields import log_extra
from understudy.actors.agent.directory import Directory
from understudy.actors.agent.messages import CheckDue
from understudy.actors.agent.phase import Phase
from understudy.actors.agent.runs import timers
from understudy.errors import Fenced, OwnedElsewhere, UnfitHost, UnknownAgent
from understudy.journal import StoredAgent

logger: logging.Logger = logging.getLogger(__name__)

SET_BACK = timedelta(milliseconds=10)
"""The time by which a clock lags behind the monotonic clock, from which on it counts as set back. A
smaller lag is that of a slow clock."""
MOST = 1000
"""The most dues of the store that are kept in memory: the next ones. A million later dues cost
nothing."""
AT_ONCE = 32
"""The most agents that are told at a time."""
PATIENCE = 10.0
"""Seconds after which an agent that does not answer counts as told, and has its place no longer."""
GROUP_SECONDS = 0.25
"""The most seconds that due agents wait for the agents that were told before them."""
LONGEST_BACKOFF = 300.0

_NEVER = datetime.max.replace(tzinfo=timezone.utc)
_AT_ONCE = datetime.min.replace(tzinfo=timezone.utc)


class DueClock:
    """Tells agents that they are due. Lives on the runtime's loop.

    Args:
        directory: of the agents of the runtime.

    """

    def __init__(self, directory: Directory) -> None:
        self._services = directory.services
        self._directory = directory
        self._known: dict[str, datetime] = {}
        """The next dues of the store and of agents in memory, by agent id."""
        self._order: list[tuple[datetime, str]] = []
        """The entries of `_known` as a heap. An entry is void if `_known` has another time."""
        self._near: list[tuple[float, str, datetime]] = []
        """The near dues that agents here have said, as a heap: each with the monotonic second at
        which it has come. An entry is void if `_known` has another time."""
        self._ends: dict[str, datetime] = {}
        """The due for which `_near` has an entry, by agent id."""
        self._read_until = _NEVER
        """The time up to which the store's dues are known; then the index is read again."""
        self._telling: set[str] = set()
        self._said: dict[str, datetime | None] = {}
        """The dues that agents have said while they were being told, by agent id."""
        self._tries: dict[str, int] = {}
        """The number of failures in a row to tell an agent, by agent id."""
        self._timer = DueWork(
            self._services.clock,
            self._next,
            self._work,
            lambda work: self._services.start_task(work, "dues"),
        )

    # -------------------------------------------------------------------- life cycle

    def open(self) -> None:
        """Begin to tell agents, after the first `refresh`. Agents that are due are told at once."""
        self._services.start_task(self.refresh(), "dues")
        self._timer.open()

    def close(self) -> None:
        """Tell no agent any more."""
        self._timer.close()

    async def refresh(self) -> None:
        """Read the store's dues again: other hosts write to them, and go away."""
        store = self._services.store
        try:
            here, until, found = self._services.host, _NEVER, 0
            async for stored in store.due(until):
                if stored.host not in (None, here) or not self._is_to_be_told(stored):
                    continue
                assert stored.due is not None, "the index finds agents by their due times"
                # Race: the agent may have said an earlier time since this was read
                # (test_what_becomes_due_while_the_index_is_read_is_not_late).
                if stored.due < self._known.get(stored.agent_id, _NEVER):
                    self._note(stored.agent_id, stored.due)
                found += 1
                if found == MOST:
                    until = stored.due
                    break
            self._read_until = until
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # a SystemExit of a store would end the loop
            logger.error("which agents are due cannot be read: %s", text_of(error))
            return  # the sweep reads it again
        if until is not _NEVER:
            is_active = self._directory.is_active
            self._known = {
                id: due for id, due in self._known.items() if due <= until or is_active(id)
            }
        self._timer.look()

    def _is_to_be_told(self, stored: StoredAgent) -> bool:
        """Whether the agent can be told. An agent with a run task looks when that ends."""
        slot = self._directory.find(stored.agent_id)
        return (
            stored.damage is None
            and self._directory.may_run(stored.agent)
            and stored.agent_id not in self._tries
            and stored.agent_id not in self._telling
            and (slot is None or not slot.phase.has_run_task)
        )

    # ------------------------------------------------------------------ what is known

    def tell(self, agent_id: str, due: datetime | None) -> None:
        """Note when an agent is due next; None for never. Called on the loop."""
        if agent_id in self._telling:
            self._said[agent_id] = due  # it is believed once it has recorded what was due
            return
        if self._known:
            self._known.pop(agent_id, None)
        if due is not None:
            self._note(agent_id, due)
            self._measure(agent_id, due)
            self._timer.look()

    def _measure(self, agent_id: str, due: datetime) -> None:
        """Have a near due come by the monotonic clock, too, from when it was said first."""
        if self._ends.get(agent_id) == due or isinstance(self._services.clock, TimerClock):
            return
        now, seconds = self._timer.now(), self._seconds()
        if now is not None and seconds is not None and due > now:
            left = (due - now).total_seconds()
            if left <= NEAR:
                self._ends[agent_id] = due
                heapq.heappush(self._near, (seconds + left, agent_id, due))

    def _note(self, agent_id: str, due: datetime) -> None:
        if self._known.get(agent_id) != due and agent_id not in self._tries:
            self._put(agent_id, due)

    def _put(self, agent_id: str, due: datetime) -> None:
        self._known[agent_id] = due
        heapq.heappush(self._order, (due, agent_id))
        if len(self._order) > 2 * len(self._known) + 64:  # most of its entries are void
            self._order = [(due, agent_id) for agent_id, due in self._known.items()]
            heapq.heapify(self._order)

    def _take_due(self, now: datetime, places: int) -> list[tuple[str, datetime]]:
        """The agents that are due now, in the order of their due times, at most `places`.

        Each with the time that it is by then: the clock may have been set back.
        """
        taken: list[tuple[str, datetime]] = []
        while self._order and self._order[0][0] <= now and len(taken) < places:
            due, agent_id = heapq.heappop(self._order)
            if self._known.get(agent_id) == due:
                del self._known[agent_id]
                taken.append((agent_id, now))
        seconds = self._seconds() if self._near else None
        while seconds is not None and len(taken) < places and self._near:
            if self._near[0][0] > seconds:
                break
            _, agent_id, due = heapq.heappop(self._near)
            if self._ends.get(agent_id) == due:
                del self._ends[agent_id]
            if self._known.get(agent_id) == due:
                del self._known[agent_id]
                taken.append((agent_id, max(now, due)))
        return taken

    def _next(self, now: datetime) -> datetime | None:
        """The time of the next due, or of the next read of the store's index."""
        while self._order and self._known.get(self._order[0][1]) != self._order[0][0]:
            heapq.heappop(self._order)
        times = [self._order[0][0]] if self._order else []
        if self._read_until is not _NEVER:
            times.append(self._read_until)
        at = min(times, default=None)
        if at is not None and self._near and (seconds := self._seconds()) is not None:
            near = now + timedelta(seconds=self._near[0][0] - seconds)
            # The sum, not a difference: `at` may be the earliest time that there is
            # (test_an_agent_that_cannot_be_told_that_it_is_due_keeps_no_other_waiting).
            at = near if near + SET_BACK < at else at
        return at

    def _seconds(self) -> float | None:
        """The monotonic seconds; None while the application's clock raises."""
        try:
            return self._services.clock.monotonic()
        except BaseException:  # a SystemExit of it would end the loop; the time of day counts then
            return None

    # -------------------------------------------------------------------- telling

    async def _work(self) -> None:
        telling: set[asyncio.Task[None]] = set()
        start_task = self._services.start_task
        # Who advances a clock waits until all are told. By any other clock time goes on meanwhile,
        # and one agent that does not answer makes no other one late
        # (test_an_agent_that_does_not_answer_keeps_no_other_waiting).
        waits = None if isinstance(self._services.clock, TimerClock) else GROUP_SECONDS
        try:
            while (now := self._timer.now()) is not None:
                taken = self._take_due(now, AT_ONCE - len(telling))
                telling.update(start_task(self._tell(*each), "dues") for each in taken)
                if taken:
                    _, telling = await asyncio.wait(telling, timeout=waits)
                # Where there is no place, what is read can't be told, and those that have answered
                # would keep theirs
                # (test_more_overdue_agents_than_are_known_at_once_are_all_told).
                elif self._read_until <= now and len(telling) < AT_ONCE:
                    self._read_until = _NEVER  # if this fails, the sweep reads it
                    await self.refresh()
                elif telling:
                    _, telling = await asyncio.wait(
                        telling, timeout=waits, return_when=asyncio.FIRST_COMPLETED
                    )
                else:
                    break
        finally:
            for task in telling:
                task.cancel()

    async def _tell(self, agent_id: str, now: datetime) -> None:
        """Tell one agent, and wait until it has recorded what it makes of it."""
        failure: BaseException | None = None
        self._telling.add(agent_id)
        try:
            done = self._directory.get(agent_id).post(CheckDue(now))
            async with asyncio.timeout(PATIENCE):
                await done
        except TimeoutError:
            what = "agent %r is due, and does not answer yet"
            logger.warning(what, agent_id, extra=log_extra(agent_id))
        except (OwnedElsewhere, UnfitHost, UnknownAgent):
            self._said[agent_id] = None  # another host tells it, or it is deleted
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            failure = error
        finally:
            self._telling.discard(agent_id)
        due, slot = self._said.pop(agent_id, None), self._directory.find(agent_id)
        if slot is not None and slot.phase is not Phase.PASSIVE:
            # Race: what it has said meanwhile against its look at what is due. It may have left
            # memory before that look, or its run may have come to rest
            # (test_an_agent_that_leaves_memory_as_it_is_told_is_no_defect).
            due = timers.due_by_now(slot)
        if failure is None and due is not None and due <= now:
            failure = RuntimeError("it is still due")  # a defect: it must not be told in a circle
        if failure is not None:
            self._try_again(agent_id, failure)
            return
        self._tries.pop(agent_id, None)
        self.tell(agent_id, due)

    def _try_again(self, agent_id: str, error: BaseException) -> None:
        """Tell the agent later, after a growing pause. Only the first failure in a row is logged.

        It is no trouble that another host has taken the agent meanwhile: that one tells it.
        """
        tries = self._tries[agent_id] = self._tries.get(agent_id, 0) + 1
        if tries == 1:
            level = logging.INFO if isinstance(error, Fenced) else logging.ERROR
            what = "agent %r is due, and could not be told: %s"
            logger.log(level, what, agent_id, text_of(error), extra=log_extra(agent_id))
        seconds = jittered(min(2.0**tries, LONGEST_BACKOFF))
        self._services.loop.call_later(seconds, self._note_again, agent_id)

    def _note_again(self, agent_id: str) -> None:
        self._put(agent_id, _AT_ONCE)
        self._timer.look()
