"""Calls of an application's function that chooses by True or False while a definition is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from understudy._base.error_texts import error_text
from understudy._base.json_values import shown
from understudy.errors import UsageError


def checked_predicate(function: Callable[..., object], *arguments: object, what: str) -> bool:
    """The function's answer about these arguments.

    Args:
        function: a plain function.
        arguments: the arguments of the function.
        what: the function and its subject, for the error.

    Raises:
        UsageError: if the function raises, or returns anything but True or False, such as a
            coroutine.

    """
    try:
        chosen = function(*arguments)
    except UsageError as error:
        error.add_note(f"Raised by {what}.")
        raise
    except Exception as error:
        raise UsageError(f"{what} raised {error_text(error)}") from error
    if isinstance(chosen, bool):
        return chosen
    if inspect.iscoroutine(chosen):
        chosen.close()  # otherwise it would warn that nobody awaits it
    raise UsageError(f"{what} must be a plain function that returns True or False: {shown(chosen)}")
