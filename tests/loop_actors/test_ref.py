"""`LoopActorRef`: tell, ask, stop, stop now, and monitors (A10)."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from dataclasses import FrozenInstanceError
from functools import partial
from typing import Any

import pykka
import pytest

from tests.support.loop_actors import Actor, ended
from tests.support.loops import own_tasks, until
from understudy.actors import (
    Down,
    Future,
    LoopActor,
    LoopActorRegistry,
    LoopThread,
    async_hook,
    loop_for_start,
)
from understudy.errors import WouldDeadlock


class Held(Actor):
    """Its async handler waits until it is let go; only a cancellation ends it earlier."""

    def __init__(self, notes: list[Any] | None = None) -> None:
        super().__init__(notes)
        self._let_go = asyncio.Event()

    async def on_receive(self, message: Any) -> Any:
        self.notes.append(message)
        if message == "hold":
            await self._let_go.wait()
        if message == "stubborn":
            while not self._let_go.is_set():
                try:
                    await self._let_go.wait()
                except asyncio.CancelledError:
                    self.notes.append("ignored a cancellation")
        return message


# Tell and ask


def test_tell_returns_nothing_and_the_message_is_handled() -> None:
    notes: list[Any] = []
    ref = Actor.start(notes)
    ref.tell("hello")
    ref.ask("last")
    assert notes == ["start", "hello", "last"]


@pytest.mark.parametrize(
    "message", [None, 123, {"a": "dict"}, ("a", "tuple"), ["a", "list"], ValueError("an error")]
)
def test_anything_may_be_a_message(message: Any) -> None:
    class Echo(LoopActor):
        def on_receive(self, message: Any) -> Any:
            received.append(message)
            return message

    received: list[Any] = []
    ref = Echo.start()
    ref.tell(message)
    assert ref.ask(message) is message
    assert received == [message, message]


def test_ask_returns_the_reply_or_with_block_false_its_future() -> None:
    ref = Actor.start()
    assert ref.ask("a") == "a"
    future = ref.ask("b", block=False)
    assert isinstance(future, Future)
    assert future.get() == "b"


def test_ask_from_another_loop_than_the_actors_is_awaited() -> None:
    ref = Actor.start()

    async def main() -> Any:
        return await ref.ask("across", block=False)

    assert asyncio.run(main()) == "across"


async def test_an_actor_on_the_main_loop_is_asked_from_a_thread() -> None:
    ref = Actor.start()
    answer = await asyncio.to_thread(ref.ask, "from a thread")
    assert await asyncio.to_thread(ref.stop) is True
    assert answer == "from a thread"


def test_an_ask_that_times_out_says_so_and_the_message_is_still_handled() -> None:
    leave = threading.Event()

    class Blocking(Actor):
        def on_receive(self, message: Any) -> Any:
            leave.wait(60)
            return super().on_receive(message)

    notes: list[Any] = []
    ref = Blocking.start(notes)
    with pytest.raises(pykka.Timeout):
        ref.ask("slow", timeout=0)
    leave.set()
    ref.stop()
    assert notes == ["start", "slow", "stop"]


async def test_to_block_on_the_actors_own_loop_would_deadlock_and_sends_nothing() -> None:
    notes: list[Any] = []
    ref = Actor.start(notes)
    with pytest.raises(WouldDeadlock, match="await"):
        ref.ask("x")
    with pytest.raises(WouldDeadlock, match="await"):
        ref.stop()
    with pytest.raises(WouldDeadlock):
        ref.proxy().notes = []
    with pytest.raises(WouldDeadlock):
        LoopActorRegistry.stop_all()
    await asyncio.sleep(0)
    assert notes == ["start"]
    assert await ref.stop(block=False) is True


async def test_to_block_on_another_loop_waits_for_the_actors() -> None:
    """As a notebook does, whose loop runs in each cell: the actor's own loop continues."""
    notes: list[Any] = []
    context = contextvars.copy_context()
    with_a_loop = LoopThread()
    context.run(loop_for_start.set, with_a_loop.start())
    ref = context.run(Actor.start, notes)
    assert ref.ask("asked", timeout=60) == "asked"
    ref.proxy().notes = notes
    assert ref.proxy().notes.get(timeout=60) is notes
    assert ref.ask("later", block=False).map(str.upper).get(timeout=60) == "LATER"

    own = Actor.start()
    with pytest.raises(WouldDeadlock):
        LoopActorRegistry.stop_all()
    assert ref.is_alive(), "none is stopped where one would block"
    await own.stop(block=False)
    assert LoopActorRegistry.stop_all(timeout=60) == [True]
    assert notes == ["start", "asked", "later", "stop"]
    with_a_loop.stop(30)


def test_a_handler_that_would_block_its_own_loop_fails_at_once() -> None:
    class Selfish(LoopActor):
        def on_receive(self, message: Any) -> Any:
            if message == "ask":
                return self.actor_ref.ask("x")
            return self.actor_ref.ask("x", block=False).get()

    ref = Selfish.start()
    for message in ("ask", "get"):
        with pytest.raises(WouldDeadlock):
            ref.ask(message)


