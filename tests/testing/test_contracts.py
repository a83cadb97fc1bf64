"""The contracts find what is broken, and say what; with pytest and without it."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timezone
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic_ai.messages import ModelResponse, TextPart

from tests.support.databases import smallest
from understudy import Interrupt, Run, ToolResult, UsageError
from understudy.errors import Fenced
from understudy.journal import (
    Backend,
    IndexEntry,
    JournalledAgent,
    Loaded,
    MemoryStore,
    Owned,
    Store,
    sql_keys,
)
from understudy.journal.call_keys import KeyTaking, KeyUse
from understudy.journal.checkpoints import Checkpoint
from understudy.journal.contracts import Batch, StoredAgent, StoredRecords
from understudy.journal.kept import Kept
from understudy.journal.sqlite import SqliteBackend
from understudy.middleware import Middleware, ModelInput, Next, NextModelCall, ToolCall
from understudy.state.records import Record
from understudy.state.trust_log import TrustFact
from understudy.testing.contracts import (
    BackendContract,
    Contract,
    MiddlewareContract,
    StoreContract,
    judge,
)

if TYPE_CHECKING:

    class FileBackend(Backend):
        """The backend of the page on backends."""

        rows: dict[str, Any]
        draft: dict[str, Any]
        lock: Any
        path: Path

        def open(self) -> None:
            raise NotImplementedError

        def claim(self, agent_id: str, agent: str | None) -> Owned | None:
            raise NotImplementedError

        def append(self, batch: Any) -> None:
            raise NotImplementedError

        def compact(self, batch: Any) -> None:
            raise NotImplementedError

        def load(self, agent_id: str, after: int) -> Any:
            raise NotImplementedError

        def agents(self, index_statuses: Any, after_id: str, limit: int) -> Any:
            raise NotImplementedError

else:
    FileBackend = type(smallest(Path(), "here"))


def finds(contract: type[Contract], test: str) -> None:
    """The contract says that the implementation is broken, by this test.

    An `AttributeError` would say that what is left out here does not fit what it is left out of; a
    `NameError`, that the test itself is broken.
    """
    judged = judge(contract, only=[test])
    errors = [each.error for each in judged.violations]
    assert not [each for each in errors if isinstance(each, AttributeError | NameError)]
    assert any(each.test.partition("[")[0] == test for each in judged.violations), judged
    assert test.removeprefix("test_").replace("_", " ") in str(judged)


# ---------------------------------------------------------------------------- stores


class Forgets(MemoryStore):
    """What a process wrote is gone with it."""

    async def close(self) -> None:
        self._kept.clear()


class SameEpoch(MemoryStore):
    async def claim(self, agent_id: str, agent: str | None) -> Owned | None:
        owned = await super().claim(agent_id, agent)
        if owned is not None and owned.epoch > 1:
            self._kept[agent_id].epoch = 1
            return dataclasses.replace(owned, epoch=1)
        return owned


class Unfenced(MemoryStore):
    def journal(self, owned: Owned, agent: JournalledAgent) -> Any:
        journal = super().journal(owned, agent)
        journal._owned = dataclasses.replace(owned, epoch=self._kept[owned.agent_id].epoch)
        kept = self._kept[owned.agent_id]
        object.__setattr__(kept, "epoch", Equal())
        return journal


class Equal(int):
    """An epoch that is equal to each."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0

    def __add__(self, other: int) -> Equal:
        return self


class SkipsOne(MemoryStore):
    async def load_part(self, agent_id: str, after: int, limit: int) -> Loaded | None:
        return await super().load_part(agent_id, after + 1 if after else 0, limit)


class NoTombstone(MemoryStore):
    async def delete(self, agent_id: str, by: str | None = None) -> bool:
        deleted = await super().delete(agent_id, by)
        self._deleted.clear()
        return deleted


