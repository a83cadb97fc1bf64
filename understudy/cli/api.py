"""The JSON API of a running server, as `understudy.web` serves it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from understudy.cli.connection import Connection, Response
from understudy.cli.ctrl_c import CutOff
from understudy.cli.exits import USAGE, ApiProblem, refuse

COOKIE = "UNDERSTUDY_COOKIE"
"""The environment variable with the cookie of a login."""
ACTING_FOR = "Understudy-As"
"""The header with the name of the person for whom the caller acts: see `login.guard`."""


def _cookie(url: str) -> dict[str, str]:
    """The cookie of a login, if no token is given, as a page of the server sends it.

    It is no option, because all users of a machine see options in the list of processes.
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
        url: the URL of the pages, below which the API is.
        token: the token for `Authorization: Bearer`.
        acting_for: the name of the person for whom the caller acts, if it is not the login's own.

    """

    def __init__(self, url: str, token: str | None, acting_for: str | None = None) -> None:
        self.url = url
        self._token = token
        self._acting_for = acting_for
        headers = _cookie(url) if token is None else {"Authorization": f"Bearer {token}"}
        if acting_for is not None:
            headers[ACTING_FOR] = quote(acting_for)
        self._connection = Connection(url, headers)

    def twin(self) -> Api:
        """Another client of the same server, with separate connections."""
        return Api(self.url, self._token, self._acting_for)

    def close(self) -> None:
        """Close the connections. A stream ends, even if another thread waits for an event."""
        self._connection.close()

    def get(self, path: str, **query: Any) -> Any:
        """Get the data at a path below `/api`."""
        given = {key: value for key, value in query.items() if value is not None}
        asked = f"?{urlencode(given)}" if given else ""
        return self._answer(self._connection.call("GET", f"/api{path}{asked}"))

    def post(self, path: str, body: Mapping[str, Any], *, whole: bool = False) -> Any:
        """Do something.

        Args:
            path: the path below `/api`.
            body: the data to send, without values that are None.
            whole: whether values that are None are sent too.

        """
        given = {key: value for key, value in body.items() if whole or value is not None}
        return self._do("POST", path, given)

    def delete(self, path: str, body: Mapping[str, Any]) -> Any:
        """Delete something."""
        return self._do("DELETE", path, dict(body))

    def _do(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        data = json.dumps(body).encode()
        try:
            answer = self._connection.call(method, f"/api{path}", body=data)
        except KeyboardInterrupt:
            raise CutOff("what was asked of the server may be done all the same") from None
        return self._answer(answer)

    def stream(self, path: str, after: str | int | None) -> Iterator[tuple[str | None, str]]:
        """The data of a stream, each with its id, until it ends. It can be asked for again from
        there.

        Raises:
            ApiProblem: if there is no stream.

        """
        headers = {"Accept": "text/event-stream"}
        if after is not None:
            headers["Last-Event-ID"] = str(after)
        response, lines = self._connection.stream(f"/api{path}", headers)
        if response.status != 200 or response.media_type != "text/event-stream":
            # Otherwise it would be asked for again and again, like a stream that has ended
            # (test_a_login_by_cookie_is_said_and_how_commands_come_in).
            self._answer(response)
            raise self._no_api(response)
        yield from _events(lines)

    def _answer(self, response: Response) -> Any:
        try:
            data = json.loads(response.body)
        except ValueError:
            data = None
        if response.is_success and data is not None:
            return data
        is_page = response.is_success and response.media_type == "text/html"
        if response.status == 401 or _is_elsewhere(response) or is_page:
            raise ApiProblem(401, {"error": "LoginNeeded", "detail": self._way_in(response)})
        if not isinstance(data, dict) or "error" not in data:  # our own problems have a name
            raise self._no_api(response)
        raise ApiProblem(response.status, data)

    def _no_api(self, response: Response) -> ApiProblem:
        at = self.url if response.status >= 500 else f"no understudy pages at {self.url}"
        detail = f"{at}: the server answered {response.status}"
        return ApiProblem(response.status, {"error": "NoApi", "detail": detail})

    def _way_in(self, response: Response) -> str:
        """The text on why the server refuses the command, and how to get access."""
        if _is_elsewhere(response):
            why = f"the server sends you to {response.headers['location']}"
        elif response.status != 401:
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


def _is_elsewhere(response: Response) -> bool:
    return response.status in (301, 302, 303, 307, 308) and "location" in response.headers


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
