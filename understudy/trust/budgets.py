"""`Budget`: how much the calls of all agents of a runtime may spend, of what, and for how long.

A call reserves what it may spend before it starts. So calls at the same time, on all hosts of a
store, never pass a limit together that each of them keeps alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, TypeAlias, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from understudy._base.json_values import checked_text, digest, shown
from understudy._base.usd import LARGEST, exact, shown_usd
from understudy.approvals import Approval
from understudy.errors import UsageError

Unit = Literal["usd", "tokens", "calls", "sum"]
Per = Literal["run", "agent", "definition", "tool", "requester"]
AtLimit = Literal["stop", "ask"]
MOST_CHARACTERS = 100
"""The maximum characters of the name of a budget."""
NO_LATER = 1 << 62
"""The time, in seconds, that stands for no end."""
WARN_AT = Decimal("0.8")
"""The part of a limit at which people are warned that it is nearly used up."""
_SLICES = 24
"""The number of slices in which a sliding window is counted. The oldest slice counts whole."""
_PERS: tuple[str, ...] = get_args(Per)


class NoAmount(Exception):
    """What a call would spend cannot be known, so it does not run. Its text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What a budget counts, and its limit. `usd`, `tokens`, `calls` and `sum_of` make measures."""

    unit: Unit
    """The kind of the measure: what it counts."""
    limit: Decimal
    """The largest amount, in the unit of the measure."""
    tool: str = "*"
    """The pattern of the names of the tools whose calls count."""
    argument: str = ""
    """The name of the argument that is summed. `order.amount` is the field `amount` of the argument
    `order`."""
    currency: str = ""
    """The currency of the sum; empty without a currency."""
    currency_in: str = ""
    """The name of the argument that says the currency of a call; empty if no argument does."""
    given_back_by: str = ""
    """The name of the tool that gives back what a call has spent; empty if no tool does."""
    ref: str = ""
    """The name of the argument by which the tool in `given_back_by` names the call."""
    native_tool: Decimal | None = None
    """The USD that a tool run by the provider may cost in one request; None if unknown."""

    @property
    def is_of_models(self) -> bool:
        """Whether requests to models count, and not calls of tools."""
        return self.unit in ("usd", "tokens")

    def shown(self, amount: Decimal) -> str:
        """Return an amount as text for people."""
        if self.unit == "usd":
            return shown_usd(amount)
        text = f"{amount:,f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return f"{text} {self.currency if self.unit == 'sum' else self.unit}".rstrip()

    def counts_tool(self, names: Sequence[str]) -> bool:
        """Return whether the calls of a tool with these names count."""
        if self.is_of_models:
            return False
        return self.tool in names or any(fnmatchcase(name, self.tool) for name in names)

    def amount_of(self, arguments: Mapping[str, Any]) -> Decimal:
        """Return the largest amount that a call with these arguments may spend.

        Raises:
            NoAmount: if the amount is not known, or is not an amount of the budget.

        """
        if self.unit == "calls":
            return Decimal(1)
        if self.currency_in:
            named = _at(arguments, self.currency_in)
            if named != self.currency:
                raise NoAmount(
                    f"its `{self.currency_in}` is {shown(named)}, and the budget is in "
                    f"{self.currency}"
                )
        return amount_in(_at(arguments, self.argument), self.argument)

    def ref_of(self, arguments: Mapping[str, Any]) -> str:
        """Return the name under which a call's amount can be given back; empty if it cannot be."""
        if not self.ref:
            return ""
        found = _at(arguments, self.ref)
        if found is None or found == "":
            raise NoAmount(f"it has no `{self.ref}`, by which {self.given_back_by!r} names it")
        return digest([self.ref, found])[:32]

    @property
    def kind(self) -> list[Any]:
        """All settings that decide what is counted. If one of them changes, a new counter
        begins.
        """
        return [self.unit, self.tool, self.argument, self.currency, self.currency_in]


