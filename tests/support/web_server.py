"""A server of the pages in this process, on a port of its own, to be opened by a browser."""

from __future__ import annotations

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


@contextlib.contextmanager
def served(app: ASGIApp, port: int = 0) -> Iterator[str]:
    """Serve it until the block ends, on this port or a new one; its address."""
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", port))
    port = listener.getsockname()[1]
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    end = time.monotonic() + 60
    while not server.started:
        assert thread.is_alive(), "the server has not started"
        assert time.monotonic() < end, "the server does not start"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(60)
        listener.close()
        assert not thread.is_alive(), "the server does not stop"
