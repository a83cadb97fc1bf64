"""The tables of the PostgreSQL store, and the statements on them.

Every name is looked up in the store's own schema (the connection's `search_path`). Statements run
in READ COMMITTED, where an UPDATE that had to wait for a row checks the row's newest version. That
makes a claim, a renewal and an append a compare-and-set.
"""

from __future__ import annotations

from functools import cache

from understudy.journal.contracts import IndexStatus

UPGRADES: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE schema_version (version integer NOT NULL)",
        "INSERT INTO schema_version VALUES (0)",
        # A row is updated in place while its page has room: a heartbeat leaves no dead rows.
        """CREATE TABLE hosts (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            name text NOT NULL,
            opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            lease_until timestamptz NOT NULL
        ) WITH (fillfactor = 50)""",
        # Ids are compared by their bytes, as in the other stores, whatever the database's language.
        # An owner without a row in `hosts` owns nothing: so a host releases all agents at once.
        """CREATE TABLE agents (
            key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            agent_id text COLLATE "C" NOT NULL UNIQUE,
            agent text NOT NULL,
            incarnation bigint NOT NULL DEFAULT 1,
            epoch bigint NOT NULL DEFAULT 1,
            last_seq bigint NOT NULL DEFAULT 0,
            floor bigint NOT NULL DEFAULT 0,
            standing text NOT NULL DEFAULT 'rest',
            deleted boolean NOT NULL DEFAULT false,
            owner bigint
        ) WITH (fillfactor = 70)""",
        "CREATE INDEX agents_by_standing ON agents (standing, agent_id) WHERE NOT deleted",
        """CREATE TABLE records (
            agent bigint NOT NULL,
            seq bigint NOT NULL,
            incarnation bigint NOT NULL,
            epoch bigint NOT NULL,
            kind text NOT NULL,
            version integer NOT NULL,
            payload bytea NOT NULL,
            PRIMARY KEY (agent, seq)
        )""",
    ),
    (
        # `due`, `status` and the rows of `asks`, of which there are `asking`, hold if `indexed_seq`
        # is `last_seq`: a host of the version before writes none of them. `indexed_seq` is in no
        # index: an append that changes neither status nor due time writes no index.
        "ALTER TABLE agents ADD COLUMN due bigint",
        "ALTER TABLE agents ADD COLUMN indexed_seq bigint NOT NULL DEFAULT 0",
        """CREATE INDEX agents_by_due ON agents (due, agent_id)
            WHERE due IS NOT NULL AND NOT deleted""",
        "ALTER TABLE agents ADD COLUMN status text NOT NULL DEFAULT 'idle'",
        "ALTER TABLE agents ADD COLUMN status_at bigint",
        "ALTER TABLE agents ADD COLUMN asking integer NOT NULL DEFAULT 0",
        "CREATE INDEX agents_by_status ON agents (status, agent_id) WHERE NOT deleted",
        "CREATE INDEX agents_by_name ON agents (agent, agent_id) WHERE NOT deleted",
        """CREATE INDEX agents_by_change ON agents (status_at, agent_id)
            WHERE status_at IS NOT NULL AND NOT deleted""",
        # What agents ask; `name` is the definition of the agent. `expires_at` is the largest number
        # for what does not expire. `version` and `payload` are those of the record that asks.
        """CREATE TABLE asks (
            no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            agent bigint NOT NULL,
            id text COLLATE "C" NOT NULL,
            name text NOT NULL,
            kind text NOT NULL,
            tool text NOT NULL,
            asked_at bigint NOT NULL,
            expires_at bigint NOT NULL,
            reminders integer NOT NULL,
            escalations integer NOT NULL,
            version integer NOT NULL,
            payload bytea NOT NULL,
            UNIQUE (agent, id)
        )""",
        "CREATE INDEX asks_by_age ON asks (kind, asked_at, no)",
        "CREATE INDEX asks_by_expiry ON asks (kind, expires_at, no)",
        "CREATE INDEX asks_by_tool ON asks (kind, tool, asked_at, no)",
        "CREATE INDEX asks_by_name ON asks (kind, name, asked_at, no)",
        # The feed. The order of numbers is not the order of commits: rows are read in the order of
        # their transactions, below the oldest one that is open. `floor_xid` and `floor` are the
        # last row that was removed. `seq` is 0 for a deletion.
        """CREATE TABLE feed (
            xid bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
            no bigint GENERATED ALWAYS AS IDENTITY,
            agent_id text NOT NULL,
            name text NOT NULL,
            seq bigint NOT NULL,
            at bigint,
            kind text NOT NULL,
            version integer NOT NULL,
            payload bytea NOT NULL,
            PRIMARY KEY (xid, no)
        )""",
        """CREATE TABLE feed_state (
            is_on boolean NOT NULL,
            feed text NOT NULL,
            floor_xid bigint NOT NULL,
            floor bigint NOT NULL
        )""",
        "INSERT INTO feed_state VALUES (false, md5(clock_timestamp()::text), 0, 0)",
        # The attempts at one run of each agent that were cut off by a takeover while their host
        # lived. Apart from `agents`: whoever was fenced must not lock the new owner's row.
        """CREATE TABLE lost_attempts (
            agent bigint PRIMARY KEY,
            run text NOT NULL,
            numbers integer[] NOT NULL
        )""",
        # One of each agent. A host of the version before deletes none: so a checkpoint holds for
        # its incarnation, from the floor up.
        """CREATE TABLE checkpoints (
            agent bigint PRIMARY KEY,
            incarnation bigint NOT NULL,
            seq bigint NOT NULL,
            head bytea NOT NULL,
            crc bigint NOT NULL
        )""",
        """CREATE TABLE checkpoint_segments (
            agent bigint NOT NULL,
            number integer NOT NULL,
            messages integer NOT NULL,
            payload bytea NOT NULL,
            crc bigint NOT NULL,
            PRIMARY KEY (agent, number)
        )""",
        # Whether nothing of the agent goes on: then another host may take it from a living owner.
        # As `due`, it holds if `indexed_seq` is `last_seq`.
        "ALTER TABLE agents ADD COLUMN takeable boolean NOT NULL DEFAULT false",
        # The channel on which a host listens; null: it is never taken from, and nothing is posted
        # to it, as to one of the version before.
        "ALTER TABLE hosts ADD COLUMN ear text",
        # Calls of one host to an agent that runs at another one. `id` is the order in which those
        # of one agent are done. `nonce` tells a call that is posted again because the answer to the
        # commit was lost. `reply` is null until it is done. `begun`: it is done once at most, and
        # this attempt has begun it.
        """CREATE TABLE inbox (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            agent bigint NOT NULL,
            incarnation bigint NOT NULL,
            nonce text NOT NULL UNIQUE,
            kind text NOT NULL,
            body bytea NOT NULL,
            asker bigint NOT NULL,
            asked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            begun text,
            reply bytea
        )""",
        "CREATE INDEX inbox_by_agent ON inbox (agent, id) WHERE reply IS NULL",
        # Which process a host is, where that is known (see `understudy._base.processes`), and what
        # it has.
        "ALTER TABLE hosts ADD COLUMN place text",
        "ALTER TABLE hosts ADD COLUMN pid bigint",
        "ALTER TABLE hosts ADD COLUMN started bigint",
        "ALTER TABLE hosts ADD COLUMN labels text[] NOT NULL DEFAULT '{}'",
        "ALTER TABLE hosts ADD COLUMN definitions bigint[] NOT NULL DEFAULT '{}'",
        "ALTER TABLE hosts ADD COLUMN draining boolean NOT NULL DEFAULT false",
        # The definitions that hosts have, or had. Of one version, the one with the higher `no` is
        # newer. `needs` and `continues_older` are as the last host of it said.
        """CREATE TABLE definitions (
            no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            agent text COLLATE "C" NOT NULL,
            fingerprint text COLLATE "C" NOT NULL,
            version bigint NOT NULL,
            needs text[] NOT NULL,
            continues_older boolean NOT NULL,
            UNIQUE (agent, fingerprint)
        )""",
        # The fingerprint under which the open run was begun; null: none is open, or it is unknown.
        # As `due`, it holds if `indexed_seq` is `last_seq`.
        "ALTER TABLE agents ADD COLUMN run_version text",
        """CREATE INDEX agents_with_open_run ON agents (agent_id)
            WHERE run_version IS NOT NULL AND NOT deleted""",
        # The bytes of files. A host of the version before deletes none where it compacts or deletes
        # an agent: the next compaction or deletion by a newer one does.
        """CREATE TABLE blobs (
            agent bigint NOT NULL,
            hash bytea NOT NULL,
            payload bytea NOT NULL,
            PRIMARY KEY (agent, hash)
        )""",
    ),
)
"""The n-th upgrades version n of the tables to n + 1. Only add to tables: hosts of the version
before may continue to write."""

