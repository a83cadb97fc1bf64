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
    """The record that an agent was created with values. It is the first record of the agent."""

    values: dict[str, Any]
    kind: Literal["agent_created"] = "agent_created"


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The record that the agent's records were imported from an export.

    The original agent may have continued an open run. So calls that were started are in doubt, and
    pending requests are made again.
    """

    at: datetime
    agent_id: str
    """The id of the agent that was exported."""
    incarnation: int
    by: str | None = None
    """The person who imported the agent, for instance over HTTP. None for the program itself, and
    for a store that was restored.

    Anybody who has an export can change it, so no decision in it holds.
    """
    kind: Literal["imported"] = "imported"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusNoted(Timed):
    """The record that the agent's status changed, if no record of its cause has the new status.

    Subscribers get an event of it.
    """

    status: str
    runs: int | None = None
    """The number of runs in a row that messages of the agent to itself have started, at the
    limit."""
    kind: Literal["status_noted"] = "status_noted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesMerged(Timed):
    """The record that a middleware changed the agent's values when it got a message."""

    delta: dict[str, Any]
    source: str
    kind: Literal["values_merged"] = "values_merged"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesChanged(Timed):
    """The record that files of the agent were changed by something other than a tool call."""

    files: tuple[FileChange, ...]
    own: bool = False
    """Whether these are the first files of its own of a sub-agent.

    A sub-agent without files of its own shares the files of the agents above it.
    """
    kind: Literal["files_changed"] = "files_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryReplaced(Timed):
    """The record that a middleware replaced the conversation."""

    messages: tuple[StoredMessage, ...]
    kind: Literal["history_replaced"] = "history_replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Timed):
    """The record of a whole state, for a journal that no longer has the agent's first records."""

    state: dict[str, Any]
    """The state, without the messages that follow in records of their own."""
    by: str | None = None
    """The person who had the agent compacted; None if nobody was named."""
    following: int = 0
    """The number of messages of the conversation that follow, in `SnapshotMessages` records.

    In one record a whole conversation would be written, and read, in one piece.
    """
    kind: Literal["snapshot"] = "snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotMessages(Timed):
    """The record of some messages of a `Snapshot`, after the messages of the record before."""

    messages: tuple[StoredMessage, ...]
    kind: Literal["snapshot_messages"] = "snapshot_messages"
