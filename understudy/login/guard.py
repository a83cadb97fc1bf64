"""`Guard`: the checks on each request, before any page is looked up."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from understudy._base import security_log
from understudy._base.security_log import asked_from
from understudy.errors import UsageError
from understudy.login.hosts import Hosts
from understudy.login.problems import Problem, problem_response
from understudy.login.users import Auth, User, asked_user

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
CSP = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
STATIC = "/static/"
ACTING_FOR = "Understudy-As"
"""The header with the name of the person for whom a user with the right acts: percent-encoded
UTF-8."""
OF_ANOTHER_SITE = "The request comes from a page of another site."
SAYS_NOT_FROM_WHERE = (
    "The request changes something, has a cookie, and does not say from which page it comes. A "
    "program that sends a cookie sends `Origin: {origin}` as well; or no cookie, but "
    "`Authorization: Bearer TOKEN`."
)
"""The refusal of a browser that does not say where a request comes from: it may show another site's
page."""


class Guard:
    """Checks the host, the origin and the user of each request, and adds headers.

    Args:
        app: the pages.
        auth: the function that says who makes a request.
        hosts: the names under which the pages are served.
        origins: other origins whose pages may make requests.

    """

    def __init__(
        self, app: ASGIApp, auth: Auth, hosts: Hosts, origins: Collection[str] = ()
    ) -> None:
        self._app = app
        self._auth = auth
        self._hosts = hosts
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        request = Request(scope, receive)
        with asked_from(request.client.host if request.client is not None else None):
            refusal = self._refusal(scope)
            if refusal is None and not path_in(scope).startswith(STATIC):
                refusal = await self._logged_in(request)
            await (refusal or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """The answer to a request that is refused unread."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        host = hosts[0] if len(hosts) == 1 else ""
        if not self._hosts.allows(host):
            return _refused(
                scope,
                Problem(
                    421,
                    "UnknownHost",
                    "This server is not known by that name. An application names the names that "
                    "it is served under in `allowed_hosts=`.",
                ),
            )
        if not is_utf8(scope):
            return problem_response(
                scope, Problem(400, "UsageError", "The URL is not in UTF-8, percent-encoded.")
            )
        if (
            scope["method"] not in SAFE
            and not is_same_origin(headers, host)
            and headers.get("origin") not in self._origins
        ):
            says = headers.get("sec-fetch-site") or headers.get("origin")
            own = SAYS_NOT_FROM_WHERE.format(origin=f"{scope['scheme']}://{host}")
            return _refused(scope, Problem(403, "CrossSite", OF_ANOTHER_SITE if says else own))
        return None

    async def _logged_in(self, request: Request) -> Response | None:
        """Note the user of the request; returns the answer if there is none."""
        found = await asked_user(self._auth, request)
        if isinstance(found, User):
            return self._acting(request, found)
        if isinstance(found, Response):
            return found
        security_log.note("login", "refused", who=None)
        by_url = ", or open the URL that has the token" if hasattr(self._auth, "login_url") else ""
        return problem_response(
            request.scope,
            Problem(401, "LoginNeeded", f"Log in first{by_url}."),
            {"WWW-Authenticate": "Bearer"},
        )

    def _acting(self, request: Request, user: User) -> Response | None:
        """Note the user of the request, and for whom the user acts; returns the refusal, if any."""
        given = request.headers.getlist(ACTING_FOR)
        if given:
            if "impersonate" not in user.may:
                security_log.note("refused", "impersonate", who=user.name)
                why = f"{user.name} may not do that: it needs the right 'impersonate'."
                return problem_response(request.scope, Problem(403, "NotAllowed", why))
            try:
                user = replace(user, acting_for=unquote(given[0], errors="strict"))
            except (UnicodeDecodeError, UsageError) as error:
                why = f"The header {ACTING_FOR} does not name a person: {error}"
                return problem_response(request.scope, Problem(400, "UsageError", why))
            security_log.note("act", "impersonate", who=user.by)
        request.scope["understudy.user"] = user
        return None


def _refused(scope: Scope, problem: Problem) -> Response:
    """The answer to a request that is refused before its user is looked up."""
    security_log.note("refused", problem.error, who=None)
    return problem_response(scope, problem)


def path_in(scope: Scope) -> str:
    """The path below the mount."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(root) else path


def is_utf8(scope: Scope) -> bool:
    """Whether the URL is valid text. A server replaces each invalid byte by a mark."""
    try:
        for part in (scope.get("raw_path") or b"", scope["query_string"]):
            unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        return False
    return True


def is_same_origin(headers: Headers, host: str) -> bool:
    """Whether no page of another site makes this request.

    A browser says where a request comes from by `Sec-Fetch-Site`, an older browser by
    `Origin`. A client without either is no browser, unless it sends a cookie.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    if origin is not None:
        try:
            return urlsplit(origin).netloc.lower() == host.lower()
        except ValueError:  # an invalid address, such as http://[
            return False
    return "cookie" not in headers
