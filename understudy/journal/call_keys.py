"""Keys of calls (`@tool(key=)`): which call has taken a key, over all agents of a store.

A call takes its key before it starts. A store keeps the key as a hash under a secret of its own,
and which call has taken it: until the call gives it back, or until the time is over for which a
call that is done counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import NamedTuple

from understudy.state.agent_state import AgentState

SECRET_BYTES = 32
"""Bytes of the secret that a store is made with."""


def key_hash(key: str, secret: bytes) -> str:
    """The hash under which a store keeps a key, as hexadecimal digits."""
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=32, key=secret).hexdigest()


class KeyUse(NamedTuple):
    """A call that has taken a key, as a store has it."""

    agent_id: str
    incarnation: int
    call_key: str
    tool_name: str
    tool_call_id: str
    taken_at: datetime
    done_at: datetime | None = None
    """The time at which the call was done; None where it is open, in doubt, or left."""
    is_left: bool = False
    """Whether the agent was deleted before anybody knew what the call did."""

    @property
    def call(self) -> tuple[str, str]:
        """Which call it is: a person's answer about two calls holds for these two."""
        return self.agent_id, self.call_key


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTaking:
    """A call that is about to take a key."""

    key_hash: str
    """The hash of the key: 64 hexadecimal digits."""
    call_key: str
    """The key of the call among the calls of its agent."""
    tool_name: str
    tool_call_id: str
    at: datetime
    """The time now, at which the call takes the key."""
    kept: timedelta
    """How long the call counts once it is done."""
    passes: Collection[tuple[str, str]] = ()
    """The calls that a person has allowed it to pass, as of `KeyUse.call`: agent id and call key.
    They do not hold it up, and keep the key beside it. `may_take` looks at it."""
    passes_done: bool = False
    """Whether no call that is done holds it up."""

    def use_of(self, agent_id: str, incarnation: int) -> KeyUse:
        """The use that it becomes, of a call of this agent."""
        return KeyUse(
            agent_id, incarnation, self.call_key, self.tool_name, self.tool_call_id, self.at
        )


class KeyEnd(NamedTuple):
    """A call that is over, and had a key."""

    call_key: str
    is_done: bool
    """Whether the call is done. A call that is over and not done gives the key back."""


def may_take(taking: KeyTaking, agent_id: str, incarnation: int, uses: Sequence[KeyUse]) -> bool:
    """Whether a call of this agent may take its key, which these calls have.

    What it has already, it has: a process may have ended right after the call took the key.
    """
    mine = (agent_id, incarnation, taking.call_key)
    return any(use[:3] == mine for use in uses) or all(
        use.call in taking.passes or (taking.passes_done and use.done_at is not None)
        for use in uses
    )


class CallKeys(ABC):
    """The keys of a store, for the calls of one agent."""

    @property
    @abstractmethod
    def of(self) -> tuple[str, int]:
        """The id and the incarnation of the agent."""

    @abstractmethod
    async def key_hash(self, key: str) -> str:
        """The hash under which the store keeps a key."""

    @abstractmethod
    async def key_uses(self, key_hash: str, at: datetime) -> Sequence[KeyUse]:
        """The calls that have a key, after all that was recorded so far; see `Backend.key_uses`."""

    @abstractmethod
    async def take_key(self, taking: KeyTaking) -> Sequence[KeyUse]:
        """Take the key for a call, durably; if it is empty, the call has it, else these have."""

    @abstractmethod
    async def free_key(self, key_hash: str, use: KeyUse) -> None:
        """Free a key as by `Backend.free_key`, after all that was recorded so far."""

    @abstractmethod
    async def state_of_use(self, use: KeyUse) -> AgentState | None:
        """The state of the agent whose call has a key; None if it is gone, or cannot be read."""


def open_keys(state: AgentState) -> set[str]:
    """The call keys of the calls that have a key and are not done."""
    return {call_key for call_key, each in state.held_keys_in_tree.items() if not each.is_done}


def key_ends(known: set[str], state: AgentState) -> tuple[KeyEnd, ...]:
    """What becomes of the keys of those of these calls that are over by now."""
    held = state.held_keys_in_tree
    over = sorted(known - open_keys(state))
    return tuple(KeyEnd(call_key, is_done=call_key in held) for call_key in over)
