"""A frontend talks to agents of a cluster as to those of a runtime."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import httpx

from tests.support.ag_ui_client import Client, answer, by_header, of_type, said, text_of
from tests.support.loops import soon, until
from understudy import Runtime
from understudy.actors import WaitRoute
from understudy.ag_ui import ag_ui


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


async def test_somebody_outside_answers_a_wait_over_http(runtime: Runtime, tmp_path: Path) -> None:
    path = tmp_path / "token"
    run = runtime.spawn("desk").run(f"outside {path}")
    await soon(until(path.exists))
    transport = httpx.ASGITransport(WaitRoute(runtime))
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        for token, status in (("no-token", 404), (path.read_text(), 200), (path.read_text(), 200)):
            answer = await soon(client.post(f"/{token}", json={"paid": 20}))
            assert answer.status_code == status
    assert (await soon(run)).explain().startswith("Completed")
