"""The keys of calls (`@tool(key=)`) that an agent holds: a call with an equal one is held up."""

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
    """When the call took it; of a call that is done, when that was known. None where the record
    has no time."""
    is_done: bool = False
    is_copied: bool = False
    """Of a call that the agent was imported with: the store of now may not have it."""
