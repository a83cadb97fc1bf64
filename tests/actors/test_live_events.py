"""Events without a record come to those who follow the agent at another host, for as long (J35)."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from tests.support.agents import completed, desk
from tests.support.held_commits import held_answers, turns
from tests.support.hosts import deaf_to, host, may_be_taken, noted_hints, opened
from tests.support.loops import soon, until
from tests.support.postgres import Hosts
from understudy import Agent, ScriptedModel, ToolContext, call, tool
from understudy.actors import AgentEvent, EventsDropped, Subscription
from understudy.actors.agent.events import EventLog, OnEventsRead, StoredEvents
from understudy.actors.hosts import live_events as live
from understudy.display import Row
from understudy.events import ReplyEnded, ReplyStarted, RunFinished, TextDelta, ToolEmitted
from understudy.journal.chunks import Chunks, chunks_of
from understudy.journal.database_store import DatabaseStore
from understudy.journal.shared import hint_of

Pieces = AsyncIterator[str | DeltaToolCalls]


@tool
async def again() -> str:
    """Nobody follows yet."""
    return "again"


def followed(stream: Callable[[], Pieces]) -> Agent:
    """It calls a tool until somebody follows; then it streams."""

    def unheard(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([ToolCallPart("again", {})])

    def streamed(messages: list[ModelMessage], info: AgentInfo) -> Pieces:
        return stream()

    return Agent(
        "desk", FunctionModel(unheard, stream_function=streamed), tools=[again], max_runs=100_000
    )


class Speech:
    """Streams text in pieces, and waits before the last one."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces
        self.release = asyncio.Event()

    async def __call__(self) -> Pieces:
        for piece in self.pieces[:-1]:
            yield piece
        await self.release.wait()
        yield self.pieces[-1]


def sends(store: DatabaseStore) -> list[tuple[float, float]]:
    """When each batch of a host began to be sent, and when that was done."""
    sent: list[tuple[float, float]] = []
    shared: Any = store.shared
    send = shared.send

    async def timed(texts: Any) -> None:
        began = asyncio.get_running_loop().time()
        await send(texts)
        sent.append((began, asyncio.get_running_loop().time()))

    shared.send = timed
    return sent


async def deltas(events: Subscription, count: int) -> list[str]:
    """The next texts."""
    texts: list[str] = []
    async for each in events:
        if isinstance(each.event, TextDelta):
            texts.append(each.event.text)
            if len(texts) == count:
                break
    return texts


async def to_the_end(events: Subscription) -> list[AgentEvent]:
    found: list[AgentEvent] = []
    async for each in events:
        found.append(each)
        if isinstance(each.event, RunFinished):
            break
    return found


async def test_text_comes_to_another_host_before_its_reply_has_ended(hosts: Hosts) -> None:
    """J35."""
    speech = Speech("How ", "are ", "you?")
    async with (
        opened(host(hosts, "first"), followed(speech)) as first,
        opened(host(hosts, "second")) as second,
    ):
        events = second.get("t").events()
        run = first.spawn("desk", "t").run("go")
        assert await soon(deltas(events, 2)) == ["How ", "are "]
        assert not run.done()
        speech.release.set()
        rest = await soon(to_the_end(events))
        (reply,) = [each.event for each in rest if isinstance(each.event, ReplyEnded)]
        assert [part.content for part in reply.response.parts if isinstance(part, TextPart)] == [
            "How are you?"
        ]
        assert completed(await soon(run)).text == "How are you?"


@pytest.mark.slow
@pytest.mark.quick
async def test_events_at_another_host_come_in_the_order_of_those_of_the_owner(
    hosts: Hosts,
) -> None:
    """J35."""
    heard = asyncio.Event()

    async def stream() -> Pieces:
        yield "Hm, "
        yield "hm. "
        if not heard.is_set():
            yield {1: DeltaToolCall(name="again", json_args="{}", tool_call_id="a")}

    async with (
        opened(host(hosts, "first"), followed(stream)) as first,
        opened(host(hosts, "second")) as second,
    ):
        ref = first.spawn("desk", "t")
        there, here = second.get("t").events(), ref.events()
        # Read at once: what waits for its reader is bounded.
        all_of_owner = asyncio.ensure_future(to_the_end(here))
        await soon(ref.send("go"))
        got: list[AgentEvent] = []

        async def listen() -> None:
            async for each in there:
                got.append(each)
                # The first text may be of a reply that had begun before anyone followed it.
                begun = any(isinstance(had.event, ReplyStarted) for had in got)
                if begun and isinstance(each.event, TextDelta):
                    break

        await soon(listen())
        heard.set()
        got += await soon(to_the_end(there))
        own = await soon(all_of_owner)

    assert [each for each in got if each.seq is not None] == [
        each for each in own if each.seq is not None
    ]
    there_and_here = [each for each in got if not isinstance(each.event, EventsDropped)]
    assert [each for each in there_and_here if each not in own] == []
    events = iter(own)
    assert all(each in events for each in there_and_here), "in the order of the owner's"
    assert {"reply_started", "text_delta"} <= {each.event.kind for each in got}


