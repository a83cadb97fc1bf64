"""Shows what an agent does, live in the terminal, until its run is at rest."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from understudy.cli.api import Api, agent_path
from understudy.cli.exits import FAILED, OUTCOMES, ApiProblem, refuse
from understudy.cli.output import Output, note
from understudy.cli.show import request_text, row_lines
from understudy.cli.sources import ApiSource
from understudy.cli.text import line

POLL = 0.2
"""Seconds between two reads of the outcome."""
CHANGING = ("streaming", "announced", "ready", "running", "waiting", "queued", "asked", "open")
"""The states of rows that may change again."""


class Progress:
    """Prints rows as they are done. Rows that may change are shown below them, and change in place.

    Args:
        console: the console of standard output, or of standard error if standard output is for a
            program.

    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._open: dict[str, Mapping[str, Any]] = {}
        self._printed: set[str] = set()
        self._live: Live | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the changing rows while the context is open."""
        if not self._console.is_terminal:
            yield
        else:
            with Live(console=self._console, transient=True, auto_refresh=False) as live:
                self._live = live
                try:
                    yield
                finally:
                    self._live = None
        for row in self._open.values():  # they were shown when the look ended
            self._print(row)
        self._open.clear()

    def take(self, rows: list[Mapping[str, Any]]) -> None:
        """Take the changed rows, in order."""
        for row in rows:
            if row["kind"] == "user" or row["id"] in self._printed:
                continue
            if row["state"] in CHANGING and row["kind"] not in ("notice", "error", "cancelled"):
                self._open[row["id"]] = row
                continue
            self._open.pop(row["id"], None)
            if row["state"] != "void":
                self._printed.add(row["id"])
                self._print(row)
        self._refresh()

    def _print(self, row: Mapping[str, Any]) -> None:
        width = self._console.width if self._console.is_terminal else None
        for text, style in row_lines(row, width):
            self._console.print(Text(text, style=style), soft_wrap=True)

    def _refresh(self) -> None:
        if self._live is None:
            return
        found = [
            Text(text, style=style or "dim")
            for row in self._open.values()
            for text, style in row_lines(row, self._console.width - 1)
        ]
        height = max(self._console.height - 2, 3)
        self._live.update(Group(*found[-height:]), refresh=True)


def follow_run(
    api: Api, id: str, body: Mapping[str, Any], out: Output, *, timeout: float | None
) -> int:
    """Send a message, show the run, and return the exit code of the outcome."""
    source = ApiSource(api)
    try:
        after = int(source.display(id)["seq"] or 0)
    except ApiProblem as problem:
        if problem.status != 404:
            raise
        after = 0
    api.post(agent_path(id, "/messages"), body)
    console = Console(stderr=out.is_data, highlight=False, emoji=False, markup=False)
    progress = Progress(console)
    end = None if timeout is None else time.monotonic() + timeout
    with progress.shown(), _updates(api, id, after) as updates:
        written: dict[str, Mapping[str, Any]] = {}

        def take(rows: list[Mapping[str, Any]]) -> None:
            progress.take(rows)
            for row in rows if out.is_jsonl else ():
                if written.get(row["id"]) != row:
                    written[row["id"]] = row
                    out.document(row)

        while True:
            for update in updates():
                take(update["rows"])
            found = api.get(agent_path(id, "/outcome"))
            if found["outcome"] is not None and found["outcome"] != "waiting":
                break
            if end is not None and time.monotonic() >= end:
                refuse(FAILED, f"{line(id)} still runs after {timeout:g} s; it continues")
            time.sleep(POLL)
        # These updates were recorded before the outcome, and have not come yet.
        take(source.display(id, after=after)["rows"])
    _tell(found, out)
    return OUTCOMES.get(str(found["outcome"]), FAILED)


def _tell(found: Mapping[str, Any], out: Output) -> None:
    if out.is_data:
        out.document(found)
        return
    outcome = found["outcome"]
    if outcome == "interrupted":
        for request in found.get("requests") or ():
            note(request_text(request))
        note("interrupted: a person decides. See `understudy approve`")
    elif outcome == "failed":
        error = found.get("error") or {}
        note(f"failed: {error.get('type')}: {error.get('message')}")
    elif outcome != "completed":
        note(f"{outcome}{': ' + str(found['reason']) if found.get('reason') else ''}")


@contextmanager
def _updates(api: Api, id: str, after: int) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """The updates so far, from a thread that follows them on a separate connection."""
    found: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    follower = ApiSource(api.twin())
    ended = threading.Event()

    def follow() -> None:
        try:
            for update in follower.follow_display(id, after):
                if ended.is_set():
                    return
                if update is not None:
                    found.put(update)
        except Exception as error:
            if not ended.is_set():
                note(f"what it does is not shown any more: {error}")

    def come() -> list[dict[str, Any]]:
        updates = []
        while not found.empty():
            updates.append(found.get_nowait())
        return updates

    thread = threading.Thread(target=follow, name="understudy-progress", daemon=True)
    thread.start()
    try:
        yield come
    finally:
        ended.set()
        follower.close()
        thread.join(5)  # its connection is closed now
