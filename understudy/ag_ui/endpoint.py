"""The endpoints: ASGI applications to mount, or to give to a route."""

from __future__ import annotations

import json
import re
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
)
from contextlib import aclosing
from typing import Any, TypeVar, cast

from sse_starlette import ServerSentEvent
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from understudy._base.json_values import shown
from understudy.actors import Runtime
from understudy.ag_ui import protocol, vercel_ai
from understudy.ag_ui.conversation import OWN_ID, Conversation, Said, Writer
from understudy.ag_ui.frontend_tools import checked_tools
from understudy.ag_ui.site import (
    AgentIdOf,
    ShareState,
    Site,
    SourceOf,
    need,
    own_threads,
    unknown_thread,
)
from understudy.errors import UnknownAgent, UsageError
from understudy.login import Auth, User
from understudy.login.bodies import read_json
from understudy.login.event_stream import END, EventStream
from understudy.login.guard import Guard, path_in
from understudy.login.hosts import Hosts, checked_origins
from understudy.login.problems import problem_of, refused
from understudy.login.redaction import Redact, Redaction
from understudy.login.users import checked_auth
from understudy.tools import Tool

T = TypeVar("T")
_RECONNECT = re.compile(r"/([^/]+)/stream")


def ag_ui(
    runtime: Runtime | SourceOf,
    *,
    agent: str,
    auth: Auth | None = None,
    allowed_hosts: Iterable[str] = (),
    allowed_origins: Iterable[str] = (),
    agent_id: AgentIdOf | None = None,
    share_state: ShareState = False,
    frontend_tools: Iterable[Tool[Any]] = (),
    redact: Redact | None = None,
) -> ASGIApp:
    """Make an endpoint for AG-UI 1.0: an ASGI application to mount.

    A client posts what the user says. It gets a stream of events: text, thinking, calls of tools
    and their results, and sub-agents. If the run asks a person, the stream ends with interrupts.
    Answers continue the run, also after a restart. The server keeps the history. A lost connection
    stops nothing: the client reconnects with no new message, and gets the conversation and what
    follows.

    A refused request is a `RUN_ERROR`, and changes nothing. Its `code` says why:

    - `PartialResume`: an answer is missing.
    - `InterruptsPending`: there is a new message, but a request is pending.
    - `UnknownInterrupt`: the agent does not ask this.
    - `AnsweredTwice`: there are two answers to one request.
    - `AnsweredElsewhere`: another person has given a different answer.
    - `BadAnswer`, `DecisionError`: the answer does not fit the schema or the arguments of the tool.
    - `RequestChanged`: the request is not the request that was shown.
    - `InterruptExpired`: the answer is too late.
    - `UnknownTools`: the client has a tool that the endpoint does not know.
    - `Paused`, `Waiting`: there is a new message, but the run is paused, or sleeps.

    `ServerStops` ends a stream whose run is not over. Connect again.

    Args:
        runtime: a `Runtime` or a `Cluster`, or a function that returns it.
        agent: the name of the definition that clients talk to.
        auth: says who makes a request; see `understudy.web.ui`. Writing needs the right `act`,
            answering requests `decide`, looking `read`.
        allowed_hosts: the host names under which it is served. IP addresses and `localhost` are
            always allowed.
        allowed_origins: other origins whose pages may use it, such as
            `"https://app.example.com"`.
        agent_id: returns the id of the agent for the user and the client's `threadId`; None
            refuses the request. By default each user has threads of their own.
        share_state: whether clients get the values of the agent; or a function that takes the
            values and returns what clients get.
        frontend_tools: the tools of the agent that the page executes, each made by
            `frontend_tool`. A client with other tools is refused.
        redact: hides values from users, as the `redact` of `understudy.web.ui`. The path begins
            in an event: `("delta", "iban")` is an argument of a call, which is sent whole. Text
            of the model comes in pieces, and the function sees each piece alone.

    Raises:
        UsageError: if `auth` is missing, or an argument is wrong.

    """
    names = checked_tools(frontend_tools)
    site = _site("ag_ui", runtime, agent, auth, agent_id, share_state, names, redact)

    async def post(request: Request, user: User) -> Response:
        given = protocol.input_of(await read_json(request))
        writer = protocol.AgUiWriter(site, user, given)
        conversation = Conversation(site, user, protocol.said_in(given, site))
        return _stream(conversation, writer, lambda event: event.model_dump_json(by_alias=True))

    return _guarded(_Endpoint(site, post, None), cast("Auth", auth), allowed_hosts, allowed_origins)


def vercel(
    runtime: Runtime | SourceOf,
    *,
    agent: str,
    auth: Auth | None = None,
    allowed_hosts: Iterable[str] = (),
    allowed_origins: Iterable[str] = (),
    agent_id: AgentIdOf | None = None,
    redact: Redact | None = None,
) -> ASGIApp:
    """Make an endpoint for Vercel's AI SDK, 6 or 7: `new DefaultChatTransport({api: "/chat"})`.

    It is `ag_ui` in another protocol. The protocol has approvals and rejections but no other
    answers: send other answers as `resume`, in the form of AG-UI. `GET .../ID/stream` continues a
    reply that is being written.

    Args:
        runtime: as in `ag_ui`.
        agent: as in `ag_ui`.
        auth: as in `ag_ui`.
        allowed_hosts: as in `ag_ui`.
        allowed_origins: as in `ag_ui`.
        agent_id: returns the id of the agent for the user and the `id` of the chat.
        redact: as in `ag_ui`. The path begins in a chunk, such as `("input", "iban")`.

    Raises:
        UsageError: if `auth` is missing, or an argument is wrong.

    """
    site = _site("vercel", runtime, agent, auth, agent_id, False, redact=redact)

    def answered(user: User, said: Said, calls: Collection[str] = ()) -> Response:
        id = None if said.message_id is None else f"{OWN_ID}reply-to-{said.message_id}"
        writer = vercel_ai.VercelWriter(site, user, calls, id)
        conversation = Conversation(site, user, said)
        return _stream(conversation, writer, writer.encoded, vercel_ai.HEADERS)

    async def post(request: Request, user: User) -> Response:
        body = vercel_ai.body_of(await read_json(request))
        return answered(user, vercel_ai.said_in(body), vercel_ai.calls_in(body))

    async def again(thread_id: str, user: User) -> Response:
        need(user, "events")
        ref = site.ref(site.source(), user, thread_id)
        try:
            await site.info(ref)
            state = await ref.state()
        except UnknownAgent:
            return Response(status_code=204)
        if state.status != "running":
            return Response(status_code=204)  # the client expects it: nothing is being written
        return answered(user, Said(thread_id))

    return _guarded(
        _Endpoint(site, post, again), cast("Auth", auth), allowed_hosts, allowed_origins
    )


