"""A protocol for uvicorn that closes connections whose request does not come."""

from __future__ import annotations

import asyncio
from typing import Any

HEADER_SECONDS = 15.0
"""The maximum seconds for the head of a request, from its first byte or from the connection."""


def timed_protocol() -> type[asyncio.Protocol]:
    """The protocol that uvicorn would take, with a time limit for the head of each request.

    Without the limit, a connection that sends half of a head stays open for ever, and a few
    thousand such connections take all descriptors of the process.
    """
    import uvicorn

    config = uvicorn.Config(_no_app, log_config=None)
    config.load()
    base: Any = config.http_protocol_class

    class TimedProtocol(base):  # type: ignore[misc]
        """A protocol that closes the connection if no request has begun in time."""

        _limit: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait_for_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            # Single bytes do not restart the time.
            if self.cycle is None or self.cycle.response_complete:
                self._wait_for_head()
            else:
                self._end_waiting()

        def connection_lost(self, exc: Exception | None) -> None:
            self._end_waiting()
            super().connection_lost(exc)

        def _wait_for_head(self) -> None:
            if self._limit is None:
                loop = asyncio.get_running_loop()
                self._limit = loop.call_later(HEADER_SECONDS, self._too_slow)

        def _end_waiting(self) -> None:
            if self._limit is not None:
                self._limit.cancel()
                self._limit = None

        def _too_slow(self) -> None:
            self._limit = None
            # Race: a request that waits behind an answered one has begun meanwhile.
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

    return TimedProtocol


async def _no_app(scope: Any, receive: Any, send: Any) -> None:
    """A placeholder for an application: only the choice of the protocol matters."""
