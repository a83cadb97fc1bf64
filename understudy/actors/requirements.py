"""`Requirements`: what each host of a store must have, set for all of them at once."""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, get_args

from understudy.actors.agent.services import RuntimeServices
from understudy.errors import UsageError
from understudy.state.trust_facts import FactContent, NotRequired, Required
from understudy.state.trust_log import TrustFact
from understudy.trust.fold import TrustState
from understudy.trust.required import Requirable, Requirement


class Requirements:
    """Sets and lists what is required. On the runtime's loop.

    Args:
        services: of the runtime.
        all_judge_by: waits until each other living host judges by the fact of a number, as of
            `TrustWatch`.

    """

    def __init__(
        self,
        services: RuntimeServices[Any, Any],
        all_judge_by: Callable[[int], Awaitable[tuple[str, ...]]],
    ) -> None:
        self._services = services
        self._trust = services.runs.trust
        self._all_judge_by = all_judge_by

    async def require(self, name: str, by: str | None) -> bool:
        """As `Runtime.require`."""
        store = self._services.store
        if self._trust.log is None:
            self._trust.follow(store)
        if name not in self._trust.provides:
            raise UsageError(f"require({name!r}): host {self._host!r} does not have it itself")
        fact: TrustFact | None = None
        while True:
            lacking = await self._lacking(name)
            if lacking:
                raise UsageError(
                    f"require({name!r}): {', '.join(map(repr, lacking))} live and do not have it: "
                    "give it to them, or end them, first"
                )

            async def add(fact: TrustFact) -> bool:
                # Race: this against a host without it that opens just now. It is asked for again
                # then, and is among those that lack it.
                if await store.require_trust(fact, name):
                    return True
                if await self._lacking(name):
                    raise _OneMore
                return False

            try:
                fact = await self._trust.add(
                    partial(_to_require, name), at=self._services.clock.now(), by=by, add=add
                )
            except _OneMore:
                continue
            break
        await self._all_judge_by(self._trust.state.awaited)
        return fact is not None

    async def release(self, name: str, by: str | None) -> bool:
        """As `Runtime.require`, where it is not required any more."""
        if self._trust.log is None:
            self._trust.follow(self._services.store)

        def to_release(state: TrustState) -> FactContent | None:
            return NotRequired(name=name) if name in state.required else None

        fact = await self._trust.add(to_release, at=self._services.clock.now(), by=by)
        return fact is not None

    async def required(self) -> list[Requirement]:
        """As `Runtime.required`."""
        await self._trust.look()
        found, provides, listed = self._trust.state.required, self._trust.provides, []
        for name in get_args(Requirable):
            of = found.get(name)
            own = [] if name in provides else [self._host]
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

    @property
    def _host(self) -> str:
        return self._services.host or platform.node()

    async def _lacking(self, name: str) -> list[str]:
        """The names of the other living hosts that do not have it."""
        hosts = await self._services.store.hosts_without(name)
        return [each.name for each in hosts if each.is_living]


class _OneMore(Exception):
    """A host that lacks it has opened meanwhile."""


def _to_require(name: str, state: TrustState) -> FactContent | None:
    return None if name in state.required else Required(name=name)
