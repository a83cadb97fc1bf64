"""`Approval`: how many persons must agree before a call runs, and what their votes come to.

Persons are told apart by their ids, never by their names. A person counts once, whatever number of
roles they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from understudy._base.grant_terms import GrantTerms
from understudy._base.json_values import checked_text, shown
from understudy.errors import UsageError

__all__ = ["Approval", "Assurance", "Tally", "Vote", "approval", "tally"]

Assurance = Literal["host", "login", "idp"]
"""Who says that a person is who they are: code of the host application, a login of the pages, or an
identity provider whose token was verified."""
Excluded = Literal["requester"]
"""Who may not vote: the persons whose message, steering, answer or schedule led to the call."""
Roles: TypeAlias = Mapping[str, int]
"""By role, how many distinct persons who have it must agree."""
Kind = Literal["person", "service", "model"]
"""What somebody is. Only a person votes."""
VoteType = Literal["approve", "reject"]
VOTE_TYPES: tuple[VoteType, ...] = ("approve", "reject")
"""What persons may say of a call to which several must agree: it runs as it is, or not."""
MAX_PERSONS = 20
"""The largest number of persons that an approval may ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """Who must agree before a call runs. Make one with `approval`."""

    ways: tuple[dict[str, int], ...]
    """Each of these is enough: by role, how many distinct persons who have it must approve."""
    deny: int = 1
    """How many persons who might approve must reject, for the call to be rejected."""
    never: tuple[Excluded, ...] = ()
    """Who may not vote, whatever their roles."""

    @property
    def roles(self) -> frozenset[str]:
        """The roles of which one is needed to vote."""
        return frozenset(role for way in self.ways for role in way)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "ways": [dict(way) for way in self.ways],
            "deny": self.deny,
            "never": list(self.never),
        }

    @property
    def text(self) -> str:
        """Who must agree, in words: "2 of finance, or 1 of ceo"."""
        ways = [" and ".join(f"{n} of {role}" for role, n in way.items()) for way in self.ways]
        text = ", or ".join(ways)
        return f"{text}, never the requester" if "requester" in self.never else text


def approval(
    by: Roles | None = None,
    *,
    any_of: Iterable[Roles] = (),
    deny: int = 1,
    never: Sequence[Excluded] = (),
) -> Approval:
    """Who must agree before a call runs: `approval({"finance": 2}, never=["requester"])`.

    Args:
        by: by role, how many distinct persons who have it must approve; all of these.
        any_of: several of these, each of which is enough.
        deny: how many persons who might approve must reject, for the call to be rejected.
        never: who may not vote: `"requester"` stands for all persons who have asked for the call.

    Raises:
        UsageError: where nobody is named, or a number of persons is not possible.

    """
    ways = [*([] if by is None else [by]), *any_of]
    if by is not None and len(ways) > 1:
        raise UsageError("approval(...) takes `by` or `any_of`, not both")
    if not ways:
        raise UsageError('approval() names nobody: write approval({"finance": 2})')
    if isinstance(deny, bool) or not isinstance(deny, int) or not 1 <= deny <= MAX_PERSONS:
        raise UsageError(
            f"approval(deny=...) must be a number of persons from 1 to {MAX_PERSONS}, got "
            f"{shown(deny)}"
        )
    if isinstance(never, str) or set(never) - {"requester"}:
        raise UsageError(f'approval(never=...) must be ["requester"] or empty, got {shown(never)}')
    return Approval(ways=tuple(map(_way, ways)), deny=deny, never=tuple(dict.fromkeys(never)))


