"""A local server that speaks the chat-completions wire format from a script.

It is what a provider's client sees: real sockets, kept-alive connections, server-sent events. It
answers a request as a stream or as a whole, whichever the request asks for, and keeps each
request's body for the test to look at.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, cast

__all__ = ["Answer", "FakeProvider", "HttpError", "Reply", "WireCall", "wire_call"]

EXHAUSTED = 418
"""Answered when the script has no reply left: no client tries this status again."""


@dataclass(frozen=True, slots=True)
class WireCall:
    """A tool call as it stands on the wire: its arguments are a string, well-formed or not."""

    name: str
    arguments: str
    id: str


def wire_call(name: str, arguments: Mapping[str, Any] | str, *, id: str) -> WireCall:
    """A tool call; arguments given as a string are sent as they are."""
    told = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return WireCall(name, told, id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the model says. Streamed, text comes in the pieces given, arguments in threes."""

    text: str | tuple[str, ...] = ""
    calls: tuple[WireCall, ...] = ()
    finish_reason: str | None = None
    """By default `tool_calls` where there are some, else `stop`."""
    breaks: bool = False
    """Streamed: the connection closes after the last piece, with no end of the reply or body."""
    ends_early: bool = False
    """Streamed: the body ends well, but the reply in it has no finish reason and no `[DONE]`."""

    @property
    def pieces(self) -> tuple[str, ...]:
        return (self.text,) if isinstance(self.text, str) else self.text

    @property
    def finish(self) -> str:
        return self.finish_reason or ("tool_calls" if self.calls else "stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpError:
    """A refusal instead of a reply."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = "refused by the script"


Answer = Reply | HttpError
"""To one request."""


class FakeProvider:
    """The server. Use it as a context manager; leaving it closes every connection.

    Args:
        script: one answer for each request; `itertools.repeat(answer)` for ever the same.

    """

    def __init__(self, script: Iterable[Answer]) -> None:
        self._script: Iterator[Answer] = iter(script)
        self._lock = threading.Lock()
        self.requests: list[dict[str, Any]] = []
        """The bodies of all requests so far, oldest first."""
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def all_hung_up(self, *, timeout: float = 5) -> bool:
        """Whether clients have closed all their connections; waits for it a little."""
        return self._server.all_closed(timeout)

    @property
    def conversations(self) -> list[list[dict[str, Any]]]:
        """The `messages` of each request."""
        return [request["messages"] for request in self.requests]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()  # waits for the threads of all connections

    def answer(self, body: dict[str, Any]) -> tuple[int, Answer]:
        """The number of this request, from 1, and what it gets."""
        with self._lock:
            self.requests.append(body)
            told = next(self._script, None)
            number = len(self.requests)
        if told is None:
            message = f"the script has no answer to request {number}"
            told = HttpError(status=EXHAUSTED, message=message)
        return number, told


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True

    def __init__(self, owner: FakeProvider) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.owner = owner
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()

    def opened(self, connection: socket.socket) -> None:
        with self._changed:
            self._open.add(connection)

    def closed(self, connection: socket.socket) -> None:
        with self._changed:
            self._open.discard(connection)
            self._changed.notify_all()

    def all_closed(self, timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._open, timeout)

    def hang_up(self) -> None:
        with self._changed:
            for connection in self._open:
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept alive, as a real provider's are
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        cast("_Server", self.server).opened(self.connection)

    def finish(self) -> None:
        cast("_Server", self.server).closed(self.connection)
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the test looks at `requests`."""

    def do_POST(self) -> None:  # the name that http.server calls
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number, answer = cast("_Server", self.server).owner.answer(body)
        if self.path != "/v1/chat/completions":
            answer = HttpError(status=404, message=f"no such path: {self.path}")
        if isinstance(answer, HttpError):
            self._refuse(answer)
        elif body.get("stream"):
            self._stream(_head(number, body), answer, with_usage=bool(body.get("stream_options")))
        else:
            self._whole(_head(number, body), answer)

    # -------------------------------------------------------------------- answers

    def _refuse(self, error: HttpError) -> None:
        told = {"error": {"message": error.message, "type": "scripted", "code": None}}
        self._json(error.status, told, error.headers)

    def _whole(self, head: dict[str, Any], reply: Reply) -> None:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(reply.pieces) or None}
        if reply.calls:
            message["tool_calls"] = [_told(call) for call in reply.calls]
        choice = {"index": 0, "message": message, "finish_reason": reply.finish, "logprobs": None}
        self._json(
            200,
            {**head, "object": "chat.completion", "choices": [choice], "usage": _USAGE},
            {},
        )

    def _json(self, status: int, told: dict[str, Any], headers: Mapping[str, str]) -> None:
        data = json.dumps(told).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, head: dict[str, Any], reply: Reply, *, with_usage: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        head = {**head, "object": "chat.completion.chunk"}
        for delta in _deltas(reply):
            choice = {"index": 0, "delta": delta, "finish_reason": None}
            self._event(json.dumps({**head, "choices": [choice]}))
        if reply.breaks:
            self.close_connection = True  # before the end of the chunked body
            return
        if not reply.ends_early:
            choice = {"index": 0, "delta": {}, "finish_reason": reply.finish}
            self._event(json.dumps({**head, "choices": [choice]}))
            if with_usage:
                self._event(json.dumps({**head, "choices": [], "usage": _USAGE}))
            self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, data: str) -> None:
        line = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))


_USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def _head(number: int, body: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number}", "created": 1_760_000_000, "model": body["model"]}


def _told(call: WireCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _deltas(reply: Reply) -> Iterator[dict[str, Any]]:
    """The reply as a provider streams it: a call's name first, then its arguments bit by bit."""
    yield {"role": "assistant", "content": ""}
    for piece in reply.pieces:
        if piece:
            yield {"content": piece}
    for index, call in enumerate(reply.calls):
        function = {"name": call.name, "arguments": ""}
        yield {
            "tool_calls": [
                {"index": index, "id": call.id, "type": "function", "function": function}
            ]
        }
        for start in range(0, len(call.arguments), 3):
            bit = {"arguments": call.arguments[start : start + 3]}
            yield {"tool_calls": [{"index": index, "function": bit}]}
