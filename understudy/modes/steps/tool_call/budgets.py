"""What tool calls may spend: a call starts only once its spending is reserved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from understudy.approvals import BUDGET, VOTE_TYPES
from understudy.interrupts import DECISION_TYPES, Request
from understudy.modes.steps.tool_call.arguments import (
    ReadyCall,
    as_tool_call,
    canonical,
    record_asked_now,
)
from understudy.modes.steps.tool_call.ends import DeniedByRule, NeedsDecision
from understudy.modes.steps.tool_call.results import denied_by_rule, doubt_result
from understudy.modes.steps.tool_call.rules import verdict_with
from understudy.modes.steps.tool_call.votes import AskedNow, asked_now, with_requesters
from understudy.run.account import Account, Shortage, Want, budget_signal, spender_of
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall
from understudy.state.records import Result
from understudy.state.run_state import Call
from understudy.tools import Tool
from understudy.trust.budgets import Budget, NoAmount

_USED_UP = "Not run: {shortages}."
_ASKED_NOW = "No budget asked about this call before. One has no room for it now."
_NOT_AGAIN = "a budget has no room to run it again"
_NO_AMOUNT = "Not run: the budget {name!r} cannot count this call, for {why}."


async def afford(run: Run, group: Sequence[ReadyCall]) -> list[ReadyCall]:
    """Reserve what these calls may spend. Returns those that start, in their order.

    What becomes of the others is recorded: a result, or a request to a person. A budget that stops
    runs lets no later call of the reply start.
    """
    account: Account = run.root.ledger.account
    started: list[ReadyCall] = []
    for ready in group:
        found = await _reserved(run, account, ready)
        if found is None:
            break
        if found:
            started.append(ready)
    return started


async def _reserved(run: Run, account: Account, ready: ReadyCall) -> bool | None:
    """Whether the call may start; None if its run is to stop."""
    call = ready.call
    if call.check is not None:
        return True
    _note_reversal(account, ready)
    if not call.begins_anew:
        return True
    try:
        wants = wants_of(run, account, ready)
    except _CannotCount as problem:
        text = _NO_AMOUNT.format(name=problem.budget.name, why=problem.why)
        run.record(_not_run(run, call, text))
        return False
    if not wants:
        return True
    short = await account.reserve_for(call, wants, made=ready)
    if not short:
        return True
    text = _USED_UP.format(shortages="; ".join(each.text for each in short))
    if any(each.budget.at_limit == "stop" for each in short):
        signal = budget_signal(short)
        run.record(replace(_not_run(run, call, text), signal=signal.to_dict()))
        return None
    record_asked_now(run, ready, await _asked(run, ready, short))
    return False


def _not_run(run: Run, call: Call, text: str) -> Result:
    """The result of a call that does not start; one in doubt, which was to run again, stays so."""
    return doubt_result(run, call, _NOT_AGAIN) if call.entered else denied_by_rule(run, call, text)


async def _asked(run: Run, ready: ReadyCall, short: Sequence[Shortage]) -> Sequence[AskedNow]:
    """What persons are asked if the call would spend beyond these budgets."""
    tool_call = as_tool_call(run, ready)
    requests = [_request(tool_call, each) for each in short]
    return await asked_now(run, tool_call, await with_requesters(run, requests), _ASKED_NOW)


async def afford_now(run: Run, ready: ReadyCall) -> None:
    """Reserve what the call is about to spend, if a middleware has given it other arguments.

    Raises:
        CallEnded: if the budgets have no room for it.

    """
    account: Account = run.root.ledger.account
    call = ready.call
    continues = call.attempts - 1 > call.not_entered and not call.times_let_again
    rules = run.environment.trust.rules
    if not continues and rules is not None and rules.has_budgets and account.has_within(call.key):
        await reserve_within(run, as_tool_call(run, ready), is_started=True)
    if account.has_reserved(ready):
        return
    _note_reversal(account, ready)
    try:
        wants = wants_of(run, account, ready)
    except _CannotCount as problem:
        raise DeniedByRule(_NO_AMOUNT.format(name=problem.budget.name, why=problem.why)) from None
    if not wants:
        return
    short = await account.reserve_for(call, wants, made=ready, continues=continues)
    if not short:
        return
    if all(each.budget.at_limit == "ask" for each in short):
        raise NeedsDecision(ready, await _asked(run, ready, short))
    raise DeniedByRule(_USED_UP.format(shortages="; ".join(each.text for each in short)))


class _CannotCount(Exception):
    def __init__(self, budget: Budget, why: str) -> None:
        super().__init__(why)
        self.budget, self.why = budget, why


def wants_of(run: Run, account: Account, ready: ReadyCall) -> list[Want]:
    """What a call may spend of the budgets of the runtime.

    Raises:
        _CannotCount: if a budget cannot count it.

    """
    names = ready.tool.names
    counting = [
        budget
        for budget in account.keeper.of_tools
        if budget.measure.counts_tool(names) and budget.covers(run.agent_path)
    ]
    if not counting:
        return []
    reads = any(budget.measure.argument for budget in counting)
    arguments = canonical(ready) if reads else {}
    return [_want(run, ready.tool, ready.call, arguments, budget) for budget in counting]


def _want(run: Run, tool: Tool, call: Call, arguments: Mapping[str, Any], budget: Budget) -> Want:
    measure = budget.measure
    try:
        return Want(
            budget,
            budget.key(spender_of(run), tool.name) if budget.per else "",
            measure.amount_of(arguments),
            measure.ref_of(arguments) if measure.ref else "",
            bool(call.requests) and _is_passed(call, budget),
        )
    except NoAmount as problem:
        raise _CannotCount(budget, str(problem)) from None


def _is_passed(call: Call, budget: Budget) -> bool:
    """Whether persons have let the call spend beyond the budget."""
    source = BUDGET + budget.name
    return any(
        request.source == source and call.decisions[request.id].type in ("approve", "edit")
        for request in call.requests.values()
        if request.id in call.decisions
    )


def _note_reversal(account: Account, ready: ReadyCall) -> None:
    """Note what the call gives back if it succeeds."""
    given: dict[tuple[str, str], Decimal | None] = {}
    for budget in account.keeper.reversible:
        if budget.measure.given_back_by in ready.tool.names:
            try:
                given[(budget.id, budget.measure.ref_of(canonical(ready)))] = None
            except NoAmount:
                continue  # the rule names nothing to give back
    if account.keeper.reversible:
        account.will_give_back(ready.call, given)


def _request(call: ToolCall, short: Shortage) -> Request:
    budget = short.budget
    return call.request(
        allowed=DECISION_TYPES if budget.approval is None else VOTE_TYPES,
        display=f"{short.sentence}.",
        approval=budget.approval,
        grant=False,
        source=BUDGET + budget.name,
    )


# ------------------------------------------------------------------- rules that allow within


async def reserve_within(run: Run, call: ToolCall, *, is_started: bool = False) -> None:
    """Reserve from the budget within which a rule allows the call, if only such rules allow it.

    A rule whose budget has no room, or cannot count the call, does not match. What was reserved for
    the call with other arguments does not count.

    Args:
        run: the run of the call.
        call: the call, with its arguments of now.
        is_started: whether the start of this attempt is recorded already.

    """
    rules, account = run.environment.trust.rules, run.root.ledger.account
    if rules is None or account is None or not rules.has_budgets:
        return
    if not is_started and not call.call.begins_anew:
        return
    verdict = verdict_with(run, call, None)
    if verdict.result != "allow" or any(rule.within is None for rule in verdict.rules):
        return
    for rule in verdict.rules:
        assert rule.within is not None, "as above"
        try:
            want = _want(run, call.tool, call.call, call.arguments, rule.within)
        except _CannotCount:
            account.give_up_within(call.call, rule.within)
            continue
        if not await account.reserve_for(call.call, [want], is_within=True):
            return
        account.give_up_within(call.call, rule.within)
