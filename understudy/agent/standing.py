"""`Standing`: what a person may do about a request with votes, known before the person acts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from understudy._base.points_in_time import time_text
from understudy.agent.decisions import AskedOf, excluded_from, why_no_voter
from understudy.approvals import (
    Approval,
    Represented,
    Vote,
    Voter,
    represented_by,
    why_not_settled_by,
    why_not_vouched,
)
from understudy.interrupts import Request

NOBODY_KNOWN = "no people are known here: give Runtime(people=...)"
"""The reason why nobody can vote if the application names no people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a person may do about a request on which persons vote."""

    has_voted: bool = False
    """Whether the person has voted. The person may vote again until the request is decided."""
    why_no_vote: str | None = None
    """The reason why the person may not vote, as a clause; None if the person may."""
    counts_as: tuple[str, ...] = ()
    """The roles by which the vote counts; empty if the person may not vote."""
    votes_for: Represented | None = None
    """The person represented by a delegation; None for an own vote, or if the person may not
    vote."""
    login_until: datetime | None = None
    """The time until which the login is new enough; None if its age does not matter or is too
    old."""
    needs_login: bool = False
    """Whether the person lacks only a new login."""
    may_break_glass: bool = False
    """Whether the person may let the call run alone."""

    def to_dict(self) -> dict[str, Any]:
        """Return the standing as plain data."""
        other = self.votes_for
        return {
            "has_voted": self.has_voted,
            "why_no_vote": self.why_no_vote,
            "counts_as": list(self.counts_as),
            "votes_for": None
            if other is None
            else {"person": other.person, "name": other.name, "until": time_text(other.until)},
            "login_until": time_text(self.login_until),
            "needs_login": self.needs_login,
            "may_break_glass": self.may_break_glass,
        }


def standing_of(
    request: AskedOf,
    asked: Approval | None,
    votes: Sequence[Vote],
    voter: Voter | None,
    now: datetime,
) -> Standing:
    """What a person may do about a request.

    Args:
        request: the request to vote on.
        asked: the approval of the request; None if nobody votes on it. Then `why_no_vote` says why
            the person may not answer for a call in doubt.
        votes: the earlier votes on it.
        voter: the person; None if no people are known.
        now: the time of the vote.

    """
    if asked is None:
        return _in_doubt(request, voter, now) if isinstance(request, Request) else Standing()
    if voter is None:
        return Standing(why_no_vote=NOBODY_KNOWN)
    has_voted = any(each.person == voter.person for each in votes)
    if voter.why_unknown:
        return Standing(has_voted=has_voted, why_no_vote=voter.why_unknown)
    why = why_no_voter(request, asked, voter, now, votes)
    alone = why_no_voter(request, asked, voter, now, break_glass=True)
    may_break_glass = bool(asked.break_glass) and alone is None
    if why is not None:
        lacks = why_not_vouched(asked, voter.assurance, voter.auth_at, now)
        return Standing(
            has_voted=has_voted,
            why_no_vote=why,
            needs_login=why == lacks,
            may_break_glass=may_break_glass,
        )
    other = represented_by(asked, voter, votes, excluded_from(request, asked), now)
    roles = voter.roles if other is None else other.roles
    login_until = None
    if asked.max_auth_age is not None and voter.auth_at is not None:
        login_until = voter.auth_at + timedelta(seconds=asked.max_auth_age)
    return Standing(
        has_voted=has_voted,
        counts_as=tuple(role for role in roles if role in asked.roles),
        votes_for=other,
        login_until=login_until,
        may_break_glass=may_break_glass,
    )


def _in_doubt(request: Request, voter: Voter | None, now: datetime) -> Standing:
    """What a person may do about a request about a call in doubt, which one answer decides."""
    if request.call_approval is None or not request.call_approval.never:
        return Standing()
    if voter is not None and voter.why_unknown:
        return Standing(why_no_vote=voter.why_unknown)
    by = None if voter is None else voter.login
    why = NOBODY_KNOWN if by is None else why_not_settled_by(request, by, voter, now)
    return Standing(why_no_vote=why)