class KeepsAllAtCompaction(MemoryStore):
    async def compact(
        self, owned: Owned, snapshot: Record, entry: IndexEntry, messages: Any = None
    ) -> Owned:
        self._claimed(owned).records.append(snapshot)
        return dataclasses.replace(owned, last_seq=owned.last_seq + 1)


class SnapshotOfAnybody(MemoryStore):
    async def compact(
        self, owned: Owned, snapshot: Record, entry: IndexEntry, messages: Any = None
    ) -> Owned:
        owned = dataclasses.replace(owned, epoch=self._kept[owned.agent_id].epoch)
        return await super().compact(owned, snapshot, entry, messages)


class DropsFiles(MemoryStore):
    async def compact(
        self, owned: Owned, snapshot: Record, entry: IndexEntry, messages: Any = None
    ) -> Owned:
        self._kept[owned.agent_id].blobs.clear()
        return await super().compact(owned, snapshot, entry, messages)


class Unordered(MemoryStore):
    async def agents(self, index_statuses: Any = None) -> Any:
        found = [each async for each in super().agents(index_statuses)]
        for each in reversed(found):
            yield each


class TakesAnyFact(MemoryStore):
    async def add_trust(self, fact: TrustFact) -> bool:
        self._trust.append(fact)
        return True


class ListsNothing(MemoryStore):
    """What waits for a person is not found."""

    def _up_to_date(self) -> Any:
        self._changed.clear()
        return super()._up_to_date()


class StoreOf(StoreContract):
    made: Callable[[], Store]

    @cached_property
    def store(self) -> Store:
        return type(self).made()

    def new_store(self) -> Store:
        return self.store


STORES = [
    (Forgets, "test_what_is_durable_is_there_for_the_next_process"),
    (Forgets, "test_a_person_answers_in_the_next_process"),
    (SameEpoch, "test_each_claim_of_an_agent_has_a_higher_epoch"),
    (Unfenced, "test_who_claimed_an_agent_before_writes_nothing_more"),
    (SkipsOne, "test_records_are_read_after_a_number"),
    (NoTombstone, "test_a_deletion_is_remembered_by_the_next_process"),
    (KeepsAllAtCompaction, "test_a_snapshot_takes_the_place_of_the_records_before_it"),
    (SnapshotOfAnybody, "test_a_snapshot_of_an_older_epoch_deletes_nothing"),
    (DropsFiles, "test_a_compaction_keeps_the_bytes_of_the_files_that_there_are"),
    (Unordered, "test_agents_come_by_their_ids"),
    (TakesAnyFact, "test_the_log_of_trust_has_its_facts_in_one_order"),
    (ListsNothing, "test_many_agents_are_listed_by_how_they_stand"),
]


@pytest.mark.parametrize(("broken", "test"), STORES, ids=lambda each: getattr(each, "__name__", ""))
def test_the_contract_finds_what_is_wrong_with_a_store(broken: type[Store], test: str) -> None:
    finds(type("Judged", (StoreOf,), {"made": staticmethod(broken)}), test)


# ---------------------------------------------------------------------------- backends


class ClaimsInOneEpoch(FileBackend):
    def claim(self, agent_id: str, agent: str | None) -> Owned | None:
        owned: Owned | None = super().claim(agent_id, agent)
        if owned is not None and owned.epoch > 1:
            row = self.draft[agent_id]
            row.info = dataclasses.replace(row.info, epoch=1)
            return dataclasses.replace(owned, epoch=1)
        return owned


class FencesNobody(FileBackend):
    def append(self, batch: Any) -> None:
        agent = self.draft[batch.agent_id].info
        super().append(dataclasses.replace(batch, epoch=agent.epoch))


class TakesAnyNumber(FileBackend):
    def append(self, batch: Any) -> None:
        last = self.draft[batch.agent_id].info.last_seq
        super().append(dataclasses.replace(batch, first_seq=last + 1))