def _site(
    what: str,
    runtime: Runtime | SourceOf,
    agent: object,
    auth: object,
    agent_id: AgentIdOf | None,
    share_state: ShareState,
    frontend_tools: frozenset[str] = frozenset(),
    redact: Redact | None = None,
) -> Site:
    checked_auth(what, auth)
    is_source = hasattr(runtime, "spawn")
    if not is_source and not callable(runtime):
        raise UsageError(
            f"{what}(runtime) takes a Runtime, or a function that gives it, got {shown(runtime)}"
        )
    if not isinstance(agent, str) or not agent:
        raise UsageError(f"{what}(agent=...) takes the name of a definition, got {shown(agent)}")
    if agent_id is not None and not callable(agent_id):
        raise UsageError(f"{what}(agent_id=...) takes a function, got {shown(agent_id)}")
    if not isinstance(share_state, bool) and not callable(share_state):
        raise UsageError(
            f"{what}(share_state=...) takes a bool or a function, got {shown(share_state)}"
        )
    source_of = (lambda: cast("Runtime", runtime)) if is_source else cast("SourceOf", runtime)
    ids = agent_id or own_threads(agent)
    redaction = Redaction(redact, what=f"{what}(redact=...)")
    return Site(source_of, agent, ids, share_state, frontend_tools, redaction)


Post = Callable[[Request, User], Awaitable[Response]]
Again = Callable[[str, User], Awaitable[Response]]


class _Endpoint:
    """Answers requests that the guard lets in."""

    def __init__(self, site: Site, post: Post, again: Again | None) -> None:
        self._site = site
        self._post = post
        self._again = again

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except Exception as error:
            problem = problem_of(error)
            user: User = scope["understudy.user"]
            seen = self._site.redaction.seen(user, problem.to_dict())
            response = JSONResponse(seen, problem.status)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        user: User = request.scope["understudy.user"]
        path = path_in(request.scope)
        if request.method == "POST":
            if path.endswith("/cancel"):
                return await self._cancel(request, user)
            return await self._post(request, user)
        found = _RECONNECT.search(path)
        if request.method == "GET" and self._again is not None and found is not None:
            return await self._again(found[1], user)
        raise refused(405, "MethodNotAllowed", "Post what is said.")

    async def _cancel(self, request: Request, user: User) -> Response:
        need(user, "cancel")
        data = await read_json(request)
        thread_id = data.get("threadId", data.get("id")) if isinstance(data, dict) else None
        if not isinstance(thread_id, str):
            raise refused(400, "UsageError", "`threadId` says which conversation to cancel.")
        ref = self._site.ref(self._site.source(), user, thread_id)
        try:
            await self._site.info(ref)
        except UnknownAgent as error:
            raise unknown_thread() from error
        outcome: Any = await ref.cancel(by=user.by)
        return JSONResponse({"cancelled": outcome is not None})


class _Json:
    """Makes the guard refuse in JSON, because there are no pages here."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "understudy.json": True}, receive, send)


def _guarded(
    app: ASGIApp, auth: Auth, allowed_hosts: Iterable[str], allowed_origins: Iterable[str]
) -> ASGIApp:
    origins = checked_origins(allowed_origins)
    guarded = _Json(Guard(app, auth, Hosts(allowed_hosts), origins))
    if not origins:
        return guarded
    # It is around the guard: a browser first asks whether it may, without a login.
    return CORSMiddleware(
        guarded,
        allow_origins=origins,
        allow_methods=("GET", "POST"),
        allow_headers=("*",),
        allow_credentials=True,
    )


def _stream(
    conversation: Conversation,
    writer: Writer[T],
    encoded: Callable[[T], str],
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Server-sent events, each in one line."""

    def shown(item: T) -> str:
        text, redaction = encoded(item), conversation.site.redaction
        if not redaction.is_on or not text.startswith("{"):  # "[DONE]" is no event
            return text
        return json.dumps(redaction.seen(conversation.user, json.loads(text)), ensure_ascii=False)

    async def events() -> AsyncGenerator[ServerSentEvent, None]:
        async with aclosing(conversation.stream(writer)) as found:
            async for item in found:
                yield ServerSentEvent(shown(item), sep=END)

    async def farewell() -> AsyncGenerator[ServerSentEvent, None]:
        # In both protocols, a stream that just ends means that the run is over.
        stops = refused(503, "ServerStops", "The server stops. The run is not over: connect again.")
        async for item in writer.error(stops):
            yield ServerSentEvent(shown(item), sep=END)

    return EventStream(
        events(),
        farewell=farewell,
        headers=headers,
        bound=conversation.site.streams,
        user=conversation.user.key,
    )
