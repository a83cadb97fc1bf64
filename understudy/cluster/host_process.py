"""The main program of a host that is a process of this machine: frames on its standard streams.

The end of its input means that the cluster is gone: the host releases its agents, and ends. So it
does on SIGTERM, which a process manager may send to all processes at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import signal
import socket
import struct
import sys
import threading
from typing import BinaryIO

from understudy.cluster.engine import HostSpec
from understudy.cluster.frames import loads
from understudy.cluster.host import Host

LENGTH = struct.Struct("!Q")


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame; None at the end of the stream."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    body = stream.read(length)
    return body if len(body) == length else None


def main() -> None:
    """Serve until the cluster says so, or is gone."""
    # What the agents print is for people: the streams are for frames.
    frames_in, frames_out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with open(os.devnull) as nothing:  # noqa: PTH123  # a descriptor is wanted
        os.dup2(nothing.fileno(), 0)
    first = read_frame(frames_in)
    if first is None:
        return
    try:
        asyncio.run(_serve(loads(first), frames_in, frames_out))
    except Exception as error:  # the cluster has it, and its log tells it
        raise SystemExit(f"a host of the cluster has ended: {error!r}") from None


async def _serve(spec: HostSpec, frames_in: BinaryIO, frames_out: BinaryIO) -> None:
    loop = asyncio.get_running_loop()
    outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    host = Host(spec, node=socket.gethostname(), send=outbox.put)

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has drained meanwhile
            while (frame := read_frame(frames_in)) is not None:
                loop.call_soon_threadsafe(host.receive, frame)
            loop.call_soon_threadsafe(host.stop)

    def write() -> None:
        with contextlib.suppress(BrokenPipeError):  # the cluster is gone: `read` ends the host
            while (frame := outbox.get()) is not None:
                frames_out.write(LENGTH.pack(len(frame)) + frame)
                frames_out.flush()

    if sys.platform != "win32":
        loop.add_signal_handler(signal.SIGTERM, host.leave)
    threading.Thread(target=read, name="understudy-frames-in", daemon=True).start()
    writer = threading.Thread(target=write, name="understudy-frames-out", daemon=True)
    writer.start()
    try:
        await host.serve()
    finally:
        outbox.put(None)
        await asyncio.to_thread(writer.join, 10)
