"""`grant` and `offer`: how far a decision holds for later calls, and how far it may."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal, TypeAlias, cast, get_args

from understudy._base.json_values import checked_text, shown
from understudy._base.points_in_time import checked_time, time_text
from understudy._base.request_timing import MAX_SECONDS, Seconds, checked_delay, span_text
from understudy.errors import UsageError

GrantScope = Literal["run", "agent"]
"""The runs in which a grant holds: only the `run` that asked, or all runs of the `agent`."""
SCOPES: tuple[GrantScope, ...] = get_args(GrantScope)
GivenOffer: TypeAlias = "bool | GrantOffer"
"""True offers every grant, False offers none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantTerms:
    """The terms of a grant: for which later calls a decision holds. Make it with `grant`."""

    # What has a name that is no term would be a grant without that limit. It is a `ConfigDict`; the
    # command line shows terms, and imports no Pydantic for it.
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    until: datetime | None = None
    """The time at which the grant ends; None if `seconds` says it, or if it has no end."""
    seconds: float | None = None
    """The number of seconds from the decision to the end of the grant; None if `until` says it, or
    if it has no end."""
    uses: int | None = None
    """The number of later calls that the grant lets through; None = any number."""
    match: tuple[str, ...] | None = None
    """The names of the arguments that must equal the arguments of the decided call.

    None = all arguments that the offer does not leave free.
    """
    scope: GrantScope | None = "run"
    """The runs in which the grant holds.

    None only with `always=True`. The grant then holds in all runs of an agent; for an agent that a
    call runs, it holds in that one run.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return the terms as plain data."""
        return {
            "until": time_text(self.until),
            "seconds": self.seconds,
            "uses": self.uses,
            "match": None if self.match is None else list(self.match),
            "scope": self.scope,
        }

    @property
    def text(self) -> str:
        """The terms, in words: "for 1 hour, 5 uses, with the same customer, in this run"."""
        parts = []
        if self.until is not None:
            parts.append(f"until {time_text(self.until)}")
        if self.seconds is not None:
            parts.append(f"for {span_text(self.seconds)}")
        if self.uses is not None:
            parts.append(uses_text(self.uses))
        if self.match is None:
            parts.append("with the same arguments")
        elif self.match:
            parts.append(f"with the same {', '.join(self.match)}")
        else:
            parts.append("with any arguments")
        if self.scope is not None:
            parts.append(SCOPE_TEXTS[self.scope])
        return ", ".join(parts)


