"""Instructions: text with `{key}` from the agent's values, or a function of the state."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from understudy._base.json_values import check_sendable
from understudy.errors import MissingValue, UsageError
from understudy.state.agent_state import AgentState

Instructions = str | Callable[[AgentState], str | Awaitable[str]]
"""A text, or a function that returns a text.

In a text, `{key}` is replaced by this value of the agent; a missing value is an error. `{key?}` is
empty if the value is missing; `{{` and `}}` are literal braces. The text that a function of the
state returns is used verbatim.
"""

_TOKEN = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_.-]*)(\?)?\}|[{}]")


def check_instructions(given: object, *, agent: str) -> None:
    """Raise a `UsageError` for instructions that can never be rendered."""
    if callable(given):
        return
    if not isinstance(given, str):
        raise UsageError(
            f"Agent {agent!r}: `instructions` must be a text or a function of the state, got "
            f"{given!r}"
        )
    check_sendable(given, what=f"Agent {agent!r}: the text of `instructions`")
    for match in _TOKEN.finditer(given):
        if match.group() in ("{", "}"):
            raise UsageError(
                f"Agent {agent!r}: `instructions` have a lone {match.group()!r} at character "
                f"{match.start()}: write {match.group() * 2!r} for a literal brace"
            )


async def render(given: Instructions, state: AgentState, *, agent: str) -> str:
    """The text to send to the model.

    Raises:
        MissingValue: if the text reads a key that is not in the values.
        UsageError: if what a function returned is not valid Unicode.

    """
    if callable(given):
        made = given(state)
        text = await made if inspect.isawaitable(made) else made
        check_sendable(text, what=f"Agent {agent!r}: what the function of `instructions` returned")
        return text
    if "{" not in given and "}" not in given:
        return given
    return _TOKEN.sub(lambda match: _replaced(match, state.values, agent), given)


def _replaced(match: re.Match[str], values: Mapping[str, Any], agent: str) -> str:
    token = match.group()
    if token in ("{{", "}}"):
        return token[0]
    key, optional = match.group(1), match.group(2)
    if key not in values:
        if optional:
            return ""
        raise MissingValue(key=key, agent=agent)
    value = values[key]
    return value if isinstance(value, str) else str(value)
