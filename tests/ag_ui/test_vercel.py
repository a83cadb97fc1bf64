"""Vercel's AI stream over the same feed: approvals in parts of messages, and what is refused.

Rules: U10, U11.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.ag_ui_client import Client, by_header, events_in, working
from tests.support.agents import Held, by_turn
from tests.support.loops import soon, until
from tests.support.odd_values import LAST, emit_odd_values
from understudy import (
    Agent,
    Interrupt,
    Runtime,
    ScriptedModel,
    ToolContext,
    UsageError,
    call,
    tool,
)
from understudy.ag_ui import vercel
from understudy.middleware import SubAgent

Chunks = list[dict[str, Any]]


class Chat:
    """A client, and what its tool has done."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def agent(self, *turns: Any, name: str = "desk", **options: Any) -> Agent:
        @tool
        def refund(order_id: str) -> str:
            """Pay money back."""
            self.done.append(order_id)
            return f"refunded {order_id}"

        return Agent(
            name, by_turn(*turns), tools=[refund], interrupt_on={"refund": True}, **options
        )


def refund(order_id: str = "1") -> Any:
    return call("refund", {"order_id": order_id})


def client_of(runtime: Any, user: str = "ann") -> Client:
    return Client(vercel(runtime, agent="desk", auth=by_header), user)


def user(text: str, id: str = "m1") -> dict[str, Any]:
    return {"id": id, "role": "user", "parts": [{"type": "text", "text": text}]}


async def sent(client: Client, *messages: Any, **more: Any) -> Chunks:
    body = {"id": "t1", "messages": list(messages), "trigger": "submit-message", **more}
    response = await client.post(body)
    assert response.status_code == 200, response.text
    assert response.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert response.text.endswith("data: [DONE]\n\n")
    return events_in(response.text)


def of_type(chunks: Chunks, type: str) -> Chunks:
    return [chunk for chunk in chunks if chunk["type"] == type]


def responded(asked: Mapping[str, Any], approved: bool, **more: Any) -> dict[str, Any]:
    """What the SDK makes of a message when its user has answered."""
    part = {
        "type": "tool-refund",
        "toolCallId": asked["toolCallId"],
        "state": "approval-responded",
        "input": {"order_id": "forged"},
        "approval": {"id": asked["approvalId"], "approved": approved},
        **more,
    }
    return {"id": "a1", "role": "assistant", "parts": [part]}


def why(chunks: Chunks) -> str:
    (error,) = of_type(chunks, "error")
    code: str = error["errorText"].partition(":")[0]
    return code


async def test_a_run_is_a_stream_of_parts() -> None:
    chat = Chat()
    async with Runtime([chat.agent(["Let me see. ", refund()], "Done.")]) as runtime:
        client = client_of(runtime)
        chunks = await sent(client, user("hello"))
        kinds = [chunk["type"] for chunk in chunks]
        assert kinds[:3] == ["start", "start-step", "text-start"]
        assert kinds[-1] == "finish"
        (available,) = of_type(chunks, "tool-input-available")
        assert available["input"] == {"order_id": "1"}
        (asked,) = of_type(chunks, "tool-approval-request")
        assert asked["toolCallId"] == available["toolCallId"]
        (request,) = of_type(chunks, "data-understudy-request")
        assert request["data"]["metadata"]["understudy"]["digest"]
        assert chat.done == []

        chunks = await sent(client, user("hello"), responded(asked, True))
        (output,) = of_type(chunks, "tool-output-available")
        assert output == {
            "type": "tool-output-available",
            "toolCallId": asked["toolCallId"],
            "output": "refunded 1",
        }
        assert chat.done == ["1"]  # and not what the client's history says
        await sent(client, user("hello"), responded(asked, True))
    assert chat.done == ["1"]


async def test_whatever_a_tool_emits_is_told_and_the_stream_goes_on() -> None:
    model = by_turn(call("emit_odd_values"), "Done.")
    async with Runtime([Agent("desk", model, tools=[emit_odd_values])]) as runtime:
        chunks = await sent(client_of(runtime), user("hello"))
    emitted = [chunk["data"]["data"] for chunk in of_type(chunks, "data-understudy-emitted")]
    assert (emitted[0], emitted[-1]) == ({"left": "NaN"}, LAST)
    assert chunks[-1]["type"] == "finish"


async def test_a_rejection_is_told_to_the_model_and_the_client() -> None:
    chat = Chat()
    async with Runtime([chat.agent(refund(), "Then not.")]) as runtime:
        client = client_of(runtime)
        (asked,) = of_type(await sent(client, user("hello")), "tool-approval-request")
        answered = responded(asked, False)
        answered["parts"][0]["approval"]["reason"] = "Too much"
        chunks = await sent(client, answered)
        (made,) = await runtime.get("desk:ann:t1").decisions()
    assert len(of_type(chunks, "tool-output-denied")) == 1
    assert (made.decision.message, made.decision.by) == ("Too much", "ann")
    assert chat.done == []


async def test_other_answers_go_along_as_resume() -> None:
    @tool
    def question(ctx: ToolContext) -> str:
        """Ask."""
        if ctx.resume_value is None:
            raise Interrupt({"question": "Which?"}, schema=int)
        return f"it is {ctx.resume_value}"

    agent = Agent("desk", by_turn(call("question", {}), "Thanks."), tools=[question])
    async with Runtime([agent]) as runtime:
        client = client_of(runtime)
        chunks = await sent(client, user("hello"))
        assert of_type(chunks, "tool-approval-request") == []
        (request,) = of_type(chunks, "data-understudy-request")
        resume = [{"interruptId": request["id"], "status": "resolved", "payload": {"value": 7}}]
        chunks = await sent(client, resume=resume)
    assert of_type(chunks, "tool-output-available")[0]["output"] == "it is 7"


