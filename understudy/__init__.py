"""LLM agents as supervised actors that pause for approval, are journalled and survive crashes."""

import logging
import typing

from understudy._base.context_codecs import ContextCodec, ContextVarCodec
from understudy._base.grant_terms import grant
from understudy._base.lazy_names import load_lazily as _load_lazily
from understudy.agent.agent import Agent
from understudy.errors import (
    CostUnknown,
    DecisionError,
    Fenced,
    JournalFailed,
    LoopNotRunning,
    MiddlewareError,
    ModelFailed,
    ModelRefused,
    NotExtracted,
    NotInterrupted,
    OwnedElsewhere,
    Quarantined,
    ReplyCut,
    RunLimitExceeded,
    StoreError,
    StoreInUse,
    StreamBroken,
    UnderstudyError,
    UnfitHost,
    UnknownAgent,
    UntilToolNotCalled,
    UsageError,
    WaitExpired,
    WaitRejected,
    WouldDeadlock,
)
from understudy.interrupts import (
    Decision,
    Defer,
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
from understudy.models.patch_history import patch_history
from understudy.models.prices import Price, Prices
from understudy.outcomes import (
    Completed,
    Failed,
    Interrupted,
    Outcome,
    OutcomeOf,
    Paused,
    Stopped,
    ToolCallResult,
    Waiting,
)
from understudy.run.cancellation import CancellationSource, InMemoryCancellation
from understudy.run.run import Run
from understudy.state.agent_state import AgentState
from understudy.state.costs import Cost
from understudy.state.doubts import Doubt
from understudy.state.waits import Wait
from understudy.stopping import (
    ExecutionContinuation,
    StopAgent,
    StopReason,
    StopSignal,
    StopSignals,
)
from understudy.tools import Retry, Tool, ToolContext, ToolResult, tool

if typing.TYPE_CHECKING:
    from understudy.actors import (
        AgentRef,
        LoopActor,
        Observer,
        Runtime,
        RuntimeStopped,
        SimulatedClock,
        Status,
        Supervisor,
    )
    from understudy.costs import Costs, costs_of
else:  # an Agent needs neither actors nor stores (test_a_plain_import_loads_no_actors_and_stores)
    __getattr__, __dir__ = _load_lazily(
        __name__,
        {
            "understudy.actors": [
                *(
                    "AgentRef",
                    "LoopActor",
                    "Observer",
                    "Runtime",
                    "RuntimeStopped",
                    "SimulatedClock",
                ),
                *("Status", "Supervisor"),
            ],
            "understudy.costs": ["Costs", "costs_of"],
        },
    )

__all__ = [
    "Agent",
    "AgentRef",
    "AgentState",
    "CancellationSource",
    "Completed",
    "ContextCodec",
    "ContextVarCodec",
    "Cost",
    "CostUnknown",
    "Costs",
    "Decision",
    "DecisionError",
    "Defer",
    "Doubt",
    "ExecutionContinuation",
    "Failed",
    "Fenced",
    "Halt",
    "InMemoryCancellation",
    "Interrupt",
    "Interrupted",
    "JournalFailed",
    "LoopActor",
    "LoopNotRunning",
    "MiddlewareError",
    "ModelFailed",
    "ModelRefused",
    "NotExtracted",
    "NotInterrupted",
    "Observer",
    "Outcome",
    "OutcomeOf",
    "OwnedElsewhere",
    "Paused",
    "Price",
    "Prices",
    "Quarantined",
    "ReplyCut",
    "Request",
    "Retry",
    "Run",
    "RunLimitExceeded",
    "Runtime",
    "RuntimeStopped",
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
    "UnfitHost",
    "UnknownAgent",
    "UntilToolNotCalled",
    "UsageError",
    "Wait",
    "WaitExpired",
    "WaitRejected",
    "Waiting",
    "WouldDeadlock",
    "approve",
    "call",
    "costs_of",
    "dismiss",
    "edit",
    "grant",
    "patch_history",
    "reject",
    "respond",
    "tool",
]

# The application decides where logs go: without any handler Python prints warnings to stderr.
logging.getLogger("understudy").addHandler(logging.NullHandler())
