"""What is live: a page's part comes again when it has changed, and nothing is missed or doubled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.faulty import FaultyBackend
from tests.support.loops import soon
from tests.support.places import SqlitePlace
from tests.support.web_site import ALL, Done, asked, desk, logged_in, only_request, refund
from understudy import Runtime, call, reject
from understudy.journal import DatabaseStore
from understudy.web import ui


class Stream:
    """The events of an open stream, as they come."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._text = ""

    def feed(self, chunk: str) -> None:
        self._text += chunk.replace("\r\n", "\n")
        *whole, self._text = self._text.split("\n\n")
        for block in whole:
            found: dict[str, str] = {}
            for line in block.split("\n"):
                name, _, value = line.partition(": ")
                if name:
                    found[name] = found[name] + "\n" + value if name in found else value
            if "data" in found:
                self.events.put_nowait(found)

    async def next(self) -> dict[str, str]:
        return await soon(self.events.get())


@asynccontextmanager
async def opened(app: Any, path: str, **headers: str) -> AsyncIterator[Stream]:
    """A stream of an application in this process. `ASGITransport` would wait for its end."""
    stream = Stream()
    url = httpx.URL(f"http://localhost:8420{path}")
    scope = {
        "type": "http",
        "method": "GET",
        "path": url.path,
        "raw_path": url.raw_path,
        "query_string": url.query,
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
        "server": ("localhost", 8420),
        "client": ("127.0.0.1", 1),
        "headers": [(b"host", b"localhost:8420")]
        + [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()],
    }
    left = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            stream.status.set_result(message["status"])
        else:
            stream.feed(message["body"].decode())

    serving = asyncio.create_task(app(scope, receive, send))
    try:
        yield stream
    finally:
        left.set()
        await soon(serving)
        # One of sse-starlette looks for the end of a server, as long as the loop.
        for task in asyncio.all_tasks():
            if getattr(task.get_coro(), "__name__", "") == "_shutdown_watcher":
                task.cancel()
                await asyncio.wait([task])


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
