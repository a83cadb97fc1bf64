"""Checkpoints: what a store brings of an agent with one is what its records alone bring (J32)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from pydantic_ai.messages import ModelMessagesTypeAdapter

from tests.support.batches import (
    agent_with,
    append,
    batch,
    claim,
    commit,
    loaded,
)
from tests.support.cut_off import Disk
from tests.support.databases import SqlDatabase
from tests.support.frozen.samples import AGENTS
from tests.support.held_commits import HeldCommits
from tests.support.left_out import LeftOut
from tests.support.loops import soon
from tests.support.scenarios import RICH, Scenario, live, make_agent, scenarios
from understudy import AgentState
from understudy.errors import StoreBroken, UsageError
from understudy.journal import (
    DatabaseStore,
    IndexStatus,
    JournalledAgent,
    Loaded,
    checkpoint_writer,
    replay,
)
from understudy.journal import checkpoints as cp
from understudy.journal.backend import Backend
from understudy.journal.checkpoints import (
    Checkpoint,
    KeptMessages,
    Segment,
    after_writing,
    dump_head,
    make_checkpoint,
    read_checkpoint,
)
from understudy.journal.contracts import Owned, StoredRecords
from understudy.journal.sqlite.backend import SqliteBackend
from understudy.state import records as r
from understudy.state.fold import apply
from understudy.testing import FaultyBackend

LONG = replace(RICH, turns=(*RICH.turns, (("note", 4), ("plain", 5)), (("note", 6), ("alone", 7))))
"""With more records than four checkpoints take."""


@pytest.fixture(autouse=True)
def small_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few records there are: `checkpoint_every` alone says when one is written."""
    monkeypatch.setattr(checkpoint_writer, "BYTES_PER_RECORD", 10**9)


def life(scenario: Scenario) -> list[r.Record]:
    """The records of a whole run."""
    disk = Disk()
    live(scenario, disk, [])
    return [r.record_from_dict(json.loads(line)) for line in disk.lines]


def recorded(made: Callable[[], Iterator[r.Record]]) -> list[r.Record]:
    return list(made())


@cache
def rich() -> tuple[r.Record, ...]:
    return tuple(life(LONG))


def stories() -> dict[str, Callable[[], Sequence[r.Record]]]:
    paused = Scenario(turns=((("note", 1), ("photo", 2)),), pauses=True)
    return {
        "rich": rich,
        "paused": lambda: life(paused),
        **{id: partial(recorded, made) for id, made in AGENTS.items()},
    }


class Writer(JournalledAgent):
    """An owner that records into a store, as an agent's actor does."""

    def __init__(self, store: DatabaseStore, owned: Owned, found: Loaded | None) -> None:
        self.store = store
        self.state = AgentState() if found is None else found.folded()
        self.journal = store.journal(owned, self)
        self.journal.write_checkpoints(found)

    def ledger_state(self) -> AgentState:
        return self.state

    async def record(self, *records: r.Record) -> None:
        self.journal.append(records)
        for record in records:
            apply(self.state, record)
        await soon(self.journal.durable())

    async def leave(self) -> None:
        self.journal.write_last_checkpoint()
        # The answer to any later change comes after the checkpoint.
        assert await soon(self.store.claim("nobody", None)) is None


@asynccontextmanager
async def opened(backend: Backend, **options: Any) -> AsyncIterator[DatabaseStore]:
    store = DatabaseStore(backend, patience=5.0, **options)
    await store.open(lambda: None)
    try:
        yield store
    finally:
        await store.close()


async def writer_of(store: DatabaseStore, id: str = "a") -> Writer:
    owned = await store.claim(id, "support")
    assert owned is not None
    return Writer(store, owned, await store.load_latest(id) if owned.last_seq else None)


async def latest(store: DatabaseStore, id: str = "a") -> Loaded:
    found = await soon(store.load_latest(id))
    assert found is not None
    return found


def in_checkpoint(found: Loaded) -> int:
    """The number of the record that the store's checkpoint is of; 0 = it has none."""
    return found.checkpoint.seq if found.checkpoint is not None else 0