async def test_an_agent_inside_asks_in_the_message_of_the_one_around_it() -> None:
    chat = Chat()
    inner = chat.agent(refund(), "Paid.", name="billing", description="pays")
    task = call("task", {"task_name": "billing", "instructions": "go"})
    agent = Agent("desk", by_turn(task, "All done."), middleware=[SubAgent([inner])])
    async with Runtime([agent]) as runtime:
        client = client_of(runtime)
        chunks = await sent(client, user("hello"))
        (asked,) = of_type(chunks, "tool-approval-request")
        shown = [chunk["toolCallId"] for chunk in of_type(chunks, "tool-input-available")]
        assert shown[-1] == asked["toolCallId"]
        assert shown[0] != asked["toolCallId"]
        chunks = await sent(client, responded(asked, True))
    ended = [chunk["toolCallId"] for chunk in of_type(chunks, "tool-output-available")]
    assert ended == [asked["toolCallId"], shown[0]]
    assert chat.done == ["1"]


@pytest.mark.parametrize("wrong", ["partial", "call", "digest", "unknown", "new", "forged"])
async def test_a_wrong_answer_runs_nothing(wrong: str) -> None:
    chat = Chat()
    async with Runtime([chat.agent([refund("1"), refund("2")], "Done.")]) as runtime:
        client = client_of(runtime)
        first, second = of_type(await sent(client, user("hello")), "tool-approval-request")
        both = responded(first, True)
        both["parts"] += responded(second, True)["parts"]
        bad: Any = [both]
        match wrong:
            case "partial":
                bad, code = [responded(first, True)], "PartialResume"
            case "call":
                both["parts"][0]["toolCallId"] = second["toolCallId"]
                code = "RequestChanged"
            case "digest":
                both["parts"][0]["approval"]["id"] = first["approvalId"][:-1] + "x"
                code = "RequestChanged"
            case "unknown":
                both["parts"][0]["approval"]["id"] = "no"
                code = "UnknownInterrupt"
            case "new":
                bad, code = [both, user("never mind", "m2")], "InterruptsPending"
            case _:
                both["parts"][0]["state"] = "output-available"
                both["parts"][0]["output"] = "refunded"
                code = "PartialResume"
        assert why(await sent(client, *bad)) == code
        assert chat.done == []
        assert len((await runtime.get("desk:ann:t1").state()).requests) == 2


async def test_a_reply_that_is_being_written_goes_on_for_who_comes_back() -> None:
    held = Held()
    agent = Agent("desk", by_turn(["Now. ", call("work", {})], "Done."), tools=[working(held)])
    async with Runtime([agent]) as runtime:
        client = client_of(runtime)
        assert (await client.http.get("/t1/stream")).status_code == 204
        running = asyncio.create_task(sent(client, user("hello")))
        await soon(held.entered.wait())
        ref = runtime.get("desk:ann:t1")

        async def back() -> Any:
            return await client.http.get("/t1/stream")

        again = asyncio.create_task(back())
        await until(lambda: ref.subscribers() > 1)
        held.release.set()
        await soon(running)
        response = await soon(again)
        assert (await client.http.get("/t1/stream")).status_code == 204
    chunks = events_in(response.text)
    assert "".join(chunk["delta"] for chunk in of_type(chunks, "text-delta")) == "Now. Done."
    assert of_type(chunks, "tool-output-available")[0]["output"] == "worked"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"id": 1, "messages": []},
        {"id": "t1", "messages": [{"role": "user", "parts": []}]},
        {"id": "t1", "messages": [], "trigger": "regenerate-message"},
        {"id": "t1", "messages": [{"id": "m", "role": "tool", "parts": []}]},
        {
            "id": "t1",
            "messages": [
                {"id": "a", "role": "assistant", "parts": [{"state": "approval-responded"}]}
            ],
        },
        {
            "id": "t1",
            "messages": [
                {
                    "id": "m",
                    "role": "user",
                    "parts": [{"type": "file", "url": "file:///x", "mediaType": "image/png"}],
                }
            ],
        },
    ],
)
async def test_a_body_that_is_none_of_the_protocol_is_refused(body: Any) -> None:
    async with Runtime([Chat().agent("Hi.")]) as runtime:
        response = await client_of(runtime).post(body)
        assert response.status_code == 400
        assert [info async for info in runtime.agents()] == []


def test_a_login_is_needed() -> None:
    with pytest.raises(UsageError, match="auth"):
        vercel(lambda: None, agent="desk")  # type: ignore[arg-type, return-value]


async def test_a_run_that_is_paused_says_so_whenever_it_is_asked_for() -> None:
    async with Runtime([Chat().agent("Hi.")]) as runtime:
        await runtime.spawn("desk", id="desk:ann:t1").pause("tea")
        for _ in range(2):
            (told,) = of_type(
                await sent(client_of(runtime), user("hello")), "data-understudy-paused"
            )
            assert told["data"] == {"reason": "tea"}


@pytest.mark.slow
async def test_a_server_that_stops_does_not_end_the_stream_as_if_the_run_were_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """U11."""
    held = Held("done")
    async with Runtime([Agent("desk", ScriptedModel(held))]) as runtime:
        stream = asyncio.create_task(
            client_of(runtime).post({"id": "t1", "messages": [user("go")]})
        )
        await soon(held.entered.wait())
        monkeypatch.setattr("sse_starlette.sse.AppStatus.should_exit", True)
        response = await soon(stream)
        held.release.set()
        (error,) = [chunk for chunk in events_in(response.text) if chunk["type"] == "error"]
        assert error["errorText"].startswith("ServerStops: ")
