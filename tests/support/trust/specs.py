"""Rules, approvals and gates of a story as plain data, which its judge reads by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from random import Random
from typing import Any, Literal

from understudy.trust import Approval, CallView, Rule, Rules, allow, approval, ask, deny

__all__ = [
    "APPROVALS",
    "FIXED",
    "GATES",
    "ApprovalSpec",
    "RuleSpec",
    "RulesSpec",
    "TermsSpec",
    "drawn_rules",
    "when_of",
]

RAISES = -1
"""As the limit of a rule: its `when` raises."""


@dataclass(frozen=True, slots=True)
class TermsSpec:
    """What holds besides who must agree; spans are seconds."""

    within: float | None = None
    use_after: float | None = None
    use_within: float | None = None
    glass: str | None = None
    """The role that may break the glass."""
    assurance: Literal["host", "login", "idp"] = "host"
    max_auth_age: float | None = None


@dataclass(frozen=True, slots=True)
class ApprovalSpec:
    """Who must agree to a call."""

    ways: tuple[Mapping[str, int], ...]
    deny: int = 1
    never: bool = False
    terms: TermsSpec = TermsSpec()

    @property
    def is_of_several(self) -> bool:
        """Whether on some way more than one person must agree."""
        return any(sum(way.values()) > 1 for way in self.ways)

    def made(self) -> Approval:
        """As the library takes it."""
        never: Any = ["requester"] if self.never else []
        terms = self.terms
        return approval(
            any_of=self.ways,
            deny=self.deny,
            never=never,
            within=terms.within,
            use_after=terms.use_after,
            use_within=terms.use_within,
            break_glass=None if terms.glass is None else {terms.glass: 1},
            assurance=terms.assurance,
            max_auth_age=terms.max_auth_age,
        )

    @staticmethod
    def of(data: Mapping[str, Any]) -> ApprovalSpec:
        """What an approval asks that is recorded so."""
        terms = TermsSpec(
            data.get("within"),
            data.get("use_after"),
            data.get("use_within"),
            next(iter(data.get("break_glass") or ()), None),
            data.get("assurance", "host"),
            data.get("max_auth_age"),
        )
        never = "requester" in data.get("never", ())
        return ApprovalSpec(tuple(data["ways"]), data.get("deny", 1), never, terms)


APPROVALS = (
    ApprovalSpec(({"finance": 2},)),
    ApprovalSpec(({"finance": 2},), never=True),
    ApprovalSpec(({"finance": 1, "legal": 1},), never=True),
    ApprovalSpec(({"finance": 1, "legal": 1},), deny=2),
    ApprovalSpec(({"finance": 3}, {"ceo": 1, "legal": 1}), deny=2),
    ApprovalSpec(({"finance": 1},), never=True),
)
GATES: Mapping[str, ApprovalSpec | None] = {
    "wire": None,
    "grant": APPROVALS[2],
    "send": APPROVALS[5],
}
"""By the name of the tool what the gate of the outer agent asks; None for anybody's decision."""


@dataclass(frozen=True, slots=True)
class RuleSpec:
    """One rule."""

    kind: Literal["deny", "ask", "allow"]
    tool: str
    over: int | None = None
    """It is about amounts above; None for all amounts."""
    agent: str = "*"
    approval: ApprovalSpec | None = None

    @property
    def name(self) -> str:
        """Rules that say the same have one name, in whatever set."""
        who = "" if self.approval is None else f": {self.approval}"
        return f"{self.kind} {self.tool} over {self.over} of {self.agent}{who}"

    def matches(self, tool: str, amount: int, agents: tuple[str, ...]) -> bool:
        """Whether it is about a call, by the agents from the outermost to the one that calls."""
        if not fnmatchcase(tool, self.tool):
            return False
        about = agents[-1:] if self.kind == "allow" else agents
        if not any(fnmatchcase(each, self.agent) for each in about):
            return False
        if self.over == RAISES:
            return self.kind != "allow"
        return self.over is None or amount > self.over

    def made(self) -> Rule:
        """As the library takes it."""
        given: Any = {"name": self.name, "agent": self.agent, "when": when_of(self.over)}
        if self.kind == "ask":
            return ask(self.tool, self.approval.made() if self.approval else None, **given)
        return (deny if self.kind == "deny" else allow)(self.tool, **given)


