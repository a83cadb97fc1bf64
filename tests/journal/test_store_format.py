"""A store of another format is refused at its opening; one of an earlier format is upgraded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import completed
from tests.support.databases import PostgresDatabase, SqlDatabase, SqliteDatabase
from tests.support.loops import soon
from tests.support.postgres import Hosts
from understudy import Agent, Observer, Runtime, ScriptedModel
from understudy.errors import SchemaVersionError, StoreError
from understudy.journal import DatabaseStore, codec
from understudy.journal.postgres import schema as postgres_schema
from understudy.journal.sqlite import schema as sqlite_schema
from understudy.journal.store_format import StoreFormat, Tables, library_version
from understudy.state.record_format import FORMAT_VERSION

TABLES: dict[str, Tables] = {"sqlite": sqlite_schema.TABLES, "postgres": postgres_schema.TABLES}
EACH_TABLE = [(kind, table) for kind, tables in TABLES.items() for table in sorted(tables.columns)]
EACH_COLUMN = [
    (kind, f"{table}.{column}")
    for kind, table in EACH_TABLE
    for column in sorted(TABLES[kind].columns[table])
]


Made = Callable[[str], SqlDatabase]


def of_kinds(values: list[tuple[str, str]]) -> list[Any]:
    marks = {"postgres": [pytest.mark.postgres], "sqlite": []}
    return [pytest.param(*value, id=" ".join(value), marks=marks[value[0]]) for value in values]


@pytest.fixture(scope="module")
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """By its kind, a database with tables, which all tests of this module share."""
    found: dict[str, SqlDatabase] = {}

    def database(kind: str) -> SqlDatabase:
        if kind not in found:
            if kind == "sqlite":
                found[kind] = SqliteDatabase(tmp_path_factory.mktemp("store"))
            else:
                hosts = Hosts(request.getfixturevalue("postgres_url"))
                request.addfinalizer(hosts.close)
                found[kind] = PostgresDatabase(hosts)
            found[kind].open().close()
        return found[kind]

    return database


@contextmanager
def altered(database: SqlDatabase, change: str, back: str) -> Iterator[None]:
    database.sql(change)
    try:
        yield
    finally:
        database.sql(back)


def refusals(database: SqlDatabase) -> list[SchemaVersionError]:
    """How one is refused who would write, and one who would read alone."""
    found: list[SchemaVersionError] = []
    with closing(database.backend("refused")) as backend:
        for opens in (backend.open, backend.open_to_read):
            with pytest.raises(SchemaVersionError) as caught:
                opens()
            found.append(caught.value)
    return found


# ---------------------------------------------------------------------- what is missing


@pytest.mark.parametrize(("kind", "name"), of_kinds(EACH_COLUMN))
def test_a_store_without_one_of_its_columns_is_refused(made: Made, kind: str, name: str) -> None:
    """J96: by name. Where the store can say so, with what wrote it."""
    database, (table, column) = made(kind), name.split(".")
    rename = f"ALTER TABLE {table} RENAME COLUMN"
    with altered(database, f"{rename} {column} TO lost", f"{rename} lost TO {column}"):
        for refused in refusals(database):
            assert f"the column {name!r} is missing" in refused.differences
            assert f"the column {name!r} is missing" in str(refused)
            says = table != "meta" or column not in StoreFormat._fields
            assert refused.library == (library_version() if says else "")
    with closing(database.backend("opened")) as opened:
        opened.open()


@pytest.mark.parametrize(("kind", "table"), of_kinds(EACH_TABLE))
def test_a_store_without_one_of_its_tables_is_refused(made: Made, kind: str, table: str) -> None:
    """J96: by name."""
    database = made(kind)
    with altered(
        database, f"ALTER TABLE {table} RENAME TO lost", f"ALTER TABLE lost RENAME TO {table}"
    ):
        for refused in refusals(database):
            assert refused.differences == [f"the table {table!r} is missing"]
            assert f"the table {table!r} is missing" in str(refused)
    with closing(database.backend("opened")) as opened:
        opened.open()


def test_a_column_that_is_not_known_is_refused(database: SqlDatabase) -> None:
    """J96: a later format may have it, and what this version writes would not fit it."""
    database.open().close()
    database.sql("ALTER TABLE agents ADD COLUMN note TEXT")
    for refused in refusals(database):
        assert refused.differences == ["the column 'agents.note' is not known"]


def test_a_table_that_is_not_known_belongs_to_somebody_else(database: SqlDatabase) -> None:
    """J96: SQLite makes some itself, and a schema of PostgreSQL may be shared."""
    database.open().close()
    database.sql("CREATE TABLE notes (note TEXT)")
    database.open()


# -------------------------------------------------------------------------- another format


def kind_of(database: SqlDatabase) -> str:
    return "sqlite" if isinstance(database, SqliteDatabase) else "postgres"


def said(database: SqlDatabase) -> StoreFormat:
    ((version, library, format),) = database.sql("SELECT version, library, format FROM meta")
    return StoreFormat(int(str(version)), str(library), str(format))


@pytest.mark.quick
def test_a_new_store_says_what_made_it(database: SqlDatabase) -> None:
    database.open()
    assert said(database) == TABLES[kind_of(database)].format
    assert said(database)[:2] == (FORMAT_VERSION, library_version())


@pytest.mark.quick
def test_a_store_of_another_fingerprint_is_refused_and_left_alone(database: SqlDatabase) -> None:
    """J96: its records have other fields, or its tables other types. It says who wrote it."""
    database.open().close()
    database.sql("UPDATE meta SET format = 'f00d', library = '0.0.9'")
    for refused in refusals(database):
        assert refused.library == "0.0.9"
        assert refused.format == "f00d"
        assert refused.differences == ["its records or tables are of another form"]
        for told in ("understudy 0.0.9", "f00d", "the version that wrote it", "begin with another"):
            assert told in str(refused)
    assert said(database)[1:] == ("0.0.9", "f00d")


@pytest.mark.parametrize(
    ("version", "remedy"), [(99, "upgrade understudy"), (-1, "the version that wrote it")]
)
def test_a_store_of_another_version_is_refused_and_left_alone(
    database: SqlDatabase, version: int, remedy: str
) -> None:
    """J96: also where its tables look the same."""
    database.open().close()
    database.sql(f"UPDATE meta SET version = {version}")
    for refused in refusals(database):
        assert (refused.version, refused.known) == (version, FORMAT_VERSION)
        assert str(version) in str(refused)
        assert remedy in str(refused)
    assert said(database).version == version


# ------------------------------------------------------------------------ earlier formats


def desk() -> Agent:
    return Agent("desk", ScriptedModel(["Done."] * 9))


def as_of_today(data: dict[str, Any]) -> dict[str, Any]:
    """The upgrade of records of format 0, where the status of an agent is called `mood`."""
    if "mood" in data:
        data = {**data, "status": data["mood"]}
        del data["mood"]
    return data


OLDER_RECORDS = {
    "sqlite": """UPDATE records SET version = 0,
        payload = CAST(replace(CAST(payload AS TEXT), '"status":', '"mood":') AS BLOB)
        WHERE kind IN ('run_started', 'run_ended')""",
    "postgres": """UPDATE records SET version = 0, payload = convert_to(
        replace(convert_from(payload, 'UTF8'), '"status":', '"mood":'), 'UTF8')
        WHERE kind IN ('run_started', 'run_ended')""",
}
UPGRADE = ["ALTER TABLE agents RENAME COLUMN mood TO status"]


def store_on(database: SqlDatabase) -> DatabaseStore:
    return DatabaseStore(database.backend("here"), checkpoint_every=0)


async def make_older_store(database: SqlDatabase) -> Sequence[str]:
    """A store as format 0 would have it, with an agent; what that has been told."""
    async with Runtime([desk()], store=store_on(database)) as runtime:
        completed(await soon(runtime.spawn("desk", "t").run("One.")))
    async with Observer(store_on(database)) as observer:
        told = [entry.what for entry in (await soon(observer.history("t"))).entries]
    database.sql("ALTER TABLE agents RENAME COLUMN status TO mood")
    database.sql(OLDER_RECORDS[kind_of(database)])
    database.sql("UPDATE meta SET version = 0, library = '0.0.9', format = 'f00d'")
    return told


def install(monkeypatch: pytest.MonkeyPatch, database: SqlDatabase, upgrade: list[str]) -> None:
    """Let this library know format 0."""
    schema: Any = sqlite_schema if kind_of(database) == "sqlite" else postgres_schema
    monkeypatch.setitem(schema.UPGRADES, 0, upgrade)
    monkeypatch.setitem(codec.UPGRADES, 0, as_of_today)


async def test_a_store_of_an_earlier_format_is_upgraded_with_what_it_holds(
    database: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J96: its tables at once, each record where it is read."""
    told = await make_older_store(database)
    install(monkeypatch, database, UPGRADE)
    async with Runtime([desk()], store=store_on(database)) as runtime:
        entries = (await soon(runtime.get("t").history())).entries
        assert [entry.what for entry in entries] == told
        assert [info.status for info in await soon(runtime.agents())] == ["idle"]
        assert completed(await soon(runtime.get("t").run("Two."))).text == "Done."
    assert said(database) == TABLES[kind_of(database)].format
    versions = database.sql("SELECT DISTINCT version FROM records ORDER BY version")
    assert versions == [(0,), (FORMAT_VERSION,)]
    async with Observer(store_on(database)) as observer:
        assert (await soon(observer.state("t"))).status == "idle"


