"""What hosts that share a store reserve and spend: exact, and no host waits for another one."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from itertools import count

import pytest

from tests.support.batches import batch, commit
from tests.support.held_commits import HeldCommits
from tests.support.loops import SECONDS, soon
from tests.support.postgres import Hosts, Server
from tests.support.programs import PIPE, started
from tests.support.purses import Purse, line, money, reservation, spend
from tests.support.spenders import (
    LIMIT_BEFORE_LOCK,
    POINTS,
    UNSORTED,
    WAITING_FOLD,
    Spender,
    Stops,
)
from understudy.errors import StoreUnavailable
from understudy.journal import DatabaseStore
from understudy.journal.spending import CounterId, Line, Reserved


def total(spender: Spender, key: str = "", budget: str = "refunds") -> Decimal:
    """What a counter has."""
    found = spender.backend.counters([budget])
    return sum(
        (each.amount for of in found if of.counter.key == key for each in of.buckets), Decimal(0)
    )


def makes(spender: Spender, what: str, *lines: Line) -> bool:
    return not spender.reserve(what, *lines).refused


# ------------------------------------------------------------------- exact over hosts


@pytest.mark.quick
def test_of_hosts_that_race_for_the_last_room_one_gets_it(hosts: Hosts) -> None:
    """J97."""
    spenders = [Spender(hosts, name) for name in "abc"]
    start = threading.Barrier(len(spenders), timeout=SECONDS)

    def spend_all(spender: Spender) -> int:
        start.wait()
        return sum(makes(spender, f"{n}", line(1, 25)) for n in range(20))

    with ThreadPoolExecutor(len(spenders)) as threads:
        assert sum(threads.map(spend_all, spenders)) == 25
    assert total(spenders[0]) == 25


def test_what_another_host_has_settled_makes_room_at_once(hosts: Hosts) -> None:
    """J97: also where it was more than was reserved."""
    a, b = Spender(hosts, "a"), Spender(hosts, "b")
    assert makes(a, "one", line(100))
    assert not makes(b, "two", line(1))
    a.settle(spend(a.id("one"), 30))
    assert makes(b, "two", line(70))
    b.settle(spend(b.id("two"), 90))
    assert a.reserve("three", line(1)).sums == {CounterId("refunds", ""): money(120)}


def test_a_host_that_takes_over_reserves_again_in_the_place_of_the_one_before(
    hosts: Hosts,
) -> None:
    """J97: the host was killed between the reservation and the record of the start."""
    a, b = Spender(hosts, "a", "x"), Spender(hosts, "b")
    a.reserve("call", line(60), agent_id="x")
    hosts.end_lease("a")
    b.begin("x")
    (opened,) = b.backend.open_spending("x")
    assert opened.amounts == {CounterId("refunds", ""): money(60)}
    assert b.reserve("call", line(80), agent_id="x").sums == {CounterId("refunds", ""): money(80)}
    b.settle(spend(b.id("call", "x"), 70), agent_id="x")
    assert total(b) == 70
    assert b.backend.open_spending("x") == []


def test_the_windows_of_a_store_are_those_of_its_server(hosts: Hosts) -> None:
    """J97: whatever the clocks of the hosts show."""
    a = Spender(hosts, "a")
    ((now,),) = hosts.sql("SELECT floor(extract(epoch FROM clock_timestamp()))::int8")
    assert isinstance(now, int)
    answer = a.reserve("one", line(1))
    assert now <= answer.now <= now + SECONDS
    (opened,) = a.backend.open_spending("a")
    assert now <= opened.at.timestamp() <= now + SECONDS


# ------------------------------------------------------------------- nobody waits


@pytest.mark.quick
def test_a_settlement_locks_no_counter(hosts: Hosts) -> None:
    """J98."""
    a, b = Spender(hosts, "a"), Spender(hosts, "b")
    a.reserve("one", line(60, ref="17"), line(60, key="x"))
    a.reserve("done", line(10, ref="18"))
    a.settle(spend(a.id("done")))
    with commit(a.backend):
        a.add(spend(a.id("one"), 5, gives={("refunds", "18"): None}))
        answer = b.reserve("two", line(20), line(20, key="x"))
        assert answer.sums == {
            CounterId("refunds", ""): money(90),
            CounterId("refunds", "x"): money(80),
        }
        b.settle(spend(b.id("two"), 1))
    assert b.reserve("look", line(0), line(0, key="x")).sums == {
        CounterId("refunds", ""): money(6),
        CounterId("refunds", "x"): money(6),
    }


def test_a_reservation_waits_for_no_settlement_of_its_own_call(hosts: Hosts) -> None:
    """J98: it is to be asked again; the other reservations of its statement are made."""
    a = Spender(hosts, "a")
    a.reserve("one", line(60))
    with commit(a.backend):
        a.add(spend(a.id("one"), 5))
        assert a.ask("one", line(70)) is None
        assert makes(a, "two", line(1))
    assert a.reserve("one", line(70)).sums == {CounterId("refunds", ""): money(6)}


def test_a_batch_that_is_refused_settles_nothing(hosts: Hosts) -> None:
    """And the other ones of its commit do."""
    a = Spender(hosts, "a", "x", "y")
    for agent_id in "xy":
        a.reserve("one", line(60, key=agent_id), agent_id=agent_id)
    batches = [batch(a.owned(agent_id), "z") for agent_id in "xy"]
    batches[1] = batch(replace(a.owned("y"), epoch=a.owned("y").epoch - 1), "z")
    for each in batches:
        each.settlements = (spend(a.id("one", each.agent_id), 5),)
    with commit(a.backend):
        assert [type(each).__name__ for each in a.backend.append_all(batches)] == [
            "NoneType",
            "Fenced",
        ]
    assert total(a, "x") == 5
    assert total(a, "y") == 60
    assert a.backend.open_spending("x") == []
    assert len(a.backend.open_spending("y")) == 1


@pytest.mark.quick
def test_a_reservation_beside_a_deletion_leaves_nothing_open(hosts: Hosts) -> None:
    """J98."""
    a, b = Spender(hosts, "a"), Spender(hosts, "b")
    a.reserve("one", line(60))
    with commit(a.backend):
        assert a.backend.delete("a")
        assert a.ask("two", line(1)) is None
        assert makes(b, "other", line(2))
    assert type(a.ask("two", line(1))).__name__ == "Fenced"
    assert total(b) == 62
    assert hosts.sql("SELECT count(*) FROM spending WHERE is_open") == [(1,)]


def test_a_reservation_beside_a_claim_waits_for_nobody(hosts: Hosts) -> None:
    """J98: and the owner of before reserves nothing behind it."""
    a, b = Spender(hosts, "a", "x", "a"), Spender(hosts, "b")
    a.reserve("one", line(60), agent_id="x")
    with commit(a.backend):
        assert a.backend.release(a.owned("x"))
    with commit(b.backend):
        assert b.backend.claim("x", "support") is not None
        assert type(a.ask("one", line(70), agent_id="x")).__name__ == "Fenced"
        assert makes(a, "other", line(1))
    assert type(a.ask("one", line(70), agent_id="x")).__name__ == "Fenced"
    assert total(b) == 61


_SUSPENDED = """
import sys
from dataclasses import replace
from tests.support.batches import batch, claim
from tests.support.purses import line, reservation, spend
from understudy.journal.postgres.backend import PostgresBackend
from understudy.journal.spending import SpendId

