"""`Requirements`: what each host of a store must have, set for all of them at once."""

from __future__ import annotations

from typing import get_args

from understudy.actors.trust_watch import TrustWatch
from understudy.errors import UsageError
from understudy.state.trust_facts import FactContent, NotRequired, Required
from understudy.state.trust_log import TrustFact
from understudy.trust.fold import TrustState
from understudy.trust.required import Requirable, Requirement


class Requirements:
    """Sets and lists the features that a store requires. Used on the runtime's loop.

    Args:
        watch: of the store.

    """

    def __init__(self, watch: TrustWatch) -> None:
        self._watch = watch
        self._store = watch.services.store

    async def require(self, name: str, by: str | None) -> bool:
        """Require a feature of every host of the store; see `Runtime.require`."""
        if name not in self._watch.trust.provides:
            host = self._watch.host
            raise UsageError(f"require({name!r}): host {host!r} does not have it itself")
        await self._refuse_lacking(name)

        def to_require(state: TrustState) -> FactContent | None:
            return None if name in state.required else Required(name=name)

        async def add(fact: TrustFact) -> bool:
            # Race: this against a host without it that opens just now.
            is_added = await self._store.require_trust(fact, name)
            if not is_added:
                await self._refuse_lacking(name)
            return is_added

        fact = await self._watch.add(to_require, by, add)
        await self._watch.all_judge_by(self._watch.trust.state.awaited)
        return fact is not None

    async def release(self, name: str, by: str | None) -> bool:
        """Require a feature of the store's hosts no longer; see `Runtime.require`."""

        def to_release(state: TrustState) -> FactContent | None:
            return NotRequired(name=name) if name in state.required else None

        return await self._watch.add(to_release, by) is not None

    async def required(self) -> list[Requirement]:
        """The features that a store may require, with who lacks them; see `Runtime.required`."""
        trust = self._watch.trust
        await trust.look()
        found, provides, listed = trust.state.required, trust.provides, []
        for name in get_args(Requirable):
            of = found.get(name)
            own = [] if name in provides else [self._watch.host]
            listed.append(
                Requirement(
                    name=name,
                    is_required=of is not None,
                    by=None if of is None else of.by,
                    at=None if of is None else of.at,
                    lacking=(*own, *await self._lacking(name)),
                )
            )
        return listed

    async def _lacking(self, name: str) -> list[str]:
        """The names of the other living hosts that lack a feature."""
        hosts = await self._store.hosts_without(name)
        return [each.name for each in hosts if each.is_living]

    async def _refuse_lacking(self, name: str) -> None:
        lacking = await self._lacking(name)
        if lacking:
            raise UsageError(
                f"require({name!r}): {', '.join(map(repr, lacking))} live and do not have it: "
                "give it to them, or end them, first"
            )
