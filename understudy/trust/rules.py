"""`Rules`: which calls are denied, which need persons, and which run, for all agents of a runtime.

Of all rules that match a call, denials count most, then rules that ask, then rules that allow.
Rules come on top of the gates of agents: if a gate asks about a call, no rule lets it run.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Literal, Protocol, TypeAlias

from understudy._base.error_texts import error_text
from understudy._base.grant_terms import GivenOffer, GrantOffer, checked_offer
from understudy._base.json_values import checked_text, digest, shown
from understudy._base.request_timing import (
    NO_TIMING,
    EscalateAfter,
    RequestTiming,
    Seconds,
    request_timing,
)
from understudy._base.titles import checked_title
from understudy.approvals import Approval
from understudy.errors import UsageError
from understudy.trust.budgets import Budget
from understudy.trust.fingerprints import parts_of

logger: logging.Logger = logging.getLogger(__name__)

RuleKind = Literal["deny", "ask", "allow"]
Default = Literal["gates", "ask", "deny"]
"""The effect on a call that no rule matches: the gates of its agent decide, a person is asked, or
it is denied."""
LONGEST = 0.05
"""The seconds of processor time that a `when` may take; a slower `when` counts as raising."""


DENIED_BY_RULE = "Denied by a rule of the application"
"""The beginning of the result of a call that a rule denies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallView:
    """The facts about a call that a rule's `when` gets in addition to the arguments.

    They are `tool`, `agent`, `agent_id`, `agent_path`, `run_id` and `requesters`.
    """

    tool: str
    """The name of the tool."""
    agent: str = ""
    """The name of the agent that makes the call."""
    agent_id: str = ""
    """The id of the agent."""
    agent_path: tuple[str, ...] = ()
    """The names of the agents from the outermost to the agent that makes the call."""
    run_id: str = ""
    """The id of the run."""
    requesters: tuple[str | None, ...] = ()
    """The names of the authors of the conversation; None for an author without a name."""


When: TypeAlias = Callable[[Mapping[str, Any], CallView], Any]
"""A function that decides whether a rule matches a call. It is plain, quick and reads only its
arguments."""


class HasNames(Protocol):
    """A tool, or the call of a tool: it has names."""

    @property
    def names(self) -> Sequence[str]:
        """The name of the tool, and its earlier names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule about calls of tools. `deny`, `ask` and `allow` make rules."""

    kind: RuleKind
    """What the rule does with a call that it matches: deny, ask or allow."""
    tool: str
    """The name of a tool, or a pattern."""
    name: str
    """The name of the rule, for people and models."""
    agent: str = "*"
    """The name of the agent that makes the call, or a pattern."""
    when: When | None = None
    """The function that decides whether the rule matches a call; None = it matches every call."""
    approval: Approval | None = None
    """Who must agree, for a rule that asks; None = any person with the right to decide."""
    offer: GrantOffer | None = None
    """The largest grant that an answer to the rule's question may give; None = no grant."""
    code: str | None = None
    """The name of the code of `when`, if the code itself cannot be compared between hosts.

    See `deny` and `Rules(version=...)`.
    """
    within: Budget | None = None
    """The budget that must have room for a call, for a rule that allows; None = no budget."""
    title: str = ""
    """The title of its requests in lists; empty for none."""
    timing: RequestTiming = NO_TIMING
    """The times of reminders, escalations and expiry of its unanswered requests."""

    def covers(self, names: Sequence[str], agent_path: Sequence[str]) -> bool:
        """Return whether the rule is about a tool with these names, called by an agent at this
        path.

        Args:
            names: the names of the tool.
            agent_path: the names of the agents from the outermost to the agent that makes the
                call.

        """
        is_named = self.tool in names or any(fnmatchcase(name, self.tool) for name in names)
        return is_named and self.covers_agent(agent_path)

    def covers_agent(self, agent_path: Sequence[str]) -> bool:
        """Return whether the rule is about calls of the last of these agents."""
        if self.agent == "*":
            return True
        # A model must not get around a denial by letting an inner agent make the call.
        agents = agent_path[-1:] if self.kind == "allow" else agent_path
        return any(fnmatchcase(each, self.agent) for each in agents)

    def matches(self, names: Sequence[str], arguments: Mapping[str, Any], view: CallView) -> bool:
        """Return whether the rule matches this call.

        If `when` raises or takes too long, a rule that denies or asks matches the call, and a rule
        that allows does not.
        """
        is_of_agent = self.kind == "allow" or not view.agent_path
        if not self.covers(names, (view.agent,) if is_of_agent else view.agent_path):
            return False
        found = self.found(arguments, view)
        if isinstance(found, bool):
            return found
        logger.warning("The `when` of the rule %r counts as not known: %s", self.name, found)
        return self.kind != "allow"

    def found(self, arguments: Mapping[str, Any], view: CallView) -> bool | str:
        """Return what `when` answers for a call, or, as text, why there is no answer."""
        if self.when is None:
            return True
        began = time.thread_time()
        try:
            found = self.when(arguments, view)
            if not isinstance(found, bool) and inspect.isawaitable(found):
                close = getattr(found, "close", None)
                if callable(close):
                    close()
                raise TypeError("it returned an awaitable, not True or False")
            found = bool(found)
        except Exception as error:
            return f"it raised {error_text(error)}"
        taken = time.thread_time() - began
        if taken <= LONGEST:
            return found
        return f"it took {taken:.3f} s of processor time, and {LONGEST:g} s are the limit"


