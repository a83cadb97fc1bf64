"""`BaseAgent`: an agent in the signatures of the layers below `agent`."""

from __future__ import annotations

from typing import Any, Generic

from understudy._base.type_variables import DepsT_contra, OutputT_co


class BaseAgent(Generic[DepsT_contra, OutputT_co]):
    """What `ctx.run_agent`, workflows and `SubAgent` take: an `Agent`, which is its subclass."""

    definition: Any
    """Its `AgentDefinition`, which is defined in the layer `run` above."""
