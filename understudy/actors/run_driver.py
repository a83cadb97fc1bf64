"""`AgentRuns`: how an agent's actor begins runs, and what it does when a drive is over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import ModelRequest

from understudy.actors.activation import Activation, RunTaskResult
from understudy.actors.agent_events import Status
from understudy.actors.agent_slot import AgentSlot, running_agents
from understudy.actors.messages import RunRequest, Send
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

    def __init__(self, slot: AgentSlot) -> None:
        super().__init__()
        self._slot = slot
        self._passivating = False

    @property
    def _activation(self) -> Activation:
        activation = self._slot.activation
        assert activation is not None, "an actor handles messages when its agent is in memory"
        return activation

    # ------------------------------------------------------------------ beginning runs

    def _want(self, wanted: RunRequest) -> None:
        slot, activation = self._slot, self._activation
        options_of(
            activation.agent, wanted.choices
        )  # raises for what does not fit, before it waits
        run = activation.state.run
        if run is not None and run.quarantined is not None and not run.over:
            answer_when_durable(slot, wanted.future, quarantine_outcome(activation))
            return
        name = wanted.message_id
        first = (
            activation.asked.get(name)
            if activation.asked is not None and name is not None
            else None
        )
        if first is not None and not is_refused(first):
            mirror(slot, first, wanted.future)
            return
        if first is None and name in activation.state.message_ids:
            self._attach(wanted)
            return
        stands = run is not None and not run.over and activation.task is None
        if stands and wanted.refuse_if_interrupted:
            raise NotInterrupted(
                f"Agent {slot.id!r} waits for a person: answer its requests first, or leave "
                "if_interrupted='withdraw'"
            )
        activation.self_runs = 0
        if name is not None:
            activation.asked = {**(activation.asked or {}), name: wanted.future}
        if stands:
            activation.pause_reason = None  # it held the run that this one withdraws
        activation.wait_turn(wanted)
        if activation.task is None:
            self._start_next()

    def _attach(self, wanted: RunRequest) -> None:
        """The message was sent before: its run is this one's, whenever it comes (J14)."""
        activation, state = self._activation, self._activation.state
        name = wanted.message_id
        assert name is not None, "only a message with an id is known from before"
        run, its_run = state.run, state.message_ids[name]
        if its_run is None:  # it still stands in the queue
            activation.wait_turn(replace(wanted, message=None))
            if activation.task is None:
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
        activation = self._activation
        run = activation.state.run
        if activation.task is None and not activation.waiting and (run is None or run.over):
            future.set(activation.agent.runner.ended(activation.state) if run is not None else None)
            return
        if run is not None and run.quarantined is not None and not run.over:
            answer_when_durable(self._slot, future, quarantine_outcome(activation))
            return
        suspended_outcome = (
            activation.agent.runner.suspended_outcome(activation.state)
            if activation.task is None
            else None
        )
        if suspended_outcome is not None:
            future.set(suspended_outcome)
            return
        activation.outcome_futures += (future,)
        if activation.task is None:
            self._drive_on()

    def _drive_on(self) -> None:
        """Drive the run that is open from where it stands."""
        slot, activation = self._slot, self._activation
        self._drive(
            activation.agent.runner.go_on(
                activation.ledger, environment=slot.environment_to_continue()
            )
        )

    def _send(self, sent: Send) -> None:
        slot, activation = self._slot, self._activation
        state = activation.state
        if sent.message_id in state.message_ids:
            answer_when_durable(slot, sent.future, sent.message_id)
            return
        queued = MessageQueued(
            message_id=sent.message_id,
            message=sent.message,
            steer=sent.steer,
            self_sent=sent.self_sent,
        )
        activation.ledger.check(queued, spare=BEGINNING)
        activation.ledger.record(queued)
        answer_when_durable(slot, sent.future, sent.message_id)
        if not sent.self_sent:
            activation.self_runs = 0
        run = state.run
        stands = run is not None and not run.over
        quarantined = stands and run is not None and run.quarantined is not None
        if activation.task is None and not quarantined and not (sent.self_sent and stands):
            self._start_next()

    def _start_next(self) -> None:
        """The run that waits longest, with what was queued before it; else all of the queue."""
        activation = self._activation
        queue = tuple(activation.state.queue)
        wanted, ahead = activation.waiting.pop(0) if activation.waiting else (None, queue)
        self._start_run(wanted, ahead)

    def _start_run(self, wanted: RunRequest | None, ahead: tuple[str, ...]) -> None:
        """Start a run with what is queued and, last, what somebody waits for (A2)."""
        slot, activation = self._slot, self._activation
        queued = [item for key, item in activation.state.queue.items() if key in ahead]
        if wanted is not None and queued and not self._fit(queued, wanted.message):
            activation.waiting.insert(0, (wanted, ahead))  # its turn comes when the queue was run
            wanted = None
        while len(queued) > 1 and not self._fit(queued, None):
            queued.pop()
        parts = [part for item in queued for part in item.message.parts]
        options = RunOptions(max_runs=activation.agent.definition.max_runs)
        ids = [item.message_id for item in queued]
        if wanted is not None:
            options = options_of(activation.agent, wanted.choices)
            if wanted.message is not None:
                parts += wanted.message.parts
                ids += [wanted.message_id] if wanted.message_id is not None else []
            activation.outcome_futures += (wanted.future,)
        message = ModelRequest(parts=parts, timestamp=slot.services.clock.now())
        callers = wanted.callers if wanted is not None else ()
        activation.is_beginning = True
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
            self._activation.ledger.check(record, spare=BEGINNING + 8 * len(queued))
        except RecordRefused:
            return False
        return True

    async def _run_begun(
        self, message: ModelRequest, options: RunOptions, ids: tuple[str, ...]
    ) -> Outcome:
        activation = self._activation
        runner = activation.agent.runner
        await runner.check_start(activation.state)
        return await runner.begin(
            activation.ledger,
            message,
            options=options,
            environment=self._slot.environment(),
            message_ids=ids,
            signal=self._early_cancel,
        )

    def _early_cancel(self) -> StopSignal | None:
        """Asked when the run is recorded: a cancel that came before it is for this run (P7)."""
        activation = self._activation
        activation.is_beginning = False
        signal, activation.early_cancel = activation.early_cancel, None
        return signal

    def _take_up(self) -> None:
        """Go on with a run that is open and neither asks nor stands still."""
        slot, activation = self._slot, self._activation
        state = activation.state
        run = state.run
        if slot.services.closing or run is None or run.over:
            self._rest_as(Status(rest_status(state)))
            if state.queue and not slot.services.closing and slot.status is Status.IDLE:
                self._start_next()
        elif run.quarantined is not None:
            slot.set_status(Status.FAILED)
        elif run.cancelled is not None:
            signal = StopSignal.from_dict(run.cancelled)
            self._drive(
                activation.agent.runner.stop(
                    activation.ledger, signal, environment=slot.environment_to_continue()
                )
            )
        elif state.requests and not activation.outcome_futures and not is_busy(state):
            slot.set_status(Status.INTERRUPTED)
        elif state.pause is not None and not activation.outcome_futures:
            slot.set_status(Status.PAUSED)
        elif run.fruitless >= MAX_FRUITLESS:
            self._quarantine("the process went away")
        else:
            self._drive_on()

    def _rest_as(self, status: Status) -> None:
        at_rest = (Status.IDLE, Status.FAILED, Status.CANCELLED)
        self._slot.set_status(status if status in at_rest else Status.IDLE)

    def _drive(
        self, coroutine: Coroutine[Any, Any, Outcome], callers: tuple[str, ...] = ()
    ) -> None:
        self._activation.halting = False
        try:
            self._slot.set_status(Status.RUNNING)
        except JournalFailed:
            coroutine.close()
            raise
        begin_drive(self._slot, coroutine, callers)

    # ------------------------------------------------------------------ after a drive

    def _after_drive(self, *, starting: bool = False) -> None:
        """A drive is over: tell what came of it, then do what waits."""
        slot, activation = self._slot, self._activation
        finished, activation.finished = activation.finished, None
        activation.is_beginning, activation.early_cancel = False, None
        assert finished is not None, "only called with a drive that ended"
        if finished.crash is not None:
            self._after_crash(finished.crash, starting=starting)
            return
        outcome = finished.outcome
        if outcome is None:  # halted between two steps
            self._passivate()
            return
        more = self._has_more(clean=isinstance(outcome, Completed))
        try:
            if not more:
                slot.set_status(status_after(outcome))
        finally:
            slot.settle(outcome)  # it is recorded, whatever becomes of the status
        lies_down = activation.passivate_futures or activation.delete_futures
        if lies_down or (activation.compact_futures and not more):
            self._passivate()
        elif more:
            self._start_next()

    def _has_more(self, *, clean: bool) -> bool:
        """Whether another run follows at once, without an idle moment between (A2, A4)."""
        activation = self._activation
        run, queue = activation.state.run, activation.state.queue
        if (run is not None and not run.over) or activation.delete_futures:
            return False  # it asks, or stands still: all else waits
        if activation.waiting:
            return True
        if not clean or not queue:
            return False
        if all(item.self_sent for item in queue.values()):
            activation.self_runs += 1
            if activation.self_runs > MAX_SELF_RUNS:
                self._slot.set_status(Status.IDLE, runs=MAX_SELF_RUNS)
                return False
        return True

    def _after_crash(self, crash: BaseException, *, starting: bool) -> None:
        """Die of it, so that the supervisor starts a new actor, which goes on (A3)."""
        slot, activation = self._slot, self._activation
        run = activation.state.run
        if slot.services.closing:
            self._passivate()
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
            raise RunCrashed(slot.id) from crash

    def _refuse_begin(self, crash: BaseException) -> None:
        """A run could not begin: whoever waits is told; if nobody does, the status tells."""
        slot = self._slot
        activation = self._activation
        told = bool(activation.outcome_futures)
        suspended_outcome = activation.agent.runner.suspended_outcome(activation.state)
        if suspended_outcome is not None:
            slot.set_status(status_after(suspended_outcome))
        else:
            self._rest_as(Status(rest_status(activation.state)) if told else Status.FAILED)
        slot.refuse(crash)
        if self._activation.waiting:
            self._start_next()

    def _lose_store(self, error: JournalFailed) -> None:
        """What is in memory may be ahead of the store: drop it, tell who waits for it (J16, J6).

        No failure of the actor: nobody restarts it. The next message, also one that waits in the
        inbox already, reads the agent back, and it goes on from what the store has.
        """
        logger.error("agent %r is put out of memory: %s", self._slot.id, error)
        self._slot.refuse_waiting(error)
        activation = self._activation
        activation.journal.fence("its store failed")
        if activation.task is not None:
            activation.task.cancel()  # whatever it does cannot be recorded
        self._passivating = True
        self.stop()

    def _quarantine(self, cause: str) -> None:
        activation = self._activation
        activation.ledger.record(Quarantined(cause=cause))
        self._slot.set_status(Status.FAILED)
        outcome = quarantine_outcome(activation)
        for future in activation.take_futures():
            answer_when_durable(self._slot, future, outcome)

    def _passivate(self) -> None:
        """Stop, once all is durable. What is in the inbox stays there for the next actor."""
        self._passivating = True
        activation = self._activation
        activation.ledger.outlives_run = False
        if not activation.ledger.has_unflushed and not activation.told:
            self.stop()
            return

        async def settle_down() -> None:
            try:
                await asyncio.gather(*activation.told, return_exceptions=True)
                await activation.ledger.durable()
            except JournalFailed as error:
                logger.error("agent %r lies down unrecorded: %s", self._slot.id, error)
            self.actor_ref.stop(block=False)

        self._slot.keep(settle_down())


