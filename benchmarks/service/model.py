"""The fake model: a server in a process of its own, and its client.

`python -m benchmarks.service.model` prints the port on which it answers. Each answer takes as long
as a fast model would take for a word, and costs the process that asks next to nothing.
"""

from __future__ import annotations

import asyncio
import json

from benchmarks.service.connections import HOST, Pool, length
from benchmarks.service.workload import DELAY, SCRIPT

__all__ = ["FakeModel"]


class FakeModel:
    """The model as the apps ask it, over HTTP."""

    def __init__(self, port: int) -> None:
        self._pool = Pool(port)

    async def reply(self, before: int) -> str | None:
        """The tool that it asks for after so many replies; None for the final text."""
        answer = await self._pool.post("/reply", {"before": before})
        tool: str | None = answer["tool"]
        return tool

    def close(self) -> None:
        self._pool.close()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            asked = json.loads(await reader.readexactly(length(head)))
            await asyncio.sleep(DELAY)
            body = json.dumps({"tool": SCRIPT[asked["before"]]}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # the app has ended
    finally:
        writer.close()


async def _main() -> None:
    server = await asyncio.start_server(_answer, HOST, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main())
