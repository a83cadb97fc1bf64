"""Streams of the pages of an application in this process, which end when the test leaves them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.support.loops import soon

__all__ = ["Stream", "end_watcher", "get", "name_of", "opened"]


class Stream:
    """The events of an open stream, as they come."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.is_whole: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Set when the application has returned: whether it said that the answer is complete."""
        self._text = ""

    def feed(self, chunk: str) -> None:
        self._text += chunk.replace("\r\n", "\n")
        *whole, self._text = self._text.split("\n\n")
        for block in whole:
            found: dict[str, str] = {}
            for line in block.split("\n"):
                name, _, value = line.partition(": ")
                if name:
                    found[name] = found[name] + "\n" + value if name in found else value
            if "data" in found:
                self.events.put_nowait(found)

    async def next(self) -> dict[str, str]:
        return await soon(self.events.get())


def get(path: str, **headers: str) -> dict[str, Any]:
    """The scope of a request."""
    url = httpx.URL(f"http://localhost:8420{path}")
    return {
        "type": "http",
        "method": "GET",
        "path": url.path,
        "raw_path": url.raw_path,
        "query_string": url.query,
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
        "server": ("localhost", 8420),
        "client": ("127.0.0.1", 1),
        "headers": [(b"host", b"localhost:8420")]
        + [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()],
    }


def name_of(task: asyncio.Task[Any]) -> str:
    """The name of the function that it runs."""
    return getattr(task.get_coro(), "__name__", "")


async def end_watcher() -> None:
    """End what sse-starlette starts once for each loop, to see the end of a server."""
    for task in asyncio.all_tasks():
        if name_of(task) == "_shutdown_watcher":
            task.cancel()
            await asyncio.wait([task])


@asynccontextmanager
async def opened(app: Any, path: str, **headers: str) -> AsyncIterator[Stream]:
    """A stream of an application in this process. `ASGITransport` would wait for its end."""
    stream = Stream()
    left = asyncio.Event()
    said_last: list[bool] = []

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            stream.status.set_result(message["status"])
        else:
            stream.feed(message["body"].decode())
            if not message.get("more_body", False):
                said_last.append(True)

    serving = asyncio.create_task(app(get(path, **headers), receive, send))
    serving.add_done_callback(lambda _: stream.is_whole.set_result(said_last == [True]))
    try:
        yield stream
    finally:
        left.set()
        await soon(serving)
        await end_watcher()
