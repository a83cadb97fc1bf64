"""What calls reserve and spend, in a SQLite store.

One process has the file, and decides by `Books`: here is what is kept of its decisions. The sum of
a bucket is of what is settled and has no row; each row counts beside it, so its `counted` is 0.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

from understudy.errors import Fenced, StoreDamaged
from understudy.journal.contracts import Batch, time_number, time_of
from understudy.journal.spending import EXACT, CounterId, Settlement, SpendId
from understudy.journal.spending_books import Decision, KeptBucket, KeptLine, KeptSpending

_NOTHING = Decimal(0)
# SQLite takes the tables of a CROSS JOIN in this order.
LINES = """
    SELECT a.agent_id, s.incarnation, s.what, c.budget, c.key, s.bucket, s.amount, s.ref, s.at,
        s.is_open, s.is_unknown
    FROM spending s CROSS JOIN agents a CROSS JOIN counters c
    WHERE a.key = s.agent AND c.id = s.counter ORDER BY s.at
"""
BUCKETS = """
    SELECT c.budget, c.key, b.bucket, b.amount, b.unknown
    FROM counters c CROSS JOIN buckets b WHERE b.counter = c.id
"""
_KEY = "SELECT key FROM agents WHERE agent_id = ? AND incarnation = ? AND NOT deleted"
_FORGET_CALL = "DELETE FROM spending WHERE agent = ? AND incarnation = ? AND what = ?"
_ADD_COUNTER = "INSERT OR IGNORE INTO counters (budget, key) VALUES (?, ?)"
_COUNTER = "(SELECT id FROM counters WHERE budget = ? AND key = ?)"
_ADD_LINE = f"""
    INSERT INTO spending (agent, incarnation, what, counter, bucket, amount, counted, ref, at,
        is_open, is_unknown, is_folded)
    VALUES (?, ?, ?, {_COUNTER}, ?, ?, '0', ?, ?, 1, 0, 0)
"""  # noqa: S608 - of a constant
_OLD = f"""
    counter = {_COUNTER} AND bucket < ? AND bucket NOT IN (
        SELECT bucket FROM spending WHERE is_open AND counter = {_COUNTER})
"""  # noqa: S608 - of a constant
_PRUNE = (
    f"DELETE FROM buckets WHERE {_OLD}",  # noqa: S608 - of constants
    f"DELETE FROM spending WHERE {_OLD}",  # noqa: S608 - of constants
)
_ROWS = """
    SELECT s.agent, s.incarnation, s.what, s.counter, c.budget, s.bucket, s.amount, s.ref,
        s.is_unknown
    FROM spending s CROSS JOIN counters c CROSS JOIN agents a
    WHERE c.id = s.counter AND a.key = s.agent
"""
_OPEN_OF_CALL = f"{_ROWS} AND s.agent = ? AND s.incarnation = ? AND s.what = ? AND s.is_open"
_OPEN_OF_AGENT = f"{_ROWS} AND s.agent = ? AND s.is_open"
_OF_REF = f"""{_ROWS} AND s.ref = ? AND s.ref <> '' AND c.budget = ? AND NOT s.is_open
    ORDER BY s.at, a.agent_id, s.incarnation, s.what, c.key LIMIT 1"""
_OF_ROW = "WHERE agent = ? AND incarnation = ? AND what = ? AND counter = ?"
_SETTLE = f"UPDATE spending SET amount = ?, is_open = 0, is_unknown = ? {_OF_ROW}"  # noqa: S608
_DELETE = f"DELETE FROM spending {_OF_ROW}"  # noqa: S608 - of a constant
_SUMS = "SELECT amount, unknown FROM buckets WHERE counter = ? AND bucket = ?"
_PUT_SUMS = """
    INSERT OR REPLACE INTO buckets (counter, bucket, amount, unknown) VALUES (?, ?, ?, ?)