# ------------------------------------------------------- the same state, at each record


@pytest.mark.slow
@pytest.mark.parametrize("story", stories())
@pytest.mark.parametrize("every", [1, 5])
async def test_a_state_from_a_checkpoint_is_the_fold_of_all_records(
    story: str, every: int, tmp_path: Path
) -> None:
    """J32. Cut off after any record."""
    await check_each_prefix(stories()[story](), every, tmp_path / "store.db")


async def check_each_prefix(records: Sequence[r.Record], every: int, path: Path) -> None:
    used, expected = 0, AgentState()
    backend = SqliteBackend(str(path), durability="off", host="here")
    async with opened(backend, checkpoint_every=every) as store:
        writer = await writer_of(store)
        for count, record in enumerate(records, 1):
            await writer.record(record)
            found = await latest(store)
            apply(expected, record)  # a state of its own: none of the writer's
            assert found.folded().to_dict() == expected.to_dict(), count
            used += in_checkpoint(found) > 0
    assert used >= len(records) - every, "the others are folded from the records alone"


def drawn(examples: int) -> settings:
    return settings(
        max_examples=examples,
        derandomize=True,
    )


def check_life(scenario: Scenario) -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(check_each_prefix(life(scenario), 3, Path(folder) / "store.db"))


@pytest.mark.slow
@drawn(4)
@given(scenarios)
def test_a_checkpoint_of_a_run_is_the_fold_of_its_records(scenario: Scenario) -> None:
    """J32. As above, for runs of all kinds."""
    check_life(scenario)


