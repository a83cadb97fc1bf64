"""The statements on agents and their records, in PostgreSQL.

Every name is looked up in the store's own schema (the connection's `search_path`). Statements run
in READ COMMITTED, where an UPDATE that had to wait for a row checks the row's newest version. That
makes a claim, a renewal and an append a compare-and-set.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

from understudy.journal.contracts import NO_TIME
from understudy.journal.retirement import AT_REST
from understudy.journal.sql_backend import (
    JOIN_CHECKPOINT,
    LAST_FACT,
    Rows,
    Values,
    agents_query,
)

Fetch: TypeAlias = Callable[[str, Values], Rows]
"""The rows of a statement, in the writer's transaction or on the reader's connection."""

MAX_ID_BYTES = 2000
"""The longest id of an agent, in bytes: what fits into an entry of an index."""


def is_storable_id(agent_id: str) -> bool:
    """Whether a text column can store it. NUL and lone surrogates cannot be stored."""
    try:
        return "\0" not in agent_id and len(agent_id.encode()) <= MAX_ID_BYTES
    except UnicodeEncodeError:
        return False


OWNERSHIP = """
SELECT a.incarnation, a.epoch, a.deleted, a.owner, h.name,
    CASE WHEN h.lease_until > '-infinity' THEN h.lease_until > clock_timestamp() END,
    (SELECT lease_until > clock_timestamp() FROM hosts
        WHERE id = %s AND lease_until > '-infinity'),
    a.run_version, a.takeable AND h.channel IS NOT NULL
FROM (VALUES (%s::text)) AS requested (agent_id)
LEFT JOIN agents a USING (agent_id) LEFT JOIN hosts h ON h.id = a.owner"""
"""Who owns an agent, whether that lease and our own hold (null: it is lost), and whether it may be
taken from a living owner. It locks nothing: a claim that is refused must block neither the owner's
writes nor its heartbeat
(test_a_refused_claim_holds_up_neither_the_owner_nor_its_heartbeat)."""

INSERT_AGENT = """
INSERT INTO agents (agent_id, definition, owner, incarnation, epoch)
SELECT %s::text, %s::text, %s::int8, gone_incarnation + 1, gone_epoch + 1 FROM meta
ON CONFLICT (agent_id) DO NOTHING
RETURNING incarnation, epoch, last_seq, definition, key, false, null"""

_TAKEABLE = """
    AND (NOT %(take)s OR takeable)"""
"""Judged in the statement that takes, which waits for an append under way and judges its row
(test_a_take_that_waits_for_an_append_judges_what_that_has_written)."""

_TELL_LOSER = """
    (SELECT pg_notify(channel, %(told)s) IS NULL FROM hosts WHERE id = %(owner)s AND %(take)s)"""
"""Evaluated for a row that changes: only from a host that listens is anything taken."""

CLAIM = f"""
UPDATE agents SET owner = %(own_id)s, epoch = epoch + 1, deleted = false,
    definition = CASE WHEN deleted THEN %(agent)s ELSE definition END,
    incarnation = incarnation + deleted::integer
WHERE agent_id = %(agent_id)s AND epoch = %(epoch)s AND incarnation = %(incarnation)s
    AND owner IS NOT DISTINCT FROM %(owner)s AND deleted = %(deleted)s{_TAKEABLE}
RETURNING incarnation, epoch, last_seq, definition, key,
    EXISTS (SELECT FROM inbox i WHERE i.agent = agents.key AND i.reply IS NULL),{_TELL_LOSER}"""  # noqa: S608 - of constants

_ENTOMB = """
UPDATE agents SET owner = NULL, deleted = true, last_seq = 0, floor = 0,
    index_status = 'rest', due = NULL, status = 'idle', status_at = NULL, ask_count = 0,
    run_version = NULL, takeable = false"""
DELETE_AGENT = f"""{_ENTOMB}
WHERE agent_id = %(agent_id)s AND epoch = %(epoch)s AND incarnation = %(incarnation)s
    AND owner IS NOT DISTINCT FROM %(owner)s AND NOT deleted{_TAKEABLE}
RETURNING key,{_TELL_LOSER}"""
"""The row stays as the tombstone. `delete_records` deletes the records: a statement of its own,
which sees what was added while this one waited for the row
(test_a_deletion_takes_what_was_committed_while_it_waited)."""

SIZE = """
SELECT coalesce(sum(pg_total_relation_size(t.oid)), 0)::int8
FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
WHERE n.nspname = %s AND t.relkind = 'r'"""
VACUUMS = """
SELECT format('VACUUM (ANALYZE) %%I.%%I', n.nspname, t.relname)
FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
WHERE n.nspname = %s AND t.relkind = 'r' ORDER BY t.relname"""
"""A statement for each table of the store."""

UNCHANGED_AGENTS = f"""
SELECT a.key, a.agent_id, a.epoch, h.id
FROM unnest(%(ids)b::text[], %(incarnations)b::int8[], %(epochs)b::int8[], %(last_seqs)b::int8[])
    AS w (agent_id, incarnation, epoch, last_seq)
