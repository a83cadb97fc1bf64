"""Middleware: one concern a module, wrapped around an agent's model and tool calls."""

from understudy.calls import ToolCall
from understudy.definition import AgentDefinition
from understudy.middleware.base import Middleware, Next, Prepared
from understudy.middleware.human_in_the_loop import HumanInTheLoop
from understudy.middleware.sub_agent import SubAgent
from understudy.model_input import ModelInput

__all__ = [
    "AgentDefinition",
    "HumanInTheLoop",
    "Middleware",
    "ModelInput",
    "Next",
    "Prepared",
    "SubAgent",
    "ToolCall",
]
