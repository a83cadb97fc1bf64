"""`Link`: the connection of this host with one of another process of its machine."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

from understudy._base.json_values import text_of
from understudy.actors.hosts.peers.frames import About, Asked, Greeting, There, dump, load
from understudy.journal.checkpoints import VERSION
from understudy.journal.shared import Process
from understudy.journal.store_format import library_version

if sys.platform != "linux":
    raise ImportError("processes of a machine connect by its abstract sockets: on Linux alone")

logger: logging.Logger = logging.getLogger(__name__)

PATIENCE = 3.0
"""Seconds after which a process that says nothing does not count as there any more."""
ASK_AFTER = 1.0
"""Seconds of silence after which the other process is asked whether it is there."""
MOST_WAITING = 256 * 1024 * 1024
"""The most bytes that may wait to be sent: beyond, the other process counts as gone."""
_LENGTH = struct.Struct("!I")
_CREDENTIALS = struct.Struct("3i")


def address_of(secret: bytes, process: Process, host_id: int) -> str:
    """The address where a host listens: a name without a file, so a killed host leaves nothing.

    Only who knows the secret of the store knows it.
    """
    said = f"{process.place} {process.pid} {process.started} {host_id}".encode()
    return "\0understudy-" + hmac.new(secret, said, hashlib.sha256).hexdigest()


def proof_of(secret: bytes, own_id: int, other_id: int) -> str:
    """The proof by which a host shows another that it knows the secret of the store."""
    said = f"host {own_id} to host {other_id}".encode()
    return hmac.new(secret, said, hashlib.sha256).hexdigest()


def library() -> str:
    """The version of this library's frames: both ends must have the same to unpickle them."""
    return f"{library_version()} {VERSION}"


def who_is(connected: socket.socket) -> tuple[int, int]:
    """The process id and the user id of the other end, as the kernel tells."""
    found = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(found)
    return pid, user


class Link(asyncio.Protocol):
    """The connection with a host of another process. Lives on the loop.

    Args:
        greeting: makes what this end says first, to the host of this number.
        secret: of the store.
        on_ready: called once the other end is known.
        on_frame: gets each frame behind that.
        on_lost: called when it ends, if it was ready.
        other: the host that it leads to; None where that one has opened the connection.

    """

    def __init__(
        self,
        greeting: Callable[[int], Greeting],
        secret: bytes,
        on_ready: Callable[[Link], None],
        on_frame: Callable[[Link, Any], None],
        on_lost: Callable[[Link], None],
        other: tuple[int, Process] | None = None,
    ) -> None:
        self._greeting = greeting
        self._secret = secret
        self._on_ready = on_ready
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._opened_to = other
        self.host_id: int = 0 if other is None else other[0]
        """The id of the host at the other end."""
        self.about: About = About("", True)
        """The last description that the other end has sent of itself."""
        self.is_ready: bool = False
        self.refusals: int = 0
        """The number of calls that the other end has refused, as far as this end knows."""
        self.waits: int = 0
        """The number of calls that wait for the other end."""
        self.ended: asyncio.Event = asyncio.Event()
        """The event that is set when the connection has ended."""
        self._transport: asyncio.Transport | None = None
        self._read = bytearray()
        self._to_send: list[bytes] = []
        self._heard_at = self._loop.time()
        self._watching: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------- the transport's

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "it is one of a stream"
        self._transport = transport
        if self._opened_to is not None:
            self._write(self._greeting(self.host_id).dump())
        self._loop.call_later(PATIENCE, self._close_unless_ready)

    def _close_unless_ready(self) -> None:
        if not self.is_ready:
            self.close()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        read = self._read
        read += data
        at = 0
        while len(read) - at >= _LENGTH.size and self._transport is not None:
            (length,) = _LENGTH.unpack_from(read, at)
            first = at + _LENGTH.size
            if len(read) < first + length:
                break
            at = first + length
            self._take(bytes(read[first:at]))
        del read[:at]

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.ended.set()
        if self._watching is not None:
            self._watching.cancel()
        was_ready, self.is_ready = self.is_ready, False
        if was_ready:
            self._on_lost(self)

    # ------------------------------------------------------------------- frames

    def _take(self, frame: bytes) -> None:
        try:
            if not self.is_ready:
                self._greet(Greeting.read(frame))
                return
            found = load(frame)
            if isinstance(found, Asked):
                self.send(There())
            elif isinstance(found, About):
                self.about = found
                self._on_ready(self)
            elif not isinstance(found, There):
                self._on_frame(self, found)
        except Exception as error:  # of another version, or no host at all
            logger.warning("the connection with a process of this machine ends: %s", text_of(error))
            self.close()

    def _greet(self, given: Greeting) -> None:
        """Check the greeting of the other end, and make the connection ready, or end it."""
        transport = self._transport
        assert transport is not None, "it has sent something"
        with socket.fromfd(
            transport.get_extra_info("socket").fileno(), socket.AF_UNIX, socket.SOCK_STREAM
        ) as connected:
            pid, user = who_is(connected)
        own = self._greeting(given.host_id)
        expected = (given.host_id, pid)
        if self._opened_to is not None:
            expected = (self._opened_to[0], self._opened_to[1].pid)
        is_known = (
            user == os.getuid()
            and (given.host_id, given.pid) == expected
            and given.pid == pid
            and given.library == own.library
            and hmac.compare_digest(given.proof, proof_of(self._secret, given.host_id, own.host_id))
        )
        if not is_known:
            logger.info("process %s of this machine is no peer of this host", pid)
            self.close()
            return
        self.host_id = given.host_id
        if self._opened_to is None:
            self._write(own.dump())
        self.is_ready = True
        self._on_ready(self)

    def send(self, frame: object) -> None:
        """Send a frame, with all others of this turn of the loop."""
        if not self._to_send:
            self._loop.call_soon(self._flush)
        self._to_send.append(dump(frame))

    def _flush(self) -> None:
        frames, self._to_send = self._to_send, []
        self._write(*frames)
        if self._transport is not None and (self._transport.get_write_buffer_size() > MOST_WAITING):
            self.close()

    def _write(self, *frames: bytes) -> None:
        parts = [part for frame in frames for part in (_LENGTH.pack(len(frame)), frame)]
        if self._transport is not None:
            self._transport.write(b"".join(parts))

    def close(self) -> None:
        """End the connection at once: frames that were not sent by now never are."""
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------------- silence

    def watch(self) -> None:
        """Count a call that waits for the other end; a silent other end ends the connection."""
        self.waits += 1
        if self._watching is None:
            # Nothing was to be heard while nothing was asked.
            self._heard_at = max(self._heard_at, self._loop.time() - ASK_AFTER)
            self._watching = self._loop.call_later(ASK_AFTER, self._look)

    def _look(self) -> None:
        self._watching = None
        if not self.waits or self._transport is None:
            return
        silent = self._loop.time() - self._heard_at
        if silent > PATIENCE:
            logger.info("host %s, of another process of this machine, is silent", self.host_id)
            self.close()
            return
        if silent >= ASK_AFTER:
            self.send(Asked())
        self._watching = self._loop.call_later(ASK_AFTER, self._look)
