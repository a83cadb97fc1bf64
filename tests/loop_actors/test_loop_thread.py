"""`LoopThread`: an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from typing import Any

import pykka
import pytest

from understudy.actors import LoopActor, LoopActorRef, LoopThread, loop_for_start
from understudy.errors import UsageError


def test_its_loop_runs_from_start_to_stop() -> None:
    thread = LoopThread("my-loop")
    with pytest.raises(UsageError, match=r"start\(\)"):
        _ = thread.loop
    loop = thread.start()
    assert thread.start() is loop is thread.loop
    name = asyncio.run_coroutine_threadsafe(current_thread_name(), loop)
    assert name.result(60) == "my-loop"
    assert thread.stop() is True
    assert thread.stop() is True
    assert loop.is_closed()
    with pytest.raises(UsageError):
        _ = thread.loop


async def current_thread_name() -> str:
    return threading.current_thread().name


def test_it_may_be_started_again_with_a_new_loop() -> None:
    thread = LoopThread()
    first = thread.start()
    thread.stop()
    second = thread.start()
    assert first is not second
    assert thread.stop()


def test_stopping_cancels_its_tasks_and_ends_its_actors() -> None:
    entered = threading.Event()
    unwound: list[str] = []

    class Busy(LoopActor):
        async def on_receive(self, message: Any) -> None:
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                unwound.append(message)

    thread = LoopThread()
    token = loop_for_start.set(thread.start())
    try:
        busy, idle = Busy.start(), LoopActor.start()
    finally:
        loop_for_start.reset(token)
    idle.ask("x")
    asks = [busy.ask("in progress", block=False), busy.ask("waiting", block=False)]
    assert entered.wait(60)
    assert thread.stop(timeout=60) is True
    for ask in asks:
        with pytest.raises(pykka.ActorDeadError):
            ask.get(timeout=60)
    assert unwound == ["in progress"]
    assert not busy.is_alive()
    assert not idle.is_alive()


@pytest.mark.filterwarnings("ignore:asynchronous generator:ResourceWarning")
def test_an_actor_that_is_started_while_it_stops_is_ended_with_it() -> None:
    thread = LoopThread()
    loop = thread.start()
    first_ended = threading.Event()
    late: list[LoopActorRef[Any]] = []

    def start_late() -> None:
        """In the executor of the loop, whose end the loop awaits last."""
        loop_for_start.set(loop)
        assert first_ended.wait(60)
        late.append(LoopActor.start())
        late[0].ask("started")

    async def begin() -> None:
        LoopActor.start().monitor(lambda _: first_ended.set())
        loop.run_in_executor(None, start_late)

    asyncio.run_coroutine_threadsafe(begin(), loop).result(60)
    assert thread.stop(timeout=60) is True
    assert not late[0].is_alive()


def test_stopping_it_on_its_own_loop_asks_for_the_end_without_waiting() -> None:
    thread = LoopThread()
    loop = thread.start()

    async def stop() -> bool:
        return thread.stop()

    assert asyncio.run_coroutine_threadsafe(stop(), loop).result(60) is False
    assert thread.stop(timeout=60) is True


@pytest.mark.slow
def test_a_process_ends_quietly_though_shared_actors_run() -> None:
    script = (
        "from understudy.actors import LoopActor\n"
        "class Echo(LoopActor):\n"
        "    async def on_receive(self, message): return message\n"
        "refs = [Echo.start() for _ in range(3)]\n"
        "print([ref.ask(1) for ref in refs])\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1, 1, 1]\n", "")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_the_child_of_a_fork_gets_a_shared_loop_of_its_own() -> None:
    script = (
        "import os\n"
        "from understudy.actors import LoopActor\n"
        "class Echo(LoopActor):\n"
        "    def on_receive(self, message): return message\n"
        "print(Echo.start().ask('parent'), flush=True)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    print(Echo.start().ask('child', timeout=60), flush=True)\n"
        "    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["parent", "child"], "")
