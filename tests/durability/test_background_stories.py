"""K1, T33: a call in the background, in stories whose host is killed at every point."""

from __future__ import annotations

from typing import Any

import pytest

from understudy import Agent, Completed, ScriptedModel, ToolContext, call, tool
from understudy.testing import FakeRemote, Story, crash_points


def clerk(bank: FakeRemote, **options: Any) -> Agent[Any, Any]:
    """Pays in the background, and says what has come of it."""

    @tool(background=True, **options)
    async def pay(ctx: ToolContext, order: str) -> str:
        return bank.send(order, key=ctx.call_key)

    def reply(request: Any) -> Any:
        last = request.messages[-1].parts[-1]
        if last.part_kind == "tool-return":
            return "It is under way."
        return call("pay", {"order": "17"}) if last.content == "pay" else "It is done."

    return Agent("clerk", ScriptedModel(reply), tools=[pay])


@pytest.mark.slow
@crash_points(store="memory")
def test_a_call_in_the_background_is_made_once_and_its_result_comes(story: Story) -> None:
    """T33."""
    story.spawn(clerk(story.remote(dedupe=True), idempotent=True))
    story.say("pay")
    story.finish()
    story.effects.once("17")
    outcome = story.outcome()
    assert isinstance(outcome, Completed)
    assert outcome.text == "It is done."


@pytest.mark.slow
@crash_points(store="memory", control=False)
def test_a_call_in_the_background_that_is_cut_off_is_not_repeated_unasked(story: Story) -> None:
    """T33."""
    story.spawn(clerk(story.remote()))
    story.say("pay")
    story.finish()
    story.effects.once("17")
