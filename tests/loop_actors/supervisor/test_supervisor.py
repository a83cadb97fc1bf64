"""OTP's documented rules, one by one. Events fix each order; nothing sleeps."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pykka
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tenacity import RetryCallState, wait_exponential, wait_fixed

from understudy import UsageError
from understudy.actors import (
    ChildNotRunning,
    ChildSpec,
    ChildStartFailed,
    ChildStatus,
    Down,
    Future,
    LoopActor,
    LoopActorRef,
    LoopThread,
    NoSuchChild,
    RestartIntensityExceeded,
    Shutdown,
    Supervisor,
    SupervisorRef,
    async_hook,
    loop_for_start,
)

HANG = 60.0
"""Seconds after which a test that waits for something is wrong; none waits for as long."""


class Boom(Exception):
    pass


class Events:
    """What happened, in order."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._changed = asyncio.Event()

    def add(self, event: str) -> None:
        self.all.append(event)
        self._changed.set()

    def since(self, mark: int = 0) -> list[str]:
        return self.all[mark:]

    def take(self) -> list[str]:
        """All so far; the next take has what came later."""
        taken, self.all = self.all, []
        return taken

    async def until(self, event: str, times: int = 1) -> None:
        while self.all.count(event) < times:
            self._changed.clear()
            await self._changed.wait()


class Part(LoopActor):
    """A child that reports what happens to it and does what it is asked."""

    def __init__(self, name: str, events: Events, start_errors: list[Exception | None]) -> None:
        super().__init__()
        self.name = name
        self.events = events
        self.start_errors = start_errors

    def on_start(self) -> None:
        self.events.add(f"start {self.name}")
        if self.start_errors and (error := self.start_errors.pop(0)) is not None:
            raise error

    async def on_receive(self, message: Any) -> Any:
        match message:
            case BaseException():
                raise message
            case "leave":
                self.stop()
            case "hang":
                self.events.add(f"hang {self.name}")
                await asyncio.Event().wait()
            case _:
                return self.name
        return None

    def on_stop(self) -> None:
        self.events.add(f"stop {self.name}")

    def on_failure(self, *_: Any) -> None:
        self.events.add(f"fail {self.name}")


class Cast:
    """Makes specs of parts that share one list of events."""

    def __init__(self) -> None:
        self.events = Events()
        self.clock = ManualClock()
        self.sleep = ManualSleep()

    def part(self, name: str, *start_errors: Exception | None, **options: Any) -> ChildSpec:
        errors = list(start_errors)
        start = functools.partial(Part.start, name, self.events, errors)
        return ChildSpec(name, start, **options)

    def supervisor(self, *children: ChildSpec, **options: Any) -> SupervisorRef:
        options = {"clock": self.clock, "sleep": self.sleep, **options}
        return Supervisor.start(children, **options)

    def nested(self, name: str, *children: ChildSpec, **options: Any) -> ChildSpec:
        spec_options = {key: options.pop(key) for key in ("restart", "shutdown") if key in options}
        options = {"name": name, "clock": self.clock, "sleep": self.sleep, **options}
        return ChildSpec(name, lambda: Supervisor.start(children, **options), **spec_options)


class ManualClock:
    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time, timezone.utc)

    def monotonic(self) -> float:
        return self.time


class ManualSleep:
    """Notes who sleeps for how long; a sleeper wakes when a test says so."""

    def __init__(self) -> None:
        self.sleepers: list[tuple[float, asyncio.Future[None]]] = []
        self.cancelled: list[float] = []
        self._changed = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        sleeper = (seconds, asyncio.get_running_loop().create_future())
        self.sleepers.append(sleeper)
        self._changed.set()
        try:
            await sleeper[1]
        except asyncio.CancelledError:
            self.cancelled.append(seconds)
            self._changed.set()
            raise
        finally:
            self.sleepers.remove(sleeper)

    async def until_asleep(self, seconds: float | None = None) -> float:
        """Wait for a sleeper, of so many seconds if they are given; its seconds."""
        while not self._asleep(seconds):
            self._changed.clear()
            await self._changed.wait()
        return self._asleep(seconds)[0][0]

    async def until_cancelled(self, seconds: float) -> None:
        while seconds not in self.cancelled:
            self._changed.clear()
            await self._changed.wait()

    def wake(self, seconds: float) -> None:
        self._asleep(seconds)[0][1].set_result(None)

    def _asleep(self, seconds: float | None) -> list[tuple[float, asyncio.Future[None]]]:
        return [sleeper for sleeper in self.sleepers if seconds in (None, sleeper[0])]


def watch(ref: LoopActorRef[Any]) -> asyncio.Future[BaseException | None]:
    """Settles with the reason when the actor is gone."""
    gone: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def settle(down: Down) -> None:
        gone.set_result(down.reason)

    ref.monitor(settle)
    return gone


async def crash(supervisor: SupervisorRef, id: str, error: BaseException | None = None) -> None:
    """Let a child fail; the supervisor hears of it before whatever it is asked next."""
    ref = await supervisor.child(id)
    gone = watch(ref)
    ref.tell(error or Boom(id))
    await gone


async def leave(supervisor: SupervisorRef, id: str) -> None:
    ref = await supervisor.child(id)
    gone = watch(ref)
    ref.tell("leave")
    await gone


async def statuses(supervisor: SupervisorRef) -> dict[str, str]:
    return {child.id: child.status.value for child in await supervisor.which_children()}


# Starting


async def test_children_start_in_the_order_of_their_specs() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a"), cast.part("b"), cast.part("c"))
    assert list(await statuses(supervisor)) == ["a", "b", "c"]
    assert cast.events.all == ["start a", "start b", "start c"]
    await supervisor.stop(block=False)


async def test_a_child_starts_only_when_on_start_of_the_one_before_is_through() -> None:
    cast = Cast()
    may_go_on = asyncio.Event()

    class Slow(LoopActor):
        @async_hook
        async def on_start(self) -> None:
            cast.events.add("slow starts")
            await may_go_on.wait()
            cast.events.add("slow has started")

    supervisor = cast.supervisor(ChildSpec("slow", Slow.start), cast.part("b"))
    await cast.events.until("slow starts")
    assert supervisor.tree().children[0].status is ChildStatus.STARTING
    may_go_on.set()
    await supervisor.which_children()
    assert cast.events.all == ["slow starts", "slow has started", "start b"]
    await supervisor.stop(block=False)


