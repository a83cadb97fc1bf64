"""`MemoryOutbox`: the outbox of a store in memory, in tables of SQLite that are in memory too."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from typing import Any

from understudy.journal.asks import AskChanges
from understudy.journal.contracts import StoredAgent
from understudy.journal.memory_index import MemoryIndex
from understudy.journal.notices import (
    NoticeState,
    Outbox,
    StoredNotice,
    notices_query,
    stored_notice,
    turn_sqlite_triggers,
)
from understudy.journal.sql_backend import Rows, Values, sqlite_query
from understudy.journal.sql_tables import TABLES_OF_AGENTS, sqlite_form

# Of agents and of what they ask, only what the statements of an outbox look at.
_TABLES = (
    "CREATE TABLE agent_rows (key INTEGER PRIMARY KEY, agent_id TEXT UNIQUE, definition TEXT)",
    """CREATE TABLE asks (agent INTEGER, id TEXT, kind TEXT, reminders INTEGER,
        escalations INTEGER, PRIMARY KEY (agent, id))""",
    *(sqlite_form(each) for each in TABLES_OF_AGENTS if " notices" in each.partition("(")[0]),
)
# A temporary view: SQLite may be built so that it calls functions of a program in no other.
_VIEW = """
CREATE TEMP VIEW agents AS
    SELECT key, agent_id, definition, is_gone(agent_id) AS deleted FROM agent_rows"""
_ADD_AGENT = """
INSERT INTO agent_rows (agent_id, definition) VALUES (%s, %s)
ON CONFLICT (agent_id) DO UPDATE SET definition = excluded.definition RETURNING key"""
_PUT_ASK = """
INSERT INTO asks (agent, id, kind, reminders, escalations) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (agent, id) DO UPDATE SET reminders = excluded.reminders,
    escalations = excluded.escalations"""


_FORGET_AGENTS = """
DELETE FROM agent_rows WHERE is_gone(agent_id)
    AND NOT EXISTS (SELECT 1 FROM notices n WHERE n.agent = key)"""


class MemoryOutbox(Outbox):
    """Keeps notices while the process lives: `Outbox`, whose triggers see what agents ask.

    Args:
        index: of the store, which tells of what agents ask.
        kept: what `close` has returned; None for an empty outbox.

    """

    def __init__(self, index: MemoryIndex, kept: bytes | None = None) -> None:
        self._index = index
        self._db = sqlite3.connect(":memory:", isolation_level=None)
        self._db.create_function("is_gone", 1, lambda agent_id: index.get(agent_id) is None)
        if kept is not None:
            self._db.deserialize(kept)
        for statement in (_VIEW,) if kept is not None else (_VIEW, *_TABLES):
            self._db.execute(statement)

        def fetch(query: str, values: Values = ()) -> Rows:
            return self._db.execute(sqlite_query(query), values).fetchall()

        super().__init__(fetch, lambda on: turn_sqlite_triggers(fetch, on), locks="")
        for agent_id, rows in index.asks.items() if kept is None else ():
            for id, ask in rows.items():
                told = ask.told.reminders, ask.told.escalations
                fetch(_PUT_ASK, [self._key(agent_id, ask.agent), id, ask.kind, *told])
        index.on_asks = self._note

    def close(self) -> bytes:
        """Close the tables; they are what the next outbox begins with."""
        self._index.on_asks = None
        with closing(self._db):
            return self._db.serialize()

    def _key(self, agent_id: str, agent: str) -> int:
        ((key,),) = self._fetch(_ADD_AGENT, [agent_id, agent])
        return int(key)

    def _note(self, agent: StoredAgent, changed: AskChanges) -> None:
        if not any(changed):
            return
        key = self._key(agent.agent_id, agent.agent)
        for id in changed.gone:
            self._fetch("DELETE FROM asks WHERE agent = %s AND id = %s", [key, id])
        for ask in (*changed.new, *changed.told):
            told = ask.told.reminders, ask.told.escalations
            self._fetch(_PUT_ASK, [key, ask.id, ask.kind, *told])

    def clean(self, before: datetime) -> None:
        super().clean(before)
        # (test_an_outbox_in_memory_forgets_the_agents_of_which_nothing_is_told)
        self._fetch(_FORGET_AGENTS, ())

    def has_new(self, agent_id: str) -> bool:
        """Whether a notice about an agent is to be made."""
        new = (
            "SELECT 1 FROM notices n JOIN agents a ON a.key = n.agent"
            " WHERE a.agent_id = %s AND n.state = 'new' LIMIT 1"
        )
        return bool(self._fetch(new, [agent_id]))

    def listed(
        self, states: Sequence[NoticeState], after: int | None, limit: int
    ) -> list[StoredNotice]:
        """The notices with some states, the newest first; see `Backend.notices`."""
        found: list[tuple[Any, ...]] = self._fetch(*notices_query(states, after, limit))
        return [stored_notice(row) for row in found]
