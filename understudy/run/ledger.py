"""`Ledger`: writes the records of a run into the state, into the journal, and to listeners."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, cast

from understudy._base.clock import Clock, SystemClock
from understudy._base.error_texts import error_text
from understudy._base.event_loops import call_on
from understudy._base.json_values import shown
from understudy.errors import Fenced, JournalFailed, RecordRefused, UsageError
from understudy.events import Event, events_of
from understudy.journal.codec import check_storable
from understudy.journal.contracts import Journal
from understudy.state.agent_state import AgentState
from understudy.state.children import agents_of_call
from understudy.state.files import StoredFile
from understudy.state.fold import apply
from understudy.state.folds.ends import closing_result
from understudy.state.records import ChildRecord, End, Record, RunEnded, Snapshot, stamp
from understudy.state.run_state import Call
from understudy.state.shared_empties import no_list

if TYPE_CHECKING:
    from understudy.journal import OwnedJournal
    from understudy.journal.call_keys import CallKeys

logger: logging.Logger = logging.getLogger(__name__)

Listener = Callable[[Event], None]
FactListener = Callable[[int, Record], None]
"""A function that is called with the number of a record and the record, once it is durable."""


class Audience(Protocol):
    """An object that gets the records and events of a ledger."""

    def is_listening(self) -> bool:
        """Whether anybody gets the events that have no record. If not, they need not be made."""

    def emit(self, event: Event) -> None:
        """Get an event that has no record."""

    def emit_record(self, seq: int, record: Record) -> None:
        """Get a durable record with its number."""


class _Functions:
    """An audience made of functions."""

    __slots__ = ("emit", "emit_record")

    def __init__(self, emit: Listener, emit_record: FactListener) -> None:
        self.emit = emit
        self.emit_record = emit_record

    def is_listening(self) -> bool:
        return True


def _nobody(_event: Event) -> None:
    """Ignore an event, for an audience of records alone."""


class Ledger:
    """The only writer of a state.

    Without a journal, records are only folded into the state. With a journal, it waits until they
    are durable (see `durable`), and listeners are notified only then: nothing visible precedes its
    commit (`test_nothing_is_visible_before_its_commit`). An event without a record is visible, too:
    it waits for the records before it, so there is one order of both.

    With a listener, it is created on the event loop that it is used on.

    A journal may have more methods than a `Journal`: the methods of an `OwnedJournal` if it writes
    under a lease, `keep_blobs` and `load_blobs` if it keeps files, and `check` if it refuses
    records because of their size.
    """

    __slots__ = (
        "_agent_path",
        "_clock",
        "_count",
        "_failure",
        "_journal",
        "_journal_checks",
        "_listener",
        "_loop",
        "_on_fact",
        "_owned",
        "_state",
        "_unreported",
        "epoch",
        "gates_asked",
        "host",
        "on_answer",
        "on_fence",
        "outlives_run",
    )

    account: Any = None
    """The `Account` of the agent; None if its runtime has no budgets."""
    epoch: int
    """The epoch under which it writes; 0 if no other host could write."""
    gates_asked: dict[str, tuple[int, str]] | None
    """By run id, the turn about which gates were asked, and their `Run.asked_by`, until a record
    says so. Such gates are others than before, or let all calls pass."""
    host: str | None
    """The host that writes, if hosts share the store; None otherwise."""
    on_fence: tuple[Callable[[], None], ...]
    """Functions that are called right before it is fenced: they record what the next ledger must
    know."""
    on_answer: tuple[Callable[[], None], ...]
    """Functions that are called when an answer from outside is recorded, also inside the agent."""
    outlives_run: bool | None
    """Whether an actor keeps it between runs: True while the agent is in memory, then False.

    None without an actor.
    """

    def __init__(
        self,
        state: AgentState,
        journal: Journal | None = None,
        *,
        agent_path: tuple[str, ...] = (),
        listener: Listener | None = None,
        on_fact: FactListener | None = None,
        audience: Audience | None = None,
        clock: Clock | None = None,
        last_seq: int = 0,
        epoch: int = 0,
        host: str | None = None,
    ) -> None:
        self._state = state
        self.gates_asked = None
        self._journal = journal
        # None if the journal is under no lease.
        self._owned = cast("OwnedJournal", journal) if hasattr(journal, "check_owner") else None
        self._journal_checks = hasattr(journal, "check")
        self._clock = clock or SystemClock()
        self._agent_path = agent_path
        # The listeners for events and for records, which are mostly one object.
        self._listener: Audience | None = audience
        self._on_fact: Audience | None = audience
        if listener is not None or on_fact is not None:
            functions = _Functions(listener or _nobody, on_fact or self._emit_events)
            self._listener = functions if listener is not None else None
            self._on_fact = functions
        self._loop = asyncio.get_running_loop() if self._listener is not None else None
        # Records that `on_fact` was not called with yet, and the events that were emitted after
        # them, with the number of the record. An empty deque would take 0.7 KB.
        self._unreported: list[tuple[int, Record | None, Event | None]] = no_list()
        self._count = last_seq
        # Every later call raises this error. A tool or hook may catch it, but nothing is recorded
        # after it (test_nothing_is_recorded_after_the_journal_has_failed_whoever_catches_it).
        self._failure: JournalFailed | None = None
        self.epoch = epoch
        self.host = host
        self.on_answer = ()
        self.on_fence = ()
        self.outlives_run = None

    def follow(self, listener: FactListener) -> None:
        """Call this listener too with each durable record. It must not raise."""
        before = self._on_fact

        def both(seq: int, record: Record) -> None:
            if before is not None:
                before.emit_record(seq, record)
            listener(seq, record)

        self._on_fact = _Functions(_nobody, both)

    @property
    def state(self) -> AgentState:
        """The fold of all records so far."""
        return self._state

    @property
    def count(self) -> int:
        """The number of the newest record."""
        return self._count

    @property
    def last_reported(self) -> int:
        """The number of the newest record that was reported: it is durable."""
        return self._unreported[0][0] - 1 if self._unreported else self._count

    @property
    def is_of_one_run(self) -> bool:
        """Whether it ends with the attempt for which it was made, so that nothing waits for it."""
        return self._journal is None and self.outlives_run is None

    @property
    def observed(self) -> bool:
        """Whether anybody listens to events now."""
        return self._listener is not None and self._listener.is_listening()

    @property
    def has_unflushed(self) -> bool:
        """Whether a record is not durable yet."""
        return self._journal is not None and self._journal.has_unflushed

    @property
    def is_settled(self) -> bool:
        """Whether `durable` would wait for nothing, and do nothing: nobody keeps or hears facts."""
        return self._journal is None and not self._unreported and self._failure is None

    def open(self, *, fresh: bool) -> None:
        """Begin to write. Unless the state is fresh, the journal begins with a snapshot of it."""
        if self._journal is not None and not fresh:
            blobs, self._state.blobs = self._state.blobs, None
            snapshot = Snapshot(state=self.state.to_dict(), at=self._clock.now())
            self._append((snapshot,))
            if blobs:
                self.keep_blobs(blobs)

    def fence(self, error: JournalFailed) -> None:
        """Raise this error from every later call: a ledger of a later epoch takes its place.

        What is recorded by now becomes durable, and is reported. No other event is emitted.
        """
        for call in self.on_fence:
            with suppress(JournalFailed):
                call()
        self._failure, self._listener = error, None

    def check_fence(self) -> None:
        """Raise the error by which it was fenced, or by which its journal failed, if it did."""
        if self._failure is not None:
            raise self._failure

    def check_owner(self) -> None:
        """Raise `Fenced` if another host, or a later ledger, may own the agent by now."""
        if self._failure is not None:
            raise self._failure
        if self._owned is not None:
            try:
                self._owned.check_owner()
            except JournalFailed as error:
                if not self._waits_for_owner:
                    self._failure = error
                raise

    @property
    def _waits_for_owner(self) -> bool:
        """Whether the lease may run out and be renewed."""
        return hasattr(self._owned, "wait_for_owner")

    async def wait_for_owner(self) -> None:
        """Wait while the lease has run out and may still be renewed; then call `check_owner`."""
        if self._owned is not None and self._waits_for_owner:
            try:
                await self._owned.wait_for_owner()
            except JournalFailed as error:
                self._failure = error
                raise
        self.check_owner()

    def check(self, record: Record, *, spare: int = 0) -> None:
        """Raise `RecordRefused` if the journal could not keep the record with `spare` bytes
        added.
        """
        if self._journal_checks:
            journal: Any = self._journal
            journal.check(record, spare=spare)

    @property
    def files(self) -> Mapping[str, StoredFile]:
        """The files of the agent: its own, or the files of the agent above that it shares."""
        return self.state.files or {}

    async def load_blobs(self, hashes: Collection[str]) -> Mapping[str, bytes]:
        """The stored values of these hashes.

        Raises:
            UsageError: if a value is missing, because the state was taken out of a store without
                it.

        """
        kept = self._state.blobs or {}
        journal: Any = self._journal
        if hasattr(journal, "load_blobs"):
            # What a concurrent agent has written may not be durable yet
            # (test_what_another_sub_agent_has_just_written_is_read).
            await self.durable()
            kept = await journal.load_blobs(hashes)
        missing = [hash for hash in hashes if hash not in kept]
        if missing:
            raise UsageError(
                "the bytes of a file are not in this state: they are in the store that it was "
                "taken from. Take the state by Workspace.of(ref).state()"
            )
        return {hash: kept[hash] for hash in hashes}

    @property
    def call_keys(self) -> CallKeys | None:
        """The keys that calls take; None if there is no store.

        Raises:
            UsageError: if the store keeps no keys.

        """
        from understudy.journal import OwnedJournal  # few tools have a key

        journal = self._journal
        keys = journal.call_keys if isinstance(journal, OwnedJournal) else None
        if keys is None and self._owned is not None:
            raise UsageError(
                f"A tool has `key`, and the store of {journal!r} keeps no keys of calls: see "
                "`journal.Store.keeps`"
            )
        return keys

    def keep_blobs(self, blobs: Mapping[str, bytes]) -> None:
        """Keep the bytes of files that the record before names, in the same commit."""
        journal: Any = self._journal
        if hasattr(journal, "keep_blobs"):
            journal.keep_blobs(blobs)
        else:
            self._state.blobs = {**(self._state.blobs or {}), **blobs}

    def record(self, *records: Record) -> None:
        """Record facts, in order.

        The journal comes first: what it refuses must not be in the state. Without a journal, what
        no store could keep is refused too: the state would be stored as JSON that cannot be read.

        Raises:
            RecordRefused: if a record cannot be stored; none is recorded then.
            JournalFailed: if the journal fails, or failed before.

        """
        if self._failure is None and not self._journal_checks:
            check_storable(records)
        self.record_sound(*records)

    def record_sound(self, *records: Record) -> None:
        """Record facts that a store could keep, apart from their size. `record` ends here.

        Their content was checked where it came from: to check a result once more takes 2.5 µs. A
        journal that checks records checks them.
        """
        if self._failure is not None:
            raise self._failure
        journal, state = self._journal, self._state
        if journal is None and self._on_fact is None:  # nothing keeps a record
            for record in records:
                apply(state, record)
            self._count += len(records)
            return
        now: datetime | None = None
        for record in records:
            if record.at is None:
                if now is None:
                    try:
                        now = self._clock.now()
                    except BaseException as error:
                        self._note_clock_failure(error)
                        raise
                stamp(record, now)
        if journal is not None:
            self._append(records)
        if self._on_fact is None:
            for record in records:
                apply(state, record)
            self._count += len(records)
            return
        if not self._unreported:
            self._unreported = []
        for record in records:
            apply(state, record)
            self._count += 1
            self._unreported.append((self._count, record, None))
        if journal is None or not journal.has_unflushed:
            self.tell_until(self._count)

    def _note_clock_failure(self, error: BaseException) -> None:
        if self._journal is None:
            return
        # A record without a time is impossible, even of an attempt: without an end here the run
        # would crash and be activated again for ever
        # (test_a_clock_that_raises_is_an_error_of_the_waiters).
        self._failure = JournalFailed(f"The clock of the runtime raised {error_text(error)}")
        raise self._failure from error

    async def durable(self) -> None:
        """Wait until all facts recorded so far are durable, and report them."""
        if self._failure is not None:
            raise self._failure
        # Race: other tasks (sibling calls, hooks) may record during the wait. Those records are not
        # durable when it ends, so the number up to which records are reported is read before it
        # (test_a_fact_recorded_while_others_become_durable_is_not_reported_with_them).
        journal, count = self._journal, self._count
        if journal is not None and journal.has_unflushed:
            try:
                await journal.durable()
            except JournalFailed as error:
                self._failure = error
                raise
            except Exception as error:
                what = f"The journal could not keep a record: {shown(error)}"
                self._failure = JournalFailed(what)
                raise self._failure from error
        if self._unreported:
            self.tell_until(count)

    async def reported(self, seq: int) -> None:
        """Wait until the records up to this number are durable and reported."""
        if self.last_reported < seq:
            await self.durable()

    async def end_is_durable(self) -> None:
        """Wait as by `durable`, after the end of the ledger's run.

        By that end the agent may be at rest, and another host may take it. The run has ended all
        the same, and only this host notifies its callers and hooks
        (test_hooks_and_callers_are_told_of_a_run_whose_agent_is_taken_as_it_ends).
        """
        try:
            await self.durable()
        except Fenced:
            if self._owned is None:
                raise
            await self._owned.settled()
            if any(isinstance(record, RunEnded) for _, record, _ in self._unreported):
                raise

    def tell_until(self, seq: int) -> None:
        """Report the records up to this number, which are durable, and the events after them."""
        on_fact = self._on_fact
        # The fields are read anew each time, because a listener may record or emit.
        while (unreported := self._unreported) and unreported[0][0] <= seq:
            number, record, event = unreported.pop(0)
            if record is not None:
                if on_fact is not None:
                    on_fact.emit_record(number, record)
            elif event is not None:
                self._tell_listener(event)
        if not self._unreported:
            self._unreported = no_list()

    def emit(self, event: Event) -> None:
        """Emit an event without a record, after the events of all records so far. From any
        thread.
        """
        if self._loop is not None:
            call_on(self._loop, self._emit_in_order, event)

    def _emit_in_order(self, event: Event) -> None:
        # Race: the next turn begins while the results of this one are committed. What it emits
        # would come before their events
        # (test_a_subscription_gets_the_events_in_the_order_of_a_stream).
        if self._unreported:
            self._unreported.append((self._count, None, event))
        else:
            self._tell_listener(event)

    def _tell_listener(self, event: Event) -> None:
        """Call the listener. A listener that raises is removed, and the run continues."""
        if self._listener is not None:
            try:
                self._listener.emit(event)
            except Exception:
                logger.exception("the listener of agent %s raised; removed", self._agent_path)
                self._listener = None

    def _emit_events(self, _seq: int, record: Record) -> None:
        for event in events_of(record, self._agent_path):
            self._tell_listener(event)

    def _append(self, records: tuple[Record, ...]) -> None:
        assert self._journal is not None, "only called where there is a journal"
        try:
            self._journal.append(records)
        except RecordRefused:
            raise
        except JournalFailed as error:
            self._failure = error
            raise
        except Exception as error:
            self._failure = JournalFailed(f"The journal refused a record: {shown(error)}")
            raise self._failure from error


_NOT_BEGUN = AgentState()
"""The state of every child before its first record, which gives it a state of its own."""


class ChildLedger(Ledger):
    """The ledger of an agent that runs inside another one: it writes into the parent's ledger.

    The child's records are wrapped as records of the parent. So there is one journal and one order
    of records, and the parent's state holds the child's state, also when it goes through JSON.
    """

    __slots__ = ("_child", "_name", "_parent", "_path", "_root")

    def __init__(self, parent: Ledger, child: str, name: str) -> None:
        super().__init__(_NOT_BEGUN, clock=parent._clock, epoch=parent.epoch, host=parent.host)
        self._parent = parent
        self._child = child
        self._name = name
        self._root: Ledger = parent
        self._path: tuple[tuple[str, str], ...] = ((child, name),)
        """The keys and names of the agents, from this agent to the outermost."""
        if isinstance(parent, ChildLedger):
            self._root = parent._root
            self._path += parent._path

    @property
    def state(self) -> AgentState:
        return self._parent.state.children.get(self._child, self._state)

    @property
    def count(self) -> int:
        return self._root.count

    @property
    def files(self) -> Mapping[str, StoredFile]:
        own = self.state.files
        return self._parent.files if own is None else own

    async def load_blobs(self, hashes: Collection[str]) -> Mapping[str, bytes]:
        return await self._root.load_blobs(hashes)

    @property
    def call_keys(self) -> CallKeys | None:
        return self._root.call_keys

    def keep_blobs(self, blobs: Mapping[str, bytes]) -> None:
        self._root.keep_blobs(blobs)

    @property
    def observed(self) -> bool:
        return self._root.observed

    def record(self, *records: Record) -> None:
        if len(records) == 1:
            self._root.record(self._wrapped(records[0]))
        else:
            self._root.record(*map(self._wrapped, records))

    def record_sound(self, *records: Record) -> None:
        self._root.record_sound(*map(self._wrapped, records))

    def _wrapped(self, record: Record) -> Record:
        """The record as a record of the outermost agent."""
        for child, name in self._path:
            record = ChildRecord(child=child, name=name, record=record)
        return record

    def check(self, record: Record, *, spare: int = 0) -> None:
        self._root.check(self._wrapped(record), spare=spare)

    @property
    def has_unflushed(self) -> bool:
        return self._root.has_unflushed

    @property
    def is_settled(self) -> bool:
        return self._root.is_settled

    def check_owner(self) -> None:
        self._root.check_owner()

    async def wait_for_owner(self) -> None:
        await self._root.wait_for_owner()

    async def durable(self) -> None:
        await self._root.durable()

    async def end_is_durable(self) -> None:
        await self._root.durable()

    def emit(self, event: Event) -> None:
        self._root.emit(event)


def ledger_tree(ledger: Ledger) -> Iterator[Ledger]:
    """The ledger, and the ledgers of all agents that open calls or the workflow run, at any
    depth.
    """
    yield ledger
    for key, child in ledger.state.children.items():
        if child.run is not None:
            yield from ledger_tree(ChildLedger(ledger, key, child.run.agent))


def open_calls(ledger: Ledger) -> Iterator[tuple[Ledger, Call]]:
    """The open calls of the whole tree, each with the ledger of its agent."""
    for place in list(ledger_tree(ledger)):
        run = place.state.run
        if run is not None and not run.over:
            for call in run.calls:
                yield place, call


def end_run(
    ledger: Ledger,
    end: End,
    at: datetime,
    *,
    cut_off: bool = False,
    closes_turn: bool = False,
    status: str | None = None,
) -> None:
    """Record the end of this ledger's run, after the ends of the calls that it leaves.

    A failed run may continue later, and so may a run that is cut off because another run fails:
    they leave their calls as they are.

    Raises:
        RecordRefused: if the end is too large to be stored; nothing is recorded then.

    """
    ended = RunEnded(end=end, at=at, cut_off=cut_off, closes_turn=closes_turn, status=status)
    may_go_on = cut_off or end.outcome == "failed"
    if not may_go_on and any(_is_left(place, call) for place, call in open_calls(ledger)):
        ledger.check(ended)
        close_calls(ledger, at)
    ledger.record(ended)


def close_calls(ledger: Ledger, at: datetime) -> None:
    """Record the ends of the started calls that are left, also of inner agents."""
    for place, call in reversed(list(open_calls(ledger))):  # inner calls come first
        if _is_left(place, call):
            place.record(closing_result(place.state, call, at))


def _is_left(place: Ledger, call: Call) -> bool:
    run = place.state.run  # if no turn is open, a model call waits
    return bool(call.attempts) and call.result is None and run is not None and run.turn is not None


def calls_inside(ledger: Ledger, call: Call) -> Iterator[tuple[Ledger, Call]]:
    """The call, and the open calls of the agents that it runs, each with its agent's ledger."""
    yield ledger, call
    children = ledger.state.children
    for key in agents_of_call(children, call.key):
        child = children[key]
        if child.run is not None:
            yield from open_calls(ChildLedger(ledger, key, child.run.agent))