async def test_an_actor_that_takes_no_proxy_can_be_a_child() -> None:
    class Closed(LoopActor):
        def _handle_receive(self, message: Any) -> Any:  # Pykka's own hook for such actors
            raise TypeError("no proxies here")

    supervisor = Cast().supervisor(ChildSpec("closed", Closed.start))
    assert await statuses(supervisor) == {"closed": "running"}
    await supervisor.stop(block=False)


async def test_a_start_callable_may_be_async() -> None:
    cast = Cast()

    async def start() -> LoopActorRef[Part]:
        cast.events.add("prepare")
        await asyncio.sleep(0)
        return Part.start("a", cast.events, [])

    supervisor = cast.supervisor(ChildSpec("a", start))
    assert await (await supervisor.child("a")).ask("name", block=False) == "a"
    assert cast.events.all == ["prepare", "start a"]
    await supervisor.stop(block=False)


async def test_a_child_that_fails_at_the_first_start_stops_those_before_it_in_reverse() -> None:
    cast = Cast()
    supervisor = cast.supervisor(
        cast.part("a"), cast.part("b"), cast.part("c", Boom("no")), cast.part("d")
    )
    reason = await watch(supervisor)
    assert isinstance(reason, ChildStartFailed)
    assert reason.child_id == "c"
    assert isinstance(reason.__cause__, Boom)
    ends = [event for event in cast.events.all if event != "fail c"]
    assert ends == ["start a", "start b", "start c", "stop b", "stop a"]
    assert not supervisor.is_alive()


async def test_a_start_callable_that_raises_fails_the_first_start_too() -> None:
    cast = Cast()

    def start() -> LoopActorRef[Part]:
        raise Boom("no room")

    supervisor = cast.supervisor(cast.part("a"), ChildSpec("b", start))
    reason = await watch(supervisor)
    assert isinstance(reason, ChildStartFailed)
    assert "Child 'b' did not start: Boom: no room" in str(reason)
    assert cast.events.all == ["start a", "stop a"]


@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
@pytest.mark.parametrize("how", ["stop", "stop_now"])
async def test_a_child_that_is_stopped_on_request_while_it_starts_has_ended_normally(
    restart: str, how: str
) -> None:
    cast = Cast()
    starts: list[LoopActorRef[Any]] = []

    class Brief(LoopActor):
        @async_hook
        async def on_start(self) -> None:
            starts.append(self.actor_ref)
            if len(starts) == 1:
                if how == "stop":
                    self.actor_ref.stop(block=False)
                else:
                    self.actor_ref.stop_now()
                await asyncio.sleep(0)

    brief = ChildSpec("brief", Brief.start, restart=restart)  # type: ignore[arg-type]  # checked
    supervisor = cast.supervisor(brief, cast.part("b"))
    expected = {"permanent": ["running"], "transient": ["stopped"], "temporary": []}[restart]
    await supervisor.which_children()  # behind it the end of the first one is dealt with
    found = await statuses(supervisor)
    assert [found.pop(id) for id in list(found) if id == "brief"] == expected
    assert found == {"b": "running"}
    if restart == "permanent":
        assert await supervisor.child("brief") is starts[1]
    await supervisor.stop(block=False)


async def test_who_asks_for_a_child_that_ends_the_moment_it_is_back_waits_on() -> None:
    cast = Cast()
    refs: list[LoopActorRef[Any]] = []

    class Hasty(LoopActor):
        def on_start(self) -> None:
            refs.append(self.actor_ref)
            if len(refs) == 2:
                self.actor_ref.tell("fail")

        def on_receive(self, message: Any) -> None:
            raise Boom(message)

    supervisor = cast.supervisor(ChildSpec("hasty", Hasty.start), wait=wait_fixed(7))
    await crash(supervisor, "hasty")
    await cast.sleep.until_asleep(7)
    asked = supervisor.child("hasty")
    await supervisor.which_children()
    for _ in range(2):
        assert not asked.done()
        await cast.sleep.until_asleep(7)
        cast.sleep.wake(7)
        await asyncio.sleep(0)
    assert await asked is refs[2]
    await supervisor.stop(block=False)


# Restart types


@pytest.mark.parametrize("end", [crash, leave])
async def test_a_permanent_child_is_started_again_however_it_ended(end: Any) -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a"))
    first = await supervisor.child("a")
    await end(supervisor, "a")
    second = await supervisor.child("a")
    assert second.actor_urn != first.actor_urn
    assert cast.events.all.count("start a") == 2
    await supervisor.stop(block=False)


async def test_a_transient_child_is_started_again_after_an_abnormal_end_alone() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a", restart="transient"))
    await crash(supervisor, "a")
    assert await statuses(supervisor) == {"a": "running"}
    await leave(supervisor, "a")
    assert await statuses(supervisor) == {"a": "stopped"}
    await supervisor.restart_child("a")  # its spec is kept
    assert cast.events.all.count("start a") == 3
    await supervisor.stop(block=False)


async def test_an_end_by_shutdown_is_normal_for_a_transient_child() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a", restart="transient"))
    await crash(supervisor, "a", Shutdown("the shop closed"))
    assert await statuses(supervisor) == {"a": "stopped"}
    await supervisor.stop(block=False)


@pytest.mark.parametrize("end", [crash, leave])
async def test_a_temporary_child_is_never_started_again_and_is_forgotten(end: Any) -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a", restart="temporary"))
    await end(supervisor, "a")
    assert await statuses(supervisor) == {}
    assert cast.events.all.count("start a") == 1
    with pytest.raises(NoSuchChild):
        await supervisor.restart_child("a")
    await supervisor.stop(block=False)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), MemoryError()])
async def test_a_child_that_dies_by_anything_is_started_again(error: BaseException) -> None:
    """A8."""
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a"), cast.part("b"))
    await crash(supervisor, "a", error)
    assert await statuses(supervisor) == {"a": "running", "b": "running"}
    assert cast.events.all.count("start b") == 1
    await supervisor.stop(block=False)


