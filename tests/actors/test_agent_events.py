"""What an agent tells, and who hears it: numbered, without a gap, never waited for (A6)."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import Held, completed
from tests.support.held_commits import HeldAnswers, turns
from tests.support.loops import never, soon
from tests.support.places import NewStore, Place
from understudy import (
    Agent,
    Completed,
    Failed,
    Interrupted,
    Paused,
    Runtime,
    ScriptedModel,
    Status,
    Stopped,
    ToolContext,
    UsageError,
    Waiting,
    WouldDeadlock,
    call,
    tool,
)
from understudy.actors import (
    AgentEvent,
    AgentRef,
    EventsDropped,
    Future,
    StatusChanged,
    Subscription,
)
from understudy.events import (
    ReplyEnded,
    RequestMade,
    RunFinished,
    TextDelta,
    ToolEmitted,
    ToolEnded,
    ToolStarted,
)
from understudy.journal import MemoryStore
from understudy.journal.database_store import DatabaseStore
from understudy.journal.sqlite.backend import SqliteBackend

OUTCOMES = (Completed, Failed, Interrupted, Paused, Stopped, Waiting)


@tool
async def quick() -> str:
    return "quick"


@tool(ask=True)
async def pay(amount: int) -> str:
    return f"paid {amount}"


def assert_in_order(seqs: list[int]) -> None:
    """The numbers are those of records, and not every record tells something (J17)."""
    assert seqs
    assert seqs == sorted(seqs)
    assert seqs[0] >= 1


def numbers(events: Iterable[AgentEvent]) -> list[int]:
    return [event.seq for event in events if event.seq is not None]


async def read(subscription: Subscription, *, runs: int = 1) -> list[AgentEvent]:
    """The events up to the end of so many runs."""
    events = []
    async with asyncio.timeout(60):
        async for event in subscription:
            events.append(event)
            if isinstance(event.event, RunFinished):
                runs -= 1
                if not runs:
                    break
    return events


async def test_events_bear_the_numbers_of_their_records_and_name_their_agent() -> None:
    """A6."""
    model = ScriptedModel([call("quick"), "all done"] * 3)
    async with Runtime([Agent("a", model, tools=[quick])]) as runtime:
        ref = runtime.spawn("a", "the id")
        subscription = ref.events()
        for _ in range(3):
            await soon(ref.run("go"))
        events = await read(subscription, runs=3)
        assert_in_order(numbers(events))
        assert {event.agent_id for event in events} == {"the id"}
        kinds = [type(event.event) for event in events]
        for kind in (StatusChanged, ToolStarted, ToolEnded, TextDelta, ReplyEnded):
            assert kind in kinds
        assert [kind for kind in kinds if kind is RunFinished] == [RunFinished] * 3
        texts = [event.event.text for event in events if isinstance(event.event, TextDelta)]
        assert "".join(texts) == "all done" * 3


async def test_a_late_subscriber_gets_what_was_kept_and_the_rest_of_the_run() -> None:
    """A6."""
    held = Held("all done")
    async with Runtime([Agent("a", ScriptedModel([call("quick"), held]), tools=[quick])]) as rt:
        ref = rt.spawn("a")
        first = ref.events()
        run = ref.run("go")
        await soon(held.entered.wait())
        late = ref.events()
        held.release.set()
        await soon(run)
        early, later = await read(first), await read(late)
        assert numbers(early) == numbers(later)
        assert [e for e in early if e.seq is not None] == [e for e in later if e.seq]
        texts = [e.event.text for e in later if isinstance(e.event, TextDelta)]
        assert "".join(texts) == "all done"


async def found_by_events(runtime: Runtime, ref: AgentRef) -> Status:
    """The status of the ref when its events have brought the end of its run."""
    await read(ref.events())
    return ref.status()


async def found_by_the_feed(runtime: Runtime, ref: AgentRef) -> Status:
    """The status of the ref when the feed has brought the end of its run."""
    async for event in runtime.events(start="oldest"):
        if isinstance(event.event, RunFinished):
            break
    return ref.status()


async def found_by_info(runtime: Runtime, ref: AgentRef) -> Status:
    """The status of the ref when its info says that it is idle."""
    assert (await ref.info()).status is Status.IDLE
    return ref.status()


async def found_by_a_list(runtime: Runtime, ref: AgentRef) -> Status:
    """The status of the ref when a list says that it is idle."""
    assert [each.id for each in await runtime.agents(status="idle")] == [ref.id]
    return ref.status()


@pytest.mark.parametrize(
    "way", [found_by_events, found_by_the_feed, found_by_info, found_by_a_list]
)
async def test_a_status_that_is_read_is_that_of_the_agent_at_its_host(
    tmp_path: Path, way: Callable[[Runtime, AgentRef], Coroutine[Any, Any, Status]]
) -> None:
    """A1: the store has the end of the run before its host knows that the commit is made."""
    backend = HeldAnswers(SqliteBackend(str(tmp_path / "store.db"), durability="off", host="here"))
    agent = Agent("a", ScriptedModel(["done"]))
    async with Runtime([agent], store=DatabaseStore(backend), feed=True) as runtime:
        ref = runtime.spawn("a", "x")
        with backend.held():
            outcome = ref.run("go")
            await backend.reached()
            while ref.status() != "running" or not (await soon(runtime.count()))[Status.IDLE]:
                backend.let_one_pass()
                await backend.reached()
            found = asyncio.create_task(way(runtime, ref))
            for _ in range(10):  # what does not wait is read meanwhile
                await turns()
                await soon(runtime.count())  # reads are made in order
        assert await soon(found) is Status.IDLE
        assert isinstance(await soon(outcome), Completed)


async def test_after_gives_only_what_came_later() -> None:
    """A6: no gap, no duplicate, wherever one takes it up."""
    model = ScriptedModel([call("quick"), "one", call("quick"), "two"])
    async with Runtime([Agent("a", model, tools=[quick])]) as runtime:
        ref = runtime.spawn("a")
        await soon(ref.run("go"))
        whole = numbers(await read(ref.events()))
        last = whole[-1]
        for after in (0, whole[0], whole[1], whole[-2]):
            later = [seq for seq in whole if seq > after]
            assert numbers(await read(ref.events(after=after))) == later
        live = ref.events(after=last)
        await soon(ref.run("again"))
        assert numbers(await read(live))[0] > last
        assert numbers(await read(ref.events(after=0), runs=2))[: len(whole)] == whole


async def test_a_reader_that_is_cut_off_between_two_events_of_a_record_loses_nothing() -> None:
    """A6: wherever it is cut off."""
    two = [call("pay", {"amount": 1}), call("pay", {"amount": 2})]
    async with Runtime([Agent("a", ScriptedModel([two]), tools=[pay])]) as runtime:
        ref = runtime.spawn("a")
        assert isinstance(await soon(ref.run("go")), Interrupted)

        async def behind(after: int | str) -> list[AgentEvent]:
            found: list[AgentEvent] = []
            async with asyncio.timeout(60):
                async for event in ref.events(after):
                    found += [event] if event.seq is not None else []
                    asked = event.event
                    if isinstance(asked, RequestMade) and asked.request.arguments["amount"] == 2:
                        break
            return found

        whole = await behind(0)
        assert whole[-2].seq == whole[-1].seq, "a record has two events"
        positions = [str(event.position) for event in whole]
        assert positions == sorted(set(positions))
        for count, position in enumerate(positions[:-1], 1):
            assert await behind(position) == whole[count:]
        for seq in set(numbers(whole[:-2])):  # behind all events of the record
            assert await behind(seq) == [event for event in whole if (event.seq or 0) > seq]


@pytest.mark.parametrize("after", ["", "x", "1.", "-1", "1.5.2", -1, True, 1.5, None])
async def test_what_is_no_position_is_refused(after: Any) -> None:
    async with Runtime([Agent("a", ScriptedModel(["done"]))]) as runtime:
        with pytest.raises(UsageError, match="position"):
            runtime.spawn("a").events(after)


async def test_a_subscriber_ahead_of_the_agent_hears_only_what_comes_after_its_number() -> None:
    async with Runtime([Agent("a", ScriptedModel(lambda _: "done"))]) as runtime:
        ref = runtime.spawn("a")
        await soon(ref.run("one"))
        last = numbers(await read(ref.events()))[-1]
        ahead, behind = ref.events(after=last + 2), ref.events(after=last)
        await soon(ref.run("two"))
        later = [seq for seq in numbers(await read(behind)) if seq > last + 2]
        assert numbers(await read(ahead)) == later


async def test_a_subscription_whose_past_is_not_read_before_the_end_skips_nothing() -> None:
    """A6: it ends without what came later, instead of telling that alone."""
    store = MemoryStore()
    async with Runtime([Agent("a", ScriptedModel(lambda _: "done"))], store=store) as runtime:
        ref = runtime.spawn("a")
        await soon(ref.run("one"))
        whole = ref.events()
        last = numbers(await read(whole))[-1]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "load_part", lambda *_: never())
            from_its_begin, from_now = ref.events(), ref.events(after=last)
            await soon(ref.run("two"))
    assert numbers(from_its_begin) == []
    assert [last, *numbers(from_now)] == numbers(whole)


@pytest.mark.slow
def test_subscribers_that_join_at_any_moment_miss_nothing() -> None:
    """A6: joining and telling are ordered, from any thread."""

    def work() -> None:
        model = ScriptedModel(lambda r: call("quick") if len(r.messages) % 4 == 1 else "done")
        heard: list[list[int]] = []
        with Runtime([Agent("a", model, tools=[quick])]) as runtime:
            ref = runtime.spawn("a")
            stop = threading.Event()

            def listen() -> None:
                while not stop.is_set():
                    subscription = ref.events()
                    heard.append(numbers(itertools.islice(subscription, 20)))
                    subscription.close()

            threads = [threading.Thread(target=listen, daemon=True) for _ in range(3)]
            ref.run("first").get(timeout=60)
            for thread in threads:
                thread.start()
            for number in range(40):
                assert isinstance(ref.run(f"{number}").get(timeout=60), Completed)
            stop.set()
            subscription = ref.events()
            subscription.close()
            whole = numbers(subscription)
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert heard
        for seen in heard:
            assert seen == whole[: len(seen)]

    future: Future[None] = Future()

    def guarded() -> None:
        try:
            future.set(work())  # type: ignore[func-returns-value]  # it says that it is done
        except BaseException as error:
            future.set_exception((type(error), error, error.__traceback__))

    threading.Thread(target=guarded, daemon=True).start()
    future.get(timeout=60)


def test_for_iterates_in_a_thread_and_ends_when_the_runtime_stops() -> None:
    """A6."""
    events: list[AgentEvent] = []
    with Runtime([Agent("a", ScriptedModel(lambda _: "done"))]) as runtime:
        ref = runtime.spawn("a")
        thread = threading.Thread(target=lambda: events.extend(ref.events()), daemon=True)
        thread.start()
        ref.run("go").get(timeout=60)
    thread.join(60)
    assert not thread.is_alive()
    assert any(isinstance(event.event, RunFinished) for event in events)
    assert isinstance(events[-1].event, StatusChanged)
    assert events[-1].event.status is Status.PASSIVE
    assert list(ref.events()) == [], "the store is closed"


async def test_async_for_ends_when_the_runtime_stops(new_store: NewStore) -> None:
    agent = Agent("a", ScriptedModel(lambda _: "done"))
    async with Runtime([agent], store=new_store()) as runtime:
        ref = runtime.spawn("a")

        async def listen() -> list[AgentEvent]:
            return [event async for event in ref.events()]

        listening = asyncio.ensure_future(listen())
        await soon(ref.run("go"))
    assert numbers(await soon(listening)) != []
    assert await soon(listen()) == [], "the store is closed"


async def test_for_on_the_runtimes_own_loop_raises_instead_of_blocking_it() -> None:
    async with Runtime([Agent("a", ScriptedModel([]))]) as runtime:
        subscription = runtime.spawn("a").events()
        with pytest.raises(WouldDeadlock):
            next(iter(subscription))
        subscription.close()


async def test_close_ends_a_subscription_that_waits() -> None:
    async with Runtime([Agent("a", ScriptedModel(lambda _: "done"))]) as runtime:
        ref = runtime.spawn("a")
        subscription, other = ref.events(), ref.events()
        reached = asyncio.Event()

        async def listen() -> list[AgentEvent]:
            reached.set()
            return [event async for event in subscription]

        listening = asyncio.ensure_future(listen())
        await soon(reached.wait())
        subscription.close()
        assert await soon(listening) == []
        subscription.close()
        await soon(ref.run("go"))
        assert [event async for event in subscription] == []
        assert numbers(await read(other)) != []


async def test_a_slow_subscriber_loses_the_oldest_deltas_only_and_is_told_how_many() -> None:
    """A6: the buffer is bounded, the agent never waits."""
    text = "".join(f"{number:04}" for number in range(3000))

    model = ScriptedModel([text, "bye"], delta_size=4)
    async with Runtime([Agent("a", model)]) as runtime:
        ref = runtime.spawn("a")
        slow = ref.events()
        assert completed(await soon(ref.run("go"))).text == text
        assert completed(await soon(ref.run("more"))).text == "bye"
        events = await read(slow, runs=2)
        assert_in_order(numbers(events))
        deltas = [event.event for event in events if isinstance(event.event, TextDelta)]
        dropped = [e.event.count for e in events if isinstance(e.event, EventsDropped)]
        assert sum(dropped) + len(deltas) == 3001
        assert sum(dropped) > 0
        assert 100 <= len(deltas) <= 1000
        kept = [delta.n for delta in deltas[:-1]]
        assert kept == list(range(3000 - len(kept), 3000)), "the oldest are dropped"


async def test_a_subscriber_that_raises_harms_nobody() -> None:
    """A6."""
    async with Runtime([Agent("a", ScriptedModel(lambda _: "done"))]) as runtime:
        ref = runtime.spawn("a")
        good = ref.events()

        async def listen() -> None:
            async for _ in ref.events():
                raise ValueError("a bad listener")

        listening = asyncio.ensure_future(listen())
        await soon(ref.run("one"))
        with pytest.raises(ValueError, match="bad listener"):
            await soon(listening)
        assert isinstance(await soon(ref.run("two")), Completed)
        assert numbers(await read(good, runs=2)) != []


async def test_what_a_tool_emits_is_heard_and_not_kept() -> None:
    """A6, T3."""

    @tool
    async def emits(context: ToolContext) -> str:
        context.emit({"progress": 0.5})
        return "ok"

    model = ScriptedModel([call("emits"), "done"])
    async with Runtime([Agent("a", model, tools=[emits])]) as runtime:
        ref = runtime.spawn("a")
        live = ref.events()
        await soon(ref.run("go"))
        heard: list[Any] = [e for e in await read(live) if isinstance(e.event, ToolEmitted)]
        assert [event.seq for event in heard] == [None]
        assert not any(isinstance(e.event, ToolEmitted) for e in await read(ref.events()))


@pytest.mark.slow
async def test_a_subscription_gets_the_events_in_the_order_of_a_stream(place: Place) -> None:
    """A6: an event without a record waits for the commit of what was recorded before it."""

    @tool
    async def loud(context: ToolContext, text: str) -> str:
        context.emit(text)
        return text

    @tool
    def loud_in_a_thread(context: ToolContext, text: str) -> str:
        context.emit(text)
        return text

    def agent() -> Agent:
        replies: list[Any] = [
            ["I look", call("loud", {"text": "1"})],
            call("loud_in_a_thread", {"text": "2"}),
            "all done",
        ]
        return Agent("a", ScriptedModel(replies), tools=[loud, loud_in_a_thread])

    streamed = [e.kind async for e in agent().stream("go") if not isinstance(e, OUTCOMES)]
    async with Runtime([agent()], store=place.store()) as runtime:
        ref = runtime.spawn("a")
        subscription = ref.events()
        await soon(ref.run("go"))
        events = [event.event for event in await read(subscription)]
    assert [e.kind for e in events if not isinstance(e, StatusChanged)] == streamed


async def test_looking_at_an_agent_tells_nothing_of_a_run() -> None:
    async with Runtime([Agent("a", ScriptedModel([]))]) as runtime:
        ref = runtime.spawn("a")
        await soon(ref.state())
        subscription = ref.events()
        await soon(ref.state())
        subscription.close()
        assert [event async for event in subscription] == []
