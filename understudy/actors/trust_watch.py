"""`TrustWatch`: keeps what a runtime knows of the log of trust up to date, and acts on it.

Other hosts say that they have added a fact: by a hint, by each renewal of the lease, and by the
commit of each start of a call. Nothing is read where nobody says it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import platform
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from functools import partial
from typing import Any

from understudy._base.lookout import Lookout, look_once
from understudy.actors.agent.services import RuntimeServices
from understudy.approvals import Caller
from understudy.state.trust_facts import FactContent
from understudy.state.trust_log import TrustFact
from understudy.trust.delegations import delegation_of, to_delegate, to_end
from understudy.trust.fold import Delegation, RegisteredRules, TrustState
from understudy.trust.rules import Rules
from understudy.trust.trust import Trust

logger: logging.Logger = logging.getLogger(__name__)
_HOLDING = "whether other hosts know that no call starts here"
FIRST_LOOK, LONGEST_LOOK = 0.01, 0.25
"""Seconds between two looks at whether each host judges by a fact."""


class TrustWatch:
    """Reads what is new in a store's log of trust. Used on the runtime's loop.

    Args:
        services: of the runtime.
        hold: gives up all agents while no call may start here, for the reason that it gets; and
            takes them again, where the reason is empty.

    """

    def __init__(
        self, services: RuntimeServices[Any, Any], hold: Callable[[str], Coroutine[Any, Any, None]]
    ) -> None:
        self.services: RuntimeServices[Any, Any] = services
        self.trust: Trust = services.runs.trust
        self.host: str = services.host or platform.node()
        """The name of this host, as people read it."""
        self._hold = hold
        self._held = ""
        # Each look gets on without the other: to give up agents may take as long as their steps.
        self._facts = self._lookout("what holds for the store", self._look)
        self._holding = self._lookout(_HOLDING, self._judge)
        self._acknowledged = 0
        self._freezes: frozenset[str] = frozenset()
        self.on_released: Callable[[], None] = _nothing
        """The function to call when calls may start here again: what waits is continued."""
        self.on_thawed: Callable[[], None] = _nothing
        """The function to call when a freeze is over."""

    def _lookout(self, what: str, look: Callable[[bool], Coroutine[Any, Any, None]]) -> Lookout:
        return Lookout(what, lambda: math.inf, look, self.services.start_task)

    async def open(self) -> None:
        """Begin to follow the log, after the store has opened and before an agent is claimed.

        Raises:
            UsageError: if this runtime must not open on this store.

        """
        trust = self.trust
        trust.store = store = self.services.store
        store.on_trust_at_once = partial(trust.hear, store)
        await self.put_rules(trust.rules, opening=True)
        trust.on_change = self._changed
        store.on_trust = self._heard
        self._heard()  # what came meanwhile was told to nobody
        self._freezes = frozenset(trust.state.freezes)
        await self._acknowledge()
        await self._judge()
        self._facts.begin()
        self._holding.begin()

    def close(self) -> None:
        """Follow the log no more, and act on nothing."""
        self.services.store.on_trust = self.services.store.on_trust_at_once = None
        self.trust.on_change = None

    async def put_rules(self, rules: Rules | None, *, opening: bool = False) -> None:
        """Replace the rules of this host, and act on the new ones; see `Trust.put_rules`."""
        at, store = self.services.clock.now(), self.services.store
        await self.trust.put_rules(rules, store, at=at, host=self.host, opening=opening)
        self.provide()
        if not opening:  # who has put them may see at once that calls start again
            await look_once(_HOLDING, self._judge())

    async def add(
        self,
        decide: Callable[[TrustState], FactContent | None],
        by: str | None,
        add: Callable[[TrustFact], Awaitable[bool]] | None = None,
    ) -> TrustFact | None:
        """Add to the log of trust what a function decides, now; see `Trust.add`."""
        return await self.trust.add(decide, at=self.services.clock.now(), by=by, add=add)

    async def registered_rules(self) -> list[RegisteredRules]:
        """Return the registered rules, the newest first; see `Runtime.registered_rules`."""
        await self.trust.look()
        found = self.trust.state.versions.values()
        return sorted(found, key=lambda each: each.version, reverse=True)

    async def delegate(
        self,
        giver: Caller,
        getter: Caller,
        roles: tuple[str, ...],
        until: datetime,
        reason: str,
        by: str | None,
    ) -> Delegation:
        """Add a delegation to the log of the store.

        Raises:
            UsageError: as `delegation_of`.
            PeopleUnavailable: as `delegation_of`.

        """
        now, people = self.services.clock.now(), self.trust.people
        assert people is not None, "the caller has looked"
        said = await delegation_of(people, giver, getter, roles, until, reason)
        fact = await self.add(lambda state: to_delegate(said, state, now), by)
        assert fact is not None, "it is added, or refused"
        return self.trust.state.delegations[said.id]

    async def delegations(self) -> list[Delegation]:
        """Return the delegations that hold now, the oldest first."""
        await self.trust.look()
        now = self.services.clock.now()
        found = (each for each in self.trust.state.delegations.values() if each.holds(now))
        return sorted(found, key=lambda each: each.number)

    async def end_delegation(self, id: str, by: str | None) -> bool:
        """End a delegation. Returns whether it was in force."""
        now = self.services.clock.now()
        return await self.add(lambda state: to_end(id, state, now), by) is not None

    # ------------------------------------------------------------------- what is new

    def provide(self) -> None:
        """Tell other hosts what this host has, before the store opens and when it changes."""
        self.services.store.provide(self.trust.provides)

    def _heard(self) -> None:
        """Read the log of trust, if another host may have added facts."""
        trust, store = self.trust, self.services.store
        if store.trust_seen > trust.state.number:
            trust.follow(store)
            self._facts.hint()
        elif trust.state.awaited > self._acknowledged:
            self._facts.hint()

    async def _look(self, is_hinted: bool) -> None:
        # A store that is away is asked again after the next renewal of the lease.
        while self.trust.is_behind:
            await self.trust.look()
        await self._acknowledge()

    async def _acknowledge(self) -> None:
        """Tell the store that this host judges by the facts that somebody waits for."""
        while self._acknowledged < self.trust.state.awaited:
            number = self.trust.state.number
            await self.services.store.acknowledge_trust(number)
            self._acknowledged = number

    def _changed(self) -> None:
        """Act on facts that were read from the log, or added here."""
        state = self.trust.state
        if state.awaited > self._acknowledged:
            self._facts.hint()
        freezes, self._freezes = self._freezes, frozenset(state.freezes)
        if freezes - self._freezes:
            self.on_thawed()
        if (self.trust.held or "") != self._held:
            self._holding.hint()

    async def all_judge_by(self, number: int) -> tuple[str, ...]:
        """Wait until each other living host judges by the fact with this number.

        Returns:
            The names of the hosts that have not said so, and whose leases have ended. Whichever of
            them lives reads the log before it enters a body again.

        """
        pause = FIRST_LOOK
        while True:
            behind = await self.services.store.hosts_behind(number)
            if not any(each.is_living for each in behind):
                return tuple(each.name for each in behind)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_LOOK)

    async def _judge(self, is_hinted: bool = False) -> None:
        """Give up all agents, or take them again, until this host does as the log says."""
        while (held := self.trust.held or "") != self._held:
            self._held = held
            if held:
                logger.warning("no call starts at this host: %s", held)
                await self._hold(held)
            else:
                logger.info("calls start at this host again")
                await self._hold("")
                self.on_released()


def _nothing() -> None:
    return
