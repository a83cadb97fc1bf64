"""`extract` returns what the tool returns, of an agent and of its ref."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

from understudy import Agent, AgentRef, ScriptedModel, ToolContext, ToolResult, tool
from understudy.actors import RunFuture


@dataclass
class Invoice:
    number: str


@tool
def save(invoice: Invoice) -> Invoice:
    return invoice


@tool(idempotent=True, timeout=3)
async def fetch(ctx: ToolContext, number: str, options: dict[str, Any]) -> Invoice:
    return Invoice(number)


@tool
def with_result(number: str) -> ToolResult[Invoice]:
    return ToolResult("saved", value=Invoice(number))


@tool
async def with_async_result(number: str) -> ToolResult[Invoice]:
    return ToolResult("saved", value=Invoice(number))


def undecorated(number: str) -> Invoice:
    return Invoice(number)


async def of_an_agent(agent: Agent) -> None:
    assert_type(await agent.extract(save, "Save it."), Invoice)
    assert_type(await agent.extract(fetch, "Fetch it."), Invoice)
    assert_type(await agent.extract(with_result, "Save it."), Invoice)
    assert_type(await agent.extract(with_async_result, "Save it."), Invoice)
    assert_type(await agent.extract(undecorated, "Save it.", max_runs=3), Invoice)
    assert_type(await agent.extract("save", "Save it."), Any)
    assert_type(await agent.extract([save, "fetch"], "Save it.", deadline=3), Any)
    number: int = await agent.extract(save, "Save it.")  # error: it is an Invoice
    await agent.extract(save, "Save it.", until_tool=save)  # error: extract says until which
    await agent.extract(save, "Save it.", max_rns=3)  # error: a misspelt option
    await agent.extract(3, "Save it.")  # error: no tool


async def of_a_ref(ref: AgentRef) -> None:
    assert_type(ref.extract(save, "Save it."), RunFuture[Invoice])
    assert_type(ref.extract(fetch, "Fetch it."), RunFuture[Invoice])
    assert_type(ref.extract(with_result, "Save it."), RunFuture[Invoice])
    assert_type(ref.extract(with_async_result, "Save it.", message_id="1"), RunFuture[Invoice])
    assert_type(ref.extract(undecorated, "Save it.", max_runs=3), RunFuture[Invoice])
    assert_type(await ref.extract("save", "Save it."), Any)
    assert_type(await ref.extract([save, "fetch"], "Save it.", deadline=3), Any)
    assert_type(ref.extract(save, "Save it.").get(timeout=3), Invoice)
    number: int = await ref.extract(save, "Save it.")  # error: it is an Invoice
    ref.extract(save, "Save it.", until_tool=save)  # error: extract says until which
    ref.extract(save, "Save it.", max_rns=3)  # error: a misspelt option
    ref.extract(3, "Save it.")  # error: no tool


agent = Agent("reader", ScriptedModel(["done"]), tools=[save, fetch, undecorated])
