"""`Directory`: the agents of a runtime, by name and by id. Thread-safe, and never waits."""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from understudy.actors.agent.activation import Activation
from understudy.actors.agent.factory import MadeAtActivation
from understudy.actors.agent.services import RuntimeServices
from understudy.actors.agent.slot import AgentSlot
from understudy.agent.agent import Agent
from understudy.agent.build_definition import check_name
from understudy.errors import OtherAgent, UsageError
from understudy.run.definition import BACKGROUND_SUFFIX, AgentDefinition
from understudy.state.agent_state import AgentState
from understudy.tools.base_agent import instead_of_agent


class Directory:
    """The definitions of a runtime by name, and its agents by id.

    Args:
        agents: definitions that can be spawned by name.
        has_factory: whether definitions that are not declared are made at activation.

    """

    services: RuntimeServices[AgentSlot, Activation]
    """The services of the runtime. Set when the runtime opens."""

    def __init__(self, agents: Iterable[Agent], *, has_factory: bool = False) -> None:
        self._agents: dict[str, Agent] = {}
        for agent in agents:
            self._define(agent)
        self.has_factory: bool = has_factory
        self._lock = threading.RLock()
        self._slots: dict[str, AgentSlot] = {}
        """The slots to keep, by agent id: in memory, or with something that no store has."""
        self._known: weakref.WeakValueDictionary[str, AgentSlot] = weakref.WeakValueDictionary()
        """The other slots by agent id, while a ref or a subscription refers to them."""

    def spawn(
        self,
        agent: str | Agent,
        id: str | None,
        *,
        deps: Any,
        values: Mapping[str, Any] | None,
    ) -> tuple[AgentSlot, Agent | MadeAtActivation | None]:
        """The slot of a spawned agent; see `Runtime.spawn`.

        With the definition that each call of its caller must find, where the agent is not in memory
        yet: the store may have an agent of this id and of another definition.
        """
        id = self.services.new_id() if id is None else checked_id(id)
        if values:
            AgentState(values=values)  # checked before anything begins
        with self._lock:
            definition = agent if isinstance(agent, Agent) else self.named(agent)
            slot = self.find(id)
            if slot is None:
                self._define(definition)
                slot = AgentSlot(id, definition, self.services, deps=deps)
            elif slot.agent is None:
                slot.agent = self._define(definition)
            elif slot.agent != definition:
                if slot.agent != MadeAtActivation(definition.name):
                    raise OtherAgent(agent_id=id, agent=slot.agent.name, wanted=definition.name)
                slot.agent = self._define(definition)  # it was spawned by its name before
            if deps is not None:
                slot.deps = deps
            self._keep(slot)  # until the store has it; deps are in no store
            if slot.activation is None:
                if not slot.is_spawned:  # those of an earlier spawn may be of a deleted agent
                    slot.values = values
                slot.is_spawned = True
                return slot, definition
            return slot, None

    def get(self, id: str) -> AgentSlot:
        """The slot of this agent id, made if there is none; see `Runtime.get`."""
        id = checked_id(id)
        with self._lock:
            slot = self.find(id)
            if slot is None:
                slot = self._known[id] = AgentSlot(id, None, self.services)
            return slot

    def find(self, id: str) -> AgentSlot | None:
        """The slot of this agent id, if there is one."""
        with self._lock:
            slot = self._slots.get(id)
            return slot if slot is not None else self._known.get(id)

    def settle_definition(self, slot: AgentSlot, agent: Agent | None) -> None:
        """Set the definition that the store names for the agent; None: another than was spawned.

        What a spawn with another one has given is not for this agent.
        """
        # Race: this against a spawn in another thread
        # (test_a_spawn_with_another_definition_while_the_agent_is_read_is_refused).
        with self._lock:
            known: Agent | MadeAtActivation | None = None
            if agent is not None:
                known = self._agents.get(agent.name) or MadeAtActivation(agent.name)
            if slot.agent != known:
                slot.values = slot.deps = None
            slot.agent = known

    def is_active(self, id: str) -> bool:
        """Whether the agent is in this runtime's memory."""
        slot = self._slots.get(id)
        return slot is not None and slot.activation is not None

    def slots(self) -> list[AgentSlot]:
        """The slots of agents that are in memory, or have something that no store has."""
        with self._lock:
            return list(self._slots.values())

    def _define(self, agent: Agent | MadeAtActivation) -> Agent | MadeAtActivation:
        if isinstance(agent, MadeAtActivation):
            return agent
        if not isinstance(agent, Agent):
            raise UsageError(f"Runtime(agents=[...]) takes agents, got {instead_of_agent(agent)}")
        before = self._agents.setdefault(agent.name, agent)
        if before is not agent:
            raise UsageError(f"Two different agents are named {agent.name!r}: rename one")
        name = agent.name + BACKGROUND_SUFFIX
        if agent.definition.background_inside and name not in self._agents:
            from understudy.actors.agent.background_agent import (
                BackgroundAgent,
            )  # few agents have one

            self._agents[name] = BackgroundAgent(agent)
        return agent

    def definitions(self) -> list[Agent]:
        """All definitions that the runtime knows now."""
        with self._lock:
            return list(self._agents.values())

    def definition_of(self, name: str, agent_id: str) -> AgentDefinition | None:
        """The definition of an agent: declared, or made for it while it is in memory."""
        agent, slot = self._agents.get(name), self._slots.get(agent_id)
        if agent is None and slot is not None and slot.activation is not None:
            agent = slot.activation.agent
        return agent.definition if agent is not None and agent.name == name else None

    def fingerprints(self) -> set[str]:
        """The fingerprints of all definitions, also of definitions made for agents in memory."""
        made = [slot.activation for slot in self.slots()] if self.has_factory else []
        return {agent.definition.fingerprint for agent in self.definitions()} | {
            activation.agent.definition.fingerprint for activation in made if activation is not None
        }

    def knows(self, name: str) -> bool:
        """Whether there is a definition of this name. A factory is not asked."""
        return name in self._agents

    def may_run(self, name: str) -> bool:
        """Whether there is a definition of this name, and this host has what its agents need.

        With a factory, any name may: what its agents need is known once one is activated.
        """
        agent = self._agents.get(name)
        if agent is None:
            return self.has_factory and not self.services.placement.is_closed
        return self.services.placement.fits(agent)

    def named(self, name: str) -> Agent | MadeAtActivation:
        """The definition of this name; raises a `UsageError` that lists the known names."""
        agent = self._agents.get(name)
        if agent is None and self.has_factory:
            return MadeAtActivation(check_name(name))
        if agent is None:
            known = ", ".join(map(repr, self._agents)) or "none"
            raise UsageError(
                f"No agent is named {name!r}; there are: {known}. Give it to "
                "Runtime(agents=[...]). A stored agent of that name is not touched until then"
            )
        return agent

    def hold(self, slot: AgentSlot) -> None:
        """Keep the slot: its ref may be gone by now, and the next `get` must find this slot."""
        with self._lock:
            self._keep(slot)

    def drop(self, slot: AgentSlot) -> None:
        """Stop keeping the slot."""
        with self._lock:
            if self._slots.get(slot.id) is slot:
                del self._slots[slot.id]
                self._known[slot.id] = slot

    def _keep(self, slot: AgentSlot) -> None:
        self._slots[slot.id] = slot
        self._known.pop(slot.id, None)  # to be in both takes 0.1 KB

    def drop_unless_needed(self, slot: AgentSlot) -> None:
        """Stop keeping the slot, if the store has everything of the agent.

        A message that comes meanwhile is in its inbox, or keeps the slot after this. A subscription
        refers to it.
        """
        with self._lock:
            is_needed = slot.is_spawned or slot.deps is not None or slot.waits is not None
            if not slot.inbox and not is_needed:
                self.drop(slot)

    def all_slots(self) -> set[AgentSlot]:
        """All slots, also those that only a ref or a subscription refers to."""
        with self._lock:
            return {*self._slots.values(), *self._known.values()}


_ID = re.compile(r"[^/\0\ud800-\udfff]+")
MAX_ID_LENGTH = 500
"""The most characters of an agent id. A database indexes them."""


def checked_id(id: object) -> str:
    """The agent id, if every store can keep it.

    Raises:
        UsageError: if it cannot.

    """
    if not isinstance(id, str) or not _ID.fullmatch(id) or len(id) > MAX_ID_LENGTH:
        shown = repr(id) if len(repr(id)) < 2 * MAX_ID_LENGTH else f"{repr(id)[:50]}..."
        raise UsageError(
            f"An agent's id must be text of 1 to {MAX_ID_LENGTH} characters without '/' or "
            f"NUL, got {shown}"
        )
    return id
