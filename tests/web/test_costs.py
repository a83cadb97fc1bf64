"""The cost of an agent in the inspector: recorded, estimated and unknown are distinguished."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.usage import RequestUsage

from tests.support.web_site import site_of
from understudy import Agent, Runtime, ScriptedModel
from understudy.middleware import SubAgent


def reply(part: Any, model: str) -> ModelResponse:
    return ModelResponse(
        parts=[part],
        usage=RequestUsage(input_tokens=1_000_000),
        model_name=model,
        provider_name="openai",
        finish_reason="stop",
    )


def front(model: str) -> Agent:
    clerk = Agent("clerk", ScriptedModel([reply(TextPart("done"), model)]))
    task = ToolCallPart("task", {"task_name": "clerk", "instructions": "go"})
    turns = [reply(task, "gpt-5-mini"), reply(TextPart("done"), "gpt-5-mini")]
    return Agent("front", ScriptedModel(turns), middleware=[SubAgent([clerk])])


@pytest.mark.parametrize(
    ("pricing", "model", "total", "clerk"),
    [
        (True, "gpt-5", "$1.75", "$1.25"),
        (True, "my-llama", "at least $0.5000", "unknown"),
        (None, "gpt-5", "≈ $1.75", "≈ $1.25"),
    ],
)
async def test_pages_tell_what_is_recorded_from_what_is_estimated_and_unknown(
    pricing: bool | None, model: str, total: str, clerk: str
) -> None:
    async with Runtime([front(model)], pricing=pricing) as runtime:
        outcome = await runtime.spawn("front", id="a1").run("go")
        async with site_of(runtime) as client:
            usage = (await client.get("/api/agents/a1/usage")).json()
            about = (await client.get("/api/agents/a1")).json()
            bars = (await client.get("/api/agents/a1/timeline")).json()["bars"]
            page = (await client.get("/agents/a1/usage")).text
            timeline = (await client.get("/agents/a1/timeline")).text
    assert usage["cost"]["text"] == total
    assert usage["by_agent"]["front / clerk"]["cost"]["text"] == clerk
    assert usage["by_agent"]["front / clerk"]["replies"] == 1
    assert usage["by_model"][model]["cost"]["text"] == clerk
    assert list(usage["by_run"]) == [outcome.run_id]
    assert usage["by_run"][outcome.run_id]["input_tokens"] == 3_000_000
    assert about["cost"] == (None if pricing is None else outcome.cost.to_dict())
    marked = "" if pricing else "≈ "
    shown = [bar["cost"] for bar in bars if bar["kind"] == "reply"]
    assert shown[0] == f"{marked}$0.2500"
    assert shown[1] == ("" if clerk == "unknown" else clerk)
    assert f"<strong>{total}</strong>" in page
    assert ("is estimated" in page) == (pricing is None)
    assert f"{marked}$0.2500" in timeline
