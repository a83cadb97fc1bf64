"""What people write beside requests, as a store keeps it, and as a list of requests asks of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from understudy.state.request_notes import RequestNote


class StoredNote(NamedTuple):
    """A note beside a request."""

    agent_id: str
    request_id: str
    note: RequestNote | None
    """The note; None for a comment, where only the number of comments is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesQuery:
    """Which requests are listed, by what is written beside them."""

    viewer: tuple[str, ...] = ()
    """The keys of the person who looks, as of `person_key`."""
    mine: bool = False
    """Whether only requests are listed that the person has taken, or was assigned."""
    unassigned: bool = False
    """Whether only requests are listed that nobody has."""
    snoozed: bool = False
    """Whether requests are listed, too, that the person has snoozed."""
    now: datetime | None = None
    """The time of the list. A claim or a snooze that has ended by then holds no more."""

    @property
    def hides_snoozed(self) -> bool:
        """Whether requests are left out that the person has snoozed."""
        return bool(self.viewer) and not self.snoozed

    @property
    def is_any(self) -> bool:
        """Whether the query leaves no request out."""
        return not (self.mine or self.unassigned or self.hides_snoozed)
