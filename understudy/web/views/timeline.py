"""The timeline of an agent: bars of runs, replies, calls and waits, made from its history."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Literal

from understudy._base.points_in_time import time_text
from understudy.costs import cost_of
from understudy.history import HistoryEntry
from understudy.interrupts import decision_word
from understudy.models.prices import Prices
from understudy.state.costs import NO_COST, Cost
from understudy.web.views.agents import info_of, prices_of
from understudy.web.views.newest_first import asked_before, is_newest, page_before
from understudy.web.visit import Visit

Kind = Literal["run", "reply", "call", "person", "wait"]
Look = Literal["", "doubt", "failed", "stopped", "suspended"]
"""The style of a bar in addition to its kind, so that only a success looks like a success."""
LOOKS: dict[str, Look] = {
    "failed": "failed",
    "interrupted": "failed",
    "stopped": "stopped",
    "cancelled": "stopped",
    "withdrawn": "stopped",
    "expired": "stopped",
    "cut": "stopped",
    "cut off": "stopped",
    "in quarantine": "failed",
    "denied": "stopped",
    "suspended": "suspended",
}
"""The style of a bar, by its outcome."""
PAGE = 300
"""The number of records of a page; the newest page is shown first."""


@dataclass(slots=True)
class Bar:
    """Something that took time."""

    kind: Kind
    label: str
    depth: int
    start: datetime
    end: datetime | None
    outcome: str = ""
    """The end of the bar; empty while it is under way."""
    is_doubt: bool = False
    seq: int = 0
    detail: str = ""
    entry: HistoryEntry | None = None
    """The history entry of a reply, which has its cost."""
    call_key: str | None = None
    request_id: str | None = None
    """The id of the request to a person."""
    path: tuple[str, ...] = ()
    """The names of the agents, from the outermost to the agent of the bar."""
    run_id: str = ""
    """The id of the run of the bar."""
    around: str | None = None
    """For a run, the id of the run around it; None for a run of the outermost agent."""
    root: str = ""
    """The id of the outermost run around it; empty if that began long before."""

    @property
    def look(self) -> Look:
        """The style of the bar."""
        return "doubt" if self.is_doubt else LOOKS.get(self.outcome, "")


@dataclass(slots=True)
class Mark:
    """Something that happened at a moment."""

    kind: str
    label: str
    at: datetime
    seq: int
    root: str = ""
    """The id of the outermost run in which it happened, or after which."""


@dataclass(slots=True)
class _Reader:
    """A reader of the history that keeps the open bars."""

    bars: list[Bar] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    open_runs: dict[str, Bar] = field(default_factory=dict)
    """The open bars of runs, by run id. Agents of one name may run at once."""
    open_calls: dict[str, Bar] = field(default_factory=dict)
    """The open bars of calls, by call key, which begins with the id of the run."""
    open_asks: dict[str, Bar] = field(default_factory=dict)
    open_waits: dict[tuple[str, str], Bar] = field(default_factory=dict)
    """The open bars of waits, by call key and name."""
    host: str | None = None
    """The host of the last attempt, if several hosts share the store."""
    root: str = ""
    """The id of the last run of the outermost agent."""

    def read(self, entry: HistoryEntry) -> None:
        at, path, detail = entry.at, entry.agent_path, entry.detail
        run, call = entry.run_id or "", entry.call_key or ""
        if at is None:
            return  # its record has no time
        depth = 2 * (len(path) - 1)
        match entry.what:
            case "run_started":
                self.root = run if len(path) == 1 else self.root
                bar = self._open("run", path[-1], depth, entry, at)
                bar.around = self._run_around(run, path)
                self.open_runs[run] = bar
            case "run_ended":
                if run in self.open_runs:
                    self._close(self.open_runs.pop(run), at, detail["outcome"])
                self._end_below(run, at, is_root=len(path) == 1)
            case "reply":
                start = at - timedelta(seconds=entry.seconds or 0.0)
                bar = self._open("reply", entry.who or "model", depth + 1, entry, start)
                bar.detail = f"{detail['input_tokens']} + {detail['output_tokens']} tokens"
                bar.entry = entry
                self._close(bar, at, "cut" if detail["cut"] else "ok")
            case "tool_started":
                before = self.open_calls.pop(call, None)
                if before is not None:
                    self._close(before, at, "cut off")
                bar = self._open("call", entry.tool_name or "", depth + 1, entry, at)
                self.open_calls[call] = bar
            case "tool_suspended":
                self._end_call(entry, at, "suspended")
            case "tool_ended":
                if call not in self.open_calls and not detail["in_doubt"]:
                    return  # the call was denied, or answered by a person: no body ran
                self._end_call(entry, at, detail["outcome"], doubt=bool(detail["in_doubt"]))
            case "request":
                label = f"{detail['kind']}: {entry.tool_name or entry.who}"
                bar = self._open("person", label, depth + 1, entry, at)
                bar.request_id = detail["request_id"]
                self.open_asks[bar.request_id] = bar
                if detail["kind"] == "doubt":
                    self._end_call(entry, at, "in doubt", doubt=True)
            case "decision":
                bar_or_none = self.open_asks.pop(detail["request_id"], None)
                if bar_or_none is not None:
                    who = "" if entry.who is None else f" by {entry.who}"
                    word = decision_word(detail)
                    word += who if word == detail["type"] else ""
                    self._close(bar_or_none, at, word)
            case "withdrawn":
                for request_id in detail["request_ids"]:
                    if request_id in self.open_asks:
                        self._close(self.open_asks.pop(request_id), at, "withdrawn")
            case "wait_started":
                key = (call, detail["name"])
                if key not in self.open_waits:
                    label = f"{detail['what']}: {detail['name']}"
                    self.open_waits[key] = self._open("wait", label, depth + 1, entry, at)
                self._end_call(entry, at, "suspended", doubt=detail["what"] == "check")
            case "wait_over":
                key = (call, detail["name"])
                if key in self.open_waits:
                    self._close(self.open_waits.pop(key), at, detail["how"])
            case "quarantined":
                self._mark("quarantined", "quarantined", entry, at)
                self._stop_in_quarantine(at)
            case "released":
                self._mark("released", "released", entry, at)
                for bar in self.open_runs.values():
                    bar.end, bar.outcome = None, ""
            case "paused" | "unpaused" | "stop_requested":
                self._mark(entry.what, entry.what.replace("_", " "), entry, at)
            case "model_asked":
                self._mark(entry.what, f"asked a model: {detail['key']}", entry, at)
            case "imported":
                who = "" if entry.who is None else f" by {entry.who}"
                self._mark("imported", f"imported from elsewhere{who}", entry, at)
            case "attempt_started":
                self._begin_attempt(entry, at)
            case _:
                pass

    def _stop_in_quarantine(self, at: datetime) -> None:
        """End the open bars of a run in quarantine. They continue when the run is released."""
        for bar in self.open_runs.values():
            self._close(bar, at, "in quarantine")
        for bar in self.open_calls.values():
            self._close(bar, at, "cut off")
        self.open_calls.clear()

    def _begin_attempt(self, entry: HistoryEntry, at: datetime) -> None:
        """Mark an attempt after a crash, or at another host. An attempt after an answer is not
        marked.
        """
        if len(entry.agent_path) > 1:
            return
        detail = entry.detail
        number, before = detail["number"], self.host
        self.host = detail["host"] or before
        if number == 1:
            return
        if detail.get("reply_lost") or self.open_calls:
            word = "cut off, and continued from the records"
            self._mark("crash", f"attempt {number}: {word}", entry, at)
            for bar in self.open_calls.values():
                self._close(bar, at, "cut off")
            self.open_calls.clear()
        if before not in (None, self.host):
            word = f"continued by {self.host}; before, by {before}"
            self._mark("takeover", f"attempt {number}: {word}", entry, at)

    def _open(
        self, kind: Kind, label: str, depth: int, entry: HistoryEntry, start: datetime
    ) -> Bar:
        bar = Bar(kind=kind, label=label, depth=depth, start=start, end=None, seq=entry.seq)
        bar.call_key, bar.path = entry.call_key, entry.agent_path
        bar.run_id, bar.root = entry.run_id or self.root, self.root
        self.bars.append(bar)
        return bar

    def _mark(self, kind: str, label: str, entry: HistoryEntry, at: datetime) -> None:
        self.marks.append(Mark(kind, label, at, entry.seq, self.root))

    def _run_around(self, run: str, path: tuple[str, ...]) -> str | None:
        """The run of the call that runs this run; for an agent of a workflow, the open run
        above.
        """
        if len(path) == 1:
            return None
        call, _, _ = run.partition("+")
        of_call = call.rpartition(".")[0].rpartition(".")[0]
        if of_call in self.open_runs:
            return of_call
        above = (id for id, bar in self.open_runs.items() if bar.path == path[:-1])
        return next(above, self.root)

    def _close(self, bar: Bar, at: datetime, outcome: str) -> None:
        bar.end, bar.outcome = max(at, bar.start), outcome

    def _end_call(
        self, entry: HistoryEntry, at: datetime, outcome: str, *, doubt: bool = False
    ) -> None:
        bar = self.open_calls.pop(entry.call_key or "", None)
        if bar is None and doubt:
            calls = (b for b in reversed(self.bars) if b.kind == "call")
            bar = next((b for b in calls if b.call_key == entry.call_key), None)
        if bar is not None:
            self._close(bar, bar.end or at, "in doubt" if doubt else outcome)
            bar.is_doubt = doubt

    def _end_below(self, run: str, at: datetime, *, is_root: bool) -> None:
        """End the open bars inside a run that has ended."""

        def is_inside(call: str) -> bool:
            return is_root or call.startswith(f"{run}.")

        for key in [key for key in self.open_calls if is_inside(key)]:
            self._close(self.open_calls.pop(key), at, "cut off")
        for wait in [wait for wait in self.open_waits if is_inside(wait[0])]:
            self._close(self.open_waits.pop(wait), at, "ended")
        if is_root:
            for bar in self.open_asks.values():
                self._close(bar, at, "ended")
            self.open_asks.clear()


async def timeline(visit: Visit) -> dict[str, Any]:
    """The bars and marks of the timeline, in pages, newest first."""
    info, state = await info_of(visit), await visit.state()
    end = min(asked_before(visit), info.last_seq + 1)
    # As many records before and after show how the bars of this page began and ended.
    page = await page_before(visit, end + PAGE, 3 * PAGE)
    shown = range(max(end - PAGE, 1), end)
    is_whole = end + PAGE > info.last_seq
    # As in `usage`: an estimate of a cost takes about 0.2 ms.
    drawn = await asyncio.to_thread(
        _drawn,
        page.entries,
        shown,
        state.doubts_in_tree,
        prices_of(visit),
        now=await visit.time(),
        is_whole=is_whole,
    )
    is_first = page.next is None and all(entry.seq >= shown.start for entry in page.entries)
    earlier = None if is_first else shown.start
    return {"id": visit.agent_id, **drawn, "earlier": earlier, "is_newest": is_newest(visit)}


def _drawn(
    entries: Sequence[HistoryEntry],
    page: range,
    doubts: Container[str],
    prices: Prices,
    *,
    now: datetime,
    is_whole: bool,
) -> dict[str, Any]:
    """The runs, and the bars and marks in them, of the records of a page.

    Args:
        entries: the entries of these records, and of some records before and after them.
        page: the numbers of the records.
        doubts: the calls that are in doubt now.
        prices: the prices for estimates of costs.
        now: the time: the end of bars that are under way.
        is_whole: whether nothing has come after these entries.

    """
    reader = _Reader()
    for entry in entries:
        reader.read(entry)
    for bar in reader.bars:
        if bar.kind == "call" and bar.call_key in doubts and bar.outcome != "suspended":
            bar.is_doubt = True
        if bar.end is None and not is_whole:
            bar.outcome = "ends later"
    shown = sorted(
        (bar for bar in reader.bars if bar.seq in page), key=lambda bar: (bar.seq, bar.depth)
    )
    if not is_whole:
        now = max((entry.at for entry in entries if entry.at is not None), default=now)
    marks = [mark for mark in reader.marks if mark.seq in page]
    rows: list[dict[str, Any]] = []
    placed: list[dict[str, Any]] = []
    runs = []
    roots: list[str] = list(
        dict.fromkeys([*(bar.root for bar in shown), *(mark.root for mark in marks)])
    )
    runs_shown = {bar.run_id: bar for bar in shown if bar.kind == "run"}
    for root in roots:
        inside = [bar for bar in shown if bar.root == root]
        axis = Axis(inside, now)
        rows += [_row(bar, axis, prices, now, runs_shown) for bar in inside]
        placed += [_mark_row(mark, axis) for mark in marks if mark.root == root]
        known = [bar for bar in reader.bars if bar.root == root]
        runs.append(_run_row(root, known, axis, prices, is_here=root in runs_shown))
    return {
        "runs": runs,
        "bars": rows,
        "marks": placed,
        "agents": agent_rows(reader.bars),
    }


def _row(
    bar: Bar, axis: Axis, prices: Prices, now: datetime, runs: Mapping[str, Bar]
) -> dict[str, Any]:
    start, end = axis.at(bar.start), axis.at(bar.end or now)
    # This is the nearest run on the page: a run that began long before is not on it.
    inside = bar.around if bar.kind == "run" else bar.run_id
    if bar.root != bar.run_id and inside not in runs:
        inside = bar.root
    return {
        "kind": bar.kind,
        "label": bar.label,
        "depth": bar.depth,
        "seq": bar.seq,
        "run_id": bar.run_id,
        "inside": inside,
        "root": bar.root,
        "call_key": bar.call_key,
        "request_id": bar.request_id,
        "start": time_text(bar.start),
        "end": time_text(bar.end),
        "seconds": None if bar.end is None else (bar.end - bar.start).total_seconds(),
        "outcome": bar.outcome,
        "in_doubt": bar.is_doubt,
        "look": bar.look,
        "detail": bar.detail,
        "cost": "" if bar.entry is None else _cost_text(cost_of(bar.entry, prices)),
        "from": round(start, 3),
        "to": round(max(end, start), 3),
    }


def _mark_row(mark: Mark, axis: Axis) -> dict[str, Any]:
    return {
        "kind": mark.kind,
        "label": mark.label,
        "at": time_text(mark.at),
        "seq": mark.seq,
        "root": mark.root,
        "from": round(axis.at(mark.at), 3),
    }


def _run_row(
    root: str, known: Sequence[Bar], axis: Axis, prices: Prices, *, is_here: bool
) -> dict[str, Any]:
    """A run of the outermost agent, with the sums of all known facts."""
    run = next((bar for bar in known if bar.kind == "run" and bar.run_id == root), None)
    replies = [bar for bar in known if bar.entry is not None]
    cost = sum((cost_of(bar.entry, prices) for bar in replies if bar.entry is not None), NO_COST)
    ended = None if run is None or run.end is None else run.end
    return {
        "run_id": root,
        "label": "" if run is None else run.label,
        "start": None if run is None else time_text(run.start),
        "end": time_text(ended),
        "seconds": None if run is None or ended is None else (ended - run.start).total_seconds(),
        "outcome": "" if run is None else run.outcome,
        "look": "" if run is None else run.look,
        "calls": sum(bar.kind == "call" for bar in known),
        "replies": len(replies),
        "in_doubt": sum(bar.is_doubt for bar in known),
        "cost": _cost_text(cost),
        # Otherwise its calls and its cost are only those of the records that were read.
        "is_whole": run is not None and run.outcome != "ends later",
        "began_before": not is_here,
        "breaks": [round(place, 3) for place in axis.breaks],
    }


def agent_rows(bars: Sequence[Bar]) -> list[dict[str, Any]]:
    """The agents of the tree, each after the agent that runs it, with the state of its last run."""
    runs = [bar for bar in bars if bar.kind == "run"]
    waiting = {bar.path for bar in bars if bar.kind in ("person", "wait") and not bar.outcome}
    found = []
    for path in _as_tree(dict.fromkeys(bar.path for bar in runs)):
        own = [bar for bar in runs if bar.path == path]
        inside = [bar for bar in bars if bar.path == path]
        last = own[-1]
        asks = [bar for bar in inside if bar.kind == "person" and not bar.outcome]
        waits = [bar for bar in inside if bar.kind == "wait" and not bar.outcome]
        is_open = not last.outcome and not (asks or waits)
        found.append(
            {
                "name": path[-1],
                "agent_path": list(path),
                "depth": len(path) - 1,
                "runs": len(own),
                "calls": sum(bar.kind == "call" for bar in inside),
                "run_id": last.run_id,
                "outcome": last.outcome,
                "look": last.look,
                "waits_for": [bar.label for bar in (*asks, *waits)],
                "waits_inside": is_open and any(path == each[: len(path)] for each in waiting),
                "in_doubt": sum(bar.is_doubt for bar in inside),
            }
        )
    return found


def _as_tree(paths: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The paths as a tree: each path after its parent, siblings in the given order."""
    given = list(paths)
    order = {path: n for n, path in enumerate(given)}

    def place(path: tuple[str, ...]) -> list[int]:
        return [order.get(path[:length], -1) for length in range(1, len(path) + 1)]

    return sorted(given, key=place)


