"""The rule of a gate: the calls of a tool that need a person, and what this person may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from understudy._base.grant_terms import EVERY_GRANT, GrantOffer, checked_offer
from understudy._base.json_values import is_time_span, shown
from understudy._base.request_timing import NO_TIMING, RequestTiming, request_timing, seconds_of
from understudy._base.titles import checked_title
from understudy.approvals import VOTE_TYPES, Approval
from understudy.errors import UsageError
from understudy.interrupts import DECISION_TYPES, DecisionType, checked_allowed
from understudy.tools.context import ToolContext

When = Callable[[dict[str, Any], ToolContext], Any]
Display = Callable[[dict[str, Any], ToolContext], Any]
Rule = bool | Sequence[str] | Mapping[str, Any]
"""True, False, the decisions that are allowed, or a dict of options."""
_TIMING_KEYS = ("remind_after", "escalate_after", "expires_after", "on_expiry")
_RULE_KEYS = ("allowed", "when", "display", "title", "approval", "grant", *_TIMING_KEYS)


@dataclass(frozen=True, slots=True)
class GateRule:
    """A checked rule."""

    allowed: tuple[DecisionType, ...] = DECISION_TYPES
    when: When | None = None
    display: Display | None = None
    timing: RequestTiming = NO_TIMING
    approval: Approval | None = None
    offer: GrantOffer | None = EVERY_GRANT
    title: str = ""
    """The title in lists of requests: see `Request.title_format`."""


def checked_rule(
    rule: Rule,
    options: Mapping[str, Any] | None = None,
    timing: RequestTiming = NO_TIMING,
    *,
    what: str,
) -> GateRule | None:
    """The rule, checked; None for no gate.

    Args:
        rule: as it was given.
        options: the times of all rules. A rule with its own time takes the other times from them.
        timing: the times of all rules, checked.
        what: the rule, for errors.

    Raises:
        UsageError: for an empty decision list, an unknown decision or option, or a time that is
            not possible.

    """
    if rule is True:
        return GateRule(timing=timing)
    if rule is False:
        return None
    if isinstance(rule, Mapping):
        unknown = [key for key in rule if key not in _RULE_KEYS]
        if unknown:
            raise UsageError(
                f"{what} has the option {unknown[0]!r}; options are {', '.join(_RULE_KEYS)}"
            )
        for option in ("when", "display"):
            if rule.get(option) is not None and not callable(rule[option]):
                raise UsageError(f"{what}: `{option}` must be a function, got {rule[option]!r}")
        asked = rule.get("approval")
        if asked is not None and not isinstance(asked, Approval):
            raise UsageError(
                f"{what}['approval'] takes what approval(...) makes, such as "
                f"approval({{'finance': 2}}), got {shown(asked)}"
            )
        default = DECISION_TYPES if asked is None else VOTE_TYPES
        allowed = checked_allowed(rule.get("allowed", default), what=f"{what}['allowed']")
        if asked is not None and not set(allowed) <= set(VOTE_TYPES):
            raise UsageError(
                f"{what}: persons vote on the call as it is: with `approval`, "
                f"`allowed` can hold {', '.join(VOTE_TYPES)}, got {', '.join(allowed)}"
            )
        own = {key: rule[key] for key in _TIMING_KEYS if key in rule}
        if asked is not None and asked.within is not None:
            given = {**(options or {}), **own}
            expiry = given.get("expires_after")
            own = {**own, "expires_after": _earlier(expiry, asked.within)}
        if own:
            timing = request_timing(what, **{**(options or {}), **own})
        offered = checked_offer(rule.get("grant", asked is None), what=f"{what}['grant']")
        title = checked_title(rule.get("title"), what=f"{what}['title']")
        return GateRule(
            allowed, rule.get("when"), rule.get("display"), timing, asked, offered, title
        )
    if isinstance(rule, Sequence):
        return GateRule(checked_allowed(rule, what=what), timing=timing)
    hint = ': write {"when": function}' if callable(rule) else ""
    raise UsageError(
        f"{what} must be True, False, a list of decisions, or a dict of options, got "
        f"{shown(rule)}{hint}"
    )


def check_title(gate: GateRule, tool: str, parameters: Mapping[str, Any], *, what: str) -> None:
    """Check that a title names arguments of the tool alone.

    Args:
        gate: the rule with the title.
        tool: the name of the tool.
        parameters: the JSON schema of its arguments.
        what: the rule, for errors.

    Raises:
        UsageError: for a name that is no argument.

    """
    if not gate.title or parameters.get("additionalProperties"):
        return
    names = list(parameters.get("properties", ()))
    checked_title(gate.title, what=f"{what}['title']", names=names, of=f"the tool {tool!r}")


def _earlier(expires_after: object, within: float) -> object:
    """The earlier of two times to answer. An invalid time is refused later, with the others."""
    seconds = seconds_of(expires_after)
    if not is_time_span(seconds):
        return within if expires_after is None else expires_after
    return min(seconds, within)
