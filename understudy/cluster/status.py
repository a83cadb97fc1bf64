"""What a cluster tells of its hosts: their status, and the tree of their actors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from understudy.actors import RuntimeStatus
from understudy.cluster.engine import NodeStatus
from understudy.cluster.hosts import HostEnd, HostLost, HostPhase
from understudy.loop_actors.supervisor import ChildStatus, SupervisorTree

LOOK = 2.0
"""Seconds for which a host's answer is waited for."""

_CHILD = {
    HostPhase.STARTING: ChildStatus.STARTING,
    HostPhase.RUNNING: ChildStatus.RUNNING,
    HostPhase.DRAINING: ChildStatus.STOPPING,
    HostPhase.ENDED: ChildStatus.STOPPED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatus:
    """One host of a cluster, at one moment."""

    name: str
    """The name of the host in its cluster."""
    pool: str
    """The name of its pool."""
    phase: HostPhase
    """The phase of the host."""
    restarts: int
    """The number of restarts."""
    host: str | None = None
    """The name of the host in the store, as owner of its agents; None if it has not run yet."""
    pid: int | None = None
    """The id of its process; None if it does not run now."""
    node: str | None = None
    """The machine on which it runs, or ran last."""
    runtime: RuntimeStatus | None = None
    """The counts of its runtime; None if it has not answered."""
    error: Exception | None = None
    """The error with which it could not start the last time; None without an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """The hosts and the machines of a cluster, at one moment."""

    hosts: Sequence[HostStatus]
    """The hosts."""
    nodes: Sequence[NodeStatus]
    """The machines."""

    @property
    def restarts(self) -> int:
        """The number of restarts of all hosts together."""
        return sum(host.restarts for host in self.hosts)

    @property
    def agents(self) -> int:
        """The number of agents in memory, at all hosts that answered."""
        return sum(status.agents for status in self._answered)

    @property
    def running(self) -> int:
        """The number of agents with a run in progress, at all hosts that answered."""
        return sum(status.running for status in self._answered)

    @property
    def abandoned_threads(self) -> int:
        """The number of threads of plain tools that still run although no call waits for them."""
        return sum(status.abandoned_threads for status in self._answered)

    @property
    def abandoned_tasks(self) -> int:
        """The number of tasks of async code that still run after their cancellation."""
        return sum(status.abandoned_tasks for status in self._answered)

    @property
    def draining(self) -> bool:
        """Whether no host takes agents."""
        return all(status.draining for status in self._answered)

    @property
    def held(self) -> str:
        """The reason why no call may start at some host; empty if calls may start at all hosts."""
        return next((status.held for status in self._answered if status.held), "")

    @property
    def ready(self) -> bool:
        """Whether some host takes agents."""
        return not self.draining

    @property
    def _answered(self) -> list[RuntimeStatus]:
        return [host.runtime for host in self.hosts if host.runtime is not None]


async def status_of(
    hosts: Sequence[HostEnd], nodes: Callable[[], Sequence[NodeStatus]]
) -> ClusterStatus:
    """The hosts and the machines. A host that does not answer soon is told without counts."""
    found = await asyncio.gather(*(_look(host, "status") for host in hosts))
    statuses = [
        HostStatus(
            name=host.name,
            pool=host.pool.name,
            phase=host.phase,
            restarts=_restarts(host),
            host=None if host.greeting is None else host.greeting.host,
            pid=None if host.process is None else host.process.pid,
            node=None if host.greeting is None else host.greeting.node,
            runtime=status,
            error=host.error,
        )
        for host, status in zip(hosts, found, strict=True)
    ]
    return ClusterStatus(hosts=statuses, nodes=nodes())


async def tree_of(hosts: Sequence[HostEnd], class_name: str) -> SupervisorTree:
    """The supervisors and actors of all hosts as they are now."""
    trees = await asyncio.gather(*(_look(host, "tree") for host in hosts))
    return SupervisorTree(
        id="cluster",
        class_name=class_name,
        status=ChildStatus.RUNNING,
        restarts=sum(_restarts(host) for host in hosts),
        children=tuple(
            SupervisorTree(
                id=host.name,
                class_name="Host",
                status=_CHILD[host.phase],
                restarts=_restarts(host),
                children=() if tree is None else (tree,),
            )
            for host, tree in zip(hosts, trees, strict=True)
        ),
    )


def _restarts(host: HostEnd) -> int:
    return max(0, host.processes - 1)


async def _look(host: HostEnd, method: str) -> Any:
    with suppress(HostLost, TimeoutError):
        async with asyncio.timeout(LOOK):
            return await host.ask(method)
    return None
