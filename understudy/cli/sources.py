"""Where the commands look: into a store, beside its runtime; or by the API of a running server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol

from understudy.actors import Observer
from understudy.cli.api import Api, agent_path
from understudy.cli.exits import ApiProblem
from understudy.errors import UnknownAgent
from understudy.state.agent_state import AgentState

POLL = 0.3
"""Seconds between two looks of `--follow` into a store."""
PAGE = 500


@dataclass(frozen=True, slots=True)
class Found:
    """A page of a list."""

    rows: list[dict[str, Any]]
    next: str | None


class Source(Protocol):
    """Tells of agents. The data has the form of the API, whatever it comes from."""

    def now(self) -> datetime: ...
    def agents(self, *, after: str | None, limit: int, **filters: Any) -> Found: ...
    def pending(self, *, after: str | None, limit: int, **filters: Any) -> Found: ...
    def doubts(self, *, after: str | None, limit: int, **filters: Any) -> Found: ...
    def agent(self, id: str) -> dict[str, Any]: ...
    def state(self, id: str) -> AgentState: ...
    def history(self, id: str, *, after: int, limit: int) -> dict[str, Any]: ...
    def display(self, id: str, *, after: int = 0) -> dict[str, Any]: ...
    def follow_display(self, id: str, after: int) -> Iterator[dict[str, Any] | None]: ...
    def events(self, id: str, *, after: int, follow: bool) -> Iterator[dict[str, Any]]: ...
    def feed(self, *, after: str | None, follow: bool) -> Iterator[dict[str, Any]]: ...
    def export(self, id: str) -> dict[str, Any]: ...
    def close(self) -> None: ...


_ROW = (
    "id",
    "agent",
    "status",
    "status_at",
    "is_active",
    "host",
    "waits_for",
    "due",
    "version",
    "damage",
)
"""The fields of an agent of the list: its page has more."""


class Inspection:
    """A source in a `with`."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def __enter__(self) -> Source:
        return self.source

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.source.close()


def every_row(listed: Any, limit: int | None, **filters: Any) -> Iterator[dict[str, Any]]:
    """The rows of all pages, or the first of them."""
    after: str | None = None
    left = limit
    while left is None or left > 0:
        size = PAGE if left is None else min(left, PAGE)
        page: Found = listed(after=after, limit=size, **filters)
        yield from page.rows
        left = None if left is None else left - len(page.rows)
        after = page.next
        if after is None:
            return


class StoreSource:
    """An `Observer`: it takes no lock, needs no definition, and changes nothing."""

    def __init__(self, store: str) -> None:
        self._observer = Observer(store)
        self._observer.__enter__()

    def close(self) -> None:
        self._observer.__exit__(None, None, None)

    def now(self) -> datetime:
        return self._observer.now().get()

    def agents(self, *, after: str | None, limit: int, **filters: Any) -> Found:
        page = self._observer.agents(after=after, limit=limit, **filters).get()
        return Found([info.to_dict() for info in page], page.after)

    def pending(self, *, after: str | None, limit: int, **filters: Any) -> Found:
        kind = filters.pop("kind", None)
        page = self._observer.pending(after=after, limit=limit, **filters).get()
        rows = [found.to_dict() for found in page if kind in (None, found.request.kind)]
        return Found(rows, page.after)

    def doubts(self, *, after: str | None, limit: int, **filters: Any) -> Found:
        page = self._observer.doubts(after=after, limit=limit, **filters).get()
        return Found([found.to_dict() for found in page], page.after)

    def agent(self, id: str) -> dict[str, Any]:
        return self._observer.info(id).get().to_dict()

    def state(self, id: str) -> AgentState:
        return self._observer.state(id).get()

    def history(self, id: str, *, after: int, limit: int) -> dict[str, Any]:
        page = self._observer.history(id, after=after, limit=limit).get()
        entries = [entry.to_dict() for entry in page.entries]
        return {"id": id, "entries": entries, "next": page.next}

    def display(self, id: str, *, after: int = 0) -> dict[str, Any]:
        return {"id": id, **self._observer.display(id, after=after).get().to_dict()}

    def follow_display(self, id: str, after: int) -> Iterator[dict[str, Any] | None]:
        while True:
            try:
                update = self.display(id, after=after)
            except UnknownAgent:
                update = {"rows": [], "seq": after}
            after = update["seq"]
            yield update
            time.sleep(POLL)

    def events(self, id: str, *, after: int, follow: bool) -> Iterator[dict[str, Any]]:
        while True:
            for event in self._observer.events(id, after).get():
                after = event.seq or after
                yield event.to_dict()
            if not follow:
                return
            time.sleep(POLL)

    def feed(self, *, after: str | None, follow: bool) -> Iterator[dict[str, Any]]:
        feed = self._observer.events(after=after, start="oldest")
        for event in feed if follow else feed.until_now():
            yield event.to_dict()

    def export(self, id: str) -> dict[str, Any]:
        return self._observer.export(id).get()


class ApiSource:
    """The API of a running server."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def close(self) -> None:
        self.api.close()

    def now(self) -> datetime:
        return datetime.fromisoformat(self.api.get("")["now"])

    def agents(self, *, after: str | None, limit: int, **filters: Any) -> Found:
        data = self.api.get("/agents", after=after, limit=limit, **filters)
        return Found(data["agents"], data["next"])

    def pending(self, *, after: str | None, limit: int, **filters: Any) -> Found:
        data = self.api.get("/pending", after=after, limit=limit, **filters)
        return Found(data["requests"], data["next"])

    def doubts(self, *, after: str | None, limit: int, **filters: Any) -> Found:
        data = self.api.get("/doubts", after=after, limit=limit, **filters)
        return Found(data["doubts"], data["next"])

    def agent(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(agent_path(id))
        return {name: found[name] for name in _ROW}

    def state(self, id: str) -> AgentState:
        return AgentState.from_dict(self.api.get(agent_path(id, "/state"))["state"])

    def history(self, id: str, *, after: int, limit: int) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(agent_path(id, "/history"), after=after, limit=limit)
        return found

    def display(self, id: str, *, after: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(agent_path(id, "/conversation"), after=after)
        while found.get("more"):
            page = self.api.get(agent_path(id, "/conversation"), after=found["seq"])
            found = {**page, "rows": [*found["rows"], *page["rows"]], "reset": found.get("reset")}
        return found

    def follow_display(self, id: str, after: int) -> Iterator[dict[str, Any] | None]:
        while True:
            try:
                path = agent_path(id, "/conversation/events")
                for number, data in self.api.stream(path, after):
                    update = json.loads(data)
                    after = int(number) if number and number.isdecimal() else after
                    yield update
            except ApiProblem as problem:
                if problem.status != 404:
                    raise
                yield None  # it is not there yet
                time.sleep(POLL)

    def events(self, id: str, *, after: int, follow: bool) -> Iterator[dict[str, Any]]:
        path = agent_path(id, "/events") + ("" if follow else "?follow=0")
        while True:
            for number, data in self.api.stream(path, after):
                after = int(number) if number is not None and number.isdecimal() else after
                yield json.loads(data)
            if not follow:
                return

    def feed(self, *, after: str | None, follow: bool) -> Iterator[dict[str, Any]]:
        while True:
            path = "/events?start=oldest" + ("" if follow else "&follow=0")
            for cursor, data in self.api.stream(path, after):
                after = cursor or after
                event = json.loads(data)
                if event:  # else it is the position of the stream
                    yield event
            if not follow:
                return

    def export(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(agent_path(id, "/export"))
        return found
