"""The statements on agents and their records, in PostgreSQL.

Every name is looked up in the store's own schema (the connection's `search_path`). Statements run
in READ COMMITTED, where an UPDATE that had to wait for a row checks the row's newest version. That
makes a claim, a renewal and an append a compare-and-set.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from understudy.journal.postgres.arrays import Columns
from understudy.journal.retirement import AT_REST
from understudy.journal.sql_backend import (
    JOIN_CHECKPOINT,
    LAST_FACT,
    Rows,
    Values,
    agents_query,
)

if TYPE_CHECKING:
    import psycopg

    from understudy.journal.postgres.connection import PsycopgConnection

Fetch: TypeAlias = Callable[[str, Values], Rows]
"""The rows of a statement, in the writer's transaction or on the reader's connection."""


def rows_of(cursor: psycopg.Cursor[tuple[Any, ...]]) -> Rows:
    """The rows of a statement; none of one that brings none."""
    return cursor.fetchall() if cursor.description is not None else []


def fetch_by(connection: PsycopgConnection, query: str, values: Values) -> Rows:
    """The rows of a statement on a connection."""
    return rows_of(connection.execute(query, values, binary=True))


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

READ_AGENTS = Columns("read", agent_id="text", incarnation="int8", epoch="int8", last_seq="int8")
UNCHANGED_AGENTS = f"""
SELECT a.key, a.agent_id, a.epoch, h.id
FROM {READ_AGENTS.named("w")} JOIN agents a ON a.agent_id = w.agent_id LEFT JOIN hosts h
    ON h.id = a.owner AND h.id <> %(own_id)b::int8 AND h.lease_until > clock_timestamp()
WHERE CASE WHEN NOT a.deleted AND a.incarnation = w.incarnation AND a.epoch = w.epoch
    AND a.last_seq = w.last_seq AND (h.id IS NULL OR (a.takeable AND h.channel IS NOT NULL))
    AND {AT_REST}
    AND NOT EXISTS (SELECT FROM inbox i WHERE i.agent = a.key AND i.reply IS NULL)
THEN pg_try_advisory_xact_lock(
    hashtextextended(a.agent_id, hashtextextended(current_schema(), 0))) END
FOR UPDATE OF a SKIP LOCKED"""  # noqa: S608 - of constants
"""Which of these agents are as they were read, and have nothing open; with the living host that has
each in memory, and may lose it. They are locked. It waits for nobody: an agent that another session
has locked, or for which a reservation is under way, is left out, for it is about to be changed. The
lock against reservations is tried last: an agent that stays is locked by nobody."""

RETIRE_AGENTS = f"{_ENTOMB} WHERE key = ANY(%s)"

DELETE_LOST_ATTEMPTS = "DELETE FROM lost_attempts WHERE {of}"

BLOBS = Columns("blob", agent="int8", hash="bytea", payload="bytea")
ADD_BLOBS = f"{BLOBS.insert('blobs')} ON CONFLICT DO NOTHING"
MESSAGE_RUNS = Columns("run", agent="int8", message_id="text", run_id="text")
ADD_MESSAGE_RUNS = f"{MESSAGE_RUNS.insert('message_runs')} ON CONFLICT DO NOTHING"
FEED = Columns(
    "told",
    agent_id="text",
    definition="text",
    seq="int8",
    at="int8",
    kind="text",
    version="int4",
    payload="bytea",
)
ADD_TO_FEED = FEED.insert("feed")

_WRITTEN = """
SELECT a.agent_id, a.key, a.ask_count, a.deleted, a.incarnation, a.epoch, a.last_seq, a.owner,
    h.name
FROM agents a LEFT JOIN hosts h ON h.id = a.owner WHERE a.agent_id = ANY(%s)"""
LOCK_AGENTS = f"{_WRITTEN} AND a.owner = %s ORDER BY a.key FOR NO KEY UPDATE OF a"
"""The rows of those agents that this host owns. They say which batches may be added, until the end
of the transaction. They are locked in the order of the keys, so two hosts with the same agents
do not deadlock.

