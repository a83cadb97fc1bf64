"""The release of a host's agents, and the close of a host."""

from __future__ import annotations

import math

from understudy.journal.contracts import IndexStatus, Owned, StoredAgent
from understudy.testing.contracts.backends.backend_tests import BackendTests
from understudy.testing.contracts.backends.batches import (
    agent_with,
    append,
    claim,
    commit,
    ids,
    stored,
    texts,
)
from understudy.testing.contracts.contract import in_thread


class Releases(BackendTests):
    """The release of a host's agents, and the close of a host."""

    def test_a_released_agent_has_no_owner(self) -> None:
        backend = self.open()
        owned = agent_with(backend, "a", "one")
        with commit(backend):
            assert backend.release(owned)
        assert stored(backend).host is None
        with commit(backend):
            assert backend.release(owned)  # repeated, as if the answer was lost
        assert claim(backend).epoch > owned.epoch
        assert stored(backend).host == "here"

    def test_a_release_in_an_older_epoch_lets_nothing_go(self) -> None:
        backend = self.open()
        older = claim(backend)
        newer = claim(backend)
        with commit(backend):
            assert not backend.release(older)
        assert stored(backend).host == "here"
        append(backend, newer, "one")

    def test_a_release_of_an_unknown_agent_does_nothing(self) -> None:
        backend = self.open()
        owned = Owned(agent_id="nobody", agent="support", incarnation=1, epoch=1, last_seq=0)
        with commit(backend):
            assert not backend.release(owned)
        assert ids(backend) == []

    def test_a_host_that_closes_gives_up_what_it_owns(self) -> None:
        first = self.open("first")
        owned = agent_with(first, "a", "one", index_status=IndexStatus.WAITS)
        first.close()
        second = self.open("second")
        assert stored(second) == StoredAgent(
            agent_id="a",
            agent="support",
            incarnation=1,
            epoch=owned.epoch,
            last_seq=1,
            floor=0,
            index_status=IndexStatus.WAITS,
            host=None,
            agent_status="interrupted",
        )
        again = claim(second, "a", None)
        assert again.epoch > owned.epoch
        assert stored(second).host == "second"

    def test_a_host_whose_process_was_killed_owns_nothing_any_more(self) -> None:
        """If hosts share a database, the lease of the dead host ends first."""
        if self._many_hosts:
            self.skip("many runtimes: the lease decides")

        def live() -> None:
            owned = agent_with(self.open("killed"), "a", "one")
            assert owned.epoch == 1

        self._killed_after(live)
        backend = self.open("next")
        assert (stored(backend).host, texts(backend)) == (None, ["one"])
        assert claim(backend, "a", None).epoch == 2
        assert stored(backend).host == "next"

    def test_closing_twice_raises_nothing_and_a_closed_one_can_be_opened_again(self) -> None:
        backend = self.open()
        agent_with(backend, "a", "one")
        backend.begin()
        backend.claim("b", "support")
        backend.close()
        backend.close()
        backend.open()
        assert ids(backend) == ["a"]
        assert stored(backend).host is None

    def test_a_host_says_its_name(self) -> None:
        assert self.open("mill-7").host == "mill-7"

    def test_a_lease_is_prolonged_from_a_thread_of_its_own(self) -> None:
        backend = self.open()
        backend.begin()
        left = in_thread(backend.renew)
        backend.rollback()
        assert left > 0
        assert not math.isnan(left)