def when_of(over: int | None) -> Any:
    """The `when` of a rule about amounts above."""
    if over is None:
        return None

    def is_over(arguments: Mapping[str, Any], view: CallView) -> bool:
        if over == RAISES:
            raise KeyError("currency")
        return bool(arguments.get("amount", 0) > over)

    return is_over


@dataclass(frozen=True, slots=True)
class RulesSpec:
    """The rules of a runtime."""

    rules: tuple[RuleSpec, ...]
    default: Literal["gates", "ask", "deny"] = "gates"
    version: int | None = None

    def made(self) -> Rules:
        """As the library takes it."""
        return Rules(
            *(each.made() for each in self.rules), default=self.default, version=self.version
        )


def drawn_rules(chance: Random) -> RulesSpec:
    """Some rules. Most ask several persons."""
    rules = {}
    for _ in range(chance.randrange(2, 5)):
        kind = chance.choices(("ask", "deny", "allow"), (6, 3, 1))[0]
        spec = RuleSpec(
            kind,  # type: ignore[arg-type]  # one of these
            chance.choice(("pay", "pay", "wire", "*a*", "grant")),
            chance.choice((None, 100, 200, 500) if kind != "deny" else (500, 500, RAISES)),
            chance.choice(("*", "*", "*", "desk", "helper")),
            chance.choice(APPROVALS) if kind == "ask" and chance.random() < 0.85 else None,
        )
        rules[spec.name] = spec
    default = chance.choices(("gates", "ask"), (9, 1))[0]
    return RulesSpec(tuple(rules.values()), default)  # type: ignore[arg-type]  # so too


def _all(approval: ApprovalSpec) -> RuleSpec:
    """Each call that pays must be agreed to."""
    return RuleSpec("ask", PAYING, approval=approval)


PAYING = "[pwg]*"
"""The names of the tools that pay."""
FIXED: Mapping[str, tuple[RulesSpec, ...]] = {
    "strict": tuple(RulesSpec((_all(each),)) for each in APPROVALS),
    "never": tuple(RulesSpec((_all(each),)) for each in APPROVALS if each.never),
    "several": tuple(
        RulesSpec((_all(each),)) for each in APPROVALS if each.is_of_several and not each.never
    ),
    "deny": tuple(RulesSpec((_all(each),)) for each in APPROVALS if each.deny > 1),
    "both": (RulesSpec((_all(APPROVALS[0]), _all(APPROVALS[3]))),),
    "raises": (RulesSpec((RuleSpec("deny", "pay", RAISES), RuleSpec("ask", "[wg]*", RAISES))),),
    **{
        word: (
            RulesSpec(
                (
                    RuleSpec(
                        "ask",
                        "pay" if word == "soon" else PAYING,
                        approval=ApprovalSpec(ways, 1, never, terms),
                    ),
                )
            ),
        )
        for word, ways, never, terms in (
            ("within", ({"finance": 2},), True, TermsSpec(within=100)),
            ("cooling", ({"finance": 2},), False, TermsSpec(use_after=100)),
            ("soon", ({"finance": 1},), False, TermsSpec(use_within=50)),
            ("glass", ({"finance": 2},), True, TermsSpec(glass="ceo")),
            ("login", ({"finance": 1},), False, TermsSpec(assurance="login")),
            ("fresh", ({"finance": 1},), False, TermsSpec(assurance="idp", max_auth_age=600)),
        )
    },
    "none": (RulesSpec(()),),
    "two": (RulesSpec((_all(APPROVALS[0]),)),),
    "paying": tuple(
        RulesSpec((RuleSpec("ask", "pay", approval=each),)) for each in APPROVALS if each.never
    ),
    "sudden": (RulesSpec((RuleSpec("deny", PAYING),)), RulesSpec((_all(APPROVALS[1]),))),
}
"""Rules that are not drawn, by what they are for. The sudden ones come as a call starts."""
