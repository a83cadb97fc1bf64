"""Shows foreign text so that nothing in it is invisible or looks like something else."""

from __future__ import annotations

from markupsafe import Markup, escape

from understudy._base.json_values import digest
from understudy._base.marks import marked_by


def marked(text: str) -> Markup:
    """The text, escaped, with visible marks for characters that would mislead a reader.

    These are control and format characters (such as characters that change the direction of text),
    unusual spaces, and letters that look like Latin letters beside Latin letters.
    """
    return Markup(marked_by(escape, text))  # noqa: S704  # each part is escaped, or made there


def hexed(text: str) -> str:
    """A text as a part of an element's id."""
    return digest(text)[:16]
