"""`LoopActor`: Pykka's actor on an event loop, from its start to its end."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import itertools
import logging
import threading
import uuid
import weakref
from typing import Any

import pykka
import pytest

from tests.support.loop_actors import Actor, ended
from tests.support.loops import own_tasks, until
from understudy.actors import (
    Future,
    LoopActor,
    LoopActorRef,
    LoopActorRegistry,
    LoopThread,
    async_hook,
    loop_for_start,
)
from understudy.errors import UsageError

# Start


def test_an_actor_has_a_urn_a_ref_and_a_name_in_init_already() -> None:
    seen: list[Any] = []

    class Curious(LoopActor):
        def __init__(self) -> None:
            super().__init__()
            seen.extend([self.actor_urn, self.actor_ref, str(self)])

    one, other = Curious.start(), Curious.start()
    assert seen[0].startswith("urn:uuid:")
    assert seen[0] == one.actor_urn != other.actor_urn
    assert seen[1] is one
    assert seen[2] == f"Curious ({one.actor_urn})" == str(one)
    assert repr(one) == f"<ActorRef for Curious ({one.actor_urn})>"


def test_every_actor_has_its_own_urn() -> None:
    urns = {Actor.start().actor_urn for _ in range(50)}
    assert len(urns) == 50
    assert {uuid.UUID(urn).version for urn in urns} == {4}


def test_start_gives_its_arguments_to_init() -> None:
    class Named(LoopActor):
        def __init__(self, first: int, *, second: int) -> None:
            super().__init__()
            self.both = (first, second)

    assert Named.start(1, second=2).proxy().both.get() == (1, 2)


def test_an_actor_whose_init_forgets_pykkas_cannot_be_started() -> None:
    class Forgetful(LoopActor):
        def __init__(self) -> None:
            pass

    with pytest.raises(AttributeError):
        Forgetful.start()
    assert LoopActorRegistry.get_all() == []


def test_on_start_comes_before_messages_that_were_sent_in_init() -> None:
    class Eager(Actor):
        def __init__(self, notes: list[Any]) -> None:
            super().__init__(notes)
            self.actor_ref.tell("early")

    notes: list[Any] = []
    Eager.start(notes).ask("late")
    assert notes == ["start", "early", "late"]


def test_on_start_finds_the_actor_registered() -> None:
    class Searching(Actor):
        def on_start(self) -> None:
            self.notes.append(LoopActorRegistry.get_by_urn(self.actor_urn))

    notes: list[Any] = []
    ref = Searching.start(notes)
    ref.ask("x")
    assert notes == [ref, "x"]


def test_an_actor_may_stop_itself_in_on_start_before_any_message_that_comes_later() -> None:
    class Brief(Actor):
        def on_start(self) -> None:
            self.stop()
            refused.append(self.actor_ref.ask("behind it", block=False))

    notes: list[Any] = []
    refused: list[Future[Any]] = []
    ref = Brief.start(notes)
    assert ref.actor_stopped.wait(60)
    with pytest.raises(pykka.ActorDeadError):
        refused[0].get(timeout=60)
    assert notes == ["stop"]


async def test_an_async_on_start_comes_before_the_first_message() -> None:
    class Slow(Actor):
        @async_hook
        async def on_start(self) -> None:
            await asyncio.sleep(0)
            self.notes.append("started")

    notes: list[Any] = []
    await Slow.start(notes).ask("message", block=False)
    assert notes == ["started", "message"]


def test_init_runs_where_start_is_called_and_the_rest_on_the_loop() -> None:
    threads: list[threading.Thread] = []

    class Located(LoopActor):
        def __init__(self) -> None:
            super().__init__()
            threads.append(threading.current_thread())

        def on_start(self) -> None:
            threads.append(threading.current_thread())

        def on_receive(self, message: Any) -> None:
            threads.append(threading.current_thread())

    Located.start().ask("x")
    assert threads[0] is threading.current_thread()
    assert threads[1] is threads[2] is not threads[0]
    assert threads[1].daemon


async def test_an_actor_started_on_a_running_loop_lives_there() -> None:
    ref = Actor.start()
    assert await ref.proxy().loop is asyncio.get_running_loop()
    await ref.stop(block=False)


def test_actors_started_where_no_loop_runs_share_one() -> None:
    assert Actor.start().proxy().loop.get() is Actor.start().proxy().loop.get()


def test_the_context_may_choose_the_loop() -> None:
    thread = LoopThread()
    chosen = thread.start()

    async def main() -> None:
        ref = Actor.start()
        assert await ref.proxy().loop is chosen

    context = contextvars.copy_context()
    context.run(loop_for_start.set, chosen)
    context.run(asyncio.run, main())
    thread.stop()
    with pytest.raises(UsageError, match="closed"):
        context.run(Actor.start)
    assert LoopActorRegistry.get_all() == []


async def test_an_actor_keeps_a_context_of_its_own_from_message_to_message() -> None:
    variable = contextvars.ContextVar("variable", default="default")

    class Keeper(LoopActor):
        def on_receive(self, message: Any) -> Any:
            before = variable.get()
            variable.set(message)
            return before

        async def later(self, value: str) -> str:
            await asyncio.sleep(0)
            before = variable.get()
            variable.set(value)
            return before

    variable.set("starter")
    ref = Keeper.start()
    variable.set("sender")
    assert await ref.ask("one", block=False) == "starter"
    assert await ref.proxy().later("two") == "one"
    assert await ref.ask("three", block=False) == "two"
    assert variable.get() == "sender"
    await ref.stop(block=False)


# Messages


async def test_messages_are_handled_one_at_a_time_in_order_plain_and_async_mixed() -> None:
    class Mixed(LoopActor):
        def __init__(self) -> None:
            super().__init__()
            self.notes: list[Any] = []
            self.inside = 0

        def on_receive(self, message: int) -> Any:
            assert self.inside == 0
            if message % 3:
                self.notes.append(message)
                return message
            return self.later(message)

        async def later(self, message: int) -> int:
            self.inside += 1
            await asyncio.sleep(0)
            self.notes.append(message)
            self.inside -= 1
            return message

    ref = Mixed.start()
    futures = [ref.ask(number, block=False) for number in range(300)]
    assert [await future for future in futures] == list(range(300))
    assert await ref.proxy().notes == list(range(300))
    await ref.stop(block=False)


async def test_plain_messages_make_no_task_and_an_idle_actor_has_none() -> None:
    class Counting(Actor):
        def on_receive(self, message: Any) -> Any:
            if message == "tasks":
                return len(own_tasks())
            return asyncio.current_task()

        async def later(self) -> int:
            return len(own_tasks())

    ref = Counting.start()
    assert await ref.ask("task", block=False) is None
    assert await ref.ask("tasks", block=False) == 0
    assert await ref.proxy().later() == 1
    assert await ref.ask("tasks", block=False) == 0
    assert not own_tasks()
    await ref.stop(block=False)


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_an_actor_with_a_full_mailbox_lets_the_loop_have_its_turns(kind: str) -> None:
    class Busy(LoopActor):
        def __init__(self) -> None:
            super().__init__()
            self.handled = 0

        def on_receive(self, message: Any) -> Any:
            self.handled += 1
            return self.nothing() if kind == "async" else None

        async def nothing(self) -> None:
            pass

    actors: list[Busy] = []

    class Known(Busy):
        def on_start(self) -> None:
            actors.append(self)

    ref = Known.start()
    for _ in range(1000):
        ref.tell("x")
    seen = [0]
    while seen[-1] < 1000:
        await asyncio.sleep(0)
        seen.append(actors[0].handled if actors else 0)
    assert max(later - before for before, later in itertools.pairwise(seen)) <= 64
    await ref.stop(block=False)


def test_the_default_on_receive_logs_what_it_got(caplog: pytest.LogCaptureFixture) -> None:
    ref = LoopActor.start()
    with caplog.at_level(logging.WARNING, "pykka"):
        assert ref.ask({"unhandled": 1}) is None
    assert caplog.messages == [f"Unexpected message received by {ref}: {{'unhandled': 1}}"]


@pytest.mark.slow
async def test_a_running_actor_is_held_though_nobody_holds_its_ref() -> None:
    alive = weakref.ref(Actor.start())
    urn = alive().actor_urn  # type: ignore[union-attr]  # the registry holds it
    gc.collect()
    ref = LoopActorRegistry.get_by_urn(urn)
    assert ref is not None
    LoopActorRegistry.unregister(ref)
    actor = weakref.ref(ref._actor_weakref())
    del ref
    gc.collect()
    assert actor() is not None
    actor().stop()  # type: ignore[union-attr]  # it lives
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert actor() is None


def test_a_stopped_actor_is_let_go_of_at_once_and_its_ref_still_answers() -> None:
    async def main() -> None:
        ref = Actor.start()
        actor = weakref.ref(ref._actor_weakref())
        await ref.proxy().notes
        assert await ref.stop(block=False) is True
        await asyncio.sleep(0)
        assert actor() is None
        assert not ref.is_alive()
        assert await ref.stop(block=False) is False

    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()


# Stop


def test_a_stop_lets_what_was_sent_before_be_handled_and_then_calls_on_stop() -> None:
    notes: list[Any] = []
    ref = Actor.start(notes)
    for number in range(3):
        ref.tell(number)
    assert ref.stop() is True
    assert notes == ["start", 0, 1, 2, "stop"]
    assert not ref.is_alive()
    assert ref.actor_stopped.is_set()


def test_messages_behind_a_stop_get_an_error_and_stop_requests_are_fulfilled() -> None:
    class Stopping(Actor):
        def on_receive(self, message: Any) -> Any:
            later.append(self.actor_ref.stop(block=False))
            later.append(self.actor_ref.ask("too late", block=False))
            later.append(self.actor_ref.stop(block=False))
            self.actor_ref.tell("too late")
            return super().on_receive(message)

    later: list[Future[Any]] = []
    notes: list[Any] = []
    ref = Stopping.start(notes)
    assert ref.ask("first") == "first"
    assert [later[0].get(), later[2].get()] == [True, True]
    with pytest.raises(pykka.ActorDeadError, match="stopped before handling the message"):
        later[1].get()
    assert notes == ["start", "first", "stop"]


def test_an_actor_may_stop_itself() -> None:
    class Quitting(Actor):
        def on_receive(self, message: Any) -> None:
            self.stop()

    notes: list[Any] = []
    ref = Quitting.start(notes)
    ref.ask("quit")
    assert ref.actor_stopped.wait(60)
    assert ref.stop() is False


def test_what_an_actor_sent_itself_before_it_stopped_itself_twice_is_handled() -> None:
    class Quitting(Actor):
        def on_receive(self, message: Any) -> Any:
            if message == "quit":
                self.actor_ref.tell("one more")
                self.stop()
                self.stop()
            return super().on_receive(message)

    notes: list[Any] = []
    ref = Quitting.start(notes)
    assert ref.ask("quit") == "quit"
    assert ref.actor_stopped.wait(60)
    ref.stop()  # returns when it has ended
    assert notes == ["start", "quit", "one more", "stop"]
    assert LoopActorRegistry.get_all() == []


async def test_an_async_on_stop_is_waited_for_by_who_asked_to_stop() -> None:
    class Slow(Actor):
        @async_hook
        async def on_stop(self) -> None:
            await asyncio.sleep(0)
            self.notes.append("cleaned up")

    notes: list[Any] = []
    ref = Slow.start(notes)
    assert await ref.stop(block=False) is True
    assert notes == ["start", "cleaned up"]
    assert (await ended(ref)).reason is None
    assert not own_tasks()


@pytest.mark.parametrize("error", [ValueError("v"), SystemExit(3), asyncio.CancelledError()])
def test_a_failing_on_stop_is_logged_and_told_and_the_actor_stopped_nevertheless(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Actor):
        def on_stop(self) -> None:
            raise error

    notes: list[Any] = []
    ref = Failing.start(notes)
    assert ref.stop() is True
    assert asyncio.run(ended(ref)).reason is error
    assert notes == ["start"]
    assert f"Unhandled exception in {ref}:" in caplog.messages


def test_all_actors_of_a_loop_end_when_it_does() -> None:
    """Else their asks would wait for ever."""
    entered: list[Any] = []

    class Sleeping(Actor):
        async def on_receive(self, message: Any) -> None:
            entered.append(message)
            await asyncio.Event().wait()

    async def main() -> None:
        idle, busy = Actor.start(), Sleeping.start(entered)
        refs.extend([idle, busy])
        await idle.ask(1, block=False)
        asks.extend([busy.ask(2, block=False), busy.ask(3, block=False)])
        await until(lambda: 2 in entered)
        unstarted.append(Sleeping.start(entered).ask(4, block=False))

    refs: list[LoopActorRef[Any]] = []
    asks: list[Future[Any]] = []
    unstarted: list[Future[Any]] = []
    asyncio.run(main())
    for ask in asks + unstarted:
        with pytest.raises(pykka.ActorDeadError):
            ask.get(timeout=60)
    assert [ref.is_alive() for ref in refs] == [False, False]
    assert [ref.stop() for ref in refs] == [False, False]
    assert LoopActorRegistry.get_all() == []


def test_a_loop_closed_without_shutdown_is_found_by_the_next_message() -> None:
    loop = asyncio.new_event_loop()

    async def begin() -> LoopActorRef[Actor]:
        ref = Actor.start()
        await ref.ask(1, block=False)
        return ref

    ref = loop.run_until_complete(begin())
    loop.close()
    with pytest.raises(pykka.ActorDeadError):
        ref.ask(2)
    with pytest.raises(pykka.ActorDeadError):
        ref.tell(2)
    assert not ref.is_alive()
    assert asyncio.run(ended(ref)).reason is not None


# Failure


def test_what_is_raised_during_an_ask_goes_to_the_asker_and_the_actor_lives_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    notes: list[Any] = []
    ref = Actor.start(notes)
    error = ValueError("bad message")
    with (
        caplog.at_level(logging.INFO, "pykka"),
        pytest.raises(ValueError, match="bad message") as caught,
    ):
        ref.ask(error)
    assert caught.value is error
    assert f"Exception returned from {ref} to caller:" in caplog.messages
    assert ref.ask("still there") == "still there"
    assert notes == ["start", "still there"]


@pytest.mark.parametrize("how", ["plain", "async"])
def test_what_is_raised_during_a_tell_calls_on_failure_and_stops_the_actor(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Actor):
        def on_receive(self, message: Any) -> Any:
            return self.later(message) if how == "async" else super().on_receive(message)

        async def later(self, message: Any) -> Any:
            await asyncio.sleep(0)
            return super().on_receive(message)

        @async_hook
        async def on_failure(self, *exc_info: Any) -> None:
            await asyncio.sleep(0)
            self.notes.append(exc_info[1])

    notes: list[Any] = []
    ref = Failing.start(notes)
    error = ValueError("bad message")
    ref.tell(error)
    assert asyncio.run(ended(ref)).reason is error
    assert notes == ["start", error]
    assert not ref.is_alive()
    assert f"Unhandled exception in {ref}:" in caplog.messages
    with pytest.raises(pykka.ActorDeadError, match="not found"):
        ref.tell("x")


def test_a_failing_on_failure_is_logged_and_the_first_reason_stands(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(Actor):
        def on_failure(self, *_exc_info: Any) -> None:
            raise SystemExit(4)

    ref = Failing.start()
    error = ValueError("the first")
    ref.tell(error)
    assert asyncio.run(ended(ref)).reason is error
    assert caplog.messages.count(f"Unhandled exception in {ref}:") == 2


def test_a_failing_call_without_an_asker_calls_on_failure() -> None:
    class Failing(Actor):
        def fail(self) -> None:
            raise KeyError("k")

    notes: list[Any] = []
    ref = Failing.start(notes)
    ref.proxy().fail.defer()
    assert isinstance(asyncio.run(ended(ref)).reason, KeyError)
    assert isinstance(notes[1], KeyError)


def test_an_actor_with_a_faulty_str_or_an_error_with_a_faulty_repr_still_ends_well() -> None:
    class Nameless(Actor):
        def __str__(self) -> str:
            raise RuntimeError("no name")

    class Unspeakable(BaseException):
        def __repr__(self) -> str:
            raise RuntimeError("no words")

    async def main() -> None:
        ref = Nameless.start()
        bystander = Actor.start()
        ref.tell(ValueError())
        first = ref.ask(1, block=False)
        with pytest.raises(pykka.ActorDeadError):
            await first
        await ended(ref)
        other = Actor.start()
        with pytest.raises(pykka.ActorDeadError, match="Unspeakable"):
            await other.ask(Unspeakable(), block=False)
        await ended(other)
        assert await bystander.ask("alive", block=False) == "alive"
        await bystander.stop(block=False)

    logging.getLogger("pykka").setLevel(logging.CRITICAL)
    try:
        asyncio.run(main())
    finally:
        logging.getLogger("pykka").setLevel(logging.NOTSET)


def test_the_life_of_an_actor_is_logged_under_pykkas_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, "pykka"):
        ref = Actor.start()
        ref.stop()
    assert [m for m in caplog.messages if ref.actor_urn in m] == [
        f"Registered {ref}",
        f"Starting {ref}",
        f"Unregistered {ref}",
        f"Stopped {ref}",
    ]


def test_the_thread_of_the_loop_is_in_pykkas_thread_tracebacks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from pykka.debug import log_thread_tracebacks

    Actor.start().ask("x")
    log_thread_tracebacks()
    assert any("understudy-actors" in message for message in caplog.messages)
