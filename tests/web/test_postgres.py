"""The pages of a store in PostgreSQL."""

from __future__ import annotations

import pytest

from tests.support.postgres import Hosts
from tests.support.web_site import Done, asked, desk, logged_in, refund, rest, site_of
from tests.web.test_live import opened
from understudy import Runtime
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
