"""`WaitRoute`: an ASGI application by which outside callers answer the waits of tools."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import pykka
from pydantic_core import from_json

from understudy._base.authors import checked_author
from understudy._base.json_values import checked_count, shown, text_of
from understudy.actors.runtime import Runtime
from understudy.errors import (
    Expired,
    RecordRefused,
    StoreError,
    UnderstudyError,
    UnknownToken,
    UsageError,
)
from understudy.run.waits.answers import rejected, resolved

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MAX_BYTES = 64 * 1024
logger: logging.Logger = logging.getLogger(__name__)
RETRY_SECONDS = "5"


class _Refused(Exception):
    """The request is answered with this status and this constant text."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status
        self.error = error


class WaitRoute:
    """An ASGI application that takes answers to waits: `app.mount("/waits", WaitRoute(lambda:
    app.state.runtime))`.

    It needs no framework.

    `POST .../<token>` with a JSON body resolves the wait of this token with that value. `POST
    .../<token>/reject` with a JSON text rejects the wait for that reason. Both answer with a JSON
    object that contains nothing of what was sent:

    - 200 `accepted`: the wait has an answer: this one, or one that was recorded before.
    - 400: no JSON, or a wrong reason; 405: not POST; 413: too large; 415: not `application/json`.
    - 404 `unknown`: no wait has this token, whatever it looks like.
    - 410 `expired`: the wait is over without an answer.
    - 503: the store is unavailable, or the agent belongs to another runtime that cannot be asked
      (`any_host=False`). Send it again later.

    The token in the path is the secret; nothing else is checked. Keep it out of logs. A request
    does not say who sent it: give `by` if all requests come from one service.

    Args:
        runtime: a `Runtime` or a `Cluster`, or a function that returns it and is called for
            each request. A mounted application is made before the runtime, so give a function.
        max_bytes: the largest size of a body, in bytes.
        by: the person or service that answers, as of `Runtime.resolve`.

    Raises:
        UsageError: for a wrong argument.

    """

    def __init__(
        self,
        runtime: Runtime | Callable[[], Runtime],
        *,
        max_bytes: int = MAX_BYTES,
        by: str | None = None,
    ) -> None:
        if not isinstance(runtime, Runtime) and not callable(runtime):
            raise UsageError(
                f"WaitRoute takes a Runtime, or a function that gives it, got {shown(runtime)}"
            )
        self._runtime = runtime
        self._by = checked_author(by, what="WaitRoute(by=...)")
        self._max_bytes = checked_count(max_bytes, what="WaitRoute: `max_bytes`")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; see ASGI 3."""
        if scope["type"] != "http":
            raise UsageError(f"WaitRoute serves http alone, not {shown(scope['type'])}")
        try:
            await self._answer(scope, receive)
        except _Refused as refused:
            await _respond(send, refused.status, {"error": refused.error})
        else:
            await _respond(send, 200, {"status": "accepted"})

    async def _answer(self, scope: Scope, receive: Receive) -> None:
        # A GET changes nothing: programs that show a preview of a link follow it.
        if scope["method"] != "POST":
            raise _Refused(405, "use POST")
        headers = {name.lower(): value for name, value in scope["headers"]}
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            raise _Refused(415, "send application/json")
        value = _value(await self._body(headers, receive))
        *_, before, last = ["", "", *str(scope["path"]).split("/")]
        is_rejection = last == "reject"
        try:
            _ = rejected(value) if is_rejection else resolved(value)
        except UsageError:
            remedy = "send the reason as a JSON text" if is_rejection else "not a value for this"
            raise _Refused(400, remedy) from None
        try:
            runtime = self._runtime if isinstance(self._runtime, Runtime) else self._runtime()
            if is_rejection:
                await runtime.reject(before, value, by=self._by)
            else:
                await runtime.resolve(last, value, by=self._by)
        except UnknownToken:
            raise _Refused(404, "unknown") from None
        except Expired:
            raise _Refused(410, "expired") from None
        except RecordRefused:
            raise _Refused(413, "too large") from None
        except (StoreError, UsageError, pykka.ActorDeadError):  # also a runtime that has stopped
            raise _Refused(503, "try again later") from None
        except UnderstudyError as error:  # the agent could not be activated
            logger.error("an answer to a wait was not taken: %s", text_of(error))
            raise _Refused(503, "try again later") from None

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        """The body of a request; a body that is too large is not read to its end."""
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > self._max_bytes:
            raise _Refused(413, "too large")
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":  # the client has gone away
                raise _Refused(400, "incomplete")
            body += message.get("body", b"")
            if len(body) > self._max_bytes:
                raise _Refused(413, "too large")
            if not message.get("more_body", False):
                return bytes(body)


def _value(body: bytes) -> Any:
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError:
        raise _Refused(400, "not JSON") from None


async def _respond(send: Send, status: int, content: Mapping[str, str]) -> None:
    body = json.dumps(content).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    if status == 405:
        headers.append((b"allow", b"POST"))
    if status == 503:
        headers.append((b"retry-after", RETRY_SECONDS.encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
