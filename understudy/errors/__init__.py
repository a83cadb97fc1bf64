"""All errors, as one tree. The first level says who has to act.

    UnderstudyError
    ├── UsageError                the caller: a wrong argument, raised before anything runs
    │   ├── ApprovalNeeded        persons must agree before it is done
    │   ├── DecisionError         the decision does not fit the request that it names
    │   │   ├── VoteRefused       this person may not vote on it
    │   │   ├── RequestChanged    the request is another one than was shown
    │   │   └── RequestExpired    the time of the request is over
    │   ├── NotInterrupted        no run to continue, or the request is decided
    │   │   └── AlreadyDecided    the request has another decision
    │   ├── MissingValue          the instructions read a key that the state lacks
    │   ├── UnknownAgent          there is no agent with this id
    │   ├── SearchOff             the store has no index to look into
    │   ├── UnknownMessage        the agent has no message with this id
    │   ├── OtherRun              the run that a call names is not the open one
    │   ├── NoProgress            the retries of a failed run got no further
    │   ├── OtherWorkflow         the failed run had other agents than the workflow has now
    │   ├── OtherAgent            the agent with this id has another definition
    │   ├── UnknownToken          no wait has this token
    │   ├── Expired               the wait is over: its answer comes too late
    │   ├── SchemaVersionError    the stored data has a format that this version does not read
    │   ├── ForkedRuntime         the runtime belongs to the parent process of a fork
    │   ├── LoopNotRunning        the event loop that has to answer does not run
    │   └── WouldDeadlock         waiting here would block the event loop that has to answer
    ├── RunError                  why a run ended as `Failed`; a run never raises it
    │   ├── ModelFailed           the model and all of its fallbacks
    │   │   └── ModelRefused      each of them refused to answer, or was filtered
    │   ├── StreamBroken          the model, in the middle of a reply
    │   ├── ReplyCut              the length limit of the model's replies
    │   ├── RunLimitExceeded      the run's own limit
    │   ├── ToolRaised            a tool, where tests want that to end the run
    │   ├── UntilToolNotCalled    the model, which stopped without calling the until tool
    │   ├── MiddlewareError       a middleware's hook
    │   │   └── CostUnknown       a limit needs to know what a reply costs, and nobody does
    │   ├── BudgetUnknown         a budget cannot be kept: nobody knows what a request may cost
    │   ├── BudgetUsedUp          a budget has no room for a request
    │   ├── AgentFailed           an agent of a workflow
    │   ├── DefinitionChanged     the definition of a workflow changed during its run
    │   ├── NotHaltable           a tool raised `Halt` and no agent above it is haltable
    │   ├── Quarantined           the run is cut off at every attempt
    │   ├── EffectUnknown         nobody knows what a call did that the run would make again
    │   ├── ResultNotKept         the tool that ends the run ran; its result cannot be kept
    │   └── StepFailed            a step of the pipeline
    ├── WaitEnded                 a wait of a tool ended without a value; raised in the tool
    │   ├── WaitExpired           nobody answered in time
    │   └── WaitRejected          the answer is that there will be none
    ├── NotExtracted              `extract` ended without a value
    ├── PeopleUnavailable         nobody can say who somebody is
    ├── AgentNotMade              the factory of the runtime raised
    ├── OutOfDescriptors          nothing more can be opened in this process
    ├── CallLost                  the host of a cluster that was called has ended
    └── JournalFailed             the journal: a run does not continue without its records
        └── StoreError            the store under it, or another user of the store
            ├── StoreInUse        another runtime has the database, which serves only one
            ├── StoreUnavailable  the database cannot be reached now: retry
            ├── StoreBroken       disk full, read-only, I/O error: repair it, then continue
            │   └── StoreDamaged  stored data cannot be read
            ├── OwnedElsewhere    another runtime owns this agent
            ├── UnfitHost         this runtime must not run this agent, and no other one can now
            ├── Fenced            another runtime has taken this agent over
            ├── StoreConflict     two writers under one epoch: a defect of this library
            └── RecordRefused     this one record is too large, or cannot be serialised

What a tool raises on purpose (`Retry`, `Interrupt`) is not an error: see `tools` and `interrupts`.
"""

