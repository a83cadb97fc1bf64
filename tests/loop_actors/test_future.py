"""`Future`: threads get it, event loops await it, and neither blocks or cancels the other (A10).

Rules: A8.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import queue
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pykka
import pytest

from tests.support.children import error_of, in_child
from understudy.actors import Future
from understudy.errors import UsageError, WouldDeadlock
from understudy.loop_actors.future import LazyFuture


def settled(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set(value)
    return future


def in_thread(call: Callable[[], Any]) -> Callable[[], Any]:
    """Start it in a thread; the result of calling the result is what it returned or raised."""
    outcome: list[Any] = []

    def work() -> None:
        try:
            outcome.append(call())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work)
    thread.start()

    def join() -> Any:
        thread.join(60)
        return outcome[0]

    return join


# Set and get, as Pykka's


def test_get_returns_what_was_set_as_often_as_asked() -> None:
    future = settled({"a": 1})
    assert future.get() is future.get()
    assert future.done()


def test_get_waits_for_another_thread_to_set() -> None:
    future: Future[int] = Future()
    joins = [in_thread(future.get) for _ in range(3)]
    assert not future.done()
    future.set(7)
    assert [join() for join in joins] == [7, 7, 7]


def test_get_raises_timeout_and_works_later() -> None:
    future: Future[int] = Future()
    again = "the work continues: wait again"
    for waits in (future, future.map(str)):
        with pytest.raises(pykka.Timeout, match=f"^no answer within 0 seconds; {again}$"):
            waits.get(timeout=0)
    future.set(1)
    assert future.get(timeout=0) == 1


@pytest.mark.parametrize("first", ["value", "exception"])
def test_setting_twice_is_an_error_and_changes_nothing(first: str) -> None:
    future: Future[int] = Future()
    if first == "value":
        future.set(1)
    else:
        future.set_exception((KeyError, KeyError("x"), None))
    with pytest.raises(queue.Full):
        future.set(2)
    with pytest.raises(queue.Full):
        future.set_exception((ValueError, ValueError(), None))
    with pytest.raises(queue.Full):
        future.set_get_hook(lambda _timeout: 3)
    if first == "value":
        assert future.get() == 1
    else:
        with pytest.raises(KeyError):
            future.get()


def test_a_future_with_a_get_hook_cannot_be_set() -> None:
    future: Future[int] = Future()
    future.set_get_hook(lambda _timeout: 3)
    with pytest.raises(queue.Full):
        future.set(1)
    with pytest.raises(queue.Full):
        future.set_exception((ValueError, ValueError(), None))
    assert future.get() == 3


def test_an_exception_is_raised_with_its_traceback_which_never_grows() -> None:
    future: Future[int] = Future()

    def raiser() -> None:
        raise LookupError("gone")

    try:
        raiser()
    except LookupError:
        future.set_exception()
    lengths = []
    for _ in range(3):
        with pytest.raises(LookupError, match="gone") as caught:
            future.get()
        frames = traceback.extract_tb(caught.value.__traceback__)
        assert "raiser" in [frame.name for frame in frames]
        lengths.append(len(frames))
    assert len(set(lengths)) == 1


def test_an_exception_may_be_set_by_its_class_alone() -> None:
    future: Future[int] = Future()
    future.set_exception((ValueError, None, None))
    with pytest.raises(ValueError):
        future.get()


def test_a_future_in_a_future_stays_one() -> None:
    assert settled(settled("x")).get().get() == "x"


def test_get_all_collects_in_order_and_passes_its_timeout_on() -> None:
    assert pykka.get_all([settled(i) for i in range(3)]) == [0, 1, 2]
    with pytest.raises(pykka.Timeout):
        pykka.get_all([settled(1), Future()], timeout=0)


# Derived futures, as Pykka's


def test_map_passes_the_whole_value_through_the_function() -> None:
    assert settled(30).map(lambda x: x + 10).get() == 40
    assert settled([1, 2]).map(len).get() == 2


def test_filter_keeps_the_items_that_pass() -> None:
    assert settled(range(5, 15)).filter(lambda x: x > 10).get() == [11, 12, 13, 14]
    with pytest.raises(TypeError):
        settled(1).filter(bool).get()


def test_join_collects_the_values_in_order_of_any_pykka_futures() -> None:
    foreign: pykka.ThreadingFuture[int] = pykka.ThreadingFuture()
    foreign.set(2)
    assert settled(1).join(foreign, settled(3)).get() == [1, 2, 3]


@pytest.mark.parametrize(
    ("value", "start", "expected"),
    [([1, 2, 3], (), 6), ([1, 2, 3], (5,), 11), ([], (5,), 5)],
)
def test_reduce_folds_the_value(value: list[int], start: tuple[int, ...], expected: int) -> None:
    assert settled(value).reduce(lambda x, y: x + y, *start).get() == expected


def test_reduce_of_nothing_without_a_start_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        settled([]).reduce(lambda x, y: x + y).get()
    with pytest.raises(TypeError):
        settled(1).reduce(lambda x, y: x + y).get()


def test_a_derived_future_is_computed_when_first_asked_for_and_only_once() -> None:
    calls: list[int] = []

    def double(value: int) -> int:
        calls.append(value)
        return value * 2

    source: Future[int] = Future()
    derived = source.map(double)
    assert not derived.done()
    source.set(1)
    assert derived.done()
    assert calls == []
    assert [derived.get(), derived.get(), asyncio.run(wait_for(derived))] == [2, 2, 2]
    assert calls == [1]


def test_an_exception_of_the_function_is_raised_and_not_kept() -> None:
    outcomes: list[Any] = [ValueError("first"), "second"]

    def flaky(_value: object) -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    derived = settled(None).map(flaky)
    with pytest.raises(ValueError, match="first"):
        derived.get()
    assert derived.get() == derived.get() == "second"


def test_derived_futures_chain_and_time_out_as_their_source() -> None:
    source: Future[list[int]] = Future()
    derived = source.map(lambda v: [*v, 4]).map(sum).join(settled("x"))
    with pytest.raises(pykka.Timeout):
        derived.get(timeout=0)
    source.set([1])
    assert derived.get() == [5, "x"]


def test_a_derived_future_cannot_be_set() -> None:
    derived = settled(1).map(str)
    with pytest.raises(queue.Full):
        derived.set("2")
    with pytest.raises(queue.Full):
        derived.set_get_hook(lambda _timeout: "2")
    assert derived.get() == "1"


def test_two_threads_that_get_a_hooked_future_call_its_hook_once() -> None:
    entered, leave = threading.Event(), threading.Event()
    calls: list[float | None] = []
    future: Future[str] = Future()

    def hook(timeout: float | None) -> str:
        calls.append(timeout)
        entered.set()
        leave.wait(60)
        return "brought"

    future.set_get_hook(hook)
    first = in_thread(future.get)
    entered.wait(60)
    with pytest.raises(pykka.Timeout):  # the second waits no longer than it said
        future.get(timeout=0)
    second = in_thread(future.get)
    leave.set()
    assert [first(), second()] == ["brought", "brought"]
    assert calls == [None]


def test_a_hook_gets_the_time_that_is_left_and_its_exception_is_not_kept() -> None:
    given: list[float | None] = []
    future: Future[str] = Future()

    def hook(timeout: float | None) -> str:
        given.append(timeout)
        if len(given) == 1:
            raise pykka.Timeout("too early")
        return "late"

    future.set_get_hook(hook)
    with pytest.raises(pykka.Timeout, match="too early"):
        future.get(timeout=100)
    assert future.get() == "late"
    assert given[0] is not None
    assert 99 < given[0] <= 100
    assert given[1] is None


def test_a_hook_set_while_a_thread_waits_brings_it_the_value() -> None:
    future: Future[str] = Future()
    derived = future.map(str.upper)
    join = in_thread(functools.partial(derived.get, timeout=60))
    future.set_get_hook(lambda _timeout: "x")
    assert join() == "X"


# Awaiting


async def wait_for(future: pykka.Future[Any]) -> Any:
    return await future


def test_a_future_is_awaited_on_several_loops_and_got_in_threads_at_once() -> None:
    future: Future[int] = Future()
    ready = threading.Barrier(4)

    async def waiting() -> int:
        task = asyncio.ensure_future(wait_for(future))
        await asyncio.sleep(0)
        ready.wait(60)
        return int(await task)

    joins = [in_thread(lambda: asyncio.run(waiting())) for _ in range(3)]
    joins.append(in_thread(future.get))
    ready.wait(60)
    future.set(5)
    assert [join() for join in joins] == [5, 5, 5, 5]


async def test_many_tasks_of_one_loop_await_the_same_future() -> None:
    future: Future[int] = Future()
    tasks = [asyncio.ensure_future(wait_for(future)) for _ in range(100)]
    await asyncio.sleep(0)
    future.set(1)
    assert await asyncio.gather(*tasks) == [1] * 100


async def test_awaiting_raises_the_exception_set() -> None:
    future: Future[int] = Future()
    task = asyncio.ensure_future(wait_for(future))
    await asyncio.sleep(0)
    future.set_exception((KeyError, KeyError("k"), None))
    with pytest.raises(KeyError):
        await task


async def test_cancelling_an_await_leaves_the_future_and_the_other_waiters_alone() -> None:
    """J13."""
    future: Future[int] = Future()
    derived = future.map(lambda x: x + 1)
    tasks = [asyncio.ensure_future(wait_for(f)) for f in (future, future, derived, derived)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[2].cancel()
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(wait_for(future), 0)
    assert not future.done()
    future.set(1)
    assert [await task for task in (tasks[1], tasks[3])] == [1, 2]
    assert tasks[0].cancelled()
    assert tasks[2].cancelled()


async def test_cancelling_an_await_of_a_hooked_future_does_not_stop_its_hook() -> None:
    """J13."""
    leave = threading.Event()
    entered = threading.Event()
    calls: list[float | None] = []

    def hook(timeout: float | None) -> str:
        calls.append(timeout)
        entered.set()
        leave.wait(60)
        return "brought"

    future: Future[str] = Future()
    future.set_get_hook(hook)
    first = asyncio.ensure_future(wait_for(future))
    second = asyncio.ensure_future(wait_for(future))
    await asyncio.to_thread(entered.wait, 60)
    first.cancel()
    await asyncio.sleep(0)
    leave.set()
    assert await second == "brought"
    assert first.cancelled()
    assert calls == [None]


async def test_a_blocking_hook_and_a_foreign_source_are_awaited_without_blocking_the_loop() -> None:
    go = threading.Event()
    foreign: pykka.ThreadingFuture[str] = pykka.ThreadingFuture()
    hooked: Future[str] = Future()
    hooked.set_get_hook(lambda _timeout: str(go.wait(60)))
    joined = asyncio.ensure_future(wait_for(hooked.map(str.lower).join(foreign)))
    await asyncio.sleep(0)
    go.set()  # on the loop: it is free
    foreign.set("foreign")
    assert list(await joined) == ["true", "foreign"]


async def test_a_hook_sees_the_context_of_the_one_who_awaits() -> None:
    variable = contextvars.ContextVar("variable", default="unset")

    variable.set("set")
    future: Future[str] = Future()
    future.set_get_hook(lambda _timeout: variable.get())
    assert await future == "set"


async def test_an_await_of_a_failing_hook_raises_and_the_next_one_tries_again() -> None:
    outcomes: list[str] = []

    def hook(_timeout: float | None) -> str:
        outcomes.append("called")
        if len(outcomes) == 1:
            raise OSError("first")
        return "second"

    future: Future[str] = Future()
    future.set_get_hook(hook)
    with pytest.raises(OSError, match="first"):
        await future
    assert await future == "second"


def test_a_future_supports_yield_from() -> None:
    def old_style() -> Any:
        return (yield from settled(4))

    generator = old_style()
    with pytest.raises(StopIteration) as stopped:
        next(generator)
    assert stopped.value.value == 4


def test_setting_a_future_that_a_closed_loop_awaited_does_nothing_else() -> None:
    future: Future[int] = Future()
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # it would say that its task is still pending
    task = loop.create_task(wait_for(future))
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    future.set(1)
    assert future.get() == 1
    assert not task.done()


# On a loop


async def test_get_on_a_running_loop_waits_for_what_another_one_settles() -> None:
    other = asyncio.new_event_loop()
    future: Future[str] = Future(other)
    derived = settled(1).join(future.map(str.upper))
    for waiting in (future, derived):
        with pytest.raises(pykka.Timeout):
            waiting.get(timeout=0)
    other.call_soon(future.set, "x")
    join = in_thread(lambda: other.run_until_complete(wait_for(future)))
    assert derived.get(timeout=60) == [1, "X"]
    assert join() == "x"
    other.close()


async def test_get_on_the_loop_that_settles_it_would_deadlock_unless_the_value_is_there() -> None:
    """A10: that loop, or any, where it is not known which one that is."""
    pending: Future[int] = Future()
    hooked: Future[int] = Future()
    hooked.set_get_hook(lambda _timeout: 1)
    foreign: pykka.ThreadingFuture[int] = pykka.ThreadingFuture()
    here: Future[int] = Future(asyncio.get_running_loop())
    for future in (
        pending,
        here,
        here.map(str),
        hooked,
        pending.map(str),
        settled(1).join(hooked),
        settled(1).join(foreign),
    ):
        for timeout in (None, 0, 100):
            with pytest.raises(WouldDeadlock, match="await it"):
                future.get(timeout=timeout)
    foreign.set(2)
    assert settled(1).join(foreign).get() == [1, 2]
    assert settled(1).map(str).get() == "1"
    assert await hooked == hooked.get() == 1
    assert issubclass(WouldDeadlock, UsageError)


def test_what_its_value_would_have_says_to_wait_for_it_first() -> None:
    for future in (Future(), settled("text"), settled("text").map(str)):
        with pytest.raises(AttributeError, match=r"'text'.*`await` it, or call \.get\(\)"):
            _ = future.text  # type: ignore[union-attr]  # a type checker says it, too
        with pytest.raises(AttributeError, match=r"'_repr_html_'$"):
            _ = future._repr_html_  # type: ignore[union-attr]  # what a notebook looks for
        assert not hasattr(future, "__deepcopy__")


def test_its_repr_says_how_it_stands() -> None:
    failed: Future[int] = Future()
    failed.set_exception((KeyError, KeyError(), None))
    assert [repr(f) for f in (Future(), settled(1), failed)] == [
        "<understudy.Future: pending>",
        "<understudy.Future: value>",
        "<understudy.Future: exception>",
    ]


# After a fork. A future that the child itself makes is as any other.


async def awaited(future: Future[Any]) -> Any:
    return await future


def test_a_future_that_is_pending_at_a_fork_is_refused_in_the_child() -> None:
    pending: Future[Any] = Future()
    mapped = pending.map(str)
    lazy = LazyFuture[Any](lambda: None)
    claimed: Future[Any] = Future()
    begun, release = threading.Event(), threading.Event()

    def hook(timeout: float | None) -> str:
        begun.set()
        assert release.wait(60)
        return "of the hook"

    claimed.set_get_hook(hook)
    getter = in_thread(claimed.get)
    assert begun.wait(60)
    futures = [pending, mapped, lazy, claimed]

    def await_it(future: Future[Any]) -> None:
        asyncio.run(awaited(future))

    def use() -> list[str]:
        gets = [error_of(functools.partial(future.get, timeout=60)) for future in futures]
        return gets + [error_of(functools.partial(await_it, future)) for future in futures]

    assert in_child(use) == ["ForkedRuntime"] * 8
    release.set()
    pending.set(1)
    assert (mapped.get(timeout=60), getter()) == ("1", "of the hook")


def test_a_future_that_is_locked_at_a_fork_is_refused_in_the_child() -> None:
    pending: Future[Any] = Future()
    locked, release = threading.Event(), threading.Event()

    def lock() -> None:
        with pending._lock:
            locked.set()
            assert release.wait(60)

    holder = in_thread(lock)
    assert locked.wait(60)
    assert in_child(lambda: error_of(pending.get)) == "ForkedRuntime"
    release.set()
    holder()


def test_what_is_settled_or_can_be_worked_out_is_had_in_the_child_too() -> None:
    hooked: Future[Any] = Future()
    hooked.set_get_hook(lambda timeout: "hooked")
    of_parent = [settled(1), settled(2).map(str), hooked]

    def use() -> list[Any]:
        mine: Future[Any] = Future()
        threading.Timer(0, mine.set, ["mine"]).start()
        return [*(future.get(timeout=60) for future in of_parent), mine.get(timeout=60)]

    assert in_child(use) == [1, "2", "hooked", "mine"]
