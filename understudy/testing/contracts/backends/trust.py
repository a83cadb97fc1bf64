"""The log of trust."""

from __future__ import annotations

from datetime import datetime, timezone

from understudy.errors import StoreConflict, UsageError
from understudy.journal.backend import Backend
from understudy.journal.shared import SharedBackend
from understudy.state.trust_log import TrustFact
from understudy.testing.contracts.backends.backend_tests import BackendTests
from understudy.testing.contracts.backends.batches import append, claim, commit, texts
from understudy.testing.contracts.contract import raised


def fact(number: int, text: str = "x", *, by: str | None = None) -> TrustFact:
    at = datetime(2026, 1, 2, 3, 4, 5, number, tzinfo=timezone.utc)
    return TrustFact(number=number, at=at, by=by, kind="tried", data={"text": text})


def add(backend: Backend, added: TrustFact) -> bool:
    with commit(backend):
        return backend.add_trust(added)


class TrustFacts(BackendTests):
    """The log of trust."""

    def _trusting(self) -> Backend:
        """An open backend that keeps the log of trust. The test is skipped if there is none."""
        backend = self.open()
        if "trust" not in backend.keeps:
            with raised(UsageError, match="keeps no log of trust"), commit(backend):
                backend.add_trust(fact(1))
            assert backend.trust_after(0) == []
            self.skip("it keeps no log of trust")
        return backend

    def _two_trusting(self) -> tuple[Backend, Backend]:
        """Two hosts that have the log of trust open. The test is skipped if there is no log."""
        here, there = self._two()
        if "trust" not in here.keeps:
            self.skip("it keeps no log of trust")
        return here, there

    def test_facts_of_the_log_of_trust_come_back_in_their_order(self) -> None:
        # V8
        backend = self._trusting()
        facts = [fact(1, "é \U0001f465 '; --"), fact(2, by="ann"), fact(3)]
        assert [add(backend, each) for each in facts] == [True, True, True]
        assert backend.trust_after(0) == facts
        assert backend.trust_after(2) == facts[2:]
        assert backend.trust_after(3) == []

    def test_a_fact_that_was_decided_by_an_older_log_is_refused(self) -> None:
        """A fact that another host has added meanwhile counts first."""
        # V8
        backend = self._trusting()
        assert add(backend, fact(1, "first"))
        assert not add(backend, fact(1, "second"))
        assert not add(backend, fact(3, "there is no second one"))
        assert backend.trust_after(0) == [fact(1, "first")]

    def test_a_fact_that_is_added_once_more_is_there_once(self) -> None:
        """This happens if the answer to the first attempt was lost."""
        # V8
        backend = self._trusting()
        assert add(backend, fact(1))
        assert add(backend, fact(1))
        assert add(backend, fact(2))
        assert add(backend, fact(1)), "also behind another one"
        assert backend.trust_after(0) == [fact(1), fact(2)]

    def test_the_log_of_trust_outlives_the_store_being_closed(self) -> None:
        """A host that opens the store has seen the last number of the log."""
        # V8
        first = self.open()
        if "trust" not in first.keeps:
            self.skip("it keeps no log of trust")
        assert first.trust_seen == 0
        add(first, fact(1))
        add(first, fact(2))
        first.close()
        again = self.open()
        assert again.trust_seen == 2
        assert again.trust_after(0) == [fact(1), fact(2)]

    def test_a_commit_brings_the_last_number_of_the_log_of_trust(self) -> None:
        """A host that asks for it gets the number with the records of any agent."""
        # V8
        here, there = self._two_trusting()
        assert isinstance(here, SharedBackend)
        owned = claim(here)
        append(here, owned, "one")
        assert add(there, fact(1))
        append(here, owned, "two", first_seq=2)
        assert here.trust_seen == 0, "it has not asked for it"
        here.follow_trust()
        append(here, owned, "three", first_seq=3)
        assert here.trust_seen == 1
        assert add(there, fact(2))
        with raised(StoreConflict):
            append(here, owned, "four", first_seq=7)
        here.rollback()
        append(here, owned, "four", first_seq=4)
        assert here.trust_seen == 2
        assert texts(here) == ["one", "two", "three", "four"]

    def test_a_renewal_of_the_lease_brings_the_last_number_of_the_log_of_trust(self) -> None:
        # V8
        here, there = self._two_trusting()
        assert add(there, fact(1))
        here.renew()
        assert here.trust_seen == 1

    def test_a_fact_is_added_while_another_host_has_a_transaction_open(self) -> None:
        """A host that is suspended in the middle of a transaction does not keep other hosts from
        adding.
        """
        # V8
        here, there = self._two_trusting()
        here.begin()
        assert here.claim("a", "support") is not None
        assert here.add_trust(fact(1))
        assert there.trust_after(0) == [fact(1)], "it commits by itself"
        assert add(there, fact(2))
        here.rollback()
        assert here.trust_after(0) == [fact(1), fact(2)]
