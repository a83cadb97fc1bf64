"""What the PostgreSQL store says to its database: the tables, and the statements on them.

Every name is looked up in the store's own schema (the connection's `search_path`). Statements run
in READ COMMITTED, where an UPDATE that had to wait for a row judges the row's newest version: a
claim, a renewal and an append are compare-and-set because of that.
"""

from __future__ import annotations

__all__ = [
    "ADD",
    "ADD_REST",
    "AGENTS",
    "BECOME_HOST",
    "BEGIN_AGENT",
    "BURY",
    "CREATE_LOCK",
    "DROP_BELOW",
    "DROP_RECORDS",
    "END_HOST",
    "FORGET_HOSTS",
    "KEYS",
    "LEAVE",
    "LOAD_RECORDS",
    "LOOK",
    "LOOK_AGAIN",
    "NOTE_VERSION",
    "READ_BACK",
    "RELEASE",
    "RENEW",
    "SERVER",
    "SETTLED",
    "SET_FLOOR",
    "STORED",
    "TAKE",
    "UPGRADES",
    "VERSION",
    "VERSION_TABLE",
]

UPGRADES: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE schema_version (version integer NOT NULL)",
        "INSERT INTO schema_version VALUES (0)",
        # A row is updated in place as long as its page has room: a heartbeat leaves no garbage.
        """CREATE TABLE hosts (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            name text NOT NULL,
            opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            lease_until timestamptz NOT NULL
        ) WITH (fillfactor = 50)""",
        # Ids are compared by their bytes, as in the other stores, whatever the database's language.
        # An owner whose row in `hosts` is gone is nobody: that is how a host gives up all at once.
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
)
"""The n-th makes version n + 1 of the tables out of version n. Only ever add to them: hosts with
the version before may go on writing meanwhile."""

SERVER = "SELECT getdatabaseencoding(), current_setting('fsync')"
CREATE_LOCK = "SELECT pg_advisory_xact_lock(x'756e64657273'::bigint)"
"""Held by who makes or upgrades the tables."""
VERSION_TABLE = """
SELECT EXISTS (
    SELECT FROM pg_class WHERE relname = 'schema_version' AND relnamespace = n.oid
) FROM pg_namespace n WHERE nspname = %s"""
"""Asked of the catalogue itself: `to_regclass` and its like answer from a cache, which does not
hear of what another host made while we waited for its lock."""
VERSION = "SELECT version FROM schema_version"
NOTE_VERSION = "UPDATE schema_version SET version = %s"

BECOME_HOST = """
INSERT INTO hosts (name, lease_until)
VALUES (%s, clock_timestamp() + make_interval(secs => %s))
RETURNING id, extract(epoch FROM lease_until - clock_timestamp())::float8"""

FORGET_HOSTS = "DELETE FROM hosts WHERE lease_until < clock_timestamp() - interval '1 day'"

LEAVE = "DELETE FROM hosts WHERE id = %s"

RENEW = """
UPDATE hosts SET lease_until = clock_timestamp() + make_interval(secs => %s)
WHERE id = %s AND lease_until > clock_timestamp()
RETURNING extract(epoch FROM lease_until - clock_timestamp())::float8"""

LOOK = """
SELECT a.incarnation, a.epoch, a.deleted, a.owner, h.name, h.lease_until > clock_timestamp(),
    EXISTS (SELECT FROM hosts WHERE id = %s AND lease_until > clock_timestamp())
FROM (VALUES (%s::text)) AS wanted (agent_id)
LEFT JOIN agents a USING (agent_id) LEFT JOIN hosts h ON h.id = a.owner"""
"""Who owns an agent, and whether we are alive ourselves. It locks nothing: a claim that is going to
be refused must hold up neither the owner's writes nor its heartbeat."""

END_HOST = """
UPDATE hosts SET lease_until = '-infinity'
WHERE id = %s AND lease_until <= clock_timestamp() RETURNING id"""
"""Declare a host dead, if its lease has ended. It waits for a renewal that is under way and then
judges anew; and a renewal that comes later finds the host dead, even if the clock was set back."""

BEGIN_AGENT = """
INSERT INTO agents (agent_id, agent, owner) VALUES (%s, %s, %s)
ON CONFLICT (agent_id) DO NOTHING RETURNING incarnation, epoch, last_seq, agent, key"""

