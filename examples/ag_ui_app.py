"""A chat page that speaks AG-UI: text as it is written, and approvals in the page.

    pip install '.[ag-ui,web]'
    python -m examples.ag_ui_app      then open http://127.0.0.1:8000

Ask for a refund, end the server, start it again, and load the page: what is asked is still there.
The agents are kept in a file, `ag_ui_app.db`, or where STORE says. The page is plain JavaScript
without a build step, and loads nothing from elsewhere.

A scripted model plays the agent; `make_app("openai:gpt-5-mini")` takes a real one. Everybody on
this machine is let in; another `auth` asks your login.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic_ai.messages import UserPromptPart
from pydantic_ai.models import Model
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route

from understudy import Agent, Runtime, ScriptedModel, call, tool
from understudy.ag_ui import ag_ui, loopback_only, vercel
from understudy.models import ScriptedRequest

PAGE = Path(__file__).with_name("ag_ui_page")
MEDIA = {"": "text/html", "page.js": "text/javascript", "page.css": "text/css"}
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


@tool
def look_up(order_id: str) -> dict[str, Any]:
    """Look up an order."""
    return {"order": order_id, "item": "kettle", "price": 49.9}


@tool
def refund(order_id: str, amount: float) -> str:
    """Pay money back to the customer."""
    return f"refunded {amount:.2f} for order {order_id}"


def script(request: ScriptedRequest) -> Any:
    """Plays the model."""
    asked = max(
        n
        for n, message in enumerate(request.messages)
        if any(isinstance(part, UserPromptPart) for part in message.parts)
    )
    replies = [
        ["Let me look at that order. ", call("look_up", {"order_id": "17"})],
        ["It is a kettle for 49.90. ", call("refund", {"order_id": "17", "amount": 49.9})],
        "That is all for order 17. Is there anything else that I can do for you?",
    ]
    return replies[min((len(request.messages) - asked) // 2, 2)]


def make_app(model: Model | str | None = None, *, store: str | None = None) -> Starlette:
    """The application: the page, and an endpoint of each protocol."""
    desk = Agent(
        "desk",
        model or ScriptedModel(script),
        "You help the customers of a shop. Look an order up before you refund it.",
        tools=[look_up, refund],
        interrupt_on={"refund": True},
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        where = store or os.environ.get("STORE", "sqlite:///ag_ui_app.db")
        async with Runtime([desk], store=where) as runtime:
            await runtime.recover()
            app.state.runtime = runtime
            yield

    async def page(request: Request) -> Response:
        name = request.url.path.removeprefix("/")
        return FileResponse(PAGE / (name or "page.html"), media_type=MEDIA[name], headers=HEADERS)

    def runtime() -> Runtime:
        found: Runtime = app.state.runtime
        return found

    who = loopback_only()
    app = Starlette(
        lifespan=lifespan,
        routes=[
            *(Route(f"/{name}", page) for name in MEDIA),
            Mount("/ag-ui", ag_ui(runtime, agent="desk", auth=who)),
            Mount("/chat", vercel(runtime, agent="desk", auth=who)),
        ],
    )
    return app


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(make_app(), host="127.0.0.1", port=8000)
