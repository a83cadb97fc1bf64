"""What the facts of the log of trust add up to: `TrustState`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType

from understudy.state.trust_facts import RulesRegistered, RulesRetired, content_of
from understudy.state.trust_log import TrustFact


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
class TrustState:
    """What holds for a whole store, by all facts up to one."""

    number: int = 0
    """The number of the last fact: the epoch of trust."""
    rules: RegisteredRules | None = None
    """The newest rules, which each host must have; None where none are registered, or all of them
    were retired."""
    versions: Mapping[int, RegisteredRules] = field(default_factory=lambda: _NONE)
    """All rules that were ever registered, by version."""
    retired: int = 0
    """Rules up to this version were retired; 0 = none were."""
    unknown: tuple[str, ...] = ()
    """The kinds of facts that a later version of this library has added."""


def apply_fact(state: TrustState, fact: TrustFact) -> TrustState:
    """What holds by one fact more. It reads no clock, and changes nothing."""
    state = replace(state, number=fact.number)
    match content_of(fact):
        case RulesRegistered() as said:
            found = RegisteredRules(number=fact.number, at=fact.at, by=fact.by, said=said)
            newest = state.rules
            if said.version > state.retired and (newest is None or said.version > newest.version):
                newest = found
            return replace(state, rules=newest, versions={**state.versions, said.version: found})
        case RulesRetired(version=version):
            return replace(state, rules=None, retired=max(state.retired, version))
        case None:
            return replace(state, unknown=tuple(dict.fromkeys((*state.unknown, fact.kind))))
