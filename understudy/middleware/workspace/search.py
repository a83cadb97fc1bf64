"""Patterns over paths and lines, in a bounded time.

A model writes the patterns, so none may hold up the process. A large pattern is refused, only the
beginning of a long line is searched, and a search ends after some seconds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator

from understudy._base.patterns import Pattern
from understudy.errors import UsageError

MAX_LINE = 1000
"""The maximum characters of a line that are shown; half as many are searched, with any pattern."""
MAX_SEARCHED_LINE = 10 * MAX_LINE
MAX_STEPS = 2_000_000
"""The maximum steps of a pattern in one text: 40 milliseconds, in which nothing else of the process
runs."""
SEARCH_SECONDS = 10.0
"""The maximum seconds of a search by one call."""


class Search:
    """Looks for a pattern in texts, for a limited time.

    Args:
        expression: a regular expression.
        what: the name of the pattern in errors.

    Raises:
        UsageError: for an invalid pattern, or a pattern that takes too long.

    """

    def __init__(self, expression: str, *, what: str) -> None:
        self._what = what
        self._end: float | None = None
        try:
            pattern = Pattern(expression)
        except ValueError as error:
            raise UsageError(
                f"{what} is no pattern that can be used: {error} (there are no look-arounds and no "
                "back-references)"
            ) from None
        self._finds = pattern.finds
        self._most = min(MAX_SEARCHED_LINE, MAX_STEPS // pattern.steps_a_character)
        if self._most < MAX_LINE // 2:
            raise UsageError(f"{what} repeats too much to be searched for: make it smaller")

    def finds(self, text: str) -> bool:
        """Whether the text, or the beginning of a long text, contains the pattern.

        Raises:
            UsageError: if the time is over.

        """
        now = time.monotonic()
        if self._end is None:
            self._end = now + SEARCH_SECONDS
        elif now > self._end:
            raise UsageError(
                f"{self._what} was searched for {SEARCH_SECONDS:g} seconds and not to the end: "
                "make it simpler, or give a folder"
            )
        return self._finds(text[: self._most])


def line_search(text: str, *, is_regex: bool, ignore_case: bool) -> Search:
    """A search for the lines that contain the text, or the pattern.

    Raises:
        UsageError: for an invalid pattern.

    """
    if not text:
        raise UsageError("`text` is empty: say what to search for")
    if len(text) > MAX_LINE:
        raise UsageError(f"`text` has more than {MAX_LINE:,} characters")
    flag = "(?i)" if ignore_case else ""
    return Search(flag + (text if is_regex else re.escape(text)), what=f"`text` {text!r}")


def path_filter(pattern: str) -> Callable[[Iterable[str]], list[str]]:
    """A filter for the paths that fit a pattern with `*`, `?` and `**`; without a `/`, names must
    fit.

    Raises:
        UsageError: for a pattern that is too long, or takes too long.

    """
    if not pattern:
        return list
    if len(pattern) > MAX_LINE:
        raise UsageError(f"`pattern` has more than {MAX_LINE:,} characters")
    expression = "".join(_translated(pattern))
    whole = f"^{expression}$" if "/" in pattern else f"(^|/){expression}$"
    search = Search(whole, what=f"`pattern` {pattern!r}")
    return lambda paths: [path for path in paths if search.finds(path.rstrip("/"))]


def _translated(pattern: str) -> Iterator[str]:
    for part in re.findall(r"(?:\*\*/)+|\*+|\?|[^*?]+", pattern):
        match part:
            case "*":
                yield "[^/]*"
            case "?":
                yield "[^/]"
            case _ if part.endswith("*/"):
                yield "(.*/)?"
            case _ if part.startswith("**"):
                yield ".*"
            case _:
                yield re.escape(part)
