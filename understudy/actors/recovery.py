"""Recovery after a crash: which agents have something to continue, and in which order.

`Recovery.recover` does it at once. The `Sweep` does it every now and then, so that nothing has to:
for what a crash of this host, or of another one, has left behind.
"""

from __future__ import annotations

import asyncio
import logging

from understudy._base.clock import jittered
from understudy.actors.agent_host import AgentHost
from understudy.actors.agent_ref import AgentRef
from understudy.actors.messages import WaitOutcome
from understudy.errors import JournalFailed, OwnedElsewhere, StoreUnavailable
from understudy.journal import IndexStatus
from understudy.loop_actors.future import Future
from understudy.outcomes import Outcome

logger = logging.getLogger(__name__)

SWEEP_AT_ONCE = 32
"""How many agents a sweep has run at a time until each makes progress."""
DUES_SECONDS = 30.0
"""How often the store's index of dues is read where there is no sweep."""
LONGEST_BACKOFF = 3600.0


class Recovery:
    """Continues the agents of one runtime that nobody runs. Lives on the runtime's loop."""

    def __init__(self, agent_host: AgentHost) -> None:
        self._host = agent_host
        self._under_way: set[str] = set()
        self._places = asyncio.Semaphore(SWEEP_AT_ONCE)
        self._suspects_place = asyncio.Semaphore(1)
        self._tries: dict[str, tuple[int, float]] = {}
        """By agent id, how often in a row a sweep has found it, and when it is tried again."""

    async def recover(self, at_once: int) -> list[AgentRef]:
        """Continue every run that was cut off, and start what is queued; the refs of those agents.

        Only `at_once` agents run until each makes progress, so that one that crashes the process
        takes few others with it. Suspects, which were cut off before without progress, come last
        and one by one.
        """
        others, suspects = await self._left_behind()
        self._start(others, suspects, asyncio.Semaphore(at_once))
        return [*others, *suspects]

    async def sweep(self) -> None:
        """The same for agents whose definition is known here, fewer and fewer times for each."""
        others, suspects = await self._left_behind(known_only=True)
        found = {ref.id for ref in (*others, *suspects)}
        self._tries = {id: tried for id, tried in self._tries.items() if id in found}
        self._start(
            [ref for ref in others if self._is_to_be_tried(ref.id)],
            [ref for ref in suspects if self._is_to_be_tried(ref.id)],
            self._places,
        )

    async def _left_behind(
        self, *, known_only: bool = False
    ) -> tuple[list[AgentRef], list[AgentRef]]:
        """The agents that are open or queued and that nobody runs; and the suspects."""
        wanted: dict[IndexStatus, list[AgentRef]] = {}
        services, directory = self._host.services, self._host.directory
        here = getattr(services.store, "host", None)
        async for stored in services.store.agents(
            {IndexStatus.OPEN, IndexStatus.QUEUED, IndexStatus.SUSPECT}
        ):
            if stored.host not in (None, here):
                continue  # another runtime owns it, and runs it
            if known_only and not directory.knows(stored.agent):
                continue
            if stored.host is None or not directory.is_active(stored.agent_id):
                wanted.setdefault(stored.index_status, []).append(directory.get(stored.agent_id))
        suspects = wanted.pop(IndexStatus.SUSPECT, [])
        return [ref for refs in wanted.values() for ref in refs], suspects

    def _is_to_be_tried(self, agent_id: str) -> bool:
        if agent_id in self._under_way or self._host.directory.is_active(agent_id):
            return False
        tries, not_before = self._tries.get(agent_id, (0, 0.0))
        now = self._host.services.loop.time()
        if now < not_before:
            return False
        seconds = min(DUES_SECONDS * 2**tries, LONGEST_BACKOFF)
        self._tries[agent_id] = (min(tries + 1, 16), now + seconds)
        return True

    def _start(
        self, others: list[AgentRef], suspects: list[AgentRef], places: asyncio.Semaphore
    ) -> None:
        # Race: a sweep and a `recover`, or two of them. Each agent is waited for by one of them
        # (test_a_sweep_and_a_recover_at_once_continue_each_agent_once).
        others = [ref for ref in others if ref.id not in self._under_way]
        suspects = [ref for ref in suspects if ref.id not in self._under_way]
        self._under_way |= {ref.id for ref in (*others, *suspects)}
        if others or suspects:
            self._host.activator.start_task(self._continue_all(others, suspects, places))

    async def _continue_all(
        self, others: list[AgentRef], suspects: list[AgentRef], places: asyncio.Semaphore
    ) -> None:
        async def continue_one(ref: AgentRef, place: asyncio.Semaphore) -> None:
            try:
                async with place:
                    await _until_progress(ref)
            finally:
                self._under_way.discard(ref.id)

        await asyncio.gather(*(continue_one(ref, places) for ref in others))
        for ref in suspects:
            await continue_one(ref, self._suspects_place)


class Sweep:
    """Looks every now and then for what nobody runs, and for agents that are due.

    Args:
        agent_host: whose agents.
        recovery: continues them.
        seconds: between two sweeps; the first one comes as long after the start. None = only the
            agents that are due are looked for.

    """

    def __init__(self, agent_host: AgentHost, recovery: Recovery, seconds: float | None) -> None:
        self._host = agent_host
        self._recovery = recovery
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Wait for the first sweep. By real time, whatever the clock of the runtime is."""
        seconds = jittered(self._seconds or DUES_SECONDS)
        self._timer = self._host.services.loop.call_later(seconds, self._begin)

    def close(self) -> None:
        """Sweep no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = self._host.activator.start_task(self._sweep())

    async def _sweep(self) -> None:
        try:
            await self._host.dues.refresh()
            if self._seconds is not None:
                await self._recovery.sweep()
        except JournalFailed as error:
            logger.error("what nobody runs is not known: %s", error)
        except Exception:  # of a store of the application: the next sweep tries again
            logger.exception("the sweep failed")
        self.open()


async def _until_progress(ref: AgentRef) -> None:
    """Activate it, and wait until its run makes progress or ends, also while the store is away."""
    slot = ref._slot
    while True:
        progress = slot.on_progress = asyncio.Event()
        outcome: Future[Outcome | None] = Future()
        slot.post(WaitOutcome(outcome))
        waiting = asyncio.ensure_future(_error_of(ref.id, outcome))
        going = asyncio.ensure_future(progress.wait())
        try:
            await asyncio.wait({waiting, going}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done() or not isinstance(waiting.result(), StoreUnavailable):
                return
            logger.warning("agent %r is not recovered yet: the store is away", ref.id)
        finally:
            slot.on_progress = None
            going.cancel()
            waiting.cancel()


async def _error_of(agent_id: str, outcome: Future[Outcome | None]) -> BaseException | None:
    try:
        await outcome
    except OwnedElsewhere as error:
        logger.info("%s", error)
        return error
    except Exception as error:  # logged: the others are recovered all the same
        logger.error("agent %r was not recovered: %s", agent_id, error)
        return error
    return None
