"""`SharedHost`: a runtime as one of the hosts that share a store."""

from __future__ import annotations

from dataclasses import dataclass

from understudy.actors.agent.activation import Activation
from understudy.actors.agent.directory import Directory
from understudy.actors.agent.services import RuntimeServices
from understudy.actors.agent.slot import AgentSlot
from understudy.journal.shared_store import SharedStore


@dataclass(frozen=True, slots=True)
class SharedHost:
    """What is needed to pass calls and events between this host and the others."""

    services: RuntimeServices[AgentSlot, Activation]
    """Of the runtime."""
    directory: Directory
    """Its agents."""
    store: SharedStore
    """As hosts share it."""
