"""The features that an agent needs from its model: a form of the final answer, tools of the
provider.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic_ai.exceptions import AgentRunError, UserError
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.settings import ModelSettings

from understudy.errors import UsageError

OutputMode = Literal["tool", "native", "prompted"]
"""How the model is asked for a value of the output type, as in Pydantic AI."""

_FLAGS = {
    "native": ("supports_json_schema_output", "cannot be held to a JSON schema"),
    "tool": ("supports_tools", "calls no tools"),
}
"""By mode, the key of a model's profile that says whether it is supported, and the error if not."""


@dataclass(frozen=True, slots=True)
class Requirements:
    """What each model of an agent must support.

    Args:
        output_mode: how the final answer is asked for; None = by the instructions alone.
        native_tools: tools that the provider runs.

    """

    output_mode: OutputMode | None = None
    native_tools: tuple[AbstractNativeTool, ...] = ()

    @property
    def fingerprints(self) -> list[Any]:
        """The part of a definition's fingerprint for the requirements; empty if nothing is
        required.
        """
        mode = [] if self.output_mode is None else [["output_mode", self.output_mode]]
        natives = [["native_tools", *(tool.unique_id for tool in self.native_tools)]]
        return [*mode, *(natives if self.native_tools else ())]

    def check(
        self,
        models: Iterable[Model],
        *,
        agent: str,
        parameters: ModelRequestParameters,
        settings: ModelSettings | None,
    ) -> None:
        """Raise a `UsageError` for a model that lacks a feature, as far as that is known.

        Args:
            models: the models that may be asked.
            agent: the agent's name, for errors.
            parameters: the parameters of a request with all required features and the agent's
                tools.
            settings: the settings of the agent.

        """
        for model in models:
            for asked in _asked(model):
                where = f"Agent {agent!r}: model {asked.model_name!r}"
                self._check(asked, where, has_tools=bool(parameters.function_tools))
                try:
                    asked.prepare_request(settings, parameters)
                except (UserError, AgentRunError) as error:  # only this class of models knows it
                    raise UsageError(f"{where} cannot be asked so: {error}") from error

    def _check(self, model: Model, where: str, *, has_tools: bool) -> None:
        profile: Mapping[str, Any] = model.profile
        if self.output_mode in _FLAGS:
            flag, what = _FLAGS[self.output_mode]
            if not profile.get(flag, False):
                others = " or ".join(repr(m) for m in get_args(OutputMode) if m != self.output_mode)
                raise UsageError(
                    f"{where} {what}, so output_mode={self.output_mode!r} does not work with it: "
                    f"use {others}, or another model"
                )
        supported: Any = tuple(profile.get("supported_native_tools", ()))
        for tool in self.native_tools:
            if tool.optional:
                continue  # Pydantic AI leaves the tool out if it is not supported
            if not isinstance(tool, supported):
                known = ", ".join(sorted(kind.kind for kind in supported)) or "none"
                raise UsageError(
                    f"{where} has no native tool {type(tool).__name__}; it has: {known}"
                )
            ignored = model.unsupported_native_tool_settings(tool)
            if ignored:
                raise UsageError(
                    f"{where} would ignore {', '.join(sorted(ignored))} of {type(tool).__name__}: "
                    "leave it out, or use another model"
                )
        if has_tools and not profile.get("google_supports_tool_combination", True):
            what = "native_tools" if self.native_tools else f"output_mode={self.output_mode!r}"
            if self.native_tools or self.output_mode == "native":
                raise UsageError(
                    f"{where} takes {what} or tools, not both: use a newer model, or give them to "
                    "an agent of their own"
                )


def check_can_be_forced(models: Iterable[Model], *, agent: str) -> None:
    """Raise a `UsageError` for a model that cannot be made to call a tool, by its profile."""
    for model in models:
        for asked in _asked(model):
            if not asked.profile.get("supports_forced_tool_choice", True):
                raise UsageError(
                    f"Agent {agent!r}: model {asked.model_name!r} cannot be made to call a tool: "
                    "leave out `force`, and say in the instructions which tool it is to call"
                )


def _asked(model: Model) -> Iterator[Model]:
    """The models that are asked if this model is: itself, or the models to which it passes requests
    on.
    """
    try:
        model.profile  # noqa: B018  # a FallbackModel has none
    except NotImplementedError:
        for inner in getattr(model, "models", ()):
            yield from _asked(inner)
    else:
        yield model


def checked_native_tools(given: object, *, agent: str) -> tuple[AbstractNativeTool, ...]:
    """The native tools of an agent.

    Raises:
        UsageError: for anything but a list of Pydantic AI's native tools, or for two equal tools.

    """
    if isinstance(given, (str, AbstractNativeTool)) or not isinstance(given, Sequence):
        raise UsageError(f"Agent {agent!r}: `native_tools` must be a list, got {given!r}")
    seen: set[str] = set()
    for tool in given:
        if not isinstance(tool, AbstractNativeTool):
            raise UsageError(
                f"Agent {agent!r}: `native_tools` holds objects of pydantic_ai.native_tools, such "
                f"as WebSearchTool(), got {tool!r}"
            )
        if tool.unique_id in seen:
            raise UsageError(f"Agent {agent!r}: `native_tools` has {tool.unique_id!r} twice")
        seen.add(tool.unique_id)
    return tuple(given)


def native_names(tools: Iterable[AbstractNativeTool]) -> frozenset[str]:
    """The names that calls of these tools have in a reply."""
    return frozenset(name for tool in tools for name in (tool.kind, tool.unique_id))
