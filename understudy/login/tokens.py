"""`TokenAuth`: a secret for a server; people swap it for a session, programs send it as it is."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import math
import re
import secrets
import string
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from html import escape
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from understudy._base import security_log
from understudy.actors.verbs import USUAL_RIGHTS, Right
from understudy.errors import UsageError
from understudy.login.bodies import media_type, read_body
from understudy.login.guard import path_in
from understudy.login.problems import Problem, problem_response, wants_json
from understudy.login.users import User, checked_rights

MAX_FAILURES = 10
"""The maximum number of wrong tokens of an address within `PERIOD`. Later requests get 429."""
PERIOD = 60.0
"""The seconds within which wrong tokens are counted."""
MAX_ADDRESSES = 1000
"""The maximum number of addresses that are counted separately. Others are counted together."""
LEAST_BITS = 128
SESSION = 12 * 3600.0
"""The default seconds of a session."""
LINK = 24 * 3600.0
"""The seconds in which a link may be used."""
MAX_KEPT = 10_000
"""The maximum number of ended sessions and used links that are remembered."""
_OTHERS = "others"


class TokenAuth:
    """An `auth` with one secret token. A person opens a link or types the token; a program sends
    it.

    A page without a session shows a form for the token. `login_url` makes a link that needs no
    form: it works once in each process, within a day. A session is a cookie. It ends after
    `session` seconds, by logging out, or by `revoke`. Programs send `Authorization: Bearer`.

    Processes share no sessions. Only the process that got a log-out, a `revoke` or a used link
    knows of it. To end all sessions, give all processes a new token.

    After 10 different wrong tokens, links or cookies from one address within a minute, all requests
    without a session from this address are answered with 429, even with the right token. The
    address is the address that the server reports: let the server trust `X-Forwarded-For` from your
    own proxy only.

    Args:
        token: the secret, of at least 128 bits, such as `secrets.token_urlsafe(32)` makes; a
            new secret by default.
        name: the name under which decisions are recorded.
        may: the rights of the holder of the token.
        session: seconds after which a session ends.
        now: returns the time, in seconds since 1970.

    Raises:
        UsageError: if the token is too short, the name is not text, or a right is unknown.

    """

    def __init__(
        self,
        token: str | None = None,
        *,
        name: str = "operator",
        may: Iterable[Right] = USUAL_RIGHTS,
        session: float = SESSION,
        now: Callable[[], float] = time.time,
    ) -> None:
        if token is not None and (not isinstance(token, str) or bits_of(token) < LEAST_BITS):
            raise UsageError(
                f"`token` must be text of at least {LEAST_BITS} bits that nobody can guess, or "
                "None: secrets.token_urlsafe(32) makes one"
            )
        if isinstance(session, bool) or not isinstance(session, (int, float)) or not session > 0:
            raise UsageError(f"`session` must be a number of seconds above 0, got {session!r}")
        self.token: str = token or secrets.token_urlsafe(32)
        self.user: User = User(name, checked_rights(may))
        self._session = session
        self._now = now
        self._failures = _Failures(now)
        self._over = _Kept()
        """The sessions that were logged out, and the links that were used."""
        self._revoked_at = float("-inf")

    def __call__(self, request: Request) -> User | Response | Awaitable[Response] | None:
        """The user of this request; or a response."""
        if request.method == "POST" and path_in(request.scope) == "/login":
            return self._by_form(request)
        cookie = request.cookies.get(cookie_name(request))
        if self._is_session(cookie):
            return self._to_page(request) if _has_token(request) else self.user
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        given = [bearer.strip()] if scheme.lower() == "bearer" else []
        link = request.query_params.get("token") if request.method == "GET" else None
        wrong = [*given, *([] if link is None else [link]), *self._wrong_cookie(cookie)]
        address = _address(request)
        if wrong and self._failures.is_blocked(address):
            return _too_many(request)
        if given and _same(given[0], self.token):
            return self.user
        if link is not None and not given and self._is_link(link):
            return self._to_page(request, new=True)
        self._failures.note(address, wrong)
        if request.method != "GET" or wants_json(request.scope):
            return None
        if wrong:
            security_log.note("login", "refused", who=None)
        return self._login_page(request, "" if link is None else "This link is used, or is old.")

    def login_url(self, base: str) -> str:
        """Return a link to the pages that begins a session. It works once, within a day.

        Args:
            base: the URL of the pages.

        """
        code = self._signed("link")
        return f"{base}{'&' if '?' in base else '?'}{urlencode({'token': code})}"

    def revoke(self) -> None:
        """End all sessions of this process, and all links made until now.

        Other processes with the same token do not learn of it. To end all sessions everywhere,
        change the token.
        """
        self._revoked_at = self._now()

    def log_out(self, request: Request) -> Response:
        """End the session of this request. The response tells the browser."""
        cookie = request.cookies.get(cookie_name(request))
        if cookie is not None:
            self._over.add(cookie, self._now() + self._session)
        root = request.scope.get("root_path", "")
        response = RedirectResponse(f"{root}/", 303)
        response.delete_cookie(cookie_name(request), path=root or "/")
        return response

    # ------------------------------------------------------------------- sessions, links

    def _signed(self, what: str) -> str:
        """A signed text with the time. Only processes with the token can make and verify it."""
        said = f"{self._now():.3f}.{secrets.token_urlsafe(16).replace('.', '-')}"
        return f"{said}~{self._mac(what, said)}"

    def _mac(self, what: str, said: str) -> str:
        text = f"{what}:{said}".encode(errors="backslashreplace")
        return hmac.new(self.token.encode(), text, hashlib.sha256).hexdigest()

    def _made_at(self, what: str, given: str) -> float | None:
        """The time at which this text was signed; None if it was not."""
        said, _, mac = given.rpartition("~")
        if not said or not _same(mac, self._mac(what, said)):
            return None
        return float(said.rpartition(".")[0])

    def _is_session(self, cookie: str | None) -> bool:
        made = None if cookie is None else self._made_at("session", cookie)
        return (
            made is not None
            and cookie not in self._over
            and self._revoked_at < made <= self._now() + PERIOD
            and self._now() < made + self._session
        )

    def _is_link(self, code: str) -> bool:
        """Whether the link begins a session. It does so only once."""
        made = self._made_at("link", code)
        if made is None or code in self._over or not self._revoked_at < made:
            return False
        if self._now() >= made + LINK:
            return False
        self._over.add(code, made + LINK)
        return True

    def _wrong_cookie(self, cookie: str | None) -> list[str]:
        """The cookie, if it was never a session here. The cookie of an ended session is no
        guess.
        """
        return [] if cookie is None or self._made_at("session", cookie) is not None else [cookie]

    # ----------------------------------------------------------------------- answers

    async def _by_form(self, request: Request) -> Response:
        if media_type(request) != "application/x-www-form-urlencoded":
            return self._login_page(request, "Send the form of the page.")
        text = (await read_body(request)).decode(errors="replace")
        fields = dict(parse_qsl(text, keep_blank_values=True))
        given, address = fields.get("token", "").strip(), _address(request)
        if self._failures.is_blocked(address):
            return _too_many(request)
        if not _same(given, self.token):
            self._failures.note(address, [given])
            security_log.note("login", "refused", who=None)
            return self._login_page(request, "That is not the token.", fields.get("next", ""))
        root = request.scope.get("root_path", "")
        return self._with_session(request, root + _path(fields.get("next", "")))

    def _to_page(self, request: Request, *, new: bool = False) -> Response:
        """A redirect to the same page, without the link's code in its URL."""
        target = "/" + request.url.path.lstrip("/") + _query_without_token(request)
        return self._with_session(request, target) if new else RedirectResponse(target, 303)

    def _with_session(self, request: Request, target: str) -> Response:
        security_log.note("login", "ok", who=self.user.name)
        response = RedirectResponse(target, 303)
        response.set_cookie(
            cookie_name(request),
            self._signed("session"),
            max_age=int(self._session),
            httponly=True,
            # It is not "strict": a link from a chat or a mail would end at "log in first". A GET
            # changes nothing, and other requests from other sites are refused by their headers.
            samesite="lax",
            secure=request.url.scheme == "https",
            path=request.scope.get("root_path") or "/",
        )
        return response

    def _login_page(self, request: Request, error: str, back: str | None = None) -> Response:
        if back is None:
            back = path_in(request.scope) + _query_without_token(request)
        root = escape(request.scope.get("root_path", ""))
        said = f'<p class="error" role="alert">{escape(error)}</p>' if error else ""
        page = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f'<link rel="stylesheet" href="{root}/static/style.css"><title>Log in</title></head>'
            f'<body><main class="login"><h1>Log in</h1>{said}'
            f'<form method="post" action="{root}/login" class="card">'
            f'<input type="hidden" name="next" value="{escape(_path(back))}">'
            '<p class="field"><label for="token">Token</label><input id="token" name="token" '
            'type="password" required autocomplete="current-password" autofocus></p>'
            '<p class="help">The token that the server was started with.</p>'
            '<p class="buttons"><button class="good">Log in</button></p></form></main></body>'
            "</html>"
        )
        return HTMLResponse(page, 401, {"WWW-Authenticate": "Bearer"})