class ShowsDrafts(FileBackend):
    def load(self, agent_id: str, after: int) -> Any:
        kept, self.rows = self.rows, getattr(self, "draft", self.rows)
        try:
            return super().load(agent_id, after)
        finally:
            self.rows = kept


class KeepsWhatIsRolledBack(FileBackend):
    def rollback(self) -> None:
        self.rows = getattr(self, "draft", self.rows)


class ForgetsTheDeleted(FileBackend):
    def delete(self, agent_id: str) -> bool:
        return self.draft.pop(agent_id, None) is not None


class KnowsAllBatches(FileBackend):
    def is_committed(self, batch: Any) -> bool:
        return True


class HasNoOrder(FileBackend):
    def agents(self, index_statuses: Any, after_id: str, limit: int) -> Any:
        return list(reversed(super().agents(index_statuses, after_id, limit)))


class WritesLate(FileBackend):
    """What is committed is written when it closes."""

    def reconnect(self) -> None:
        self.rows = {}


class CompactsAtAnyNumber(FileBackend):
    def compact(self, batch: Any) -> None:
        last = self.draft[batch.agent_id].info.last_seq
        super().compact(dataclasses.replace(batch, first_seq=last + 1))


class OfSqlite(SqliteBackend):
    """A backend that keeps all that a database can keep."""

    def __init__(self, path: Path, host: str) -> None:
        super().__init__(f"{path}.db", durability="off", host=host)


class DropsFilesAtCompaction(OfSqlite):
    def compact(self, batch: Batch) -> None:
        super().compact(dataclasses.replace(batch, blobs_in_use=()))


class KeepsFilesAtCompaction(OfSqlite):
    def compact(self, batch: Batch) -> None:
        kept = self.load_blobs(batch.agent_id, None)
        super().compact(dataclasses.replace(batch, blobs_in_use=tuple(kept)))


class ForgetsMessages(OfSqlite):
    def compact(self, batch: Batch) -> None:
        super().compact(batch)
        self._fetch("DELETE FROM message_runs")


class NewSecrets(OfSqlite):
    """Each process has a secret of its own."""

    @cached_property
    def _secret(self) -> bytes:
        return os.urandom(32)

    def key_secret(self) -> bytes:
        return self._secret


class KeysForEver(OfSqlite):
    def key_uses(self, key_hash: str, at: datetime) -> list[KeyUse]:
        return super().key_uses(key_hash, datetime.min.replace(tzinfo=timezone.utc))


class TakesKeysForAnybody(OfSqlite):
    def take_key(self, owned: Owned, taking: KeyTaking) -> list[KeyUse] | None:
        try:
            return super().take_key(owned, taking)
        except Fenced:
            return []


class Omits(OfSqlite):
    """Leaves one statement out."""

    statement: str

    def _fetch(self, query: str, values: Any = ()) -> Any:
        return [] if query == self.statement else super()._fetch(query, values)


class KeepsTheFirstKey(Omits):
    statement = sql_keys.GIVE_OTHER_BACK


class KeepsKeysOfUnfinishedCalls(Omits):
    statement = sql_keys.GIVE_BACK


class ForgetsCallsInDoubt(OfSqlite):
    def delete(self, agent_id: str) -> bool:
        of = "agent = (SELECT key FROM agents WHERE agent_id = ?)"
        self._fetch(f"DELETE FROM call_keys WHERE {of} AND done_at IS NULL", [agent_id])
        return super().delete(agent_id)


class LosesSegments(OfSqlite):
    def write_checkpoint(self, owned: Owned, checkpoint: Checkpoint) -> None:
        super().write_checkpoint(owned, dataclasses.replace(checkpoint, segments=()))


class LosesEarlierSegments(OfSqlite):
    """It keeps those alone that the last checkpoint has brought."""

    def write_checkpoint(self, owned: Owned, checkpoint: Checkpoint) -> None:
        self._fetch("DELETE FROM checkpoint_segments")
        super().write_checkpoint(owned, checkpoint)


