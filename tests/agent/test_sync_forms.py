"""`execute_sync` and `resume_sync` where an event loop runs, as in each cell of a notebook.

Rules: A10.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from tests.support.agents import completed, interrupted, results
from tests.support.interrupts import ctrl_c
from tests.support.loops import never, soon
from understudy import (
    Agent,
    DecisionError,
    Runtime,
    ScriptedModel,
    ToolContext,
    approve,
    call,
    tool,
)
from understudy.models import ScriptedRequest

user = contextvars.ContextVar("user", default="nobody")


async def test_a_run_is_approved_and_resumed_on_a_running_loop() -> None:
    seen: list[tuple[str, bool]] = []

    @tool
    async def refund(order_id: str) -> str:
        """Pay money back."""
        seen.append((user.get(), threading.current_thread() is threading.main_thread()))
        return f"refunded {order_id}"

    model = ScriptedModel([call("refund", {"order_id": "17"}), "Done."])
    agent = Agent("desk", model, tools=[refund], interrupt_on={"refund": True})
    user.set("ann")
    outcome = interrupted(agent.execute_sync("Refund 17."))
    assert completed(agent.resume_sync(outcome.state, outcome.decide(approve()))).text == "Done."
    assert seen == [("ann", False)]


async def test_one_agent_is_awaited_and_called_by_turns() -> None:
    agent = Agent("echo", ScriptedModel(lambda request: f"you said {request.prompt}"))
    assert completed(agent.execute_sync("one")).text == "you said one"
    assert completed(await agent.execute("two")).text == "you said two"
    assert completed(agent.execute_sync("three")).text == "you said three"


async def test_a_tool_on_a_loop_may_call_the_sync_form_of_another_agent() -> None:
    inner = Agent("inner", ScriptedModel(["it is red"]))

    @tool
    async def ask() -> str:
        return completed(inner.execute_sync("go")).text

    agent = Agent("outer", ScriptedModel([call("ask"), "done"]), tools=[ask])
    (answer,) = results(completed(await agent.execute("go")).state)
    assert answer.content == "it is red"


async def test_a_run_inside_a_run_cannot_decide_in_the_thread_either() -> None:
    """The context goes along: only the host application decides."""
    errors: list[BaseException] = []

    @tool
    def refund() -> str:
        """Pay money back."""
        return "refunded"

    model = ScriptedModel([call("refund"), "Done."])
    desk = Agent("desk", model, tools=[refund], interrupt_on={"refund": True})

    @tool
    async def decides(ctx: ToolContext) -> str:
        waiting = interrupted(desk.execute_sync("Refund."))
        try:
            desk.resume_sync(waiting.state, waiting.decide(approve()))
        except DecisionError as error:
            errors.append(error)
        return "tried"

    agent = Agent("sly", ScriptedModel([call("decides"), "done"]), tools=[decides])
    assert completed(await agent.execute("go")).text == "done"
    assert len(errors) == 1


async def test_another_thread_of_a_runtimes_process_may_call_it() -> None:
    agent = Agent("a", ScriptedModel(["done"]))
    async with Runtime():
        outcome = await soon(asyncio.to_thread(agent.execute_sync, "go"))
    assert completed(outcome).text == "done"
    assert completed(Agent("a", ScriptedModel(["done"])).execute_sync("go")).text == "done"


def test_ctrl_c_cancels_the_run(ctrl_c_raises: None) -> None:
    """A10."""
    cancelled: list[str] = []

    async def hangs(_: ScriptedRequest) -> str:
        try:
            ctrl_c()
            await never()
        except asyncio.CancelledError:
            cancelled.append("the model call")
            raise
        return "never"

    async def cell() -> None:
        Agent("slow", ScriptedModel([hangs])).execute_sync("go")

    loop = asyncio.new_event_loop()
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(cell())
    loop.close()
    assert cancelled == ["the model call"]
