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
    """A request about a call: from now on the call needs a decision or a withdrawal."""

    request: Request
    replaces: tuple[str, ...] = ()
    """The requests that it replaces, because what they showed has changed."""
    call_arguments: dict[str, Any] | None = None
    """As of `InterruptsChecked.arguments`, of its call."""
    not_entered: bool = False
    """It was made as the call was to run, and before its body was entered: by a middleware around
    it, or as something else was to run than was decided about."""
    votes: tuple[Vote, ...] = ()
    """In the index of a store: the votes on it so far. Else they are records of their own."""
    reply_size: int = 1
    """In the index of a store: how many requests the reply of the model had. Else it is 1."""
    kind: Literal["requested"] = "requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reminded:
    """The person is reminded of a request: its `number`-th reminder was due, and those before."""

    request_id: str
    number: int
    """From 1. Of several that are due at once only the last one is recorded."""
    at: datetime
    kind: Literal["reminded"] = "reminded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalated:
    """The next audience is told of a request: its `number`-th escalation was due."""

    request_id: str
    number: int
    """From 1."""
    audience: str
    at: datetime
    kind: Literal["escalated"] = "escalated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The decision on a request."""

    request_id: str
    decision: Decision
    at: datetime
    context: StoredContext = field(default_factory=dict)
    """That of who decided."""
    login: Login | None = None
    """The login of who decided, where more is known of it than the name in the decision."""
    kind: Literal["decided"] = "decided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Voted:
    """A person has said what they think of a request that asks several.

    What the votes come to is recorded with the vote that completes them, as `Decided`.
    """

    request_id: str
    vote: Vote
    missing: str = ""
    """The votes that are missing after this one, in words; empty where enough have agreed."""
    approved_at: datetime | None = None
    """When the call is approved to which enough have agreed, unless somebody objects."""
    kind: Literal["voted"] = "voted"

    @property
    def at(self) -> datetime:
        """When it was cast."""
        return self.vote.at


def voted_on(request: Request, before: Sequence[Vote], vote: Vote) -> Voted:
    """The record of a vote on a request, after the votes before it."""
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
    """A person alone has let a call run to which several had to agree. It is to be reviewed."""

    review: Review
    kind: Literal["glass_broken"] = "glass_broken"

    @property
    def at(self) -> datetime:
        """When they did."""
        return self.review.at


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewClosed(Timed):
    """A person has reviewed why another had broken the glass."""

    review_id: str
    person: str
    """The id of the person who closed it."""
    by: str
    """The name under which they did."""
    note: str | None = None
    """What they say of it."""
    kind: Literal["review_closed"] = "review_closed"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptsChecked(Timed):
    """Every middleware has said which calls of this turn need a person.

    One record, so that after a crash either all requests are there or all middleware is called
    again.
    """

    turn: int
    requests: tuple[Request, ...] = ()
    decided: tuple[Decided, ...] = ()
    """Decisions by grants that cover such a request: each takes a use."""
    arguments: dict[str, dict[str, Any]] | None = None
    """By call key, the arguments of the call where they are not as the model wrote them: with the
    values of defaults, converted by the tool's types."""
    asked_by: str = ""
    """The process and the definition that have asked: see `Run.asked_by`."""
    kind: Literal["interrupts_checked"] = "interrupts_checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked(Timed):
    """A grant holds no longer."""

    grant_id: str
    by: By | None = None
    """The person who revoked it; None where nobody was named."""
    kind: Literal["revoked"] = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn(Timed):
    """A new message from outside withdraws the pending requests."""

    request_ids: tuple[str, ...]
    kind: Literal["withdrawn"] = "withdrawn"
