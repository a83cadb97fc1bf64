"""`HostPools`: the hosts of a cluster, in pools: started, started again, drained, ended."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from understudy._base.json_values import shown
from understudy.agent.agent import Agent
from understudy.cluster.calls import Calls
from understudy.cluster.engine import Engine, Hosts, HostSpec, NodeStatus
from understudy.cluster.frames import Greeting, Target
from understudy.cluster.hosts import HostEnd, HostLost, HostPhase
from understudy.errors import StoreUnavailable, UsageError


@dataclass(slots=True)
class _Pool:
    hosts: Hosts
    numbers: Any = field(default_factory=lambda: itertools.count(1))


class HostPools:
    """Has the engine start the hosts of a cluster, and start one again that hangs.

    Used on the cluster's loop.

    Args:
        pools: of different names.
        engine: what starts processes.
        store: the url that all hosts share.
        options: of the `Runtime` of each host.
        start_timeout: seconds that the first host of each pool may take to start.
        hang_timeout: seconds after which a host that does not answer is killed, and started again;
            None = never.
        drain_timeout: seconds that a host may take to end its steps in progress.

    """

    def __init__(
        self,
        pools: Iterable[Hosts],
        engine: Engine,
        *,
        store: str,
        options: Mapping[str, Any],
        start_timeout: float,
        hang_timeout: float | None,
        drain_timeout: float,
    ) -> None:
        self.hosts: list[HostEnd] = []
        """All that have not ended."""
        self._pools = {pool.name: _Pool(pool) for pool in pools}
        self.greetings: dict[str, Greeting | None] = dict.fromkeys(self._pools)
        """By pool, what its last host has said of itself, also while it has none; None: no host
        has started yet."""
        self._engine = engine
        self._store = store
        self._options = options
        self._start_timeout = start_timeout
        self._hang_timeout = hang_timeout
        self._drain_timeout = drain_timeout
        self._changed: asyncio.Event
        self._calls: Calls
        self._watch: asyncio.Task[None] | None = None
        self._is_draining = False

    async def open(self, calls: Calls) -> None:
        """Start the hosts, and wait until each pool has one that runs.

        Raises:
            StoreUnavailable: if none has come up in time.
            Exception: as a host that cannot start.

        """
        self._calls = calls
        self._changed = asyncio.Event()
        await self._engine.open()
        for pool in self._pools.values():
            for _ in range(pool.hosts.count):
                await self._start_host(pool)
        try:
            async with asyncio.timeout(self._start_timeout):
                while not self._has_started():
                    await self._changed.wait()
                    self._changed.clear()
        except TimeoutError:
            lacking = ", ".join(repr(name) for name in self._pools if not self._runs(name))
            why = "is there place for it? Raise `start_timeout` if it takes longer"
            for host in self.hosts:
                if host.ended is not None:  # again and again
                    why = f"each process of {host.name!r} ends as it starts ({host.ended})"
            raise StoreUnavailable(
                cause=f"no host of {lacking} has come up in {self._start_timeout:g} s: {why}"
            ) from None
        self._watch = asyncio.create_task(self._watch_hosts())

    def _has_started(self) -> bool:
        for host in self.hosts:
            if host.error is not None:
                raise host.error
        return all(self._runs(name) for name, pool in self._pools.items() if pool.hosts.count)

    def _runs(self, pool: str) -> bool:
        return any(h.pool.name == pool and h.phase is HostPhase.RUNNING for h in self.hosts)

    async def end(self, timeout: float) -> None:
        """End all hosts: each may take so many seconds."""
        if self._watch is not None:
            self._watch.cancel()
        try:
            await asyncio.gather(*(host.drain(timeout) for host in self.hosts))
        finally:
            await self._engine.close()

    async def scale(self, pool: Hosts, count: int) -> None:
        """Start or end hosts of a pool; wait until those that are to end have ended."""
        there = [
            host
            for host in self.hosts
            if host.pool is pool and host.phase in (HostPhase.STARTING, HostPhase.RUNNING)
        ]
        for _ in range(count - len(there)):
            await self._start_host(self._pools[pool.name])
        # Those that run stay: there may be no place for the others.
        ending = sorted(there, key=lambda host: host.phase is not HostPhase.RUNNING)[count:]
        await asyncio.gather(*(host.drain(self._drain_timeout) for host in ending))
        if ending and self._runs(pool.name):
            await self._calls.call(Target(), "recover")  # what they have left

    async def drain(self, timeout: float | None) -> bool:
        """Have all hosts give up their agents; whether none has one any more."""
        self._is_draining = True  # a host that comes up later drains too
        running = [host for host in self.hosts if host.phase is HostPhase.RUNNING]
        return all(await asyncio.gather(*(_drained(host, timeout) for host in running)))

    def named(self, name: object) -> Hosts:
        """The pool of this name; None is enough where there is only one.

        Raises:
            UsageError: for another name.

        """
        if name is None and len(self._pools) == 1:
            return next(iter(self._pools.values())).hosts
        if isinstance(name, str) and name in self._pools:
            return self._pools[name].hosts
        there = ", ".join(map(repr, self._pools))
        raise UsageError(f"`pool` must be one of {there}, got {shown(name)}")

    def nodes(self) -> Sequence[NodeStatus]:
        """The machines."""
        return self._engine.nodes()

    async def _start_host(self, pool: _Pool) -> None:
        name = f"{pool.hosts.name}-{next(pool.numbers)}"
        spec = HostSpec(
            name=name,
            factory=pool.hosts.factory,
            store=self._store,
            # Also where the cluster is gone, and nobody kills a host that does not end: a step
            # that hangs is cut off (test_the_hosts_of_a_cluster_end_with_it_and_a_runtime_goes_on).
            options={"stop_timeout": self._drain_timeout, **self._options, **pool.hosts.options},
        )
        host = HostEnd(spec, pool.hosts, self._host_changed)
        self.hosts.append(host)
        try:
            host.running = await self._engine.start(spec, pool.hosts, host)
        except BaseException:
            self.hosts.remove(host)  # it will never run
            raise

    def _host_changed(self, host: HostEnd) -> None:
        self._changed.set()
        if host.phase is HostPhase.RUNNING:
            self.greetings[host.pool.name] = host.greeting
            if self._is_draining:
                self._calls.on_loop(lambda: _drained(host, None))
            self._calls.host_changed()
        elif host.phase is HostPhase.ENDED:
            self.hosts.remove(host)

    async def _watch_hosts(self) -> None:
        """Start a host again whose loop hangs: its engine does not see that."""
        if self._hang_timeout is None:
            return
        asking: dict[HostEnd, asyncio.Task[Any]] = {}
        while True:
            for host in self.hosts:
                if host.phase is HostPhase.RUNNING and host not in asking:
                    asking[host] = asyncio.create_task(self._ping(host))
                    asking[host].add_done_callback(functools.partial(_forget, asking, host))
            await asyncio.sleep(self._hang_timeout / 4)

    async def _ping(self, host: HostEnd) -> None:
        process = host.processes
        try:
            async with asyncio.timeout(self._hang_timeout):
                await host.ask("ping")
        except HostLost:
            return
        except TimeoutError:
            is_same = host.processes == process and host.phase is HostPhase.RUNNING
            if is_same and host.running is not None:
                why = f"it has not answered for {self._hang_timeout:g} s"
                host.running.restart(why)


def _forget(asking: dict[HostEnd, Any], host: HostEnd, _task: object) -> None:
    del asking[host]


async def _drained(host: HostEnd, timeout: float | None) -> bool:
    with suppress(HostLost):
        return bool(await host.ask("drain", timeout))
    return True  # it has no agents any more


def checked_pools(hosts: str | Iterable[Hosts], count: int) -> list[Hosts]:
    """The pools that these arguments of a cluster say; raises a `UsageError` for wrong ones."""
    if isinstance(hosts, str) or not isinstance(hosts, Iterable):
        return [Hosts(hosts, count)]
    pools = list(hosts)
    for pool in pools:
        if not isinstance(pool, Hosts):
            remedy = ""
            if isinstance(pool, Agent):
                remedy = (
                    ". An agent cannot be sent to another process: write a function that returns "
                    "it, and give its name"
                )
            raise UsageError(
                "`hosts` must be 'module:attribute', or a list of Hosts('module:attribute'), got "
                f"{shown(pool)} in the list{remedy}"
            )
    names = [pool.name for pool in pools]
    if not pools or len(set(names)) < len(names):
        raise UsageError(f"`hosts` must be pools of different names, got {names}")
    return pools