def _at(arguments: Mapping[str, Any], path: str) -> Any:
    found: Any = arguments
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def amount_in(given: Any, name: str) -> Decimal:
    """The amount in an argument.

    Raises:
        NoAmount: unless it is a finite number from 0 to a billion, or the text of one.

    """
    if type(given) is int and 0 <= given < LARGEST:
        return Decimal(given)
    if given is None:
        raise NoAmount(f"it has no `{name}`")
    if isinstance(given, bool) or not isinstance(given, (int, float, str, Decimal)):
        raise NoAmount(f"its `{name}` is no number: {shown(given)}")
    try:
        found = Decimal(str(given))
    except InvalidOperation:
        raise NoAmount(f"its `{name}` is no number: {shown(given)}") from None
    if not found.is_finite():
        raise NoAmount(f"its `{name}` is no finite number: {shown(given)}")
    if found < 0:
        raise NoAmount(f"its `{name}` is negative: {shown(given)}. Negative amounts are refused")
    if found >= LARGEST:
        raise NoAmount(f"its `{name}` is a billion or more: {shown(given)}")
    return exact(found)


def usd(
    limit: Decimal | float | str, *, native_tool: Decimal | float | str | None = None
) -> Measure:
    """Measure what requests to models cost, in USD, by the prices of the runtime.

    Args:
        limit: the limit in USD.
        native_tool: the USD that one use of a tool run by the provider, such as a search, may
            cost. Without it a request with such a tool is refused, because its cost is unknown.

    Raises:
        UsageError: if an amount is wrong.

    """
    tool = None if native_tool is None else _limit(native_tool, "usd(native_tool=)", may_be_0=True)
    return Measure(unit="usd", limit=_limit(limit, "usd(...)"), native_tool=tool)


def tokens(limit: int) -> Measure:
    """Measure the tokens of requests to models, input and output together.

    Raises:
        UsageError: if the limit is not a whole number from 1 up.

    """
    return Measure(unit="tokens", limit=_whole(limit, "tokens(...)"))


def calls(tool: str, limit: int) -> Measure:
    """Measure the number of calls of tools.

    Args:
        tool: the name of a tool, or a pattern such as `"send_*"`.
        limit: the largest number of calls.

    Raises:
        UsageError: if `tool` is not a name, or `limit` is not a whole number from 1 up.

    """
    name = checked_text(tool, what="calls(...): the name of a tool")
    return Measure(unit="calls", tool=name, limit=_whole(limit, f"calls({name!r}, ...)"))


def sum_of(
    tool: str,
    argument: str,
    limit: Decimal | float | str,
    *,
    currency: str = "",
    currency_in: str = "",
    given_back_by: str = "",
    ref: str = "",
) -> Measure:
    """Measure the sum of an argument over the calls of a tool, such as the money that is refunded.

    A call does not run if its argument is missing, negative, not finite, or in another currency.

    Args:
        tool: the name of a tool, or a pattern.
        argument: the name of the argument. `"order.amount"` is the field `amount` of `order`.
        limit: the largest sum.
        currency: the currency of the sum. With `currency_in`, each call must name this
            currency.
        currency_in: the name of the argument that says the currency of a call.
        given_back_by: the name of a tool. If it succeeds, it gives back what a call has spent,
            once.
        ref: the name of the argument by which a call and that tool name the same thing, such as
            `"order"`.

    Raises:
        UsageError: if an amount or a name is wrong, or only one of `given_back_by` and `ref` is
            given.

    """
    name = checked_text(tool, what="sum_of(...): the name of a tool")
    what = f"sum_of({name!r}, ...)"
    if currency_in and not currency:
        raise UsageError(f"{what}: `currency_in` needs `currency`, the one that calls must be in")
    if bool(given_back_by) != bool(ref):
        raise UsageError(f"{what}: `given_back_by` and `ref` belong together: give both")
    for each, given in (
        ("currency", currency),
        ("currency_in", currency_in),
        ("given_back_by", given_back_by),
        ("ref", ref),
    ):
        checked_text(given, what=f"{what}: `{each}`", may_be_empty=True)
    return Measure(
        unit="sum",
        tool=name,
        argument=checked_text(argument, what=f"{what}: the name of an argument"),
        limit=_limit(limit, what),
        currency=currency,
        currency_in=currency_in,
        given_back_by=given_back_by,
        ref=ref,
    )


