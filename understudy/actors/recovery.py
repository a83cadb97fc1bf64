"""Recovery after a crash: which agents have something to continue, and in which order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    wait_random_exponential,
)

from understudy._base.log_fields import about
from understudy.actors.activation import Activation
from understudy.actors.agent_directory import Directory
from understudy.actors.agent_ref import AgentRef
from understudy.actors.agent_slot import AgentSlot
from understudy.actors.messages import WaitOutcome
from understudy.actors.replies import runtime_stopped
from understudy.actors.services import RuntimeServices, StartTask
from understudy.errors import Fenced, OwnedElsewhere, StoreUnavailable, UnfitHost
from understudy.journal import IndexStatus
from understudy.loop_actors.future import Future
from understudy.outcomes import Outcome

logger: logging.Logger = logging.getLogger(__name__)
T = TypeVar("T")

WHILE_AWAY = retry_if_exception_type((StoreUnavailable, Fenced))
"""Errors after which the store may have the agent for this runtime again."""
OnEnd = Callable[[Outcome | Exception | None], None]
"""Gets the outcome of a run that was continued, or why it is not continued any further."""
BACKOFF = wait_random_exponential(multiplier=0.1, max=10)
"""Seconds between two attempts at one agent; the store itself waits for its `patience` in each."""


class Recovery(list[AgentRef]):
    """The agents that `Runtime.recover` continues, as a list of their refs; and what came of it.

    It changes while the agents are continued in the background. Its properties are copies.
    """

    settled: Future[Recovery]
    """Settles, with this object, once `waiting` is empty; at the latest when the runtime stops."""

    def __init__(
        self, refs: Sequence[AgentRef] = (), left: Mapping[str, Exception] | None = None
    ) -> None:
        super().__init__(refs)
        self.settled = Future()
        self._left = dict(left or {})
        self._waiting: dict[str, Exception | None] = {ref.id: None for ref in refs}

    @property
    def waiting(self) -> dict[str, Exception | None]:
        """The agents, by id, that have not got further yet, each with its last error, if any.

        After an error of a store that is away they are tried again, by themselves.
        """
        return dict(self._waiting)

    @property
    def left(self) -> dict[str, Exception]:
        """The agents, by id, that are to be continued and are not, each with the reason.

        `OwnedElsewhere` for those that another runtime has. They are not tried again: call
        `recover` once more when the reason is gone.
        """
        return dict(self._left)

    def _failed(self, id: str, error: Exception) -> None:
        """An attempt failed that is followed by another one."""
        if id in self._waiting:
            self._waiting[id] = error

    def _settle(self, id: str, error: Exception | None = None) -> None:
        """It is known what becomes of the agent: it has got further, or is left for this error."""
        if id in self._waiting:
            del self._waiting[id]
            if error is not None:
                self._left[id] = error

    def _end(self) -> None:
        for id in self.waiting:
            self._settle(id, runtime_stopped(id))
        self.settled.set(self)


async def recover(
    services: RuntimeServices[AgentSlot, Activation], directory: Directory, at_once: int
) -> Recovery:
    """Continue every run that was cut off, and start what is queued; the refs of those agents.

    Only `at_once` agents run until each makes progress, so that one that crashes the process takes
    few others with it. Suspects, which were cut off before without progress, come last and one by
    one.
    """
    others: list[AgentRef] = []
    suspects: list[AgentRef] = []
    left: dict[str, Exception] = {}
    here = services.host
    async for stored in services.store.agents(
        {IndexStatus.OPEN, IndexStatus.QUEUED, IndexStatus.SUSPECT}
    ):
        if stored.damage is not None:
            left[stored.agent_id] = stored.damage
            logger.error(
                "agent %r was not recovered: %s",
                stored.agent_id,
                stored.damage,
                extra=about(stored.agent_id),
            )
        elif stored.host not in (None, here):
            left[stored.agent_id] = OwnedElsewhere(agent_id=stored.agent_id, host=stored.host)
        elif stored.host is None or not directory.is_active(stored.agent_id):
            ref = directory.get(stored.agent_id)
            (suspects if stored.index_status is IndexStatus.SUSPECT else others).append(ref)
    recovery = Recovery([*others, *suspects], left)
    recovering = _Recovering(services.start_task, recovery, at_once)
    services.start_task(recovering.run(others, suspects), "recovering")
    return recovery


async def continue_one(start_task: StartTask, ref: AgentRef, on_end: OnEnd | None = None) -> None:
    """Continue one agent, and wait until its run makes progress or ends."""
    recovering = _Recovering(start_task, Recovery([ref]), at_once=1, on_end=on_end)
    await recovering.run([ref], [])


class _Recovering:
    """Continues agents in the background."""

    def __init__(
        self,
        start_task: StartTask,
        recovery: Recovery,
        at_once: int,
        on_end: OnEnd | None = None,
    ) -> None:
        self._start_task = start_task
        self._recovery = recovery
        self._on_end = on_end
        self._places = asyncio.Semaphore(at_once)

    async def run(self, others: Sequence[AgentRef], suspects: Sequence[AgentRef]) -> None:
        try:
            for settled in [self._follow(ref) for ref in others]:
                await settled.wait()
            for ref in suspects:
                await self._follow(ref).wait()
        finally:
            self._recovery._end()

    def _follow(self, ref: AgentRef) -> asyncio.Event:
        """Continue the agent, in a task; the event is set once it is known what becomes of it."""
        settled = asyncio.Event()
        self._start_task(self._until_outcome(ref, settled), f"recovering {ref.id}")
        return settled

    async def _until_outcome(self, ref: AgentRef, settled: asyncio.Event) -> None:
        """Continue the agent, again each time that the store was away, until its run has ended.

        No caller waits for its run, who would have to be told that the store had cut it off.
        """

        def failed(state: RetryCallState) -> None:
            assert state.outcome is not None, "called after an attempt"
            error = state.outcome.exception()
            assert isinstance(error, Exception), "by which it failed"
            self._recovery._failed(ref.id, error)
            logger.warning("agent %r is not recovered yet: %s", ref.id, error, extra=about(ref.id))

        retry = AsyncRetrying(retry=WHILE_AWAY, wait=BACKOFF, before_sleep=failed)
        end: Outcome | Exception | None = None
        try:
            end = await retry(self._attempt, ref, settled)
        except Exception as error:  # logged, and told: the others are recovered all the same
            if isinstance(error, OwnedElsewhere | UnfitHost):
                logger.info("%s", error, extra=about(ref.id))
            elif settled.is_set():
                logger.warning(
                    "the run of agent %r, which was recovered, ended: %s",
                    ref.id,
                    error,
                    extra=about(ref.id),
                )
            else:
                logger.error("agent %r was not recovered: %s", ref.id, error, extra=about(ref.id))
            self._recovery._settle(ref.id, error)
            end = error
        finally:
            settled.set()
        if self._on_end is not None:
            self._on_end(end)

    async def _attempt(self, ref: AgentRef, settled: asyncio.Event) -> Outcome | None:
        """Activate it and wait for its outcome; a place is taken until its run makes progress."""
        slot = ref._slot
        outcome: Future[Outcome | None] = Future()
        ended = asyncio.ensure_future(_result(outcome))
        try:
            async with self._places:
                progress = asyncio.Event()
                slot.on_progress = (*slot.on_progress, progress)
                slot.post(WaitOutcome(outcome))
                going = asyncio.ensure_future(progress.wait())
                try:
                    await asyncio.wait({ended, going}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    going.cancel()
                    slot.on_progress = tuple(e for e in slot.on_progress if e is not progress)
            # Race: an agent that its store has failed is released, which ends the wait for its
            # progress, before `ended` has its error.
            if not outcome.done():
                self._recovery._settle(ref.id)
                settled.set()
            result = await ended
            self._recovery._settle(ref.id)
            return result
        finally:
            ended.cancel()


async def _result(outcome: Future[T]) -> T:
    return await outcome
