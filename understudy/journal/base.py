"""The contract between a run and whatever keeps its records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from understudy.records import Record

__all__ = ["Journal"]


class Journal(Protocol):
    """Keeps the records of one agent, in order.

    What `append` raises stops the run at once, with nothing after it recorded.
    """

    def append(self, records: Sequence[Record]) -> None:
        """Take records, in order; they need not be durable yet. Never waits."""

    @property
    def behind(self) -> bool:
        """Whether something was appended that is not durable yet."""

    async def durable(self) -> None:
        """Wait until everything appended so far is durable."""
