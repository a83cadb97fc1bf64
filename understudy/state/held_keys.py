"""The keys of calls (`@tool(key=)`) that an agent holds: a call with an equal key is held up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldKey:
    """The key of a call that is open, in doubt or done."""

    key_hash: str
    tool_name: str
    tool_call_id: str
    at: datetime | None = None
    """The time at which the call took the key; for a call that is done, the time at which that was
    known. None if the record has no time."""
    is_done: bool = False
    is_copied: bool = False
    """Whether the call was imported with the agent: this store may not have its key."""
