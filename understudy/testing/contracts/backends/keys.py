"""The keys of calls."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta, timezone

from understudy.errors import Fenced
from understudy.journal.backend import Backend
from understudy.journal.call_keys import KeyEnd, KeyTaking, KeyUse
from understudy.journal.contracts import Owned
from understudy.testing.contracts.backends.batches import append_batch, batch, claim, commit
from understudy.testing.contracts.backends.files import KeepingTests
from understudy.testing.contracts.contract import raised

NOON = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
KEY, OTHER_KEY = "0a" * 32, "0b" * 32
LONG = 10_000 * DAY


def _take(
    backend: Backend,
    owned: Owned,
    call_key: str,
    key_hash: str = KEY,
    at: datetime = NOON,
    passes: Collection[tuple[str, str]] = (),
) -> list[str]:
    """Take a key for a call that counts for a day. Returns the calls that hold it up."""
    taking = KeyTaking(
        key_hash=key_hash,
        call_key=call_key,
        tool_name="refund",
        tool_call_id=f"id of {call_key}",
        at=at,
        kept=DAY,
        passes=passes,
    )
    with commit(backend):
        uses = backend.take_key(owned, taking)
    assert uses is not None, "no other host is about to take it"
    return [use.call_key for use in uses]


def _uses(backend: Backend, key_hash: str = KEY, at: datetime = NOON) -> list[KeyUse]:
    with commit(backend):
        return backend.key_uses(key_hash, at)


def _calls(uses: Sequence[KeyUse]) -> list[str]:
    return [use.call_key for use in uses]


def _end(
    backend: Backend, owned: Owned, call_key: str, *, is_done: bool, first_seq: int = 1
) -> None:
    """End the call an hour later: it is done, or gives its key back."""
    ended = batch(owned, "end", first_seq=first_seq)
    ended.key_ends, ended.at = (KeyEnd(call_key, is_done),), NOON + HOUR
    append_batch(backend, ended)


class Keys(KeepingTests):
    """The keys of calls."""

    def test_the_secret_of_keys_stays_the_same(self) -> None:
        """Otherwise a key that was taken before would be free for another call."""
        backend = self._keeping("keys")
        secret = backend.key_secret()
        assert len(secret) >= 16
        assert backend.key_secret() == secret
        backend.close()
        assert self.open().key_secret() == secret

    def test_a_call_that_has_a_key_holds_others_up(self) -> None:
        backend = self._keeping("keys")
        a, b = claim(backend, "a"), claim(backend, "b")
        assert _take(backend, a, "one") == []
        assert _take(backend, b, "two") == ["one"]
        assert _take(backend, b, "two", OTHER_KEY) == [], "another key is free"
        assert _take(backend, a, "one") == [], "what it has already, it has"
        found = KeyUse("a", 1, "one", "refund", "id of one", NOON)
        assert _uses(backend) == _uses(backend, at=NOON + LONG) == [found], "it is open"
        backend.close()
        backend.open()
        assert _uses(backend) == [found]

    def test_a_call_passes_those_that_it_may_pass(self) -> None:
        backend = self._keeping("keys")
        a, b = claim(backend, "a"), claim(backend, "b")
        assert _take(backend, a, "one") == []
        assert _take(backend, b, "two", passes=[("a", "one")]) == []
        assert _take(backend, a, "three") == ["one", "two"], "in the order in which they took it"

    def test_a_key_that_is_taken_in_a_transaction_that_is_rolled_back_is_free(self) -> None:
        backend = self._keeping("keys")
        owned = claim(backend)
        backend.begin()
        taking = KeyTaking(
            key_hash=KEY, call_key="one", tool_name="refund", tool_call_id="id", at=NOON, kept=DAY
        )
        assert backend.take_key(owned, taking) == []
        backend.rollback()
        assert _uses(backend) == []

    def test_a_call_that_is_done_has_its_key_for_its_time_and_no_longer(self) -> None:
        backend = self._keeping("keys")
        a, b = claim(backend, "a"), claim(backend, "b")
        _take(backend, a, "one")
        _end(backend, a, "one", is_done=True)
        over = NOON + HOUR + DAY
        (done,) = _uses(backend)
        assert (done.call_key, done.done_at, done.is_left) == ("one", NOON + HOUR, False)
        assert _take(backend, b, "two", at=over - timedelta(seconds=1)) == ["one"]
        assert not backend.has_old_keys(over - timedelta(seconds=1))
        assert _uses(backend, at=over) == []
        assert backend.has_old_keys(over)
        assert _take(backend, b, "two", at=over) == []
        with commit(backend):
            backend.delete_old_keys(over)
        assert not backend.has_old_keys(over)
        assert _calls(_uses(backend)) == ["two"], "the open one stays"

    def test_a_call_that_did_not_finish_gives_its_key_back(self) -> None:
        backend = self._keeping("keys")
        a, b = claim(backend, "a"), claim(backend, "b")
        _take(backend, a, "one")
        _end(backend, a, "one", is_done=False)
        assert _uses(backend) == []
        assert _take(backend, b, "two") == []

    def test_a_call_that_takes_another_key_gives_the_first_one_back(self) -> None:
        backend = self._keeping("keys")
        a, b = claim(backend, "a"), claim(backend, "b")
        _take(backend, a, "one", KEY)
        assert _take(backend, a, "one", OTHER_KEY) == []
        assert _calls(_uses(backend, OTHER_KEY)) == ["one"]
        assert _uses(backend, KEY) == []
        assert _take(backend, b, "two", KEY) == []

    def test_a_key_is_taken_under_the_current_claim_alone(self) -> None:
        # J7
        backend = self._keeping("keys")
        older = claim(backend)
        newer = claim(backend)
        with raised(Fenced):
            _take(backend, older, "one")
        backend.rollback()
        with commit(backend):
            backend.delete("a")
        with raised(Fenced):
            _take(backend, newer, "one")
        backend.rollback()
        assert _uses(backend) == []

    def test_a_batch_that_is_refused_ends_no_call(self) -> None:
        # J7
        backend = self._keeping("keys")
        older = claim(backend)
        _take(backend, older, "one")
        claim(backend)
        with raised(Fenced):
            _end(backend, older, "one", is_done=False)
        backend.rollback()
        assert _calls(_uses(backend)) == ["one"]

    def test_a_key_is_freed_unless_its_call_is_done_or_left(self) -> None:
        backend = self._keeping("keys")
        a, b, c = (claim(backend, each) for each in "abc")
        for owned, call_key, key_hash in ((a, "open", KEY), (b, "done", OTHER_KEY)):
            _take(backend, owned, call_key, key_hash)
        _take(backend, c, "left", "0c" * 32)
        _end(backend, b, "done", is_done=True)
        with commit(backend):
            backend.delete("c")
        found = {key: _uses(backend, key) for key in (KEY, OTHER_KEY, "0c" * 32)}
        with commit(backend):
            for key, uses in found.items():
                backend.free_key(key, uses[0])
        left = [_calls(_uses(backend, key)) for key in found]
        assert left == [[], ["done"], ["left"]]

    def test_a_compaction_leaves_all_keys(self) -> None:
        # J17
        backend = self._keeping("keys")
        owned = claim(backend)
        _take(backend, owned, "open")
        _take(backend, owned, "done", OTHER_KEY)
        _end(backend, owned, "done", is_done=True)
        with commit(backend):
            backend.compact(batch(owned, "snapshot", first_seq=2))
        assert _calls(_uses(backend)) == ["open"]
        assert _calls(_uses(backend, OTHER_KEY)) == ["done"]

    def test_a_deletion_leaves_the_keys_of_calls_that_are_in_doubt_or_done(self) -> None:
        """Nobody will know what an open call did, so it counts for as long as a finished call."""
        backend = self._keeping("keys")
        owned = claim(backend)
        _take(backend, owned, "open")
        _take(backend, owned, "done", OTHER_KEY)
        _end(backend, owned, "done", is_done=True)
        with commit(backend):
            backend.delete("a")
        again = claim(backend)
        (open_one,), (done,) = _uses(backend), _uses(backend, OTHER_KEY)
        assert (open_one.call_key, open_one.incarnation, open_one.is_left) == ("open", 1, True)
        assert open_one.done_at is None
        assert (done.call_key, done.is_left) == ("done", False)
        assert _take(backend, again, "open") == ["open"], "it is of another incarnation"
        assert _uses(backend, at=NOON + DAY) == []
        assert backend.has_old_keys(NOON + DAY)
        assert _take(backend, again, "open", at=NOON + DAY) == []
