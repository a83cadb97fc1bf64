"""`RequestNote`: what a person writes beside a request; `RequestNotes`: the sum of such notes.

People who share a queue tell each other who looks at which request. No agent sees the notes, and
they are in no record of an agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Literal, get_args

from pydantic import TypeAdapter

from understudy._base.authors import By, Login
from understudy._base.json_values import checked_text, shown
from understudy._base.points_in_time import time_text
from understudy.approvals import Caller
from understudy.errors import UsageError

NoteKind = Literal["take", "comment", "snooze", "assign"]
NOTE_KINDS: tuple[NoteKind, ...] = get_args(NoteKind)
KEPT_NOTES = timedelta(days=30)
"""The time for which notes are kept, from the end of their request or from their writing, whichever
is later."""
MOST_NOTES = 500
"""The maximum number of notes beside one request."""
LONGEST_COMMENT = 4000
"""The maximum characters of a comment."""
RESTS = timedelta(hours=1)
"""A note younger than this is never taken for a note on an ended request: a request is not open for
a moment while another call of its reply runs."""
SNOOZE_BREAKS = timedelta(hours=1)
"""A request that expires within this time is shown, although somebody has snoozed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestNote:
    """One thing that a person has said beside a request. It is never changed."""

    id: str
    """The unique id of the note: a note that is written twice is kept once."""
    kind: NoteKind
    at: datetime
    by: By
    until: datetime | None = None
    """The end of a `take` or `snooze`; None ends an earlier one at once."""
    to: By | None = None
    """The person of an `assign`; None = nobody."""
    text: str = ""
    """The text of a `comment`."""

    @property
    def slot(self) -> str:
        """The slot of the note, whose newest note holds; empty if the note replaces none."""
        if self.kind == "comment":
            return ""
        return f"snooze {person_key(self.by)}" if self.kind == "snooze" else self.kind

    @property
    def person(self) -> str:
        """The key of the person who gets the request, or does not see it; empty for nobody."""
        if self.kind == "assign":
            return "" if self.to is None else person_key(self.to)
        return "" if self.until is None else person_key(self.by)

    def to_json(self) -> bytes:
        """The note as JSON bytes, as a store keeps it."""
        return _adapter().dump_json(self)


def note_of(payload: bytes) -> RequestNote:
    """The note from its stored bytes.

    Raises:
        ValueError: if the bytes cannot be read.

    """
    return _adapter().validate_json(payload)


@cache
def _adapter() -> TypeAdapter[RequestNote]:
    return TypeAdapter(RequestNote)


def checked_request_id(given: object, *, what: str) -> str:
    """`given`, if a request may have it as its id.

    Raises:
        UsageError: if it is no text, or a text that no store can hold.

    """
    id = checked_text(given, what=what)
    if "\0" in id:
        raise UsageError(f"{what} must be text without NUL, got {shown(given)}")
    return id


def person_key(by: By) -> str:
    """The key of a person: the name, or issuer and subject of an identity provider.

    The two have a line end between them, which no name has.
    """
    if isinstance(by, Login):
        return f"{by.issuer}\n{by.subject}" if by.issuer else by.name
    return by


def viewer_keys(caller: Caller) -> tuple[str, ...]:
    """The keys of a viewer, also the name alone: a person who assigns a request may know only
    that.
    """
    return tuple(dict.fromkeys((person_key(caller.login or caller.name), caller.name)))


def _person(by: By) -> dict[str, Any]:
    """A person as plain data."""
    known = by if isinstance(by, Login) else Login(name=by)
    return {"name": known.shown, "issuer": known.issuer, "subject": known.subject}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The note that a person looks after the request until a time. It is a courtesy and refuses
    nobody.
    """

    by: By
    at: datetime
    until: datetime
    over: By | None = None
    """The person whose claim is over; None if there is none."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        return {
            **_person(self.by),
            "at": time_text(self.at),
            "until": time_text(self.until),
            "over": None if self.over is None else _person(self.over),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The person to whom the request was given, and the person who gave it."""

    to: By
    by: By
    at: datetime

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        return {**_person(self.to), "by": _person(self.by), "at": time_text(self.at)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A person's remark about the request, for the others who look at it."""

    by: By
    at: datetime
    text: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        return {**_person(self.by), "at": time_text(self.at), "text": self.text}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestNotes:
    """The sum of the notes beside a request at one moment."""

    claim: Claim | None = None
    """The claim of the person who looks after the request now; None if nobody does."""
    assignment: Assignment | None = None
    comments: tuple[Comment, ...] = ()
    """The comments, oldest first. Empty in a list of requests, which has only their number."""
    comment_count: int = 0
    count: int = 0
    """The number of notes, including notes that hold no more."""
    snoozes: Mapping[str, datetime] = field(default_factory=dict, repr=False)
    """The end of each person's snooze, by `person_key`."""

    def snoozed_until(self, keys: Iterable[str]) -> datetime | None:
        """The end of the snooze of a person with one of these keys; None without a snooze."""
        return max((self.snoozes[key] for key in keys if key in self.snoozes), default=None)

    def to_dict(self, viewer: Iterable[str] = ()) -> dict[str, Any]:
        """Return it as JSON-able data for a viewer with these keys, without the snoozes of
        others.
        """
        keys = set(viewer)
        claim, assignment = self.claim, self.assignment
        return {
            "claim": None if claim is None else claim.to_dict(),
            "assignment": None if assignment is None else assignment.to_dict(),
            "comment_count": self.comment_count,
            "snoozed_until": time_text(self.snoozed_until(keys)),
            "is_yours": claim is not None and person_key(claim.by) in keys,
            "was_yours": claim is not None
            and claim.over is not None
            and person_key(claim.over) in keys,
            "is_for_you": assignment is not None and person_key(assignment.to) in keys,
        }


NO_NOTES = RequestNotes()


def notes_of(notes: Iterable[RequestNote | None], now: datetime) -> RequestNotes:
    """Add up notes.

    Args:
        notes: the notes, oldest first; None for a comment of which only the number is known.
        now: the time; a note that has ended by then holds no more.

    """
    claim: Claim | None = None
    assignment: Assignment | None = None
    comments: list[Comment] = []
    snoozes: dict[str, datetime] = {}
    given = list(notes)
    for note in given:
        if note is None:
            continue
        if note.kind == "comment":
            comments.append(Comment(by=note.by, at=note.at, text=note.text))
        elif note.kind == "take":
            claim = None if note.until is None else _claimed(claim, note, note.until)
        elif note.kind == "snooze":
            # The end of an ended snooze is over.
            snoozes[person_key(note.by)] = note.until or note.at
        else:
            assignment = None
            if note.to is not None:
                assignment = Assignment(to=note.to, by=note.by, at=note.at)
    return RequestNotes(
        claim=claim if claim is not None and claim.until > now else None,
        assignment=assignment,
        comments=tuple(comments),
        comment_count=len(comments) + given.count(None),
        count=len(given),
        snoozes={key: until for key, until in snoozes.items() if until > now},
    )


def _claimed(before: Claim | None, note: RequestNote, until: datetime) -> Claim:
    over = None
    if before is not None and before.until > note.at:
        is_same = person_key(before.by) == person_key(note.by)
        over = before.over if is_same else before.by
    return Claim(by=note.by, at=note.at, until=until, over=over)
