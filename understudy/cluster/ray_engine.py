"""`RayEngine`: the engine whose hosts are actors of Ray, on many machines.

Ray places the hosts by their resources, and starts them again. Nothing else rests on it: it calls
an actor at most once, in no order, so frames are numbered and sent until they are acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from understudy._base.json_values import text_of
from understudy.cluster.engine import HostLine, Hosts, HostSpec, NodeStatus, RunningHost
from understudy.cluster.host import Host
from understudy.errors import UsageError

logger: logging.Logger = logging.getLogger(__name__)

PAUSE = 0.2
"""Seconds between two tries at an actor that cannot be reached."""
COLLECT = 20.0
"""Seconds for which an actor waits for a frame to send, in one call."""

Frames = Sequence[bytes]


class Collected(NamedTuple):
    """What an actor has for the cluster."""

    process: str
    """Which process of the actor answers."""
    first: int
    """The number of the first frame, from 0 on in each process."""
    frames: Frames
    taken: int
    """How many frames it has taken."""
    has_ended: bool
    """Whether there will be no other ones."""


class RayEngine:
    """Hosts are actors of Ray: placed by their resources, and started again, on any machine.

    Args:
        address: of a Ray cluster, `"auto"` for that of this machine, or `"local"` for one that is
            started here and ends with this process. By default the environment variable
            `RAY_ADDRESS`, or `"local"`. A process that is connected to Ray already keeps that.
        init: further arguments of `ray.init`.

    Raises:
        UsageError: by the start of the cluster, if Ray is not installed, or cannot be reached.

    """

    def __init__(self, address: str | None = None, **init: Any) -> None:
        self._address = address
        self._init = init
        self._has_begun = False

    def __repr__(self) -> str:
        return f"RayEngine({self._address!r})"

    async def open(self) -> None:
        """Connect to Ray, or start it."""
        try:
            import ray
        except ImportError as error:
            raise UsageError("engine='ray' needs Ray: pip install 'understudy[ray]'") from error
        if ray.is_initialized():
            return
        address = self._address or os.environ.get("RAY_ADDRESS") or "local"
        options = {"namespace": "understudy", "log_to_driver": False, **self._init}
        if address == "local":
            options = {"include_dashboard": False, **options}
        try:
            await asyncio.to_thread(ray.init, address, **options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UsageError(f"Ray cannot be reached at {address!r}: {text_of(error)}") from error
        self._has_begun = True

    async def close(self) -> None:
        """Disconnect, where `open` has connected."""
        if self._has_begun:
            import ray

            self._has_begun = False
            await asyncio.to_thread(ray.shutdown)

    async def start(self, spec: HostSpec, pool: Hosts, line: HostLine) -> RunningHost:
        """As of `Engine`. Where no machine has the resources the host waits for one."""
        import ray

        try:
            remote = ray.remote(
                num_cpus=pool.num_cpus,
                num_gpus=pool.num_gpus,
                resources=dict(pool.resources),
                max_restarts=-1,
                max_task_retries=0,  # a repeat is for the cluster: it knows what may be repeated
            )(_RayHost)
            actor = await asyncio.to_thread(remote.remote, spec)
        except ValueError as error:
            why = f"Ray does not place hosts by these resources: {text_of(error)}"
            raise UsageError(f"Hosts({pool.factory!r}): {why}") from error
        return _Actor(spec, actor, line)

    def nodes(self) -> list[NodeStatus]:
        """The machines that Ray knows."""
        import ray

        return [
            NodeStatus(
                id=node["NodeID"],
                address=node["NodeManagerAddress"],
                is_alive=node["Alive"],
                resources={
                    name: amount
                    for name, amount in node["Resources"].items()
                    if not name.startswith("node:")
                },
            )
            for node in ray.nodes()
        ]


class _Actor:
    """The cluster's side of an actor: two calls are under way at a time, one for each direction.

    No call of an agent waits in a slot of the actor, so none of them can hold another one up.
    """

    def __init__(self, spec: HostSpec, actor: Any, line: HostLine) -> None:
        self._spec = spec
        self._actor = actor
        self._line = line
        self._process = ""
        """The process of the actor that has answered last."""
        self._is_reachable = False
        self._breaks = 0
        """How often it was lost."""
        self._greeting = b""
        self._sent = 0
        """Frames that this process has taken."""
        self._received = 0
        self._outbox: deque[bytes] = deque()
        self._wanted = asyncio.Event()
        self._has_ended = asyncio.Event()
        self._tasks = [asyncio.create_task(self._deliver()), asyncio.create_task(self._collect())]

    def send(self, frame: bytes) -> None:
        self._outbox.append(frame)
        self._wanted.set()

    def restart(self, why: str) -> None:
        logger.warning("host %r is killed and started again: %s", self._spec.name, why)
        import ray

        ray.kill(self._actor, no_restart=False)

    async def end(self, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout if self._is_reachable else 0):
                await self._has_ended.wait()
        except TimeoutError:
            logger.warning("host %r is killed: it has not ended in %g s", self._spec.name, timeout)
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        import ray

        await asyncio.to_thread(ray.kill, self._actor)

    async def _deliver(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._outbox and self._is_reachable:
                breaks, frames = self._breaks, list(self._outbox)
                try:
                    taken = await self._actor.deliver.remote(self._process, self._sent, frames)
                except Exception as error:
                    if not _is_rays(error):
                        raise
                    await asyncio.sleep(PAUSE)  # and again, unless it is lost by then
                    continue
                if taken is None or breaks != self._breaks:
                    continue
                for _ in range(taken - self._sent):
                    self._outbox.popleft()
                self._sent = taken

    async def _collect(self) -> None:
        while True:
            try:
                got = await self._actor.collect.remote(self._process, self._received)
            except Exception as error:
                if not _is_rays(error):
                    raise
                self._lose(text_of(error))
                await asyncio.sleep(PAUSE)
                continue
            if got.process != self._process:
                self._lose("another process has taken its place")
                self._process, self._received, self._sent = got.process, 0, got.taken
            elif not self._is_reachable:  # it had not ended
                self._sent = got.taken
                self._line.received(self._greeting)
            self._is_reachable = True
            self._wanted.set()
            for number, frame in enumerate(got.frames, got.first):
                if number == self._received:
                    self._received += 1
                    if number == 0:
                        self._greeting = frame
                    self._line.received(frame)
            if got.has_ended:
                self._has_ended.set()
                return

    def _lose(self, why: str) -> None:
        if self._is_reachable:
            self._is_reachable = False
            self._breaks += 1
            self._outbox.clear()  # who has sent it is told
            self._line.lost(why)


def _is_rays(error: Exception) -> bool:
    """Whether the actor cannot be reached now: it is restarted, or has no place."""
    from ray.exceptions import RayError

    return isinstance(error, RayError)


class _RayHost:
    """The actor. Its process has a loop already, on which the host serves."""

    def __init__(self, spec: HostSpec) -> None:
        self._spec = spec
        self._id = f"{os.getpid()}-{id(self)}-{os.urandom(8).hex()}"
        self._outbox: deque[bytes] = deque()
        self._first = 0
        """The number of the first frame that the cluster may not have."""
        self._taken = 0
        self._host: Host | None = None
        self._serving: asyncio.Task[None] | None = None
        self._wanted: asyncio.Event | None = None

    async def deliver(self, process: str, first: int, frames: Frames) -> int | None:
        """Take frames; the number of those that are taken by now. None: it is another process."""
        if process != self._id or self._host is None:
            return None
        for number, frame in enumerate(frames, first):
            if number == self._taken:
                self._taken += 1
                self._host.receive(frame)
        return self._taken

    async def collect(self, process: str, received: int) -> Collected:
        """The frames behind the number of those that the cluster has; waits for some."""
        wanted = self._begin()
        if process == self._id:
            while self._first < received:
                self._outbox.popleft()
                self._first += 1
        if not self._outbox and not self._has_ended():
            try:
                async with asyncio.timeout(COLLECT):
                    await wanted.wait()
            except TimeoutError:
                pass
        wanted.clear()
        return Collected(self._id, self._first, list(self._outbox), self._taken, self._has_ended())

    def _begin(self) -> asyncio.Event:
        if self._wanted is None:
            import ray

            self._wanted = asyncio.Event()
            node = ray.get_runtime_context().get_node_id()
            self._host = Host(self._spec, node=node, send=self._send)
            self._serving = asyncio.create_task(self._serve(self._host))
        return self._wanted

    async def _serve(self, host: Host) -> None:
        try:
            await host.serve()
        except Exception:
            logger.exception("host %r has ended", self._spec.name)
            # The cluster gets the reason first; then Ray starts another process.
            threading.Timer(1.0, os._exit, [1]).start()
        finally:
            assert self._wanted is not None, "it has begun"
            self._wanted.set()

    def _send(self, frame: bytes) -> None:
        self._outbox.append(frame)
        if self._wanted is not None:
            self._wanted.set()

    def _has_ended(self) -> bool:
        return self._serving is not None and self._serving.done()
