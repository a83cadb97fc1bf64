"""The JSON API: everything that the pages show, and everything that they do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from understudy.web import (
    actions,
    agents,
    asks,
    conversation,
    decide,
    outcome,
    schedules,
    streams,
    timeline,
)
from understudy.web.users import Right
from understudy.web.visit import Site, Visit

View = Callable[[Visit], Awaitable[dict[str, Any]]]
LIMIT = {"limit": "How many rows, at most 500."}
PAGE = {"after": "The `next` of the page before.", **LIMIT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One call of the API."""

    method: str
    path: str
    """Below `/api`."""
    view: View
    right: Right = "read"
    query: dict[str, str] | None = None
    body: type[BaseModel] | None = None
    is_stream: bool = False


AGENT = "/agents/{agent_id}"
ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(method="GET", path="", view=agents.overview),
    Endpoint(
        method="GET",
        path="/pending",
        view=asks.inbox,
        query={
            "tool": "Only those about this tool.",
            "agent": "Only those of agents with this definition.",
            "kind": "Only `approval`, `interrupt`, `doubt`, `halt`, or a middleware's own kind.",
            "order": "`oldest` or `expiring` first.",
            **PAGE,
        },
    ),
    Endpoint(
        method="GET",
        path="/agents",
        view=agents.agents,
        query={
            "status": "Only those with this status.",
            "agent": "Only those with this definition.",
            "prefix": "Only those whose ids begin so.",
            "version": "Only those whose open run a definition of this fingerprint has begun; "
            "`other`: none that this server has.",
            **PAGE,
        },
    ),
    Endpoint(method="GET", path=AGENT, view=agents.agent_page),
    Endpoint(method="GET", path=f"{AGENT}/requests/{{request_id}}", view=asks.request_page),
    Endpoint(
        method="GET",
        path=f"{AGENT}/conversation",
        view=conversation.conversation,
        query={"after": "Only rows that are new or changed since this number.", **LIMIT},
    ),
    Endpoint(
        method="GET",
        path=f"{AGENT}/conversation/events",
        view=streams.conversation_events,
        query={"after": "Only rows that have changed since; else the `Last-Event-ID`."},
        is_stream=True,
    ),
    Endpoint(method="GET", path=f"{AGENT}/messages", view=agents.messages),
    Endpoint(
        method="GET",
        path=f"{AGENT}/timeline",
        view=timeline.timeline,
        query={"page": "The number of the page, from the newest; 0 by default."},
    ),
    Endpoint(method="GET", path=f"{AGENT}/state", view=agents.agent_state),
    Endpoint(method="GET", path=f"{AGENT}/decisions", view=agents.decisions),
    Endpoint(method="GET", path=f"{AGENT}/history", view=agents.history, query=PAGE),
    Endpoint(method="GET", path=f"{AGENT}/usage", view=agents.usage),
    Endpoint(method="GET", path=f"{AGENT}/schedules", view=schedules.schedules),
    Endpoint(
        method="GET",
        path=f"{AGENT}/outcome",
        view=outcome.outcome,
        query={"wait": "Seconds to wait until the run is at rest, at most 60."},
    ),
    Endpoint(method="GET", path=f"{AGENT}/export", view=agents.export, right="admin"),
    Endpoint(
        method="GET",
        path=f"{AGENT}/events",
        view=streams.agent_events,
        query={
            "after": "Only events after this number; else the `Last-Event-ID`.",
            "follow": "`0`: only what is recorded now.",
        },
        is_stream=True,
    ),
    Endpoint(
        method="GET",
        path="/events",
        view=streams.feed,
        query={
            "after": "The cursor of the last event; else the `Last-Event-ID`.",
            "start": "Without it: `now`, or at the `oldest` event that is kept.",
            "follow": "`0`: only what is recorded now.",
        },
        is_stream=True,
    ),
    Endpoint(
        method="POST",
        path=f"{AGENT}/decisions",
        view=decide.decide,
        right="decide",
        body=decide.DecisionsBody,
    ),
    Endpoint(method="POST", path="/bulk", view=decide.bulk, right="decide", body=decide.BulkBody),
    Endpoint(
        method="POST",
        path=f"{AGENT}/messages",
        view=actions.send,
        right="act",
        body=actions.MessageBody,
    ),
    Endpoint(
        method="POST",
        path=f"{AGENT}/cancel",
        view=actions.cancel,
        right="act",
        body=actions.CancelBody,
    ),
    Endpoint(
        method="POST",
        path=f"{AGENT}/pause",
        view=actions.pause,
        right="act",
        body=actions.PauseBody,
    ),
    Endpoint(
        method="POST",
        path=f"{AGENT}/unpause",
        view=actions.unpause,
        right="act",
        body=actions.RunBody,
    ),
    Endpoint(
        method="POST",
        path=f"{AGENT}/retry",
        view=actions.retry,
        right="act",
        body=actions.RunBody,
    ),
    Endpoint(
        method="POST",
        path=f"{AGENT}/settle",
        view=actions.settle,
        right="act",
        body=actions.SettleBody,
    ),
    Endpoint(
        method="POST",
        path=f"{AGENT}/revoke",
        view=actions.revoke,
        right="act",
        body=actions.RevokeBody,
    ),
    Endpoint(
        method="POST",
        path=f"{AGENT}/schedules",
        view=schedules.change_schedule,
        right="act",
        body=schedules.ScheduleBody,
    ),
    Endpoint(
        method="POST",
        path=f"{AGENT}/compact",
        view=actions.compact,
        right="admin",
        body=actions.NothingBody,
    ),
    Endpoint(
        method="DELETE", path=AGENT, view=actions.delete, right="admin", body=actions.DeleteBody
    ),
    Endpoint(
        method="POST", path="/import", view=actions.import_, right="admin", body=actions.ImportBody
    ),
    Endpoint(
        method="POST",
        path="/recover",
        view=actions.recover,
        right="admin",
        body=actions.NothingBody,
    ),
)


