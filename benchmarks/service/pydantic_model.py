"""The fake model as a model of Pydantic AI, for our app and for the one on DBOS."""

from __future__ import annotations

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from benchmarks.service.model import FakeModel
from benchmarks.service.workload import FINAL

__all__ = ["PydanticModel"]


class PydanticModel(Model):
    """Asks the fake model, and tells its usage."""

    def __init__(self, model: FakeModel) -> None:
        super().__init__()
        self._fake = model

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
        before = sum(1 for message in messages if message.kind == "response")
        tool = await self._fake.reply(before)
        part = (
            TextPart(FINAL)
            if tool is None
            else ToolCallPart(tool, f'{{"order": "o{before}"}}', tool_call_id=f"c{before}")
        )
        usage = RequestUsage(input_tokens=1, output_tokens=1)
        return ModelResponse(parts=[part], usage=usage, model_name="fake")
