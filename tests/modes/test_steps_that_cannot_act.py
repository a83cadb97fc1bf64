"""A step of the library that has nothing to do is not called; one of an application always is."""

from __future__ import annotations

from functools import wraps

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage, RunUsage

from tests.support.agents import completed
from understudy import Agent, Outcome, Run, ScriptedModel, call, tool
from understudy.modes import AgentExecution


@tool
async def note(text: str) -> str:
    """Note a text."""
    return f"noted {text}"


@pytest.mark.parametrize("name", AgentExecution().step_names)
async def test_a_function_around_a_step_is_called_though_the_step_cannot_act(name: str) -> None:
    mode = AgentExecution()
    inner = dict(zip(mode.step_names, mode.steps, strict=True))[name]
    called = 0

    @wraps(inner)
    async def around(run: Run) -> Outcome | None:
        nonlocal called
        called += 1
        return await inner(run)

    agent = Agent(
        "a",
        ScriptedModel([call("note", {"text": "x"}), "done"]),
        tools=[note],
        mode=mode.replacing(name, around),
    )
    assert completed(await agent.execute("go")).text == "done"
    assert called == 2


class Used(Model):
    """A model whose replies have used this."""

    model_name = system = "used"

    def __init__(self, *used: RequestUsage) -> None:
        super().__init__()
        self.reply = ModelResponse(parts=[TextPart("done")], usage=used[0])

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        return self.reply


@pytest.mark.parametrize(
    "used",
    [
        RequestUsage(),
        RequestUsage(input_tokens=3, output_tokens=2, cache_read_tokens=1),
        RequestUsage(input_tokens=3, audio_seconds=1.5),
        RequestUsage(input_tokens=3, details={"thought": 7}),
        RequestUsage(output_tokens=2, web_searches=4),
    ],
    ids=["nothing", "tokens", "seconds", "details", "a counter of the provider"],
)
async def test_a_run_has_used_what_its_replies_have_used(used: RequestUsage) -> None:
    agent = Agent("a", Used(used))
    outcome = await agent.execute("go")
    again = await agent.execute("more", state=outcome.state)
    for each in (outcome, again):
        expected = RunUsage(requests=1)
        expected.incr(used)
        assert vars(each.usage) == vars(expected)


async def test_the_reply_of_a_model_stays_as_the_model_has_made_it() -> None:
    model = Used(RequestUsage())
    before = (model.reply.timestamp, model.reply.state, list(model.reply.parts))
    outcome = await Agent("a", model).execute("go")
    assert outcome.state.messages[-1] is not model.reply
    assert (model.reply.timestamp, model.reply.state, model.reply.parts) == before
