"""How long a run waits: for a person, with reminders and expiry, or at a point; checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Literal, TypeAlias, cast

from understudy._base.json_values import is_time_span, shown, storable_text
from understudy.errors import UsageError

Seconds: TypeAlias = float | timedelta
"""A span of time: a number of seconds, or a `timedelta`."""
EscalateAfter: TypeAlias = Mapping[int, str] | Mapping[float, str] | Mapping[timedelta, str]
"""Audiences of a request that is not answered, by the time that passes before each is notified."""
OnExpiry = Literal["reject", "stop"]
"""What an expired request counts as: a rejection of its call, or a stop of the whole run."""
EXPIRY = "expiry"
"""The source of the signal by which an expired request stops its run."""
CHECK = "check"
"""Who has settled a doubt that the `check` of its tool settled."""
MAX_SECONDS = 100 * 365 * 86_400.0
"""The longest time that anything may wait: 100 years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalation:
    """The audience to be told of a request that is not answered in time."""

    at: datetime
    audience: str
    """Who is told; the application knows what the text means."""


@dataclass(frozen=True, slots=True)
class RequestTiming:
    """How long a request waits, in seconds from when it is made. Make one with `request_timing`."""

    remind_after: tuple[float, ...] = ()
    escalate_after: tuple[tuple[float, str], ...] = ()
    expires_after: float | None = None
    on_expiry: OnExpiry = "reject"

    @property
    def tells(self) -> bool:
        """Whether people are told of the request before it expires."""
        return bool(self.remind_after or self.escalate_after)

    def to_list(self) -> list[Any]:
        """The times as plain data."""
        return [list(self.remind_after), [list(each) for each in self.escalate_after]]

    def at_most(self, seconds: float) -> RequestTiming:
        """The same, but it expires by then. It tells nobody who would be told after that."""
        expiry = seconds if self.expires_after is None else min(seconds, self.expires_after)
        return replace(
            self,
            remind_after=tuple(after for after in self.remind_after if after < expiry),
            escalate_after=tuple(each for each in self.escalate_after if each[0] < expiry),
            expires_after=expiry,
        )

    def times_from(self, now: datetime) -> dict[str, Any]:
        """The fields of a request that is made now."""
        return {
            "remind_at": tuple(now + timedelta(seconds=after) for after in self.remind_after),
            "escalations": tuple(
                Escalation(at=now + timedelta(seconds=after), audience=audience)
                for after, audience in self.escalate_after
            ),
            "expires_at": (
                None if self.expires_after is None else now + timedelta(seconds=self.expires_after)
            ),
            "on_expiry": self.on_expiry,
        }


NO_TIMING = RequestTiming()
"""A request waits for ever, and reminds nobody."""


def request_timing(
    what: str,
    *,
    remind_after: object = (),
    escalate_after: object = None,
    expires_after: object = None,
    on_expiry: object = "reject",
) -> RequestTiming:
    """The options of a request about time, checked.

    Args:
        what: whose options they are, for the errors.
        remind_after: a span of time (see `Seconds`), or several in ascending order.
        escalate_after: audiences by spans of time, in ascending order.
        expires_after: a span of time; None = never.
        on_expiry: `"reject"` or `"stop"`.

    Raises:
        UsageError: for what is not a number of seconds above 0 and up to 100 years, is out of
            order, comes when the request has expired, or would be silently without effect.

    """
    if remind_after is None:
        remind_after = ()
    several = isinstance(remind_after, Sequence) and not isinstance(remind_after, (str, bytes))
    reminders = [
        _seconds(what, "remind_after", each)
        for each in (cast("Sequence[object]", remind_after) if several else (remind_after,))
    ]
    if escalate_after is None:
        escalate_after = {}
    if not isinstance(escalate_after, Mapping):
        raise UsageError(
            f"{what}: `escalate_after` must be a mapping of seconds to audiences, got "
            f"{shown(escalate_after)}"
        )
    escalations = []
    for after, audience in escalate_after.items():
        if not isinstance(audience, str) or not audience.strip():
            raise UsageError(
                f"{what}: `escalate_after` must name an audience by a text, got {shown(audience)}"
            )
        escalations.append((_seconds(what, "escalate_after", after), storable_text(audience)))
    expiry = None if expires_after is None else _seconds(what, "expires_after", expires_after)
    for option, times in (
        ("remind_after", reminders),
        ("escalate_after", [after for after, _ in escalations]),
    ):
        if any(first >= second for first, second in pairwise(times)):
            raise UsageError(f"{what}: the times of `{option}` must ascend, got {shown(times)}")
        if expiry is not None and times and times[-1] >= expiry:
            raise UsageError(
                f"{what}: `{option}` must be below `expires_after`, {expiry:g} seconds: a request "
                f"that has expired tells nobody; got {times[-1]:g}"
            )
    if on_expiry not in ("reject", "stop"):
        raise UsageError(
            f"{what}: `on_expiry` must be 'reject' or 'stop', got {shown(on_expiry)}: a request "
            "that expires must not approve the call"
        )
    if on_expiry == "stop" and expiry is None:
        raise UsageError(f"{what}: `on_expiry` 'stop' is without effect: set `expires_after`, too")
    return RequestTiming(tuple(reminders), tuple(escalations), expiry, on_expiry)


def _seconds(what: str, option: str, given: object) -> float:
    return checked_span(given, what=f"{what}: `{option}`")


def checked_span(given: object, *, what: str) -> float:
    """`given` in seconds, if it is a number of them, or a `timedelta`, above 0 up to 100 years.

    Raises:
        UsageError: if it is not.

    """
    seconds = seconds_of(given)
    if not is_time_span(seconds) or seconds > MAX_SECONDS:
        raise UsageError(
            f"{what} must be seconds above 0, or a timedelta, at most 100 years, got {shown(given)}"
        )
    return seconds


def seconds_of(given: object) -> object:
    """The seconds of a `timedelta`; anything else as it is."""
    return given.total_seconds() if isinstance(given, timedelta) else given


def checked_delay(given: object, *, what: str) -> timedelta:
    """`given` as a span of time, if it is seconds, or a `timedelta`, from 0 to 100 years.

    Raises:
        UsageError: if it is not.

    """
    seconds = seconds_of(given)
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds <= MAX_SECONDS:  # type: ignore[operator]  # a number
        raise UsageError(
            f"{what} must be seconds from 0 on, or a timedelta, at most 100 years, got "
            f"{shown(given)}"
        )
    return timedelta(seconds=seconds)  # type: ignore[arg-type]  # it is a number


def span_text(seconds: float) -> str:
    """A span of time in words: "2 days", "1 hour 30 minutes". Nothing of it is left out."""
    parts, rest = [], round(seconds, 3)
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)):
        number = int(rest // size) if size > 1 else round(rest, 3)
        rest -= number * size
        if number:
            parts.append(f"{number:g} {unit}{'' if number == 1 else 's'}")
    return " ".join(parts) or f"{seconds:g} seconds"
