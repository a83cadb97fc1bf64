"""The owner of an agent, and the effects of a claim."""

from __future__ import annotations

from understudy.journal.codec import EncodedRecord
from understudy.journal.contracts import IndexStatus, Owned, StoredAgent
from understudy.testing.contracts.backends.backend_tests import BackendTests
from understudy.testing.contracts.backends.batches import (
    agent_with,
    claim,
    commit,
    ids,
    stored,
    texts,
)


class Claims(BackendTests):
    """The owner of an agent, and the effects of a claim."""

    def test_a_claim_of_a_new_agent_begins_its_first_incarnation(self) -> None:
        # J6
        backend = self.open()
        assert claim(backend, "a", "support") == Owned(
            agent_id="a", agent="support", incarnation=1, epoch=1, last_seq=0
        )
        assert stored(backend) == StoredAgent(
            agent_id="a",
            agent="support",
            incarnation=1,
            epoch=1,
            last_seq=0,
            floor=0,
            index_status=IndexStatus.REST,
            host="here",
        )

    def test_an_unknown_agent_is_not_claimed_without_the_name_of_its_definition(self) -> None:
        backend = self.open()
        with commit(backend):
            assert backend.claim("a", None) is None
        assert backend.load("a", 0) is None
        assert ids(backend) == []

    def test_agents_are_found_by_their_ids_as_they_are_listed(self) -> None:
        """Only existing agents are found; a deleted agent is not."""
        # J33
        backend = self.open()
        for name in ("a", "b", "c", "x'y"):
            claim(backend, name)
        with commit(backend):
            backend.delete("b")
        listed = {agent.agent_id: agent for agent in backend.agents(None, "", 10)}
        found = backend.find_agents(["c", "b", "a", "nobody", "x'y", "a"])
        assert {agent.agent_id: agent for agent in found} == listed
        assert len(found) == 3
        assert backend.find_agents([]) == []
        many = [f"no{number}" for number in range(2000)]
        assert [agent.agent_id for agent in backend.find_agents([*many, "a"])] == ["a"]

    def test_what_this_host_owns_is_claimed_anew_in_a_higher_epoch(self) -> None:
        # J6
        backend = self.open()
        first = agent_with(backend, "a", "one", "two")
        again = claim(backend, "a", None)
        assert again.epoch > first.epoch
        assert (again.agent, again.incarnation, again.last_seq) == ("support", 1, 2)
        assert texts(backend) == ["one", "two"]

    def test_a_stored_agent_keeps_the_name_of_its_definition(self) -> None:
        backend = self.open()
        claim(backend, "a", "support")
        assert claim(backend, "a", "sales").agent == "support"

    def test_a_claim_changes_neither_the_standing_nor_the_records(self) -> None:
        backend = self.open()
        agent_with(backend, "a", "one", index_status=IndexStatus.WAITS)
        claim(backend)
        assert stored(backend).index_status is IndexStatus.WAITS
        assert texts(backend) == ["one"]

    def test_a_part_of_the_records_is_read_by_their_numbers(self) -> None:
        """As many records are read as are wanted, and no more."""
        backend = self.open()
        agent_with(backend, "a", *"1234567")

        def part(after: int, limit: int) -> tuple[int, list[EncodedRecord]]:
            found = backend.load_part("a", after, limit)
            assert found is not None
            return found.first_seq, list(found.records)

        whole = backend.load("a", 0)
        assert whole is not None
        for after in range(8):
            for limit in (0, 1, 3, 7, 100):
                expected = after + 1, list(whole.records[after : after + limit])
                assert part(after, limit) == expected
        assert backend.load_part("nobody", 0, 3) is None
        assert backend.load_part("\x00", 0, 3) is None

    def test_a_text_is_found_in_the_records_of_one_agent(self) -> None:
        # J22
        backend = self.open()
        agent_with(backend, "a", "one", "two")
        agent_with(backend, "b", "three")
        kind = backend.load("a", 0).records[0].kind  # type: ignore[union-attr]
        assert backend.has_text("a", [kind], "two")
        assert backend.has_text("a", ["other", kind], "two")
        assert not backend.has_text("a", ["other"], "two")
        assert not backend.has_text("a", [kind], "three")
        assert not backend.has_text("c", [kind], "two")
        assert not backend.has_text("\x00", [kind], "two")
        with commit(backend):
            backend.delete("a")
        assert not backend.has_text("a", [kind], "two")
