"""Deletes an agent from the store, and ends what it has left open in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from understudy.actors.agent.services import RuntimeServices
from understudy.journal import IndexStatus, StoreReads
from understudy.journal.lists import AgentQuery
from understudy.run.definition import BACKGROUND_SUFFIX
from understudy.state.plans import BackgroundCall

_PAGE = 1000


class Deleted(NamedTuple):
    """The result of the deletion of an agent."""

    existed: bool
    """Whether there was such an agent."""
    calls: Mapping[str, str] = MappingProxyType({})
    """The codes of the agent's open background calls, by the ids of the agents that make them.

    A code is empty if it is not known.
    """

    async def end_calls(self, services: RuntimeServices[Any, Any]) -> bool:
        """Stop the calls of the deleted agent: started work is in doubt then. Returns `existed`.

        Not before the slot of the deleted agent takes messages again: a call that ends just now
        brings its result, which only the answer that there is no such agent ends.
        """
        if self.calls:
            assert services.runs.background is not None, "a runtime makes background calls"
            await services.runs.background().end_left(self.calls)
        return self.existed


async def delete_stored(
    services: RuntimeServices[Any, Any],
    agent_id: str,
    by: str | None,
    *,
    started: Iterable[BackgroundCall] = (),
) -> Deleted:
    """Delete the records of an agent, whose run has ended.

    A deletion that is cut off behind this leaves calls that go on. The same deletion once more
    finds them, though the agent is gone.

    Args:
        services: of the runtime.
        agent_id: of the agent.
        by: the person who deletes it.
        started: the calls that are open by its state. The store may not know the agents of all.

    """
    # T36: found though the agent is gone by now, as where a deletion was cut off behind this. The
    # deletion does not wait for it: a message that comes meanwhile would make the next agent of
    # this id, and that one would be deleted
    # (test_messages_that_come_while_an_agent_is_deleted_wait_in_the_inbox).
    finding = asyncio.ensure_future(_open_calls(services.store, agent_id))
    try:
        existed = await services.store.delete(agent_id, by)
        calls = dict.fromkeys(await finding, "")
    finally:
        finding.cancel()
    calls |= {each.agent_id: each.code for each in started}
    return Deleted(existed, calls)


async def _open_calls(store: StoreReads, owner: str) -> set[str]:
    query, after = AgentQuery(prefix=owner + "~"), None
    found: set[str] = set()
    while True:
        page = await store.list_agents(query, after, _PAGE)
        found |= {
            each.agent_id
            for each in page
            if each.agent.endswith(BACKGROUND_SUFFIX)
            and each.agent_id.rpartition("~")[0] == owner
            and each.index_status is not IndexStatus.REST
        }
        if len(page) < _PAGE:
            return found
        after = (0, page[-1].agent_id)
