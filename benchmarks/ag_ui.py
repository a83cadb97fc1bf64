"""What the endpoints of `understudy.ag_ui` add, beside a plain subscription to the same agent.

    python -m benchmarks.ag_ui

A scripted model writes a text in pieces of some letters. Each way of following it is asked for the
same conversation again and again, in turns within one process, and never over a network: an ASGI
application is called as a server calls it. Told are the time until the first piece of the text is
there, and that of the whole run for each piece; the median of all rounds, and how many times that
of the plain subscription it is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from understudy import Agent, Runtime, ScriptedModel
from understudy.actors import AgentRef
from understudy.ag_ui import User, ag_ui, vercel
from understudy.events import TextDelta

Taken = tuple[float, float]
"""Seconds until the first piece, and until the run was over."""
Way = Callable[[str], Awaitable[Taken]]


async def by_subscription(ref: AgentRef) -> Taken:
    """A run that is followed by `ref.events()`."""
    began = time.perf_counter()
    first = 0.0
    events = ref.events()
    run = asyncio.ensure_future(_awaited(ref))
    run.add_done_callback(lambda _: events.close())
    async for found in events:
        if isinstance(found.event, TextDelta) and not first:
            first = time.perf_counter() - began
    await run
    return first, time.perf_counter() - began


async def _awaited(ref: AgentRef) -> None:
    await ref.run("write")


async def by_request(app: Any, body: dict[str, Any], piece: bytes) -> Taken:
    """A run that is followed by the answer to a request, which has this in each piece."""
    data = json.dumps(body).encode()
    headers = {"host": "localhost", "content-type": "application/json"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "scheme": "http",
        "server": ("localhost", 80),
        "client": ("127.0.0.1", 1),
    }
    sent = [{"type": "http.request", "body": data, "more_body": False}]
    first = 0.0
    is_over = asyncio.Event()

    async def receive() -> Any:
        if sent:
            return sent.pop()
        await is_over.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        nonlocal first
        if not first and piece in message.get("body", b""):
            first = time.perf_counter() - began
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            is_over.set()

    began = time.perf_counter()
    await app(scope, receive, send)
    assert first, "the answer has no text"
    return first, time.perf_counter() - began


async def measure(pieces: int, rounds: int) -> dict[str, list[Taken]]:
    """What each way takes, in each round."""
    text = "A piece " * pieces  # a scripted model writes eight letters at a time
    agent = Agent("desk", ScriptedModel(lambda request: text))
    numbers = count()
    async with Runtime([agent]) as runtime:

        def who(request: Any) -> User:
            return User("ann", frozenset({"read", "act"}))

        ag_ui_app = ag_ui(runtime, agent="desk", auth=who)
        vercel_app = vercel(runtime, agent="desk", auth=who)

        async def plain(id: str) -> Taken:
            return await by_subscription(runtime.spawn("desk", id=id))

        async def over_ag_ui(id: str) -> Taken:
            message = {"id": "m", "role": "user", "content": "write"}
            body = {"threadId": id, "runId": "r", "messages": [message]}
            return await by_request(ag_ui_app, body, b"TEXT_MESSAGE_CONTENT")

        async def over_vercel(id: str) -> Taken:
            parts = [{"type": "text", "text": "write"}]
            body = {"id": id, "messages": [{"id": "m", "role": "user", "parts": parts}]}
            return await by_request(vercel_app, body, b"text-delta")

        ways: dict[str, Way] = {
            "subscription": plain,
            "AG-UI": over_ag_ui,
            "Vercel": over_vercel,
        }
        taken: dict[str, list[Taken]] = {name: [] for name in ways}
        for turn in range(rounds + 1):
            for name, way in ways.items():
                found = await way(f"{name}-{next(numbers)}")
                if turn:  # the first round imports and warms up
                    taken[name].append(found)
    return taken


def table(taken: dict[str, list[Taken]], pieces: int) -> str:
    """The medians, and how many times those of the subscription they are."""
    lines = [f"{'':14}{'first piece':>14}{'':>8}{'each piece':>14}{'':>8}"]
    base: tuple[float, float] | None = None
    for name, found in taken.items():
        first = statistics.median(each[0] for each in found) * 1e3
        each = statistics.median(each[1] for each in found) * 1e6 / pieces
        base = base or (first, each)
        ratios = (first / base[0], each / base[1])
        lines.append(
            f"{name:14}{first:>11.2f} ms{ratios[0]:>7.2f}x{each:>11.1f} us{ratios[1]:>7.2f}x"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pieces", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args(arguments)
    print(table(asyncio.run(measure(given.pieces, given.rounds)), given.pieces))


if __name__ == "__main__":
    main()
