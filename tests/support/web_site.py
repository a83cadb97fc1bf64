"""Agents that ask everything there is to ask, and clients of the pages that show them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import httpx
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.types import ASGIApp

from tests.support.agents import by_turn
from tests.support.loops import soon
from understudy import (
    Agent,
    AgentRef,
    Halt,
    Interrupt,
    Runtime,
    Status,
    ToolContext,
    call,
    tool,
)
from understudy.middleware import Haltable, HumanInTheLoop
from understudy.web import User, ui

HOST = "http://localhost:8420"
ALL: frozenset[Any] = frozenset({"read", "decide", "act", "admin", "budget", "freeze"})
TABS = ("", "/timeline", "/decisions", "/schedules", "/usage", "/state", "/files", "/history")
"""Of the pages of an agent, as they end."""
HOSTILE = (
    "<script>alert(1)</script>\" onmouseover=alert(2) x='javascript:alert(3)' "
    "hx-get=/evil \x1b[31mred \u202eltr </pre></textarea></style><img src=//evil.example/x>"
)


class Speed(Enum):
    SLOW = "slow"
    FAST = "fast"


class Line(BaseModel):
    sku: str = Field(min_length=2, description="The article")
    count: int = Field(default=1, ge=1, le=99)


class Place(BaseModel):
    street: str
    zip: str | None = None


class Tree(BaseModel):
    name: str
    inside: list[Tree] = []


class Done:
    """What the tools have done."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []


def noting(done: Done) -> list[Any]:
    """The tools."""

    @tool
    def refund(order_id: str, amount: float, reason: str = "") -> str:
        """Pay money back to a customer."""
        done.calls.append(("refund", {"order_id": order_id, "amount": amount, "reason": reason}))
        return f"refunded {amount}"

    @tool
    def order(
        lines: list[Line],
        to: Place,
        speed: Speed,
        due: date,
        count: Annotated[int, Field(ge=1, le=10)],
        price: float,
        gift: bool,
        size: Literal["S", "M", 3],
        tags: list[str],
        note: str | None = None,
        tree: Tree | None = None,
        extra: dict[str, int] | None = None,
    ) -> str:
        """Order something."""
        done.calls.append(
            (
                "order",
                {
                    "lines": lines,
                    "to": to,
                    "speed": speed,
                    "due": due,
                    "count": count,
                    "price": price,
                    "gift": gift,
                    "size": size,
                    "tags": tags,
                    "note": note,
                    "tree": tree,
                    "extra": extra,
                },
            )
        )
        return "ordered"

    @tool
    def question(ctx: ToolContext) -> str:
        """Ask a person something."""
        if ctx.resume_value is None:
            raise Interrupt({"question": "Which account?", "choices": ["A", "B"]})
        done.calls.append(("question", {"value": ctx.resume_value}))
        return f"answer: {ctx.resume_value}"

    @tool
    def stop_all() -> str:
        """Stop everything."""
        raise Halt("The budget is gone")

    return [refund, order, question, stop_all]


ORDER = {
    "lines": [{"sku": "AB-1", "count": 2}],
    "to": {"street": "Long Road 1", "zip": None},
    "speed": "slow",
    "due": "2030-05-01",
    "count": 3,
    "price": 9.5,
    "gift": False,
    "size": "M",
    "tags": ["red"],
}


def desk(done: Done, *turns: Any, name: str = "desk", **options: Any) -> Agent:
    """An agent whose model says these turns, and whose tools need an approval."""
    middleware = [
        HumanInTheLoop({"refund": True, "order": True}, **options.pop("gate", {})),
        Haltable(),
    ]
    return Agent(name, by_turn(*turns), tools=noting(done), middleware=middleware, **options)


def refund(order_id: str = "17", amount: float = 49.9, **more: Any) -> Any:
    """The call of a model."""
    return call("refund", {"order_id": order_id, "amount": amount, **more})


def logged_in(name: str = "ann", may: frozenset[Any] = ALL) -> Callable[[Request], User]:
    """An `auth` that lets in one person."""
    return lambda request: User(name, may)


def client_of(
    app: ASGIApp, *, base: str = HOST, headers: dict[str, str] | None = None, root_path: str = ""
) -> httpx.AsyncClient:
    """A client of an application, in this process. It says that it is a page of the same site."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=True, root_path=root_path)
    return httpx.AsyncClient(
        transport=transport,
        base_url=base,
        headers={"sec-fetch-site": "same-origin"} if headers is None else headers,
    )


def site_of(runtime: Any, **options: Any) -> httpx.AsyncClient:
    """A client of the pages of a runtime."""
    return client_of(ui(runtime, **{"auth": logged_in(), **options}))


async def asked(
    runtime: Runtime, agent: str = "desk", id: str = "a1", text: str = "go"
) -> AgentRef:
    """An agent that has come to ask something."""
    ref = runtime.spawn(agent, id=id)
    await soon(ref.run(text))
    assert ref.status() is Status.INTERRUPTED
    return ref


async def only_request(client: httpx.AsyncClient) -> dict[str, Any]:
    """The one request that waits."""
    (found,) = (await client.get("/api/pending")).json()["requests"]
    request: dict[str, Any] = found
    return request


async def rest(ref: AgentRef, status: Status = Status.IDLE) -> None:
    """Wait until the agent has come to rest."""
    async with asyncio.timeout(60):
        while ref.status() is not status:  # noqa: ASYNC110  # it sets no event
            await asyncio.sleep(0.002)
