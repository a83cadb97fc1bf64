"""The templates, and the filters by which they show foreign values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from pydantic import TypeAdapter, ValidationError

from understudy._base.grant_terms import GrantTerms
from understudy._base.marks import plainly
from understudy._base.request_summary import SEVERAL, headline, why_alone
from understudy.interrupts import decision_word
from understudy.web.changes import changes
from understudy.web.decide import story_text
from understudy.web.json_view import coloured, folded, plain_json, unpacked
from understudy.web.markdown import as_markdown
from understudy.web.marks import hexed, marked
from understudy.web.views.queue import WITHIN, query_of
from understudy.web.views.together import TIMES

TEMPLATES = Path(__file__).with_name("templates")
ITEMS = 50
"""The maximum number of items of a list that is shown line by line."""
OF_OTHERS = frozenset({"arguments", "display", "payload", "result", "schema", "value"})
"""The fields with data of models and tools. A name in them is not the name of an acting person."""


def template(name: str) -> Template:
    """The template of this name."""
    return _templates().get_template(name)


@cache
def _templates() -> Environment:
    """The templates, compiled once per process. Everything that is put into a template is
    escaped.
    """
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        text=as_text, plainly=plainly, json=coloured, ago=ago, until=until, when=when,
        minute=minute, markdown=as_markdown, folded=folded, unpacked=unpacked, changes=changes,
        in_zone=in_zone, grouped=grouped,
        duration=duration, story_text=story_text, decision_word=decision_word, pairs=pairs,
        hexed=hexed,
        took=took, terms=terms_text, same_names=same_names, distinguished=distinguished,
        shares=shares_of, urgency=urgency, headline=headline_of,
    )  # fmt: skip
    environment.tests["short_list"] = is_short_list
    environment.tests["by_several"] = is_by_several
    environment.globals.update(
        groups=groups,
        query_with=query_with,
        query_without=query_without,
        times_beside=[each[:2] for each in TIMES],
    )
    environment.globals.update(inbox_query=inbox_query, within_words=WITHIN)
    return environment


def as_text(value: Any) -> Markup:
    """A foreign value as text for people."""
    return marked(value if isinstance(value, str) else plain_json(value))


def is_short_list(value: Any) -> bool:
    """Whether the value is a list of only texts and numbers, which is readable without JSON."""
    return (
        isinstance(value, (list, tuple))
        and 0 < len(value) <= ITEMS
        and all(each is None or isinstance(each, (str, int, float)) for each in value)
    )


def is_by_several(request: Mapping[str, Any]) -> bool:
    """Whether several persons must agree to a request, so that it is not decided with others."""
    return why_alone({**request, "doubts": []}) == SEVERAL


def pairs(value: Any) -> list[tuple[str, Any]]:
    """The items of a mapping for a table; any other value, with an empty name."""
    if isinstance(value, Mapping):
        return list(value.items())
    return [("", value)]


def _time(value: Any) -> datetime | None:
    if isinstance(value, datetime):
        return value
    return datetime.fromisoformat(value) if isinstance(value, str) and value else None


def when(value: Any) -> Markup:
    """A time, in full."""
    time = _time(value)
    if time is None:
        return Markup('<span class="faint">unknown</span>')
    utc = time.astimezone(timezone.utc)
    return Markup('<time datetime="{}" data-as="full">{}</time>').format(
        utc.isoformat(timespec="milliseconds"), f"{utc:%Y-%m-%d %H:%M:%S} UTC"
    )


def in_zone(value: Any, zone: Any) -> str:
    """A time by the clocks of a time zone, such as `Mon 2026-05-04 09:00`; empty if it is unknown.

    The zone is one of the machine, or of the package `tzdata`.
    """
    try:
        time = _time(value)
        return "" if time is None else f"{time.astimezone(ZoneInfo(zone)):%a %Y-%m-%d %H:%M}"
    except (ValueError, TypeError, OSError, ZoneInfoNotFoundError):  # invalid, or hidden in part
        return ""


@pass_context
def minute(context: Context, value: Any) -> Markup:
    """A time to the minute, without the date if it is the day of the page."""
    time = _time(value)
    if time is None:
        return Markup("")
    utc = time.astimezone(timezone.utc)
    is_today = utc.date() == context["now"].astimezone(timezone.utc).date()
    said = f"{utc:%H:%M} UTC" if is_today else f"{utc:%Y-%m-%d %H:%M} UTC"
    return _relative(time, said, "minute")


@pass_context
def ago(context: Context, value: Any) -> Markup:
    """The time since then, at the time of the page."""
    time = _time(value)
    if time is None:
        return Markup('<span class="faint">unknown</span>')
    seconds = (context["now"] - time).total_seconds()
    text = "just now" if seconds < 60 else f"{_coarse(seconds)} ago"
    return _relative(time, text)


@pass_context
def until(context: Context, value: Any) -> Markup:
    """The time until then, from the time of the page."""
    time = _time(value)
    if time is None:
        return Markup("")
    seconds = (time - context["now"]).total_seconds()
    text = "over" if seconds <= 0 else "in less than a minute" if seconds < 60 else ""
    return _relative(time, text or f"in {_ahead(seconds)}")


def _ahead(seconds: float) -> str:
    """A duration ahead. One and a half days are shown as 36 hours, so that nobody answers too
    late.
    """
    seconds += 30  # two days from a moment ago are not 47 hours
    for size, name in ((86_400, "day"), (3_600, "hour")):
        count, rest = divmod(seconds, size)
        if count >= 2 or (count == 1 and rest < 60):
            return f"{count:.0f} {name}{'' if count == 1 else 's'}"
    minutes = seconds // 60
    return f"{minutes:.0f} minute{'' if minutes == 1 else 's'}"


def _relative(time: datetime, text: str, form: str = "relative") -> Markup:
    """A time in short, whose tooltip shows it in full.

    Args:
        time: the time.
        text: the short text.
        form: the form in which a script of the page writes it, by the reader's clock.

    """
    utc = time.astimezone(timezone.utc)
    return Markup('<time datetime="{}" data-as="{}" title="{}">{}</time>').format(
        utc.isoformat(timespec="milliseconds"), form, f"{utc:%Y-%m-%d %H:%M:%S} UTC", text
    )


def _coarse(seconds: float) -> str:
    units: Iterable[tuple[int, str]] = ((86_400, "day"), (3_600, "hour"), (60, "minute"))
    for size, name in units:
        count = int(seconds // size)
        if count >= 1:
            return f"{count} {name}{'' if count == 1 else 's'}"
    return "less than a minute"


def duration(seconds: Any) -> str:
    """A duration, in the unit that fits."""
    if seconds is None:
        return ""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 99.5:
        return f"{seconds:.1f} s"
    return _coarse(seconds)


def took(detail: Mapping[str, Any]) -> float | None:
    """The seconds that a call took, from the details of its row."""
    start, end = _time(detail.get("started_at")), _time(detail.get("ended_at"))
    return None if start is None or end is None else (end - start).total_seconds()


def terms_text(terms: Any) -> str:
    """The terms under which a decision holds for later calls, in words."""
    try:
        return _terms_adapter().validate_python(terms).text
    except ValidationError:  # a part is hidden
        return plain_json(terms)


def same_names(data: Any) -> dict[str, set[tuple[str, str]]]:
    """The names in the data of a page that several persons share, with each person's identity.

    A person is known by issuer and subject of an identity provider, or else by an id.
    """
    known: dict[str, set[tuple[str, str]]] = {}
    bare: set[str] = set()
    for each in _mappings(data):
        name = each.get("name")
        if isinstance(name, str) and ("subject" in each or "person" in each):
            known.setdefault(name, set()).add(_identity(each))
        for key in ("by", "who"):
            author, detail = each.get(key), each.get("detail")
            inside = detail if isinstance(detail, Mapping) else {}
            logins = each.get("logins") or inside.get("logins") or inside.get("subject")
            if isinstance(author, str) and not logins:
                bare.add(author)
    for name in bare & known.keys():
        if any(issuer for issuer, _ in known[name]):
            known[name].add(("", name))
    return {name: identities for name, identities in known.items() if len(identities) > 1}


def _mappings(data: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(data, Mapping):
        yield data
        data = [value for key, value in data.items() if key not in OF_OTHERS]
    if isinstance(data, (list, tuple)):
        for each in data:
            yield from _mappings(each)


def _identity(person: Mapping[str, Any]) -> tuple[str, str]:
    issuer = person.get("issuer") or ""
    return issuer, str(person.get("subject") if issuer else person.get("person") or "")


def distinguished(
    persons: Iterable[Mapping[str, Any]], same: Mapping[str, set[tuple[str, str]]]
) -> str:
    """The text that distinguishes these persons from others of the same name; empty if none has
    it.
    """
    found = []
    for each in persons:
        others = same.get(each["name"], set())
        issuer, id = _identity(each)
        if len(others) > 1 and id:
            is_twice = sum(subject == id for _, subject in others) > 1
            found.append(f"{id}, {issuer}" if is_twice and issuer else id)
    return "; ".join(dict.fromkeys(found))


@cache
def _terms_adapter() -> TypeAdapter[GrantTerms]:
    return TypeAdapter(GrantTerms)


class Shares(NamedTuple):
    """The parts of the bar of a budget, in percent of its limit, or of what is used beyond it."""

    spent: float
    unknown: float
    reserved: float
    limit: float
    is_full: bool


def shares_of(row: Mapping[str, Any]) -> Shares:
    """The parts of the bar of a budget."""
    try:
        used, spent, unknown, reserved, limit = (
            Decimal(row[name]) for name in ("used", "spent", "unknown", "reserved", "limit")
        )
        whole = max(used, limit)

        def part(of: Decimal) -> float:
            return float(round(100 * of / whole, 2))

        return Shares(
            part(spent),
            part(unknown),
            part(reserved),
            part(limit),
            is_full=used >= limit,
        )
    except (ArithmeticError, TypeError, ValueError):  # a part is hidden
        return Shares(0, 0, 0, 100, is_full=False)


def grouped(rows: Iterable[Mapping[str, Any]], name: str) -> dict[Any, list[Mapping[str, Any]]]:
    """The rows grouped by their value under this name, in their order."""
    found: dict[Any, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row[name], []).append(row)
    return found


def groups(rows: list[dict[str, Any]]) -> list[tuple[tuple[str, str], list[dict[str, Any]]]]:
    """The requests grouped by reply, at the place of the first of each reply."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["agent_id"], row["reply"]), []).append(row)
    return list(found.items())


def inbox_query(filters: Mapping[str, Any], **others: Any) -> str:
    """The query of the inbox with these filters, some of which are replaced."""
    query = query_of({**filters, **others})
    return f"?{urlencode(query)}" if query else ""


def headline_of(request: Any) -> str:
    """The application's title of a request; empty if the request is hidden."""
    is_seen = isinstance(request, Mapping) and "kind" in request and "arguments" in request
    return headline(request) if is_seen else ""


def urgency(value: Any, now: datetime) -> str:
    """The urgency of a time: `late` within 30 minutes, `soon` within 4 hours, otherwise empty."""
    time = _time(value)
    seconds = float("inf") if time is None else (time - now).total_seconds()
    return "late" if seconds < 1800 else "soon" if seconds <= 4 * 3600 else ""


def query_with(query: Mapping[str, str], name: str, value: str) -> str:
    """A query with another value."""
    return urlencode({**query, name: value})


def query_without(query: Mapping[str, str], name: str) -> str:
    """A query without a value."""
    return urlencode({key: value for key, value in query.items() if key != name})
