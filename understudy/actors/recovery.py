"""Recovery after a crash: which agents have something to continue, and in which order."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from understudy._base.log_fields import log_extra
from understudy.actors.agent.run_outcomes import GOES_ON
from understudy.actors.agent.slot import AgentSlot
from understudy.actors.agent_host import AgentHost
from understudy.actors.agent_ref import AgentRef
from understudy.actors.hosts.recovery import Progress, Recovering
from understudy.errors import OwnedElsewhere
from understudy.journal import IndexStatus
from understudy.loop_actors.future import Future

logger: logging.Logger = logging.getLogger(__name__)


class Recovery(list[AgentRef]):
    """The refs of the agents that `Runtime.recover` continues, as a list, with the progress.

    It changes while the agents are continued in the background. Its properties are copies.
    """

    settled: Future[Recovery]
    """A future that resolves to this object once `waiting` is empty, or when the runtime stops."""

    def __init__(self, refs: Sequence[AgentRef], progress: Progress) -> None:
        super().__init__(refs)
        self.settled = Future()
        self._progress = progress

    @property
    def waiting(self) -> dict[str, Exception | None]:
        """The agents, by id, that have made no progress yet, each with its last error, if any.

        If the store was unavailable, they are tried again automatically.
        """
        return dict(self._progress.waiting)

    @property
    def left(self) -> dict[str, Exception]:
        """The agents, by id, that should be continued and are not, each with the reason.

        The reason is `OwnedElsewhere` for an agent of another runtime. These agents are not tried
        again. Call `recover` again when the reason is gone.
        """
        return dict(self._progress.left)


async def recover(host: AgentHost, at_once: int, by: str | None = None) -> Recovery:
    """Continue every run that was cut off, and start what is queued; the refs of those agents.

    Only `at_once` agents run until each makes progress, so that one that crashes the process takes
    few others with it. Suspects, which were cut off before without progress, come last and one by
    one.
    """
    services, directory = host.services, host.directory
    others: list[AgentSlot] = []
    suspects: list[AgentSlot] = []
    left: dict[str, Exception] = {}
    async for stored in services.store.agents(GOES_ON):
        id = stored.agent_id
        if stored.damage is not None:
            left[id] = stored.damage
            what = "agent %r was not recovered: %s"
            logger.error(what, id, stored.damage, extra=log_extra(id))
        elif stored.host not in (None, services.host):
            left[id] = OwnedElsewhere(agent_id=id, host=stored.host)
        elif stored.host is None or not directory.is_active(id):
            slot = directory.get(id)
            (suspects if stored.index_status is IndexStatus.SUSPECT else others).append(slot)
    slots = [*others, *suspects]
    progress = Progress([slot.id for slot in slots], left)
    recovery = Recovery([host.ref(slot) for slot in slots], progress)

    async def run() -> None:
        try:
            await Recovering(progress, at_once=at_once, by=by).run(others, suspects)
        finally:
            recovery.settled.set(recovery)

    services.start_task(run(), "recovering")
    return recovery
