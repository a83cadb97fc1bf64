"""What a host hides is hidden in each way in which people see it, by who they are (I17)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from fastmcp.client import Client as McpClient
from fastmcp.client.transports import StreamableHttpTransport

from tests.support.ag_ui_client import ALL, Client, by_header
from tests.support.agents import by_turn, interrupted
from tests.support.loops import soon
from tests.support.web_server import served
from tests.support.web_site import TABS, Done, asked, client_of, desk, only_request, refund
from understudy import Agent, Runtime, UsageError, call, edit, tool
from understudy.ag_ui import ag_ui, vercel
from understudy.login import User
from understudy.login.redaction import Redaction
from understudy.mcp.agents_server import agents_app
from understudy.middleware import HumanInTheLoop
from understudy.web import ui
from understudy.web.api import ENDPOINTS

SECRET = "4711-0815"


def hide(path: tuple[str | int, ...], value: Any, user: User) -> Any:
    """The boss sees all of it."""
    is_secret = isinstance(value, str) and ("reason" in path or SECRET in value)
    hides = is_secret and value[:1] not in ("{", "[")
    return "hidden" if hides and user.name != "boss" else value


async def by_pages(runtime: Runtime, name: str) -> str:
    app = ui(runtime, auth=by_header, redact=hide)
    async with client_of(app, headers={"x-user": name}) as client:
        row = await only_request(client)
        paths = ["/", "/api/pending", "/api/agents/a1/state", "/api/agents/a1/history"]
        paths += [f"/agents/a1/requests/{row['id']}", "/api/agents/a1/export", "/agents/a1/export"]
        return "".join([(await client.get(path)).text for path in paths])


async def by_mcp(runtime: Runtime, name: str) -> str:
    app = agents_app(lambda: runtime, auth=by_header, redact=hide)
    with served(app) as url:
        transport = StreamableHttpTransport(f"{url}/mcp", headers={"x-user": name})
        async with McpClient(transport) as client:
            found = [
                await client.call_tool("list_pending", {}),
                await client.call_tool("read_history", {"agent_id": "a1"}),
            ]
    return json.dumps([each.content[0].text for each in found])


async def by_ag_ui(runtime: Runtime, name: str) -> str:
    app = ag_ui(runtime, agent="desk", auth=by_header, agent_id=lambda *_: "a1", redact=hide)
    body = {"threadId": "t", "runId": "r", "messages": [], "tools": [], "context": [],
            "state": {}, "forwardedProps": {}}  # fmt: skip
    return (await Client(app, name).post(body)).text


async def by_vercel(runtime: Runtime, name: str) -> str:
    app = vercel(runtime, agent="desk", auth=by_header, agent_id=lambda *_: "a1", redact=hide)
    body = {"id": "t", "messages": [], "trigger": "submit-message"}
    return (await Client(app, name).post(body)).text


WAYS = [by_pages, by_mcp, by_ag_ui, by_vercel]


async def by_all_that_can_be_read(runtime: Runtime, name: str) -> str:
    """Pages and API. An export is left out: it is whole, or refused; and what has no end."""
    app = ui(runtime, auth=by_header, redact=hide)
    seen = ""
    with served(app) as url:
        client = httpx.AsyncClient(base_url=url, headers={"x-user": name})
        ids = [each.id for each in (await soon(runtime.get("a1").state())).requests]
        for endpoint in ENDPOINTS:
            ends = endpoint.answer is not None or "follow" in endpoint.query
            if (
                endpoint.method == "GET"
                and ends
                and not endpoint.path.endswith(("/export", "/file"))
            ):
                path = endpoint.path.replace("{agent_id}", "a1")
                for id in ids if "{request_id}" in path else [""]:
                    query = "?follow=0&start=oldest" if endpoint.answer is None else ""
                    if path == "/search":
                        query = "?text=refund"
                    at = f"/api{path.replace('{request_id}', id)}{query}"
                    found = await client.get(at)
                    assert found.status_code == 200, (at, found.text)
                    seen += found.text
        for tab in TABS:
            seen += (await client.get(f"/agents/a1{tab}")).text
        await client.aclose()
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("way", [by_all_that_can_be_read, *WAYS[1:]])
async def test_what_the_digest_of_a_request_is_salted_with_is_seen_nowhere(
    way: Callable[[Runtime, str], Awaitable[str]],
) -> None:
    """I12: who sees a digest and its salt can try each value that a hidden argument may have."""
    async with Runtime([desk(Done(), refund(reason=SECRET))], feed=True, search=True) as runtime:
        await asked(runtime)
        (request,) = (await soon(runtime.get("a1").state())).requests
        seen = await way(runtime, "boss")
        assert len(request.salt) >= 32
        assert request.id in seen
        assert request.salt not in seen
        assert request.salt not in repr(request) + str(request.to_dict())


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
async def test_who_must_not_see_it_sees_it_nowhere_and_who_may_does(
    way: Callable[[Runtime, str], Awaitable[str]],
) -> None:
    """I17."""
    async with Runtime([desk(Done(), refund(reason=SECRET))], feed=True, search=True) as runtime:
        await asked(runtime)
        seen = await way(runtime, "clerk")
        assert SECRET not in seen
        assert "hidden" in seen
        assert SECRET in await way(runtime, "boss")


async def test_the_story_of_a_late_answer_hides_what_its_request_hid() -> None:
    """I17: the 409 had the whole decision, with the arguments that were hidden before."""
    done = Done()
    async with Runtime([desk(done, refund(reason=SECRET), "ok")]) as runtime:
        ref = await asked(runtime)
        app = ui(runtime, auth=by_header, redact=hide)
        async with client_of(app, headers={"x-user": "clerk"}) as client:
            row = await only_request(client)
            changed = edit({"order_id": "17", "amount": 49.9, "reason": SECRET}, by="boss")
            await soon(ref.resume({row["id"]: changed}))
            body = {"decisions": {row["id"]: {"type": "approve"}},
                    "expect": {row["id"]: row["digest"]}}  # fmt: skip
            late = await client.post("/api/agents/a1/decisions", json=body)
            assert late.status_code == 409
            assert late.json()["story"]["decision"]["arguments"]["reason"] == "hidden"
            assert SECRET not in late.text
            item = {"agent_id": "a1", "request_id": row["id"], "digest": row["digest"]}
            many = {"decision": {"type": "reject"}, "requests": [item]}
            assert SECRET not in (await client.post("/api/bulk", json=many)).text


@pytest.mark.parametrize("is_open", [True, False], ids=["its run is open", "its run is over"])
async def test_no_answer_tells_a_guess_of_a_hidden_value_from_another_one(is_open: bool) -> None:
    """I17: the same decision again was a success, and another one was not."""
    turns: list[Any] = [[refund(reason=SECRET), refund("18")] if is_open else refund(reason=SECRET)]
    async with Runtime([desk(Done(), *turns, "ok")]) as runtime:
        ref = await asked(runtime)
        app = ui(runtime, auth=by_header, redact=hide)
        async with client_of(app, headers={"x-user": "clerk"}) as client:
            row = (await client.get("/api/pending")).json()["requests"][0]
            arguments = {"order_id": "17", "amount": 49.9}
            given = {row["id"]: edit({**arguments, "reason": SECRET}, by="boss")}
            await soon(ref.decide(given))
            if not is_open:
                await soon(ref.outcome())

            async def answered(reason: str, name: str = "clerk") -> tuple[int, Any]:
                decision = {"type": "edit", "arguments": {**arguments, "reason": reason}}
                body = {"decisions": {row["id"]: decision}, "expect": {row["id"]: row["digest"]}}
                path, who = "/api/agents/a1/decisions", {"x-user": name}
                found = await client.post(path, json=body, headers=who)
                return found.status_code, found.json()

            right, wrong = await answered(SECRET), await answered("another")
            assert right == wrong
            assert right[0] == 409
            assert (await answered(SECRET, "boss"))[0] == 200
            assert (await answered("another", "boss"))[0] == 409


async def test_a_tool_of_mcp_tells_no_guess_either() -> None:
    async with Runtime([desk(Done(), [refund(reason=SECRET), refund("18")])]) as runtime:
        ref = await asked(runtime)
        first = (await soon(ref.state())).requests[0]
        arguments = {"order_id": "17", "amount": 49.9}
        await soon(ref.decide({first.id: edit({**arguments, "reason": SECRET}, by="boss")}))
        app = agents_app(lambda: runtime, auth=by_header, decisions=True, redact=hide)
        with served(app) as url:
            transport = StreamableHttpTransport(f"{url}/mcp", headers={"x-user": "clerk"})
            async with McpClient(transport) as client:
                told = []
                for reason in (SECRET, "another"):
                    given = {
                        "agent_id": "a1",
                        "request_id": first.id,
                        "digest": first.digest,
                        "decision": "edit",
                        "arguments": {**arguments, "reason": reason},
                    }
                    found = await client.call_tool("decide", given, raise_on_error=False)
                    told.append((found.is_error, found.content[0].text))
        assert told[0] == told[1]
        assert told[0][0]


async def test_who_does_not_see_the_arguments_does_not_replace_them() -> None:
    """What was shown in the place of a hidden value was put in the place of the value."""
    async with Runtime([desk(Done(), refund(reason=SECRET))]) as runtime:
        await asked(runtime)
        app = ui(runtime, auth=by_header, redact=hide)
        async with client_of(app, headers={"x-user": "clerk"}) as client:
            row = await only_request(client)
            decision = {"type": "edit", "arguments": row["arguments"]}
            body = {"decisions": {row["id"]: decision}, "expect": {row["id"]: row["digest"]}}
            refused = await client.post("/api/agents/a1/decisions", json=body)
            assert (refused.status_code, refused.json()["error"]) == (403, "NotAllowed")
        assert len(await soon(runtime.pending())) == 1


@pytest.mark.parametrize("wrong", ["reason", 1, lambda: None, lambda a, b, c, d: None])
def test_what_cannot_hide_a_value_is_refused(wrong: Any) -> None:
    ways: tuple[Callable[[], Any], ...] = (
        lambda: ui(Runtime([]), auth=by_header, redact=wrong),
        lambda: agents_app(lambda: Runtime([]), auth=by_header, redact=wrong),
        lambda: ag_ui(Runtime([]), agent="desk", auth=by_header, redact=wrong),
        lambda: vercel(Runtime([]), agent="desk", auth=by_header, redact=wrong),
    )
    for made in ways:
        with pytest.raises(UsageError, match="redact"):
            made()


def test_a_function_of_two_arguments_is_not_given_a_user() -> None:
    def by_mask(path: Any, value: Any, mask: str = "***") -> Any:
        return mask if path[-1:] == ("pin",) else value

    user = User("ann", ALL)
    assert Redaction(by_mask, what="x").seen(user, {"pin": "1"}) == {"pin": "***"}


@pytest.mark.parametrize("end", ["…", "...", ""])
def test_the_beginning_of_a_long_result_hides_what_the_whole_result_hides(end: str) -> None:
    """I17: a result that was cut is no JSON any more, and was shown as it was."""

    def by_name(path: Any, value: Any) -> Any:
        return "•••" if path[-1:] == ("pin",) else value

    redaction, user = Redaction(by_name, what="x"), User("ann", ALL)
    whole = json.dumps({"pin": SECRET, "more": [{"pin": SECRET}, 12.5, True, None], "text": "b"})
    for length in range(len('{"pin": "') + 1, len(whole)):
        shown = redaction.seen(user, f"{whole[:length]}{end}")
        assert SECRET[:1] not in shown, shown
    for text in ("[note] Look.", "{name} is missing", "[1, 2…", '{"text": "a…'):
        assert redaction.seen(user, text) == text


async def test_what_came_of_equal_calls_hides_what_their_results_hide() -> None:
    """I17: requests and doubts show the beginning of the results of equal calls."""
    sent: list[int] = []

    @tool
    def send(amount: int) -> dict[str, str]:
        sent.append(amount)
        if len(sent) == 2:
            raise ConnectionError("the line is dead")
        return {"pin": SECRET, "text": "x" * 1000}

    def by_name(path: Any, value: Any) -> Any:
        return "•••" if path[-1:] == ("pin",) else value

    same = call("send", {"amount": 5})
    gate = HumanInTheLoop({"send": {"when": lambda arguments, context: len(sent) > 1}})
    model = by_turn(same, same, "I do not know.", same)
    async with Runtime([Agent("desk", model, tools=[send], middleware=[gate])]) as runtime:
        await soon(runtime.spawn("desk", "a1").run("Send."))
        (request,) = interrupted(await soon(runtime.get("a1").run("Again."))).requests
        page = f"/agents/a1/requests/{request.id}"
        async with client_of(ui(runtime, auth=by_header, redact=by_name)) as client:
            client.headers["x-user"] = "clerk"
            form = {"decision": "approve", "digest": request.digest}
            shown = [await client.post(page, data=form)]
            for path in (page, f"/api{page}", "/", "/api/pending", "/doubts", "/bulk"):
                shown.append(await client.get(path))
    assert [each.status_code for each in shown] == [409, *[200] * 6]
    assert not [each.url for each in shown if SECRET in each.text]
    assert "•••" in shown[0].text
