"""The statements on checkpoints, and on the records behind them."""

from __future__ import annotations

from understudy.journal.postgres.sql import AGENT_COLUMNS

DELETE_CHECKPOINT = "DELETE FROM checkpoints WHERE agent = %s"
DELETE_SEGMENTS = "DELETE FROM checkpoint_segments WHERE agent = %s AND number >= %s"

WRITE_CHECKPOINT = """
INSERT INTO checkpoints (agent, incarnation, seq, head, crc)
SELECT key, incarnation, %(seq)s, %(head)s, %(crc)s FROM agents
WHERE agent_id = %(agent_id)s AND incarnation = %(incarnation)s AND epoch = %(epoch)s
    AND owner = %(owner)s AND last_seq >= %(seq)s AND NOT deleted
FOR NO KEY UPDATE
ON CONFLICT (agent) DO UPDATE SET incarnation = excluded.incarnation, seq = excluded.seq,
    head = excluded.head, crc = excluded.crc
RETURNING agent"""
"""It locks the agent's row first, as an append does: so it waits for a takeover under way, and
finds the new epoch."""

WRITE_SEGMENTS = """
INSERT INTO checkpoint_segments (agent, number, messages, payload, crc)
SELECT %(agent)s, s.number, s.messages, s.payload, s.crc
FROM unnest(%(numbers)b::int4[], %(messages)b::int4[], %(payloads)b::bytea[], %(crcs)b::int8[])
    AS s (number, messages, payload, crc)"""

_JOIN_CHECKPOINT = """
JOIN checkpoints c ON c.agent = a.key AND c.incarnation = a.incarnation
    AND c.seq BETWEEN a.floor AND a.last_seq"""
_CHECKPOINT = f"""
FROM agents a {_JOIN_CHECKPOINT}
WHERE a.agent_id = %s AND NOT a.deleted"""

CHECKPOINT = f"SELECT c.seq, c.head, c.crc {_CHECKPOINT}"

SEGMENTS = f"""
SELECT s.number, s.messages, s.payload, s.crc FROM checkpoint_segments s
WHERE s.agent = (SELECT c.agent {_CHECKPOINT}) ORDER BY s.number"""  # noqa: S608 - of a constant

RECORDS_BEHIND = f"""
SELECT r.kind, r.version, r.payload FROM records r JOIN agents a ON a.key = r.agent
WHERE a.agent_id = %s AND NOT a.deleted
    AND r.seq > coalesce((SELECT c.seq {_CHECKPOINT}), 0) ORDER BY r.seq"""  # noqa: S608 - as above
"""The records behind the checkpoint; all of them where there is none."""

BEHIND = f"""
{AGENT_COLUMNS}, coalesce(c.seq, 0), r.kind, r.version, r.payload
FROM agents a LEFT JOIN hosts h ON h.id = a.owner LEFT {_JOIN_CHECKPOINT}
LEFT JOIN records r ON r.agent = a.key AND r.seq > %s
WHERE a.agent_id = %s AND NOT a.deleted ORDER BY r.seq"""
"""An agent and the number of its checkpoint, with each of its records above a number: one
statement, and so of one moment."""
