"""`BaseAgent`: an agent in the signatures of the layers below `agent`."""

from __future__ import annotations

from typing import Any, Generic

from understudy._base.type_variables import DepsT_contra, OutputT_co


class BaseAgent(Generic[DepsT_contra, OutputT_co]):
    """What `ctx.run_agent`, workflows and `SubAgent` take: an `Agent`, which is its subclass."""

    definition: Any
    """The agent's `AgentDefinition`, which is defined in the layer `run` above."""


def instead_of_agent(given: object) -> str:
    """The text of an error about an object that was given as an agent, with the remedy if known."""
    from pydantic_ai.agent import AbstractAgent  # no other module needs it

    if isinstance(given, AbstractAgent):
        name = "" if given.name is None else f" {given.name!r}"
        return f"an agent of Pydantic AI{name}: use Agent.from_pydantic_ai(...)"
    return repr(given)
