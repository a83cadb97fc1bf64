"""`Attention`: what in a store needs a person: counts, and the first rows of each kind.

The pages, the API and the command line show it. It reads the index of the store alone: no agent is
loaded, and it costs the same for ten agents and for ten thousand.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from understudy._base.points_in_time import time_text
from understudy.actors.agent.stored_agents import AgentInfo, PendingRequest
from understudy.journal.decided import DecidedRequest
from understudy.journal.notices import StoredNotice
from understudy.journal.troubles import GoneHost
from understudy.state.doubts import Doubt
from understudy.trust.freezes import Freeze

T = TypeVar("T")

FIRST = 20
"""The most rows of each kind of trouble that are shown."""
SOON = timedelta(minutes=30)
"""The time within which a request that expires counts as overdue."""
DAY, WEEK = timedelta(days=1), timedelta(days=7)
"""The times for which failed runs and expired requests count; the week is for expired requests."""


@dataclass(frozen=True, slots=True)
class Trouble(Generic[T]):
    """One kind of trouble that needs a person."""

    count: int
    """The number of items of this kind."""
    rows: tuple[T, ...] = ()
    """The first items of this kind."""


NO_TROUBLE: Trouble[Any] = Trouble(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Everything that needs a person, as `runtime.attention()` returns it."""

    at: datetime
    """The time at which the trouble was counted."""
    frozen: Trouble[Freeze] = NO_TROUBLE
    """Freezes of the whole store."""
    quarantined: Trouble[AgentInfo] = NO_TROUBLE
    """Agents whose runs crashed too often in a row. `retry` continues them."""
    doubts: Trouble[Doubt] = NO_TROUBLE
    """Calls of which nobody knows what they did, the oldest first."""
    overdue: Trouble[PendingRequest] = NO_TROUBLE
    """Requests of which people were told again, or that expire within 30 minutes; in the order in
    which they expire."""
    failed: Trouble[AgentInfo] = NO_TROUBLE
    """Agents whose runs have failed within a day, in the order in which they failed."""
    expired: Trouble[DecidedRequest] = NO_TROUBLE
    """Requests that nobody answered in time, within a day; the newest first."""
    expired_in_week: int = 0
    """How many requests nobody answered in time within seven days."""
    hosts: Trouble[GoneHost] = NO_TROUBLE
    """Hosts that ended with open runs which no other host has continued."""
    notices: Trouble[StoredNotice] = NO_TROUBLE
    """Notices of requests that were given up, the newest first; `count` is at most 1,000."""

    @property
    def count(self) -> int:
        """The number of items that need a person."""
        found = (getattr(self, field.name) for field in fields(self))
        return sum(each.count for each in found if isinstance(each, Trouble))

    def to_dict(self) -> dict[str, Any]:
        """Return the trouble as JSON."""
        hosts = [{**host._asdict(), "since": time_text(host.since)} for host in self.hosts.rows]
        found: dict[str, Any] = {"at": time_text(self.at), "count": self.count}
        for field in fields(self):
            each = getattr(self, field.name)
            if isinstance(each, Trouble):
                rows = hosts if field.name == "hosts" else [row.to_dict() for row in each.rows]
                found[field.name] = {"count": each.count, "rows": rows}
        return {**found, "expired_in_week": self.expired_in_week}
