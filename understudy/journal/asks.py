"""`Ask`: what an agent waits for from outside, as the index of its store keeps it.

The rows of a store are changed in the transaction of the records from which they follow, and only
where they differ. So a list of what is asked loads no agent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from understudy.errors import StoreDamaged
from understudy.interrupts import Request
from understudy.journal.codec import EncodedRecord, decode, encode_again
from understudy.state.agent_state import AgentState
from understudy.state.dues import notices_of
from understudy.state.records import Requested
from understudy.state.run_state import NO_NOTICES, Notices

AskKind = Literal["request"]
"""What is asked: `request` is one to a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One open ask of an agent, or of an agent that it runs. All but `told` never changes."""

    id: str
    """Used once for each agent."""
    kind: AskKind = "request"
    tool: str
    asked_at: datetime
    expires_at: datetime | None = None
    told: Notices = NO_NOTICES
    """How many were told of it so far."""
    request: Request

    def encode(self) -> EncodedRecord:
        """The record that asks it, as a store keeps it."""
        return encode_again(Requested(request=self.request))


def open_asks(state: AgentState) -> tuple[Ask, ...]:
    """What the agent waits for, in call order, with what all agents ask that it runs."""
    told = notices_of(state)
    return tuple(_ask(request, told.get(request.id, NO_NOTICES)) for request in state.requests)


def _ask(request: Request, told: Notices) -> Ask:
    return Ask(
        id=request.id,
        tool=request.tool_name,
        asked_at=request.created_at,
        expires_at=request.expires_at,
        told=told,
        request=request,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAsk:
    """One open ask, as the index of a store has it."""

    no: int
    """Its place among all asks of the store, in the order in which they were stored."""
    agent_id: str
    agent: str
    """The name of the agent's definition."""
    tool: str
    asked_at: datetime
    expires_at: datetime | None
    told: Notices
    asked: EncodedRecord | Request
    """The request, or the record that makes it."""

    def request(self) -> Request:
        """The request to a person.

        Raises:
            SchemaVersionError: if a newer version of this library wrote it.
            StoreDamaged: if it cannot be read.

        """
        if isinstance(self.asked, Request):
            return self.asked
        found = decode(self.asked)
        if not isinstance(found, Requested):
            raise StoreDamaged(
                what=f"what agent {self.agent_id!r} asks", cause=f"it is a {found.kind!r}"
            )
        return found.request


class AskChanges(NamedTuple):
    """How the rows of an agent's asks become what it asks now."""

    gone: list[str]
    """The ids of those that are answered, or withdrawn."""
    new: list[Ask]
    told: list[Ask]
    """Of these more people were told."""


def changes(stored: Mapping[str, tuple[int, int]], asks: Sequence[Ask]) -> AskChanges:
    """The difference, which alone is written.

    Args:
        stored: the reminders and escalations of each row, by the id of the ask.
        asks: what the agent asks now.

    """
    now: Collection[str] = {ask.id for ask in asks}
    return AskChanges(
        gone=[id for id in stored if id not in now],
        new=[ask for ask in asks if ask.id not in stored],
        told=[
            ask
            for ask in asks
            if ask.id in stored and stored[ask.id] != (ask.told.reminders, ask.told.escalations)
        ],
    )
