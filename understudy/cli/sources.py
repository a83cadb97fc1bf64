"""The sources that commands read: a store, beside its runtime; or the API of a running server."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from understudy.cli.api import Api, agent_path, request_path
from understudy.cli.exits import ApiProblem

POLL = 0.3
"""Seconds between two requests for an agent that does not exist yet."""
PAGE = 500
OPEN = ("asked", "running", "interrupted", "waiting", "ready")
"""The states of calls without a result, as in a tree."""


@dataclass(frozen=True, slots=True)
class Found:
    """A page of a list."""

    rows: list[dict[str, Any]]
    next: str | None


class Source(ABC):
    """A source of data about agents, in the form of the API, wherever it comes from.

    Used in a `with`, it is closed at the end.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...
    @abstractmethod
    def now(self) -> datetime: ...
    @abstractmethod
    def agents(self, *, after: str | None, limit: int, **filters: Any) -> Found: ...
    @abstractmethod
    def pending(self, *, after: str | None, limit: int, **filters: Any) -> Found: ...
    @abstractmethod
    def notes(self, agent_id: str, request_id: str) -> dict[str, Any]: ...
    @abstractmethod
    def doubts(self, *, after: str | None, limit: int, **filters: Any) -> Found: ...
    @abstractmethod
    def reviews(self, *, after: str | None, limit: int, **filters: Any) -> Found: ...
    @abstractmethod
    def attention(self) -> dict[str, Any]: ...
    @abstractmethod
    def usage(self, first: str | None, last: str | None) -> list[dict[str, Any]]: ...
    @abstractmethod
    def decided(self, *, after: str | None, limit: int, **filters: Any) -> Found: ...
    @abstractmethod
    def search(self, *, after: str | None, limit: int, **filters: Any) -> Found: ...
    @abstractmethod
    def agent(self, id: str) -> dict[str, Any]: ...
    @abstractmethod
    def now_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The current work, requests and files of the agent of a row: see `state.now`."""

    @abstractmethod
    def schedules(self, id: str) -> list[dict[str, Any]]: ...
    @abstractmethod
    def history(self, id: str, *, after: int, limit: int) -> dict[str, Any]: ...
    @abstractmethod
    def display(self, id: str, *, after: int = 0) -> dict[str, Any]: ...
    @abstractmethod
    def events(self, id: str, *, after: str, follow: bool) -> Iterator[dict[str, Any]]: ...
    @abstractmethod
    def feed(self, *, after: str | None, follow: bool) -> Iterator[dict[str, Any]]: ...
    @abstractmethod
    def held(self, row: Mapping[str, Any]) -> str:
        """The reason why the run of an agent may not continue, if no call may start; empty
        otherwise.
        """

    @abstractmethod
    def freezes(self) -> list[dict[str, Any]]:
        """The freezes of the store."""

    def frozen(self, row: Mapping[str, Any], now: Mapping[str, Any]) -> str:
        """The author and reason of a freeze of an agent or of a call of its open run; empty without
        one.
        """
        calls = (each for each in now["tree"] if each["what"] == "call" and each["depth"] == 1)
        tools = {call["name"] for call in calls if call["state"] in OPEN}
        for each in self.freezes():
            name, what = each["name"], each["what"]
            if what == "store" or name in (tools if what == "tool" else (row["agent"],)):
                return str(each["text"])
        return ""

    @abstractmethod
    def budgets(self) -> dict[str, Any]: ...
    @abstractmethod
    def notices(self, *, state: str | None, limit: int) -> tuple[list[dict[str, Any]], bool]:
        """The notices of the outbox, newest first, and whether there are more."""

    @abstractmethod
    def export(self, id: str) -> dict[str, Any]: ...


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
"""The fields of an agent in a list; its page has more."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The first rows of a list."""

    rows: list[dict[str, Any]]
    more: bool
    """Whether there are more rows."""


def first_rows(listed: Any, limit: int | None, **filters: Any) -> Listed:
    """The first `limit` rows, and whether there are more; without a limit all rows."""
    if limit is None:
        return Listed(list(every_row(listed, None, **filters)), more=False)
    rows = list(every_row(listed, limit + 1, **filters))
    return Listed(rows[:limit], len(rows) > limit)


def every_row(listed: Any, limit: int | None, **filters: Any) -> Iterator[dict[str, Any]]:
    """The rows of all pages, or the first `limit` rows."""
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


class ApiSource(Source):
    """A source that asks the API of a running server."""

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

    def notes(self, agent_id: str, request_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(request_path(agent_id, request_id, "/notes"))
        return found

    def doubts(self, *, after: str | None, limit: int, **filters: Any) -> Found:
        data = self.api.get("/doubts", after=after, limit=limit, **filters)
        return Found(data["doubts"], data["next"])

    def reviews(self, *, after: str | None, limit: int, **filters: Any) -> Found:
        data = self.api.get("/reviews", after=after, limit=limit, **filters)
        return Found(data["reviews"], data["next"])

    def attention(self) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get("/attention")
        return found

    def usage(self, first: str | None, last: str | None) -> list[dict[str, Any]]:
        given = {"from": first, "to": last}
        data = self.api.get("/usage", **{name: each for name, each in given.items() if each})
        return [
            {"day": day["day"], **line} for day in reversed(data["days"]) for line in day["lines"]
        ]

    def decided(self, *, after: str | None, limit: int, **filters: Any) -> Found:
        data = self.api.get("/decisions", after=after, limit=limit, **filters)
        return Found(data["decisions"], data["next"])

    def search(self, *, after: str | None, limit: int, **filters: Any) -> Found:
        data = self.api.get("/search", after=after, limit=limit, **filters)
        return Found(data["hits"], data["next"])

    def agent(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(agent_path(id))
        return {name: found[name] for name in _ROW}

    def now_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(agent_path(row["id"], "/now"))
        return found

    def schedules(self, id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api.get(agent_path(id, "/schedules"))["schedules"]
        return found

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
        """The updates of the rows, without an end; None while there is no such agent."""
        while True:
            try:
                yield from self._followed(agent_path(id, "/conversation/events"), after)
            except ApiProblem as problem:
                if problem.status != 404:
                    raise
                yield None
                time.sleep(POLL)

    def events(self, id: str, *, after: str, follow: bool) -> Iterator[dict[str, Any]]:
        return self._followed(agent_path(id, "/events"), after, follow=follow)

    def feed(self, *, after: str | None, follow: bool) -> Iterator[dict[str, Any]]:
        found = self._followed("/events?start=oldest", after, follow=follow)
        return (event for event in found if event)  # the first is the stream's position

    def _followed(
        self, path: str, after: str | int | None, *, follow: bool = True
    ) -> Iterator[dict[str, Any]]:
        """The data of a stream. The server ends a stream now and then, and the next stream
        continues it.
        """
        separator = "&" if "?" in path else "?"
        while True:
            for id, data in self.api.stream(
                f"{path}{'' if follow else f'{separator}follow=0'}", after
            ):
                after = id or after
                yield json.loads(data)
            if not follow:
                return

    def notices(self, *, state: str | None, limit: int) -> tuple[list[dict[str, Any]], bool]:
        found = self.api.get("/notifications", state=state, limit=limit)
        return found["notifications"], found["next"] is not None

    def budgets(self) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get("/budgets", limit=PAGE)
        return found

    def freezes(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api.get("/freezes")["freezes"]
        return found

    def held(self, row: Mapping[str, Any]) -> str:
        return str(self.api.get("").get("held") or "")

    def export(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(agent_path(id, "/export"))
        return found
