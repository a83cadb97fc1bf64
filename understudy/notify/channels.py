"""`Channel`: a way by which a notice gets to people, and the error if it does not."""

from __future__ import annotations

import inspect
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

from understudy._base.json_values import checked_text, shown
from understudy._base.worker_threads import WorkerThreads
from understudy.errors import UsageError
from understudy.notify.notice import Notice

SECONDS = 10.0
"""Seconds that a server may take for each answer."""
MAX_ANSWER = 64 * 1024
"""The maximum bytes of an answer that are read."""
threads: WorkerThreads = WorkerThreads(16, name="understudy-notify")
"""The threads in which deliveries wait for servers."""


class DeliveryFailed(Exception):
    """A channel could not deliver a notice. Raise it in a channel or a hook of your own.

    Args:
        why: the reason, for people, without secrets.
        is_final: whether no later attempt can succeed.
        after: the least number of seconds until the next attempt.

    """

    def __init__(self, why: str, *, is_final: bool = False, after: float = 0.0) -> None:
        super().__init__(why)
        self.why = why
        self.is_final = is_final
        self.after = after


class Channel(ABC):
    """A way on which notices reach people. Subclass it for a channel of your own.

    Args:
        name: the name of the channel, which the store keeps. Each channel of a `Notify` has its
            own name.

    """

    def __init__(self, name: str) -> None:
        self.name: str = checked_text(name, what=f"{type(self).__name__}(name)")
        """The name of the channel."""
        if not self.name.isprintable() or len(self.name) > 100:
            raise UsageError(
                f"{type(self).__name__}(name) must be a name of at most 100 printable characters, "
                f"got {shown(name)}"
            )

    @abstractmethod
    async def deliver(self, notice: Notice) -> str:
        """Deliver a notice, and return a receipt.

        The receipt is the text that `ended` needs to change the message later. An empty receipt
        means that the message does not change.

        Raises:
            DeliveryFailed: if it cannot be delivered. It is tried again, unless the error is
                final. After any other error it is tried again too.

        """

    async def ended(self, receipt: str, said: str) -> None:
        """Change a message after its request has ended.

        Args:
            receipt: the receipt from `deliver`.
            said: what happened to the request, as a sentence.

        """
        return


class Hook(Channel):
    """A function of the application."""

    def __init__(self, name: str, function: Callable[[Notice], Awaitable[None] | None]) -> None:
        super().__init__(name)
        self._function = function

    async def deliver(self, notice: Notice) -> str:
        if inspect.iscoroutinefunction(self._function):
            await self._function(notice)
            return ""
        made = await threads.run(self._function, notice)
        if inspect.isawaitable(made):
            await made
        return ""


class Answer(NamedTuple):
    """The answer of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirect: a body signed for one server is not sent to another."""

    def redirect_request(self, *given: Any, **named: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect)


async def post(url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
    """Send a body. The URL has been checked by `checked_url`.

    Raises:
        DeliveryFailed: if no answer comes.

    """
    request = urllib.request.Request(url, body, dict(headers), method="POST")  # noqa: S310

    def send() -> Answer:
        try:
            with _opener.open(request, timeout=SECONDS) as found:
                return _answer(found.status, found.headers, found)
        except urllib.error.HTTPError as error:
            with error:
                return _answer(error.code, error.headers, error)

    try:
        return await threads.run(send)
    except (OSError, ValueError) as error:  # also for TLS, name and protocol errors
        reason = getattr(error, "reason", None) or error
        raise DeliveryFailed(f"no answer: {reason}") from error


def _answer(status: int, headers: Any, body: IO[bytes]) -> Answer:
    found = {name.lower(): value for name, value in headers.items()}
    return Answer(status, found, body.read(MAX_ANSWER))


def retry_after(answer: Answer) -> float:
    """The seconds until the next attempt that a server asks for; 0 if it asks for none."""
    said = answer.headers.get("retry-after", "")
    return min(float(said), 86_400.0) if said.isdecimal() else 0.0


def checked_url(given: object, *, what: str) -> str:
    """A URL of a server.

    Raises:
        UsageError: for anything else.

    """
    text = checked_text(given, what=what)
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        is_url = False
    if not is_url or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError(f"{what} must be an http:// or https:// URL, got {shown(given)}")
    return text
