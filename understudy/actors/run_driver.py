"""`AgentRuns`: how an agent's actor begins runs, and what it does when a drive is over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import ModelRequest

from understudy.actors.activation import Awake, Finished
from understudy.actors.agent_events import Status
from understudy.actors.agent_slot import AgentCell, running_agents
from understudy.actors.messages import RunWanted, Send
from understudy.actors.replies import (
    answer_when_durable,
    is_refused,
    mirror,
    options_of,
    quarantine_outcome,
    status_after,
)
from understudy.agent.runner import RunOptions
from understudy.errors import (
    JournalFailed,
    NotInterrupted,
    RecordRefused,
    StoreError,
    UnderstudyError,
)
from understudy.journal import is_busy, rest_status
from understudy.loop_actors.future import Future
from understudy.loop_actors.loop_actor import LoopActor
from understudy.outcomes import Completed, Outcome
from understudy.run.run import Halted
from understudy.state.agent_state import QueuedMessage
from understudy.state.records import MessageQueued, Quarantined
from understudy.stopping import StopSignal

logger = logging.getLogger(__name__)

MAX_SELF_RUNS = 10
"""So many runs in a row may an agent start by messages to itself (A4)."""
BEGINNING = 1024
"""Bytes that the first record of a run has beside its message."""
MAX_FRUITLESS = 3
"""So many times may a run be cut off without any progress; then it is quarantined (J10)."""


class AgentRuns(LoopActor):
    """What an agent's actor knows of runs. How it is asked for them is the actor's own matter."""

    def __init__(self, cell: AgentCell) -> None:
        super().__init__()
        self._cell = cell
        self._lying_down = False

    @property
    def _awake(self) -> Awake:
        awake = self._cell.awake
        assert awake is not None, "an actor handles messages when its agent is in memory"
        return awake

    # ------------------------------------------------------------------ beginning runs

    def _want(self, wanted: RunWanted) -> None:
        cell, awake = self._cell, self._awake
        options_of(awake.agent, wanted.choices)  # raises for what does not fit, before it waits
        run = awake.state.run
        if run is not None and run.quarantined is not None and not run.over:
            answer_when_durable(cell, wanted.future, quarantine_outcome(awake))
            return
        name = wanted.message_id
        first = awake.asked.get(name) if awake.asked is not None and name is not None else None
        if first is not None and not is_refused(first):
            mirror(cell, first, wanted.future)
            return
        if first is None and name in awake.state.message_ids:
            self._attach(wanted)
            return
        stands = run is not None and not run.over and awake.task is None
        if stands and wanted.refuse_if_interrupted:
            raise NotInterrupted(
                f"Agent {cell.id!r} waits for a person: answer its requests first, or leave "
                "if_interrupted='withdraw'"
            )
        awake.self_runs = 0
        if name is not None:
            awake.asked = {**(awake.asked or {}), name: wanted.future}
        if stands:
            awake.pause_reason = None  # it held the run that this one withdraws
        awake.wait_turn(wanted)
        if awake.task is None:
            self._start_next()

    def _attach(self, wanted: RunWanted) -> None:
        """The message was sent before: its run is this one's, whenever it comes (J14)."""
        awake, state = self._awake, self._awake.state
        name = wanted.message_id
        assert name is not None, "only a message with an id is known from before"
        run, its_run = state.run, state.message_ids[name]
        if its_run is None:  # it still stands in the queue
            awake.wait_turn(replace(wanted, message=None))
            if awake.task is None:
                self._start_next()
        elif run is None or run.run_id != its_run:
            raise NotInterrupted(
                f"The run of message {name!r} is over, and others came after it: its reply is in "
                "the history"
            )
        else:
            self._await(wanted.future)

    def _await(self, future: Future[Any]) -> None:
        """The outcome of the run that goes on, stands, or was the last."""
        awake = self._awake
        run = awake.state.run
        if awake.task is None and not awake.waiting and (run is None or run.over):
            future.set(awake.agent.runner.ended(awake.state) if run is not None else None)
            return
        if run is not None and run.quarantined is not None and not run.over:
            answer_when_durable(self._cell, future, quarantine_outcome(awake))
            return
        standing = awake.agent.runner.standing(awake.state) if awake.task is None else None
        if standing is not None:
            future.set(standing)
            return
        awake.waiters += (future,)
        if awake.task is None:
            self._drive_on()

    def _drive_on(self) -> None:
        """Drive the run that is open from where it stands."""
        cell, awake = self._cell, self._awake
        self._drive(awake.agent.runner.go_on(awake.ledger, host=cell.host_to_go_on()))

    def _send(self, sent: Send) -> None:
        cell, awake = self._cell, self._awake
        state = awake.state
        if sent.message_id in state.message_ids:
            answer_when_durable(cell, sent.future, sent.message_id)
            return
        queued = MessageQueued(
            message_id=sent.message_id,
            message=sent.message,
            steer=sent.steer,
            self_sent=sent.self_sent,
        )
        awake.ledger.check(queued, spare=BEGINNING)
        awake.ledger.record(queued)
        answer_when_durable(cell, sent.future, sent.message_id)
        if not sent.self_sent:
            awake.self_runs = 0
        run = state.run
        stands = run is not None and not run.over
        quarantined = stands and run is not None and run.quarantined is not None
        if awake.task is None and not quarantined and not (sent.self_sent and stands):
            self._start_next()

    def _start_next(self) -> None:
        """The run that waits longest, with what was queued before it; else all of the queue."""
        awake = self._awake
        queue = tuple(awake.state.queue)
        wanted, ahead = awake.waiting.pop(0) if awake.waiting else (None, queue)
        self._start_run(wanted, ahead)

    def _start_run(self, wanted: RunWanted | None, ahead: tuple[str, ...]) -> None:
        """Start a run with what is queued and, last, what somebody waits for (A2)."""
        cell, awake = self._cell, self._awake
        queued = [item for key, item in awake.state.queue.items() if key in ahead]
        if wanted is not None and queued and not self._fit(queued, wanted.message):
            awake.waiting.insert(0, (wanted, ahead))  # its turn comes when the queue was run
            wanted = None
        while len(queued) > 1 and not self._fit(queued, None):
            queued.pop()
        parts = [part for item in queued for part in item.message.parts]
        options = RunOptions(max_runs=awake.agent.definition.max_runs)
        ids = [item.message_id for item in queued]
        if wanted is not None:
            options = options_of(awake.agent, wanted.choices)
            if wanted.message is not None:
                parts += wanted.message.parts
                ids += [wanted.message_id] if wanted.message_id is not None else []
            awake.waiters += (wanted.future,)
        message = ModelRequest(parts=parts, timestamp=cell.home.clock.now())
        callers = wanted.callers if wanted is not None else ()
        awake.beginning = True
        self._drive(self._run_begun(message, options, tuple(ids)), callers)

    def _fit(self, queued: list[QueuedMessage], last: ModelRequest | None) -> bool:
        """Whether these messages can be the first record of one run (J16)."""
        messages = [item.message for item in queued] + ([last] if last is not None else [])
        if len(messages) == 1:
            return True  # it was checked when it was accepted
        merged = ModelRequest(parts=[part for message in messages for part in message.parts])
        ids = "".join(item.message_id for item in queued)
        try:
            record = MessageQueued(message_id=ids, message=merged, steer=False, self_sent=False)
            self._awake.ledger.check(record, spare=BEGINNING + 8 * len(queued))
        except RecordRefused:
            return False
        return True

    async def _run_begun(
        self, message: ModelRequest, options: RunOptions, ids: tuple[str, ...]
    ) -> Outcome:
        awake = self._awake
        runner = awake.agent.runner
        await runner.check_start(awake.state)
        return await runner.begin(
            awake.ledger,
            message,
            options=options,
            host=self._cell.host(),
            message_ids=ids,
            signal=self._early_cancel,
        )

    def _early_cancel(self) -> StopSignal | None:
        """Asked when the run is recorded: a cancel that came before it is for this run (P7)."""
        awake = self._awake
        awake.beginning = False
        signal, awake.early_cancel = awake.early_cancel, None
        return signal

    def _take_up(self) -> None:
        """Go on with a run that is open and neither asks nor stands still."""
        cell, awake = self._cell, self._awake
        state = awake.state
        run = state.run
        if cell.home.closing or run is None or run.over:
            self._rest_as(Status(rest_status(state)))
            if state.queue and not cell.home.closing and cell.status is Status.IDLE:
                self._start_next()
        elif run.quarantined is not None:
            cell.set_status(Status.FAILED)
        elif run.cancelled is not None:
            signal = StopSignal.from_dict(run.cancelled)
            self._drive(awake.agent.runner.stop(awake.ledger, signal, host=cell.host_to_go_on()))
        elif state.requests and not awake.waiters and not is_busy(state):
            cell.set_status(Status.INTERRUPTED)
        elif state.pause is not None and not awake.waiters:
            cell.set_status(Status.PAUSED)
        elif run.fruitless >= MAX_FRUITLESS:
            self._quarantine("the process went away")
        else:
            self._drive_on()

    def _rest_as(self, status: Status) -> None:
        at_rest = (Status.IDLE, Status.FAILED, Status.CANCELLED)
        self._cell.set_status(status if status in at_rest else Status.IDLE)

    def _drive(
        self, coroutine: Coroutine[Any, Any, Outcome], callers: tuple[str, ...] = ()
    ) -> None:
        self._awake.halting = False
        try:
            self._cell.set_status(Status.RUNNING)
        except JournalFailed:
            coroutine.close()
            raise
        begin_drive(self._cell, coroutine, callers)

    # ------------------------------------------------------------------ after a drive

    def _after_drive(self, *, starting: bool = False) -> None:
        """A drive is over: tell what came of it, then do what waits."""
        cell, awake = self._cell, self._awake
        finished, awake.finished = awake.finished, None
        awake.beginning, awake.early_cancel = False, None
        assert finished is not None, "only called with a drive that ended"
        if finished.crash is not None:
            self._after_crash(finished.crash, starting=starting)
            return
        outcome = finished.outcome
        if outcome is None:  # halted between two steps
            self._lie_down()
            return
        more = self._has_more(clean=isinstance(outcome, Completed))
        try:
            if not more:
                cell.set_status(status_after(outcome))
        finally:
            cell.settle(outcome)  # it is recorded, whatever becomes of the status
        lies_down = awake.rest_wanted or awake.delete_wanted
        if lies_down or (awake.compact_wanted and not more):
            self._lie_down()
        elif more:
            self._start_next()

    def _has_more(self, *, clean: bool) -> bool:
        """Whether another run follows at once, without an idle moment between (A2, A4)."""
        awake = self._awake
        run, queue = awake.state.run, awake.state.queue
        if (run is not None and not run.over) or awake.delete_wanted:
            return False  # it asks, or stands still: all else waits
        if awake.waiting:
            return True
        if not clean or not queue:
            return False
        if all(item.self_sent for item in queue.values()):
            awake.self_runs += 1
            if awake.self_runs > MAX_SELF_RUNS:
                self._cell.set_status(Status.IDLE, runs=MAX_SELF_RUNS)
                return False
        return True

    def _after_crash(self, crash: BaseException, *, starting: bool) -> None:
        """Die of it, so that the supervisor starts a new actor, which goes on (A3)."""
        cell, awake = self._cell, self._awake
        run = awake.state.run
        if cell.home.closing:
            self._lie_down()
        elif isinstance(crash, RecordRefused):
            self._refuse_begin(crash)
        elif isinstance(crash, JournalFailed):
            self._lose_store(crash)
        elif run is None or run.over:
            self._refuse_begin(crash)
        elif run.cancelled is not None:
            self._take_up()  # cancelled before its first step
        elif run.fruitless >= MAX_FRUITLESS:
            self._quarantine(f"{type(crash).__name__}: {crash}")
        elif starting:
            self._take_up()
        else:
            raise RunCrashed(cell.id) from crash

    def _refuse_begin(self, crash: BaseException) -> None:
        """A run could not begin: whoever waits is told; if nobody does, the status tells."""
        cell = self._cell
        awake = self._awake
        told = bool(awake.waiters)
        standing = awake.agent.runner.standing(awake.state)
        if standing is not None:
            cell.set_status(status_after(standing))
        else:
            self._rest_as(Status(rest_status(awake.state)) if told else Status.FAILED)
        cell.refuse(crash)
        if self._awake.waiting:
            self._start_next()

    def _lose_store(self, error: JournalFailed) -> None:
        """What is in memory may be ahead of the store: drop it, tell who waits for it (J16, J6).

        No failure of the actor: nobody restarts it. The next message, also one that waits in the
        inbox already, reads the agent back, and it goes on from what the store has.
        """
        logger.error("agent %r is put out of memory: %s", self._cell.id, error)
        self._cell.refuse_waiting(error)
        awake = self._awake
        awake.journal.fence("its store failed")
        if awake.task is not None:
            awake.task.cancel()  # whatever it does cannot be recorded
        self._lying_down = True
        self.stop()

    def _quarantine(self, cause: str) -> None:
        awake = self._awake
        awake.ledger.record(Quarantined(cause=cause))
        self._cell.set_status(Status.FAILED)
        outcome = quarantine_outcome(awake)
        for future in awake.waiting_futures():
            answer_when_durable(self._cell, future, outcome)

    def _lie_down(self) -> None:
        """Stop, once all is durable. What is in the inbox stays there for the next actor."""
        self._lying_down = True
        awake = self._awake
        awake.ledger.lasts = False
        if not awake.ledger.behind and not awake.told:
            self.stop()
            return

        async def settle_down() -> None:
            try:
                await asyncio.gather(*awake.told, return_exceptions=True)
                await awake.ledger.durable()
            except JournalFailed as error:
                logger.error("agent %r lies down unrecorded: %s", self._cell.id, error)
            self.actor_ref.stop(block=False)

        self._cell.keep(settle_down())


