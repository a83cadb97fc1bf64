"""The output of an adopted agent: asked for and read by Pydantic AI, kept as JSON here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Union

from pydantic import TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.tools import DeferredToolRequests
from pydantic_core import PydanticSerializationError, to_jsonable_python

from understudy._base.json_values import as_json
from understudy.adopted.source import Source
from understudy.adopted.steps import TOLD, Steps, answers_refused
from understudy.adopted.tools import OutputTool
from understudy.models.output import InvalidOutput, Output
from understudy.run.hooks import Hook, HookFailed
from understudy.run.run import Run, inside_run


class AdoptedOutput(Output):
    """The output of an agent of Pydantic AI.

    Args:
        source: the agent.
        steps: of its runs.
        tools: by which the answer is given.
        key: of `state.values`, where the value is put; None for nowhere.

    """

    def __init__(
        self, source: Source, steps: Steps, tools: tuple[OutputTool, ...], key: str | None
    ) -> None:
        super().__init__(key=key, type=None, agent=str(source.agent.name))
        self._source, self._steps = source, steps
        self.tools = tools
        types = [each for each in source.output_types if each is not DeferredToolRequests]
        self._is_text = types == [str] and not source.validators
        self._values = _adapter_of(types)
        self.reader = None if self._is_text and _has_no_hooks(source) else self._read_in

    @property
    def typed(self) -> bool:
        """Whether the text is read as another type than `str`."""
        return not self._is_text

    def read(self, text: str) -> Any:
        """The text: what is to be read in its run is read by `reader`."""
        return text

    async def _read_in(self, run: Run, text: str) -> Any:
        source = self._source
        hook = Hook(middleware="PydanticAI", name="output", function=self._read_in, is_async=True)
        try:
            step = await self._steps.of(run)
            ctx = self._steps.output_context(run, step)
            value = await source.read(text, ctx, step.capability)
            return self.dump(value)
        except InvalidOutput as refused:
            if answers_refused(run.state) < source.output_retries:
                raise
            error = UnexpectedModelBehavior(
                f"Exceeded maximum output retries ({source.output_retries}): {refused}"
            )
            raise HookFailed(hook.failure(error)) from refused
        except Exception as error:  # of an output function, or of a validator
            raise HookFailed(hook.failure(error)) from error

    def dump(self, value: Any) -> Any:
        """A value of the output as JSON.

        Raises:
            ValueError: if it is none.

        """
        try:
            return as_json(to_jsonable_python(value))
        except PydanticSerializationError as error:
            raise ValueError(
                f"the output of type {type(value).__name__!r} cannot be kept as JSON: {error}"
            ) from error

    def load(self, data: Any) -> Any:
        """The value from its `dump`."""
        return data if self._values is None else self._values.validate_python(data)

    def is_held_back(self, calls: Iterable[Any]) -> bool:
        """Whether a call beside the answer asks for a retry: the model is told of that first."""
        run = inside_run.get()
        if run is None:
            return False
        names = {tool.name for tool in self.tools}
        own = run.definition.tools
        return any(
            call.result is not None
            and call.result.part.outcome == "failed"
            and call.part.tool_name not in names
            and call.part.tool_name in own
            and TOLD + call.part.tool_call_id not in run.current.once
            for call in calls
        )


def _adapter_of(types: list[Any]) -> TypeAdapter[Any] | None:
    """What reads a stored value again; None where no type says what it is."""
    try:
        return TypeAdapter(Union[tuple(types)])  # noqa: UP007  # the types are known only now
    except (PydanticSchemaGenerationError, PydanticUserError, TypeError):
        return None


def _has_no_hooks(source: Source) -> bool:
    """Whether nobody looks at a final text."""
    leaves: list[Any] = []
    source.capability.apply(leaves.append)
    return not leaves
