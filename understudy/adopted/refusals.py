"""The parts of an agent of Pydantic AI that cannot be carried over. Each is an error that names the
part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.capabilities import (
    AbstractCapability,
    Instrumentation,
    WrapperCapability,
)
from pydantic_ai.messages import BinaryImage
from pydantic_ai.toolsets import AbstractToolset

from understudy._base.error_texts import error_text
from understudy._base.json_values import shown
from understudy.adopted.source import Source, hooks_of, is_captured
from understudy.errors import UsageError

_OWN_GRAPH = "the graph of Pydantic AI does not run here; write a middleware, or a step of the mode"
_NOT_CALLED = {
    "wrap_run": "write a middleware with on_run_start and on_run_end",
    "after_run": "write a middleware with on_run_end",
    "on_run_error": "write a middleware with on_run_end, which gets the outcome",
    "before_node_run": _OWN_GRAPH,
    "after_node_run": _OWN_GRAPH,
    "wrap_node_run": _OWN_GRAPH,
    "on_node_run_error": _OWN_GRAPH,
    "wrap_run_event_stream": "subscribe to the events of the run: on_event=, or ref.events()",
    "on_event": "subscribe to the events of the run: on_event=, or ref.events()",
    "handle_deferred_tool_calls": (
        "calls that need an answer are requests here: answer them with resume(), or by a grant"
    ),
    "get_workspace": "give the agent a middleware Workspace(...)",
    "get_wrapper_model": "wrap the model itself: from_pydantic_ai(agent, model=...)",
    "get_model": "give the model itself: from_pydantic_ai(agent, model=...)",
    "resolve_model_id": "give the model itself: from_pydantic_ai(agent, model=...)",
    "get_run_clock": "give `clock=` to the run",
    "get_default_run_id": "the runtime makes the ids of runs",
}
"""The hooks of a capability that are not called here, each with the remedy."""
_TRACED = "give telemetry= to the run or the Runtime, which traces over waits, processes and hosts"


def check(source: Source, *, name: str) -> None:
    """Refuse an agent of which a part would be silently dropped.

    Raises:
        UsageError: with the name of the part, and what to do instead.

    """
    what = f"Agent {name!r}, made of an agent of Pydantic AI,"
    agent = source.agent
    check_overrides(source, what)
    if agent.end_strategy == "early":
        raise UsageError(
            f"{what} has end_strategy='early', by which calls beside a final answer do not run: "
            "here they run; make it 'graceful' or 'exhaustive'"
        )
    if source.limits_runs:
        raise UsageError(
            f"{what} has max_concurrency: limit what runs where it is started, or give a "
            "middleware RateLimit(...)"
        )
    if source.listens:
        raise UsageError(f"{what} has functions of @agent.on_event: {_NOT_CALLED['on_event']}")
    if agent.event_stream_handler is not None:
        raise UsageError(f"{what} has an event_stream_handler: {_NOT_CALLED['on_event']}")
    if agent.instrument:
        raise UsageError(f"{what} has instrument=...: {_TRACED}")
    schema = source.schema
    if schema.allows_image:
        raise UsageError(f"{what} has the output type {BinaryImage.__name__}: an output is JSON")
    if schema.allows_pending_model_response:
        raise UsageError(
            f"{what} has the output type PendingModelResponse: the reply of a model is waited for"
        )
    try:
        _ = source.values
    except (PydanticSchemaGenerationError, PydanticUserError, TypeError) as error:
        raise UsageError(
            f"{what} has an output that is kept as JSON and cannot be made of it again: "
            f"{error_text(error)}. Return a BaseModel, a dataclass, or another type of Pydantic"
        ) from error
    for capability in _leaves(source.capability):
        _check_capability(capability, what)
    for toolset in agent.toolsets:
        toolset.apply(lambda each: _check_toolset(each, what))


_OVERRIDDEN = {
    "deps": "give deps= to the run",
    "model": "from_pydantic_ai(agent, model=...)",
    "tools": "from_pydantic_ai(agent, tools=[...])",
}
_NAMED = {
    "output_retries": "retries",
    "tool_retries": "retries",
    "root_capability": "spec",
}


def check_overrides(source: Source, what: str) -> None:
    """Refuse an `agent.override()` around the caller: a run may continue after it, and elsewhere.

    Args:
        source: the agent.
        what: the caller, for the error.

    Raises:
        UsageError: with the name of what is overridden, and what to do instead.

    """
    for name in sorted(source.overridden):
        remedy = _OVERRIDDEN.get(name, "make an agent that has it")
        raise UsageError(
            f"{what} is inside of agent.override({_NAMED.get(name, name)}=...), which holds for "
            f"this block alone, and a run goes on anywhere: {remedy}"
        )


def check_surroundings(source: Source, mode: str, what: str) -> None:
    """Refuse to begin a run inside of a `with` that it would not follow.

    Args:
        source: the agent.
        mode: how Pydantic AI would run the calls of a reply.
        what: the caller, for the error.

    Raises:
        UsageError: with the name of the `with`, and what to do instead.

    """
    check_overrides(source, what)
    if mode == "sequential":
        raise UsageError(
            f"{what} is inside of parallel_tool_call_execution_mode('sequential'), which holds for "
            "this block alone, and a run goes on anywhere: make the tools with sequential=True"
        )
    if is_captured():
        raise UsageError(
            f"{what} is inside of capture_run_messages(), which sees runs of Pydantic AI alone: "
            "read outcome.state.messages, which a run that fails has too"
        )


def _leaves(capability: AbstractCapability[Any]) -> Iterator[AbstractCapability[Any]]:
    found: list[AbstractCapability[Any]] = []
    capability.apply(found.append)
    for each in found:
        yield each
        if isinstance(each, WrapperCapability):
            yield from _leaves(each.wrapped)


def _check_capability(capability: AbstractCapability[Any], what: str) -> None:
    kind = type(capability).__name__
    lost = _lost_of_harness(capability)
    if lost:
        raise UsageError(f"{what} has the capability {kind}, {lost}")
    if capability.defer_loading:
        raise UsageError(
            f"{what} has the capability {kind} with defer_loading=True, which a model loads when "
            "it needs it: without defer_loading it is there from the beginning"
        )
    if isinstance(capability, Instrumentation):
        raise UsageError(f"{what} has the capability Instrumentation: {_TRACED}")
    for hook in sorted(hooks_of(capability, _NOT_CALLED)):
        raise UsageError(f"{what} has the capability {kind} with {hook}(): {_NOT_CALLED[hook]}")


def _lost_of_harness(capability: Any) -> str:
    """What a capability of `pydantic-ai-harness` would lose, with the remedy; empty if nothing."""
    kind = type(capability)
    if not kind.__module__.startswith("pydantic_ai_harness."):
        return ""
    if kind.__name__ in ("CodeMode", "DynamicWorkflow"):
        return (
            "whose tool calls other tools inside of its own call: no gate, no rule and no record "
            "would know of them; leave it out"
        )
    in_memory = "which keeps in memory what a run that waits, or goes on elsewhere, would not find"
    if kind.__name__ == "Planning" and capability.store is capability.store_resolver is None:
        return f"{in_memory}: give it a store=, or use the middleware TodoList"
    if kind.__name__ == "Shell" and capability.persist_cwd:
        return f"{in_memory}: without persist_cwd=True each command begins in `cwd`"
    return ""


def _check_toolset(toolset: AbstractToolset[Any], what: str) -> None:
    if type(toolset).__name__ == "MCPToolset":
        raise UsageError(
            f"{what} has {toolset.label}: leave it out there, list its tools by "
            "`await mcp_tools(toolset, id=...)` of understudy.mcp, and give them as "
            "from_pydantic_ai(agent, tools=[...])"
        )


def checked_agent(agent: object) -> PydanticAgent[Any, Any]:
    """`agent`, if it is an agent of Pydantic AI.

    Raises:
        UsageError: for anything else, such as an agent that wraps another agent.

    """
    if isinstance(agent, PydanticAgent):
        return agent
    wrapped = getattr(agent, "wrapped", None)
    if isinstance(wrapped, PydanticAgent):
        raise UsageError(
            f"from_pydantic_ai takes an Agent of pydantic_ai, and {type(agent).__name__} wraps "
            "one: give the agent that it wraps"
        )
    raise UsageError(f"from_pydantic_ai takes an Agent of pydantic_ai, got {shown(agent)}")
