"""The rows of what agents ask, in PostgreSQL: for many agents with few statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from understudy.journal.contracts import Batch
from understudy.journal.postgres.arrays import numbers, texts
from understudy.journal.postgres.sql import PUT_ASKS, Fetch
from understudy.journal.sql_backend import Rows, asks_known, changed_asks

ASKS = "SELECT agent, id, reminders, escalations FROM asks WHERE agent = ANY(%s::int8[])"
CHANGE_ASKS = f"""
WITH {PUT_ASKS}
), counted AS (
    UPDATE agents a SET ask_count = n.asks
    FROM unnest(%(count_of)s::int8[], %(counts)s::int4[]) AS n (agent, asks) WHERE a.key = n.agent
)
SELECT"""  # noqa: S608 - of a constant


def put_asks(fetch: Fetch, batches: Mapping[int, Batch], counts: Mapping[int, int]) -> None:
    """Make what the agents ask in the store what batches of theirs say: what differs is written.

    The rows of the agents are locked by this transaction, so nobody else changes their asks.

    Args:
        fetch: makes a statement in it.
        batches: by the keys of the agents' rows.
        counts: how many rows of `asks` each has.

    """
    unknown = {key for key, batch in batches.items() if batch.asks_before is None and counts[key]}
    stored = fetch(ASKS, [numbers(sorted(unknown))]) if unknown else []
    for key, batch in batches.items():
        stored += asks_known(key, batch)
    changed = changed_asks(stored, {key: batch.entry.asks for key, batch in batches.items()})
    if any(changed):
        fetch(CHANGE_ASKS, columns_of_asks(changed))


def known_changes(batches: Mapping[int, Batch]) -> tuple[Rows, ...]:
    """The changes of what agents ask, by the keys of their rows, where all batches know them."""
    asking = {key: batch for key, batch in batches.items() if batch.asks_before or batch.entry.asks}
    stored = [row for key, batch in asking.items() for row in asks_known(key, batch)]
    return changed_asks(stored, {key: batch.entry.asks for key, batch in asking.items()})


def columns_of_asks(changed: Sequence[Rows]) -> dict[str, Any]:
    """The values of `sql.PUT_ASKS`, for what `changed_asks` brings."""
    gone, new, told, counts = changed
    added = list(zip(*new, strict=True)) or [()] * 12
    return {
        "gone_of": numbers(key for key, _ in gone),
        "gone": texts(id for _, id in gone),
        "told_of": numbers(row[0] for row in told),
        "told": texts(row[1] for row in told),
        "reminded": numbers(row[2] for row in told),
        "escalated": numbers(row[3] for row in told),
        "count_of": numbers(key for key, _ in counts),
        "counts": numbers(count for _, count in counts),
        "ask_of": numbers(added[0]),
        "ask_ids": texts(added[1]),
        "ask_kinds": texts(added[2]),
        "ask_tools": texts(added[3]),
        "request_kinds": texts(added[4]),
        "words": texts(added[5]),
        "asked_at": numbers(added[6]),
        "expires_at": numbers(added[7]),
        "ask_reminders": numbers(added[8]),
        "ask_escalations": numbers(added[9]),
        "ask_versions": numbers(added[10]),
        "ask_payloads": list(added[11]),
    }
