"""LLM agents that pause for people, nest, crash, move, and come back to the line they were on."""

from understudy.agent import Agent
from understudy.errors import (
    DecisionError,
    MiddlewareError,
    ModelFailed,
    NotExtracted,
    NotInterrupted,
    RunLimitExceeded,
    StreamBroken,
    UnderstudyError,
    UntilToolNotCalled,
    UsageError,
)
from understudy.interrupts import Decision, Interrupt, Request, approve, edit, reject, respond
from understudy.models import ScriptedModel, call
from understudy.outcomes import Completed, Failed, Interrupted, Outcome, Paused, ToolCallResult
from understudy.run import Run
from understudy.state import AgentState
from understudy.tools import Retry, Tool, ToolContext, ToolResult, tool

__all__ = [
    "Agent",
    "AgentState",
    "Completed",
    "Decision",
    "DecisionError",
    "Failed",
    "Interrupt",
    "Interrupted",
    "MiddlewareError",
    "ModelFailed",
    "NotExtracted",
    "NotInterrupted",
    "Outcome",
    "Paused",
    "Request",
    "Retry",
    "Run",
    "RunLimitExceeded",
    "ScriptedModel",
    "StreamBroken",
    "Tool",
    "ToolCallResult",
    "ToolContext",
    "ToolResult",
    "UnderstudyError",
    "UntilToolNotCalled",
    "UsageError",
    "approve",
    "call",
    "edit",
    "reject",
    "respond",
    "tool",
]
