"""When a cron line comes true, as points in time. The line itself is read by `cronsim`.

`cronsim` is asked in local time without a zone, so it only matches a calendar. What a change of the
local clock means is decided here, as cron of Debian does:

- A line with a fixed hour (`30 2 * * *`) comes true once on each day that it names. Where the clock
  skips that time, it does so when the clock goes forward; where a time comes twice, at the first.
- A line whose minute or hour begins with `*` goes by what the clock shows: a time that is skipped
  does not come, and one that comes twice comes twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from understudy._base.json_values import checked_text, shown
from understudy.errors import UsageError

FIELDS = 5
MAX_CHARACTERS = 200
_STEP = timedelta(days=7)
"""A time in which no zone changes its offset twice."""
_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)
_SPARE = 130
"""How many more matches are looked back for: a skipped hour merges 60 matches into one."""
_NO_ZONES = frozenset({"Factory", "localtime", "posix", "posixrules", "right"})
"""The names in the zone database that are no zones to use: a machine's own zone, which differs
between hosts, and copies that may count leap seconds."""


def checked_cron(cron: object, zone: object, *, what: str) -> tuple[str, str]:
    """A cron line, with its white space made uniform, and the name of its zone.

    Raises:
        UsageError: for what is no line of five fields, or never comes true; for an unknown zone;
            without `cronsim`.

    """
    name = checked_text(zone, what=f"{what}: `timezone`")
    try:
        if name.partition("/")[0] in _NO_ZONES:
            raise ZoneInfoNotFoundError(name)
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(
            f"{what}: there is no time zone {shown(name)}: give a name such as 'Europe/Berlin' or "
            "'UTC' (without a database of zones on this machine, install 'tzdata')"
        ) from error
    line = " ".join(checked_text(cron, what=f"{what}: `cron`").split())
    if len(line) > MAX_CHARACTERS or len(line.split()) != FIELDS:
        raise UsageError(
            f"{what}: `cron` must have five fields, minute, hour, day of the month, month and day "
            f"of the week, such as '0 9 * * mon-fri', got {shown(cron)}"
        )
    cronsim = _cronsim()
    try:
        found = next(cronsim.CronSim(line, datetime(2000, 1, 1)), None)
    except cronsim.CronSimError as error:
        if not _names_no_day(line):
            raise UsageError(f"{what}: the line {line!r} cannot be read: {error}") from error
        found = None
    if found is None:
        raise UsageError(f"{what}: the line {line!r} never comes true")
    return line, name


def _names_no_day(line: str) -> bool:
    """Whether each field can be read, but no such month has such a day."""
    cronsim = _cronsim()
    minute, hour, day, month, weekday = line.split()
    try:
        for parts in ((minute, hour, "*", month, weekday), (minute, hour, day, "*", weekday)):
            cronsim.CronSim(" ".join(parts), datetime(2000, 1, 1))
    except cronsim.CronSimError:
        return False
    return True


def next_time(line: str, zone: str, after: datetime) -> datetime | None:
    """The first point in time, in UTC, at which a line comes true after another one.

    None where that is more than 50 years away.
    """
    return next(_times(line, zone, after), None)


def times_until(
    line: str, zone: str, first: datetime, until: datetime, *, most: int
) -> list[datetime]:
    """The last points in time from `first` up to `until`, oldest first, and `most` at most.

    Args:
        line: the cron line.
        zone: its time zone.
        first: a point at which it came true.
        until: the last moment that counts.
        most: how many are given; what is before them costs nothing.

    """
    place = ZoneInfo(zone)
    local = until.astimezone(place).replace(tzinfo=None) + _SECOND
    start = first - _SECOND
    for back in islice(_cronsim().CronSim(line, local, reverse=True), most + _SPARE):
        start = back.replace(tzinfo=place).astimezone(timezone.utc) - _DAY
        if start < first:
            start = first - _SECOND
            break
    found: deque[datetime] = deque(maxlen=most)
    for at in _times(line, zone, start):
        if at > until:
            break
        if at >= first:
            found.append(at)
    return list(found)


def _times(line: str, zone: str, after: datetime) -> Iterator[datetime]:
    """The points in time after another one, in UTC."""
    minute, hour = line.split()[:2]
    is_fixed = not (minute.startswith("*") or hour.startswith("*"))
    place, now = ZoneInfo(zone), after.astimezone(timezone.utc)
    offset = _offset(now, place)
    matches = _matches(line, now, offset)
    match = next(matches, None)
    while match is not None:
        at = (match - offset).replace(tzinfo=timezone.utc)
        horizon = min(at, now + _STEP)
        if _offset(horizon, place) != offset:
            change = _change(now, horizon, place)
            before, offset = offset, _offset(change, place)
            skipped_to = change.replace(tzinfo=None) + offset
            now = change
            if is_fixed and before < offset and match < skipped_to:
                yield change
                matches = _matches(line, change, offset)
            else:
                matches = _matches(line, change - _SECOND, offset)
            match = next(matches, None)
            continue
        now = horizon
        if horizon == at:
            if not (is_fixed and at.astimezone(place).fold):
                yield at
            match = next(matches, None)


def _matches(line: str, after: datetime, offset: timedelta) -> Iterator[datetime]:
    """The local times after a point in time, while the zone keeps this offset."""
    found: Iterator[datetime] = _cronsim().CronSim(line, after.replace(tzinfo=None) + offset)
    try:
        yield from found
    except (OverflowError, ValueError):  # the calendar ends with the year 9999
        return


def _change(before: datetime, after: datetime, place: ZoneInfo) -> datetime:
    """The first second at which the offset is no longer that of `before`."""
    offset, low, high = _offset(before, place), before, after
    while high - low > _SECOND:
        middle = low + (high - low) // 2
        low, high = (middle, high) if _offset(middle, place) == offset else (low, middle)
    return high.replace(microsecond=0)


def _offset(at: datetime, place: ZoneInfo) -> timedelta:
    return at.astimezone(place).utcoffset() or timedelta(0)


def _cronsim() -> Any:
    """Import and return the library `cronsim`, which schedules need.

    Raises:
        UsageError: if it is not installed.

    """
    try:
        import cronsim
    except ImportError as error:
        raise UsageError("Schedules need 'cronsim': pip install 'understudy[schedules]'") from error
    return cronsim
