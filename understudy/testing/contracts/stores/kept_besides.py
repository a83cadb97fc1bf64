"""The optional parts that a store keeps beside records, as far as its `keeps` names them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from hashlib import sha256
from typing import Any

from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage

from understudy.errors import UsageError
from understudy.interrupts import Decision, Request
from understudy.journal import IndexEntry, IndexStatus, Store
from understudy.journal.call_keys import KeyTaking
from understudy.journal.decided import DecidedQuery
from understudy.journal.search import SearchState
from understudy.journal.search_words import query_of
from understudy.journal.usage import Used
from understudy.models.messages import user_message
from understudy.state.agent_state import AgentState
from understudy.state.files import StoredFile
from understudy.state.records import (
    Decided,
    InterruptsChecked,
    MessagesArchived,
    Reply,
    Snapshot,
    StatusNoted,
    UserMessage,
)
from understudy.state.request_notes import KEPT_NOTES, RESTS, RequestNote
from understudy.state.trust_log import TrustFact
from understudy.testing.contracts.backends.purses import Purse, line
from understudy.testing.contracts.contract import on_a_loop, raised
from understudy.testing.contracts.stores.store_tests import (
    Standing,
    StoreTests,
    begin,
    claim,
    write,
)

NOON = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)


def fact(number: int, text: str = "x") -> TrustFact:
    return TrustFact(number=number, at=NOON, by="ann", kind="tried", data={"text": text})


def note(id: str, **said: Any) -> RequestNote:
    return RequestNote(**{"id": id, "kind": "take", "at": NOON, "by": "ann", **said})


def _said(text: str) -> UserMessage:
    return UserMessage(message=user_message(text, at=NOON), at=NOON)


def taking(call_key: str, key_hash: str) -> KeyTaking:
    return KeyTaking(
        key_hash=key_hash,
        call_key=call_key,
        tool_name="refund",
        tool_call_id=f"id of {call_key}",
        at=NOON,
        kept=timedelta(days=1),
    )


async def decide(store: Store, agent_id: str, by: str, type: Any, at: datetime) -> None:
    """Let an agent ask at noon whether it may call a tool, and let a person decide."""
    request = Request(
        id=f"request {by}",
        kind="approval",
        agent_id=agent_id,
        run_id="run",
        agent_path=("desk",),
        call_key="run.0.0",
        tool_call_id="call",
        tool_name="refund",
        arguments={"order": agent_id},
        created_at=NOON,
        fingerprint="f",
        digest="d",
    )
    decision = Decision(type=type, by=by, note="because")
    journal = store.journal(await claim(store, agent_id), Standing())
    checked = InterruptsChecked(turn=0, requests=(request,), at=NOON)
    journal.append([checked, Decided(request_id=request.id, decision=decision, at=at)])
    await journal.durable()


class KeptBesides(StoreTests):
    """The optional parts that a store keeps beside records, as far as its `keeps` names them."""

    def _need(self, store: Store, what: str) -> None:
        """Skip the test if the store does not keep this part."""
        if what not in store.keeps:
            self.skip(f"it keeps no {what}")

    @on_a_loop
    async def test_bytes_of_files_are_kept_by_their_hashes(self) -> None:
        async with self._opened() as store:
            self._need(store, "files")
            blobs = {sha256(data).hexdigest(): data for data in (b"one", b"\x00\xff two")}
            journal = await begin(store, "a", "one")
            await begin(store, "b", "of b")
            await write(journal, "two")
            journal.keep_blobs(blobs)
            await write(journal, "three")
            assert dict(await store.load_blobs("a", None)) == blobs
            wanted = next(iter(blobs))
            assert dict(await store.load_blobs("a", [wanted, "00" * 32])) == {wanted: blobs[wanted]}
            assert dict(await journal.load_blobs([wanted])) == {wanted: blobs[wanted]}
            assert dict(await store.load_blobs("b", None)) == {}
        async with self._opened() as store:
            assert dict(await store.load_blobs("a", None)) == blobs
            assert await store.delete("a")
            await begin(store, "a", "new")
            assert dict(await store.load_blobs("a", None)) == {}, "a deletion deletes them"

    @on_a_loop
    async def test_a_compaction_keeps_the_bytes_of_the_files_that_there_are(self) -> None:
        async with self._opened() as store:
            self._need(store, "files")
            blobs = {sha256(data).hexdigest(): data for data in (b"there", b"removed")}
            journal = await begin(store, "a", "one")
            journal.keep_blobs(blobs)
            await write(journal, "two")
            there, _ = blobs
            state = AgentState()
            state.files = {"a.txt": StoredFile(hash=there, size=5)}
            snapshot = Snapshot(state=state.to_dict())
            await store.compact(journal.owned, snapshot, IndexEntry(IndexStatus.REST))
            assert dict(await store.load_blobs("a", None)) == {there: blobs[there]}
        async with self._opened() as store:
            assert dict(await store.load_blobs("a", None)) == {there: blobs[there]}

    @on_a_loop
    async def test_ids_of_old_messages_are_kept(self) -> None:
        async with self._opened() as store:
            self._need(store, "messages")
            journal = await begin(store, "a", "one")
            journal.append([MessagesArchived(at=NOON, runs={"mail-1": "run-1", "mail-2": "run-2"})])
            await journal.durable()
            assert dict(await store.message_runs("a", ["mail-2", "mail-3"])) == {"mail-2": "run-2"}
        async with self._opened() as store:
            assert dict(await store.message_runs("a", None)) == {
                "mail-1": "run-1",
                "mail-2": "run-2",
            }
            assert await store.delete("a")
            await begin(store, "a", "new")
            assert dict(await store.message_runs("a", None)) == {}

    @on_a_loop
    async def test_decisions_are_listed_the_newest_first(self) -> None:
        async with self._opened() as store:
            self._need(store, "decided")
            for at, (id, by, type) in enumerate(
                (("a", "ann", "approve"), ("b", "bob", "reject"), ("c", "ann", "reject"))
            ):
                await decide(store, id, by, type, NOON + timedelta(minutes=at))

            async def listed(limit: int = 100, after: Any = None, **query: Any) -> list[str]:
                found = await store.list_decided(DecidedQuery(**query), after, limit)
                return [each.decided().agent_id for each in found]

            assert await listed() == ["c", "b", "a"]
            assert await listed(person="ann") == ["c", "a"]
            assert await listed(tool="refund", agent="desk", type="reject") == ["c", "b"]
            assert await listed(tool="pay") == []
            assert await listed(agent_id="b", origin="person") == ["b"]
            assert await listed(since=NOON + timedelta(minutes=1)) == ["c", "b"]
            assert await listed(until=NOON + timedelta(minutes=1)) == ["a"]
            assert await listed(person="ann", until=NOON + timedelta(minutes=2)) == ["a"]
            assert await store.count_decided(DecidedQuery(person="ann")) == 2
            (first,) = await store.list_decided(DecidedQuery(), None, 1)
            assert await listed(after=first.key) == ["b", "a"]
            assert await listed(after=first.key, person="ann") == ["a"]
        async with self._opened() as store:
            (newest, *_) = await store.list_decided(DecidedQuery(), None, 9)
            found = newest.decided()
            assert (found.by, found.type, found.waited) == ("ann", "reject", 120.0)
            assert found.request is not None
            assert found.request.arguments == {"order": "c"}
            assert found.decision is not None
            assert found.decision.note == "because"

    @on_a_loop
    async def test_of_a_deleted_agent_it_stays_who_decided_what_and_when(self) -> None:
        async with self._opened() as store:
            self._need(store, "decided")
            await decide(store, "a", "ann", "approve", NOON)
            assert await store.delete("a")
            await decide(store, "a", "bob", "reject", NOON + timedelta(hours=1))
        async with self._opened() as store:
            found = [each.decided() for each in await store.list_decided(DecidedQuery(), None, 9)]
            assert [(each.by, each.type, each.tool_name, each.incarnation) for each in found] == [
                ("bob", "reject", "refund", 2),
                ("ann", "approve", "refund", 1),
            ]
            now, before = found
            assert now.request is not None
            assert (before.request, before.decision, before.votes) == (None, None, ())

    @on_a_loop
    async def test_usage_is_summed_by_day_definition_and_model(self) -> None:
        async with self._opened() as store:
            self._need(store, "usage")
            store.counts_usage = True
            for id, days in (("a", 0), ("b", 0), ("c", 1)):
                usage = RequestUsage(input_tokens=7, output_tokens=3, cache_read_tokens=2)
                reply = ModelResponse([TextPart("Hi.")], usage=usage, model_name="m")
                journal = await begin(store, id)
                journal.append([Reply(turn=0, response=reply, at=NOON + timedelta(days=days))])
                await journal.durable()
            assert await store.delete("a")
        async with self._opened() as store:
            first = NOON.date().toordinal()
            found = list(await store.read_usage(first, first + 2))
            assert found == [
                Used(first, "desk", "m", 2, 2, 14, 6, 4, 0),
                Used(first + 1, "desk", "m", 1, 1, 7, 3, 2, 0),
            ]
            assert list(await store.read_usage(first + 1, first + 2)) == found[1:]

    @on_a_loop
    async def test_a_key_is_one_calls_alone(self) -> None:
        async with self._opened() as store:
            self._need(store, "keys")
            one, other = await begin(store, "a", "one"), await begin(store, "b", "one")
            keys, others = one.call_keys, other.call_keys
            assert keys is not None
            assert others is not None
            hash = await keys.key_hash("refund:17")
            assert await others.key_hash("refund:17") == hash
            assert list(await keys.take_key(taking("call 1", hash))) == []
            held_up = await others.take_key(taking("call 2", hash))
            assert [(use.agent_id, use.call_key) for use in held_up] == [("a", "call 1")]
            again = await keys.take_key(taking("call 1", hash))
            assert list(again) == [], "what a call has already, it has"
            uses = await keys.key_uses(hash, NOON)
            assert [use.call_key for use in uses] == ["call 1"]
            await keys.free_key(hash, uses[0])
            assert list(await others.take_key(taking("call 2", hash))) == []

    @on_a_loop
    async def test_the_feed_has_each_record_of_each_agent_once(self) -> None:
        async with self._opened() as store:
            self._need(store, "feed")
            await store.turn_feed(True)
            assert store.keeps_feed
            start = await store.read_feed(None, 100)
            assert start is not None
            assert list(start.rows) == [], "who gives no key asks where the feed ends"
            a, b = await begin(store, "a"), await begin(store, "b")
            for journal, status in ((a, "running"), (b, "running"), (a, "idle")):
                journal.append([StatusNoted(at=NOON, status=status)])
                await journal.durable()
            page = await store.read_feed(start.end, 100)
            assert page is not None
            rows = [(row.agent_id, row.seq) for row in page.rows]
            assert rows == [("a", 1), ("b", 1), ("a", 2)]
            rest = await store.read_feed(page.rows[0].key, 100)
            assert rest is not None
            assert [row.key for row in rest.rows] == [row.key for row in page.rows[1:]]

    @on_a_loop
    async def test_a_search_finds_what_was_said_and_nothing_of_a_deleted_agent(self) -> None:
        async with self._opened() as store:
            self._need(store, "search")
            before = await begin(store, "a")
            before.append([_said("an old kettle")])
            await before.durable()
            assert not (await store.search_state()).is_on
            await store.turn_search(True)
            after = await begin(store, "b")
            after.append([_said("a new kettle")])
            await after.durable()
            while await store.index_more():
                pass
            assert await store.search_state() == SearchState(is_on=True)
            hits = await store.search(query_of("KETTLE"), None, 10)
            assert {(hit.agent_id, hit.seq) for hit in hits} == {("a", 1), ("b", 1)}
            assert [hit.no for hit in hits] == sorted((hit.no for hit in hits), reverse=True)
            assert await store.search(query_of("kettle"), hits[0].no, 10) == hits[1:]
            (old,) = await store.search(query_of("kett* old"), None, 10)
            assert old.agent_id == "a"
            await store.delete("a")
            hits = await store.search(query_of("kettle"), None, 10)
            assert [hit.agent_id for hit in hits] == ["b"]
            await store.turn_search(False)
            assert not (await store.search_state()).is_on

    @on_a_loop
    async def test_the_log_of_trust_has_its_facts_in_one_order(self) -> None:
        async with self._opened() as store:
            if "trust" not in store.keeps:
                with raised(UsageError):
                    await store.add_trust(fact(1))
                self.skip("it keeps no log of trust")
            assert store.trust_seen == 0
            assert await store.add_trust(fact(1, "first"))
            assert not await store.add_trust(fact(1, "second")), "another fact has the number"
            assert not await store.add_trust(fact(3)), "there is no second fact"
            assert await store.add_trust(fact(2))
            assert list(await store.trust_after(0)) == [fact(1, "first"), fact(2)]
            assert list(await store.trust_after(1)) == [fact(2)]
            assert store.trust_seen == 2
        async with self._opened() as store:
            assert store.trust_seen == 2
            assert list(await store.trust_after(0)) == [fact(1, "first"), fact(2)]

    @on_a_loop
    async def test_notes_are_kept_beside_requests_in_their_order(self) -> None:
        async with self._opened() as store:
            if "notes" not in store.keeps:
                assert list(await store.notes([("a", "q")], texts=True)) == []
                with raised(UsageError):
                    await store.add_note("a", "q", note("1"))
                self.skip("it keeps no notes")
            await begin(store, "a", "one")
            await begin(store, "b", "one")
            first, second = note("1", kind="comment", text="Who is that?"), note("2", until=NOON)
            assert await store.add_note("a", "q", first)
            assert await store.add_note("a", "q", second)
            assert await store.add_note("a", "q", first), "what is there once is not there twice"
            assert await store.add_note("b", "q", note("3"))
            assert not await store.add_note("c", "q", note("4")), "there is no such agent"
            assert not await store.add_note("c\0", "q", note("5"))
            found = await store.notes([("a", "q"), ("a", "r")], texts=True)
            assert [tuple(each) for each in found] == [("a", "q", first), ("a", "q", second)]
            noted = await store.notes([("a", "q")], texts=False)
            assert [each.note for each in noted] == [None, second]
        async with self._opened() as store:
            assert len(await store.notes([("a", "q"), ("b", "q")], texts=True)) == 3

    @on_a_loop
    async def test_the_notes_of_an_agent_go_with_it(self) -> None:
        async with self._opened() as store:
            self._need(store, "notes")
            await begin(store, "a", "one")
            await store.add_note("a", "q", note("1"))
            assert await store.delete("a")
            await begin(store, "a", "new")
            assert list(await store.notes([("a", "q")], texts=True)) == []

    @on_a_loop
    async def test_notes_go_a_stated_time_after_their_request(self) -> None:
        async with self._opened() as store:
            self._need(store, "notes")
            await begin(store, "a", "one")
            await store.add_note("a", "q", note("1"))
            for later, left in (
                (timedelta(0), 1),
                (RESTS, 1),
                (RESTS + KEPT_NOTES - timedelta(seconds=1), 1),
                (RESTS + KEPT_NOTES, 0),
            ):
                await store.sweep_notes(NOON + later)
                assert len(await store.notes([("a", "q")], texts=True)) == left, later

    @on_a_loop
    async def test_no_more_is_reserved_than_a_limit_allows(self) -> None:
        store = self.new_store()
        if "spending" not in store.keeps:
            assert store.spending is None
            self.skip("it keeps no spending")
        purse = await Purse(store).open("a", "b")
        try:
            assert await purse.makes("a", "one", line(60))
            assert not await purse.makes("b", "two", line(50))
            await purse.settle("a", "one", 40)
            assert await purse.makes("b", "two", line(60))
            assert not await purse.makes("a", "three", line(1))
            assert await purse.sum_of() == Decimal(100)
        finally:
            await purse.store.close()

    @on_a_loop
    async def test_what_is_spent_counts_in_the_next_process(self) -> None:
        store = self.new_store()
        if "spending" not in store.keeps:
            self.skip("it keeps no spending")
        purse = await Purse(store).open("a")
        await purse.reserve("a", "one", line(60))
        await purse.settle("a", "one", 50)
        await purse.reserve("a", "two", line(20))
        await purse.store.close()
        purse = await Purse(self.new_store()).open("a")
        try:
            assert await purse.sum_of() == Decimal(70)
            assert [each.id.what for each in await purse.open_of("a")] == ["two"]
        finally:
            await purse.store.close()
