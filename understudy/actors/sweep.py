"""`Sweep`: every now and then a runtime continues the runs that have no owner.

A crash of this host, or of another host, leaves such runs behind. `Runtime.recover` continues them
at once.
"""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

from understudy._base.clock import jittered
from understudy._base.lookout import Lookout
from understudy.actors.agent.messages import CheckDue
from understudy.actors.agent.phase import Phase
from understudy.actors.agent.run_outcomes import GOES_ON
from understudy.actors.agent.slot import AgentSlot
from understudy.actors.agent_host import AgentHost
from understudy.actors.hosts.recovery import Progress, Recovering
from understudy.actors.reads.feed import FeedOptions
from understudy.errors import OwnedElsewhere
from understudy.journal import IndexStatus, StoredAgent, index_status_of
from understudy.outcomes import Outcome

AT_ONCE = 32
"""The most agents that run at a time because of a sweep, until each makes progress."""
DUES_SECONDS = 30.0
"""Seconds between two reads of the store's index of dues where there is no sweep."""
NOTES_SECONDS = 600.0
"""Seconds between two looks for notes beside requests that have ended."""
LONGEST_BACKOFF = 3600.0
TOMBSTONES_KEPT = timedelta(days=30)
"""The time for which a deletion's time and author are kept; longer if anything names the agent."""
MOST_PAUSE = 0.2
"""The most seconds that a host waits, by chance, before it continues runs of a dead host."""


class Sweep:
    """Looks every now and then for runs without an owner, and for agents that are due.

    Args:
        agent_host: whose agents.
        seconds: between two sweeps; the first one comes as long after the start. None = only the
            agents that are due are looked for.
        feed: how long the feed of the store is kept; None = this runtime removes nothing of it.

    """

    def __init__(
        self, agent_host: AgentHost, seconds: float | None, feed: FeedOptions | None
    ) -> None:
        self._feed = feed
        self._host = agent_host
        self._seconds = seconds
        services = agent_host.services
        hints = None
        if seconds is not None and services.shared_store is not None:
            hints = services.shared_store.dead_hosts  # by which it sweeps at once
        self._lookout = Lookout(
            "which runs have no owner", self._period, self._look, services.start_task, hints
        )
        self._recovering = Recovering(Progress(), at_once=AT_ONCE, on_end=self._ended)
        self._tries: dict[str, tuple[int, float]] = {}
        """How often in a row an agent was found, and when it is tried again, by agent id."""

        self._notes_at = 0.0
        """The loop's time of the next look for notes beside requests that have ended."""

    def open(self) -> None:
        """Begin to sweep, by real time, whatever the clock of the runtime is."""
        self._lookout.begin()

    def hint(self) -> None:
        """Sweep at once, as this host takes agents again or a freeze is over."""
        self._tries.clear()  # who got no further may get further now
        self._lookout.hint()

    def close(self) -> None:
        """Stop sweeping."""
        self._lookout.close()

    def _period(self) -> float:
        return jittered(self._seconds or DUES_SECONDS)

    async def _look(self, is_hinted: bool) -> None:
        if is_hinted:
            await asyncio.sleep(random.uniform(0, MOST_PAUSE))  # noqa: S311 - all hosts see it
        await self._host.dues.refresh()
        if self._seconds is not None:
            await self._continue_what_is_left()
        services = self._host.services
        if self._feed is not None:
            before = self._feed.before(services.clock.now())
            await services.store.trim_feed(before, self._feed.events)
        await services.store.delete_old_tombstones(services.clock.now() - TOMBSTONES_KEPT)
        # The keys of calls that were done so long ago that they count no longer.
        await services.store.delete_old_keys(services.clock.now())
        # What is written beside requests goes 30 days after them: a look now and then is enough.
        if services.loop.time() >= self._notes_at:
            self._notes_at = services.loop.time() + NOTES_SECONDS
            await services.store.sweep_notes(services.clock.now())

    async def _continue_what_is_left(self) -> None:
        """Continue the runs that have no owner, of agents whose definition is known here.

        An agent that gets no further is tried less and less often.
        """
        services, directory = self._host.services, self._host.directory
        here, stops = services.host, services.runs.trust.stops
        found: dict[str, StoredAgent] = {}
        async for stored in services.store.agents(GOES_ON):
            if stops is not None and stops.of_agent((stored.agent,)) is not None:
                continue  # it is looked for again after the thaw
            is_readable = stored.damage is None
            if is_readable and stored.host in (None, here) and directory.may_run(stored.agent):
                found[stored.agent_id] = stored
        await self._do_what_was_posted()
        self._tries = {id: tried for id, tried in self._tries.items() if id in found}
        others: list[AgentSlot] = []
        suspects: list[AgentSlot] = []
        for stored in found.values():
            if self._is_to_be_tried(stored):
                slot = directory.get(stored.agent_id)
                (suspects if stored.index_status is IndexStatus.SUSPECT else others).append(slot)
        if others or suspects:
            services.start_task(self._recovering.run(others, suspects), "continuing what is left")

    async def _do_what_was_posted(self) -> None:
        """Claim agents without an owner, to do posted calls whose hosts may be gone as well."""
        shared, directory = self._host.services.shared_store, self._host.directory
        if shared is None or self._host.services.calls is None:
            return
        await shared.delete_lost_replies()
        for agent_id, name in await shared.orphans(AT_ONCE):
            if directory.may_run(name):
                directory.get(agent_id).post(CheckDue())

    def _is_to_be_tried(self, stored: StoredAgent) -> bool:
        # Race: this against `recover`, or an earlier sweep. An agent that is activated, or whose
        # progress is waited for, is left to that
        # (test_a_sweep_and_a_recover_at_once_continue_each_agent_once).
        agent_id = stored.agent_id
        slot = self._host.directory.find(agent_id)
        if agent_id in self._recovering.under_way:
            return False
        # A copy that another host has gone on from runs nothing
        # (test_a_stale_copy_does_not_keep_a_sweep_from_going_on_with_the_run).
        if (
            slot is not None
            and not slot.drop_if_older(stored.epoch)
            and (slot.phase is not Phase.PASSIVE or slot.on_progress)
        ):
            return False
        tries, not_before = self._tries.get(agent_id, (0, 0.0))
        now = self._host.services.loop.time()
        if now < not_before:
            return False
        seconds = min(DUES_SECONDS * 2**tries, LONGEST_BACKOFF)
        self._tries[agent_id] = (min(tries + 1, 16), now + seconds)
        return True

    def _ended(self, agent_id: str, end: Outcome | Exception | None) -> None:
        """Forget how often an agent was tried, unless it got no further."""
        # Another host was first. If that one leaves it, it is as new. One that this host gave away
        # is not: that one may give it back at once, again and again
        # (test_a_run_that_another_host_was_first_to_go_on_with_is_gone_on_with_behind_it).
        is_elsewhere = isinstance(end, OwnedElsewhere) and not end.must_post
        # No sweep may look before the next host leaves it
        # (test_an_agent_that_hosts_leave_one_after_the_other_is_gone_on_with_each_time).
        is_at_rest = isinstance(end, Outcome) and index_status_of(end.state) not in GOES_ON
        if is_elsewhere or is_at_rest:
            self._tries.pop(agent_id, None)