JOIN agents a ON a.agent_id = w.agent_id LEFT JOIN hosts h
    ON h.id = a.owner AND h.id <> %(own_id)b::int8 AND h.lease_until > clock_timestamp()
WHERE NOT a.deleted AND a.incarnation = w.incarnation AND a.epoch = w.epoch
    AND a.last_seq = w.last_seq AND (h.id IS NULL OR (a.takeable AND h.channel IS NOT NULL))
    AND {AT_REST}
    AND NOT EXISTS (SELECT FROM inbox i WHERE i.agent = a.key AND i.reply IS NULL)
    AND pg_try_advisory_xact_lock(
        hashtextextended(a.agent_id, hashtextextended(current_schema(), 0)))
FOR UPDATE OF a SKIP LOCKED"""  # noqa: S608 - of constants
"""Which of these agents are as they were read, and have nothing open; with the living host that has
each in memory, and may lose it. They are locked. It waits for nobody: an agent that another session
has locked, or for which a reservation is under way, is left out, for it is about to be changed."""

RETIRE_AGENTS = f"{_ENTOMB} WHERE key = ANY(%s)"

DELETE_LOST_ATTEMPTS = "DELETE FROM lost_attempts WHERE {of}"

ADD_BLOBS = """
INSERT INTO blobs (agent, hash, payload)
SELECT %s, b.hash, b.payload FROM unnest(%s::bytea[], %s::bytea[]) AS b (hash, payload)
ON CONFLICT DO NOTHING"""

ADD_MESSAGE_RUNS = """
INSERT INTO message_runs (agent, message_id, run_id)
SELECT %s, m.message_id, m.run_id FROM unnest(%s::text[], %s::text[]) AS m (message_id, run_id)
ON CONFLICT DO NOTHING"""

KEYS = "SELECT agent_id, key FROM agents WHERE agent_id = ANY(%s)"

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
        index_status = (%(index_statuses)b::text[])[{_PLACE}],
        due = nullif((%(dues)b::int8[])[{_PLACE}], {NO_TIME}),
        takeable = (%(takeables)b::bool[])[{_PLACE}],
        status = (%(statuses)b::text[])[{_PLACE}],
        run_version = (%(run_versions)b::text[])[{_PLACE}],
        status_at = CASE
            WHEN (%(noted)b::bool[])[{_PLACE}] OR a.last_seq = 0
                OR a.status <> (%(statuses)b::text[])[{_PLACE}]
            THEN nullif((%(ats)b::int8[])[{_PLACE}], {NO_TIME}) ELSE a.status_at END
    WHERE a.key = ANY(%(keys)b::int8[]) AND a.owner = %(owner)b::int8 AND NOT a.deleted
        AND a.incarnation = (%(incarnations)b::int8[])[{_PLACE}]
        AND a.epoch = (%(epochs)b::int8[])[{_PLACE}]
        AND a.last_seq = (%(befores)b::int8[])[{_PLACE}]
    RETURNING {_PLACE} AS place, a.ask_count
), kept AS ({_INSERT}
    WHERE (SELECT count(*) FROM held) = cardinality(%(keys)b::int8[])
)
SELECT place, ask_count FROM held"""  # noqa: S608 - of the constants above
"""Which batches may be added, counted from 1, and how many rows of `asks` their agents have; if all
may, it adds them. Without a join: a planner
that knows neither table nor arrays would compare each row with each. The rows are locked in the
order of the keys, so two hosts with the same agents do not deadlock.

An append that waits for a takeover finds the new epoch
(test_a_commit_waits_for_a_takeover_under_way_and_is_fenced). The owner is compared too: a server
that lost its last commits may have lost a claim, and then two hosts could have the same epoch."""


@cache
def and_last_fact(add: str) -> str:
    """The statement, which also brings the last number of the log of trust. It locks nothing.

    It is as of the beginning of the statement. What is added to the log while it waits for the row
    of an agent is told by a hint, and by the next heartbeat.
    """
    return add.replace("SELECT place, ask_count", f"SELECT place, ask_count, ({LAST_FACT})")


ADD_FACT = f"""
WITH added AS (
    INSERT INTO trust (number, at, decided_by, kind, data)
    SELECT %(number)s::int8, %(at)s::int8, %(by)s::text, %(kind)s::text, %(data)s::bytea
    FROM set_config('synchronous_commit', %(commit)s, true)
    WHERE ({LAST_FACT}) = %(number)s::int8 - 1
    ON CONFLICT DO NOTHING RETURNING number
)
SELECT number, (
    SELECT count(pg_notify(channel, 'trust ' || number || ' ')) FROM hosts
    WHERE channel IS NOT NULL AND lease_until > clock_timestamp()
        AND id IS DISTINCT FROM %(own_id)s::int8
) FROM added"""  # noqa: S608 - of constants
"""One statement that commits by itself: a host that is suspended in the middle of a transaction
would keep all others from adding. It is as durable as a claim, whatever other commits are."""

