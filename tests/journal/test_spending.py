"""What is reserved before it is spent, in each kind of store.

Rules: V60, V64, V65.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.databases import SqliteDatabase, smallest
from tests.support.held_commits import HeldCommits, turns
from tests.support.loops import soon
from tests.support.plain_sums import Story
from tests.support.postgres import Hosts
from tests.support.purses import NOON, Purse, SetClock, line, money, reservation, spend
from understudy.errors import Fenced, StoreDamaged, StoreUnavailable, UsageError
from understudy.journal import Backend, DatabaseStore, MemoryStore, Store
from understudy.journal.spending import BucketSum, CounterId, Line, SpendId
from understudy.state.records import Once
from understudy.testing import FaultyBackend

REFUNDS, CALLS = CounterId("refunds", ""), CounterId("calls", "")
OF_ADA = CounterId("refunds", "ada")


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def purse(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Purse]:
    store: Store = MemoryStore()
    if request.param == "sqlite":
        store = DatabaseStore(SqliteDatabase(tmp_path).backend("here"))
    elif request.param == "postgres":
        hosts: Hosts = request.getfixturevalue("hosts")
        store = DatabaseStore(hosts.new("here"))
    opened = Purse(store)
    await opened.open("a", "b")
    yield opened
    await opened.store.close()


# ------------------------------------------------------------------- reservations


@pytest.mark.quick
async def test_what_is_reserved_counts_at_once(purse: Purse) -> None:
    answer = await purse.reserve("a", "one", line(60))
    assert (answer.sums, answer.refused, answer.is_late) == ({REFUNDS: money(60)}, (), False)
    refused = await purse.reserve("b", "two", line(41))
    assert (refused.sums, refused.refused) == ({REFUNDS: money(60)}, (REFUNDS,))
    assert (await purse.reserve("b", "two", line(40))).sums == {REFUNDS: money(100)}
    assert not await purse.makes("a", "three", line("0.01"))


async def test_a_reservation_is_made_on_all_counters_or_on_none(purse: Purse) -> None:
    assert await purse.makes("a", "one", line(90))
    both = line(20), line(20, key="ada"), line(1, budget="calls")
    answer = await purse.reserve("b", "two", *both)
    assert answer.refused == (REFUNDS,)
    assert answer.sums == {REFUNDS: money(90), OF_ADA: money(0), CALLS: money(0)}
    assert await purse.sum_of(key="ada") == 0
    assert await purse.sum_of("calls") == 0
    many = [line(20, 10, key=key) for key in ("x", "y", "z")]
    answer = await purse.reserve("b", "two", many[2], line(1, budget="calls"), many[0], many[1])
    assert set(answer.refused) == {each.counter for each in many}


async def test_where_a_person_has_let_it_pass_there_is_no_limit(purse: Purse) -> None:
    assert await purse.makes("a", "one", line(1000, None))
    assert await purse.sum_of() == 1000
    assert not await purse.makes("a", "two", line(1))


async def test_the_same_reservation_again_takes_the_place_of_the_one_before(purse: Purse) -> None:
    for amount in (60, 60, 30, 100):
        assert (await purse.reserve("a", "one", line(amount))).sums == {REFUNDS: money(amount)}
        assert await purse.sum_of() == amount
    assert not await purse.makes("a", "one", line(101))
    assert await purse.sum_of() == 100, "what was reserved before stays"
    assert [each.amounts for each in await purse.open_of("a")] == [{REFUNDS: money(100)}]


async def test_the_same_reservation_needs_room_for_what_is_more_alone(purse: Purse) -> None:
    assert await purse.makes("a", "one", line(60))
    assert await purse.makes("b", "two", line(90, None))
    for amount in (60, 50):
        assert await purse.makes("a", "one", line(amount)), "the limit is passed already"
    assert not await purse.makes("a", "one", line(51))
    assert await purse.makes("b", "three", line(0)), "it spends nothing"


async def test_the_same_reservation_may_be_on_other_counters(purse: Purse) -> None:
    """Its arguments were edited before it started."""
    assert await purse.makes("a", "one", line(60), line(60, key="ada"))
    assert await purse.makes("a", "one", line(70, key="bob"), line(60))
    assert await purse.sum_of(key="ada") == 0
    assert await purse.sum_of(key="bob") == 70
    (opened,) = await purse.open_of("a")
    assert opened.amounts == {REFUNDS: money(60), CounterId("refunds", "bob"): money(70)}
    assert await purse.makes("a", "one")
    assert await purse.sum_of() == await purse.sum_of(key="bob") == 0
    assert await purse.open_of("a") == []


async def test_the_same_reservation_may_be_in_another_bucket(purse: Purse) -> None:
    assert await purse.makes("a", "one", line(60, bucket=86_400, since=86_400))
    answer = await purse.reserve("a", "one", line(100, bucket=172_800, since=172_800))
    assert answer.sums == {REFUNDS: money(100)}
    assert [(each.bucket, int(each.amount)) for each in await purse.buckets()] == [(172_800, 100)]
    both = await purse.reserve("a", "one", line(90, bucket=259_200, since=172_800))
    assert both.sums == {REFUNDS: money(90)}


async def test_buckets_count_from_the_first_one_on(purse: Purse) -> None:
    for bucket in range(4):
        assert await purse.makes("a", f"{bucket}", line(10, bucket=bucket, since=0))
    answer = await purse.reserve("a", "more", line(1, 21, bucket=2, since=2))
    assert answer.sums == {REFUNDS: money(21)}, "a later one counts: a clock was set back"
    assert not await purse.makes("b", "too much", line(1, 31, bucket=2, since=1))
    assert await purse.makes("b", "later", line(1, 11, bucket=3, since=3))


async def test_amounts_are_exact(purse: Purse) -> None:
    small, large = "0." + "0" * 39 + "1", str(10**24 - 1)
    assert await purse.makes("a", "one", line(large, None))
    for number in range(3):
        assert await purse.makes("a", f"{number}", line(small, None))
    assert await purse.sum_of() == Decimal(f"{large}.{'0' * 39}3")
    await purse.settle("a", "one", 0)
    assert await purse.sum_of() == Decimal("3E-40")
    for number in range(10):
        assert await purse.makes("b", f"{number}", line("0.1", 1, "cents"))
    assert not await purse.makes("b", "more", line(small, 1, "cents"))


# ------------------------------------------------------------------- settlements


@pytest.mark.quick
@pytest.mark.parametrize("spent", ["20", "60", "0"])
async def test_what_is_spent_counts_in_the_place_of_what_was_reserved(
    purse: Purse, spent: str
) -> None:
    await purse.reserve("a", "one", line(60), line(1, budget="calls"))
    await purse.settle("a", "one", spent)
    assert await purse.sum_of() == money(spent)
    assert await purse.sum_of("calls") == 1, "what is not named stays as it was reserved"
    assert await purse.open_of("a") == []
    answer = await purse.reserve("b", "two", line(40))
    assert answer.sums == {REFUNDS: money(spent) + 40}


async def test_more_than_was_reserved_is_counted(purse: Purse) -> None:
    await purse.reserve("a", "one", line(60))
    await purse.settle("a", "one", 150)
    assert await purse.sum_of() == 150
    assert (await purse.reserve("b", "two", line(1))).sums == {REFUNDS: money(150)}
    assert await purse.makes("b", "three", line(50, 200))


async def test_what_nobody_knows_counts_in_full_and_is_shown_apart(purse: Purse) -> None:
    await purse.reserve("a", "one", line(60))
    await purse.reserve("a", "two", line(5))
    assert list(await purse.buckets()) == [BucketSum(0, money(65), money(65), money(0))]
    await purse.settle("a", "one", unknown=True)
    assert list(await purse.buckets()) == [BucketSum(0, money(65), money(5), money(60))]
    await purse.settle("a", "two", 1)
    await purse.reserve("b", "three", line(3))
    assert list(await purse.buckets()) == [BucketSum(0, money(64), money(3), money(60))]


async def test_a_call_is_settled_once(purse: Purse) -> None:
    await purse.reserve("a", "one", line(60))
    await purse.settle("a", "one", 20)
    await purse.settle("a", "one", 50)
    await purse.settle("a", "one", unknown=True)
    assert list(await purse.buckets()) == [BucketSum(0, money(20), money(0), money(0))]


async def test_a_settlement_without_a_reservation_changes_nothing(purse: Purse) -> None:
    await purse.reserve("a", "one", line(60))
    await purse.settle("a", "two", 20)
    await purse.settle("b", "one", 20)
    assert list(await purse.buckets()) == [BucketSum(0, money(60), money(60), money(0))]


async def test_what_is_settled_is_not_reserved_again(purse: Purse) -> None:
    await purse.reserve("a", "one", line(60))
    await purse.settle("a", "one", 20)
    answer = await purse.reserve("a", "one", line(60))
    assert (answer.sums, answer.refused) == ({REFUNDS: money(20)}, ())
    assert await purse.sum_of() == 20
    assert await purse.open_of("a") == []


async def test_many_calls_are_settled_in_one_commit(purse: Purse) -> None:
    for number in range(5):
        await purse.reserve("a", f"{number}", line(10), line(1, budget="calls"))
    await purse.record("a", *(spend(purse.id("a", f"{n}"), n) for n in range(5)))
    assert await purse.sum_of() == sum(range(5))
    assert await purse.sum_of("calls") == 5


async def test_what_is_open_of_an_agent_is_listed(purse: Purse) -> None:
    await purse.reserve("a", "one", line(60), line(1, budget="calls"))
    await purse.reserve("b", "one", line(7))
    await purse.reserve("a", "two", line(5))
    first, second = sorted(await purse.open_of("a"), key=lambda each: each.id)
    assert first.id == SpendId("a", 1, "one")
    assert first.amounts == {REFUNDS: money(60), CALLS: money(1)}
    assert (second.id, second.amounts) == (SpendId("a", 1, "two"), {REFUNDS: money(5)})
    assert await purse.open_of("nobody") == []


async def test_counters_are_listed_in_order(purse: Purse) -> None:
    lines = [line(1, budget=b, key=k) for b, k in (("x", "b"), ("y", ""), ("x", "a"), ("Z", ""))]
    await purse.reserve("a", "one", *lines)
    every = [tuple(each.counter) for each in await purse.spending.counters()]
    assert every == [("Z", ""), ("x", "a"), ("x", "b"), ("y", "")]
    some = [tuple(each.counter) for each in await purse.spending.counters({"x"})]
    assert some == [("x", "a"), ("x", "b")]
    assert await purse.spending.counters([]) == []


async def test_what_was_settled_last_makes_room_before_it_is_waited_for(purse: Purse) -> None:
    """For all who reserve meanwhile, and only once."""
    await purse.reserve("a", "one", line(100))
    journal = purse.journals["a"]
    journal.append([Once(key="k", value=1)])
    journal.settle([spend(purse.id("a", "one"), 40)])
    asked = [purse.reserve("b", f"{number}", line(30)) for number in range(3)]
    answers = await soon(asyncio.gather(*asked))
    assert [bool(each.refused) for each in answers] == [False, False, True]
    await journal.durable()


# ------------------------------------------------------------------- giving back


async def spent(purse: Purse, what: str, amount: int, ref: str = "order-17") -> None:
    await purse.reserve("a", what, line(amount, ref=ref))
    await purse.settle("a", what)


@pytest.mark.quick
async def test_what_is_given_back_makes_room_once(purse: Purse) -> None:
    await spent(purse, "one", 60)
    back = {("refunds", "order-17"): None}
    await purse.settle("b", "undo", gives=back)
    assert await purse.sum_of() == 0
    await purse.settle("b", "undo again", gives=back)
    assert await purse.sum_of() == 0
    assert (await purse.reserve("b", "two", line(100))).sums == {REFUNDS: money(100)}


@pytest.mark.parametrize(("given", "left"), [("20", 40), ("60", 0), ("61", 0), ("0", 60)])
async def test_part_of_it_is_given_back_and_at_most_what_was_spent(
    purse: Purse, given: str, left: int
) -> None:
    await spent(purse, "one", 60)
    for number in range(2):
        await purse.settle("b", f"undo {number}", gives={("refunds", "order-17"): given})
        assert (await purse.reserve("b", "look", line(0))).sums == {REFUNDS: money(left)}
    assert await purse.sum_of() == left


async def test_what_was_spent_twice_is_given_back_twice(purse: Purse) -> None:
    await spent(purse, "one", 10)
    await spent(purse, "two", 30)
    for left in (30, 0, 0):
        await purse.settle("b", f"undo {left}", gives={("refunds", "order-17"): None})
        assert await purse.sum_of() == left


async def test_nothing_is_given_back_that_was_not_spent(purse: Purse) -> None:
    await spent(purse, "one", 10)
    await purse.reserve("a", "open", line(30, ref="order-18"))
    for ref in ("order-18", "order-19"):
        await purse.settle("b", ref, gives={("refunds", ref): None})
    await purse.settle("b", "other", gives={("calls", "order-17"): None})
    assert await purse.sum_of() == 40
    await purse.settle("a", "open")
    assert (await purse.reserve("b", "look", line(0))).sums == {REFUNDS: money(40)}


async def test_what_is_given_back_is_of_a_call_that_was_settled_by_then(purse: Purse) -> None:
    """Also where an older one is settled before anybody looks."""
    await purse.reserve("a", "first", line(10, ref="order-17"))
    await spent(purse, "second", 30)
    await purse.settle("b", "undo", gives={("refunds", "order-17"): None})
    await purse.settle("a", "first")
    assert (await purse.reserve("b", "look", line(0))).sums == {REFUNDS: money(10)}


async def test_what_was_spent_for_two_keys_is_given_back_for_each(purse: Purse) -> None:
    for key, amount in (("ada", 10), ("bob", 30)):
        await purse.reserve("a", key, line(amount, key=key, ref="17"))
        await purse.settle("a", key)
    for number in range(2):
        await purse.settle("b", f"undo {number}", gives={("refunds", "17"): None})
    assert await purse.sum_of(key="ada") == await purse.sum_of(key="bob") == 0


async def test_what_is_given_back_goes_where_it_was_spent(purse: Purse) -> None:
    """A refund of yesterday's charge makes no room today."""
    yesterday, today = 86_400, 172_800
    await purse.reserve("a", "one", line(60, bucket=yesterday, since=yesterday, ref="17"))
    await purse.reserve("a", "two", line(60, bucket=today, since=today))
    await purse.record("a", spend(purse.id("a", "one")), spend(purse.id("a", "two")))
    await purse.settle("b", "undo", gives={("refunds", "17"): "20"})
    buckets = [(each.bucket, int(each.amount)) for each in await purse.buckets()]
    assert buckets == [(yesterday, 40), (today, 60)]


