"""A8: whatever an actor dies of, every ask of it is answered, and nothing else stops."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from typing import Any

import pykka
import pytest

from tests.support.loop_actors import ended
from tests.support.loops import own_tasks, until
from understudy.actors import ActorDied, LoopActor, LoopActorRef, LoopActorRegistry, async_hook
from understudy.errors import UnderstudyError

ASKS = 200
"""More than an actor handles in one turn of the loop."""


class OwnKind(BaseException):
    pass


DEADLY: list[Callable[[], BaseException]] = [
    lambda: SystemExit(1),
    KeyboardInterrupt,
    lambda: MemoryError("no room"),
    asyncio.CancelledError,
    GeneratorExit,
    OwnKind,
]
NAMES = ["SystemExit", "KeyboardInterrupt", "MemoryError", "CancelledError", "GeneratorExit", "own"]
deadly = pytest.mark.parametrize("make", DEADLY, ids=NAMES)


class Mortal(LoopActor):
    """Raises an exception that it is sent; everything else it answers."""

    def on_receive(self, message: Any) -> Any:
        if isinstance(message, BaseException):
            raise message
        return message

    async def later(self, message: Any) -> Any:
        await asyncio.sleep(0)
        return self.on_receive(message)

    async def hang(self) -> None:
        await asyncio.Event().wait()


async def settle(asks: list[Any]) -> list[Any]:
    return await asyncio.wait_for(
        asyncio.gather(*(one(ask) for ask in asks), return_exceptions=True), 30
    )


async def one(ask: Any) -> Any:
    return await ask


async def check_the_rest(bystander: LoopActorRef[Any]) -> None:
    """The loop, the other actors and the tasks are as they should be."""
    assert await bystander.ask("alive", block=False) == "alive"
    assert await bystander.proxy().later("too") == "too"
    await bystander.stop(block=False)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not own_tasks()


@deadly
@pytest.mark.parametrize("handler", ["plain", "async"])
@pytest.mark.parametrize("how", ["ask", "tell"])
async def test_of_many_asks_those_before_a_death_are_replied_to_and_the_others_get_it(
    make: Callable[[], BaseException], handler: str, how: str
) -> None:
    """A8."""
    ref, bystander = Mortal.start(), Mortal.start()
    proxy, error = ref.proxy(), make()
    asks: list[Any] = [
        ref.ask(n, block=False) if n % 2 else proxy.later(n) for n in range(ASKS // 2)
    ]
    if how == "ask":
        asks.append(proxy.later(error) if handler == "async" else ref.ask(error, block=False))
    elif handler == "async":
        proxy.later.defer(error)
    else:
        ref.tell(error)
    asks += [ref.ask(n, block=False) for n in range(ASKS // 2)]
    stopping = ref.stop(block=False)
    outcomes = await settle(asks)
    assert outcomes[: ASKS // 2] == list(range(ASKS // 2))
    for outcome in outcomes[ASKS // 2 :]:
        assert isinstance(outcome, ActorDied)
        assert outcome.__cause__ is error
        assert outcome.cause == repr(error)
        assert (outcome.actor_urn, outcome.actor_class) == (ref.actor_urn, "Mortal")
    assert await stopping is True
    assert (await ended(ref)).reason is error
    await check_the_rest(bystander)


@deadly
@pytest.mark.parametrize("handler", ["plain", "async"])
async def test_a_failing_on_start_answers_what_waits(
    make: Callable[[], BaseException], handler: str
) -> None:
    """A8."""
    error = make()

    class Stillborn(Mortal):
        def on_start(self) -> Any:
            return self.later(error) if handler == "async" else self.on_receive(error)

        def on_failure(self, *_exc_info: Any) -> None:
            raise AssertionError("not for a failing on_start, as Pykka has it")

    bystander = Mortal.start()
    ref = Stillborn.start()
    asks = [ref.ask(n, block=False) for n in range(ASKS)]
    downs: list[Any] = []
    ref.monitor(downs.append)
    for outcome in await settle(asks):
        assert isinstance(outcome, ActorDied)
        assert outcome.__cause__ is error
    assert [down.reason for down in downs] == [error]
    assert LoopActorRegistry.get_by_urn(ref.actor_urn) is None
    await check_the_rest(bystander)


def test_an_exception_of_on_start_is_what_the_asks_and_monitors_are_told() -> None:
    error = ValueError("no database")

    class Stillborn(LoopActor):
        def on_start(self) -> None:
            raise error

    ref = Stillborn.start()
    asyncio.run(ended(ref))
    with pytest.raises(pykka.ActorDeadError):
        ref.ask("x")
    assert asyncio.run(ended(ref)).reason is error


@pytest.mark.parametrize("first_step", [False, True], ids=["before", "after"])
async def test_cancelling_its_task_kills_the_actor_and_answers_what_waits(first_step: bool) -> None:
    """A8. As a host does that cancels all tasks, perhaps before their first step."""
    bystander = Mortal.start()
    ref = Mortal.start()
    asks: list[Any] = [ref.proxy().hang()]
    asks += [ref.ask(n, block=False) for n in range(ASKS)]
    await until(lambda: bool(own_tasks()))
    if first_step:
        await asyncio.sleep(0)
    for task in own_tasks():
        task.cancel()
    for outcome in await settle(asks):
        assert isinstance(outcome, ActorDied)
        assert "CancelledError" in outcome.cause
    assert isinstance((await ended(ref)).reason, asyncio.CancelledError)
    await check_the_rest(bystander)


@pytest.mark.parametrize("hook", ["on_stop", "on_failure"])
@deadly
async def test_a_failing_last_hook_answers_what_waits(
    hook: str, make: Callable[[], BaseException]
) -> None:
    """A8."""

    def fail(*_args: Any) -> None:
        raise make()

    bystander = Mortal.start()
    failing: type[Mortal] = type("Failing", (Mortal,), {hook: fail})
    ref = failing.start()
    if hook == "on_failure":
        ref.tell(ValueError())
    stopping = ref.stop(block=False)
    asks = [ref.ask(n, block=False) for n in range(ASKS)]
    for outcome in await settle(asks):
        assert isinstance(outcome, pykka.ActorDeadError)
    assert await stopping is True
    await ended(ref)
    await check_the_rest(bystander)


async def test_asks_do_not_wait_for_a_last_hook_that_hangs() -> None:
    class Hanging(Mortal):
        @async_hook
        async def on_failure(self, *_exc_info: Any) -> None:
            await asyncio.Event().wait()

    ref = Hanging.start()
    ref.tell(ValueError("v"))
    (outcome,) = await settle([ref.ask(1, block=False)])
    assert isinstance(outcome, ActorDied)
    await ref.stop_now()


def test_a_thread_actor_of_pykka_that_stops_all_of_pykkas_actors_stops_no_loop_actor() -> None:
    """A BaseException in one thread actor stops all in `pykka.ActorRegistry`: Pykka's rule."""

    class Fatal(pykka.ThreadingActor):
        def on_receive(self, message: Any) -> None:
            raise SystemExit(2)

    class Other(pykka.ThreadingActor):
        pass

    ref, other, fatal = Mortal.start(), Other.start(), Fatal.start()
    fatal.tell("x")
    assert other.actor_stopped.wait(60)
    assert ref.ask("alive") == "alive"


def test_the_error_is_pykkas_and_ours_and_can_be_sent_to_another_process() -> None:
    error = ActorDied(actor_urn="urn:uuid:1", actor_class="Mortal", cause="SystemExit(1)")
    assert isinstance(error, pykka.ActorDeadError)
    assert isinstance(error, UnderstudyError)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is ActorDied
    assert copy.facts == error.facts
    assert str(copy) == str(error) == "Mortal (urn:uuid:1) died before it answered: SystemExit(1)"
