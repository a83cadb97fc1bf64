"""The pages of a store in PostgreSQL."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.support.postgres import Hosts, Server
from tests.support.web_site import Done, asked, desk, logged_in, refund, rest, site_of
from tests.support.web_stream import opened
from understudy import Observer, Runtime, Status
from understudy.journal import DatabaseStore
from understudy.web import ui


@pytest.mark.postgres
async def test_a_live_inbox_in_postgres_shows_what_is_asked_and_that_it_is_answered(
    hosts: Hosts,
) -> None:
    done = Done()
    agent = desk(done, [refund("1"), refund("2")], "ok")
    async with (
        Runtime([agent], store=DatabaseStore(hosts.new()), feed=True) as runtime,
        site_of(runtime) as client,
        opened(ui(runtime, auth=logged_in()), "/live") as stream,
    ):
        assert "Nothing waits" in (await stream.next())["data"]
        ref = await asked(runtime)
        shown = ""
        while "0 of 2 answered" not in shown:
            shown = (await stream.next())["data"]
        for request in (await client.get("/api/pending")).json()["requests"]:
            body = {
                "decisions": {request["id"]: {"type": "approve"}},
                "expect": {request["id"]: request["digest"]},
            }
            answer = await client.post("/api/agents/a1/decisions", json=body)
            assert answer.status_code == 200, answer.text
        while "Nothing waits" not in shown:
            shown = (await stream.next())["data"]
        await rest(ref)
    assert len(done.calls) == 2


@pytest.mark.postgres
@pytest.mark.slow
async def test_open_pages_outlive_a_postgres_that_is_stopped_and_started(
    postgres_server: Server,
) -> None:
    done = Done()
    agent = desk(done, refund("1"), "ok")
    hosts = Hosts(postgres_server.url)
    store = DatabaseStore(hosts.new(), patience=0.01)
    async with (
        Runtime([agent], store=store, feed=True) as runtime,
        site_of(runtime) as client,
        opened(ui(runtime, auth=logged_in()), "/live") as stream,
    ):
        assert "Nothing waits" in (await stream.next())["data"]
        await asyncio.to_thread(postgres_server.crash)
        try:
            assert (await stream.next())["event"] == "away"
            page = await client.get("/")
            assert (page.status_code, '<meta http-equiv="refresh"' in page.text) == (503, True)
            assert "The store does not answer now" in page.text
            answer = await client.get("/api/pending")
            assert (answer.status_code, answer.json()["error"]) == (503, "StoreUnavailable")
        finally:
            await asyncio.to_thread(postgres_server.start)
        assert (await stream.next())["event"] == "back"
        # A write does not wait for its connection here: who sends tries again.
        body = {"text": "go", "agent": "desk", "message_id": "m1"}
        async with asyncio.timeout(60):
            while (await client.post("/api/agents/a1/messages", json=body)).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        ref = runtime.get("a1")
        await rest(ref, Status.INTERRUPTED)
        # The same connection tells of it.
        assert 'class="ask"' in (await stream.next())["data"]
        (request,) = (await client.get("/api/pending")).json()["requests"]
        form = {"decision": "approve", "digest": request["digest"]}
        sent = await client.post(f"/agents/a1/requests/{request['id']}", data=form)
        assert sent.status_code == 303
        await rest(ref)
    assert len(done.calls) == 1
    hosts.close()


@pytest.mark.postgres
@pytest.mark.parametrize("look", ["at a runtime", "beside it"])
async def test_pages_tell_ages_and_expiries_by_the_time_of_the_store(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    """J21: a machine whose clock is three hours fast calls nothing over that waits."""
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 3 * 3600)
    agent = desk(Done(), refund("1"), "ok", gate={"expires_after": 3600.0})
    async with (
        Runtime([agent], store=DatabaseStore(hosts.new())) as runtime,
        Observer(DatabaseStore(hosts.new("look"))) as observer,
    ):
        source: Runtime | Observer = runtime if look == "at a runtime" else observer
        assert (await source.now()).timestamp() == pytest.approx(right() - 3 * 3600, abs=60)
        await asked(runtime)
        async with site_of(source) as client:
            (request,) = (await client.get("/api/pending")).json()["requests"]
            path = f"/agents/a1/requests/{request['id']}"
            assert (await client.get(f"/api{path}")).json()["is_expired"] is False
            for page in (path, "/"):
                text = (await client.get(page)).text
                assert "just now</time>" in text
                assert "in 1 hour</time>" in text
            assert "just now</time>" in (await client.get("/agents")).text
