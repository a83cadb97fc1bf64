"""`check=`: a function that finds out what a call in doubt did."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from understudy._base.json_values import shown
from understudy._base.request_timing import MAX_SECONDS, seconds_of
from understudy.errors import UsageError
from understudy.tools.context import ToolContext


@dataclass(frozen=True, slots=True)
class Happened:
    """Return it from a `check` if the call took effect.

    Args:
        result: what the tool would have returned.

    """

    result: Any = None


@dataclass(frozen=True, slots=True)
class DidNotHappen:
    """Return it from a `check` if the call took no effect, as far as the check can see.

    It counts only from 60 seconds after the call's last sign of life. Before that, an effect that
    is under way cannot be found.
    """


@dataclass(frozen=True, slots=True)
class Unknown:
    """Return it from a `check` that cannot tell what the call did. The check is asked again
    later.
    """


Found = Happened | DidNotHappen | Unknown
"""What a `check` may return."""
Check = Callable[[ToolContext[Any], dict[str, Any]], Found | Awaitable[Found]]
"""`check(ctx, arguments)`, async or plain. The arguments are the canonical ones of the call."""

CHECK_AFTER = (60.0, 120.0, 600.0, 1800.0, 3600.0)
"""Seconds from a call's last sign of life to each question to its `check`."""


def checked_check(
    check: object, check_after: object, *, read_only: bool, what: str
) -> tuple[Check | None, tuple[float, ...]]:
    """The checked function, and the seconds after which it is asked each time.

    Raises:
        UsageError: for invalid options, and for a tool that is never in doubt.

    """
    if check is None:
        if check_after is not None:
            raise UsageError(f"{what}: `check_after` says when `check` is asked: give both")
        return None, ()
    if read_only:
        raise UsageError(
            f"{what}: use `check` (for calls with an unknown effect) or `read_only` (for calls "
            "that are never in doubt), not both"
        )
    if not callable(check) or isinstance(check, type) or not _takes_two(check):
        raise UsageError(
            f"{what}: `check` must be a function of two parameters, check(ctx, arguments), got "
            f"{shown(check)}"
        )
    return check, CHECK_AFTER if check_after is None else _checked_times(check_after, what)


def _takes_two(check: Callable[..., Any]) -> bool:
    """Whether the function can be called with a context and arguments."""
    if inspect.isgeneratorfunction(check) or inspect.isasyncgenfunction(check):
        return False
    try:
        inspect.signature(check).bind(None, {})
    except (TypeError, ValueError):
        return False
    return True


def _checked_times(given: object, what: str) -> tuple[float, ...]:
    listed = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else ()
    times: tuple[Any, ...] = tuple(seconds_of(each) for each in listed)
    are_numbers = all(
        isinstance(each, (int, float)) and not isinstance(each, bool) and math.isfinite(each)
        for each in times
    )
    if not times or not are_numbers or times[0] <= 0 or times[-1] > MAX_SECONDS:
        raise UsageError(
            f"{what}: `check_after` must be a list of seconds, above 0 and at most 100 years, got "
            f"{shown(given)}"
        )
    if any(before >= after for before, after in pairwise(times)):
        raise UsageError(
            f"{what}: the seconds of `check_after` count from the call's last sign of life, so "
            f"each must be above the one before it, got {shown(given)}"
        )
    return tuple(float(each) for each in times)
