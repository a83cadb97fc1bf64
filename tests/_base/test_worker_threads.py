"""`WorkerThreads`: plain functions on daemon threads (DESIGN 5) (T9)."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.children import in_child
from tests.support.loops import soon
from understudy import UsageError
from understudy._base.worker_threads import WorkerThreads

WAIT = 60
"""Seconds after which a thread that nobody releases gives up: only a failing test waits so long."""


def workers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "understudy-worker"}


class Blocker:
    """A function that stays in its thread until it is released, and says when it is in."""

    def __init__(self, value: str = "late", error: BaseException | None = None) -> None:
        self.value, self.error = value, error
        self.loop = asyncio.get_running_loop()
        self.entered = asyncio.Event()
        self.release = threading.Event()
        self.thread: threading.Thread | None = None

    def __call__(self) -> str:
        self.thread = threading.current_thread()
        self.loop.call_soon_threadsafe(self.entered.set)
        assert self.release.wait(WAIT)
        if self.error is not None:
            raise self.error
        return self.value

    async def ends(self) -> None:
        """Release it, and wait until its thread is gone."""
        self.release.set()
        assert self.thread is not None
        await asyncio.to_thread(self.thread.join, WAIT)
        assert not self.thread.is_alive()


async def abandoned(threads: WorkerThreads, function: Blocker, **options: Any) -> None:
    """Let `function` begin, and stop to wait for it."""
    waiting = asyncio.ensure_future(threads.run(function, **options))
    await function.entered.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def on_a_loop(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def main() -> None:
            await test()

        asyncio.run(main())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


@on_a_loop
async def test_a_function_runs_in_another_thread_and_its_value_comes_back() -> None:
    def add(a: int, *, b: int) -> tuple[int, int, bool]:
        return a + b, threading.get_ident(), threading.current_thread().daemon

    total, thread, daemon = await WorkerThreads().run(add, 1, b=2)
    assert total == 3
    assert thread != threading.get_ident()
    assert daemon, "a function that hangs must not keep the process alive"


@on_a_loop
async def test_threads_are_used_again() -> None:
    threads = WorkerThreads(max_threads=1)
    used = {await threads.run(threading.get_ident) for _ in range(5)}
    assert len(used) == 1


@on_a_loop
async def test_no_more_threads_are_started_than_are_allowed() -> None:
    before = workers()
    threads = WorkerThreads(max_threads=2)
    blockers = [Blocker(str(n)) for n in range(4)]
    waiting = asyncio.gather(*(threads.run(blocker) for blocker in blockers))
    await blockers[0].entered.wait()
    await blockers[1].entered.wait()
    assert len(workers() - before) == 2
    assert not blockers[2].entered.is_set()
    for blocker in blockers:
        blocker.release.set()
    assert await waiting == ["0", "1", "2", "3"], "those that waited ran after all"
    assert len({blocker.thread for blocker in blockers}) == 2


@on_a_loop
async def test_as_many_functions_as_are_allowed_run_beside_each_other() -> None:
    barrier = threading.Barrier(3, timeout=WAIT)
    threads = WorkerThreads(max_threads=3)
    await asyncio.gather(*(threads.run(barrier.wait) for _ in range(3)))


@on_a_loop
async def test_functions_that_come_at_once_run_beside_each_other_though_one_thread_is_idle() -> (
    None
):
    """T1: one is woken, for the other a thread is started."""
    threads = WorkerThreads()
    for _ in range(5):
        barrier = threading.Barrier(2, timeout=WAIT)
        await threads.run(threading.get_ident)
        await asyncio.gather(threads.run(barrier.wait), threads.run(barrier.wait))
        threads = WorkerThreads()


@on_a_loop
async def test_an_abandoned_thread_frees_its_place_and_is_counted_until_it_returns() -> None:
    threads = WorkerThreads(max_threads=1)
    blocker = Blocker()
    await abandoned(threads, blocker)
    assert threads.abandoned == 1
    async with asyncio.timeout(WAIT):
        assert await threads.run(lambda: "next") == "next"
    assert threads.abandoned == 1
    await blocker.ends()
    assert threads.abandoned == 0


@on_a_loop
async def test_a_function_that_waits_for_a_place_gets_that_of_an_abandoned_one() -> None:
    threads = WorkerThreads(max_threads=1)
    blocker = Blocker()
    first = asyncio.ensure_future(threads.run(blocker))
    await blocker.entered.wait()
    second = asyncio.ensure_future(threads.run(lambda: "second"))
    await asyncio.sleep(0)
    assert not second.done()
    first.cancel()
    async with asyncio.timeout(WAIT):
        assert await second == "second"
    await blocker.ends()


@on_a_loop
async def test_an_abandoned_thread_does_not_take_its_place_back() -> None:
    before = workers()
    threads = WorkerThreads(max_threads=1)
    blocker = Blocker()
    await abandoned(threads, blocker)
    await threads.run(lambda: None)
    await blocker.ends()
    assert len(workers() - before) == 1


@on_a_loop
async def test_a_function_that_was_cancelled_before_it_began_never_runs() -> None:
    threads = WorkerThreads(max_threads=1)
    blocker = Blocker()
    ran: list[int] = []
    first = asyncio.ensure_future(threads.run(blocker))
    await blocker.entered.wait()
    second = asyncio.ensure_future(threads.run(ran.append, 1))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert threads.abandoned == 0
    blocker.release.set()
    assert await first == "late"
    await threads.run(lambda: None)
    assert ran == []


@on_a_loop
async def test_a_function_that_returned_before_its_wait_was_cancelled_is_not_abandoned() -> None:
    """The loop had no time yet to hand its value over."""
    before = workers()
    threads = WorkerThreads(max_threads=1)
    late: list[str] = []
    blocker = Blocker("returned")
    next_began = threading.Event()
    first = asyncio.ensure_future(
        threads.run(blocker, on_late=lambda done: late.append(done.result()))
    )
    await blocker.entered.wait()
    second = asyncio.ensure_future(threads.run(next_began.set))
    await asyncio.sleep(0)
    blocker.release.set()
    assert next_began.wait(WAIT), "the thread has left the first function"
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert threads.abandoned == 0
    await second
    assert late == ["returned"]
    assert len(workers() - before) == 1


@on_a_loop
async def test_context_variables_are_copied() -> None:
    """The function sees the caller's; what it sets stays with it."""
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")
    threads = WorkerThreads(max_threads=1)

    def change() -> str:
        seen = user.get()
        user.set("changed in the thread")
        return seen

    user.set("ann")
    assert await threads.run(change) == "ann"
    assert user.get() == "ann"
    user.set("bob")
    assert await threads.run(change) == "bob", "the same thread, another caller"