SERVER = "SELECT getdatabaseencoding(), current_setting('fsync')"
LOCK_SCHEMA = "SELECT pg_advisory_xact_lock(x'756e64657273'::bigint)"
"""Held by the host that makes or upgrades the tables."""
VERSION_TABLE = """
SELECT EXISTS (
    SELECT FROM pg_class WHERE relname = 'schema_version' AND relnamespace = n.oid
) FROM pg_namespace n WHERE nspname = %s"""
"""Whether there is the schema (a row), and the table (its value). From the catalogue itself:
`to_regclass` and its like read a cache, which lacks what another host made while we waited for its
lock (test_several_hosts_may_open_a_new_store_at_once)."""
VERSION = "SELECT version FROM schema_version"
SET_VERSION = "UPDATE schema_version SET version = %s"

INSERT_HOST = """
INSERT INTO hosts (name, ear, lease_until)
VALUES (%s, %s, clock_timestamp() + make_interval(secs => %s))
RETURNING id, extract(epoch FROM lease_until - clock_timestamp())::float8,
    extract(epoch FROM clock_timestamp())::float8, (SELECT is_on FROM feed_state)"""

DELETE_OLD_HOSTS = "DELETE FROM hosts WHERE lease_until < clock_timestamp() - interval '1 day'"

