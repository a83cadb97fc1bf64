"""`Approval`: how many persons must agree before a call runs, and what their votes come to.

An id identifies a person, never a name. A person counts once, with any number of roles.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Annotated, Any, Literal, Protocol, TypeAlias, get_args

from pydantic import Field

from understudy._base.authors import By, Login
from understudy._base.grant_terms import GrantTerms
from understudy._base.json_values import checked_text, shown
from understudy._base.request_timing import MAX_SECONDS, Seconds, checked_span, span_text
from understudy.errors import UsageError

__all__ = ["Approval", "Assurance", "Caller", "Tally", "Vote", "approval", "tally"]

Span: TypeAlias = Annotated[float, Field(gt=0, le=MAX_SECONDS)]
"""A span of time in seconds, in the bounds of `checked_span`, also where it is read back."""
Assurance = Literal["host", "login", "idp"]
"""The source of an identity, the weakest first.

- `host`: code of the host application named the person.
- `login`: the person logged in on the pages.
- `idp`: an identity provider signed a token, and the token was verified.
"""
ASSURANCES: tuple[Assurance, ...] = get_args(Assurance)
Excluded = Literal["requester"]
"""The persons without a vote: their message, steering, answer or schedule led to the call."""
Roles: TypeAlias = Mapping[str, int]
"""By role, how many distinct persons with the role must agree."""
Kind = Literal["person", "service", "model"]
"""What somebody is. Only a person votes."""
VoteType = Literal["approve", "reject"]
VOTE_TYPES: tuple[VoteType, ...] = ("approve", "reject")
"""What persons may say of a call to which several must agree: it runs as it is, or not."""
RULE = "rule: "
"""The source of the request of a rule begins with it; the name of the rule follows."""
BUDGET = "budget: "
"""The source of the request of a budget begins with it; the name of the budget follows."""
MAX_PERSONS = 20
"""The largest number of persons that an approval may ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The author of a call: a person or code, as far as the library knows who it is."""

    name: str
    """The name of the login, for display, or the name that code of the host application gave.

    If there is an `issuer`, the name identifies nobody: two persons may have the same name.
    """
    assurance: Assurance = "host"
    """The source of the identity."""
    issuer: str = ""
    """The identity provider that signed the identity; empty without a provider."""
    subject: str = ""
    """The provider's id of the person, byte for byte; empty without a provider."""
    auth_at: datetime | None = None
    """The time of the login at the provider; None if the provider does not say it."""
    claims: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """All claims of the token.

    Empty if there is no token: right before a call starts, the voters are looked up again, without
    their tokens.
    """
    acting_for: str = ""
    """The name of the person for whom the caller acts; empty if the caller acts for nobody else.

    The caller stays the author of the act.
    """

    @property
    def shown(self) -> str:
        """The name that is recorded: "ann", or "ann for bob"."""
        return f"{self.name} for {self.acting_for}" if self.acting_for else self.name

    @property
    def login(self) -> Login | None:
        """The login to record for an act; None if the name alone identifies the author."""
        if self.assurance == "host" and not self.issuer and not self.acting_for:
            return None
        return Login(
            name=self.name,
            issuer=self.issuer,
            subject=self.subject,
            acting_for=self.acting_for,
            assurance=self.assurance,
        )


def caller_by(by: By) -> Caller:
    """The author of an act, by its record. A bare name came from the host program."""
    if not isinstance(by, Login):
        return Caller(name=by)
    return Caller(
        name=by.name,
        assurance=by.assurance,
        issuer=by.issuer,
        subject=by.subject,
        acting_for=by.acting_for,
    )


def caller_named(name: str, login: Caller | None) -> Caller:
    """The caller with this name: the login if it has the name, else one that the program names."""
    return login if login is not None and login.shown == name else Caller(name=name)


