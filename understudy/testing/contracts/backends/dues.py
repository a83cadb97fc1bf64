"""The due times of agents."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from understudy.journal.backend import Backend
from understudy.testing.contracts.backends.backend_tests import BackendTests
from understudy.testing.contracts.backends.batches import (
    agent_with,
    batch,
    claim,
    commit,
    stored,
)

NOON = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)

YEARS = (1, 1900, 1969, 1970, 2030)

FAR = datetime(9999, 12, 31, tzinfo=timezone.utc)


def seconds(number: float) -> datetime:
    return NOON + timedelta(seconds=number)


def dues(backend: Backend, until: datetime = FAR) -> list[tuple[str, datetime | None]]:
    return [(agent.agent_id, agent.due) for agent in backend.due(until, None, 1000)]


class Dues(BackendTests):
    """The due times of agents."""

    def test_agents_that_are_due_come_by_their_due_times(self) -> None:
        backend = self.open()
        for name, after in [("a", 3.000001), ("b", 1), ("c", 2), ("d", 1), ("e", 3)]:
            agent_with(backend, name, "one", due=seconds(after))
        agent_with(backend, "f", "one")
        assert dues(backend) == [
            ("b", seconds(1)),
            ("d", seconds(1)),
            ("c", seconds(2)),
            ("e", seconds(3)),
            ("a", seconds(3.000001)),
        ]
        assert [name for name, _ in dues(backend, seconds(3))] == ["b", "d", "c", "e"]
        index = backend
        page = index.due(FAR, (seconds(1), "b"), 2)
        assert [agent.agent_id for agent in page] == ["d", "c"]
        assert page[0] == stored(backend, "d")
        assert index.due(FAR, (seconds(3.000001), "a"), 2) == []

    def test_times_before_1970_are_due_first(self) -> None:
        backend = self.open()
        times = [datetime(year, 12, 31, 23, 59, 59, 999_999, timezone.utc) for year in YEARS]
        for year, due in reversed(list(zip(YEARS, times, strict=True))):
            agent_with(backend, f"of {year}", "one", due=due)
        wanted = [(f"of {year}", due) for year, due in zip(YEARS, times, strict=True)]
        assert dues(backend) == wanted
        assert dues(backend, times[2]) == wanted[:3]
        page = backend.due(FAR, (times[0], f"of {YEARS[0]}"), 2)
        assert [(agent.agent_id, agent.due) for agent in page] == wanted[1:3]
        assert stored(backend, f"of {YEARS[0]}").due == times[0]

    def test_each_batch_says_anew_when_its_agent_is_due(self) -> None:
        backend = self.open()
        owned = agent_with(backend, "a", "one", due=seconds(1))
        with commit(backend):
            backend.append(batch(owned, "two", first_seq=2, due=seconds(2)))
        assert dues(backend) == [("a", seconds(2))]
        with commit(backend):
            backend.append(batch(owned, "three", first_seq=3))
        assert dues(backend) == []
        with commit(backend):
            backend.compact(batch(owned, "snapshot", first_seq=4, due=seconds(4)))
        assert dues(backend) == [("a", seconds(4))]

    def test_a_deleted_agent_is_not_due_and_neither_is_its_next_incarnation(self) -> None:
        backend = self.open()
        agent_with(backend, "a", "one", due=seconds(1))
        with commit(backend):
            backend.delete("a")
        assert dues(backend) == []
        claim(backend)
        assert dues(backend) == []
