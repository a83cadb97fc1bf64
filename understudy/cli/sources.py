"""Where the commands look: into a store, beside its runtime; or by the API of a running server."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Self

from understudy._base.points_in_time import read_time
from understudy._base.usd import usd_text
from understudy.actors import Observer
from understudy.actors.observer import ObservedAgent
from understudy.cli.api import Api, agent_path
from understudy.cli.exits import ApiProblem
from understudy.journal.spending import CounterSums
from understudy.state.agent_state import AgentState
from understudy.trust.fold import RegisteredRules

POLL = 0.3
"""Seconds until an agent that is not there yet is asked for again."""
PAGE = 500


@dataclass(frozen=True, slots=True)
class Found:
    """A page of a list."""

    rows: list[dict[str, Any]]
    next: str | None


class Source(ABC):
    """Tells of agents. The data has the form of the API, whatever it comes from.

    In a `with` it is closed at the end.
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
    def agent(self, id: str) -> dict[str, Any]: ...
    @abstractmethod
    def state(self, id: str) -> AgentState: ...
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
        """Why the run of an agent may not go on, where no call may start; empty otherwise."""

    @abstractmethod
    def freezes(self) -> list[dict[str, Any]]:
        """What is frozen in the store."""

    def frozen(self, row: Mapping[str, Any], state: AgentState) -> str:
        """By whom and why an agent, or a call of its open run, is frozen; empty where none is."""
        run = state.run
        open_ = () if run is None or run.over else run.calls
        tools = {call.part.tool_name for call in open_ if call.result is None}
        for each in self.freezes():
            name, what = each["name"], each["what"]
            if what == "store" or name in (tools if what == "tool" else (row["agent"],)):
                return str(each["text"])
        return ""

    @abstractmethod
    def budgets(self) -> dict[str, Any]: ...
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
"""The fields of an agent of the list: its page has more."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The first rows of a list."""

    rows: list[dict[str, Any]]
    more: bool
    """Whether there are others."""


def first_rows(listed: Any, limit: int, **filters: Any) -> Listed:
    """The first `limit` rows, and whether there are more: a list is never cut without a word."""
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


class StoreSource(Source):
    """A source that reads a store by an `Observer`, beside its runtime."""

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

    def reviews(self, *, after: str | None, limit: int, **filters: Any) -> Found:
        page = self._observer.reviews(after=after, limit=limit, **filters).get()
        return Found([found.to_dict() for found in page], page.after)

    def attention(self) -> dict[str, Any]:
        return self._observer.attention().get().to_dict()

    def usage(self, first: str | None, last: str | None) -> list[dict[str, Any]]:
        found = self._observer.usage(
            since=None if first is None else read_time(first, what="--from"),
            until=None if last is None else read_time(last, what="--to", is_end=True),
        ).get()
        return [each.to_dict() for each in found]

    def decided(self, *, after: str | None, limit: int, **filters: Any) -> Found:
        first, last = filters.pop("from", None), filters.pop("to", None)
        page = self._observer.decided(
            **filters,
            since=None if first is None else read_time(first, what="--from"),
            until=None if last is None else read_time(last, what="--to", is_end=True),
            after=after,
            limit=limit,
        ).get()
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

    def events(self, id: str, *, after: str, follow: bool) -> Iterator[dict[str, Any]]:
        events = ObservedAgent(self._observer, id).events(after)
        if not follow:
            events.close()  # what is recorded can still be read
        for event in events:
            yield event.to_dict()

    def feed(self, *, after: str | None, follow: bool) -> Iterator[dict[str, Any]]:
        feed = self._observer.events(after=after, start="oldest")
        for event in feed if follow else feed.until_now():
            yield event.to_dict()

    def held(self, row: Mapping[str, Any]) -> str:
        if row["status"] != "running" or row["host"] is not None:
            return ""
        rules = self.rules()
        if rules is None:
            return ""
        return f"rules version {rules.version} hold for this store: older hosts start no call"

    def freezes(self) -> list[dict[str, Any]]:
        return [each.to_dict() for each in self._observer.freezes().get()]

    def budgets(self) -> dict[str, Any]:
        found = self._observer.counters().get()
        return {"counters": [_counter(each) for each in found if each.buckets]}

    def rules(self) -> RegisteredRules | None:
        """The newest rules that hold for the store."""
        return self._observer.registered_rules().get()

    def export(self, id: str) -> dict[str, Any]:
        return self._observer.export(id).get()


def _counter(found: CounterSums) -> dict[str, Any]:
    """A counter as plain data: what counts in its newest bucket, which a store knows the time of.

    Of a budget with a day that is the last day on which something was spent.
    """
    last = max(found.buckets, key=lambda each: each.bucket)
    since = datetime.fromtimestamp(last.bucket, timezone.utc).isoformat() if last.bucket else None
    return {
        "counter": found.counter.budget,
        "key": found.counter.key,
        "since": since,
        "used": usd_text(last.amount),
        "reserved": usd_text(last.open),
        "unknown": usd_text(last.unknown),
    }


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

    def agent(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(agent_path(id))
        return {name: found[name] for name in _ROW}

    def state(self, id: str) -> AgentState:
        found = self.api.get(agent_path(id, "/state"))["state"]
        try:
            return AgentState.from_dict(found)
        except (KeyError, TypeError, ValueError) as error:
            detail = f"the server hides parts of {id!r} without which it cannot be shown here"
            raise ApiProblem(403, {"error": "Hidden", "detail": detail}) from error

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
        return (event for event in found if event)  # the first one is the position of the stream

    def _followed(
        self, path: str, after: str | int | None, *, follow: bool = True
    ) -> Iterator[dict[str, Any]]:
        """The data of a stream. The server ends it now and then; the next one goes on behind it."""
        separator = "&" if "?" in path else "?"
        while True:
            for id, data in self.api.stream(
                f"{path}{'' if follow else f'{separator}follow=0'}", after
            ):
                after = id or after
                yield json.loads(data)
            if not follow:
                return

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
