"""`AgentActor`: runs one agent. Its mailbox answers at once, for the run is a task of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.messages import ModelRequest

from understudy.actors.agent_events import SelfRunsBounded, Status
from understudy.actors.cell import AgentCell, Finished, RunWanted, running_agents
from understudy.actors.future import Future
from understudy.actors.loop_actor import LoopActor
from understudy.errors import NotInterrupted, Quarantined, UnderstudyError, UsageError
from understudy.outcomes import Completed, Failed, Interrupted, Outcome, Paused, Stopped
from understudy.records import CancelRequested, MessageQueued, Revoked, Settled
from understudy.run import Halted
from understudy.runner import Decisions, RunOptions, decide, unpause
from understudy.stopping import StopReason, StopSignal

__all__ = ["AgentActor"]

logger = logging.getLogger(__name__)

MAX_SELF_RUNS = 10
"""So many runs in a row may an agent start by messages to itself (A4)."""
MAX_FRUITLESS = 3
"""So many crashes without any progress, and the run is quarantined (J10)."""

WAKE = object()
"""The one message of an agent actor: there is something in the inbox of its cell."""


# ----------------------------------------------------------------- what it is asked


@dataclass(frozen=True, slots=True)
class Send:
    """Queue a message, and run it when its turn comes."""

    message: ModelRequest
    message_id: str
    steer: bool
    self_sent: bool
    future: Future[str]


@dataclass(frozen=True, slots=True)
class Resume:
    """Answer requests."""

    decisions: Decisions
    future: Future[Outcome]


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the run that goes on, or stands."""

    signal: StopSignal
    future: Future[Outcome | None]


@dataclass(frozen=True, slots=True)
class Pause:
    """Hold the run after the next model reply."""

    reason: str
    future: Future[None]


@dataclass(frozen=True, slots=True)
class Unpause:
    """Let it go on."""

    future: Future[None]


@dataclass(frozen=True, slots=True)
class Retry:
    """Release a quarantined run."""

    future: Future[Outcome]


@dataclass(frozen=True, slots=True)
class Look:
    """Read something of the agent between two messages."""

    future: Future[Any]
    what: Any


@dataclass(frozen=True, slots=True)
class Rest:
    """Lie down, once the step in progress is recorded."""

    future: Future[bool]


@dataclass(frozen=True, slots=True)
class Forget:
    """Record that a standing answer, or a doubt, is over."""

    fact: Revoked | Settled
    future: Future[None]