async def test_text_keeps_its_place_where_a_host_begins_to_follow_during_a_commit(
    hosts: Hosts,
) -> None:
    """J35: the text waits for the commit, and the records behind the text are made already."""
    backend = hosts.new("first")
    may_answer = held_answers(backend, "result")
    has_spoken, heard, replies = asyncio.Event(), asyncio.Event(), itertools.count(1)

    async def stream() -> Pieces:
        number = next(replies)
        yield f"{number}."
        if number < 3:
            yield {1: DeltaToolCall(name="again", json_args="{}", tool_call_id=f"{number}")}
        if number == 2:
            has_spoken.set()
        if number == 3:
            await heard.wait()

    store = DatabaseStore(backend)
    hints = noted_hints(store)
    async with (
        opened(store, followed(stream)) as first,
        opened(host(hosts, "second")) as second,
    ):
        ref = first.spawn("desk", "t")
        own = asyncio.ensure_future(to_the_end(ref.events()))
        await soon(ref.send("go"))
        await soon(has_spoken.wait())
        await turns()  # its reply and its call are recorded
        found: list[AgentEvent] = []
        async for each in second.get("t").events():
            found.append(each)
            if isinstance(each.event, ReplyEnded) and not may_answer.is_set():
                await until(lambda: any(hint.startswith("follow") for hint in hints))
                may_answer.set()
            if isinstance(each.event, TextDelta) and each.event.text == "3.":
                heard.set()
            if isinstance(each.event, RunFinished):
                break
        events = iter(await soon(own))
        assert all(each in events for each in found), "in the order of the owner's"
        assert heard.is_set()


async def test_nothing_is_sent_of_an_agent_that_nobody_follows_elsewhere(hosts: Hosts) -> None:
    """J35."""
    stores = host(hosts, "first"), host(hosts, "second")
    sent = [sends(store) for store in stores]
    agent = Agent("desk", ScriptedModel(["How are you?", "Well."]))
    async with opened(stores[0], agent) as first, opened(stores[1], agent) as second:
        ref = first.spawn("desk", "t")
        completed(await soon(ref.run("go")))
        events = ref.events()
        completed(await soon(ref.run("on")))
        assert "Well." in "".join(await soon(deltas(events, 1)))
        assert completed(await soon(second.get("t").outcome())).text == "Well."  # type: ignore[arg-type]
    assert sent == [[], []]


async def test_a_host_sends_at_most_ten_batches_a_second(hosts: Hosts) -> None:
    store = host(hosts, "first")
    sent = sends(store)

    async def chatter() -> Pieces:
        while len(sent) < 4:
            yield "x"
            await asyncio.sleep(0)

    async with (
        opened(store, followed(chatter)) as first,
        opened(host(hosts, "second")) as second,
    ):
        events = second.get("t").events()
        await soon(first.spawn("desk", "t").run("go"))
        assert await soon(deltas(events, 100)) == ["x"] * 100
    pauses = [began - ended for (_, ended), (began, _) in pairwise(sent)]
    assert min(pauses) >= live.PAUSE - 0.001