@pytest.mark.parametrize(("reason", "status"), [(None, "stopped"), (Boom(), "running")])
async def test_the_reason_of_a_stop_now_says_whether_a_transient_child_comes_back(
    reason: Exception | None, status: str
) -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a", restart="transient"))
    ref = await supervisor.child("a")
    assert await ref.stop_now(reason) is True
    assert await statuses(supervisor) == {"a": status}
    await supervisor.stop(block=False)


# Strategies


def without_failures(events: list[str]) -> list[str]:
    return [event for event in events if not event.startswith("fail")]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("one_for_one", ["start b"]),
        ("rest_for_one", ["stop d", "stop c", "start b", "start c", "start d"]),
        (
            "one_for_all",
            ["stop d", "stop c", "stop a", "start a", "start b", "start c", "start d"],
        ),
    ],
)
async def test_a_strategy_says_who_is_stopped_in_reverse_and_started_in_order(
    strategy: str, expected: list[str]
) -> None:
    cast = Cast()
    specs = [cast.part(name) for name in "abcd"]
    supervisor = cast.supervisor(*specs, strategy=strategy)
    await supervisor.which_children()
    cast.events.take()
    await crash(supervisor, "b")
    assert await statuses(supervisor) == dict.fromkeys("abcd", "running")
    assert without_failures(cast.events.all) == expected
    await supervisor.stop(block=False)


@given(
    strategy=st.sampled_from(["one_for_one", "rest_for_one", "one_for_all"]),
    size=st.integers(1, 5),
    place=st.integers(0, 4),
    restart=st.sampled_from(["permanent", "transient", "temporary"]),
    end=st.sampled_from([crash, leave]),
)
async def test_whichever_child_ends_its_restart_type_and_the_strategy_say_what_follows(
    strategy: str, size: int, place: int, restart: Any, end: Any
) -> None:
    names = "abcde"[:size]
    name = names[place % size]
    group = {
        "one_for_one": name,
        "rest_for_one": names[names.index(name) :],
        "one_for_all": names,
    }[strategy]
    comes_back = restart == "permanent" or (restart == "transient" and end is crash)
    expected = [f"stop {each}" for each in reversed(group) if each != name]
    expected += [f"start {each}" for each in group]

    cast = Cast()
    specs = [cast.part(each, restart=restart) for each in names]
    if comes_back and restart == "transient":  # whatever a sibling is, it comes back too
        specs = [cast.part(each, restart="permanent") for each in names]
        specs[names.index(name)] = cast.part(name, restart=restart)
    supervisor = cast.supervisor(*specs, strategy=strategy)
    await supervisor.which_children()
    cast.events.take()
    await end(supervisor, name)
    found = await statuses(supervisor)
    own_end = f"stop {name}" if end is leave else f"fail {name}"
    assert cast.events.take() == [own_end, *(expected if comes_back else [])]
    after = {"permanent": "running", "transient": "stopped", "temporary": None}[restart]
    assert found.pop(name, None) == ("running" if comes_back else after)
    assert set(found.values()) <= {"running"}
    await supervisor.stop(block=False)


async def test_a_temporary_sibling_is_stopped_with_its_group_and_does_not_come_back() -> None:
    cast = Cast()
    supervisor = cast.supervisor(
        cast.part("a"), cast.part("b", restart="temporary"), strategy="one_for_all"
    )
    await crash(supervisor, "a")
    assert await statuses(supervisor) == {"a": "running"}
    assert cast.events.take()[-2:] == ["stop b", "start a"]
    await supervisor.stop(block=False)


async def test_a_temporary_child_that_fails_takes_nobody_with_it() -> None:
    cast = Cast()
    supervisor = cast.supervisor(
        cast.part("a"), cast.part("b", restart="temporary"), strategy="one_for_all"
    )
    await crash(supervisor, "b")
    assert await statuses(supervisor) == {"a": "running"}
    assert cast.events.all.count("start a") == 1
    await supervisor.stop(block=False)


async def test_a_stopped_child_comes_back_with_its_group() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a"), cast.part("b"), strategy="one_for_all")
    await supervisor.terminate_child("b")
    await crash(supervisor, "a")
    assert await statuses(supervisor) == {"a": "running", "b": "running"}
    await supervisor.stop(block=False)


async def test_siblings_that_fail_together_come_back_once() -> None:
    cast = Cast()
    supervisor = cast.supervisor(
        cast.part("a"), cast.part("b"), strategy="one_for_all", max_restarts=1
    )
    refs = [await supervisor.child("a"), await supervisor.child("b")]
    gone = [watch(ref) for ref in refs]
    for ref in refs:
        ref.tell(Boom())
    await asyncio.gather(*gone)
    assert await statuses(supervisor) == {"a": "running", "b": "running"}
    assert [c.restarts for c in await supervisor.which_children()] == [1, 1]
    await supervisor.stop(block=False)


# Restarts that fail, intensity


async def test_a_child_that_ends_the_moment_it_has_started_is_started_again() -> None:
    cast = Cast()

    class Hasty(LoopActor):
        def on_start(self) -> None:
            cast.events.add("start")
            if len(cast.events.all) < 3:
                self.actor_ref.tell("fail")

        def on_receive(self, message: Any) -> None:
            raise Boom(message)

    supervisor = cast.supervisor(ChildSpec("hasty", Hasty.start))
    await cast.events.until("start", 3)
    assert await statuses(supervisor) == {"hasty": "running"}
    assert [child.restarts for child in await supervisor.which_children()] == [2]
    await supervisor.stop(block=False)


@pytest.mark.parametrize("where", ["in on_start", "in start"])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_whatever_a_child_raises_at_its_start_harms_no_other(
    error: BaseException, where: str
) -> None:
    """A8."""
    cast = Cast()
    errors: list[BaseException] = [error]

    def fail() -> None:
        if errors:
            raise errors.pop()

    class Harmful(LoopActor):
        def on_start(self) -> None:
            if where == "in on_start":
                fail()

    def start() -> LoopActorRef[Harmful]:
        if where == "in start":
            fail()
        return Harmful.start()

    supervisor = cast.supervisor(cast.part("a"))
    with pytest.raises(ChildStartFailed) as caught:
        await supervisor.start_child(ChildSpec("b", start))
    assert caught.value.__cause__ is error
    await supervisor.start_child(ChildSpec("b", start))
    assert await statuses(supervisor) == {"a": "running", "b": "running"}
    assert cast.events.all == ["start a"]
    await supervisor.stop(block=False)


