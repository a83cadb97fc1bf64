"""A frontend talks to agents of a cluster as to those of a runtime."""

from __future__ import annotations

from uuid import uuid4

from tests.support.ag_ui_client import Client, answer, by_header, of_type, said, text_of
from understudy import Runtime
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
