"""When a cron line comes true: also where clocks skip an hour, or show it twice (J26)."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy import UsageError
from understudy.actors.agent.cron import checked_cron, next_time, times_until

BERLIN = "Europe/Berlin"
UTC = timezone.utc


def times(line: str, zone: str, after: datetime, count: int) -> list[datetime]:
    """The next times, each asked for on its own."""
    found: list[datetime] = []
    at: datetime | None = after
    for _ in range(count):
        assert at is not None
        at = next_time(line, zone, at)
        assert at is not None
        found.append(at)
    return found


def shown(line: str, zone: str, after: str, count: int) -> list[str]:
    """The next times as the clocks of the zone show them, with their offsets from UTC."""
    place = ZoneInfo(zone)
    start = datetime.fromisoformat(after).replace(tzinfo=place).astimezone(UTC)
    return [f"{at.astimezone(place):%m-%d %H:%M%z}" for at in times(line, zone, start, count)]


def test_a_line_is_read_by_the_clocks_of_its_zone() -> None:
    assert shown("0 9 * * mon-fri", BERLIN, "2026-01-02 10:00", 2) == [
        "01-05 09:00+0100",
        "01-06 09:00+0100",
    ]
    assert shown("0 9 * * *", BERLIN, "2026-07-01 10:00", 1) == ["07-02 09:00+0200"]
    assert shown("0 9 * * *", "Asia/Kathmandu", "2026-07-01 10:00", 1) == ["07-02 09:00+0545"]


def test_a_fixed_time_that_is_skipped_comes_when_the_clock_goes_forward() -> None:
    found = shown("30 2 * * *", BERLIN, "2026-03-27 12:00", 3)
    assert found == ["03-28 02:30+0100", "03-29 03:00+0200", "03-30 02:30+0200"]


def test_two_fixed_times_that_are_skipped_come_once() -> None:
    found = shown("0,30 2,3 * * *", BERLIN, "2026-03-29 00:00", 3)
    assert found == ["03-29 03:00+0200", "03-29 03:30+0200", "03-30 02:00+0200"]


def test_a_fixed_time_that_comes_twice_comes_at_the_first() -> None:
    found = shown("30 2 * * *", BERLIN, "2026-10-24 12:00", 3)
    assert found == ["10-25 02:30+0200", "10-26 02:30+0100", "10-27 02:30+0100"]


def test_in_the_second_of_two_equal_hours_a_fixed_time_is_over() -> None:
    within = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)  # 02:10 for the second time
    found = next_time("30 2 * * *", BERLIN, within)
    assert found == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


def test_a_line_for_each_half_hour_goes_by_what_the_clock_shows() -> None:
    forward = shown("*/30 * * * *", BERLIN, "2026-03-29 01:00", 3)
    assert forward == ["03-29 01:30+0100", "03-29 03:00+0200", "03-29 03:30+0200"]
    back = shown("*/30 * * * *", BERLIN, "2026-10-25 01:30", 5)
    assert back == [
        "10-25 02:00+0200",
        "10-25 02:30+0200",
        "10-25 02:00+0100",
        "10-25 02:30+0100",
        "10-25 03:00+0100",
    ]


def test_a_zone_that_leaves_a_day_out() -> None:
    """Samoa went from the 29th of December 2011 to the 31st."""
    found = shown("0 9 * * *", "Pacific/Apia", "2011-12-29 08:00", 3)
    assert found == ["12-29 09:00-1000", "12-31 00:00+1400", "12-31 09:00+1400"]


def test_a_leap_day_is_waited_for() -> None:
    after = datetime(2026, 1, 1, tzinfo=UTC)
    assert next_time("0 0 29 2 *", "UTC", after) == datetime(2028, 2, 29, tzinfo=UTC)


def test_after_the_end_of_the_calendar_nothing_comes() -> None:
    assert next_time("0 0 1 1 *", "UTC", datetime(9999, 6, 1, tzinfo=UTC)) is None


ZONES = [
    "UTC",
    BERLIN,
    "America/New_York",
    "America/Havana",
    "America/St_Johns",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Beirut",
    "Australia/Lord_Howe",
    "Pacific/Apia",
]


def fields(first: int, last: int) -> st.SearchStrategy[str]:
    number = st.integers(first, last)
    span = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    some = st.lists(number, min_size=1, max_size=3).map(lambda ns: ",".join(map(str, ns)))
    step = st.integers(2, last).map(lambda n: f"*/{n}")
    return st.one_of(st.just("*"), st.just("*"), span, some, step)


lines = st.tuples(
    fields(0, 59), fields(0, 23), fields(1, 31), st.just("*"), st.one_of(st.just("*"), fields(0, 6))
).map(" ".join)
moments = st.integers(0, 22 * 366 * 86_400).map(
    lambda seconds: datetime(2005, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
)


@pytest.mark.slow
@settings(max_examples=150)
@given(line=lines, zone=st.sampled_from(ZONES), after=moments, share=st.floats(0, 0.999))
def test_the_times_do_not_depend_on_when_one_asks(
    line: str, zone: str, after: datetime, share: float
) -> None:
    checked_cron(line, zone, what="x")
    found = times(line, zone, after, 12)
    assert found == sorted(set(found))
    assert found[0] > after
    for earlier, following in islice(pairwise(found), 4):
        between = earlier + (following - earlier) * share
        assert next_time(line, zone, between) == following
    assert times_until(line, zone, found[0], found[-1], most=100) == found
    assert times_until(line, zone, found[2], found[-2], most=3) == found[-4:-1]


def test_the_last_times_of_a_long_while_cost_little() -> None:
    first, until = datetime(1990, 1, 1, tzinfo=UTC), datetime(2026, 12, 31, 12, tzinfo=UTC)
    found = times_until("* * * 1 *", BERLIN, first, until, most=100)
    assert len(found) == 100
    assert found[-1] == datetime(2026, 1, 31, 22, 59, tzinfo=UTC)


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "nonsense",
        "@daily",
        "* * * *",
        "* * * * * *",
        "61 * * * *",
        "0 24 * * *",
        "0 0 30 2 *",
        "0 0 31 2,4 *",
        "*/0 * * * *",
        "5-1 * * * *",
        "0 0 * * funday",
        "0 0 * * mon#6",
        "1" * 300 + " * * * *",
        "9" * 50 + " * * * *",
        "² * * * *",
        "0 9 * * *\ud800",
        5,
        None,
        float("nan"),
        b"0 9 * * *",
    ],
    ids=repr,
)
def test_what_is_no_cron_line_is_refused(cron: Any) -> None:
    with pytest.raises(UsageError, match="Schedule 'x'"):
        checked_cron(cron, "UTC", what="Schedule 'x'")


@pytest.mark.parametrize("cron", ["0 0 30 2 *", "0 0 31 2,4 *", "0 0 30-31 feb *", "0 0 30 2 */2"])
def test_a_line_that_never_comes_true_is_told_as_that(cron: str) -> None:
    with pytest.raises(UsageError, match=f"the line {re.escape(repr(cron))} never comes true"):
        checked_cron(cron, "UTC", what="x")


@pytest.mark.parametrize("cron", ["0 0 32 2 *", "0 0 30 13 *", "0 0 30 2 8", "60 0 30 2 *"])
def test_a_line_with_a_bad_field_cannot_be_read(cron: str) -> None:
    with pytest.raises(UsageError, match="cannot be read: Bad "):
        checked_cron(cron, "UTC", what="x")


@pytest.mark.parametrize(
    "zone",
    ["", "Nowhere/City", "Europe", "../etc/passwd", "/etc/localtime", "a\0b", "\ud800", 5, None],
    ids=repr,
)
def test_what_is_no_zone_is_refused(zone: Any) -> None:
    with pytest.raises(UsageError, match="Schedule 'x'"):
        checked_cron("0 9 * * *", zone, what="Schedule 'x'")


def test_a_line_is_kept_with_single_spaces() -> None:
    assert checked_cron(" 0  9 * *\tmon ", "UTC", what="x") == ("0 9 * * mon", "UTC")


def test_without_the_library_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cronsim", None)
    with pytest.raises(UsageError, match=r"pip install 'understudy\[schedules\]'"):
        checked_cron("0 9 * * *", "UTC", what="x")
