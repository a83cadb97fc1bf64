"""A server in this process, on a port of this machine: for a browser, a client, a command."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """A port that no other process is given until the block ends, for servers that come and go.

    It is bound, not listened at: a server may bind it as well, and without one who connects is
    refused.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def wait_until_listening(process: subprocess.Popen[Any], port: int) -> None:
    """Until this process takes connections there."""
    end = time.monotonic() + 60
    while True:
        assert process.poll() is None, "the server has ended"
        assert time.monotonic() < end, "the server does not start"
        with socket.socket() as found:
            if found.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)


class _Server(uvicorn.Server):
    """Tells when it has started, or has failed to. It stops at once, and not at its next look."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.begun = threading.Event()
        self._is_stopped = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self.begun.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._is_stopped.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        # A page that follows events keeps its connection, beyond the time for a graceful end too.
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # the transports close their sockets

    def stop(self) -> None:
        """Of one that has started."""
        self.should_exit = True
        self._loop.call_soon_threadsafe(self._is_stopped.set)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            super().run(sockets)
        finally:
            self.begun.set()


@contextlib.contextmanager
def served(app: ASGIApp, port: int = 0) -> Iterator[str]:
    """Serve it until the block ends, on this port or a new one; its address."""
    server = _Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
    with socket.create_server(("127.0.0.1", port)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        assert server.begun.wait(60), "the server does not start"
        assert server.started, "the server has not started"
        try:
            yield address
        finally:
            server.stop()
            thread.join(60)
            assert not thread.is_alive(), "the server does not stop"