async def test_a_failed_restart_counts_and_is_tried_again() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a", None, Boom("1"), Boom("2")), max_restarts=3)
    await crash(supervisor, "a")
    await cast.events.until("start a", 4)
    assert await statuses(supervisor) == {"a": "running"}
    gone = watch(supervisor)
    await crash(supervisor, "a")  # the fourth restart within the period
    assert isinstance(await gone, RestartIntensityExceeded)


async def test_a_group_whose_restart_fails_halfway_is_stopped_and_started_again() -> None:
    cast = Cast()
    supervisor = cast.supervisor(
        cast.part("a"), cast.part("b", None, Boom("no")), cast.part("c"), strategy="one_for_all"
    )
    await supervisor.which_children()
    cast.events.take()
    await crash(supervisor, "c")
    await cast.events.until("start c")
    assert without_failures(cast.events.all) == [
        *("stop b", "stop a", "start a", "start b"),  # b fails
        *("stop a", "start a", "start b", "start c"),
    ]
    await supervisor.stop(block=False)


async def test_a_child_terminated_before_its_failed_restart_is_tried_again_is_left_out() -> None:
    cast = Cast()
    asked: list[Any] = []
    starts = 0

    def start() -> LoopActorRef[Part]:
        nonlocal starts
        starts += 1
        if starts == 2:
            asked.append(supervisor.terminate_child("b"))
            raise Boom("no")
        return Part.start("b", cast.events, [])

    specs = cast.part("a"), ChildSpec("b", start), cast.part("c")
    supervisor = cast.supervisor(*specs, strategy="one_for_all")
    await supervisor.which_children()
    cast.events.take()
    await crash(supervisor, "c")
    await cast.events.until("start c")
    await asked[0]
    assert without_failures(cast.events.all) == ["stop b", "stop a", "start a", "start c"]
    assert await statuses(supervisor) == {"a": "running", "b": "stopped", "c": "running"}
    await supervisor.stop(block=False)


async def test_more_than_max_restarts_stops_the_children_in_reverse_and_the_supervisor() -> None:
    cast = Cast()
    supervisor = cast.supervisor(*map(cast.part, "abc"), max_restarts=2, period=5)
    gone = watch(supervisor)
    for _ in range(2):
        await crash(supervisor, "b")
        await supervisor.child("b")
    cast.events.take()
    await crash(supervisor, "b")
    reason = await gone
    assert isinstance(reason, RestartIntensityExceeded)
    assert (reason.child_id, reason.max_restarts, reason.period) == ("b", 2, 5)
    assert isinstance(reason.__cause__, Boom)
    assert without_failures(cast.events.all) == ["stop c", "stop a"]


@pytest.mark.parametrize("strategy", ["one_for_one", "rest_for_one", "one_for_all"])
async def test_whatever_its_strategy_a_supervisor_gives_up_without_starting_anybody(
    strategy: str,
) -> None:
    cast = Cast()
    inner = cast.nested(
        "inner", *map(cast.part, "abc"), strategy=strategy, max_restarts=1, restart="temporary"
    )
    root = cast.supervisor(inner, cast.part("z"))
    supervisor = await root.child("inner")
    assert isinstance(supervisor, SupervisorRef)
    gone = watch(supervisor)
    await crash(supervisor, "b")
    await supervisor.child("b")
    cast.events.take()
    await crash(supervisor, "b")
    assert isinstance(await gone, RestartIntensityExceeded)
    assert await statuses(root) == {"z": "running"}
    assert without_failures(cast.events.all) == ["stop c", "stop a"]
    await root.stop(block=False)


async def test_restarts_older_than_the_period_do_not_count() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a"), max_restarts=2, period=5)
    for moment in (0, 5, 5.1, 10.1):  # three within 5 s only if the first still counted
        cast.clock.time = moment
        await crash(supervisor, "a")
        assert await statuses(supervisor) == {"a": "running"}
    gone = watch(supervisor)
    cast.clock.time = 10.1
    await crash(supervisor, "a")
    assert isinstance(await gone, RestartIntensityExceeded)


async def test_a_supervisor_without_restarts_gives_up_at_the_first() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a"), cast.part("b"), max_restarts=0)
    gone = watch(supervisor)
    await crash(supervisor, "b")
    assert isinstance(await gone, RestartIntensityExceeded)
    assert cast.events.all[-1] == "stop a"


async def test_a_supervisor_that_gave_up_is_started_again_by_its_own_supervisor() -> None:
    cast = Cast()
    inner = cast.nested("inner", cast.part("a"), max_restarts=0, restart="transient")
    root = cast.supervisor(inner, cast.part("z"))
    first = await root.child("inner")
    assert isinstance(first, SupervisorRef)
    gone = watch(first)
    await crash(first, "a")
    assert isinstance(await gone, RestartIntensityExceeded)
    second = await root.child("inner")
    assert isinstance(second, SupervisorRef)
    assert second is not first
    assert await statuses(second) == {"a": "running"}
    assert cast.events.all.count("start z") == 1
    await root.stop(block=False)


# Waiting between restarts


async def test_a_wait_passes_before_the_restart_and_the_supervisor_answers_meanwhile() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a"), cast.part("b"), wait=wait_fixed(7))
    await crash(supervisor, "a")
    await cast.sleep.until_asleep(7)
    assert await statuses(supervisor) == {"a": "restarting", "b": "running"}
    cast.sleep.wake(7)
    await cast.events.until("start a", 2)
    assert await statuses(supervisor) == {"a": "running", "b": "running"}
    await supervisor.stop(block=False)


async def test_who_asks_for_a_child_that_restarts_gets_it_when_it_is_back() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a", None, Boom("again")), wait=wait_fixed(7))
    old = await supervisor.child("a")
    await crash(supervisor, "a")
    early = supervisor.child("a")  # before the supervisor knows of the end
    await cast.sleep.until_asleep(7)
    asked = [early, supervisor.child("a")]
    await supervisor.which_children()  # both are handled, and it answers others
    for starts in (2, 3):
        assert not any(answer.done() for answer in asked)
        await cast.sleep.until_asleep(7)
        cast.sleep.wake(7)
        await cast.events.until("start a", starts)
    refs = [await answer for answer in asked]
    assert refs[0] is refs[1] is await supervisor.child("a")
    assert refs[0] is not old
    await supervisor.stop(block=False)


