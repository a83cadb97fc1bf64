"""Converts an agent of Pydantic AI to the options of an `Agent`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_ai.usage import UsageLimits

from understudy._base.json_values import shown
from understudy.adopted.middleware import PydanticAI, PydanticAIWithHooks
from understudy.adopted.output import AdoptedOutput
from understudy.adopted.refusals import check, checked_agent
from understudy.adopted.source import Source
from understudy.adopted.steps import Steps
from understudy.adopted.tools import adopted_tools
from understudy.errors import UsageError
from understudy.tools.function_tool import ToolOptions
from understudy.tools.toolsets import as_tools


def adopted_options(
    agent: object,
    *,
    name: str | None,
    model: Any,
    tools: Sequence[object],
    middleware: Sequence[Any],
    tool_options: Mapping[str, ToolOptions] | None,
    listed_with: object,
    usage_limits: UsageLimits | None,
    output_key: str | None,
) -> dict[str, Any]:
    """The options of the `Agent` that is made from an agent of Pydantic AI.

    Raises:
        UsageError: for a part that cannot be carried over; the error names it.

    """
    given = checked_agent(agent)
    name = given.name if name is None else name
    if name is None:
        raise UsageError(
            "The agent of Pydantic AI has no name, by which its runs are stored: give it one, or "
            'from_pydantic_ai(agent, name="support")'
        )
    if usage_limits is not None and not isinstance(usage_limits, UsageLimits):
        raise UsageError(f"`usage_limits` must be UsageLimits(...), got {shown(usage_limits)}")
    source = Source(given, usage_limits)
    check(source, name=name)
    what = f"Agent {name!r}, made of an agent of Pydantic AI,"
    steps = Steps(source)
    adopted, outputs = adopted_tools(
        source, steps, tool_options or {}, listed_with=listed_with, what=what
    )
    added = [each for one in tools for each in as_tools(one)]
    names = {each.name for each in adopted}
    for each in added:
        if each.name in names:
            raise UsageError(
                f"{what} has two tools named {each.name!r}: remove it from the agent of Pydantic "
                "AI, or rename that of `tools` with @tool(name=...)"
            )
    description = given.description
    kind = PydanticAIWithHooks if source.capabilities else PydanticAI
    return {
        "name": name,
        "model": source.model if model is None else model,
        "tools": [*adopted, *added],
        "middleware": [*middleware, kind(source, steps)],
        "description": description if isinstance(description, str) else "",
        "output_type": AdoptedOutput(source, steps, outputs, output_key),
    }
