"""An engine without processes: its hosts are tasks on the cluster's own loop."""

from __future__ import annotations

import asyncio

from understudy.cluster import HostLine, Hosts, HostSpec, NodeStatus, RunningHost
from understudy.cluster.host import Host


class Inline:
    """Starts hosts at once. `lose` ends the task of one, as a process ends that is killed."""

    def __init__(self) -> None:
        self.hosts: dict[str, InlineHost] = {}
        self.is_open = False

    async def open(self) -> None:
        self.is_open = True

    async def close(self) -> None:
        self.is_open = False

    async def start(self, spec: HostSpec, pool: Hosts, line: HostLine) -> RunningHost:
        assert self.is_open
        host = self.hosts[spec.name] = InlineHost(spec, line)
        return host

    def nodes(self) -> list[NodeStatus]:
        return [NodeStatus(id="here", address="localhost", is_alive=self.is_open)]


class InlineHost:
    """One host; frames go over the loop, so that their order is that of real ones."""

    def __init__(self, spec: HostSpec, line: HostLine) -> None:
        self._spec = spec
        self._line = line
        self._begin()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        host = self._host = Host(
            self._spec, node="here", send=lambda frame: self._received(host, frame, loop)
        )
        self._task = loop.create_task(host.serve())
        # Its frames report how it ended. Otherwise a later test's garbage reports it again, and
        # there it may break the parsing of code, by a defect of Python 3.11.
        self._task.add_done_callback(_look_at)

    def _received(self, host: Host, frame: bytes, loop: asyncio.AbstractEventLoop) -> None:
        def received() -> None:
            if host is self._host:  # what one has sent that is gone is lost
                self._line.received(frame)

        loop.call_soon(received)

    def send(self, frame: bytes) -> None:
        asyncio.get_running_loop().call_soon(self._host.receive, frame)

    def restart(self, why: str) -> None:
        self._task.cancel()
        self._task.add_done_callback(lambda _: self._begin())
        self._line.lost(why)

    async def end(self, timeout: float) -> None:
        _, going_on = await asyncio.wait([self._task], timeout=timeout)
        for task in going_on:
            task.cancel()


def _look_at(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
