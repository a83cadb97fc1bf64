"""Calls of one host to agents of another one, in PostgreSQL: `SharedBackend` on its tables."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.journal.postgres.arrays import Columns
from understudy.journal.postgres.reader import PostgresReader
from understudy.journal.postgres.sql import Fetch
from understudy.journal.shared import (
    Hint,
    Place,
    Post,
    Posted,
    PostState,
    Sent,
    Wanted,
)

TELL_OWNER = """
SELECT pg_notify(channel, %s) FROM hosts WHERE id = %s AND channel IS NOT NULL"""
"""Sends a hint to the owner of an agent: the host that gets it looks into the tables."""

SENT = Columns("sent", host="int8", text="text")
SEND = f"""
SELECT pg_notify(channel, text) FROM (
    SELECT h.channel, s.text
    FROM {SENT.named("s")}
    JOIN hosts h ON h.id = s.host OR (s.host IS NULL AND h.id IS DISTINCT FROM %(own_id)s)
    WHERE h.channel IS NOT NULL AND h.lease_until > clock_timestamp()
    ORDER BY s.nth
) listeners"""  # noqa: S608 - of a constant
"""Sends texts to living hosts that listen: to a host by its id, or to all but this host."""

PLACE = """
SELECT a.incarnation, a.epoch, a.last_seq, a.owner,
    CASE WHEN h.lease_until > clock_timestamp() THEN h.name END,
    h.channel IS NOT NULL, a.takeable, a.definition
FROM agents a LEFT JOIN hosts h ON h.id = a.owner WHERE a.agent_id = %s AND NOT a.deleted"""


POSTS = Columns("post", nonce="text", kind="text", body="bytea")
POST = f"""
WITH place AS (
    SELECT a.key, a.incarnation, h.channel FROM agents a JOIN hosts h ON h.id = a.owner
    WHERE a.agent_id = %(agent_id)s AND a.incarnation = %(incarnation)s AND NOT a.deleted
        AND h.lease_until > clock_timestamp() AND h.channel IS NOT NULL
), rows AS (
    INSERT INTO inbox (agent, incarnation, nonce, kind, body, asker)
    SELECT place.key, place.incarnation, n.nonce, n.kind, n.body, %(own_id)s
    FROM place, {POSTS.rows} ORDER BY n.nth
    ON CONFLICT (nonce) DO UPDATE SET nonce = excluded.nonce
    RETURNING id
)
SELECT id, (SELECT pg_notify(channel, %(told)s) IS NULL FROM place) FROM rows ORDER BY id"""  # noqa: S608 - of a constant
"""Keeps calls for an agent, and tells its owner. Brings no rows where no living host that listens
owns the agent by now."""

TELL_ASKERS = """
SELECT pg_notify(h.channel, %s) FROM hosts h
WHERE h.channel IS NOT NULL AND h.id IN (
    SELECT i.asker FROM inbox i JOIN agents a ON a.key = i.agent
    WHERE a.agent_id = %s AND i.reply IS NULL)"""
"""Tells the hosts that have posted to an agent: it is released, or deleted, so they look at
once."""

_POSTED = """
SELECT i.id, a.agent_id, i.kind, i.body, i.asker, i.begun IS NOT NULL
FROM agents a CROSS JOIN LATERAL (
    SELECT *, row_number() OVER (ORDER BY i.id) AS nth FROM inbox i
    WHERE i.agent = a.key AND i.incarnation = a.incarnation AND i.reply IS NULL
        AND i.id <> ALL(%(in_hand)s::bigint[])
    ORDER BY i.id LIMIT %(limit)s
) i
WHERE a.owner = %(own_id)s AND NOT a.deleted AND {which}
ORDER BY i.nth, i.id LIMIT %(limit)s"""
"""The first calls of each agent, ordered by their place among the calls of their agent: an agent
with thousands of calls keeps no other agent waiting.

A read begins at the first call without a reply, not where the last read ended: the order of numbers
is not the order of commits, so a row may be seen late. What has its reply is in the index no more:
of 10,000 posts to one agent each cost 10 of its entries and 0.06 ms of 2 ms. Where 10,000 wait for
their turn a read takes 15 ms, at most about twice a second."""

POSTED = _POSTED.format(
    which="a.key = ANY(ARRAY(SELECT DISTINCT agent FROM inbox WHERE reply IS NULL))"
    " AND a.agent_id <> ALL(%(busy)s::text[])"
)

POSTED_TO = _POSTED.format(which="a.agent_id = ANY(%(agent_ids)s::text[])")

BEGIN_POST = """
UPDATE inbox SET begun = %s WHERE id = %s AND reply IS NULL AND (begun IS NULL OR begun = %s)
RETURNING id"""

REPLY = """
WITH replied AS (
    UPDATE inbox SET reply = %(reply)s WHERE id = %(id)s AND reply IS NULL RETURNING asker
)
SELECT pg_notify(h.channel, %(told)s) FROM hosts h JOIN replied ON h.id = replied.asker
WHERE h.channel IS NOT NULL"""

POST_STATES = """
SELECT i.id, i.reply, i.begun IS NOT NULL,
    a.owner IS NULL OR h.lease_until IS NULL OR h.lease_until <= clock_timestamp(),
    a.takeable, a.epoch
