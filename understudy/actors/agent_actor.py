"""`AgentActor`: runs one agent. Its mailbox answers at once, for the run is a task of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pykka

from understudy.actors.activation import wake_up
from understudy.actors.agent_events import Status
from understudy.actors.agent_slot import AgentCell
from understudy.actors.messages import (
    AgentMessage,
    Await,
    Cancel,
    Compact,
    Delete,
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
from understudy.actors.replies import answer_when_durable, check_known, notify, quarantine_outcome
from understudy.actors.run_driver import AgentRuns
from understudy.agent.runner import decide, unpause
from understudy.errors import (
    JournalFailed,
    NotInterrupted,
    OtherAgent,
    RecordRefused,
    StoreError,
    UnderstudyError,
    UnknownAgent,
)
from understudy.loop_actors.future import Future, refuse
from understudy.outcomes import Outcome
from understudy.run.hooks import HookFailed
from understudy.state.records import CancelRequested, Released

__all__ = ["AgentActor"]

logger = logging.getLogger(__name__)

WAKE = object()
"""The one message of an agent actor: there is something to look at in its cell."""


class AgentActor(AgentRuns):
    """The actor of one agent id; what must outlive it is in its `AgentCell`."""

    def __init__(self, cell: AgentCell) -> None:
        super().__init__(cell)
        self._idle_timer: asyncio.TimerHandle | None = None
        self._loading: asyncio.Task[None] | None = None
        self._up = False
        self._fresh = True
        """It has looked at no message yet."""

    def on_start(self) -> None:
        """Wake up: read the agent back, unless an actor before this one left it in memory."""
        cell = self._cell
        cell.actor_ref = self.actor_ref
        self.actor_ref.monitor(cell.ended)
        if cell.awake is None:
            self._loading = self.loop.create_task(self._load(), name=f"waking {cell.id}")
        else:
            self._recorded(self._get_up)

    def on_receive(self, message: Any) -> None:
        """Handle everything in the inbox."""
        if message is not WAKE:
            super().on_receive(message)
        elif self._up:
            self._recorded(self._attend)
        elif self._loading is not None and self._loading.done():
            self._recorded(self._get_up)
        # else it is still being read back: the inbox waits

    def _recorded(self, do: Callable[[], None]) -> None:
        """Do it; a store that cannot keep what comes of it is no failure of the actor (J6)."""
        try:
            do()
        except JournalFailed as error:
            self._lose_store(error)

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
        except Exception as failure:  # told to all who wait; the next message tries again
            error = failure.error if isinstance(failure, HookFailed) else failure
            if not isinstance(error, UnderstudyError):
                logger.exception("agent %r could not be woken", cell.id)
            if self.actor_stopped.is_set():
                return
            self._lying_down = True
            cell.refuse_all(error)
            if isinstance(error, OtherAgent):
                cell.agent = cell.values = None  # the id is that agent's: `get` finds it
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
        self._fresh = False
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
                refuse(message.future, error)
                if isinstance(error, JournalFailed) and not isinstance(error, RecordRefused):
                    self._lose_store(error)
        if not self._lying_down:
            self._lie_down_if_wanted()
        self._start_timer()

    def _lie_down_if_wanted(self) -> None:
        """However the drive ended that somebody waited for."""
        awake = self._awake
        wanted = awake.rest_wanted or awake.delete_wanted or awake.compact_wanted
        if wanted and awake.task is None and awake.finished is None:
            self._lie_down()

    def _check_owner(self) -> None:
        """Leave the agent alone where another runtime may have it (J8)."""
        awake = self._awake
        if awake.task is None and awake.finished is None:
            try:
                awake.journal.check_owner()
            except StoreError as error:
                if self._fresh:  # to read it back does not help
                    self._cell.refuse_all(error)
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
                self._unpause()
                answer_when_durable(self._cell, future, None)
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
            case Delete():
                self._delete(message)
            case Forget(fact=fact, future=future):
                check_known(self._cell.id, self._awake.state, fact)
                self._awake.ledger.record(fact)
                answer_when_durable(self._cell, future, None)

    # ------------------------------------------------------------------ lying down

    def _rest(self, future: Future[bool]) -> None:
        awake = self._awake
        awake.rest_wanted += (future,)
        if awake.task is not None:
            awake.halting = True
        else:
            self._lie_down()

    # --------------------------------------------------------------------- answers

    def _resume(self, answer: Resume) -> None:
        cell, awake = self._cell, self._awake
        runner, state = awake.agent.runner, awake.state
        if state.run is None:
            raise NotInterrupted(f"Agent {cell.id!r} has had no run: there is nothing to answer")
        new = runner.check_decisions(state, answer.decisions, cell.home.clock)
        if state.run.quarantined is not None and not state.run.over:
            answer_when_durable(cell, answer.future, quarantine_outcome(awake))
            return
        if state.run.over:
            answer.future.set(runner.ended(state))
            return
        if awake.task is not None and new:
            raise NotInterrupted(f"Agent {cell.id!r} is running: nothing waits for this answer yet")
        if awake.task is None:
            decide(awake.ledger, new, cell.home.clock)
            self._drive_on()
        awake.waiters += (answer.future,)

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
        if run.cancelled is None:
            awake.ledger.record(CancelRequested(signal=cancel.signal.to_dict()))
        if awake.task is not None:
            awake.task.cancel()
        else:
            runner = awake.agent.runner
            self._drive(runner.stop(awake.ledger, cancel.signal, host=cell.host_to_go_on()))
        awake.waiters += (cancel.future,)

    def _unpause(self) -> None:
        cell, awake = self._cell, self._awake
        awake.pause_reason = None
        run = awake.state.run
        if run is None or run.over or run.quarantined is not None or awake.task is not None:
            return
        # A run that lacks its deps stands still too, but not by anything that is recorded (J12).
        if awake.state.pause is not None or cell.status is Status.PAUSED:
            unpause(awake.ledger)
            self._drive_on()

    def _retry(self, future: Future[Outcome]) -> None:
        cell, awake = self._cell, self._awake
        run = awake.state.run
        if run is None or run.over or run.quarantined is None:
            raise NotInterrupted(f"Agent {cell.id!r} is not quarantined: there is nothing to retry")
        awake.ledger.record(Released())
        self._drive_on()
        awake.waiters += (future,)

    def _compact(self, future: Future[None]) -> None:
        """Lie down for it, after the run that goes on: then nobody writes."""
        self._awake.compact_wanted += (future,)
        if self._awake.task is None:
            self._lie_down()

    def _delete(self, delete: Delete) -> None:
        """Lie down for it, after the run that goes on is cancelled: nothing follows it."""
        cell, awake = self._cell, self._awake
        awake.delete_wanted += (delete.future,)
        waiting, awake.waiting = awake.waiting, []
        for wanted, _ in waiting:
            refuse(wanted.future, UnknownAgent(agent_id=cell.id))
        if awake.task is None:
            self._lie_down()
        else:
            self._cancel(Cancel(delete.signal, Future()))

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
        if awake.told:
            self._start_timer()
        elif awake.task is None and not self._cell.inbox and awake.finished is None:
            self._lie_down()
