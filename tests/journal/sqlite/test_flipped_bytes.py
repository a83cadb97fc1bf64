"""Whatever byte of a database is damaged, each reader gets data of the right kind or is told."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.batches import batch, commit
from tests.support.damage import IDS, fill
from tests.support.kept_keys import taking
from tests.support.loops import soon
from understudy import Observer, Status
from understudy.errors import SchemaVersionError, StoreDamaged, StoreError, UnknownAgent, UsageError
from understudy.journal import DatabaseStore, IndexStatus
from understudy.journal.checkpoints import read_checkpoint
from understudy.journal.codec import decode
from understudy.journal.contracts import Owned
from understudy.journal.decided import DecidedQuery
from understudy.journal.lists import AgentQuery, AskQuery
from understudy.journal.notices import STATES
from understudy.journal.sqlite.backend import SqliteBackend
from understudy.state.trust_facts import content_of
from understudy.state.trust_log import TrustFact
from understudy.trust import Rules, deny

NOON = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)
TOLD = (StoreError, SchemaVersionError, UnknownAgent, UsageError)
"""What an observer may raise. A feed whose switch is damaged is off, which is a `UsageError`."""


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be read is logged, each time."""
    caplog.set_level(logging.CRITICAL)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database in pages of 512 bytes, in which each table has rows."""
    path = tmp_path_factory.mktemp("whole") / "store.db"
    fill(SqliteBackend(str(path), durability="off", host="here"))
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute("PRAGMA page_size = 512")
        other.execute("VACUUM")
        other.execute("PRAGMA journal_mode = WAL")
        tables = [
            name
            for (name,) in other.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql > ''"
            )
        ]
        empty = [name for name in tables if not other.execute(f"SELECT 1 FROM {name}").fetchone()]
    assert empty == [], "each table is read"
    return path.read_bytes()


def looks(path: Path) -> Iterator[Callable[[], object]]:
    """Each way in which a backend reads, once; then opening it and writing."""
    looking = SqliteBackend(str(path), host="looking")

    def load() -> None:
        for agent_id in IDS:
            stored = looking.load(agent_id, 0)
            for each in stored.records if stored is not None else ():
                decode(each)

    def load_latest() -> None:
        for agent_id in IDS:
            found = looking.load_latest(agent_id)
            if found is not None and found[0] is not None:
                woken = read_checkpoint(found[0], found[1].agent.incarnation)
                assert woken is None or woken.state.messages is not None

    def asks(query: AskQuery) -> None:
        for ask in looking.list_asks(query, None, 9):
            _ = ask.request() if query.kind == "request" else ask.wait()

    def feed() -> None:
        now = looking.read_feed(None, 0)
        page = None if now is None else looking.read_feed((0, 0), 100)
        for row in page.rows if page is not None else ():
            with suppress(StoreError):  # one row is left out
                row.record()

    yield load
    yield load_latest
    yield lambda: looking.load_blobs("rests", None)
    yield lambda: looking.notices(STATES, None, 9)
    yield lambda: looking.agents(None, "", 9)
    yield lambda: looking.agents(set(IndexStatus), "", 9)
    yield lambda: looking.due(NOON, None, 9)
    for query in (
        AgentQuery(),
        AgentQuery(prefix="r"),
        AgentQuery(agent="desk"),
        AgentQuery(status="idle"),
        AgentQuery(updated_since=datetime(2000, 1, 1, tzinfo=timezone.utc)),
    ):
        yield partial(looking.list_agents, query, None, 9)
    for ask in (
        AskQuery(),
        AskQuery(order="expiring"),
        AskQuery(kind="wait"),
        AskQuery(tool="pay"),
        AskQuery(agent="gate"),
    ):
        yield partial(asks, ask)

    def decided(query: DecidedQuery) -> None:
        for each in looking.list_decided(query, None, 9):
            with suppress(StoreError, SchemaVersionError):  # one row is left out
                each.decided().to_dict()
        looking.count_decided(query)

    for which in (DecidedQuery(), DecidedQuery(person="ann"), DecidedQuery(agent_id="asks")):
        yield partial(decided, which)
    yield lambda: looking.count_troubles(NOON, NOON)
    yield lambda: looking.read_usage(0, 10**6)
    yield looking.count_agents
    yield looking.key_secret
    yield lambda: looking.has_old_keys(NOON)
    yield lambda: [content_of(fact) for fact in looking.trust_after(0)]
    yield feed
    yield looking.load_spending
    yield looking.close
    backend = SqliteBackend(str(path), host="here", durability="off")
    yield backend.open

    def write() -> None:
        try:
            backend.begin()
            owned = backend.claim("asks", "gate")
            backend.commit()
            assert isinstance(owned, Owned)
            added = batch(owned, "more")
            with commit(backend):
                backend.append(added)
            again = taking("one", "5", secret=backend.key_secret(), passes_done=True)
            with commit(backend):
                backend.take_key(owned, again)
            backend.is_committed(added)
            fact = TrustFact(number=3, at=NOON, by=None, kind="x", data={})
            with commit(backend):
                backend.add_trust(fact)
            with commit(backend):
                backend.delete("waits")
        finally:
            backend.rollback()

    yield write
    yield backend.close


def flips(whole: bytes, places: Sequence[int], chance: random.Random) -> Iterator[bytes]:
    for at in places:
        flipped = bytearray(whole)
        flipped[at] ^= chance.choice([0xFF, 1 << chance.randrange(8)])
        yield bytes(flipped)


def unlike_a_store(path: Path) -> list[BaseException]:
    """What is raised that is no error of a store."""
    raised: list[BaseException] = []
    for look in looks(path):
        try:
            look()
        except (StoreError, SchemaVersionError):
            pass
        except Exception as error:  # whatever comes is looked at
            raised.append(error)
    return raised


def laid(folder: Path, data: bytes) -> Path:
    for file in folder.glob("damaged.db*"):
        file.unlink()
    path = folder / "damaged.db"
    path.write_bytes(data)
    return path


async def observed(path: Path) -> AsyncIterator[Exception]:
    """What an `Observer` of this database raises, of all that it can be asked."""
    store = DatabaseStore(SqliteBackend(str(path), host="looking"), patience=0.0)
    observer = Observer(store)
    try:
        await soon(observer.__aenter__())
    except Exception as error:
        yield error
        return
    try:
        feed = observer.events(start="oldest")

        async def first_event() -> None:
            """Where none can be read, it waits for others."""
            first = asyncio.ensure_future(anext(aiter(feed)))
            await asyncio.wait({first}, timeout=0.2)
            if first.done():
                first.result()
            first.cancel()

        reads: list[Callable[[], Any]] = [
            *(observer.agents, observer.pending, observer.waiting, observer.count),
            *(observer.decided, observer.attention, observer.usage),
            lambda: observer.agents(status=Status.IDLE),
            lambda: observer.pending(order="expiring"),
            *(partial(observer.state, agent_id) for agent_id in IDS),
            *(partial(observer.history, agent_id) for agent_id in IDS),
            *(partial(observer.events, agent_id) for agent_id in IDS),
            *(partial(observer.export, agent_id) for agent_id in IDS),
            first_event,
            observer.registered_rules,
            partial(observer.try_rules, Rules(deny("*"))),
        ]
        for look in reads:
            try:
                await soon(look())
            except Exception as error:
                yield error
    finally:
        await observer.__aexit__(None, None, None)


SAMPLE = 90
SLICES = 8
EVERY = int(os.environ.get("FLIP_EVERY", "3"))
"""Of so many bytes one is flipped; `make soak` flips each."""


@pytest.mark.slow
def test_a_flipped_byte_here_and_there_raises_only_errors_of_a_store(
    whole: bytes, tmp_path: Path
) -> None:
    chance = random.Random(1)
    places = chance.sample(range(len(whole)), SAMPLE)
    for at, data in zip(places, flips(whole, places, chance), strict=True):
        assert unlike_a_store(laid(tmp_path, data)) == [], f"byte {at}"


@pytest.mark.slow
async def test_an_observer_of_a_database_with_a_flipped_byte_raises_only_errors_of_a_store(
    whole: bytes, tmp_path: Path
) -> None:
    chance = random.Random(2)
    used = [at for at, byte in enumerate(whole) if byte]
    places = chance.sample(used, SAMPLE // 3)
    for at, data in zip(places, flips(whole, places, chance), strict=True):
        told = [error async for error in observed(laid(tmp_path, data))]
        assert [error for error in told if not isinstance(error, TOLD)] == [], f"byte {at}"


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("part", range(SLICES))
async def test_whichever_byte_is_flipped_only_errors_of_a_store_are_raised(
    whole: bytes, tmp_path: Path, part: int
) -> None:
    chance = random.Random(part)
    places = [at for at, byte in enumerate(whole) if byte][part :: SLICES * EVERY]
    for number, (at, data) in enumerate(zip(places, flips(whole, places, chance), strict=True)):
        path = laid(tmp_path, data)
        if number % 8 == 0:  # it reads by the same backend
            told = [error async for error in observed(path)]
            assert [error for error in told if not isinstance(error, TOLD)] == [], f"byte {at}"
        assert unlike_a_store(path) == [], f"byte {at}"


DAMAGED = [
    ("agents", "epoch = -1", "'asks'"),
    ("agents", "incarnation = -1", "'asks'"),
    ("agents", "last_seq = 9223372036854775807", "'asks'"),
    ("agents", "last_seq = 99", "'asks'"),
    ("agents", "floor = 99", "'asks'"),
    ("agents", "key = 99", "'asks'"),
    ("agents", "index_status = 'rexx'", "'asks'"),
    ("agents", "definition = CAST(x'ff' AS TEXT)", "'asks'"),
    ("agents", "due = -9223372036854775807", "'asks'"),
    ("agents", "status_at = 9223372036854775807", "'asks'"),
    ("records", "version = 0", "record 1 of agent 'asks'"),
    ("records", "kind = 'rexx'", "record 1 of agent 'asks'"),
    ("records", "kind = CAST(x'ff' AS TEXT)", "'asks'"),
    ("records", "payload = x''", "record 1 of agent 'asks'"),
    ("records", "payload = x'ff'", "record 1 of agent 'asks'"),
    ("records", "payload = CAST('[]' AS BLOB)", "record 1 of agent 'asks'"),
    ("records", "payload = CAST('{}' AS BLOB)", "record 1 of agent 'asks'"),
]


@pytest.mark.parametrize(("table", "damage", "named"), DAMAGED, ids=[d[1] for d in DAMAGED])
async def test_damage_names_the_agent_and_the_record_wherever_an_agent_is_read(
    whole: bytes, tmp_path: Path, table: str, damage: str, named: str
) -> None:
    path = laid(tmp_path, whole)
    where = "agent_id = 'asks'" if table == "agents" else "id & 4294967295 = 1"
    with closing(sqlite3.connect(path)) as other, other:
        other.execute(f"UPDATE {table} SET {damage} WHERE {where}")
        other.execute("DELETE FROM checkpoints")  # else a state is read without its records
    async with Observer(f"sqlite:///{path}") as observer:
        for read in (observer.state, observer.history, observer.events, observer.export):
            with pytest.raises(StoreDamaged) as caught:
                await soon(read("asks"))
            assert named in str(caught.value)
        others = [info for info in await soon(observer.agents()) if info.id != "asks"]
        assert [info.damage for info in others] == [None, None]


async def test_a_row_of_the_feed_whose_text_is_damaged_hides_no_other(
    whole: bytes, tmp_path: Path
) -> None:
    path = laid(tmp_path, whole)
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE feed SET kind = CAST(x'ff' AS TEXT) WHERE no = 1")
    async with Observer(f"sqlite:///{path}") as observer:
        event = await soon(anext(aiter(observer.events(start="oldest"))))
    assert event.agent_id == "asks"


async def test_an_agent_with_an_unknown_status_is_counted_as_it_is_listed(
    whole: bytes, tmp_path: Path
) -> None:
    """It is damaged, and left out nowhere."""
    path = laid(tmp_path, whole)
    for word in ("rexx", "passive"):
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("UPDATE agents SET status = ? WHERE NOT deleted", (word,))
        async with Observer(f"sqlite:///{path}") as observer:
            listed = [info.status for info in await soon(observer.agents())]
            counts = await soon(observer.count())
        assert len(listed) == len(IDS)
        assert {status: n for status, n in counts.items() if n} == Counter(listed)