async def test_who_asks_for_a_child_that_does_not_come_back_is_told_so() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a"), cast.part("b"), wait=wait_fixed(7))
    await crash(supervisor, "a")
    await crash(supervisor, "b")
    asked_a, asked_b = supervisor.child("a"), supervisor.child("b")
    await supervisor.terminate_child("a")
    with pytest.raises(ChildNotRunning, match="'a' has no actor: it is stopped"):
        await asked_a
    await supervisor.stop(block=False)
    with pytest.raises(pykka.ActorDeadError):
        await asked_b
    with pytest.raises(pykka.ActorDeadError):
        await supervisor.child("b")


@pytest.mark.parametrize("restart", ["temporary", "transient"])
async def test_who_asks_for_a_child_whose_end_is_not_yet_dealt_with_is_told_the_result(
    restart: str,
) -> None:
    cast = Cast()
    may_start = asyncio.Event()

    async def start() -> LoopActorRef[Part]:
        cast.events.add("busy")
        await may_start.wait()
        return Part.start("b", cast.events, [])

    supervisor = cast.supervisor(cast.part("a", restart=restart))
    ref = await supervisor.child("a")
    supervisor.start_child(ChildSpec("b", start))
    await cast.events.until("busy")
    asked = supervisor.child("a")  # read after the end, but before its `Down` is dealt with
    gone = watch(ref)
    ref.tell("leave")
    await gone
    may_start.set()
    with pytest.raises(ChildNotRunning, match="'a' has no actor: it is stopped"):
        await asked
    await supervisor.stop(block=False)


async def test_an_exponential_wait_grows_until_the_child_stays_up_for_a_period() -> None:
    cast = Cast()
    supervisor = cast.supervisor(
        cast.part("a", None, Boom("at the third start too")),
        wait=wait_exponential(multiplier=1),
        max_restarts=9,
        period=5,
    )
    await crash(supervisor, "a")
    waits = []
    for restarts in (1, 2):  # the first restart fails in on_start
        waits.append(await cast.sleep.until_asleep())
        cast.sleep.wake(waits[-1])
        await cast.events.until("start a", 1 + restarts)
    await crash(supervisor, "a")
    waits.append(await cast.sleep.until_asleep())
    cast.sleep.wake(waits[-1])
    await cast.events.until("start a", 4)
    await supervisor.which_children()
    cast.clock.time = 5.1
    await crash(supervisor, "a")
    waits.append(await cast.sleep.until_asleep())
    assert waits == [1, 2, 4, 1]
    await supervisor.stop(block=False)


async def test_a_wait_can_read_how_the_child_ended() -> None:
    cast = Cast()

    def wait(state: RetryCallState) -> float:
        assert state.outcome is not None
        return 3 if isinstance(state.outcome.exception(), Boom) else 9

    supervisor = cast.supervisor(cast.part("a"), wait=wait)
    await crash(supervisor, "a")
    assert await cast.sleep.until_asleep() == 3
    await supervisor.stop(block=False)


async def test_a_group_is_stopped_before_the_wait_and_started_after_it() -> None:
    cast = Cast()
    supervisor = cast.supervisor(
        *map(cast.part, "abc"), wait=wait_fixed(7), strategy="rest_for_one"
    )
    await supervisor.which_children()
    cast.events.take()
    await crash(supervisor, "b")
    await cast.sleep.until_asleep(7)
    assert without_failures(cast.events.take()) == ["stop c"]
    assert await statuses(supervisor) == {"a": "running", "b": "restarting", "c": "restarting"}
    cast.sleep.wake(7)
    await cast.events.until("start c")
    assert cast.events.all == ["start b", "start c"]
    await supervisor.stop(block=False)


async def test_an_earlier_sibling_that_fails_meanwhile_takes_over_the_wait() -> None:
    cast = Cast()
    supervisor = cast.supervisor(
        *map(cast.part, "abc"), wait=wait_fixed(7), strategy="rest_for_one"
    )
    await crash(supervisor, "b")
    await cast.sleep.until_asleep(7)
    await crash(supervisor, "a")
    await cast.sleep.until_cancelled(7)
    await cast.sleep.until_asleep(7)
    cast.events.take()
    cast.sleep.wake(7)
    await cast.events.until("start c")
    assert cast.events.all == ["start a", "start b", "start c"]
    assert cast.sleep.sleepers == []
    await supervisor.stop(block=False)


async def test_a_stop_cancels_the_wait() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a"), wait=wait_fixed(7))
    await crash(supervisor, "a")
    await cast.sleep.until_asleep(7)
    await supervisor.stop(block=False)
    await cast.sleep.until_cancelled(7)
    assert cast.events.all.count("start a") == 1


async def test_a_child_terminated_in_its_wait_does_not_come_back_but_its_group_does() -> None:
    cast = Cast()
    supervisor = cast.supervisor(*map(cast.part, "abc"), wait=wait_fixed(7), strategy="one_for_all")
    await crash(supervisor, "b")
    await cast.sleep.until_asleep(7)
    await supervisor.terminate_child("b")
    cast.events.take()
    cast.sleep.wake(7)
    await cast.events.until("start c")
    assert cast.events.all == ["start a", "start c"]
    assert await statuses(supervisor) == {"a": "running", "b": "stopped", "c": "running"}
    await supervisor.stop(block=False)


async def test_terminating_the_only_child_of_a_wait_cancels_it() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a"), wait=wait_fixed(7))
    await crash(supervisor, "a")
    await cast.sleep.until_asleep(7)
    await supervisor.terminate_child("a")
    await cast.sleep.until_cancelled(7)
    assert await statuses(supervisor) == {"a": "stopped"}
    await supervisor.stop(block=False)


# Children that come and go


async def test_a_child_added_later_is_the_last_in_the_order() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a"))
    ref = await supervisor.start_child(cast.part("b"))
    assert await ref.ask("name", block=False) == "b"
    assert await supervisor.child("b") is ref
    await supervisor.stop(block=False)
    assert cast.events.all == ["start a", "start b", "stop b", "stop a"]


