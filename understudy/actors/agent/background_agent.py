"""`BackgroundAgent`: the agent that makes the background calls of another one."""

from __future__ import annotations

from typing import Any

from understudy.agent.agent import Agent
from understudy.agent.background import background_definition
from understudy.agent.run_environment import RunOptions
from understudy.agent.runner import Runner
from understudy.run.definition import AgentDefinition


class BackgroundAgent(Agent[Any, Any]):
    """Makes the background calls of an agent, and of those inside it: each in an id of its own."""

    def __init__(self, owner: Agent[Any, Any]) -> None:
        self.definition: AgentDefinition = background_definition(owner.definition)
        self.runner: Runner = Runner(self.definition)
        self._plain_options = RunOptions(max_runs=self.definition.max_runs)
