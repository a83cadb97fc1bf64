"""The fold of the facts in the log of trust: `TrustState`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, TypeVar

from understudy.approvals import Vote, tally
from understudy.state.trust_facts import (
    AdminRequested,
    AdminUsed,
    AdminVoted,
    BudgetRaised,
    Delegated,
    DelegationEnded,
    Frozen,
    NotRequired,
    Required,
    RulesRegistered,
    RulesRetired,
    Thawed,
    content_of,
)
from understudy.state.trust_log import TrustFact
from understudy.trust.freezes import NO_FREEZES, Freeze
from understudy.trust.required import NO_REQUIREMENTS, Requirement

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredRules:
    """Rules of a version, as the store knows them."""

    number: int
    """The number of the fact."""
    at: datetime
    by: str | None
    said: RulesRegistered

    @property
    def version(self) -> int:
        """The version."""
        return self.said.version


_NONE: Mapping[int, RegisteredRules] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """Roles that a person has given to another person, as the store knows it."""

    number: int
    """The number of the fact."""
    at: datetime
    by: str | None
    said: Delegated

    @property
    def id(self) -> str:
        """The id."""
        return self.said.id

    def holds(self, now: datetime) -> bool:
        """Whether it holds at a time."""
        return now < self.said.until

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        said = self.said
        return {
            "id": said.id,
            "giver": {"person": said.from_person, "name": said.from_name},
            "getter": {"person": said.to_person, "name": said.to_name},
            "roles": list(said.roles),
            "until": said.until.isoformat(),
            "reason": said.reason,
            "at": self.at.isoformat(),
            "by": self.by,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminRequest:
    """Something that persons must agree to before it is done, as the store knows it."""

    number: int
    """The number of the fact."""
    at: datetime
    by: str | None
    said: AdminRequested
    votes: tuple[Vote, ...] = ()

    @property
    def id(self) -> str:
        """The id."""
        return self.said.id

    @property
    def requesters(self) -> tuple[str, ...]:
        """The id of the person who wants it."""
        return (self.said.person,)

    def holds(self, now: datetime) -> bool:
        """Whether it holds at a time."""
        return now < self.said.until

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        said = self.said
        found = tally(said.approval, self.votes)
        return {
            "id": said.id,
            "verb": said.verb,
            "about": said.about,
            "must_agree": said.approval.text,
            "by": {"person": said.person, "name": said.name},
            "at": self.at.isoformat(),
            "until": said.until.isoformat(),
            "votes": [each.to_dict() for each in self.votes],
            "missing": found.text,
            "result": found.result,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisedBudget:
    """What a person has added to a budget for a window, as the store knows it."""

    number: int
    """The number of the fact."""
    at: datetime
    by: str | None
    said: BudgetRaised

    @property
    def amount(self) -> Decimal:
        """The added amount."""
        return Decimal(self.said.amount)

    def holds(self, now: datetime) -> bool:
        """Whether its window is open at a time."""
        return self.said.until is None or now < self.said.until

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        said = self.said
        return {
            "budget": said.budget,
            "key": said.key,
            "added": said.amount,
            "until": None if said.until is None else said.until.isoformat(),
            "why": said.why,
            "at": self.at.isoformat(),
            "by": self.by,
        }


_NO_REQUESTS: Mapping[str, AdminRequest] = MappingProxyType({})
_NO_DELEGATIONS: Mapping[str, Delegation] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustState:
    """The state of trust of a whole store, by all facts up to a number."""

    number: int = 0
    """The number of the last fact: the epoch of trust."""
    rules: RegisteredRules | None = None
    """The newest rules, which each host must have; None if no rules are registered, or all were
    retired."""
    versions: Mapping[int, RegisteredRules] = field(default_factory=lambda: _NONE)
    """All rules that were ever registered, by version."""
    retired: int = 0
    """Rules up to this version were retired; 0 = none were."""
    delegations: Mapping[str, Delegation] = field(default_factory=lambda: _NO_DELEGATIONS)
    """The delegations that were not ended, by id. An expired one is dropped with the next fact."""
    administration: Mapping[str, AdminRequest] = field(default_factory=lambda: _NO_REQUESTS)
    """The requests of administration that are not done yet, by id, also agreed ones."""
    freezes: Mapping[str, Freeze] = field(default_factory=lambda: NO_FREEZES)
    """The freezes that stand, by id, oldest first."""
    required: Mapping[str, Requirement] = field(default_factory=lambda: NO_REQUIREMENTS)
    """The requirements for each host, by name."""
    awaited: int = 0
    """The number of the last fact that must wait until each host judges by it."""
    raised: tuple[RaisedBudget, ...] = ()
    """The amounts that persons have added to budgets, oldest first. An old one is dropped with the
    next fact after its window."""
    unknown: tuple[str, ...] = ()
    """The kinds of facts that a later version of this library has added."""

    def added_to(self, counter: str, key: str, now: datetime) -> Decimal:
        """The amount that persons have added to a budget for one key in its current window."""
        return sum(
            (
                each.amount
                for each in self.raised
                if each.said.counter == counter and each.said.key == key and each.holds(now)
            ),
            Decimal(0),
        )


def _without(found: Mapping[str, T], ids: Collection[str]) -> Mapping[str, T]:
    return {id: each for id, each in found.items() if id not in ids}


def apply_fact(state: TrustState, fact: TrustFact) -> TrustState:
    """The state after another fact. It reads no clock, and changes nothing."""
    state = replace(state, number=fact.number)
    over = [id for id, each in state.delegations.items() if each.said.until <= fact.at]
    if over:
        state = replace(state, delegations=_without(state.delegations, over))
    void = [id for id, each in state.administration.items() if not each.holds(fact.at)]
    if void:
        state = replace(state, administration=_without(state.administration, void))
    if any(not each.holds(fact.at) for each in state.raised):
        state = replace(state, raised=tuple(each for each in state.raised if each.holds(fact.at)))
    match content_of(fact):
        case RulesRegistered() as said:
            found = RegisteredRules(number=fact.number, at=fact.at, by=fact.by, said=said)
            newest = state.rules
            if said.version > state.retired and (newest is None or said.version > newest.version):
                newest = found
            return replace(state, rules=newest, versions={**state.versions, said.version: found})
        case RulesRetired(version=version):
            return replace(state, rules=None, retired=max(state.retired, version))
        case Delegated() as said:
            made = Delegation(number=fact.number, at=fact.at, by=fact.by, said=said)
            return replace(state, delegations={**state.delegations, said.id: made})
        case DelegationEnded(id=id):
            return replace(state, delegations=_without(state.delegations, [id]))
        case AdminRequested() as said:
            asked = AdminRequest(number=fact.number, at=fact.at, by=fact.by, said=said)
            return replace(state, administration={**state.administration, said.id: asked})
        case AdminVoted(id=id, vote=vote):
            voted = state.administration[id]
            voted = replace(voted, votes=(*voted.votes, vote))
            return replace(state, administration={**state.administration, id: voted})
        case AdminUsed(id=id):
            return replace(state, administration=_without(state.administration, [id]))
        case Frozen() as said:
            freeze = Freeze(
                id=said.id,
                what=said.what,
                name=said.name,
                why=said.why,
                by=fact.by,
                at=fact.at,
                number=fact.number,
            )
            freezes = {**state.freezes, said.id: freeze}
            return replace(state, freezes=freezes, awaited=fact.number)
        case Required(name=name):
            each = Requirement(name=name, is_required=True, by=fact.by, at=fact.at)
            required = {**state.required, name: each}
            return replace(state, required=required, awaited=fact.number)
        case NotRequired(name=name):
            return replace(state, required=_without(state.required, [name]))
        case Thawed(id=id):
            return replace(state, freezes=_without(state.freezes, [id]))
        case BudgetRaised() as said:
            more = RaisedBudget(number=fact.number, at=fact.at, by=fact.by, said=said)
            return replace(state, raised=(*state.raised, more))
        case None:
            return replace(state, unknown=tuple(dict.fromkeys((*state.unknown, fact.kind))))