class ChecksAhead(OfSqlite):
    def load_latest(self, agent_id: str) -> tuple[Checkpoint | None, StoredRecords] | None:
        latest = super().load_latest(agent_id)
        checkpoint = None if latest is None else latest[0]
        if latest is None or checkpoint is None:
            return latest
        return dataclasses.replace(checkpoint, seq=checkpoint.seq + 5), latest[1]


class WritesAhead(OfSqlite):
    def write_checkpoint(self, owned: Owned, checkpoint: Checkpoint) -> None:
        ((last,),) = self._fetch("SELECT last_seq FROM agents")
        seq = min(checkpoint.seq, last)
        super().write_checkpoint(owned, dataclasses.replace(checkpoint, seq=seq))


class WritesForAnybody(OfSqlite):
    def write_checkpoint(self, owned: Owned, checkpoint: Checkpoint) -> None:
        ((epoch,),) = self._fetch("SELECT epoch FROM agents")
        super().write_checkpoint(dataclasses.replace(owned, epoch=epoch), checkpoint)


class PromisesSpending(FileBackend):
    """Says that it keeps what it has no methods for."""

    keeps: Collection[Kept] = frozenset[Kept](["spending"])


class NotesNoStatus(OfSqlite):
    def append(self, batch: Batch) -> None:
        super().append(dataclasses.replace(batch, status_noted=False))


class NotesEachStatus(OfSqlite):
    def append(self, batch: Batch) -> None:
        super().append(dataclasses.replace(batch, status_noted=True))


class LosesVersions(OfSqlite):
    def append(self, batch: Batch) -> None:
        entry = batch.entry._replace(run_version=None)
        super().append(dataclasses.replace(batch, entry=entry))


class CannotBeRead(OfSqlite):
    def open_to_read(self) -> None:
        raise RuntimeError("not yet")


class LocksToRead(OfSqlite):
    def open_to_read(self) -> None:
        self.open()


class CutsIds(OfSqlite):
    """Its keys have 490 bytes."""

    def claim(self, agent_id: str, agent: str | None) -> Owned | None:
        return super().claim(agent_id.encode()[:490].decode(errors="ignore"), agent)


class BeginsIn1970(OfSqlite):
    def due(
        self, until: datetime, after: tuple[datetime, str] | None, limit: int
    ) -> list[StoredAgent]:
        found = super().due(until, after, limit)
        return [each for each in found if each.due is not None and each.due.year >= 1970]


class ShowsTheDead(FileBackend):
    """Owners stay those that the last process has written."""

    def open(self) -> None:
        super().open()
        if self.path.exists():
            self.rows = pickle.loads(self.path.read_bytes())


class KeepsItsAgents(ShowsTheDead):
    def close(self) -> None:
        if self.lock is not None:
            self.lock.close()
            self.lock = None


class BackendOf(BackendContract):
    made: type[Any]

    def new_backend(self, host: str) -> Backend:
        backend: Backend = type(self).made(self.folder / "agents", host)
        return backend