def test_a_dead_actor_refuses_a_tell_and_settles_an_ask() -> None:
    ref = Actor.start()
    ref.stop()
    with pytest.raises(pykka.ActorDeadError, match=f"Actor .*{ref.actor_urn}.* not found"):
        ref.tell("x")
    with pytest.raises(pykka.ActorDeadError, match="not found"):
        ref.ask("x")
    with pytest.raises(pykka.ActorDeadError, match="not found"):
        ref.ask("x", block=False).get()
    with pytest.raises(pykka.ActorDeadError, match="not found"):
        ref.proxy()


async def test_the_asker_may_settle_its_own_future_and_the_actor_lives_on() -> None:
    ref = Actor.start()
    future = ref.ask("x", block=False)
    future.set("mine")
    failing = ref.ask(ValueError(), block=False)
    failing.set("mine too")
    assert await ref.ask("y", block=False) == "y"
    assert [await future, await failing] == ["mine", "mine too"]
    await ref.stop(block=False)


def test_an_ask_by_a_thread_actor_is_answered() -> None:
    loop_ref = Actor.start()

    class Asking(pykka.ThreadingActor):
        def on_receive(self, message: Any) -> Any:
            return loop_ref.ask(message)

    assert Asking.start().ask("through") == "through"


# Stop now


async def test_stop_now_waits_neither_for_the_handler_nor_for_the_mailbox() -> None:
    notes: list[Any] = []
    ref = Held.start(notes)
    holding = ref.ask("hold", block=False)
    waiting = ref.ask("waiting", block=False)
    stopping = ref.stop(block=False)
    await until(lambda: "hold" in notes)
    reason = TimeoutError("shutdown")
    down = asyncio.ensure_future(ended(ref))
    await asyncio.sleep(0)
    assert await ref.stop_now(reason) is True
    for future in (holding, waiting):
        with pytest.raises(pykka.ActorDeadError, match="shutdown"):
            await future
    assert await stopping is True
    assert await down == Down(ref, reason)
    assert notes == ["start", "hold"]  # no hook
    await until(lambda: not own_tasks())
    assert await ref.stop_now() is False


async def test_stop_now_does_not_wait_for_a_handler_that_ignores_its_cancellation() -> None:
    notes: list[Any] = []
    ref = Held.start(notes)
    let_go = ref._actor_weakref()._let_go  # type: ignore[union-attr]  # it runs
    asked = ref.ask("stubborn", block=False)
    await until(lambda: "stubborn" in notes)
    assert await ref.stop_now() is True
    assert (await ended(ref)).reason is None
    with pytest.raises(pykka.ActorDeadError, match="it was stopped"):
        await asked
    await until(lambda: "ignored a cancellation" in notes)
    let_go.set()
    await until(lambda: not own_tasks())
    with pytest.raises(pykka.ActorDeadError):
        await asked
    assert notes == ["start", "stubborn", "ignored a cancellation"]


async def test_stop_now_ends_a_hook_that_hangs() -> None:
    class Hanging(Actor):
        @async_hook
        async def on_stop(self) -> None:
            self.notes.append("hanging")
            await asyncio.Event().wait()

    notes: list[Any] = []
    ref = Hanging.start(notes)
    stopping = ref.stop(block=False)
    await until(lambda: "hanging" in notes)
    assert await ref.stop_now() is True
    assert await stopping is True
    await until(lambda: not own_tasks())


@pytest.mark.parametrize("hook", ["on_start", "on_failure"])
async def test_stop_now_ends_an_actor_that_starts_or_fails_slowly(hook: str) -> None:
    entered = asyncio.Event()

    async def hang(*_args: Any) -> None:
        entered.set()
        await asyncio.Event().wait()

    hanging: type[Actor] = type("Hanging", (Actor,), {hook: hang})
    ref = hanging.start()
    ref.tell(ValueError())
    await entered.wait()
    reason = OSError("no time")
    assert await ref.stop_now(reason) is True
    assert (await ended(ref)).reason is reason
    await until(lambda: not own_tasks())


async def test_stop_now_before_the_first_turn_of_the_loop_calls_no_hook() -> None:
    notes: list[Any] = []
    ref = Actor.start(notes)
    assert await ref.stop_now() is True
    await asyncio.sleep(0)
    assert notes == []
    assert not ref.is_alive()


async def test_a_handler_may_stop_its_own_actor_now() -> None:
    class Sudden(Actor):
        async def on_receive(self, message: Any) -> Any:
            if message == "await":
                await self.actor_ref.stop_now()
                await asyncio.sleep(0)
                raise AssertionError("it goes on")
            return await super().on_receive(message)

        def plain(self) -> str:
            self.actor_ref.stop_now()
            return "done"

    ref = Sudden.start()
    with pytest.raises(pykka.ActorDeadError):
        await ref.ask("await", block=False)
    await until(lambda: not own_tasks())
    ref = Sudden.start()
    call = ref.proxy().plain()
    behind = ref.ask("behind", block=False)
    assert await call == "done"
    with pytest.raises(pykka.ActorDeadError):
        await behind


