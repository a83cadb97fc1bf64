"""The JSON API: everything that the pages show, and everything that they do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from understudy.actors.verbs import VERBS, Right
from understudy.web import actions, decide, streams
from understudy.web import agent_shapes as of
from understudy.web import shapes as s
from understudy.web.json_answers import json_answer
from understudy.web.views import (
    administration,
    agents,
    asks,
    attention,
    budgets,
    conversation,
    decided,
    definition,
    files,
    freezing,
    notifications,
    outcome,
    requiring,
    schedules,
    search,
    timeline,
    together,
    usage,
)
from understudy.web.visit import Site, Visit

View = Callable[[Visit], Awaitable[dict[str, Any] | Response]]
LIMIT = {"limit": "How many rows, at most 500."}
REF = "#/components/schemas/{model}"
PAGE = {"after": "The `next` of the page before.", **LIMIT}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One call of the API."""

    method: str
    path: str
    """The path below `/api`."""
    view: View
    answer: Any
    """The shape of its answer; None for a stream."""
    right: Right = "read"
    body: type[BaseModel] | None = None
    query: dict[str, str] = field(default_factory=dict)
    media: str = "text/event-stream"
    """The type of a stream."""


INBOX = {
    "tool": "Only those about this tool.",
    "agent": "Only those of agents with this definition.",
    "kind": "Only `approval`, `interrupt`, `doubt`, `halt`, or a middleware's own kind.",
    "within": "Only those that expire in so many seconds.",
    "search": "Only those with these words in the title, the tool, the definition or an id.",
    "order": "`oldest` or `expiring` first.",
    "of": "Only `mine`: taken by the user, or assigned to them; only those of `nobody`; or `all`, "
    "also those that the user has snoozed.",
    **PAGE,
}
NOTIFICATIONS = {"state": "Only `new`, `done`, `dropped` or `failed`.", **PAGE}
DOUBTS = {
    "tool": "Only calls of this tool.",
    "agent": "Only those of agents with this definition.",
    "order": "`oldest` first; or `expiring`: those that end first.",
    **PAGE,
}
FREEZE = {"id": "Only this one, with the calls that are under way now."}
REVIEWS = {
    "tool": "Only calls of this tool.",
    "agent": "Only those of agents with this definition.",
    **PAGE,
}
DECIDED = {
    "person": "Only what somebody of this name decided, voted on, or gave the grant for.",
    "tool": "Only decisions about this tool.",
    "agent": "Only those on requests of agents with this definition.",
    "agent_id": "Only those on requests of this agent.",
    "type": "Only `approve`, `edit`, `reject`, `respond` or `dismiss`.",
    "origin": "Only by one `person`, by `votes`, by a `grant`, by `expiry` or by an `executor`.",
    "from": "Only from this day (in UTC) or time on.",
    "to": "Only to the end of this day, or before this time.",
}
USAGE = {
    "from": "The first day, in UTC; by default the answer has the last seven days.",
    "to": "The last day, in UTC; by default today.",
    "agent": "Only agents with this definition.",
    "model": "Only requests to this model.",
}
AGENTS = {
    "status": "Only those with this status.",
    "agent": "Only those with this definition.",
    "prefix": "Only those whose ids begin so.",
    "version": "Only those whose open run a definition of this fingerprint has begun; `other`: "
    "none that this server has.",
    **PAGE,
}
SEARCH = {
    "text": "The words: all of them must be there. `*` behind a word stands for any end of it.",
    "where": "Only in `requests`, or only in `conversations`.",
    **PAGE,
}
ROWS = {
    "after": "Only rows that are new or changed since this number.",
    **LIMIT,
    "page": "Without `after`: a page of rows, counted from the newest, which is 0.",
    "call": "Without `after`: the page with the row of the call of this key.",
    "request": "Or with that of this request.",
    "run": "Or with the first row of this run.",
    "at": "Or with the first row of this record, or after it.",
}
BACK = {"before": "The `earlier` of the page of later records; by default the newest are shown."}
FILE = {"path": "Of the file."}
WAIT = {"wait": "Seconds to wait until the run is at rest, at most 60."}
LIVE_ROWS = {"after": "Only rows that have changed since; else the `Last-Event-ID`."}
FOLLOW = {"follow": "`0`: only what is recorded now."}
EVENTS = {"after": "Only events after this position; else the `Last-Event-ID`.", **FOLLOW}
FEED = {
    "after": "The cursor of the last event; else the `Last-Event-ID`.",
    "start": "Without it: `now`, or at the `oldest` event that is kept.",
    **FOLLOW,
}
AGENT = "/agents/{agent_id}"
REQUEST = f"{AGENT}/requests/{{request_id}}"
ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", "", agents.overview, s.Overview),
    Endpoint("GET", "/pending", asks.inbox, s.Inbox, query=INBOX),
    Endpoint("GET", "/doubts", asks.doubts, s.Doubts, query=DOUBTS),
    Endpoint("GET", "/reviews", asks.reviews, s.Reviews, query=REVIEWS),
    Endpoint("GET", "/usage", usage.usage, s.UsageOfAll, query=USAGE),
    Endpoint("GET", "/attention", attention.attention, of.AttentionPage),
    Endpoint("GET", "/decisions", decided.decided, s.Decided, query={**DECIDED, **PAGE}),
    Endpoint(
        "GET",
        "/decisions.jsonl",
        decided.decided_lines,
        None,
        query=DECIDED,
        media="application/jsonl",
    ),
    *(
        Endpoint("POST", f"{REQUEST}/{name}", view, s.NotesPage, "decide", body)
        for name, view, body in together.VERBS
    ),
    Endpoint("GET", f"{REQUEST}/notes", together.notes, s.NotesPage),
    Endpoint("GET", "/search", search.search, s.Found, query=SEARCH),
    Endpoint("GET", "/delegations", administration.delegations, s.Delegations),
    Endpoint("GET", "/administration", administration.administration, s.Administration),
    Endpoint("GET", "/rules", administration.rules, s.RulesPage),
    Endpoint("GET", "/requirements", requiring.required, s.Requirements),
    Endpoint("POST", "/requirements", requiring.require, s.Set, "admin", requiring.RequireBody),
    Endpoint("GET", "/freezes", freezing.freezes, s.Freezes, query=FREEZE),
    Endpoint("POST", "/freezes", freezing.freeze, s.FreezeShape, "freeze", freezing.FreezeBody),
    Endpoint("POST", "/freezes/thaw", freezing.thaw, s.Thawed, "freeze", freezing.ThawBody),
    Endpoint(
        "GET", "/notifications", notifications.notifications, s.Notifications, query=NOTIFICATIONS
    ),
    Endpoint(
        *("POST", "/notifications/retry", notifications.retry, s.Retried, "act"),
        notifications.RetryBody,
    ),
    Endpoint("GET", "/budgets", budgets.budgets, s.Budgets, query=LIMIT),
    Endpoint(
        "POST",
        "/budgets/raise",
        budgets.raise_budget,
        s.BudgetShape,
        "budget",
        budgets.RaiseBody,
    ),
    Endpoint("GET", "/agents", agents.agents, of.Agents, query=AGENTS),
    Endpoint("GET", "/events", streams.feed, None, query=FEED),
    *(
        Endpoint("GET", f"{AGENT}{below}", view, answer, query=query)
        for below, view, answer, query in (
            ("", agents.agent_page, of.AgentPage, {}),
            ("/now", agents.agent_now, of.AgentNow, {}),
            ("/requests/{request_id}", asks.request_page, s.RequestPage, {}),
            ("/conversation", conversation.conversation, of.Conversation, ROWS),
            ("/conversation/events", streams.conversation_events, None, LIVE_ROWS),
            ("/messages", agents.messages, of.Messages, {}),
            ("/timeline", timeline.timeline, of.Timeline, BACK),
            ("/definition", definition.definition, of.DefinitionPage, {}),
            ("/state", agents.agent_state, of.StatePage, {}),
            ("/decisions", agents.decisions, of.Decisions, BACK),
            ("/history", agents.history, of.History, PAGE),
            ("/usage", agents.usage, of.UsagePage, BACK),
            ("/schedules", schedules.schedules, of.SchedulesPage, {}),
            ("/files", files.files, of.FilesPage, {}),
            ("/file", files.file, of.FilePage, FILE),
            ("/outcome", outcome.outcome, of.OutcomePage, WAIT),
            ("/events", streams.agent_events, None, EVENTS),
        )
    ),
    Endpoint("GET", f"{AGENT}/export", agents.export, dict[str, Any], "admin"),
    Endpoint("POST", f"{AGENT}/decisions", decide.decide, s.Taken, "decide", decide.DecisionsBody),
    *(
        Endpoint("POST", path, view, answer, "decide", body)
        for path, view, answer, body in (
            (
                "/delegations",
                administration.delegate,
                s.DelegationShape,
                administration.DelegateBody,
            ),
            (
                "/delegations/end",
                administration.end_delegation,
                s.Ended,
                administration.EndBody,
            ),
            (
                "/administration/vote",
                administration.vote,
                s.AdminRequestShape,
                administration.VoteBody,
            ),
        )
    ),
    Endpoint("POST", "/bulk", decide.bulk, s.Results, "decide", decide.BulkBody),
    *(
        Endpoint("POST", f"{AGENT}/{name}", view, answer, "act", body)
        for name, view, answer, body in (
            ("messages", actions.send, of.Sent, actions.MessageBody),
            ("schedules", schedules.change_schedule, of.Changed, schedules.ScheduleBody),
        )
    ),
    *(
        Endpoint(
            "POST",
            f"{AGENT}/{verb.name}",
            actions.view_of(verb),
            of.Done,
            verb.right,
            actions.body_of(verb),
        )
        for verb in VERBS.values()
        if verb.plain
    ),
    *(
        Endpoint(method, path, view, answer, "admin", body)
        for method, path, view, answer, body in (
            ("DELETE", AGENT, actions.delete, of.Deleted, actions.DeleteBody),
            (
                "POST",
                "/rules/retire",
                administration.retire_rules,
                s.Retired,
                administration.RetireBody,
            ),
            ("POST", "/import", actions.import_, of.Imported, actions.ImportBody),
            ("POST", "/recover", actions.recover, of.Continued, actions.NothingBody),
        )
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
            endpoint = endpoints[method]
            if method == "GET":  # check all its rights first: a refused request reads nothing
                visit.need("read", endpoint.right, changes=False)
            else:
                visit.need("read")
            found: Any = await endpoint.view(visit)
            if isinstance(found, Response):
                return found
            is_whole = endpoint.view is agents.export  # an export must stay importable
            return await json_answer(found if is_whole else visit.redacted(found))

        return Route(f"/api{path}", answer, methods=list(endpoints))

    async def openapi(request: Request) -> Response:
        root = request.scope.get("root_path", "")
        return JSONResponse({**document(), "servers": [{"url": f"{root}/api"}]})

    return [
        *(route(path, endpoints) for path, endpoints in by_path.items()),
        Route("/api/openapi.json", openapi, methods=["GET"]),
    ]


@cache
def document() -> dict[str, Any]:
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
            for name, text in endpoint.query.items()
        ]
        if endpoint.answer is None:
            content: dict[str, Any] = {endpoint.media: {"schema": {"type": "string"}}}
        else:
            answer = TypeAdapter(endpoint.answer).json_schema(ref_template=REF)
            schemas.update(answer.pop("$defs", {}))
            if "title" in answer:  # one of our shapes
                schemas[answer["title"]] = answer
                answer = {"$ref": REF.format(model=answer["title"])}
            content = {"application/json": {"schema": answer}}
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
                "200": {"description": "Done.", "content": content},
                "default": problem,
            },
        }
        if endpoint.body is not None:
            schema = endpoint.body.model_json_schema(ref_template=REF)
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
