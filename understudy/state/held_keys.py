"""The keys of calls (`@tool(key=)`) that an agent holds: a call with an equal one is held up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldKey:
    """The key of a call that is open, in doubt or done."""

    key_hash: str
    tool_name: str
    tool_call_id: str
    at: datetime | None = None
    """When the call took it; of a call that is done, when that was known. None where the record
    has no time."""
    is_done: bool = False
    is_copied: bool = False
    """Of a call that the agent was imported with: the store of now may not have it."""


class HoldsKeys(Protocol):
    """What is read here of an `AgentState`."""

    @property
    def held_keys(self) -> Mapping[str, HeldKey]:
        """The keys of its calls, by call key."""

    @property
    def tree(self) -> Iterable[HoldsKeys]:
        """It and all agents below it."""


def keys_in_tree(state: HoldsKeys) -> dict[str, HeldKey]:
    """The keys of all calls of this agent, and of those that it runs now, by call key."""
    return {call_key: held for each in state.tree for call_key, held in each.held_keys.items()}
