"""The options `key=`, `on_repeat=` and `key_kept=`: which calls are equal, and what happens
then.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, cast, get_args

from understudy._base.error_texts import error_text
from understudy._base.json_values import is_time_span, shown
from understudy.errors import UsageError
from understudy.tools.schema import is_async

Key = Callable[[Mapping[str, Any]], str]
"""A function that makes the key of a call from its arguments, as a gate sees them."""
OnRepeat = Literal["ask", "refuse", "allow"]
"""What happens to a call if an equal call is done."""

KEPT = timedelta(days=90)
"""The time for which a finished call counts, by default."""
LONGEST = timedelta(days=100 * 365)


@dataclass(frozen=True, slots=True)
class KeyRule:
    """The rule by which calls of a tool are equal, and what happens to a repetition."""

    make: Key
    on_repeat: OnRepeat = "ask"
    kept: timedelta = KEPT

    def of(self, arguments: Mapping[str, Any], tool_name: str) -> str:
        """The key of a call with these canonical arguments.

        Raises:
            UsageError: if the function raises, or returns something that is no text.

        """
        try:
            key = self.make(deepcopy(arguments))  # the call runs with the original
        except Exception as error:
            raise UsageError(f"Tool {tool_name!r}: its `key` raised {error_text(error)}") from error
        if not isinstance(key, str) or not key:
            raise UsageError(
                f"Tool {tool_name!r}: its `key` must return text of at least one character, got "
                f"{shown(key)}"
            )
        return key


def checked_key(
    key: object, on_repeat: object, key_kept: object, *, read_only: bool, what: str
) -> KeyRule | None:
    """The rule that these options of a tool give; None if the tool has no key.

    Raises:
        UsageError: for invalid options, and for options that do not fit together.

    """
    if key is None:
        for option, given in {"on_repeat": on_repeat, "key_kept": key_kept}.items():
            if given is not None:
                raise UsageError(
                    f"{what}: `{option}` is about calls with the same `key`: give both, or neither"
                )
        return None
    if not callable(key) or is_async(key) or not _takes_one(key):
        raise UsageError(
            f"{what}: `key` must be a plain function of one parameter, the dict of the arguments, "
            f"which returns text, got {shown(key)}"
        )
    if read_only:
        raise UsageError(
            f"{what}: use `key` (only one of equal calls just runs) or `read_only` (calling it "
            "again never harms), not both"
        )
    if on_repeat not in (None, *get_args(OnRepeat)):
        raise UsageError(
            f"{what}: `on_repeat` must be 'ask', 'refuse' or 'allow', got {shown(on_repeat)}"
        )
    kept = KEPT if key_kept is None else _checked_kept(key_kept, what)
    return KeyRule(cast("Key", key), cast("OnRepeat | None", on_repeat) or "ask", kept)


def _takes_one(key: Callable[..., Any]) -> bool:
    """Whether the function can be called with the arguments, as far as its signature says."""
    try:
        inspect.signature(key).bind({})
    except TypeError:
        return False
    except ValueError:  # some functions written in C do not say what they take
        return True
    return True


def _checked_kept(given: object, what: str) -> timedelta:
    if is_time_span(given) and given <= LONGEST.days:
        given = timedelta(days=given)
    if isinstance(given, timedelta) and timedelta(0) < given <= LONGEST:
        return given
    raise UsageError(
        f"{what}: `key_kept` must be a timedelta, or a number of days, of more than 0 and at most "
        f"100 years, got {shown(given)}"
    )
