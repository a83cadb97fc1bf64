"""What the rules of the runtime say of calls: before persons are asked, and before the start."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.approvals import VOTE_TYPES
from understudy.interrupts import DECISION_TYPES, Request
from understudy.modes.steps.tool_call.votes import RULE
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall
from understudy.trust.rules import CallView, Rule, Rules, Verdict

DENIED = "Denied by a rule of the application, {names}.\nDo not try the same call again."
ASKED_BY_RULE_NOW = "No rule asked about this call before. One does now."


def verdict_on(run: Run, rules: Rules, call: ToolCall) -> Verdict:
    """What the rules say of a call now."""
    view = CallView(
        tool=call.tool.name,
        agent=run.definition.name,
        agent_id=run.root.agent_id,
        agent_path=run.agent_path,
        run_id=run.run_id,
        requesters=run.root.state.authors,
    )
    return rules.verdict(call.tool.names, call.arguments, view)


def denial_of(run: Run, call: ToolCall) -> str | None:
    """Why a rule denies the call, for the model; None where none does."""
    rules = run.environment.trust.rules
    if rules is None or _is_answer(run, call):
        return None
    verdict = verdict_on(run, rules, call)
    if verdict.result != "deny":
        return None
    return DENIED.format(names=", ".join(repr(rule.name) for rule in verdict.rules))


def requests_of_rules(run: Run, rules: Rules, calls: Sequence[ToolCall]) -> list[Request]:
    """A request of each rule that asks about one of the calls."""
    return [_request(call, rule) for call in calls for rule in _asking(run, rules, call)]


def unasked(run: Run, call: ToolCall) -> list[Request]:
    """The requests of the rules of today that nobody has approved of this call."""
    rules = run.environment.trust.rules
    if rules is None:
        return []
    of_call = call.call
    approved = [
        (request.source, request.approval)
        for request in of_call.requests.values()
        if request.id in of_call.decisions and of_call.decisions[request.id].type != "reject"
    ]
    return [
        _request(call, rule, asked_again=ASKED_BY_RULE_NOW)
        for rule in _asking(run, rules, call)
        if (RULE + rule.name, rule.approval) not in approved
    ]


def _asking(run: Run, rules: Rules, call: ToolCall) -> tuple[Rule, ...]:
    if _is_answer(run, call):
        return ()
    verdict = verdict_on(run, rules, call)
    return verdict.rules if verdict.result == "ask" else ()


def _is_answer(run: Run, call: ToolCall) -> bool:
    """Whether the model gives its final answer by this call: it does nothing else."""
    return call.tool is run.definition.output_tool


def _request(call: ToolCall, rule: Rule, asked_again: str = "") -> Request:
    return call.request(
        allowed=DECISION_TYPES if rule.approval is None else VOTE_TYPES,
        display=f"Asked by the rule {rule.name!r}",
        approval=rule.approval,
        asked_again=asked_again,
        source=RULE + rule.name,
    )
