"""The options of tools, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict

from tenacity import AsyncRetrying

from understudy._base.json_values import checked_flag, checked_seconds, checked_text, shown
from understudy.errors import UsageError
from understudy.tools.gate_rule import Rule
from understudy.tools.schema import is_async

OnUnknown = Literal["ask", "tell"]
_NAME = re.compile(r"[^\0\ud800-\udfff]{1,500}")
DisplayText = str | Callable[[Mapping[str, Any]], str]


class ToolOptions(TypedDict, total=False):
    """Options of `Tool`."""

    sequential: bool
    idempotent: bool
    timeout: float | None
    inline: bool
    on_unknown: OnUnknown | None
    version: str
    retry: AsyncRetrying | None
    display_text: DisplayText | None
    ask: Rule


def checked_name(given: object) -> str:
    """`given`, if a store can find what waits for a tool by it; else raise a `UsageError`."""
    if not isinstance(given, str) or not _NAME.fullmatch(given):
        raise UsageError(
            f"A tool's `name` must be text of 1 to 500 characters without NUL, got {shown(given)}"
        )
    return given


def check_options(
    name: str, flags: Mapping[str, object], *, timeout: float | None, on_unknown: str | None
) -> None:
    """Raise a `UsageError` for an option that is no such value."""
    for option, given in flags.items():
        checked_flag(given, what=f"Tool {name!r}: `{option}`")
    if timeout is not None:
        checked_seconds(timeout, what=f"Tool {name!r}: `timeout`")
    if on_unknown not in (None, "ask", "tell"):
        raise UsageError(f"Tool {name!r}: `on_unknown` must be 'ask' or 'tell', got {on_unknown!r}")


def check_display_text(name: str, given: object) -> None:
    """Raise a `UsageError` for what is neither text nor a plain function."""
    if isinstance(given, str):
        checked_text(given, what=f"Tool {name!r}: `display_text`")
    elif given is not None and (not callable(given) or is_async(given)):
        raise UsageError(
            f"Tool {name!r}: `display_text` must be text, or a plain function of the arguments, "
            f"got {shown(given)}"
        )


def check_retry(name: str, retry: object, *, idempotent: bool) -> None:
    """Raise a `UsageError` for what is no policy, or for one of a tool that must not be retried."""
    if retry is None:
        return
    if not isinstance(retry, AsyncRetrying):
        raise UsageError(
            f"Tool {name!r}: `retry` must be a tenacity.AsyncRetrying, got {shown(retry)}"
        )
    if not idempotent:
        raise UsageError(
            f"Tool {name!r}: `retry` runs a call again, whose effect may be there already: make "
            "the tool safe to run again with the same ctx.call_key, and give idempotent=True"
        )
