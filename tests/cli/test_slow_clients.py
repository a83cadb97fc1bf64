"""`serve` ends connections whose request does not come, and believes no header about who asks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn

from tests.support.loops import soon
from understudy.cli import slow_clients
from understudy.cli.serve import server_options

ANSWER = b"HTTP/1.1 200 OK"


async def answered(scope: Any, receive: Any, send: Any) -> None:
    """An application that says who asks."""
    address = str(scope["client"][0]).encode()
    headers = [(b"content-length", str(len(address)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": address})


class Served:
    """The application on a port of this machine, by the protocol of `serve`."""

    def __init__(self, proxy: str | None = None) -> None:
        protocol = slow_clients.timed_protocol()
        self._config = uvicorn.Config(
            answered, lifespan="off", log_config=None, http=protocol, **server_options(proxy)
        )

    async def __aenter__(self) -> int:
        self._config.load()
        state = uvicorn.server.ServerState()
        self._server = await asyncio.get_running_loop().create_server(
            lambda: self._config.http_protocol_class(  # type: ignore[call-arg]
                config=self._config, server_state=state, app_state={}
            ),
            "127.0.0.1",
        )
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()
        await self._server.wait_closed()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost: a\r\nx-half: "])
@pytest.mark.parametrize("before", [False, True], ids=["first", "behind another request"])
async def test_a_connection_whose_head_does_not_come_is_closed(
    sent: bytes, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few thousand of them took all descriptors of the process, for ever."""
    monkeypatch.setattr(slow_clients, "HEADER_SECONDS", 0.05)
    async with Served() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if before:
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            assert (await soon(reader.readuntil(b"127.0.0.1"))).startswith(ANSWER)
        writer.write(sent)
        if sent or not before:  # what only stays open is closed by the limit of uvicorn itself
            assert await soon(reader.read()) == b""
        writer.close()
        await writer.wait_closed()


async def test_a_request_that_comes_is_answered_however_long_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slow_clients, "HEADER_SECONDS", 60.0)
    async with Served() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for piece in (b"GET / HT", b"TP/1.1\r\nho", b"st: a\r\n", b"\r\n"):
            writer.write(piece)
            await writer.drain()
        assert (await soon(reader.readuntil(b"127.0.0.1"))).startswith(ANSWER)
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("proxy", "shown"), [(None, b"127.0.0.1"), ("127.0.0.1", b"192.0.2.7")], ids=["none", "one"]
)
async def test_who_asks_is_who_connects_but_for_a_proxy_that_is_named(
    proxy: str | None, shown: bytes
) -> None:
    """A client on this machine could claim another address by a header each time."""
    async with Served(proxy) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 192.0.2.7\r\n\r\n")
        assert (await soon(reader.readuntil(b"\r\n\r\n"))).startswith(ANSWER)
        assert await soon(reader.readexactly(len(shown))) == shown
        writer.close()
        await writer.wait_closed()
