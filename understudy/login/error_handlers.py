"""The errors of the library as answers of an application: for Starlette and FastAPI, or Django."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import pykka
from starlette.requests import Request
from starlette.responses import JSONResponse

from understudy._base.json_values import shown
from understudy.errors import UnderstudyError, UsageError
from understudy.login.problems import problem_of
from understudy.login.redaction import Redact, Redaction
from understudy.login.users import NOBODY

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse
    from starlette.applications import Starlette

ANSWERED: tuple[type[Exception], ...] = (UnderstudyError, pykka.ActorDeadError, pykka.Timeout)
"""The errors that the calls of a runtime raise. All others stay with the application."""


NAMELESS = "{what} takes a function of a path and a value: nobody says here who asks"


def add_error_handlers(app: Starlette, *, redact: Redact | None = None) -> None:
    """Answer the errors of the library with their HTTP status, in a Starlette or FastAPI app.

    The body is JSON: `{"error": "UnknownAgent", "detail": "There is no agent 'ann'."}`. If the
    error is not the client's mistake, its text goes to the log and not into the answer. Errors of
    other libraries are left to the application.

    Args:
        app: the application, before its first request.
        redact: hides values, as the `redact` of `ui`. Its paths begin with `"detail"`, because
            the text of an error may quote a value. It gets no user.

    Raises:
        UsageError: if `app` takes no handlers or already answers requests, or if `redact` takes
            the user.

    """
    if not callable(getattr(app, "add_exception_handler", None)):
        raise UsageError(
            f"add_error_handlers(app) takes a Starlette or FastAPI application, got {shown(app)}"
        )
    if getattr(app, "middleware_stack", None) is not None:
        raise UsageError(
            "add_error_handlers(app): the application answers requests already: call it where the "
            "application is made"
        )
    redaction = _redaction(redact, "add_error_handlers(redact=...)")

    async def answer(request: Request, error: Exception) -> JSONResponse:
        problem = problem_of(error)
        return JSONResponse(redaction.seen(NOBODY, problem.to_dict()), problem.status)

    for kind in ANSWERED:
        app.add_exception_handler(kind, answer)


def _redaction(redact: Redact | None, what: str) -> Redaction:
    redaction = Redaction(redact, what=what)
    if redaction.takes_user:
        raise UsageError(NAMELESS.format(what=what))
    return redaction


class DjangoErrors:
    """A Django middleware that answers the errors of the library with their HTTP status.

    Name it in the settings: `MIDDLEWARE = [..., "understudy.web.DjangoErrors"]`. It gives the
    answers of `add_error_handlers`. Views may be sync or async. The setting `UNDERSTUDY_REDACT` is
    the `redact` of `add_error_handlers`: a function, or its dotted name.

    Args:
        get_response: the next handler, from Django.

    Raises:
        UsageError: if `UNDERSTUDY_REDACT` is not a function that fits `redact`.

    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        # Django has marks of its own for what is async: `inspect` of Python 3.11 does not see them.
        from asgiref.sync import iscoroutinefunction, markcoroutinefunction
        from django.conf import settings
        from django.utils.module_loading import import_string

        given = getattr(settings, "UNDERSTUDY_REDACT", None)
        redact = import_string(given) if isinstance(given, str) else given
        self._redaction = _redaction(redact, "the setting UNDERSTUDY_REDACT")
        self._get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        """Answer a request as the application does."""
        return cast("HttpResponse | Awaitable[HttpResponse]", self._get_response(request))

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Return the answer to an error that a view raised; None for errors of other libraries."""
        if not isinstance(error, ANSWERED):
            return None
        from django.http import JsonResponse

        problem = problem_of(error)
        seen = self._redaction.seen(NOBODY, problem.to_dict())
        return JsonResponse(seen, status=problem.status)
