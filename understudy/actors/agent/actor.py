"""`AgentActor`: the actor of one agent. It answers at once: its runs are in a task of their own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pykka

from understudy._base.log_fields import log_extra
from understudy.actors.agent.activation import Activation, RunAbandoned, activate
from understudy.actors.agent.factory import made_by
from understudy.actors.agent.message_ids import is_known, must_look_up
from understudy.actors.agent.messages import (
    HANDLERS,
    AgentCall,
    AnswerWait,
    Cancel,
    CheckDue,
    Compact,
    Delete,
    Passivate,
    Query,
    WaitOutcome,
    handles,
)
from understudy.actors.agent.phase import Phase
from understudy.actors.agent.replies import (
    answer_when_durable,
    answer_with,
    as_exception,
    refuse_when_confirmed,
    runtime_stopped,
)

# All modules that handle messages are imported by these.
from understudy.actors.agent.runs import (
    control,
    decisions,
    ends,
    recovery,
    timers,
)
from understudy.actors.agent.slot import AgentSlot
from understudy.agent.agent import Agent
from understudy.errors import (
    Fenced,
    JournalFailed,
    OtherAgent,
    RecordRefused,
    StoreError,
    UnderstudyError,
    UnknownAgent,
)
from understudy.loop_actors.future import Future
from understudy.loop_actors.loop_actor import LoopActor
from understudy.loop_actors.monitor import Down
from understudy.run.hooks import Hook, HookFailed, Passivation

logger: logging.Logger = logging.getLogger(__name__)
T = TypeVar("T")

CHECK_INBOX = object()
"""The only message in the mailbox of an agent's actor: its slot has something to look at."""


