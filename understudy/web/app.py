"""`ui`: the inbox and the inspector as an application to mount."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp

from understudy._base.json_values import checked_flag, shown
from understudy.actors import Observer, Runtime
from understudy.errors import UnknownAgent, UsageError
from understudy.login.guard import Guard
from understudy.login.hosts import Hosts
from understudy.login.problems import problem_of, wants_json
from understudy.login.redaction import Redact, Redaction
from understudy.login.tokens import TokenAuth
from understudy.login.users import Auth, checked_auth
from understudy.web.api import api_routes
from understudy.web.pages import page_routes, problem_page
from understudy.web.visit import Site, Source, SourceOf

STATIC = Path(__file__).with_name("static")
MEDIA = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def ui(
    runtime: Source | SourceOf,
    *,
    auth: Auth | None = None,
    read_only: bool = False,
    allowed_hosts: Iterable[str] = (),
    title: str = "understudy",
    redact: Redact | None = None,
    logout_url: str | None = None,
) -> ASGIApp:
    """Make an ASGI application in which people answer requests and look at agents.

    `app.mount("/agents", ui(lambda: app.state.runtime, auth=who))`. It needs no lifespan. Its links
    work wherever it is mounted, even twice in one process. A request may have at most 8 MB. A user
    may have 100 open streams of events.

    Args:
        runtime: a runtime that is open, or a function that returns it. A mounted application is
            made before the runtime, so give a function. With an `Observer` the pages only show,
            beside the runtimes that have the store open.
        auth: says who makes a request: see `Auth`. `token_auth()` and `loopback_only()` return
            such functions. It is called for every request.
        read_only: True = nothing can be answered or changed.
        allowed_hosts: the host names under which the pages are served. IP addresses and
            `localhost` are always allowed. Any other name is answered with 421.
        title: the title of the pages.
        redact: hides values. The function gets the path of a value in an answer, such as
            `("requests", 0, "arguments", "iban")`, and the value. It returns what is shown
            instead; the same object if nothing is to be hidden. A function of three arguments
            gets the `User` too. A request with hidden arguments can be approved, but not edited
            in the form. Exports and downloads of files are refused for a user who must not see
            all of the content.
        logout_url: the URL at which your login ends the session, such as `"/logout"`. The pages
            then have a link "Log out" to it. `token_auth()` needs none.

    Raises:
        UsageError: if `auth` is missing, or an argument is wrong.

    """
    auth = checked_auth("ui", auth)
    if not isinstance(runtime, (Runtime, Observer)) and not callable(runtime):
        raise UsageError(
            f"ui(runtime) takes a Runtime, or a function that gives it, got {shown(runtime)}"
        )
    if not isinstance(title, str) or not title.strip():
        raise UsageError(f"ui(title=...) must be a text, got {shown(title)}")
    checked_flag(read_only, what="ui(read_only=...)")
    hosts = Hosts(allowed_hosts)
    site = Site(
        source_of=(lambda: runtime) if isinstance(runtime, (Runtime, Observer)) else runtime,
        read_only=read_only or isinstance(runtime, Observer),
        title=title,
        redaction=Redaction(redact, what="ui(redact=...)"),
        log_out=auth.log_out if isinstance(auth, TokenAuth) else None,
        logout_url=_checked_url(logout_url),
    )

    async def on_error(request: Request, error: Exception) -> Response:
        problem = problem_of(error)
        if isinstance(error, UnknownAgent) and error.deleted_at is not None:
            # Only the pages say it: the clients of an application need not know its operators.
            by = "" if error.deleted_by is None else f" by {error.deleted_by}"
            detail = f"{problem.detail[:-1]} any more: it was deleted at {error.deleted_at}{by}."
            problem = replace(problem, detail=detail)
        headers = getattr(error, "headers", None)
        if wants_json(request.scope):
            user, data = request.scope.get("understudy.user"), problem.to_dict()
            seen = data if user is None else site.redaction.seen(user, data)
            return JSONResponse(seen, problem.status, headers)
        return await problem_page(request, site, problem, headers)

    async def log_out(request: Request) -> Response:
        assert site.log_out is not None, "else there is no such route"
        return site.log_out(request)

    routes: list[BaseRoute] = [
        Route("/static/{path:path}", static_file, methods=["GET"]),
        *api_routes(site),
        *page_routes(site),
    ]
    if site.log_out is not None:
        routes.append(Route("/logout", log_out, methods=["POST"]))
    app = Router(routes)
    return Guard(_Caught(app, on_error), auth, hosts)


def _checked_url(given: object) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str) or not given.startswith(("/", "https://", "http://")):
        raise UsageError(
            f"ui(logout_url=...) must be a path such as '/logout', or an http(s) URL, got "
            f"{shown(given)}"
        )
    return given


class _Caught:
    """Answers errors that the pages raise before they begin to answer, in any surrounding
    application.

    Starlette's own error handler would raise them again, and the handler of the surrounding
    application would show its own page.
    """

    def __init__(self, app: ASGIApp, on_error: Callable[[Request, Exception], Any]) -> None:
        self._app = app
        self._on_error = on_error

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        has_begun = False
        scope = {**scope, "app": self, "starlette.exception_handlers": ({}, {})}

        async def noting(message: Any) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception as error:
            if scope["type"] != "http" or has_begun:
                raise
            response = await self._on_error(Request(scope, receive), error)
            await response(scope, receive, send)


@cache
def static_version() -> str:
    """A text that changes when a static file changes, so that a browser may keep the files for
    long.
    """
    found = hashlib.sha256()
    for path in sorted(STATIC.rglob("*")):
        if path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()[:12]


@cache
def _static_files() -> dict[str, Path]:
    """Our static files by path, so that a requested path never becomes a path on the disk."""
    return {
        path.relative_to(STATIC).as_posix(): path
        for path in STATIC.rglob("*")
        if path.suffix in MEDIA and path.is_file()
    }


async def static_file(request: Request) -> Response:
    """Answer with one of our static files."""
    path = _static_files().get(request.path_params["path"])
    if path is None:
        raise HTTPException(404)
    is_named = request.query_params.get("v") == static_version()
    kept = "public, max-age=31536000, immutable" if is_named else "no-cache"
    return FileResponse(path, media_type=MEDIA[path.suffix], headers={"Cache-Control": kept})
