"""The commands that look, beside a runtime that has its store in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from tests.cli.conftest import agents, run
from understudy import Runtime, approve

pytestmark = pytest.mark.postgres


@pytest.fixture
def store(postgres_url: str) -> Iterator[str]:
    """The URL of a database of its own: a store that is named by a URL has a fixed schema."""
    name = f"cli_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))
        finally:
            drop = sql.SQL("DROP DATABASE {} WITH (FORCE)")
            connection.execute(drop.format(sql.Identifier(name)))


def looked(store: str, *arguments: str, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--store", store, "--json", code=code).stdout)


def test_everything_that_looks_does_so_beside_a_runtime(store: str) -> None:
    paid: list[tuple[str, int]] = []
    with Runtime(agents(paid), store=store, feed=True, host="worker-1") as runtime:
        runtime.spawn("desk", "t-1").run("Pay 17.").get(timeout=20)
        runtime.spawn("boss", "t-2").run("Pay 7.").get(timeout=20)

        rows = looked(store, "ls")["agents"]
        assert [(row["id"], row["status"], row["host"]) for row in rows] == [
            ("t-1", "interrupted", "worker-1"),
            ("t-2", "interrupted", "worker-1"),
        ]
        assert looked(store, "ls", "--prefix", "t-2", "--status", "interrupted")["agents"]
        assert [row["id"] for row in looked(store, "ls", "--limit", "1")["agents"]] == ["t-1"]
        shown = looked(store, "show", "t-1")
        assert [row["kind"] for row in shown["rows"]] == ["user", "text", "call", "call", "request"]
        tree = looked(store, "tree")["tree"]
        assert ("t-2", 2, "cashier") in [(r["agent_id"], r["depth"], r["name"]) for r in tree]
        asked = looked(store, "pending", "--tool", "pay")["requests"]
        assert [(row["agent_id"], row["agent_path"]) for row in asked] == [
            ("t-1", ["desk"]),
            ("t-2", ["boss", "cashier"]),
        ]
        what = [entry["what"] for entry in looked(store, "history", "t-1")["entries"]]
        assert "request" in what
        assert looked(store, "history", "t-1", "--limit", "2")["next"] is not None
        kinds = [e["event"]["kind"] for e in looked(store, "events", "t-1")["events"]]
        assert "request_made" in kinds
        told: set[str] = set()
        for event in runtime.events(start="oldest"):  # it may come later than the outcome
            told |= {event.agent_id} if event.event.kind == "request_made" else set()
            if len(told) == 2:
                break
        feed = looked(store, "events")["events"]
        assert {event["agent_id"] for event in feed} == {"t-1", "t-2"}
        assert looked(store, "schedules", "t-1")["schedules"] == []
        assert json.loads(run("export", "t-1", "--store", store).stdout)["agent_id"] == "t-1"
        run("show", "t-9", "--store", store, code=3)

        doctor = {each["check"]: each for each in looked(store, "doctor")["checks"]}
        assert doctor["hosts"]["detail"] == "worker-1 (2 agents)"
        assert doctor["schema"]["state"] == doctor["database"]["state"] == "ok"
        (one,) = runtime.get("t-1").state().get(timeout=20).requests
        runtime.get("t-1").resume({one.id: approve()}).get(timeout=20)
        assert [row["agent_id"] for row in looked(store, "pending")["requests"]] == ["t-2"]
    assert paid == [("17", 20)]


def test_doctor_names_hosts_that_ended_and_still_own_agents(store: str) -> None:
    with Runtime(agents([]), store=store) as runtime:
        runtime.spawn("desk", "t-1").run("Pay 17.").get(timeout=20)
    with psycopg.connect(store, autocommit=True) as connection:
        # As a host leaves it that is killed.
        connection.execute("""
            WITH dead AS (
                INSERT INTO understudy.hosts (name, lease_until)
                VALUES ('worker-9', clock_timestamp() - interval '1 s') RETURNING id
            ) UPDATE understudy.agents SET owner = (SELECT id FROM dead)""")
    doctor = {each["check"]: each for each in looked(store, "doctor", code=1)["checks"]}
    assert doctor["dead hosts"]["detail"].startswith("worker-9 (1 agents)")
    assert (doctor["hosts"]["state"], doctor["hosts"]["detail"]) == ("note", "none has it open")


def test_a_database_that_cannot_be_reached_is_said(store: str) -> None:
    wrong = urlunsplit(urlsplit(store)._replace(path="/no_such_database"))
    for command in ("ls", "pending", "doctor"):
        assert "no_such_database" in run(command, "--store", wrong, code=5).output
