"""What a sweep asks a store with many agents: by an index, and as cheap as with few."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest

from tests.support.postgres import Hosts
from understudy.journal.contracts import IndexStatus, time_number
from understudy.journal.postgres import sql
from understudy.journal.postgres.sharing import lease
from understudy.journal.sql_backend import DUE, page_of

MANY = 20_000
NOW = datetime(2026, 6, 1, tzinfo=timezone.utc)
FAR = NOW + timedelta(days=365)
_FILL = """
INSERT INTO agents
    (agent_id, definition, incarnation, epoch, last_seq, floor, index_status, due)
SELECT 'far-' || lpad(n::text, 7, '0'), 'support', 1, 1, 5, 0, 'waits', %s + n
FROM generate_series(1, %s) AS n"""
_DUE_NOW = "UPDATE agents SET due = %s WHERE agent_id = 'far-0000777'"
_OPEN_NOW = "UPDATE agents SET index_status = 'open' WHERE agent_id = 'far-0000778'"


@pytest.fixture
def hosts(new_hosts: Hosts) -> Hosts:
    """The server knows nothing yet of what tables hold."""
    return new_hosts


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(inner for each in plan.get("Plans", ()) for inner in nodes(each))]


def numbered(statement: str) -> str:
    """The statement with `$1`, `$2` ... for its parameters."""
    first, *others = statement.split("%s")
    return first + "".join(f"${number}{text}" for number, text in enumerate(others, 1))


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_a_sweep_looks_at_no_agent_that_is_due_later(hosts: Hosts, mode: str) -> None:
    """J2: also where the server keeps one plan for all values, as it may after some calls."""
    hosts.open("a")
    asked: dict[str, tuple[str, list[Any], set[str]]] = {
        "due": (f"{sql.AGENTS}{DUE}", [time_number(NOW), -1, "", 100], {"far-0000777"}),
        "open": (f"{sql.AGENTS}{page_of(IndexStatus.OPEN)}", ["", 100], {"far-0000778"}),
        "queued": (f"{sql.AGENTS}{page_of(IndexStatus.QUEUED)}", ["", 100], set()),
    }
    with psycopg.connect(hosts.url, autocommit=True) as db:
        db.execute(f"SET search_path TO {hosts.schema}".encode())
        db.execute(f"SET plan_cache_mode TO {mode}".encode())
        db.execute(_FILL.encode(), [time_number(FAR), MANY])
        db.execute(_DUE_NOW.encode(), [time_number(NOW) - 1])
        db.execute(_OPEN_NOW.encode())
        db.execute("ANALYZE agents")
        for what, (statement, values, expected) in asked.items():
            found = db.execute(statement.encode(), values).fetchall()
            assert {row[0] for row in found} == expected
            db.execute(f"PREPARE asked_{what} AS {numbered(statement)}".encode())
            with psycopg.ClientCursor(db) as cursor:
                places = ", ".join(["%s"] * len(values))
                explain = f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE asked_{what} ({places})"
                ((told,),) = cursor.execute(explain.encode(), values).fetchall()
            plan = told if isinstance(told, list) else json.loads(told)
            looked_at = [
                node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                for node in nodes(plan[0]["Plan"])
                if node.get("Relation Name") == "agents"
            ]
            assert sum(looked_at) <= 10, (what, looked_at, plan)


_EXPLAINED = """
CREATE FUNCTION explained() RETURNS void LANGUAGE plpgsql AS $function$
DECLARE plan json;
BEGIN
    EXECUTE $query$EXPLAIN (ANALYZE, FORMAT JSON) {}$query$ INTO plan;
    INSERT INTO plans VALUES (plan);
END $function$"""


def test_who_leaves_looks_at_no_agent_at_rest(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J10: whatever the server believes of them. Else its row stays where that takes too long."""
    leaves = hosts.open("leaves")
    statement = lease.TELL_LEFT.replace("%(told)s", "'left'").replace("%(id)s", "0")
    with psycopg.connect(hosts.url, autocommit=True) as db:
        db.execute(f"SET search_path TO {hosts.schema}".encode())
        db.execute(_FILL.encode(), [time_number(FAR), MANY])
        db.execute(b"UPDATE agents SET index_status = 'open' WHERE key % 20 = 0")
        db.execute("ANALYZE agents")
        db.execute(b"UPDATE agents SET index_status = 'rest' WHERE index_status = 'open'")
        db.execute("CREATE TABLE plans (plan json)")
        db.execute(_EXPLAINED.format(statement).encode())
        monkeypatch.setattr(lease, "TELL_LEFT", "SELECT explained(), %(told)s, %(id)s")
        leaves.close()
        ((plan,),) = db.execute("SELECT plan FROM plans").fetchall()
    looked_at = [
        node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
        for node in nodes(plan[0]["Plan"])
        if node.get("Relation Name") == "agents"
    ]
    assert sum(looked_at) <= 10, json.dumps(plan)
