"""Agents of which nothing is open: how a database finds them, and what it has of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from understudy.journal.contracts import StoredRecords

AT_REST = """a.index_status = 'rest' AND a.due IS NULL AND a.ask_count = 0
    AND a.run_version IS NULL
    AND NOT EXISTS (SELECT 1 FROM spending s WHERE s.agent = a.key AND s.is_open)
    AND NOT EXISTS (SELECT 1 FROM notices n WHERE n.agent = a.key AND n.state = 'new')"""
"""Whether an agent `a` has nothing open, as far as its row and what is kept beside it say.

Messages that wait for the next `run`, and schedules that are paused, only its records tell.
"""

OLD_TOMBSTONES = """
SELECT a.deleted_at, a.key, a.incarnation, a.epoch, NOT (
    EXISTS (SELECT 1 FROM call_keys k WHERE k.agent = a.key)
    OR EXISTS (SELECT 1 FROM decided d WHERE d.agent = a.key)
    OR EXISTS (SELECT 1 FROM spending s WHERE s.agent = a.key)
    OR EXISTS (SELECT 1 FROM notices n WHERE n.agent = a.key AND n.state = 'new'){more})
FROM agents a WHERE a.deleted AND a.deleted_at IS NOT NULL AND a.deleted_at <= %s
    AND (a.deleted_at, a.key) > (%s, %s) ORDER BY a.deleted_at, a.key LIMIT %s"""
"""Some tombstones from before a time, behind a place; and whether nothing else names the agent."""
RAISE_FLOOR = """
UPDATE meta SET gone_incarnation = {greatest}(gone_incarnation, %s),
    gone_epoch = {greatest}(gone_epoch, %s)"""
"""Raises the numbers of the tombstones that went. An agent without a tombstone begins above them:
else a late write of an earlier owner could be one of the new owner, by its numbers."""


class WholeAgent(NamedTuple):
    """All that a store has of an agent, of one moment."""

    stored: StoredRecords
    blobs: Mapping[str, bytes]
    """The bytes of the agent's files, by hash."""
    message_runs: Mapping[str, str]
    """The runs that took old messages, by message id."""


class TombstonePlace(NamedTuple):
    """The tombstone behind which the next look goes on."""

    at: int
    key: int