class AgentActor(LoopActor):
    """The actor of one agent id; what must outlive it is in its `AgentCell`."""

    def __init__(self, cell: AgentCell) -> None:
        super().__init__()
        self._cell = cell
        self._idle_timer: asyncio.TimerHandle | None = None
        self._lying_down = False

    def on_start(self) -> None:
        """Wake up: look at what a drive left, or go on with a run that was cut off (A3)."""
        cell = self._cell
        cell.actor_ref = self.actor_ref
        self.actor_ref.monitor(cell.ended)
        if cell.finished is not None:
            self._after_drive(starting=True)
        elif cell.task is None:
            self._take_up()
        self._attend()

    def on_receive(self, message: Any) -> None:
        """Handle everything in the inbox."""
        if message is WAKE:
            self._attend()
        else:
            super().on_receive(message)

    def on_stop(self) -> None:
        """Lie down: nothing is lost, the next message wakes the agent (see `AgentCell.ended`)."""
        self._stop_timer()

    # ------------------------------------------------------------------- the inbox

    def _attend(self) -> None:
        cell = self._cell
        self._stop_timer()
        if cell.finished is not None:
            self._after_drive()
        while cell.inbox and not self._lying_down:
            message = cell.inbox.popleft()
            try:
                self._handle(message)
            except Exception as error:
                # Ours to answer, whatever it is: the caller must not wait for ever.
                if not isinstance(error, UnderstudyError):
                    logger.exception("agent %r could not handle %r", cell.id, type(message))
                message.future.set_exception((type(error), error, error.__traceback__))
        self._start_timer()

    def _handle(self, message: Any) -> None:
        match message:
            case RunWanted():
                self._want(message)
            case Send():
                self._send(message)
            case Resume():
                self._resume(message)
            case Cancel():
                self._cancel(message)
            case Pause(reason=reason, future=future):
                self._cell.pause_reason = reason
                future.set(None)
            case Unpause():
                self._unpause(message)
            case Retry():
                self._retry(message)
            case Look(future=future, what=what):
                future.set(what(self._cell))
            case Rest(future=future):
                self._rest(future)
            case Forget(fact=fact, future=future):
                _check_known(self._cell, fact)
                self._cell.ledger.record(fact)
                future.set(None)
            case _:
                raise TypeError(f"no message of an agent: {message!r}")

    # --------------------------------------------------------------- runs and turns

    def _want(self, wanted: RunWanted) -> None:
        cell = self._cell
        if cell.quarantined is not None:
            wanted.future.set(self._quarantine_outcome())
            return
        first = cell.asked.get(wanted.message_id)
        if first is not None and not _refused(first):
            self.loop.create_task(_mirrored(first, wanted.future))
            return
        if first is None and wanted.message_id in cell.state.message_ids:
            self._attach(wanted)
            return
        stands = cell.resting in (Status.INTERRUPTED, Status.PAUSED) and cell.task is None
        if stands and wanted.refuse_if_interrupted:
            raise NotInterrupted(
                f"Agent {cell.id!r} waits for a person: answer its requests first, or leave "
                "if_interrupted='withdraw'"
            )
        cell.self_runs = 0
        if wanted.named:
            cell.asked[wanted.message_id] = wanted.future
        if stands:
            cell.pause_reason = None  # it held the run that this one withdraws
        cell.waiting.append((wanted, tuple(cell.state.queue)))
        if cell.task is None:
            self._start_next()

    def _attach(self, wanted: RunWanted) -> None:
        """The message was sent before: its run is this one's, whenever it comes (J14)."""
        cell = self._cell
        queued = wanted.message_id in cell.state.queue
        if cell.task is not None and not queued:
            cell.waiters.append(wanted.future)
        elif queued:
            cell.waiting.append((replace(wanted, message=None), tuple(cell.state.queue)))
            if cell.task is None:
                self._start_next()
        else:
            run = cell.state.run
            if run is not None and run.over:
                wanted.future.set(cell.agent.runner.ended(cell.state))
            else:
                cell.waiters.append(wanted.future)

    def _send(self, sent: Send) -> None:
        cell = self._cell
        if sent.message_id in cell.state.message_ids:
            sent.future.set(sent.message_id)
            return
        cell.ledger.record(
            MessageQueued(
                message_id=sent.message_id,
                message=sent.message,
                steer=sent.steer,
                self_sent=sent.self_sent,
            )
        )
        sent.future.set(sent.message_id)
        if not sent.self_sent:
            cell.self_runs = 0
        held = sent.self_sent and cell.resting in (Status.INTERRUPTED, Status.PAUSED)
        if cell.task is None and cell.quarantined is None and not held:
            self._start_next()

    def _start_next(self) -> None:
        """The run that waits longest, with what was queued before it; else all of the queue."""
        cell = self._cell
        wanted, ahead = cell.waiting.popleft() if cell.waiting else (None, tuple(cell.state.queue))
        self._start_run(wanted, ahead)

    def _start_run(self, wanted: RunWanted | None, ahead: tuple[str, ...]) -> None:
        """Start a run with what is queued and, last, what somebody waits for (A2)."""
        cell = self._cell
        queued = [item for key, item in cell.state.queue.items() if key in ahead]
        parts = [part for item in queued for part in item.message.parts]
        options = RunOptions(max_runs=cell.agent.definition.max_runs)
        ids = [item.message_id for item in queued]
        if wanted is not None:
            options = wanted.options
            if wanted.message is not None:
                parts += wanted.message.parts
                ids.append(wanted.message_id)
            cell.waiters.append(wanted.future)
        message = ModelRequest(parts=parts, timestamp=cell.clock.now())
        callers = wanted.callers if wanted is not None else ()
        self._drive(self._run_begun(message, options, tuple(ids)), callers)

    async def _run_begun(
        self, message: ModelRequest, options: RunOptions, ids: tuple[str, ...]
    ) -> Outcome:
        cell = self._cell
        runner = cell.agent.runner
        await runner.check_start(cell.state)
        return await runner.begin(
            cell.ledger,
            message,
            options=options,
            host=cell.host(),
            message_ids=ids,
            signal=self._early_cancel,
        )

    def _early_cancel(self) -> StopSignal | None:
        signal, self._cell.early_cancel = self._cell.early_cancel, None
        return signal

    def _take_up(self) -> None:
        """Go on with a run that is open and neither asks nor stands still."""
        cell = self._cell
        run = cell.state.run
        if cell.closing or run is None or run.over or cell.quarantined is not None:
            cell.set_status(cell.resting if cell.resting is not Status.RUNNING else Status.IDLE)
        elif run.cancelled is not None:
            signal = StopSignal.from_dict(run.cancelled)
            self._drive(cell.agent.runner.stop(cell.ledger, signal, host=cell.host()))
        elif cell.state.pause is not None and not cell.waiters:
            cell.set_status(Status.PAUSED)
        elif cell.state.requests and not cell.waiters:
            cell.set_status(Status.INTERRUPTED)
        else:
            self._drive(cell.agent.runner.go_on(cell.ledger, host=cell.host()))

    def _drive(
        self, coroutine: Coroutine[Any, Any, Outcome], callers: tuple[str, ...] = ()
    ) -> None:
        cell = self._cell
        cell.halting = False
        cell.set_status(Status.RUNNING)
        task = self.loop.create_task(_driven(cell, coroutine, callers), name=f"agent {cell.id}")
        cell.task = task
        task.add_done_callback(lambda _: _never_driven(cell, task, coroutine))

    def _after_drive(self, *, starting: bool = False) -> None:
        """A drive is over: tell what came of it, then do what waits."""
        cell = self._cell
        finished, cell.finished = cell.finished, None
        assert finished is not None, "only called with a drive that ended"
        if finished.crash is not None:
            self._after_crash(finished.crash, starting=starting)
            return
        outcome = finished.outcome
        if outcome is None:  # halted between two steps
            self._lie_down()
            return
        status = _status_after(outcome)
        clean = isinstance(outcome, Completed)
        more = self._has_more(clean)
        if not more:
            cell.set_status(status)
        else:
            cell.resting = status
        cell.settle(outcome)
        if cell.rest_wanted:
            self._lie_down()
        elif more:
            self._start_next()

    def _has_more(self, clean: bool) -> bool:
        """Whether another run follows at once, without an idle moment between (A2, A4)."""
        cell = self._cell
        run = cell.state.run
        if run is not None and not run.over:
            return False  # it asks, or stands still: all else waits
        if cell.waiting:
            return True
        if not clean or not cell.state.queue:
            return False
        if all(item.self_sent for item in cell.state.queue.values()):
            cell.self_runs += 1
            if cell.self_runs > MAX_SELF_RUNS:
                cell.log.tell(SelfRunsBounded(runs=MAX_SELF_RUNS))
                return False
        return True

    def _after_crash(self, crash: BaseException, *, starting: bool) -> None:
        """Die of it, so that the supervisor starts a new actor, which goes on (A3)."""
        cell = self._cell
        run = cell.state.run
        if cell.closing:
            self._lie_down()
        elif run is None or run.over:
            # It could not even begin: whoever waits is told, and if nobody does, the status tells.
            told = bool(cell.waiters)
            rest = cell.resting if cell.resting is not Status.RUNNING else Status.IDLE
            cell.set_status(rest if told else Status.FAILED)
            cell.refuse(crash)
            if cell.waiting:
                self._start_next()
        elif run.cancelled is not None:
            self._take_up()  # cancelled before its first step
        elif run.fruitless >= MAX_FRUITLESS:
            cause = f"{type(crash).__name__}: {crash}"
            cell.quarantined = Quarantined(attempts=run.fruitless, cause=cause)
            cell.set_status(Status.FAILED)
            cell.waiters += [wanted.future for wanted, _ in cell.waiting]
            cell.waiting.clear()
            cell.settle(self._quarantine_outcome())
        elif starting:
            self._take_up()
        else:
            raise RunCrashed(cell.id) from crash

    def _quarantine_outcome(self) -> Failed:
        cell = self._cell
        run = cell.state.run
        assert run is not None, "what is quarantined is a run"
        assert cell.quarantined is not None, "only called for a quarantined run"
        return Failed(
            error=cell.quarantined, run_id=run.run_id, state=cell.state.copied(), usage=run.usage
        )

    def _rest(self, future: Future[bool]) -> None:
        cell = self._cell
        cell.rest_wanted.append(future)
        if cell.task is not None:
            cell.halting = True
        else:
            self._lie_down()

    def _lie_down(self) -> None:
        self._lying_down = True  # what is in the inbox stays there for the next actor
        self.stop()

    # --------------------------------------------------------------------- answers

    def _resume(self, answer: Resume) -> None:
        cell = self._cell
        runner = cell.agent.runner
        state = cell.state
        if state.run is None:
            raise NotInterrupted(f"Agent {cell.id!r} has had no run: there is nothing to answer")
        new = runner.check_decisions(state, answer.decisions, cell.clock)
        if state.run.over:
            answer.future.set(runner.ended(state))
            return
        if cell.task is not None and new:
            raise NotInterrupted(f"Agent {cell.id!r} is running: nothing waits for this answer yet")
        cell.waiters.append(answer.future)
        if cell.task is None:
            decide(cell.ledger, new, cell.clock)
            self._drive(runner.go_on(cell.ledger, host=cell.host()))

    def _cancel(self, cancel: Cancel) -> None:
        cell = self._cell
        run = cell.state.run
        cell.quarantined = None
        cell.pause_reason = None
        if run is None or run.over:
            if cell.task is None:
                cancel.future.set(None)
            else:  # the run is about to begin
                cell.early_cancel = cancel.signal
                cell.waiters.append(cancel.future)  # type: ignore[arg-type]  # as below
            return
        cell.waiters.append(cancel.future)  # type: ignore[arg-type]  # an outcome is an answer to it
        if run.cancelled is None:
            cell.ledger.record(CancelRequested(signal=cancel.signal.to_dict()))
        if cell.task is not None:
            cell.task.cancel()
        else:
            runner = cell.agent.runner
            self._drive(runner.stop(cell.ledger, cancel.signal, host=cell.host()))

    def _unpause(self, message: Unpause) -> None:
        cell = self._cell
        cell.pause_reason = None
        run = cell.state.run
        message.future.set(None)
        if cell.task is None and run is not None and not run.over and cell.state.pause is not None:
            unpause(cell.ledger)
            self._drive(cell.agent.runner.go_on(cell.ledger, host=cell.host()))

    def _retry(self, message: Retry) -> None:
        cell = self._cell
        if cell.quarantined is None:
            raise NotInterrupted(f"Agent {cell.id!r} is not quarantined: there is nothing to retry")
        cell.quarantined = None
        run = cell.state.run
        assert run is not None, "what is quarantined is a run"
        run.fruitless = 0
        cell.waiters.append(message.future)
        self._drive(cell.agent.runner.go_on(cell.ledger, host=cell.host()))

    # ------------------------------------------------------------------- idle time

    def _start_timer(self) -> None:
        cell = self._cell
        if cell.idle_timeout is not None and cell.task is None and not self.actor_stopped.is_set():
            self._idle_timer = self.loop.call_later(cell.idle_timeout, self._passivate)

    def _stop_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _passivate(self) -> None:
        """Nothing happened for the idle timeout (A5)."""
        cell = self._cell
        if cell.task is None and not cell.inbox and cell.finished is None:
            self._lie_down()


