"""Going on after a crash: which agents need to be driven, and in which order (J10)."""

from __future__ import annotations

import asyncio
import logging

from understudy.actors.agent_host import Community
from understudy.actors.agent_ref import AgentRef
from understudy.actors.messages import Await
from understudy.errors import OwnedElsewhere, StoreUnavailable
from understudy.journal import Standing
from understudy.loop_actors.future import Future
from understudy.outcomes import Outcome

__all__ = ["recover"]

logger = logging.getLogger(__name__)


async def recover(community: Community, at_once: int) -> list[AgentRef]:
    """Have all agents that need it driven, from now on; their refs.

    Only a bounded number is driven until each gets further, so that one which brings the process
    down takes few with it. Suspects, which were cut off before without having got further, come
    last and one by one.
    """
    wanted: dict[Standing, list[AgentRef]] = {}
    here = getattr(community.home.store, "host", None)
    async for stored in community.home.store.agents(
        {Standing.OPEN, Standing.QUEUED, Standing.SUSPECT}
    ):
        if stored.host not in (None, here):
            continue  # a runtime that is alive has it, and drives it
        if stored.host is None or not community.directory.is_awake(stored.agent_id):
            wanted.setdefault(stored.standing, []).append(community.directory.get(stored.agent_id))
    suspects = wanted.pop(Standing.SUSPECT, [])
    others = [ref for refs in wanted.values() for ref in refs]
    community.caretaker.keep(_drive_all(others, suspects, at_once))
    return [*others, *suspects]


async def _drive_all(others: list[AgentRef], suspects: list[AgentRef], at_once: int) -> None:
    places = asyncio.Semaphore(at_once)

    async def driven(ref: AgentRef) -> None:
        async with places:
            await _until_progress(ref)

    await asyncio.gather(*(driven(ref) for ref in others))
    for ref in suspects:
        await _until_progress(ref)


async def _until_progress(ref: AgentRef) -> None:
    """Wake it and wait until it gets further or comes to rest; a store that is away is awaited."""
    cell = ref._cell
    while True:
        progress = cell.on_progress = asyncio.Event()
        outcome: Future[Outcome | None] = Future()
        cell.post(Await(outcome))
        waiting = asyncio.ensure_future(_brought(ref.id, outcome))
        going = asyncio.ensure_future(progress.wait())
        try:
            await asyncio.wait({waiting, going}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done() or not isinstance(waiting.result(), StoreUnavailable):
                return
            logger.warning("agent %r is not recovered yet: the store is away", ref.id)
        finally:
            cell.on_progress = None
            going.cancel()
            waiting.cancel()


async def _brought(agent_id: str, outcome: Future[Outcome | None]) -> BaseException | None:
    try:
        await outcome
    except OwnedElsewhere as error:
        logger.info("%s", error)
        return error
    except Exception as error:  # told, not ours: the others are recovered all the same
        logger.error("agent %r was not recovered: %s", agent_id, error)
        return error
    return None
