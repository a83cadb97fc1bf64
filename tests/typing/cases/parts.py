"""Parts that agents need every day: what they give and take."""

from __future__ import annotations

from typing import assert_type

from pydantic_ai.messages import ModelMessage

from understudy import AgentRef, AgentState, Run, patch_history
from understudy.cluster import ClusterRef
from understudy.events import Event
from understudy.loop_actors.future import Future
from understudy.middleware import Guard, RateLimit, SubAgent, TodoItem, TodoList
from understudy.tools import ToolContext


def lists(state: AgentState, ref: AgentRef, far: ClusterRef, event: Event) -> None:
    assert_type(TodoList.of(state), tuple[TodoItem, ...])
    assert_type(TodoList.of(state, "clerk"), tuple[TodoItem, ...])
    assert_type(TodoList.of(ref), Future[tuple[TodoItem, ...]])
    assert_type(TodoList.changed(event), tuple[TodoItem, ...] | None)
    assert_type(TodoList.of(far), Future[tuple[TodoItem, ...]])
    TodoList.of("clerk")  # error: a name is no place
    TodoList(max_items="many")  # error: a number


def histories(messages: list[ModelMessage]) -> None:
    assert_type(patch_history(messages), list[ModelMessage])
    assert_type(patch_history([{"role": "user", "content": "Hi."}]), list[ModelMessage])
    AgentState(messages=patch_history(messages))
    patch_history(5)  # error: no messages


async def asked(run: Run) -> None:
    assert_type(await run.ask_model("title", "A title?"), str)
    assert_type(await run.ask_model("count", "How many?", output_type=int), int)


def told(ctx: ToolContext, name: str) -> str:
    return name


def number(ctx: ToolContext, name: str) -> int:
    return 5


SubAgent(task_instructions=told)
SubAgent(task_instructions="Be brief.")
SubAgent(task_instructions=number)  # error: it returns no text
RateLimit(10, defer_after=None)
RateLimit("10")  # error: a number
Guard(input=told, name="a")
Guard(input=told, name=5)  # error: a name