@pytest.mark.slow
@pytest.mark.faults
@drawn(15)
@given(scenarios)
def test_a_checkpoint_of_any_run_is_the_fold_of_its_records(scenario: Scenario) -> None:
    """J32."""
    check_life(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("story", ["rich", "desk", "panel"])
async def test_each_activation_goes_on_from_the_checkpoints_of_those_before(
    story: str, tmp_path: Path
) -> None:
    """J32."""
    records = stories()[story]()
    backend = SqliteBackend(str(tmp_path / "store.db"), durability="off", host="here")
    expected = AgentState()
    async with opened(backend, checkpoint_every=2) as store:
        for count, record in enumerate(records, 1):
            writer = await writer_of(store)
            await writer.record(record)
            await writer.leave()
            found = await latest(store)
            apply(expected, record)
            assert found.folded().to_dict() == expected.to_dict(), count
        assert in_checkpoint(found) >= len(records) - 1


async def test_what_was_folded_does_not_change_the_checkpoint_that_was_read(
    tmp_path: Path,
) -> None:
    records = stories()["rich"]()
    backend = SqliteBackend(str(tmp_path / "store.db"), durability="off", host="here")
    async with opened(backend, checkpoint_every=10) as store:
        writer = await writer_of(store)
        await writer.record(*records[:15])
        await writer.record(*records[15:20])
        found = await latest(store)
    assert in_checkpoint(found)
    assert found.folded() == found.folded() == replay(records[:20])


# ------------------------------------------------------------------------------- damage


def made(records: Sequence[r.Record], incarnation: int = 1) -> Checkpoint:
    state = replay(records)
    kept = KeptMessages(None, len(records), 0, 0)
    head = dump_head(state, after_writing(kept, len(state.messages)))
    return make_checkpoint(incarnation, len(records), head, kept, state.messages[:])


def flipped(data: bytes) -> Iterator[bytes]:
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << (bit % 8)
        yield bytes(changed)


@pytest.mark.slow
def test_no_bit_of_a_checkpoint_can_flip_unnoticed() -> None:
    """J32."""
    whole = made(stories()["waiting"]())
    assert read_checkpoint(whole, 1) is not None
    (segment,) = whole.segments
    for head in flipped(whole.head):
        assert read_checkpoint(replace(whole, head=head), 1) is None
    for payload in flipped(segment.payload):
        bad = replace(segment, payload=payload)
        assert read_checkpoint(replace(whole, segments=(bad,)), 1) is None
    for bit in range(63):
        for changed in (
            replace(whole, seq=whole.seq ^ (1 << bit)),
            replace(whole, crc=whole.crc ^ (1 << bit)),
            *(
                replace(whole, segments=(bad,))
                for bad in (
                    replace(segment, crc=segment.crc ^ (1 << bit)),
                    replace(segment, number=segment.number ^ (1 << bit)),
                    replace(segment, messages=segment.messages ^ (1 << bit)),
                )
            ),
        ):
            assert read_checkpoint(changed, 1) is None
    assert read_checkpoint(whole, 2) is None, "of another incarnation"


@pytest.mark.slow
async def test_a_damaged_head_that_is_believed_is_noticed(
    left_out: LeftOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J32."""
    await left_out(
        lambda: monkeypatch.setattr(cp, "_head_crc", lambda *_: 0),
        lambda _: test_no_bit_of_a_checkpoint_can_flip_unnoticed(),
    )


def test_a_segment_that_is_missing_or_of_another_checkpoint_is_noticed() -> None:
    """J32."""
    records = stories()["rich"]()
    whole, shorter = made(records), made(records[:-1])
    assert read_checkpoint(replace(whole, segments=()), 1) is None
    assert (
        read_checkpoint(
            replace(
                whole,
                segments=(*whole.segments, Segment(number=1, messages=0, payload=b"[]", crc=0)),
            ),
            1,
        )
        is None
    )
    assert read_checkpoint(replace(whole, segments=shorter.segments), 1) is None


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE checkpoints SET head = x'7b7d'",
        "UPDATE checkpoints SET seq = seq - 1",
        "UPDATE checkpoints SET seq = 1000000",
        "UPDATE checkpoints SET incarnation = 7",
        "UPDATE checkpoint_segments SET payload = x'5b5d'",
        "UPDATE checkpoint_segments SET crc = crc + 1",
        "UPDATE checkpoint_segments SET messages = messages + 1",
        "DELETE FROM checkpoint_segments",
        "DELETE FROM checkpoints",
        "DROP TABLE checkpoint_segments",
    ],
)
async def test_a_damaged_checkpoint_is_not_used(damage: str, database: SqlDatabase) -> None:
    """J32. The agent is the same, and its next checkpoint is whole again."""
    records = stories()["rich"]()
    async with opened(database.backend("one"), checkpoint_every=10) as store:
        writer = await writer_of(store)
        await writer.record(*records[:30])
        assert in_checkpoint(await latest(store)) == 30
    async with opened(database.backend("two"), checkpoint_every=10) as store:
        assert in_checkpoint(await latest(store)) == 30
        database.sql(damage)
        found = await latest(store)
        assert in_checkpoint(found) == 0
        assert found.folded() == replay(records[:30])
        if not damage.startswith("DROP"):
            writer = await writer_of(store)
            await writer.record(*records[30:40])
            assert in_checkpoint(await latest(store)) == 40
            assert (await latest(store)).folded() == replay(records[:40])


async def test_a_checkpoint_of_another_version_of_the_fold_is_not_used(
    database: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J32."""
    records = stories()["rich"]()
    monkeypatch.setattr(cp, "VERSION", "0/another")
    async with opened(database.backend("older"), checkpoint_every=10) as store:
        await (await writer_of(store)).record(*records[:30])
        assert in_checkpoint(await latest(store)) == 30
    monkeypatch.undo()
    async with opened(database.backend("newer"), checkpoint_every=10) as store:
        assert in_checkpoint(await latest(store)) == 0
        writer = await writer_of(store)
        assert writer.state == replay(records[:30])
        await writer.leave()
        assert in_checkpoint(await latest(store)) == 30, "it is replaced"


# --------------------------------------------------------------------- when it is written


async def test_an_agent_with_few_records_gets_no_checkpoint(database: SqlDatabase) -> None:
    """J32."""
    async with opened(database.backend("here")) as store:
        writer = await writer_of(store)
        await writer.record(*stories()["resting"]())
        await writer.leave()
        assert in_checkpoint(await latest(store)) == 0
    assert database.sql("SELECT count(*) FROM checkpoints") == [(0,)]


@pytest.mark.quick
async def test_a_checkpoint_is_part_of_the_commit_of_its_records(database: SqlDatabase) -> None:
    """A commit of its own would cost a sync."""
    backend = HeldCommits(database.backend("here"))
    async with opened(backend, checkpoint_every=5) as store:
        writer = await writer_of(store)
        with backend.held():
            recording = asyncio.create_task(writer.record(*stories()["resting"]()[:5]))
            await backend.reached()
            assert in_checkpoint(await latest(store)) == 0
            backend.let_one_pass()
            await soon(recording)
            assert in_checkpoint(await latest(store)) == 5


async def test_a_large_head_is_written_more_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J32. What it costs stays in proportion to the records."""
    monkeypatch.setattr(checkpoint_writer, "BYTES_PER_RECORD", 32)
    backend = SqliteBackend(str(tmp_path / "store.db"), durability="off", host="here")
    written: list[int] = []
    whole = backend.write_checkpoint

    def noted(owned: Owned, checkpoint: Checkpoint) -> None:
        written.append(len(checkpoint.head))
        whole(owned, checkpoint)

    backend.write_checkpoint = noted  # type: ignore[method-assign]
    size = 0
    async with opened(backend, checkpoint_every=4) as store:
        writer = await writer_of(store)
        for number in range(800):
            record = r.ValuesMerged(delta={f"key{number}": "x" * 200}, source="Grows")
            size += 260
            await writer.record(record)
    assert sum(written) < size
    assert len(written) >= 3


@pytest.mark.slow
async def test_the_messages_of_a_long_life_are_written_once(tmp_path: Path) -> None:
    """J32. Linear space."""
    records = long_life(300)
    path = tmp_path / "store.db"
    backend = SqliteBackend(str(path), durability="off", host="here")
    async with opened(backend, checkpoint_every=40) as store:
        for start in range(0, len(records), 100):
            writer = await writer_of(store)
            for at in range(start, min(start + 100, len(records)), 20):
                await writer.record(*records[at : min(at + 20, start + 100)])
            await writer.leave()
        found = await store.read(lambda: backend.load_latest("a"))
    assert found is not None
    assert found[0] is not None
    state = replay(records)
    whole = len(ModelMessagesTypeAdapter.dump_json(state.messages[:], exclude_none=True))
    assert sum(segment.messages for segment in found[0].segments) >= len(state.messages) - 20
    assert sum(len(segment.payload) for segment in found[0].segments) <= whole
    assert len(found[0].head) < 5000


def long_life(turns: int) -> list[r.Record]:
    scenario = Scenario(turns=tuple((("plain", n),) for n in range(turns)))
    agent = make_agent(scenario, [])
    disk = Disk()
    agent.execute_sync("go", journal=disk, max_runs=turns + 5)
    return [r.record_from_dict(json.loads(line)) for line in disk.lines]


async def test_a_history_that_is_replaced_gets_segments_of_its_own(database: SqlDatabase) -> None:
    """J32."""
    records = list(stories()["desk"]())
    replaced = next(n for n, each in enumerate(records) if isinstance(each, r.HistoryReplaced))
    async with opened(database.backend("here"), checkpoint_every=1) as store:
        writer = await writer_of(store)
        await writer.record(*records[:replaced])
        await writer.record(*records[replaced:])
        found = await latest(store)
    assert in_checkpoint(found) == len(records)
    assert found.folded() == replay(records)


@pytest.mark.parametrize("value", [-1, 1.5, None, True])
def test_an_interval_that_is_none_is_refused(value: Any, tmp_path: Path) -> None:
    backend = SqliteBackend(str(tmp_path / "store.db"), host="here")
    with pytest.raises(UsageError, match="checkpoint_every"):
        DatabaseStore(backend, checkpoint_every=value)


async def test_zero_writes_none(database: SqlDatabase) -> None:
    async with opened(database.backend("here"), checkpoint_every=0) as store:
        writer = await writer_of(store)
        await writer.record(*stories()["rich"]())
        await writer.leave()
        assert in_checkpoint(await latest(store)) == 0


# ---------------------------------------------------------------------- failures, crashes


@pytest.mark.slow
@pytest.mark.parametrize("method", ["write_checkpoint", "append_all", "commit"])
@pytest.mark.parametrize("after", [False, True])
async def test_a_write_that_fails_is_made_again_with_its_records(
    method: str, after: bool, database: SqlDatabase
) -> None:
    """J32. Before and after each write of a checkpoint."""
    records = stories()["rich"]()
    for at in range(1, 6):
        id = f"agent{at}"
        backend = FaultyBackend(database.backend(id))
        async with opened(backend, checkpoint_every=5) as store:
            writer = await writer_of(store, id)
            backend.fail(method, at=at, after=after)
            for count in range(0, 30, 5):
                await writer.record(*records[count : count + 5])
            assert backend.mend()
            found = await latest(store, id)
        assert in_checkpoint(found) == 30
        assert found.folded() == replay(records[:30])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["write_checkpoint", "commit"])
@pytest.mark.parametrize("after", [False, True])
async def test_a_crash_at_any_write_leaves_an_agent_that_its_records_fold_to(
    method: str, after: bool, database: SqlDatabase
) -> None:
    """J32. The store is broken at that write; another one opens the database."""
    records = stories()["rich"]()
    for at in range(1, 6):
        id = f"agent{at}"
        backend = FaultyBackend(database.backend(f"{id}-a"))
        async with opened(backend, checkpoint_every=5) as store:
            writer = await writer_of(store, id)
            backend.fail(
                method, at=at, after=after, fault=lambda: StoreBroken(cause="x", remedy="y")
            )
            for count in range(0, 40, 5):
                with suppress(StoreBroken):
                    await writer.record(*records[count : count + 5])
            assert backend.mend()
        async with opened(database.backend(f"{id}-b")) as store:
            found = await latest(store, id)
        assert found.agent.last_seq in range(0, 40, 5)
        assert found.folded() == replay(records[: found.agent.last_seq])


async def test_a_message_that_was_changed_into_what_json_lacks_costs_its_records_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = life(LONG)  # its own: it changes a message of them
    backend = SqliteBackend(str(tmp_path / "store.db"), durability="off", host="here")
    async with opened(backend, checkpoint_every=8) as store:
        writer = await writer_of(store)
        await writer.record(*records[:7])
        (first, *_) = writer.state.messages[0].parts
        first.content = object()  # type: ignore[misc, union-attr]
        await writer.record(*records[7:9])
        await writer.record(*records[9:40])
        found = await latest(store)
    assert in_checkpoint(found) == 0
    assert found.folded() == replay(records[:40])
    assert "gets no checkpoint" in caplog.text


# ------------------------------------------------------------------ in the words of `Backend`


def kept(backend: Backend, id: str = "a") -> tuple[Checkpoint | None, StoredRecords]:
    found = backend.load_latest(id)
    assert found is not None
    return found


def write(backend: Backend, owned: Owned, seq: int, *texts: str, first: int = 0) -> None:
    segments = tuple(
        Segment(number=number, messages=1, payload=text.encode(), crc=2**32 - 1)
        for number, text in enumerate(texts, first)
    )
    checkpoint = Checkpoint(seq=seq, head=b"head", crc=7, segments=segments, first_segment=first)
    with commit(backend):
        backend.write_checkpoint(owned, checkpoint)


def payloads(backend: Backend) -> list[bytes]:
    found, _ = kept(backend)
    return [segment.payload for segment in found.segments] if found is not None else []


def test_a_checkpoint_is_read_with_the_records_behind_it(backend: Backend) -> None:
    """J32."""
    owned = agent_with(backend, "a", "one", "two", "three")
    assert kept(backend) == (None, loaded(backend))
    write(backend, owned, 2, "x", "y")
    found, records = kept(backend)
    assert records == loaded(backend, after=2)
    assert found == Checkpoint(
        seq=2,
        head=b"head",
        crc=7,
        segments=(
            Segment(number=0, messages=1, payload=b"x", crc=2**32 - 1),
            Segment(number=1, messages=1, payload=b"y", crc=2**32 - 1),
        ),
    )
    assert backend.load_latest("nobody") is None


def test_segments_are_added_or_take_the_place_of_others(backend: Backend) -> None:
    """J32."""
    owned = agent_with(backend, "a", "one", "two", "three")
    write(backend, owned, 1, "x", "y")
    write(backend, owned, 2, "z", first=2)
    assert payloads(backend) == [b"x", b"y", b"z"]
    write(backend, owned, 3, "v", first=1)
    assert payloads(backend) == [b"x", b"v"]
    write(backend, owned, 3, "w")
    assert payloads(backend) == [b"w"]


@pytest.mark.quick
def test_an_owner_that_is_fenced_writes_no_checkpoint(database: SqlDatabase) -> None:
    """J32, J8."""
    backend = database.open()
    old = agent_with(backend, "a", "one", "two")
    write(backend, old, 1, "x")
    new = claim(backend, "a", None)
    write(backend, old, 2, "stale")
    assert payloads(backend) == [b"x"]
    write(backend, new, 2, "y")
    assert payloads(backend) == [b"y"]


def test_no_checkpoint_is_ahead_of_the_records(backend: Backend) -> None:
    """J32."""
    owned = agent_with(backend, "a", "one")
    write(backend, owned, 2, "x")
    assert kept(backend) == (None, loaded(backend))
    append(backend, replace(owned, last_seq=1), "two")
    assert kept(backend) == (None, loaded(backend)), "nor is it there once they have come"


def test_a_checkpoint_goes_with_the_records_that_are_compacted_or_deleted(
    database: SqlDatabase,
) -> None:
    """J32."""
    backend = database.open()
    owned = agent_with(backend, "a", "one", "two")
    write(backend, owned, 2, "x")
    with commit(backend):
        backend.compact(batch(replace(owned, last_seq=2), "snapshot"))
    assert kept(backend)[0] is None

    write(backend, owned, 3, "y")
    assert payloads(backend) == [b"y"]
    with commit(backend):
        backend.delete("a")
    assert backend.load_latest("a") is None
    for table in ("checkpoints", "checkpoint_segments"):
        assert database.sql(f"SELECT count(*) FROM {table}") == [(0,)], table
    again = agent_with(backend, "a", "one", "two", "three")
    assert kept(backend) == (None, loaded(backend)), "another incarnation"
    write(backend, again, 3)
    assert payloads(backend) == []
    assert kept(backend)[0] is not None


def test_the_checkpoints_of_agents_are_their_own(backend: Backend) -> None:
    first, second = agent_with(backend, "a", "one"), agent_with(backend, "b", "one")
    write(backend, first, 1, "x")
    write(backend, second, 1, "y")
    with commit(backend):
        backend.delete("b")
    assert payloads(backend) == [b"x"]
    append(backend, replace(first, last_seq=1), "two", index_status=IndexStatus.REST)
    assert kept(backend)[1] == loaded(backend, after=1)


def test_a_checkpoint_that_is_rolled_back_is_not_there(backend: Backend) -> None:
    owned = agent_with(backend, "a", "one")
    backend.begin()
    backend.write_checkpoint(owned, Checkpoint(seq=1, head=b"head", crc=7, segments=()))
    backend.rollback()
    assert kept(backend)[0] is None


def test_a_floor_above_a_checkpoint_voids_it(database: SqlDatabase) -> None:
    """J32: it is a cache, and the records are what counts."""
    backend = database.open()
    owned = agent_with(backend, "a", "one", "two", "three")
    write(backend, owned, 1, "x")
    database.sql("UPDATE agents SET floor = 2")
    database.sql(f"DELETE FROM records WHERE {database.seq} <= 2")
    assert kept(backend) == (None, loaded(backend))
