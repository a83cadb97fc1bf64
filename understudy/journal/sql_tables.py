"""The tables that every store in an SQL database has: made at the first opening, checked at each.

They are written as PostgreSQL takes them; `sqlite_form` is what SQLite takes. A database adds
columns and tables of its own, and has its own way to keep records.
"""

from __future__ import annotations

AGENTS_TABLE = """CREATE TABLE agents (
        key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        agent_id text COLLATE "C" NOT NULL UNIQUE,
        definition text NOT NULL,
        incarnation bigint NOT NULL DEFAULT 1,
        epoch bigint NOT NULL DEFAULT 1,
        last_seq bigint NOT NULL DEFAULT 0,
        floor bigint NOT NULL DEFAULT 0,
        index_status text NOT NULL DEFAULT 'rest',
        deleted boolean NOT NULL DEFAULT false,
        deleted_at bigint,
        deleted_by text,
        due bigint,
        status text NOT NULL DEFAULT 'idle',
        status_at bigint,
        ask_count integer NOT NULL DEFAULT 0,
        {own},
        run_version text
    )"""
"""After a deletion a row is the tombstone, which keeps the epoch, and goes once it is old: what
is new begins above it then, by `journal.retirement.RAISE_FLOOR`. Ids are compared by their bytes,
whatever the database's language. `definition` is the name of the agent's.
`deleted_at` and `deleted_by` are of the last deletion. There are `ask_count` rows of the agent in
`asks`. `run_version` is the fingerprint under which the open run was begun; null: none is open.
`own` is what one database adds."""

META_TABLE = """CREATE TABLE meta (
        {own}version integer NOT NULL,
        library text NOT NULL,
        format text NOT NULL,
        key_secret bytea NOT NULL,
        gone_incarnation bigint NOT NULL DEFAULT 0,
        gone_epoch bigint NOT NULL DEFAULT 0
    )"""
"""The table whose row says what wrote the store. `key_secret` is the secret of the hashes of keys.
`gone_incarnation` and `gone_epoch` are the highest of the tombstones that went."""

FEED_TABLE = """CREATE TABLE feed (
        {own},
        agent_id text NOT NULL,
        definition text NOT NULL,
        seq bigint NOT NULL,
        at bigint,
        kind text NOT NULL,
        version integer NOT NULL,
        payload bytea NOT NULL{key}
    )"""
"""`seq` is 0 for a deletion."""