BACKENDS = [
    (ClaimsInOneEpoch, "test_what_this_host_owns_is_claimed_anew_in_a_higher_epoch"),
    (FencesNobody, "test_a_batch_of_an_older_epoch_is_fenced"),
    (TakesAnyNumber, "test_a_number_that_is_not_the_next_one_is_a_conflict"),
    (ShowsDrafts, "test_nothing_is_seen_before_the_commit"),
    (KeepsWhatIsRolledBack, "test_a_rollback_leaves_nothing"),
    (ForgetsTheDeleted, "test_epochs_and_incarnations_grow_over_many_deletions"),
    (KnowsAllBatches, "test_a_batch_that_differs_in_anything_is_not_committed"),
    (KeepsItsAgents, "test_a_host_that_closes_gives_up_what_it_owns"),
    (HasNoOrder, "test_agents_come_by_id_a_page_at_a_time"),
    (WritesLate, "test_after_a_reconnect_everything_committed_is_there_and_still_owned"),
    (CompactsAtAnyNumber, "test_a_snapshot_that_is_not_the_next_record_deletes_nothing"),
    (TakesAnyNumber, "test_any_mix_of_changes_leaves_what_a_list_would_hold"),
    (DropsFilesAtCompaction, "test_a_compaction_keeps_the_bytes_that_are_in_use_and_no_others"),
    (KeepsFilesAtCompaction, "test_a_compaction_keeps_the_bytes_that_are_in_use_and_no_others"),
    (ForgetsMessages, "test_ids_of_old_messages_outlive_compactions_and_go_with_their_agent"),
    (NewSecrets, "test_the_secret_of_keys_stays_the_same"),
    (KeysForEver, "test_a_call_that_is_done_has_its_key_for_its_time_and_no_longer"),
    (TakesKeysForAnybody, "test_a_key_is_taken_under_the_current_claim_alone"),
    (KeepsTheFirstKey, "test_a_call_that_takes_another_key_gives_the_first_one_back"),
    (KeepsKeysOfUnfinishedCalls, "test_a_call_that_did_not_finish_gives_its_key_back"),
    (
        ForgetsCallsInDoubt,
        "test_a_deletion_leaves_the_keys_of_calls_that_are_in_doubt_or_done",
    ),
    (LosesSegments, "test_the_last_checkpoint_comes_with_the_records_behind_it"),
    (
        LosesEarlierSegments,
        "test_segments_of_messages_take_the_place_of_those_with_their_numbers_and_above",
    ),
    (ChecksAhead, "test_the_last_checkpoint_comes_with_the_records_behind_it"),
    (WritesAhead, "test_a_checkpoint_of_a_record_that_is_not_there_is_not_written"),
    (WritesForAnybody, "test_a_checkpoint_under_an_older_claim_is_not_written"),
    (NotesNoStatus, "test_the_status_is_as_old_as_its_last_change_or_note"),
    (NotesEachStatus, "test_the_status_is_as_old_as_its_last_change_or_note"),
    (LosesVersions, "test_the_definition_that_has_begun_the_open_run_is_kept"),
    (
        CannotBeRead,
        "test_a_database_is_read_while_a_runtime_has_it_or_says_that_it_cannot",
    ),
    (
        LocksToRead,
        "test_a_database_is_read_while_a_runtime_has_it_or_says_that_it_cannot",
    ),
    (CutsIds, "test_ids_may_have_500_characters_of_four_bytes"),
    (BeginsIn1970, "test_times_before_1970_are_due_first"),
    (ShowsTheDead, "test_a_host_whose_process_was_killed_owns_nothing_any_more"),
    (PromisesSpending, "test_what_it_keeps_has_its_methods"),
]


@pytest.mark.parametrize(
    ("broken", "test"), BACKENDS, ids=lambda each: getattr(each, "__name__", "")
)
def test_the_contract_finds_what_is_wrong_with_a_backend(broken: type[Any], test: str) -> None:
    finds(type("Judged", (BackendOf,), {"made": broken}), test)


# ---------------------------------------------------------------------------- middleware


class AsksTheModelOnWhenCancelled(Middleware):
    async def wrap_model_call(self, run: Run, request: ModelInput, next: NextModelCall) -> Any:
        task = asyncio.ensure_future(next(request))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            return ModelResponse([TextPart("never mind")])
        finally:
            task.cancel()


class TriesAgain(Middleware):
    async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
        await next(call)
        return await next(call)


class AnswersForTools(Middleware):
    async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
        return "done"


class ChangesArguments(Middleware):
    async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
        return await next(call.replace({key: f"{value}!" for key, value in call.arguments.items()}))


class ChangesMessagesInPlace(Middleware):
    async def before_model(self, run: Run, request: ModelInput) -> None:
        for message in request.messages:
            for part in message.parts:
                if part.part_kind == "user-prompt":
                    object.__setattr__(part, "content", "Something else.")


