"""What is live: a page's part comes again when it has changed, and nothing is missed or doubled.

Rules: U11.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sse_starlette import ServerSentEvent

from tests.support.agents import by_turn
from tests.support.loops import never, own_tasks, skip, soon, until
from tests.support.odd_values import LAST, emit_odd_values, strict_json
from tests.support.places import SqlitePlace
from tests.support.web_site import (
    ALL,
    Done,
    asked,
    client_of,
    desk,
    logged_in,
    only_request,
    refund,
)
from tests.support.web_stream import end_watcher, get, name_of, opened
from understudy import Agent, Runtime, call, reject, tool
from understudy.journal import DatabaseStore, MemoryStore
from understudy.journal.feed import FeedKey, FeedPage
from understudy.login.event_stream import EventStream
from understudy.testing import FaultyBackend
from understudy.web import ui


@pytest.mark.slow
@pytest.mark.parametrize("feed", [True, None])
async def test_a_request_arrives_on_an_open_inbox(
    feed: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the feed of the store, and without it."""
    monkeypatch.setattr("understudy.web.live.POLL", 0.05)
    done = Done()
    async with Runtime([desk(done, refund(), "ok")], feed=feed) as runtime:
        app = ui(runtime, auth=logged_in())
        async with opened(app, "/live") as stream:
            assert "Nothing waits" in (await stream.next())["data"]
            ref = await asked(runtime)
            assert "order_id=17" in (await stream.next())["data"]
            (found,) = await soon(runtime.pending())
            await soon(ref.resume({found.request.id: reject()}))
            assert "Nothing waits" in (await stream.next())["data"]


