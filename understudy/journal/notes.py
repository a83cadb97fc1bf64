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
    """None: a comment of which only the number is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesQuery:
    """Which requests are listed, by what is written beside them."""

    viewer: tuple[str, ...] = ()
    """The keys of the person who looks, as of `person_key`."""
    mine: bool = False
    """Only those that the person has taken, or was assigned."""
    unassigned: bool = False
    """Only those that nobody has."""
    snoozed: bool = False
    """Also those that the person has snoozed."""
    now: datetime | None = None
    """What has ended by then holds no more."""

    @property
    def hides_snoozed(self) -> bool:
        """Whether those are left out that the person has snoozed."""
        return bool(self.viewer) and not self.snoozed

    @property
    def is_any(self) -> bool:
        """Whether it leaves nothing out."""
        return not (self.mine or self.unassigned or self.hides_snoozed)
