"""The rows of what agents ask, in PostgreSQL: for many agents with few statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from understudy.journal.asks import Ask
from understudy.journal.postgres.sql import Fetch
from understudy.journal.sql_backend import changed_asks

ASKS = "SELECT agent, id, reminders, escalations FROM asks WHERE agent = ANY(%s)"

DELETE_ANSWERED = """
DELETE FROM asks k USING unnest(%s::int8[], %s::text[]) AS gone (agent, id)
WHERE k.agent = gone.agent AND k.id = gone.id"""

INSERT_ASKS = """
INSERT INTO asks (agent, id, definition, kind, tool, request_kind, words, asked_at, expires_at,
    reminders, escalations, version, payload)
SELECT n.agent, n.id, a.definition, n.kind, n.tool, n.request_kind, n.words, n.asked_at,
    n.expires_at, n.reminders, n.escalations, n.version, n.payload
FROM unnest(%s::int8[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::int8[],
    %s::int8[], %s::int4[], %s::int4[], %s::int4[], %s::bytea[]) WITH ORDINALITY AS n (agent, id,
    kind, tool, request_kind, words, asked_at, expires_at, reminders, escalations, version, payload,
    place)
JOIN agents a ON a.key = n.agent ORDER BY n.place"""

UPDATE_ASKS = """
UPDATE asks k SET reminders = n.reminders, escalations = n.escalations
FROM unnest(%s::int8[], %s::text[], %s::int4[], %s::int4[]) AS n (agent, id, reminders, escalations)
WHERE k.agent = n.agent AND k.id = n.id"""

SET_ASK_COUNT = """
UPDATE agents a SET ask_count = n.asks FROM unnest(%s::int8[], %s::int4[]) AS n (agent, asks)
WHERE a.key = n.agent"""


def put_asks(fetch: Fetch, asks: Mapping[int, Sequence[Ask]]) -> None:
    """Make these the asks of each agent, by its key: what differs is written.

    The rows of the agents are locked by this transaction, so nobody else changes their asks.
    """
    changed = changed_asks(fetch(ASKS, [list(asks)]), asks)
    queries = (DELETE_ANSWERED, INSERT_ASKS, UPDATE_ASKS, SET_ASK_COUNT)
    for query, rows in zip(queries, changed, strict=True):
        if rows:
            fetch(query, [list(column) for column in zip(*rows, strict=True)])
