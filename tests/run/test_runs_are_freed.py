"""A run that is over is freed at once: nothing of it waits for the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from weakref import ref

import pytest

from tests.support.agents import completed
from understudy import Agent, ScriptedModel, ToolContext, call, tool
from understudy.middleware import SubAgent


class Desk:
    """What a run is given."""


@tool
async def note(ctx: ToolContext[Desk], text: str) -> str:
    """Note a text."""
    assert isinstance(ctx.deps, Desk)
    return f"noted {text}"


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in another agent"])
async def test_a_run_that_is_over_is_freed_without_the_garbage_collector(inside: bool) -> None:
    agent = Agent("a", ScriptedModel([call("note", {"text": "x"}), "done"]), tools=[note])
    if inside:
        ask = call("task", {"task_name": "a", "instructions": "go"})
        agent = Agent("boss", ScriptedModel([ask, "done"]), middleware=[SubAgent([agent])])
    desk = Desk()
    freed = ref(desk)
    assert completed(await agent.execute("go", deps=desk)).text == "done"
    del desk
    assert freed() is None
