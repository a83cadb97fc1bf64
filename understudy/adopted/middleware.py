"""`PydanticAI`: the middleware of an adopted agent, which builds each request from its parts.

It makes the request (instructions, system prompts, tools, settings) anew in each step, and calls
the hooks of the agent's capabilities around the request. It owns no requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pydantic_ai.exceptions import ModelRetry, RetryModelRequest, SkipModelRequest
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
)
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters, infer_model
from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.settings import ModelSettings, merge_model_settings
from pydantic_ai.tools import RunContext

from understudy.adopted.refusals import check_surroundings
from understudy.adopted.source import Source
from understudy.adopted.steps import Step, Steps, as_retries, check_retries
from understudy.adopted.tools import AdoptedTool
from understudy.errors import UsageError
from understudy.middleware.base import Middleware, NextModelCall
from understudy.run.model_input import ModelInput
from understudy.run.run import Run
from understudy.tools import Tool

SYSTEM_PROMPTS = "system prompts"
"""The key under which a run keeps the results of the system prompt functions."""
MOST_ATTEMPTS = 10
"""The maximum number of times that a hook may ask for the same request again."""


class PydanticAI(Middleware):
    """The parts of an agent of Pydantic AI that look at each request.

    Args:
        source: the agent.
        steps: the steps of its runs.

    """

    stream_safe: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return "PydanticAI"

    def __init__(self, source: Source, steps: Steps) -> None:
        self._source, self._steps = source, steps

    async def on_run_start(self, run: Run) -> None:
        """Call `before_run` of the capabilities.

        Raises:
            UsageError: inside of a `with` of Pydantic AI that the run would not follow.

        """
        step = await self._steps.of(run)
        mode = step.manager.get_parallel_execution_mode()
        check_surroundings(self._source, mode, f"The run of the agent {run.definition.name!r}")
        await step.capability.before_run(step.ctx)

    async def wrap_model_call(
        self, run: Run, request: ModelInput, next: NextModelCall
    ) -> ModelResponse:
        """Ask the model as the agent's parts say, through the hooks of its capabilities."""
        step = await self._steps.of(run)
        check_retries(step, self._source)
        ctx, capability = step.ctx, step.capability
        if ctx.usage_limits is not None:
            ctx.usage_limits.check_before_request(ctx.usage)
        ctx.model = request.model or run.models[0]
        ctx.model_settings = self._settings(ctx, capability, request.settings)
        parts = await self._source.instructions(ctx, capability, step.manager.toolset)
        if request.instructions:
            parts = [*parts, InstructionPart(content=request.instructions)]
        messages = await self._with_system_prompts(run, as_retries(run.state, request.messages))
        ctx.messages = list(messages)
        asked = ModelRequestContext(
            model=ctx.model,
            messages=list(messages),
            model_settings=ctx.model_settings,
            model_request_parameters=await self._parameters(step, request, parts),
            streaming=run.streaming,
        )
        attempt = _Attempt(run, request, next, step, frozenset(self._source.output_tools()))
        retries = 0
        while True:
            try:
                return await capability.wrap_model_request(
                    ctx, request_context=asked, handler=attempt.handle
                )
            except SkipModelRequest as skipped:
                return skipped.response
            except ModelRetry as retry:
                retries += 1
                if retries > self._source.output_retries:
                    raise
                answer = () if attempt.reply is None else (attempt.reply,)
                feedback = ModelRequest(parts=[_feedback(retry)])
                asked = replace(asked, messages=[*asked.messages, *answer, feedback])

    def _settings(
        self, ctx: RunContext[Any], capability: Any, given: ModelSettings | None
    ) -> ModelSettings | None:
        settings: ModelSettings | None = None
        for layer in (self._source.agent.model_settings, capability.get_model_settings()):
            settings = merge_model_settings(settings, layer(ctx) if callable(layer) else layer)
            ctx.model_settings = settings
        return merge_model_settings(settings, given)

    async def _with_system_prompts(
        self, run: Run, messages: Sequence[ModelMessage]
    ) -> Sequence[ModelMessage]:
        """The conversation with the system prompts at its beginning, if it has none."""
        if not self._source.has_system_prompts or not messages:
            return messages
        first = messages[0]
        if not isinstance(first, ModelRequest):
            return messages
        if any(isinstance(part, SystemPromptPart) for part in first.parts):
            return messages

        async def made() -> list[str]:
            parts = await self._source.agent.system_prompt_parts(deps=run.deps, model=run.models[0])
            return [part.content for part in parts]

        texts = await run.once(SYSTEM_PROMPTS, made)
        prompts = [SystemPromptPart(text) for text in texts]
        return [replace(first, parts=[*prompts, *first.parts]), *messages[1:]]

    async def _parameters(
        self, step: Step, request: ModelInput, parts: list[InstructionPart]
    ) -> ModelRequestParameters:
        schema = self._source.schema
        listed = step.manager.tool_defs
        known = {tool.name: tool for tool in request.tools if isinstance(tool, AdoptedTool)}
        functions = [each for each in listed if each.kind != "output"]
        for each in functions:
            if each.name not in known:
                raise UsageError(
                    f"The tool {each.name!r} was not known when the agent was made: "
                    "from_pydantic_ai(agent, listed_with=deps) lists the tools with such deps"
                )
        own = [tool.definition for tool in request.tools if not isinstance(tool, AdoptedTool)]
        return ModelRequestParameters(
            function_tools=[*functions, *own],
            native_tools=[*await self._native_tools(step), *request.native_tools],
            output_mode=schema.mode,
            output_tools=[each for each in listed if each.kind == "output"],
            output_object=schema.object_def,
            prompted_output_template=self._source.prompted_template,
            allow_text_output=schema.allows_text,
            instruction_parts=parts or None,
        )

    async def _native_tools(self, step: Step) -> list[AbstractNativeTool]:
        found: dict[str, AbstractNativeTool] = {}
        for given in step.capability.get_native_tools():
            tool: Any = given
            if not isinstance(given, AbstractNativeTool):
                tool = given(step.ctx)
                if hasattr(tool, "__await__"):
                    tool = await tool
            if tool is not None and found.setdefault(tool.unique_id, tool) != tool:
                raise UsageError(
                    f"Two native tools have the id {tool.unique_id!r}, and differ: give each an id "
                    "of its own"
                )
        return list(found.values())


