"""`Mailbox`: first in, first out; nothing is lost between a put and a close."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pykka
import pytest
from pykka._envelope import Envelope

from understudy.loop_actors import mailbox as mailbox_module
from understudy.loop_actors.live_actors import LiveActor
from understudy.loop_actors.mailbox import Mailbox


class Owner(LiveActor):
    """Takes whatever there is at each drain."""

    def __init__(self, mailbox: Mailbox, at_most: int = 10**9) -> None:
        self.mailbox = mailbox
        self.at_most = at_most
        self.drains: list[list[Any]] = []
        self.lost = 0

    def _drain(self) -> None:
        taken: list[Any] = []
        self.drains.append(taken)
        while len(taken) < self.at_most:
            envelope = self.mailbox.take()
            if envelope is None:
                return
            taken.append(envelope.message)
        self.mailbox.reschedule()

    def _loop_closed(self) -> None:
        self.lost += 1
        self.mailbox.close()


def opened(mailbox: Mailbox, at_most: int = 10**9) -> Owner:
    owner = Owner(mailbox, at_most)
    mailbox.open_on(asyncio.get_running_loop(), owner, contextvars.copy_context())
    return owner


async def test_messages_put_before_it_is_opened_are_drained_in_order() -> None:
    mailbox = Mailbox()
    for number in range(3):
        mailbox.put(Envelope(number))
    assert len(mailbox) == 3
    owner = opened(mailbox)
    await asyncio.sleep(0)
    assert mailbox.empty()
    assert owner.drains == [[0, 1, 2]]


async def test_many_puts_schedule_one_drain_and_an_idle_mailbox_none() -> None:
    mailbox = Mailbox()
    owner = opened(mailbox)
    await asyncio.sleep(0)
    for _ in range(2):
        mailbox.put(Envelope("a"))
        mailbox.put(Envelope("b"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert owner.drains == [[], ["a", "b"], ["a", "b"]]


async def test_a_drain_that_stops_early_is_called_again_after_the_loop_had_its_turn() -> None:
    mailbox = Mailbox()
    owner = opened(mailbox, at_most=2)
    for number in range(5):
        mailbox.put(Envelope(number))
    await asyncio.sleep(0)
    assert owner.drains == [[0, 1]]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert owner.drains == [[0, 1], [2, 3], [4]]


def test_a_put_after_close_raises_and_close_returns_what_was_left() -> None:
    mailbox = Mailbox()
    mailbox.put(Envelope(1))
    assert mailbox.get().message == 1
    with pytest.raises(IndexError):
        mailbox.get()
    mailbox.put(Envelope(2))
    left = mailbox.close()
    assert left is not None
    assert [envelope.message for envelope in left] == [2]
    with pytest.raises(pykka.ActorDeadError):
        mailbox.put(Envelope(3))
    assert mailbox.close() is None
    assert mailbox.take() is None


async def test_no_message_is_lost_or_doubled_when_threads_put_while_it_closes() -> None:
    mailbox = Mailbox()
    owner = opened(mailbox)
    accepted: list[list[int]] = [[], []]
    enough = threading.Semaphore(0)

    def put(thread: int) -> None:
        number = thread
        while True:
            try:
                mailbox.put(Envelope(number))
            except pykka.ActorDeadError:
                return
            accepted[thread].append(number)
            enough.release()
            number += 2

    threads = [threading.Thread(target=put, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(lambda: [enough.acquire() for _ in range(2000)])
    left = mailbox.close()
    for thread in threads:
        thread.join(60)
    assert left is not None
    got = [n for drain in owner.drains for n in drain] + [e.message for e in left]
    assert sorted(got) == sorted(accepted[0] + accepted[1])
    for thread_number in (0, 1):  # each sender's own order is kept
        assert [n for n in got if n % 2 == thread_number] == accepted[thread_number]


def test_a_put_onto_a_closed_loop_says_so_and_tells_the_owner() -> None:
    async def main() -> tuple[Mailbox, Owner]:
        mailbox = Mailbox()
        owner = opened(mailbox)
        await asyncio.sleep(0)
        return mailbox, owner

    mailbox, owner = asyncio.run(main())
    with pytest.raises(pykka.ActorDeadError):
        mailbox.put(Envelope(1))
    assert owner.lost == 1


def test_a_put_in_the_middle_of_a_put_is_kept() -> None:
    """As a signal handler or a finalizer does it: the lock is re-entrant."""
    mailbox = Mailbox()

    class Meddler:
        def __del__(self) -> None:
            mailbox.put(Envelope("inner"))

    with mailbox_module._lock:
        meddler = Meddler()
        del meddler
        mailbox.put(Envelope("outer"))
    assert [mailbox.get().message, mailbox.get().message] == ["inner", "outer"]
