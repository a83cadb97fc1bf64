"""Agents that are continued in the background, until the run of each has an outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from understudy._base.log_fields import log_extra
from understudy.actors.agent.messages import WaitOutcome
from understudy.actors.agent.replies import runtime_stopped
from understudy.actors.agent.slot import AgentSlot
from understudy.errors import Fenced, OwnedElsewhere, StoreUnavailable, UnfitHost
from understudy.loop_actors.future import Future
from understudy.outcomes import Outcome

if TYPE_CHECKING:
    from tenacity import RetryCallState

logger: logging.Logger = logging.getLogger(__name__)

WHILE_AWAY = (StoreUnavailable, Fenced)
"""Errors after which the store may have the agent for this runtime again."""
OnEnd = Callable[[str, Outcome | Exception | None], None]
"""A function that gets the id of an agent whose run was continued, and the outcome of the run, or
why the run is not continued any further."""
SHORT_TURN = 0.005
"""The seconds of a loop turn up to which the next agent begins at once."""
LONGEST_PAUSE = 0.2
"""Seconds between the beginnings of two agents at most, however slow the loop is."""
FIRST_BACKOFF, LONGEST_BACKOFF = 0.1, 10.0
"""Seconds between two attempts at one agent; the store itself waits for its `patience` in each."""


async def _let_others_go_on() -> None:
    """Wait for as long as a turn of the loop takes: half of its time is for the others.

    So what is recovered goes on as fast as the loop has room for it, however many steps each run
    has left. Where the loop has nothing else to do that is no time.
    """
    loop = asyncio.get_running_loop()
    since = loop.time()
    await asyncio.sleep(0)
    if (turn := loop.time() - since) > SHORT_TURN:
        await asyncio.sleep(min(turn, LONGEST_PAUSE))


class Progress:
    """How far agents have got that are continued in the background, by their ids.

    Args:
        ids: of the agents that are continued.
        left: why others, that are to be continued, are not.

    """

    def __init__(
        self, ids: Iterable[str] = (), left: Mapping[str, Exception] | None = None
    ) -> None:
        self.waiting: dict[str, Exception | None] = dict.fromkeys(ids)
        """The last error, if any, of an agent that has not got further yet, by agent id."""
        self.left: dict[str, Exception] = dict(left or {})
        """Why an agent is not continued, or not any further, by agent id."""

    def failed(self, id: str, error: Exception) -> None:
        """Note the error of a failed attempt at an agent; another attempt follows."""
        if id in self.waiting:
            self.waiting[id] = error

    def settle(self, id: str, error: Exception | None = None) -> None:
        """Note what becomes of the agent: it has got further, or is left for this error."""
        if id in self.waiting:
            del self.waiting[id]
            if error is not None:
                self.left[id] = error


class Recovering:
    """Continues agents in the background. An agent that is not in memory is activated.

    Args:
        progress: of these agents.
        at_once: how many agents run at a time until each makes progress.
        on_end: called for each with what came of it.
        by: the person who has them recovered.

    """

    def __init__(
        self,
        progress: Progress,
        *,
        at_once: int,
        on_end: OnEnd | None = None,
        by: str | None = None,
    ) -> None:
        self.under_way: set[str] = set()
        """The ids of the agents of which it is not known yet what becomes of them."""
        self._progress = progress
        self._places = asyncio.Semaphore(at_once)
        self._suspects_place = asyncio.Lock()
        self._on_end = on_end
        self._by = by

    async def run(self, others: Sequence[AgentSlot], suspects: Sequence[AgentSlot] = ()) -> None:
        """Continue these agents, and wait until it is known what becomes of each.

        Args:
            others: run side by side.
            suspects: those that were cut off before without progress: last, and one by one.

        """
        self.under_way.update(slot.id for slot in (*others, *suspects))
        try:
            begun = []
            for slot in others:
                # The place comes before the task: thousands that begin in one turn of the loop
                # would hold up everybody else
                # (test_who_recovers_many_agents_begins_with_as_many_as_may_run).
                await self._places.acquire()
                begun.append(self._follow(slot))
                await _let_others_go_on()
            for settled in begun:
                await settled.wait()
            for slot in suspects:
                async with self._suspects_place:  # also of another call of this
                    await self._places.acquire()
                    await self._follow(slot).wait()
        finally:
            for id in list(self._progress.waiting):
                self._progress.settle(id, runtime_stopped(id))

    def _follow(self, slot: AgentSlot) -> asyncio.Event:
        """Continue the agent, in a task; the event is set once its fate is known.

        The caller has taken a place, for the first attempt.
        """
        settled = asyncio.Event()
        slot.services.start_task(self._until_outcome(slot, settled), f"recovering {slot.id}")
        return settled

    async def _until_outcome(self, slot: AgentSlot, settled: asyncio.Event) -> None:
        """Continue the agent until its run has ended, and again after each outage of the store.

        No caller waits for its run, who would have to be told that the store had cut it off.
        """
        # Not where an agent is only defined, or run. A store in a database has loaded it by now.
        from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

        extra = log_extra(slot.id)

        def failed(state: RetryCallState) -> None:
            assert state.outcome is not None, "called after an attempt"
            error = state.outcome.exception()
            assert isinstance(error, Exception), "by which it failed"
            self._progress.failed(slot.id, error)
            logger.warning("agent %r is not recovered yet: %s", slot.id, error, extra=extra)

        async def wait_for_place(seconds: float) -> None:
            await asyncio.sleep(seconds)
            await self._places.acquire()

        retry = AsyncRetrying(
            retry=retry_if_exception_type(WHILE_AWAY),
            wait=wait_random_exponential(multiplier=FIRST_BACKOFF, max=LONGEST_BACKOFF),
            before_sleep=failed,
            sleep=wait_for_place,
        )
        end: Outcome | Exception | None = None
        try:
            end = await retry(self._attempt, slot, settled)
        except Exception as error:  # logged, and told: the others are recovered all the same
            if isinstance(error, OwnedElsewhere | UnfitHost):
                logger.info("%s", error, extra=extra)
            elif settled.is_set():
                what = "the run of agent %r, which was recovered, ended: %s"
                logger.warning(what, slot.id, error, extra=extra)
            else:
                logger.error("agent %r was not recovered: %s", slot.id, error, extra=extra)
            self._progress.settle(slot.id, error)
            end = error
        finally:
            self._settle(slot.id, settled)
        if self._on_end is not None:
            self._on_end(slot.id, end)

    def _settle(self, id: str, settled: asyncio.Event) -> None:
        self.under_way.discard(id)
        settled.set()

    async def _attempt(self, slot: AgentSlot, settled: asyncio.Event) -> Outcome | None:
        """Activate an agent and wait for its outcome. Its place is free once its run gets further.

        The caller has taken the place.
        """
        ended: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        progress = asyncio.Event()
        try:
            try:
                slot.on_progress = (*slot.on_progress, progress)
                outcome: Future[Outcome | None] = slot.post(WaitOutcome(by=self._by))
                ended = asyncio.ensure_future(outcome)
                going = asyncio.ensure_future(progress.wait())
                try:
                    await asyncio.wait({ended, going}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    going.cancel()
            finally:
                slot.on_progress = tuple(each for each in slot.on_progress if each is not progress)
                self._places.release()
            # Race: an agent that its store has failed is released, which ends the wait for its
            # progress, before `ended` has its error.
            if not outcome.done():
                self._progress.settle(slot.id)
                self._settle(slot.id, settled)
            result = await ended
            self._progress.settle(slot.id)
            return result
        finally:
            ended.cancel()