def test_stop_now_from_a_thread_stops_at_once_what_waits() -> None:
    entered, leave = threading.Event(), threading.Event()

    class Blocking(Actor):
        def on_receive(self, message: Any) -> Any:
            entered.set()
            leave.wait(60)
            return super().on_receive(message)

    notes: list[Any] = []
    ref = Blocking.start(notes)
    first, second = ref.ask(1, block=False), ref.ask(2, block=False)
    entered.wait(60)
    stopping = ref.stop_now()
    with pytest.raises(pykka.ActorDeadError):
        second.get(timeout=60)
    leave.set()
    assert first.get(timeout=60) == 1  # a plain handler cannot be interrupted
    assert stopping.get(timeout=60) is True
    assert notes == ["start", 1]


# Monitors


async def test_a_function_and_an_actor_get_one_down_each() -> None:
    seen: list[Down] = []
    notes: list[Any] = []
    watcher, watched = Actor.start(notes), Actor.start()
    watched.monitor(watcher)
    watched.monitor(seen.append)
    watched.monitor(watcher)
    watched.tell("x")
    await watched.stop(block=False)
    await watched.stop(block=False)
    await watched.stop_now()
    await watcher.ask("end", block=False)
    assert seen == [Down(watched, None)]
    assert notes == ["start", Down(watched, None), "end"]
    await watcher.stop(block=False)


def test_monitoring_a_dead_actor_delivers_its_down_at_once() -> None:
    ref = Actor.start()
    error = ValueError("how it died")
    ref.tell(error)
    asyncio.run(ended(ref))
    seen: list[Down] = []
    ref.monitor(seen.append)
    assert seen == [Down(ref, error)]
    assert ref.demonitor(seen.append) is False


def test_a_monitor_ends_by_demonitor() -> None:
    seen: list[Down] = []
    ref = Actor.start()
    assert ref.demonitor(seen.append) is False
    ref.monitor(seen.append)
    assert ref.demonitor(seen.append) is True
    assert ref.demonitor(seen.append) is False
    ref.stop()
    assert seen == []


@pytest.mark.parametrize("count", [1, 3, 30])
async def test_however_many_monitor_an_actor_each_gets_one_down_in_order(count: int) -> None:
    seen: list[tuple[int, Down]] = []

    class Watching:
        def __init__(self, number: int) -> None:
            self.number = number

        def __call__(self, down: Down) -> None:
            seen.append((self.number, down))

    ref = Actor.start()
    watching = [Watching(number) for number in range(count + 1)]
    for watcher in [*watching, *watching]:
        ref.monitor(watcher)
    assert ref.demonitor(watching[count]) is True
    assert ref.demonitor(watching[count]) is False
    await ref.stop(block=False)
    assert seen == [(number, Down(ref, None)) for number in range(count)]


async def test_down_comes_after_the_last_hook_and_when_every_ask_is_answered() -> None:
    class Slow(Actor):
        @async_hook
        async def on_stop(self) -> None:
            await asyncio.sleep(0)
            self.notes.append("stopped")

    notes: list[Any] = []
    ref = Slow.start(notes)
    stopping = ref.stop(block=False)
    waiting = ref.ask("behind", block=False)
    ref.monitor(lambda _: notes.append((stopping.done(), waiting.done())))
    await stopping
    assert notes == ["start", "stopped", (True, True)]


async def test_a_faulty_or_dead_watcher_costs_the_others_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def faulty(_down: Down) -> None:
        raise SystemExit("in a watcher")

    seen: list[Down] = []
    dead, watched = Actor.start(), Actor.start()
    await dead.stop(block=False)
    watched.monitor(faulty)
    watched.monitor(dead)
    watched.monitor(seen.append)
    await watched.stop(block=False)
    assert seen == [Down(watched, None)]
    assert [r.message for r in caplog.records if r.exc_info] != []


def test_a_down_is_frozen() -> None:
    ref = Actor.start()
    down = Down(ref, None)
    with pytest.raises(FrozenInstanceError):
        down.reason = ValueError()  # type: ignore[misc]  # this is what is tested


def test_threads_that_monitor_while_it_stops_get_one_down_each() -> None:
    ref = Actor.start()
    seen: list[int] = []
    start = threading.Barrier(9)

    def monitor(number: int) -> None:
        start.wait(60)
        for _ in range(20):
            ref.monitor(partial(note, number))

    def note(number: int, _down: Down) -> None:
        seen.append(number)

    threads = [threading.Thread(target=monitor, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    start.wait(60)
    ref.stop()
    for thread in threads:
        thread.join(60)
    assert sorted(seen) == sorted(list(range(8)) * 20)


# The flag


def test_actor_stopped_is_waited_for_as_an_event() -> None:
    ref = Actor.start()
    assert ref.actor_stopped.wait(0) is False
    waiting = threading.Thread(target=ref.actor_stopped.wait, args=(10,))
    waiting.start()
    ref.stop()
    waiting.join(60)
    assert not waiting.is_alive()
    assert ref.actor_stopped.wait() is True
    assert isinstance(ref.actor_stopped, threading.Event)
