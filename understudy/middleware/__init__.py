"""Middleware: one concern a module, wrapped around an agent's model and tool calls."""

from understudy.calls import ToolCall
from understudy.definition import AgentDefinition
from understudy.middleware.base import Middleware, Next, Prepared
from understudy.middleware.cancellation import Cancellation
from understudy.middleware.haltable import Haltable
from understudy.middleware.human_in_the_loop import HumanInTheLoop
from understudy.middleware.limits import Limits
from understudy.middleware.sub_agent import SubAgent
from understudy.model_input import ModelInput

__all__ = [
    "AgentDefinition",
    "Cancellation",
    "Haltable",
    "HumanInTheLoop",
    "Limits",
    "Middleware",
    "ModelInput",
    "Next",
    "Prepared",
    "SubAgent",
    "ToolCall",
]
