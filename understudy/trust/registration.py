"""Decides which rules a host may have, by the rules that are registered in the store."""

from __future__ import annotations

import sys
from datetime import datetime

from understudy.errors import UsageError
from understudy.state.trust_facts import RulesRegistered, RulesRetired, RuleSummary
from understudy.trust.fold import RegisteredRules, TrustState
from understudy.trust.rules import Rules

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def registration(rules: Rules, host: str) -> RulesRegistered:
    """The record of rules with a version, for the store."""
    assert rules.version is not None, "only rules with a version are registered"
    return RulesRegistered(
        version=rules.version,
        fingerprint=rules.fingerprint,
        rules=tuple(
            RuleSummary(
                name=rule.name,
                kind=rule.kind,
                tool=rule.tool,
                agent=rule.agent,
                approval="" if rule.approval is None else rule.approval.text,
                has_when=rule.when is not None,
            )
            for rule in rules.rules
        ),
        default=rules.default,
        host=host,
        python=PYTHON,
    )


def to_register(
    said: RulesRegistered, state: TrustState, *, at: datetime, opening: bool
) -> RulesRegistered | None:
    """The fact to add for these rules; None if it is there already, or not needed.

    Args:
        said: the fact of the host's rules.
        state: what holds in the store.
        at: the time of now.
        opening: whether the host is opening. Then older rules are no error: hosts are started in
            turn, and a host with older rules starts no calls.

    Raises:
        UsageError: if the version is registered with other rules; or is older, unless the host is
            opening.

    """
    known = state.versions.get(said.version)
    if known is not None and known.said.fingerprint != said.fingerprint:
        raise UsageError(_two_fingerprints(said, known, at))
    newest = state.rules
    if newest is not None and said.version < newest.version and not opening:
        raise UsageError(
            f"Rules(version={said.version}) cannot take the place of rules version "
            f"{newest.version}, which {_who(newest)}: raise the version above {newest.version}"
        )
    is_old = said.version <= max(state.retired, newest.version if newest is not None else 0)
    return None if known is not None or is_old else said


def check_none_needed(rules: Rules | None, state: TrustState) -> None:
    """Refuse a host without versioned rules if the store has rules.

    Raises:
        UsageError: if the store has rules and the host has none.

    """
    newest = state.rules
    if newest is None or (rules is not None and rules.version is not None):
        return
    has = "has no rules" if rules is None else "has rules without a version"
    raise UsageError(
        f"this runtime {has}, and rules version {newest.version} hold for its store, which "
        f"{_who(newest)}: give it the rules of the application, "
        f"Runtime(rules=Rules(..., version={newest.version})), or retire the rules of the store "
        "by `understudy rules retire`"
    )


def to_retire(state: TrustState, version: int | None = None) -> RulesRetired | None:
    """The fact to add to the log so that rules hold no longer; None if none hold.

    Args:
        state: what holds in the store.
        version: the version of the meant rules; None = the newest.

    Raises:
        UsageError: if other rules hold.

    """
    newest = state.rules
    if newest is None:
        return None
    if version is not None and version != newest.version:
        raise UsageError(
            f"retire_rules(version={version}): rules version {newest.version} hold now, which "
            f"{_who(newest)}. Look at them first"
        )
    return RulesRetired(version=newest.version)


def _who(rules: RegisteredRules) -> str:
    return f"host {rules.said.host!r} registered at {_time(rules.at)}"


def _time(at: datetime) -> str:
    return at.isoformat(sep=" ", timespec="seconds")


def _two_fingerprints(here: RulesRegistered, there: RegisteredRules, at: datetime) -> str:
    python = ""
    if here.python != there.said.python:
        python = (
            f" Or only Python differs, which compiles a `when` differently: {there.said.python} "
            f"there, {here.python} here."
        )
    return (
        f"two hosts have different rules under version {here.version}: {_who(there)} "
        f"(fingerprint {there.said.fingerprint[:8]}), and host {here.host!r} has others at "
        f"{_time(at)} (fingerprint {here.fingerprint[:8]}). Raise the version with each change: "
        f"Rules(..., version={max(here.version, there.version) + 1}).{python}"
    )
