"""Reads exported agents: their records, and the states between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from understudy._base.json_values import checked_text
from understudy.actors.reads.export import checked_version
from understudy.errors import UsageError
from understudy.journal.codec import upgraded
from understudy.state.agent_state import AgentState
from understudy.state.fold import apply
from understudy.state.records import ChildRecord, Record


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export has."""

    agent_id: str
    agent: str
    """The name of its definition."""
    records: tuple[Record, ...]

    def folded(self) -> Iterator[tuple[AgentState, Record]]:
        """Each record, also of agents inside, with the state of its agent right before it."""
        state = AgentState()
        for record in self.records:
            place, inner = state, record
            while isinstance(inner, ChildRecord):
                place = place.children.get(inner.child) or AgentState()
                inner = inner.record
            yield place, inner
            apply(state, record)


def read_export(data: Mapping[str, Any]) -> Exported:
    """The records of an export.

    Raises:
        UsageError: if it is no export, or damaged.
        SchemaVersionError: if it has another format.

    """
    version = checked_version(data)
    try:
        return Exported(
            agent_id=checked_text(data["agent_id"], what="its id"),
            agent=checked_text(data["agent"], what="the name of its definition"),
            records=tuple(upgraded(record, version) for record in data["records"]),
        )
    except (KeyError, TypeError, ValueError, LookupError) as error:
        raise UsageError(f"This exported agent is damaged: {error!r}") from error