class RunCrashed(UnderstudyError):
    """A run's task died, so its actor does: the supervisor starts another one, which goes on."""

    agent_id: str

    def __init__(self, agent_id: str) -> None:
        super().__init__(f"the run of agent {agent_id!r} crashed", agent_id=agent_id)


def begin_drive(
    cell: AgentCell, coroutine: Coroutine[Any, Any, Outcome], callers: tuple[str, ...]
) -> None:
    """Drive in a task; what comes of it is left with the agent, and its actor is woken.

    An actor that is restarted meanwhile finds the task still there: the calls in it live on (J9).
    """
    awake = cell.awake
    assert awake is not None, "only an agent that is awake is driven"
    task = cell.home.loop.create_task(
        _driven(cell, awake, coroutine, callers), name=f"agent {cell.id}"
    )
    awake.task = task
    task.add_done_callback(lambda _: _never_driven(cell, awake, task, coroutine))


async def _driven(
    cell: AgentCell,
    awake: Awake,
    coroutine: Coroutine[Any, Any, Outcome],
    callers: tuple[str, ...],
) -> None:
    """Drive to an outcome. Nothing escapes: it would end the loop."""
    running_agents.set((*callers, cell.id))
    try:
        finished = Finished(outcome=await coroutine)
    except Halted:
        finished = Finished()
    except asyncio.CancelledError as error:
        finished = await _cancelled(cell, awake, error)
    except BaseException as error:
        logger.warning("the run of agent %r crashed: %r", cell.id, error)
        finished = Finished(crash=error)
    awake.task, awake.finished = None, finished
    cell.home.wake(cell)


async def _cancelled(cell: AgentCell, awake: Awake, error: BaseException) -> Finished:
    """Only a recorded wish makes a run cancelled; any other cancellation is a crash (J13)."""
    try:
        awake.journal.check_owner()
        run = awake.state.run
        if run is None or run.cancelled is None:
            return Finished(crash=error)
        if run.over:
            return Finished(outcome=awake.agent.runner.ended(awake.state))
        signal = StopSignal.from_dict(run.cancelled)
        runner = awake.agent.runner
        return Finished(outcome=await runner.stop(awake.ledger, signal, host=cell.host()))
    except StoreError as failed:  # fenced, or the end could not be recorded
        return Finished(crash=failed)


def _never_driven(
    cell: AgentCell,
    awake: Awake,
    task: asyncio.Task[None],
    coroutine: Coroutine[Any, Any, Outcome],
) -> None:
    """Cancelled before its first step, so nothing of `_driven` ran."""
    if awake.task is task:
        coroutine.close()
        awake.task, awake.finished = None, Finished(crash=asyncio.CancelledError())
        cell.home.wake(cell)
