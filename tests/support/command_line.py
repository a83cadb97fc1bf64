"""Agents that a server in this process serves, and the command line that asks it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner, Result

from tests.support.agents import by_turn, completed
from tests.support.web_server import served
from understudy import Agent, Runtime, ScriptedModel, ToolContext, call, tool
from understudy.cli.app import app
from understudy.cli.servers import Server, announced, store_name
from understudy.middleware import Limits
from understudy.web import TokenAuth, ui

__all__ = ["TOKEN", "Desk", "agents", "found_by_commands", "run"]

TOKEN = "a token that is long enough"


@dataclass
class Desk:
    """The agents that are served, and what their tools did."""

    store: str
    url: str
    runtime: Runtime
    paid: list[tuple[str, int]]

    def json(self, *arguments: str, code: int = 0) -> Any:
        """The document that a command prints: nothing else is on standard output."""
        result = run(*arguments, "--json", code=code)
        return json.loads(result.stdout)


def agents(paid: list[tuple[str, int]]) -> list[Agent[Any, str]]:
    @tool(display_text="Looking it up…")
    async def look(order: str) -> str:
        return f"order {order}: a kettle"

    @tool
    async def pay(order: str, amount: int) -> str:
        paid.append((order, amount))
        return f"paid {amount}"

    inner = Agent(
        "cashier",
        by_turn(call("pay", {"order": "9", "amount": 7}), "The cashier has paid."),
        tools=[pay],
        interrupt_on={"pay": True},
    )

    async def consult(ctx: ToolContext) -> str:
        return completed(await ctx.run_agent(inner, "pay 7")).text

    look_17 = call("look", {"order": "17"})
    payment = call("pay", {"order": "17", "amount": 20})
    desk = Agent(
        "desk",
        by_turn(["Let me see.", look_17], payment, "It is paid."),
        tools=[look, pay],
        interrupt_on={"pay": True},
    )
    boss = Agent("boss", by_turn(call("consult"), "Done."), tools=[consult])

    def broken(_: Any) -> Any:
        raise RuntimeError("no model today")

    brief = Agent("brief", by_turn(look_17), tools=[look], middleware=[Limits(max_steps=1)])
    return [
        *(desk, boss, brief),
        Agent("broken", ScriptedModel(broken)),
        Agent("echo", by_turn("Hello.")),
    ]


def run(*arguments: str, code: int = 0, input: str | bytes | None = None, **env: str) -> Result:
    """Run a command; it ends with this code."""
    result = CliRunner().invoke(app, list(arguments), input=input, env=env, prog_name="understudy")
    assert result.exit_code == code, (result.exit_code, result.output, result.exception)
    return result


@contextmanager
def found_by_commands(runtime: Runtime, store: str) -> Iterator[str]:
    """The URL of a runtime's pages, which ann may use; commands find them by their file."""
    with served(ui(runtime, auth=TokenAuth(TOKEN, name="ann"))) as url:
        server = Server(url=url, token=TOKEN, pid=os.getpid(), store=store_name(store))
        with announced(server):
            yield url
