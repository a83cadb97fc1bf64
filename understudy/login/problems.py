"""The answers to failed requests: a page for a browser, JSON for a program."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from typing import Any

import pykka
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import Scope

from understudy.actors import ActorDied
from understudy.errors import (
    ApprovalNeeded,
    CallLost,
    DecisionError,
    Expired,
    Fenced,
    ForkedRuntime,
    JournalFailed,
    LoopNotRunning,
    NoProgress,
    NotInterrupted,
    OtherAgent,
    OtherRun,
    OtherWorkflow,
    OutOfDescriptors,
    OwnedElsewhere,
    PeopleUnavailable,
    RecordRefused,
    SchemaVersionError,
    SearchOff,
    UnderstudyError,
    UnknownAgent,
    UnknownMessage,
    UnknownToken,
    UsageError,
    VoteRefused,
    WouldDeadlock,
)

logger: logging.Logger = logging.getLogger(__name__)

_OF_ROUTING = {
    404: "There is nothing at this address.",
    405: "This address does not take requests of this method.",
}
"""The texts for requests without a route, by status."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The reason why a request is refused."""

    status: int
    error: str
    """The name of the error."""
    detail: str
    """A sentence for people."""
    more: Mapping[str, Any] | None = None
    """Further facts for a program; JSON-able."""

    def to_dict(self) -> dict[str, Any]:
        """Return the problem in the form of the API."""
        return {"error": self.error, "detail": self.detail, **(self.more or {})}

    @property
    def title(self) -> str:
        """The heading for the problem."""
        return HTTPStatus(self.status).phrase


class Refused(Exception):
    """The exception of a view, by which the request is answered with this problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def refused(status: int, error: str, detail: str, **more: Any) -> Refused:
    """The exception for a problem."""
    return Refused(Problem(status, error, detail, more or None))


def problem_of(error: Exception) -> Problem:
    """The problem of an error. An internal error is logged, and its text is not sent."""
    match error:
        case Refused(problem=problem):
            return problem
        case HTTPException(status_code=status, detail=detail):
            known = HTTPStatus(status)
            if detail == known.phrase:  # otherwise the application's function says why
                detail = _OF_ROUTING.get(status, detail)
            return Problem(status, known.name.title().replace("_", ""), detail)
        case ClientDisconnect():
            return Problem(400, "ClientGone", "The connection ended before the request did.")
        case UnknownAgent():
            return Problem(404, "UnknownAgent", f"There is no agent {error.agent_id!r}.")
        case OwnedElsewhere():
            return Problem(409, "OwnedElsewhere", "Another host has this agent in its memory now.")
        case OtherRun():
            return Problem(409, "OtherRun", "Another run is open now: look at the agent again.")
        case NotInterrupted() | OtherAgent() | OtherWorkflow() | NoProgress() | SearchOff():
            return Problem(409, type(error).__name__, str(error))
        case UnknownMessage() | UnknownToken():
            return Problem(404, type(error).__name__, str(error))
        case Expired():
            return Problem(410, "Expired", str(error))
        case ApprovalNeeded():
            more = {"request_id": error.request_id, "missing": error.missing}
            return Problem(409, "ApprovalNeeded", str(error), more)
        case VoteRefused():
            return Problem(403, "VoteRefused", str(error))
        case PeopleUnavailable():
            return Problem(503, "PeopleUnavailable", str(error))
        case DecisionError():
            return Problem(422, type(error).__name__, str(error))
        case ForkedRuntime() | LoopNotRunning() | WouldDeadlock() | SchemaVersionError():
            return _failed(error)  # the fault is the application's, not the client's
        case UsageError():
            return Problem(400, type(error).__name__, str(error))
        case ActorDied():
            return _failed(error)
        case pykka.ActorDeadError():  # `RuntimeStopped`, but for actors of the application
            return Problem(503, "Stopping", "The runtime has stopped.")
        case RecordRefused():
            return Problem(413, "RecordRefused", str(error))
        case Fenced():
            return Problem(409, "Fenced", "Another host took the agent over: look at it again.")
        case CallLost():
            return Problem(502, "CallLost", str(error))
        case OutOfDescriptors():
            logger.error("a page failed: %s", error)
            return Problem(503, "Overloaded", "The server has too much open now: try again.")
        case JournalFailed():
            logger.warning("the store failed under a page: %s", error)
            return Problem(503, "StoreUnavailable", "The store does not answer now: try again.")
        case asyncio.TimeoutError() | pykka.Timeout():
            return Problem(504, "TookTooLong", "The agent did not answer in time.")
        case _:
            return _failed(error)


def _failed(error: Exception) -> Problem:
    """The problem of an error that is not the client's."""
    logger.error("a page failed", exc_info=error)
    name = type(error).__name__ if isinstance(error, UnderstudyError) else "InternalError"
    return Problem(500, name, "It failed; the server's log says why.")


def wants_json(scope: Scope) -> bool:
    """Whether a program makes the request: to the API, or to an endpoint without pages."""
    if scope.get("understudy.json", False):
        return True
    root: str = scope.get("root_path", "")
    path: str = scope["path"]
    below = path[len(root) :] if root and path.startswith(root) else path
    return below == "/api" or below.startswith("/api/")


def problem_response(
    scope: Scope, problem: Problem, headers: Mapping[str, str] | None = None
) -> Response:
    """The answer with a problem before the user is known: without data of the application."""
    if wants_json(scope):
        return JSONResponse(problem.to_dict(), problem.status, headers)
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="stylesheet" href="{root}/static/style.css">'
        "<title>{title}</title></head><body><main><h1>{title}</h1><p>{detail}</p></main></body></html>"
    )
    text = page.format(
        root=escape(scope.get("root_path", "")),
        title=escape(problem.title),
        detail=escape(problem.detail),
    )
    return HTMLResponse(text, problem.status, headers)
