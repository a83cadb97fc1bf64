"""`doctor`: whether a store can be read, is whole, and what in it needs a person."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from understudy.cli import servers
from understudy.cli.api import Api
from understudy.cli.attention import KINDS, about_of
from understudy.cli.doctor_store import Check, of_store
from understudy.cli.exits import (
    DONE,
    FAILED,
    STORE,
    USAGE,
    ApiProblem,
    NoAnswer,
    code_of,
    message_of,
    refuse,
)
from understudy.cli.output import JsonOption, Output
from understudy.cli.serve import definitions_of, load_target, store_of
from understudy.cli.sources import ApiSource, Source, every_row
from understudy.cli.targets import StoreOption
from understudy.cli.text import ago, some
from understudy.errors import UnderstudyError

if TYPE_CHECKING:  # the help of the command needs none of it
    from understudy.actors import Runtime
    from understudy.agent.agent import Agent
    from understudy.cli.store_source import StoreSource

MOST = 1000
"""The maximum number of agents with an open run that are read, to see whether they can be."""
LATE = 60.0
"""Seconds after which due work counts as overdue: a runtime looks more often."""
TROUBLES: dict[str, Literal["note", "bad"]] = {
    "frozen": "note",
    "quarantined": "bad",
    "doubts": "note",
    "failed": "note",
}
"""The severity of each kind of `attention` that is reported."""
LIBRARIES = ("pydantic-ai-slim", "pydantic", "pykka", "psycopg", "starlette", "uvicorn")


def doctor(
    store: StoreOption = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Skip the checks that read the whole database."),
    ] = False,
    app: Annotated[
        str | None,
        typer.Option(
            "--app",
            metavar="MODULE:ATTR",
            help="Whether the agents have definitions in this Runtime, or among these agents; and "
            "which of their tools do not say what they do. The store is that of the Runtime, "
            "unless you give another.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check whether a store is whole, and show what needs a person. It changes nothing."""
    out = Output(json=json)
    found = None if app is None else load_target(app)
    store = store or store_of(found) or _of_running()
    checks = list(_machine())
    code = DONE
    try:
        # The checks run one by one: what was found before the store became unreadable is reported.
        for check in _of_source(store, app, found, quick=quick):
            checks.append(check)
    except UnderstudyError as error:
        if code_of(error) != STORE:
            raise
        checks.append(Check("store", "bad", message_of(error)))
        code = STORE
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


def _of_source(
    store: str,
    app: str | None,
    found: Runtime | list[Agent[Any, Any]] | None,
    *,
    quick: bool,
) -> Iterator[Check]:
    from understudy.cli.doctor_tools import of_tools
    from understudy.cli.store_source import StoreSource

    source = StoreSource(store)
    try:
        yield Check("store", "ok", f"{servers.store_name(store)} can be read")
        yield from of_store(store, quick=quick)
        yield from _of_agents(source)
        yield from _of_definitions(store)
        yield from _of_rules(source, app, found)
        if app is not None and found is not None:
            agents, defaults = definitions_of(found, app)
            yield from _of_app(source, app, agents)
            yield from of_tools(agents, defaults)
    finally:
        source.close()


def _of_running() -> str:
    """The store of the running server, by its announced name, without a password."""
    found = sorted({server.store for server in servers.running() if server.store is not None})
    if not found:
        refuse(USAGE, "say which store: --store URL, or UNDERSTUDY_STORE; no server of yours runs")
    if len(found) > 1:
        refuse(USAGE, f"several servers run: choose a store by --store: {', '.join(found)}")
    return found[0]


def _machine() -> Iterator[Check]:
    import sqlite3

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


def _of_agents(source: StoreSource) -> Iterator[Check]:
    counts: dict[str, int] = {}
    damaged: list[str] = []
    overdue: list[str] = []
    at = source.now()
    open_ids: list[str] = []
    unread = 0
    for row in every_row(source.agents, None):
        counts[row["status"]] = counts.get(row["status"], 0) + 1
        if row["damage"] is not None:
            damaged.append(row["id"])
            continue
        if row["waits_for"] != "rest":
            if len(open_ids) < MOST:
                open_ids.append(row["id"])
            else:
                unread += 1
        if row["due"] is not None and _seconds_since(row["due"], at) > LATE:
            overdue.append(f"{row['id']} ({ago(row['due'], at)})")
    counted = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    yield Check("agents", "ok", counted or "none")
    if damaged:
        yield Check("damaged", "bad", some(damaged))
    if overdue:
        yield Check("overdue", "bad", f"{some(overdue)}: does a runtime have the store open?")
    unreadable = []
    for id in open_ids:
        try:
            source.state(id)
        except UnderstudyError:
            unreadable.append(id)
    if unreadable:
        yield Check("unreadable", "bad", some(unreadable))
    yield from _of_attention(source.attention())
    if unread:
        detail = f"{unread} agents with an open run, whether they can be read"
        yield Check("not read", "note", detail)
    oldest: list[dict[str, Any]] = list(every_row(source.pending, 1, order="oldest"))
    if oldest:
        age = ago(oldest[0]["created_at"], at)
        yield Check("requests", "note", f"the oldest waits for a person since {age}")
    expired = []
    for row in every_row(source.pending, None, order="expiring"):
        if row["expires_at"] is None or _seconds_since(row["expires_at"], at) < LATE:
            break  # later rows expire later
        expired.append(f"{row['agent_id']} ({row['tool_name']})")
    if expired:
        yield Check("expired", "bad", f"{some(expired)}: their time is over, and nobody noted it")


