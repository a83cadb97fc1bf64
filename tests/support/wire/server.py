"""A local server that speaks the wire formats of model providers from a script.

It is what a provider's client sees: real sockets, kept-alive connections, server-sent events. It
answers in the format that the path of a request names, as a stream or as a whole, whichever is
asked for, and keeps each request's body for the test to look at.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Protocol, Self, cast

from tests.support.wire import anthropic_messages, google_content, openai_chat, openai_responses
from tests.support.wire.script import Answer, HttpError, RawBody, Reply, WireEvent, sent

EXHAUSTED = 418
"""Answered when the script has no reply left: no client tries this status again."""


class WireFormat(Protocol):
    """A module that puts replies on the wire of one provider."""

    def takes(self, path: str) -> bool:
        """Whether requests to this path are of this format."""

    def streams(self, path: str, body: Mapping[str, Any]) -> bool:
        """Whether this request asks for a stream."""

    def error(self, given: HttpError) -> dict[str, Any]:
        """The body of an error."""

    def whole(
        self, number: int, path: str, body: Mapping[str, Any], reply: Reply
    ) -> dict[str, Any]:
        """The body of a reply to request `number`."""

    def events(
        self, number: int, path: str, body: Mapping[str, Any], reply: Reply
    ) -> Iterator[WireEvent]:
        """The events of a streamed reply to request `number`."""


FORMATS: tuple[WireFormat, ...] = (
    openai_chat,
    openai_responses,
    anthropic_messages,
    google_content,
)


class WireServer:
    """The server. Use it as a context manager; leaving it closes every connection.

    Args:
        script: one answer for each request; `itertools.repeat(answer)` for ever the same.

    """

    def __init__(self, script: Iterable[Answer]) -> None:
        self._script: Iterator[Answer] = iter(script)
        self._lock = threading.Lock()
        self.requests: list[dict[str, Any]] = []
        """The bodies of all requests so far, oldest first."""
        self.paths: list[str] = []
        """Their paths, with the queries."""
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        """Without a path, as the clients of Anthropic and Google take it."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def base_url(self) -> str:
        """With the path that OpenAI's clients take."""
        return f"{self.url}/v1"

    def all_hung_up(self, *, timeout: float = 5) -> bool:
        """Whether clients have closed all their connections; waits for it a little."""
        return self._server.all_closed(timeout)

    @property
    def conversations(self) -> list[list[dict[str, Any]]]:
        """The messages of each request, in its provider's form."""
        keys = ("messages", "input", "contents")
        return [next(r[key] for key in keys if key in r) for r in self.requests]

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
            reply = next(self._script, None)
            number = len(self.requests)
        if reply is None:
            message = f"the script has no answer to request {number}"
            reply = HttpError(status=EXHAUSTED, message=message)
        return number, reply


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True

    def __init__(self, owner: WireServer) -> None:
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
        owner = cast("_Server", self.server).owner
        owner.paths.append(self.path)
        number, answer = owner.answer(body)
        spoken = next((each for each in FORMATS if each.takes(self.path)), None)
        if isinstance(answer, RawBody):
            self._body(answer.status, answer.body, answer.content_type, answer.headers)
        elif spoken is None:
            message = f"no such path: {self.path}"
            self._json(404, openai_chat.error(HttpError(status=404, message=message)))
        elif isinstance(answer, HttpError):
            self._json(answer.status, spoken.error(answer), answer.headers)
        elif spoken.streams(self.path, body):
            self._stream(list(spoken.events(number, self.path, body, answer)), answer)
        else:
            self._json(200, spoken.whole(number, self.path, body, answer))

    # -------------------------------------------------------------------- answers

    def _json(
        self, status: int, data: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> None:
        self._body(status, json.dumps(data), "application/json", headers or {})

    def _body(self, status: int, body: str | bytes, kind: str, headers: Mapping[str, str]) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, events: list[WireEvent], reply: Reply) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in sent(events, reply.cut):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        if reply.cut is not None and not reply.cut.clean:
            self.close_connection = True  # before the end of the chunked body
            return
        self.wfile.write(b"0\r\n\r\n")
