"""What is stored does not change by accident.

The files under `tests/data` were written once, and are read by the code of today: all means the
same, and is written again as it was. The README there says what they are, and what to do when a
test here fails.

Rules: J32.
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
    Place,
    PostgresPlace,
    SqlitePlace,
    frozen,
)
from tests.support.frozen.samples import (
    DELETED,
    FACTS,
    LOST_ATTEMPTS,
    NOTES,
    sample_errors,
    sample_names,
)
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
from understudy.interrupts import Request
from understudy.journal import (
    DatabaseStore,
    IndexEntry,
    IndexStatus,
    Loaded,
    StoredAgent,
    index_entry_of,
)
from understudy.journal.checkpoints import VERSION
from understudy.journal.codec import decode, encode
from understudy.journal.contracts import Batch
from understudy.journal.lists import AgentQuery, AskQuery
from understudy.journal.shared import SharedBackend
from understudy.journal.store_format import library_version
from understudy.state.doubts import Doubt
from understudy.state.fold import replay
from understudy.state.record_format import record_format
from understudy.state.records import Record, record_from_dict
from understudy.state.request_notes import NOTE_KINDS
from understudy.state.reviews import Review
from understudy.state.trust_facts import KINDS, content_of
from understudy.state.waits import Wait

Made = Callable[..., Place]

REMEDY = (
    "This is stored, and not frozen in tests/data/v1: give it such a value in "
    "tests/support/frozen/samples.py, and write the data anew (see tests/data/README.md)."
)
CHANGED = (
    "Stored data holds this, and it can be read no more, or what is stored now is something else. "
    "Undo that. If it is meant, write the data anew (see tests/data/README.md): every store of "
    "before is refused then."
)


def check_none(lines: list[str], remedy: str) -> None:
    assert not lines, "\n".join([remedy, *lines[:50]])


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Made]:
    """Makes databases: with the frozen store, or empty."""
    opened: list[Hosts] = []

    def made(*, is_empty: bool = False) -> Place:
        if request.param == "sqlite":
            return SqlitePlace(tmp_path / f"{is_empty}.db", is_empty=is_empty)
        opened.append(Hosts(request.getfixturevalue("postgres_url")))
        return PostgresPlace(opened[-1], is_empty=is_empty)

    yield made
    for hosts in opened:
        hosts.close()


FAR = datetime(9999, 1, 1, tzinfo=timezone.utc)


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


def exported() -> dict[str, list[Record]]:
    documents = frozen("exports.json")
    return {
        id: [record_from_dict(record) for record in document["records"]]
        for id, document in documents.items()
    }


def text(data: Any) -> str:
    """JSON in which the order of keys counts, too."""
    return json.dumps(data, indent=1)


# ------------------------------------------------------------------------- stores


def test_the_format_of_today_is_the_one_that_is_frozen() -> None:
    """J96: it is computed anew in each Python and on each platform, and always the same."""
    assert {document["format"] for document in frozen("exports.json").values()} == {
        record_format()
    }, CHANGED


@pytest.mark.quick
async def test_each_record_of_a_store_is_read_with_the_fields_it_was_written_with(
    place: Made,
) -> None:
    found = await loaded_from(place())

    records = {id: plain(list(loaded.records)) for id, loaded in found.items()}
    check_none(lost(frozen("records.json"), records), CHANGED)


async def test_the_index_of_a_store_describes_each_agent_as_before(
    place: Made,
) -> None:
    documents = frozen("exports.json")

    found = await loaded_from(place())

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
            index_status=entry.status,
            host=None,
            due=entry.due,
            agent_status=entry.agent_status,
            status_at=agent.status_at,
            run_version=entry.run_version,
        )
        assert agent.incarnation == 2
    assert found.keys() == documents.keys()
    assert {loaded.agent.index_status for loaded in found.values()} == set(IndexStatus), REMEDY


def test_each_record_is_written_again_as_the_very_bytes(place: Made) -> None:
    for stored in stored_in(place()):
        assert encode(decode(stored)) == stored, CHANGED


def stored_in(place: Place) -> list[Any]:
    place.backend.open()
    try:
        found = [place.backend.load(id, 0) for id in frozen("records.json")]
    finally:
        place.backend.close()
    return [record for stored in found if stored is not None for record in stored.records]


async def test_a_store_knows_what_its_agents_wait_for(place: Made) -> None:
    """J30."""
    store = DatabaseStore(place().backend)
    await store.open(lambda: None)
    try:
        found = {agent.agent_id: agent.due async for agent in store.due(FAR)}
        agents = await store.list_agents(AgentQuery(), None, 100)
        asks = await store.list_asks(AskQuery(), None, 100)
        waits = await store.list_asks(AskQuery(kind="wait"), None, 100)
        doubts = await store.list_asks(AskQuery(kind="doubt"), None, 100)
        reviews = await store.list_asks(AskQuery(kind="review"), None, 100)
        counts = await store.count_agents()
    finally:
        await store.close()

    folded = {id: replay(loaded) for id, loaded in exported().items()}
    assert found == {id: state.next_due for id, state in folded.items() if state.next_due}
    entries = {id: index_entry_of(state) for id, state in folded.items()}
    assert {agent.agent_id: agent.agent_status for agent in agents} == {
        id: entry.agent_status for id, entry in entries.items()
    }
    assert counts == Counter(entry.agent_status for entry in entries.values())
    wanted = [
        (id, _of_agent(ask.asked, id), ask.told)
        for id, entry in entries.items()
        for ask in entry.asks
    ]
    listed: list[Any] = [(ask.agent_id, ask.request(), ask.told) for ask in asks]
    listed += [(ask.agent_id, ask.wait(), ask.told) for ask in waits]
    listed += [(ask.agent_id, ask.doubt(), ask.told) for ask in doubts]
    listed += [(ask.agent_id, ask.review(), ask.told) for ask in reviews]
    assert sorted(listed, key=repr) == sorted(wanted, key=repr)
    assert found, REMEDY
    assert asks, REMEDY
    assert waits, REMEDY
    assert doubts, REMEDY
    assert reviews, REMEDY


def _of_agent(asked: Request | Wait | Doubt | Review, id: str) -> Request | Wait | Doubt | Review:
    """What is asked, as the index has it: with the agent of its row."""
    if isinstance(asked, Doubt | Review):
        return replace(asked, agent_id=id, agent=f"{id}-definition")
    return replace(asked, agent_id=id) if isinstance(asked, Wait) else asked


async def test_an_agent_of_a_store_goes_on(place: Made) -> None:
    found = place()
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
        entry=IndexEntry(IndexStatus.QUEUED),
    )
    backend.append(new)
    backend.commit()
    backend.close()

    after = (await loaded_from(found))["desk"]
    assert after.records == (*before.records, before.records[0])
    assert after.agent.index_status is IndexStatus.QUEUED


def test_an_agent_that_was_deleted_begins_anew_above_its_last_epoch(
    place: Made,
) -> None:
    backend = place().backend
    backend.open()

    backend.begin()
    assert backend.claim(DELETED, None) is None
    owned = backend.claim(DELETED, "another-definition")
    backend.commit()
    backend.close()

    assert owned is not None
    assert (owned.agent, owned.incarnation, owned.epoch) == ("another-definition", 2, 2)
    assert owned.last_seq == 0


def test_the_lost_attempts_of_a_store_are_read(place: Made) -> None:
    """A database for a single runtime keeps none."""
    folded = frozen("folded.json")
    backend = place().backend
    backend.open()
    if isinstance(backend, SharedBackend):
        for id, state in folded.items():
            if state.get("run") is not None:
                found = backend.lost_attempts(id, state["run"]["run_id"])
                assert found == set(LOST_ATTEMPTS), CHANGED
    backend.close()


def test_the_facts_of_the_log_of_trust_are_read(place: Made) -> None:
    backend = place().backend
    backend.open()
    facts = backend.trust_after(0)
    backend.close()
    assert tuple(map(content_of, facts)) == FACTS, CHANGED
    assert {type(each) for each in FACTS} == set(KINDS.values()), "a sample of each kind"


def test_the_notes_beside_requests_are_read(place: Made) -> None:
    backend = place().backend
    backend.open()
    [ask, *_] = backend.list_asks(AskQuery(), None, 1)
    of = [(ask.agent_id, ask.request().id), (ask.agent_id, "answered")]
    notes = [each.note for each in backend.notes(of, texts=True)]
    backend.close()
    assert ask.noted, CHANGED
    assert {each.id: each for each in notes if each} == {each.id: each for each in NOTES}, CHANGED
    assert {each.kind for each in NOTES} == set(NOTE_KINDS), "a sample of each kind"


@pytest.mark.quick
def test_a_store_that_was_opened_has_the_tables_that_a_new_one_has(
    place: Made,
) -> None:
    frozen_one, new = place(), place(is_empty=True)
    for each in (frozen_one, new):
        each.backend.open()
        each.backend.close()

    assert frozen_one.columns() == new.columns(), CHANGED


def test_every_column_of_the_frozen_store_holds_something(place: Made) -> None:
    assert place().empty_columns() == []


async def test_the_counters_of_a_store_are_those_that_it_kept(place: Made) -> None:
    store = DatabaseStore(place().backend)
    await store.open(lambda: None)
    assert store.spending is not None
    (found,) = await store.spending.counters()
    ((bucket, *sums),) = found.buckets
    assert (*found.counter, bucket) == ("refunds", "ada", 86_400)
    assert [str(each) for each in sums] == ["32.50", "20", "0.25"]
    await store.close()


# ------------------------------------------------------------------------ exports


async def test_a_store_exports_the_same_documents(place: Made) -> None:
    documents = frozen("exports.json")

    async with Runtime(store=DatabaseStore(place().backend)) as runtime:
        found = {id: await runtime.export(id) for id in documents}
    for document in documents.values():
        document["library"] = library_version()
    assert text(found) == text(documents), CHANGED


def test_each_record_of_an_export_is_read_with_the_fields_it_was_written_with() -> None:
    records = plain(exported())

    check_none(lost(frozen("records.json"), records), CHANGED)


async def test_an_export_is_imported() -> None:
    documents = frozen("exports.json")

    async with Runtime() as runtime:
        for document in documents.values():
            await runtime.import_(document)
        carried = {id: await runtime.export(id) for id in documents}

    for id, found in carried.items():
        *records, imported = found["records"]
        check_none(lost(documents[id]["records"], records), CHANGED)
        assert imported["kind"] == "imported"


# ------------------------------------------------------------------------- states


async def test_the_records_of_a_store_add_up_to_the_same_states(
    place: Made,
) -> None:
    found = await loaded_from(place())

    check_states({id: replay(loaded.records) for id, loaded in found.items()})


async def test_what_an_agent_wakes_from_is_the_same_state(place: Made) -> None:
    """A checkpoint is a cache. Where the fold has changed, `FOLD_VERSION` is another one."""
    backend = place().backend
    store = DatabaseStore(backend)
    await store.open(lambda: None)
    try:
        found = {id: await store.load_latest(id) for id in frozen("folded.json")}
        kept = await store.read(partial(backend.load_latest, "desk"))
    finally:
        await store.close()

    states = {id: loaded.folded() for id, loaded in found.items() if loaded is not None}
    check_states(states)
    used = [id for id, loaded in found.items() if loaded is not None and loaded.checkpoint]
    assert kept is not None
    assert kept[0] is not None, REMEDY
    assert used == (list(found) if json.loads(kept[0].head)["version"] == VERSION else [])


def test_the_records_of_an_export_add_up_to_the_same_states() -> None:
    check_states({id: replay(found) for id, found in exported().items()})


def check_states(states: dict[str, AgentState]) -> None:
    expected = frozen("folded.json")
    found = json.loads(json.dumps({id: state.to_dict() for id, state in states.items()}))
    check_none(differences(expected, found), CHANGED)


def test_a_stored_state_is_read_and_written_again() -> None:
    stored = frozen("state.json")

    found = AgentState.from_dict(stored).to_dict()

    assert text(found) == text(stored), CHANGED


def test_stop_signals_of_every_reason_are_read() -> None:
    stored = frozen("state.json")["run"]["closing"]["signals"]

    found = StopSignals.from_dict(stored)

    assert found.to_dict() == stored, CHANGED
    assert {signal.reason for signal in found} == set(StopReason), REMEDY


# ------------------------------------------------------------------------- errors


def test_a_stored_error_comes_back_as_its_class_with_its_facts() -> None:
    for stored in frozen("errors.json"):
        found = error_from_dict(stored)
        assert type(found).__name__ == stored["type"], CHANGED
        assert found.to_dict() == stored
        assert all(getattr(found, name) == value for name, value in stored["facts"].items())


def test_the_facts_of_errors_are_those_that_are_stored() -> None:
    stored = {error["type"]: error["facts"] for error in frozen("errors.json")}

    made = {type(error).__name__: error.facts for error in sample_errors()}

    assert made == stored, CHANGED


def test_every_error_class_is_frozen() -> None:
    stored = {error["type"] for error in frozen("errors.json")}

    assert error_names(UnderstudyError) == stored, CHANGED


def error_names(kind: type[UnderstudyError]) -> set[str]:
    """The library's own: tests have some, too."""
    ours = kind.__module__.split(".")[0] == "understudy"
    inner = [error_names(child) for child in kind.__subclasses__()]
    return ({kind.__name__} if ours else set()).union(*inner)


# ------------------------------------------------------------------ names, and all


def test_names_that_are_part_of_what_is_stored_stay() -> None:
    check_none(differences(frozen("names.json"), sample_names()), CHANGED)


def test_every_kind_of_record_with_every_field_is_frozen() -> None:
    missing = unset(nested_types(Record), exported())

    check_none(missing, REMEDY)


def test_every_default_that_is_left_out_of_records_is_frozen() -> None:
    missing = unused_defaults(nested_types(Record), exported())

    check_none(missing, CHANGED)


def test_every_field_of_the_state_is_frozen() -> None:
    state = AgentState.from_dict(frozen("state.json"))

    missing = unset(nested_types(AgentState), state)

    check_none(missing, REMEDY)


def test_every_word_that_a_field_may_hold_is_frozen() -> None:
    state = AgentState.from_dict(frozen("state.json"))

    missing = unused_words(nested_types(Record | AgentState), [exported(), state])

    check_none(missing, REMEDY)
