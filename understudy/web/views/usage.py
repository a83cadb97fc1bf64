"""The usage of models over all agents, by day, definition and model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from decimal import Decimal
from typing import Any

from understudy._base.points_in_time import read_time
from understudy._base.usd import shown_usd, total
from understudy.actors import Runtime
from understudy.journal.usage import DayUsage
from understudy.login.problems import refused
from understudy.web.visit import Visit

DAYS = 7
"""The number of days that the page shows by default."""
MOST_DAYS = 400
"""The maximum number of days of an answer."""


async def usage(visit: Visit) -> dict[str, Any]:
    """Requests, tokens and costs over all agents, by day, definition and model."""
    first, last = visit.asked("from"), visit.asked("to")
    now = await visit.time()
    until = now if last is None else read_time(last, what="`to`", is_end=True)
    if first is None:
        since = until - timedelta(days=DAYS - (1 if last is None else 0))
    else:
        since = read_time(first, what="`from`")
    if since > until:
        raise refused(400, "UsageError", "`from` must not be after `to`.")
    if until - since > timedelta(days=MOST_DAYS):
        raise refused(400, "UsageError", f"Ask for at most {MOST_DAYS} days at once.")
    found = await visit.wait(visit.source.usage(since=since, until=until))
    agent, model = visit.asked("agent"), visit.asked("model")
    lines = [each for each in found if agent in (None, each.agent) and model in (None, each.model)]
    source = visit.source
    return {
        "days": [
            {**_sum(lines), "day": day, "lines": [_line(each) for each in lines]}
            for day, lines in reversed(_grouped(lines, lambda each: each.day.isoformat()))
        ],
        "by_agent": _by(lines, lambda each: each.agent),
        "by_model": _by(lines, lambda each: each.model),
        "total": _sum(lines),
        "first": since.date().isoformat(),
        "last": (until - timedelta(microseconds=1)).date().isoformat(),
        # Without a runtime of its own, the page cannot know whether usage is counted.
        "is_counted": source.counts_usage if isinstance(source, Runtime) else None,
        "filters": {"agent": agent, "model": model},
    }


def _grouped(
    lines: Iterable[DayUsage], key: Callable[[DayUsage], str]
) -> list[tuple[str, list[DayUsage]]]:
    found: dict[str, list[DayUsage]] = {}
    for each in lines:
        found.setdefault(key(each), []).append(each)
    return list(found.items())


def _by(lines: Iterable[DayUsage], key: Callable[[DayUsage], str]) -> list[dict[str, Any]]:
    """The sums under each name, the most expensive first."""
    rows = [{"name": name, **_sum(of_name)} for name, of_name in _grouped(lines, key)]
    return sorted(rows, key=lambda row: (-Decimal(row["cost"]), -row["tokens"], row["name"]))


def _line(line: DayUsage) -> dict[str, Any]:
    return {"agent": line.agent, "model": line.model, **_sum([line])}


def _sum(lines: Iterable[DayUsage]) -> dict[str, Any]:
    """The sums of some lines, and their cost as people read it."""
    lines = list(lines)
    cost = total(each.cost for each in lines)
    requests, unknown = sum(x.requests for x in lines), sum(x.unknown for x in lines)
    known = shown_usd(cost) if unknown < requests or not requests else "unknown"
    return {
        "requests": requests,
        "unknown": unknown,
        "input_tokens": sum(each.input_tokens for each in lines),
        "output_tokens": sum(each.output_tokens for each in lines),
        "cached_tokens": sum(each.cached_tokens for each in lines),
        "tokens": sum(each.input_tokens + each.output_tokens for each in lines),
        "cost": format(cost, "f"),
        "text": f"at least {known}" if unknown and known != "unknown" else known,
    }