class AgentActor(LoopActor):
    """The actor of one agent. Everything that outlives the actor is in its `AgentSlot`."""

    def __init__(self, slot: AgentSlot) -> None:
        super().__init__()
        self._slot = slot
        self._idle_timer: asyncio.TimerHandle | None = None
        self._loading: asyncio.Task[bool] | None = None
        self._leaving: asyncio.Future[None] | None = None
        """A future, while the agent is activated, that is done if it is to leave memory at once."""
        instrument, is_restart = slot.services.instrument, slot.actor_ref is not None
        # Here, not in `on_start`, which is not called where the actor is stopped before its first
        # turn (test_an_actor_that_is_stopped_before_its_first_turn_leaves_nobody_waiting).
        slot.actor_ref = self.actor_ref
        if is_restart and instrument is not None and slot.activation is not None:
            instrument.restarted(slot.activation.ledger)

    def on_start(self) -> None:
        """Read the agent from the store, unless the actor before this one left it in memory."""
        slot = self._slot
        if slot.activation is None:
            # In a task: the supervisor waits for `on_start`, and starts other agents meanwhile.
            self._loading = slot.services.start_task(self._load(), f"activating {slot.id}")
            self._loading.add_done_callback(self._loaded)
        else:
            self._with_store(self._take_over)

    def on_receive(self, message: Any) -> None:
        """Handle what is new in the slot: the result of a run task, and the messages in the
        inbox.
        """
        if message is not CHECK_INBOX:
            super().on_receive(message)
        elif self._slot.phase is not Phase.ACTIVATING:
            self._with_store(self._check_inbox)
        elif self._loading is not None and self._loading.done():
            if not self._loading.cancelled() and self._loading.result():
                self._loading = None  # with its coroutine it takes 0.6 KB
                self._with_store(self._take_over)
            else:
                self.stop()
        elif self._leaving is not None and not self._leaving.done() and self._is_leaving:
            self._leaving.set_result(None)
        # else it is still being read: the inbox waits

    def on_stop(self) -> None:
        """Stop the actor. `AgentSlot.actor_ended` releases the agent; a message activates it."""
        self._stop_idle_timer()
        if self._loading is not None:
            self._loading.cancel()

    def _ended(self, down: Down) -> None:
        self._slot.actor_ended(down)

    # ------------------------------------------------------------------ activating

    async def _load(self) -> bool:
        """Read the agent from the store; False if that failed, and all waiters know."""
        slot = self._slot
        was_spawned = slot.is_spawned
        try:
            activation = await activate(
                slot.id,
                slot.agent,
                slot.services,
                values=slot.values,
                make=self._made,
                audience=slot,
                creates=was_spawned,
                take=any(
                    not isinstance(each.message, (CheckDue, WaitOutcome)) for each in slot.inbox
                ),
            )
            # Closes the race of the load with the end of this actor: the next one reads it anew.
            if self.actor_stopped.is_set():
                return False
            slot.services.settle_definition(slot, activation.agent)
            activation.place = slot
            slot.activation, slot.is_spawned = activation, False
            # Who waited for a host that had the agent before waits for this one from now on
            # (test_a_run_that_goes_on_here_is_answered_here_though_no_hint_came).
            slot.services.looks.look_again(slot.id)
            if activation.journal.owned.has_posts and slot.services.calls is not None:
                # What other hosts have asked for before goes before what is asked for here
                # (test_what_was_posted_goes_before_what_is_asked_for_by_whoever_takes_over).
                await slot.services.calls.claimed(slot)
            if activation.agent.definition.hooks.on_start:
                await self._call_start_hooks(activation.agent.definition.hooks.on_start)
            # The hooks may have taken longer than the lease
            # (test_an_agent_whose_lease_runs_out_while_it_is_activated_waits_as_well).
            await activation.journal.wait_for_owner()
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as failure:  # given to all waiters; the next message tries again
            # Races: these against a `spawn` in another thread, and what is asked for behind it.
            # First how many wait, then whether it was spawned: who is behind them came later
            # (test_what_is_asked_for_while_a_call_before_it_is_refused_is_not_refused_with_it,
            # test_an_agent_that_is_spawned_while_a_call_of_its_id_is_refused_runs).
            there = len(slot.inbox)
            was_unknown = isinstance(failure, UnknownAgent) and slot.activation is None
            if was_unknown and slot.is_spawned > was_spawned and not self.actor_stopped.is_set():
                return await self._load()
            if was_unknown and slot.agent is not None and not slot.is_spawned:
                slot.forget()  # another host has deleted it
            error = failure.error if isinstance(failure, HookFailed) else failure
            error = as_exception(slot.id, error)
            if not isinstance(error, (UnderstudyError, pykka.ActorDeadError)):
                logger.exception("agent %r cannot be activated", slot.id, extra=log_extra(slot.id))
            if not self.actor_stopped.is_set():
                if isinstance(error, OtherAgent):
                    slot.services.settle_definition(slot, None)
                    wanted = error.wanted
                    slot.refuse_those(lambda each: _expects(each, wanted), error)
                    there = len(slot.inbox)
                    if there:  # of callers who mean the agent that there is
                        return await self._load()
                asked = {type(call.message) for call in slot.inbox[:there]}
                slot.refuse_inbox(error, there)
                # A due is tried again, and a webhook is sent again: who waits for the run waits on
                # (test_an_activation_that_fails_by_a_due_leaves_the_run_open).
                if not asked or not asked <= {CheckDue, AnswerWait}:
                    slot.refuse_waiters(error)
            return False
        return True

    @property
    def _is_leaving(self) -> bool:
        """Whether nothing that waits for the activation is worth waiting for."""
        deleted = any(isinstance(call.message, Delete) for call in self._slot.inbox)
        return deleted or self._slot.services.closing

    async def _call_start_hooks(self, hooks: Sequence[Hook]) -> None:
        """Call start hooks. A hook that does not return delays no deletion and no stop."""
        slot = self._slot

        async def call() -> None:
            for hook in hooks:
                await hook(slot.services.threads, slot.services.ref_of(slot))

        await self._unless_leaving(call(), "on_start")

    async def _made(self, name: str, values: Mapping[str, Any]) -> Agent:
        """The definition that the factory makes. A factory that does not return delays nobody."""
        slot = self._slot
        assert slot.services.factory is not None, "without one, every name is declared"
        making = made_by(slot.services.factory, name, slot.id, values)
        return await self._unless_leaving(making, "the factory")

    async def _unless_leaving(self, work: Coroutine[Any, Any, T], what: str) -> T:
        """Await `work`; it is abandoned if the agent is to leave memory at once."""
        slot, done = self._slot, Future[T]()
        self._leaving = self.loop.create_future()
        if self._is_leaving:
            self._leaving.set_result(None)
        calls = answer_with(slot, done, lambda: work)
        either: tuple[asyncio.Future[Any], ...] = (calls, self._leaving)
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            calls.cancel()
            raise
        if calls.done():
            return done.get()
        for task in await slot.services.abandoned.cancel([calls]):
            slot.services.abandoned.add(task, f"{what} of agent {slot.id!r}")
        raise runtime_stopped(slot.id) if slot.services.closing else UnknownAgent(agent_id=slot.id)

    def _loaded(self, loading: asyncio.Task[bool]) -> None:
        with contextlib.suppress(pykka.ActorDeadError):  # stopped meanwhile
            self.actor_ref.tell(CHECK_INBOX)

    def _take_over(self) -> None:
        """Look at what the run task left, or recover a run that was cut off; then at the inbox."""
        slot = self._slot
        if slot.phase is Phase.ACTIVATING:
            slot.enter(Phase.IDLE)
        if slot.phase is Phase.ENDED:
            ends.after_run_task(slot, activating=True)
        elif slot.phase is Phase.IDLE:
            recovery.recover(slot)
        self._check_inbox(activating=True)

    # ------------------------------------------------------------------ the inbox

    def _with_store(self, do: Callable[[], None]) -> None:
        """Call `do`. A store that cannot record the result is not a failure of the actor."""
        try:
            do()
        except RunAbandoned:
            # Activate it again at once, in a new epoch. Its callers go on waiting, and the next
            # activation does what was requested of this one.
            self._slot.current.is_given_up = True
            self._slot.inbox.append(AgentCall(WaitOutcome(), Future()))
            self._passivate("lost")
        except JournalFailed as error:
            self._lose_store(error)

    def _check_inbox(self, *, activating: bool = False) -> None:
        slot = self._slot
        self._stop_idle_timer()
        if slot.phase is Phase.IDLE:
            try:
                slot.current.journal.check_owner()
            except StoreError as error:  # another runtime may own it by now
                # To read it once more does not help, unless its lease has just run out
                # (test_an_agent_whose_lease_runs_out_right_after_it_is_activated_waits_as_well).
                if activating and not isinstance(error, Fenced):
                    slot.refuse_all(error)
                self._lose_store(error)
        if slot.phase is Phase.ENDED:
            ends.after_run_task(slot)
            self._check_not_taken()
        self._passivate_if_requested()
        kept = 0
        while len(slot.inbox) > kept and slot.phase is not Phase.PASSIVATING:
            if decisions.must_wait(slot, slot.inbox[kept]):
                kept += 1
                continue
            if must_look_up(slot, slot.inbox[kept]):
                break
            call = self._followed(slot.inbox.pop(kept))
            try:
                self._handle(call)
            except Exception as error:
                # Answered, whatever it is: the caller must not wait for ever.
                if not isinstance(error, UnderstudyError):
                    logger.exception(
                        "agent %r could not handle %r",
                        slot.id,
                        type(call.message),
                        extra=log_extra(slot.id),
                    )
                refuse_when_confirmed(slot, call.future, error)
                if isinstance(error, JournalFailed) and not isinstance(error, RecordRefused):
                    self._lose_store(error)
        recovery.settle_status(slot)
        timers.tell_due(slot)
        self._start_idle_timer()

    def _check_not_taken(self) -> None:
        """Raise `Fenced` if another host has taken the agent, at rest by a run that ended here."""
        if self._slot.phase is Phase.IDLE:
            self._slot.current.journal.check_failure()

    def _handle(self, call: AgentCall) -> None:
        slot = self._slot
        if call.expectation is not None:
            call.expectation.check(slot.id, slot.current.agent.name)
        if call.needs_deps and not is_known(slot, call.message.message_id):
            slot.check_has_deps()
        HANDLERS[type(call.message)](slot, call)
        call.notes.on_handled()
        self._passivate_if_requested()

    def _followed(self, call: AgentCall) -> AgentCall:
        """The call; for a look, a copy that the store answers if another host has the agent."""
        slot = self._slot
        if slot.services.shared_store is None or not call.is_look:
            return call
        own = replace(call, future=Future())
        slot.services.looks.answer(slot, call, own.future)
        return own

    # ------------------------------------------------------------------ passivating

    def _passivate_if_requested(self) -> None:
        """Passivate the agent if that is requested and no run task is under way."""
        activation, slot = self._slot.activation, self._slot
        if slot.phase is not Phase.IDLE or activation is None or not activation.leaving:
            return
        if slot.services.closing:
            self._passivate("closing")
        elif activation.asked_to(Delete):
            self._passivate("deleted")
        else:
            self._passivate("compacted" if activation.asked_to(Compact) else "stopped")

    def _passivate(self, reason: Passivation) -> None:
        """Stop, once everything is durable. Messages that come now wait for the next actor."""
        slot, activation = self._slot, self._slot.current
        activation.passivated_because = reason
        slot.enter(Phase.PASSIVATING)
        activation.ledger.outlives_run = False
        if not activation.ledger.has_unflushed and not activation.notifying:
            self.stop()
            return

        async def stop_when_durable() -> None:
            try:
                await self._end_messages(activation)
                await activation.journal.durable()
            except Exception as error:  # of a journal: a store of the application may raise any
                # Who waits is told, so that a call is made again at the next owner
                # (test_a_run_that_is_lost_as_its_agent_leaves_memory_is_made_again).
                if slot.activation is activation:  # else the actor was stopped, and it is released
                    self._tell_of_loss("is passivated with records lost", error)
            self.actor_ref.stop(block=False)

        slot.services.start_task(stop_when_durable(), f"passivating {slot.id}")

    async def _end_messages(self, activation: Activation) -> None:
        """Wait until middleware has handled its messages, unless nothing comes of them."""
        slot, tasks = self._slot, [task for task, _ in activation.notifying]
        if activation.asked_to(Delete):
            activation.refuse_messages(UnknownAgent(agent_id=slot.id))
        elif activation.is_given_up:
            activation.refuse_messages(RunAbandoned(agent_id=slot.id))
        else:
            if tasks:
                await asyncio.wait(tasks)
            return
        for task in await slot.services.abandoned.cancel(tasks):
            slot.services.abandoned.add(task, f"a message to the middleware of agent {slot.id!r}")

    def _lose_store(self, error: JournalFailed) -> None:
        """Passivate at once: what is in memory may be ahead of the store. Waiters get the error.

        No failure of the actor: the supervisor does not restart it. The next message, also one
        that is in the inbox already, reads the agent anew: it continues from what the store has.
        """
        slot, activation = self._slot, self._slot.current
        if slot.phase is Phase.PASSIVATING:
            return
        if isinstance(error, Fenced) and slot.run_is_over:
            # First its callers and hooks are told of the run that has ended here.
            slot.lose("its store failed")
            return
        self._tell_of_loss("is passivated", error)
        activation.journal.fence("its store failed")
        if activation.task is not None:
            activation.attempt_ended(error)
            slot.cut_off()  # nothing that it does can be recorded
        slot.enter(Phase.PASSIVATING)
        self.stop()

    def _tell_of_loss(self, what: str, error: Exception) -> None:
        """Log that records of the agent are lost, and give the error to everybody who waits."""
        slot, activation = self._slot, self._slot.current
        # On a store that hosts share they take agents at rest from each other: that is no trouble.
        is_shared = isinstance(error, Fenced) and slot.services.calls is not None
        level = logging.INFO if is_shared and activation.task is None else logging.ERROR
        logger.log(level, "agent %r %s: %s", slot.id, what, error, extra=log_extra(slot.id))
        slot.refuse_waiters(error)
        activation.passivated_because = "lost"
        if is_shared:
            # What comes behind calls that are done again must not be done before them
            # (test_calls_at_a_copy_that_is_lost_are_done_again_in_their_order).
            slot.refuse_inbox(error)

    # ------------------------------------------------------------------ idle time

    def _start_idle_timer(self) -> None:
        slot = self._slot
        if slot.phase is not Phase.IDLE or self.actor_stopped.is_set():
            return
        own = slot.current.agent.definition.idle_timeout
        timeout = slot.services.idle_timeout if own == "runtime" else own
        if timeout is not None:
            self._idle_timer = self.loop.call_later(timeout, self._idle_timed_out)

    def _stop_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _idle_timed_out(self) -> None:
        # Closes the race of the timer with a message, or a run task's end, that is about to be
        # looked at: its check stops the timer, but the timer may have fired in the same turn.
        if self._slot.phase is not Phase.IDLE or self._slot.inbox:
            return
        activation = self._slot.current
        stays = activation.agent.definition.stays_for_subscribers
        if activation.notifying or (stays and self._slot.log.has_subscribers()):
            self._start_idle_timer()
        else:
            self._passivate("idle")


def _expects(call: AgentCall, name: str) -> bool:
    """Whether a call is for an agent with this definition alone."""
    expectation = call.expectation
    return expectation is not None and not expectation.is_met and expectation.name == name


@handles(Query)
def _query(slot: AgentSlot, call: AgentCall[Query]) -> None:
    """Read something of the agent's state."""
    answer_when_durable(slot, call.future, call.message.what(slot.state))


@handles(Passivate, Compact, Delete)
def _leave(slot: AgentSlot, call: AgentCall[Passivate | Compact | Delete]) -> None:
    """Have the agent leave memory, once no run task is under way."""
    slot.current.leave(call)
    if isinstance(call.message, Delete) and slot.phase.has_run_task:
        control.cancel(slot, AgentCall(Cancel(call.message.signal), Future()))