class RunCrashed(UnderstudyError):
    """A run's task died, so its actor does: the supervisor starts another one, which goes on."""

    agent_id: str

    def __init__(self, agent_id: str) -> None:
        super().__init__(f"the run of agent {agent_id!r} crashed", agent_id=agent_id)


async def _driven(
    cell: AgentCell, coroutine: Coroutine[Any, Any, Outcome], callers: tuple[str, ...]
) -> None:
    """Drive to an outcome and leave it in the cell. Nothing escapes: it would end the loop."""
    running_agents.set((*callers, cell.id))
    try:
        finished = Finished(outcome=await coroutine)
    except Halted:
        finished = Finished()
    except asyncio.CancelledError as error:
        finished = await _cancelled(cell, error)
    except BaseException as error:
        logger.warning("the run of agent %r crashed: %r", cell.id, error)
        finished = Finished(crash=error)
    cell.task, cell.finished = None, finished
    cell.wake(cell)


def _never_driven(
    cell: AgentCell, task: asyncio.Task[None], coroutine: Coroutine[Any, Any, Outcome]
) -> None:
    """Cancelled before its first step, so nothing of `_driven` ran."""
    if cell.task is task:
        coroutine.close()
        cell.task, cell.finished = None, Finished(crash=asyncio.CancelledError())
        cell.wake(cell)


