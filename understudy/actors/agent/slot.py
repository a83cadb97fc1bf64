"""`AgentSlot`: what belongs to an agent's id and outlives its actor.

Its phase, its inbox, its subscriptions, its status; while it is in memory, its activation. An actor
that is restarted finds all of it here.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from understudy._base.context_codecs import Context
from understudy._base.event_loops import call_on
from understudy._base.log_fields import log_extra
from understudy.actors.agent.activation import (
    Activation,
    RunAbandoned,
    RunTaskResult,
)
from understudy.actors.agent.events import (
    EventLog,
    OnEventsRead,
    RecordView,
    Status,
    StatusChanged,
    StoredEvents,
    Subscription,
    agent_events_of,
    position_of,
    status_of,
)
from understudy.actors.agent.factory import MadeAtActivation
from understudy.actors.agent.messages import (
    AgentCall,
    AgentKey,
    AgentMessage,
    Compact,
    Delete,
)
from understudy.actors.agent.phase import NEXT_PHASES, Phase
from understudy.actors.agent.services import RuntimeServices
from understudy.actors.agent.stored_agents import stored_events
from understudy.agent.agent import Agent
from understudy.errors import JournalFailed, UnknownAgent, UsageError
from understudy.events import Event
from understudy.journal.index_status import next_status, status_after_end
from understudy.loop_actors.future import Future, refuse
from understudy.loop_actors.monitor import Down
from understudy.loop_actors.ref import LoopActorRef
from understudy.outcomes import Outcome
from understudy.run.environment import RunEnvironment
from understudy.run.hooks import Hook, HookFailed
from understudy.state.agent_state import AgentState
from understudy.state.plans import pause_asked
from understudy.state.records import End, Record, RunEnded, StatusNoted

logger: logging.Logger = logging.getLogger(__name__)
T = TypeVar("T")

running_agents: contextvars.ContextVar[tuple[AgentKey, ...]] = contextvars.ContextVar(
    "running_agents", default=()
)
"""The agents in whose runs the current code runs, outermost first."""


def waits_for(message_id: str) -> str:
    """The key in the table of waits of a message that no run has taken. No run has such an id."""
    return "/" + message_id


def message_waited_for(key: str) -> str | None:
    """The id of the message that a key in the table of waits is of; None if it is of a run."""
    return key[1:] if key.startswith("/") else None


@dataclass(slots=True, eq=False, repr=False, weakref_slot=True)
class AgentSlot:
    """Everything of one agent id except its actor.

    Agent messages wait in `inbox` alone, whether there is an actor or not. The mailbox of the actor
    holds no agent message: it carries the signal to look at the inbox, and Pykka's own messages
    (to stop, to answer a supervisor), which are for that one actor and end with it.
    """

    id: str
    agent: Agent | MadeAtActivation | None
    """The agent's definition; None until it is read from the store. Names are unique in a
    runtime."""
    services: RuntimeServices[AgentSlot, Activation]
    deps: Any = None
    values: Mapping[str, Any] | None = None
    """The values that a new agent's state begins with."""
    is_spawned: bool = False
    """Whether the agent was spawned since it was in memory last: the store may not have it."""
    phase: Phase = Phase.PASSIVE
    """The phase of the agent, changed by `enter` alone."""
    inbox: list[AgentCall] = field(default_factory=list)  # an empty deque takes 0.7 KB
    status: Status = Status.PASSIVE
    log: EventLog = field(init=False)
    activation: Activation | None = None
    waits: dict[str, tuple[AgentCall, ...]] | None = None
    """The calls that wait for an outcome, by the id of the run, or by `waits_for` of a message that
    no run has taken. None if no call waits. The table outlives the activation."""
    change: asyncio.Task[None] | None = None
    """The task that starts or releases the actor. A second change waits for the first."""
    actor_ref: LoopActorRef[Any] | None = None
    """The ref of the actor. While the supervisor restarts a crashed actor, its former ref."""
    on_progress: tuple[asyncio.Event, ...] = ()
    """The events to set when the run gets further or ends, one for each recovery of the agent."""

    def __post_init__(self) -> None:
        self.log = EventLog(self.id, self.services.lock)

    def __repr__(self) -> str:
        what = f" of agent {self.agent.name!r}" if self.agent is not None else ""
        return f"<agent {self.id!r}{what}, {self.status.value}>"

    @property
    def key(self) -> AgentKey:
        """The key of the agent, which differs from agents of the same id in other runtimes."""
        return self.services, self.id

    # ------------------------------------------------------------------- from any thread

    def post(self, message: AgentMessage) -> Future[Any]:
        """Put a message of this runtime into the inbox; the future gets the answer."""
        call = AgentCall(message, Future())
        self.put(call)
        return call.future

    def put(self, call: AgentCall) -> None:
        """Put a call into the inbox, behind what was asked before. A look activates no agent."""
        self.inbox.append(call)
        self.services.check_inbox(self)

    def ask(self, call: AgentCall) -> None:
        """Have a call done, by another host if need be."""
        calls = self.services.calls
        if calls is None:
            self.put(call)
        else:
            calls.call(self, call)

    def subscribe(self, after: int | str, view: RecordView = agent_events_of) -> Subscription:
        """Subscribe to the agent's events after a number or position, in this view, then live."""
        seq, part = position_of(after)
        read, loop = partial(self._read_events, log=self.log, view=view), self.services.loop
        subscription = self.log.subscribe(seq, read, loop=loop, part=part, keeps=self, view=view)
        call_on(loop, self.services.looks.follow_events, self)
        return subscription

    def _read_events(
        self, after: int, on_read: OnEventsRead, *, log: EventLog, view: RecordView
    ) -> None:
        async def read() -> StoredEvents:
            found = await stored_events(self.services.store, self.id, after, view)
            log.note(found.incarnation)
            await self.has_emitted(found.last)
            if log.is_closed and found.incarnation != log.incarnation:
                # Deleted between two parts, and perhaps made anew: those are another's
                # (test_who_reads_the_past_of_an_agent_that_is_made_anew_gets_none_of_the_new).
                return StoredEvents([], after)
            return found

        def ended(task: asyncio.Task[StoredEvents]) -> None:
            # Cancelled: the runtime stops, perhaps before the task has begun.
            on_read(None if task.cancelled() else task.exception() or task.result())

        def begin() -> None:
            if self.log.is_closed:  # the runtime has stopped, and its loop is the application's
                on_read(None)
                return
            self.services.start_task(read(), f"events of {self.id}").add_done_callback(ended)

        if not call_on(
            self.services.loop, begin
        ):  # the runtime has stopped, and its loop is closed
            on_read(None)

    # ------------------------------------------------------------------- on the loop

    def enter(self, phase: Phase) -> None:
        """Change the phase of the agent."""
        before = self.phase
        assert phase in NEXT_PHASES[before], f"{self!r}: {before.name} -> {phase.name}"
        self.phase = phase

    async def rest_is_durable(self) -> None:
        """Return once what led to the agent's status is in the store, unless a run is under way."""
        if self.activation is not None and self.status is not Status.RUNNING:
            await self.has_emitted(self.activation.ledger.count)

    async def has_emitted(self, seq: int) -> None:
        """Return once the agent's records up to this number are durable and emitted here.

        A read of the store waits for that. Race: the read against a commit that is made and not
        answered. Its reader would know of a status before `status` has it
        (test_a_status_that_is_read_is_that_of_the_agent_at_its_host).
        """
        if self.activation is not None:
            with suppress(JournalFailed):  # its callers get the error; a read, what is stored
                await self.activation.ledger.reported(seq)

    @property
    def current(self) -> Activation:
        """The activation of the agent, which must be in memory."""
        assert self.activation is not None, f"{self!r} is not in memory"
        return self.activation

    @property
    def state(self) -> AgentState:
        return self.current.ledger.state

    def is_listening(self) -> bool:
        """Whether anybody gets the agent's events that have no record."""
        return self.log.has_subscribers()

    def emit(self, event: Event) -> None:
        """Emit an event of the agent that has no record."""
        self.log.emit(event)

    def emit_record(self, seq: int, record: Record) -> None:
        """Emit the events of a record that is durable, and let recovery know of progress."""
        if isinstance(record, RunEnded) and record.status and self.phase is Phase.RUNNING:
            self.status = status_of(record.status, self.id)
        if self.log.has_subscribers():
            assert self.agent is not None, "the definition is known from the first record on"
            self.log.emit_record(seq, record, (self.agent.name,))
        if self.on_progress and self.activation is not None:
            run = self.activation.state.run
            if run is None or run.over or run.fruitless == 0:
                self.tell_of_progress()

    def tell_of_progress(self) -> None:
        """Tell the recoveries of the agent that it has got as far as it gets now."""
        for event in self.on_progress:
            event.set()

    def set_running(self) -> None:
        """Set the status as a run begins or goes on. The run's first record has the new status.

        Raises:
            JournalFailed: if there can be no such record.

        """
        activation = self.current
        activation.ledger.check_fence()
        activation.journal.check_failure()
        if activation.state.status == Status.RUNNING.value:  # it was cut off
            self.set_status(Status.RUNNING)
        else:
            self.status = Status.RUNNING

    def status_after(self, end: End) -> str | None:
        """The agent's status after this end of its run; None if the next run follows at once."""
        is_last = self.current.asked_to(Delete)
        return status_after_end(end) if is_last else next_status(self.state, end)

    def set_status(self, status: Status, *, runs: int | None = None) -> None:
        """Change the agent's status and emit it; what led to the change is recorded before.

        A status that follows from a run is recorded itself, here or with its cause. Activation and
        passivation are not.
        """
        if status is self.status and runs is None:
            return
        activation = self.activation
        if self.status is Status.RUNNING and status is not Status.PASSIVE:
            self._note_running()
        self.status = status
        if (
            activation is None
            or status is Status.PASSIVE
            or status.value == activation.state.status
        ):
            self.log.emit(StatusChanged(status=status))
        else:
            activation.ledger.record(StatusNoted(status=status.value, runs=runs))
            if status is not Status.RUNNING and self.services.shared_store is not None:
                # It does not linger: another host takes the agent for what only its own process
                # can be told, once the store says that it is at rest
                # (test_what_is_no_json_is_done_by_the_process_that_has_it).
                self.services.start_task(self.rest_is_durable(), f"status of {self.id}")

    def _note_running(self) -> None:
        """Record that a run was to go on, if it has come to nothing before its first record."""
        activation = self.activation
        if activation is not None and activation.state.status != Status.RUNNING.value:
            activation.ledger.record(StatusNoted(status=Status.RUNNING.value))

    def has_deps(self) -> bool:
        """Whether the agent was spawned with deps, which no other host has."""
        return self.deps is not None

    def check_has_deps(self) -> None:
        """Refuse a call of another host for an agent that the other host spawned with deps.

        Raises:
            UsageError: if its runs have none here.

        """
        if self.deps is None and self.services.deps_for is None:
            raise UsageError(
                f"Agent {self.id!r} runs at {self.services.host!r}, without the deps that were "
                "given to spawn(): those stay where they are. Give Runtime(deps_for=...) to all "
                "hosts of the store"
            )

    def environment(self, *, continues: bool = False, by: str | None = None) -> RunEnvironment:
        """The environment of a run of the agent.

        Args:
            continues: whether the run goes on. Without the deps that it had, it is paused then.
            by: the person who has it recovered.

        """
        services, activation, deps = self.services, self.current, self.deps
        if deps is None and services.deps_for is not None:
            try:
                is_background = activation.agent.definition.background_of
                deps = services.deps_for(self.id.rpartition("~")[0] if is_background else self.id)
            except BaseException:  # also SystemExit: it must not end the actor again and again
                if not continues:
                    raise
                logger.exception("deps_for(%r) raised", self.id, extra=log_extra(self.id))
        return replace(
            services.runs,
            deps=deps,
            emit=self.log.emit,
            streaming=self.log.has_subscribers,
            agent_id=self.id,
            is_to_end_attempt=activation.is_to_end_attempt,
            pause_requested=lambda: pause_asked(activation.state.plans),
            by=by,
            instrument=services.instrument,
            abandon_later=lambda: self._abandon_later(activation),
            status_after=self.status_after,
        )

    def run_task_ended(self, activation: Activation, result: RunTaskResult) -> None:
        """Leave the result of a run task that has ended or is abandoned for an actor to look at."""
        activation.task = None
        activation.cancellation_arrived()
        if self.phase is not Phase.PASSIVATING:
            activation.attempt_ended(result.crash)
            activation.result = result
            self.enter(Phase.ENDED)
            self.services.check_inbox(self)
        elif self.actor_ref is None:
            self.release()  # the actor has stopped before its cancelled task had ended

    def cut_off(self) -> None:
        """Cancel the run task of the agent. If its code goes on, it is abandoned."""
        activation = self.current
        assert activation.task is not None, "only called while a run task is under way"
        activation.task.cancel()
        self.expect_end()

    def lose(self, why: str) -> None:
        """Write nothing more of the agent and release it: another runtime may own it by now."""
        activation = self.current
        activation.journal.fence(why)
        if self.run_is_over:
            self.expect_end()
        elif activation.task is not None:
            self.cut_off()
        else:
            self.services.check_inbox(self)

    @property
    def run_is_over(self) -> bool:
        """Whether the run task has recorded the end of its run, and has not ended itself.

        Where that end is in the store, its outcome is told here, whoever has the agent by now.
        """
        run = self.state.run
        return self.phase is Phase.RUNNING and run is not None and run.over

    def drop_if_older(self, epoch: int) -> bool:
        """Drop a copy of the agent that another host has gone on from; this needs no message.

        Args:
            epoch: of the agent now.

        Returns:
            Whether there was such a copy.

        """
        activation = self.activation
        if activation is None or activation.journal.owned.epoch >= epoch:
            return False
        activation.is_taken = True
        self.lose("another runtime has taken it")
        return True

    def expect_end(self) -> None:
        """Abandon the run task of the agent unless it ends soon."""
        activation = self.current
        if activation.ending is None:
            activation.ending = self._abandon_later(activation)

    def _abandon_later(self, activation: Activation) -> asyncio.Task[None]:
        """Start a task that abandons the run task if the time it has to end is over.

        Cancel it where the run task goes on as it should.
        """
        task = activation.task  # None where abandoned code calls this

        async def abandon() -> None:
            await asyncio.sleep(self.services.abandoned.seconds)
            if task is not None:
                self.abandon_run(activation, task)

        return self.services.start_task(abandon(), f"waiting for the end of the run of {self.id}")

    def abandon_run(self, activation: Activation, task: asyncio.Task[None]) -> None:
        """Go on without the run task, as after a crash: nothing it does is recorded any more.

        The actor gives up the epoch of its run. The next activation has a ledger of its own, and
        does what the records say: a run whose cancellation is recorded is stopped.
        """
        if activation.task is not task:
            return  # it has ended
        tools = ", ".join(repr(name) for name in _running_tools(activation.state))
        what = f"the run of agent {self.id!r}" + (f", with the tool {tools}," if tools else "")
        self.services.abandoned.add(task, what)
        if not task.cancelling():
            task.cancel()  # what was cancelled is a task inside
        error: JournalFailed = RunAbandoned(agent_id=self.id)
        activation.ledger.fence(error)
        try:
            activation.journal.check_owner()
        except JournalFailed as lost:  # that is why it was cancelled
            error = lost
        self.run_task_ended(activation, RunTaskResult(crash=error))

    def actor_ended(self, down: Down) -> None:
        """Handle the end of the actor: release the agent if the actor was stopped."""
        if down.reason is not None:
            return
        self.actor_ref = None
        if self.phase is Phase.ENDED:  # stopped from outside: the next actor looks at the result
            self.services.check_inbox(self)
        elif self.activation is None or self.activation.task is None:
            self.release()
        if self.inbox:  # where the runtime is stopping, this answers the messages
            self.services.check_inbox(self)

    def release(self) -> None:
        """End the agent's activation. All that was recorded is in the store."""
        self.enter(Phase.RELEASING)
        activation, self.activation = self.activation, None
        # Without an activation the agent was not read: who waited while it was passive waits on
        # (test_who_waits_for_a_run_is_told_where_the_runtime_ends_while_its_agent_is_read_again).
        if activation is not None:
            self.services.tell_due(self.id, activation.state.next_due)
            activation.ledger.outlives_run = False
            if not activation.asked_to(Delete, Compact):  # it would be deleted at once
                activation.journal.write_last_checkpoint()
            if activation.is_given_up:  # the next activation does what was asked of this one
                self.inbox += activation.leaving
                activation.leaving = ()
            owned = activation.journal.owned
            self.services.looks.follow_waiters(self, activation.state, owned)
        self.set_status(Status.PASSIVE)
        # Race: this against a recovery that came while the activation failed for those before it.
        # Its message is in the inbox still, and activates the agent again
        # (test_a_recovery_tells_what_it_does_not_continue_whenever_it_comes).
        if not self.is_needed_in_memory():
            self.tell_of_progress()
        self.services.release(self, activation)
        if activation is not None and activation.agent.definition.hooks.on_passivated:
            hooks = activation.agent.definition.hooks.on_passivated
            self.tell_hooks(hooks, activation.passivated_because)

    def tell_hooks(
        self, hooks: tuple[Hook, ...], what: object, context: Context = MappingProxyType({})
    ) -> None:
        """Call hooks in a task that only the end of the runtime waits for."""

        async def tell() -> None:
            with self.services.codecs.applied(context, is_strict=False):
                for hook in hooks:
                    try:
                        await hook(self.services.threads, self.services.ref_of(self), what)
                    except HookFailed as failed:
                        logger.error(
                            "agent %r: %s",
                            self.id,
                            failed,
                            exc_info=failed,
                            extra=log_extra(self.id),
                        )

        task = self.services.start_task(tell(), f"{hooks[0].name} of {self.id}")
        self.services.telling.add(task)
        task.add_done_callback(self.services.telling.discard)

    # ------------------------------------------------------------------- answering waiters

    def wait(self, key: str, *waiters: AgentCall) -> None:
        """Have these calls get the outcome of a run.

        Args:
            key: the id of the run, or `waits_for` of a message that no run has taken.
            waiters: who waits for it.

        """
        if waiters:
            self.waits = self.waits or {}
            self.waits[key] = (*self.waiting(key), *waiters)

    def waiting(self, key: str | None) -> tuple[AgentCall, ...]:
        """The calls that wait for a run or for the run of a message."""
        return () if self.waits is None or key is None else self.waits.get(key, ())

    def take_waits(self, key: str) -> tuple[AgentCall, ...]:
        """Remove and return the calls that wait for a run or a message. The caller answers them."""
        if self.waits is None:
            return ()
        taken = self.waits.pop(key, ())
        if not self.waits:
            self.waits = None
        return taken

    def drop_wait(self, waiter: AgentCall) -> None:
        """Remove a waiting call that has its outcome from elsewhere.

        The waiter may be at another key by now: that of the run which has taken its message.
        """
        kept = {
            key: left
            for key, waiters in (self.waits or {}).items()
            if (left := tuple(each for each in waiters if each is not waiter))
        }
        self.waits = kept or None

    def answer(self, outcome: Outcome) -> None:
        """Give an outcome to the calls that wait for its run."""
        for waiter in self.take_waits(outcome.run_id):
            waiter.future._answer(outcome)
        if self.services.calls is not None:
            self.services.calls.answered(self)

    def refuse_waiters(self, error: BaseException) -> None:
        """Give an error to all calls that wait for an outcome."""
        waits, self.waits = self.waits or {}, None
        for waiters in waits.values():
            for waiter in waiters:
                refuse(waiter.future, error)

    def refuse_those(self, are_meant: Callable[[AgentCall], bool], error: BaseException) -> None:
        """Give an error to some of the calls in the inbox."""
        for call in list(self.inbox):
            if are_meant(call):
                self.inbox.remove(call)
                refuse(call.future, error)

    def refuse_all(self, error: BaseException) -> None:
        """Give an error to all waiters, and to all messages in the inbox."""
        self.refuse_inbox(error)
        self.refuse_waiters(error)

    def refuse_inbox(self, error: BaseException, count: int | None = None) -> None:
        """Give an error to the first messages in the inbox; None: to all messages there now.

        What another thread adds meanwhile is no part of what has failed, and is looked at for
        itself (test_what_is_asked_for_while_a_call_before_it_is_refused_is_not_refused_with_it).
        """
        for _ in range(len(self.inbox) if count is None else count):
            call = self.inbox.pop(0)
            if call.is_look and not self.services.closing:
                self.services.looks.answer(self, call)  # the store has what it looks for
            else:
                refuse(call.future, error)

    def is_needed_in_memory(self) -> bool:
        """Whether a message in the inbox activates the agent."""
        return any(not call.is_guess for call in self.inbox)

    def abandon(self, error: BaseException) -> None:
        """Give an error to every call of the agent that waits: the runtime has stopped."""
        self.refuse_all(error)
        while self.inbox:  # of other threads: no actor looks at it any more
            self.refuse_inbox(error)
        if self.activation is not None:
            self.activation.answer_released(error)
        self.log.close()

    def forget(self, *, keeps_spawn: bool = False) -> None:
        """Forget the agent of this id, which is deleted; another may be created with the id.

        Args:
            keeps_spawn: whether the next message creates it, where it was spawned here since it was
                in memory.

        """
        if not (keeps_spawn and self.is_spawned):
            self.agent = self.deps = self.values = None
            self.is_spawned = False
        self.refuse_waiters(UnknownAgent(agent_id=self.id))
        log, self.log = self.log, EventLog(self.id, self.services.lock)
        log.close()


def _running_tools(state: AgentState) -> list[str]:
    """The tools of the calls that are under way, in the whole tree of agents."""
    turns = [inner.run.turn for inner in state.tree if inner.run is not None and not inner.run.over]
    return [
        call.part.tool_name
        for turn in turns
        if turn is not None
        for call in turn.calls.values()
        if call.running
    ]
