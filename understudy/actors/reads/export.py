"""Export and import: an agent as data, moved from one store to another."""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import datetime, timezone
from functools import partial
from typing import Any, NamedTuple

from understudy._base.clock import Clock
from understudy._base.json_values import checked_text
from understudy._base.log_fields import log_extra
from understudy._base.pieces import ITEMS, each, in_pieces
from understudy.actors.agent.directory import checked_id
from understudy.actors.agent.stored_agents import unknown_agent
from understudy.actors.reads.archive import head_of
from understudy.errors import (
    JournalFailed,
    RecordRefused,
    SchemaVersionError,
    StoreDamaged,
    UsageError,
)
from understudy.journal import FoldedAgent, IndexStatus, Loaded, Store, StoreReads
from understudy.journal.codec import UPGRADES, encode, upgraded
from understudy.journal.loaded import size_of
from understudy.journal.parts import read_in_parts
from understudy.models.messages import Messages
from understudy.state.agent_state import AgentState
from understudy.state.blobs import check_kept
from understudy.state.fold import apply, replay
from understudy.state.record_format import FORMAT_VERSION, record_format
from understudy.state.records import (
    Imported,
    MessagesArchived,
    Record,
    Snapshot,
    record_to_dict,
)

logger: logging.Logger = logging.getLogger(__name__)


async def export(store: StoreReads, agent_id: str) -> dict[str, Any]:
    """All records of an agent, as JSON-able data.

    Raises:
        UnknownAgent: if there is no agent of this id.

    """
    loaded, found = await _read_to_export(store, agent_id)
    blobs: dict[str, bytes] = {}
    if "files" in store.keeps:
        blobs = dict(await store.load_blobs(agent_id, None))
        # Race: a compaction between the two reads takes what no file has any more, by what it knows
        # (test_an_export_beside_a_compaction_has_the_bytes_of_its_files).
        while blobs and not (await found.file_hashes(loaded)) <= blobs.keys():
            before = loaded.agent
            loaded, found = await _read_to_export(store, agent_id)
            if loaded.agent == before:
                what = f"the files of agent {agent_id!r}"
                raise StoreDamaged(what=what, cause="bytes that they consist of are not there")
            blobs = dict(await store.load_blobs(agent_id, None))
    runs: Mapping[str, str] = {}
    if loaded.first_seq > 1:  # the records say it else
        runs = await store.message_runs(agent_id, None)
    files: dict[str, str] = {}
    written: list[dict[str, Any]] = []

    def write(blob: tuple[str, bytes]) -> None:
        files[blob[0]] = b64encode(blob[1]).decode()

    await in_pieces(each(blobs.items(), write, size=lambda _: ITEMS))
    records = found.records

    def write_next(_: int) -> None:
        # Each is freed at once: all of them would be freed in one piece.
        written.append(record_to_dict(records.popleft()))

    await in_pieces(each(range(len(records)), write_next, size=lambda _: size_of(records[0])))
    return {
        **head_of(loaded.agent, loaded.first_seq),
        "records": written,
        **({"blobs": files} if files else {}),
        **({"message_runs": dict(runs)} if runs else {}),
    }


class _Records:
    """The records of an agent to export, as they are read."""

    def __init__(self) -> None:
        self.records: deque[Record] = deque()

    def add(self, seq: int, record: Record) -> None:
        self.records.append(record)

    async def file_hashes(self, loaded: Loaded) -> frozenset[str]:
        """The hashes of the files in the state that the records add up to.

        Raises:
            StoreDamaged: if they do not fit together.

        """
        state = AgentState()
        with loaded.as_damage():
            await in_pieces(each(self.records, partial(apply, state), size=size_of))
            return state.file_hashes


async def _read_to_export(store: StoreReads, agent_id: str) -> tuple[Loaded, _Records]:
    read = await read_in_parts(store, agent_id, lambda _: _Records())
    if read is None:
        raise await unknown_agent(store, agent_id)
    return read


