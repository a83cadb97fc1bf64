"""The JSON API of a running server, as `understudy.web` serves it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2

from understudy.cli.exits import USAGE, ApiProblem, refuse

SECONDS = 30.0
COOKIE = "UNDERSTUDY_COOKIE"
"""The environment variable with the cookie of a login."""
ACTING_FOR = "Understudy-As"
"""The header with the name in which is acted: see `login.guard`."""


def new_client(url: str, token: str | None) -> httpx2.Client:
    """The connections to a server. Tests put one to an application in its place."""
    headers = _cookie(url) if token is None else {"Authorization": f"Bearer {token}"}
    return httpx2.Client(
        base_url=url.rstrip("/"), headers=headers, timeout=SECONDS, follow_redirects=False
    )


def _cookie(url: str) -> dict[str, str]:
    """The cookie of a login, where no token is given, as a page of the server sends it.

    It is no option: all users of a machine see those in the list of processes.
    """
    cookie = os.environ.get(COOKIE, "").strip()
    if not cookie:
        return {}
    if "=" not in cookie or not cookie.isascii() or not cookie.isprintable():
        refuse(USAGE, f"{COOKIE} takes what a browser sends as its cookie, such as session=abc")
    place = urlsplit(url)
    return {"Cookie": cookie, "Origin": f"{place.scheme}://{place.netloc}"}


def request_path(agent_id: str, request_id: str, below: str = "") -> str:
    """The path of a request of an agent."""
    marked = f"~{request_id}" if request_id[:1] in ("~", ".") else request_id
    return agent_path(agent_id, f"/requests/{quote(marked, safe='')}{below}")


def agent_path(id: str, below: str = "") -> str:
    """The path of an agent. A server takes `..` for the folder above, so such ids are marked."""
    return f"/agents/{quote(f'~{id}' if id[:1] in ('~', '.') else id, safe='')}{below}"


class Api:
    """Calls to one server.

    Args:
        url: of the pages, which the API is below.
        token: for `Authorization: Bearer`.
        acting_for: the name in which is acted, if it is not that of the login.

    """

    def __init__(self, url: str, token: str | None, acting_for: str | None = None) -> None:
        self.url = url
        self._token = token
        self._acting_for = acting_for
        self._client = new_client(url, token)
        if acting_for is not None:
            self._client.headers[ACTING_FOR] = quote(acting_for)
        self._closed = False
        self._streaming: httpx2.Response | None = None

    def twin(self) -> Api:
        """The same server, by connections of its own."""
        return Api(self.url, self._token, self._acting_for)

    def close(self) -> None:
        """Close the connections. A stream ends, also where another thread waits for an event."""
        self._closed = True
        if self._streaming is not None:
            # To close a socket wakes nobody who reads from it: it is shut down first
            # (test_a_stream_that_is_closed_by_another_thread_ends_at_once).
            _shut_down(self._streaming)
        self._client.close()

    def get(self, path: str, **query: Any) -> Any:
        """What is at a path below `/api`."""
        given = {key: value for key, value in query.items() if value is not None}
        return self._answer(self._client.get(f"/api{path}", params=given))

    def post(self, path: str, body: Mapping[str, Any], *, whole: bool = False) -> Any:
        """Do something.

        Args:
            path: below `/api`.
            body: what is sent, without what is None.
            whole: also what is None.

        """
        given = {key: value for key, value in body.items() if whole or value is not None}
        return self._answer(self._client.post(f"/api{path}", json=given))

    def delete(self, path: str, body: Mapping[str, Any]) -> Any:
        """Delete something."""
        return self._answer(self._client.request("DELETE", f"/api{path}", json=dict(body)))

    def stream(self, path: str, after: str | int | None) -> Iterator[tuple[str | None, str]]:
        """The data of a stream with the ids, until it ends: it may be asked for again from there.

        Raises:
            ApiProblem: if there is none.

        """
        headers = {"Accept": "text/event-stream"}
        if after is not None:
            headers["Last-Event-ID"] = str(after)
        limits = httpx2.Timeout(SECONDS, read=60.0)  # a ping comes each 15 seconds
        with self._client.stream("GET", f"/api{path}", headers=headers, timeout=limits) as response:
            if response.status_code != 200 or not _is_of(response, "text/event-stream"):
                # Else it would be asked for again and again, as a stream that has ended
                # (test_a_login_by_cookie_is_said_and_how_commands_come_in).
                response.read()
                self._answer(response)
                raise self._no_api(response)
            self._streaming = response
            try:
                if not self._closed:  # else nobody shuts it down
                    yield from _events(response.iter_lines())
            finally:
                self._streaming = None

    def _answer(self, response: httpx2.Response) -> Any:
        try:
            data = response.json()
        except ValueError:
            data = None
        if response.is_success and data is not None:
            return data
        is_page = response.is_success and _is_of(response, "text/html")
        if response.status_code == 401 or response.has_redirect_location or is_page:
            raise ApiProblem(401, {"error": "LoginNeeded", "detail": self._way_in(response)})
        if not isinstance(data, dict) or "error" not in data:  # a problem of ours has its name
            raise self._no_api(response)
        raise ApiProblem(response.status_code, data)

    def _no_api(self, response: httpx2.Response) -> ApiProblem:
        at = self.url if response.is_server_error else f"no understudy pages at {self.url}"
        detail = f"{at}: the server answered {response.status_code}"
        return ApiProblem(response.status_code, {"error": "NoApi", "detail": detail})

    def _way_in(self, response: httpx2.Response) -> str:
        """Why the server does not let the command in, and how to come in."""
        if response.has_redirect_location:
            why = f"the server sends you to {response.headers['location']}"
        elif response.status_code != 401:
            why = "the server answers with a page, such as a login"
        elif self._token is None:
            why = "the server does not know you"
        else:
            why = "the server does not take this token"
        return (
            f"{why}: give its --token, or UNDERSTUDY_TOKEN. If the application has a login by "
            f"cookie, set {COOKIE} to the cookie of your browser, such as session=abc, or its "
            "`auth=` has to take `Authorization: Bearer` as well. And --url has to be where the "
            "pages are mounted"
        )


def _is_of(response: httpx2.Response, media_type: str) -> bool:
    given: str = response.headers.get("content-type", "")
    return given.partition(";")[0].strip().lower() == media_type


def _shut_down(response: httpx2.Response) -> None:
    network = response.extensions.get("network_stream")  # none where no network is between
    connected = None if network is None else network.get_extra_info("socket")
    if connected is not None:
        with suppress(OSError):  # it has ended by itself
            connected.shutdown(socket.SHUT_RDWR)


def _events(lines: Iterator[str]) -> Iterator[tuple[str | None, str]]:
    """The events of a stream of lines: id and data."""
    id: str | None = None
    data: list[str] = []
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "id":
            id = value
        elif not line and data:
            yield id, "\n".join(data)
            id, data = None, []
