"""Tools of an MCP server over HTTP: of the SDK's own server, behind what spoils its answers.

Rules: M4.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
from mcp.server.mcpserver import Context, MCPServer
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.support.agents import by_turn, completed, interrupted, results
from tests.support.web_server import held_port, served
from understudy import Agent, Runtime, call
from understudy.mcp import mcp_tools

CALLS: list[Any] = []


def bank() -> MCPServer:
    server = MCPServer("bank")

    @server.tool()
    async def pay(amount: int, ctx: Context) -> str:
        """Pay."""
        CALLS.append((amount, (ctx.request_context.meta or {}).get("understudy/call_key")))
        return f"paid {amount}"

    return server


class Spoiled:
    """Passes on what comes, but for the calls of tools: `how` says what happens to these."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.how: list[Any] = []
        self.seen: list[dict[str, str]] = []
        self.everything: bytes | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self.seen.append({k.decode(): v.decode() for k, v in scope["headers"]})
        if self.everything is not None:
            await self._answer(send, 200, self.everything)
            return
        chunks = []
        while True:
            message = await receive()
            chunks.append(message)
            if not message.get("more_body"):
                break
        body = b"".join(chunk.get("body", b"") for chunk in chunks)
        is_call = body.startswith(b"{") and json.loads(body).get("method") == "tools/call"
        how = self.how.pop(0) if is_call and self.how else None

        async def again() -> Any:
            return chunks.pop(0) if chunks else await receive()

        if isinstance(how, int):
            await self._answer(send, how, b"<html>no</html>")
        elif how == "html":
            await self._answer(send, 200, b"<html>a page</html>")
        elif how == "endless":
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            for _ in range(12):
                body = b"x" * 1_000_000
                await send({"type": "http.response.body", "body": body, "more_body": True})
        elif how == "packed":
            headers = [(b"content-type", b"application/json"), (b"content-encoding", b"gzip")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": gzip.compress(b"{}")})
        elif how == "cut":
            headers = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
        else:
            await self.app(scope, again, send)

    async def _answer(self, send: Send, status: int, body: bytes) -> None:
        headers = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[str, Spoiled]]:
    app = Spoiled(bank().streamable_http_app(host="127.0.0.1"))
    with served(app) as url:
        yield f"{url}/mcp", app


@pytest.fixture
def url(site: tuple[str, Spoiled]) -> Iterator[str]:
    CALLS.clear()
    yield site[0]
    site[1].how.clear()
    site[1].everything = None


async def paid(url: str, *, idempotent: bool = False, times: int = 1) -> Any:
    policy = {"pay": {"ask": False, "idempotent": idempotent, "on_unknown": "tell"}}
    tools = await mcp_tools(url, id="bank", policy=policy, headers={"x-key": "k"})
    turns = [call("pay", {"amount": n}) for n in range(times)]
    outcome = completed(await Agent("a", by_turn(*turns), tools=[*tools]).execute("go"))
    return [(part.outcome, part.content) for part in results(outcome.state)]


async def test_a_tool_is_called_over_http_with_its_headers(
    url: str, site: tuple[str, Spoiled]
) -> None:
    assert await paid(url, times=2) == [
        ("success", {"result": "paid 0"}),
        ("success", {"result": "paid 1"}),
    ]
    assert [amount for amount, _ in CALLS] == [0, 1]
    assert len({key for _, key in CALLS}) == 2
    assert {seen.get("x-key") for seen in site[1].seen} == {"k"}


@pytest.mark.parametrize("how", ["html", "cut", 500, 502, 504])
async def test_what_is_no_answer_leaves_a_doubt(
    url: str, site: tuple[str, Spoiled], how: Any
) -> None:
    site[1].how[:] = [how]
    ((outcome, told),) = await paid(url)
    assert outcome == "interrupted"
    assert "may or may not have taken effect" in told
    assert CALLS == []


@pytest.mark.parametrize(
    ("how", "why"),
    [("endless", "more than 10,000,000 bytes"), ("packed", "compressed")],
)
async def test_an_answer_of_no_known_size_is_not_read(
    url: str, site: tuple[str, Spoiled], how: str, why: str
) -> None:
    site[1].how[:] = [how]
    tools = await mcp_tools(url, id="bank", policy={"pay": {"ask": False}})
    agent = Agent("a", by_turn(call("pay", {"amount": 1})), tools=[*tools])
    (request,) = interrupted(await agent.execute("go")).requests
    assert request.kind == "doubt"
    assert why in request.payload["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["html", "cut", 500, 404])
async def test_a_call_that_may_run_again_does(
    url: str, site: tuple[str, Spoiled], how: Any
) -> None:
    site[1].how[:] = [how]
    assert await paid(url, idempotent=True) == [("success", {"result": "paid 0"})]
    assert len(CALLS) == 1


@pytest.mark.parametrize("how", [401, 403, 429])
async def test_a_call_that_is_refused_was_not_made(
    url: str, site: tuple[str, Spoiled], how: int
) -> None:
    """M4."""
    site[1].how[:] = [how]
    assert await paid(url) == [("failed", f"MCP server 'bank' refused the call: HTTP {how}")]


async def test_a_session_that_the_server_has_forgotten_is_opened_anew(
    url: str, site: tuple[str, Spoiled]
) -> None:
    site[1].how[:] = [404]
    assert await paid(url) == [("success", {"result": "paid 0"})]


async def test_a_page_of_html_is_no_server(url: str, site: tuple[str, Spoiled]) -> None:
    site[1].everything = b"<html>Welcome</html>"
    with pytest.raises(ConnectionError, match="'bank' cannot be reached"):
        await mcp_tools(url, id="bank")


@pytest.mark.slow
async def test_a_server_that_has_gone_between_two_calls_leaves_no_doubt() -> None:
    policy = {"pay": {"ask": False}}
    turns = [call("pay", {"amount": 1})]
    with held_port() as port, contextlib.ExitStack() as server:
        url = server.enter_context(served(bank().streamable_http_app(host="127.0.0.1"), port))
        tools = await mcp_tools(f"{url}/mcp", id="bank", policy=policy)
        async with Runtime([Agent("a", by_turn(*turns), tools=[*tools])]) as runtime:
            first = completed(await runtime.spawn("a", id="1").run("go"))
            server.close()
            gone = completed(await runtime.spawn("a", id="2").run("go"))
            server.enter_context(served(bank().streamable_http_app(host="127.0.0.1"), port))
            back = completed(await runtime.spawn("a", id="3").run("go"))
    told = [results(outcome.state)[0] for outcome in (first, gone, back)]
    assert [part.outcome for part in told] == ["success", "failed", "success"]
    assert "cannot be reached" in str(told[1].content)


def test_two_runtimes_in_threads_have_connections_of_their_own(url: str) -> None:
    policy = {"pay": {"ask": False}}
    tools = asyncio.run(mcp_tools(url, id="bank", policy=policy))

    def agent() -> Agent:
        return Agent("a", by_turn(call("pay", {"amount": 1})), tools=[*tools])

    with Runtime([agent()]) as one, Runtime([agent()]) as two:
        runs = [runtime.spawn("a").run("go") for runtime in (one, two)]
        for run in runs:
            completed(run.get(timeout=60))
    assert len(CALLS) == 2
