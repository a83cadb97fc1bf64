"""The verdicts of the runtime's rules on calls: before persons are asked, and before the start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from understudy._base.authors import shown_author
from understudy.approvals import RULE, VOTE_TYPES
from understudy.interrupts import DECISION_TYPES, Request
from understudy.modes.steps.tool_call.votes import is_covered
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall
from understudy.trust.rules import DENIED_BY_RULE, CallView, Rule, Verdict

DENIED = DENIED_BY_RULE + ", {names}.\nDo not try the same call again."

NO_RULE = Verdict(result=None)


def verdict_on(run: Run, call: ToolCall) -> Verdict:
    """What the rules of the runtime say of a call now; nothing about an output tool's call.

    A rule that allows within a budget matches a call that has reserved there: `reserve_within`.
    """
    rules = run.environment.trust.rules
    if rules is None or not rules.has_budgets:
        return verdict_with(run, call, None)
    return verdict_with(run, call, partial(_is_within, run, call))


def _is_within(run: Run, call: ToolCall, rule: Rule) -> bool:
    account = run.root.ledger.account
    return account is not None and account.is_within(call.key, rule.within)


def verdict_with(run: Run, call: ToolCall, has_room: Callable[[Rule], bool] | None) -> Verdict:
    """As `verdict_on`, where `has_room` says whether a call is within the budget of a rule."""
    rules = run.environment.trust.rules
    if rules is None or call.tool in run.definition.output_tools:
        return NO_RULE
    view = CallView(
        tool=call.tool.name,
        agent=run.definition.name,
        agent_id=run.root.agent_id,
        agent_path=run.agent_path,
        run_id=run.run_id,
        requesters=tuple(map(shown_author, run.root.state.authors)),
    )
    return rules.verdict(call.tool.names, call.arguments, view, has_room=has_room)


def denial_in(verdict: Verdict) -> str | None:
    """Why a rule denies the call, for the model; None if no rule denies it."""
    if verdict.result != "deny":
        return None
    return DENIED.format(names=", ".join(repr(rule.name) for rule in verdict.rules))


def requests_of_rules(run: Run, calls: Sequence[ToolCall]) -> list[Request]:
    """A request of each rule that asks about one of the calls."""
    return [_request(call, rule) for call in calls for rule in _asking(verdict_on(run, call))]


def unasked(verdict: Verdict, call: ToolCall) -> list[Request]:
    """The requests of the rules that ask more about this call now than was asked before."""
    return [
        request
        for request in (_request(call, rule) for rule in _asking(verdict))
        if not is_covered(call, request)
    ]


def _asking(verdict: Verdict) -> tuple[Rule, ...]:
    return verdict.rules if verdict.result == "ask" else ()


def _request(call: ToolCall, rule: Rule) -> Request:
    return call.request(
        allowed=DECISION_TYPES if rule.approval is None else VOTE_TYPES,
        approval=rule.approval,
        grant=rule.offer or False,
        title=rule.title or None,
        timing=rule.timing,
        source=RULE + rule.name,
    )