DELETE_HOST = """
WITH gone AS (DELETE FROM hosts WHERE id = %(id)s)
SELECT pg_notify(h.ear, %(told)s) FROM hosts h
WHERE h.id <> %(id)s AND h.ear IS NOT NULL AND h.lease_until > clock_timestamp() AND (EXISTS (
    SELECT FROM agents a WHERE a.standing IN ('open', 'queued', 'suspect')
        AND NOT a.deleted AND (a.owner IS NULL OR a.owner = %(id)s)
) OR EXISTS (
    SELECT FROM agents a
    WHERE a.due < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 60000000
        AND NOT a.deleted AND (a.owner IS NULL OR a.owner = %(id)s)
))"""
"""Tells the others where something is left to go on with, or due before a sweep finds it
(test_a_run_that_a_host_leaves_goes_on_elsewhere_without_a_sweep,
test_what_is_due_at_a_host_that_leaves_comes_at_another_one)."""

RENEW = """
UPDATE hosts SET lease_until = clock_timestamp() + make_interval(secs => %s)
WHERE id = %s AND lease_until > '-infinity'
RETURNING extract(epoch FROM lease_until - clock_timestamp())::float8,
    extract(epoch FROM clock_timestamp())::float8, (SELECT is_on FROM feed_state)"""
"""Also after the lease has ended, unless another host has marked this one as expired
(`EXPIRE_HOST`): each claim of an agent of this host does so first, so without the mark it still
owns them all. That is how an owner continues after an outage that was longer than its lease
(test_an_owner_goes_on_after_an_outage_that_is_longer_than_its_lease)."""

NAME_SESSION = """
SELECT pg_advisory_unlock_all(), pg_advisory_lock_shared(
    (SELECT oid::int4 FROM pg_namespace WHERE nspname = current_schema()),
    (%s::int8 & 2147483647)::int4)"""
"""Says whose session this is, until it ends. Shared: it never waits."""

_END_SESSIONS = """
SELECT pg_terminate_backend(l.pid)
FROM hosts h
JOIN pg_locks l ON l.objid = (h.id & 2147483647)::oid
JOIN pg_stat_activity a ON a.pid = l.pid
WHERE h.lease_until <= clock_timestamp() AND h.id {which}
    AND l.locktype = 'advisory' AND l.objsubid = 2
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND l.classid = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
    AND pg_has_role(a.usesysid, 'USAGE')"""

END_SESSIONS = _END_SESSIONS.format(which="<> %s")
"""End the sessions of all other hosts whose lease has ended, as far as this user may: their
transactions are rolled back, and what they have locked is free
(test_an_owner_that_is_stopped_in_the_middle_of_a_commit_does_not_keep_its_agents_locked)."""

END_SUSPENDED_SESSION = (
    _END_SESSIONS.format(which="= %s")
    + " AND a.wait_event = 'ClientRead' AND a.xact_start < h.lease_until"
)
"""End the session of one such host, if the server has waited for its client since before the lease
ended, in the middle of a transaction: the client is suspended, and has locked agents
(test_a_takeover_does_not_wait_for_an_owner_that_is_stopped_in_a_commit)."""

