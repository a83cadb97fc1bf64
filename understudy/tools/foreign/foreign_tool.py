"""`ForeignTool`: a tool made from a tool of another library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.tools import ToolDefinition

from understudy._base.json_values import checked_text
from understudy.errors import UsageError
from understudy.tools.function_tool import Tool, ToolOptions
from understudy.tools.schema_arguments import (
    Check,
    GivenArguments,
    by_schema,
    checked_parameters,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A tool of another library, as it was read."""

    name: str
    description: str
    parameters: Any
    """The JSON schema of its arguments, which is checked when the tool is made."""
    call: Callable[..., Any]
    """The function `call(ctx, arguments)`, async or plain; the arguments are one dict."""
    check: Check | None = None
    """The library's own check of arguments; None if the schema is the only check."""
    strict: bool | None = None
    """Whether a provider is to hold the model to the schema; None if the tool does not say."""
    options: ToolOptions = field(default_factory=lambda: ToolOptions())
    """The tool's own options."""


class ForeignTool(Tool[Callable[..., Any]]):
    """A tool of another library.

    Args:
        foreign: the tool, as it was read.
        name: another name for the model; None for its own.
        description: another description; None for its own.
        options: the options of `Tool`. They override the tool's own options.

    Raises:
        UsageError: for an invalid schema, and as `Tool` does.

    """

    def __init__(
        self,
        foreign: Foreign,
        options: Mapping[str, Any],
        *,
        name: str | None = None,
        description: str | None = None,
    ) -> None:
        self._foreign = foreign
        unknown = sorted(options.keys() - ToolOptions.__annotations__.keys())
        if unknown:
            raise UsageError(
                f"Tool {foreign.name!r} has no option {unknown[0]!r}; options are "
                f"{', '.join(sorted(ToolOptions.__annotations__))}"
            )
        super().__init__(
            foreign.call,
            name=foreign.name if name is None else name,
            description=foreign.description if description is None else description,
            **{**foreign.options, **options},
        )

    def _read_arguments(self, description: str | None) -> GivenArguments:
        foreign, what = self._foreign, f"Tool {self.name!r}"
        parameters = checked_parameters(foreign.parameters, f"{what}: its schema")
        definition = ToolDefinition(
            name=self.name,
            description=checked_text(
                description, what=f"{what}: its description", may_be_empty=True
            ),
            parameters_json_schema=parameters,
            sequential=self.sequential,
            strict=foreign.strict,
        )
        return GivenArguments(
            definition, foreign.check or by_schema(parameters), takes_context=True
        )


def not_carried(what: str, part: str, instead: str) -> UsageError:
    """The error for a part of a tool that cannot be carried over."""
    return UsageError(f"{what} has {part}, which is not carried over: {instead}")
