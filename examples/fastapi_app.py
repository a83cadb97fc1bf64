"""Agents behind a web API: people write to them, watch them live, and decide what they may do.

    pip install '.[web]' fastapi
    python -m examples.fastapi_app      then open http://127.0.0.1:8000, or:

    curl -d '{"text": "Refund order 17"}' -H 'content-type: application/json' \
        http://127.0.0.1:8000/agents/ann/messages
    curl http://127.0.0.1:8000/approvals
    curl -d '{"type": "approve"}' -H 'content-type: application/json' \
        http://127.0.0.1:8000/approvals/ann/REQUEST-ID
    curl -N http://127.0.0.1:8000/agents/ann/events

The agents are kept in memory, or where STORE says: with `STORE=sqlite:///support.db` a server that
was killed continues where it was. Several workers or servers share a `STORE=postgresql://...`, and
any of them answers for any agent: `uvicorn examples.fastapi_app:app --workers 4`.

A scripted model plays the agent; `make_app("openai:gpt-5-mini")` takes a real one. Who may write
to which agent, and who may decide, is for your login to say: this example has none.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Body, Depends, FastAPI, Header, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from pydantic import BaseModel, Field
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest, ToolReturnPart
from pydantic_ai.models import Model
from pydantic_core import to_json, to_jsonable_python
from sse_starlette import EventSourceResponse, ServerSentEvent

from understudy import (
    Agent,
    AgentRef,
    Completed,
    Failed,
    Interrupted,
    Outcome,
    Paused,
    Runtime,
    ScriptedModel,
    Stopped,
    ToolContext,
    call,
    events,
    tool,
)
from understudy.actors import AgentEvent, StatusChanged
from understudy.models import ScriptedRequest
from understudy.web import add_error_handlers, rows_response

# 1. What the agents act on. It lives on the server's loop, and so do the agents: an async tool may
#    use its connections.


class Shop:
    def __init__(self) -> None:
        self.refunds: list[tuple[str, str, float]] = []

    async def pay_back(self, customer: str, order_id: str, amount: float) -> None:
        self.refunds.append((customer, order_id, amount))


@tool
async def refund(ctx: ToolContext, order_id: str, amount: float) -> str:
    """Pay money back to the customer."""
    await ctx.deps.pay_back(ctx.agent_id, order_id, amount)
    return f"refunded {amount:.2f} for order {order_id}"


def clerk(request: ScriptedRequest) -> Any:
    """Plays the model: it refunds what is asked for, and reports the result."""
    last = request.messages[-1]
    results = [part for part in last.parts if isinstance(part, ToolReturnPart)]
    if isinstance(last, ModelRequest) and results:
        return f"This is what was done: {results[-1].model_response_str()}"
    order = re.search(r"order (\w+)", request.prompt)
    if order is None:
        return "Which order is it about?"
    return ["Let me see. ", call("refund", {"order_id": order[1], "amount": 49.9})]


def make_agent(model: str | Model) -> Agent:
    return Agent(
        "support",
        model,
        "You are the support desk of a shop. A person decides about each refund.",
        tools=[refund],
        interrupt_on={"refund": True},
    )


# 2. The runtime lives as long as the server. It first continues what was cut off when the last one
#    was killed. When the server stops, the agents are passivated after the step in progress.


def make_app(model: str | Model | None = None, store: str | None = None) -> FastAPI:
    support = make_agent(model or ScriptedModel(clerk))
    store = store or os.environ.get("STORE", "memory:")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        shop = Shop()
        async with Runtime([support], store=store, deps_for=lambda agent_id: shop) as runtime:
            await runtime.recover()
            app.state.runtime = runtime
            yield

    app = FastAPI(title="Support desk", lifespan=lifespan)
    app.add_api_route("/", lambda: RedirectResponse("/docs"), include_in_schema=False)
    app.add_api_route("/live", lambda: {"live": True}, methods=["GET"])
    app.add_api_route("/ready", ready, methods=["GET"])
    app.add_api_route("/agents/{agent_id}", show, methods=["GET"])
    app.add_api_route("/agents/{agent_id}/messages", write, methods=["POST"])
    app.add_api_route("/agents/{agent_id}/events", watch, methods=["GET"])
    app.add_api_route("/agents/{agent_id}/rows", rows, methods=["GET"])
    app.add_api_route("/approvals", approvals, methods=["GET"])
    app.add_api_route("/approvals/{agent_id}/{request_id}", decide, methods=["POST"])
    app.add_exception_handler(RequestValidationError, unreadable)
    add_error_handlers(app)  # each error of the runtime is answered with its status
    return app


def the_runtime(request: Request) -> Runtime:
    runtime: Runtime = request.app.state.runtime
    return runtime


TheRuntime = Annotated[Runtime, Depends(the_runtime)]


async def the_agent(agent_id: str, runtime: TheRuntime) -> AgentRef:
    agent = runtime.get(agent_id)
    await agent.info()  # if there is none of this id, this raises `UnknownAgent`: a 404
    return agent


TheAgent = Annotated[AgentRef, Depends(the_agent)]


# 3. Writing to an agent. The first message creates it; `spawn` gives an existing one.


class Message(BaseModel):
    text: str = Field(min_length=1)
    wait: bool = False
    """Answer when the run has an outcome; else at once, when the message is recorded."""
    message_id: str | None = None
    """The client's own: who got no answer sends the message again, to any server, and it runs once.
    """


async def write(agent_id: str, message: Message, runtime: TheRuntime) -> JSONResponse:
    agent = runtime.spawn("support", id=agent_id)
    if message.wait:
        return JSONResponse(
            outcome_view(await agent.run(message.text, message_id=message.message_id))
        )
    message_id = await agent.send(message.text, message_id=message.message_id)
    return JSONResponse({"message_id": message_id}, status_code=202)


# 4. The pending requests of all agents, and the answers.


async def approvals(runtime: TheRuntime) -> list[dict[str, Any]]:
    return [
        {**pending.request.to_dict(), "agent_id": pending.agent_id}
        for pending in await runtime.pending()
    ]


async def decide(
    request_id: str,
    agent: TheAgent,
    decision: Annotated[dict[str, Any], Body()],
    wait: bool = False,
    x_user: Annotated[str | None, Header()] = None,
) -> JSONResponse:
    # The header takes the place of your login: the body must not say who decided.
    decisions = {request_id: {**decision, "by": x_user}}
    if wait:
        return JSONResponse(outcome_view(await agent.resume(decisions)))
    await agent.decide(decisions)  # it is recorded, and the run goes on
    return JSONResponse({"status": (await agent.info()).status.value}, status_code=202)


def ready(runtime: TheRuntime) -> JSONResponse:
    """For a load balancer: whether this server may get requests."""
    is_ready = runtime.status().ready
    return JSONResponse({"ready": is_ready}, status_code=200 if is_ready else 503)


async def unreadable(request: Request, error: Exception) -> JSONResponse:
    """What is not of the forms here. FastAPI repeats it in its answer: not all of it is a text."""
    assert isinstance(error, RequestValidationError)
    details = [{what: each[what] for what in ("type", "loc", "msg")} for each in error.errors()]
    return JSONResponse({"detail": details}, status_code=422)


# 5. Reading: the state of an agent, and its events as server-sent events. The browser's EventSource
#    reconnects with the last position that it saw, and misses nothing.


async def show(agent: TheAgent) -> dict[str, Any]:
    state = await agent.state()
    return {
        "id": agent.id,
        "status": state.status,
        "messages": ModelMessagesTypeAdapter.dump_python(list(state.messages), mode="json"),
        "requests": [request.to_dict() for request in state.requests],
        "decisions": [record.decision.to_dict() for record in state.decisions],
    }


POSITION = r"^[0-9]{1,15}(\.[0-9]{1,6})?$"


async def watch(
    agent: TheAgent,
    after: Annotated[str, Query(pattern=POSITION)] = "0",
    last_event_id: Annotated[str | None, Header(pattern=POSITION)] = None,
) -> EventSourceResponse:
    async def stream() -> AsyncIterator[ServerSentEvent]:
        subscription = agent.events(after if last_event_id is None else last_event_id)
        try:
            async for event in subscription:
                yield ServerSentEvent(
                    to_json(event_view(event)).decode(),
                    event=event.event.kind,
                    id=event.position,
                )
        finally:
            subscription.close()  # the browser disconnected

    return EventSourceResponse(stream())


async def rows(agent: TheAgent, after: Annotated[int, Query(ge=0)] = 0) -> Response:
    """The rows of a chat screen, and their changes: `static/understudy.js` follows them."""
    return rows_response(agent, after=after)


# 6. What clients see. An outcome carries the whole state, which is not for the browser.


def outcome_view(outcome: Outcome) -> dict[str, Any]:
    match outcome:
        case Completed(text=text):
            details: dict[str, Any] = {"text": text}
        case Interrupted(requests=requests):
            details = {"requests": [request.to_dict() for request in requests]}
        case Paused(reason=reason):
            details = {"reason": reason}
        case Stopped(signals=signals):
            details = signals.to_dict()
        case Failed(error=error):
            details = {"error": error.to_dict()}
    return {"outcome": type(outcome).__name__.lower(), "run_id": outcome.run_id, **details}


def event_view(event: AgentEvent) -> dict[str, Any]:
    match event.event:
        case StatusChanged(status=status):
            return {"status": status.value}
        case events.ReplyEnded(turn=turn, response=response):
            return {"turn": turn, "text": response.text}
        case events.RequestMade(request=request):
            return request.to_dict()
        case other:
            view: dict[str, Any] = to_jsonable_python(other, fallback=repr)
            return view


app = make_app()

if __name__ == "__main__":
    import uvicorn  # a server of your own starts it as `uvicorn examples.fastapi_app:app`

    uvicorn.run(app)
