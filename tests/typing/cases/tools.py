"""A tool is called as its function; and lists of tools are accepted however they are written."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, assert_type

from understudy import Agent, ScriptedModel, Tool, ToolContext, ToolResult, tool
from understudy.tools import exit_loop


@tool
def lookup(order_id: str, limit: int = 3) -> dict[str, int]:
    return {order_id: limit}


@tool(timeout=3)
async def fetch(ctx: ToolContext, order_id: str) -> bytes:
    return order_id.encode()


@tool
def store(data: Any) -> str:
    return str(data)


def undecorated(x: int) -> int:
    return x


class Shop:
    def price(self, order_id: str) -> int:
        return len(order_id)


assert_type(lookup("17"), dict[str, int])
assert_type(lookup(order_id="17", limit=4), dict[str, int])
assert_type(lookup.name, str)
assert_type(store(5), str)
assert_type(store(data=5), str)
assert_type(exit_loop(), ToolResult[str])
assert_type(tool(Shop().price)("17"), int)
lookup(17)  # error: an order id is text
lookup()  # error: without its order id
lookup("17", 3, 4)  # error: too many
lookup("17", lmit=3)  # error: a misspelt parameter
store.nme  # error: a misspelt attribute


async def calls_an_async_one(ctx: ToolContext) -> None:
    assert_type(await fetch(ctx, "17"), bytes)
    assert_type(await fetch(ctx=ctx, order_id="17"), bytes)
    await fetch("17")  # error: without its context
    text: str = await fetch(ctx, "17")  # error: it returns bytes


tool(timout=3)  # error: a misspelt option
tool(on_unknown="asks")  # error: ask or tell
tool(ask=True)
tool(ask=["approve", "reject"])
tool(ask={"allowed": ["approve"], "expires_after": 60})
tool(ask=3)  # error: a rule, as of HumanInTheLoop

MODEL = ScriptedModel(["done"])
decorated = [lookup, fetch]
mixed = [lookup, undecorated, Shop().price]
declared: list[Callable[..., Any]] = [lookup, undecorated]
tools: list[Tool] = [lookup, fetch, exit_loop, tool(undecorated)]
Agent("shop", MODEL, tools=decorated)
Agent("shop", MODEL, tools=mixed)
Agent("shop", MODEL, tools=declared)
Agent("shop", MODEL, tools=tools)
Agent("shop", MODEL, tools=(lookup, undecorated))
Agent("shop", MODEL, tools=[*decorated, functools.partial(undecorated, 3), lambda: "x"])
Agent("shop", MODEL, tools=lookup)  # error: no list
names = [each.name for each in decorated]
