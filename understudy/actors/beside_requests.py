"""`BesideRequests`: what people write beside a request: who takes it, comments, who is to do it.

It activates no agent, and writes no record of an agent. A decision never looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any

from understudy._base.authors import By
from understudy._base.clock import Clock, new_random_id
from understudy._base.json_values import checked_text, shown
from understudy._base.points_in_time import checked_time
from understudy.actors.presence import Presence
from understudy.approvals import Caller
from understudy.errors import DecisionError, UnknownAgent, UsageError
from understudy.journal import Store
from understudy.state.agent_state import AgentState
from understudy.state.request_notes import (
    LONGEST_COMMENT,
    MOST_NOTES,
    NoteKind,
    RequestNote,
    RequestNotes,
    notes_of,
    person_key,
)

USUAL_CLAIM = timedelta(hours=1)
"""The time for which a person takes a request, if they do not say how long."""
LONGEST = timedelta(days=30)
"""The longest time for which a request may be taken or snoozed."""


def checked_until(given: object, now: datetime, *, what: str) -> datetime:
    """The end of a claim or a snooze, checked.

    Raises:
        UsageError: if it is no time, is over, or is too late.

    """
    until = checked_time(given, what=what)
    if not now < until <= now + LONGEST:
        raise UsageError(
            f"{what} must be within the next {LONGEST.days} days, got {until.isoformat()}"
        )
    return until


def checked_comment(given: object) -> str:
    """The text of a comment, checked.

    Raises:
        UsageError: if it is no text, empty or too long.

    """
    text = checked_text(given, what="comment(text)").strip()
    if not text or len(text) > LONGEST_COMMENT:
        raise UsageError(f"comment(text) must have 1 to {LONGEST_COMMENT} characters")
    return text


class BesideRequests:
    """Writes beside the requests of one store. On the runtime's loop.

    Args:
        store: keeps it.
        clock: of the agents.
        presence: tells those who look.
        state_of: the state of an agent, by its id, without activating it.

    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        presence: Presence,
        state_of: Callable[[str], Coroutine[Any, Any, AgentState]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._presence = presence
        self._state_of = state_of

    async def take(
        self, agent_id: str, request_id: str, until: datetime | None, release: bool, by: By
    ) -> RequestNotes:
        """Claim a request; see `Runtime.take`."""
        now = self._clock.now()
        if not release:
            end = now + USUAL_CLAIM if until is None else until
            end = checked_until(end, now, what="take(until=...)")
            return await self._add(agent_id, request_id, "take", by, until=end)
        found = await self._open(agent_id, request_id)
        if found.claim is None or person_key(found.claim.by) != person_key(by):
            return found  # it was over, or somebody else has it
        return await self._add(agent_id, request_id, "take", by)

    async def comment(self, agent_id: str, request_id: str, text: str, by: By) -> RequestNotes:
        """Write a comment beside a request; see `Runtime.comment`."""
        return await self._add(agent_id, request_id, "comment", by, text=text)

    async def snooze(
        self, agent_id: str, request_id: str, until: datetime | None, by: By
    ) -> RequestNotes:
        """Hide a request from one person's lists; see `Runtime.snooze`."""
        if until is not None:
            end = checked_until(until, self._clock.now(), what="snooze(until=...)")
            return await self._add(agent_id, request_id, "snooze", by, until=end)
        found = await self._open(agent_id, request_id)
        if found.snoozed_until([person_key(by)]) is None:
            return found
        return await self._add(agent_id, request_id, "snooze", by)

    async def assign(
        self, agent_id: str, request_id: str, to: Caller | None, by: By
    ) -> RequestNotes:
        """Assign a request to a person; see `Runtime.assign`."""
        wanted = None if to is None else to.login or to.name
        found = await self._open(agent_id, request_id)
        there = None if found.assignment is None else person_key(found.assignment.to)
        if there == (None if wanted is None else person_key(wanted)):
            return found
        return await self._add(agent_id, request_id, "assign", by, to=wanted)

    async def _add(
        self, agent_id: str, request_id: str, kind: NoteKind, by: By, **said: Any
    ) -> RequestNotes:
        before = await self._open(agent_id, request_id, is_comment=kind == "comment")
        if before.count >= MOST_NOTES:
            raise UsageError(
                f"Request {shown(request_id)} has {MOST_NOTES} notes already: it takes no more"
            )
        now = self._clock.now()
        note = RequestNote(id=new_random_id(), kind=kind, at=now, by=by, **said)
        if not await self._store.add_note(agent_id, request_id, note):
            raise UnknownAgent(agent_id=agent_id)  # it was deleted meanwhile
        self._presence.tell(agent_id, request_id)
        return await self._found(agent_id, request_id)

    async def _open(
        self, agent_id: str, request_id: str, *, is_comment: bool = False
    ) -> RequestNotes:
        """The notes beside a request that waits; for a comment, of any request that was asked.

        Raises:
            UnknownAgent: if there is no such agent.
            DecisionError: if there is no such request.

        """
        state = await self._state_of(agent_id)
        found = await self._found(agent_id, request_id)
        is_open = any(each.id == request_id for each in state.requests)
        made = (record.request.id for inner in state.tree for record in inner.decisions)
        if is_open or (is_comment and (found.count or request_id in made)):
            return found
        raise DecisionError(
            f"Request {shown(request_id)} of agent {shown(agent_id)} does not wait for a person: "
            "it was answered or withdrawn, or never asked",
            request_id=request_id,
        )

    async def _found(self, agent_id: str, request_id: str) -> RequestNotes:
        found = await self._store.notes([(agent_id, request_id)], texts=True)
        return notes_of((each.note for each in found), self._clock.now())
