"""An adopted agent is killed at every point, and continues: what it does, it does once (M9)."""

from __future__ import annotations

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import ModelRetry, RunContext

from tests.support.agents import by_turn
from understudy import Agent, approve, call
from understudy.testing import Effects, Story, crash_points
from understudy.tools import ToolOptions


class Answer(BaseModel):
    """The answer to the customer."""

    text: str
    tries: int


def support() -> PydanticAgent[Effects, Answer]:
    """An agent that is asked to try again, needs an approval, pays, and gives a typed answer."""
    agent: PydanticAgent[Effects, Answer] = PydanticAgent(
        by_turn(
            call("look_up", {"order_id": "7"}),
            call("look_up", {"order_id": "17"}),
            call("pay", {"amount": 20}),
            call("final_result", {"text": "paid", "tries": 2}),
        ),
        name="support",
        deps_type=Effects,
        output_type=Answer,
        system_prompt="You pay.",
    )

    @agent.system_prompt
    def prompt(ctx: RunContext[Effects]) -> str:
        return "Once."

    @agent.tool(retries=3)
    async def look_up(ctx: RunContext[Effects], order_id: str) -> str:
        """Look an order up."""
        if order_id != "17":
            raise ModelRetry("There is none.")
        return f"a kettle, after {ctx.retry} retries"

    @agent.tool(requires_approval=True)
    def pay(ctx: RunContext[Effects], amount: float) -> str:
        """Pay."""
        ctx.deps.add_once("payment", key=f"{ctx.conversation_id}/{ctx.tool_call_id}")
        return f"paid {amount}"

    return agent


@pytest.mark.slow
@crash_points()
def test_an_adopted_agent_pays_once_wherever_its_host_is_killed(story: Story) -> None:
    """M9."""
    options: dict[str, ToolOptions] = {
        "look_up": {"read_only": True},
        "pay": {"idempotent": True},
    }
    agent = Agent.from_pydantic_ai(support(), tool_options=options)
    story.spawn(agent, deps=story.effects)
    story.say("Pay 20.")
    story.answer(approve())
    story.finish()
    story.effects.once("payment")
    story.same_outcome()
