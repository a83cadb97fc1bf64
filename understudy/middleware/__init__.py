"""Middleware: concerns wrapped around an agent's model and tool calls, one in each module."""

import typing

from understudy._base.lazy_names import load_lazily as _load_lazily
from understudy.middleware.base import Middleware, Next, NextModelCall, Prepared
from understudy.middleware.cancellation import Cancellation
from understudy.middleware.fallback import Fallback
from understudy.middleware.guard import Guard
from understudy.middleware.haltable import Haltable
from understudy.middleware.human_in_the_loop import HumanInTheLoop
from understudy.middleware.limits import Limits
from understudy.middleware.sub_agent import SubAgent
from understudy.run.definition import AgentDefinition
from understudy.run.model_input import ModelInput
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall

if typing.TYPE_CHECKING:
    from understudy.middleware.ask_user import AskUser
    from understudy.middleware.rate_limit import RateLimit
    from understudy.middleware.retry import Retry
    from understudy.middleware.skills import Skills
    from understudy.middleware.summarization import Summarization
    from understudy.middleware.todo_list import TodoItem, TodoList
    from understudy.middleware.workspace import Workspace
else:  # unused ones are not loaded (test_a_plain_import_loads_no_actors_and_stores)
    __getattr__, __dir__ = _load_lazily(
        __name__,
        {
            "understudy.middleware.ask_user": ["AskUser"],
            "understudy.middleware.rate_limit": ["RateLimit"],
            "understudy.middleware.retry": ["Retry"],
            "understudy.middleware.skills": ["Skills"],
            "understudy.middleware.summarization": ["Summarization"],
            "understudy.middleware.todo_list": ["TodoItem", "TodoList"],
            "understudy.middleware.workspace": ["Workspace"],
        },
    )

__all__ = [
    "AgentDefinition",
    "AskUser",
    "Cancellation",
    "Fallback",
    "Guard",
    "Haltable",
    "HumanInTheLoop",
    "Limits",
    "Middleware",
    "ModelInput",
    "Next",
    "NextModelCall",
    "Prepared",
    "RateLimit",
    "Retry",
    "Run",
    "Skills",
    "SubAgent",
    "Summarization",
    "TodoItem",
    "TodoList",
    "ToolCall",
    "Workspace",
]
