"""The commands that look, beside a runtime that has its store in PostgreSQL."""

from __future__ import annotations

import json
import re
import time
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from tests.support.command_line import agents, found_by_commands, run
from tests.support.web_server import held_port
from understudy import Runtime, approve

pytestmark = pytest.mark.postgres


def looked(store: str, *arguments: str, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--store", store, "--json", code=code).stdout)


def test_everything_that_looks_does_so_beside_a_runtime(postgres_store: str) -> None:
    paid: list[tuple[str, int]] = []
    with Runtime(agents(paid), store=postgres_store, feed=True, host="worker-1") as runtime:
        runtime.spawn("desk", "t-1").run("Pay 17.").get(timeout=60)
        runtime.spawn("boss", "t-2").run("Pay 7.").get(timeout=60)

        rows = looked(postgres_store, "ls")["agents"]
        assert [(row["id"], row["status"], row["host"]) for row in rows] == [
            ("t-1", "interrupted", "worker-1"),
            ("t-2", "interrupted", "worker-1"),
        ]
        assert looked(postgres_store, "ls", "--prefix", "t-2", "--status", "interrupted")["agents"]
        assert [row["id"] for row in looked(postgres_store, "ls", "--limit", "1")["agents"]] == [
            "t-1"
        ]
        shown = looked(postgres_store, "show", "t-1")
        assert [row["kind"] for row in shown["rows"]] == ["user", "text", "call", "call", "request"]
        tree = looked(postgres_store, "tree")["tree"]
        assert ("t-2", 2, "cashier") in [(r["agent_id"], r["depth"], r["name"]) for r in tree]
        asked = looked(postgres_store, "pending", "--tool", "pay")["requests"]
        assert [(row["agent_id"], row["agent_path"]) for row in asked] == [
            ("t-1", ["desk"]),
            ("t-2", ["boss", "cashier"]),
        ]
        what = [entry["what"] for entry in looked(postgres_store, "history", "t-1")["entries"]]
        assert "request" in what
        assert looked(postgres_store, "history", "t-1", "--limit", "2")["next"] is not None
        kinds = [e["event"]["kind"] for e in looked(postgres_store, "events", "t-1")["events"]]
        assert "request_made" in kinds
        told: set[str] = set()
        for event in runtime.events(start="oldest"):  # it may come later than the outcome
            told |= {event.agent_id} if event.event.kind == "request_made" else set()
            if len(told) == 2:
                break
        feed = looked(postgres_store, "events")["events"]
        assert {event["agent_id"] for event in feed} == {"t-1", "t-2"}
        assert looked(postgres_store, "schedules", "t-1")["schedules"] == []
        assert json.loads(run("export", "t-1", "--store", postgres_store).stdout)["records"]
        run("show", "t-9", "--store", postgres_store, code=3)

        doctor = {each["check"]: each for each in looked(postgres_store, "doctor")["checks"]}
        assert doctor["hosts"]["detail"] == "worker-1 (2 agents)"
        assert doctor["schema"]["state"] == doctor["database"]["state"] == "ok"
        (one,) = runtime.get("t-1").state().get(timeout=60).requests
        runtime.get("t-1").resume({one.id: approve()}).get(timeout=60)
        assert [row["agent_id"] for row in looked(postgres_store, "pending")["requests"]] == ["t-2"]
    assert paid == [("17", 20)]


def test_doctor_names_hosts_that_ended_and_still_own_agents(postgres_store: str) -> None:
    with Runtime(agents([]), store=postgres_store) as runtime:
        runtime.spawn("desk", "t-1").run("Pay 17.").get(timeout=60)
    with psycopg.connect(postgres_store, autocommit=True) as connection:
        # As a host leaves it that is killed.
        connection.execute("""
            WITH dead AS (
                INSERT INTO understudy.hosts (name, lease_until)
                VALUES ('worker-9', clock_timestamp() - interval '1 s') RETURNING id
            ) UPDATE understudy.agents SET owner = (SELECT id FROM dead)""")
    doctor = {each["check"]: each for each in looked(postgres_store, "doctor", code=1)["checks"]}
    assert doctor["dead hosts"]["detail"].startswith("worker-9 (1 agents)")
    assert (doctor["hosts"]["state"], doctor["hosts"]["detail"]) == ("note", "none has it open")


def test_doctor_tells_a_host_that_drains(postgres_store: str) -> None:
    with Runtime(agents([]), store=postgres_store, host="worker-1") as runtime:
        assert runtime.drain().get(timeout=60)
        checks = looked(postgres_store, "doctor")["checks"]
    hosts = next(each for each in checks if each["check"] == "hosts")
    assert (hosts["state"], hosts["detail"]) == ("note", "worker-1 (0 agents, draining)")


@pytest.mark.quick
def test_a_database_that_cannot_be_reached_is_said(postgres_store: str) -> None:
    wrong = urlunsplit(urlsplit(postgres_store)._replace(path="/no_such_database"))
    for command in ("ls", "pending", "doctor"):
        assert "no_such_database" in run(command, "--store", wrong, code=5).output


@pytest.mark.quick
def test_who_looks_is_told_nothing_of_runs_where_no_server_answers() -> None:
    with held_port() as port:
        for command in ("ls", "doctor"):
            told = run(command, "--store", f"postgresql://127.0.0.1:{port}/desk", code=5).output
            assert "the store cannot be reached: " in told
            assert "Runs wait" not in told


@pytest.mark.parametrize("where", ["store", "server"])
def test_ages_are_told_by_the_time_of_the_store(
    postgres_store: str, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """J21: a machine whose clock is three hours fast calls nothing old that is new."""
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 3 * 3600)
    at = ["--store", postgres_store] if where == "store" else []
    with (
        Runtime(agents([]), store=postgres_store) as runtime,
        found_by_commands(runtime, postgres_store),
    ):
        runtime.spawn("desk", "t-1").run("Pay 17.").get(timeout=60)
        for command in ("ls", "pending", *(["doctor"] if at else [])):
            assert not re.search(r"\b3 h\b", run(command, *at).stdout)