async def test_an_id_is_given_once() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a"))
    with pytest.raises(UsageError, match="There is a child 'a', running"):
        await supervisor.start_child(cast.part("a"))
    await supervisor.terminate_child("a")
    with pytest.raises(UsageError, match="restart_child"):
        await supervisor.start_child(cast.part("a"))
    await supervisor.delete_child("a")
    await supervisor.start_child(cast.part("a"))
    assert cast.events.all == ["start a", "stop a", "start a"]
    with pytest.raises(UsageError, match="There is a child 'a'"):
        Supervisor.start([cast.part("a"), cast.part("a")])
    await supervisor.stop(block=False)


async def test_a_child_added_later_that_does_not_start_is_not_kept() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a"))
    with pytest.raises(ChildStartFailed) as caught:
        await supervisor.start_child(cast.part("b", Boom("no")))
    assert isinstance(caught.value.__cause__, Boom)
    assert await statuses(supervisor) == {"a": "running"}
    await supervisor.stop(block=False)


async def test_a_terminated_child_keeps_its_spec_and_its_place() -> None:
    cast = Cast()
    supervisor = cast.supervisor(*map(cast.part, "abc"))
    await supervisor.terminate_child("b")
    await supervisor.terminate_child("b")  # again is no error
    assert await statuses(supervisor) == {"a": "running", "b": "stopped", "c": "running"}
    with pytest.raises(ChildNotRunning, match="stopped"):
        await supervisor.child("b")
    ref = await supervisor.restart_child("b")
    assert await supervisor.child("b") is ref
    assert [child.restarts for child in await supervisor.which_children()] == [0, 0, 0]
    cast.events.take()
    await supervisor.stop(block=False)
    assert cast.events.all == ["stop c", "stop b", "stop a"]


async def test_a_terminated_temporary_child_is_forgotten() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a", restart="temporary"))
    await supervisor.terminate_child("a")
    assert await statuses(supervisor) == {}
    await supervisor.stop(block=False)


async def test_only_a_stopped_child_is_restarted_or_deleted_by_hand() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a"), wait=wait_fixed(7))
    for status in ("running", "restarting"):
        with pytest.raises(UsageError, match=f"Child 'a' is {status}: restart_child"):
            await supervisor.restart_child("a")
        with pytest.raises(UsageError, match=f"Child 'a' is {status}: delete_child"):
            await supervisor.delete_child("a")
        if status == "running":
            await crash(supervisor, "a")
    await supervisor.stop(block=False)


async def test_a_child_that_cannot_be_started_by_hand_stays_stopped() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a", None, Boom("no")))
    await supervisor.terminate_child("a")
    with pytest.raises(ChildStartFailed):
        await supervisor.restart_child("a")
    assert await statuses(supervisor) == {"a": "stopped"}
    await supervisor.stop(block=False)


@pytest.mark.parametrize("method", ["child", "terminate_child", "restart_child", "delete_child"])
async def test_an_unknown_id_is_told_with_the_known_ones(method: str) -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a"), cast.part("b"))
    with pytest.raises(NoSuchChild, match="no child 'x'; the supervisor has 'a', 'b'"):
        await getattr(supervisor, method)("x")
    await supervisor.stop(block=False)


async def test_children_are_counted_by_kind() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a"), cast.part("b"), cast.nested("inner"))
    await supervisor.terminate_child("b")
    await supervisor.terminate_child("inner")  # it is a supervisor still
    await supervisor.start_simple(functools.partial(Part.start, "s", cast.events, []))
    counts = await supervisor.count_children()
    assert dataclasses.asdict(counts) == {
        "specs": 4, "active": 2, "supervisors": 1, "workers": 3,
    }  # fmt: skip
    await supervisor.stop(block=False)


# Stopping


async def test_children_are_stopped_in_reverse_order_and_none_is_started_again() -> None:
    cast = Cast()
    supervisor = cast.supervisor(*map(cast.part, "abc"))
    gone = watch(supervisor)
    assert await supervisor.stop(block=False) is True
    assert await gone is None
    assert cast.events.all == ["start a", "start b", "start c", "stop c", "stop b", "stop a"]


async def test_a_child_that_fails_while_it_is_stopped_is_not_started_again() -> None:
    cast = Cast()

    class Sore(LoopActor):
        def on_stop(self) -> None:
            cast.events.add("sore stops")
            raise Boom("in on_stop")

    supervisor = cast.supervisor(ChildSpec("sore", Sore.start), cast.part("b"))
    await supervisor.terminate_child("sore")
    assert await statuses(supervisor) == {"sore": "stopped", "b": "running"}
    await supervisor.stop(block=False)
    assert cast.events.all.count("sore stops") == 1


@pytest.mark.parametrize(("options", "seconds"), [({"shutdown": 2.5}, 2.5), ({}, 5.0)])
async def test_a_child_that_misses_its_deadline_is_cancelled_and_the_next_is_stopped(
    options: dict[str, Any], seconds: float
) -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a"), cast.part("b", **options))
    b = await supervisor.child("b")
    gone = watch(b)
    b.tell("hang")
    await cast.events.until("hang b")
    stopped = supervisor.stop(block=False)
    await cast.sleep.until_asleep(seconds)
    assert "stop a" not in cast.events.all  # it waits for b
    cast.sleep.wake(seconds)
    await stopped
    assert cast.events.all[-1] == "stop a"
    assert isinstance(gone.result(), Shutdown)


async def test_a_shutdown_of_zero_cancels_at_once() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a", shutdown=0))
    (await supervisor.child("a")).tell("hang")
    await cast.events.until("hang a")
    await supervisor.stop(block=False)
    assert cast.sleep.sleepers == []
    assert "stop a" not in cast.events.all


async def test_a_shutdown_of_none_waits_for_ever() -> None:
    cast = Cast()
    may_stop = asyncio.Event()

    class Slow(LoopActor):
        @async_hook
        async def on_stop(self) -> None:
            cast.events.add("slow stops")
            await may_stop.wait()

    supervisor = cast.supervisor(ChildSpec("slow", Slow.start, shutdown=None))
    await supervisor.which_children()
    stopped = supervisor.stop(block=False)
    await cast.events.until("slow stops")
    assert cast.sleep.sleepers == []  # no deadline runs
    may_stop.set()
    await stopped


