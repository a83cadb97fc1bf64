"""`process_transport`: an MCP server that is a process, read in time linear in its output.

The SDK's own transport joins a line anew with each 64 KB. An answer of 50 MB holds up the loop of
all agents for a minute, and a line without an end takes all memory
(test_a_line_without_an_end_ends_the_connection).
"""

from __future__ import annotations

import codecs
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from anyio.abc import Process
from mcp import StdioServerParameters
from mcp.client.stdio import get_default_environment, stdio_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

MAX_LINE = 100_000_000
"""The maximum characters of one message. A server that sends more is taken as lost."""
GRACE_SECONDS = 2.0
"""The maximum seconds for which a process that is asked to end may continue."""
POLL_SECONDS = 0.01
"""Seconds between two looks for an end that is about to come."""
WATCH_SECONDS = 0.2
"""Seconds between two looks at a process that is to continue."""

_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)


@asynccontextmanager
async def process_transport(server: StdioServerParameters) -> AsyncIterator[tuple[Any, Any]]:
    """Start the process, and end it with all processes that it has started.

    Raises:
        OSError: if it cannot be started.

    """
    if sys.platform == "win32":  # without process groups: the SDK knows job objects
        async with stdio_client(server) as streams:
            yield streams
        return
    process = await anyio.open_process(
        [server.command, *server.args],
        env=get_default_environment() | (server.env or {}),
        cwd=server.cwd,
        stderr=None,
        start_new_session=True,
    )
    try:
        received, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, to_send = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks, read, write, to_send:
            tasks.start_soon(_receive, process, server, received)
            tasks.start_soon(_send, process, server, to_send)
            tasks.start_soon(_end_with, process)
            try:
                yield read, write
            finally:
                with anyio.CancelScope(shield=True):
                    await _end(process)
                tasks.cancel_scope.cancel()
    finally:
        # No process may be left, however the above was cut off.
        _signal(process, kill=True)
        with anyio.CancelScope(shield=True):
            await process.aclose()


async def _receive(process: Process, server: StdioServerParameters, received: Any) -> None:
    assert process.stdout is not None, "it is a pipe"
    decode = codecs.getincrementaldecoder(server.encoding)(server.encoding_error_handler).decode
    parts: list[str] = []
    size = 0
    with suppress(anyio.EndOfStream, UnicodeDecodeError, *_GONE):
        async with received:  # its end notifies the session that the server is lost
            while size <= MAX_LINE:
                first, *lines = decode(await process.stdout.receive()).split("\n")
                parts.append(first)
                size += len(first)
                for line in lines:
                    await received.send(_message("".join(parts)))
                    parts, size = [line], len(line)
            _signal(process, kill=True)  # it would continue to write without reading its input


def _message(line: str) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _send(process: Process, server: StdioServerParameters, to_send: Any) -> None:
    assert process.stdin is not None, "it is a pipe"
    with suppress(*_GONE):
        async for message in to_send:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
            await process.stdin.send(text.encode(server.encoding, server.encoding_error_handler))


async def _end_with(process: Process) -> None:
    """End the processes that the process has started when it has ended by itself.

    Otherwise they hold its output open, and nobody notices that the server is gone
    (test_what_a_server_has_started_ends_with_it).
    """
    await _exit(process, every=WATCH_SECONDS)
    await _end_group(process)


async def _exit(process: Process, *, every: float) -> None:
    """Wait until the process itself has ended.

    `process.wait()` of Python 3.11 also waits for other processes that hold its output open.
    """
    while process.returncode is None:  # noqa: ASYNC110  # nothing tells
        await anyio.sleep(every)


async def _end_group(process: Process) -> None:
    """End the remaining processes that the process has started: asked first, then killed."""
    _signal(process, kill=False)
    with anyio.move_on_after(GRACE_SECONDS):
        while _is_left(process):  # noqa: ASYNC110  # nothing tells
            await anyio.sleep(POLL_SECONDS)
    _signal(process, kill=True)


async def _end(process: Process) -> None:
    """End the process by the protocol: close its input, then signal, then kill."""
    assert process.stdin is not None, "it is a pipe"
    with suppress(*_GONE):
        await process.stdin.aclose()
    for kill in (False, True):
        with anyio.move_on_after(GRACE_SECONDS):
            await _exit(process, every=POLL_SECONDS)
            break
        _signal(process, kill=kill)
    await _end_group(process)


def _is_left(process: Process) -> bool:
    """Whether the process, or a process that it has started, is alive."""
    if sys.platform == "win32":  # no process of ours: see above
        return False
    if process.returncode is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.getpgid(process.pid)  # its number is another process's by now: its group was empty
            return False
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, 0)
        return True
    return False


def _signal(process: Process, *, kill: bool) -> None:
    """Signal the process and what it has started, whether it has ended itself or not."""
    if sys.platform != "win32" and _is_left(process):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL if kill else signal.SIGTERM)
