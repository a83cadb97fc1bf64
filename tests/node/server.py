"""A server of both endpoints, to be killed: `python -m tests.node.server STORE PORT`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.support.ag_ui_client import by_header
from tests.support.agents import by_turn
from understudy import Agent, Runtime, call, tool
from understudy.ag_ui import ag_ui, vercel
from understudy.middleware import SubAgent


@tool
def refund(order_id: str) -> str:
    """Pay money back. Each time leaves a line."""
    with Path(sys.argv[1]).with_suffix(".done").open("a", encoding="utf-8") as done:
        done.write(f"{order_id}\n")
    return f"refunded {order_id}"


def desk() -> Agent:
    """An agent that runs two others at once, which ask for one thing each."""
    inner = [
        Agent(
            name,
            by_turn(call("refund", {"order_id": order_id}), "Paid."),
            description="pays",
            tools=[refund],
            interrupt_on={"refund": True},
        )
        for name, order_id in (("billing", "1"), ("cashier", "2"))
    ]
    tasks = [call("task", {"task_name": each.name, "instructions": "go"}) for each in inner]
    return Agent(
        "desk", by_turn(["Let me see. ", *tasks], "All done."), middleware=[SubAgent(inner)]
    )


def app(store: str) -> Starlette:
    """The endpoints."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with Runtime([desk()], store=f"sqlite:///{store}") as runtime:
            await runtime.recover()
            app.state.runtime = runtime
            yield

    def runtime() -> Runtime:
        found: Runtime = made.state.runtime
        return found

    made = Starlette(
        lifespan=lifespan,
        routes=[
            Mount("/ag-ui", ag_ui(runtime, agent="desk", auth=by_header)),
            Mount("/chat", vercel(runtime, agent="desk", auth=by_header)),
        ],
    )
    return made


if __name__ == "__main__":
    uvicorn.run(app(sys.argv[1]), port=int(sys.argv[2]), log_level="error")