def _way(given: object) -> dict[str, int]:
    if not isinstance(given, Mapping) or not given:
        raise UsageError(
            f'approval(...) takes roles with numbers of persons, such as {{"finance": 2}}, got '
            f"{shown(given)}"
        )
    for role, number in given.items():
        checked_text(role, what="approval(...): a role")
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise UsageError(
                f"approval(...): the number of persons of {role!r} must be at least 1, got "
                f"{shown(number)}"
            )
    if sum(given.values()) > MAX_PERSONS:
        raise UsageError(f"approval(...) asks for more than {MAX_PERSONS} persons")
    return dict(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """What a person says of a request that several may have to agree to."""

    person: str
    """The id of the person."""
    name: str
    """The name of the person, to be shown."""
    login: str
    """The name under which the vote came: by it the application is asked for the roles again."""
    roles: tuple[str, ...]
    """The roles that the person had then, of those that the request asks for."""
    type: VoteType
    message: str | None = None
    """For `reject`: a text for the model."""
    note: str | None = None
    """Why; the model does not see it."""
    assurance: Assurance = "host"
    grant: GrantTerms | None = None
    """How far the person wants the decision to hold for later calls; None for this call alone."""
    at: datetime

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "person": self.person,
            "name": self.name,
            "roles": list(self.roles),
            "type": self.type,
            "message": self.message,
            "note": self.note,
            "assurance": self.assurance,
            "grant": None if self.grant is None else self.grant.to_dict(),
            "at": self.at.isoformat(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    """Who decides, as the application says that knows its people."""

    login: str
    """The name under which the decision came."""
    person: str = ""
    """The id of the person; empty where nobody is known under that name."""
    name: str = ""
    roles: tuple[str, ...] = ()
    kind: Kind = "person"
    assurance: Assurance = "host"
    why_unknown: str = ""
    """Why the application could not say who it is; empty where it could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What votes come to."""

    result: VoteType | None
    """None where more persons must vote."""
    missing: dict[str, int]
    """By role, how many more must approve on the way that lacks the fewest; empty with a result."""
    counted: tuple[Vote, ...]
    """The last vote of each person who may vote, in the order in which these were cast."""

    @property
    def text(self) -> str:
        """What is missing, in words: "1 more of finance"."""
        return " and ".join(f"{n} more of {role}" for role, n in self.missing.items())


def tally(asked: Approval, votes: Iterable[Vote], excluded: frozenset[str] = frozenset()) -> Tally:
    """What these votes come to.

    Args:
        asked: who must agree.
        votes: in the order in which they were cast. The last vote of a person counts.
        excluded: the ids of persons whose votes do not count.

    """
    last = {each.person: each for each in votes}
    counted = tuple(
        each
        for each in last.values()
        if each.person not in excluded and not asked.roles.isdisjoint(each.roles)
    )
    if sum(each.type == "reject" for each in counted) >= asked.deny:
        return Tally(result="reject", missing={}, counted=counted)
    agreed = [each for each in counted if each.type == "approve"]
    missing = min((_missing(way, agreed) for way in asked.ways), key=lambda way: sum(way.values()))
    return Tally(result=None if missing else "approve", missing=missing, counted=counted)


def _missing(way: Mapping[str, int], agreed: Sequence[Vote]) -> dict[str, int]:
    """By role, how many persons are missing if each stands for one of their roles.

    As many places as possible are taken: a person who has two roles gives way to another who has
    but one of these (a maximum matching, by augmenting paths).
    """
    places = [role for role, number in way.items() for _ in range(number)]
    taken_by: dict[int, int] = {}

    def seat(voter: int, tried: set[int]) -> bool:
        for place, role in enumerate(places):
            if role not in agreed[voter].roles or place in tried:
                continue
            tried.add(place)
            if place not in taken_by or seat(taken_by[place], tried):
                taken_by[place] = voter
                return True
        return False

    for voter in range(len(agreed)):
        seat(voter, set())
    missing: dict[str, int] = {}
    for place, role in enumerate(places):
        if place not in taken_by:
            missing[role] = missing.get(role, 0) + 1
    return missing


def equal_vote(votes: Iterable[Vote], vote: Vote) -> bool:
    """Whether the last vote of this person says the same: then it is no other vote."""
    last = {each.person: each for each in votes}.get(vote.person)
    return last is not None and (last.type, last.message, last.grant) == (
        vote.type,
        vote.message,
        vote.grant,
    )
