"""`AgentActor`: runs one agent. Its mailbox answers at once, for the run is a task of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pykka
from pydantic_ai.messages import ModelRequest

from understudy.actors.agent_answers import (
    answer_when_durable,
    check_known,
    is_refused,
    mirror,
    notify,
    options_of,
    quarantine_outcome,
    status_after,
)
from understudy.actors.agent_events import Status
from understudy.actors.agent_messages import (
    AgentMessage,
    Await,
    Cancel,
    Compact,
    Forget,
    Look,
    Notify,
    Pause,
    Rest,
    Resume,
    Retry,
    RunWanted,
    Send,
    Unpause,
)
from understudy.actors.awake import Awake, wake_up
from understudy.actors.cell import AgentCell
from understudy.actors.drives import begin_drive
from understudy.actors.future import Future
from understudy.actors.loop_actor import LoopActor
from understudy.errors import (
    JournalFailed,
    NotInterrupted,
    RecordRefused,
    StoreError,
    UnderstudyError,
)
from understudy.journal import is_busy
from understudy.outcomes import Completed, Outcome
from understudy.records import CancelRequested, MessageQueued, Quarantined, Released
from understudy.runner import RunOptions, decide, unpause
from understudy.stopping import StopSignal

__all__ = ["AgentActor"]

logger = logging.getLogger(__name__)

MAX_SELF_RUNS = 10
"""So many runs in a row may an agent start by messages to itself (A4)."""
MAX_FRUITLESS = 3
"""So many times may a run be cut off without any progress; then it is quarantined (J10)."""

WAKE = object()
"""The one message of an agent actor: there is something to look at in its cell."""


class AgentActor(LoopActor):
    """The actor of one agent id; what must outlive it is in its `AgentCell`."""

    def __init__(self, cell: AgentCell) -> None:
        super().__init__()
        self._cell = cell
        self._idle_timer: asyncio.TimerHandle | None = None
        self._loading: asyncio.Task[None] | None = None
        self._up = False
        self._lying_down = False

    @property
    def _awake(self) -> Awake:
        awake = self._cell.awake
        assert awake is not None, "an actor handles messages when its agent is in memory"
        return awake

    def on_start(self) -> None:
        """Wake up: read the agent back, unless an actor before this one left it in memory."""
        cell = self._cell
        cell.actor_ref = self.actor_ref
        self.actor_ref.monitor(cell.ended)
        if cell.awake is None:
            self._loading = self.loop.create_task(self._load(), name=f"waking {cell.id}")
        else:
            self._get_up()

    def on_receive(self, message: Any) -> None:
        """Handle everything in the inbox."""
        if message is not WAKE:
            super().on_receive(message)
        elif self._up:
            self._attend()
        elif self._loading is not None and self._loading.done():
            self._get_up()
        # else it is still being read back: the inbox waits

    def on_stop(self) -> None:
        """Lie down: nothing is lost, the next message wakes the agent (see `AgentCell.ended`)."""
        self._stop_timer()
        if self._loading is not None:
            self._loading.cancel()

    # ---------------------------------------------------------------------- waking up

    async def _load(self) -> None:
        cell = self._cell
        try:
            awake = await wake_up(
                cell.id,
                cell.agent,
                cell.home,
                values=cell.values,
                listener=cell.log.tell,
                on_fact=cell.tell_fact,
            )
            if self.actor_stopped.is_set():
                return  # it was ended meanwhile: another one reads the agent back
            cell.agent, cell.awake = awake.agent, awake
            if cell.waiting is not None:
                awake.inherit(cell.waiting)
                cell.waiting = None
            for hook in awake.agent.definition.hooks.on_start:
                await hook(cell.home.threads, cell.home.ref_of(cell))
        except Exception as error:  # told to all who wait; the next message tries again
            if not isinstance(error, UnderstudyError):
                logger.exception("agent %r could not be woken", cell.id)
            if self.actor_stopped.is_set():
                return
            self._lying_down = True
            cell.refuse_all(error)
        with contextlib.suppress(pykka.ActorDeadError):  # it was ended while a hook ran
            self.actor_ref.tell(WAKE)

    def _get_up(self) -> None:
        """Look at what a drive left, or go on with a run that was cut off (A3)."""
        self._up, self._loading = True, None
        if self._lying_down:  # it could not be read
            self.stop()
            return
        if self._awake.finished is not None:
            self._after_drive(starting=True)
        elif self._awake.task is None:
            self._take_up()
        self._attend()

    # ------------------------------------------------------------------- the inbox

    def _attend(self) -> None:
        cell = self._cell
        self._stop_timer()
        if not self._lying_down:
            self._check_owner()
        if not self._lying_down and self._awake.finished is not None:
            self._after_drive()
        while cell.inbox and not self._lying_down:
            message = cell.inbox.pop(0)
            try:
                self._handle(message)
            except Exception as error:
                # Ours to answer, whatever it is: the caller must not wait for ever.
                if not isinstance(error, UnderstudyError):
                    logger.exception("agent %r could not handle %r", cell.id, type(message))
                message.future.set_exception((type(error), error, error.__traceback__))
                if isinstance(error, JournalFailed) and not isinstance(error, RecordRefused):
                    self._lose_store(error)
        self._start_timer()

    def _check_owner(self) -> None:
        """Leave the agent alone where another runtime may have it (J8)."""
        awake = self._awake
        if awake.task is None and awake.finished is None:
            try:
                awake.journal.check_owner()
            except StoreError as error:
                self._lose_store(error)

    def _handle(self, message: AgentMessage) -> None:
        match message:
            case RunWanted():
                self._want(message)
            case Send():
                self._send(message)
            case Resume():
                self._resume(message)
            case Await(future=future):
                self._await(future)
            case Cancel():
                self._cancel(message)
            case Pause(reason=reason, future=future):
                self._awake.pause_reason = reason
                future.set(None)
            case Unpause(future=future):
                self._unpause(future)
            case Retry(future=future):
                self._retry(future)
            case Look(future=future, what=what):
                answer_when_durable(self._cell, future, what(self._awake))
            case Notify():
                notify(self._cell, message)
            case Rest(future=future):
                self._rest(future)
            case Compact(future=future):
                self._compact(future)
            case Forget(fact=fact, future=future):
                check_known(self._cell.id, self._awake.state, fact)
                self._awake.ledger.record(fact)
                answer_when_durable(self._cell, future, None)

    # --------------------------------------------------------------- runs and turns

    def _want(self, wanted: RunWanted) -> None:
        cell, awake = self._cell, self._awake
        options = options_of(awake.agent, wanted.choices)
        run = awake.state.run
        if run is not None and run.quarantined is not None and not run.over:
            wanted.future.set(quarantine_outcome(awake))
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
        del options  # they were checked; they are made again when its turn comes
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
        standing = awake.agent.runner.standing(awake.state) if awake.task is None else None
        if standing is not None:
            future.set(standing)
            return
        awake.waiters += (future,)
        if awake.task is None:
            self._drive(awake.agent.runner.go_on(awake.ledger, host=self._cell.host()))

    def _send(self, sent: Send) -> None:
        cell, awake = self._cell, self._awake
        state = awake.state
        if sent.message_id in state.message_ids:
            answer_when_durable(cell, sent.future, sent.message_id)
            return
        awake.ledger.record(
            MessageQueued(
                message_id=sent.message_id,
                message=sent.message,
                steer=sent.steer,
                self_sent=sent.self_sent,
            )
        )
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
            self._rest_as(Status(state.status))
            if state.queue and not cell.home.closing and cell.status is Status.IDLE:
                self._start_next()
        elif run.quarantined is not None:
            cell.set_status(Status.FAILED)
        elif run.cancelled is not None:
            signal = StopSignal.from_dict(run.cancelled)
            self._drive(awake.agent.runner.stop(awake.ledger, signal, host=cell.host()))
        elif state.requests and not awake.waiters and not is_busy(state):
            cell.set_status(Status.INTERRUPTED)
        elif state.pause is not None and not awake.waiters:
            cell.set_status(Status.PAUSED)
        elif run.fruitless >= MAX_FRUITLESS:
            self._quarantine("the process went away")
        else:
            self._drive(awake.agent.runner.go_on(awake.ledger, host=cell.host()))

    def _rest_as(self, status: Status) -> None:
        at_rest = (Status.IDLE, Status.FAILED, Status.CANCELLED)
        self._cell.set_status(status if status in at_rest else Status.IDLE)

    def _drive(
        self, coroutine: Coroutine[Any, Any, Outcome], callers: tuple[str, ...] = ()
    ) -> None:
        self._awake.halting = False
        self._cell.set_status(Status.RUNNING)
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
        if not more:
            cell.set_status(status_after(outcome))
        cell.settle(outcome)
        if awake.rest_wanted or (awake.compact_wanted and not more):
            self._lie_down()
        elif more:
            self._start_next()

    def _has_more(self, *, clean: bool) -> bool:
        """Whether another run follows at once, without an idle moment between (A2, A4)."""
        awake = self._awake
        run, queue = awake.state.run, awake.state.queue
        if run is not None and not run.over:
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
        told = bool(self._awake.waiters)
        self._rest_as(Status(self._awake.state.status) if told else Status.FAILED)
        cell.refuse(crash)
        if self._awake.waiting:
            self._start_next()

    def _lose_store(self, error: JournalFailed) -> None:
        """What is in memory may be ahead of the store: drop it, tell everybody (J16, J6).

        No failure of the actor: nobody restarts it. The next message reads the agent back, and
        it goes on from what the store has.
        """
        logger.error("agent %r is put out of memory: %s", self._cell.id, error)
        self._cell.refuse_all(error)
        self._awake.journal.fence("its store failed")
        self._lying_down = True
        self.stop()

    def _quarantine(self, cause: str) -> None:
        awake = self._awake
        awake.ledger.record(Quarantined(cause=cause))
        self._cell.set_status(Status.FAILED)
        outcome = quarantine_outcome(awake)
        for future in awake.waiting_futures():
            answer_when_durable(self._cell, future, outcome)

    def _rest(self, future: Future[bool]) -> None:
        awake = self._awake
        awake.rest_wanted += (future,)
        if awake.task is not None:
            awake.halting = True
        else:
            self._lie_down()

    def _lie_down(self) -> None:
        """Stop, once all is durable. What is in the inbox stays there for the next actor."""
        self._lying_down = True
        self._awake.ledger.lasts = False
        if not self._awake.ledger.behind:
            self.stop()
            return

        async def settle_down() -> None:
            try:
                await self._awake.ledger.durable()
            except JournalFailed as error:
                logger.error("agent %r lies down unrecorded: %s", self._cell.id, error)
            self.actor_ref.stop(block=False)

        self._cell.keep(settle_down())

    # --------------------------------------------------------------------- answers

    def _resume(self, answer: Resume) -> None:
        cell, awake = self._cell, self._awake
        runner, state = awake.agent.runner, awake.state
        if state.run is None:
            raise NotInterrupted(f"Agent {cell.id!r} has had no run: there is nothing to answer")
        new = runner.check_decisions(state, answer.decisions, cell.home.clock)
        if state.run.over:
            answer.future.set(runner.ended(state))
            return
        if awake.task is not None and new:
            raise NotInterrupted(f"Agent {cell.id!r} is running: nothing waits for this answer yet")
        awake.waiters += (answer.future,)
        if awake.task is None:
            decide(awake.ledger, new, cell.home.clock)
            self._drive(runner.go_on(awake.ledger, host=cell.host()))

    def _cancel(self, cancel: Cancel) -> None:
        cell, awake = self._cell, self._awake
        run = awake.state.run
        awake.pause_reason = None
        if awake.beginning:  # the run that stands, if one does, is withdrawn by this one
            awake.early_cancel = cancel.signal
            awake.waiters += (cancel.future,)
            return
        if run is None or run.over:
            cancel.future.set(None)
            return
        awake.waiters += (cancel.future,)
        if run.cancelled is None:
            awake.ledger.record(CancelRequested(signal=cancel.signal.to_dict()))
        if awake.task is not None:
            awake.task.cancel()
        else:
            runner = awake.agent.runner
            self._drive(runner.stop(awake.ledger, cancel.signal, host=cell.host()))

    def _unpause(self, future: Future[None]) -> None:
        awake = self._awake
        awake.pause_reason = None
        run = awake.state.run
        stands = run is not None and not run.over and awake.state.pause is not None
        if awake.task is None and stands:
            unpause(awake.ledger)
            self._drive(awake.agent.runner.go_on(awake.ledger, host=self._cell.host()))
        answer_when_durable(self._cell, future, None)

    def _retry(self, future: Future[Outcome]) -> None:
        cell, awake = self._cell, self._awake
        run = awake.state.run
        if run is None or run.over or run.quarantined is None:
            raise NotInterrupted(f"Agent {cell.id!r} is not quarantined: there is nothing to retry")
        awake.ledger.record(Released())
        awake.waiters += (future,)
        self._drive(awake.agent.runner.go_on(awake.ledger, host=cell.host()))

    def _compact(self, future: Future[None]) -> None:
        """Lie down for it, after the run that goes on: then nobody writes."""
        self._awake.compact_wanted += (future,)
        if self._awake.task is None:
            self._lie_down()

    # ------------------------------------------------------------------- idle time

    def _start_timer(self) -> None:
        awake = self._cell.awake
        if awake is None:
            return
        own = awake.agent.definition.idle_timeout
        timeout = self._cell.home.idle_timeout if own == "runtime" else own
        if timeout is None or awake.task is not None or self._lying_down:
            return
        if not self.actor_stopped.is_set():
            self._idle_timer = self.loop.call_later(timeout, self._passivate)

    def _stop_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _passivate(self) -> None:
        """Nothing happened for the idle timeout (A5)."""
        awake = self._awake
        if awake.task is None and not self._cell.inbox and awake.finished is None:
            self._lie_down()


class RunCrashed(UnderstudyError):
    """A run's task died, so its actor does: the supervisor starts another one, which goes on."""

    agent_id: str

    def __init__(self, agent_id: str) -> None:
        super().__init__(f"the run of agent {agent_id!r} crashed", agent_id=agent_id)