class LateFeed(MemoryStore):
    """Tells only after a while where its feed begins."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()

    async def read_feed(self, after: FeedKey | None, limit: int) -> FeedPage | None:
        await self.answers.wait()
        return await super().read_feed(after, limit)


@pytest.mark.slow
async def test_what_happens_while_an_open_page_begins_to_follow_is_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("understudy.web.live.SLOWEST", 3600.0)
    monkeypatch.setattr("understudy.web.live.POLL", 3600.0)
    store = LateFeed()
    async with (
        Runtime([desk(Done(), refund(), "ok")], store=store, feed=True) as runtime,
        opened(ui(runtime, auth=logged_in()), "/live") as stream,
    ):
        assert "Nothing waits" in (await stream.next())["data"]
        await asked(runtime)
        store.answers.set()
        assert "order_id=17" in (await stream.next())["data"]


@pytest.mark.slow
async def test_who_comes_back_gets_what_has_changed_and_nothing_twice() -> None:
    done = Done()
    async with Runtime([desk(done, refund(), "ok")], feed=True) as runtime:
        app = ui(runtime, auth=logged_in())
        async with opened(app, "/live") as stream:
            first = await stream.next()
        async with opened(app, "/live", last_event_id=first["id"]) as stream:
            await asked(runtime)  # while nobody looks it may also come: it is told once
            second = await stream.next()
            assert "order_id=17" in second["data"]
        await asked(runtime, id="a2")
        # Another server of the same store knows as well what this browser shows.
        other = ui(runtime, auth=logged_in())
        async with opened(other, f"/live?seen={second['id']}") as stream:
            third = await stream.next()
            assert "a2" in third["data"]
            assert stream.events.empty()


@pytest.mark.slow
async def test_text_that_is_written_now_is_on_the_open_page_of_its_agent() -> None:
    from understudy import Agent, ScriptedModel

    going = asyncio.Event()

    async def slow(request: Any) -> Any:
        await going.wait()
        return "The answer is forty-two."

    async with Runtime([Agent("thinker", ScriptedModel(slow))]) as runtime:
        ref = runtime.spawn("thinker", id="t1")
        running = ref.run("What is it?")
        async with opened(ui(runtime, auth=logged_in()), "/agents/t1/live") as stream:
            while "What is it?" not in (await stream.next())["data"]:
                pass
            going.set()
            while "forty-two" not in (await stream.next())["data"]:
                pass
        await soon(running)


async def test_the_page_of_an_agent_that_is_deleted_ends_its_stream() -> None:
    done = Done()
    async with Runtime([desk(done, refund())], feed=True) as runtime:
        await asked(runtime)
        app = ui(runtime, auth=logged_in())
        async with opened(app, "/agents/a1/timeline/live") as stream:
            await stream.next()
            await soon(runtime.delete("a1"))
        async with opened(app, "/agents/a1/timeline/live") as stream:
            pass  # it has ended by itself


async def test_the_page_of_a_request_is_live_whatever_its_id_begins_with() -> None:
    ids = (f"~{number}" for number in itertools.count())
    async with Runtime([desk(Done(), refund())], new_id=lambda: next(ids)) as runtime:
        await asked(runtime)
        app = ui(runtime, auth=logged_in())
        async with client_of(app) as client:
            (link,) = re.findall(
                r'href="(/agents/a1/requests/[^"]+)"', (await client.get("/")).text
            )
            page = (await client.get(link)).text
        (live,) = re.findall(r'hx-sse:connect="([^"?]+)', page)
        async with opened(app, live) as stream:
            assert "asked" in (await stream.next())["data"]


async def test_the_events_of_the_api_go_on_behind_the_last_one() -> None:
    done = Done()
    async with Runtime([desk(done, refund(), "ok")], feed=True) as runtime:
        ref = await asked(runtime)
        app = ui(runtime, auth=logged_in())
        async with opened(app, "/api/agents/a1/events?after=0") as stream:
            seen: list[dict[str, str]] = []
            while not seen or seen[-1]["event"] != "request_made":
                seen.append(await stream.next())
        assert json.loads(seen[-1]["data"])["event"]["request"]["tool_name"] == "refund"
        async with opened(app, "/api/agents/a1/events", last_event_id=seen[-1]["id"]) as stream:
            await soon(ref.cancel())
            later = await stream.next()
            assert int(later["id"]) > int(seen[-1]["id"])
        async with opened(app, "/api/events") as stream:
            assert (await stream.next())["event"] == "position"
            await asked(runtime, id="a2")
            while (found := await stream.next())["event"] != "request_made":
                pass
            assert json.loads(found["data"])["agent_id"] == "a2"


@pytest.mark.parametrize("path", ["/events", "/conversation/events"])
async def test_whatever_a_tool_emits_is_told_and_the_stream_goes_on(path: str) -> None:
    entered, goes_on = asyncio.Event(), asyncio.Event()

    @tool
    async def hold() -> str:
        entered.set()
        await goes_on.wait()
        return "held"

    model = by_turn(call("hold"), call("emit_odd_values"), "done")
    worker = Agent("worker", model, tools=[hold, emit_odd_values])
    async with Runtime([worker]) as runtime:
        running = runtime.spawn("worker", id="w1").run("go")
        await soon(entered.wait())
        app = ui(runtime, auth=logged_in())
        async with opened(app, f"/api/agents/w1{path}") as stream:
            strict_json((await stream.next())["data"])
            goes_on.set()
            while LAST not in (data := (await stream.next())["data"]):
                strict_json(data)
        await soon(running)


async def test_an_open_page_looks_now_and_then_however_much_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("understudy.web.live.SHORTEST", 3600.0)
    looks = 0

    def count(path: tuple[str | int, ...], value: Any) -> Any:
        nonlocal looks
        looks += not path  # the whole of a page
        return value

    async with Runtime([Agent("talker", by_turn(*["ok"] * 20))], feed=True) as runtime:
        app = ui(runtime, auth=logged_in(), redact=count)
        async with opened(app, "/live") as stream:
            shown = await stream.next()
        async with opened(app, f"/live?seen={shown['id']}") as stream:
            await until(lambda: looks == 2)
            for _ in range(20):  # nothing of it changes what the page shows
                await soon(runtime.spawn("talker", id="t1").run("go"))
    assert looks == 2


@pytest.mark.slow
async def test_a_page_that_cannot_follow_says_so_in_the_log_and_looks_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("understudy.web.live.POLL", 0.02)

    async def broken(visit: Any, signal: asyncio.Event) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("understudy.web.views.conversation.follow", broken)
    async with Runtime([Agent("talker", by_turn("hello", "again"))]) as runtime:
        ref = runtime.spawn("talker", id="t1")
        await soon(ref.run("go"))
        async with opened(ui(runtime, auth=logged_in()), "/agents/t1/live") as stream:
            assert "hello" in (await stream.next())["data"]
            await soon(ref.run("go on"))
            while "again" not in (await stream.next())["data"]:
                pass
    assert "a mistake of ours" in caplog.text


async def test_a_client_that_goes_while_it_is_sent_to_leaves_no_task() -> None:
    begun = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await begun.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if b"data:" in message.get("body", b""):
            begun.set()
            await never()

    async with Runtime([desk(Done(), refund())], feed=True) as runtime:
        await asked(runtime)
        before = own_tasks()
        await soon(ui(runtime, auth=logged_in())(get("/agents/a1/live"), receive, send))
        left = own_tasks() - before
        await end_watcher()
    assert {name_of(task) for task in left} <= {"_shutdown_watcher"}


async def test_a_stream_ends_in_order_also_while_it_is_sent_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sending, goes_on = asyncio.Event(), asyncio.Event()
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)
        if b"data:" in message.get("body", b""):
            sending.set()
            await goes_on.wait()

    monkeypatch.setattr("understudy.login.event_stream.SEND_SECONDS", None)
    async with Runtime([desk(Done(), refund())], feed=True) as runtime:
        await asked(runtime)
        app = ui(runtime, auth=logged_in())
        serving: asyncio.Task[None] = asyncio.create_task(app(get("/live"), never, send))  # type: ignore[arg-type]
        await soon(sending.wait())
        skip(asyncio.get_running_loop(), 301)
        for _ in range(9):  # what the time that has passed ends ends now
            await asyncio.sleep(0)
        goes_on.set()
        await soon(serving)
        await end_watcher()
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_a_stream_whose_events_never_wait_ends_in_time() -> None:
    async def events() -> AsyncGenerator[ServerSentEvent, None]:
        for number in range(9):
            yield ServerSentEvent(number)

    sent = [sent async for sent in EventStream(events(), longest=0.0).body_iterator]

    assert len(sent) == 1  # that it is open


async def test_what_has_ended_when_the_server_stops_ends_as_ever() -> None:
    """What is there is sent; only what is waited for does not come, and the client learns that."""

    async def farewell() -> AsyncGenerator[ServerSentEvent, None]:
        yield ServerSentEvent("farewell")

    async def sent(*, ends: bool) -> list[Any]:
        async def events() -> AsyncGenerator[ServerSentEvent, None]:
            for number in range(3):
                yield ServerSentEvent(number)
            if not ends:
                await never()

        stream = EventStream(events(), farewell=farewell)
        found = []
        async for event in stream.body_iterator:
            found.append(event.data)  # type: ignore[union-attr]
            if len(found) == 1:
                stream.server_stops.set()
                for _ in range(9):  # what the stop ends ends now
                    await asyncio.sleep(0)
        return found

    assert await soon(sent(ends=True)) == [0, 1, 2]
    assert await soon(sent(ends=False)) == [0, 1, 2, "farewell"]


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/live", "/api/events"])
async def test_a_server_that_stops_ends_its_streams_as_complete_answers(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the server logs an error for each open page, and its client one of the connection."""
    async with (
        Runtime([desk(Done(), "ok")], feed=True) as runtime,
        opened(ui(runtime, auth=logged_in()), path) as stream,
    ):
        await stream.next()
        monkeypatch.setattr("sse_starlette.sse.AppStatus.should_exit", True)
        assert await soon(stream.is_whole)


