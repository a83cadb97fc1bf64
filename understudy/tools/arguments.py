"""The arguments of a tool: what a model is told of them, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pydantic_ai.tools import ToolDefinition


class Arguments(Protocol):
    """Of the calls of a tool, by its signature or by a JSON schema."""

    takes_context: bool
    """Whether the function takes a `ToolContext` before them."""
    returns: Any
    """The type of the value that the function returns; `Any` where that is not known."""
    definition: ToolDefinition
    """For the model."""

    def validate(self, arguments: str | Mapping[str, Any] | None) -> dict[str, Any]:
        """As `Tool.validate`."""

    def canonical(self, checked: Mapping[str, Any]) -> dict[str, Any]:
        """As `Tool.canonical`."""

    def bind(self, checked: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """As `Tool.bind`."""
