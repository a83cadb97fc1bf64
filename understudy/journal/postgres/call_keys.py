"""Keys of calls in PostgreSQL. Hosts take a key one after the other, and wait for nobody."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from understudy.errors import Fenced
from understudy.journal.call_keys import KeyEnd, KeyTaking, KeyUse, may_take
from understudy.journal.contracts import Batch, Owned, key_use, time_number
from understudy.journal.postgres.sharing.hosts import PostgresHosts
from understudy.journal.postgres.sql import Fetch

_MICROSECOND = timedelta(microseconds=1)

# Not by the unique index alone: an insertion waits for a transaction that has inserted the same
# key, and so for the host that makes it, which may be suspended
# (test_a_host_that_stands_still_while_it_takes_a_key_stops_no_other).
LOCK = "SELECT pg_try_advisory_xact_lock(%s::int8)"
USES = """
SELECT a.agent_id, k.incarnation, k.call_key, k.tool, k.tool_call_id, k.taken_at, k.done_at,
    k.done_at IS NULL AND k.kept_until IS NOT NULL
FROM call_keys k JOIN agents a ON a.key = k.agent
WHERE k.hash = %s AND (k.kept_until IS NULL OR k.kept_until > %s) ORDER BY k.place"""
OWNED = """
SELECT key FROM agents WHERE agent_id = %s AND epoch = %s AND incarnation = %s AND owner = %s
    AND NOT deleted"""
GIVE_OTHER_BACK = """
DELETE FROM call_keys
WHERE agent = %(agent)s AND incarnation = %(incarnation)s AND call_key = %(call_key)s
    AND hash <> %(hash)s AND kept_until IS NULL"""
TAKE = """
INSERT INTO call_keys
    (hash, place, agent, incarnation, call_key, tool, tool_call_id, taken_at, kept)
SELECT %(hash)s::bytea, coalesce(max(place) + 1, 0), %(agent)s::int8, %(incarnation)s::int8,
    %(call_key)s::text, %(tool)s::text, %(tool_call_id)s::text, %(taken_at)s::int8, %(kept)s::int8
FROM call_keys WHERE hash = %(hash)s
ON CONFLICT (agent, incarnation, call_key) DO NOTHING"""
FREE = """
DELETE FROM call_keys WHERE hash = %s AND agent = (SELECT key FROM agents WHERE agent_id = %s)
    AND incarnation = %s AND call_key = %s AND kept_until IS NULL"""
DONE = """
UPDATE call_keys SET done_at = coalesce(%(at)s::int8, taken_at),
    kept_until = coalesce(%(at)s::int8, taken_at) + kept
WHERE agent = %(agent)s AND incarnation = %(incarnation)s AND call_key = ANY(%(call_keys)s::text[])
    AND kept_until IS NULL"""
GIVE_BACK = """
DELETE FROM call_keys
WHERE agent = %(agent)s AND incarnation = %(incarnation)s AND call_key = ANY(%(call_keys)s::text[])
    AND kept_until IS NULL"""
LEAVE = """
UPDATE call_keys SET kept_until = taken_at + kept WHERE agent = %s AND kept_until IS NULL"""
DELETE_OLD = "DELETE FROM call_keys WHERE kept_until <= %s"


class PostgresKeys(PostgresHosts):
    """The keys of calls. The writer's."""

    def key_uses(self, key_hash: str, at: datetime) -> list[KeyUse]:
        rows = self._fetch(USES, [bytes.fromhex(key_hash), time_number(at)])
        return [key_use(row) for row in rows]

    def take_key(self, owned: Owned, taking: KeyTaking) -> list[KeyUse] | None:
        hash = bytes.fromhex(taking.key_hash)
        # Race: this against another host. Until the commit of this transaction no other one looks
        # who has the key (test_of_two_hosts_that_take_a_key_at_once_one_gets_it).
        if self._fetch(LOCK, [int.from_bytes(hash[:8], signed=True)]) != [(True,)]:
            return None
        agent_id, incarnation = owned.agent_id, owned.incarnation
        rows = self._fetch(OWNED, [agent_id, owned.epoch, incarnation, self._own_id])
        if not rows:
            why = "it has another epoch or owner by now, or was deleted"
            raise Fenced(agent_id=agent_id, why=why)
        found = self.key_uses(taking.key_hash, taking.at)
        if not may_take(taking, agent_id, incarnation, found):
            return found
        values = {
            "hash": hash,
            "agent": rows[0][0],
            "incarnation": incarnation,
            "call_key": taking.call_key,
            "tool": taking.tool_name,
            "tool_call_id": taking.tool_call_id,
            "taken_at": time_number(taking.at),
            "kept": taking.kept // _MICROSECOND,
        }
        call = {name: values[name] for name in ("hash", "agent", "incarnation", "call_key")}
        self._fetch(GIVE_OTHER_BACK, call)
        self._fetch(TAKE, values)
        return []

    def free_key(self, key_hash: str, use: KeyUse) -> None:
        self._fetch(FREE, [bytes.fromhex(key_hash), *use[:3]])

    def delete_old_keys(self, before: datetime) -> None:
        self._fetch(DELETE_OLD, [time_number(before)])


def end(fetch: Fetch, key: int, batch: Batch) -> None:
    """Make what a batch of the agent with this key of the row says of its keys."""
    of = {"agent": key, "incarnation": batch.incarnation}
    done, back = (_calls(batch.key_ends, is_done=is_done) for is_done in (True, False))
    if done:
        fetch(DONE, {**of, "call_keys": done, "at": batch.at_number})
    if back:
        fetch(GIVE_BACK, {**of, "call_keys": back})


def _calls(ends: Sequence[KeyEnd], *, is_done: bool) -> list[str]:
    return [end.call_key for end in ends if end.is_done is is_done]