OWNERSHIP = """
SELECT a.incarnation, a.epoch, a.deleted, a.owner, h.name,
    CASE WHEN h.lease_until > '-infinity' THEN h.lease_until > clock_timestamp() END,
    (SELECT lease_until > clock_timestamp() FROM hosts
        WHERE id = %s AND lease_until > '-infinity'),
    CASE a.indexed_seq WHEN a.last_seq THEN a.run_version END,
    a.takeable AND a.indexed_seq = a.last_seq AND h.ear IS NOT NULL
FROM (VALUES (%s::text)) AS requested (agent_id)
LEFT JOIN agents a USING (agent_id) LEFT JOIN hosts h ON h.id = a.owner"""
"""Who owns an agent, whether that lease and our own hold (null: it is lost), and whether it may be
taken from a living owner. It locks nothing: a claim that is refused must block neither the owner's
writes nor its heartbeat
(test_a_refused_claim_holds_up_neither_the_owner_nor_its_heartbeat)."""

EXPIRE_HOST = """
UPDATE hosts SET lease_until = '-infinity'
WHERE id = %s AND lease_until <= clock_timestamp() RETURNING id"""
"""Mark a host as expired, if its lease has ended. It waits for a renewal under way and then checks
again. A later renewal finds the mark, even if the clock was set back
(test_a_host_judged_dead_stays_dead_though_the_clock_be_set_back)."""

INSERT_AGENT = """
INSERT INTO agents (agent_id, agent, owner) VALUES (%s, %s, %s)
ON CONFLICT (agent_id) DO NOTHING RETURNING incarnation, epoch, last_seq, agent, key, false"""

_TAKEABLE = """
    AND (NOT %(take)s OR (takeable AND indexed_seq = last_seq))"""
"""Judged in the statement that takes, which waits for an append under way and judges its row
(test_a_take_that_waits_for_an_append_judges_what_that_has_written)."""

CLAIM = f"""
UPDATE agents SET owner = %(own_id)s, epoch = epoch + 1, deleted = false,
    agent = CASE WHEN deleted THEN %(agent)s ELSE agent END,
    incarnation = incarnation + deleted::integer
WHERE agent_id = %(agent_id)s AND epoch = %(epoch)s AND incarnation = %(incarnation)s
    AND owner IS NOT DISTINCT FROM %(owner)s AND deleted = %(deleted)s{_TAKEABLE}
RETURNING incarnation, epoch, last_seq, agent, key,
    EXISTS (SELECT FROM inbox i WHERE i.agent = agents.key AND i.reply IS NULL)"""  # noqa: S608 - of a constant

TELL_OWNER = """
SELECT pg_notify(ear, %s) FROM hosts WHERE id = %s AND ear IS NOT NULL"""
"""A hint: whoever is told something looks into the tables."""

SEND = """
SELECT pg_notify(ear, text) FROM (
    SELECT h.ear, s.text
    FROM unnest(%(ids)s::bigint[], %(texts)s::text[]) WITH ORDINALITY AS s (host, text, place)
    JOIN hosts h ON h.id = s.host OR (s.host IS NULL AND h.id IS DISTINCT FROM %(own_id)s)
    WHERE h.ear IS NOT NULL AND h.lease_until > clock_timestamp()
    ORDER BY s.place
) listeners"""
"""To hosts, or to all but this one."""

DELETE_AGENT = f"""
UPDATE agents SET owner = NULL, deleted = true, last_seq = 0, floor = 0, standing = 'rest',
    due = NULL, indexed_seq = 0, status = 'idle', status_at = NULL, asking = 0, run_version = NULL,
    takeable = false
WHERE agent_id = %(agent_id)s AND epoch = %(epoch)s AND incarnation = %(incarnation)s
    AND owner IS NOT DISTINCT FROM %(owner)s AND NOT deleted{_TAKEABLE}
RETURNING key"""  # noqa: S608 - of a constant
"""The row stays as the tombstone. `DELETE_RECORDS` deletes the records: a statement of its own,
which sees what was added while this one waited for the row
(test_a_deletion_takes_what_was_committed_while_it_waited)."""

REPLY_TO_DELETED = """
UPDATE inbox SET reply = CASE kind WHEN 'delete' THEN %(deleted)s::bytea ELSE %(unknown)s END
WHERE agent = %(key)s AND reply IS NULL"""
"""What waits for an agent that is deleted is never done to the next one of its id."""
DELETE_RECORDS = "DELETE FROM records WHERE agent = %s"
DELETE_ASKS = "DELETE FROM asks WHERE agent = %s"
DELETE_LOST_ATTEMPTS = "DELETE FROM lost_attempts WHERE agent = %s"

DELETE_CHECKPOINT = "DELETE FROM checkpoints WHERE agent = %s"
DELETE_SEGMENTS = "DELETE FROM checkpoint_segments WHERE agent = %s AND number >= %s"