def deny(
    tool: str,
    *,
    name: str | None = None,
    when: When | None = None,
    agent: str = "*",
    code: str | None = None,
) -> Rule:
    """Make a rule that refuses calls.

    Args:
        tool: the name of a tool, or a pattern such as `"refund_*"`.
        name: the name of the rule, for people and models; by default it is made of the other
            arguments.
        when: decides whether the rule matches a call: `when(arguments, view)`. Without it the
            rule matches every call.
        agent: the name of the agent that makes the call, or a pattern. A rule that denies or
            asks also holds for the calls of all agents inside that agent.
        code: a name for the code of `when`. It is needed for rules with a version if `when`
            uses something that cannot be compared between hosts, such as an object. Change the
            name whenever the code changes.

    Raises:
        UsageError: if an argument is wrong.

    """
    return _rule("deny", tool, name, when, agent, code=code)


def ask(
    tool: str,
    approval: Approval | None = None,
    *,
    name: str | None = None,
    when: When | None = None,
    agent: str = "*",
    grant: GivenOffer = False,
    title: str | None = None,
    remind_after: Seconds | Sequence[Seconds] = (),
    escalate_after: EscalateAfter | None = None,
    code: str | None = None,
) -> Rule:
    """Make a rule by which persons are asked before a call runs.

    Args:
        tool: as in `deny`.
        approval: who must agree; None = any person with the right to decide.
        grant: the largest grant that persons may give for later calls, made with `offer(...)`.
            True = any grant. False = none.
        title: the title in lists, such as `"Refund {amount}"`: see `Request.title_format`.
        remind_after: seconds or timedeltas, one or several, after which persons are reminded.
        escalate_after: the other people to notify, by the seconds after which they are notified.
        name, when, agent, code: as in `deny`.

    Raises:
        UsageError: if an argument is wrong.

    """
    if approval is not None and not isinstance(approval, Approval):
        raise UsageError(
            f"ask({tool!r}, ...) takes what approval(...) makes, such as approval({{'finance': 2}})"
            f", got {shown(approval)}"
        )
    what = f"ask({tool!r}, ...)"
    offered = checked_offer(grant, what=f"ask({tool!r}, grant=...)")
    timing = request_timing(
        what,
        remind_after=remind_after,
        escalate_after=escalate_after,
        expires_after=None if approval is None else approval.within,
    )
    made = _rule("ask", tool, name, when, agent, approval, offered, code=code)
    return replace(
        made, title=checked_title(title, what=f"ask({tool!r}, title=...)"), timing=timing
    )