url, schema = sys.argv[1:]
backend = PostgresBackend(url, host="suspended", schema=schema)
backend.open()
owned = claim(backend, "x")
ids = [SpendId("x", owned.incarnation, what) for what in ("one", "two")]
backend.reserve_all([reservation(id, line(30, ref="17")) for id in ids])
backend.begin()
settling = batch(owned, "y")
settling.settlements = (spend(ids[0], 50), spend(ids[1], gives={("refunds", "17"): None}))
backend.append(settling)
print("in the middle", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_host_that_stands_still_while_it_settles_stops_nobody_who_reserves(hosts: Hosts) -> None:
    """J98: it is stopped (SIGSTOP) between its statement and its commit."""
    b = Spender(hosts, "b")
    child = started("-c", _SUSPENDED, hosts.url, hosts.schema, stdin=PIPE, stdout=PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "in the middle\n"
        child.send_signal(signal.SIGSTOP)
        for number in range(20):
            assert makes(b, f"{number}", line(2, ref="17"))
            b.settle(spend(b.id(f"{number}"), 1, gives={("refunds", "17"): None}))
        assert b.reserve("last", line(40)).sums == {CounterId("refunds", ""): money(100)}
        assert not makes(b, "more", line(1))
    finally:
        child.kill()
        child.communicate()


OPS = ("reserve", "settle", "delete", "claim")
numbers = count()


class Scene:
    """A host is in the middle of a reservation, and another session does something."""

    def __init__(self, a: Spender, b: Spender) -> None:
        self.a, self.b = a, b
        number = next(numbers)
        self.mine, self.other = f"a{number}", f"b{number}"
        self.x, self.y = f"x{number}", f"y{number}"
        a.begin(self.mine)
        b.begin(self.other)
        for what in ("old", "done", "open"):
            a.reserve(what, line(5, key=self.x), line(5, key=self.y, ref="17"), agent_id=self.mine)
        a.settle(
            spend(a.id("old", self.mine), 9, gives={("refunds", "17"): None}), agent_id=self.mine
        )
        a.settle(spend(a.id("done", self.mine), 4), agent_id=self.mine)

    def first(self, what: str) -> object:
        lines = line(50, key=self.x), line(50, key=self.y)
        return self.a.ask(what, *lines, agent_id=self.mine)

    def second(self, op: str) -> object:
        match op:
            case "reserve":
                lines = line(50, key=self.y), line(50, key=self.x)
                return self.b.ask("new", *lines, agent_id=self.other)
            case "settle":
                self.a.settle(spend(self.a.id("open", self.mine), 1), agent_id=self.mine)
            case "delete":
                self.a.delete(self.mine)
            case _:
                with commit(self.a.backend):
                    assert self.a.backend.release(self.a.owned(self.mine))
                self.b.begin(self.mine)
        return None


def stopped_at(stops: Stops, scene: Scene, point: str, what: str, op: str) -> list[object] | None:
    """What both hear, if the first one comes to the point; None if it does not."""
    with ThreadPoolExecutor(2) as threads:
        with stops.stopping(scene.a, point):
            first = threads.submit(scene.first, what)
            if not stops.reached(first):
                return None
            second = threads.submit(scene.second, op)
            stops.wait(second)
        return [first.result(SECONDS), second.result(SECONDS)]


@pytest.mark.faults
@pytest.mark.parametrize(
    ("op", "what"),
    [*((op, "new") for op in OPS), ("settle", "open"), ("delete", "open"), ("reserve", "done")],
)
def test_a_session_that_is_stopped_at_any_statement_stands_in_no_circle(
    hosts: Hosts, op: str, what: str
) -> None:
    """J98: whatever another session does meanwhile, both get on, and the sums are exact."""
    a, b = Spender(hosts, "a"), Spender(hosts, "b")
    stops = Stops(hosts)
    reached = 0
    for point in POINTS:
        scene = Scene(a, b)
        heard = stopped_at(stops, scene, point, what, op)
        reached += heard is not None
        if heard is None:
            continue
        made = [each for each in heard if isinstance(each, Reserved) and not each.refused]
        if op == "reserve" and what != "done":
            assert len(made) == 1, "there is room for one"
        check_sums(hosts, scene)
    assert reached >= 20


@pytest.mark.faults
def test_what_the_owner_of_before_has_begun_to_reserve_is_seen_by_the_next_one(
    hosts: Hosts,
) -> None:
    """J98: else nobody would settle it."""
    a, b = Spender(hosts, "a"), Spender(hosts, "b")
    stops = Stops(hosts)
    reached = 0
    for point in POINTS:
        scene = Scene(a, b)
        with ThreadPoolExecutor(2) as threads:
            with stops.stopping(a, point):
                first = threads.submit(scene.first, "new")
                if not stops.reached(first):
                    continue
                reached += 1
                scene.second("claim")
                found = threads.submit(b.backend.open_spending, scene.mine)
                stops.wait(found)
            heard = first.result(SECONDS)
            whats = {each.id.what for each in found.result(SECONDS)}
        is_made = isinstance(heard, Reserved) and not heard.refused
        assert whats == ({"open", "new"} if is_made else {"open"}), point
    assert reached >= 15


def check_sums(hosts: Hosts, scene: Scene) -> None:
    """Each counter has what its rows have, and what was settled."""
    for key in (scene.x, scene.y):
        scene.b.reserve("look", line(0, key=key), agent_id=scene.other)
        ((rows,),) = hosts.sql(
            "SELECT sum(amount) FROM spending WHERE counter = (SELECT id FROM counters"
            " WHERE key = %s) AND (is_open OR ref <> '')",
            key,
        )
        assert isinstance(rows, Decimal)
        assert total(scene.b, key) <= 100
        assert total(scene.b, key) >= rows


def at_each_point(hosts: Hosts, function: str, what: str) -> int:
    """How many of two sessions get the last room, at most, with such a function of the store."""
    a, b = Spender(hosts, "a"), Spender(hosts, "b")
    stops = Stops(hosts, function)
    made = 0
    for point in POINTS:
        heard = stopped_at(stops, Scene(a, b), point, what, "reserve") or []
        of_both = [each for each in heard if isinstance(each, Reserved) and not each.refused]
        made = max(made, len(of_both))
    return made


@pytest.mark.faults
def test_counters_that_are_locked_in_another_order_are_found_out(new_hosts: Hosts) -> None:
    with pytest.raises(StoreUnavailable, match="deadlock"):
        at_each_point(new_hosts, UNSORTED, "new")


@pytest.mark.faults
def test_a_fold_that_waits_for_rows_is_found_out(new_hosts: Hosts) -> None:
    with pytest.raises(StoreUnavailable, match="deadlock"):
        at_each_point(new_hosts, WAITING_FOLD, "done")


@pytest.mark.faults
def test_a_limit_that_is_judged_before_the_lock_is_found_out(new_hosts: Hosts) -> None:
    assert at_each_point(new_hosts, LIMIT_BEFORE_LOCK, "new") == 2, "both got the last room"


# ------------------------------------------------------------------- joined reservations


COUNT = int(os.environ.get("SPENDING_COUNT", "600"))
SEED = os.environ.get("SPENDING_SEED", "1")


def test_reservations_in_any_order_do_not_deadlock(hosts: Hosts) -> None:
    """J98: of three hosts, on 20 counters. `make spending` has a million of them."""
    spenders = [Spender(hosts, name, *(f"{name}{n}" for n in range(5))) for name in "abc"]
    sums: defaultdict[str, Decimal] = defaultdict(Decimal)
    locked = threading.Lock()

    def work(spender: Spender) -> None:
        rng = random.Random(f"seed {SEED} of {spender.name}")
        agents = [f"{spender.name}{n}" for n in range(5)]
        for step in range(COUNT // 15):
            asked = [spender.some(rng, f"{step}", agent_id) for agent_id in agents]
            answers = spender.backend.reserve_all(asked)
            with commit(spender.backend):
                for each, answer in zip(asked, answers, strict=True):
                    assert isinstance(answer, Reserved)
                    if answer.refused:
                        continue
                    spent = rng.randint(0, 3)
                    spender.add(spend(each.id, spent), agent_id=each.id.agent_id)
                    with locked:
                        for of in each.lines:
                            sums[of.counter.key] += spent

    with ThreadPoolExecutor(len(spenders)) as threads:
        list(threads.map(work, spenders))
    assert {key: total(spenders[0], key) for key in sums} == sums


@pytest.mark.faults
def test_a_crash_of_the_server_loses_no_reservation_that_must_last() -> None:
    """J97: nor one that was made before a commit that is durable."""
    server = Server()
    with closing(Hosts(server.url)) as hosts:
        a = Spender(hosts, "a")
        lasting = reservation(a.id("one"), line(10), lasts=True)
        assert isinstance(a.backend.reserve_all([lasting])[0], Reserved)
        server.crash()
        server.start()
        b = Spender(hosts, "b")
        assert total(b) == 10
        b.reserve("two", line(20))
        b.settle()
        server.crash()
        server.start()
        assert total(Spender(hosts, "c")) == 30
    server.remove()


async def test_what_waits_at_the_same_time_is_reserved_by_one_statement(hosts: Hosts) -> None:
    backend = hosts.new("here")
    purse = await Purse(DatabaseStore(backend)).open("a", "b")
    await purse.reserve("a", "first", line(0))
    sizes: list[int] = []
    reserve_all = backend.reserve_all

    def counted(asked: list[object]) -> object:
        sizes.append(len(asked))
        return reserve_all(asked)  # type: ignore[arg-type]

    backend.reserve_all = counted  # type: ignore[method-assign,assignment]
    jobs = [purse.reserve("a", f"{n}", line(1, 30)) for n in range(40)]
    jobs += [purse.reserve("b", "same", line(n, 30, key="x")) for n in range(3)]
    answers = await soon(asyncio.gather(*jobs))
    assert sizes == [41, 1, 1]
    assert [not each.refused for each in answers[:40]] == [n < 30 for n in range(40)]
    assert await purse.sum_of(key="x") == 2
    await purse.store.close()


async def test_reservations_at_the_same_time_may_count_from_different_buckets_on(
    hosts: Hosts,
) -> None:
    """A window has moved on between them."""
    purse = await Purse(DatabaseStore(hosts.new("here"))).open("a")
    for bucket in range(3):
        await purse.reserve("a", f"{bucket}", line(10, bucket=bucket, since=0))
    lines = [line(1, bucket=2, since=since) for since in (0, 2, 2, 1)]
    jobs = [purse.reserve("a", f"more {n}", each) for n, each in enumerate(lines)]
    answers = await soon(asyncio.gather(*jobs))
    assert [int(*each.sums.values()) for each in answers] == [31, 12, 13, 24]
    assert await purse.sum_of() == 34
    await purse.store.close()


async def test_who_is_cancelled_keeps_nobody_from_reserving(hosts: Hosts) -> None:
    purse = await Purse(DatabaseStore(hosts.new("here"))).open("a")
    jobs = [asyncio.ensure_future(purse.reserve("a", f"{n}", line(1))) for n in range(10)]
    await asyncio.sleep(0)
    for each in jobs[::2]:
        each.cancel()
    heard = await soon(asyncio.gather(*jobs, return_exceptions=True))
    assert [isinstance(each, Reserved) for each in heard] == [False, True] * 5
    assert (await purse.reserve("a", "last", line(1))).sums[CounterId("refunds", "")] >= 6
    await purse.store.close()


async def test_a_reservation_of_what_is_being_settled_is_answered_behind_it(hosts: Hosts) -> None:
    held = HeldCommits(hosts.new("a"))
    purse = await Purse(DatabaseStore(held)).open("a", "b")
    await purse.reserve("a", "one", line(60))
    with held.held():
        settling = asyncio.ensure_future(purse.settle("a", "one", 5))
        await held.reached()
        again = asyncio.ensure_future(purse.reserve("a", "one", line(70)))
        await soon(purse.reserve("b", "other", line(1)))
        assert not again.done()
    await soon(settling)
    assert (await soon(again)).sums == {CounterId("refunds", ""): money(6)}
    await purse.store.close()


async def test_a_reservation_of_what_is_settled_for_ever_gives_up(hosts: Hosts) -> None:
    held = HeldCommits(hosts.new("a"))
    purse = await Purse(DatabaseStore(held, patience=0.01)).open("a")
    await purse.reserve("a", "one", line(60))
    with held.held():
        settling = asyncio.ensure_future(purse.settle("a", "one", 5))
        await held.reached()
        with pytest.raises(StoreUnavailable, match="about to change what a call spends"):
            await soon(purse.reserve("a", "one", line(70)))
    await soon(settling)
    await purse.store.close()
