"""`AgentFactory`: makes the definition of an agent from its id and values, when it is activated."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from understudy._base.error_texts import error_text
from understudy._base.event_loops import is_cancelled
from understudy._base.json_values import shown
from understudy.agent.agent import Agent
from understudy.errors import AgentNotMade, JournalFailed, UsageError
from understudy.run.definition import BACKGROUND_SUFFIX

AgentFactory: TypeAlias = Callable[
    [str, str, Mapping[str, Any]], Agent[Any, Any] | Awaitable[Agent[Any, Any] | None] | None
]
"""A function that makes the definition of an agent from its name, its id and its values.

It returns None if it does not know the name. It may be async; a plain function must not block. It
is called at each activation: of a new agent, after a passivation or a crash, and at another host.
Make the same definition for the same values, because a run that continues needs its tools.
"""


@dataclass(frozen=True, slots=True)
class MadeAtActivation:
    """Stands for a definition that a factory makes whenever its agent is activated."""

    name: str


async def made_by(
    factory: AgentFactory, agent: str, agent_id: str, values: Mapping[str, Any]
) -> Agent[Any, Any]:
    """The definition that a factory makes for an agent, checked.

    Raises:
        UsageError: if it makes nothing, something else, or an agent of another name.
        AgentNotMade: if it raises.

    """
    owner = agent.removesuffix(BACKGROUND_SUFFIX)
    if owner != agent:  # a background call, which it knows nothing of
        from understudy.actors.agent.background_agent import BackgroundAgent  # few agents have one

        return BackgroundAgent(await made_by(factory, owner, agent_id.rpartition("~")[0], values))
    try:
        made: object = factory(agent, agent_id, MappingProxyType(dict(values)))
        if inspect.isawaitable(made):
            made = await made
    except JournalFailed:  # of a store that it reads
        raise
    except BaseException as error:  # also SystemExit: it must not end the loop
        if isinstance(error, GeneratorExit) or is_cancelled():
            raise
        raise AgentNotMade(agent_id=agent_id, agent=agent, cause=error_text(error)) from error
    what = f"Runtime(factory=) was asked for agent {agent!r} with the id {agent_id!r}"
    if made is None:
        raise UsageError(
            f"{what}, and knows none of this name: let it return an Agent, or declare one in "
            "Runtime(agents=[...])"
        )
    if not isinstance(made, Agent):
        raise UsageError(f"{what}, and must return an Agent or None, not {shown(made)}")
    if made.name != agent:
        raise UsageError(f"{what}, and returned one that is named {made.name!r}: name it {agent!r}")
    return made
