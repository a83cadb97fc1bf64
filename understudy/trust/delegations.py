"""Delegations: a person lets another person vote with their roles, until a time.

A delegated role cannot be delegated again: a person gives only roles that the application gives
them. A vote for another person uses up both persons: they count as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from understudy._base.clock import new_random_id
from understudy._base.json_values import checked_text, shown
from understudy._base.points_in_time import checked_time
from understudy.approvals import Caller, Represented, Voter, caller_by
from understudy.errors import PeopleUnavailable, UsageError
from understudy.state.trust_facts import Delegated, DelegationEnded
from understudy.trust.fold import Delegation, TrustState
from understudy.trust.people import People

MOST = 1000
"""The number of delegations that may hold at once."""
LONGEST_REASON = 1000
"""The characters of a reason."""


async def with_delegations(
    people: People, delegations: Iterable[Delegation], voter: Voter, now: datetime
) -> Voter:
    """The voter, with roles delegated by other persons, and the delegations that the voter gave.

    Each giver is looked up again: a delegation covers roles that the giver has now.
    """
    found: list[Represented] = []
    given: list[str] = []
    for each in delegations:
        said = each.said
        if not each.holds(now):
            continue
        if said.from_person == voter.person:
            given.append(said.id)
        if said.to_person != voter.person:
            continue
        giver = await people.voter(caller_by(said.from_login))
        roles = tuple(role for role in said.roles if role in giver.roles)
        if giver.person == said.from_person and giver.kind == "person" and roles:
            found.append(
                Represented(
                    delegation=said.id,
                    person=giver.person,
                    name=giver.name,
                    roles=roles,
                    until=said.until,
                )
            )
    return replace(voter, represents=tuple(found), given=tuple(given))


def checked_party(given: object, *, what: str) -> Caller:
    """The giver or the receiver: by the name of a login, by issuer and subject, or as a caller.

    Raises:
        UsageError: for anything else.

    """
    if isinstance(given, Caller):
        return given
    if isinstance(given, (tuple, list)) and len(given) == 2:
        issuer, subject = (checked_text(each, what=what) for each in given)
        return Caller(name=subject, issuer=issuer, subject=subject)
    if isinstance(given, str):
        return Caller(name=checked_text(given, what=what))
    raise UsageError(
        f"{what} must be the name of a login, or (issuer, subject), got {shown(given)}"
    )


def checked_terms(
    roles: Sequence[str], until: datetime, reason: str, now: datetime
) -> tuple[tuple[str, ...], datetime, str]:
    """The roles, the end and the reason of a delegation, checked.

    Raises:
        UsageError: if any of them is wrong.

    """
    if isinstance(roles, str) or not isinstance(roles, Iterable):
        raise UsageError(f"delegate(roles=...) must be a list of roles, got {shown(roles)}")
    names = tuple(dict.fromkeys(checked_text(r, what="delegate(roles=...): a role") for r in roles))
    if not names:
        raise UsageError("delegate(roles=...) must not be empty")
    due = checked_time(until, what="delegate(until=...)")
    if due <= now:
        raise UsageError(f"delegate(until=...) must be in the future, got {due.isoformat()}")
    why = checked_text(reason, what="delegate(reason=...)").strip()
    if not why or len(why) > LONGEST_REASON:
        raise UsageError(
            f"delegate(reason=...) must say why, in at most {LONGEST_REASON} characters"
        )
    return names, due, why


async def delegation_of(
    people: People,
    giver: Caller,
    getter: Caller,
    roles: tuple[str, ...],
    until: datetime,
    reason: str,
) -> Delegated:
    """The fact of a delegation, if both are persons and the giver has the roles.

    Raises:
        UsageError: if they are not, or the giver lacks a role.
        PeopleUnavailable: if their identity cannot be looked up now.

    """
    one, other = await people.voter(giver), await people.voter(getter)
    for voter, what in ((one, "from_"), (other, "to")):
        if voter.why_unknown:
            raise PeopleUnavailable(f"delegate({what}=...): {voter.why_unknown}. Try again later")
        if not voter.person:
            raise UsageError(f"delegate({what}=...): `people` knows nobody by {voter.login!r}")
        if voter.kind != "person":
            raise UsageError(
                f"delegate({what}=...): {voter.login!r} is a {voter.kind}, and only persons vote"
            )
    if one.person == other.person:
        raise UsageError(f"delegate(...): {giver.name!r} and {getter.name!r} are one person")
    lacks = [role for role in roles if role not in one.roles]
    if lacks:
        raise UsageError(
            f"delegate(roles=...): {giver.name!r} does not have the role {lacks[0]!r}. Delegated "
            "roles cannot be delegated further"
        )
    return Delegated(
        id=new_random_id(),
        from_person=one.person,
        from_name=one.name,
        from_login=giver.login or giver.name,
        to_person=other.person,
        to_name=other.name,
        roles=roles,
        until=until,
        reason=reason,
    )


def to_delegate(said: Delegated, state: TrustState, now: datetime) -> Delegated:
    """What is added to the log.

    Raises:
        UsageError: if too many hold already.

    """
    if sum(each.holds(now) for each in state.delegations.values()) >= MOST:
        raise UsageError(f"{MOST} delegations hold already: end some of them first")
    return said


def to_end(id: str, state: TrustState, now: datetime) -> DelegationEnded | None:
    """The fact for the log that ends a delegation; None if it does not hold."""
    found = state.delegations.get(id)
    return DelegationEnded(id=id) if found is not None and found.holds(now) else None
