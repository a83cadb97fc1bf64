"""The kinds of facts in the log of trust, as they are stored.

A new kind needs a dataclass here, a name in `KINDS`, and a branch in `trust.fold.apply_fact`.
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
    """A summary of a rule, for people."""

    name: str
    kind: Literal["deny", "ask", "allow"]
    tool: str
    """The pattern of tool names."""
    agent: str = "*"
    """The pattern of agent names."""
    approval: str = ""
    """The persons who must agree, in words; empty if anybody may, or nobody is asked."""
    has_when: bool = False
    """Whether the rule looks at the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesRegistered:
    """The fact that a host has rules of a version that nobody has registered before."""

    KIND: ClassVar[str] = "rules_registered"

    version: int
    fingerprint: str
    """The fingerprint of all that decides what the rules say. A version has only one."""
    rules: tuple[RuleSummary, ...] = ()
    default: str = "gates"
    host: str = ""
    """The name of the host that has registered them."""
    python: str = ""
    """The version of its Python, because another version compiles the code of a `when`
    differently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesRetired:
    """The fact that no rules must hold for the store until a higher version is registered."""

    KIND: ClassVar[str] = "rules_retired"

    version: int
    """The newest version at that time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegated:
    """The fact that a person has given roles to another person, until a time."""

    KIND: ClassVar[str] = "delegated"

    id: str
    from_person: str
    """The id of the person."""
    from_name: str
    from_login: By
    """The login by which the application is asked again whether the person still has the roles."""
    to_person: str
    to_name: str
    roles: tuple[str, ...]
    until: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationEnded:
    """The fact that a delegation ended before its time."""

    KIND: ClassVar[str] = "delegation_ended"

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminRequested:
    """The fact that a person asked for an act to which others must agree."""

    KIND: ClassVar[str] = "admin_requested"

    id: str
    verb: str
    about: str
    """The act, in words."""
    digest: str
    """The digest of the verb and its arguments: votes are for these alone."""
    approval: Approval
    person: str
    """The id of the person."""
    name: str
    until: datetime
    """The time at which the request becomes void."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminVoted:
    """The fact that a person has voted on a request of administration."""

    KIND: ClassVar[str] = "admin_voted"

    id: str
    vote: Vote


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminUsed:
    """The fact that the requested act is done: its votes count for nothing else."""

    KIND: ClassVar[str] = "admin_used"

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """The fact of a freeze: nothing of the store, of a definition, or of a tool begins any more."""

    KIND: ClassVar[str] = "frozen"

    id: str
    what: Literal["store", "definition", "tool"]
    name: str = ""
    """The name of the definition or of the tool; empty for the store."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thawed:
    """The fact that a freeze is over: what waited because of it begins."""

    KIND: ClassVar[str] = "thawed"

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRaised:
    """The fact that a person has raised a budget for its current window."""

    KIND: ClassVar[str] = "budget_raised"

    budget: str
    """The name of the budget."""
    counter: str
    """The budget as counters have it: see `CounterId.budget`."""
    key: str
    """The key for which the budget is counted; empty for the whole store."""
    amount: str
    """The added amount, as a decimal number."""
    until: datetime | None
    """The end of the window; None if the budget has no window."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Required:
    """The fact that each host of the store must have something."""

    KIND: ClassVar[str] = "required"

    name: str
    """The name of what is required: `rules`, `budgets`, `freeze` or `protect`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRequired:
    """The fact that hosts need not have something any more."""

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
    """The content of a fact; None for a kind of a later version of this library.

    Raises:
        StoreDamaged: if the content cannot be read.

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
    """The content of a fact, as JSON."""
    data: dict[str, Any] = _adapter(content.KIND).dump_python(content, mode="json")
    return data