async def import_(
    store: Store,
    data: Mapping[str, Any],
    agent_id: str | None,
    clock: Clock,
    by: str | None = None,
) -> tuple[str, datetime | None]:
    """Put an exported agent into a store, as a new incarnation. Returns its id, and when it is due.

    Of a person's import (`by`) no decision holds: whoever has an export can change it.

    Raises:
        UsageError: if there is an agent of this id, or the data is not an export.
        SchemaVersionError: if it has another format.

    """
    version, now = _checked_version(data), clock.now()
    # It may be large: agents go on meanwhile.
    found = await asyncio.to_thread(_as_imported, data, version, by, now)
    id = checked_id(found.agent_id if agent_id is None else agent_id)
    if await store.load(id) is not None:
        raise UsageError(
            f"There is an agent {id!r} already: import this one under another id, or delete it"
        )
    return id, await _append(store, id, found.agent, found.records, found.blobs)


class Exported(NamedTuple):
    """An exported agent, read and checked."""

    agent_id: str
    agent: str
    """The name of the exported agent's definition."""
    incarnation: int
    records: tuple[Record, ...]
    message_runs: dict[str, str]
    """The ids of the runs that took old messages, by message id."""
    blobs: dict[str, bytes]
    """The bytes of the exported agent's files, by hash."""

    @property
    def state(self) -> AgentState:
        """The state that the exported records add up to, with the bytes of its files.

        Raises:
            UsageError: if they do not fit together.

        """
        with _as_damage():
            state = replay(self.records)
            check_kept(state.file_hashes, self.blobs)
        state.blobs = dict(self.blobs) or None
        return state


def read_export(data: Mapping[str, Any]) -> Exported:
    """Read the data of an export, and change nothing of what it says.

    Raises:
        UsageError: if the data is not an export, or is damaged.
        SchemaVersionError: if it has another format.

    """
    return _decoded(data, _checked_version(data))


def _as_imported(data: Mapping[str, Any], version: int, by: str | None, now: datetime) -> Exported:
    """An export, with the records that an import of it writes."""
    found = _decoded(data, version)
    archived = (MessagesArchived(runs=found.message_runs, at=now),) if found.message_runs else ()
    imported = Imported(at=now, agent_id=found.agent_id, incarnation=found.incarnation, by=by)
    found = found._replace(records=(*found.records, *archived, imported))
    _ = found.state  # it is checked before anything is written
    return found


def _decoded(data: Mapping[str, Any], version: int) -> Exported:
    with _as_damage():
        records: list[Record] = [upgraded(record, version) for record in data["records"]]
        name = checked_text(data["agent"], what="the name of its definition")
        if "\0" in name:
            raise ValueError(f"no definition has the name {name!r}")
        before = checked_text(data["agent_id"], what="its id")
        runs = dict(data.get("message_runs") or {})
        if not all(isinstance(text, str) for text in (*runs, *runs.values())):
            raise ValueError("the runs of its messages are no texts")
        for at, record in enumerate(records):
            encode(record)  # a journal would refuse what cannot be encoded
            _check_times(record, f"records[{at}]")
        given = dict(data.get("blobs") or {}).items()
        blobs = {hash: b64decode(kept, validate=True) for hash, kept in given}
        incarnation = _number(data["incarnation"])
    return Exported(before, name, incarnation, tuple(records), runs, blobs)


@contextmanager
def _as_damage() -> Iterator[None]:
    """Raise a `UsageError` that names the damage, where an export cannot be read."""
    try:
        yield
    except (KeyError, TypeError, ValueError, RecordRefused) as error:
        raise UsageError(f"This exported agent is damaged: {error!r}") from error