async def test_a_call_gives_back_and_spends_in_one_commit(purse: Purse) -> None:
    await spent(purse, "one", 60)
    await purse.reserve("b", "two", line(10))
    await purse.record("b", spend(purse.id("b", "two"), 5, gives={("refunds", "order-17"): None}))
    assert await purse.sum_of() == 5


async def test_what_nobody_knows_is_given_back_too(purse: Purse) -> None:
    await purse.reserve("a", "one", line(60, ref="17"))
    await purse.settle("a", "one", unknown=True)
    await purse.settle("b", "undo", gives={("refunds", "17"): "20"})
    await purse.reserve("b", "look", line(0))
    assert list(await purse.buckets()) == [BucketSum(0, money(40), money(0), money(40))]


# ------------------------------------------------------------------- windows


async def test_a_reservation_for_another_time_is_late(purse: Purse) -> None:
    now = (await purse.reserve("a", "ask", line(5))).now
    for valid in ((now + 1000, now + 2000), (now - 2000, now - 1000)):
        answer = await purse.reserve("a", "one", line(60), valid=valid)
        assert (answer.is_late, answer.refused) == (True, ())
        assert answer.sums == {REFUNDS: money(5)}
        assert now <= answer.now < now + 100
    assert await purse.sum_of() == 5
    answer = await purse.reserve("a", "one", line(60), valid=(now - 1000, now + 1000))
    assert (answer.is_late, answer.sums) == (False, {REFUNDS: money(65)})


