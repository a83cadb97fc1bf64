"""Which text may be the id of an agent: any store can keep it, and no sub-agent has it."""

from __future__ import annotations

import re

from understudy.errors import UsageError

__all__ = ["checked_id"]

_ID = re.compile(r"[^/\0\ud800-\udfff]+")
_LONGEST_ID = 500
"""Characters: a database has them in an index."""


def checked_id(id: object) -> str:
    """The id of an agent, which any store can keep; else a `UsageError`."""
    if not isinstance(id, str) or not _ID.fullmatch(id) or len(id) > _LONGEST_ID:
        shown = repr(id) if len(repr(id)) < 2 * _LONGEST_ID else f"{repr(id)[:50]}..."
        raise UsageError(
            f"An agent's id is text without '/', at most {_LONGEST_ID} characters of Unicode and "
            f"none of them NUL, not {shown}"
        )
    return id
