"""How a runtime learns that its lease has ended: always, once, and it begins the next one."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from understudy.errors import Fenced, StoreUnavailable
from understudy.journal.contracts import Backend
from understudy.journal.lease import Lease


class Database:
    """Renews leases as it is told; each answer may take the machine's time."""

    def __init__(self, *answers: BaseException | None, asleep: float = 0.0) -> None:
        self.now = 0.0
        self._answers = list(answers)
        self._asleep = asleep

    def seconds(self) -> float:
        return self.now

    def renew(self) -> float:
        answer = self._answers.pop(0) if self._answers else None
        self.now += self._asleep
        if answer is not None:
            raise answer
        self._asleep = 0.0
        return 0.04


def fenced() -> Fenced:
    return Fenced(agent_id="*", why="the test says so")


@pytest.mark.parametrize("asleep", [0.0, 100.0], ids=["awake", "after a suspension"])
async def test_a_lease_that_was_lost_is_always_told_of_and_the_next_one_begins(
    asleep: float,
) -> None:
    """J6, J8: also where it had run out here before anybody asked the database."""
    database = Database(None, fenced(), asleep=asleep)
    lease = Lease(cast("Backend", database), seconds=database.seconds)
    lost: list[int] = []
    told = asyncio.Event()

    def on_lost() -> None:
        lost.append(lease.term)
        told.set()

    await asyncio.to_thread(lease.begin, asyncio.get_running_loop(), on_lost)
    assert lease.holds(0) is (asleep == 0.0)
    async with asyncio.timeout(30):
        await told.wait()
    await asyncio.to_thread(lease.end)
    assert lost == [1]
    assert not lease.holds(0)
    assert lease.holds(1)


async def test_a_database_that_is_away_is_told_of_once_when_the_lease_runs_out() -> None:
    """J8: and what was claimed before is lost, though the same lease goes on."""
    away: list[Any] = [StoreUnavailable(cause="the test says so") for _ in range(4)]
    database = Database(None, *away, asleep=100.0)
    lease = Lease(cast("Backend", database), seconds=database.seconds)
    lost: list[int] = []
    again = asyncio.Event()
    loop = asyncio.get_running_loop()

    renew = database.renew

    def watched() -> float:
        length = renew()
        loop.call_soon_threadsafe(again.set)
        return length

    await asyncio.to_thread(lease.begin, loop, lambda: lost.append(lease.term))
    database.renew = watched  # type: ignore[method-assign]  # to know when it is back
    async with asyncio.timeout(30):
        await again.wait()
    await asyncio.to_thread(lease.end)
    assert lost == [1]
    assert not lease.holds(0)
    assert lease.holds(1)


async def test_a_term_that_ends_between_two_reads_does_not_hold() -> None:
    """J8: the owner's thread is stopped in the middle of its check, and the next lease begins."""
    database = Database(None, fenced())
    renewals = 0
    next_term_begun = threading.Event()
    renew = database.renew

    def counted() -> float:
        nonlocal renewals
        renewals += 1
        if renewals == 4:  # the third one began the next term, and is through
            next_term_begun.set()
        return renew()

    asking = threading.local()

    def seconds() -> float:
        if getattr(asking, "now", False):
            assert next_term_begun.wait(10)
        return database.seconds()

    def ask() -> bool:
        asking.now = True
        return lease.holds(0)

    database.renew = counted  # type: ignore[method-assign]  # to know how far it is
    lease = Lease(cast("Backend", database), seconds=seconds)
    await asyncio.to_thread(lease.begin, asyncio.get_running_loop(), lambda: None)
    held = await asyncio.to_thread(ask)
    await asyncio.to_thread(lease.end)
    assert not held
    assert lease.holds(1)
