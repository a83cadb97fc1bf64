"""Frontends, pages and routes talk to agents of a cluster as to those of a runtime (J61) (U10)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import httpx

from tests.support.ag_ui_client import Client, answer, by_header, of_type, said, text_of
from tests.support.agents import completed
from tests.support.loops import soon
from tests.support.oidc_provider import provider
from tests.support.processes import until
from tests.support.web_site import client_of, site_of
from understudy import Runtime
from understudy.actors import WaitRoute
from understudy.ag_ui import ag_ui
from understudy.trust import Login
from understudy.web import ui


async def test_a_frontend_runs_is_asked_answers_and_comes_back(runtime: Runtime) -> None:
    app = ag_ui(runtime, agent="desk", auth=by_header)
    client = Client(app, thread=uuid4().hex)
    (asked,) = await client.interrupts(said("refund 17"))
    assert asked["metadata"]["understudy"]["arguments"] == {"order_id": "17"}
    refused = await client.events(said("hello", "m2"))
    assert refused[-1]["code"] == "InterruptsPending"
    events = await client.events(resume=[answer(asked, {"approved": True})])
    assert text_of(events) == "done"
    assert len(of_type(events, "TOOL_CALL_RESULT")) == 1
    events = await client.events(said("hello", "m2"))
    assert text_of(events) == "heard hello"
    (snapshot,) = of_type(await client.events(), "MESSAGES_SNAPSHOT")
    assert snapshot["messages"][-1]["content"] == "heard hello"


async def test_who_has_called_by_a_token_is_kept_with_the_message(runtime: Runtime) -> None:
    """V42: at whichever host the agent is."""
    id = uuid4().hex
    with provider() as idp:
        auth = idp.auth(may=frozenset({"read", "act"}))
        async with client_of(ui(runtime, auth=auth), headers=idp.bearer()) as client:
            body = {"text": "hello", "agent": "desk"}
            sent = await client.post(f"/api/agents/{id}/messages", json=body)
            assert sent.status_code == 200, sent.text
        ref = runtime.get(id)
        await soon(ref.outcome())
        assert (await soon(ref.state())).authors == (
            Login(name="ann", issuer=idp.issuer, subject="1", assurance="idp"),
        )


async def test_people_look_and_answer_in_the_pages(runtime: Runtime) -> None:
    ref = runtime.spawn("desk", uuid4().hex)
    await soon(ref.run("refund 17"))
    async with site_of(runtime) as client:
        overview = (await client.get("/api")).json()
        assert overview["in_memory"] >= 1
        assert ref.id in overview["tree"]
        rows = (await client.get("/api/pending")).json()["requests"]
        (row,) = (row for row in rows if row["agent_id"] == ref.id)
        body = {
            "decisions": {row["id"]: {"type": "approve"}},
            "expect": {row["id"]: row["digest"]},
        }
        answered = await client.post(f"/api/agents/{ref.id}/decisions", json=body)
        assert answered.status_code == 200, answered.text
        outcome = await soon(ref.outcome())
        assert outcome is not None
        assert completed(outcome).text == "done"
        for page in ("/", "/agents", f"/agents/{ref.id}"):
            assert (await client.get(page)).status_code == 200


async def test_the_outside_answers_by_its_route(runtime: Runtime, tmp_path: Path) -> None:
    run = runtime.spawn("desk", uuid4().hex).run(f"outside {tmp_path}/token")
    await asyncio.to_thread(until, (tmp_path / "token").exists)
    token = (tmp_path / "token").read_text()
    transport = httpx.ASGITransport(WaitRoute(runtime))
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        assert (await client.post(f"/{token}", json={"paid": 20})).status_code == 200
        assert (await client.post("/none", json={"paid": 20})).status_code == 404
    assert completed(await soon(run)).text == "done"