TABLES_OF_AGENTS = (
    "CREATE INDEX agents_by_index_status ON agents (index_status, agent_id) WHERE NOT deleted",
    "CREATE INDEX agents_by_due ON agents (due, agent_id) WHERE due IS NOT NULL AND NOT deleted",
    "CREATE INDEX agents_by_status ON agents (status, agent_id) WHERE NOT deleted",
    "CREATE INDEX agents_by_definition ON agents (definition, agent_id) WHERE NOT deleted",
    "CREATE INDEX agents_by_deletion ON agents (deleted_at, key) WHERE deleted",
    """CREATE INDEX agents_by_change ON agents (status_at, agent_id)
        WHERE status_at IS NOT NULL AND NOT deleted""",
    # What agents ask. `expires_at` is the largest number for what does not expire. `request_kind`
    # and `words`, by which it is found, are empty for what asks no person. `version` and `payload`
    # are those of the record that asks.
    """CREATE TABLE asks (
        no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        agent bigint NOT NULL,
        id text COLLATE "C" NOT NULL,
        definition text NOT NULL,
        kind text NOT NULL,
        tool text NOT NULL,
        request_kind text NOT NULL,
        words text NOT NULL,
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
    # Has all columns by which open requests are counted.
    "CREATE INDEX asks_by_group ON asks (kind, request_kind, tool, definition, expires_at)",
    "CREATE INDEX asks_by_definition ON asks (kind, definition, asked_at, no)",
    # What was decided on requests. A row stays when its agent is compacted or deleted; `payload`,
    # what was shown and written, is empty then. `request` is the request's id, and `login` is JSON.
    """CREATE TABLE decided (
        no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        agent bigint NOT NULL,
        definition text COLLATE "C" NOT NULL,
        incarnation bigint NOT NULL,
        request text NOT NULL,
        kind text NOT NULL,
        tool text COLLATE "C" NOT NULL,
        type text NOT NULL,
        origin text NOT NULL,
        decided_by text,
        login bytea NOT NULL,
        asked_at bigint NOT NULL,
        at bigint NOT NULL,
        version integer NOT NULL,
        payload bytea NOT NULL
    )""",
    "CREATE INDEX decided_by_time ON decided (at, no)",
    "CREATE INDEX decided_by_agent ON decided (agent, at, no)",
    "CREATE INDEX decided_by_tool ON decided (tool, at, no)",
    "CREATE INDEX decided_by_definition ON decided (definition, at, no)",
    "CREATE INDEX decided_by_type ON decided (type, at, no)",
    "CREATE INDEX decided_by_origin ON decided (origin, at, no)",
    # Who decided, or voted, or gave the grant.
    """CREATE TABLE deciders (
        person text COLLATE "C" NOT NULL,
        at bigint NOT NULL,
        no bigint NOT NULL,
        PRIMARY KEY (person, at, no)
    )""",
    # What requests to models used on a day, where a runtime counts it; `cost` is in 10 ** -12 USD.
    # Each host has rows of its own.
    """CREATE TABLE usage_sums (
        day bigint NOT NULL,
        definition text COLLATE "C" NOT NULL,
        model text COLLATE "C" NOT NULL,
        host bigint NOT NULL,
        requests bigint NOT NULL,
        unknown bigint NOT NULL,
        input_tokens bigint NOT NULL,
        output_tokens bigint NOT NULL,
        cached_tokens bigint NOT NULL,
        cost bigint NOT NULL,
        PRIMARY KEY (day, definition, model, host)
    )""",
    # One of each agent. No column is text: one that is damaged must not keep a row from being read.
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
    # The bytes of files.
    """CREATE TABLE blobs (
        agent bigint NOT NULL,
        hash bytea NOT NULL,
        payload bytea NOT NULL,
        PRIMARY KEY (agent, hash)
    )""",
    # The ids of old messages of each agent, with the runs that took them.
    """CREATE TABLE message_runs (
        agent bigint NOT NULL,
        message_id text NOT NULL,
        run_id text NOT NULL,
        PRIMARY KEY (agent, message_id)
    )""",
    # Which calls have a key (`@tool(key=)`), by its hash. `place` is the order in which the calls
    # took it: the second one by a person's word, or behind one that is done. `done_at` is null
    # until a call is done. `kept_until` is null while it is open or in doubt; with a null `done_at`
    # its agent was deleted meanwhile.
    """CREATE TABLE call_keys (
        hash bytea NOT NULL,
        place integer NOT NULL,
        agent bigint NOT NULL,
        incarnation bigint NOT NULL,
        call_key text NOT NULL,
        tool text NOT NULL,
        tool_call_id text NOT NULL,
        taken_at bigint NOT NULL,
        kept bigint NOT NULL,
        done_at bigint,
        kept_until bigint,
        PRIMARY KEY (hash, place),
        UNIQUE (agent, incarnation, call_key)
    )""",
    # What people write beside requests. The newest row of a `slot` holds, until `until`; `person`
    # is whom the request belongs to by it, or who has snoozed it. `ended_at` is null while the
    # request is open.
    """CREATE TABLE request_notes (
        no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        agent bigint NOT NULL,
        incarnation bigint NOT NULL,
        id text NOT NULL UNIQUE,
        request text COLLATE "C" NOT NULL,
        kind text NOT NULL,
        slot text COLLATE "C" NOT NULL,
        person text COLLATE "C" NOT NULL,
        until bigint NOT NULL,
        at bigint NOT NULL,
        ended_at bigint,
        payload bytea NOT NULL
    )""",
    "CREATE INDEX request_notes_by_agent ON request_notes (agent, ended_at)",
    "CREATE INDEX request_notes_by_request ON request_notes (request)",
    # The log of trust: facts that hold for the whole store. No row is changed or deleted. `data` is
    # JSON.
    """CREATE TABLE trust (
        number bigint PRIMARY KEY,
        at bigint NOT NULL,
        decided_by text,
        kind text NOT NULL,
        data bytea NOT NULL
    )""",
    # What people are to be told of requests: see `journal.notices`. `due` is when a row is tried,
    # or by when the host that tries it must have done so.
    """CREATE TABLE notices (
        no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        agent bigint NOT NULL,
        request text COLLATE "C" NOT NULL,
        what text NOT NULL,
        count integer NOT NULL,
        channel text COLLATE "C" NOT NULL DEFAULT '',
        state text NOT NULL DEFAULT 'new',
        due bigint NOT NULL DEFAULT 0,
        attempts integer NOT NULL DEFAULT 0,
        at bigint,
        host text NOT NULL DEFAULT '',
        detail text NOT NULL DEFAULT '',
        receipt text NOT NULL DEFAULT '',
        UNIQUE (agent, request, what, count, channel)
    )""",
    "CREATE INDEX notices_by_due ON notices (due, no) WHERE state = 'new'",
    # What budgets count, for whom. A row is never deleted.
    """CREATE TABLE counters (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        budget text COLLATE "C" NOT NULL,
        key text COLLATE "C" NOT NULL,
        UNIQUE (budget, key)
    )""",
    # The sums of each counter in each bucket of time. `unknown` is how much of `amount` was settled
    # as unknown.
    """CREATE TABLE buckets (
        counter bigint NOT NULL,
        bucket bigint NOT NULL,
        amount numeric NOT NULL,
        unknown numeric NOT NULL,
        PRIMARY KEY (counter, bucket)
    )""",
    # What calls have reserved, and what they have spent and may be given back by its `ref`.
    # `counted` is how much of `amount` is in the sum of the bucket. It is all of it once the row is
    # folded.
    """CREATE TABLE spending (
        agent bigint NOT NULL,
        incarnation bigint NOT NULL,
        what text COLLATE "C" NOT NULL,
        counter bigint NOT NULL,
        bucket bigint NOT NULL,
        amount numeric NOT NULL,
        counted numeric NOT NULL,
        ref text NOT NULL,
        at bigint NOT NULL,
        is_open boolean NOT NULL,
        is_unknown boolean NOT NULL,
        is_folded boolean NOT NULL,
        PRIMARY KEY (agent, incarnation, what, counter)
    )""",
    "CREATE INDEX spending_by_counter ON spending (counter, is_open) WHERE NOT is_folded",
    "CREATE INDEX spending_by_ref ON spending (ref, counter) WHERE ref <> ''",
    "CREATE INDEX call_keys_by_end ON call_keys (kept_until) WHERE kept_until IS NOT NULL",
)
"""All but `AGENTS_TABLE`; `agent` is the `key` of the agent."""

_SQLITE_WORDS = {
    "bigint GENERATED ALWAYS AS IDENTITY": "INTEGER",
    "bigint PRIMARY": "INTEGER PRIMARY",
    **dict.fromkeys(("bigint", "integer", "boolean"), "INT"),
    "bytea": "BLOB",
    "numeric": "TEXT",
    ' COLLATE "C"': "",
}


def sqlite_form(statement: str) -> str:
    """The statement that makes a table, as SQLite takes it."""
    for ours, its in _SQLITE_WORDS.items():
        statement = statement.replace(ours, its)
    if not statement.startswith("CREATE TABLE"):
        return statement
    return f"{statement} STRICT{', WITHOUT ROWID' if '  PRIMARY KEY (' in statement else ''}"
