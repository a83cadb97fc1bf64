"""A damaged value in any column of PostgreSQL's tables is told wherever it is read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from tests.support.damage import IDS, fill
from tests.support.loops import soon
from tests.support.postgres import Hosts
from understudy import Observer
from understudy.errors import SchemaVersionError, StoreDamaged, StoreError, UnknownAgent
from understudy.journal import DatabaseStore

KEY = "(SELECT key FROM agents WHERE agent_id = 'asks')"
VALUES: dict[str, list[Any]] = {
    "bigint": [-(2**63), -1, 99, 2**63 - 1],
    "integer": [-1, 0, 2**31 - 1],
    "smallint": [-1, 0, 2**15 - 1],
    "text": ["", "rexx"],
    "bytea": [b"", b"\xff", b"[]", b"{}"],
    "boolean": [True, False],
}
LOADED = {
    ("agents", "incarnation", -1): "'asks'",
    ("agents", "epoch", -1): "'asks'",
    ("agents", "last_seq", -1): "'asks'",
    ("agents", "last_seq", 99): "'asks'",
    ("agents", "floor", -1): "'asks'",
    ("agents", "floor", 99): "'asks'",
    ("agents", "index_status", ""): "'asks'",
    ("agents", "index_status", "rexx"): "'asks'",
    ("agents", "due", -(2**63)): "'asks'",
    ("agents", "due", 2**63 - 1): "'asks'",
    ("agents", "status_at", -(2**63)): "'asks'",
    ("agents", "status_at", 2**63 - 1): "'asks'",
    ("records", "kind", "rexx"): "record 1 of agent 'asks'",
    ("records", "version", 0): "record 1 of agent 'asks'",
    ("records", "payload", b""): "record 1 of agent 'asks'",
    ("records", "payload", b"\xff"): "record 1 of agent 'asks'",
    ("records", "payload", b"[]"): "record 1 of agent 'asks'",
    ("records", "payload", b"{}"): "record 1 of agent 'asks'",
}
"""What must be told by whoever loads the agent, and how it is named."""
ROWS = {
    "agents": "agent_id = 'asks'",
    "records": f"agent = {KEY} AND seq = 1",
    "asks": f"agent = {KEY}",
    "feed": "agent_id = 'asks' AND seq = 1",
    "feed_state": "true",
    "decided": f"agent = {KEY}",
    "deciders": "true",
    "usage_sums": "true",
    "checkpoints": f"agent = {KEY}",
    "checkpoint_segments": f"agent = {KEY}",
}

NAMES = {"feed_state": "the feed", "usage_sums": "the usage of a day"}
"""How what is no agent's is named."""


@contextmanager
def damaged(hosts: Hosts, table: str, column: str, value: Any) -> Iterator[None]:
    """While one value of one row is another one."""
    ((row, was),) = hosts.sql(
        f"SELECT ctid::text, {column} FROM {table} WHERE {ROWS[table]} LIMIT 1"
    )
    ((row,),) = hosts.sql(
        f"UPDATE {table} SET {column} = %s WHERE ctid = %s::tid RETURNING ctid::text", value, row
    )
    try:
        yield
    finally:
        hosts.sql(f"UPDATE {table} SET {column} = %s WHERE ctid = %s::tid", was, row)


async def raised(observer: Observer) -> list[Exception]:
    """What each reading path but that of one agent raises."""
    found: list[Exception] = []
    feed = observer.events(start="oldest")
    for read in (
        *(observer.agents, observer.pending, observer.waiting, observer.count, feed.position),
        *(observer.decided, observer.attention, observer.usage),
        lambda: observer.pending(order="expiring"),
        lambda: observer.pending(tool="pay", agent="gate"),
        lambda: observer.agents(status="interrupted"),
        lambda: anext(aiter(feed)),
    ):
        if (error := await error_of(read)) is not None:
            found.append(error)
    return found


async def error_of(read: Callable[[], Any]) -> Exception | None:
    try:
        await soon(read())
    except Exception as error:
        return error
    return None


@pytest.mark.slow
async def test_a_damaged_value_of_any_column_is_told_by_its_agent_and_hides_no_other(
    hosts: Hosts, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    backend = hosts.new()
    fill(backend)
    columns = hosts.sql(
        "SELECT table_name, column_name, data_type FROM information_schema.columns "
        "WHERE table_schema = current_schema() AND is_identity = 'NO' ORDER BY 1, 2"
    )
    seen = set()
    async with Observer(DatabaseStore(hosts.new(), patience=0.0)) as observer:
        for table, column, kind in columns:
            if table not in ROWS or column in ("agent_id", "xid") or kind not in VALUES:
                continue
            for value in VALUES[str(kind)]:
                with damaged(hosts, str(table), str(column), value):
                    place = (table, column, value)
                    told = await raised(observer)
                    reads = (observer.history, observer.events, observer.export)
                    loads = [await error_of(partial(read, "asks")) for read in reads]
                    told += [error for error in loads if error is not None]
                    if (named := LOADED.get((str(table), str(column), value))) is not None:
                        seen.add(place)
                        assert [error for error in loads if named not in str(error)] == [], place
                    assert (await soon(observer.history("rests"))).entries, "an agent of its own"
                    known = (StoreError, SchemaVersionError, UnknownAgent)
                    odd = [each for each in told if not isinstance(each, known)]
                    if (table, column, value) != ("feed_state", "is_on", False):
                        assert odd == [], place
                    damage = [each for each in told if isinstance(each, StoreDamaged)]
                    name = NAMES.get(str(table), "'asks'")
                    assert all(name in str(each) for each in damage), place
        assert seen == set(LOADED)
        assert await raised(observer) == []
        assert {info.id for info in await soon(observer.agents())} == set(IDS)
