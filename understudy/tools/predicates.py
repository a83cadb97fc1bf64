"""A function of the application that chooses, by True or False, when a definition is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from understudy._base.error_texts import error_text
from understudy._base.json_values import shown
from understudy.errors import UsageError


def checked_predicate(function: Callable[..., object], *arguments: object, what: str) -> bool:
    """What the function says of these arguments.

    Args:
        function: a plain one.
        arguments: what it is called with.
        what: names it and what it is asked about, for the error.

    Raises:
        UsageError: if it raises, or returns anything but True or False, a coroutine too.

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
        chosen.close()  # else it would warn that nobody awaits it
    raise UsageError(f"{what} must be a plain function that returns True or False: {shown(chosen)}")