DELETE_BLOBS = "DELETE FROM blobs WHERE agent = %s AND NOT hash = ANY(%s::bytea[])"
ADD_BLOBS = """
INSERT INTO blobs (agent, hash, payload)
SELECT %s, b.hash, b.payload FROM unnest(%s::bytea[], %s::bytea[]) AS b (hash, payload)
ON CONFLICT DO NOTHING"""
READ_BLOBS = """
SELECT b.hash, b.payload FROM blobs b JOIN agents a ON a.key = b.agent
WHERE a.agent_id = %(agent_id)s AND NOT a.deleted
    AND (%(hashes)s::bytea[] IS NULL OR b.hash = ANY(%(hashes)s::bytea[]))"""

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
        standing = (%(standings)b::text[])[{_PLACE}],
        due = nullif((%(dues)b::int8[])[{_PLACE}], -1),
        indexed_seq = (%(last_seqs)b::int8[])[{_PLACE}],
        takeable = (%(takeables)b::bool[])[{_PLACE}],
        status = (%(statuses)b::text[])[{_PLACE}],
        run_version = (%(run_versions)b::text[])[{_PLACE}],
        status_at = CASE
            WHEN (%(noted)b::bool[])[{_PLACE}] OR a.last_seq = 0
                OR a.status <> (%(statuses)b::text[])[{_PLACE}]
            THEN nullif((%(ats)b::int8[])[{_PLACE}], -1) ELSE a.status_at END
    WHERE a.key = ANY(%(keys)b::int8[]) AND a.owner = %(owner)b::int8 AND NOT a.deleted
        AND a.incarnation = (%(incarnations)b::int8[])[{_PLACE}]
        AND a.epoch = (%(epochs)b::int8[])[{_PLACE}]
        AND a.last_seq = (%(befores)b::int8[])[{_PLACE}]
    RETURNING {_PLACE} AS place, a.asking
), kept AS ({_INSERT}
    WHERE (SELECT count(*) FROM held) = cardinality(%(keys)b::int8[])
)
SELECT place, asking FROM held"""  # noqa: S608 - of the constants above
"""Which batches may be added, counted from 1, and how many rows of `asks` their agents have; if all
may, it adds them. Without a join: a planner
that knows neither table nor arrays would compare each row with each. The rows are locked in the
order of the keys, so two hosts with the same agents do not deadlock.

An append that waits for a takeover finds the new epoch
(test_a_commit_waits_for_a_takeover_under_way_and_is_fenced). The owner is compared too: a server
that lost its last commits may have lost a claim, and then two hosts could have the same epoch."""

ADD_RECORDS = _INSERT
"""The records of the batches that may be added, if not all may."""

REFUSED_AGENTS = """
SELECT a.agent_id, a.incarnation, a.epoch, a.last_seq, a.deleted, a.owner, h.name
FROM agents a LEFT JOIN hosts h ON h.id = a.owner WHERE a.agent_id = ANY(%s)"""
"""From these rows follows why a batch was not added."""

SET_FLOOR = "UPDATE agents SET floor = %s WHERE agent_id = %s RETURNING key"
DELETE_RECORDS_BELOW = "DELETE FROM records WHERE agent = %s AND seq < %s"

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
SELECT incarnation, epoch, last_seq, standing, takeable FROM agents WHERE agent_id = %s
FOR SHARE"""
"""Waits until a transaction of ours, left behind by a lost connection, is settled."""

# ------------------------------------------------------------------- calls of other hosts

POST = """
WITH place AS (
    SELECT a.key, a.incarnation, h.ear FROM agents a JOIN hosts h ON h.id = a.owner
    WHERE a.agent_id = %(agent_id)s AND a.incarnation = %(incarnation)s AND NOT a.deleted
        AND h.lease_until > clock_timestamp() AND h.ear IS NOT NULL
), rows AS (
    INSERT INTO inbox (agent, incarnation, nonce, kind, body, asker)
    SELECT place.key, place.incarnation, n.nonce, n.kind, n.body, %(own_id)s
    FROM place, unnest(%(nonces)s::text[], %(kinds)s::text[], %(bodies)s::bytea[]) WITH ORDINALITY
        AS n (nonce, kind, body, nth) ORDER BY n.nth
    ON CONFLICT (nonce) DO UPDATE SET nonce = excluded.nonce
    RETURNING id
)
SELECT id, (SELECT pg_notify(ear, %(told)s) IS NULL FROM place) FROM rows ORDER BY id"""
"""No rows where no living host that listens owns the agent by now."""