async def test_a_nested_supervisor_gets_all_the_time_it_needs() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.nested("inner", cast.part("a", shutdown=3)))
    inner = await supervisor.child("inner")
    assert isinstance(inner, SupervisorRef)
    (await inner.child("a")).tell("hang")
    await cast.events.until("hang a")
    stopped = supervisor.stop(block=False)
    await cast.sleep.until_asleep(3)
    assert len(cast.sleep.sleepers) == 1  # the child's deadline, none for the supervisor
    cast.sleep.wake(3)
    await stopped


async def test_a_supervisor_that_is_cancelled_takes_its_whole_tree_along() -> None:
    cast = Cast()
    root = cast.supervisor(cast.part("a"), cast.nested("inner", cast.part("b")))
    inner = await root.child("inner")
    assert isinstance(inner, SupervisorRef)
    simple = await inner.start_simple(functools.partial(Part.start, "s", cast.events, []))
    below = [await root.child("a"), inner, await inner.child("b"), simple]
    gone = [watch(ref) for ref in below]
    root.stop_now()
    await asyncio.gather(*gone)
    assert [ref.is_alive() for ref in below] == [False] * 4


async def test_a_supervisor_cancelled_while_it_waits_for_a_child_leaves_no_orphan() -> None:
    cast = Cast()

    class Slow(LoopActor):
        @async_hook
        async def on_stop(self) -> None:
            cast.events.add("slow stops")
            await asyncio.Event().wait()

    supervisor = cast.supervisor(cast.part("a"), ChildSpec("slow", Slow.start, shutdown=None))
    gone = [watch(await supervisor.child("a")), watch(await supervisor.child("slow"))]
    stopped = supervisor.terminate_child("slow")
    await cast.events.until("slow stops")
    supervisor.stop_now()
    await asyncio.gather(*gone)
    with pytest.raises(pykka.ActorDeadError):
        await stopped


async def test_a_supervisor_cancelled_while_it_starts_leaves_no_orphan() -> None:
    cast = Cast()
    started: list[LoopActorRef[Any]] = []

    class Stuck(LoopActor):
        @async_hook
        async def on_start(self) -> None:
            started.append(self.actor_ref)
            cast.events.add("stuck")
            await asyncio.Event().wait()

    supervisor = cast.supervisor(cast.part("a"), ChildSpec("stuck", Stuck.start))
    gone = watch(supervisor)
    await cast.events.until("stuck")
    stuck_gone = watch(started[0])
    supervisor.stop_now()
    await gone
    await stuck_gone
    assert supervisor.tree().status is ChildStatus.STOPPED
    assert [event for event in cast.events.all if event.startswith("start")] == ["start a"]


async def test_a_supervisor_cancelled_in_an_async_start_callable_does_nothing_more() -> None:
    cast = Cast()

    async def start() -> LoopActorRef[Part]:
        cast.events.add("preparing")
        try:
            await asyncio.Event().wait()
        finally:
            cast.events.add("cancelled")
        raise AssertionError

    supervisor = cast.supervisor(cast.part("a"), ChildSpec("b", start))
    await cast.events.until("preparing")
    supervisor.stop_now()
    await cast.events.until("cancelled")
    assert supervisor.tree().status is ChildStatus.STOPPED


async def test_a_supervisor_that_fails_by_its_own_fault_takes_its_children_along() -> None:
    cast = Cast()

    def wait(_: object) -> float:
        raise Boom("in wait")

    supervisor = cast.supervisor(cast.part("a"), cast.part("b"), wait=wait)
    other = await supervisor.child("b")
    other_gone, gone = watch(other), watch(supervisor)
    await crash(supervisor, "a")
    assert isinstance(await gone, Boom)
    assert other_gone.done()


# Simple children


async def test_simple_children_are_forgotten_when_they_end() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a"))
    start = functools.partial(Part.start, "s", cast.events, [])
    refs = [await supervisor.start_simple(start) for _ in range(3)]
    gone = [watch(refs[0]), watch(refs[1])]
    refs[0].tell(Boom())
    refs[1].tell("leave")
    await asyncio.gather(*gone)
    assert (await supervisor.count_children()).active == 2
    assert list(await statuses(supervisor)) == ["a"]
    assert cast.events.all.count("start s") == 3
    await supervisor.stop(block=False)
    assert not refs[2].is_alive()


async def test_thousands_of_simple_children_are_stopped_together_before_the_others() -> None:
    cast = Cast()
    supervisor = cast.supervisor(cast.part("a"))
    start = functools.partial(Part.start, "s", cast.events, [])
    refs = [await supervisor.start_simple(start) for _ in range(2000)]
    hanging = refs[7]
    hanging.tell("hang")
    await cast.events.until("hang s")
    cast.events.take()
    stopped = supervisor.stop(block=False)
    await cast.sleep.until_asleep(5)
    await cast.events.until("stop s", 1999)
    assert len(cast.sleep.sleepers) == 1  # one deadline for all of them
    assert "stop a" not in cast.events.all
    cast.sleep.wake(5)
    await stopped
    assert cast.events.all[-1] == "stop a"
    assert not any(ref.is_alive() for ref in refs)


async def test_simple_children_need_one_for_one() -> None:
    cast = Cast()
    supervisor = cast.supervisor(strategy="one_for_all")
    with pytest.raises(UsageError, match="start_simple needs the strategy 'one_for_one'"):
        await supervisor.start_simple(functools.partial(Part.start, "s", cast.events, []))
    await supervisor.stop(block=False)


async def test_a_simple_child_that_cannot_be_started_is_told_to_the_caller() -> None:
    cast = Cast()
    supervisor = cast.supervisor()

    def start() -> LoopActorRef[Part]:
        raise Boom("no room")

    with pytest.raises(ChildStartFailed, match="simple-1"):
        await supervisor.start_simple(start)
    await supervisor.stop(block=False)


# Looking in


