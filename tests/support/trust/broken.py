"""Builds of the library with one rule about rights left out: each must be found out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.trust import broken_authority, broken_terms
from tests.support.trust.building import (
    BROKEN,
    OF_MORE,
    OF_STORY,
    Patch,
    build,
    built,
    is_found_out,
    wrap,
)
from understudy import approvals, interrupts
from understudy._base import authors
from understudy.actors import agent_ref
from understudy.actors.agent import replies
from understudy.actors.agent.runs import starts
from understudy.ag_ui import protocol
from understudy.agent import decisions
from understudy.interrupts import DECISION_TYPES
from understudy.login import User
from understudy.modes.steps import check_interrupts, execute_tools
from understudy.modes.steps.tool_call import arguments, body, gates, middleware, rules, votes
from understudy.run.waits import answers
from understudy.state import fold
from understudy.state import records as r
from understudy.state.folds import agents as agent_folds
from understudy.state.folds import calls
from understudy.state.run_state import Call
from understudy.trust.people import People
from understudy.trust.rules import Rule, Rules, Verdict

__all__ = ["BROKEN", "OF_MORE", "OF_STORY", "built", "is_found_out"]

OTHERS = (broken_authority, broken_terms)
"""The modules whose builds are kept among these, once they are imported."""


# ------------------------------------------------------------------------- the votes


@build("who has asked says what a call in doubt did", story=False)
def _settles(patch: Patch) -> None:
    for module in (decisions, replies):
        wrap(patch, module, "why_not_settled_by", lambda _: lambda *_: None)
    wrap(patch, answers, "why_excluded", lambda _: lambda *_, **__: None)


def _tally(patch: Patch, made: Callable[[Any], Any]) -> None:
    for module in (approvals, interrupts, votes):
        wrap(patch, module, "tally", made)


def _votes_as(change: Callable[[int, Any], Any]) -> Callable[[Any], Any]:
    """A tally of other votes."""

    def counting(inner: Any) -> Any:
        def count(asked: Any, votes: Iterable[Any], *rest: Any) -> Any:
            return inner(asked, [change(at, each) for at, each in enumerate(votes)], *rest)

        return count

    return counting


@build("an equal vote is another one")
def _twice(patch: Patch) -> None:
    _tally(patch, _votes_as(lambda at, vote: replace(vote, person=f"{vote.person} {at}")))
    wrap(patch, decisions, "equal_vote", lambda _: lambda *_: False)


@build("logins are counted, not persons")
def _logins(patch: Patch) -> None:
    _tally(patch, _votes_as(lambda _, vote: replace(vote, person=vote.login)))
    wrap(patch, decisions, "equal_vote", lambda _: lambda *_: False)


@build("a person counts for each of their roles")
def _each_role(patch: Patch) -> None:
    def missing(_: Any) -> Any:
        def miss(way: Any, agreed: Any) -> dict[str, int]:
            have = {role: sum(role in roles for roles in agreed) for role in way}
            return {role: n - have[role] for role, n in way.items() if n > have[role]}

        return miss

    wrap(patch, approvals, "_missing", missing)


@build("persons are given to roles in the order in which they vote")
def _greedy(patch: Patch) -> None:
    def missing(_: Any) -> Any:
        def miss(way: Any, agreed: Any) -> dict[str, int]:
            left = dict(way)
            for roles in agreed:
                role = next((role for role in left if role in roles and left[role]), None)
                if role is not None:
                    left[role] -= 1
            return {role: n for role, n in left.items() if n}

        return miss

    wrap(patch, approvals, "_missing", missing)


@build("one rejection is always enough")
def _rejected(patch: Patch) -> None:
    def counting(inner: Any) -> Any:
        return lambda asked, *rest: inner(replace(asked, deny=1), *rest)

    _tally(patch, counting)


@build("services vote")
def _services(patch: Patch) -> None:
    def finding(inner: Any) -> Any:
        async def voter(people: Any, *given: Any) -> Any:
            return replace(await inner(people, *given), kind="person")

        return voter

    wrap(patch, People, "voter", finding)


@build("an edit is a vote", story=False)
def _edits(patch: Patch) -> None:
    def checking(inner: Any) -> Any:
        def check(request: Any, decision: Any, *rest: Any) -> Any:
            return inner(replace(request, allowed=DECISION_TYPES, approval=None), decision, *rest)

        return check

    for module in (interrupts, decisions):
        wrap(patch, module, "checked_decision", checking)


# --------------------------------------------------------------------- the requesters


def _requesters(patch: Patch, change: Callable[[Any], Any]) -> None:
    """Other requesters than those that are found."""

    def finding(inner: Any) -> Any:
        async def find(run: Any, requests: Any) -> Any:
            return [
                replace(each, requesters=change(each.requesters))
                for each in await inner(run, requests)
            ]

        return find

    for module in (arguments, body, execute_tools, gates):
        wrap(patch, module, "with_requesters", finding)


@build("who has asked may vote")
def _asked(patch: Patch) -> None:
    _requesters(patch, lambda _: ())


@build("who is not known has not asked")
def _unknown(patch: Patch) -> None:
    _requesters(patch, lambda found: found or ())


@build("who steers has not asked")
def _steered(patch: Patch) -> None:
    def folding(inner: Any) -> Any:
        def user_message(state: Any, record: Any) -> None:
            before = state.authors
            inner(state, record)
            state.authors = before

        return user_message

    patch.setitem(fold._APPLY, r.UserMessage, folding(fold._APPLY[r.UserMessage]))


@build("who edits or answers has not asked")
def _shaped(patch: Patch) -> None:
    def finding(inner: Any) -> Any:
        async def find(run: Any, requests: Any) -> Any:
            kept = [(state, state.decisions) for state in run.root.state.whole_tree]
            for state, _ in kept:
                state.decisions = []
            try:
                return await inner(run, requests)
            finally:
                for state, decisions in kept:
                    state.decisions = decisions

        return find

    for module in (arguments, body, execute_tools, gates):
        wrap(patch, module, "with_requesters", finding)


@build("a message without a name beside one with a name is not seen", story=False)
def _also_unnamed(patch: Patch) -> None:
    def folding(inner: Any) -> Any:
        return lambda state, record: inner(state, replace(record, also_unnamed=False))

    patch.setitem(fold._APPLY, r.RunStarted, folding(fold._APPLY[r.RunStarted]))


@build("who has edited the arguments is one of several who agree", more=True)
def _own_edit(patch: Patch) -> None:
    def shaped(inner: Any) -> Any:
        return lambda run, *types, call_key=None: inner(run, *types) if call_key is None else set()

    wrap(patch, votes, "_shaped", shaped)


@build("who edits a call beside it has not asked", more=True)
def _beside(patch: Patch) -> None:
    async def as_asked(_run: Any, request: Any) -> Any:
        return request

    wrap(patch, votes, "_as_of_now", lambda _: as_asked)


@build("an answer from outside has no author", story=False)
def _answers(patch: Patch) -> None:
    wrap(patch, calls, "note_answer", lambda _: lambda *_: None)


@build("who steers an agent of a workflow has not asked", story=False)
def _steered_inside(patch: Patch) -> None:
    def folding(inner: Any) -> Any:
        def child_record(state: Any, record: Any) -> Any:
            before = state.authors
            found = inner(state, record)
            state.authors = before
            return found

        return child_record

    wrap(patch, fold, "_child_record", folding)


# ------------------------------------------------------------------------ at the start


@build("roles are not looked up again")
def _roles(patch: Patch) -> None:
    async def agreed(*_: object) -> bool:
        return True

    wrap(patch, execute_tools, "still_agreed", lambda _: agreed)


@build("votes hold for whatever runs")
def _unbound(patch: Patch) -> None:
    for module in (check_interrupts, body):
        wrap(patch, module, "answers_match", lambda _: lambda *_: True)


@build("what a middleware changes is not looked at")
def _changed(patch: Patch) -> None:
    def changing(inner: Any) -> Any:
        async def change(run: Any, ready: Any, before: Any, call: Any) -> Any:
            with pytest.MonkeyPatch.context() as meanwhile:
                meanwhile.setattr(middleware, "is_own", lambda _: False)
                return await inner(run, ready, before, call)

        return change

    wrap(patch, middleware, "_as_changed", changing)
    wrap(patch, body, "answers_match", lambda _: lambda *_: True)
    wrap(patch, body, "verdict_on", lambda _: lambda *_: rules.NO_RULE)


# --------------------------------------------------------------------------- the rules


@build("a denial counts less than what asks or allows")
def _denials(patch: Patch) -> None:
    def judging(inner: Any) -> Any:
        def verdict(own: Any, *given: Any, **how: Any) -> Any:
            found = inner(own, *given, **how)
            others = [each for each in own.rules if each.kind != "deny"]
            if found.result != "deny" or len(others) == len(own.rules):
                return found
            return inner(Rules(*others, default=own.default), *given, **how)

        return verdict

    wrap(patch, Rules, "verdict", judging)


@build("one of the rules that ask is enough")
def _first(patch: Patch) -> None:
    def judging(inner: Any) -> Any:
        def verdict(*given: Any, **how: Any) -> Any:
            found = inner(*given, **how)
            return Verdict(result=found.result, rules=found.rules[:1])

        return verdict

    wrap(patch, Rules, "verdict", judging)


@build("a `when` that raises matches nothing")
def _raises(patch: Patch) -> None:
    def matching(inner: Any) -> Any:
        def matches(own: Any, names: Any, given: Any, view: Any) -> Any:
            inside = replace(own, kind="allow") if own.when is not None else own
            here = replace(view, agent=own.agent if inside is not own else view.agent)
            return inner(own, names, given, view) and inner(inside, names, given, here)

        return matches

    wrap(patch, Rule, "matches", matching)


@build("agents inside have no rules")
def _inside(patch: Patch) -> None:
    def judging(inner: Any) -> Any:
        return lambda run, call: inner(run, call) if run.parent is None else rules.NO_RULE

    for module in (rules, check_interrupts, execute_tools, body, middleware):
        wrap(patch, module, "verdict_on", judging)


@build("the rules of then hold at the start")
def _then(patch: Patch) -> None:
    async def allowed(*_: object) -> bool:
        return True

    wrap(patch, execute_tools, "_is_allowed", lambda _: allowed)
    wrap(patch, body, "verdict_on", lambda _: lambda *_: rules.NO_RULE)


@build("rules are not looked at again right before the body")
def _last_look(patch: Patch) -> None:
    wrap(patch, body, "verdict_on", lambda _: lambda *_: rules.NO_RULE)


@build("what asks right before the body does not ask")
def _unasked(patch: Patch) -> None:
    wrap(patch, body, "unasked", lambda _: lambda *_: [])


@build("what a rule asks holds nothing up", story=False)
def _held(patch: Patch) -> None:
    def pending(inner: Any) -> Any:
        return property(
            lambda call: [each for each in inner(call) if not each.source.startswith("rule: ")]
        )

    patch.setattr(Call, "pending_requests", pending(Call.__dict__["pending_requests"].fget))


# ------------------------------------------------------------------------- who decides


@build("an import keeps its votes")
def _import(patch: Patch) -> None:
    def resetting(inner: Any) -> Any:
        def reset(state: Any, run: Any, call: Any) -> None:
            kept = call.requests, call.decisions, call.votes
            inner(state, run, call)
            call.requests, call.decisions, call.votes = kept

        return reset

    wrap(patch, agent_folds, "_reset_imported", resetting)


@build("the names in an import are believed")
def _import_names(patch: Patch) -> None:
    def folding(inner: Any) -> Any:
        def imported(state: Any, record: Any) -> None:
            before = state.authors
            inner(state, record)
            state.authors = before

        return imported

    patch.setitem(fold._APPLY, r.Imported, folding(fold._APPLY[r.Imported]))


@build("a tool decides")
def _tool(patch: Patch) -> None:
    wrap(patch, decisions, "refuse_inside_run", lambda _: lambda: None)
    wrap(patch, agent_ref, "refuse_inside_run", lambda _: lambda: None)


@build("names may look alike", story=False)
def _alike(patch: Patch) -> None:
    wrap(patch, authors, "odd_places", lambda _: lambda _name: [])


@build("a schedule has no author", story=False)
def _schedules(patch: Patch) -> None:
    wrap(patch, starts, "_authors_of", lambda _: lambda queued: (queued.by,))


@build("a client says who votes", story=False)
def _client(patch: Patch) -> None:
    def deciding(inner: Any) -> Any:
        def decide(request: Any, entry: Any, by: str) -> Any:
            payload = dict(entry.payload)
            return inner(request, replace(entry, payload=payload), payload.pop("by", by))

        return decide

    wrap(patch, protocol, "decision_of", deciding)


@build("a login counts as the program", story=False)
def _program(patch: Patch) -> None:
    wrap(patch, User, "calling", lambda _: lambda user, ref: ref)