def allow(
    tool: str,
    *,
    name: str | None = None,
    when: When | None = None,
    agent: str = "*",
    within: Budget | None = None,
    code: str | None = None,
) -> Rule:
    """Make a rule that lets calls pass `Rules(default=...)`. Gates of agents still ask.

    Args:
        tool, name, when, agent, code: as in `deny`. within: a budget. The rule matches a call only
        while the budget has room for it. Calls
            reserve their amounts one by one, so the calls of one reply never count on the same
            room. A call without room is judged by the other rules and by `Rules(default=...)`.

    Raises:
        UsageError: if an argument is wrong.

    """
    if within is not None and (not isinstance(within, Budget) or within.measure.is_of_models):
        raise UsageError(
            f"allow({tool!r}, within=...) takes a Budget of calls(...) or sum_of(...), got "
            f"{shown(within)}"
        )
    made = _rule("allow", tool, name, when, agent, code=code)
    return made if within is None else replace(made, within=within)


def _rule(
    kind: RuleKind,
    tool: object,
    name: object,
    when: object,
    agent: object,
    approval: Approval | None = None,
    offered: GrantOffer | None = None,
    code: str | None = None,
) -> Rule:
    pattern = checked_text(tool, what=f"{kind}(...): the name of a tool")
    of_agent = checked_text(agent, what=f"{kind}({pattern!r}, agent=...)")
    if inspect.iscoroutinefunction(when):
        raise UsageError(
            f"{kind}({pattern!r}, when=...) must be a plain function: it is asked right before "
            "each call starts, and decides by the arguments alone"
        )
    if when is not None and not callable(when):
        raise UsageError(
            f"{kind}({pattern!r}, when=...) must be a function of the arguments and a CallView, "
            f"got {shown(when)}"
        )
    if name is None:
        who = "" if approval is None else f": {approval.text}"
        name = f"{kind} {pattern}{'' if of_agent == '*' else f' of {of_agent}'}{who}"
    return Rule(
        kind=kind,
        tool=pattern,
        name=checked_text(name, what=f"{kind}({pattern!r}, name=...)"),
        agent=of_agent,
        when=when,
        approval=approval,
        offer=offered,
        code=None if code is None else checked_text(code, what=f"{kind}({pattern!r}, code=...)"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict of rules on a call."""

    result: Literal["deny", "ask", "allow"] | None
    """The result; None if no rule matches. Then the gates of the agents decide."""
    rules: tuple[Rule, ...] = ()
    """The rules that led to the result: all that deny, all that ask, or all that allow."""


class Rules:
    """Rules for the calls of all agents of a runtime: `Runtime(rules=Rules(deny("drop_*")))`.

    Rules do not see three kinds of calls: native tools, which a provider runs; the tool of the
    final answer; and names that no tool has.

    Args:
        rules: the rules, made by `deny`, `ask` and `allow`, in any order.
        default: what happens to a call that no rule matches.
        version: a number that makes these the rules of the whole store, on all its hosts. A
            host with an older version, or without rules, starts no calls. Raise the number with
            each change. None = the rules hold for their own host only.

    Raises:
        UsageError: if a value is not a rule, the default is unknown, two rules have one name,
            or the version is not a number from 1 up.

    """

    def __init__(
        self, *rules: Rule, default: Default = "gates", version: int | None = None
    ) -> None:
        for rule in rules:
            if not isinstance(rule, Rule):
                raise UsageError(
                    f"Rules(...) takes what deny(), ask() and allow() make, got {shown(rule)}"
                )
        if default not in ("gates", "ask", "deny"):
            raise UsageError(f"Rules(default=...) must be gates, ask or deny, got {shown(default)}")
        if version is not None and (type(version) is not int or not 1 <= version < 1 << 62):
            raise UsageError(
                f"Rules(version=...) must be a whole number from 1 on, got {shown(version)}"
            )
        names = [rule.name for rule in rules]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UsageError(
                f"Rules(...): two rules are named {twice!r}. A request names the rule that asks: "
                "give them different names, by name="
            )
        self.rules: tuple[Rule, ...] = rules
        self.default: Default = default
        self.version: int | None = version
        self.has_budgets: bool = any(rule.within is not None for rule in rules)
        """Whether a rule allows calls within a budget."""
        self._of_default = Verdict(result=None)
        if default != "gates":
            rule = _rule(default, "*", f"whatever no rule names ({default})", None, "*")
            self._of_default = Verdict(result=default, rules=(rule,))
        if version is not None:
            self.fingerprint  # noqa: B018 - an error comes here, before anything runs

    def verdict(
        self,
        tool: str | Sequence[str] | HasNames,
        arguments: Mapping[str, Any],
        view: CallView | None = None,
        *,
        has_room: Callable[[Rule], bool] | None = None,
    ) -> Verdict:
        """Return what the rules say about a call. No runtime is needed.

        Args:
            tool: the tool, its name, or all names that it has or had.
            arguments: the arguments of the call.
            view: more facts about the call; by default only the tool's name.
            has_room: returns whether the budget of a rule with `within` has room for the call;
                by default each budget has.

        Raises:
            UsageError: if `tool` is neither a tool nor names.

        """
        names = _names_of(tool)
        seen = view or CallView(tool=names[0])
        arguments = deepcopy(dict(arguments))  # a `when` must not change what runs
        found: dict[RuleKind, list[Rule]] = {}
        for rule in self.rules:
            if rule.matches(names, arguments, seen) and (
                rule.within is None or has_room is None or has_room(rule)
            ):
                found.setdefault(rule.kind, []).append(rule)
        for kind in ("deny", "ask", "allow"):
            if kind in found:
                return Verdict(result=kind, rules=tuple(found[kind]))
        return self._of_default

    def failing(
        self, names: Sequence[str], arguments: Mapping[str, Any], view: CallView
    ) -> list[str]:
        """Return the names of the rules whose `when` raises or takes too long for this call."""
        arguments = deepcopy(dict(arguments))
        about = (rule for rule in self.rules if rule.covers(names, view.agent_path))
        return [rule.name for rule in about if isinstance(rule.found(arguments, view), str)]

    @cached_property
    def fingerprint(self) -> str:
        """The digest of everything that decides what the rules say.

        Rules with a version have the same digest on all hosts.

        Raises:
            UsageError: if a `when` uses an object that cannot be compared with another host's.

        """
        described = [_described(rule) for rule in self.rules]
        return digest([self.default, sorted(described, key=str)])[:32]

    def __repr__(self) -> str:
        version = "" if self.version is None else f", version={self.version}"
        return f"Rules({len(self.rules)} rules, default={self.default!r}{version})"


def _described(rule: Rule) -> list[Any]:
    """A rule as plain data: everything that decides its verdict."""
    when: Any = None
    if rule.when is not None:
        what = f"the rule {rule.name!r}"
        when = ["code", rule.code] if rule.code is not None else parts_of(rule.when, what)
    approval = None if rule.approval is None else rule.approval.to_dict()
    offered = None if rule.offer is None else rule.offer.to_dict()
    within = () if rule.within is None else (rule.within.described,)
    shown = [] if not rule.title and not rule.timing.tells else [rule.title, rule.timing.to_list()]
    return [rule.kind, rule.tool, rule.name, rule.agent, approval, offered, when, *within, *shown]


def _names_of(tool: object) -> tuple[str, ...]:
    if isinstance(tool, str):
        return (tool,)
    names = getattr(tool, "names", tool)  # a `Tool` has names; this module does not know the class
    if isinstance(names, Sequence) and names and all(isinstance(name, str) for name in names):
        return tuple(names)
    raise UsageError(
        "rules.verdict(...) takes a tool, the name of a tool, or a list of its names, got "
        f"{shown(tool)}"
    )


def checked_rules(given: object) -> Rules | None:
    """The rules that were given to a runtime.

    Raises:
        UsageError: if it is anything else.

    """
    if given is None or isinstance(given, Rules):
        return given
    raise UsageError(f"`rules` must be Rules(...), got {shown(given)}")