FROM inbox i JOIN agents a ON a.key = i.agent LEFT JOIN hosts h ON h.id = a.owner
WHERE i.id = ANY(%s)"""

RETELL = """
SELECT pg_notify(h.channel, %s || a.agent_id)
FROM inbox i JOIN agents a ON a.key = i.agent JOIN hosts h ON h.id = a.owner
WHERE i.id = %s AND h.channel IS NOT NULL"""

REMOVE_POSTS = "DELETE FROM inbox WHERE id = ANY(%s) AND reply IS NOT NULL"

WITHDRAW = "DELETE FROM inbox WHERE id = ANY(%s) AND reply IS NULL RETURNING id, begun IS NOT NULL"
"""Takes back calls without a reply. This statement or `REPLY`: whichever comes first wins."""

REPLY_TO_DELETED = """
UPDATE inbox SET reply = CASE kind WHEN 'delete' THEN %(deleted)s::bytea ELSE %(unknown)s END
WHERE agent = %(key)s AND reply IS NULL"""
"""What waits for an agent that is deleted is never done to the next one of its id."""

DELETE_LOST_REPLIES = """
DELETE FROM inbox i WHERE i.reply IS NOT NULL
    AND i.asked_at < clock_timestamp() - interval '1 hour' AND NOT EXISTS (
        SELECT FROM hosts h WHERE h.id = i.asker AND h.lease_until > clock_timestamp())"""
"""Deletes the replies to hosts that no longer live, after an hour: no caller waits for them any
more. A caller of a host that has lost its lease may still wait."""

ORPHANS = """
SELECT DISTINCT a.agent_id, a.definition FROM inbox i
JOIN agents a ON a.key = i.agent AND a.incarnation = i.incarnation
LEFT JOIN hosts h ON h.id = a.owner
WHERE i.reply IS NULL AND NOT a.deleted AND NOT coalesce(h.lease_until > clock_timestamp(), false)
LIMIT %s"""
"""Agents without an owner to which calls are posted, by hosts that may be gone as well."""


def tell_askers(fetch: Fetch, agent_id: str) -> None:
    """Tell the hosts that have posted calls to an agent to look at them."""
    fetch(TELL_ASKERS, [str(Hint("look")), agent_id])


class PostgresInbox(PostgresReader):
    """The calls of hosts to agents of each other."""

    def post(self, agent_id: str, incarnation: int, posts: Sequence[Post]) -> list[int]:
        values = {
            "agent_id": agent_id,
            "incarnation": incarnation,
            "own_id": self._own_id,
            "told": str(Hint("posted", 0, agent_id)),
            **POSTS.values([(each.nonce, each.kind, each.body) for each in posts]),
        }
        return [id for id, _ in self._fetch(POST, values)]

    def begin_post(self, id: int, attempt: str) -> bool:
        return bool(self._fetch(BEGIN_POST, [attempt, id, attempt]))

    def reply(self, id: int, reply: bytes) -> None:
        self._fetch(REPLY, {"id": id, "reply": reply, "told": str(Hint("look", id))})

    def remove_posts(self, ids: Sequence[int]) -> None:
        self._fetch(REMOVE_POSTS, [list(ids)])

    def withdraw(self, ids: Sequence[int]) -> dict[int, bool]:
        return dict(self._fetch(WITHDRAW, [list(ids)]))

    def retell(self, id: int) -> None:
        self._fetch(RETELL, [str(Hint("posted")), id])

    def delete_lost_replies(self) -> None:
        self._fetch(DELETE_LOST_REPLIES)

    def tell(self, host_id: int, hint: Hint) -> None:
        self._fetch(TELL_OWNER, [str(hint), host_id])

    def posted(self, wanted: Wanted) -> list[Posted]:
        if self.host_id is None:
            return []
        values = {**wanted._asdict(), "own_id": self.host_id}
        rows = self._read(POSTED if wanted.agent_ids is None else POSTED_TO, values)
        return [Posted(*row) for row in rows]

    def post_states(self, ids: Sequence[int]) -> dict[int, PostState]:
        return {id: PostState(*row) for id, *row in self._read(POST_STATES, [list(ids)])}

    def place(self, agent_id: str) -> Place | None:
        for row in self._read(PLACE, [agent_id]):
            return Place(*row)
        return None

    def orphans(self, limit: int) -> list[tuple[str, str]]:
        return [(agent_id, agent) for agent_id, agent in self._read(ORPHANS, [limit])]

    def send(self, sent: Sequence[Sent]) -> None:
        rows = [(each.host_id, each.text) for each in sent]
        self._read(SEND, {"own_id": self.host_id, **SENT.values(rows)})
