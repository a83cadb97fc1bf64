"""Room that deletions have left in a database is given back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuumed:
    """The result of a vacuum."""

    before: int
    """The size of the store before the vacuum, in bytes."""
    after: int
    """The size of the store after the vacuum, in bytes."""