class KeepsRunsOnItself(Middleware):
    def __init__(self) -> None:
        self._calls = 0

    async def before_model(self, run: Run, request: ModelInput) -> ModelInput | None:
        self._calls += 1
        return request.replace(messages=()) if self._calls > 3 else None

    async def after_model(self, run: Run, reply: ModelResponse) -> ModelResponse | None:
        if self._calls > 3:
            return ModelResponse([TextPart("Enough.")])
        return None


class StreamsWhatItChanges(Middleware):
    stream_safe = True

    async def after_model(self, run: Run, reply: ModelResponse) -> ModelResponse | None:
        if reply.text:
            return dataclasses.replace(reply, parts=[TextPart("Censored.")])
        return None


class AsksUnderNewKeys(Middleware):
    keys = count()

    def __init__(self) -> None:
        self._key = f"key {next(self.keys)}"

    async def before_model(self, run: Run, request: ModelInput) -> None:
        if run.answer(self._key) is None:
            raise Interrupt("May I?", key=self._key, schema=str, allowed=["respond"])


class SendsMails(Middleware):
    mails: list[str]

    def __init__(self, mails: list[str], *, once: bool) -> None:
        self.mails = mails
        self._once = once

    async def on_run_start(self, run: Run) -> None:
        if self._once:
            await run.once("mail", lambda: self.mails.append("mail"))
        else:
            self.mails.append("mail")


class TellsAndFails(Middleware):
    async def on_completed(self, actor: Any, outcome: Any) -> None:
        raise LookupError("nobody is there")


class HidesErrors(Middleware):
    async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
        try:
            return await next(call)
        except Exception:
            return "It went well."


class ChangesOthersValues(Middleware):
    async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
        return ToolResult(await next(call), state={"somebody's": call.tool_name})


class Displays(Middleware):
    def transform_display_message(self, message: Any) -> Any:
        raise LookupError("no such thing")


class OneAlone(Middleware):
    def check(self, definition: Any) -> None:
        if len(definition.middleware) > 1:
            raise RuntimeError("I am alone")


class MiddlewareOf(MiddlewareContract):
    made: Callable[[], Middleware]

    def new_middleware(self) -> Middleware:
        return type(self).made()


CANCELLED = "test_a_cancelled_run_ends_at_once_and_can_be_continued"
MIDDLEWARE = [
    (AsksTheModelOnWhenCancelled, CANCELLED, ()),
    (TriesAgain, "test_no_call_is_left_in_doubt", ("calls", "conversation", "requests", "outcome")),
    (TriesAgain, "test_each_tool_call_runs_once_as_without_it", ("calls",)),
    (AnswersForTools, "test_each_tool_call_runs_once_as_without_it", ()),
    (AnswersForTools, "test_a_call_goes_through_the_stack_inwards_and_back", ()),
    (ChangesArguments, "test_each_tool_call_runs_once_as_without_it", ()),
    (ChangesMessagesInPlace, "test_the_state_in_memory_is_what_the_records_add_up_to", ()),
    (ChangesMessagesInPlace, "test_the_model_is_asked_the_same_as_without_it", ()),
    (KeepsRunsOnItself, "test_one_object_serves_runs_at_the_same_time", ()),
    (KeepsRunsOnItself, "test_one_object_serves_runs_one_after_the_other", ()),
    (StreamsWhatItChanges, "test_a_streamed_run_is_the_same_run", ()),
    (StreamsWhatItChanges, "test_the_conversation_is_stored_as_without_it", ()),
    (StreamsWhatItChanges, "test_a_run_ends_as_without_it", ()),
    (AsksUnderNewKeys, "test_its_questions_are_answered_in_another_process", ()),
    (TellsAndFails, "test_a_run_under_a_runtime_is_the_same_run", ()),
    (HidesErrors, "test_an_error_of_a_tool_reaches_the_model_as_without_it", ()),
    (ChangesOthersValues, "test_the_values_of_others_are_as_without_it", ()),
    (Displays, "test_people_are_shown_the_conversation_and_it_stays_as_it_was", ()),
]


