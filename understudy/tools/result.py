"""What a tool returns instead of a plain value, and what it raises on purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from pydantic_ai import exceptions as of_pydantic_ai
from pydantic_ai.messages import is_multi_modal_content

from understudy._base.type_variables import ValueT_co

_ABSENT: Any = object()


class Retry(Exception):
    """Raise it in a tool on purpose: the model gets the message as an error, and may try again.

    Pydantic AI's `ModelRetry` does the same.
    """


class ToolFailed(Exception):
    """Raise it in a tool that failed: the model gets only the message, without the error's type.

    Pydantic AI's `ToolFailed` does the same.
    """


RETRIES: tuple[type[Exception], ...] = (Retry, of_pydantic_ai.ModelRetry)
"""The exceptions by which a tool asks the model to try again."""
FAILURES: tuple[type[Exception], ...] = (ToolFailed, of_pydantic_ai.ToolFailed)
"""The exceptions by which a tool says that it failed."""


class RemoteToolError(Exception):
    """The service that runs a tool says that the call failed, such as MCP's `isError`.

    The model gets only the message, and may call again. If a server reports failures of calls that
    took effect, name this error in the tool's `unknown_after`. An error that another library makes
    of an error of its tool is a `RemoteToolError` too; the original error is its cause.
    """


class ResultLost(Exception):
    """A tool of this library ran, and its result cannot be kept: the text says why.

    The model gets this text, and an equal call in the run does not run.
    """


class OutcomeUnknown(Exception):
    """Raise it in a tool that cannot know whether it took effect, for instance without an answer.

    The call is in doubt, like a call that was cut off, and is not repeated without a person. An
    idempotent tool is first repeated under its call key. For a read-only tool it is an ordinary
    error.
    """


class InvalidArguments(Exception):
    """The error of arguments that do not fit the tool's parameters. The model or an edit gave them.

    Args:
        message: what to correct, for the model.
        places: the errors, each as the path in the arguments and a sentence.

    """

    def __init__(
        self, message: str, places: tuple[tuple[tuple[int | str, ...], str], ...] = ()
    ) -> None:
        super().__init__(message)
        self.places: tuple[tuple[tuple[int | str, ...], str], ...] = places


@dataclass(frozen=True, slots=True)
class ToolResult(Generic[ValueT_co]):
    """Return it from a tool, instead of a plain value, to set more than the content.

    A middleware can put a `ToolResult` around any result of a tool. If that is a `ToolResult` too,
    both count: deltas are merged, the inner first. The value is the outer one's, if it has one.

    A result is kept as JSON. NaN, an infinity, an integer of more than 4,300 digits, more than 100
    levels and invalid Unicode are refused: the model gets an error which says that the tool ran.
    The value of an until tool must be JSON too. For any other tool, a value that is not JSON is
    missing in another process.

    Args:
        content: the content for the model.
        value: the value for the program, as `outcome.tool_result.value`; by default the
            content.
        state: a delta for the agent's values.
        escalate: end the nearest loop around this agent when the agent's run has ended.
        skip_summarization: end this agent's run with this turn, without another model call.

    """

    content: Any = None
    """The content for the model."""
    value: ValueT_co = _ABSENT
    """The value for the program, as `outcome.tool_result.value`. By default the content."""
    state: Mapping[str, Any] | None = None
    """A delta for the agent's values: mappings merge deeply, other values are replaced."""
    escalate: bool = False
    """Whether to end the nearest loop around this agent, as soon as the agent's run has ended."""
    skip_summarization: bool = False
    """Whether to end this agent's run with this turn, without another model call."""

    @property
    def has_value(self) -> bool:
        """Whether `value` was given."""
        return self.value is not _ABSENT


def content_holds_files(content: Any) -> bool:
    """Whether the content for the model has files, which it gets as they are."""
    items = content if isinstance(content, list) else (content,)
    return any(is_multi_modal_content(item) for item in items)


def model_content(value: Any, jsonable: Any) -> Any:
    """The content for the model of a return value: text and files as they are, else `jsonable`."""
    if isinstance(value, (str, int, float, dict)) or value is None:
        return jsonable
    if is_multi_modal_content(value):
        return value
    if isinstance(value, Sequence) and any(is_multi_modal_content(item) for item in value):
        rest = jsonable if isinstance(jsonable, list) and len(jsonable) == len(value) else value
        return [a if is_multi_modal_content(a) else b for a, b in zip(value, rest, strict=True)]
    return jsonable
