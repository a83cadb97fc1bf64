"""What the hosts of the tests' clusters run: their factories, by name."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from pydantic_ai.messages import UserPromptPart

from understudy import Agent, Interrupt, Price, ScriptedModel, ToolContext, call, tool
from understudy.cluster import Definitions
from understudy.middleware import Middleware, Run
from understudy.models import ScriptedRequest


@tool
def refund(order_id: str) -> str:
    """Pay money back."""
    return f"refunded {order_id}"


@tool
def lose(order_id: str) -> str:
    """Pay money back, and never learn whether it was paid."""
    raise ConnectionError("the line is dead")


@tool(idempotent=True)
async def wait_for_file(path: str) -> str:
    """Say by a file that it is entered, and wait until there is another one."""
    _say_entered(path)
    while not _is_released(path):  # noqa: ASYNC110  # another process makes the file
        await asyncio.sleep(0.01)
    return "released"


def _say_entered(path: str) -> None:
    with Path(f"{path}.entered").open("a") as file:
        file.write(f"{os.getpid()}\n")


def _is_released(path: str) -> bool:
    return Path(f"{path}.released").exists()


@tool
async def ask_outside(ctx: ToolContext, path: str) -> Any:
    """Write a token into a file, and wait for the answer."""
    _write(path, await ctx.token("answer"))
    return await ctx.wait_for("answer")


@tool
def count(ctx: ToolContext) -> str:
    """Ask a person for a number."""
    if not ctx.resumed:
        raise Interrupt("How many?", schema=int)
    return f"{ctx.resume_value:d}"


def _write(path: str, text: str) -> None:
    Path(f"{path}.new").write_text(text)
    Path(f"{path}.new").rename(path)


@tool
def measure(text: str) -> int:
    """Measure a text."""
    return len(text)


@tool
def block(ctx: ToolContext) -> str:
    """Say who runs it, and as what."""
    return f"{ctx.deps}"


def clerk(request: ScriptedRequest) -> Any:
    """Plays the model: it does what the first word of the last message says."""
    last = request.messages[-1].parts[-1]
    if not isinstance(last, UserPromptPart):
        return "done"
    word, _, rest = str(last.content).partition(" ")
    if word == "fail" and not _is_released(rest):
        raise ConnectionError("no model today")
    calls = {
        "refund": lambda: call("refund", {"order_id": rest}),
        "lose": lambda: call("lose", {"order_id": rest}),
        "wait": lambda: call("wait_for_file", {"path": rest}),
        "outside": lambda: call("ask_outside", {"path": rest}),
        "measure": lambda: call("measure", {"text": rest}),
        "count": lambda: call("count", {}),
        "block": lambda: call("block", {}),
    }
    return calls[word]() if word in calls else f"heard {rest or word}"


class Notes(Middleware):
    """A middleware that keeps the messages that it gets."""

    async def on_message(self, run: Run[Any], message: Any) -> dict[str, Any]:
        return {"note": message}


def desk() -> Agent:
    return Agent(
        "desk",
        ScriptedModel(clerk),
        tools=[refund, lose, wait_for_file, ask_outside, measure, count],
        interrupt_on={"refund": True},
        middleware=[Notes()],
    )


def desks() -> list[Agent]:
    return [desk()]


def vision() -> Definitions:
    """Another pool: an agent with deps, whose model has a price, and whose tools only look."""
    agent = Agent("vision", ScriptedModel(clerk), tools=[block, lose])
    prices = {"scripted": Price(input=0, output=1_000_000)}  # a dollar for each token of a reply
    return Definitions([agent], deps_for=_eyes, pricing=prices, undeclared="read_only")


def making() -> Definitions:
    """The desk, and agents that are made when they are activated."""
    return Definitions(desks(), factory=_till)


def _till(name: str, agent_id: str, values: Mapping[str, Any]) -> Agent | None:
    if not name.startswith("till"):
        return None
    return Agent(name, ScriptedModel(lambda _: f"{name} of {values.get('shop')}"))


def wrong_factory() -> Definitions:
    return Definitions(factory=cast("Any", "till"))


def _eyes(agent_id: str) -> str:
    return f"eyes of {agent_id}"


@asynccontextmanager
async def opened() -> AsyncIterator[Definitions]:
    """A factory that opens something for as long as its host runs, and says so by files."""
    path = Path(os.environ["CLUSTER_TEST_FOLDER"])
    (path / f"opened-{os.getpid()}").touch()
    yield Definitions(desks())
    (path / f"closed-{os.getpid()}").touch()


def broken() -> list[Agent]:
    raise LookupError("there is no model today")


def other() -> Any:
    return "no agents"
