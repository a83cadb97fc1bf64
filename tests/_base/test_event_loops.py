"""A function is called on its loop, from wherever one is."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable

import pytest

from understudy._base.event_loops import call_on, call_on_and_wait, call_soon_on

name = contextvars.ContextVar("name", default="nobody")


@pytest.fixture(params=[call_on, call_soon_on])
def call(request: pytest.FixtureRequest) -> Callable[..., bool]:
    chosen: Callable[..., bool] = request.param
    return chosen


def closed_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.close()
    return loop


async def test_call_on_calls_at_once_where_the_loop_runs_and_call_soon_on_at_its_next_turn() -> (
    None
):
    loop, said = asyncio.get_running_loop(), list[str]()
    assert call_soon_on(loop, said.append, "soon")
    assert call_on(loop, said.append, "now")
    said.append("here")
    await asyncio.sleep(0)
    assert said == ["now", "here", "soon"]


async def test_from_a_thread_it_is_called_on_the_loop_in_order(call: Callable[..., bool]) -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    said: list[tuple[int, threading.Thread]] = []

    def note(number: int) -> None:
        said.append((number, threading.current_thread()))
        if number == 2:
            done.set()

    def work() -> None:
        for number in range(3):
            assert call(loop, note, number)

    thread = threading.Thread(target=work)
    thread.start()
    await done.wait()
    thread.join()
    assert said == [(number, threading.current_thread()) for number in range(3)]


def test_from_another_loop_it_is_called_on_its_own(call: Callable[..., bool]) -> None:
    loop = asyncio.new_event_loop()
    said: list[asyncio.AbstractEventLoop] = []

    async def elsewhere() -> None:
        assert call(loop, lambda: said.append(asyncio.get_running_loop()))
        assert said == []

    asyncio.run(elsewhere())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert said == [loop]


def test_a_closed_loop_is_told_and_nothing_is_called(call: Callable[..., bool]) -> None:
    said: list[str] = []
    assert call(closed_loop(), said.append, "never") is False
    assert said == []


async def test_what_a_function_raises_here_goes_to_the_caller_whatever_it_is() -> None:
    def fail() -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        call_on(asyncio.get_running_loop(), fail)


async def test_call_soon_on_calls_in_the_context_given() -> None:
    loop, said = asyncio.get_running_loop(), list[str]()
    context = contextvars.copy_context()
    context.run(name.set, "somebody")

    def note() -> None:
        said.append(name.get())

    call_soon_on(loop, note, context=context)
    call_soon_on(loop, note)
    await asyncio.to_thread(lambda: call_soon_on(loop, note, context=context))
    await asyncio.sleep(0)
    assert said == ["somebody", "nobody", "somebody"]


async def test_a_thread_waits_for_what_is_called_on_the_loop_and_gets_its_error() -> None:
    loop, said = asyncio.get_running_loop(), list[threading.Thread]()

    def fail() -> None:
        said.append(threading.current_thread())
        raise LookupError("not there")

    with pytest.raises(LookupError, match="not there"):
        await asyncio.to_thread(call_on_and_wait, loop, fail)
    with pytest.raises(LookupError, match="not there"):
        call_on_and_wait(loop, fail)
    assert said == [threading.current_thread()] * 2


def test_a_thread_does_not_wait_for_a_loop_that_is_closed_or_does_not_run() -> None:
    said: list[str] = []
    assert not call_on_and_wait(closed_loop(), lambda: said.append("called"))
    stopped = asyncio.new_event_loop()
    try:
        assert not call_on_and_wait(stopped, lambda: said.append("called"))
        stopped.run_until_complete(asyncio.sleep(0))
    finally:
        stopped.close()
    assert said == []
