"""The index of the search in a PostgreSQL store: by a column of words, with a GIN index."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from understudy.errors import StoreUnavailable
from understudy.journal.postgres.schema import LOCK_SCHEMA
from understudy.journal.postgres.sql import IN_ITS_SCHEMA, fetch_by
from understudy.journal.search_words import SearchQuery
from understudy.journal.sql_search import NAMES, TABLES, Fetch, SqlSearch

if TYPE_CHECKING:
    from understudy.journal.postgres.connection import PostgresConnection, PsycopgConnection

# A note is a row of its own, which nobody waits for: a host may be suspended in the middle of the
# transaction that works off another one.
_NOTES_TABLE = """CREATE TABLE search_todo (
    agent bigint NOT NULL,
    n bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (agent, n)
)"""
_FUNCTIONS = (
    f"""CREATE FUNCTION search_note() RETURNS trigger LANGUAGE plpgsql
    {IN_ITS_SCHEMA}
        INSERT INTO search_todo (agent) VALUES (NEW.key);
        IF NEW.deleted AND NOT OLD.deleted THEN
            -- It waits for a slice under way, whose texts the next statement sees.
            DELETE FROM search_agents WHERE agent = OLD.key;
            DELETE FROM search_texts WHERE agent = OLD.key;
        END IF;
        RETURN NULL;
    END $$""",  # noqa: S608 - of a constant
    f"""CREATE FUNCTION search_note_request() RETURNS trigger LANGUAGE plpgsql
    {IN_ITS_SCHEMA}
        INSERT INTO search_todo (agent) VALUES (NEW.agent);
        RETURN NULL;
    END $$""",  # noqa: S608 - of a constant
    f"""CREATE FUNCTION search_note_answer() RETURNS trigger LANGUAGE plpgsql
    {IN_ITS_SCHEMA}
        DELETE FROM search_texts WHERE ask = OLD.no;
        INSERT INTO search_todo (agent) VALUES (OLD.agent);
        RETURN NULL;
    END $$""",  # noqa: S608 - of a constant
)
_TRIGGERS = (
    """CREATE TRIGGER search_of_records AFTER UPDATE ON agents FOR EACH ROW
    WHEN (NEW.last_seq <> OLD.last_seq OR NEW.deleted <> OLD.deleted)
    EXECUTE FUNCTION search_note()""",
    """CREATE TRIGGER search_of_request AFTER INSERT ON asks FOR EACH ROW
    WHEN (NEW.kind = 'request') EXECUTE FUNCTION search_note_request()""",
    """CREATE TRIGGER search_of_answer AFTER DELETE ON asks FOR EACH ROW
    WHEN (OLD.kind = 'request') EXECUTE FUNCTION search_note_answer()""",
)
_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '40ms'"
"""Whoever waits for a table that is written keeps those from it who come later."""
_LOCK_NOT_AVAILABLE = "55P03"
_BEGIN_SLICE = """
SELECT pg_try_advisory_xact_lock(x'756e64657275'::bigint)
FROM set_config('idle_in_transaction_session_timeout', '5s', true)"""
_TRIES_FOR = 60.0
"""Seconds for which a moment is looked for at which nobody writes."""
_PAUSE = 0.05


class PostgresSearch(SqlSearch):
    """The index of the search in PostgreSQL; see `SqlSearch`."""

    is_there: str = "SELECT 1 WHERE to_regclass('search_state') IS NOT NULL"
    made: Sequence[str] = (
        *(table.format(words="words tsvector NOT NULL") for table in TABLES),
        "CREATE INDEX search_texts_by_word ON search_texts USING gin (words)",
        *(_NOTES_TABLE, *_FUNCTIONS, *_TRIGGERS),
    )
    removed: Sequence[str] = (
        # The triggers go with their functions.
        *(f"DROP FUNCTION IF EXISTS {function.split()[2]} CASCADE" for function in _FUNCTIONS),
        *(f"DROP TABLE IF EXISTS {name}" for name in NAMES),
    )
    insert_text: str = """
INSERT INTO search_texts (no, agent, seq, part, ask, words)
VALUES (%s, %s, %s, %s, %s, array_to_tsvector(%s::text[]))"""
    note_agents: str = """
INSERT INTO search_todo (agent)
SELECT key FROM agents WHERE key > %s AND key <= %s AND NOT deleted"""

    def matches(self, query: SearchQuery) -> tuple[str, str]:
        # Words have letters and digits alone, so nothing in them is of the language of queries.
        words = (f"'{word}'{':*' if is_prefix else ''}" for word, is_prefix in query.kept)
        return "t.words @@ %s::tsquery", " & ".join(words)

    def words(self, words: frozenset[str]) -> list[str]:
        return sorted(words)


def begin_slice(connection: PsycopgConnection) -> bool:
    """Begin to write to the index, in a transaction; False while another host does.

    It waits for no host: one may be suspended in the middle of a slice, and what waits here are all
    reads of this host (test_a_host_that_stands_still_in_a_slice_holds_up_nobody).
    """
    rows = connection.execute(_BEGIN_SLICE).fetchall()
    return rows == [(True,)]


def while_nobody_writes(reading: PostgresConnection, change: Callable[[Fetch], None]) -> None:
    """Change the tables in a transaction, at a moment when nobody writes.

    Raises:
        StoreUnavailable: if there is no such moment within a minute.

    """

    def work(connection: PsycopgConnection) -> None:
        with connection.transaction():
            connection.execute(_LOCK_TIMEOUT)
            connection.execute(LOCK_SCHEMA)  # of several hosts, one does it
            change(partial(fetch_by, connection))

    end = time.monotonic() + _TRIES_FOR
    while True:
        try:
            reading.run_repeatable(work)
            return
        except StoreUnavailable as error:
            is_locked = getattr(error.__cause__, "sqlstate", None) == _LOCK_NOT_AVAILABLE
            if not is_locked or time.monotonic() > end:
                raise
        time.sleep(_PAUSE)
