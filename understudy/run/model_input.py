"""`ModelInput`: one request to the model, as `before_model` sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.messages import InstructionPart, ModelMessage
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.settings import ModelSettings

from understudy._base.quickly_made import quickly_made
from understudy.tools import Tool


@quickly_made
@dataclass(frozen=True, slots=True)
class ModelInput:
    """One request to the model. The input that a hook returns is sent, but not stored."""

    messages: Sequence[ModelMessage]
    instructions: str
    tools: tuple[Tool, ...]
    settings: ModelSettings | None
    native_tools: tuple[AbstractNativeTool, ...] = ()
    """The tools that the provider runs."""
    model: Model | None = None
    """The model that is asked; None = the agent's own."""
    ask_key: str | None = None
    """The key of the `run.ask_model` that makes the request; None for a request of the
    conversation."""
    made_parameters: ModelRequestParameters | None = None
    """The parameters as they are sent; None if `parameters` makes them from the other fields."""

    def replace(self, **changes: Any) -> ModelInput:
        """Return a copy with some fields changed."""
        return replace(self, **changes)

    def parameters(self) -> ModelRequestParameters:
        """Return the tools and instructions in the form that Pydantic AI's models take."""
        parts = [InstructionPart(content=self.instructions)] if self.instructions else []
        return ModelRequestParameters(
            function_tools=[tool.definition for tool in self.tools],
            native_tools=list(self.native_tools),
            instruction_parts=parts,
        )