async def test_nothing_is_sent_any_more_when_a_follower_has_gone_away(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LIFE", 0.6)
    monkeypatch.setattr(live, "RENEWAL", 0.3)
    was_followed = False

    def unheard(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if was_followed:
            return ModelResponse([TextPart("Nobody listens.")])
        return ModelResponse([ToolCallPart("again", {})])

    async def heard(messages: list[ModelMessage], info: AgentInfo) -> Pieces:
        nonlocal was_followed
        was_followed = True
        yield "Hm. "
        yield {1: DeltaToolCall(name="again", json_args="{}", tool_call_id="a")}

    model = FunctionModel(unheard, stream_function=heard)
    agent = Agent("desk", model, tools=[again], max_runs=100_000)
    async with (
        opened(host(hosts, "first"), agent) as first,
        opened(host(hosts, "second")) as second,
    ):
        events = second.get("t").events()
        run = first.spawn("desk", "t").run("go")
        assert await soon(deltas(events, 1)) == ["Hm. "]
        events.close()
        assert completed(await soon(run)).text == "Nobody listens."


async def test_large_pieces_come_whole_and_what_is_too_large_is_told(hosts: Hosts) -> None:
    dice = random.Random(1)  # what it makes cannot be compressed
    large = "".join(chr(dice.randrange(0x4E00, 0x9FFF)) for _ in range(20_000))
    speech = Speech("a", large, "b" * live.MOST_SENT, "c", "d")
    async with (
        opened(host(hosts, "first"), followed(speech)) as first,
        opened(host(hosts, "second")) as second,
    ):
        events = second.get("t").events()
        run = first.spawn("desk", "t").run("go")
        assert await soon(deltas(events, 2)) == ["a", large]
        async for each in events:
            if isinstance(each.event, EventsDropped):
                break
        assert each.event == EventsDropped(count=1)
        assert await soon(deltas(events, 1)) == ["c"]
        speech.release.set()
        text = completed(await soon(run)).text
        assert text == "a" + large + "b" * live.MOST_SENT + "cd"


@pytest.mark.quick
async def test_what_a_tool_emits_comes_to_another_host(hosts: Hosts) -> None:
    heard = asyncio.Event()
    endless: list[Any] = []
    endless.append(endless)

    @tool
    async def count(context: ToolContext) -> str:
        while not heard.is_set():
            context.emit(endless)
            context.emit({"done": 1, "of": object()})
            await asyncio.sleep(0)
        return "counted"

    agent = Agent("desk", ScriptedModel([call("count"), "done"]), tools=[count])
    async with (
        opened(host(hosts, "first"), agent) as first,
        opened(host(hosts, "second")) as second,
    ):
        events = second.get("t").events()
        run = first.spawn("desk", "t").run("go")

        async def emitted() -> ToolEmitted:
            async for each in events:
                if isinstance(each.event, ToolEmitted) and isinstance(each.event.data, dict):
                    return each.event
            raise AssertionError("it has ended")

        event = await soon(emitted())
        heard.set()
        assert (event.tool_name, event.data["done"]) == ("count", 1)
        assert isinstance(event.data["of"], str), "as JSON has it"
        completed(await soon(run))


def taken(rows: dict[str, Row], changed: tuple[Row, ...], *, reset: bool) -> dict[str, Row]:
    kept = {} if reset else dict(rows)
    kept.update((row.id, row) for row in changed)
    return {id: row for id, row in kept.items() if row.state != "void"}


async def test_a_screen_at_another_host_streams_and_comes_to_the_rows_of_the_owner(
    hosts: Hosts,
) -> None:
    speech = Speech("How ", "are ", "you?")
    async with (
        opened(host(hosts, "first"), followed(speech)) as first,
        opened(host(hosts, "second")) as second,
    ):
        screen = second.get("t").display_events()
        here = first.spawn("desk", "t")
        run = here.run("go")
        rows: dict[str, Row] = {}
        streamed: list[str] = []

        async def watch() -> None:
            nonlocal rows
            async for update in screen:
                rows = taken(rows, update.rows, reset=update.reset)
                streamed.extend(row.text for row in rows.values() if row.state == "streaming")
                if streamed and streamed[-1] == "How are ":
                    speech.release.set()
                if any(row.text == "How are you?" and row.state == "done" for row in rows.values()):
                    break

        await soon(watch())
        completed(await soon(run))
        assert all("How are you?".startswith(text) for text in streamed)
        shown = {row.id: row for row in (await soon(here.display())).rows}
        assert rows == shown


async def test_text_of_a_host_that_has_lost_the_agent_does_not_mix_with_that_of_the_next(
    hosts: Hosts,
) -> None:
    old, new = Speech("old ", "text ", "lost"), Speech("new ", "end")
    async with (
        opened(host(hosts, "second")) as second,
        opened(host(hosts, "third"), followed(new)) as third,
        opened(host(hosts, "first"), followed(old)) as first,
    ):
        events, screen = second.get("t").events(), second.get("t").display_events()
        lost = first.spawn("desk", "t").run("go")
        assert await soon(deltas(events, 2)) == ["old ", "text "]
        hosts.end_lease("first")
        run = third.get("t").outcome()
        assert await soon(deltas(events, 1)) == ["new "]
        old.release.set()  # it does not know yet
        stale = TextDelta(agent_path=("desk",), turn=0, attempt=2, n=9, text="stale ")
        data = {"kind": stale.kind, **asdict(stale)}
        ((last,),) = hosts.sql("SELECT last_seq FROM agents")
        incarnation = epoch = relay = 1
        sent = ["t", incarnation, epoch, relay, 9, last, data]
        for text in chunks_of("live", 1, 999, [sent]):
            hosts.sql("SELECT pg_notify(channel, %s) FROM hosts WHERE name = 'second'", text)
        new.release.set()
        assert completed(await soon(run)).text == "new end"  # type: ignore[arg-type]
        rest = await soon(to_the_end(events))
        lost_texts = {*old.pieces, "stale "}
        assert not [each for each in rest if getattr(each.event, "text", "") in lost_texts]
        assert completed(await soon(lost)).text == "new end"

        rows: dict[str, Row] = {}

        async def watch() -> None:
            nonlocal rows
            async for update in screen:
                rows = taken(rows, update.rows, reset=update.reset)
                if any(row.text == "new end" for row in rows.values()):
                    break

        await soon(watch())
        assert [row.text for row in rows.values() if row.kind == "text"] == ["new end"]


async def test_a_host_that_wakes_an_agent_knows_who_follows_it(hosts: Hosts) -> None:
    """It was told while the agent was at rest: no call of a model goes by unheard."""
    unheard_calls: list[str] = []
    streamed, may_end = asyncio.Event(), asyncio.Event()

    def unheard(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        unheard_calls.append("one")
        return ModelResponse([TextPart("unheard")])

    async def heard(messages: list[ModelMessage], info: AgentInfo) -> Pieces:
        yield "heard"
        streamed.set()
        await may_end.wait()  # what comes after the end of its reply is not shown

    async def until_heard(agent_id: str) -> None:
        streamed.clear()
        may_end.set()
        while not streamed.is_set():  # the hint is on its way
            completed(await soon(first.get(agent_id).run("go")))
        may_end.clear()

    stores = host(hosts, "first"), host(hosts, "second")
    agent = Agent("a", FunctionModel(unheard, stream_function=heard))
    async with opened(stores[0], agent) as first, opened(stores[1]) as second:
        for probe in ("probe", "last"):
            first.spawn("a", probe)
        of_probe = second.get("probe").events()
        await until_heard("probe")  # so the first host hears what hosts say
        of_b, of_last = second.get("b").events(), second.get("last").events()
        await until_heard("last")  # which is said with what is said of the other, or after it
        unheard_calls.clear()
        run = first.spawn("a", "b").run("go")
        assert await soon(deltas(of_b, 1)) == ["heard"]
        may_end.set()
        completed(await soon(run))
        assert unheard_calls == []
        of_probe.close()
        of_last.close()


async def test_events_end_where_an_agent_that_was_only_heard_of_is_deleted(hosts: Hosts) -> None:
    """It came and went between two looks at its row."""
    store = host(hosts, "second")
    find, may_look = store.find_agents, asyncio.Event()

    async def find_agents(ids: Any) -> Any:
        await may_look.wait()
        return await find(ids)

    store.find_agents = find_agents  # type: ignore[misc, method-assign, assignment]  # it waits
    speech = Speech("How ", "are ", "you?")
    async with (
        opened(host(hosts, "first"), followed(speech)) as first,
        opened(store) as second,
    ):
        events = second.get("t").events()
        run = first.spawn("desk", "t").run("go")
        assert await soon(deltas(events, 2)) == ["How ", "are "]
        speech.release.set()
        completed(await soon(run))
        assert await soon(first.delete("t"))
        may_look.set()

        async def rest() -> list[AgentEvent]:
            return [event async for event in events]

        await soon(rest())


class Stored:
    """A subscription whose reads of the store are answered by the test."""

    def __init__(self) -> None:
        self.reads: list[tuple[int, OnEventsRead]] = []
        self.log = EventLog("t", threading.Lock())
        self.events = self.log.subscribe(
            0, lambda after, read: self.reads.append((after, read)), loop=asyncio.get_running_loop()
        )

    def read(self, *numbers: int, last: int, path: tuple[str, ...] = ("desk",)) -> int:
        """The store has replies of these numbers. Returns after which number it was asked."""
        reply = ReplyEnded(agent_path=path, turn=0, response=ModelResponse([]))
        stored = [AgentEvent(agent_id="t", seq=number, event=reply) for number in numbers]
        after, on_read = self.reads.pop(0)
        on_read(StoredEvents([each for each in stored if (each.seq or 0) > after], last))
        return after

    def hear(self, behind: int, text: str, path: tuple[str, ...] = ("desk",)) -> None:
        """Another host has sent this text, which it emitted behind a record."""
        delta = TextDelta(agent_path=path, turn=0, attempt=1, n=0, text=text)
        self.log.emit(delta, behind)

    def told(self) -> list[int | str | None]:
        """The numbers of records and the texts, in the order of a subscriber."""
        self.events.close()
        return [getattr(each.event, "text", each.seq) for each in self.events]


async def test_text_of_another_host_waits_for_the_records_before_it() -> None:
    stored = Stored()
    stored.read(1, last=1)
    stored.hear(3, "a")
    stored.hear(3, "b")
    assert stored.read(2, 3, last=3) == 1
    assert stored.reads == []
    assert stored.told() == [1, 2, 3, "a", "b"]


async def test_text_of_another_host_is_put_between_the_records_that_are_read() -> None:
    stored = Stored()
    stored.hear(1, "a")
    stored.hear(2, "b")
    stored.hear(4, "d")
    stored.read(1, 2, 3, last=3)
    assert stored.read(4, last=4) == 3, "what the store did not have yet is read again"
    assert stored.told() == [1, "a", 2, "b", 3, 4, "d"]


async def test_text_of_another_host_that_comes_after_its_reply_is_void() -> None:
    stored = Stored()
    stored.read(1, last=1)
    stored.hear(1, "a")
    stored.log.catch_up(2)
    stored.hear(1, "while the reply is read")
    stored.read(2, last=2)
    stored.hear(1, "late")
    stored.hear(1, "late, of an agent inside", ("desk", "clerk"))
    stored.hear(2, "b")
    stored.log.catch_up(3)
    stored.read(3, last=3, path=("desk", "clerk"))
    stored.hear(2, "c")
    stored.hear(2, "late, of the clerk", ("desk", "clerk"))
    assert stored.told() == [1, "a", "while the reply is read", 2, "b", 3, "c"]


async def test_a_store_that_lacks_what_another_host_told_is_believed() -> None:
    stored = Stored()
    stored.read(1, last=1)
    stored.hear(5, "a")
    stored.read(last=1)
    assert stored.reads == []
    assert stored.told() == [1, "a"]


async def test_a_chunk_that_comes_twice_brings_its_content_once() -> None:
    content = {"text": "".join(map(chr, range(0x4E00, 0x4E00 + 9_000)))}
    pieces = [hint_of(text) for text in chunks_of("live", 7, 1, content)]
    received = Chunks()
    assert len(pieces) > 1
    brought = [received.add(piece) for piece in [*pieces, *pieces] if piece is not None]
    assert [each for each in brought if each is not None] == [content]


async def test_content_of_which_a_chunk_is_lost_is_lost() -> None:
    large = "".join(map(chr, range(0x4E00, 0x4E00 + 9_000)))
    first, *_ = [hint_of(text) for text in chunks_of("live", 7, 1, large)]
    (second,) = [hint_of(text) for text in chunks_of("live", 7, 2, "small")]
    received = Chunks()
    assert first is not None
    assert second is not None
    assert received.add(first) is None
    assert received.add(second) == "small"


async def test_events_of_another_host_come_though_this_one_takes_the_agent(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J34: between two looks at what the other host records, and it records nothing itself."""
    here, there, may_look = host(hosts, "here"), host(hosts, "there"), asyncio.Event()
    find = there.find_agents

    async def late(agent_ids: Any) -> Any:
        if isinstance(agent_ids, set):  # all that are followed; who claims an agent looks for one
            await may_look.wait()
        return await find(agent_ids)

    monkeypatch.setattr(there, "find_agents", late)
    deaf_to(there, "live")
    async with (
        opened(here, desk("one", "two")) as first,
        opened(there, desk("never")) as second,
    ):
        ref, other = first.spawn("desk", "t"), second.get("t")
        completed(await soon(ref.run("go")))
        finished = asyncio.create_task(runs_finished(other.events(), 2))
        await soon(until(lambda: other.subscribers() == 1))
        await turns()
        completed(await soon(ref.run("again")))
        await may_be_taken(hosts)
        assert not await soon(other.cancel_message("none"))
        may_look.set()
        await soon(finished)


async def runs_finished(subscription: Subscription, count: int) -> None:
    """Return when so many runs have finished by these events."""
    async for event in subscription:
        count -= isinstance(event.event, RunFinished)
        if not count:
            return
