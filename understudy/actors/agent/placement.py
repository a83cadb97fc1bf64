"""`Placement`: which agents a runtime may run, and what it says of that to the other hosts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from understudy.agent.agent import Agent
from understudy.errors import OwnedElsewhere, UnderstudyError, UnfitHost
from understudy.journal import Store
from understudy.journal.shared import HostedDefinition
from understudy.state.agent_state import AgentState
from understudy.state.records import AgentCreated


class Placement:
    """Says which agents a runtime may run. Used on the runtime's loop.

    Args:
        store: of the runtime.
        labels: what its host has.
        any_host: as of `Runtime`.
        has_factory: whether definitions that are not declared are made at activation.

    """

    def __init__(
        self, store: Store, labels: frozenset[str], *, any_host: bool, has_factory: bool = False
    ) -> None:
        self.labels: frozenset[str] = labels
        self.any_host: bool = any_host
        self.draining: bool = False
        """Whether no agent is activated at this host any more."""
        self.held: str = ""
        """Why no call may start, and no agent is activated, at this host; empty if calls may."""
        self.on_said: Callable[[], None] | None = None
        """The function to call when this host may run other agents, or takes none any more."""
        self._hosts = store.shared
        self._registered: set[Agent] = set()
        self._has_factory = has_factory

    @property
    def is_shared(self) -> bool:
        """Whether the store knows of other hosts, and so judges each claim itself."""
        return self._hosts is not None

    def introduce(self) -> None:
        """Tell the store which labels this host has, before the store opens."""
        if self._hosts is not None:
            self._hosts.introduce(self.labels)

    async def register(self, agents: Iterable[Agent]) -> None:
        """Tell the store which definitions this host has, before it claims an agent of one."""
        new = [agent for agent in agents if agent not in self._registered]
        if self._hosts is not None and new:
            await self._hosts.register([hosted(agent) for agent in new])
        self._registered.update(new)
        if new and self.on_said is not None:
            self.on_said()

    async def register_factory(self) -> None:
        """Tell the store that this host makes definitions, if it does."""
        if self._hosts is not None and self._has_factory:
            await self._hosts.register([ANY_NAME])

    async def drain(self) -> None:
        """Activate no agent at this host any more, and tell the other hosts."""
        self.draining = True
        await self._say()

    async def hold(self, why: str) -> None:
        """Activate no agent while no call may start, and tell other hosts; activate again if empty.

        Args:
            why: no call may start.

        """
        self.held = why
        await self._say()

    async def _say(self) -> None:
        if self.on_said is not None:
            self.on_said()
        if self._hosts is not None:
            held = "" if self.draining else self.held
            await self._hosts.set_draining(self.is_closed, held)

    @property
    def is_closed(self) -> bool:
        """Whether this host takes no agents now."""
        return self.draining or bool(self.held)

    async def elsewhere(
        self,
        agent_id: str,
        agent: str,
        unfit: UnfitHost,
        values: Mapping[str, Any] | None = None,
        *,
        needs: Collection[str] | None = None,
    ) -> UnderstudyError:
        """Find the host for an agent that this host must not run: its owner, or another that fits.

        Args:
            agent_id: the id of the agent.
            agent: the name of its definition.
            unfit: why it is not run here.
            values: those of its state, if it is new.
            needs: where its definition is made by a factory: what it needs. A host that makes
                definitions may fit as well then.

        Returns:
            `OwnedElsewhere`, with the name of that host; `unfit` where there is none.

        """
        if self._hosts is None or not self.any_host:
            return unfit
        if needs is not None and unfit.version is not None:
            return unfit  # what another factory makes is not known: it may give it back
        created = None
        if values:
            created = AgentCreated(values=AgentState(values=values).stored_values())
        try:
            host = await self._hosts.give(agent_id, agent, created, needs)
        except OwnedElsewhere as owned:
            host = owned.host
        if host is None:
            return unfit
        elsewhere = OwnedElsewhere(agent_id=agent_id, host=host)
        elsewhere.must_post = True
        return elsewhere

    def fits(self, agent: Agent) -> bool:
        """Whether this host takes agents, and has what agents of a definition need."""
        return not self.is_closed and agent.definition.all_needs <= self.labels

    def check(
        self,
        agent_id: str,
        agent: Agent,
        state: AgentState | None = None,
        *,
        is_made: bool = False,
    ) -> None:
        """Refuse an agent that this host must not run, if no store has judged it.

        Args:
            agent_id: its id.
            agent: its definition.
            state: what its records say, once they are read.
            is_made: whether a factory has made the definition: no store judges that.

        Raises:
            UnfitHost: if it must not.

        """
        if self.is_shared and not is_made:
            return
        if self.draining:
            raise UnfitHost(agent_id=agent_id, agent=agent.name, draining=True)
        if self.held:
            raise UnfitHost(agent_id=agent_id, agent=agent.name, held=self.held)
        definition = agent.definition
        if missing := definition.all_needs - self.labels:
            raise UnfitHost(agent_id=agent_id, agent=agent.name, missing=missing)
        run = state.run if state is not None else None
        if run is None or run.over or definition.on_version == "newest":
            return
        if run.fingerprint != definition.fingerprint:
            version = run.fingerprint
            raise UnfitHost(agent_id=agent_id, agent=agent.name, version=version, waits=True)


ANY_NAME = HostedDefinition(agent="*", fingerprint="*")
"""The definition that stands for any name, for a host with a factory; no agent has this name."""


def hosted(agent: Agent) -> HostedDefinition:
    """The definition of an agent, as other hosts need to know it."""
    definition = agent.definition
    return HostedDefinition(
        agent=agent.name,
        fingerprint=definition.fingerprint,
        version=definition.version,
        needs=definition.all_needs,
        continues_older=definition.on_version == "newest",
    )
