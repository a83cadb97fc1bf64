"""The statements on agents and their records, in PostgreSQL.

Every name is looked up in the store's own schema (the connection's `search_path`). Statements run
in READ COMMITTED, where an UPDATE that had to wait for a row checks the row's newest version. That
makes a claim, a renewal and an append a compare-and-set.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

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
WITH ours AS MATERIALIZED (
    SELECT lease_until > clock_timestamp() AS holds FROM hosts
    WHERE id = %(own_id)s AND lease_until > '-infinity'
), made AS (
    INSERT INTO agents (agent_id, definition, owner, incarnation, epoch)
    SELECT %(agent_id)s::text, %(begins)s::text, %(own_id)s, gone_incarnation + 1, gone_epoch + 1
    FROM ours, meta
    WHERE holds AND %(begins)s::text IS NOT NULL
        AND NOT EXISTS (SELECT FROM agents WHERE agent_id = %(agent_id)s::text)
    ON CONFLICT (agent_id) DO NOTHING
    RETURNING incarnation, epoch, last_seq, definition, key
)
SELECT a.incarnation, a.epoch, a.deleted, a.owner, h.name,
    CASE WHEN h.lease_until > '-infinity' THEN h.lease_until > clock_timestamp() END,
    (SELECT holds FROM ours), a.run_version, a.takeable AND h.channel IS NOT NULL,
    m.incarnation, m.epoch, m.last_seq, m.definition, m.key
FROM (VALUES (%(agent_id)s::text)) AS requested (agent_id)
LEFT JOIN agents a USING (agent_id) LEFT JOIN hosts h ON h.id = a.owner LEFT JOIN made m ON true"""
"""Who owns an agent, whether that lease and our own hold (null: it is lost), and whether it may be
taken from a living owner. It locks nothing of an agent that is there: a claim that is refused must
block neither the owner's writes nor its heartbeat
(test_a_refused_claim_holds_up_neither_the_owner_nor_its_heartbeat).

An agent that is not there begins in the same round trip, owned by this host, if that is asked and
our lease holds."""

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
    INSERT INTO records (agent, seq, epoch, kind, version, payload)
    SELECT (%(keys)s::int8[])[r.place], r.seq, (%(epochs)s::int8[])[r.place], r.kind, r.version,
        substring(%(payloads)b::bytea FROM r.start FOR r.size)
    FROM unnest(%(places)s::int4[], %(seqs)s::int8[], %(kinds)s::text[], %(versions)s::int4[],
        %(starts)s::int4[], %(sizes)s::int4[])
        AS r (place, seq, kind, version, start, size)"""

_PLACE = "array_position(%(keys)s::int8[], a.key)"

ADD = f"""
WITH held AS (
    UPDATE agents a SET last_seq = (%(last_seqs)s::int8[])[{_PLACE}],
        index_status = (%(index_statuses)s::text[])[{_PLACE}],
        due = (%(dues)s::int8[])[{_PLACE}],
        takeable = (%(takeables)s::bool[])[{_PLACE}],
        status = (%(statuses)s::text[])[{_PLACE}],
        run_version = (%(run_versions)s::text[])[{_PLACE}],
        status_at = CASE
            WHEN (%(noted)s::bool[])[{_PLACE}] OR a.last_seq = 0
                OR a.status <> (%(statuses)s::text[])[{_PLACE}]
            THEN (%(ats)s::int8[])[{_PLACE}] ELSE a.status_at END
    WHERE a.key = ANY(%(keys)s::int8[]) AND a.owner = %(owner)b::int8 AND NOT a.deleted
        AND a.incarnation = (%(incarnations)s::int8[])[{_PLACE}]
        AND a.epoch = (%(epochs)s::int8[])[{_PLACE}]
        AND a.last_seq = (%(befores)s::int8[])[{_PLACE}]
    RETURNING {_PLACE} AS place, a.ask_count
), kept AS ({_INSERT}
    WHERE (SELECT count(*) FROM held) = cardinality(%(keys)s::int8[])
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


@cache
def all_or_none(add: str) -> str:
    """The statement as a transaction of its own: it fails where not all batches may be added.

    It brings one row, with the last number of the log of trust where `and_last_fact` has added it.
    The text that is no number is its way to fail: the server's log says what it is.
    """
    return add.replace(
        "SELECT place, ask_count",
        """SELECT CASE WHEN count(*) = cardinality(%(keys)s::int8[]) THEN 0
    ELSE ('agents still owned: ' || count(*))::int4 END""",
    )


@cache
def and_put_asks(add: str) -> str:
    """The statement, which also changes what the agents ask: see `journal.postgres.asks`."""
    counted = f"""UPDATE agents a SET
        ask_count = coalesce((%(ask_counts)s::int4[])[{_PLACE}], a.ask_count),
        last_seq"""  # noqa: S608 - of a constant
    return _and(add.replace("UPDATE agents a SET last_seq", counted), PUT_ASKS)


@cache
def and_decide(add: str) -> str:
    """The statement, which also adds what is decided."""
    return _and(add, DECIDE)


def _and(add: str, more: str) -> str:
    return add.replace("\n)\nSELECT", f"\n), {more}\n)\nSELECT")


PUT_ASKS = """gone AS (
    DELETE FROM asks k USING unnest(%(gone_of)s::int8[], %(gone)s::text[]) AS n (agent, id)
    WHERE k.agent = n.agent AND k.id = n.id
), told AS (
    UPDATE asks k SET reminders = n.reminders, escalations = n.escalations
    FROM unnest(%(told_of)s::int8[], %(told)s::text[], %(reminded)s::int4[], %(escalated)s::int4[])
        AS n (agent, id, reminders, escalations)
    WHERE k.agent = n.agent AND k.id = n.id
), asked AS (
    INSERT INTO asks (agent, id, definition, kind, tool, request_kind, words, asked_at, expires_at,
        reminders, escalations, version, payload)
    SELECT n.agent, n.id, a.definition, n.kind, n.tool, n.request_kind, n.words, n.asked_at,
        n.expires_at, n.reminders, n.escalations, n.version, n.payload
    FROM unnest(%(ask_of)s::int8[], %(ask_ids)s::text[], %(ask_kinds)s::text[],
        %(ask_tools)s::text[], %(request_kinds)s::text[], %(words)s::text[], %(asked_at)s::int8[],
        %(expires_at)s::int8[], %(ask_reminders)s::int4[], %(ask_escalations)s::int4[],
        %(ask_versions)s::int4[], %(ask_payloads)b::bytea[]) WITH ORDINALITY AS n (agent, id,
        kind, tool, request_kind, words, asked_at, expires_at, reminders, escalations, version,
        payload, place)
    JOIN agents a ON a.key = n.agent ORDER BY n.place"""

DECIDE = """new_decided AS (
    INSERT INTO decided (agent, definition, incarnation, request, kind, tool, type, origin,
        decided_by, login, asked_at, at, version, payload)
    SELECT a.key, a.definition, n.incarnation, n.request, n.kind, n.tool, n.type, n.origin,
        n.decided_by, n.login, n.asked_at, n.at, n.version, n.payload
    FROM unnest(%(decided_of)s::int8[], %(decided_in)s::int8[], %(requests)s::text[],
        %(decided_kinds)s::text[], %(decided_tools)s::text[], %(types)s::text[],
        %(origins)s::text[], %(decided_by)s::text[], %(logins)b::bytea[], %(since)s::int8[],
        %(decided_at)s::int8[], %(decided_versions)s::int4[], %(decided)b::bytea[])
        WITH ORDINALITY AS n (agent, incarnation, request, kind, tool, type, origin, decided_by,
        login, asked_at, at, version, payload, place)
    JOIN agents a ON a.key = n.agent ORDER BY n.place
    RETURNING no, agent, at, payload
), new_deciders AS (
    INSERT INTO deciders (person, at, no) SELECT n.person, d.at, d.no
    FROM unnest(%(persons)s::text[], %(persons_of)s::int4[]) AS n (person, place)
    JOIN new_decided d ON d.agent = (%(decided_of)s::int8[])[n.place]
        AND d.at = (%(decided_at)s::int8[])[n.place]
        AND d.payload = (%(decided)b::bytea[])[n.place]
    ON CONFLICT DO NOTHING"""
"""The numbers of the rows are those that the table gives: a row is told by what it says. Of two
that say the same, the same persons have decided both."""


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
WHERE a.agent_id = %(agent_id)s AND a.incarnation = %(incarnation)s
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