def _limit(given: object, what: str, *, may_be_0: bool = False) -> Decimal:
    try:
        found = amount_in(given, "limit")
    except NoAmount:
        found = Decimal(0)
        if given not in (0, "0"):
            raise UsageError(
                f"{what} takes a finite amount of more than 0 and below a billion, got "
                f"{shown(given)}"
            ) from None
    if not found and not may_be_0:
        raise UsageError(f"{what} takes an amount of more than 0, got {shown(given)}")
    return found


def _whole(given: object, what: str) -> Decimal:
    if type(given) is not int or not 1 <= given < int(LARGEST) * 1000:
        raise UsageError(f"{what} takes a whole number from 1 on, got {shown(given)}")
    return Decimal(given)


# ------------------------------------------------------------------------------ windows


class Span(NamedTuple):
    """The part of time that counts together at one moment, in seconds since 1970."""

    bucket: int
    """The begin of the bucket in which something is counted now."""
    since: int
    """The first bucket that counts."""
    until: int
    """The end of the bucket."""
    ends: int
    """The end of the window in which spending of now counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time for which the amounts of a budget count together.

    `day`, `week`, `month` and `last` make windows.
    """

    unit: Literal["day", "week", "month", "last"]
    """The kind of the window: `"day"`, `"week"`, `"month"` or `"last"`."""
    zone: str = ""
    """The IANA name of the time zone; empty for `last`."""
    seconds: int = 0
    """The length of the window in seconds, for `last`; else 0."""

    def span(self, now: int) -> Span:
        """Return the window that holds at a moment. Times are seconds since 1970."""
        if self.unit == "last":
            slice_ = max(self.seconds // _SLICES, 1)
            bucket = now - now % slice_
            since = bucket - self.seconds
            return Span(bucket, since - since % slice_, bucket + slice_, now + self.seconds)
        begin, end = self._days(datetime.fromtimestamp(now, ZoneInfo(self.zone)))
        return Span(begin, begin, end, end)

    def _days(self, at: datetime) -> tuple[int, int]:
        first = at.date()
        if self.unit == "week":
            first -= timedelta(days=first.weekday())
        elif self.unit == "month":
            first = first.replace(day=1)
        if self.unit == "day":
            last = first + timedelta(days=1)
        elif self.unit == "week":
            last = first + timedelta(days=7)
        else:
            last = (first + timedelta(days=32)).replace(day=1)
        # Midnight is by local time: a day has 23 or 25 hours when the clocks change.
        times = (
            datetime(each.year, each.month, each.day, tzinfo=ZoneInfo(self.zone))
            for each in (first, last)
        )
        begin, end = (int(each.timestamp()) for each in times)
        return begin, end

    @property
    def text(self) -> str:
        """The window, as text for people."""
        if self.unit != "last":
            return f"a {self.unit}" + ("" if self.zone == "UTC" else f" in {self.zone}")
        hours, rest = divmod(self.seconds, 3600)
        return f"in {hours} h" if not rest else f"in {self.seconds // 60} min"


def _calendar(unit: Literal["day", "week", "month"], zone: str) -> Window:
    name = checked_text(zone, what=f"{unit}(...): the name of a time zone")
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(
            f"{unit}({name!r}): there is no time zone of this name, such as 'Europe/Berlin'"
        ) from error
    return Window(unit=unit, zone=name)


def day(zone: str = "UTC") -> Window:
    """Make a window from midnight to midnight in a time zone.

    Raises:
        UsageError: if there is no time zone of this name.

    """
    return _calendar("day", zone)


def week(zone: str = "UTC") -> Window:
    """Make a window from Monday to Sunday in a time zone.

    Raises:
        UsageError: if there is no time zone of this name.

    """
    return _calendar("week", zone)


def month(zone: str = "UTC") -> Window:
    """Make a window of a calendar month in a time zone.

    Raises:
        UsageError: if there is no time zone of this name.

    """
    return _calendar("month", zone)


def last(*, days: float = 0, hours: float = 0, minutes: float = 0) -> Window:
    """Make a sliding window: the last so many hours or minutes, at any moment.

    It is counted in 24 slices, so it moves on by a 24th of its length.

    Raises:
        UsageError: if it is shorter than a minute, or longer than ten years.

    """
    try:
        seconds = timedelta(days=days, hours=hours, minutes=minutes).total_seconds()
    except (TypeError, ValueError, OverflowError):
        seconds = 0.0
    if not 60 <= seconds <= 10 * 366 * 86400:
        raise UsageError(
            "last(...) takes a time from a minute to ten years, such as last(hours=24), got "
            f"days={shown(days)}, hours={shown(hours)}, minutes={shown(minutes)}"
        )
    return Window(unit="last", seconds=round(seconds))


# ------------------------------------------------------------------------------ budgets


@dataclass(frozen=True, slots=True, kw_only=True)
class Spender:
    """The spender, from which the keys of budgets are made."""

    agent_id: str
    """The id of the outermost agent."""
    definition: str
    """The name of the outermost agent."""
    agent_path: tuple[str, ...]
    run_id: str
    """The id of the outermost run."""
    requesters: tuple[str | None, ...]
    """The names of the persons who have asked for it."""


class Budget:
    """A limit on what all runs spend together: `Budget("models", usd(50),
    window=day("Europe/Berlin"))`.

    A call counts once, in the window in which it began, however long it sleeps or waits. If you
    change the limit, the counter stays. If you change the measure, the window, `per` or `agent`, a
    new counter begins.

    Args:
        name: the name of the budget, for people. Each budget of a runtime has its own name.
        measure: what is counted, and the limit: `usd(50)`, `tokens(1_000_000)`,
            `calls("send_*", 100)`, `sum_of("refund", "amount", 200, currency="EUR")`.
        per: what has a counter of its own: each `run`, `agent` (with all agents inside),
            `definition`, `tool` or `requester`. By default the whole store has one counter.
        window: the time for which amounts count together: `day(zone)`, `week(zone)`,
            `month(zone)`, `last(hours=24)`. None = forever.
        at_limit: what happens to a call for which there is no room. `"stop"` ends its run, as
            `Stopped`. `"ask"` asks a person; an approved call is spent beyond the limit.
        approval: who must agree if `at_limit` is `"ask"`. None = any person with the right to
            decide.
        agent: the name of an agent, or a pattern. The calls of this agent count, and the calls
            of all agents inside it.

    Raises:
        UsageError: if an argument is wrong.

    """

    __slots__ = ("agent", "approval", "at_limit", "id", "measure", "name", "per", "window")

    def __init__(
        self,
        name: str,
        measure: Measure,
        *,
        per: Per | Sequence[Per] = (),
        window: Window | None = None,
        at_limit: AtLimit = "stop",
        approval: Approval | None = None,
        agent: str = "*",
    ) -> None:
        self.name: str = checked_text(name, what="Budget(...): its name")
        if len(self.name) > MOST_CHARACTERS or "\0" in self.name:
            raise UsageError(
                f"Budget(...): its name takes up to {MOST_CHARACTERS} characters without NUL, got "
                f"{shown(self.name)}"
            )
        what = f"Budget({self.name!r}, ...)"
        if not isinstance(measure, Measure):
            raise UsageError(
                f"{what} takes usd(...), tokens(...), calls(...) or sum_of(...), got "
                f"{shown(measure)}"
            )
        keys = (per,) if isinstance(per, str) else tuple(per)
        unknown = next((each for each in keys if each not in _PERS), None)
        if unknown is not None or len(set(keys)) < len(keys):
            raise UsageError(
                f"{what}: `per` takes any of {', '.join(_PERS)}, each once, got {shown(per)}"
            )
        if "tool" in keys and measure.is_of_models:
            raise UsageError(f"{what}: `per` must not have 'tool': requests to models have no tool")
        if window is not None and not isinstance(window, Window):
            raise UsageError(
                f"{what}: `window` must be day(), week(), month() or last(hours=...), got "
                f"{shown(window)}"
            )
        if at_limit not in ("stop", "ask"):
            raise UsageError(f"{what}: `at_limit` must be 'stop' or 'ask', got {shown(at_limit)}")
        if approval is not None and (
            at_limit != "ask" or not isinstance(approval, Approval) or measure.is_of_models
        ):
            raise UsageError(
                f"{what}: `approval` takes approval(...), with at_limit='ask', where calls of "
                f"tools count, got {shown(approval)}"
            )
        if "run" in keys and window is not None:
            raise UsageError(f"{what}: a run is counted as a whole: `window` must be None")
        self.measure: Measure = measure
        self.per: tuple[str, ...] = tuple(each for each in _PERS if each in keys)
        self.window: Window | None = window
        self.at_limit: AtLimit = at_limit
        self.approval: Approval | None = approval
        self.agent: str = checked_text(agent, what=f"{what}: `agent`")
        described = [self.measure.kind, self.per, self.agent, _described(window)]
        self.id: str = f"{self.name}#{digest(described)[:8]}"

    def covers(self, path: Sequence[str]) -> bool:
        """Return whether the calls of an agent count.

        Args:
            path: the names of the agents from the outermost to the agent that makes the call.

        """
        return self.agent == "*" or any(fnmatchcase(each, self.agent) for each in path)

    def key(self, spender: Spender, tool: str = "") -> str:
        """Return the key of the counter that a call belongs to, such as `agent=ticket-17`.

        The key is empty if the whole store has one counter.

        Raises:
            NoAmount: if a part of the key is not known.

        """
        parts = []
        for each in self.per:
            value: str | None
            match each:
                case "run":
                    value = spender.run_id
                case "agent":
                    value = spender.agent_id
                case "definition":
                    value = spender.definition
                case "tool":
                    value = tool
                case _:
                    value = _requester(spender.requesters)
            parts.append(f"{each}={value}")
        return ", ".join(parts)

    def span(self, now: int) -> Span:
        """Return the window that holds at a moment. Times are seconds since 1970."""
        return Span(0, 0, NO_LATER, NO_LATER) if self.window is None else self.window.span(now)

    def shown(self, amount: Decimal) -> str:
        """Return an amount as text for people."""
        return self.measure.shown(amount)

    @property
    def described(self) -> list[Any]:
        """All settings that decide what the budget allows."""
        measure = self.measure
        given = [str(measure.limit), measure.given_back_by, measure.ref, str(measure.native_tool)]
        approval = None if self.approval is None else self.approval.to_dict()
        return [self.id, given, self.at_limit, approval]

    @property
    def unit(self) -> str:
        """The unit of the amounts: the currency, if there is one, or the unit of the measure."""
        return self.measure.currency or self.measure.unit

    @property
    def counts(self) -> str:
        """What the budget counts, as text for people."""
        measure = self.measure
        what = {
            "usd": "what requests to models cost",
            "tokens": "tokens of requests to models",
            "calls": f"calls of {measure.tool}",
            "sum": f"{measure.argument} of {measure.tool}",
        }[measure.unit]
        return what if self.agent == "*" else f"{what}, by {self.agent}"

    @property
    def text(self) -> str:
        """What the budget allows, as text for people."""
        per = "".join(f", for each {each}" for each in self.per)
        window = "" if self.window is None else f" {self.window.text}"
        return f"{self.shown(self.measure.limit)}{window}{per}"

    def __repr__(self) -> str:
        return f"Budget({self.name!r}: {self.text})"


def _described(window: Window | None) -> list[Any] | None:
    return None if window is None else [window.unit, window.zone, window.seconds]


def _requester(names: Sequence[str | None]) -> str:
    known = sorted({name for name in names if name})
    if not known or len(known) < len(set(names)):
        raise NoAmount("its requester is not known, and the budget is counted for each requester")
    return " and ".join(known)


GivenBudgets: TypeAlias = Sequence[Budget]


def checked_budgets(given: object) -> tuple[Budget, ...]:
    """The budgets that were given to a runtime.

    Raises:
        UsageError: if it is anything else, or two budgets have one name.

    """
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise UsageError(f"`budgets` must be a list of Budget(...), got {shown(given)}")
    names: set[str] = set()
    for each in given:
        if not isinstance(each, Budget):
            raise UsageError(f"`budgets` must be a list of Budget(...), got {shown(each)} in it")
        if each.name in names:
            raise UsageError(f"`budgets`: two are named {each.name!r}: give them different names")
        names.add(each.name)
    return tuple(given)