class PydanticAIWithHooks(PydanticAI):
    """The `PydanticAI` of an agent with capabilities, which may rewrite a reply."""

    stream_safe: ClassVar[bool] = False


class _Attempt:
    """The request of one step, from the hooks before it to the hooks after it."""

    def __init__(
        self,
        run: Run,
        request: ModelInput,
        next: NextModelCall,
        step: Step,
        outputs: frozenset[str],
    ) -> None:
        self._run, self._request, self._next, self._step = run, request, next, step
        self._outputs = outputs
        self.reply: ModelResponse | None = None
        """The last reply of the model."""

    async def handle(self, asked: ModelRequestContext) -> ModelResponse:
        """Ask the model, and return its reply as the hooks leave it."""
        ctx, capability = self._step.ctx, self._step.capability
        before = list(ctx.messages)
        asked = await capability.before_model_request(ctx, asked)
        ends = asked.messages[-1] if asked.messages else None
        if not isinstance(ends, ModelRequest) and (ends is None or ends is not before[-1]):
            raise UsageError(
                "The history that a capability has processed must end with a ModelRequest"
            )
        if not _same(before, ctx.messages):
            await self._run.replace_history(ctx.messages)
        number = 1
        while True:
            try:
                return await self._once(replace(asked, attempt=number))
            except RetryModelRequest as again:
                number += 1
                if number > MOST_ATTEMPTS:
                    raise
                if again.model is not None:
                    model = again.model
                    asked = replace(
                        asked, model=model if isinstance(model, Model) else infer_model(model)
                    )

    async def _once(self, asked: ModelRequestContext) -> ModelResponse:
        ctx, capability = self._step.ctx, self._step.capability
        asked = await capability.prepare_model_request(ctx, asked)
        try:
            reply = await self._next(self._sent(asked))
        except Exception as error:
            reply = await capability.on_model_request_error(ctx, request_context=asked, error=error)
        self.reply = reply
        self._check_usage(reply)
        return await capability.after_model_request(ctx, request_context=asked, response=reply)

    def _check_usage(self, reply: ModelResponse) -> None:
        """Raise if the run has used more than its limits allow, or is about to make too many
        calls.
        """
        limits, usage = self._step.ctx.usage_limits, replace(self._step.ctx.usage)
        assert limits is not None, "a step has limits"
        usage.incr(reply.usage)
        limits.check_tokens(usage)
        limits.check_per_request_input_tokens(reply.usage.input_tokens)
        usage.tool_calls += sum(call.tool_name not in self._outputs for call in reply.tool_calls)
        limits.check_before_tool_call(usage)

    def _sent(self, asked: ModelRequestContext) -> ModelInput:
        request, parameters = self._request, asked.model_request_parameters
        own = self._run.models[0] if request.model is None else request.model
        parts = parameters.instruction_parts or []
        offered = {each.name: each for each in parameters.function_tools}
        messages: Sequence[ModelMessage] = asked.messages
        return request.replace(
            messages=request.messages if _same(request.messages, messages) else messages,
            instructions="\n\n".join(part.content for part in parts),
            tools=tuple(
                _as_offered(tool, offered) for tool in request.tools if tool.name in offered
            ),
            settings=asked.model_settings,
            native_tools=tuple(parameters.native_tools),
            model=request.model if asked.model is own else asked.model,
            made_parameters=parameters,
        )


def _feedback(retry: ModelRetry) -> RetryFeedbackPart:
    return RetryFeedbackPart(content=retry.message, retry=RetryInfo(cause="model_retry"))


def _as_offered(tool: Tool[Any], offered: dict[str, Any]) -> Tool[Any]:
    return tool.as_of(offered[tool.name]) if isinstance(tool, AdoptedTool) else tool


def _same(some: Sequence[ModelMessage], others: Sequence[ModelMessage]) -> bool:
    """Whether both are the same messages."""
    if len(some) != len(others):
        return False
    return all(one is other for one, other in zip(some, others, strict=True))