def _check_times(value: object, where: str) -> None:
    """Refuse a time that would fail each time that it is looked at, at any depth.

    That of a snapshot, and of the messages in it, is found in the state that it is read as.

    Args:
        value: a record, or a part of one.
        where: it stands in the export.

    Raises:
        ValueError: if a time has no zone, or is outside the calendar in UTC.

    """
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise ValueError(f"{where} has no time zone: {value.isoformat()}")
        try:
            value.astimezone(timezone.utc)
        except OverflowError:
            raise ValueError(
                f"{where} is outside the calendar in UTC: {value.isoformat()}"
            ) from None
    elif isinstance(value, Snapshot):
        _check_times(value.at, f"{where}.at")
        _check_times(AgentState.from_dict(value.state), f"{where}.state")
    elif isinstance(value, Mapping):
        for key, each in value.items():
            _check_times(each, f"{where}.{key}")
    elif isinstance(value, Messages):  # what an agent inside is told is in the records behind it
        _check_times(list(value.own), where)
    elif isinstance(value, (list, tuple)):
        for at, each in enumerate(value):
            _check_times(each, f"{where}[{at}]")
    elif is_dataclass(value) or isinstance(value, AgentState):
        names = [each.name for each in fields(value)] if is_dataclass(value) else value.__slots__
        for name in names:
            _check_times(getattr(value, name), f"{where}.{name}")


def _number(given: object) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given < 1 << 31:
        raise ValueError(f"its incarnation is no number of an agent: {given!r}")
    return given


def _checked_version(data: Mapping[str, Any]) -> int:
    """The version of the format of an export that can be read here."""
    version = data.get("export_version") if isinstance(data, Mapping) else None
    if version is None:
        raise UsageError("This is not an exported agent: it has no 'export_version'")
    format, library = str(data.get("format", "")), str(data.get("library", ""))
    differences = [] if format == record_format() else ["its records are of another form"]
    is_earlier = type(version) is int and version in UPGRADES
    if not is_earlier and (version != FORMAT_VERSION or differences):
        raise SchemaVersionError(
            version=version,
            known=FORMAT_VERSION,
            what="export",
            library=library,
            format=format,
            differences=differences,
        )
    return int(version)


async def mark_restored(store: Store, clock: Clock) -> None:
    """Mark the agents of a restored store: they may have continued since the copy was made.

    Only agents that are open, or due, are marked. Their schedules are paused.
    """
    if not getattr(store, "restored", False):
        return
    open_ones = {IndexStatus.OPEN, IndexStatus.SUSPECT, IndexStatus.WAITS, IndexStatus.QUARANTINED}
    async for stored in store.agents():
        if stored.index_status not in open_ones and stored.due is None and stored.damage is None:
            continue
        marked = Imported(at=clock.now(), agent_id=stored.agent_id, incarnation=stored.incarnation)
        try:
            if stored.damage is not None:
                raise stored.damage
            await _append(store, stored.agent_id, stored.agent, [marked])
        except (SchemaVersionError, StoreDamaged) as error:  # nothing can activate it, either
            logger.error(
                "agent %r of a restored store cannot be read: %s",
                stored.agent_id,
                error,
                extra=log_extra(stored.agent_id),
            )


async def _append(
    store: Store,
    agent_id: str,
    agent: str,
    records: Sequence[Record],
    blobs: Mapping[str, bytes] | None = None,
) -> datetime | None:
    """Append records to an agent. Returns when the agent is due then."""
    # Whether this host may run it does not matter: it is written and given up
    # (test_an_agent_is_imported_at_a_host_that_must_not_run_it).
    owned = await store.claim_to_keep(agent_id, agent)
    assert owned is not None, "a claim with a definition creates the agent where there is none"
    try:
        loaded = await store.load_latest(agent_id) if owned.last_seq else None
        state = replay(records, loaded.folded() if loaded is not None else None)
        journal = store.journal(owned, FoldedAgent(state))
        journal.append(records)
        if blobs:
            journal.keep_blobs(blobs)
        await journal.durable()
        owned = journal.owned
        return state.next_due
    except JournalFailed:
        if not owned.last_seq:  # nothing was written: the id stays free
            await store.delete(agent_id)
        raise
    finally:
        await store.release(owned)
