"""`Timed`: the base of records that have a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A record that gets its time from the ledger, at the moment at which it is recorded."""

    at: datetime | None = field(default=None, compare=False)
    """The time of the record. None before it is recorded, and for a record that another record
    holds.

    It is not compared: the same signal at another time is the same signal.
    """
