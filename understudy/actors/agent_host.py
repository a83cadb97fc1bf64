"""`AgentHost`: the agents of one runtime, from its start to its end, in memory or stored."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from understudy._base.json_values import text_of
from understudy.actors.activator import Activator
from understudy.actors.agent.activation import Activation
from understudy.actors.agent.directory import Directory
from understudy.actors.agent.events import LoopBlocked
from understudy.actors.agent.factory import MadeAtActivation
from understudy.actors.agent.messages import (
    AgentCall,
    AnswerWait,
    CheckDue,
    GivenToken,
    Passivate,
)
from understudy.actors.agent.phase import Phase
from understudy.actors.agent.replies import runtime_stopped
from understudy.actors.agent.services import RuntimeServices, RuntimeTelemetry
from understudy.actors.agent.slot import AgentSlot
from understudy.actors.agent_ref import AgentRef
from understudy.actors.due_clock import DueClock
from understudy.actors.hosts.outgoing import Outgoing
from understudy.actors.loop_monitor import LoopMonitor
from understudy.actors.reads.export import mark_restored
from understudy.actors.reads.stored_queries import StoredQueries
from understudy.actors.tree import agent_tree
from understudy.actors.trust_watch import TrustWatch
from understudy.agent.agent import Agent
from understudy.errors import (
    Expired,
    Fenced,
    JournalFailed,
    UnfitHost,
    UnknownAgent,
    UnknownToken,
    UsageError,
)
from understudy.journal import IndexStatus
from understudy.journal.parts import read_in_parts
from understudy.loop_actors.future import Future
from understudy.loop_actors.monitor import Lifetime
from understudy.loop_actors.supervisor import SupervisorTree
from understudy.run.waits.answers import TOKEN_RECORDS, Answer, MadeToken, TokenReading
from understudy.run.waits.tokens import agent_of, hash_of

if TYPE_CHECKING:
    from understudy.run.background import BackgroundCalls

logger: logging.Logger = logging.getLogger(__name__)

TO_GO_ON = (IndexStatus.OPEN, IndexStatus.QUEUED)
"""The index statuses of agents with a run to continue or begin. Suspects are left to the sweeps."""


class AgentHost:
    """The agents of one runtime. They use its `services`.

    Args:
        directory: where they are found, by name and by id.
        make_services: makes the services, with what the host gives to them.
        telemetry: as of `Runtime`.

    """

    services: RuntimeServices[AgentSlot, Activation]
    """The services of the runtime. Set when the runtime opens."""
    dues: DueClock
    """The clock that tells agents when they are due. Set when the runtime opens."""
    trust: TrustWatch
    """The watch of the store's log of trust. Set when the runtime opens."""

    def __init__(
        self,
        directory: Directory,
        make_services: Callable[..., RuntimeServices[AgentSlot, Activation]],
        telemetry: RuntimeTelemetry | None,
    ) -> None:
        self.lifetime: Lifetime = Lifetime()
        self.directory: Directory = directory
        self.activator: Activator = Activator(directory)
        self.has_peers: bool = True
        """Whether calls go to other processes of this machine by a socket. A cluster brings each
        call to the owner itself."""
        self._make_services = make_services
        self._telemetry = telemetry
        self._outgoing: Outgoing | None = None
        self._draining: asyncio.Task[None] | None = None

    # -------------------------------------------------------------------- life cycle

    async def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Open the store and start the supervisor."""
        services = self._make_services(
            loop=loop,
            definition=self.directory.named,
            check_inbox=self.activator.check_inbox,
            release=self.activator.release,
            settle_definition=self.directory.settle_definition,
            ref_of=self.ref,
            tell_due=lambda agent_id, due: self.dues.tell(agent_id, due),
        )
        services.runs = replace(services.runs, background=self._background)
        self.services = self.directory.services = self.activator.services = services
        self.trust = TrustWatch(services, self.hold)
        self.trust.provide()
        services.looks = StoredQueries(services, self.directory)
        services.placement.introduce()
        shared = services.shared_store
        if shared is not None and services.placement.any_host:
            self._outgoing = services.calls = Outgoing(
                self.directory, shared, has_peers=self.has_peers
            )
            shared.listen(self._outgoing.hear)
        services.store.feed_clock = services.clock
        await services.store.open(self._lost_lease)
        try:
            # Before an agent is claimed: what this host must not run, it must not have.
            await self.trust.open()
            if services.budgets is not None:
                services.budgets.open(services.store.spending)
            await services.placement.register(self.directory.definitions())
            await services.placement.register_factory()
            await mark_restored(services.store, services.clock)
            self.dues = DueClock(self.directory)
            await self.dues.refresh()
            if self._telemetry is not None:
                services.instrument = self._telemetry.watch(services)
        except BaseException:
            await services.store.close()
            raise
        self.activator.open()
        self.dues.open()
        if self._outgoing is not None:
            self._outgoing.open()
        self._loop_monitor = LoopMonitor(loop, services.clock, self._loop_blocked)
        self._loop_monitor.start()

    def _loop_blocked(self, seconds: float, where: str) -> None:
        for slot in self.directory.slots():
            slot.log.emit(LoopBlocked(seconds=seconds, where=where))

    async def close(self, timeout: float | None) -> None:
        """Passivate all agents, then cancel what is left, then close the store."""
        self.lifetime.set()
        if self._telemetry is not None:
            self._telemetry.leave(self.services)
        self._loop_monitor.stop()
        self.trust.close()
        self.dues.close()
        if self._outgoing is not None:
            self._outgoing.close()
        # Whatever interrupts the waiting: no agent outlives its runtime.
        async with contextlib.AsyncExitStack() as last:
            last.push_async_callback(self.services.store.close)
            last.push_async_callback(self.services.runs.shared.close)
            last.push_async_callback(self._end_all)
            await self._passivate_all(timeout)

    async def _passivate_all(self, timeout: float | None) -> None:
        self.services.closing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await asyncio.gather(*map(self._passivate, self.directory.slots()))
                if self.services.telling:
                    await asyncio.wait(self.services.telling)

    async def _end_all(self) -> None:
        await self.activator.close()
        for slot in self.directory.all_slots():
            slot.abandon(runtime_stopped(slot.id))
        if self._outgoing is not None:
            self._outgoing.abandon()
        self.lifetime.end(None)

    async def drain(self, timeout: float | None) -> bool:
        """Give up all agents in order, and take no more; see `Runtime.drain`."""
        if self._draining is None or self._draining.done():
            self._draining = self.services.start_task(self._drain())
        # What ends its step later is handed over, too: the task goes on
        # (test_what_ends_its_step_after_the_time_of_a_drain_goes_on_elsewhere_too).
        done, _ = await asyncio.wait([self._draining], timeout=timeout)
        for task in done:
            task.result()
        return bool(done)

    async def _drain(self) -> None:
        await self._give_up_all(self.services.placement.drain(), "this runtime is being drained")

    async def hold(self, why: str) -> None:
        """Give up all agents while no call may start here, as a drain does; empty: take them again.

        Args:
            why: no call may start.

        """
        placement = self.services.placement
        if why:
            what = f"no call may start at this runtime: {why}"
            await self._give_up_all(placement.hold(why), what)
        else:
            await placement.hold("")

    def go_on(self) -> None:
        """Continue the agents in memory that a freeze has kept back; a sweep finds other agents."""
        for slot in self.directory.slots():
            if slot.activation is not None and slot.activation.kept_back is not None:
                slot.post(CheckDue())

    async def let_go(self, agent_ids: Collection[str]) -> None:
        """Passivate the given agents that are in memory and have nothing to do."""
        slots = [slot for id in agent_ids if (slot := self.directory.find(id)) is not None]
        idle = [slot for slot in slots if slot.phase is Phase.IDLE and not slot.inbox]
        await asyncio.gather(*map(self._passivate, idle))

    async def _give_up_all(self, saying: Coroutine[Any, Any, None], why: str) -> None:
        """Give up all agents, after the other hosts know that this host takes none."""
        await asyncio.gather(saying, self._give_up_active())
        # Race: this against an agent that was being activated when the draining began
        # (test_an_agent_that_is_being_activated_is_passivated_too).
        while self.services.placement.is_closed and await self._give_up_active():
            pass
        # Race: this against newer rules, by which calls start again before a step has ended
        # (test_no_more_agents_are_given_up_once_newer_rules_have_come).
        is_closed = self.services.placement.is_closed
        for slot in self.directory.all_slots():
            if is_closed or slot.phase is Phase.PASSIVE:
                slot.refuse_waiters(Fenced(agent_id=slot.id, why=why))

    async def _give_up_active(self) -> bool:
        """Give up all agents that are in memory; False if there are none."""
        slots = [slot for slot in self.directory.slots() if slot.phase is not Phase.PASSIVE]
        at_rest = [slot for slot in slots if slot.phase is Phase.IDLE]
        # Each of the others alone: a long step of one holds up no other
        # (test_a_run_goes_on_elsewhere_while_another_one_keeps_the_drain_waiting).
        others = [[slot] for slot in slots if slot.phase is not Phase.IDLE]
        await asyncio.gather(*map(self._give_up, [at_rest, *others]))
        return bool(slots)

    async def _give_up(self, slots: Sequence[AgentSlot]) -> None:
        """Passivate agents, then have other hosts go on with their runs at once."""
        await asyncio.gather(*map(self._passivate, slots))
        try:
            await self._hand_over([slot.id for slot in slots])
        except JournalFailed as error:  # sweeps of other hosts find them
            logger.warning("agents are not handed over to other hosts: %s", text_of(error))

    async def _hand_over(self, agent_ids: Collection[str]) -> None:
        """Have other hosts go on with the runs of these agents at once, if they can be reached."""
        if not (agent_ids and self.services.placement.is_shared):
            return
        for stored in await self.services.store.find_agents(agent_ids):
            if stored.host is None and stored.index_status in TO_GO_ON:
                id, agent = stored.agent_id, stored.agent
                held = self.services.placement.held
                unfit = UnfitHost(agent_id=id, agent=agent, draining=not held, held=held)
                needs = None if self.directory.knows(agent) else ()
                await self.services.placement.elsewhere(id, agent, unfit, needs=needs)

    def _passivate(self, slot: AgentSlot) -> Coroutine[Any, Any, None]:
        """Passivate an agent, and wait until the store has it."""
        # By now it may be passive, and a message would activate it again and again
        # (test_an_agent_that_is_being_activated_is_passivated_too).
        if slot.phase in (Phase.PASSIVE, Phase.RELEASING):
            passive = Future[Any]()
            passive.set(False)
        else:  # at once: it must not begin another step meanwhile
            passive = slot.post(Passivate())

        async def left() -> None:
            with contextlib.suppress(Exception):  # it could not be read: it is passive
                await passive
            if slot.change is not None:
                await asyncio.wait([slot.change])

        return left()

    def _lost_lease(self) -> None:
        """Write nothing more of any agent: the lease is lost, and other runtimes may own them."""
        for slot in self.directory.slots():
            if slot.activation is not None:
                slot.lose("this runtime's lease has ended")

    # ------------------------------------------------------------------- agents

    def _background(self) -> BackgroundCalls:
        from understudy.actors.background import Background  # few runtimes have such calls

        return Background(self.directory, self.services)

    def ref(self, slot: AgentSlot, expected: Agent | MadeAtActivation | None = None) -> AgentRef:
        """A ref of an agent. Its calls check that the agent has the expected definition, if any."""
        return AgentRef(slot, self.lifetime, expected)

    def answer_wait(self, token: str, answer: Answer) -> Callable[[], Coroutine[Any, Any, bool]]:
        """Answer a wait, and wait for the result; see `Runtime.resolve` and `Runtime.reject`.

        From any thread: what the caller asks of this agent afterwards is done after it. A token
        that no wait has activates no agent: a caller that guesses ids must not do that.
        """
        try:
            slot = self.directory.get(agent_of(token))
        except (UnknownToken, UsageError):
            return _unknown_token
        given = GivenToken()
        asked = AgentCall(AnswerWait(hash_of(token), answer, given), Future(self.services.loop))
        slot.ask(asked)
        return partial(self._answered, slot, asked, given)

    async def _answered(
        self, slot: AgentSlot, asked: AgentCall[AnswerWait], given: GivenToken
    ) -> bool:
        agent_id, token_hash, answer = slot.id, asked.message.token_hash, asked.message.answer
        if not self.directory.is_active(agent_id):
            try:
                await self._made_token(agent_id, token_hash)
            except Exception as error:
                slot.refuse_those(lambda each: each.message is asked.message, error)
                if slot.phase is Phase.PASSIVE:
                    self.directory.drop_unless_needed(slot)
        # Also of a guess that was not in the inbox: it goes along with other calls. And of one to
        # an agent in memory, which may leave it before it gets there
        # (test_an_answer_to_an_agent_that_leaves_memory_wakes_it_again).
        given.is_checked = True
        self.activator.check_inbox_here(slot)
        try:
            known: bool | None = await asked.future
        except UnknownAgent:
            raise UnknownToken from None
        if known is not None:
            return known
        # Its turn is over, and the state has nothing of it any more.
        made = await self._made_token(agent_id, token_hash)
        if made.answer is None:
            raise Expired(agent_id=agent_id, name=made.name)
        return answer.same_as(made.answer)

    async def _made_token(self, agent_id: str, token_hash: str) -> MadeToken:
        """What the agent's records tell of the token with this hash.

        Raises:
            UnknownToken: if it has not made it.

        """
        store = self.services.store
        # A caller that guesses ids must not make this host read journals: is it there at all?
        # (test_a_token_that_nobody_made_reads_no_records).
        if not await store.has_text(agent_id, TOKEN_RECORDS, token_hash):
            raise UnknownToken
        read = await read_in_parts(store, agent_id, lambda _: TokenReading(token_hash))
        made = None if read is None else read[1].found
        if made is None:
            raise UnknownToken
        return made

    def tree(self) -> SupervisorTree:
        """The supervisor and the actors, with the nested runs; see `Runtime.tree`."""
        tree = self.activator.supervisor.tree()
        actors = (agent_tree(child, self.directory.find(child.id)) for child in tree.children)
        return replace(tree, children=tuple(actors))


async def _unknown_token() -> bool:
    raise UnknownToken
