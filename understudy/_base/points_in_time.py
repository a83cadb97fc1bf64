"""Points in time that callers give, checked."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from understudy._base.clock import Clock
from understudy._base.json_values import shown
from understudy.errors import UsageError


def checked_time(given: object, *, what: str) -> datetime:
    """`given` in UTC, if it is a point in time.

    Raises:
        UsageError: for anything but a datetime with a time zone.

    """
    if not isinstance(given, datetime):
        raise UsageError(f"{what} must be a datetime with a time zone, got {shown(given)}")
    if given.utcoffset() is None:
        raise UsageError(
            f"{what} must have a time zone, got {shown(given)}: give one, such as "
            "datetime(..., tzinfo=timezone.utc)"
        )
    try:
        return given.astimezone(timezone.utc)
    except OverflowError as error:
        raise UsageError(f"{what} is outside the calendar in UTC, got {shown(given)}") from error


def read_time(given: str, *, what: str, is_end: bool = False) -> datetime:
    """A day or a time, as a person writes it: `2030-01-31`, `2030-01-31T12:00+01:00`.

    Without a time zone it is meant in UTC. A day is its beginning; as the end of a range it is the
    beginning of the next day, so that the range has all of it.

    Raises:
        UsageError: for any other text.

    """
    try:
        time = datetime.fromisoformat(given)
        if is_end and len(given) <= len("2030-01-31"):
            time += timedelta(days=1)
        zoned = time if time.tzinfo is not None else time.replace(tzinfo=timezone.utc)
        return zoned.astimezone(timezone.utc)
    except (ValueError, OverflowError) as error:
        text = f"{what} must be a day or a time, such as 2030-01-31, got {shown(given)}"
        raise UsageError(text) from error


def time_text(time: datetime | None) -> str | None:
    """The time in ISO 8601, in UTC; None where it is not known."""
    return None if time is None else time.astimezone(timezone.utc).isoformat()


def checked_clock(given: Clock | None, *, what: str) -> Clock | None:
    """`given`, if it is a clock that tells a time with a time zone, or None.

    Raises:
        UsageError: for anything else.

    """
    if given is None:
        return None
    for name in ("now", "monotonic"):
        if not callable(getattr(given, name, None)):
            raise UsageError(
                f"{what} must have now() and monotonic(), and {shown(given)} has no {name}()"
            )
    checked_time(given.now(), what=f"{what}: what now() of {shown(given)} returns")
    return given
