"""The fingerprint of rules: another one wherever they may say something else."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from understudy import UsageError
from understudy.trust import Rule, Rules, allow, approval, ask, deny, offer


def of(*rules: Rule, **options: Any) -> str:
    return Rules(*rules, **options).fingerprint


def when(function: Callable[..., Any], code: str | None = None) -> str:
    return of(deny("refund", name="x", when=function, code=code))


def test_all_that_a_rule_says_counts_and_the_order_of_rules_does_not() -> None:
    """V9."""
    plain = of(deny("refund", name="x"))
    assert plain == of(deny("refund", name="x"), version=7)
    others = [
        of(deny("refund", name="y")),
        of(deny("refunds", name="x")),
        of(deny("refund", name="x", agent="desk")),
        of(allow("refund", name="x")),
        of(ask("refund", name="x")),
        of(ask("refund", approval({"finance": 2}), name="x")),
        of(ask("refund", approval({"finance": 2}, deny=2), name="x")),
        of(ask("refund", name="x", grant=True)),
        of(ask("refund", name="x", grant=offer(uses=5))),
        of(ask("refund", name="x", grant=offer(uses=6))),
        of(deny("refund", name="x"), default="ask"),
        of(deny("refund", name="x", when=lambda arguments, view: True)),
    ]
    assert len({plain, *others}) == 1 + len(others)
    assert of(deny("a"), allow("b")) == of(allow("b"), deny("a"))


LIMIT = 500


class Kind(Enum):
    A = "a"
    B = "b"


@dataclass
class Limits:
    most: int = 500
    tools: tuple[str, ...] = ()

    def __call__(self, arguments: Any, view: Any) -> bool:
        return bool(arguments["amount"] > self.most)

    def over(self, arguments: Any, view: Any) -> bool:
        return bool(arguments["amount"] > self.most)


class Slots:
    __slots__ = ("most",)

    def __init__(self, most: int) -> None:
        self.most = most

    def __call__(self, arguments: Any, view: Any) -> bool:
        return bool(arguments["amount"] > self.most)


def over(limit: Any) -> Callable[..., Any]:
    return lambda arguments, view: arguments["amount"] > limit


def nested(limit: int) -> Callable[..., Any]:
    inner = over(limit)
    return lambda arguments, view: any(inner(each, view) for each in [arguments])


def with_default(limit: int) -> Callable[..., Any]:
    return lambda arguments, view, most=limit: arguments["amount"] > most


def named(arguments: Any, view: Any, limit: int) -> bool:
    return bool(arguments["amount"] > limit)


def matching(pattern: str) -> Callable[..., Any]:
    compiled = re.compile(pattern)
    return lambda arguments, view: compiled.search(arguments["order"])


MADE: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "a value in a closure": over,
    "a closure in a closure": nested,
    "a default": with_default,
    "a partial": lambda limit: functools.partial(named, limit=limit),
    "an object that is called": Limits,
    "an object with slots": Slots,
    "a method": lambda limit: Limits(limit).over,
    "a set": lambda limit: over(frozenset({limit, "x"})),
    "a mapping": lambda limit: over({"a": [limit, None, 1.5, b"x"]}),
    "a decimal": lambda limit: over(Decimal(limit)),
    "a time": lambda limit: over(timedelta(seconds=limit)),
    "a pattern": lambda limit: matching(f"^{limit}$"),
    "an enum": lambda limit: over(Kind.A if limit == 1 else Kind.B),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_what_a_when_holds_counts(make: Callable[[Any], Callable[..., Any]]) -> None:
    """V9: equal values are equal, whichever objects they are."""
    assert when(make(1)) == when(make(1))
    assert when(make(1)) != when(make(2))


def test_the_code_of_a_when_counts_and_not_where_it_is_written() -> None:
    """V9: nested functions, constants and names of attributes too."""
    first = when(lambda arguments, view: arguments["amount"] > 500)
    assert first == when(lambda arguments, view: arguments["amount"] > 500)
    others = [
        when(lambda arguments, view: arguments["amount"] >= 500),
        when(lambda arguments, view: arguments["amount"] > 501),
        when(lambda arguments, view: arguments["amounts"] > 500),
        when(lambda arguments, view: view.agent),
        when(lambda arguments, view: view.tool),
        when(lambda arguments, view: any(each > 1 for each in arguments.values())),
        when(lambda arguments, view: any(each > 2 for each in arguments.values())),
    ]
    assert len({first, *others}) == 1 + len(others)


def test_what_the_code_finds_by_name_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """V9: a constant of the module, a function that it calls, and a constant that that one uses."""

    def direct(arguments: Any, view: Any) -> bool:
        return bool(arguments["amount"] > LIMIT)

    def by_another(arguments: Any, view: Any) -> bool:
        return bool(over(1)(arguments, view)) and direct(arguments, view)

    def by_class(arguments: Any, view: Any) -> bool:
        return bool(arguments["amount"] > Limits.most)

    before = [when(direct), when(by_another)], when(by_class)
    monkeypatch.setitem(globals(), "LIMIT", 501)
    after = [when(direct), when(by_another)]
    assert [a == b for a, b in zip(before[0], after, strict=True)] == [False, False]
    monkeypatch.setattr(Limits, "most", 7)
    assert when(by_class) != before[1]


def test_a_function_that_calls_itself_has_a_fingerprint() -> None:
    """V9."""

    def deep(value: Any, view: Any = None) -> bool:
        return isinstance(value, dict) and any(deep(each) for each in value.values())

    assert when(deep) == when(deep)


def test_what_cannot_be_compared_is_refused_where_the_rules_have_a_version() -> None:
    """V9: by an error that names the rule, the object and the remedy; `code=` says what it is."""
    client = os.environ.copy
    found = object()

    def looks(arguments: Any, view: Any) -> bool:
        return found is arguments and client is not None

    rule = deny("refund", name="x", when=looks)
    Rules(rule)
    with pytest.raises(UsageError, match=r"the `when` of the rule 'x' uses <.*code='1'"):
        Rules(rule, version=1)
    assert when(looks, code="1") == when(lambda arguments, view: True, code="1")
    assert when(looks, code="1") != when(looks, code="2")
    with pytest.raises(UsageError, match="code"):
        deny("refund", when=looks, code=1)  # type: ignore[arg-type]


PROGRAM = """
import re
from understudy.trust import Rules, deny

LIMITS = {"a": 1, "b": {"x", "y", "z"}}
WORDS = frozenset("abcdef")
PATTERN = re.compile("^x")


class Over:
    most = 500

    def __init__(self, **limits):
        self.limits = limits

    def __call__(self, arguments, view):
        return arguments["amount"] > self.limits["most"] and view.agent in {"desk", "boss"}


def by_name(arguments, view):
    return any(key in WORDS and LIMITS[key] for key in arguments) or PATTERN.match(view.tool)


rules = Rules(
    deny("a", when=by_name, name="a"),
    deny("b", when=Over(most=7, least=3), name="b"),
    deny("c", when=lambda arguments, view: arguments["x"] in {"p", "q", "r"}, name="c"),
)
print(rules.fingerprint)
"""


@pytest.mark.slow
def test_the_fingerprint_is_the_same_in_each_process() -> None:
    """V9: whatever the hashes of texts are there."""
    root = str(Path(__file__).parents[2])
    said = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": root},
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1
