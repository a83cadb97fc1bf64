"""Hosts that reserve on the counters of a PostgreSQL store, and sessions that are stopped."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg

from tests.support.batches import batch, claim, commit
from tests.support.loops import SECONDS
from tests.support.postgres import Hosts
from tests.support.purses import line, reservation
from understudy.errors import StoreError
from understudy.journal.contracts import Owned
from understudy.journal.postgres.backend import PostgresBackend
from understudy.journal.postgres.spending_sql import FOLD_FUNCTION, RESERVE_FUNCTION
from understudy.journal.spending import Line, Reservation, Reserved, Settlement, SpendId

__all__ = [
    "LIMIT_BEFORE_LOCK",
    "POINTS",
    "UNSORTED",
    "WAITING_FOLD",
    "Spender",
    "Stops",
    "replace_functions",
]


class Spender:
    """A host, and agents of it."""

    def __init__(self, hosts: Hosts, name: str, *agents: str, patience: float = 30.0) -> None:
        self.name = name
        self.backend: PostgresBackend = hosts.open(name, patience=patience)
        self._owned: dict[str, Owned] = {}
        for agent_id in agents or (name,):
            self.begin(agent_id)

    def begin(self, agent_id: str) -> None:
        self._owned[agent_id] = claim(self.backend, agent_id)

    def owned(self, agent_id: str) -> Owned:
        return self._owned[agent_id]

    def id(self, what: str, agent_id: str | None = None) -> SpendId:
        return SpendId(agent_id or self.name, self._owned[agent_id or self.name].incarnation, what)

    def ask(self, what: str, *lines: Line, agent_id: str | None = None) -> object:
        """What a host hears of one attempt."""
        asked = reservation(self.id(what, agent_id), *lines)
        return self.backend.reserve_all([asked])[0]

    def some(self, rng: random.Random, what: str, agent_id: str) -> Reservation:
        """A reservation on some of 20 counters, in any order."""
        keys = rng.sample(range(20), rng.randint(1, 6))
        limits = [rng.choice([10**9, 10**9, 300]) for _ in keys]
        of = zip(keys, limits, strict=True)
        lines = [line(rng.randint(0, 3), limit, key=f"{key:02}") for key, limit in of]
        return reservation(self.id(what, agent_id), *lines)

    def reserve(self, what: str, *lines: Line, agent_id: str | None = None) -> Reserved:
        found = self.ask(what, *lines, agent_id=agent_id)
        if isinstance(found, StoreError):
            raise found
        assert isinstance(found, Reserved), "no other host changes what it has"
        return found

    def add(self, *settlements: Settlement, agent_id: str | None = None) -> None:
        """One record more, with what it settles, in the transaction that has begun."""
        owned = self._owned[agent_id or self.name]
        next_one = batch(owned, "x")
        next_one.settlements = settlements
        self.backend.append(next_one)
        self._owned[owned.agent_id] = replace(owned, last_seq=next_one.last_seq)

    def settle(self, *settlements: Settlement, agent_id: str | None = None) -> None:
        with commit(self.backend):
            self.add(*settlements, agent_id=agent_id)

    def delete(self, agent_id: str | None = None) -> None:
        with commit(self.backend):
            assert self.backend.delete(agent_id or self.name)


# ------------------------------------------------------------------- sessions that are stopped

_GATE = 4_711
_STOP_AT = f"""CREATE OR REPLACE FUNCTION stop_at(point text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM stops s WHERE s.point = stop_at.point AND s.pid = pg_backend_pid()) THEN
        PERFORM pg_advisory_xact_lock_shared({_GATE}, 0);
    END IF;
    RETURN true;
