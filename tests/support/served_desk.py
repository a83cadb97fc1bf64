"""A desk that pays when a person allows it, for programs that reach it through a server."""

from __future__ import annotations

from starlette.requests import Request

from tests.support.agents import by_turn
from understudy import Agent, call, tool
from understudy.login import User

__all__ = ["APP", "desk", "pay", "who"]

APP = """
from tests.support.served_desk import desk
from understudy import Runtime

def runtime():
    return Runtime([desk()], store="sqlite:///agents.db")
"""
"""The code of a module whose `runtime` the command `understudy mcp` serves."""

PEOPLE = {
    "ann": User("ann", frozenset({"read", "decide"})),
    "bob": User("bob", frozenset({"read"})),
}


@tool(ask=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def desk() -> Agent:
    return Agent("desk", by_turn(call("pay", {"amount": 3})), tools=[pay])


def who(request: Request) -> User | None:
    """A login: who has the name as a token is it."""
    return PEOPLE.get(request.headers.get("authorization", "").removeprefix("Bearer "))