def api_routes(site: Site) -> list[BaseRoute]:
    """The routes of the API."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in ENDPOINTS:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint

    def route(path: str, endpoints: dict[str, Endpoint]) -> Route:
        async def answer(request: Request) -> Response:
            method = "GET" if request.method == "HEAD" else request.method
            visit = Visit(request, site)
            visit.need("read")
            endpoint = endpoints[method]
            found: Any = await endpoint.view(visit)
            if isinstance(found, Response):
                return found
            return JSONResponse(to_jsonable_python(found, fallback=repr, inf_nan_mode="strings"))

        return Route(f"/api{path}", answer, methods=list(endpoints))

    async def document(request: Request) -> Response:
        root = request.scope.get("root_path", "")
        return JSONResponse({**_document(), "servers": [{"url": f"{root}/api"}]})

    return [
        *(route(path, endpoints) for path, endpoints in by_path.items()),
        Route("/api/openapi.json", document, methods=["GET"]),
    ]


@cache
def _document() -> dict[str, Any]:
    """The API as an OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {
        "Problem": {
            "type": "object",
            "required": ["error", "detail"],
            "properties": {"error": {"type": "string"}, "detail": {"type": "string"}},
        }
    }
    for endpoint in ENDPOINTS:
        names = [part[1:-1] for part in endpoint.path.split("/") if part.startswith("{")]
        parameters = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ] + [
            {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
            for name, text in (endpoint.query or {}).items()
        ]
        media = "text/event-stream" if endpoint.is_stream else "application/json"
        problem = {
            "description": "Why not.",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        operation: dict[str, Any] = {
            "summary": (endpoint.view.__doc__ or "").strip().partition("\n")[0],
            "description": f"Needs the right `{endpoint.right}`.",
            "operationId": endpoint.view.__name__.strip("_"),
            "parameters": parameters,
            "responses": {
                "200": {"description": "Done.", "content": {media: {"schema": {"type": "object"}}}},
                "default": problem,
            },
        }
        if endpoint.body is not None:
            schema = endpoint.body.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(schema.pop("$defs", {}))
            schemas[endpoint.body.__name__] = schema
            ref = {"$ref": f"#/components/schemas/{endpoint.body.__name__}"}
            operation["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": ref}},
            }
        paths.setdefault(endpoint.path or "/", {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "understudy", "version": "1"},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"bearer": []}],
    }