The rows of others are not locked: a host that has lost an agent would wait for the owner, and hold
it up (test_who_has_lost_an_agent_does_not_wait_for_its_owner)."""
LOST_AGENTS = _WRITTEN
"""The rows of agents of any owner, as they are now, without a lock: from these rows follows why a
batch is refused."""

BATCHES = Columns(
    "batch",
    key="int8",
    incarnation="int8",
    epoch="int8",
    before="int8",
    last_seq="int8",
    index_status="text",
    due="int8",
    status="text",
    run_version="text",
    noted="bool",
    takeable="bool",
    at="int8",
    ask_count="int4",
)
RECORDS = Columns(
    "record", place="int4", seq="int8", kind="text", version="int4", start="int4", size="int4"
)


def _of_batch(name: str) -> str:
    """A value of the batch of the agent `a`."""
    return f"({BATCHES.array(name)})[array_position({BATCHES.array('key')}, a.key)]"


ADD = f"""
WITH held AS (
    UPDATE agents a SET last_seq = {_of_batch("last_seq")},
        index_status = {_of_batch("index_status")}, due = {_of_batch("due")},
        takeable = {_of_batch("takeable")}, status = {_of_batch("status")},
        run_version = {_of_batch("run_version")},
        ask_count = coalesce({_of_batch("ask_count")}, a.ask_count),
        status_at = CASE
            WHEN {_of_batch("noted")} OR a.last_seq = 0 OR a.status <> {_of_batch("status")}
            THEN {_of_batch("at")} ELSE a.status_at END
    WHERE a.key = ANY({BATCHES.array("key")}) AND a.owner = %(owner)b::int8 AND NOT a.deleted
        AND a.incarnation = {_of_batch("incarnation")} AND a.epoch = {_of_batch("epoch")}
        AND a.last_seq = {_of_batch("before")}
    RETURNING 1
), kept AS (
    INSERT INTO records (agent, seq, epoch, kind, version, payload)
    SELECT ({BATCHES.array("key")})[n.place], n.seq, ({BATCHES.array("epoch")})[n.place], n.kind,
        n.version, substring(%(payloads)b::bytea FROM n.start FOR n.size)
    FROM {RECORDS.rows}
    WHERE (SELECT count(*) FROM held) = cardinality({BATCHES.array("key")})
){{parts}}
SELECT CASE WHEN count(*) = cardinality({BATCHES.array("key")}) THEN 0
    ELSE ('agents still owned: ' || count(*))::int4 END{{trust}} FROM held"""  # noqa: S608 - constants
"""Adds batches of different agents: all, or none. See `extended`.

Where not all may be added it fails: the text that is no number is its way to do so, and the
server's log says what it is. Without a join: a planner that knows neither table nor arrays would
compare each row with each. The rows are locked in the order of the keys, as by `LOCK_AGENTS`.

