"""A server in this process, on a port of this machine: for a browser, a client, a command."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class _Server(uvicorn.Server):
    """Tells when it has started, or has failed to."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.begun = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.begun.set()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            super().run(sockets)
        finally:
            self.begun.set()


@contextlib.contextmanager
def served(app: ASGIApp, port: int = 0) -> Iterator[str]:
    """Serve it until the block ends, on this port or a new one; its address."""
    server = _Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
    # Taken once and kept: a port that was free a moment ago may be another process's by now.
    with socket.create_server(("127.0.0.1", port)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            assert server.begun.wait(30), "the server does not start"
            assert server.started, "the server has not started"
            yield address
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive(), "the server does not stop"
