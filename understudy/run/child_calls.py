"""Agents inside tool calls: how a call runs another agent, and is suspended together with it."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import ModelMessage

from understudy._base.error_texts import error_text
from understudy._base.json_values import checked_text, shown
from understudy.errors import AgentFailed, UsageError
from understudy.models.messages import UserInput, normalised, user_message
from understudy.outcomes import (
    Completed,
    Failed,
    Interrupted,
    Outcome,
    Paused,
    Stopped,
    Waiting,
)
from understudy.run.definition import ChildAgent, definition_of
from understudy.run.run import AttemptEnded, Run
from understudy.run.running_parts import RunningParts
from understudy.state.run_state import Call
from understudy.state.what_it_did import what_it_did
from understudy.tools import ToolFailed
from understudy.tools.base_agent import instead_of_agent

doing_once: contextvars.ContextVar[bool] = contextvars.ContextVar("doing_once", default=False)
"""Whether code runs inside of `ctx.once`, where it cannot be suspended."""


class CallSuspended(BaseException):
    """The call is suspended without a result: it waits at a point, or an agent that it runs waits.

    It is not an `Exception`: a tool that catches every exception must not take it for a failure
    (`test_a_tool_that_catches_everything_does_not_take_waiting_for_a_failure`).
    """


def make_run_agent(
    run: Run, call: Call
) -> Callable[..., Coroutine[Any, Any, Completed | Failed | Stopped]]:
    """The function behind `ctx.run_agent` of this call.

    The n-th agent of a call has the same key each time that the call runs. So a call that runs
    again after a crash or an answer continues the child that it began, and starts no second one.
    """
    count = 0

    async def run_agent(
        agent: Any,
        input: UserInput,
        max_depth: int,
        instructions: str,
        initial_messages: Sequence[ModelMessage],
    ) -> Completed | Failed | Stopped:
        nonlocal count
        if doing_once.get():
            raise UsageError("an agent cannot run inside of ctx.once: its run is kept by itself")
        child = _child(run, agent)
        if instructions or initial_messages:
            child = _with_given(child, instructions, initial_messages)
        key = call.key if count == 0 else f"{call.key}+{count}"
        count += 1
        if len(run.agent_path) >= max_depth:
            raise UsageError(f"agents nest at most {max_depth} deep")
        message = user_message(input, at=run.clock.now())
        parts = parts_of(run, call)
        if parts.suspended:
            raise CallSuspended
        try:
            with parts.running():
                outcome = await run.children.run(run, key, child, message)
            if not isinstance(outcome, (Interrupted, Paused, Waiting)):
                return outcome
        except AttemptEnded as ended:  # the others halt after their steps, too
            run.stopped_by = ended.stop or run.stopped_by
        # Race: a concurrent agent may be in the middle of a call. It must not be cut off because
        # this agent waits (test_an_approved_call_is_not_cut_off_because_an_agent_beside_it_waits).
        await parts.wait_until_none_runs()
        parts.suspended = True
        raise CallSuspended

    return run_agent


def parts_of(run: Run, call: Call) -> RunningParts:
    """The parts of this attempt at the call."""
    parts = run.running_parts.get(call.key)
    if parts is None or parts.attempt != call.attempts:
        parts = run.running_parts[call.key] = RunningParts(call.attempts)
    return parts


def result_of_agent(outcome: Outcome, *, what: str) -> Any:
    """The outcome of an agent that a call ran, as the result of that call.

    Raises:
        ToolFailed: if the agent has no result, or its until tool's result is an error: an error
            below is an error above.

    """
    match outcome:
        case Completed(tool_result=None, text=text, finish_reason="length"):
            return f"{text}\n[{what} was cut off here by its length limit]"
        case Completed(tool_result=None, text=text):
            return text
        case Completed(tool_result=result) if result is not None and not result.is_error:
            return result.content
        case Completed(tool_result=result) if result is not None:
            why = f"{what} ended by an error of {result.tool_name!r}: {result.content}"
        case Failed(error=AgentFailed() as error):  # the error says what the workflow did
            raise ToolFailed(f"{what} failed: {error_text(error)}")
        case Failed(error=error):
            why = f"{what} failed: {error_text(error)}"
        case Stopped():
            why = f"{what} was not finished. {outcome.explain()}"
        case _:
            why = f"{what} ended as {outcome!r}"
    # Otherwise the model orders it once more, and what the agent has paid is paid once more.
    raise ToolFailed("\n".join(filter(None, (why, what_it_did(outcome.state)))))


async def wait_for_parts(run: Run, call: Call) -> None:
    """Wait until no task of the call runs an agent or a `once` any more.

    Race: a tool runs several agents at once, and the first that is suspended ends the tool's body.
    Without this wait the run would return its outcome while the others still add records
    (`test_one_agent_that_waits_does_not_leave_another_of_the_same_tool_running`).
    """
    parts = run.running_parts.get(call.key)
    if parts is not None:
        parts.suspended = parts.body_ended = True
        await parts.wait_until_none_runs()


def checked_initial(given: object, *, what: str) -> tuple[ModelMessage, ...]:
    """The conversation that an agent begins with, made valid for any provider.

    Raises:
        UsageError: if it is no list of messages, or a message cannot be stored.

    """
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise UsageError(
            f"{what}: `initial_messages` must be a list of Pydantic AI's messages, got "
            f"{shown(given)}"
        )
    return tuple(normalised(given)) if given else ()


def _with_given(child: ChildAgent, instructions: object, initial_messages: object) -> ChildAgent:
    """The child with the instructions and messages of this run only."""
    added = checked_text(instructions, what="run_agent: `instructions`", may_be_empty=True)
    if added and not child.definition.asks_model:
        raise UsageError(
            f"run_agent: agent {child.definition.name!r} calls no model, so nothing would read "
            "`instructions`: give them to its agents"
        )
    initial = checked_initial(initial_messages, what="run_agent")
    return replace(child, instructions=added, initial_messages=initial or child.initial_messages)


def _child(run: Run, agent: Any) -> ChildAgent:
    if isinstance(agent, str):
        child = run.definition.children.get(agent)
        if child is None:
            known = ", ".join(map(repr, run.definition.children)) or "none"
            raise UsageError(f"No agent {agent!r} to run here; there are: {known}")
        return child
    definition = definition_of(agent)
    if definition is None:
        raise UsageError(
            "run_agent takes an Agent or the name of a child, got " + instead_of_agent(agent)
        )
    return ChildAgent(definition=definition)
