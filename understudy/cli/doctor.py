"""`doctor`: whether a store can be read, is whole, and what in it needs somebody."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx2
import typer

from understudy._base.json_values import text_of
from understudy.cli import servers
from understudy.cli.api import Api
from understudy.cli.exits import DONE, FAILED, STORE, USAGE, ApiProblem, code_of, refuse
from understudy.cli.looking import now
from understudy.cli.output import JsonOption, Output
from understudy.cli.sources import ApiSource, Source, StoreSource, every_row
from understudy.cli.targets import StoreOption
from understudy.cli.text import ago
from understudy.errors import UnderstudyError

MOST = 1000
"""Agents with an open run that are looked into."""
LITTLE_SPACE = 200 * 1024 * 1024
LARGE_WAL = 256 * 1024 * 1024
LIBRARIES = ("pydantic-ai-slim", "pydantic", "pykka", "psycopg", "starlette", "uvicorn")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    check: str
    state: Literal["ok", "note", "bad"]
    detail: str


def doctor(
    store: StoreOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out what reads the whole database.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Look whether a store is whole, and what in it needs somebody. It changes nothing."""
    out = Output(json=json)
    if store is None:
        refuse(USAGE, "say which store: --store URL, or UNDERSTUDY_STORE")
    checks = list(_machine())
    code = DONE
    try:
        source = StoreSource(store)
    except UnderstudyError as error:
        if code_of(error) != STORE:
            raise
        checks.append(Check("store", "bad", text_of(error)))
        code = STORE
    else:
        try:
            checks.append(Check("store", "ok", f"{servers.store_name(store)} can be read"))
            checks += _of_store(store, quick=quick)
            checks += _of_agents(source)
            checks += _of_definitions(store)
        finally:
            source.close()
    bad = [check for check in checks if check.state == "bad"]
    if code == DONE and bad:
        code = STORE if any(check.check in ("file", "database") for check in bad) else FAILED
    if out.is_data:
        out.document({"ok": not bad, "checks": [asdict(check) for check in checks]})
    else:
        styles = {"ok": "green", "note": "yellow", "bad": "red"}
        width = max(len(check.check) for check in checks)
        for check in checks:
            out.say(f"{check.state:4}  {check.check:{width}}  {check.detail}", styles[check.state])
    raise typer.Exit(code)


def _machine() -> Iterator[Check]:
    found = [f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}"]
    for name in ("understudy", *LIBRARIES):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    yield Check("versions", "ok", ", ".join(found))
    running = servers.running()
    urls = ", ".join(f"{server.url} (pid {server.pid})" for server in running)
    yield Check("servers", "ok", urls or "none of yours runs")


def _of_store(store: str, *, quick: bool) -> Iterator[Check]:
    name = servers.store_name(store)
    scheme, _, rest = name.partition("://")
    if scheme == "sqlite":
        yield from _of_file(Path(rest[1:] if rest.startswith("//") else rest), quick=quick)
    else:
        yield from _of_postgres(store)


def _of_file(path: Path, *, quick: bool) -> Iterator[Check]:
    wal = Path(f"{path}-wal")
    wal_size = wal.stat().st_size if wal.exists() else 0
    size = f"{path.stat().st_size / 1e6:.1f} MB, write-ahead log {wal_size / 1e6:.1f} MB"
    yield Check("size", "note" if wal_size > LARGE_WAL else "ok", size)
    free = shutil.disk_usage(path.parent).free
    yield Check("disk", "bad" if free < LITTLE_SPACE else "ok", f"{free / 1e9:.1f} GB free")
    kind = _file_system(path)
    if kind in ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p"):
        yield Check(
            "file system", "bad", f"{kind}: locks of a network file system are not reliable"
        )
    yield Check("runtime", "ok", _holder(Path(f"{path}.lock")))
    if not os.access(path, os.W_OK):
        yield Check("file", "note", "this user cannot write it")
    if not quick:
        try:
            with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
                found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(5)")]
        except sqlite3.Error as error:
            found = [text_of(error)]
        ok = found == ["ok"]
        yield Check("database", "ok" if ok else "bad", "whole" if ok else "; ".join(found))