TELL_ASKERS = """
SELECT pg_notify(h.ear, %s) FROM hosts h
WHERE h.ear IS NOT NULL AND h.id IN (
    SELECT i.asker FROM inbox i JOIN agents a ON a.key = i.agent
    WHERE a.agent_id = %s AND i.reply IS NULL)"""
"""The agent is released, or deleted: who has posted to it looks at once."""

_POSTED = """
SELECT i.id, a.agent_id, i.kind, i.body, i.asker, i.begun IS NOT NULL
FROM agents a CROSS JOIN LATERAL (
    SELECT *, row_number() OVER (ORDER BY i.id) AS nth FROM inbox i
    WHERE i.agent = a.key AND i.incarnation = a.incarnation AND i.reply IS NULL
        AND i.id <> ALL(%(in_hand)s::bigint[])
        AND (a.agent_id <> ALL(%(full)s::text[]) OR i.kind <> ALL(%(queueing)s::text[]))
    ORDER BY i.id LIMIT %(limit)s
) i
WHERE a.owner = %(own_id)s AND NOT a.deleted AND {which}
ORDER BY i.nth, i.id LIMIT %(limit)s"""
"""The first ones of each agent, and of each the first ones first: one to which thousands are posted
keeps no other waiting.

From the begin of what has no reply, not from where the last read ended: the order of numbers is not
the order of commits, so a row may be seen late. What has its reply is in the index no more: of
10,000 posts to one agent each cost 10 of its entries and 0.06 ms of 2 ms. Where 10,000 wait for
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
SELECT pg_notify(h.ear, %(told)s) FROM hosts h JOIN replied ON h.id = replied.asker
WHERE h.ear IS NOT NULL"""

POST_STATES = """
SELECT i.id, i.reply, i.begun IS NOT NULL,
    a.owner IS NULL OR h.lease_until IS NULL OR h.lease_until <= clock_timestamp(),
    a.takeable AND a.indexed_seq = a.last_seq, a.epoch
FROM inbox i JOIN agents a ON a.key = i.agent LEFT JOIN hosts h ON h.id = a.owner
WHERE i.id = ANY(%s)"""

RETELL = """
SELECT pg_notify(h.ear, %s || a.agent_id)
FROM inbox i JOIN agents a ON a.key = i.agent JOIN hosts h ON h.id = a.owner
WHERE i.id = %s AND h.ear IS NOT NULL"""
REMOVE_POSTS = "DELETE FROM inbox WHERE id = ANY(%s) AND reply IS NOT NULL"
WITHDRAW = "DELETE FROM inbox WHERE id = ANY(%s) AND reply IS NULL RETURNING id, begun IS NOT NULL"
"""Of this and `REPLY`, the one that comes first wins."""
DELETE_LOST_REPLIES = """
DELETE FROM inbox i WHERE i.reply IS NOT NULL
    AND i.asked_at < clock_timestamp() - interval '1 hour' AND NOT EXISTS (
        SELECT FROM hosts h WHERE h.id = i.asker AND h.lease_until > clock_timestamp())"""
"""Nobody waits for them any more. A host that has lost its lease may."""
ORPHANS = """
SELECT DISTINCT a.agent_id, a.agent FROM inbox i
JOIN agents a ON a.key = i.agent AND a.incarnation = i.incarnation
LEFT JOIN hosts h ON h.id = a.owner
WHERE i.reply IS NULL AND NOT a.deleted AND NOT coalesce(h.lease_until > clock_timestamp(), false)
LIMIT %s"""
"""Agents without an owner that somebody has posted to, who may be gone as well."""

PLACE = """
SELECT a.incarnation, a.epoch, a.last_seq, a.owner,
    CASE WHEN h.lease_until > clock_timestamp() THEN h.name END,
    h.ear IS NOT NULL, a.takeable AND a.indexed_seq = a.last_seq, a.agent
FROM agents a LEFT JOIN hosts h ON h.id = a.owner WHERE a.agent_id = %s AND NOT a.deleted"""

EPOCHS = "SELECT agent_id, epoch FROM agents WHERE agent_id = ANY(%s) AND NOT deleted"

READ_BACK = """
SELECT r.seq, r.incarnation, r.epoch, r.kind, r.version, r.payload
FROM records r JOIN agents a ON a.key = r.agent
WHERE a.agent_id = %s AND r.seq BETWEEN %s AND %s ORDER BY r.seq"""

_COLUMNS = """
SELECT a.agent_id, a.agent, a.incarnation, a.epoch, a.last_seq, a.floor, a.standing,
    CASE WHEN h.lease_until > clock_timestamp() THEN h.name END,
    CASE a.indexed_seq WHEN a.last_seq THEN a.due END,
    CASE a.indexed_seq WHEN a.last_seq THEN a.status END,
    CASE a.indexed_seq WHEN a.last_seq THEN a.status_at END,
    CASE a.indexed_seq WHEN a.last_seq THEN a.run_version END
FROM agents a LEFT JOIN hosts h ON h.id = a.owner WHERE NOT a.deleted"""

