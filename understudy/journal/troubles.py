"""`Troubles`: how much in a store needs a person, as its index counts it."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


class Troubles(NamedTuple):
    """How much needs a person: the number of troubles of each kind."""

    quarantined: int = 0
    """The number of agents whose runs crashed too often in a row."""
    failed: int = 0
    """The number of other agents whose runs have failed since a time."""
    overdue: int = 0
    """The number of requests of which people were told again, or that expire by a time."""
    doubts: int = 0
    """The number of calls of which nobody knows what they did."""


class GoneHost(NamedTuple):
    """A host whose lease has ended, and that has left open runs behind."""

    name: str
    runs: int
    """The number of open runs that no other host has continued yet."""
    since: datetime | None
    """The time at which the lease of the host ended; None where it was ended by another host."""


COUNT_TROUBLES = """
SELECT (SELECT count(*) FROM agents WHERE index_status = 'quarantined' AND NOT deleted),
    (SELECT count(*) FROM agents WHERE status = 'failed' AND index_status <> 'quarantined'
        AND status_at >= %s AND NOT deleted),
    (SELECT count(*) FROM asks WHERE kind = 'request'
        AND (reminders > 0 OR escalations > 0 OR expires_at <= %s)),
    (SELECT count(*) FROM asks WHERE kind = 'doubt')"""
