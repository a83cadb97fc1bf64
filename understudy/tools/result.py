"""What a tool brings: a value, more than a value, or an exception on purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic_ai.messages import is_multi_modal_content

__all__ = ["InvalidArguments", "Retry", "ToolFailed", "ToolResult", "model_content"]

T = TypeVar("T")
_ABSENT: Any = object()


class Retry(Exception):
    """Raised by a tool on purpose: the model gets the text as an error and may try again (T2)."""


class ToolFailed(Exception):
    """Raised by a tool that failed and has nothing to add: the model gets the text as it is."""


class InvalidArguments(Exception):
    """What the model (or an edit) gave does not fit the tool's parameters; the text says why."""


@dataclass(frozen=True, slots=True)
class ToolResult(Generic[T]):
    """What a tool returns when it has more to say than one value (T4)."""

    content: Any = None
    """For the model."""
    value: T = _ABSENT
    """For the program: `outcome.tool_result.value`. By default the content."""
    state: Mapping[str, Any] | None = None
    """A delta for the agent's values: mappings merge deeply, all else is replaced."""
    escalate: bool = False
    """End the nearest loop around this agent, after this agent's part in it (W2)."""
    skip_summarization: bool = False
    """End this agent's run with this turn: its model is not asked again (W3)."""

    @property
    def has_value(self) -> bool:
        """Whether a value of its own was given beside the content."""
        return self.value is not _ABSENT


def model_content(value: Any, jsonable: Any) -> Any:
    """What the model is shown of a return value: text and files as they are, else JSON."""
    if isinstance(value, (str, int, float, dict)) or value is None:
        return jsonable
    if is_multi_modal_content(value):
        return value
    if isinstance(value, Sequence) and any(is_multi_modal_content(item) for item in value):
        return list(value)
    return jsonable