class _Failures:
    """Wrong tokens by address, each counted once. No address pushes out another address."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._found: dict[str, dict[bytes, float]] = {}
        self._cleaned_at = now()

    def is_blocked(self, address: str) -> bool:
        """Whether requests from the address are refused unread."""
        found = self._found.get(self._key(address), {})
        start = self._now() - PERIOD
        return sum(at > start for at in found.values()) >= MAX_FAILURES

    def note(self, address: str, wrong: Iterable[str]) -> None:
        """Count wrong tokens. A repeated one is no new guess, because old pages come back."""
        for each in wrong:
            if self._now() >= self._cleaned_at + 1.0:
                self._forget()
            found = self._found.setdefault(self._key(address), {})
            known = hashlib.sha256(each.encode(errors="backslashreplace")).digest()
            if known not in found and len(found) >= MAX_FAILURES:
                del found[min(found, key=found.__getitem__)]
            found.setdefault(known, self._now())

    def _key(self, address: str) -> str:
        is_full = len(self._found) >= MAX_ADDRESSES
        return _OTHERS if is_full and address not in self._found else address

    def _forget(self) -> None:
        """Forget entries that are older than the period."""
        self._cleaned_at = self._now()
        start = self._cleaned_at - PERIOD
        for address, found in list(self._found.items()):
            left = {known: at for known, at in found.items() if at > start}
            if left:
                self._found[address] = left
            else:
                del self._found[address]


class _Kept:
    """Texts that are remembered until a time. If there are too many, the first to end are
    forgotten.
    """

    def __init__(self) -> None:
        self._ends: dict[str, float] = {}

    def __contains__(self, text: object) -> bool:
        return text in self._ends

    def add(self, text: str, end: float) -> None:
        self._ends[text] = end
        if len(self._ends) > MAX_KEPT:
            del self._ends[min(self._ends, key=self._ends.__getitem__)]


def bits_of(token: str) -> float:
    """The maximum bits of entropy of a text by its characters, if each was chosen by chance."""
    if len(set(token)) < 8:
        return 0.0
    for length in range(1, len(token) // 2 + 1):  # a repeated text counts once
        if token == (token[:length] * len(token))[: len(token)]:
            return bits_of(token[:length])
    if set(token) <= set(string.hexdigits.lower()) or set(token) <= set(string.hexdigits.upper()):
        return len(token) * 4.0
    classes = (string.ascii_lowercase, string.ascii_uppercase, string.digits)
    found = [len(each) for each in classes if set(each) & set(token)]
    others = len(set(token) - set("".join(classes)))
    # A short text of base64 may lack digits by chance.
    size = (62 if sum(found) >= 52 else sum(found)) + others
    return len(token) * math.log2(size)


def cookie_name(request: Request) -> str:
    """The name of the cookie: it has the port, because a browser sends cookies to all ports."""
    port = request.url.port or (443 if request.url.scheme == "https" else 80)
    return f"understudy-{port}"


def _address(request: Request) -> str:
    """The address that is counted; for IPv6 its network, because a person has millions of
    addresses.
    """
    host = request.client.host if request.client is not None else ""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(getattr(found, "ipv4_mapped", None) or found)


def _has_token(request: Request) -> bool:
    return request.method == "GET" and "token" in request.query_params


def _query_without_token(request: Request) -> str:
    pairs = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
    query = urlencode([pair for pair in pairs if pair[0] != "token"])
    return f"?{query}" if query else ""


def _path(given: str) -> str:
    """A path of these pages, which a browser cannot take for another site."""
    return "/" + re.sub(r"[\\\x00-\x20]", "", given).lstrip("/")


def _too_many(request: Request) -> Response:
    security_log.note("login", "limited", who=None)
    problem = Problem(429, "TooManyRequests", "Too many wrong tokens: wait a minute.")
    return problem_response(request.scope, problem, {"Retry-After": str(int(PERIOD))})


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(
        given.encode(errors="backslashreplace"), wanted.encode(errors="backslashreplace")
    )


_TOKEN = re.compile(r"([?&]token=)[^&\s\"]*")
_OF_WAIT = re.compile(r"(?<=/)[A-Za-z0-9_%-]+\.[A-Za-z0-9_-]{32,}")
"""The token of a wait, as a segment of a path: see `run.waits.tokens`."""


class HideToken(logging.Filter):
    """A filter for access logs that hides tokens in URLs, also the tokens of waits.

    `logging.getLogger("uvicorn.access").addFilter(HideToken())`
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Hide tokens in the log record, and let every record pass."""
        if isinstance(record.args, tuple):
            record.args = tuple(map(_hidden, record.args))
        elif isinstance(record.args, Mapping):  # as gunicorn logs
            record.args = {name: _hidden(value) for name, value in record.args.items()}
        record.msg = _hidden(record.msg)
        return True


def _hidden(value: object) -> object:
    return _OF_WAIT.sub("...", _TOKEN.sub(r"\1...", value)) if isinstance(value, str) else value
