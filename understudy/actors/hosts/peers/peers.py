"""`Peers`: the hosts of other processes of this machine, and which of them has which agent.

Each agent has a home: the process that a hash of its id says, among those that run the same agents.
Calls go to the home of their agent, and the home claims it, as it does with calls of its own. So an
agent stays in the memory of one process, whichever of them is asked. Who is the owner of an agent
the store says, as ever: two processes that see others may send to different homes, and the agent
changes hands once more.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from understudy._base.json_values import text_of
from understudy.actors.agent.directory import Directory
from understudy.actors.hosts.peers.frames import About, Greeting, Hinted
from understudy.actors.hosts.peers.link import (
    PATIENCE,
    Link,
    address_of,
    library,
    proof_of,
    who_is,
)
from understudy.errors import JournalFailed
from understudy.journal.shared import Neighbours, Process, Sent
from understudy.journal.shared_store import SharedStore

if sys.platform != "linux":
    raise ImportError("processes of a machine connect by its abstract sockets: on Linux alone")

logger: logging.Logger = logging.getLogger(__name__)

FIRST_PAUSE = 0.25
"""Seconds before a process that could not be reached is tried again: it may not have seen this
process yet."""
MOST_PAUSE = 5.0
"""The longest pause in seconds before a process is tried again; the pause doubles up to it."""
_MASK = (1 << 64) - 1
_MIX = 0x9E3779B97F4A7C15


def number_of(text: str) -> int:
    """The number of 64 bits that stands for a text, the same in each process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class Peers:
    """The connections of one runtime with others of its machine. Used on the loop, except `home`.

    Args:
        directory: of the agents of the runtime.
        shared: what hosts share of its store.
        on_frame: gets what comes by a connection.
        on_lost: called when a connection ends.

    """

    def __init__(
        self,
        directory: Directory,
        shared: SharedStore,
        on_frame: Callable[[Link, Any], None],
        on_lost: Callable[[Link], None],
    ) -> None:
        self._directory = directory
        self._services = directory.services
        self._shared = shared
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._links: dict[int, Link] = {}
        """The connections that are ready, by host id."""
        self._homes: tuple[tuple[int, Link | None], ...] = ()
        """The hosts that may be an agent's home, as pairs of a number and a connection; None: this
        host."""
        self._seen: Neighbours | None = None
        self._about = About("", True)
        self._server: tuple[int, asyncio.Server] | None = None
        """The host id under which this host listens, and its socket server; None: it does not
        listen."""
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._secret = b""
        self._refreshing: asyncio.Task[None] | None = None
        self._is_closed = False

    # ------------------------------------------------------------------- from any thread

    @property
    def has_homes(self) -> bool:
        """Whether another process may be the home of an agent."""
        return len(self._homes) > 1

    def home(self, agent_id: str) -> Link | None:
        """The connection with the home of an agent; None if the home is this host."""
        homes = self._homes
        if len(homes) < 2:
            return homes[0][1] if homes else None
        number = number_of(agent_id)
        # Each host gets a number of its own for each agent, so where hosts come and go only the
        # agents of these hosts move.
        return max(homes, key=lambda home: ((number ^ home[0]) * _MIX & _MASK) >> 20)[1]

    # ------------------------------------------------------------------- on the loop

    def link_of(self, host_id: int | None) -> Link | None:
        """The ready connection with a host, if there is one."""
        return None if host_id is None else self._links.get(host_id)

    def send(self, sent: Sequence[Sent]) -> list[Sent]:
        """Send texts to hosts of this machine; returns the texts that must go by the store."""
        left: list[Sent] = []
        for each in sent:
            links = self._to(each.host_id)
            if links is None:
                left.append(each)
            else:
                for link in links:
                    link.send(Hinted(each.text))
        return left

    def _to(self, host_id: int | None) -> Iterable[Link] | None:
        """The connections by which a text goes to a host, or all; None if it goes by the store."""
        if host_id is not None:
            link = self._links.get(host_id)
            return None if link is None else (link,)
        # To all: by the store as long as one of them is to be reached by it alone.
        seen = self._seen
        are_all = seen is not None and seen.are_all and seen.others.keys() <= self._links.keys()
        return self._links.values() if are_all else None

    def refresh(self) -> None:
        """Connect, in a task, with the processes that the store knows on this machine now."""
        if self._refreshing is None and not self._is_closed:
            self._refreshing = self._services.start_task(self._refresh(), "finding processes")

    def tell_about(self) -> None:
        """Tell the other processes which agents this host may run, if that has changed."""
        about = self._made_about()
        if about != self._about:
            self._about = about
            for link in self._links.values():
                link.send(about)
            self._count_homes()

    def close(self) -> None:
        """End all connections."""
        self._is_closed = True
        for task in (*self._connecting.values(), self._refreshing):
            if task is not None:
                task.cancel()
        self._stop_listening()
        for link in list(self._links.values()):
            link.close()

    # ------------------------------------------------------------------- who is there

    async def _refresh(self) -> None:
        try:
            while not self._is_closed and self._shared.neighbours != self._seen:
                before, seen = self._seen, self._shared.neighbours
                if seen is not None and not self._secret:
                    self._secret = await self._shared.secret()
                self._seen = seen
                self._about = self._made_about()
                await self._listen()
                there = {} if seen is None else seen.others
                is_other = before is not None and (seen is None or seen.host_id != before.host_id)
                for host_id, link in list(self._links.items()):
                    is_gone = before is not None and host_id in before.others.keys() - there.keys()
                    # Of a lease that is lost this host has another number now.
                    if is_gone or is_other:
                        link.close()
                for host_id, process in there.items():
                    # Those that come later than this host connect with it.
                    own_id = 0 if seen is None else seen.host_id
                    if host_id < own_id and host_id not in self._connecting:
                        work = self._connected(host_id, process)
                        what = f"connecting with host {host_id}"
                        self._connecting[host_id] = self._services.start_task(work, what)
                self._count_homes()
        except JournalFailed as error:
            logger.info("other processes of this machine are not looked for: %s", text_of(error))
            self._seen = None
            self._services.loop.call_later(MOST_PAUSE, self.refresh)
        except OSError as error:
            logger.warning("other processes cannot reach this one: %s", error)
        finally:
            self._refreshing = None

    async def _listen(self) -> None:
        seen = self._seen
        if self._server is not None and (seen is None or self._server[0] != seen.host_id):
            self._stop_listening()
        if seen is None or self._server is not None:
            return
        address = address_of(self._secret, seen.own, seen.host_id)
        # The server is known before it is waited for: `close` may come meanwhile.
        server = await self._services.loop.create_unix_server(
            self._new_link, address, start_serving=False
        )
        self._server = seen.host_id, server
        await server.start_serving()

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server[1].close()
            self._server = None

    def _new_link(self, other: tuple[int, Process] | None = None) -> Link:
        return Link(self._greeting, self._secret, self._is_ready, self._on_frame, self._ends, other)

    def _greeting(self, other_id: int) -> Greeting:
        own = 0 if self._seen is None else self._seen.host_id
        return Greeting(library(), own, os.getpid(), proof_of(self._secret, own, other_id))

    async def _connected(self, host_id: int, process: Process) -> None:
        """Keep a connection with a host that came before this host, as long as it is there.

        This host may get another number meanwhile
        (test_a_host_whose_lease_was_lost_connects_by_its_next_number).
        """
        pause = FIRST_PAUSE
        try:
            while (seen := self._seen) is not None and (
                host_id < seen.host_id and seen.others.get(host_id) == process
            ):
                if host_id not in self._links:
                    with suppress(OSError):  # it has not seen this host yet, or is no peer at all
                        await self._open(host_id, process)
                await asyncio.sleep(pause)
                pause = FIRST_PAUSE if host_id in self._links else min(2 * pause, MOST_PAUSE)
                if host_id in self._links:
                    await self._links[host_id].ended.wait()
        finally:
            del self._connecting[host_id]

    async def _open(self, host_id: int, process: Process) -> None:
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            opened.setblocking(False)
            address = address_of(self._secret, process, host_id)
            async with asyncio.timeout(PATIENCE):
                await self._services.loop.sock_connect(opened, address)
            # Before anything is said: whoever listens there may be anybody.
            if who_is(opened) != (process.pid, os.getuid()):
                raise OSError("another process listens there")
            make = partial(self._new_link, (host_id, process))
            await self._services.loop.create_unix_connection(make, sock=opened)
        except BaseException:
            opened.close()
            raise

    def _is_ready(self, link: Link) -> None:
        if self._is_closed:
            link.close()
            return
        before = self._links.get(link.host_id)
        if before is not link:
            self._links[link.host_id] = link
            link.send(self._about)
            if before is not None:
                before.close()
        self._count_homes()

    def _ends(self, link: Link) -> None:
        if self._links.get(link.host_id) is link:
            del self._links[link.host_id]
        self._count_homes()
        self._on_lost(link)

    # ------------------------------------------------------------------- homes

    def _made_about(self) -> About:
        directory, placement = self._directory, self._services.placement
        known = [(agent.name, agent.definition.fingerprint) for agent in directory.definitions()]
        said = repr((sorted(known), directory.has_factory, sorted(placement.labels)))
        is_closed = placement.is_closed or self._services.closing or self._is_closed
        return About(hashlib.sha256(said.encode()).hexdigest(), is_closed)

    def _count_homes(self) -> None:
        seen, own = self._seen, self._about
        if seen is None or self._is_closed:
            self._homes = ()
            return
        homes: list[tuple[int, Link | None]] = [
            (number_of(str(host_id)), link)
            for host_id, link in self._links.items()
            if link.about == About(own.definitions, False)
        ]
        if not own.is_closed:
            homes.append((number_of(str(seen.host_id)), None))
        self._homes = tuple(homes)
