"""What the factory of a host makes."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from understudy._base.context_codecs import ContextCodec
from understudy._base.json_values import shown
from understudy.actors.agent.factory import AgentFactory
from understudy.actors.agent.services import RuntimeTelemetry
from understudy.agent.agent import Agent
from understudy.errors import UsageError
from understudy.models.prices import Pricing
from understudy.tools.effects import Errors
from understudy.tools.tool_defaults import Undeclared
from understudy.tools.tool_errors import ToolErrors


@dataclass(frozen=True, slots=True)
class Definitions:
    """The definitions and settings that the factory of a host returns.

    Args:
        agents: as of `Runtime`.
        factory: as of `Runtime`: it makes the definitions that are not among `agents`. Let it
            make the same definitions at all hosts, because a call may come to any host.
        deps_for: as of `Runtime`.
        context: as of `Runtime`.
        telemetry: as of `Runtime`: for the host's own process.
        pricing: as of `Runtime`.
        undeclared: as of `Runtime`.
        unknown_after: as of `Runtime`.
        tool_errors: as of `Runtime`.

    """

    agents: Sequence[Agent[Any, Any]] = ()
    deps_for: Callable[[str], Any] | None = None
    context: Sequence[ContextCodec] = ()
    telemetry: RuntimeTelemetry | None = None
    pricing: Pricing | None = None
    factory: AgentFactory | None = field(default=None, kw_only=True)
    undeclared: Undeclared | None = field(default=None, kw_only=True)
    unknown_after: Errors = field(default=(), kw_only=True)
    tool_errors: ToolErrors | None = field(default=None, kw_only=True)


@asynccontextmanager
async def made(factory: str) -> AsyncIterator[Definitions]:
    """What the factory of this name makes, for as long as the host runs.

    Raises:
        UsageError: if there is no such factory, or it makes something else.

    """
    module, _, attribute = factory.partition(":")
    try:
        make: Any = reduce(getattr, attribute.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise UsageError(f"the factory {factory!r} cannot be imported: {error}") from error
    if not callable(make):
        raise UsageError(f"the factory {factory!r} must be a function, it is {shown(make)}")
    found = make()
    if hasattr(found, "__aenter__"):
        async with found as entered:
            yield _definitions(entered, factory)
    else:
        yield _definitions(found, factory)


def _definitions(found: object, factory: str) -> Definitions:
    if isinstance(found, Definitions):
        return found
    if isinstance(found, Sequence) and all(isinstance(agent, Agent) for agent in found):
        return Definitions(found)
    raise UsageError(
        f"the factory {factory!r} must return a list of agents, or Definitions(agents, "
        "factory=..., deps_for=...), or an async context manager of one; it returned "
        f"{shown(found)}"
    )