async def test_without_the_feed_its_stream_says_so() -> None:
    async with Runtime() as runtime:
        app = ui(runtime, auth=logged_in("ann", ALL))
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost"
        ) as client:
            answer = await client.get("/api/events")
            assert (answer.status_code, answer.json()["error"]) == (409, "FeedOff")


async def test_a_stream_is_for_who_may_look_alone() -> None:
    async with Runtime() as runtime:
        async with opened(ui(runtime, auth=lambda request: None), "/live") as stream:
            assert await soon(stream.status) == 401
        nobody = logged_in("eve", frozenset())
        async with opened(ui(runtime, auth=nobody), "/live") as stream:
            assert await soon(stream.status) == 403


@pytest.mark.slow
async def test_a_question_and_its_answer_are_told_to_those_who_look() -> None:
    done = Done()
    async with Runtime([desk(done, call("question"), "ok")], feed=True) as runtime:
        await asked(runtime)
        app = ui(runtime, auth=logged_in())
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost:8420"
        ) as client:
            row = await only_request(client)
            page = f"/agents/a1/requests/{row['id']}"
            async with opened(app, f"{page}/live") as stream:
                assert "asked" in (await stream.next())["data"]
                body = {
                    "decisions": {row["id"]: {"type": "respond", "value": "A"}},
                    "expect": {row["id"]: row["digest"]},
                }
                answer = await client.post("/api/agents/a1/decisions", json=body)
                assert answer.status_code == 200
                assert "ann answered it." in (await stream.next())["data"]


async def test_a_stream_outlives_a_store_that_goes_away_for_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("understudy.web.live.POLL", 0.02)
    backend = FaultyBackend(SqlitePlace(tmp_path).backend())
    store = DatabaseStore(backend, patience=0.01)
    done = Done()
    async with Runtime([desk(done, refund())], store=store) as runtime:
        backend.fail("list_asks", times=1 << 30)
        async with opened(ui(runtime, auth=logged_in()), "/live") as stream:
            assert await soon(stream.status) == 200
            await asked(runtime)
            assert await soon(asyncio.to_thread(backend.failed.wait, 60))
            assert (await stream.next())["event"] == "away"
            assert stream.events.empty()
            assert backend.mend()
            assert (await stream.next())["event"] == "back"
            assert 'class="ask"' in (await stream.next())["data"]
