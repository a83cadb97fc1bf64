"""Room that deletions have left in a database is given back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuumed:
    """What came of a vacuum."""

    before: int
    """Bytes of the store before it."""
    after: int
    """Bytes of the store behind it."""
