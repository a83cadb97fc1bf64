"""Records and agents that are read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone

from understudy.errors import UsageError
from understudy.journal.codec import decode
from understudy.journal.contracts import IndexStatus
from understudy.state.records import Once
from understudy.testing.contracts.backends.backend_tests import BackendTests
from understudy.testing.contracts.backends.batches import (
    agent_with,
    append,
    batch,
    claim,
    commit,
    ids,
    loaded,
    stored,
    texts,
)

NOON = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)


class Reads(BackendTests):
    """Records and agents that are read."""

    def test_an_unknown_agent_has_no_records(self) -> None:
        backend = self.open()
        assert backend.load("nobody", 0) is None

    def test_records_are_read_after_a_number(self) -> None:
        backend = self.open()
        agent_with(backend, "a", "one", "two", "three")
        assert texts(backend, after=1) == ["two", "three"]
        assert loaded(backend, after=1).first_seq == 2
        end = loaded(backend, after=3)
        assert (end.records, end.first_seq) == ((), 4)
        assert loaded(backend, after=9).records == ()

    def test_ten_thousand_records_come_back_in_order(self) -> None:
        backend = self.open()
        owned = claim(backend)
        agent_with(backend, "b", "of b")
        wanted = [f"{n}" for n in range(10_000)]
        for start in range(0, 10_000, 2_500):
            with commit(backend):
                backend.append(batch(owned, *wanted[start : start + 2_500], first_seq=start + 1))
        assert texts(backend) == wanted
        assert texts(backend, after=9_990) == wanted[9_990:]
        with commit(backend):
            backend.delete("a")
        assert backend.load("a", 0) is None
        assert texts(backend, "b") == ["of b"]

    def test_what_is_read_is_of_one_moment(self) -> None:
        """A snapshot and the deletion of what was before it are seen together, or not yet."""
        # J17
        backend = self.open()
        owned = agent_with(backend, "a", "1")

        def write() -> None:
            for seq in range(2, 300):
                with commit(backend):
                    backend.compact(batch(owned, f"{seq}", first_seq=seq))

        seen = []
        with ThreadPoolExecutor(1) as pool:
            writer = pool.submit(write)
            while not writer.done():
                found = loaded(backend)
                assert found.first_seq == found.agent.floor + 1 == found.agent.last_seq
                assert [decode(each) for each in found.records] == [
                    Once(key="k", value=f"{found.first_seq}")
                ]
                seen.append(found.first_seq)
            writer.result()
        assert texts(backend) == ["299"]
        assert seen == sorted(seen)

    def test_agents_come_by_id_a_page_at_a_time(self) -> None:
        backend = self.open()
        with commit(backend):
            for n in reversed(range(25)):
                backend.claim(f"agent-{n:02}", "support")
        wanted = [f"agent-{n:02}" for n in range(25)]
        assert ids(backend) == wanted
        pages, last = [], ""
        while page := ids(backend, after_id=last, limit=10):
            pages.append(page)
            last = page[-1]
        assert pages == [wanted[:10], wanted[10:20], wanted[20:]]

    def test_ids_are_ordered_by_code_point_on_every_store(self) -> None:
        """Otherwise a page that begins after an id would leave some ids out."""
        backend = self.open()
        names = [
            "a",
            "B",
            "b",
            "A",
            "ä",
            "z",
            "Z",
            "a-b",
            "ab",
            "a_b",
            "a b",
            "10",
            "9",
            "é",
            "\U0001f3ad",
        ]
        with commit(backend):
            for name in names:
                backend.claim(name, "support")
        wanted = sorted(names)
        assert ids(backend) == ids(backend, IndexStatus.REST) == wanted
        assert [ids(backend, after_id=name, limit=1) for name in wanted[:-1]] == [
            [name] for name in wanted[1:]
        ]

    def test_ids_may_have_500_characters_of_four_bytes(self) -> None:
        """Two ids differ even if only their last characters do."""
        # J33
        backend = self.open()
        stem = "\N{PERFORMING ARTS}" * 499
        names = [stem, f"{stem}a", f"{stem}b"]
        owned = {}
        for name in reversed(names):
            owned[name] = agent_with(backend, name, f"of {name[499:]}", due=NOON)
        assert ids(backend) == ids(backend, IndexStatus.OPEN) == names
        assert ids(backend, after_id=names[0], limit=1) == [names[1]]
        for name in names:
            assert (stored(backend, name).agent_id, owned[name].agent_id) == (name, name)
            assert texts(backend, name) == [f"of {name[499:]}"]
        assert [agent.agent_id for agent in backend.due(NOON, (NOON, names[0]), 9)] == names[1:]
        assert [agent.agent_id for agent in backend.find_agents(names[2:])] == names[2:]
        with commit(backend):
            assert backend.delete(names[1])
            assert not backend.delete(stem[:-1])
        assert ids(backend) == [names[0], names[2]]
        assert backend.load(names[1], 0) is None

    def test_a_database_is_read_while_a_runtime_has_it_or_says_that_it_cannot(self) -> None:
        """A reader takes no lock, and changes nothing."""
        backend = self.open()
        owned = agent_with(backend, "a", "one")
        reader = self.new_backend("reader")
        try:
            reader.open_to_read()
        except UsageError:
            self.skip("a second process cannot read it")
        try:
            assert (texts(reader), ids(reader)) == (["one"], ["a"])
            append(backend, owned, "two", first_seq=2)
            assert texts(reader) == ["one", "two"]
        finally:
            reader.close()
        assert stored(backend).host == "here", "who looked has released nothing"
        append(backend, owned, "three", first_seq=3)
        backend.close()
        later = self.new_backend("reader")
        later.open_to_read()
        found = texts(later)
        later.close()
        assert found == ["one", "two", "three"]
        again = self.open()
        assert texts(again) == found

    def test_agents_are_found_by_how_they_stand(self) -> None:
        backend = self.open()
        wanted = {
            index_status: [f"{index_status.value}-{n}" for n in range(3)]
            for index_status in IndexStatus
        }
        for index_status, names in wanted.items():
            for name in names:
                agent_with(backend, name, "one", index_status=index_status)
        for index_status, names in wanted.items():
            assert ids(backend, index_status) == names
        both = sorted(wanted[IndexStatus.OPEN] + wanted[IndexStatus.WAITS])
        assert ids(backend, IndexStatus.WAITS, IndexStatus.OPEN) == both
        assert (
            ids(backend, IndexStatus.WAITS, IndexStatus.OPEN, after_id=both[1], limit=3)
            == both[2:5]
        )
        assert backend.agents([], "", 10) == []
        found = backend.agents([IndexStatus.QUEUED], "", 1)[0]
        assert found == stored(backend, "queued-0")

    def test_agents_that_stand_differently_come_by_id_all_the_same(self) -> None:
        backend = self.open()
        for agent_id, index_status in zip(
            "abcdef", [IndexStatus.OPEN, IndexStatus.WAITS] * 3, strict=True
        ):
            agent_with(backend, agent_id, "one", index_status=index_status)
        assert (
            ids(backend, IndexStatus.OPEN, IndexStatus.WAITS)
            == ids(backend, IndexStatus.WAITS, IndexStatus.OPEN)
            == list("abcdef")
        )
        assert ids(backend, IndexStatus.OPEN, IndexStatus.WAITS, after_id="b", limit=3) == list(
            "cde"
        )

    def test_an_agent_that_stands_otherwise_now_is_found_there_alone(self) -> None:
        backend = self.open()
        owned = agent_with(backend, "a", "one", index_status=IndexStatus.OPEN)
        with commit(backend):
            backend.append(batch(owned, "two", first_seq=2, index_status=IndexStatus.REST))
        assert (ids(backend, IndexStatus.OPEN), ids(backend, IndexStatus.REST)) == ([], ["a"])
