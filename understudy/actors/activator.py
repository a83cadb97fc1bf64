"""`Activator`: starts the actors of agents under a supervisor, and releases agents to the store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pykka

from understudy._base.event_loops import call_on
from understudy._base.log_fields import log_extra
from understudy.actors.agent.activation import Activation
from understudy.actors.agent.actor import CHECK_INBOX, AgentActor
from understudy.actors.agent.deletion import Deleted, delete_stored
from understudy.actors.agent.directory import Directory
from understudy.actors.agent.messages import AgentCall, Compact, Delete
from understudy.actors.agent.phase import Phase
from understudy.actors.agent.replies import answer_with, as_exception, runtime_stopped
from understudy.actors.agent.services import RuntimeServices
from understudy.actors.agent.slot import AgentSlot
from understudy.errors import (
    Fenced,
    JournalFailed,
    OwnedElsewhere,
    UnderstudyError,
    UnknownAgent,
)
from understudy.journal.snapshots import snapshot_of
from understudy.loop_actors.errors import RuntimeStopped
from understudy.loop_actors.future import Future
from understudy.loop_actors.loop_actor import loop_for_start
from understudy.loop_actors.ref import LoopActorRef
from understudy.loop_actors.supervisor import (
    ChildSpec,
    ChildStartFailed,
    Supervisor,
    SupervisorRef,
)
from understudy.state.plans import BackgroundCall
from understudy.stopping import StopReason, StopSignal

if TYPE_CHECKING:
    from tenacity import RetryCallState

logger: logging.Logger = logging.getLogger(__name__)

START_ATTEMPTS = 3


class Activator:
    """Activates and releases agents. Lives on the runtime's loop."""

    services: RuntimeServices[AgentSlot, Activation]
    """The services of the runtime. Set when the runtime opens."""
    supervisor: SupervisorRef
    """The supervisor of the agents' actors. Set when the runtime opens."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    # -------------------------------------------------------------------- life cycle

    def open(self) -> None:
        """Start the supervisor."""
        token = loop_for_start.set(self.services.loop)
        try:
            # A run that crashes again and again is quarantined: the limit is never what stops it.
            self.supervisor = Supervisor.start(
                name="agents", max_restarts=1_000_000, wait=_seconds_before_restart
            )
        finally:
            loop_for_start.reset(token)

    async def close(self) -> None:
        """Cancel every task and stop every actor. What goes on all the same is abandoned."""
        tasks: list[asyncio.Task[Any]] = [*self.services.tasks]
        for slot in self._directory.slots():
            if slot.activation is not None and slot.activation.task is not None:
                tasks.append(slot.activation.task)
        # A task that was created just now takes its first step: only then can it clean up.
        await asyncio.sleep(0)
        abandoned = self.services.abandoned
        going_on = await abandoned.cancel([*tasks, *abandoned])
        for slot in self._directory.slots():
            if slot.activation is not None and slot.activation.task in going_on:
                going_on.discard(slot.activation.task)
                slot.abandon_run(slot.activation, slot.activation.task)
        for task in going_on:
            abandoned.add(task, f"the task {task.get_name()!r}")
        stopped = self.supervisor.stop(block=False)
        try:
            async with asyncio.timeout(abandoned.seconds):
                await stopped
        except TimeoutError:
            await self.supervisor.stop_now()

    # ------------------------------------------------------------------- activating

    def check_inbox(self, slot: AgentSlot) -> None:
        """Have the agent's actor look at its inbox; activate the agent if need be. Thread-safe."""
        self._directory.hold(slot)
        call_on(self.services.loop, self.check_inbox_here, slot)  # if closed, it was abandoned

    def check_inbox_here(self, slot: AgentSlot) -> None:
        """Have the agent's actor look at its inbox, as `check_inbox`. Called on the loop."""
        if not slot.phase.is_in_memory and not self.services.closing:
            # The store answers the looks before the first message that needs the agent itself.
            while slot.inbox and slot.inbox[0].is_look:
                self.services.looks.answer(slot, slot.inbox.pop(0))
            if not slot.is_needed_in_memory():
                if slot.phase is Phase.PASSIVE:  # a look keeps it no longer
                    self._directory.drop_unless_needed(slot)
                return
        ref = slot.actor_ref
        if ref is not None:
            # False: it has crashed just now. The supervisor starts another, which looks itself.
            _signal(ref)
        elif slot.change is not None:
            pass  # it is being started or released: `_change` looks at the inbox afterwards
        elif self.services.closing:
            slot.abandon(runtime_stopped(slot.id))
        elif slot.phase is Phase.PASSIVE:
            slot.enter(Phase.ACTIVATING)
            self._change(slot, partial(self._start_actor, slot))
        elif slot.phase.is_in_memory:
            # Its actor was stopped from outside while a run task was under way: start another.
            restart = partial(self.supervisor.restart_child, slot.id)
            self._change(slot, partial(_started, restart))
        # else its cancelled run task has to end before it is released, or it is being deleted
        # (test_messages_that_come_while_an_agent_is_deleted_wait_in_the_inbox)

    def _change(self, slot: AgentSlot, work: Callable[[], Awaitable[Any]]) -> None:
        before = slot.change

        async def change() -> None:
            # Closes the race of a release with the start that it follows: the supervisor must know
            # the child before it is asked to delete it.
            if before is not None:
                await before
            try:
                await work()
            except (asyncio.CancelledError, GeneratorExit):
                raise
            except BaseException as error:  # a SystemExit of a store would end the loop
                has_result = False
                what = "agent %r could not be activated, or released"
                logger.exception(what, slot.id, extra=log_extra(slot.id))
                slot.refuse_all(as_exception(slot.id, error))
                slot.actor_ref = None  # it is dead, and the supervisor starts no other
                if slot.phase is Phase.ACTIVATING:
                    slot.enter(Phase.PASSIVE)
            else:
                has_result = slot.phase is Phase.ENDED
            finally:
                if slot.change is task:
                    slot.change = None
            # Race: this against the end of the run task, or of the actor that was to look at its
            # result. Who comes meanwhile leaves it to this change
            # (test_the_result_of_a_run_task_is_looked_at_whenever_its_actor_is_stopped).
            if slot.inbox or has_result:
                self.check_inbox_here(slot)

        task = slot.change = self.services.start_task(change())

    async def _start_actor(self, slot: AgentSlot) -> None:
        spec = ChildSpec(slot.id, _StartActor(slot), restart="transient", shutdown=None)
        await _started(partial(self.supervisor.start_child, spec))

    # ------------------------------------------------------------------- releasing

    def release(self, slot: AgentSlot, activation: Activation | None) -> None:
        """Give the agent back to the store: its actor has stopped."""
        if not self.services.closing:
            self._change(slot, partial(self._release, slot, activation))
            return
        slot.enter(Phase.PASSIVE)  # closing the store releases all agents at once
        if activation is not None:
            activation.answer_released(runtime_stopped(slot.id))

    async def _release(self, slot: AgentSlot, activation: Activation | None) -> None:
        try:
            if activation is not None:
                await self._release_stored(slot, activation)
        finally:
            try:
                # The supervisor may not have noticed yet that the actor has ended.
                await self.supervisor.terminate_child(slot.id)
                await self.supervisor.delete_child(slot.id)
            finally:
                slot.enter(Phase.PASSIVE)
        self._directory.drop_unless_needed(slot)

    async def _release_stored(self, slot: AgentSlot, activation: Activation) -> None:
        """Delete the agent or compact it where that was requested, and give it up."""
        store, owned = self.services.store, activation.journal.owned
        shared = self.services.shared_store
        if shared is not None and activation.is_taken:
            shared.keep_left(activation.journal)
        failure: BaseException | None = None
        try:
            if activation.asked_to(Delete):
                asked = [each for each in activation.leaving if isinstance(each.message, Delete)]
                started = activation.state.background
                deleted = await self._delete_stored(slot, asked[0].message.by, started)
                for each in activation.take_deletions():
                    if deleted.calls:
                        answer_with(slot, each.future, partial(deleted.end_calls, self.services))
                    else:
                        each.future.set(deleted.existed)
                return
            try:
                if activation.asked_to(Compact):
                    now = self.services.clock.now()
                    leaving = (each.message for each in activation.leaving)
                    by = next(each.by for each in leaving if isinstance(each, Compact))
                    state = activation.state
                    snapshot = snapshot_of(state, at=now, by=by)
                    entry = activation.index_entry()
                    owned = await store.compact(owned, snapshot, entry, state.messages)
            finally:
                is_own = not activation.is_taken
                if is_own or activation.lost_attempt is not None:
                    is_own = await store.release(owned, activation.lost_attempt)
                if not is_own:
                    failure = Fenced(agent_id=owned.agent_id, why="another runtime has taken it")
        except JournalFailed as error:  # given to the callers; the store has the agent anyway
            what = "agent %r was not released: %s"
            logger.warning(what, slot.id, error, extra=log_extra(slot.id))
            failure = error
        except BaseException:
            failure = runtime_stopped(slot.id)
            raise
        finally:
            activation.answer_released(failure)

    # ------------------------------------------------------------------- deleting

    @contextlib.contextmanager
    def keeping_passive(self, slots: Sequence[AgentSlot]) -> Iterator[None]:
        """Keep passive agents out of memory: messages that come meanwhile wait in the inbox."""
        for slot in slots:
            slot.enter(Phase.RELEASING)
        try:
            yield
        finally:
            for slot in slots:
                slot.enter(Phase.PASSIVE)
                if slot.inbox:
                    self.check_inbox_here(slot)

    async def delete(self, id: str, by: str | None = None) -> bool:
        """Delete an agent and all its records; see `Runtime.delete`."""
        told = {} if by is None else {"by": by}
        signal = StopSignal(StopReason.USER_REQUESTED, "deleted", told, source="delete")
        try:
            return await self._delete(id, signal, by)
        except (OwnedElsewhere, Fenced):
            if self.services.calls is None:
                raise
        slot = self._directory.get(id)
        deletion = AgentCall(Delete(signal, by), Future(self.services.loop))
        self.services.calls.call_elsewhere(slot, deletion)
        try:
            existed: bool = await deletion.future
        except UnknownAgent:  # another host has deleted it
            existed = False
        if slot.phase is Phase.PASSIVE:
            slot.forget()
            self._directory.drop_unless_needed(slot)
        return existed

    async def _delete(self, id: str, signal: StopSignal, by: str | None) -> bool:
        slot = self._directory.get(id)
        if slot.phase is not Phase.PASSIVE or slot.inbox:
            try:
                existed: bool = await slot.post(Delete(signal, by))
                return existed
            except RuntimeStopped:  # nothing is deleted behind the end of the runtime
                raise
            except UnderstudyError:
                pass  # it cannot be read: delete it all the same
        if slot.phase is not Phase.PASSIVE:
            return await (await self._delete_stored(slot, by)).end_calls(self.services)
        with self.keeping_passive([slot]):
            deleted = await self._delete_stored(slot, by)
        return await deleted.end_calls(self.services)

    async def _delete_stored(
        self, slot: AgentSlot, by: str | None, started: Sequence[BackgroundCall] = ()
    ) -> Deleted:
        deleted = await delete_stored(self.services, slot.id, by, started=started)
        slot.forget()
        # A message that came meanwhile is for the next agent of this id: its slot is kept
        # (test_a_message_that_comes_while_its_agent_is_deleted_keeps_its_place).
        self._directory.drop_unless_needed(slot)
        return deleted


def _seconds_before_restart(state: RetryCallState) -> float:
    """The seconds before a crashed actor is restarted: 0 for two crashes, then more, up to 5."""
    return min(0.05 * 2.0 ** (state.attempt_number - 3), 5.0) if state.attempt_number > 2 else 0.0


async def _started(start: Callable[[], Awaitable[object]]) -> None:
    """Start an actor, again if it was killed before it had started."""
    for _ in range(START_ATTEMPTS - 1):
        with contextlib.suppress(ChildStartFailed):
            await start()
            return
    await start()


class _StartActor:
    """Starts the actor of a slot. A `partial` of it takes 0.2 KB more for each agent."""

    __slots__ = ("_slot",)

    def __init__(self, slot: AgentSlot) -> None:
        self._slot = slot

    def __call__(self) -> LoopActorRef[AgentActor]:
        return AgentActor.start(self._slot)


def _signal(ref: LoopActorRef[Any]) -> None:
    with contextlib.suppress(pykka.ActorDeadError):
        ref.tell(CHECK_INBOX)
