"""`HttpClient`: the HTTP client for MCP servers, with limits and refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2

MAX_ANSWER = 10_000_000
"""The maximum bytes of one answer."""


class _Bounded(httpx2.AsyncByteStream):
    """The body of an answer, which ends in an error after a maximum number of bytes."""

    def __init__(self, stream: httpx2.AsyncByteStream, most: int, why: str) -> None:
        self._stream = stream
        self._most = most
        self._why = why

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > self._most:
                raise httpx2.StreamError(self._why)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class HttpClient(httpx2.AsyncClient):
    """A client that reads no endless answer, and reports calls that a server has not taken.

    A compressed answer is not read, because its size is unknown.

    Args:
        on_refusal: a function that gets the body of a request and the status; 0 = the server was
            not reached.
        seconds: the time limit of everything but reading, which lasts as long as a call.
        options: the options of the client.

    """

    def __init__(
        self, on_refusal: Callable[[bytes, int], None], seconds: float, **options: Any
    ) -> None:
        super().__init__(timeout=httpx2.Timeout(seconds, read=None), **options)
        self.headers["accept-encoding"] = "identity"
        self._on_refusal = on_refusal

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            response = await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            self._check_refusal(request, 0)
            raise
        if response.status_code >= 400:
            self._check_refusal(request, response.status_code)
        stream = response.stream
        if not isinstance(stream, httpx2.AsyncByteStream):
            return response
        if response.headers.get("content-encoding", "identity") != "identity":
            response.stream = _Bounded(stream, 0, "the answer is compressed")
        elif not response.headers.get("content-type", "").startswith("text/event-stream"):
            # In such a stream each event has its limit.
            response.stream = _Bounded(
                stream, MAX_ANSWER, f"the answer has more than {MAX_ANSWER:,} bytes"
            )
        return response

    def _check_refusal(self, request: httpx2.Request, status: int) -> None:
        if request.method == "POST":
            self._on_refusal(request.content, status)