AGENT = f"{_COLUMNS} AND a.agent_id = %s"
FOUND_AGENTS = f"{_COLUMNS} AND a.agent_id = ANY(%s)"

AGENTS = f"{_COLUMNS} AND a.agent_id > %s ORDER BY a.agent_id LIMIT %s"


@cache
def agents_of(statuses: frozenset[IndexStatus]) -> str:
    """As `AGENTS`, those of these index statuses.

    They are in the text, and no parameter: with one plan for all values, the server may look at all
    agents, while those that are not at rest are few.
    """
    words = ", ".join(sorted(f"'{status.value}'" for status in statuses))
    return (
        f"{_COLUMNS} AND a.standing IN ({words}) AND a.agent_id > %s ORDER BY a.agent_id LIMIT %s"
    )


DUE = (
    f"{_COLUMNS} AND a.due IS NOT NULL AND a.due <= %s AND (a.due, a.agent_id) > (%s, %s)"
    " AND a.indexed_seq = a.last_seq ORDER BY a.due, a.agent_id LIMIT %s"
)
UNINDEXED = (
    f"{_COLUMNS} AND a.agent_id > %s AND a.indexed_seq <> a.last_seq ORDER BY a.agent_id LIMIT %s"
)
HOSTS_SO_FAR = """
SELECT last_value FROM pg_sequences
WHERE schemaname = current_schema() AND sequencename = 'hosts_id_seq' AND NOT EXISTS (
    SELECT FROM hosts WHERE ear IS NULL AND place IS NULL AND lease_until > '-infinity')"""
"""Null or no row where a host of the version before may write: it says neither how it is reached
nor where it runs. Null also for a user who may not read the sequence."""
NOTE_INDEX = """
UPDATE agents SET indexed_seq = last_seq, due = %s, status = %s, status_at = %s, run_version = %s
WHERE agent_id = %s AND incarnation = %s AND last_seq = %s AND NOT deleted RETURNING key"""

FIND_IN_ORDER = """
SELECT set_config(name, 'off', true)
FROM unnest(ARRAY['enable_sort', 'enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin',
    'enable_mergejoin']) AS name"""
"""For the rest of the transaction. Else a planner that believes that few rows fit finds all of them
and sorts them, for each page: 100 of 30,000 took 80 ms, along the index 6 ms."""
LISTED_AGENTS = _COLUMNS
"""Conditions, an order and a limit follow."""
COUNTED_AGENTS = "SELECT status, count(*) FROM agents WHERE NOT deleted GROUP BY status"
LISTED_ASKS = """
SELECT k.no, a.agent_id, k.name, k.kind, k.tool, k.asked_at, k.expires_at, k.reminders,
    k.escalations, k.version, k.payload
FROM asks k JOIN agents a ON a.key = k.agent
WHERE NOT a.deleted AND a.indexed_seq = a.last_seq AND k.kind = %s"""
"""Conditions, an order and a limit follow."""

ASKS = "SELECT agent, id, reminders, escalations FROM asks WHERE agent = ANY(%s)"
DELETE_ANSWERED = """
DELETE FROM asks k USING unnest(%s::int8[], %s::text[]) AS gone (agent, id)
WHERE k.agent = gone.agent AND k.id = gone.id"""
INSERT_ASKS = """
INSERT INTO asks (agent, id, name, kind, tool, asked_at, expires_at, reminders, escalations,
    version, payload)
SELECT n.agent, n.id, a.agent, n.kind, n.tool, n.asked_at, n.expires_at, n.reminders,
    n.escalations, n.version, n.payload
FROM unnest(%s::int8[], %s::text[], %s::text[], %s::text[], %s::int8[], %s::int8[], %s::int4[],
    %s::int4[], %s::int4[], %s::bytea[]) WITH ORDINALITY AS n (agent, id, kind, tool, asked_at,
    expires_at, reminders, escalations, version, payload, place)
JOIN agents a ON a.key = n.agent ORDER BY n.place"""
UPDATE_ASKS = """
UPDATE asks k SET reminders = n.reminders, escalations = n.escalations
FROM unnest(%s::int8[], %s::text[], %s::int4[], %s::int4[]) AS n (agent, id, reminders, escalations)
WHERE k.agent = n.agent AND k.id = n.id"""
SET_ASKING = """
UPDATE agents a SET asking = n.asking FROM unnest(%s::int8[], %s::int4[]) AS n (agent, asking)
WHERE a.key = n.agent"""