SCOPE_TEXTS: dict[GrantScope, str] = {"run": "in this run", "agent": "in all runs of the agent"}
ALWAYS = GrantTerms(match=(), scope=None)
"""The terms of `always=True`: without an end, for all arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantOffer:
    """The largest grant that a decision may give for later calls. Make it with `offer`."""

    seconds: float | None = None
    """The longest duration of a grant, in seconds; None = any duration, also without an end."""
    uses: int | None = None
    """The largest number of uses of a grant; None = any number, also without a limit."""
    free: tuple[str, ...] | None = ()
    """The names of the arguments that may differ between the calls; None = all."""
    scope: GrantScope = "run"
    """The widest scope of a grant."""

    def to_dict(self) -> dict[str, Any]:
        """Return the offer as plain data."""
        return {
            "seconds": self.seconds,
            "uses": self.uses,
            "free": None if self.free is None else list(self.free),
            "scope": self.scope,
        }

    @property
    def text(self) -> str:
        """The largest grant, in words: "for at most 1 hour, at most 5 uses, in this run"."""
        parts = []
        if self.seconds is not None:
            parts.append(f"for at most {span_text(self.seconds)}")
        if self.uses is not None:
            parts.append(f"at most {uses_text(self.uses)}")
        if self.free is None:
            parts.append("with any arguments")
        elif self.free:
            parts.append(f"with any {', '.join(self.free)}")
        else:
            parts.append("with the same arguments")
        parts.append(SCOPE_TEXTS[self.scope])
        return ", ".join(parts)


EVERY_GRANT = GrantOffer(free=None, scope="agent")
"""The grants that a gate for one person offers by default."""


def grant(
    *,
    until: Seconds | datetime | None = None,
    uses: int | None = None,
    match: Iterable[str] | None = None,
    scope: GrantScope = "run",
) -> GrantTerms:
    """Say for which later calls of its tool a decision holds: `approve(grant=grant(until=3600))`.

    Args:
        until: the end: a `timedelta` or seconds after the decision, or a time with a time zone.
            None = no end.
        uses: the number of later calls that the grant lets through; None = any number.
        match: the names of the arguments that must equal the arguments of this call. None = all
            arguments that the offer does not leave free.
        scope: `"run"`, the run that asks; or `"agent"`, all runs of the agent. An agent inside
            another agent, at the same place, belongs to these runs.

    Raises:
        UsageError: if a time, a number, a name or the scope is wrong.

    """
    at, seconds = None, None
    if isinstance(until, datetime):
        at = checked_time(until, what="grant(until=...)")
    elif until is not None:
        seconds = _checked_seconds(until, "grant(until=...)")
    if isinstance(match, str) or not (match is None or isinstance(match, Iterable)):
        raise UsageError(f"grant(match=...) must be a list of names, got {shown(match)}")
    return checked_terms(
        GrantTerms(
            until=at,
            seconds=seconds,
            uses=uses,
            match=None if match is None else tuple(match),
            scope=scope,
        )
    )


def checked_terms(terms: GrantTerms) -> GrantTerms:
    """The terms, if each of them is possible; its names once each, in order.

    Raises:
        UsageError: if not.

    """
    if terms.until is not None:
        terms = replace(terms, until=checked_time(terms.until, what="grant(until=...)"))
        if terms.seconds is not None:
            raise UsageError("A grant ends at a time, or after seconds: give one of the two")
    elif terms.seconds is not None:
        terms = replace(terms, seconds=_checked_seconds(terms.seconds, "grant(until=...)"))
    _check_uses(terms.uses, "grant(uses=...)")
    if terms.scope is not None or terms != ALWAYS:
        _check_scope(terms.scope, "grant(scope=...)")
    if terms.match is not None:
        names = {checked_text(name, what="grant(match=...): a name") for name in terms.match}
        terms = replace(terms, match=tuple(sorted(names)))
    return terms


def offer(
    *,
    for_at_most: Seconds | None = None,
    uses: int | None = None,
    free: Iterable[str] | Literal["any"] = (),
    scope: GrantScope = "run",
) -> GrantOffer:
    """Say how large a grant may be that a gate or rule offers for later calls.

    Args:
        for_at_most: the longest duration, in seconds or as a `timedelta`; None = any duration.
        uses: the largest number of uses; None = any number.
        free: the names of the arguments that may differ from the decided call; `"any"` for all.
            All other arguments must be equal.
        scope: the widest scope, `"run"` or `"agent"`: see `grant`.

    Raises:
        UsageError: if a time, a number, a name or the scope is wrong.

    """
    seconds = None
    if for_at_most is not None:
        seconds = _checked_seconds(for_at_most, "offer(for_at_most=...)")
    _check_uses(uses, "offer(uses=...)")
    _check_scope(scope, "offer(scope=...)")
    names: tuple[str, ...] | None = None
    if free != "any":
        if isinstance(free, str) or not isinstance(free, Iterable):
            raise UsageError(
                f'offer(free=...) must be a list of names, or "any", got {shown(free)}'
            )
        given = {checked_text(name, what="offer(free=...): a name") for name in free}
        names = tuple(sorted(given))
    return GrantOffer(seconds=seconds, uses=uses, free=names, scope=scope)


def checked_offer(given: object, *, what: str) -> GrantOffer | None:
    """The offer of a gate or rule: of True every grant, of False none.

    Raises:
        UsageError: if it is anything else.

    """
    if isinstance(given, GrantOffer):
        return given
    if isinstance(given, bool):
        return EVERY_GRANT if given else None
    raise UsageError(f"{what} must be True, False, or offer(...), got {shown(given)}")


def fitting_terms(
    terms: GrantTerms,
    offered: GrantOffer | None,
    arguments: Collection[str],
    now: datetime | None,
) -> GrantTerms:
    """The terms, if they are possible and within the offer.

    Args:
        terms: as they were given.
        offered: by the request that is decided.
        arguments: the names of the arguments of its call.
        now: the time; None where a time at which a grant ends is checked later.

    Raises:
        UsageError: if they are not; it names the cap.

    """
    if offered is None:
        raise UsageError(
            "no grant is offered, so the decision holds for this call alone: leave `grant` and "
            "`always` out"
        )
    terms = checked_terms(terms)
    unknown = sorted(set(terms.match or ()).difference(arguments))
    if unknown:
        known = ", ".join(sorted(arguments)) or "none"
        raise UsageError(f"grant(match=...) names {unknown[0]!r}; the arguments are {known}")
    seconds = terms.seconds
    if terms.until is not None and now is not None:
        seconds = (terms.until - now).total_seconds()
        if seconds <= 0:
            raise UsageError(f"grant(until=...): {time_text(terms.until)} is over")
    cap = f"a grant is offered {offered.text}"
    if offered.seconds is not None:
        has_end = terms.until is not None or terms.seconds is not None
        if not has_end or (seconds is not None and seconds > offered.seconds):
            got = "no end" if seconds is None else span_text(seconds)
            raise UsageError(f"{cap}; got {got}: give at most until={offered.seconds:g}")
    if offered.uses is not None and (terms.uses is None or terms.uses > offered.uses):
        got = "any number of uses" if terms.uses is None else uses_text(terms.uses)
        raise UsageError(f"{cap}; got {got}: give at most uses={offered.uses}")
    if offered.free is not None and terms.match is not None:
        missing = sorted(set(arguments).difference(terms.match, offered.free))
        if missing or terms == ALWAYS:
            named = ", ".join(map(repr, missing)) or "which arguments are equal"
            raise UsageError(f"{cap}; `match` lacks {named}")
    if offered.scope == "run" and terms.scope != "run":
        raise UsageError(f'{cap}; got one in all runs of the agent: give scope="run"')
    # The same terms in other words are the same: two persons may want them.
    names = set(arguments)
    if terms.match is None and names.intersection(offered.free or ()):
        return replace(terms, match=tuple(sorted(names.difference(offered.free or ()))))
    if terms.match and set(terms.match) == names:
        return replace(terms, match=None)
    return terms


def uses_text(uses: int) -> str:
    """A number of uses in words."""
    return "1 use" if uses == 1 else f"{uses} uses"


def _checked_seconds(given: object, what: str) -> float:
    delay: timedelta = checked_delay(given, what=what)
    if not delay:
        raise UsageError(f"{what} must be above 0 seconds, at most {MAX_SECONDS:g}")
    return delay.total_seconds()


def _check_uses(uses: object, what: str) -> None:
    if uses is not None and (isinstance(uses, bool) or not isinstance(uses, int) or uses < 1):
        raise UsageError(f"{what} must be a number from 1 on, or None, got {shown(uses)}")


def _check_scope(scope: object, what: str) -> None:
    if scope not in cast("tuple[object, ...]", SCOPES):
        raise UsageError(f'{what} must be "run" or "agent", got {shown(scope)}')
