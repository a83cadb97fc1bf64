"""An MCP server of JSON-RPC by hand, which does what no SDK lets one do.

In this process it is a transport, `RawServer.transport`; as a script it speaks over its standard
streams, and its arguments are the file that it writes its calls to, and the tool that it has.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

SCHEMA = {"type": "object", "properties": {"item": {"type": "string"}}}
Handler = Callable[[dict[str, Any]], Awaitable[Any]]


def a_tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"The tool {name}.", "inputSchema": SCHEMA, **more}


def text(of: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": of}]}


def initialized(params: dict[str, Any]) -> dict[str, Any]:
    return {
        "protocolVersion": params["protocolVersion"],
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "raw", "version": "1"},
    }


class RawServer:
    """A server of this process.

    `pages` are what it lists, `calls` the parameters of its calls, and `answer` what it does with
    them: it returns a result, raises `Closed`, or sends what it likes.
    """

    def __init__(self, *tools: dict[str, Any]) -> None:
        self.pages: list[list[dict[str, Any]]] = [list(tools)]
        self.calls: list[dict[str, Any]] = []
        self.opened = 0
        self.closed = 0
        self.refuses = 0
        self.listings = 0
        self.capabilities: dict[str, Any] = {}

    async def answer(self, params: dict[str, Any]) -> dict[str, Any]:
        return text("done")

    async def listed(self, cursor: str | None) -> dict[str, Any]:
        self.listings += 1
        page = int(cursor or 0)
        more = {"nextCursor": str(page + 1)} if page + 1 < len(self.pages) else {}
        return {"tools": self.pages[page], **more}

    @property
    def keys(self) -> list[str]:
        """The call keys that came along."""
        return [call["_meta"]["understudy/call_key"] for call in self.calls]

    async def send(self, message: Any) -> None:
        """Say something, asked or not."""
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        item = jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **message}, by_name=False)
        await self._out.send(SessionMessage(item))

    async def ask(self, message: str, schema: dict[str, Any]) -> Any:
        """An elicitation, in the middle of a call."""
        params = {"message": message, "requestedSchema": schema}
        return (await self.request("elicitation/create", params))["result"]

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """What the client answers to a request, as it sends it."""
        import anyio

        self._asked = anyio.Event()
        await self.send({"id": "ask", "method": method, "params": params})
        await self._asked.wait()
        return self._told

    @asynccontextmanager
    async def transport(self) -> AsyncIterator[Any]:
        import anyio

        if self.refuses:
            self.refuses -= 1
            raise ConnectionRefusedError("nobody listens")
        self.opened += 1
        self._out, read = anyio.create_memory_object_stream[Any](10)
        write, incoming = anyio.create_memory_object_stream[Any](10)

        async def serve() -> None:
            async with self._out, incoming, anyio.create_task_group() as group:
                async for sent in incoming:
                    data = sent.message.model_dump(by_alias=True, exclude_unset=True)
                    group.start_soon(self._handle, data, group.cancel_scope)

        try:
            async with read, write, anyio.create_task_group() as group:
                group.start_soon(serve)
                try:
                    yield read, write
                finally:
                    group.cancel_scope.cancel()
        finally:
            self.closed += 1

    async def _handle(self, data: dict[str, Any], scope: Any) -> None:
        method, params = data.get("method"), data.get("params") or {}
        if data.get("id") == "ask" and method is None:
            self._told: dict[str, Any] = data
            self._asked.set()
            return
        if "id" not in data:
            return
        if method == "initialize":
            self.capabilities = params["capabilities"]
            result: Any = initialized(params)
        elif method == "tools/list":
            result = await self.listed(params.get("cursor"))
        elif method == "tools/call":
            self.calls.append(params)
            try:
                result = await self.answer(params)
            except Closed:
                scope.cancel()
                return
        else:
            error = {"code": -32601, "message": "unknown"}
            await self.send({"id": data["id"], "error": error})
            return
        if result is not None:
            envelope = result if set(result) == {"error"} else {"result": result}
            await self.send({"id": data["id"], **envelope})


class Closed(Exception):
    """The server ends in the middle of a call."""


class Failing(RawServer):
    """A server whose first calls behave as a test says."""

    def __init__(self, *how: Any, tool: dict[str, Any] | None = None) -> None:
        super().__init__(tool or a_tool("pay"))
        self.how = list(how)

    async def answer(self, params: dict[str, Any]) -> Any:
        how = self.how.pop(0) if self.how else text("paid")
        if isinstance(how, type):
            raise how
        if callable(how):
            return await how(self)
        return how


SURE = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}


class Asking(RawServer):
    """A server of before 2026, which asks in the middle of its call."""

    def __init__(self, *questions: str) -> None:
        super().__init__(a_tool("pay"))
        self.questions = questions
        self.told: list[Any] = []

    async def answer(self, params: dict[str, Any]) -> dict[str, Any]:
        for question in self.questions:
            told = await self.ask(question, SURE)
            self.told.append((question, told["action"], told.get("content")))
            if told["action"] != "accept":
                return text("given up")
        return text("paid")


def lines(log: Path) -> list[list[str]]:
    """The process and the key of each call that a server as a process has had."""
    return [line.split() for line in log.read_text().splitlines()]


def _start() -> int:
    """A process that continues when this one has ended, with its streams open."""
    import subprocess

    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    return subprocess.Popen([sys.executable, "-S", "-E", "-c", code]).pid


def main(log: str, tool: str) -> None:
    """As a process: each call is a line of the file `log`; the tool says what it does then."""
    for line in sys.stdin:
        data = json.loads(line)
        method, params = data.get("method"), data.get("params") or {}
        if "id" not in data:
            continue
        if method == "initialize":
            result: Any = initialized(params)
        elif method == "tools/list":
            result = {"tools": [a_tool(tool, annotations={"idempotentHint": True})]}
        elif method == "tools/call":
            with open(log, "a+") as file:  # noqa: PTH123  # without an import
                file.seek(0)
                before = len(file.readlines())
                key = params["_meta"]["understudy/call_key"]
                file.write(f"{os.getpid()} {key}\n")
                if tool in ("starts", "leaves"):
                    file.write(f"{_start()} started\n")
            if tool == "dies_once" and not before:
                os._exit(1)
            if tool == "leaves":
                os._exit(1)
            if tool == "html":
                sys.stdout.write("<html>\n" * 3)
                sys.stdout.flush()
            while tool == "endless":
                sys.stdout.write("x" * 1000)
            result = text("x" * 12_000_000 if tool == "big" else f"call {before + 1}")
        else:
            reply = {"jsonrpc": "2.0", "id": data["id"], "error": {"code": -32601, "message": "?"}}
            print(json.dumps(reply), flush=True)  # noqa: T201
            continue
        print(json.dumps({"jsonrpc": "2.0", "id": data["id"], "result": result}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
