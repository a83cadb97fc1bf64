"""The steps of a run of an adopted agent: for each one a `RunContext`, and a `ToolManager` with it.

Both are made from the records, so a step that is begun again, after a crash or on another host,
gets the same.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryInfo,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.tools import RunContext
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, WrapperToolset
from pydantic_ai.usage import RunUsage, UsageLimits
from pydantic_core import to_jsonable_python

from understudy.adopted.source import Source
from understudy.events import ToolEmitted
from understudy.run.run import Run, inside_run
from understudy.state.agent_state import AgentState
from understudy.state.run_state import RunState
from understudy.tools.shared_resources import SharedResources

NOT_RETRIED = "told/"
"""The prefix of a run's key for a call that failed and is not retried; the call id follows."""


class StepContext(RunContext[Any]):
    """The context of a step, whose events go to the subscribers of the run here.

    Nothing else listens to them: an agent with functions for events of its stream is refused.
    """

    async def emit(self, event: Any, /) -> Any:
        """Emit an event of a tool, as data of the event `ToolEmitted`.

        Raises:
            UserError: outside of a call of a tool.

        """
        run, name, call_id = inside_run.get(), self.tool_name, self.tool_call_id
        turn = None if run is None else run.current.turn
        calls = () if turn is None else turn.calls.values()
        call = next((each for each in calls if each.part.tool_call_id == call_id), None)
        if run is None or name is None or call_id is None or call is None:
            return await super().emit(event)
        if event.tool_call_id is None:
            event.tool_call_id, event.tool_name = call_id, name
        run.emit(
            ToolEmitted(
                agent_path=run.agent_path,
                call_key=call.key,
                tool_call_id=call_id,
                tool_name=name,
                data=to_jsonable_python(event, fallback=str),
            )
        )
        return event


@dataclass
class Step:
    """The context of one request to the model, and of the calls of its reply."""

    number: int
    ctx: RunContext[Any]
    manager: ToolManager[Any]
    capability: AbstractCapability[Any]
    has_reply: bool
    """Whether its context has the reply of the model."""


