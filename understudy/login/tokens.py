"""`TokenAuth`: one secret in the URL that is printed, swapped for a cookie at the first visit."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from understudy.actors.verbs import RIGHTS, Right
from understudy.errors import UsageError
from understudy.login.problems import Problem, problem_response
from understudy.login.users import User, checked_rights

MAX_FAILURES = 10
"""Wrong tokens from one address within `PERIOD`. Those that follow are answered by 429."""
PERIOD = 60.0
"""Seconds."""
MAX_ADDRESSES = 1000
"""Of which wrong tokens are counted; the address with the oldest one is forgotten first."""
SHORTEST = 16
"""Characters of a token."""


class TokenAuth:
    """An `auth` for one secret: `?token=` once, then a cookie; or `Authorization: Bearer`.

    The first page that is opened with the token in its URL answers with a cookie, and a redirect to
    the URL without it. After 10 wrong tokens from an address within a minute, the next wrong ones
    are answered by 429. The right one is always taken.

    Args:
        token: the secret, of at least 16 characters; a new one by default.
        name: under which decisions are recorded.
        may: what its holder may do.
        now: a clock in seconds.

    Raises:
        UsageError: for a token that is too short, a name that is no text, or an unknown right.

    """

    def __init__(
        self,
        token: str | None = None,
        *,
        name: str = "operator",
        may: Iterable[Right] = RIGHTS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        if token is not None and (not isinstance(token, str) or len(token) < SHORTEST):
            raise UsageError(f"`token` must be text of at least {SHORTEST} characters, or None")
        self.token: str = token or secrets.token_urlsafe(32)
        self.user: User = User(name, checked_rights(may))
        # Who reads the cookie does not have the token.
        self._cookie = hmac.new(self.token.encode(), b"cookie", hashlib.sha256).hexdigest()
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()
        self._now = now

    def __call__(self, request: Request) -> User | Response | None:
        """Who makes this request."""
        cookie = request.cookies.get(cookie_name(request))
        if cookie is not None and _same(cookie, self._cookie):
            return self._without_token(request, new=False) or self.user
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        given = bearer.strip() if scheme.lower() == "bearer" else request.query_params.get("token")
        if given is None:
            return None
        if _same(given, self.token):  # first: who guesses keeps nobody out who has it
            return self._without_token(request, new=True) or self.user
        address = request.client.host if request.client is not None else ""
        if self._is_blocked(address):
            problem = Problem(429, "TooManyRequests", "Too many wrong tokens: wait a minute.")
            return problem_response(request.scope, problem, {"Retry-After": str(int(PERIOD))})
        self._note_failure(address)
        return None

    def _without_token(self, request: Request, *, new: bool) -> Response | None:
        """A redirect to the same page, if its URL has a token."""
        if request.method != "GET" or "token" not in request.query_params:
            return None
        pairs = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        query = urlencode([pair for pair in pairs if pair[0] != "token"])
        # Only a path: nothing of the Host header, and no `//name` that a browser takes for one.
        path = "/" + request.url.path.lstrip("/")
        response = RedirectResponse(path + (f"?{query}" if query else ""), 303)
        if new:
            response.set_cookie(
                cookie_name(request),
                self._cookie,
                httponly=True,
                # Not "strict": a link from a chat or a mail would end at "log in first". A GET
                # changes nothing, and what does is refused from other sites by its headers.
                samesite="lax",
                secure=request.url.scheme == "https",
                path=request.scope.get("root_path") or "/",
            )
        return response

    def _is_blocked(self, address: str) -> bool:
        failures = self._failures.get(address)
        if failures is None:
            return False
        while failures and failures[0] <= self._now() - PERIOD:
            failures.popleft()
        return len(failures) >= MAX_FAILURES

    def _note_failure(self, address: str) -> None:
        self._failures.setdefault(address, deque(maxlen=MAX_FAILURES)).append(self._now())
        self._failures.move_to_end(address)
        if len(self._failures) > MAX_ADDRESSES:
            self._failures.popitem(last=False)


def cookie_name(request: Request) -> str:
    """The name of the cookie: it has the port, because a browser sends cookies to all ports."""
    port = request.url.port or (443 if request.url.scheme == "https" else 80)
    return f"understudy-{port}"


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(errors="backslashreplace"), wanted.encode())


_TOKEN = re.compile(r"([?&]token=)[^&\s\"]*")


class HideToken(logging.Filter):
    """A filter for access logs: it hides the token in URLs that are logged.

    `logging.getLogger("uvicorn.access").addFilter(HideToken())`
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Hide it in what is logged; everything is logged."""
        if isinstance(record.args, tuple):
            record.args = tuple(map(_hidden, record.args))
        record.msg = _hidden(record.msg)
        return True


def _hidden(value: object) -> object:
    return _TOKEN.sub(r"\1...", value) if isinstance(value, str) else value