class RunCrashed(UnderstudyError):
    """A run's task died, so its actor does: the supervisor starts another one, which goes on."""

    agent_id: str

    def __init__(self, agent_id: str) -> None:
        super().__init__(f"the run of agent {agent_id!r} crashed", agent_id=agent_id)


def begin_drive(
    slot: AgentSlot, coroutine: Coroutine[Any, Any, Outcome], callers: tuple[str, ...]
) -> None:
    """Drive in a task; what comes of it is left with the agent, and its actor is woken.

    An actor that is restarted meanwhile finds the task still there: the calls in it live on (J9).
    """
    activation = slot.activation
    assert activation is not None, "only an agent that is awake is driven"
    task = slot.services.loop.create_task(
        _driven(slot, activation, coroutine, callers), name=f"agent {slot.id}"
    )
    activation.task = task
    task.add_done_callback(lambda _: _never_driven(slot, activation, task, coroutine))


async def _driven(
    slot: AgentSlot,
    activation: Activation,
    coroutine: Coroutine[Any, Any, Outcome],
    callers: tuple[str, ...],
) -> None:
    """Drive to an outcome. Nothing escapes: it would end the loop."""
    running_agents.set((*callers, slot.id))
    try:
        finished = RunTaskResult(outcome=await coroutine)
    except Halted:
        finished = RunTaskResult()
    except asyncio.CancelledError as error:
        finished = await _cancelled(slot, activation, error)
    except BaseException as error:
        logger.warning("the run of agent %r crashed: %r", slot.id, error)
        finished = RunTaskResult(crash=error)
    activation.task, activation.finished = None, finished
    slot.services.wake(slot)


async def _cancelled(
    slot: AgentSlot, activation: Activation, error: BaseException
) -> RunTaskResult:
    """Only a recorded wish makes a run cancelled; any other cancellation is a crash (J13)."""
    try:
        activation.journal.check_owner()
        run = activation.state.run
        if run is None or run.cancelled is None:
            return RunTaskResult(crash=error)
        if run.over:
            return RunTaskResult(outcome=activation.agent.runner.ended(activation.state))
        signal = StopSignal.from_dict(run.cancelled)
        runner = activation.agent.runner
        return RunTaskResult(
            outcome=await runner.stop(activation.ledger, signal, environment=slot.environment())
        )
    except StoreError as failed:  # fenced, or the end could not be recorded
        return RunTaskResult(crash=failed)


def _never_driven(
    slot: AgentSlot,
    activation: Activation,
    task: asyncio.Task[None],
    coroutine: Coroutine[Any, Any, Outcome],
) -> None:
    """Cancelled before its first step, so nothing of `_driven` ran."""
    if activation.task is task:
        coroutine.close()
        activation.task, activation.finished = None, RunTaskResult(crash=asyncio.CancelledError())
        slot.services.wake(slot)