def _of_attention(found: dict[str, Any]) -> Iterator[Check]:
    """Everything that needs a person, as `understudy attention` and the pages list it."""
    for name, state in TROUBLES.items():
        what, way_on = KINDS[name]
        trouble = found[name]
        about = [
            f"{about_of(row)} ({row['tool_name']})" if row.get("tool_name") else about_of(row)
            for row in trouble["rows"]
        ]
        if trouble["count"]:
            named = some(about, of=trouble["count"])
            yield Check(what, state, f"{named}: {way_on}")


def _seconds_since(time: str, at: datetime) -> float:
    return (at - datetime.fromisoformat(time)).total_seconds()


def _of_app(source: Source, target: str, agents: Iterable[Agent[Any, Any]]) -> Iterator[Check]:
    """The check whether a program has the definitions of the store's agents."""
    definitions = {agent.name: agent.definition.fingerprint for agent in agents}
    without: dict[str, list[str]] = {}
    changed: dict[str, list[str]] = {}
    for row in every_row(source.agents, None):
        if row["damage"] is not None:
            continue
        if row["agent"] not in definitions:
            without.setdefault(row["agent"], []).append(row["id"])
        elif row["version"] not in (None, definitions[row["agent"]]):
            changed.setdefault(row["agent"], []).append(row["id"])
    if without:
        named = "; ".join(f"{name}, of {some(ids)}" for name, ids in sorted(without.items()))
        yield Check("app", "bad", f"{target} has no definition {named}")
    if changed:
        named = "; ".join(f"{name}, of {some(ids)}" for name, ids in sorted(changed.items()))
        yield Check(
            "app", "note", f"{target} has others now than open runs have begun with: {named}"
        )
    if not without and not changed:
        yield Check("app", "ok", f"{target} has all definitions")


def _of_rules(source: StoreSource, app: str | None, found: object) -> Iterator[Check]:
    """The check of the rules that hold for the whole store, and whether a program has them."""
    from understudy.actors import Runtime

    registered = source.rules()
    if registered is None:
        return
    said = registered.said
    at = registered.at.isoformat(sep=" ", timespec="seconds")
    detail = f"version {said.version}, {len(said.rules)} rules, by host {said.host!r} at {at}"
    yield Check("rules", "ok", detail)
    if not isinstance(found, Runtime):
        return
    rules = found.rules
    version = None if rules is None else rules.version
    if rules is None or version is None:
        yield Check("rules", "bad", f"{app} has none with a version: it does not open this store")
    elif version < said.version:
        detail = f"{app} has version {version}, which is older: it starts no call"
        yield Check("rules", "bad", detail)
    elif version == said.version and rules.fingerprint != said.fingerprint:
        detail = f"{app} has others under version {version}: raise the version"
        yield Check("rules", "bad", detail)


def _of_definitions(store: str) -> Iterator[Check]:
    """The check whether the servers of this store have the definitions of its open runs."""
    for server in servers.running():
        if server.store != servers.store_name(store):
            continue
        api = Api(server.url, server.token)
        lacking: dict[str, list[str]] = {}
        try:
            for row in every_row(ApiSource(api).agents, None, version="other"):
                lacking.setdefault(row["agent"], []).append(row["id"])
        except (ApiProblem, NoAnswer) as error:
            yield Check("definitions", "note", f"{server.url} does not say: {error}")
            continue
        finally:
            api.close()
        named = "; ".join(f"{name}, of {some(ids)}" for name, ids in sorted(lacking.items()))
        detail = f"{server.url} lacks definitions, or has others now, that open runs need: {named}"
        yield Check("definitions", "bad" if lacking else "ok", detail if lacking else "all known")