def _cost_text(cost: Cost) -> str:
    """The text of a cost; empty if it is unknown and was not asked for, as for a model of tests."""
    return "" if cost.unknown == cost.requests else str(cost)


class Axis:
    """An axis that places times between 0 and 100. Long times of mere waiting are shortened.

    Args:
        bars: the bars to place.
        now: the end of bars that are under way.

    """

    def __init__(self, bars: list[Bar], now: datetime) -> None:
        self.breaks: list[float] = []
        self._times: list[datetime] = []
        self._places: list[float] = []
        if not bars:
            return
        busy = [(bar.start, bar.end or now) for bar in bars if bar.kind in ("reply", "call")]
        times = sorted({t for bar in bars for t in (bar.start, bar.end or now)})
        work = sum(_busy_seconds(busy), 0.0)
        longest = max(work / 4, 0.05)
        places = [0.0]
        cuts: list[int] = []
        for index, (before, after) in enumerate(pairwise(times)):
            seconds = (after - before).total_seconds()
            is_busy = any(start < after and end > before for start, end in busy)
            if not is_busy and seconds > longest:
                cuts.append(index)
                seconds = longest
            places.append(places[-1] + seconds)
        total = places[-1] or 1.0
        self._times = times
        self._places = [100.0 * place / total for place in places]
        self.breaks = [(self._places[i] + self._places[i + 1]) / 2 for i in cuts]

    def at(self, time: datetime) -> float:
        """The place of a time."""
        if not self._times:
            return 0.0
        index = bisect_right(self._times, time) - 1
        if index < 0:
            return 0.0
        if index >= len(self._times) - 1:
            return self._places[-1]
        before, after = self._times[index], self._times[index + 1]
        share = (time - before) / (after - before)
        return self._places[index] + share * (self._places[index + 1] - self._places[index])


def _busy_seconds(intervals: list[tuple[datetime, datetime]]) -> list[float]:
    """The lengths of the intervals, with overlaps counted once."""
    found: list[float] = []
    end: datetime | None = None
    for start, stop in sorted(intervals):
        if end is None or start > end:
            found.append((stop - start).total_seconds())
            end = stop
        elif stop > end:
            found.append((stop - end).total_seconds())
            end = stop
    return found