from __future__ import annotations

from understudy.errors.base import UnderstudyError, _rebuild
from understudy.errors.calls import (
    AgentNotMade,
    CallLost,
    NotExtracted,
    OutOfDescriptors,
    PeopleUnavailable,
    WaitEnded,
    WaitExpired,
    WaitRejected,
)
from understudy.errors.runs import (
    AgentFailed,
    BudgetUnknown,
    BudgetUsedUp,
    CostUnknown,
    DefinitionChanged,
    EffectUnknown,
    MiddlewareError,
    ModelFailed,
    ModelRefused,
    NotHaltable,
    Quarantined,
    ReplyCut,
    ResultNotKept,
    RunError,
    RunLimitExceeded,
    StepFailed,
    StreamBroken,
    ToolRaised,
    UntilToolNotCalled,
)
from understudy.errors.stored import error_from_dict
from understudy.errors.stores import (
    Fenced,
    JournalFailed,
    OwnedElsewhere,
    RecordRefused,
    StoreBroken,
    StoreConflict,
    StoreDamaged,
    StoreError,
    StoreInUse,
    StoreUnavailable,
    UnfitHost,
)
from understudy.errors.usage import (
    AlreadyDecided,
    ApprovalNeeded,
    DecisionError,
    Expired,
    ForkedRuntime,
    LoopNotRunning,
    MissingValue,
    NoProgress,
    NotInterrupted,
    OtherAgent,
    OtherRun,
    OtherWorkflow,
    RequestChanged,
    RequestExpired,
    SchemaVersionError,
    SearchOff,
    UnknownAgent,
    UnknownMessage,
    UnknownToken,
    UsageError,
    VoteRefused,
    WouldDeadlock,
)

__all__ = [
    "AgentFailed",
    "AgentNotMade",
    "AlreadyDecided",
    "ApprovalNeeded",
    "BudgetUnknown",
    "BudgetUsedUp",
    "CallLost",
    "CostUnknown",
    "DecisionError",
    "DefinitionChanged",
    "EffectUnknown",
    "Expired",
    "Fenced",
    "ForkedRuntime",
    "JournalFailed",
    "LoopNotRunning",
    "MiddlewareError",
    "MissingValue",
    "ModelFailed",
    "ModelRefused",
    "NoProgress",
    "NotExtracted",
    "NotHaltable",
    "NotInterrupted",
    "OtherAgent",
    "OtherRun",
    "OtherWorkflow",
    "OutOfDescriptors",
    "OwnedElsewhere",
    "PeopleUnavailable",
    "Quarantined",
    "RecordRefused",
    "ReplyCut",
    "RequestChanged",
    "RequestExpired",
    "ResultNotKept",
    "RunError",
    "RunLimitExceeded",
    "SchemaVersionError",
    "SearchOff",
    "StepFailed",
    "StoreBroken",
    "StoreConflict",
    "StoreDamaged",
    "StoreError",
    "StoreInUse",
    "StoreUnavailable",
    "StreamBroken",
    "ToolRaised",
    "UnderstudyError",
    "UnfitHost",
    "UnknownAgent",
    "UnknownMessage",
    "UnknownToken",
    "UntilToolNotCalled",
    "UsageError",
    "VoteRefused",
    "WaitEnded",
    "WaitExpired",
    "WaitRejected",
    "WouldDeadlock",
    "error_from_dict",
]

# They are pickled, and shown in tracebacks, by the name under which they are imported: it stays the
# same wherever a class is defined. The price is that `inspect.getsource` looks for a class here: it
# knows no other way from a class to its file than this name.
for _name in (*__all__, _rebuild.__name__):
    globals()[_name].__module__ = __name__
