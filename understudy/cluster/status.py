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
    pool: str
    phase: HostPhase
    restarts: int
    """How often it was started again."""
    host: str | None = None
    """What the store calls it: the owner of its agents. None: it has not run yet."""
    pid: int | None = None
    """None: it does not run now."""
    node: str | None = None
    """The machine it runs on, or ran on last."""
    runtime: RuntimeStatus | None = None
    """None: it has not answered."""
    error: Exception | None = None
    """Why it could not start, the last time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """The hosts and the machines of a cluster, at one moment."""

    hosts: Sequence[HostStatus]
    nodes: Sequence[NodeStatus]

    @property
    def restarts(self) -> int:
        """Of all hosts."""
        return sum(host.restarts for host in self.hosts)

    @property
    def agents(self) -> int:
        """As of `RuntimeStatus`, as the others below: of all hosts that have answered."""
        return sum(status.agents for status in self._answered)

    @property
    def running(self) -> int:
        """How many of the agents in memory run."""
        return sum(status.running for status in self._answered)

    @property
    def abandoned_threads(self) -> int:
        """Threads of plain tools that still run though no call waits for them any more."""
        return sum(status.abandoned_threads for status in self._answered)

    @property
    def abandoned_tasks(self) -> int:
        """Tasks of async code that still run though they were cancelled."""
        return sum(status.abandoned_tasks for status in self._answered)

    @property
    def draining(self) -> bool:
        """Whether there is no host that takes agents."""
        return all(status.draining for status in self._answered)

    @property
    def held(self) -> str:
        """Why no call may start at a host; empty where calls may start at all of them."""
        return next((status.held for status in self._answered if status.held), "")

    @property
    def ready(self) -> bool:
        """Whether there is a host that takes agents."""
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
