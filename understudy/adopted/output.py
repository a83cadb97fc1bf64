"""The output of an adopted agent: asked for and read by Pydantic AI, kept as JSON here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from understudy.adopted.source import Source
from understudy.adopted.steps import NOT_RETRIED, Steps, answers_refused, exceeded
from understudy.adopted.tools import OutputTool
from understudy.models.output import InvalidOutput, Output
from understudy.run.hooks import Hook, HookFailed
from understudy.run.run import Run, inside_run


class AdoptedOutput(Output):
    """The output of an agent of Pydantic AI.

    Args:
        source: the agent.
        steps: the steps of its runs.
        tools: the tools by which the answer is given.
        key: the key in `state.values` for the value; None = it is not put there.

    """

    def __init__(
        self, source: Source, steps: Steps, tools: tuple[OutputTool, ...], key: str | None
    ) -> None:
        super().__init__(key=key, type=None, agent=str(source.agent.name))
        self._source, self._steps = source, steps
        self.tools = tools
        self._is_text = source.gives_plain_text
        self.allows_nothing: bool = source.schema.allows_none
        self.reader: Callable[[Any, str], Awaitable[Any]] | None = (
            None if self._is_text else self._read_in
        )

    @property
    def typed(self) -> bool:
        """Whether the text is read as another type than `str`."""
        return not self._is_text

    def read(self, text: str) -> Any:
        """The text. `reader` reads a value in its run."""
        return text

    async def _read_in(self, run: Run, text: str) -> Any:
        source = self._source
        hook = Hook(middleware="PydanticAI", name="output", function=self._read_in, is_async=True)
        try:
            step = await self._steps.of(run)
            ctx = self._steps.output_context(step)
            value = await source.read(text, ctx, step.capability)
            return source.dump(value)
        except InvalidOutput as refused:
            if answers_refused(run.state, source) < source.output_retries:
                raise
            error = exceeded(source, str(refused))
            raise HookFailed(hook.failure(error)) from refused
        except Exception as error:  # an output function or a validator may raise anything
            raise HookFailed(hook.failure(error)) from error

    def load(self, data: Any) -> Any:
        """The value from its `Source.dump`."""
        return self._source.load(data)

    def is_held_back(self, calls: Iterable[Any]) -> bool:
        """Whether another call of the reply asks for a retry, which comes before the answer."""
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
            and NOT_RETRIED + call.part.tool_call_id not in run.current.once
            for call in calls
        )