async def test_who_reads_alone_upgrades_nothing(
    database: SqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J96."""
    await make_older_store(database)
    install(monkeypatch, database, UPGRADE)
    with pytest.raises(SchemaVersionError, match="open it once by a Runtime"):
        async with Observer(store_on(database)):
            pass
    assert said(database) == (0, "0.0.9", "f00d")


async def test_a_store_of_an_earlier_format_that_is_not_known_is_refused(
    database: SqlDatabase,
) -> None:
    """J96: an upgrade is missing, so nothing is changed."""
    await make_older_store(database)
    for refused in refusals(database):
        assert refused.version == 0
        assert "understudy 0.0.9" in str(refused)
    assert said(database) == (0, "0.0.9", "f00d")


@pytest.mark.parametrize(
    ("upgrade", "error", "told"),
    [
        ([*UPGRADE, "UPDATE nothing SET x = 1"], StoreError, "nothing"),
        ([], SchemaVersionError, "the column 'agents.status' is missing"),
    ],
)
async def test_an_upgrade_that_fails_or_is_not_complete_changes_nothing(
    database: SqlDatabase,
    monkeypatch: pytest.MonkeyPatch,
    upgrade: list[str],
    error: type[Exception],
    told: str,
) -> None:
    """J96."""
    await make_older_store(database)
    install(monkeypatch, database, upgrade)
    with closing(database.backend("here")) as backend, pytest.raises(error, match=told):
        backend.open()
    assert said(database) == (0, "0.0.9", "f00d")
    assert database.sql("SELECT mood FROM agents") == [("idle",)]


# ------------------------------------------------------------------------------- exports


async def exported(path: Path) -> dict[str, Any]:
    url = f"sqlite:///{path}"
    async with Runtime([desk()], store=url) as runtime:
        completed(await soon(runtime.spawn("desk", "t").run("One.")))
    async with Observer(url) as observer:
        return await soon(observer.export("t"))


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"format": "f00d"}, "understudy 0.0.9"),
        ({"format": None}, "another format"),
        ({"export_version": 99}, "upgrade understudy"),
        ({"export_version": 0}, "the version that wrote it"),
        ({"export_version": "x"}, "upgrade understudy"),
    ],
)
async def test_an_export_of_another_format_is_refused_before_anything_is_written(
    change: dict[str, Any], remedy: str, tmp_path: Path
) -> None:
    """J96: a missing word is another format, too."""
    document = {**await exported(tmp_path / "from.db"), "library": "0.0.9", **change}
    document = {name: value for name, value in document.items() if value is not None}
    async with Runtime([desk()], store=f"sqlite:///{tmp_path / 'to.db'}") as runtime:
        with pytest.raises(SchemaVersionError, match=remedy) as refused:
            await runtime.import_(document)
        assert refused.value.what == "export"
        assert await soon(runtime.agents()) == []


async def test_an_export_of_an_earlier_format_is_upgraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J96: record by record, as those of a store."""
    document = await exported(tmp_path / "from.db")
    for record in document["records"]:
        if record["kind"].startswith("run_"):
            record["mood"] = record.pop("status")
    document |= {"export_version": 0, "format": "f00d", "library": "0.0.9"}
    monkeypatch.setitem(codec.UPGRADES, 0, as_of_today)
    async with Runtime([desk()]) as runtime:
        await runtime.import_(document)
        assert (await soon(runtime.get("t").state())).status == "idle"
        assert completed(await soon(runtime.get("t").run("Two."))).text == "Done."
