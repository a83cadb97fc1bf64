"""The kinds of facts in the log of trust, as they are stored.

A kind more is a dataclass here, its name in `KINDS`, and a branch of `trust.fold.apply_fact`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

from understudy._base.authors import By
from understudy.approvals import Approval, Vote
from understudy.errors import StoreDamaged
from understudy.state.trust_log import TrustFact


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSummary:
    """What a rule says, to be read by people."""

    name: str
    kind: Literal["deny", "ask", "allow"]
    tool: str
    """The pattern of the names of tools."""
    agent: str = "*"
    """The pattern of the names of agents."""
    approval: str = ""
    """Who must agree, in words; empty where anybody may, or nobody is asked."""
    has_when: bool = False
    """Whether it looks at the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesRegistered:
    """A host has rules of a version that nobody has registered before."""

    KIND: ClassVar[str] = "rules_registered"

    version: int
    fingerprint: str
    """Of all that decides what the rules say: the same version never has two."""
    rules: tuple[RuleSummary, ...] = ()
    default: str = "gates"
    host: str = ""
    """The name of the host that has registered them."""
    python: str = ""
    """The version of its Python: the code of a `when` is compiled otherwise by another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesRetired:
    """No rules have to hold for the store any more, until a higher version is registered."""

    KIND: ClassVar[str] = "rules_retired"

    version: int
    """The newest version then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegated:
    """A person has given roles of theirs to another one, until a time."""

    KIND: ClassVar[str] = "delegated"

    id: str
    from_person: str
    """The id of the person."""
    from_name: str
    from_login: By
    """By which the application is asked again whether the person still has the roles."""
    to_person: str
    to_name: str
    roles: tuple[str, ...]
    until: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationEnded:
    """A delegation holds no longer, before its time."""

    KIND: ClassVar[str] = "delegation_ended"

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminRequested:
    """A person wants something to be done to which others must agree."""

    KIND: ClassVar[str] = "admin_requested"

    id: str
    verb: str
    about: str
    """What it is, in words."""
    digest: str
    """Of the verb and its arguments: votes are for these alone."""
    approval: Approval
    person: str
    """The id of the person."""
    name: str
    until: datetime
    """The time at which it is void."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminVoted:
    """A person has said what they think of a request of administration."""

    KIND: ClassVar[str] = "admin_voted"

    id: str
    vote: Vote


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminUsed:
    """What was asked for is done now: the votes count for nothing else."""

    KIND: ClassVar[str] = "admin_used"

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """Nothing of the store, of a definition, or of a tool, begins any more."""

    KIND: ClassVar[str] = "frozen"

    id: str
    what: Literal["store", "definition", "tool"]
    name: str = ""
    """Of the definition, or of the tool."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thawed:
    """A freeze is over: what waited because of it begins."""

    KIND: ClassVar[str] = "thawed"

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRaised:
    """A person has added something to a budget, for the window of now."""

    KIND: ClassVar[str] = "budget_raised"

    budget: str
    """The name of the budget."""
    counter: str
    """The budget as counters have it: see `CounterId.budget`."""
    key: str
    """For whom it is counted; empty where it is for the whole store."""
    amount: str
    """What is added, as a decimal number."""
    until: datetime | None
    """When the window ends; None where the budget has none."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Required:
    """Each host of the store must have this."""

    KIND: ClassVar[str] = "required"

    name: str
    """`rules`, `budgets`, `freeze` or `protect`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRequired:
    """Hosts need not have this any more."""

    KIND: ClassVar[str] = "not_required"

    name: str


FactContent: TypeAlias = (
    RulesRegistered
    | RulesRetired
    | Delegated
    | DelegationEnded
    | AdminRequested
    | AdminVoted
    | AdminUsed
    | Frozen
    | Thawed
    | Required
    | NotRequired
    | BudgetRaised
)
KINDS: Mapping[str, type[FactContent]] = MappingProxyType(
    {
        kind.KIND: kind
        for kind in (
            RulesRegistered,
            RulesRetired,
            Delegated,
            DelegationEnded,
            AdminRequested,
            AdminVoted,
            AdminUsed,
            Frozen,
            Thawed,
            Required,
            NotRequired,
            BudgetRaised,
        )
    }
)
"""The kinds of facts by the names under which they are stored."""


@cache
def _adapter(kind: str) -> TypeAdapter[FactContent]:
    return TypeAdapter(KINDS[kind])


def content_of(fact: TrustFact) -> FactContent | None:
    """What a fact says; None for a kind of a later version of this library.

    Raises:
        StoreDamaged: if it cannot be read.

    """
    if fact.kind not in KINDS:
        return None
    try:
        return _adapter(fact.kind).validate_python(dict(fact.data))
    except ValidationError as error:
        raise StoreDamaged(
            what=f"fact {fact.number} of the log of trust", cause=str(error.errors()[0]["msg"])
        ) from error


def data_of(content: FactContent) -> dict[str, Any]:
    """What a fact says, as JSON."""
    data: dict[str, Any] = _adapter(content.KIND).dump_python(content, mode="json")
    return data