@pytest.mark.parametrize(
    ("broken", "test", "changes"), MIDDLEWARE, ids=lambda each: getattr(each, "__name__", "")
)
def test_the_contract_finds_what_is_wrong_with_a_middleware(
    broken: Callable[[], Middleware], test: str, changes: Sequence[str]
) -> None:
    finds(type("Judged", (MiddlewareOf,), {"made": staticmethod(broken), "changes": changes}), test)


@pytest.mark.parametrize("once", [True, False])
def test_an_effect_that_is_not_done_once_is_found(once: bool) -> None:
    mails: list[str] = []

    class Judged(MiddlewareContract):
        def new_middleware(self) -> Middleware:
            return SendsMails(mails, once=once)

        def effects(self) -> Sequence[str]:
            return mails

    judged = judge(Judged, only=["test_no_call_runs_twice_wherever_a_run_is_cut_off"])
    assert bool(judged) is once, judged


# ---------------------------------------------------------------------------- how they run


@pytest.mark.slow
def test_a_contract_that_is_kept_is_judged_so_without_pytest() -> None:
    class Judged(StoreOf):
        made = MemoryStore

    judged = judge(Judged)
    assert judged, judged
    assert len(judged.kept) > 30
    assert judged.skipped == {}
    assert str(judged) == f"{len(judged.kept)} kept, 0 broken, 0 not asked"


@pytest.mark.slow
def test_what_does_not_apply_is_skipped_with_the_reason() -> None:
    class Judged(BackendOf):
        made = FileBackend

    judged = judge(Judged)
    assert judged, judged
    reasons = set(judged.skipped.values())
    assert reasons == {
        "one runtime at a time has the database",
        "a second process cannot read it",
        *(f"it keeps no {each}" for each in ("checkpoints", "files", "keys", "messages")),
        "it keeps no log of trust",
        "it keeps no spending",
    }


async def test_a_contract_can_be_judged_where_a_loop_runs() -> None:
    class Judged(StoreOf):
        made = MemoryStore

    test = "test_an_agent_begins_with_its_first_claim"
    assert judge(Judged, only=[test]).kept == (test,)


def test_a_contract_that_says_not_what_it_judges_is_refused() -> None:
    class Judged(BackendContract):
        pass

    with pytest.raises(
        UsageError, match="Judged does not say what it judges: override `new_backend`"
    ):
        judge(Judged)


def test_a_test_that_the_contract_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="has no test 'test_nothing'"):
        judge(StoreOf, only=["test_nothing"])


def test_what_no_middleware_can_change_is_refused() -> None:
    class Judged(MiddlewareOf):
        made = Middleware
        changes = ("weather",)

    judged = judge(Judged, only=["test_a_run_ends_as_without_it"])
    assert "`changes` must be of 'calls'" in str(judged)


ON_ITS_OWN = """
import asyncio
from understudy.journal import MemoryStore
from understudy.testing.contracts import StoreContract

class TestMine(StoreContract):
    def new_store(self):
        self.store = getattr(self, "store", None) or MemoryStore()
        return self.store
"""


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-p", "no:anyio"), ("-p", "no:understudy")])
def test_a_contract_runs_under_pytest_with_its_plugins_and_without(
    options: Sequence[str], tmp_path: Path
) -> None:
    (tmp_path / "test_mine.py").write_text(ON_ITS_OWN, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", ".", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**_environment(), "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}


@pytest.mark.slow
def test_the_contracts_are_imported_without_pytest() -> None:
    code = (
        "import sys; sys.modules['pytest'] = None; sys.modules['hypothesis'] = None\n"
        "import understudy.testing.contracts as c; print(len(c.__all__))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "7", done.stderr