@dataclass
class _Attempt:
    """The steps of one attempt at a run."""

    capability: AbstractCapability[Any] | None = None
    toolset: AbstractToolset[Any] | None = None
    step: Step | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Steps:
    """The steps of all runs of one adopted agent.

    Args:
        source: the agent.

    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._attempts: weakref.WeakKeyDictionary[Run, _Attempt] = weakref.WeakKeyDictionary()

    async def of(self, run: Run) -> Step:
        """The current step of the run; made if this attempt has not made it yet."""
        attempt = self._attempts.get(run)
        if attempt is None:
            attempt = self._attempts[run] = _Attempt()
        number = _number_of(run)
        # Race: after a crash several calls of one reply come here at the same time
        # (test_calls_of_one_reply_share_a_step).
        async with attempt.lock:
            step = attempt.step
            if step is None or step.number != number:
                step = attempt.step = await self._made(run, attempt, number)
            elif run.current.turn is not None and not step.has_reply:
                self._add_reply(run, step)
            return step

    def _add_reply(self, run: Run, step: Step) -> None:
        """Give the functions of the step the model's reply and its usage.

        A step that is begun again after the reply knows both from the beginning.
        """
        step.has_reply = True
        messages = as_retries(run.state, run.state.messages)
        for ctx in (step.ctx, step.manager.ctx):
            assert ctx is not None, "it was prepared for this step"
            ctx.messages = messages
            ctx.usage = _usage_of(run.state, messages, self.source)

    async def _made(self, run: Run, attempt: _Attempt, number: int) -> Step:
        source = self.source
        ctx = context_of(source, run.state, deps=run.deps, model=run.models[0], step=number + 1)
        if attempt.toolset is None:
            attempt.capability = await source.capability.for_run(ctx)
            with_capabilities(ctx, attempt.capability)
            toolset = await source.toolset(attempt.capability).for_run(ctx)
            await _enter(run, toolset)
            attempt.toolset = toolset
        assert attempt.capability is not None, "it was made with the toolset"
        with_capabilities(ctx, attempt.capability)
        manager = await prepared_manager(source, ctx, attempt.capability, attempt.toolset)
        assert manager.ctx is not None, "it was prepared for this step"
        return Step(
            number, ctx, manager, attempt.capability, has_reply=run.current.turn is not None
        )

    def output_context(self, step: Step) -> RunContext[Any]:
        """The context for output functions and validators of a final text."""
        return replace(step.ctx, max_retries=self.source.output_retries)


async def _enter(run: Run, toolset: AbstractToolset[Any]) -> None:
    """Open the toolset for this attempt, if it, or a toolset in it, opens or closes something."""
    if not any(_opens_something(each) for each in _inside(toolset)):
        return
    if run.opened is None:
        run.opened = SharedResources()
    await run.opened.get(_Entered(toolset))


def _inside(toolset: AbstractToolset[Any]) -> Iterator[AbstractToolset[Any]]:
    """The toolset, and all toolsets in it."""
    yield toolset
    held = toolset.toolsets if isinstance(toolset, CombinedToolset) else ()
    for each in (toolset.wrapped,) if isinstance(toolset, WrapperToolset) else held:
        yield from _inside(each)


def _opens_something(toolset: AbstractToolset[Any]) -> bool:
    """Whether the toolset itself does something when it is entered or left."""
    kind = type(toolset)
    return not any(
        kind.__aenter__ is base.__aenter__ and kind.__aexit__ is base.__aexit__
        for base in (AbstractToolset, CombinedToolset, WrapperToolset)
    )


class _Entered:
    """A toolset as a `ToolSource`: the task that has entered it leaves it."""

    def __init__(self, toolset: AbstractToolset[Any]) -> None:
        self._toolset = toolset

    def open(self) -> AbstractAsyncContextManager[AbstractToolset[Any]]:
        return self._toolset


def _number_of(run: Run) -> int:
    turn = run.current.turn
    return run.current.turns if turn is None else turn.index


def context_of(
    source: Source,
    state: AgentState,
    *,
    deps: object,
    model: Model,
    step: int,
    agent_id: str | None = None,
) -> RunContext[Any]:
    """The context of a step, made from the state.

    Args:
        source: the agent.
        state: the state of the agent, with an open run.
        deps: the deps of the run.
        model: the model that is asked.
        step: the number of the step, from 1.
        agent_id: the id of the agent here; None = the id in the run.

    """
    run = state.run
    assert run is not None, "a run is open"
    messages = as_retries(state, state.messages)
    ctx: RunContext[Any] = StepContext(
        deps=deps,
        model=model,
        usage=_usage_of(state, messages, source),
        usage_limits=source.usage_limits or UsageLimits(),
        agent=source.agent,
        prompt=_prompt(messages[run.first_message :]),
        messages=messages,
        retries=retries_of(state),
        retry=answers_refused(state, source),
        max_retries=source.tool_retries,
        run_step=step,
        run_id=run.run_id,
        conversation_id=agent_id or run.agent_id,
    )
    ctx.metadata = source.metadata(ctx) if callable(source.metadata) else source.metadata
    given: Any = source.agent.validation_context
    ctx.validation_context = given(ctx) if callable(given) else given
    return ctx


def with_capabilities(ctx: RunContext[Any], capability: AbstractCapability[Any]) -> None:
    """Give the context its capabilities."""
    leaves: list[AbstractCapability[Any]] = []
    capability.apply(leaves.append)
    ctx.root_capability = capability
    ctx.capabilities = {
        each.id or f"<{type(each).__name__}:{index}>": each for index, each in enumerate(leaves)
    }


async def prepared_manager(
    source: Source,
    ctx: RunContext[Any],
    capability: AbstractCapability[Any],
    toolset: AbstractToolset[Any],
) -> ToolManager[Any]:
    """The tools for this step.

    Time limits of tools are handled here: a tool that did not answer in time may have taken effect,
    and is no retry.
    """
    manager: ToolManager[Any] = ToolManager(
        toolset, root_capability=capability, default_max_retries=source.tool_retries
    )
    manager = await manager.for_run_step(ctx)
    if manager.tools is not None:
        for name, tool in manager.tools.items():
            if tool.tool_def.timeout is not None:
                manager.tools[name] = replace(tool, tool_def=replace(tool.tool_def, timeout=None))
    return manager


def _usage_of(state: AgentState, messages: Sequence[ModelMessage], source: Source) -> RunUsage:
    """The usage of the run so far. It is a separate object, to which functions may add."""
    assert state.run is not None, "a run is open"
    calls = _calls_of(messages[state.run.first_message :], source)
    return replace(state.usage, tool_calls=calls)


def _calls_of(messages: Sequence[ModelMessage], source: Source) -> int:
    """The number of tool calls that have run."""
    outputs = source.output_tools()
    return sum(
        isinstance(part, ToolReturnPart)
        and part.outcome == "success"
        and part.tool_name not in outputs
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
    )


def _prompt(messages: Sequence[ModelMessage]) -> str | Sequence[UserContent] | None:
    """The user's prompt in this run."""
    for message in messages:
        for part in message.parts if isinstance(message, ModelRequest) else ():
            if isinstance(part, UserPromptPart):
                return part.content
    return None


