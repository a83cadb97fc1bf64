"""`TrustWatch`: keeps what a runtime knows of the log of trust up to date, and acts on it.

Other hosts say that they have added a fact: by a hint, by each renewal of the lease, and by the
commit of each start of a call. No task waits for that, and nothing is read where nobody says it.
"""

from __future__ import annotations

import asyncio
import logging
import platform
from collections.abc import Callable, Coroutine
from datetime import datetime
from functools import partial
from typing import Any

from understudy._base.json_values import text_of
from understudy.actors.agent.services import RuntimeServices
from understudy.approvals import Caller
from understudy.errors import JournalFailed, UsageError
from understudy.trust.delegations import delegation_of, to_delegate, to_end
from understudy.trust.fold import Delegation, RegisteredRules
from understudy.trust.registration import to_retire
from understudy.trust.rules import Rules

logger: logging.Logger = logging.getLogger(__name__)
FIRST_LOOK, LONGEST_LOOK = 0.01, 0.25
"""Seconds between two looks at whether each host judges by a fact."""


class TrustWatch:
    """Reads what is new in the log of trust of a store. On the runtime's loop.

    Args:
        services: of the runtime.
        hold: gives up all agents while no call may start here, for the reason that it gets; and
            takes them again, where the reason is empty.

    """

    def __init__(
        self, services: RuntimeServices[Any, Any], hold: Callable[[str], Coroutine[Any, Any, None]]
    ) -> None:
        self._services = services
        self._trust = services.runs.trust
        self._hold = hold
        self._held = ""
        self._reading: asyncio.Task[None] | None = None
        self._holding: asyncio.Task[None] | None = None
        self._acknowledging: asyncio.Task[None] | None = None
        self._acknowledged = 0
        self._freezes: frozenset[str] = frozenset()
        self.on_released: Callable[[], None] = _nothing
        """Called when calls may start here again: what waits is continued."""
        self.on_thawed: Callable[[], None] = _nothing
        """Called when a freeze is over."""

    async def open(self) -> None:
        """After the store has opened, and before an agent is claimed.

        Raises:
            UsageError: if this runtime must not open on this store.

        """
        trust, store = self._trust, self._services.store
        store.on_trust_at_once = partial(trust.hear, store)
        await self.put_rules(trust.rules, opening=True)
        trust.on_change = self._changed
        store.on_trust = self._heard
        self._heard()  # what came meanwhile was told to nobody
        self._freezes = frozenset(trust.state.freezes)
        if trust.state.awaited:
            await self._acknowledge()
        await self._hold_if_need_be()

    async def put_rules(self, rules: Rules | None, *, opening: bool = False) -> None:
        """As of `Trust`."""
        services = self._services
        at, host = services.clock.now(), services.host or platform.node()
        await self._trust.put_rules(rules, services.store, at=at, host=host, opening=opening)
        self.provide()

    async def registered_rules(self) -> list[RegisteredRules]:
        """As of `Runtime`."""
        await self._trust.look()
        found = self._trust.state.versions.values()
        return sorted(found, key=lambda each: each.version, reverse=True)

    async def rules_to_retire(self, version: int | None) -> int | None:
        """The version of the rules that hold; None where none do.

        Raises:
            UsageError: if they are not of the version that is meant.

        """
        await self._trust.look()
        found = to_retire(self._trust.state, version)
        return None if found is None else found.version

    async def retire_rules(self, by: str | None, version: int | None) -> bool:
        """As of `Runtime`."""
        trust = self._trust
        if trust.log is None:
            return False  # it has none
        at = self._services.clock.now()
        return await trust.retire_rules(at=at, by=by, version=version)

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
            UsageError: as `delegation_of`; or if no people are known.
            PeopleUnavailable: as `delegation_of`.

        """
        trust, now = self._trust, self._services.clock.now()
        if trust.people is None:
            raise UsageError("delegate(...): no people are known: give Runtime(people=...)")
        said = await delegation_of(trust.people, giver, getter, roles, until, reason)
        self._follow()
        fact = await trust.add(lambda state: to_delegate(said, state, now), at=now, by=by)
        assert fact is not None, "it is added, or refused"
        return trust.state.delegations[said.id]

    async def delegations(self) -> list[Delegation]:
        """Those that hold now, oldest first."""
        await self._trust.look()
        now = self._services.clock.now()
        found = (each for each in self._trust.state.delegations.values() if each.holds(now))
        return sorted(found, key=lambda each: each.number)

    async def end_delegation(self, id: str, by: str | None) -> bool:
        """Let a delegation hold no longer. Returns whether it did."""
        now = self._services.clock.now()
        self._follow()
        return (
            await self._trust.add(lambda state: to_end(id, state, now), at=now, by=by) is not None
        )

    def _follow(self) -> None:
        if self._trust.log is None:
            self._trust.follow(self._services.store)

    def close(self) -> None:
        """Act on nothing any more."""
        self._services.store.on_trust = self._services.store.on_trust_at_once = None
        self._trust.on_change = None

    def _heard(self) -> None:
        """Another host may have added facts."""
        trust, store = self._trust, self._services.store
        is_new = store.trust_seen > trust.state.number
        if not is_new and trust.state.awaited > self._acknowledged:
            self._changed()
        if is_new and (self._reading is None or self._reading.done()):
            if trust.log is None:
                trust.follow(store)
            self._reading = self._services.start_task(self._read(), "reading the log of trust")

    async def _read(self) -> None:
        try:
            await self._trust.look()
            # Race: this against a fact that is added while the log is read, and whose hint has
            # found this reading under way.
            while self._trust.is_behind:
                await self._trust.look()
        except JournalFailed as error:  # the next renewal of the lease has it read again
            logger.warning("what holds for the store is not known: %s", text_of(error))

    def provide(self) -> None:
        """Say to others what this one has: before the store opens, and where it changes."""
        self._services.store.provide(self._trust.provides)

    def _changed(self) -> None:
        state = self._trust.state
        if state.awaited > self._acknowledged and (
            self._acknowledging is None or self._acknowledging.done()
        ):
            self._acknowledging = self._services.start_task(
                self._acknowledge_later(), "acknowledging the log of trust"
            )
        freezes, self._freezes = self._freezes, frozenset(state.freezes)
        if freezes - self._freezes:
            self.on_thawed()
        if (self._trust.held or "") != self._held and (
            self._holding is None or self._holding.done()
        ):
            self._holding = self._services.start_task(self._hold_later(), "holding calls")

    async def _acknowledge(self) -> None:
        """Say that this host judges by what somebody waits for."""
        while self._acknowledged < self._trust.state.awaited:
            number = self._trust.state.number
            await self._services.store.acknowledge_trust(number)
            self._acknowledged = number

    async def _acknowledge_later(self) -> None:
        try:
            await self._acknowledge()
        except JournalFailed as error:  # the next renewal of the lease has it said again
            logger.warning("other hosts do not know what this one judges by: %s", text_of(error))

    async def all_judge_by(self, number: int) -> tuple[str, ...]:
        """Wait until each other living host judges by a fact.

        Returns:
            The names of the hosts that have not said so, and whose leases have ended. Whichever of
            them lives reads the log before it enters a body again.

        """
        pause = FIRST_LOOK
        while True:
            behind = await self._services.store.hosts_behind(number)
            if not any(each.is_living for each in behind):
                return tuple(each.name for each in behind)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_LOOK)

    async def _hold_later(self) -> None:
        try:
            await self._hold_if_need_be()
        except JournalFailed as error:  # nothing is activated here all the same
            logger.warning("other hosts do not know that no call starts here: %s", text_of(error))

    async def _hold_if_need_be(self) -> None:
        """Give up all agents, or take them again, until that is as the log says."""
        while (held := self._trust.held or "") != self._held:
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
