"""Hides values that a host does not want to show: asked for each value that leaves over HTTP."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from pydantic_core import from_json

from understudy._base.json_values import shown
from understudy.errors import UsageError
from understudy.login.users import User

Path = tuple[str | int, ...]
Redact = Callable[[Path, Any], Any] | Callable[[Path, Any, User], Any]
"""A function of the path of a value in an answer, the value and, if it takes three arguments, the
user. It returns what is shown instead: the same object if the value may be seen."""


CUT = "…"
"""The mark after the beginning of a cut text."""
HIDDEN = "Some of its arguments are hidden from you: it cannot be edited."
"""The refusal of an edit with hidden arguments: the shown values would replace the hidden ones."""


class Redaction:
    """Hides values from people, by the function of the application.

    Args:
        redact: the function; None hides nothing.
        what: the name of the option in errors.

    Raises:
        UsageError: unless `redact` is a function of two or three arguments.

    """

    def __init__(self, redact: Redact | None, *, what: str) -> None:
        self._redact = redact
        self._takes_user = False
        if redact is None:
            return
        if not callable(redact):
            raise UsageError(f"{what} takes a function, got {shown(redact)}")
        count = _positional(redact)
        if count not in (2, 3):
            raise UsageError(
                f"{what} takes a function of a path and a value, or of these and the user: "
                f"{shown(redact)} takes {count} arguments"
            )
        self._takes_user = count == 3

    @property
    def is_on(self) -> bool:
        """Whether anything can be hidden."""
        return self._redact is not None

    @property
    def takes_user(self) -> bool:
        """Whether the function depends on the user."""
        return self._takes_user

    def seen(self, user: User, data: Any, *path: str | int) -> Any:
        """The data as the user may see it, at its path in an answer."""
        if self._redact is None:
            return data
        redact = cast("Callable[..., Any]", self._redact)
        if self._takes_user:
            return _redacted(lambda where, value: redact(where, value, user), data, path)
        return _redacted(redact, data, path)

    def hides(self, user: User, data: Any, *path: str | int) -> bool:
        """Whether some of the data is hidden from the user."""
        return self._redact is not None and bool(self.seen(user, data, *path) != data)

    def hides_decision(self, user: User, decision: Mapping[str, Any], by: str | None) -> bool:
        """Whether the user must not learn if another decision would be equal to this decision.

        The answer to an equal decision differs from the answer to another decision: guesses would
        reveal a hidden value. People know their own decision.
        """
        # Two persons of a provider may have the same name: a decision by that name may be of
        # either.
        is_own = user.verified is None and by == user.by
        return not is_own and self.hides(user, decision, "story", "decision")


NO_REDACTION: Redaction = Redaction(None, what="redact=...")
"""The redaction that hides nothing."""


def _positional(function: Callable[..., Any]) -> int:
    """The arguments that the function needs, and a third argument with the name `user`."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a C function without a signature
        return 2
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return 2
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = [each for each in parameters if each.kind in kinds]
    needed = [each for each in found if each.default is each.empty]
    named = len(found) > 2 and found[2].name == "user"
    return 3 if named and len(needed) <= 3 else max(len(needed), min(len(found), 2))


def _redacted(redact: Callable[[Path, Any], Any], value: Any, path: Path) -> Any:
    """The data, with each hidden value replaced.

    A text that is the JSON of an object, as a model writes arguments, is searched too; also the
    beginning of such a text, as a list shows it.
    """
    shown = redact(path, value)
    if shown is not value:
        return shown
    if isinstance(value, Mapping):
        return {name: _redacted(redact, each, (*path, name)) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redacted(redact, each, (*path, at)) for at, each in enumerate(value)]
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        inner, is_whole = _json_in(value)
        found = _redacted(redact, inner, path) if isinstance(inner, (dict, list)) else inner
        if found == inner:
            return value
        return f"{json.dumps(found, ensure_ascii=False)}{'' if is_whole else CUT}"
    return value


def _json_in(text: str) -> tuple[Any, bool]:
    """The data in a text's JSON, and whether it is complete; None if the text is no JSON."""
    try:
        return json.loads(text), True
    except (ValueError, RecursionError):
        pass
    try:
        return from_json(text.rstrip(f"{CUT}."), allow_partial="trailing-strings"), False
    except (ValueError, RecursionError):
        return None, True
