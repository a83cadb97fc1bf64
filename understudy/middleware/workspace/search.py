"""Patterns over paths and lines, in time that grows with their length alone.

A model writes them, so one must not be able to hold up the process: they are matched by Pydantic's
Rust engine, which has no backtracking.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from pydantic_core import SchemaError, SchemaValidator, core_schema

from understudy.errors import UsageError

MAX_LINE = 1000
"""Characters of a line that are searched, and shown at most."""


def matcher(pattern: str, *, is_regex: bool, ignore_case: bool) -> Callable[[str], bool]:
    """Whether a line has the pattern in it.

    Raises:
        UsageError: for a pattern that is none.

    """
    if not pattern:
        raise UsageError("`text` is empty: say what to search for")
    if len(pattern) > MAX_LINE:
        raise UsageError(f"`text` has more than {MAX_LINE:,} characters")
    flag = "(?i)" if ignore_case else ""
    return _compiled(flag + (pattern if is_regex else re.escape(pattern)))


def path_matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a path fits a pattern with `*`, `?` and `**`; without a `/` its name has to fit."""
    if not pattern:
        return lambda _: True
    expression = "".join(_translated(pattern))
    return _compiled(f"^{expression}$" if "/" in pattern else f"(^|/){expression}$")


def _translated(pattern: str) -> Iterator[str]:
    for part in re.findall(r"\*\*/|\*\*|\*|\?|[^*?]+", pattern):
        match part:
            case "**/":
                yield "(.*/)?"
            case "**":
                yield ".*"
            case "*":
                yield "[^/]*"
            case "?":
                yield "[^/]"
            case _:
                yield re.escape(part)


def _compiled(expression: str) -> Callable[[str], bool]:
    schema = core_schema.str_schema(pattern=expression, regex_engine="rust-regex")
    try:
        return SchemaValidator(schema).isinstance_python
    except SchemaError as error:
        why = str(error).strip().splitlines()[-1].strip()
        raise UsageError(
            f"{expression!r} is no pattern that can be used: {why} (there are no look-arounds "
            "and no back-references)"
        ) from None