class Bomb(BaseException):
    pass


@pytest.mark.parametrize("error", [ValueError("no"), Bomb("no"), asyncio.CancelledError("no")])
async def test_what_a_function_raises_comes_back(error: BaseException) -> None:
    def fail() -> None:
        raise error

    threads = WorkerThreads(max_threads=1)
    with pytest.raises(type(error), match="no"):
        await threads.run(fail)
    assert await threads.run(lambda: "alive") == "alive", "its thread lives on"
    assert threads.abandoned == 0


@on_a_loop
async def test_a_stop_iteration_comes_back_as_an_error() -> None:
    """It would end the coroutine that awaits it."""
    with pytest.raises(RuntimeError, match="StopIteration"):
        await WorkerThreads().run(lambda: next(iter(())))


@on_a_loop
async def test_what_an_abandoned_function_brings_is_told_on_the_loop() -> None:
    loop = asyncio.get_running_loop()
    late: asyncio.Future[tuple[str, int]] = loop.create_future()
    threads = WorkerThreads()
    blocker = Blocker("brought late")
    await abandoned(
        threads,
        blocker,
        on_late=lambda done: late.set_result((done.result(), threading.get_ident())),
    )
    assert not late.done()
    blocker.release.set()
    async with asyncio.timeout(WAIT):
        assert await late == ("brought late", threading.get_ident())


