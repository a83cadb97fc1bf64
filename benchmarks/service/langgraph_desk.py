"""The support agent as a graph of LangGraph, with its checkpointer for SQLite or PostgreSQL.

Durability is its default: a step does not wait until the step before it is on the disk.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt

from benchmarks.service.desk import Desk
from benchmarks.service.model import FakeModel
from benchmarks.service.workload import FINAL, INSTRUCTIONS, PROMPT, found, paid

__all__ = ["DESK"]

warnings.simplefilter("ignore")  # its deprecations, on each use


class FakeChat(BaseChatModel):  # type: ignore[misc]  # rivals are read as untyped
    """Asks the fake model."""

    fake: Any

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Any, **options: Any) -> FakeChat:
        return self  # a real one converts the schemas here, once

    def _generate(self, *given: Any, **options: Any) -> Any:
        raise NotImplementedError

    async def _agenerate(self, messages: list[Any], *rest: Any, **options: Any) -> Any:
        before = sum(1 for message in messages if isinstance(message, AIMessage))
        name = await self.fake.reply(before)
        if name is None:
            message = AIMessage(FINAL)
        else:
            asked = {"name": name, "args": {"order": f"o{before}"}, "id": f"c{before}"}
            message = AIMessage("", tool_calls=[asked])
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool  # type: ignore[untyped-decorator]  # rivals are read as untyped
async def look(order: str) -> dict[str, str | int]:
    """Look up an order."""
    return found(order)


@tool  # type: ignore[untyped-decorator]  # as above
async def pay(order: str) -> str:
    """Pay money back."""
    decision = interrupt({"tool": "pay", "order": order})
    return paid(order) if decision == "approve" else "not approved"


class LangGraph(Desk):
    """A graph of a model and its tools; each conversation is a thread."""

    def __init__(self, model: FakeModel) -> None:
        super().__init__(model)
        chat = FakeChat(fake=model).bind_tools([look, pay])

        async def agent(state: MessagesState) -> dict[str, Any]:
            messages = [("system", INSTRUCTIONS), *state["messages"]]
            return {"messages": [await chat.ainvoke(messages)]}

        self._builder = StateGraph(MessagesState)
        self._builder.add_node("agent", agent)
        self._builder.add_node("tools", ToolNode([look, pay]))
        self._builder.add_edge(START, "agent")
        self._builder.add_conditional_edges("agent", tools_condition)
        self._builder.add_edge("tools", "agent")

    @asynccontextmanager
    async def opened(self, store: str) -> AsyncIterator[None]:
        async with _saver(store) as saver:
            await saver.setup()
            self._graph = self._builder.compile(checkpointer=saver)
            yield

    async def ask(self, id: str) -> str:
        result = await self._graph.ainvoke({"messages": [("user", PROMPT)]}, _thread(id))
        return str(result["__interrupt__"][0].id)

    async def approve(self, id: str, request: str) -> str:
        result = await self._graph.ainvoke(Command(resume={request: "approve"}), _thread(id))
        return str(result["messages"][-1].content)


def _thread(id: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": id}, "recursion_limit": 50}


@asynccontextmanager
async def _saver(store: str) -> AsyncIterator[Any]:
    if store.startswith("sqlite"):
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        async with AsyncSqliteSaver.from_conn_string(store.removeprefix("sqlite:///")) as saver:
            yield saver
        return
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    async with AsyncConnectionPool(
        store,
        max_size=20,
        open=False,
        timeout=120,
        kwargs={"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row},
    ) as pool:
        yield AsyncPostgresSaver(pool)


DESK = LangGraph
