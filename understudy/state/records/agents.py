"""Records of an agent as a whole: its beginning, values, files, history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from understudy.models.messages import StoredMessage
from understudy.state.files import FileChange
from understudy.state.records.timed import Timed


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCreated(Timed):
    """The first record of an agent that starts with values."""

    values: dict[str, Any]
    kind: Literal["agent_created"] = "agent_created"


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The agent's records were imported: the original may have continued an open run.

    Calls that were started are in doubt, and pending requests are made again.
    """

    at: datetime
    agent_id: str
    """The id under which it was exported."""
    incarnation: int
    by: str | None = None
    """The person who imported it, over HTTP for instance. Whoever has an export can change it, so
    no decision of it holds. None for the program itself, and for a store that was restored."""
    kind: Literal["imported"] = "imported"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusNoted(Timed):
    """The agent's status changed, which is emitted to subscribers."""

    status: str
    runs: int | None = None
    """The number of runs in a row that the agent started by messages to itself, at the limit."""
    kind: Literal["status_noted"] = "status_noted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesMerged(Timed):
    """A middleware changed the agent's values when it got a message."""

    delta: dict[str, Any]
    source: str
    kind: Literal["values_merged"] = "values_merged"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesChanged(Timed):
    """Files of the agent were changed, by no call of a tool."""

    files: tuple[FileChange, ...]
    own: bool = False
    """A sub-agent has files of its own from now on: these. Else it shares those above it."""
    kind: Literal["files_changed"] = "files_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryReplaced(Timed):
    """A middleware replaced the conversation."""

    messages: tuple[StoredMessage, ...]
    kind: Literal["history_replaced"] = "history_replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Timed):
    """A whole state, where a journal no longer has the agent's first records."""

    state: dict[str, Any]
    """Without the messages that follow in records of their own."""
    by: str | None = None
    """The person who had the agent compacted; None where nobody was named."""
    following: int = 0
    """So many messages of its conversation follow, in `SnapshotMessages`: a conversation in one
    record would be written, and read, in one piece."""
    kind: Literal["snapshot"] = "snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotMessages(Timed):
    """Some messages of a `Snapshot`, behind those of the record before."""

    messages: tuple[StoredMessage, ...]
    kind: Literal["snapshot_messages"] = "snapshot_messages"