@on_a_loop
async def test_what_an_abandoned_function_raises_is_told_on_the_loop() -> None:
    late: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    blocker = Blocker(error=ValueError("too late"))
    await abandoned(
        WorkerThreads(), blocker, on_late=lambda done: late.set_result(done.exception())
    )
    blocker.release.set()
    async with asyncio.timeout(WAIT):
        assert isinstance(await late, ValueError)


@on_a_loop
async def test_a_function_that_is_waited_for_to_its_end_is_not_late() -> None:
    told: list[object] = []
    await WorkerThreads().run(lambda: None, on_late=told.append)
    await asyncio.sleep(0)
    assert told == []


def test_a_function_that_outlives_its_loop_harms_nothing() -> None:
    release = threading.Event()
    held: list[threading.Thread] = []
    threads = WorkerThreads()

    async def main() -> None:
        blocker = Blocker()
        blocker.release = release
        await abandoned(threads, blocker)
        assert blocker.thread is not None
        held.append(blocker.thread)

    asyncio.run(main())
    release.set()
    held[0].join(WAIT)
    assert threads.abandoned == 0
    assert asyncio.run(threads.run(lambda: "alive")) == "alive"


@pytest.mark.parametrize("count", [0, -1])
def test_there_must_be_a_thread(count: int) -> None:
    with pytest.raises(UsageError, match=rf"max_threads.*{count}"):
        WorkerThreads(max_threads=count)


class NoThreads:
    """No thread can be started while it is entered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __enter__(self) -> None:
        def refuse(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        self._monkeypatch.setattr(threading.Thread, "start", refuse)

    def __exit__(self, *_: object) -> None:
        self._monkeypatch.undo()


async def test_a_thread_that_cannot_be_started_is_told_and_takes_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """T9."""
    threads = WorkerThreads(1)
    called: list[str] = []
    for _ in range(2):
        with NoThreads(monkeypatch), pytest.raises(RuntimeError, match="can't start"):
            await soon(threads.run(called.append, "refused"))
    await soon(threads.run(called.append, "run"))
    assert called == ["run"], "what was refused is not run later"


async def test_a_function_waits_for_the_threads_that_there_are_where_no_other_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """T9."""
    threads = WorkerThreads(2)
    entered, release = threading.Event(), threading.Event()

    def hold() -> str:
        entered.set()
        release.wait(60)
        return "held"

    first = asyncio.ensure_future(threads.run(hold))
    assert await asyncio.to_thread(entered.wait, 60)
    with NoThreads(monkeypatch):
        second = asyncio.ensure_future(threads.run(lambda: "second"))
        await asyncio.sleep(0)
        release.set()
        assert (await soon(first), await soon(second)) == ("held", "second")


async def test_who_waits_behind_an_abandoned_function_is_told_where_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the one that was cancelled is cancelled."""
    threads = WorkerThreads(1)
    entered, release = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        release.wait(60)

    held = asyncio.ensure_future(threads.run(hold))
    assert await asyncio.to_thread(entered.wait, 60)
    behind = asyncio.ensure_future(threads.run(lambda: "behind"))
    await asyncio.sleep(0)
    try:
        with NoThreads(monkeypatch):
            held.cancel()
            with pytest.raises(RuntimeError, match="can't start"):
                await soon(behind)
            with pytest.raises(asyncio.CancelledError):
                await held
    finally:
        release.set()
    assert await soon(threads.run(lambda: "later")) == "later"


def test_a_plain_function_runs_in_the_child_of_a_fork() -> None:
    """The idle thread that the pool counts is the parent's."""
    threads = WorkerThreads(1)
    assert asyncio.run(threads.run(lambda: "parent")) == "parent"
    with threads._lock:  # as another thread of the parent may have it
        assert in_child(lambda: asyncio.run(threads.run(lambda: "child"))) == "child"
    assert asyncio.run(threads.run(lambda: "parent")) == "parent"


async def test_idle_threads_end_at_once_where_nobody_needs_them_and_come_again() -> None:
    threads = WorkerThreads(2, name="understudy-ended")

    def mine() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each.name == "understudy-ended"]

    for _ in range(2):
        assert await threads.run(lambda: 17) == 17
        running = mine()
        assert running
        threads.end_idle()
        for thread in running:
            await asyncio.to_thread(thread.join, WAIT)
        assert not mine()
