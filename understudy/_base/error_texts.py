"""What raised, as a text to keep."""

from __future__ import annotations

from understudy._base.json_values import storable_text, text_of

MAX_LINES = 10
MAX_CHARACTERS = 1000


def error_text(error: BaseException) -> str:
    """The type of an error and its message, as `first_lines` has it."""
    message = message_of(error)
    name = type(error).__name__
    return f"{name}: {message}" if message else name


def message_of(error: BaseException) -> str:
    """The message of an error, as `first_lines` has it."""
    return first_lines(text_of(error))


def first_lines(text: str) -> str:
    """The text, if it is short; else its first lines, and how long it is.

    An error of an HTTP client may hold the whole page that the server sent, and what a run keeps
    of it is in every copy of its state.
    """
    lines = text[: MAX_CHARACTERS + 1].splitlines()
    if len(text) <= MAX_CHARACTERS and len(lines) <= MAX_LINES:
        return storable_text(text)
    shown = "\n".join(lines[:MAX_LINES])[:MAX_CHARACTERS]
    return f"{storable_text(shown)}... ({len(text):,} characters)"
