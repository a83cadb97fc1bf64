"""A host of the version before: it says to the database what version 1 of the tables was made for.

The statements are those of that version, word for word, and change no more than its files in
`tests/data/v1`. Such a host goes on while newer ones upgrade the tables, until it is closed.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, NamedTuple, Self

import psycopg

from tests.support.postgres import Hosts
from understudy.journal.codec import encode
from understudy.state.records import Record

__all__ = ["OlderHost", "Owned"]

INSERT_HOST = """
INSERT INTO hosts (name, lease_until)
VALUES (%s, clock_timestamp() + make_interval(secs => %s))
RETURNING id, extract(epoch FROM lease_until - clock_timestamp())::float8"""
RENEW = """
UPDATE hosts SET lease_until = clock_timestamp() + make_interval(secs => %s)
WHERE id = %s AND lease_until > '-infinity'
RETURNING extract(epoch FROM lease_until - clock_timestamp())::float8"""
OWNERSHIP = """
SELECT a.incarnation, a.epoch, a.deleted, a.owner, h.name,
    CASE WHEN h.lease_until > '-infinity' THEN h.lease_until > clock_timestamp() END,
    (SELECT lease_until > clock_timestamp() FROM hosts
        WHERE id = %s AND lease_until > '-infinity')
FROM (VALUES (%s::text)) AS requested (agent_id)
LEFT JOIN agents a USING (agent_id) LEFT JOIN hosts h ON h.id = a.owner"""
EXPIRE_HOST = """
UPDATE hosts SET lease_until = '-infinity'
WHERE id = %s AND lease_until <= clock_timestamp() RETURNING id"""
INSERT_AGENT = """
INSERT INTO agents (agent_id, agent, owner) VALUES (%s, %s, %s)
ON CONFLICT (agent_id) DO NOTHING RETURNING incarnation, epoch, last_seq, agent, key"""
CLAIM = """
UPDATE agents SET owner = %(own_id)s, epoch = epoch + 1, deleted = false,
    agent = CASE WHEN deleted THEN %(agent)s ELSE agent END,
    incarnation = incarnation + deleted::integer
WHERE agent_id = %(agent_id)s AND epoch = %(epoch)s AND incarnation = %(incarnation)s
    AND owner IS NOT DISTINCT FROM %(owner)s AND deleted = %(deleted)s
RETURNING incarnation, epoch, last_seq, agent, key"""
DELETE_AGENT = """
UPDATE agents SET owner = NULL, deleted = true, last_seq = 0, floor = 0, standing = 'rest'
WHERE agent_id = %(agent_id)s AND epoch = %(epoch)s AND incarnation = %(incarnation)s
    AND owner IS NOT DISTINCT FROM %(owner)s AND NOT deleted
RETURNING key"""
DELETE_RECORDS = "DELETE FROM records WHERE agent = %s"
_INSERT = """
    INSERT INTO records (agent, seq, incarnation, epoch, kind, version, payload)
    SELECT (%(keys)b::int8[])[r.place], r.seq, (%(incarnations)b::int8[])[r.place],
        (%(epochs)b::int8[])[r.place], r.kind, r.version, r.payload
    FROM unnest(%(places)b::int4[], %(seqs)b::int8[], %(kinds)b::text[], %(versions)b::int4[],
        %(payloads)b::bytea[]) AS r (place, seq, kind, version, payload)"""
_PLACE = "array_position(%(keys)b::int8[], a.key)"
ADD = f"""
WITH held AS (
    UPDATE agents a SET last_seq = (%(last_seqs)b::int8[])[{_PLACE}],
        standing = (%(standings)b::text[])[{_PLACE}]
    WHERE a.key = ANY(%(keys)b::int8[]) AND a.owner = %(owner)b::int8 AND NOT a.deleted
        AND a.incarnation = (%(incarnations)b::int8[])[{_PLACE}]
        AND a.epoch = (%(epochs)b::int8[])[{_PLACE}]
        AND a.last_seq = (%(befores)b::int8[])[{_PLACE}]
    RETURNING {_PLACE} AS place
), kept AS ({_INSERT}
    WHERE (SELECT count(*) FROM held) = cardinality(%(keys)b::int8[])
)
SELECT place FROM held"""
RELEASE = """
UPDATE agents SET owner = NULL
WHERE agent_id = %s AND incarnation = %s AND epoch = %s AND owner = %s"""


class Owned(NamedTuple):
    """An agent of this host."""

    agent_id: str
    incarnation: int
    epoch: int
    last_seq: int
    agent: str
    key: int


class OlderHost:
    """Claims, appends, releases and deletes as a host of the version before does.

    Args:
        hosts: of the store, whose tables are there.
        name: of this one.
        lease: in seconds.

    """

    def __init__(self, hosts: Hosts, name: str = "old", *, lease: float = 60.0) -> None:
        self._connection = hosts.connection()
        self._lease = lease
        ((self._id, _),) = self._ask(INSERT_HOST, [name, lease])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._connection.close()

    def _ask(self, statement: str, values: Any) -> list[tuple[Any, ...]]:
        cursor: psycopg.Cursor[tuple[Any, ...]] = self._connection.execute(statement, values)
        return cursor.fetchall() if cursor.description is not None else []

    def renew(self) -> bool:
        """Whether the lease was not lost."""
        return bool(self._ask(RENEW, [self._lease, self._id]))

    def claim(self, agent_id: str, agent: str = "desk") -> Owned | None:
        """The agent; None if a living host owns it."""
        ((incarnation, epoch, deleted, owner, _, alive, _),) = self._ask(
            OWNERSHIP, [self._id, agent_id]
        )
        if incarnation is None:
            (row,) = self._ask(INSERT_AGENT, [agent_id, agent, self._id])
            return Owned(agent_id, *row)
        if alive and owner != self._id:
            return None
        if alive is False:
            self._ask(EXPIRE_HOST, [owner])
        given = {"own_id": self._id, "agent": agent, "agent_id": agent_id, "epoch": epoch}
        given |= {"incarnation": incarnation, "owner": owner, "deleted": deleted}
        (row,) = self._ask(CLAIM, given)
        return Owned(agent_id, *row)

    def append(self, owned: Owned, record: Record, *, standing: str = "rest") -> Owned | None:
        """The agent behind that; None if another host has it by now."""
        encoded, seq = encode(record), owned.last_seq + 1
        values = {
            "keys": [owned.key],
            "last_seqs": [seq],
            "standings": [standing],
            "owner": self._id,
            "incarnations": [owned.incarnation],
            "epochs": [owned.epoch],
            "befores": [owned.last_seq],
            "places": [1],
            "seqs": [seq],
            "kinds": [encoded.kind],
            "versions": [encoded.version],
            "payloads": [encoded.payload],
        }
        return owned._replace(last_seq=seq) if self._ask(ADD, values) else None

    def release(self, owned: Owned) -> None:
        self._ask(RELEASE, [owned.agent_id, owned.incarnation, owned.epoch, self._id])

    def delete(self, owned: Owned) -> None:
        given = {"agent_id": owned.agent_id, "epoch": owned.epoch}
        given |= {"incarnation": owned.incarnation, "owner": self._id}
        ((key,),) = self._ask(DELETE_AGENT, given)
        self._ask(DELETE_RECORDS, [key])