END $$"""


def _with_points(function: str, name: str) -> tuple[str, list[str]]:
    """The function, which can be stopped behind each of its statements; and these points."""
    head, begin, body = function.partition("\nBEGIN\n")
    head = head.replace("\nDECLARE\n", "\nDECLARE\n    stopped boolean;\n")
    points: list[str] = []

    def stop(found: re.Match[str]) -> str:
        points.append(f"{name} {len(points)}")
        # Assigned, which leaves FOUND as it was.
        return f";\nstopped := stop_at('{points[-1]}');\n"

    inner, end, rest = body.rpartition("END $$")
    stopping = re.sub(r";\n(?!\s*GET DIAGNOSTICS)", stop, inner)
    return f"{head}{begin}{stopping}{end}{rest}", points


def _name(function: str) -> str:
    return "fold" if function.startswith("CREATE FUNCTION fold") else "reserve"


_RESERVE, _RESERVE_POINTS = _with_points(RESERVE_FUNCTION, "reserve")
_FOLD, _FOLD_POINTS = _with_points(FOLD_FUNCTION, "fold")
POINTS: Sequence[str] = (*_RESERVE_POINTS, *_FOLD_POINTS)
"""Where the statement that reserves can be stopped in the server: behind each of its own."""


def replace_functions(hosts: Hosts, *functions: str) -> None:
    """Have the store's functions replaced by others of the same names."""
    assert hosts.schema, "its tables are not used by another test"
    for each in functions:
        changed = each.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
        hosts.sql(changed)


class Stops:
    """The statement of one host that reserves is stopped in the server.

    Args:
        hosts: of the store.
        functions: what takes the place of the store's functions.

    """

    def __init__(self, hosts: Hosts, *functions: str) -> None:
        self._hosts = hosts
        hosts.sql("CREATE TABLE IF NOT EXISTS stops (point text, pid int)")
        replace_functions(hosts, _STOP_AT, _FOLD, _RESERVE)
        replace_functions(hosts, *(_with_points(each, _name(each))[0] for each in functions))

    @contextmanager
    def stopping(self, spender: Spender, point: str) -> Iterator[None]:
        """Each statement of this host that comes to the point meanwhile waits there."""
        pid = self._pid_of(spender)
        self._hosts.sql("DELETE FROM stops")
        self._hosts.sql("INSERT INTO stops VALUES (%s, %s)", point, pid)
        with psycopg.connect(self._hosts.url, autocommit=True) as gate:
            gate.execute("SELECT pg_advisory_lock(%s, 0)", [_GATE])
            yield
        self._hosts.sql("DELETE FROM stops")

    def _pid_of(self, spender: Spender) -> int:
        """The session of the server in which a host reserves."""
        spender.reserve("who is it")
        ((pid,),) = self._hosts.sql(
            "SELECT pid FROM pg_stat_activity WHERE application_name = %s"
            " AND query LIKE '%%FROM reserve_spending(%%' AND datname = current_database()",
            f"understudy {spender.name}",
        )
        assert isinstance(pid, int)
        return pid

    def wait(self, work: Future[Any]) -> bool:
        """Until some work has ended, or its session waits for a lock; whether it has ended."""
        end = time.monotonic() + SECONDS
        waits = (
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND"
            " application_name LIKE 'understudy %%' AND datname = current_database()"
            " HAVING count(*) > 1"  # the other one waits at its point
        )
        while not work.done():
            if self._hosts.sql(waits):
                return False
            assert time.monotonic() < end, "it neither ends nor waits"
        return True

    def reached(self, work: Future[Any]) -> bool:
        """Until some work has ended or is at the point; whether it is there."""
        end = time.monotonic() + SECONDS
        at_gate = "SELECT 1 FROM pg_locks WHERE classid = %s AND locktype = 'advisory'"
        while not work.done():
            if self._hosts.sql(f"{at_gate} AND NOT granted", _GATE):
                return True
            assert time.monotonic() < end, "it neither ends nor stops"
        return False


# ------------------------------------------------------------------- functions that are broken


def _broken(function: str, right: str, wrong: str) -> str:
    assert function.count(right) == 1, "the function was changed: change the broken one"
    return function.replace(right, wrong)


UNSORTED: str = _broken(
    RESERVE_FUNCTION,
    "ORDER BY c.budget, c.key\n",
    "ORDER BY CASE WHEN left(call_agent_id[1], 1) = 'a' THEN c.key END, c.key DESC\n",
)
"""Locks counters in another order for some agents."""
WAITING_FOLD: str = _broken(
    FOLD_FUNCTION,
    "NOT s.is_folded\n        FOR UPDATE SKIP LOCKED",
    "NOT s.is_folded\n        FOR UPDATE",
)
"""Waits for rows that other sessions have locked."""
LIMIT_BEFORE_LOCK: str = _broken(
    RESERVE_FUNCTION, "k.key = each.key FOR UPDATE;", "k.key = each.key;"
)
"""Decides before it has the counters for itself."""