_XMIN = "pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
"""Every transaction below it has ended. Of the rows below it none can be added any more."""

ADD_TO_FEED = """
INSERT INTO feed (agent_id, name, seq, at, kind, version, payload)
SELECT n.agent_id, n.name, n.seq, nullif(n.at, -1), n.kind, n.version, n.payload
FROM unnest(%s::text[], %s::text[], %s::int8[], %s::int8[], %s::text[], %s::int4[], %s::bytea[])
    WITH ORDINALITY AS n (agent_id, name, seq, at, kind, version, payload, place)
ORDER BY n.place"""
ADD_DELETION_TO_FEED = """
INSERT INTO feed (agent_id, name, seq, at, kind, version, payload)
SELECT agent_id, agent, 0, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, 'deleted', 1,
    '' FROM agents WHERE key = %s"""
TURN_FEED_ON = """
UPDATE feed_state SET is_on = true, feed = CASE
    WHEN EXISTS (SELECT FROM feed WHERE xid > pg_current_xact_id()::text::bigint)
    THEN md5(clock_timestamp()::text) ELSE feed END"""
TURN_FEED_OFF = """
UPDATE feed_state
SET is_on = false, feed = md5(clock_timestamp()::text), floor_xid = 0, floor = 0"""
EMPTY_FEED = "DELETE FROM feed"
DELETE_FOREIGN_FEED = "DELETE FROM feed WHERE xid > pg_current_xact_id()::text::bigint"
"""Rows that were restored from a dump of a server whose transactions had got further."""
TRIM_FEED = f"""
WITH last AS (
    SELECT xid, no FROM (
        (SELECT xid, no FROM feed WHERE at < %s AND xid < {_XMIN} ORDER BY xid DESC, no DESC
            LIMIT 1)
        UNION ALL
        (SELECT xid, no FROM feed WHERE xid < {_XMIN} ORDER BY xid DESC, no DESC
            LIMIT 1 OFFSET %s)
    ) AS each ORDER BY xid DESC, no DESC LIMIT 1
), gone AS (
    DELETE FROM feed USING last WHERE (feed.xid, feed.no) <= (last.xid, last.no)
)
UPDATE feed_state SET floor_xid = last.xid, floor = last.no FROM last
WHERE (feed_state.floor_xid, feed_state.floor) < (last.xid, last.no)"""  # noqa: S608 - constants
FEED_STATE = f"SELECT feed, floor_xid, floor, {_XMIN} FROM feed_state WHERE is_on"  # noqa: S608
READ_FEED = f"""
SELECT xid, no, agent_id, name, seq, at, kind, version, payload FROM feed
WHERE (xid, no) > (%s, %s) AND xid < {_XMIN} ORDER BY xid, no LIMIT %s"""  # noqa: S608

RECORDS = """
SELECT r.kind, r.version, r.payload FROM records r JOIN agents a ON a.key = r.agent
WHERE a.agent_id = %s AND NOT a.deleted AND r.seq > %s ORDER BY r.seq"""

HAS_TEXT = """
SELECT EXISTS (
    SELECT FROM records r JOIN agents a ON a.key = r.agent
    WHERE a.agent_id = %s AND NOT a.deleted AND r.kind = ANY(%s)
    AND position(%s::bytea IN r.payload) > 0)"""

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

_CHECKPOINT = """
FROM agents a JOIN checkpoints c ON c.agent = a.key AND c.incarnation = a.incarnation
    AND c.seq BETWEEN a.floor AND a.last_seq
WHERE a.agent_id = %s AND NOT a.deleted"""

CHECKPOINT_SEQ = f"SELECT c.seq {_CHECKPOINT}"
CHECKPOINT = f"SELECT c.seq, c.head, c.crc {_CHECKPOINT}"
SEGMENTS = f"""
SELECT s.number, s.messages, s.payload, s.crc FROM checkpoint_segments s
WHERE s.agent = (SELECT c.agent {_CHECKPOINT}) ORDER BY s.number"""  # noqa: S608 - of a constant
RECORDS_BEHIND = f"""
SELECT r.kind, r.version, r.payload FROM records r JOIN agents a ON a.key = r.agent
WHERE a.agent_id = %s AND NOT a.deleted
    AND r.seq > coalesce((SELECT c.seq {_CHECKPOINT}), 0) ORDER BY r.seq"""  # noqa: S608 - as above
"""The records behind the checkpoint; all of them where there is none."""
