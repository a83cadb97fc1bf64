"""The source of commands with `--store`: a store, read beside the runtime that has it open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, cast

from understudy._base.points_in_time import read_time, time_text
from understudy._base.usd import usd_text
from understudy.actors import Observer
from understudy.actors.observer import ObservedAgent
from understudy.cli.exits import USAGE, refuse
from understudy.cli.sources import Found, Source
from understudy.journal.spending import CounterSums
from understudy.state.agent_state import AgentState
from understudy.state.now import now_of
from understudy.trust.fold import RegisteredRules


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

    def notes(self, agent_id: str, request_id: str) -> dict[str, Any]:
        found = self._observer.notes(agent_id, request_id).get()
        comments = [each.to_dict() for each in found.comments]
        return {**found.to_dict(), "comments": comments, "looking": []}

    def pending(self, *, after: str | None, limit: int, **filters: Any) -> Found:
        of = filters.pop("of", None)
        if of == "mine":
            refuse(USAGE, "a store does not know who you are: ask a server, by --url")
        filters |= {"unassigned": True} if of == "nobody" else {}
        page = self._observer.pending(after=after, limit=limit, **filters).get()
        return Found([found.to_dict() for found in page], page.after)

    def doubts(self, *, after: str | None, limit: int, **filters: Any) -> Found:
        page = self._observer.doubts(after=after, limit=limit, **filters).get()
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

    def notices(self, *, state: str | None, limit: int) -> tuple[list[dict[str, Any]], bool]:
        page = self._observer.notices(state=cast("Any", state), limit=limit).get()
        return [each.to_dict() for each in page], page.after is not None

    def search(self, *, after: str | None, limit: int, **filters: Any) -> Found:
        page = self._observer.search(after=after, limit=limit, **filters).get()
        return Found([found.to_dict() for found in page], page.after)

    def reviews(self, *, after: str | None, limit: int, **filters: Any) -> Found:
        page = self._observer.reviews(after=after, limit=limit, **filters).get()
        return Found([found.to_dict() for found in page], page.after)

    def agent(self, id: str) -> dict[str, Any]:
        return self._observer.info(id).get().to_dict()

    def state(self, id: str) -> AgentState:
        """The state of an agent."""
        return self._observer.state(id).get()

    def now_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return now_of(self.state(row["id"]), row["agent"])

    def schedules(self, id: str) -> list[dict[str, Any]]:
        plans = self.state(id).plans
        return [
            {
                "id": schedule.id,
                "name": schedule.name,
                "cron": schedule.cron,
                "timezone": schedule.timezone,
                "paused": schedule.paused,
                "next_due": time_text(schedule.next_due),
                "missed": schedule.missed,
                "overlap": schedule.overlap,
            }
            for schedule in (plans.schedules.values() if plans is not None else ())
        ]

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
    """A counter as plain data: the sums of its newest bucket, whose time the store knows.

    For a daily budget, this is the last day on which something was spent.
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