async def _mirrored(first: Future[Outcome], second: Future[Outcome]) -> None:
    try:
        second.set(await first)
    except Exception as error:
        second.set_exception((type(error), error, error.__traceback__))


def _refused(future: Future[Outcome]) -> bool:
    """Whether the run under this future never began: its message id is free again."""
    if not future.done():
        return False
    try:
        future.get()
    except Exception:
        return True
    return False


def _check_known(cell: AgentCell, fact: Revoked | Settled) -> None:
    known, wanted = (
        (cell.state.sticky, fact.tool_name)
        if isinstance(fact, Revoked)
        else (cell.state.doubts, fact.call_key)
    )
    if wanted not in known:
        there = ", ".join(map(repr, known)) or "none"
        raise UsageError(f"Agent {cell.id!r} has nothing standing for {wanted!r}; it has: {there}")


async def _cancelled(cell: AgentCell, error: BaseException) -> Finished:
    """Only a recorded wish makes a run cancelled; any other cancellation is a crash (J13)."""
    run = cell.state.run
    if run is None or run.cancelled is None:
        return Finished(crash=error)
    if run.over:
        return Finished(outcome=cell.agent.runner.ended(cell.state))
    signal = StopSignal.from_dict(run.cancelled)
    return Finished(outcome=await cell.agent.runner.stop(cell.ledger, signal, host=cell.host()))


def _status_after(outcome: Outcome) -> Status:
    match outcome:
        case Completed():
            return Status.IDLE
        case Interrupted():
            return Status.INTERRUPTED
        case Paused():
            return Status.PAUSED
        case Failed():
            return Status.FAILED
        case Stopped(signals=signals):
            highest = signals.highest
            asked = highest is not None and highest.reason is StopReason.USER_REQUESTED
            return Status.CANCELLED if asked else Status.IDLE