# --------------------------------------------------------------------------------- retries


def retries_of(state: AgentState) -> dict[str, int]:
    """The number of steps in a row in which a tool has asked for a retry in this run, by tool
    name.
    """
    run = state.run
    assert run is not None, "a run is open"
    retries: dict[str, int] = {}
    for message in list(state.messages)[run.first_message :]:
        if not isinstance(message, ModelRequest):
            continue
        failed: set[str] = set()
        succeeded: set[str] = set()
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                (failed if _is_retry(part, run) else succeeded).add(part.tool_name)
        retries = {
            **{name: count for name, count in retries.items() if name not in succeeded},
            **{name: retries.get(name, 0) + 1 for name in failed},
        }
    return retries


def _is_retry(part: ToolReturnPart, run: RunState) -> bool:
    """Whether a model is to make the call again in a corrected form."""
    return part.outcome in _RETRIED and NOT_RETRIED + part.tool_call_id not in run.once


_RETRIED = ("failed", "retried")


def as_retries(state: AgentState, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The messages, with retry prompts for the calls of this run that are to be made again.

    Pydantic AI words them differently than failed calls.
    """
    run = state.run
    assert run is not None, "a run is open"
    retried = {
        part.tool_call_id
        for message in list(state.messages)[run.first_message :]
        for part in (message.parts if isinstance(message, ModelRequest) else ())
        if isinstance(part, ToolReturnPart) and _is_retry(part, run)
    }
    if not retried:
        return list(messages)
    return [_with_retries(message, retried) for message in messages]


def _with_retries(message: ModelMessage, retried: set[str]) -> ModelMessage:
    if not isinstance(message, ModelRequest):
        return message
    parts = [
        replace(part, outcome="retried", retry=RetryInfo(cause="model_retry"))
        if isinstance(part, ToolReturnPart) and part.tool_call_id in retried
        else part
        for part in message.parts
    ]
    if all(one is other for one, other in zip(parts, message.parts, strict=True)):
        return message
    return replace(message, parts=parts)


def answers_refused(state: AgentState, source: Source) -> int:
    """The number of refused answers in this run: replies without a call, or with a refused call."""
    run = state.run
    assert run is not None, "a run is open"
    messages = list(state.messages)[run.first_message :]
    replies = [each for each in messages if isinstance(each, ModelResponse)]
    earlier = replies[: -1 if run.turn is not None else None]
    texts = sum(not each.tool_calls and each.state == "complete" for each in earlier)
    names = source.output_tools().keys()
    refused = (
        any(
            isinstance(part, ToolReturnPart) and part.tool_name in names and _is_retry(part, run)
            for part in message.parts
        )
        for message in messages
        if isinstance(message, ModelRequest)
    )
    return texts + sum(refused)


def exceeded(source: Source, why: str) -> UnexpectedModelBehavior:
    """The error of a run whose answers were refused too often."""
    limit = source.output_retries
    return UnexpectedModelBehavior(f"Exceeded maximum output retries ({limit}): {why}")


def check_retries(step: Step, source: Source) -> None:
    """Raise if a tool, or an answer, was refused more often than is allowed.

    Raises:
        UnexpectedModelBehavior: as in an agent of Pydantic AI.

    """
    tools = step.manager.tools or {}
    for name, count in (step.manager.ctx or step.ctx).retries.items():
        tool = tools.get(name)
        limit = source.tool_retries if tool is None else tool.max_retries
        if count > limit:
            raise UnexpectedModelBehavior(
                f"Tool {name!r} exceeded max retries count of {limit}: raise `retries`"
            )
