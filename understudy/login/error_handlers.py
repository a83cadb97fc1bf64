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

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse
    from starlette.applications import Starlette

ANSWERED: tuple[type[Exception], ...] = (UnderstudyError, pykka.ActorDeadError, pykka.Timeout)
"""The errors that the calls of a runtime raise. All others stay with the application."""


def add_error_handlers(app: Starlette) -> None:
    """Answer the errors of the library with their HTTP status, in a Starlette or FastAPI app.

    The body is JSON: `{"error": "UnknownAgent", "detail": "There is no agent 'ann'."}`. What is no
    mistake of the client is answered without its text, which the log has. Errors that are not of
    the library stay with the application.

    Args:
        app: the application, before its first request.

    Raises:
        UsageError: for what takes no handlers, or an application that answers requests already.

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
    for kind in ANSWERED:
        app.add_exception_handler(kind, _answer)


async def _answer(request: Request, error: Exception) -> JSONResponse:
    problem = problem_of(error)
    return JSONResponse(problem.to_dict(), problem.status)


class DjangoErrors:
    """Answers the errors of the library with their HTTP status, in a Django project.

    Name it in the settings: `MIDDLEWARE = [..., "understudy.web.DjangoErrors"]`. The answers are
    those of `add_error_handlers`. Views may be sync or async.

    Args:
        get_response: what Django gives each middleware.

    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        # Django has marks of its own for what is async: `inspect` of Python 3.11 does not see them.
        from asgiref.sync import iscoroutinefunction, markcoroutinefunction

        self._get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        """Answer a request as the application does."""
        return cast("HttpResponse | Awaitable[HttpResponse]", self._get_response(request))

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """The answer to an error that a view raised; None for an error of somebody else."""
        if not isinstance(error, ANSWERED):
            return None
        from django.http import JsonResponse

        problem = problem_of(error)
        return JsonResponse(problem.to_dict(), status=problem.status)
