"""Builds that get terms, grants and versions of rules wrong: the random story finds each."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.support.trust.building import Patch, build, wrap
from understudy import approvals, interrupts
from understudy.agent import decisions
from understudy.interrupts import Grant
from understudy.modes.steps.tool_call import grants, votes
from understudy.run import tool_call
from understudy.state import fold
from understudy.state import records as r
from understudy.state.folds import grants as grant_folds
from understudy.state.reviews import Review
from understudy.state.trust_facts import RulesRetired
from understudy.trust import trust as trust_module
from understudy.trust.trust import Trust

# ------------------------------------------------------------------------------- terms


@build("a request never expires", more=True)
def _never(patch: Patch) -> None:
    wrap(patch, tool_call, "binding", lambda inner: inner)  # it is there: below is its caller

    def asking(inner: Any) -> Any:
        return lambda own, *given, **named: replace(inner(own, *given, **named), expires_at=None)

    wrap(patch, tool_call.ToolCall, "request", asking)


@build("a call is approved before it has cooled off", more=True)
def _at_once(patch: Patch) -> None:
    for module in (approvals, interrupts):
        wrap(patch, module, "starts_at", lambda _: lambda *_: None)


@build("a call that is vetoed begins to cool off anew, and forgets nothing", more=True)
def _since_the_first(patch: Patch) -> None:
    def since(_: Any) -> Any:
        def starts_at(asked: Any, cast: Any) -> Any:
            if asked.use_after is None or not cast:
                return None
            if approvals.tally(asked, cast).result != "approve":
                return None
            return cast[0].at + timedelta(seconds=asked.use_after)

        return starts_at

    for module in (approvals, interrupts):
        wrap(patch, module, "starts_at", since)


@build("a call starts however late", more=True)
def _late(patch: Patch) -> None:
    wrap(patch, votes, "_is_too_late", lambda _: lambda *_: False)


@build("anybody breaks the glass", more=True)
def _glass(patch: Patch) -> None:
    def why(inner: Any) -> Any:
        def no_voter(*given: Any, break_glass: bool = False) -> Any:
            return None if break_glass else inner(*given)

        return no_voter

    def counting(inner: Any) -> Any:
        def tally(asked: Any, cast: Any) -> Any:
            found = inner(asked, cast)
            broken = [each for each in cast if each.break_glass and each.type == "approve"]
            if not broken or found.result == "reject":
                return found
            return replace(
                found, result="approve", missing={}, counted=tuple(broken), is_broken=True
            )

        return tally

    wrap(patch, decisions, "why_no_voter", why)
    for module in (approvals, interrupts, votes):
        wrap(patch, module, "tally", counting)


@build("a broken glass is told nobody", more=True)
def _not_notified(patch: Patch) -> None:
    def deciding(inner: Any) -> Any:
        def decided(*given: Any) -> Any:
            found = inner(*given)
            return None if found is None else replace(found, break_glass=False)

        return decided

    wrap(patch, decisions, "decision_by_votes", deciding)


@build("who broke the glass reviews it", more=True)
def _own_review(patch: Patch) -> None:
    wrap(patch, Review, "why_not_by", lambda _: lambda *_: None)


@build("whoever vouches for a voter is enough", more=True)
def _vouched(patch: Patch) -> None:
    for module in (decisions, votes):
        wrap(patch, module, "why_not_vouched", lambda _: lambda *_: None)


@build("a login of long ago is enough", more=True)
def _old_login(patch: Patch) -> None:
    def why(inner: Any) -> Any:
        return lambda asked, assurance, at, now: inner(asked, assurance, now, now)

    for module in (decisions, votes):
        wrap(patch, module, "why_not_vouched", why)


# ------------------------------------------------------------------------------ grants


@build("a grant holds after its time", more=True)
def _after_its_time(patch: Patch) -> None:
    wrap(patch, Grant, "is_over", lambda _: lambda *_: False)


@build("a grant that was revoked holds", more=True)
def _revoked(patch: Patch) -> None:
    patch.setitem(fold._APPLY, r.Revoked, lambda *_: None)


@build("the uses of a grant are not counted", more=True)
def _uses(patch: Patch) -> None:
    def taking(inner: Any) -> Any:
        def take(state: Any, place: Any, grant_id: str, request_id: str) -> None:
            inner(state, place, grant_id, request_id)
            if grant_id in state.grants:
                state.grants[grant_id] = replace(state.grants[grant_id], used=0)

        return take

    wrap(patch, grant_folds, "_take_use", taking)


@build("a grant covers other arguments", more=True)
def _arguments(patch: Patch) -> None:
    wrap(patch, Grant, "covers", lambda _: lambda *_: True)


@build("who gave a grant is not looked up again", more=True)
def _granters(patch: Patch) -> None:
    async def has(*_: object) -> bool:
        return True

    wrap(patch, votes, "has_standing", lambda _: has)


@build("a grant for a run holds in others", more=True)
def _other_runs(patch: Patch) -> None:
    wrap(patch, grant_folds, "_has_lost_run", lambda _: lambda *_: False)

    def covering(inner: Any) -> Any:
        return lambda given, *rest: inner(replace(given, scope="agent"), *rest)

    for module in (grants, votes):
        wrap(patch, module, "covers_request", covering)


# ---------------------------------------------------------------------------- versions


@build("a host with older rules starts calls", more=True)
def _older(patch: Patch) -> None:
    wrap(patch, Trust, "_why_held", lambda _: lambda _own: None)


@build("one version has two sets of rules", more=True)
def _two(patch: Patch) -> None:
    def registering(inner: Any) -> Any:
        def to_register(said: Any, state: Any, **how: Any) -> Any:
            known = state.versions.get(said.version)
            same = said if known is None else replace(said, fingerprint=known.said.fingerprint)
            return inner(same, state, **how)

        return to_register

    wrap(patch, trust_module, "to_register", registering)


@build("rules that were retired hold", more=True)
def _retired(patch: Patch) -> None:
    def folding(inner: Any) -> Any:
        def applied(state: Any, fact: Any) -> Any:
            found = inner(state, fact)
            return replace(found, rules=state.rules) if fact.kind == RulesRetired.KIND else found

        return applied

    wrap(patch, trust_module, "apply_fact", folding)
