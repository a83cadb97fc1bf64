"""Points in time that callers give, checked."""

from __future__ import annotations

from datetime import datetime, timezone

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
