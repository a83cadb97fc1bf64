"""Two runtimes on one database."""

from __future__ import annotations

from understudy.errors import Fenced, OwnedElsewhere, StoreInUse
from understudy.journal.contracts import Owned
from understudy.testing.contracts.backends.backend_tests import BackendTests
from understudy.testing.contracts.backends.batches import (
    agent_with,
    append,
    batch,
    claim,
    commit,
    stored,
    texts,
)
from understudy.testing.contracts.contract import raised


class Hosts(BackendTests):
    """Two runtimes on one database."""

    def test_a_database_for_one_runtime_refuses_a_second_one(self) -> None:
        if self._many_hosts:
            self.skip("many runtimes")
        first = self.open("mill-7")
        second = self.new_backend("second")
        with raised(StoreInUse, match="mill-7"):
            second.open()
        agent_with(first, "a", "one")
        first.close()
        second.open()
        assert texts(second) == ["one"]
        second.close()

    def test_an_agent_that_another_host_owns_cannot_be_claimed(self) -> None:
        # J6
        first, second = self._two()
        owned = agent_with(first, "a", "one")
        second.begin()
        with raised(OwnedElsewhere) as caught:
            second.claim("a", "support")
        other = second.claim("b", "support")
        assert other is not None
        second.append(batch(other, "goes on"))
        second.commit()
        assert caught.error.facts == {"agent_id": "a", "host": "first"}
        assert stored(second).host == "first"
        assert texts(second, "b") == ["goes on"]
        append(
            first, Owned(agent_id="a", agent="", incarnation=1, epoch=owned.epoch, last_seq=1), "2"
        )

    def test_an_agent_that_another_host_owns_cannot_be_deleted(self) -> None:
        first, second = self._two()
        agent_with(first, "a", "one")
        second.begin()
        with raised(OwnedElsewhere):
            second.delete("a")
        second.commit()
        assert texts(second) == ["one"]

    def test_a_released_agent_is_claimed_by_another_host_and_its_last_owner_is_fenced(self) -> None:
        # J6, J7
        first, second = self._two()
        owned = agent_with(first, "a", "one")
        with commit(first):
            first.release(owned)
        again = claim(second, "a", None)
        assert (again.last_seq, again.epoch > owned.epoch) == (1, True)
        first.begin()
        with raised(Fenced):
            first.append(batch(owned, "late", first_seq=2))
        first.rollback()
        with commit(first):
            assert not first.release(owned)  # its epoch is older, so nothing is released
        assert stored(first).host == "second"
        append(second, again, "two")
        assert texts(first) == ["one", "two"]
