"""What older code has stored is read by the code of today, and means the same.

The files are under `tests/data`; its README says what they are, and what to do when a test here
fails because something was added. What is stored is not renamed or dropped.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.frozen.places import (
    DATA,
    GENERATIONS,
    NEWEST,
    Place,
    PostgresPlace,
    SqlitePlace,
    frozen,
)
from tests.support.frozen.samples import DELETED, LOST_ATTEMPTS, sample_errors, sample_names
from tests.support.frozen.walk import (
    differences,
    lost,
    nested_types,
    plain,
    unset,
    unused_defaults,
    unused_words,
)
from tests.support.postgres import Hosts
from understudy import AgentState, Runtime, StopReason, StopSignals, UnderstudyError
from understudy.errors import error_from_dict
from understudy.journal import (
    DatabaseStore,
    IndexStatus,
    Loaded,
    StoredAgent,
    index_entry_of,
    index_status_of,
)
from understudy.journal.checkpoints import VERSION
from understudy.journal.codec import decode, encode
from understudy.journal.contracts import (
    AGENT_STATUS,
    Batch,
    KeepsCheckpoints,
    KeepsLostAttempts,
)
from understudy.journal.lists import AgentQuery, AskQuery
from understudy.state.fold import replay
from understudy.state.records import Record, record_from_dict

Made = Callable[[str | None], Place]

REMEDY = (
    f"This is stored, and not frozen in tests/data/{NEWEST}: give it such a value in "
    "tests/support/frozen/samples.py, and write the next generation (see tests/data/README.md)."
)
NEVER = "Stored data holds this: it can be read no more, or what is stored now is something else."
ADDED = f"{NEVER} Where something was added instead: {REMEDY}"


def check_none(lines: list[str], remedy: str) -> None:
    assert not lines, "\n".join([remedy, *lines[:50]])


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Made]:
    """Makes databases: with the store of a generation, or empty."""
    opened: list[Hosts] = []

    def made(generation: str | None) -> Place:
        if request.param == "sqlite":
            return SqlitePlace(tmp_path / f"{generation}.db", generation)
        opened.append(Hosts(request.getfixturevalue("postgres_url")))
        return PostgresPlace(opened[-1], generation)

    yield made
    for hosts in opened:
        hosts.close()


FAR = datetime(9999, 1, 1, tzinfo=timezone.utc)

every_generation = pytest.mark.parametrize("generation", GENERATIONS)


async def loaded_from(place: Place) -> dict[str, Loaded]:
    """All agents of a store."""

    store = DatabaseStore(place.backend)
    await store.open(lambda: None)
    try:
        ids = [agent.agent_id async for agent in store.agents()]
        found = {id: await store.load(id) for id in ids}
    finally:
        await store.close()
    return {id: loaded for id, loaded in found.items() if loaded is not None}


def exported(generation: str) -> dict[str, list[Record]]:
    documents = frozen(generation, "exports.json")
    return {
        id: [record_from_dict(record) for record in document["records"]]
        for id, document in documents.items()
    }


def text(data: Any) -> str:
    """JSON in which the order of keys counts, too."""
    return json.dumps(data, indent=1)


# ------------------------------------------------------------------------- stores


@every_generation
async def test_each_record_of_a_store_is_read_with_the_fields_it_was_written_with(
    generation: str, place: Made
) -> None:
    found = await loaded_from(place(generation))

    records = {id: plain(list(loaded.records)) for id, loaded in found.items()}
    check_none(lost(frozen(generation, "records.json"), records), NEVER)


@every_generation
async def test_the_index_of_a_store_describes_each_agent_as_before(
    generation: str, place: Made
) -> None:
    documents = frozen(generation, "exports.json")

    found = await loaded_from(place(generation))

    for id, loaded in found.items():
        agent, document = loaded.agent, documents[id]
        entry = index_entry_of(replay(loaded.records))
        assert agent == StoredAgent(
            agent_id=document["agent_id"],
            agent=document["agent"],
            incarnation=document["incarnation"],
            epoch=3,
            last_seq=document["first_seq"] + len(document["records"]) - 1,
            floor=document["first_seq"] - 1,
            index_status=index_status_of(replay(loaded.records)),
            host=None,
            due=None if generation == "v1" else replay(loaded.records).next_due,
            agent_status=agent.agent_status,
            status_at=agent.status_at,
            run_version=None if generation == "v1" else entry.run_version,
        )
        known = AGENT_STATUS[entry.status] if generation == "v1" else entry.agent_status
        assert agent.agent_status == known
        assert agent.incarnation == 2
    assert found.keys() == documents.keys()
    assert {loaded.agent.index_status for loaded in found.values()} == set(IndexStatus), REMEDY


@every_generation
def test_nothing_that_a_store_holds_of_a_record_is_lost_where_it_is_written_again(
    generation: str, place: Made
) -> None:
    for stored in stored_in(place(generation), generation):
        again = encode(decode(stored))
        assert again.kind == stored.kind, NEVER
        check_none(lost(json.loads(stored.payload), json.loads(again.payload)), NEVER)


def test_each_record_is_written_again_as_the_very_bytes(place: Made) -> None:
    for stored in stored_in(place(NEWEST), NEWEST):
        assert encode(decode(stored)) == stored, ADDED


def stored_in(place: Place, generation: str) -> list[Any]:
    place.backend.open()
    try:
        found = [place.backend.load(id, 0) for id in frozen(generation, "records.json")]
    finally:
        place.backend.close()
    return [record for stored in found if stored is not None for record in stored.records]


@every_generation
async def test_a_store_finds_out_what_its_agents_wait_for(generation: str, place: Made) -> None:
    """J30."""
    store = DatabaseStore(place(generation).backend)
    await store.open(lambda: None)
    try:
        await store.index_agents()
        found = {agent.agent_id: agent.due async for agent in store.due(FAR)}
        agents = await store.list_agents(AgentQuery(), None, 100)
        asks = await store.list_asks(AskQuery(), None, 100)
        waits = await store.list_asks(AskQuery(kind="wait"), None, 100)
        doubts = await store.list_asks(AskQuery(kind="doubt"), None, 100)
        counts = await store.count_agents()
    finally:
        await store.close()

    folded = {id: replay(loaded) for id, loaded in exported(generation).items()}
    assert found == {id: state.next_due for id, state in folded.items() if state.next_due}
    entries = {id: index_entry_of(state) for id, state in folded.items()}
    assert {agent.agent_id: agent.agent_status for agent in agents} == {
        id: entry.agent_status for id, entry in entries.items()
    }
    assert counts == Counter(entry.agent_status for entry in entries.values())
    wanted = [
        (id, ask.asked if ask.kind == "request" else replace(ask.asked, agent_id=id), ask.told)
        for id, entry in entries.items()
        for ask in entry.asks
    ]
    listed: list[Any] = [(ask.agent_id, ask.request(), ask.told) for ask in asks]
    listed += [(ask.agent_id, ask.wait(), ask.told) for ask in waits]
    listed += [(ask.agent_id, ask.doubt(), ask.told) for ask in doubts]
    assert sorted(listed, key=repr) == sorted(wanted, key=repr)
    assert (found and asks and waits and doubts) or generation == "v1", REMEDY


@every_generation
async def test_an_agent_of_a_store_goes_on(generation: str, place: Made) -> None:
    found = place(generation)
    backend = found.backend
    before = (await loaded_from(found))["desk"]
    backend.open()

    backend.begin()
    owned = backend.claim("desk", None)
    assert owned is not None
    assert owned.epoch == before.agent.epoch + 1
    new = Batch(
        agent_id="desk",
        incarnation=owned.incarnation,
        epoch=owned.epoch,
        first_seq=owned.last_seq + 1,
        records=(encode(before.records[0]),),
        index_status=IndexStatus.QUEUED,
    )
    backend.append(new)
    backend.commit()
    backend.close()

    after = (await loaded_from(found))["desk"]
    assert after.records == (*before.records, before.records[0])
    assert after.agent.index_status is IndexStatus.QUEUED


@every_generation
def test_an_agent_that_was_deleted_begins_anew_above_its_last_epoch(
    generation: str, place: Made
) -> None:
    backend = place(generation).backend
    backend.open()

    backend.begin()
    assert backend.claim(DELETED, None) is None
    owned = backend.claim(DELETED, "another-definition")
    backend.commit()
    backend.close()

    assert owned is not None
    assert (owned.agent, owned.incarnation, owned.epoch) == ("another-definition", 2, 2)
    assert owned.last_seq == 0


@every_generation
def test_the_lost_attempts_of_a_store_are_read(generation: str, place: Made) -> None:
    """A database that is older than these has none, and one for a single runtime keeps none."""
    folded = frozen(generation, "folded.json")
    backend = place(generation).backend
    backend.open()
    if isinstance(backend, KeepsLostAttempts):
        kept = "lost_attempts" in (DATA / generation / "store.sql").read_text(encoding="utf-8")
        for id, state in folded.items():
            if state.get("run") is not None:
                found = backend.lost_attempts(id, state["run"]["run_id"])
                assert found == (set(LOST_ATTEMPTS) if kept else set()), NEVER
    backend.close()


@every_generation
def test_a_store_that_was_opened_has_the_tables_that_a_new_one_has(
    generation: str, place: Made
) -> None:
    old, new = place(generation), place(None)
    for each in (old, new):
        each.backend.open()
        each.backend.close()

    assert old.columns() == new.columns(), f"{NEVER} Tables are changed by an upgrade only."


def test_every_column_of_the_frozen_store_holds_something(place: Made) -> None:
    assert place(NEWEST).empty_columns() == []


# ------------------------------------------------------------------------ exports


@every_generation
async def test_a_store_exports_the_same_documents(generation: str, place: Made) -> None:
    documents = frozen(generation, "exports.json")

    async with Runtime(store=DatabaseStore(place(generation).backend)) as runtime:
        found = {id: await runtime.export(id) for id in documents}
    check_none(lost(documents, found), NEVER)
    if generation == NEWEST:
        assert text(found) == text(documents), ADDED


@every_generation
def test_each_record_of_an_export_is_read_with_the_fields_it_was_written_with(
    generation: str,
) -> None:
    records = plain(exported(generation))

    check_none(lost(frozen(generation, "records.json"), records), NEVER)


@every_generation
async def test_an_export_is_imported(generation: str) -> None:
    documents = frozen(generation, "exports.json")

    async with Runtime() as runtime:
        for document in documents.values():
            await runtime.import_(document)
        carried = {id: await runtime.export(id) for id in documents}

    for id, found in carried.items():
        *records, imported = found["records"]
        check_none(lost(documents[id]["records"], records), NEVER)
        assert imported["kind"] == "imported"


# ------------------------------------------------------------------------- states


@every_generation
async def test_the_records_of_a_store_add_up_to_the_same_states(
    generation: str, place: Made
) -> None:
    found = await loaded_from(place(generation))

    check_states(generation, {id: replay(loaded.records) for id, loaded in found.items()})


@every_generation
async def test_what_an_agent_wakes_from_is_the_same_state(generation: str, place: Made) -> None:
    """A checkpoint is a cache. Where the fold has changed, `FOLD_VERSION` is another one."""
    backend = place(generation).backend
    store = DatabaseStore(backend)
    await store.open(lambda: None)
    try:
        found = {id: await store.load_latest(id) for id in frozen(generation, "folded.json")}
        assert isinstance(backend, KeepsCheckpoints)
        kept = await store.reader.read(partial(backend.load_latest, "desk"))
    finally:
        await store.close()

    states = {id: loaded.folded() for id, loaded in found.items() if loaded is not None}
    check_states(generation, states)
    used = [id for id, loaded in found.items() if loaded is not None and loaded.checkpoint]
    head = kept[0].head if kept is not None and kept[0] is not None else b"{}"
    assert used == (list(found) if json.loads(head).get("version") == VERSION else [])
    assert (head == b"{}") == (generation == "v1"), REMEDY


@every_generation
def test_the_records_of_an_export_add_up_to_the_same_states(generation: str) -> None:
    check_states(generation, {id: replay(found) for id, found in exported(generation).items()})


def check_states(generation: str, states: dict[str, AgentState]) -> None:
    expected = frozen(generation, "folded.json")
    found = json.loads(json.dumps({id: state.to_dict() for id, state in states.items()}))
    check_none(lost(expected, found), NEVER)
    if generation == NEWEST:
        check_none(differences(expected, found), ADDED)


@every_generation
def test_a_stored_state_is_read_and_written_again(generation: str) -> None:
    stored = frozen(generation, "state.json")

    found = AgentState.from_dict(stored).to_dict()

    check_none(lost(stored, found), NEVER)
    if generation == NEWEST:
        assert text(found) == text(stored), ADDED


@every_generation
def test_stop_signals_of_every_reason_are_read(generation: str) -> None:
    stored = frozen(generation, "state.json")["run"]["closing"]["signals"]

    found = StopSignals.from_dict(stored)

    assert found.to_dict() == stored, NEVER
    if generation == NEWEST:
        assert {signal.reason for signal in found} == set(StopReason), REMEDY


# ------------------------------------------------------------------------- errors


@every_generation
def test_a_stored_error_comes_back_as_its_class_with_its_facts(generation: str) -> None:
    for stored in frozen(generation, "errors.json"):
        found = error_from_dict(stored)
        assert type(found).__name__ == stored["type"], NEVER
        assert found.to_dict() == stored
        assert all(getattr(found, name) == value for name, value in stored["facts"].items())


def test_the_facts_of_errors_are_those_that_are_stored() -> None:
    stored = {error["type"]: error["facts"] for error in frozen(NEWEST, "errors.json")}

    made = {type(error).__name__: error.facts for error in sample_errors()}

    assert made == stored, ADDED


def test_every_error_class_is_frozen() -> None:
    stored = {error["type"] for error in frozen(NEWEST, "errors.json")}

    assert error_names(UnderstudyError) == stored, ADDED


def error_names(kind: type[UnderstudyError]) -> set[str]:
    """The library's own: tests have some, too."""
    ours = kind.__module__.split(".")[0] == "understudy"
    inner = [error_names(child) for child in kind.__subclasses__()]
    return ({kind.__name__} if ours else set()).union(*inner)


# ------------------------------------------------------------------ names, and all


def test_names_that_are_part_of_what_is_stored_stay() -> None:
    check_none(differences(frozen(NEWEST, "names.json"), sample_names()), ADDED)


def test_every_kind_of_record_with_every_field_is_frozen() -> None:
    missing = unset(nested_types(Record), exported(NEWEST))

    check_none(missing, REMEDY)


def test_every_default_that_is_left_out_of_records_is_frozen() -> None:
    missing = unused_defaults(nested_types(Record), exported(NEWEST))

    check_none(missing, ADDED)


def test_every_field_of_the_state_is_frozen() -> None:
    state = AgentState.from_dict(frozen(NEWEST, "state.json"))

    missing = unset(nested_types(AgentState), state)

    check_none(missing, REMEDY)


def test_every_word_that_a_field_may_hold_is_frozen() -> None:
    state = AgentState.from_dict(frozen(NEWEST, "state.json"))

    missing = unused_words(nested_types(Record | AgentState), [exported(NEWEST), state])

    check_none(missing, REMEDY)
