"""`MemoryNotes`: what people write beside requests, of a store in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime

from understudy.journal.asks import StoredAsk
from understudy.journal.notes import NotesQuery, StoredNote
from understudy.state.request_notes import (
    KEPT_NOTES,
    RESTS,
    SNOOZE_BREAKS,
    RequestNote,
    notes_of,
    person_key,
)


class _Beside:
    """The notes beside one request."""

    __slots__ = ("ended_at", "notes")

    def __init__(self) -> None:
        self.notes: list[RequestNote] = []
        self.ended_at: datetime | None = None


class MemoryNotes:
    """The notes of all agents, by agent and request."""

    def __init__(self) -> None:
        self._beside: dict[str, dict[str, _Beside]] = {}

    def add(self, agent_id: str, request_id: str, note: RequestNote) -> None:
        """Keep a note."""
        beside = self._beside.setdefault(agent_id, {}).setdefault(request_id, _Beside())
        if all(each.id != note.id for each in beside.notes):
            beside.notes.append(note)
            beside.ended_at = None

    def forget(self, agent_id: str) -> None:
        """Delete all notes of an agent."""
        self._beside.pop(agent_id, None)

    def has(self, agent_id: str) -> bool:
        """Whether there are notes beside requests of an agent."""
        return agent_id in self._beside

    def of(self, requests: Collection[tuple[str, str]], *, texts: bool) -> list[StoredNote]:
        """The notes beside requests; see `Backend.notes`."""
        return [
            StoredNote(agent_id, request_id, None if each.kind == "comment" and not texts else each)
            for agent_id, request_id in requests
            for each in self._notes(agent_id, request_id)
        ]

    def filter(self, query: NotesQuery) -> Callable[[StoredAsk], bool]:
        """Whether a request is listed."""
        viewer, now = set(query.viewer), query.now
        assert now is not None, "who lists says when"

        def wanted(ask: StoredAsk) -> bool:
            request = ask.request()
            found = notes_of(self._notes(ask.agent_id, request.id), now)
            owners = {
                person_key(each)
                for each in (
                    None if found.claim is None else found.claim.by,
                    None if found.assignment is None else found.assignment.to,
                )
                if each is not None
            }
            if (query.mine and not owners & viewer) or (query.unassigned and owners):
                return False
            if not query.hides_snoozed or found.snoozed_until(viewer) is None:
                return True
            return ask.expires_at is not None and ask.expires_at <= now + SNOOZE_BREAKS

        return wanted

    def sweep(self, now: datetime, is_asked: Callable[[str, str], bool]) -> None:
        """Mark notes of ended requests, and delete old notes; see `Backend.sweep_notes`.

        Args:
            now: the time.
            is_asked: whether an agent still asks a request.

        """
        for agent_id, requests in list(self._beside.items()):
            for request_id, beside in list(requests.items()):
                if is_asked(agent_id, request_id):
                    beside.ended_at = None
                    continue
                if beside.ended_at is None and beside.notes[-1].at <= now - RESTS:
                    beside.ended_at = now
                if beside.ended_at is not None and beside.ended_at <= now - KEPT_NOTES:
                    del requests[request_id]
            if not requests:
                del self._beside[agent_id]

    def _notes(self, agent_id: str, request_id: str) -> list[RequestNote]:
        beside = self._beside.get(agent_id, {}).get(request_id)
        return [] if beside is None else beside.notes