An append that waits for a takeover finds the new epoch
(test_a_commit_waits_for_a_takeover_under_way_and_is_fenced). The owner is compared too: a server
that lost its last commits may have lost a claim, and then two hosts could have the same epoch."""


@cache
def extended(add: str, *parts: str, sees_trust: bool) -> str:
    """`ADD` with further parts: what is changed with the records.

    With `sees_trust` it brings the last number of the log of trust, and locks nothing of it. That
    is as of the beginning of the statement: what is added to the log while it waits for the row of
    an agent is told by a hint, and by the next heartbeat.
    """
    return add.format(
        parts="".join(f", {part}\n" for part in parts),
        trust=f", ({LAST_FACT})" if sees_trust else "",
    )


GONE = Columns("gone", agent="int8", id="text")
TOLD = Columns("reminded", agent="int8", id="text", reminders="int4", escalations="int4")
ASKED = Columns(
    "ask",
    agent="int8",
    id="text",
    kind="text",
    tool="text",
    request_kind="text",
    words="text",
    asked_at="int8",
    expires_at="int8",
    reminders="int4",
    escalations="int4",
    version="int4",
    payload="bytea",
)
PUT_ASKS = f"""gone AS (
    DELETE FROM asks k USING {GONE.rows} WHERE k.agent = n.agent AND k.id = n.id
), told AS (
    UPDATE asks k SET reminders = n.reminders, escalations = n.escalations FROM {TOLD.rows}
    WHERE k.agent = n.agent AND k.id = n.id
), asked AS (
    INSERT INTO asks (definition, {ASKED.names}) SELECT a.definition, {ASKED.selected}
    FROM {ASKED.rows} JOIN agents a ON a.key = n.agent ORDER BY n.nth
)"""  # noqa: S608 - of constants
"""A part of `ADD`: the rows of what agents ask, as `changed_asks` brings them."""
ASKS = "SELECT agent, id, reminders, escalations FROM asks WHERE agent = ANY(%s::int8[])"


ADD_FACT = f"""
WITH added AS (
    INSERT INTO trust (number, at, decided_by, kind, data)
    SELECT %(number)s::int8, %(at)s::int8, %(by)s::text, %(kind)s::text, %(data)s::bytea
    FROM set_config('synchronous_commit', %(commit)s, true)
    WHERE ({LAST_FACT}) = %(number)s::int8 - 1 AND NOT EXISTS (
        SELECT FROM hosts WHERE lease_until > clock_timestamp()
            AND id IS DISTINCT FROM %(own_id)s::int8
            AND %(required)s::text IS NOT NULL AND NOT %(required)s::text = ANY(has))
    ON CONFLICT DO NOTHING RETURNING number
), ended AS (
    UPDATE hosts SET lease_until = '-infinity'
    WHERE EXISTS (SELECT FROM added) AND id IS DISTINCT FROM %(own_id)s::int8
        AND %(required)s::text IS NOT NULL
        AND NOT %(required)s::text = ANY(has) AND lease_until <= clock_timestamp()
    RETURNING id
), fenced AS (
    UPDATE agents SET epoch = epoch + 1, owner = NULL
    WHERE owner IN (SELECT id FROM ended) RETURNING 1
)
SELECT number, (
    SELECT count(pg_notify(channel, 'trust ' || number || ' ')) FROM hosts
    WHERE channel IS NOT NULL AND lease_until > clock_timestamp()
        AND id IS DISTINCT FROM %(own_id)s::int8
) FROM added"""  # noqa: S608 - of constants
"""One statement that commits by itself: a host that is suspended in the middle of a transaction
would keep all others from adding. It is as durable as a claim, whatever other commits are.

Where something is required, each other living host must have it. The leases of others without it
are ended for good, and their agents get a higher epoch. Where it is null, nothing is."""

RELEASE = """
UPDATE agents SET owner = NULL
WHERE agent_id = %s AND incarnation = %s AND epoch = %s AND (owner = %s OR owner IS NULL)
    AND NOT deleted
RETURNING EXISTS (SELECT FROM inbox i WHERE i.agent = agents.key AND i.reply IS NULL)"""
"""Gives up an agent, also one that is released already: the reply to a commit may be lost, and the
release is asked for again."""

NOTE_LOST_ATTEMPT = """
INSERT INTO lost_attempts AS l (agent, run, numbers)
SELECT key, %(run)s, ARRAY[%(number)s::int4] FROM agents WHERE agent_id = %(agent_id)s
ON CONFLICT (agent) DO UPDATE SET run = excluded.run,
    numbers = CASE WHEN l.run = excluded.run THEN l.numbers END || excluded.numbers"""
"""Notes a lost attempt beside the attempts of the same run, and in the place of the attempts of
another run."""

LOST_ATTEMPTS = """
SELECT l.numbers FROM lost_attempts l JOIN agents a ON a.key = l.agent
WHERE a.agent_id = %s AND l.run = %s"""

SETTLED_AGENT = """
SELECT incarnation, epoch, last_seq, index_status, takeable FROM agents
WHERE agent_id = %(agent_id)s FOR SHARE"""
"""Waits until a transaction of ours, left behind by a lost connection, is settled."""

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
"""Makes the planner read along indexes for the rest of the transaction. Else a planner that
believes that few rows fit finds all of them and sorts them, for each page: 100 of 30,000 took 80
ms, along the index 6 ms."""

IN_ITS_SCHEMA = """SET search_path = pg_catalog AS $$ BEGIN
    PERFORM set_config('search_path', quote_ident(TG_TABLE_SCHEMA) || ', pg_catalog', true);"""
"""Begins the body of a function of a trigger, which ends with `END $$`: it looks into the schema of
the table, whatever its name is by now (test_a_schema_with_triggers_may_have_another_name)."""
