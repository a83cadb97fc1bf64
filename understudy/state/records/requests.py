"""Records of requests to people, and of decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from understudy._base.authors import By, Login
from understudy._base.context_codecs import StoredContext
from understudy._base.quickly_made import quickly_made
from understudy.approvals import Vote, tally
from understudy.interrupts import Decision, Request, approved_at
from understudy.state.records.timed import Timed
from understudy.state.reviews import Review


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested(Timed):
    """The record of a request about a call. From now on the call needs a decision or a
    withdrawal.
    """

    request: Request
    replaces: tuple[str, ...] = ()
    """The ids of the requests that it replaces, because what they showed has changed."""
    call_arguments: dict[str, Any] | None = None
    """The arguments of the request's call, in the form of `InterruptsChecked.arguments`."""
    not_entered: bool = False
    """Whether the request was made when the call was to run, before its body was entered.

    It was then made by a middleware around the call, or because the call differed from what was
    decided about.
    """
    votes: tuple[Vote, ...] = ()
    """The votes on it so far, in the index of a store. Elsewhere votes are records of their own."""
    reply_size: int = 1
    """The number of requests of the model's reply, in the index of a store; 1 elsewhere."""
    kind: Literal["requested"] = "requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reminded:
    """The record that the person is reminded of a request, as a reminder was due."""

    request_id: str
    number: int
    """The number of the reminder, from 1. If several are due at once, only the last one is
    recorded."""
    at: datetime
    kind: Literal["reminded"] = "reminded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalated:
    """The record that other people are notified of a request: an escalation of it was due."""

    request_id: str
    number: int
    """The number of the escalation, from 1."""
    audience: str
    at: datetime
    kind: Literal["escalated"] = "escalated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The record of the decision on a request."""

    request_id: str
    decision: Decision
    at: datetime
    context: StoredContext = field(default_factory=dict)
    """The context of the person who decided, by the names of the codecs."""
    login: Login | None = None
    """The login of the person who decided; None if nothing is known but the name in the
    decision."""
    kind: Literal["decided"] = "decided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Voted:
    """The record of one person's vote on a request that asks several persons.

    The decision is recorded together with the vote that completes it, as `Decided`.
    """

    request_id: str
    vote: Vote
    missing: str = ""
    """The votes that are still missing after this one, in words; empty if enough have agreed."""
    approved_at: datetime | None = None
    """The time at which the call is approved unless somebody objects, once enough have agreed."""
    kind: Literal["voted"] = "voted"

    @property
    def at(self) -> datetime:
        """The time at which the vote was cast."""
        return self.vote.at


def voted_on(request: Request, before: Sequence[Vote], vote: Vote) -> Voted:
    """Return the record of a vote on a request, after the votes before it."""
    assert request.approval is not None, "only called for a request that asks several persons"
    votes = (*before, vote)
    return Voted(
        request_id=request.id,
        vote=vote,
        missing=tally(request.approval, votes).text,
        approved_at=approved_at(request, votes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GlassBroken:
    """The record that a person alone approved a call to which several persons had to agree.

    Another person is to review it.
    """

    review: Review
    kind: Literal["glass_broken"] = "glass_broken"

    @property
    def at(self) -> datetime:
        """The time at which the person approved the call."""
        return self.review.at


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewClosed(Timed):
    """The record that a person has reviewed why another person had broken the glass."""

    review_id: str
    person: str
    """The id of the person who closed the review."""
    by: str
    """The name under which the person closed the review."""
    note: str | None = None
    """The person's note about it."""
    kind: Literal["review_closed"] = "review_closed"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptsChecked(Timed):
    """The record that every middleware has said which calls of this turn need a person.

    It is one record. So after a crash either all requests are there, or all middleware is called
    again.
    """

    turn: int
    requests: tuple[Request, ...] = ()
    decided: tuple[Decided, ...] = ()
    """The decisions that grants made on the requests. Each takes one use of its grant."""
    arguments: dict[str, dict[str, Any]] | None = None
    """The arguments, by call key, of each call whose arguments differ from what the model wrote.

    They have the values of defaults, and are converted by the types of the tool.
    """
    asked_by: str = ""
    """The process and the definition whose gates were asked: see `Run.asked_by`."""
    kind: Literal["interrupts_checked"] = "interrupts_checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked(Timed):
    """The record that a grant holds no longer."""

    grant_id: str
    by: By | None = None
    """The person who revoked it; None if nobody was named."""
    kind: Literal["revoked"] = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn(Timed):
    """The record that a new message from outside withdraws the pending requests."""

    request_ids: tuple[str, ...]
    kind: Literal["withdrawn"] = "withdrawn"