def _holder(lock: Path) -> str:
    try:
        lines = lock.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "none has opened it here"
    holder = lines[1].strip() if len(lines) > 1 else ""
    pid = holder.rpartition(":")[2]
    is_here = holder.startswith(f"{platform.node()}:") and pid.isdecimal()
    if is_here and not servers.is_alive(int(pid)):
        return f"none runs; the last one was {holder}"
    return f"{holder} has it open, or had it last" if holder else "none has it open"


def _file_system(path: Path) -> str:
    """The kind of the file system that the file is on; empty where that is not known."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for mount in mounts:
        fields = mount.split()
        if len(fields) > 2 and len(fields[1]) >= len(best):
            place = Path(fields[1])
            if place == path or place in path.parents:
                best, kind = fields[1], fields[2]
    return kind


def _of_postgres(store: str) -> Iterator[Check]:
    import psycopg

    try:
        with psycopg.connect(store.replace("postgres://", "postgresql://", 1)) as connection:
            row = connection.execute("SELECT version(), clock_timestamp()").fetchone()
    except psycopg.Error as error:
        yield Check("database", "bad", text_of(error))
        return
    assert row is not None, "the statement has one row"
    yield Check("database", "ok", str(row[0]).partition(",")[0])
    offset = abs((now() - row[1]).total_seconds())
    yield Check("clock", "note" if offset > 5 else "ok", f"{offset:.1f} s from this machine's")


def _of_agents(source: Source) -> Iterator[Check]:
    counts: dict[str, int] = {}
    damaged: list[str] = []
    open_ids: list[str] = []
    for row in every_row(source.agents, None):
        counts[row["status"]] = counts.get(row["status"], 0) + 1
        if row["damage"] is not None:
            damaged.append(row["id"])
        elif row["waits_for"] != "rest" and len(open_ids) < MOST:
            open_ids.append(row["id"])
    told = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    yield Check("agents", "ok", told or "none")
    if damaged:
        yield Check("damaged", "bad", _some(damaged))
    quarantined, doubts, unreadable = [], [], []
    for id in open_ids:
        try:
            state = source.state(id)
        except UnderstudyError:
            unreadable.append(id)
            continue
        if state.run is not None and not state.run.over and state.run.quarantined is not None:
            quarantined.append(id)
        doubts += [f"{id} ({doubt.tool_name})" for doubt in state.doubts_in_tree.values()]
    if unreadable:
        yield Check("unreadable", "bad", _some(unreadable))
    if quarantined:
        yield Check("quarantine", "bad", f"{_some(quarantined)}: see `understudy retry`")
    if doubts:
        yield Check("in doubt", "note", _some(doubts))
    oldest: list[dict[str, Any]] = list(every_row(source.pending, 1, order="oldest"))
    if oldest:
        age = ago(oldest[0]["created_at"], now())
        yield Check("requests", "note", f"the oldest waits for a person since {age}")


def _of_definitions(store: str) -> Iterator[Check]:
    """Whether the servers of this store have the definitions of its open runs."""
    for server in servers.running():
        if server.store != servers.store_name(store):
            continue
        api = Api(server.url, server.token)
        lacking: dict[str, list[str]] = {}
        try:
            for row in every_row(ApiSource(api).agents, None, version="other"):
                lacking.setdefault(row["agent"], []).append(row["id"])
        except (ApiProblem, httpx2.HTTPError) as error:
            yield Check("definitions", "note", f"{server.url} does not say: {text_of(error)}")
            continue
        finally:
            api.close()
        told = "; ".join(f"{name}, of {_some(ids)}" for name, ids in sorted(lacking.items()))
        detail = f"{server.url} lacks definitions, or has others now, that open runs need: {told}"
        yield Check("definitions", "bad" if lacking else "ok", detail if lacking else "all known")


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
