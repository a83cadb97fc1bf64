"""How a runtime learns that its lease has ended: always, once, and it begins the next one."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any, cast

import pytest

from understudy.errors import Fenced, StoreUnavailable
from understudy.journal.backend import Backend
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
    async with asyncio.timeout(60):
        await told.wait()
    await asyncio.to_thread(lease.end)
    assert lost == [1]
    assert not lease.holds(0)
    assert lease.holds(1)


async def test_a_lease_that_ran_out_holds_again_when_it_is_renewed() -> None:
    """J8: it does not hold meanwhile, and who waits for the store waits until it does."""
    away: list[Any] = [StoreUnavailable(cause="the test says so") for _ in range(4)]
    database = Database(None, *away, asleep=100.0)
    lease = Lease(cast("Backend", database), seconds=database.seconds)
    lost: list[int] = []
    await asyncio.to_thread(lease.begin, asyncio.get_running_loop(), lambda: lost.append(1))
    assert not lease.holds(0)
    async with asyncio.timeout(60):
        await lease.wait_until_settled(0)
    assert lease.holds(0)
    assert lost == []
    await asyncio.to_thread(lease.end)


async def test_waiting_for_a_lease_ends_when_it_is_lost_or_ended_or_the_patience_is_over() -> None:
    """J8: and it does not hold then."""
    for answers in ([None, fenced()], [None, *[StoreUnavailable(cause="the test")] * 1000]):
        database = Database(*answers, asleep=100.0)
        lease = Lease(cast("Backend", database), patience=0.2, seconds=database.seconds)
        await asyncio.to_thread(lease.begin, asyncio.get_running_loop(), lambda: None)
        async with asyncio.timeout(60):
            await lease.wait_until_settled(0)
        assert not lease.holds(0)
        waiting = asyncio.ensure_future(lease.wait_until_settled(lease.term))
        await asyncio.to_thread(lease.end)
        async with asyncio.timeout(60):
            await waiting


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
            assert next_term_begun.wait(60)
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


async def test_a_lease_is_not_renewed_while_the_loop_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """J8: other hosts get the agents of a runtime that does nothing, though it did before."""
    database, renewals, beats = Database(), list[int](), list[bool]()
    renewed, noticed = threading.Event(), threading.Event()
    renew = database.renew

    def counted() -> float:
        renewals.append(1)
        if len(renewals) > 2:
            renewed.set()
        return renew()

    def warned(message: str, *_: object) -> None:
        beats.append("hangs" in message)
        if len(beats) == 3:
            noticed.set()

    database.renew = counted  # type: ignore[method-assign]  # to know how far it is
    monkeypatch.setattr(logging.getLogger("understudy.journal.lease"), "warning", warned)
    lease = Lease(cast("Backend", database), seconds=database.seconds)
    await asyncio.to_thread(lease.begin, asyncio.get_running_loop(), lambda: None)
    assert await asyncio.to_thread(renewed.wait, 60)
    before = len(renewals)
    hung = noticed.wait(60)  # in the loop's own thread: it hangs
    assert hung
    assert len(renewals) <= before + 1, "one may have been under way"
    await asyncio.to_thread(lease.end)
    assert all(beats)


async def test_a_lease_that_holds_is_waited_for_without_a_timer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each commit of each agent asks for it."""
    database = Database()
    lease = Lease(cast("Backend", database), seconds=database.seconds)
    await asyncio.to_thread(lease.begin, asyncio.get_running_loop(), lambda: None)
    timers: list[object] = []
    timeout = asyncio.timeout

    def counted(seconds: float | None) -> asyncio.Timeout:
        timers.append(seconds)
        return timeout(seconds)

    monkeypatch.setattr(asyncio, "timeout", counted)
    await lease.wait_until_settled(lease.term)
    monkeypatch.undo()
    await asyncio.to_thread(lease.end)
    assert timers == []