REQUIRE = ADD_FACT.replace(
    "- 1\n",
    """- 1 AND NOT EXISTS (
        SELECT FROM hosts WHERE lease_until > clock_timestamp()
            AND id IS DISTINCT FROM %(own_id)s::int8 AND NOT %(required)s::text = ANY(has)
    )
""",
    1,
).replace(
    ")\nSELECT number",
    """), ended AS (
    UPDATE hosts SET lease_until = '-infinity'
    WHERE EXISTS (SELECT FROM added) AND id IS DISTINCT FROM %(own_id)s::int8
        AND NOT %(required)s::text = ANY(has) AND lease_until <= clock_timestamp()
    RETURNING id
), fenced AS (
    UPDATE agents SET epoch = epoch + 1, owner = NULL
    WHERE owner IN (SELECT id FROM ended) RETURNING 1
)
SELECT number""",
    1,
)
"""As `ADD_FACT`, where each other living host has what is required. The leases of others without
it are ended for good, and their agents get a higher epoch."""

ADD_RECORDS = _INSERT
"""The records of the batches that may be added, if not all may."""

REFUSED_AGENTS = """
SELECT a.agent_id, a.deleted, a.incarnation, a.epoch, a.last_seq, a.owner, h.name
FROM agents a LEFT JOIN hosts h ON h.id = a.owner WHERE a.agent_id = ANY(%s)"""
"""From these rows follows why a batch was not added."""

RELEASE = """
UPDATE agents SET owner = NULL
WHERE agent_id = %s AND incarnation = %s AND epoch = %s AND (owner = %s OR owner IS NULL)
    AND NOT deleted
RETURNING EXISTS (SELECT FROM inbox i WHERE i.agent = agents.key AND i.reply IS NULL)"""
"""Also of one that is released: the reply to a commit may be lost, and it is asked for again."""

NOTE_LOST_ATTEMPT = """
INSERT INTO lost_attempts AS l (agent, run, numbers)
SELECT key, %(run)s, ARRAY[%(number)s::int4] FROM agents WHERE agent_id = %(agent_id)s
ON CONFLICT (agent) DO UPDATE SET run = excluded.run,
    numbers = CASE WHEN l.run = excluded.run THEN l.numbers END || excluded.numbers"""
"""Beside those of the same run, and in the place of those of another."""

LOST_ATTEMPTS = """
SELECT l.numbers FROM lost_attempts l JOIN agents a ON a.key = l.agent
WHERE a.agent_id = %s AND l.run = %s"""

SETTLED_AGENT = """
SELECT incarnation, epoch, last_seq, index_status, takeable FROM agents
WHERE agent_id = %(agent_id)s FOR SHARE"""
"""Waits until a transaction of ours, left behind by a lost connection, is settled."""

WRITTEN_RECORDS = """
SELECT r.epoch, r.kind, r.version, r.payload FROM records r JOIN agents a ON a.key = r.agent
WHERE a.agent_id = %(agent_id)s AND r.incarnation = %(incarnation)s
    AND r.seq BETWEEN %(first)s AND %(last)s ORDER BY r.seq"""

_HOST = "CASE WHEN h.lease_until > clock_timestamp() THEN h.name END"
_WITH_HOSTS = "agents a LEFT JOIN hosts h ON h.id = a.owner"
AGENTS = agents_query(_HOST, _WITH_HOSTS)
_BEHIND = agents_query(
    _HOST,
    f"{_WITH_HOSTS} LEFT {JOIN_CHECKPOINT} LEFT JOIN records r ON r.agent = a.key AND r.seq > %s",
    more=", coalesce(c.seq, 0), r.kind, r.version, r.payload",
)
BEHIND = f"{_BEHIND} AND a.agent_id = %s ORDER BY r.seq"
"""An agent and the number of its checkpoint, with each of its records above a number: one
statement, and so of one moment."""

FIND_IN_ORDER = """
SELECT set_config(name, 'off', true)
FROM unnest(ARRAY['enable_sort', 'enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin',
    'enable_mergejoin']) AS name"""
"""For the rest of the transaction. Else a planner that believes that few rows fit finds all of them
and sorts them, for each page: 100 of 30,000 took 80 ms, along the index 6 ms."""

IN_ITS_SCHEMA = """SET search_path = pg_catalog AS $$ BEGIN
    PERFORM set_config('search_path', quote_ident(TG_TABLE_SCHEMA) || ', pg_catalog', true);"""
"""Begins the body of a function of a trigger, which ends with `END $$`: it looks into the schema of
the table, whatever its name is by now (test_a_schema_with_triggers_may_have_another_name)."""