TAKE = """
UPDATE agents SET owner = %(me)s, epoch = epoch + 1, deleted = false,
    agent = CASE WHEN deleted THEN %(agent)s ELSE agent END,
    incarnation = incarnation + deleted::integer
WHERE agent_id = %(agent_id)s AND epoch = %(epoch)s AND incarnation = %(incarnation)s
    AND owner IS NOT DISTINCT FROM %(owner)s AND deleted = %(deleted)s
RETURNING incarnation, epoch, last_seq, agent, key"""

BURY = """
UPDATE agents SET owner = NULL, deleted = true, last_seq = 0, floor = 0, standing = 'rest'
WHERE agent_id = %(agent_id)s AND epoch = %(epoch)s AND incarnation = %(incarnation)s
    AND owner IS NOT DISTINCT FROM %(owner)s AND NOT deleted
RETURNING key"""
"""What is left is the tombstone. The records go by `DROP_RECORDS`: a statement of its own, so that
it sees what was added while this one waited for the row."""

DROP_RECORDS = "DELETE FROM records WHERE agent = %s"

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
        standing = (%(standings)b::text[])[{_PLACE}]
    WHERE a.key = ANY(%(keys)b::int8[]) AND a.owner = %(owner)b::int8 AND NOT a.deleted
        AND a.incarnation = (%(incarnations)b::int8[])[{_PLACE}]
        AND a.epoch = (%(epochs)b::int8[])[{_PLACE}]
        AND a.last_seq = (%(befores)b::int8[])[{_PLACE}]
    RETURNING {_PLACE} AS place
), kept AS ({_INSERT}
    WHERE (SELECT count(*) FROM held) = cardinality(%(keys)b::int8[])
)
SELECT place FROM held"""  # noqa: S608 - of the constants above
"""Which batches may be added, counted from 1; and if all may, they are. There is no join in it: a
planner that knows neither table nor arrays would compare each with each. The rows are locked in the
order of the keys, so two hosts with the same agents do not wait for each other in a circle.

The owner is compared too: a server that lost its last commits may have lost a claim, and then two
hosts could hold the same epoch."""

ADD_REST = _INSERT
"""The records of those that may be added, where not all may."""

LOOK_AGAIN = """
SELECT a.agent_id, a.incarnation, a.epoch, a.last_seq, a.deleted, a.owner, h.name
FROM agents a LEFT JOIN hosts h ON h.id = a.owner WHERE a.agent_id = ANY(%s)"""
"""Why a batch was not added."""

SET_FLOOR = "UPDATE agents SET floor = %s WHERE agent_id = %s RETURNING key"
DROP_BELOW = "DELETE FROM records WHERE agent = %s AND seq < %s"

RELEASE = """
UPDATE agents SET owner = NULL
WHERE agent_id = %s AND incarnation = %s AND epoch = %s AND owner = %s"""

SETTLED = """
SELECT incarnation, epoch, last_seq, standing FROM agents WHERE agent_id = %s FOR SHARE"""
"""Waits for a transaction of ours that a lost connection left behind, until it is settled."""

READ_BACK = """
SELECT r.seq, r.incarnation, r.epoch, r.kind, r.version, r.payload
FROM records r JOIN agents a ON a.key = r.agent
WHERE a.agent_id = %s AND r.seq BETWEEN %s AND %s ORDER BY r.seq"""

_COLUMNS = """
SELECT a.agent_id, a.agent, a.incarnation, a.epoch, a.last_seq, a.floor, a.standing,
    CASE WHEN h.lease_until > clock_timestamp() THEN h.name END
FROM agents a LEFT JOIN hosts h ON h.id = a.owner WHERE NOT a.deleted"""

STORED = f"{_COLUMNS} AND a.agent_id = %s"

AGENTS = (
    f"{_COLUMNS} AND a.agent_id > %s AND (%s::text[] IS NULL OR a.standing = ANY(%s::text[]))"
    " ORDER BY a.agent_id LIMIT %s"
)

LOAD_RECORDS = """
SELECT r.kind, r.version, r.payload FROM records r JOIN agents a ON a.key = r.agent
WHERE a.agent_id = %s AND NOT a.deleted AND r.seq > %s ORDER BY r.seq"""