def caller_deciding(name: str, login: Caller | None) -> Caller:
    """The caller who decides under this name.

    Raises:
        UsageError: if a login decides under the name of another one.

    """
    if login is not None and login.shown != name:
        raise UsageError(f"{login.shown!r} is logged in, and {name!r} cannot decide by that")
    return caller_named(name, login)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """The terms of an approval: which persons must agree before a call runs.

    Make it with `approval`.
    """

    ways: tuple[dict[str, int], ...]
    """The alternative ways to an approval; one way is enough.

    Each way gives, by role, how many distinct persons with the role must approve.
    """
    deny: int = 1
    """The number of persons who must reject before the call is rejected.

    Only persons who could approve count.
    """
    never: tuple[Excluded, ...] = ()
    """The persons who have no vote, whatever their roles."""
    within: Span | None = None
    """The number of seconds after which the request expires; None = as its gate says."""
    use_after: Span | None = None
    """The number of seconds for which enough persons must have agreed before the call is approved.

    None = the call is approved at once.
    """
    use_within: Span | None = None
    """The number of seconds after the decision within which the call must start; None = no limit.

    If the call starts later, persons vote again.
    """
    break_glass: dict[str, int] | None = None
    """The roles of which one person may let the call run alone; None = nobody may."""
    assurance: Assurance = "host"
    """The weakest assurance that a voter may have."""
    max_auth_age: Span | None = None
    """The longest time since the login of a voter, in seconds; None = no limit."""

    @property
    def roles(self) -> frozenset[str]:
        """The roles that vote. A voter needs one of them."""
        return frozenset(role for way in self.ways for role in way)

    @property
    def excludes(self) -> bool:
        """Whether some persons are refused whatever their roles.

        With `never`, the persons who asked for the call are refused. If more than one person must
        agree on some way, the persons who edited its arguments are refused too.
        """
        return bool(self.never) or any(sum(way.values()) > 1 for way in self.ways)

    @property
    def glass_roles(self) -> frozenset[str]:
        """The roles that may break the glass. A person needs one of them."""
        return frozenset(self.break_glass or ())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Approval:
        """As `to_dict` wrote it."""
        return cls(
            **{
                **data,
                "ways": tuple(dict(way) for way in data["ways"]),
                "never": tuple(data["never"]),
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the terms as plain data. Terms that are not set are left out."""
        terms: dict[str, Any] = {
            "within": self.within,
            "use_after": self.use_after,
            "use_within": self.use_within,
            "break_glass": self.break_glass,
            "assurance": None if self.assurance == "host" else self.assurance,
            "max_auth_age": self.max_auth_age,
        }
        return {
            "ways": [dict(way) for way in self.ways],
            "deny": self.deny,
            "never": list(self.never),
            **{name: value for name, value in terms.items() if value is not None},
        }

    @property
    def who(self) -> str:
        """The persons who must agree, in words: "2 of finance, or 1 of ceo"."""
        ways = [" and ".join(f"{n} of {role}" for role, n in way.items()) for way in self.ways]
        return ", or ".join(ways)

    @property
    def text(self) -> str:
        """The persons who must agree, and who never do, in words: "2 of finance, never the
        requester".
        """
        return f"{self.who}, never the requester" if "requester" in self.never else self.who

    @property
    def terms(self) -> tuple[str, ...]:
        """The other terms of the approval, each as a sentence."""
        found = []
        if self.within is not None:
            found.append(f"It must be decided within {span_text(self.within)}.")
        if self.use_after is not None:
            found.append(f"It starts {span_text(self.use_after)} after enough have agreed.")
        if self.use_within is not None:
            found.append(f"It must start within {span_text(self.use_within)} of the decision.")
        for role in self.break_glass or ():
            found.append(f"In an emergency 1 of {role} may break the glass, with a reason.")
        if self.assurance != "host":
            found.append(f"Votes must come by {_BY_WHAT[self.assurance]}.")
        if self.max_auth_age is not None:
            age = span_text(self.max_auth_age)
            found.append(f"A voter must have logged in within the last {age}.")
        return tuple(found)


_BY_WHAT: Mapping[Assurance, str] = {
    "host": "the application",
    "login": "a login",
    "idp": "an identity provider",
}


def approval(
    by: Roles | None = None,
    *,
    any_of: Iterable[Roles] = (),
    deny: int = 1,
    never: Sequence[Excluded] = (),
    within: Seconds | None = None,
    use_after: Seconds | None = None,
    use_within: Seconds | None = None,
    break_glass: Roles | None = None,
    assurance: Assurance = "host",
    max_auth_age: Seconds | None = None,
) -> Approval:
    """Say who must agree before a call runs: `approval({"finance": 2}, never=["requester"])`.

    Durations are seconds or timedeltas.

    Args:
        by: the number of distinct persons who must approve, by role.
        any_of: alternatives in the form of `by`; one of them is enough.
        deny: the number of persons who must reject before the call is rejected. Only persons
            who could approve count.
        never: the persons without a vote. If the call is in doubt, they cannot say either what it
            did. `"requester"` stands for everybody who asked for the call: everybody who wrote a
            message of the conversation, edited arguments, answered for a call or a wait, or set or
            triggered the schedule of the run. The requesters of an imported agent are unknown, so
            nobody can vote there.
        within: the time in which persons must answer. Then the request expires, and the call is
            rejected. If a gate has `expires_after` too, the earlier time counts.
        use_after: the time for which enough persons must have agreed before the call is
            approved. Until then they may change their votes, and others may reject. The request
            does not expire meanwhile.
        use_within: the time after the decision within which the call must start; later, persons
            vote again.
        break_glass: the role of which one person may let the call run alone, at once:
            `{"oncall": 1}`. This person must give a reason, and another person has to review
            the call later.
        assurance: the weakest assurance that a voter may have: `"host"`, `"login"` or `"idp"`.
        max_auth_age: the longest time since the login of a voter.

    Raises:
        UsageError: if nobody is named, or a number of persons or a time is not possible.

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
    if assurance not in ASSURANCES:
        known = ", ".join(map(repr, ASSURANCES))
        raise UsageError(f"approval(assurance=...) must be {known}, got {shown(assurance)}")
    return Approval(
        ways=tuple(map(_way, ways)),
        deny=deny,
        never=tuple(dict.fromkeys(never)),
        within=_span("within", within),
        use_after=_span("use_after", use_after),
        use_within=_span("use_within", use_within),
        break_glass=None if break_glass is None else _glass(break_glass),
        assurance=assurance,
        max_auth_age=_span("max_auth_age", max_auth_age),
    )


def _span(option: str, given: object) -> float | None:
    return None if given is None else checked_span(given, what=f"approval({option}=...)")


def _glass(given: object) -> dict[str, int]:
    way = _way(given)
    if list(way.values()) != [1]:
        raise UsageError(
            'approval(break_glass=...) takes one role with the number 1, such as {"oncall": 1}: '
            f"one person alone breaks the glass; got {shown(given)}"
        )
    return way


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
class Represented:
    """A person whose roles another person has for a while, by a delegation."""

    delegation: str
    """Its id."""
    person: str
    """The id of the person who has delegated the roles."""
    name: str
    """The name of the giver, for display."""
    roles: tuple[str, ...]
    """The delegated roles that the giver still has."""
    until: datetime

    @property
    def text(self) -> str:
        """Whom it is for, in words: "Ann until 2027-01-15 18:00 UTC"."""
        return f"{self.name} until {self.until.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One person's vote on a request that needs the agreement of several persons."""

    person: str
    """The id of the person."""
    name: str
    """The name of the person, for display."""
    login: str
    """The login name of the voter. The application is asked for the roles again by this name."""
    roles: tuple[str, ...]
    """The roles that the person had at the vote, of the roles that the request asks for."""
    type: VoteType
    """The vote: `approve` or `reject`."""
    message: str | None = None
    """For `reject`: a text for the model. None = no text."""
    note: str | None = None
    """The reason for the vote; None without a reason. The model does not see it."""
    assurance: Assurance = "host"
    """The source of the voter's identity."""
    auth_at: datetime | None = None
    """The time of the voter's login; None if it is not known."""
    break_glass: bool = False
    """For `approve`: whether the person lets the call run alone, for the reason in `note`."""
    grant: GrantTerms | None = None
    """The grant for later calls that the person wants; None = for this call alone."""
    at: datetime
    """The time of the vote."""
    issuer: str = ""
    """The identity provider that signed the identity; empty without a provider."""
    subject: str = ""
    """The provider's id of the person; empty without a provider."""
    acting_for: str = ""
    """The name of the person for whom the voter acted; empty if for nobody else.

    The vote is the voter's own.
    """
    represents: Represented | None = None
    """The person whose roles were used for the vote, by delegation.

    None if the roles are the voter's own.
    """

    @property
    def persons(self) -> frozenset[str]:
        """The ids of all persons who have used their vote with this vote. None of them can vote
        again.
        """
        other = self.represents
        return frozenset({self.person} if other is None else {self.person, other.person})

    @property
    def caller(self) -> Caller:
        """The voter as a caller, to look up the person again."""
        return Caller(
            name=self.login,
            assurance=self.assurance,
            issuer=self.issuer,
            subject=self.subject,
            auth_at=self.auth_at,
            acting_for=self.acting_for,
        )

    @property
    def shown_name(self) -> str:
        """The name of the voter, for display: "Ann", "Ann for bob", or "Bob for Ann until ..."."""
        name = f"{self.name} for {self.acting_for}" if self.acting_for else self.name
        return name if self.represents is None else f"{name} for {self.represents.text}"

    def to_dict(self) -> dict[str, Any]:
        """Return the vote as plain data."""
        return {
            "person": self.person,
            "name": self.shown_name,
            "login": self.login,
            "roles": list(self.roles),
            "type": self.type,
            "message": self.message,
            "note": self.note,
            "assurance": self.assurance,
            "auth_at": None if self.auth_at is None else self.auth_at.isoformat(),
            "break_glass": self.break_glass,
            "grant": None if self.grant is None else self.grant.to_dict(),
            "at": self.at.isoformat(),
            "issuer": self.issuer,
            "subject": self.subject,
            "acting_for": self.acting_for,
            "represents": None if self.represents is None else self.represents.person,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    """A person who decides, as the application describes them."""

    login: str
    """The name under which the decision came."""
    person: str = ""
    """The id of the person; empty if nobody is known under that name."""
    name: str = ""
    roles: tuple[str, ...] = ()
    kind: Kind = "person"
    assurance: Assurance = "host"
    issuer: str = ""
    subject: str = ""
    """Whom an identity provider means; empty if none has said who it is."""
    acting_for: str = ""
    """The name in which they decide, if it is not their own."""
    auth_at: datetime | None = None
    """The time of the login; None if it is not known."""
    represents: tuple[Represented, ...] = ()
    """Whose roles they have as well, by delegations."""
    given: tuple[str, ...] = ()
    """The ids of the delegations by which others have their roles."""
    why_unknown: str = ""
    """Why the application could not say who it is; empty if it could."""

    def why_no_person(self, does: str) -> str | None:
        """Why this voter may not act as a person; None for a person.

        Args:
            does: the act that takes a person, such as `"vote"`.

        """
        if not self.person:
            return f"`people` knows nobody by the name {self.login!r}"
        if self.kind != "person":
            return f"{self.login!r} is a {self.kind}, and only persons {does}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The result of votes."""

    result: VoteType | None
    """The decision that follows from the votes; None if more persons must vote."""
    missing: dict[str, int]
    """The number of votes still missing, by role, on the way that lacks the fewest.

    Empty if there is a result.
    """
    counted: tuple[Vote, ...]
    """The last vote of each person with the right to vote, in the order of the votes."""
    is_broken: bool = False
    """Whether one person alone has broken the glass."""

    @property
    def text(self) -> str:
        """The missing votes, in words: "1 more of finance"."""
        return " and ".join(f"{n} more of {role}" for role, n in self.missing.items())


def tally(asked: Approval, votes: Iterable[Vote]) -> Tally:
    """Count votes, and return the result.

    Args:
        asked: who must agree.
        votes: the votes in the order in which they were cast. The last vote of a person counts.

    """
    counted = tuple(
        each
        for each in _distinct(votes)
        if not (asked.glass_roles if each.break_glass else asked.roles).isdisjoint(each.roles)
    )
    if sum(each.type == "reject" for each in counted) >= asked.deny:
        return Tally(result="reject", missing={}, counted=counted)
    agreed = [each for each in counted if each.type == "approve"]
    if any(each.break_glass for each in agreed):
        return Tally(result="approve", missing={}, counted=counted, is_broken=True)
    roles = [each.roles for each in agreed]
    missing = min((_missing(way, roles) for way in asked.ways), key=lambda way: sum(way.values()))
    return Tally(result=None if missing else "approve", missing=missing, counted=counted)


def _distinct(votes: Iterable[Vote]) -> list[Vote]:
    """The last vote of each person. Nobody counts by themselves and by somebody else as well."""
    last = {each.person: each for each in votes}
    used: set[str] = set()
    found = []
    for vote in last.values():
        other = vote.represents
        if other is not None and (other.person in last or other.person in used):
            continue  # a person who votes needs no delegate
        used |= vote.persons
        found.append(vote)
    return found


def represented_by(
    asked: Approval, voter: Voter, votes: Iterable[Vote], excluded: Iterable[str], now: datetime
) -> Represented | None:
    """The person for whom a delegate votes; None if they vote for themselves, or not at all.

    Args:
        asked: who must agree.
        voter: who it is.
        votes: that were cast before.
        excluded: the ids of persons who must not vote.
        now: when they vote.

    """
    if not asked.roles.isdisjoint(voter.roles):
        return None
    taken = {*excluded}.union(*(each.persons for each in votes if each.person != voter.person))
    for each in voter.represents:
        if each.until > now and each.person not in taken and not asked.roles.isdisjoint(each.roles):
            return each
    return None


def persons_missing(way: Roles, persons: Mapping[str, Collection[str]]) -> dict[str, int]:
    """By role, how many persons are missing if all of these agree; empty if they are enough.

    Args:
        way: by role, how many distinct persons with the role must agree.
        persons: by role, the ids of the persons with the role.

    """
    roles: dict[str, list[str]] = {}
    for role, ids in persons.items():
        for id in ids:
            roles.setdefault(id, []).append(role)
    return _missing(way, list(roles.values()))


def roles_now(vote: Vote, voter: Voter) -> tuple[str, ...]:
    """The roles by which the vote may count now: the roles of the voter, or of the giver."""
    by = vote.represents
    if by is None:
        return voter.roles
    return next((each.roles for each in voter.represents if each.delegation == by.delegation), ())


def still_counts(vote: Vote, voter: Voter | None, excluded: Iterable[str]) -> bool:
    """Whether the person is still the same, and still has the roles that the vote stands for."""
    return (
        voter is not None
        and voter.person == vote.person
        and voter.kind == "person"
        and set(vote.roles) <= set(roles_now(vote, voter))
        and vote.persons.isdisjoint(excluded)
    )


def _missing(way: Mapping[str, int], agreed: Sequence[Sequence[str]]) -> dict[str, int]:
    """By role, how many persons are missing if each person stands for a single role.

    `agreed` has the roles of each person who agrees.

    As many places as possible are taken: a person with two roles gives way to a person with a
    single role (a maximum matching, by augmenting paths).
    """
    places = [role for role, number in way.items() for _ in range(number)]
    taken_by: dict[int, int] = {}

    def seat(voter: int, tried: set[int]) -> bool:
        for place, role in enumerate(places):
            if role not in agreed[voter] or place in tried:
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
    return last is not None and _said(last) == _said(vote)


def _said(vote: Vote) -> tuple[object, ...]:
    return (vote.type, vote.message, vote.grant, vote.break_glass, vote.represents)


def starts_at(asked: Approval, votes: Sequence[Vote]) -> datetime | None:
    """When a call is approved to which enough have agreed, if nobody changes that until then.

    None if not enough have agreed, and where nobody has to wait: then it is approved already.
    The time is counted from the vote since which enough have agreed without a break.
    """
    if asked.use_after is None:
        return None
    since = None
    for number in range(len(votes), 0, -1):
        result = tally(asked, votes[:number])
        if result.result != "approve" or result.is_broken:
            break
        since = votes[number - 1].at
    return None if since is None else since + timedelta(seconds=asked.use_after)


def stricter(one: Approval, other: Approval) -> Approval:
    """An approval that is met only where both approvals are met, factor by factor."""
    ways = [
        {role: max(first.get(role, 0), second.get(role, 0)) for role in {**first, **second}}
        for first, second in product(one.ways, other.ways)
    ]
    distinct = [way for number, way in enumerate(ways) if way not in ways[:number]]
    needed = [
        way for way in distinct if not any(_includes(way, less) for less in distinct if less != way)
    ]
    same_glass = one.break_glass == other.break_glass
    return replace(
        one,
        ways=tuple(needed),
        deny=min(one.deny, other.deny),
        never=tuple(dict.fromkeys((*one.never, *other.never))),
        within=_least(one.within, other.within),
        use_after=max(one.use_after or 0, other.use_after or 0) or None,
        use_within=_least(one.use_within, other.use_within),
        break_glass=one.break_glass if same_glass else None,
        assurance=max(one.assurance, other.assurance, key=ASSURANCES.index),
        max_auth_age=_least(one.max_auth_age, other.max_auth_age),
    )


def _includes(way: Mapping[str, int], less: Mapping[str, int]) -> bool:
    """Whether who meets `way` meets the other way as well."""
    return all(way.get(role, 0) >= number for role, number in less.items())


def _least(one: float | None, other: float | None) -> float | None:
    return min((each for each in (one, other) if each is not None), default=None)


def why_excluded(
    asked: Approval, requesters: tuple[str, ...] | None, voter: Voter, *, does: str = "vote"
) -> str | None:
    """Why somebody is excluded from what is asked about a call, in words; None if they are not.

    Args:
        asked: the approval of the call.
        requesters: the ids of the persons that it excludes; None if one of them is not known.
        voter: who it is.
        does: what they would do, such as `"vote"`.

    """
    if requesters is None:
        done, who = (
            ("asked for the call", "requester")
            if asked.never
            else ("edited the arguments", "editor")
        )
        return (
            f"nobody knows who has {done}, and the {who} must not {does}. Cancel the run, and let "
            "it be asked for by a name (run(by=...)) that Runtime(people=...) knows"
        )
    if voter.person not in requesters:
        return None
    if asked.never:
        return f"{voter.login!r} has asked for the call, and the requester must not {does}"
    return f"{voter.login!r} has edited the arguments, and others must agree to them"


SETTLE = "say what it did"
"""What is done by who settles the doubt about a call, or answers a request about it."""


class InDoubt(Protocol):
    """A call in doubt: a request about it, or a doubt of which only the model was informed."""

    @property
    def call_approval(self) -> Approval | None:
        """Who had to agree to the call; None if nobody had to."""

    @property
    def requesters(self) -> tuple[str, ...] | None:
        """The ids of the persons whom that excludes; None if one of them is not known."""


def why_not_settled_by(
    doubt: InDoubt, by: str | None, voter: Voter | None, now: datetime
) -> str | None:
    """Why a person must not say what a call in doubt did, in words; None if the person may.

    A person whom `never` of the approval excludes must not: by "it took no effect" the requester
    would have the call made once more.

    Args:
        doubt: about the call.
        by: the name under which it is said; None for no name.
        voter: who it is; None if nobody was looked up.
        now: when they say it.

    """
    asked = doubt.call_approval
    if asked is None or not asked.never:
        return None
    if by is None:
        return f"{asked.text} had to agree to the call, so who says what it did is named: by=..."
    if voter is None:
        return f"{asked.text} had to agree, and no people are known: give Runtime(people=...)"
    if not voter.person:
        return voter.why_no_person(SETTLE)
    if voter.kind == "model":
        return f"{by!r} is a model, and only persons and services {SETTLE}"
    why = why_excluded(asked, doubt.requesters, voter, does=SETTLE)
    if why is not None or voter.kind == "service":
        return why
    return why_not_vouched(asked, voter.assurance, voter.auth_at, now)


def why_not_vouched(
    asked: Approval, assurance: Assurance, auth_at: datetime | None, at: datetime
) -> str | None:
    """Why the login of a vote is not enough, and what to do; None if it is enough.

    Args:
        asked: who must agree, and how they must be vouched for.
        assurance: who vouches for the identity of the person.
        auth_at: the time of the login; None if it is not known.
        at: when they vote.

    """
    if ASSURANCES.index(assurance) < ASSURANCES.index(asked.assurance):
        return _NOT_BY[asked.assurance]
    if asked.max_auth_age is None:
        return None
    age = span_text(asked.max_auth_age)
    if auth_at is None:
        return (
            f"a voter must have logged in within the last {age}, and the time of this login is not "
            "known: log in by an identity provider that gives it"
        )
    if at - auth_at > timedelta(seconds=asked.max_auth_age):
        return f"a voter must have logged in within the last {age}: log in again"
    return None


_NOT_BY: Mapping[Assurance, str] = {
    "host": "",
    "login": "a vote must come by a login, and this name came from the application: vote by the "
    "pages",
    "idp": "a vote must come by an identity provider: log in by it, and vote by the pages",
}
