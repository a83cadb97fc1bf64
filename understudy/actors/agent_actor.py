"""`AgentActor`: runs one agent. Its mailbox answers at once, for the run is a task of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pykka

from understudy.actors.activation import activate
from understudy.actors.agent_events import Status
from understudy.actors.agent_slot import AgentSlot
from understudy.actors.messages import (
    AgentMessage,
    Cancel,
    Compact,
    Delete,
    Notify,
    Passivate,
    Pause,
    Query,
    RecordFact,
    Resume,
    Retry,
    RunRequest,
    Send,
    Unpause,
    WaitOutcome,
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
    """The actor of one agent id; what must outlive it is in its `AgentSlot`."""

    def __init__(self, slot: AgentSlot) -> None:
        super().__init__(slot)
        self._idle_timer: asyncio.TimerHandle | None = None
        self._loading: asyncio.Task[None] | None = None
        self._up = False
        self._fresh = True
        """It has looked at no message yet."""

    def on_start(self) -> None:
        """Wake up: read the agent back, unless an actor before this one left it in memory."""
        slot = self._slot
        slot.actor_ref = self.actor_ref
        self.actor_ref.monitor(slot.ended)
        if slot.activation is None:
            self._loading = self.loop.create_task(self._load(), name=f"waking {slot.id}")
        else:
            self._recorded(self._activate_agent)

    def on_receive(self, message: Any) -> None:
        """Handle everything in the inbox."""
        if message is not WAKE:
            super().on_receive(message)
        elif self._up:
            self._recorded(self._attend)
        elif self._loading is not None and self._loading.done():
            self._recorded(self._activate_agent)
        # else it is still being read back: the inbox waits

    def _recorded(self, do: Callable[[], None]) -> None:
        """Do it; a store that cannot keep what comes of it is no failure of the actor (J6)."""
        try:
            do()
        except JournalFailed as error:
            self._lose_store(error)

    def on_stop(self) -> None:
        """Lie down: nothing is lost, the next message wakes the agent (see `AgentSlot.ended`)."""
        self._stop_timer()
        if self._loading is not None:
            self._loading.cancel()

    # ---------------------------------------------------------------------- waking up

    async def _load(self) -> None:
        slot = self._slot
        try:
            activation = await activate(
                slot.id,
                slot.agent,
                slot.services,
                values=slot.values,
                listener=slot.log.tell,
                on_fact=slot.tell_fact,
            )
            if self.actor_stopped.is_set():
                return  # it was ended meanwhile: another one reads the agent back
            slot.agent, slot.activation = activation.agent, activation
            if slot.waiting is not None:
                activation.attach_waiters(slot.waiting)
                slot.waiting = None
            for hook in activation.agent.definition.hooks.on_start:
                await hook(slot.services.threads, slot.services.ref_of(slot))
        except Exception as failure:  # told to all who wait; the next message tries again
            error = failure.error if isinstance(failure, HookFailed) else failure
            if not isinstance(error, UnderstudyError):
                logger.exception("agent %r could not be woken", slot.id)
            if self.actor_stopped.is_set():
                return
            self._passivating = True
            slot.refuse_all(error)
            if isinstance(error, OtherAgent):
                slot.agent = slot.values = None  # the id is that agent's: `get` finds it
        with contextlib.suppress(pykka.ActorDeadError):  # it was ended while a hook ran
            self.actor_ref.tell(WAKE)

    def _activate_agent(self) -> None:
        """Look at what a drive left, or go on with a run that was cut off (A3)."""
        self._up, self._loading = True, None
        if self._passivating:  # it could not be read
            self.stop()
            return
        if self._activation.finished is not None:
            self._after_drive(starting=True)
        elif self._activation.task is None:
            self._take_up()
        self._attend()

    # ------------------------------------------------------------------- the inbox

    def _attend(self) -> None:
        slot = self._slot
        self._stop_timer()
        if not self._passivating:
            self._check_owner()
        self._fresh = False
        if not self._passivating and self._activation.finished is not None:
            self._after_drive()
        while slot.inbox and not self._passivating:
            message = slot.inbox.pop(0)
            try:
                self._handle(message)
            except Exception as error:
                # Ours to answer, whatever it is: the caller must not wait for ever.
                if not isinstance(error, UnderstudyError):
                    logger.exception("agent %r could not handle %r", slot.id, type(message))
                refuse(message.future, error)
                if isinstance(error, JournalFailed) and not isinstance(error, RecordRefused):
                    self._lose_store(error)
        if not self._passivating:
            self._passivate_if_requested()
        self._start_timer()

    def _passivate_if_requested(self) -> None:
        """However the drive ended that somebody waited for."""
        activation = self._activation
        wanted = (
            activation.passivate_futures or activation.delete_futures or activation.compact_futures
        )
        if wanted and activation.task is None and activation.finished is None:
            self._passivate()

    def _check_owner(self) -> None:
        """Leave the agent alone where another runtime may have it (J8)."""
        activation = self._activation
        if activation.task is None and activation.finished is None:
            try:
                activation.journal.check_owner()
            except StoreError as error:
                if self._fresh:  # to read it back does not help
                    self._slot.refuse_all(error)
                self._lose_store(error)

    def _handle(self, message: AgentMessage) -> None:
        match message:
            case RunRequest():
                self._want(message)
            case Send():
                self._send(message)
            case Resume():
                self._resume(message)
            case WaitOutcome(future=future):
                self._await(future)
            case Cancel():
                self._cancel(message)
            case Pause(reason=reason, future=future):
                self._activation.pause_reason = reason
                future.set(None)
            case Unpause(future=future):
                self._unpause()
                answer_when_durable(self._slot, future, None)
            case Retry(future=future):
                self._retry(future)
            case Query(future=future, what=what):
                answer_when_durable(self._slot, future, what(self._activation))
            case Notify():
                notify(self._slot, message)
            case Passivate(future=future):
                self._rest(future)
            case Compact(future=future):
                self._compact(future)
            case Delete():
                self._delete(message)
            case RecordFact(fact=fact, future=future):
                check_known(self._slot.id, self._activation.state, fact)
                self._activation.ledger.record(fact)
                answer_when_durable(self._slot, future, None)

    # ------------------------------------------------------------------ lying down

    def _rest(self, future: Future[bool]) -> None:
        activation = self._activation
        activation.passivate_futures += (future,)
        if activation.task is not None:
            activation.halting = True
        else:
            self._passivate()

    # --------------------------------------------------------------------- answers

    def _resume(self, answer: Resume) -> None:
        slot, activation = self._slot, self._activation
        runner, state = activation.agent.runner, activation.state
        if state.run is None:
            raise NotInterrupted(f"Agent {slot.id!r} has had no run: there is nothing to answer")
        new = runner.check_decisions(state, answer.decisions, slot.services.clock)
        if state.run.quarantined is not None and not state.run.over:
            answer_when_durable(slot, answer.future, quarantine_outcome(activation))
            return
        if state.run.over:
            answer.future.set(runner.ended(state))
            return
        if activation.task is not None and new:
            raise NotInterrupted(f"Agent {slot.id!r} is running: nothing waits for this answer yet")
        if activation.task is None:
            decide(activation.ledger, new, slot.services.clock)
            self._drive_on()
        activation.outcome_futures += (answer.future,)

    def _cancel(self, cancel: Cancel) -> None:
        slot, activation = self._slot, self._activation
        run = activation.state.run
        activation.pause_reason = None
        if activation.is_beginning:  # the run that stands, if one does, is withdrawn by this one
            activation.early_cancel = cancel.signal
            activation.outcome_futures += (cancel.future,)
            return
        if run is None or run.over:
            cancel.future.set(None)
            return
        if run.cancelled is None:
            activation.ledger.record(CancelRequested(signal=cancel.signal.to_dict()))
        if activation.task is not None:
            activation.task.cancel()
        else:
            runner = activation.agent.runner
            self._drive(
                runner.stop(
                    activation.ledger, cancel.signal, environment=slot.environment_to_continue()
                )
            )
        activation.outcome_futures += (cancel.future,)

    def _unpause(self) -> None:
        slot, activation = self._slot, self._activation
        activation.pause_reason = None
        run = activation.state.run
        if run is None or run.over or run.quarantined is not None or activation.task is not None:
            return
        # A run that lacks its deps stands still too, but not by anything that is recorded (J12).
        if activation.state.pause is not None or slot.status is Status.PAUSED:
            unpause(activation.ledger)
            self._drive_on()

    def _retry(self, future: Future[Outcome]) -> None:
        slot, activation = self._slot, self._activation
        run = activation.state.run
        if run is None or run.over or run.quarantined is None:
            raise NotInterrupted(f"Agent {slot.id!r} is not quarantined: there is nothing to retry")
        activation.ledger.record(Released())
        self._drive_on()
        activation.outcome_futures += (future,)

    def _compact(self, future: Future[None]) -> None:
        """Lie down for it, after the run that goes on: then nobody writes."""
        self._activation.compact_futures += (future,)
        if self._activation.task is None:
            self._passivate()

    def _delete(self, delete: Delete) -> None:
        """Lie down for it, after the run that goes on is cancelled: nothing follows it."""
        slot, activation = self._slot, self._activation
        activation.delete_futures += (delete.future,)
        waiting, activation.waiting = activation.waiting, []
        for wanted, _ in waiting:
            refuse(wanted.future, UnknownAgent(agent_id=slot.id))
        if activation.task is None:
            self._passivate()
        else:
            self._cancel(Cancel(delete.signal, Future()))

    # ------------------------------------------------------------------- idle time

    def _start_timer(self) -> None:
        activation = self._slot.activation
        if activation is None:
            return
        own = activation.agent.definition.idle_timeout
        timeout = self._slot.services.idle_timeout if own == "runtime" else own
        if timeout is None or activation.task is not None or self._passivating:
            return
        if not self.actor_stopped.is_set():
            self._idle_timer = self.loop.call_later(timeout, self._passivate)

    def _stop_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _passivate(self) -> None:
        """Nothing happened for the idle timeout (A5)."""
        activation = self._activation
        if activation.told:
            self._start_timer()
        elif activation.task is None and not self._slot.inbox and activation.finished is None:
            self._passivate()
