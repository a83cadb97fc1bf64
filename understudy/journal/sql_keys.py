"""`SqlKeys`: the keys of calls in an SQL database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from understudy.errors import Fenced
from understudy.journal.call_keys import KeyTaking, KeyUse, may_take
from understudy.journal.contracts import Batch, Owned, from_row, time_number
from understudy.journal.sql_backend import Rows, SqlBackend

_MICROSECOND = timedelta(microseconds=1)

USES = """
SELECT a.agent_id, k.incarnation, k.call_key, k.tool, k.tool_call_id, k.taken_at, k.done_at,
    k.done_at IS NULL AND k.kept_until IS NOT NULL
FROM call_keys k JOIN agents a ON a.key = k.agent
WHERE k.hash = %s AND (k.kept_until IS NULL OR k.kept_until > %s) ORDER BY k.place"""
_OF_CALL = """
WHERE agent = %(agent)s AND incarnation = %(incarnation)s AND call_key = %(call_key)s
    AND kept_until IS NULL"""
GIVE_BACK = f"DELETE FROM call_keys {_OF_CALL}"  # noqa: S608 - of a constant
GIVE_OTHER_BACK = f"{GIVE_BACK} AND hash <> %(hash)s"
DONE = f"""
UPDATE call_keys SET done_at = coalesce(%(at)s::int8, taken_at),
    kept_until = coalesce(%(at)s::int8, taken_at) + kept {_OF_CALL}"""  # noqa: S608 - as above
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
LEAVE = """
UPDATE call_keys SET kept_until = taken_at + kept WHERE {of} AND kept_until IS NULL"""


class SqlKeys(SqlBackend):
    """The keys of calls in an SQL database."""

    def _lock_key(self, hash: bytes) -> bool:
        """Whether no other host can look who has the key until the end of this transaction."""
        return True

    def key_uses(self, key_hash: str, at: datetime) -> list[KeyUse]:
        rows = self._fetch(USES, [bytes.fromhex(key_hash), time_number(at)])
        return [from_row(KeyUse, row, "the keys of calls") for row in rows]

    def take_key(self, owned: Owned, taking: KeyTaking) -> list[KeyUse] | None:
        hash = bytes.fromhex(taking.key_hash)
        if not self._lock_key(hash):
            return None
        agent_id, incarnation = owned.agent_id, owned.incarnation
        is_owned = f"SELECT a.key FROM agents a WHERE {self.owned_where}"  # noqa: S608
        rows = self._fetch(is_owned, self._claim_values(owned))
        if not rows:
            why = "it has another epoch or owner by now, or was deleted"
            raise Fenced(agent_id=agent_id, why=why)
        found = self.key_uses(taking.key_hash, taking.at)
        if not may_take(taking, agent_id, incarnation, found):
            return found
        call = {
            "hash": hash,
            "agent": rows[0][0],
            "incarnation": incarnation,
            "call_key": taking.call_key,
        }
        self._fetch(GIVE_OTHER_BACK, call)
        values = {
            **call,
            "tool": taking.tool_name,
            "tool_call_id": taking.tool_call_id,
            "taken_at": time_number(taking.at),
            "kept": taking.kept // _MICROSECOND,
        }
        self._fetch(TAKE, values)
        return []

    def free_key(self, key_hash: str, use: KeyUse) -> None:
        self._fetch(FREE, [bytes.fromhex(key_hash), *use[:3]])

    def delete_old_keys(self, before: datetime) -> None:
        self._fetch("DELETE FROM call_keys WHERE kept_until <= %s", [time_number(before)])

    def key_secret(self) -> bytes:
        return self._look(_only, ("SELECT key_secret FROM meta", ()))

    def has_old_keys(self, before: datetime) -> bool:
        query = "SELECT 1 FROM call_keys WHERE kept_until <= %s LIMIT 1"
        return self._look(bool, (query, [time_number(before)]))

    def _end_keys(self, key: int, batch: Batch) -> None:
        """Make what a batch of the agent with this key of its row says of its keys of calls."""
        for call_key, is_done in batch.key_ends:
            call = {"agent": key, "incarnation": batch.incarnation, "call_key": call_key}
            if is_done:
                self._fetch(DONE, {**call, "at": batch.at_number})
            else:
                self._fetch(GIVE_BACK, call)

    def _forget(self, keys: Sequence[int]) -> None:
        super()._forget(keys)
        self._change_of(LEAVE, [], keys)  # nobody will know what their open calls did


def _only(rows: Rows) -> bytes:
    ((found,),) = rows
    return bytes(found)
