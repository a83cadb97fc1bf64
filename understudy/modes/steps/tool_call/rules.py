"""What the rules of the runtime say of calls: before persons are asked, and before the start."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.approvals import VOTE_TYPES
from understudy.interrupts import DECISION_TYPES, Decision, Request
from understudy.run.run import Run
from understudy.run.tool_call import RULE, ToolCall
from understudy.trust.rules import CallView, Rule, Verdict

DENIED = "Denied by a rule of the application, {names}.\nDo not try the same call again."
ASKED_BY_RULE_NOW = "No rule asked about this call before. One does now."


NO_RULE = Verdict(result=None)


def verdict_on(run: Run, call: ToolCall) -> Verdict:
    """What the rules of the runtime say of a call now; nothing of that by which a model answers."""
    rules = run.environment.trust.rules
    if rules is None or call.tool is run.definition.output_tool:
        return NO_RULE
    view = CallView(
        tool=call.tool.name,
        agent=run.definition.name,
        agent_id=run.root.agent_id,
        agent_path=run.agent_path,
        run_id=run.run_id,
        requesters=run.root.state.authors,
    )
    return rules.verdict(call.tool.names, call.arguments, view)


def denial_in(verdict: Verdict) -> str | None:
    """Why a rule denies the call, for the model; None where none does."""
    if verdict.result != "deny":
        return None
    return DENIED.format(names=", ".join(repr(rule.name) for rule in verdict.rules))


def requests_of_rules(run: Run, calls: Sequence[ToolCall]) -> list[Request]:
    """A request of each rule that asks about one of the calls."""
    return [_request(call, rule) for call in calls for rule in _asking(verdict_on(run, call))]


def unasked(verdict: Verdict, call: ToolCall) -> list[Request]:
    """The requests of the rules that ask about this call, and that nobody has approved of it."""
    of_call = call.call
    approved = [
        (request, of_call.decisions[request.id])
        for request in of_call.requests.values()
        if request.id in of_call.decisions and of_call.decisions[request.id].type != "reject"
    ]
    return [
        _request(call, rule, asked_again=ASKED_BY_RULE_NOW)
        for rule in _asking(verdict)
        if not any(_is_asked_by(rule, *each) for each in approved)
    ]


def _is_asked_by(rule: Rule, request: Request, decision: Decision) -> bool:
    """Whether a request that was decided is the one that the rule would make today.

    A grant holds only as long as the rule offers the same.
    """
    if (request.source, request.approval) != (RULE + rule.name, rule.approval):
        return False
    return decision.by_grant is None or request.offer == rule.offer


def _asking(verdict: Verdict) -> tuple[Rule, ...]:
    return verdict.rules if verdict.result == "ask" else ()


def _request(call: ToolCall, rule: Rule, asked_again: str = "") -> Request:
    return call.request(
        allowed=DECISION_TYPES if rule.approval is None else VOTE_TYPES,
        display=f"Asked by the rule {rule.name!r}",
        approval=rule.approval,
        grant=rule.offer or False,
        asked_again=asked_again,
        source=RULE + rule.name,
    )
