"""Calls to a runtime whose event loop does not run: an error, and no hang (A10)."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.agents import completed
from understudy import Agent, LoopNotRunning, Runtime, UsageError
from understudy.actors import AgentRef
from understudy.loop_actors.future import Future
from understudy.models import ScriptedModel

REMEDY = "the same `loop_scope`"


def desk() -> Agent:
    return Agent("desk", ScriptedModel(["Hello.", "Hello again."]))


@contextmanager
def entered_on(loop: asyncio.AbstractEventLoop) -> Iterator[Runtime]:
    """A runtime that was entered on a loop, which runs only while it enters and leaves it."""
    runtime = Runtime([desk()])
    loop.run_until_complete(runtime.__aenter__())
    try:
        yield runtime
    finally:
        if not loop.is_closed():
            loop.run_until_complete(runtime.__aexit__(None, None, None))
            loop.close()


def asks(runtime: Runtime, ref: AgentRef) -> dict[str, Callable[[], Future[Any]]]:
    return {
        "run": lambda: ref.run("Hi."),
        "send": lambda: ref.send("Hi."),
        "state": ref.state,
        "outcome": ref.outcome,
        "cancel": ref.cancel,
        "retry": ref.retry,
        "history": ref.history,
        "delete": lambda: runtime.delete("d1"),
        "count": runtime.count,
    }


EACH = ["run", "send", "state", "outcome", "cancel", "retry", "history", "delete", "count"]


@pytest.mark.slow
@pytest.mark.parametrize("call", ["run", "state", "count"])
def test_a_thread_that_waits_for_a_loop_that_nobody_runs_is_told_so(call: str) -> None:
    with entered_on(asyncio.new_event_loop()) as runtime:
        future = asks(runtime, runtime.spawn("desk", "d1"))[call]()
        with pytest.raises(LoopNotRunning, match=REMEDY):
            future.get()


@pytest.mark.slow
@pytest.mark.parametrize("call", ["run", "state", "count"])
async def test_a_task_that_waits_for_a_loop_that_nobody_runs_is_told_so(call: str) -> None:
    entered = entered_on(asyncio.new_event_loop())
    runtime = await asyncio.to_thread(entered.__enter__)
    try:
        with pytest.raises(LoopNotRunning, match="does not run") as found:
            await asks(runtime, runtime.spawn("desk", "d1"))[call]()
        assert not found.value.is_closed
    finally:
        await asyncio.to_thread(entered.__exit__, None, None, None)


@pytest.mark.parametrize("call", EACH)
def test_a_call_on_a_closed_loop_is_refused_before_anything_is_sent(call: str) -> None:
    loop = asyncio.new_event_loop()
    with entered_on(loop) as runtime:
        ref = runtime.spawn("desk", "d1")
        loop.run_until_complete(loop.shutdown_default_executor())
        end_tasks(loop)
        loop.close()
        with pytest.raises(LoopNotRunning, match="is closed") as found:
            asks(runtime, ref)[call]()
        assert found.value.is_closed
        with pytest.raises(LoopNotRunning, match="is closed"):
            runtime.spawn("desk", "d2")


def test_a_call_that_waits_when_its_loop_is_closed_is_told_so() -> None:
    loop = asyncio.new_event_loop()
    with entered_on(loop) as runtime:
        ref = runtime.spawn("desk", "d1")
        end_tasks(loop)
        future = ref.run("Hi.")
        loop.close()
        with pytest.raises(LoopNotRunning, match="is closed"):
            future.get()
        assert not future.done()


def test_a_wait_with_a_timeout_says_that_the_loop_does_not_run() -> None:
    with entered_on(asyncio.new_event_loop()) as runtime:
        with pytest.raises(TimeoutError, match="does not run") as found:
            runtime.spawn("desk", "d1").run("Hi.").get(timeout=0.01)
        assert "wait again" not in str(found.value)


@pytest.mark.slow
def test_what_was_asked_before_the_loop_runs_again_is_answered() -> None:
    loop = asyncio.new_event_loop()
    with entered_on(loop) as runtime:
        future = runtime.spawn("desk", "d1").run("Hi.")
        with pytest.raises(LoopNotRunning):
            future.get()

        async def answered() -> str:
            return completed(await future).text

        assert loop.run_until_complete(answered()) == "Hello."


def test_a_wait_outlasts_a_loop_that_rests_between_its_turns() -> None:
    loop = asyncio.new_event_loop()
    with entered_on(loop) as runtime:
        future = runtime.spawn("desk", "d1").run("Hi.")
        got: list[Any] = []
        thread = threading.Thread(target=lambda: got.append(future.get()))
        thread.start()
        while not got:
            loop.run_until_complete(asyncio.sleep(0))
        thread.join()
        assert completed(got[0]).text == "Hello."


def test_a_future_that_was_settled_before_its_loop_was_closed_has_its_value() -> None:
    loop = asyncio.new_event_loop()
    with entered_on(loop) as runtime:
        future = runtime.spawn("desk", "d1").run("Hi.")

        async def answered() -> None:
            await future

        loop.run_until_complete(answered())
        end_tasks(loop)
        loop.close()
        assert completed(future.get()).text == "Hello."


@pytest.mark.slow
def test_events_of_a_loop_that_nobody_runs_end_with_the_error() -> None:
    with entered_on(asyncio.new_event_loop()) as runtime:
        events = runtime.spawn("desk", "d1").events()
        with pytest.raises(LoopNotRunning):
            next(iter(events))


def test_a_runtime_is_left_on_the_loop_on_which_it_was_entered() -> None:
    loop = asyncio.new_event_loop()
    with entered_on(loop) as runtime:
        with pytest.raises(UsageError, match=REMEDY):
            asyncio.run(runtime.__aexit__(None, None, None))
        assert loop.run_until_complete(asyncio.wait_for(of(runtime), 60)) == "Hello."


async def of(runtime: Runtime) -> str:
    return completed(await runtime.spawn("desk", "d1").run("Hi.")).text


def end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks of a loop that is about to be closed, as `asyncio.run` does."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
