"""What most records have: their time."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A record that the ledger gives its time, in the moment in which it is recorded."""

    at: datetime | None = field(default=None, compare=False)
    """None before it is recorded, and of a record that another one holds.

    Not compared: the same signal at another time is the same signal.
    """
