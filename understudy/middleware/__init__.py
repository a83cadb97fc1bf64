"""Middleware: concerns wrapped around an agent's model and tool calls, one in each module."""

from understudy.middleware.ask_user import AskUser
from understudy.middleware.base import Middleware, Next, NextModelCall, Prepared
from understudy.middleware.cancellation import Cancellation
from understudy.middleware.fallback import Fallback
from understudy.middleware.haltable import Haltable
from understudy.middleware.human_in_the_loop import HumanInTheLoop
from understudy.middleware.limits import Limits
from understudy.middleware.retry import Retry
from understudy.middleware.sub_agent import SubAgent
from understudy.run.definition import AgentDefinition
from understudy.run.model_input import ModelInput
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall

__all__ = [
    "AgentDefinition",
    "AskUser",
    "Cancellation",
    "Fallback",
    "Haltable",
    "HumanInTheLoop",
    "Limits",
    "Middleware",
    "ModelInput",
    "Next",
    "NextModelCall",
    "Prepared",
    "Retry",
    "Run",
    "SubAgent",
    "ToolCall",
]
