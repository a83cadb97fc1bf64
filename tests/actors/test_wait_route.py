"""The route by which somebody outside answers the waits of tools (J22)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest

from tests.support.agents import by_turn, completed, results, until_status
from tests.support.loops import soon
from understudy import Agent, AgentRef, Runtime, SimulatedClock, Status, ToolContext, call, tool
from understudy.actors import WaitRoute
from understudy.errors import UsageError
from understudy.journal import MemoryStore

JSON = {"content-type": "application/json"}


class Shop:
    """An agent that waits for a provider, and the tokens that the provider has."""

    def __init__(self) -> None:
        self.tokens: list[str] = []

        @tool
        async def pay(ctx: ToolContext) -> Any:
            self.tokens.append(await ctx.token("paid"))
            return await ctx.wait_for("paid", timeout=3600)

        self.agent = Agent("shop", by_turn(call("pay", {}), "Done."), tools=[pay])

    async def waiting(self, runtime: Runtime) -> AgentRef:
        ref = runtime.spawn("shop", id="a")
        ref.run("Go.")
        await until_status(ref, Status.WAITING)
        return ref


@pytest.fixture
def shop() -> Shop:
    return Shop()


def client_of(runtime: Runtime | Callable[[], Runtime], **options: Any) -> httpx.AsyncClient:
    """A client of the route, mounted below a path as frameworks do it."""
    route = WaitRoute(runtime, **options)
    transport = httpx.ASGITransport(route, root_path="/waits")
    return httpx.AsyncClient(transport=transport, base_url="http://here/waits")


async def result_of(ref: AgentRef) -> Any:
    outcome = await soon(ref.outcome())
    assert outcome is not None
    return results(completed(outcome).state)[0].content


async def test_a_post_answers_a_wait_once(shop: Shop) -> None:
    async with Runtime([shop.agent]) as runtime, client_of(runtime) as client:
        ref = await shop.waiting(runtime)
        for value in ({"by": "ann"}, {"by": "ann"}, {"by": "ben"}):
            answer = await soon(client.post(f"/{shop.tokens[0]}", json=value))
            assert (answer.status_code, answer.json()) == (200, {"status": "accepted"})
        assert await result_of(ref) == {"by": "ann"}


async def test_a_route_may_be_made_before_its_runtime(shop: Shop) -> None:
    made: list[Runtime] = []  # as in the lifespan of an application, which mounts the route before
    async with client_of(lambda: made[0]) as client, Runtime([shop.agent]) as runtime:
        made.append(runtime)
        ref = await shop.waiting(runtime)
        answer = await soon(client.post(f"/{shop.tokens[0]}", json="yes"))
        assert (answer.status_code, await result_of(ref)) == (200, "yes")


async def test_a_post_to_reject_rejects(shop: Shop) -> None:
    async with Runtime([shop.agent]) as runtime, client_of(runtime) as client:
        ref = await shop.waiting(runtime)
        refused = await soon(client.post(f"/{shop.tokens[0]}/reject", json={"not": "a text"}))
        assert refused.status_code == 400
        assert refused.json() == {"error": "send the reason as a JSON text"}
        answer = await soon(client.post(f"/{shop.tokens[0]}/reject", json="no money"))
        assert answer.status_code == 200
        assert await result_of(ref) == "WaitRejected: 'paid' was rejected: no money"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
async def test_only_a_post_changes_something(shop: Shop, method: str) -> None:
    async with Runtime([shop.agent]) as runtime, client_of(runtime) as client:
        ref = await shop.waiting(runtime)
        answer = await soon(client.request(method, f"/{shop.tokens[0]}", content="1", headers=JSON))
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        assert ref.status() is Status.WAITING


async def test_what_is_no_json_is_refused(shop: Shop) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    async with Runtime([shop.agent]) as runtime, client_of(runtime, max_bytes=10**6) as client:
        ref = await shop.waiting(runtime)
        url = f"/{shop.tokens[0]}"
        for body in (
            "",
            "{",
            "NaN",
            "[1,",
            b"\xff",
            deep,
            '{"a": "\\ud800"}',
            "[" * 300 + "]" * 300,
        ):
            answer = await soon(client.post(url, content=body, headers=JSON))
            assert answer.status_code == 400, body[:20]
        for headers in ({}, {"content-type": "text/plain"}, {"content-type": "x/json"}):
            answer = await soon(client.post(url, content="1", headers=headers))
            assert answer.status_code == 415
        form = await soon(client.post(url, data={"a": "1"}))
        assert form.status_code == 415
        assert ref.status() is Status.WAITING
        kind = {"content-type": "Application/JSON; charset=utf-8"}
        assert (await soon(client.post(url, content="1", headers=kind))).status_code == 200


async def test_unknown_tokens_are_told_alike(shop: Shop) -> None:
    async with Runtime([shop.agent]) as runtime, client_of(runtime) as client:
        await shop.waiting(runtime)
        told = set()
        token = shop.tokens[0]
        for path in (
            "",
            "/",
            "/x",
            f"/{token}x",
            f"/{token[:-1]}",
            "/a.b",
            "/%00",
            "/é",
            "/reject",
        ):
            answer = await soon(client.post(path, content='"x"', headers=JSON))
            told.add((answer.status_code, answer.text, tuple(answer.headers.items())))
        assert [(status, text) for status, text, _ in told] == [(404, '{"error": "unknown"}')]


async def test_a_late_answer_is_gone(shop: Shop) -> None:
    clock = SimulatedClock()
    async with Runtime([shop.agent], clock=clock) as runtime, client_of(runtime) as client:
        ref = await shop.waiting(runtime)
        await soon(clock.advance(3600))
        await result_of(ref)
        answer = await soon(client.post(f"/{shop.tokens[0]}", content="1", headers=JSON))
        assert (answer.status_code, answer.json()) == (410, {"error": "expired"})


async def asked(
    route: WaitRoute, chunks: Sequence[dict[str, Any]], *headers: tuple[bytes, bytes], path: str
) -> tuple[int, int]:
    """The status of an answer, and how many chunks of the body were taken."""
    sent: list[Any] = []
    taken = 0

    async def receive() -> dict[str, Any]:
        nonlocal taken
        taken += 1
        return {"type": "http.request", **chunks[taken - 1]}

    async def send(message: Any) -> None:
        sent.append(message)

    kind = (b"Content-Type", b"application/json")
    scope = {"type": "http", "method": "POST", "path": path, "headers": [kind, *headers]}
    await route(scope, receive, send)
    assert json.loads(sent[1]["body"])
    return sent[0]["status"], taken


async def test_a_large_body_is_not_read_to_its_end(shop: Shop) -> None:
    megabytes = [{"body": b"1" * 1_000_000, "more_body": True} for _ in range(20)]
    async with Runtime([shop.agent]) as runtime:
        ref = await shop.waiting(runtime)
        path, route = f"/{shop.tokens[0]}", WaitRoute(runtime, max_bytes=2_000_000)
        assert await asked(route, megabytes, path=path) == (413, 3)
        length = (b"content-length", b"20000000")
        assert await asked(route, megabytes, length, path=path) == (413, 0)
        for odd in (b"-1", b"x", b"9" * 5000):
            assert (await asked(route, megabytes, (b"content-length", odd), path=path))[0] == 413
        gone: list[dict[str, Any]] = [{"body": b"1", "more_body": True}]
        gone += [{"type": "http.disconnect"}]
        assert await asked(route, gone, path=path) == (400, 2)
        assert ref.status() is Status.WAITING
        pieces: list[dict[str, Any]] = [{"body": b"[1,", "more_body": True}, {"body": b"2]"}]
        assert await asked(route, pieces, path=path) == (200, 2)
        assert await result_of(ref) == [1, 2]


async def test_it_is_to_be_tried_again_while_the_runtime_cannot_answer(shop: Shop) -> None:
    store = MemoryStore()
    async with Runtime([shop.agent], store=store) as runtime:
        client = client_of(runtime)
        await shop.waiting(runtime)
    async with client:
        answer = await soon(client.post(f"/{shop.tokens[0]}", content="1", headers=JSON))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert shop.tokens[0] not in answer.text


async def test_bad_options_are_refused(shop: Shop) -> None:
    with pytest.raises(UsageError, match="takes a Runtime"):
        WaitRoute("nothing")  # type: ignore[arg-type]
    for bad in (0, -1, True, "1", 1.5):
        with pytest.raises(UsageError, match="max_bytes"):
            WaitRoute(Runtime([shop.agent]), max_bytes=bad)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="http alone"):
        await WaitRoute(Runtime([shop.agent]))({"type": "websocket"}, None, None)  # type: ignore[arg-type]
