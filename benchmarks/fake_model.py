"""The fake model that our adapter, the bare loop and Pydantic AI's own agent are all asked with."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from benchmarks.adapter import FINAL, next_call

__all__ = ["Fake", "respond"]


def respond(steps: int, messages: Sequence[object]) -> ModelResponse:
    """The next reply of a conversation of so many steps."""
    number = next_call(steps, len(messages))
    part = (
        TextPart(FINAL)
        if number is None
        else ToolCallPart("add", f'{{"a": {number}, "b": 1}}', tool_call_id=f"call_{number}")
    )
    usage = RequestUsage(input_tokens=1, output_tokens=1)
    return ModelResponse(parts=[part], usage=usage, model_name="fake")


class Fake(Model):
    """Answers at once. It tells its usage, so nobody needs to estimate tokens."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    @property
    def model_name(self) -> str:
        return "fake"

    @property
    def system(self) -> str:
        return "fake"

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        return respond(self.steps, messages)
