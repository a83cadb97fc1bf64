"""The index of the search in a SQLite store: by FTS5."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from understudy.errors import StoreBroken
from understudy.journal.search_words import SearchQuery
from understudy.journal.sql_search import NAMES, TABLES, Fetch, SqlSearch
from understudy.journal.sql_tables import sqlite_form

_NOTES_TABLE = """CREATE TABLE search_todo (
    agent INTEGER PRIMARY KEY,
    n INTEGER NOT NULL
) STRICT"""
# The words alone, each once in a text, so neither places nor lengths are kept. Python has divided
# the text and folded the words already: `ascii` leaves all that is not ASCII as it is.
_WORDS = """CREATE VIRTUAL TABLE search_words USING fts5(
    words, content = 'search_texts', content_rowid = 'no', tokenize = 'ascii', detail = 'none',
    columnsize = 0)"""
_NOTE = "INSERT INTO search_todo VALUES ({key}, 1) ON CONFLICT (agent) DO UPDATE SET n = n + 1;"
# A step of an agent that is noted already writes no page more: its last number tells of it.
_NOTE_ONCE = "INSERT OR IGNORE INTO search_todo VALUES (NEW.key, 1);"
_TRIGGERS = (
    f"""CREATE TRIGGER search_of_records AFTER UPDATE OF last_seq ON agents
    WHEN NEW.last_seq <> OLD.last_seq BEGIN {_NOTE_ONCE} END""",
    # Also by a host that searches nothing.
    f"""CREATE TRIGGER search_of_deletion AFTER UPDATE OF deleted ON agents
    WHEN NEW.deleted AND NOT OLD.deleted BEGIN
        DELETE FROM search_agents WHERE agent = OLD.key;
        DELETE FROM search_texts WHERE agent = OLD.key;
        {_NOTE.format(key="NEW.key")}
    END""",  # noqa: S608 - of constants
    f"""CREATE TRIGGER search_of_request AFTER INSERT ON asks WHEN NEW.kind = 'request'
    BEGIN {_NOTE.format(key="NEW.agent")} END""",
    """CREATE TRIGGER search_of_answer AFTER DELETE ON asks WHEN OLD.kind = 'request'
    BEGIN DELETE FROM search_texts WHERE ask = OLD.no; END""",
    """CREATE TRIGGER search_of_text AFTER INSERT ON search_texts BEGIN
        INSERT INTO search_words (rowid, words) VALUES (NEW.no, NEW.words);
    END""",
    """CREATE TRIGGER search_of_old_text AFTER DELETE ON search_texts BEGIN
        INSERT INTO search_words (search_words, rowid, words) VALUES ('delete', OLD.no, OLD.words);
    END""",
)


class SqliteSearch(SqlSearch):
    """The index of the search in SQLite; see `SqlSearch`."""

    is_there: str = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'search_state'"
    made: Sequence[str] = (
        *(sqlite_form(table.format(words="words text NOT NULL")) for table in TABLES),
        *(_NOTES_TABLE, _WORDS, *_TRIGGERS),
    )
    removed: Sequence[str] = (
        *(f"DROP TRIGGER IF EXISTS {trigger.split()[2]}" for trigger in _TRIGGERS),
        *(f"DROP TABLE IF EXISTS {name}" for name in ("search_words", *NAMES)),
    )
    # SQLite takes the tables of a CROSS JOIN in this order: that of the numbers.
    found: str = (
        "SELECT {columns} FROM search_words f CROSS JOIN search_texts t ON t.no = f.rowid CROSS"
    )
    order: str = "f.rowid"
    insert_text: str = """
INSERT INTO search_texts (no, agent, seq, part, ask, words) VALUES (%s, %s, %s, %s, %s, %s)"""
    worked_off: str = f"""{SqlSearch.worked_off}
    AND EXISTS (SELECT 1 FROM agents WHERE key = %(key)s AND last_seq = %(last_seq)s)"""  # noqa: S608
    note_agents: str = """
INSERT INTO search_todo SELECT key, 1 FROM agents WHERE key > %s AND key <= %s AND NOT deleted
ON CONFLICT (agent) DO NOTHING"""

    def matches(self, query: SearchQuery) -> tuple[str, str]:
        # Words have letters and digits alone, so nothing in them is of the language of FTS5.
        words = (f'"{word}"{" *" if is_prefix else ""}' for word, is_prefix in query.kept)
        return "search_words MATCH %s", " AND ".join(words)

    def words(self, words: frozenset[str]) -> str:
        return " ".join(sorted(words))

    def turn(self, fetch: Fetch, on: bool) -> None:
        """Make the tables of the search, or remove them; see `SqlSearch.turn`.

        Raises:
            StoreBroken: if this SQLite has no FTS5.

        """
        if on and not fetch("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'", ()):
            raise StoreBroken(
                cause=f"this Python has SQLite {sqlite3.sqlite_version} without FTS5",
                remedy="Use a Python whose SQLite has it, or Runtime() without search=True.",
            )
        super().turn(fetch, on)
