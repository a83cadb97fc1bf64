"""Calls over HTTP by the standard library alone: other clients take longer to import."""

from __future__ import annotations

import base64
import http.client
import ipaddress
import select
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from understudy.cli.exits import USAGE, NoAnswer, refuse

SECONDS = 30.0
"""The maximum seconds until a server has answered."""
STREAM_SECONDS = 60.0
"""The maximum seconds until the next line of a stream: a ping comes each 15 seconds."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Response:
    """The answer of a server."""

    status: int
    headers: Mapping[str, str]
    """The headers, by their names in small letters."""
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether the server did what was asked."""
        return 200 <= self.status < 300

    @property
    def media_type(self) -> str:
        """The media type of the body."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Connection:
    """A connection to one server, which is opened anew if the server has closed it.

    Args:
        url: the URL of the server; the paths of calls are below its path.
        headers: the headers of all calls.

    """

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._place = _place(url)
        self._root = self._place.path.rstrip("/")
        self._headers = _checked(headers)
        self._proxy = _proxy_of(self._place)
        self._open: http.client.HTTPConnection | None = None
        self._stream: socket.socket | None = None
        self._is_closed = False

    def call(self, method: str, target: str, *, body: bytes | None = None) -> Response:
        """Ask, and wait for the whole answer.

        Raises:
            NoAnswer: if no answer comes.

        """
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            if self._open is not None and _is_over(self._open):
                self._open.close()
                self._open = None
            if self._open is None:
                self._open = self._connected()
            self._ask(self._open, method, target, headers, body)
            found = self._open.getresponse()
            with closing(found):
                return Response(found.status, _named(found), found.read())
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            raise NoAnswer(_why(error)) from error
        except BaseException:  # after Ctrl-C the answer would be taken for that of the next call
            self._drop()
            raise

    def stream(self, target: str, headers: Mapping[str, str]) -> tuple[Response, Iterator[str]]:
        """The head of a stream of events and its lines, on a separate connection.

        Any other answer is whole, and has no lines.

        Raises:
            NoAnswer: if no answer comes; the lines raise it too.

        """
        with ExitStack() as stack:
            connection = self._answered(self._connected)
            stack.callback(connection.close)
            socket_ = connection.sock  # an answer without a length takes it over
            self._answered(lambda: self._ask(connection, "GET", target, _checked(headers), None))
            found = self._answered(connection.getresponse)
            stack.callback(found.close)
            head = Response(found.status, _named(found), b"")
            if head.status != 200 or head.media_type != "text/event-stream":
                return Response(head.status, head.headers, self._answered(found.read)), iter(())
            socket_.settimeout(STREAM_SECONDS)
            self._stream = socket_
            return head, self._lines(found, stack.pop_all())

    def _lines(self, found: http.client.HTTPResponse, opened: ExitStack) -> Iterator[str]:
        try:
            while not self._is_closed and (line := found.readline()):
                yield line.decode("utf-8", "replace").rstrip("\r\n")
        except (OSError, ValueError, AttributeError, http.client.HTTPException) as error:
            # `ValueError` and `AttributeError` mean that another thread has closed what this one
            # reads.
            if not self._is_closed:
                raise NoAnswer(_why(error)) from error
        finally:
            self._stream = None
            opened.close()

    def _answered(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(_why(error)) from error

    def close(self) -> None:
        """Close all connections. A stream ends, even if another thread waits for its next line."""
        self._is_closed = True
        stream = self._stream
        if stream is not None:
            # Closing a socket does not wake its readers, so it is shut down first
            # (test_a_stream_that_is_closed_by_another_thread_ends_at_once).
            with suppress(OSError):  # the connection has ended by itself
                stream.shutdown(socket.SHUT_RDWR)
        self._drop()

    def _drop(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _connected(self) -> http.client.HTTPConnection:
        if self._is_closed:  # otherwise the follower of a stream would ask for it again
            raise NoAnswer("the connection was closed")
        place = self._proxy or self._place
        assert place.hostname is not None
        is_secure = self._place.scheme == "https"
        port = place.port or (443 if place.scheme == "https" else 80)
        made: http.client.HTTPConnection
        if is_secure:
            context = ssl.create_default_context()
            made = http.client.HTTPSConnection(
                place.hostname, port, timeout=SECONDS, context=context
            )
        else:
            made = http.client.HTTPConnection(place.hostname, port, timeout=SECONDS)
        if self._proxy is not None and is_secure:
            made.set_tunnel(
                str(self._place.hostname), self._place.port or 443, _login_of(self._proxy)
            )
        made.connect()
        return made

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> None:
        whole = {**self._headers, **headers}
        asked = f"{self._root}{target}"
        if self._proxy is not None and self._place.scheme == "http":
            asked = f"http://{self._place.netloc.rpartition('@')[2]}{asked}"
            whole |= _login_of(self._proxy)
        connection.request(method, asked, body=body, headers=whole)


def _place(url: str) -> SplitResult:
    """The parts of the URL of a server."""
    try:
        place = urlsplit(url)
        is_fine = place.scheme in ("http", "https") and bool(place.hostname) and place.port != 0
    except ValueError:
        is_fine = False
    if not is_fine or not url.isprintable() or " " in url:
        refuse(USAGE, f"{url!r} is no URL of a server: write http://host:port or https://host")
    return place


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not value.isprintable() or not value.isascii():
            what = "the token" if name == "Authorization" else f"the header {name}"
            refuse(USAGE, f"{what} has a character that no header can have")
    return dict(headers)


def _proxy_of(place: SplitResult) -> SplitResult | None:
    """The proxy that the environment names for a server; None for a server on this machine."""
    host = place.hostname or ""
    if _is_here(host) or proxy_bypass(place.netloc.rpartition("@")[2]):
        return None
    found = getproxies()
    given = found.get(place.scheme) or found.get("all")
    if not given:
        return None
    proxy = urlsplit(given if "://" in given else f"http://{given}")
    if proxy.scheme != "http" or not proxy.hostname:
        # The value may have a password in it.
        refuse(USAGE, f"the proxy for {place.scheme}:// must be http://host:port; or set no_proxy")
    return proxy


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _login_of(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    given = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
    return {"Proxy-Authorization": f"Basic {base64.b64encode(given).decode()}"}


def _named(found: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in found.getheaders()}


def _is_over(connection: http.client.HTTPConnection) -> bool:
    """Whether the server has closed the connection: then its end can be read, and no answer."""
    connected: Any = connection.sock
    if connected is None:
        return True
    try:
        return bool(select.select([connected], [], [], 0)[0])
    except (OSError, ValueError):
        return True


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__
