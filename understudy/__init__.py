"""LLM agents that pause for people, nest, crash, move, and come back to the line they were on."""

from understudy.actors import AgentRef, LoopActor, Runtime, Status, Supervisor
from understudy.agent import Agent
from understudy.errors import (
    DecisionError,
    MiddlewareError,
    ModelFailed,
    NotExtracted,
    NotInterrupted,
    Quarantined,
    RunLimitExceeded,
    StreamBroken,
    UnderstudyError,
    UntilToolNotCalled,
    UsageError,
    WouldDeadlock,
)
from understudy.interrupts import Decision, Interrupt, Request, approve, edit, reject, respond
from understudy.models import ScriptedModel, call
from understudy.outcomes import (
    Completed,
    Failed,
    Interrupted,
    Outcome,
    Paused,
    Stopped,
    ToolCallResult,
)
from understudy.run import Run
from understudy.state import AgentState
from understudy.stopping import StopReason, StopSignal, StopSignals
from understudy.tools import Retry, Tool, ToolContext, ToolResult, tool

__all__ = [
    "Agent",
    "AgentRef",
    "AgentState",
    "Completed",
    "Decision",
    "DecisionError",
    "Failed",
    "Interrupt",
    "Interrupted",
    "LoopActor",
    "MiddlewareError",
    "ModelFailed",
    "NotExtracted",
    "NotInterrupted",
    "Outcome",
    "Paused",
    "Quarantined",
    "Request",
    "Retry",
    "Run",
    "RunLimitExceeded",
    "Runtime",
    "ScriptedModel",
    "Status",
    "StopReason",
    "StopSignal",
    "StopSignals",
    "Stopped",
    "StreamBroken",
    "Supervisor",
    "Tool",
    "ToolCallResult",
    "ToolContext",
    "ToolResult",
    "UnderstudyError",
    "UntilToolNotCalled",
    "UsageError",
    "WouldDeadlock",
    "approve",
    "call",
    "edit",
    "reject",
    "respond",
    "tool",
]
