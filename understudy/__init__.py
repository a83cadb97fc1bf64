"""LLM agents as supervised actors that pause for approval, are journalled and survive crashes."""

import logging

from understudy.actors import AgentRef, LoopActor, Runtime, SimulatedClock, Status, Supervisor
from understudy.agent.agent import Agent
from understudy.errors import (
    DecisionError,
    Fenced,
    JournalFailed,
    MiddlewareError,
    ModelFailed,
    NotExtracted,
    NotInterrupted,
    OwnedElsewhere,
    Quarantined,
    RunLimitExceeded,
    StoreError,
    StoreInUse,
    StreamBroken,
    UnderstudyError,
    UnknownAgent,
    UntilToolNotCalled,
    UsageError,
    WouldDeadlock,
)
from understudy.interrupts import (
    Decision,
    Halt,
    Interrupt,
    Request,
    approve,
    dismiss,
    edit,
    reject,
    respond,
)
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
from understudy.run.cancellation import CancellationSource, InMemoryCancellation
from understudy.run.run import Run
from understudy.state.agent_state import AgentState
from understudy.stopping import (
    ExecutionContinuation,
    StopAgent,
    StopReason,
    StopSignal,
    StopSignals,
)
from understudy.tools import Retry, Tool, ToolContext, ToolResult, tool

__all__ = [
    "Agent",
    "AgentRef",
    "AgentState",
    "CancellationSource",
    "Completed",
    "Decision",
    "DecisionError",
    "ExecutionContinuation",
    "Failed",
    "Fenced",
    "Halt",
    "InMemoryCancellation",
    "Interrupt",
    "Interrupted",
    "JournalFailed",
    "LoopActor",
    "MiddlewareError",
    "ModelFailed",
    "NotExtracted",
    "NotInterrupted",
    "Outcome",
    "OwnedElsewhere",
    "Paused",
    "Quarantined",
    "Request",
    "Retry",
    "Run",
    "RunLimitExceeded",
    "Runtime",
    "ScriptedModel",
    "SimulatedClock",
    "Status",
    "StopAgent",
    "StopReason",
    "StopSignal",
    "StopSignals",
    "Stopped",
    "StoreError",
    "StoreInUse",
    "StreamBroken",
    "Supervisor",
    "Tool",
    "ToolCallResult",
    "ToolContext",
    "ToolResult",
    "UnderstudyError",
    "UnknownAgent",
    "UntilToolNotCalled",
    "UsageError",
    "WouldDeadlock",
    "approve",
    "call",
    "dismiss",
    "edit",
    "reject",
    "respond",
    "tool",
]

# The application decides where logs go: without any handler Python prints warnings to stderr.
logging.getLogger("understudy").addHandler(logging.NullHandler())