async def test_a_tree_is_a_frozen_snapshot_that_prints_indented() -> None:
    cast = Cast()
    root = cast.supervisor(
        cast.part("counter"),
        cast.nested("workers", cast.part("first"), cast.part("second")),
        name="root",
    )
    workers = await root.child("workers")
    assert isinstance(workers, SupervisorRef)
    await crash(workers, "second")
    await workers.terminate_child("first")
    await workers.start_simple(functools.partial(Part.start, "s", cast.events, []))
    tree = root.tree()
    assert str(tree).splitlines() == [
        "root (Supervisor) running",
        "├── counter (Part) running",
        "└── workers (Supervisor) running",
        "    ├── first (Part) stopped",
        "    ├── second (Part) running, 1 restart",
        "    └── 1 simple child",
    ]
    with pytest.raises(dataclasses.FrozenInstanceError):
        tree.status = ChildStatus.STOPPED  # type: ignore[misc]  # that is what is tested
    await root.stop(block=False)
    assert tree.children[1].children[1].restarts == 1  # the old one is as it was
    assert str(root.tree()).splitlines()[0] == "root (Supervisor) stopped"


async def test_a_watcher_hears_of_a_supervisor_as_of_any_actor() -> None:
    cast = Cast()
    heard: asyncio.Future[Down] = asyncio.get_running_loop().create_future()

    class Watcher(LoopActor):
        def on_receive(self, message: Any) -> None:
            heard.set_result(message)

    watcher = Watcher.start()
    supervisor = cast.supervisor(cast.part("a"), max_restarts=0)
    supervisor.monitor(watcher)
    await crash(supervisor, "a")
    down = await heard
    assert down.ref.actor_urn == supervisor.actor_urn
    assert isinstance(down.reason, RestartIntensityExceeded)
    await watcher.stop(block=False)


def test_a_thread_without_a_loop_uses_the_same_calls_with_get() -> None:
    started = threading.Event()

    class Counter(LoopActor):
        def on_start(self) -> None:
            started.set()

        def on_receive(self, message: Any) -> Any:
            return message + 1

    supervisor = Supervisor.start([ChildSpec("counter", Counter.start)])
    counter = supervisor.child("counter").get(timeout=HANG)
    assert started.is_set()
    assert counter.ask(1, timeout=HANG) == 2
    added = supervisor.start_child(ChildSpec("other", Counter.start)).get(timeout=HANG)
    assert added.ask(2, timeout=HANG) == 3
    assert [child.id for child in supervisor.which_children().get(timeout=HANG)] == [
        "counter", "other",
    ]  # fmt: skip
    assert supervisor.stop(timeout=HANG)
    assert not counter.is_alive()
    assert not added.is_alive()
    with pytest.raises(pykka.ActorDeadError):
        supervisor.which_children().get(timeout=HANG)


async def test_a_child_may_live_on_another_loop() -> None:
    elsewhere = LoopThread()

    class Distant(LoopActor):
        def on_receive(self, message: Any) -> Any:
            if message == "fail":
                raise Boom
            return threading.current_thread() is not threading.main_thread()

    def start() -> LoopActorRef[Distant]:
        token = loop_for_start.set(elsewhere.start())
        try:
            return Distant.start()
        finally:
            loop_for_start.reset(token)

    spec = ChildSpec("distant", start, restart="transient")
    supervisor = Cast().supervisor(spec)
    simple = await supervisor.start_simple(start)
    first = await supervisor.child("distant")
    assert await first.ask("here?", block=False) is True
    gone: pykka.Future[Down] = Future()
    first.monitor(gone.set)
    first.tell("fail")
    await gone
    second = await supervisor.child("distant")
    assert second.actor_urn != first.actor_urn
    await supervisor.stop(block=False)
    assert not second.is_alive()
    assert not simple.is_alive()
    elsewhere.stop()


async def test_a_subclass_may_fix_its_children() -> None:
    cast = Cast()

    class Shop(Supervisor):
        def __init__(self, *names: str) -> None:
            super().__init__([cast.part(name) for name in names], strategy="one_for_all")

    shop = Shop.start("a", "b")
    await crash(shop, "a")
    await shop.which_children()
    assert cast.events.all.count("start b") == 2
    assert shop.tree().id == "Shop"
    await shop.stop(block=False)


# What is refused


class Plain(LoopActor):
    pass


spec: Any = ChildSpec
start: Any = Supervisor.start  # as a caller without a type checker sees them


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: spec("", Plain.start), "id of a child must be a non-empty string"),
        (lambda: spec(7, Plain.start), "got 7"),
        (lambda: spec("a", Plain), "pass Plain.start"),
        (lambda: spec("a", "Plain"), "start of child 'a' must be a callable"),
        (lambda: spec("a", Plain.start, "always"), "restart of child 'a' must be"),
        (lambda: spec("a", Plain.start, shutdown=-1), "shutdown of child 'a' must be"),
        (lambda: spec("a", Plain.start, shutdown=float("nan")), "shutdown of child 'a'"),
        (lambda: spec("a", Plain.start, shutdown=True), "shutdown of child 'a'"),
        (lambda: start(strategy="one_for_two"), "strategy must be one of 'one_for_one'"),
        (lambda: start(max_restarts=-1), "max_restarts must be at least 0"),
        (lambda: start(max_restarts=1.5), "max_restarts must be at least 0"),
        (lambda: start(period=0), "period must be more than 0"),
        (lambda: start(wait=3), "wait must be a Tenacity wait"),
        (lambda: start([Plain.start]), "must be a ChildSpec"),
    ],
)
def test_what_cannot_be_right_is_refused_at_once(wrong: Callable[[], Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        wrong()


def test_a_spec_is_frozen() -> None:
    spec = ChildSpec("a", Plain.start)
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.id = "b"  # type: ignore[misc]  # that is what is tested


async def test_a_child_must_be_an_actor_that_can_be_monitored() -> None:
    stopped = threading.Event()

    class Threaded(pykka.ThreadingActor):
        def on_stop(self) -> None:
            stopped.set()

    cast = Cast()
    supervisor = cast.supervisor()
    with pytest.raises(ChildStartFailed, match="LoopActor") as caught:
        await supervisor.start_child(ChildSpec("a", Threaded.start))
    assert isinstance(caught.value.__cause__, UsageError)
    assert stopped.wait(HANG)  # it is not left running
    await supervisor.stop(block=False)