"""


def load(db: sqlite3.Connection) -> KeptSpending:
    """Load all that is kept of the counters; see `Backend.load_spending`."""
    return kept_of(db.execute(LINES), db.execute(BUCKETS))


def kept_of(lines: Iterable[tuple[Any, ...]], buckets: Iterable[tuple[Any, ...]]) -> KeptSpending:
    """All that is kept, of the rows of `LINES` and `BUCKETS`."""
    sums = [
        KeptBucket(CounterId(budget, key), bucket, _amount(amount), _amount(unknown))
        for budget, key, bucket, amount, unknown in buckets
    ]
    return KeptSpending([_line(row) for row in lines], sums)


def _line(row: tuple[Any, ...]) -> KeptLine:
    agent_id, incarnation, what, budget, key, bucket, amount, ref, at, is_open, is_unknown = row
    made = time_of(at)
    if made is None:
        raise _damaged(at)
    return KeptLine(
        SpendId(agent_id, incarnation, what),
        CounterId(budget, key),
        bucket,
        _amount(amount),
        ref,
        made,
        bool(is_open),
        bool(is_unknown),
    )


def _amount(text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except (InvalidOperation, TypeError) as error:
        raise _damaged(text) from error
    if not amount.is_finite():
        raise _damaged(text)
    return amount


def _damaged(found: object) -> StoreDamaged:
    return StoreDamaged(what="what calls have spent", cause=f"a row has {found!r}")


def keep(db: sqlite3.Connection, decision: Decision) -> None:
    """Keep what came of a reservation; see `Backend.keep_reserved`."""
    id = decision.id
    row = db.execute(_KEY, id[:2]).fetchone()
    if row is None:
        raise Fenced(agent_id=id.agent_id, why="it was deleted")
    of_call = (row[0], id.incarnation, id.what)
    db.execute(_FORGET_CALL, of_call)
    for line in decision.lines or ():
        db.execute(_ADD_COUNTER, line.counter)
        more = (line.bucket, str(line.amount), line.ref, time_number(line.at))
        db.execute(_ADD_LINE, (*of_call, *line.counter, *more))
    for counter, below in decision.pruned:
        for query in _PRUNE:
            db.execute(query, (*counter, below, *counter))


def settle(db: sqlite3.Connection, key: int, batch: Batch) -> None:
    """Make what a batch of the agent with this key of its row says of its calls."""
    for each in batch.settlements:
        of_call = (key, each.id.incarnation, each.id.what)
        _settle(db, db.execute(_OPEN_OF_CALL, of_call).fetchall(), each)
    for each in batch.settlements:
        for (budget, ref), amount in each.gives_back.items():
            for row in db.execute(_OF_REF, (ref, budget)).fetchall():
                left = _NOTHING if amount is None else EXACT.subtract(_amount(row[6]), amount)
                _fold(db, row, max(left, _NOTHING), row[8])


def leave(db: sqlite3.Connection, key: int) -> None:
    """The agent with this key of its row is deleted."""
    rows = db.execute(_OPEN_OF_AGENT, (key,)).fetchall()
    _settle(db, rows, Settlement(id=SpendId("", 0, ""), unknown=True))


def _settle(
    db: sqlite3.Connection, rows: Iterable[tuple[Any, ...]], settlement: Settlement
) -> None:
    for row in rows:
        spent = settlement.spent(row[4], _amount(row[6]))
        if row[7]:  # it may be given back
            db.execute(_SETTLE, (str(spent), settlement.unknown, *row[:4]))
        else:
            _fold(db, row, spent, settlement.unknown)


def _fold(db: sqlite3.Connection, row: tuple[Any, ...], amount: Decimal, is_unknown: bool) -> None:
    """Have the sum of its bucket count this of a row, and delete the row."""
    db.execute(_DELETE, row[:4])
    of_bucket = (row[3], row[5])
    sums = db.execute(_SUMS, of_bucket).fetchone() or ("0", "0")
    now = EXACT.add(_amount(sums[0]), amount)
    unknown = EXACT.add(_amount(sums[1]), amount) if is_unknown else sums[1]
    db.execute(_PUT_SUMS, (*of_bucket, str(now), str(unknown)))
