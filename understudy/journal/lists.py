"""What a store lists, page by page: its agents, and what they ask.

A page begins behind the key of the last item of the page before. So it costs the same wherever it
begins, and nothing that changes between two pages moves what follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from understudy.errors import StoreDamaged
from understudy.journal.asks import StoredAsk
from understudy.journal.codec import EncodedRecord
from understudy.journal.contracts import StoredAgent, time_of
from understudy.state.run_state import Notices

AskOrder = Literal["oldest", "expiring"]
NEVER = (1 << 63) - 1
"""The time of expiry, as a database keeps it, of what does not expire: it comes last."""


class AgentQuery(NamedTuple):
    """Which agents are listed: by id; where `updated_since` is given, by that time and id."""

    status: str | None = None
    """A value of `Status`."""
    agent: str | None = None
    """The name of their definition."""
    prefix: str = ""
    """What their ids begin with."""
    updated_since: datetime | None = None
    """When their status changed last. Those of which that is not known are left out."""


class AskQuery(NamedTuple):
    """Which asks are listed, and in which order."""

    tool: str | None = None
    agent: str | None = None
    """The name of the definition of the agent that asks."""
    order: AskOrder = "oldest"


AgentKey: TypeAlias = tuple[int, str]
"""When its status changed, in microseconds since 1970 (0 where that does not count), and its id."""
AskKey: TypeAlias = tuple[int, int]
"""When it was asked, or expires, in microseconds since 1970; and its number."""


@runtime_checkable
class ListIndex(Protocol):
    """An optional part of a backend: its index lists agents and what they ask. The reader's."""

    def list_agents(
        self, query: AgentQuery, after: AgentKey | None, limit: int
    ) -> list[StoredAgent]:
        """Up to `limit` agents behind a key. A damaged row is listed as by `Backend.agents`."""

    def list_asks(self, query: AskQuery, after: AskKey | None, limit: int) -> list[StoredAsk]:
        """Up to `limit` asks behind a key.

        Those of agents whose records an older version of this library wrote last are left out: see
        `StatusIndex.unindexed`.
        """

    def count_agents(self) -> Mapping[str, int]:
        """How many agents have each status."""


@runtime_checkable
class ListStore(Protocol):
    """An optional part of a store: as of `ListIndex`. Without it every agent has to be loaded."""

    async def list_agents(
        self, query: AgentQuery, after: AgentKey | None, limit: int
    ) -> Sequence[StoredAgent]: ...

    async def list_asks(
        self, query: AskQuery, after: AskKey | None, limit: int
    ) -> Sequence[StoredAsk]: ...

    async def count_agents(self) -> Mapping[str, int]: ...


@dataclass(frozen=True, slots=True)
class IdRange:
    """The ids that begin with a prefix: from `first` on, and below `end`; None = there is none."""

    first: str
    end: str | None


def ids_from(prefix: str) -> IdRange:
    """The range of ids with this prefix. Ids are compared by code points, in every store."""
    for length in range(len(prefix), 0, -1):
        last = ord(prefix[length - 1])
        if last < 0x10FFFF:
            following = 0xE000 if last == 0xD7FF else last + 1  # no text holds half a character
            return IdRange(prefix, prefix[: length - 1] + chr(following))
    return IdRange(prefix, None)


def stored_ask(row: tuple[Any, ...]) -> StoredAsk:
    """The ask of a database's row.

    Raises:
        StoreDamaged: if it cannot be what a store has written.

    """
    no, agent_id, agent, tool, asked, expires, reminders, escalations, version, payload = row
    asked_at, expires_at = time_of(asked), None if expires == NEVER else time_of(expires)
    if asked_at is None or (expires_at is None and expires != NEVER):
        raise StoreDamaged(what=f"what agent {agent_id!r} asks", cause=f"its row is {row[:7]!r}")
    return StoredAsk(
        no=no,
        agent_id=agent_id,
        agent=agent,
        tool=tool,
        asked_at=asked_at,
        expires_at=expires_at,
        told=Notices(reminders=reminders, escalations=escalations),
        asked=EncodedRecord("requested", version, payload),
    )