DAY = 86_400


async def last_days(purse: Purse, what: str, day: int, days: int, **more: str) -> None:
    """A reservation of 1 in a window of so many days, of which this one is the last."""
    now = (await purse.reserve("b", "ask", line(0, budget="calls"))).now
    answer = await purse.reserve(
        "a",
        what,
        line(1, bucket=day * DAY, since=(day - days + 1) * DAY, **more),
        valid=(now - DAY // 2, now + DAY // 2),
    )
    assert not answer.is_late


async def test_buckets_go_two_windows_after_the_last_that_counts(purse: Purse) -> None:
    days = [1000 + day for day in range(30)]
    for day in days:
        await last_days(purse, f"{day}", day, 4)
        if day % 2:
            await purse.settle("a", f"{day}", unknown=True)
        elif day != 1002:
            await purse.settle("a", f"{day}")
    kept = [each.bucket // DAY for each in await purse.buckets()]
    assert kept == [1002, *range(1029 - 3 - 2 * 4, 1030)], "what is open stays"
    answer = await purse.reserve("a", "look", line(0, bucket=1029 * DAY, since=1000 * DAY))
    assert answer.sums == {REFUNDS: money(len(kept))}


async def test_buckets_are_kept_for_a_day_at_least(purse: Purse) -> None:
    """A clock may be set back, over the end of a month, by as much as an hour or so."""
    now = (await purse.reserve("b", "ask", line(0, budget="calls"))).now
    for hour in range(48):
        bucket = DAY + hour * 3600
        lines = line(1, bucket=bucket, since=bucket), line(1, budget="calls")
        await purse.reserve("a", f"{hour}", *lines, valid=(now - 9, now + 99))
        await purse.settle("a", f"{hour}")
    assert [each.bucket // 3600 - 24 for each in await purse.buckets()] == [*range(47 - 24, 48)]


async def test_what_may_be_given_back_goes_with_its_bucket(purse: Purse) -> None:
    for day in range(1000, 1020):
        await last_days(purse, f"{day}", day, 2, ref=f"{day}")
        await purse.settle("a", f"{day}")
    before = await purse.sum_of()
    await purse.settle("b", "undo", gives={("refunds", "1000"): None})
    await purse.settle("b", "undo", gives={("refunds", "1019"): None})
    await purse.reserve("b", "look", line(0, bucket=1019 * DAY))
    assert await purse.sum_of() == before - 1


# ------------------------------------------------------------------- agents


@pytest.mark.quick
async def test_a_deleted_agent_leaves_what_it_may_have_spent(purse: Purse) -> None:
    await purse.reserve("a", "one", line(60))
    await purse.reserve("a", "two", line(20))
    await purse.reserve("b", "one", line(5))
    await purse.settle("a", "one", 50)
    await purse.delete("a")
    assert list(await purse.buckets()) == [BucketSum(0, money(75), money(5), money(20))]
    await purse.begin("a")
    assert await purse.open_of("a") == []
    answer = await purse.reserve("a", "two", line(20))
    assert answer.sums == {REFUNDS: money(95)}, "the next one of the id is another one"
    await purse.settle("a", "two", 0)
    assert await purse.sum_of() == 75


async def test_an_agent_of_before_reserves_nothing(purse: Purse) -> None:
    gone = purse.id("a", "one")
    await purse.delete("a")
    for again in range(2):
        with pytest.raises(Fenced):
            await purse.spending.reserve(reservation(gone, line(1), lasts=True))
        if not again:
            await purse.begin("a")
    assert await purse.sum_of() == 0


# ------------------------------------------------------------------- any story


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_any_story_adds_up_to_plain_sums(purse: Purse, seed: int) -> None:
    """J97: what is answered, and what is listed, are the sums of what is reserved and spent."""
    story = Story(purse, seed)
    for step in range(120):
        await story.step()
        if step % 10 == 9:
            await story.compare()
    assert story.model.entries


# ------------------------------------------------------------------- what no store keeps


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (line("-1"), "the amount on 'refunds' must be"),
        (line("NaN"), "the amount on 'refunds' must be"),
        (line("sNaN"), "the amount on 'refunds' must be"),
        (line("Infinity"), "the amount on 'refunds' must be"),
        (line("1E24"), "less than 10\\*\\*24"),
        (line("1E-41"), "40 decimal places"),
        (line(1, "Infinity"), "the limit of 'refunds' must be"),
        (line(1, "-1"), "the limit of 'refunds' must be"),
        (line(1, bucket=1, since=2), "a bucket of 'refunds' must be"),
        (line(1, bucket=-1, since=-1), "a bucket of 'refunds' must be"),
        (line(1, key="\0"), "a `key` must be text"),
        (line(1, ref="\ud800"), "a `ref` must be text"),
        (line(1, budget="é" * 1001), "a `budget` must be text"),
        (line(1, budget="b" * 1000, key="k" * 1001), "a `key` must be text"),
    ],
)
async def test_what_no_store_could_keep_is_refused(purse: Purse, wrong: Line, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        await purse.reserve("a", "one", line(5, key="ada"), wrong)
    assert await purse.sum_of(key="ada") == 0


async def test_two_lines_of_one_counter_are_refused(purse: Purse) -> None:
    with pytest.raises(UsageError, match="are of one counter: add them up"):
        await purse.reserve("a", "one", line(5), line(6))


async def test_a_settlement_that_no_store_could_keep_is_refused(purse: Purse) -> None:
    await purse.reserve("a", "one", line(60))
    journal = purse.journals["a"]
    for wrong in (spend(purse.id("a", "one"), "-1"), spend(purse.id("a", "one"), "NaN")):
        with pytest.raises(UsageError, match="what is spent of 'refunds' must be"):
            journal.settle([spend(purse.id("a", "one"), 5), wrong])
    with pytest.raises(UsageError, match="what is given back of 'refunds' must be"):
        journal.settle([spend(purse.id("a", "one"), gives={("refunds", "17"): "-5"})])
    await purse.record("a")
    assert list(await purse.buckets()) == [BucketSum(0, money(60), money(60), money(0))]


async def test_a_key_may_be_long_and_have_any_characters(purse: Purse) -> None:
    keys = ["k" * 1900, "ключ 🔑 ' \" \\ { } ,", "NULL", "%s"]
    await purse.reserve("a", "w" * 2000, *(line(1, key=key, ref=key) for key in keys))
    found = {each.counter.key for each in await purse.spending.counters(["refunds"])}
    assert found == set(keys)


async def test_a_store_that_keeps_no_spending_settles_nothing(tmp_path: Path) -> None:
    store = DatabaseStore(smallest(tmp_path, "here"))
    assert store.spending is None
    purse = await Purse(store).open("a")
    with pytest.raises(UsageError, match="keeps no spending"):
        purse.journals["a"].settle([spend(purse.id("a", "one"), 1)])
    await store.close()


async def test_what_another_agent_has_reserved_is_not_settled(purse: Purse) -> None:
    with pytest.raises(UsageError, match="settle it in one of its own"):
        purse.journals["a"].settle([spend(purse.id("b", "one"), 1)])


# ------------------------------------------------------------------- one host has it


@pytest.fixture(params=["memory", "sqlite"])
async def alone(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Purse]:
    """A store of one host, whose clock is set."""
    store: Store = MemoryStore()
    if request.param == "sqlite":
        store = DatabaseStore(SqliteDatabase(tmp_path).backend("here"))
    store.feed_clock = SetClock()
    opened = Purse(store)
    await opened.open("a")
    yield opened
    await opened.store.close()


async def test_the_clock_of_a_store_of_one_host_is_that_of_its_runtime(alone: Purse) -> None:
    clock = alone.store.feed_clock
    assert isinstance(clock, SetClock)
    day = (clock.seconds, clock.seconds + 60)
    assert not (await alone.reserve("a", "one", line(1), valid=day)).is_late
    clock.pass_on(59.9)
    assert not (await alone.reserve("a", "two", line(1), valid=day)).is_late
    clock.pass_on(0.1)
    answer = await alone.reserve("a", "three", line(1), valid=day)
    assert (answer.is_late, answer.now) == (True, clock.seconds)
    clock.pass_on(-60.1)
    assert (await alone.reserve("a", "four", line(1), valid=day)).is_late
    (first, *_) = await alone.open_of("a")
    assert first.at == NOON


# ------------------------------------------------------------------- in a SQLite file


def in_file(folder: Path, backend: Backend | None = None) -> Purse:
    return Purse(DatabaseStore(backend or SqliteDatabase(folder).backend("here"), patience=0.05))


async def all_of(purse: Purse) -> tuple[object, ...]:
    """All that a store says of its counters and of what is open."""
    every = [*await purse.spending.counters()]
    return every, [sorted(await purse.open_of(id), key=lambda e: e.id) for id in ("a", "b")]


async def crashed(purse: Purse, folder: Path) -> Purse:
    """The store as a process finds it after this one was killed."""
    with_log = ("store.db", "store.db-wal")
    kept = {name: (folder / name).read_bytes() for name in with_log}
    await purse.store.close()
    for name, content in kept.items():
        (folder / name).write_bytes(content)
    return await in_file(folder).open("a", "b")


@pytest.mark.quick
async def test_what_was_reserved_and_settled_outlives_the_process(tmp_path: Path) -> None:
    purse = await in_file(tmp_path).open("a", "b")
    await purse.reserve("a", "one", line(10, ref="17"), line(1, budget="calls"), must_last=True)
    await purse.reserve("a", "two", line(20), must_last=True)
    await purse.reserve("a", "three", line(30, ref="18"), must_last=True)
    await purse.settle("a", "one")
    await purse.settle("a", "two", 200)
    await purse.settle("a", "three", unknown=True)
    await purse.reserve("b", "four", line(7, None), must_last=True)
    for _ in range(2):
        before = await all_of(purse)
        purse = await crashed(purse, tmp_path)
        assert await all_of(purse) == before
        assert await purse.sum_of() == 247
    await purse.settle("b", "undo", gives={("refunds", "17"): None, ("refunds", "18"): "5"})
    before = await all_of(purse)
    purse = await crashed(purse, tmp_path)
    assert await all_of(purse) == before
    assert await purse.sum_of() == 232
    await purse.store.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_any_story_goes_on_after_a_crash(tmp_path: Path, seed: int) -> None:
    """J97: what a process decides by, and what it keeps, are the same."""
    story = Story(await in_file(tmp_path).open("a", "b"), seed)
    for step in range(90):
        await story.step()
        if step % 15 == 14:
            await story.purse.record("a")  # what need not last is on disk
            story.purse = await crashed(story.purse, tmp_path)
            await story.compare()
    await story.purse.store.close()


async def test_what_need_not_last_is_on_disk_with_the_next_commit(tmp_path: Path) -> None:
    purse = await in_file(tmp_path).open("a", "b")
    await purse.reserve("a", "one", line(10))
    await purse.record("b")
    purse = await crashed(purse, tmp_path)
    assert await purse.sum_of() == 10
    await purse.store.close()


async def test_a_reservation_is_in_the_commit_of_the_record_behind_it(tmp_path: Path) -> None:
    """A process that is killed has both or none."""
    held = HeldCommits(SqliteDatabase(tmp_path).backend("here"))
    purse = await in_file(tmp_path, held).open("a", "b")
    await purse.reserve("b", "first", line(1), must_last=True)
    with held.held():
        assert await purse.makes("a", "one", line(10)), "it waits for no commit"
        recording = asyncio.ensure_future(purse.record("a"))
        await held.reached()
        for name in ("store.db", "store.db-wal"):
            shutil.copy(tmp_path / name, tmp_path / f"killed-{name}")
    await soon(recording)
    assert await purse.sum_of() == 11
    await purse.store.close()
    for name in ("store.db", "store.db-wal"):
        (tmp_path / f"killed-{name}").rename(tmp_path / name)
    purse = await in_file(tmp_path).open("a", "b")
    assert await purse.sum_of() == 1
    await purse.store.close()


async def test_what_must_last_is_on_disk_when_it_is_answered(tmp_path: Path) -> None:
    held = HeldCommits(SqliteDatabase(tmp_path).backend("here"))
    purse = await in_file(tmp_path, held).open("a", "b")
    await purse.reserve("b", "first", line(1))
    with held.held():
        asking = asyncio.ensure_future(purse.reserve("a", "one", line(10), must_last=True))
        await held.reached()
        await turns()
        assert not asking.done()
    assert not (await soon(asking)).refused
    await purse.store.close()


async def test_what_is_settled_counts_once_it_is_committed(tmp_path: Path) -> None:
    """The record of its result may be lost with the process."""
    held = HeldCommits(SqliteDatabase(tmp_path).backend("here"))
    purse = await in_file(tmp_path, held).open("a", "b")
    await purse.reserve("a", "one", line(100), must_last=True)
    with held.held():
        settling = asyncio.ensure_future(purse.settle("a", "one", 40))
        await held.reached()
        assert await purse.sum_of() == 100
    await soon(settling)
    assert await purse.sum_of() == 40
    await purse.store.close()


async def test_what_is_settled_while_the_counters_are_read_counts_once(tmp_path: Path) -> None:
    purse = await in_file(tmp_path).open("a", "b")
    for number in range(20):
        await purse.reserve("a", f"{number}", line(10, None))
    await purse.record("a")
    await purse.store.close()
    purse = await in_file(tmp_path).open("a", "b")
    journal = purse.journals["a"]
    for number in range(20):
        journal.append([Once(key="k", value=number)])
        journal.settle([spend(purse.id("a", f"{number}"), 1)])
        if number % 4 == 2:
            await asyncio.sleep(0)
        if number == 10:
            looking = asyncio.ensure_future(purse.sum_of())
    await journal.durable()
    await soon(looking)
    assert await purse.sum_of() == 20
    await purse.store.close()


async def test_a_write_that_fails_has_all_read_anew(tmp_path: Path) -> None:
    faulty = FaultyBackend(SqliteDatabase(tmp_path).backend("here"))
    purse = await in_file(tmp_path, faulty).open("a", "b")
    await purse.reserve("a", "one", line(10), must_last=True)
    faulty.fail("keep_reserved", times=1000)
    with pytest.raises(StoreUnavailable):
        await purse.reserve("a", "two", line(20), must_last=True)
    assert faulty.mend()
    assert await purse.sum_of() == 10
    assert await purse.makes("a", "two", line(90))
    await purse.store.close()


class Untouched(FaultyBackend):
    """Whose counters nobody may ask for."""

    def load_spending(self) -> NoReturn:
        raise AssertionError("there is no budget")


async def test_nothing_is_read_or_written_where_no_budget_is_used(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path)
    purse = await in_file(tmp_path, Untouched(database.backend("here"))).open("a", "b")
    await purse.record("a")
    await purse.delete("a")
    await purse.store.close()
    for table in ("counters", "buckets", "spending"):
        assert database.sql(f"SELECT count(*) FROM {table}") == [(0,)]


async def test_a_damaged_amount_is_told(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path)
    purse = await in_file(tmp_path).open("a", "b")
    await purse.reserve("a", "one", line(10), must_last=True)
    await purse.store.close()
    for wrong in ("many", "NaN"):
        database.sql(f"UPDATE spending SET amount = '{wrong}'")
        purse = await in_file(tmp_path).open("b")
        with pytest.raises(StoreDamaged, match="what calls have spent"):
            await purse.reserve("b", "two", line(1))
        await purse.store.close()
