"""A small HTTP client, for the load and for the calls of the model.

A real client costs as much as a framework does. This one costs a tenth of a millisecond, and is the
same for all, so the differences that are measured are those of the frameworks.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

__all__ = ["Connection", "Pool"]

HOST = "127.0.0.1"


class Connection:
    """One connection that is kept open, and opened when it is first used."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, given: object = None) -> Any:
        """Send this as JSON, and return the JSON of the answer.

        Raises:
            RuntimeError: if the answer's status is not 200.

        """
        if self._streams is None:
            self._streams = await asyncio.open_connection(HOST, self._port)
        reader, writer = self._streams
        body = json.dumps(given).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        text = await reader.readexactly(length(answer))
        status = int(answer.split(" ", 2)[1])
        if status != 200:
            raise RuntimeError(f"{path} was answered by {status}: {text[:200]!r}")
        return json.loads(text)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Pool:
    """As many connections as there are calls at once."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[Connection] = []

    async def post(self, path: str, given: object = None) -> Any:
        connection = self._free.pop() if self._free else Connection(self._port)
        try:
            answer = await connection.post(path, given)
        except BaseException:
            connection.close()
            raise
        self._free.append(connection)
        return answer

    def close(self) -> None:
        for connection in self._free:
            connection.close()
        self._free.clear()


def length(head: str) -> int:
    """The bytes of the body that follows this head."""
    for line in head.split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            return int(value)
    return 0
