"""The connections of hosts with the others of their machine, without a store."""

from __future__ import annotations

import asyncio
import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.loops import until
from understudy.journal.shared import Neighbours, Process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such sockets")
OWN = Process("here", os.getpid(), 1)


class OneHost:
    """One host of this machine, which sees what its store would tell it."""

    def __init__(self) -> None:
        from understudy.actors.hosts.peers.peers import Peers

        loop = asyncio.get_running_loop()

        async def secret() -> bytes:
            return b"of the store"

        placement = SimpleNamespace(labels=(), is_closed=False)
        services = SimpleNamespace(
            loop=loop,
            placement=placement,
            closing=False,
            start_task=lambda work, name: loop.create_task(work, name=name),
        )
        directory: Any = SimpleNamespace(services=services, definitions=list, has_factory=False)
        shared: Any = SimpleNamespace(neighbours=None, secret=secret)
        self.shared = shared
        self.peers = Peers(directory, shared, lambda *_: None, lambda _: None)

    def sees(self, own_id: int, *others: int) -> None:
        self.shared.neighbours = Neighbours(own_id, OWN, dict.fromkeys(others, OWN), True)
        self.peers.refresh()


async def test_a_host_whose_lease_was_lost_connects_by_its_next_number() -> None:
    """J76: it comes later than all others then, so it connects with each of them."""
    one, other = OneHost(), OneHost()
    try:
        one.sees(1, 2)
        other.sees(2, 1)
        await until(lambda: one.peers.has_homes and other.peers.has_homes)
        one.sees(1, 3)
        other.sees(3, 1)
        await until(lambda: one.peers.link_of(2) is None and other.peers.link_of(1) is None)
        await until(lambda: one.peers.link_of(3) is not None)
        await until(lambda: one.peers.has_homes and other.peers.has_homes)
    finally:
        for each in (one, other):
            each.peers.close()
