"""A coroutine is run to its end by code that cannot await, also where an event loop runs."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.interrupts import ctrl_c
from understudy.agent.run_sync import run_sync

name = contextvars.ContextVar("name", default="nobody")


def on_a_loop(function: Callable[[], Any]) -> Any:
    """Call it where an event loop runs, as a cell of a notebook is; Ctrl-C is not the loop's."""

    async def cell() -> Any:
        return function()

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(cell())
    finally:
        loop.close()


async def where() -> tuple[int, str]:
    return threading.get_ident(), name.get()


def test_without_a_loop_it_runs_in_this_thread() -> None:
    name.set("ann")
    assert run_sync(where) == (threading.get_ident(), "ann")


async def test_where_a_loop_runs_it_has_a_thread_of_its_own_and_this_context() -> None:
    name.set("ann")
    thread, seen = run_sync(where)
    assert thread != threading.get_ident()
    assert seen == "ann"


async def test_it_may_be_nested() -> None:
    async def outer() -> tuple[int, str]:
        return run_sync(where)

    name.set("ann")
    assert run_sync(outer)[1] == "ann"


@pytest.mark.parametrize("error", [KeyError("mine"), SystemExit(3), KeyboardInterrupt()], ids=repr)
async def test_what_it_raises_is_raised(error: BaseException) -> None:
    async def fails() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        run_sync(fails)
    assert raised.value is error


async def test_no_thread_is_left() -> None:
    before = set(threading.enumerate())
    run_sync(where)
    left = set(threading.enumerate()) - before
    for thread in left:  # it is on its last line
        thread.join(60)
    assert not any(thread.is_alive() for thread in left)


def test_an_interrupt_cancels_it_and_is_raised_when_it_has_ended(ctrl_c_raises: None) -> None:
    ended: list[str] = []

    async def waits() -> None:
        try:
            ctrl_c()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("cleaned up")

    with pytest.raises(KeyboardInterrupt):
        on_a_loop(lambda: run_sync(waits))
    assert ended == ["cleaned up"]


def test_a_second_interrupt_does_not_wait(ctrl_c_raises: None) -> None:
    loops: list[asyncio.AbstractEventLoop] = []
    let_go = asyncio.Event()
    ended = threading.Event()

    async def stubborn() -> None:
        loops.append(asyncio.get_running_loop())
        try:
            ctrl_c()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ctrl_c()
            await let_go.wait()
            raise
        finally:
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        on_a_loop(lambda: run_sync(stubborn))
    assert not ended.is_set()
    loops[0].call_soon_threadsafe(let_go.set)
    assert ended.wait(60)


def test_an_interrupt_in_the_start_of_its_thread_leaves_nothing_running(
    ctrl_c_raises: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread runs, and nobody waits for it yet."""
    began: list[str] = []
    start, interrupted = threading.Thread.start, threading.Event()

    async def work() -> None:
        began.append("work")

    def start_and_interrupt(thread: threading.Thread) -> None:
        run = thread.run

        def held() -> None:
            interrupted.wait(60)
            run()

        monkeypatch.setattr(thread, "run", held)
        start(thread)
        raise KeyboardInterrupt

    def cancelled(thread: threading.Thread, timeout: float | None = None) -> None:
        interrupted.set()
        join(thread, timeout)

    join = threading.Thread.join
    monkeypatch.setattr(threading.Thread, "start", start_and_interrupt)
    monkeypatch.setattr(threading.Thread, "join", cancelled)
    with pytest.raises(KeyboardInterrupt):
        on_a_loop(lambda: run_sync(work))
    assert interrupted.is_set()
    assert began == []


def test_where_no_thread_can_be_started_that_error_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuses(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuses)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        on_a_loop(lambda: run_sync(where))
