"""What the model is asked, as `before_model` sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.messages import InstructionPart, ModelMessage
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings

from understudy.tools import Tool

__all__ = ["ModelInput"]


@dataclass(frozen=True, slots=True)
class ModelInput:
    """One model call. What a hook returns instead is shown to the model and not kept (J15)."""

    messages: Sequence[ModelMessage]
    instructions: str
    tools: tuple[Tool[Any], ...]
    settings: ModelSettings | None

    def replace(self, **changes: Any) -> ModelInput:
        """The same with some fields changed."""
        return replace(self, **changes)

    def parameters(self) -> ModelRequestParameters:
        """As Pydantic AI's models take it."""
        parts = [InstructionPart(content=self.instructions)] if self.instructions else []
        return ModelRequestParameters(
            function_tools=[tool.definition for tool in self.tools], instruction_parts=parts
        )
