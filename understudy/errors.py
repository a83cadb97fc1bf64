"""All errors, as one tree. The first level says who has to act.

    UnderstudyError
    ├── UsageError                the caller: a wrong argument, raised before anything runs
    │   ├── DecisionError         the decision does not fit the request that it names
    │   │   └── RequestChanged    the request is another one than was shown
    │   ├── NotInterrupted        no run to continue, or the request is decided
    │   ├── MissingValue          the instructions read a key that the state lacks
    │   ├── UnknownAgent          there is no agent with this id
    │   ├── UnknownMessage        the agent has no message with this id
    │   ├── OtherRun              the run that a call names is not the open one
    │   ├── OtherAgent            the agent with this id has another definition
    │   ├── UnknownToken          no wait has this token
    │   ├── Expired               the wait is over: its answer comes too late
    │   ├── SchemaVersionError    the stored data has a newer schema than this version reads
    │   ├── ForkedRuntime         the runtime belongs to the parent process of a fork
    │   └── WouldDeadlock         waiting here would block the event loop that has to answer
    ├── RunError                  why a run ended as `Failed`; a run never raises it
    │   ├── ModelFailed           the model and all of its fallbacks
    │   │   └── ModelRefused      each of them refused to answer, or was filtered
    │   ├── StreamBroken          the model, in the middle of a reply
    │   ├── ReplyCut              the length limit of the model's replies
    │   ├── RunLimitExceeded      the run's own limit
    │   ├── UntilToolNotCalled    the model, which stopped without calling the until tool
    │   ├── MiddlewareError       a middleware's hook
    │   │   └── CostUnknown       a limit needs to know what a reply costs, and nobody does
    │   ├── AgentFailed           an agent of a workflow
    │   ├── DefinitionChanged     the definition of a workflow changed during its run
    │   ├── NotHaltable           a tool raised `Halt` and no agent above it is haltable
    │   ├── Quarantined           the run is cut off at every attempt
    │   └── StepFailed            a step of the pipeline
    ├── WaitEnded                 a wait of a tool ended without a value; raised in the tool
    │   ├── WaitExpired           nobody answered in time
    │   └── WaitRejected          the answer is that there will be none
    ├── NotExtracted              `extract` ended without a value
    ├── AgentNotMade              the factory of the runtime raised
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

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

__all__ = [
    "AgentFailed",
    "AgentNotMade",
    "CallLost",
    "CostUnknown",
    "DecisionError",
    "DefinitionChanged",
    "Expired",
    "Fenced",
    "ForkedRuntime",
    "JournalFailed",
    "MiddlewareError",
    "MissingValue",
    "ModelFailed",
    "ModelRefused",
    "NotExtracted",
    "NotHaltable",
    "NotInterrupted",
    "OtherAgent",
    "OtherRun",
    "OwnedElsewhere",
    "Quarantined",
    "RecordRefused",
    "ReplyCut",
    "RequestChanged",
    "RunError",
    "RunLimitExceeded",
    "SchemaVersionError",
    "StepFailed",
    "StoreBroken",
    "StoreConflict",
    "StoreDamaged",
    "StoreError",
    "StoreInUse",
    "StoreUnavailable",
    "StreamBroken",
    "UnderstudyError",
    "UnfitHost",
    "UnknownAgent",
    "UnknownMessage",
    "UnknownToken",
    "UntilToolNotCalled",
    "UsageError",
    "WaitEnded",
    "WaitExpired",
    "WaitRejected",
    "WouldDeadlock",
    "error_from_dict",
]


class UnderstudyError(Exception):
    """The root of the tree.

    The facts of an error are its attributes. They are JSON-able, so an error can be pickled,
    stored with a run's outcome and rebuilt in another process.
    """

    message: str
    facts: dict[str, Any]

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts
        for name, value in facts.items():
            setattr(self, name, value)

    def __reduce__(
        self,
    ) -> tuple[Callable[..., UnderstudyError], tuple[type[UnderstudyError], str, dict[str, Any]]]:
        return _rebuild, (type(self), self.message, self.facts)

    def to_dict(self) -> dict[str, Any]:
        """The error as plain data: its type's name, its message and its facts."""
        return {"type": type(self).__name__, "message": self.message, "facts": self.facts}


class UsageError(UnderstudyError):
    """An argument is wrong. It is raised before anything runs."""


class DecisionError(UsageError):
    """A decision does not fit: its request is not pending, or does not allow this decision.

    Not pending is what is unknown, stale or withdrawn, also where nothing is pending at all.
    Nothing ran, the requests are still pending, and a valid decision is still accepted. Where the
    request has another decision already, it is `NotInterrupted` instead.
    """

    request_id: str | None

    def __init__(self, message: str, *, request_id: str | None = None) -> None:
        super().__init__(message, request_id=request_id)


class RequestChanged(DecisionError):
    """The request is another one than the decision was made on: its digest is not the expected one.

    Nothing ran. Show the request as it is now, and ask again.
    """

    request_id: str
    digest: str
    expected: str

    def __init__(self, *, request_id: str, digest: str, expected: str) -> None:
        UsageError.__init__(
            self,
            f"Request {request_id!r} is not what was shown: its digest is {digest!r}, not "
            f"{expected!r}: show it as it is now, and decide again",
            request_id=request_id,
            digest=digest,
            expected=expected,
        )


class NotInterrupted(UsageError):
    """There is nothing to continue or to decide any more.

    No run is open, it goes on now, or the request has another decision already. A decision about a
    request that is not pending is a `DecisionError`.
    """


class MissingValue(UsageError):
    """The instructions read `{key}`, and the agent's values have no such key."""

    key: str
    agent: str

    def __init__(self, *, key: str, agent: str) -> None:
        super().__init__(
            f"The instructions of agent {agent!r} read {{{key}}}, but its values hold no {key!r}: "
            f"give AgentState(values={{{key!r}: ...}}), or write {{{key}?}} if it may be absent.",
            key=key,
            agent=agent,
        )


class SchemaVersionError(UsageError):
    """Stored data has a schema version that this version of the library does not know."""

    version: object
    known: int

    def __init__(self, *, version: object, known: int, what: str = "state") -> None:
        super().__init__(
            f"This {what} has schema version {version!r}, but this understudy reads versions up to "
            f"{known}: upgrade understudy, or read the {what} where it was written."
            if not isinstance(version, int) or version > known
            else f"This {what} has schema version {version!r}, older than {known}: open it once by "
            "a Runtime of this understudy, which upgrades it.",
            version=version,
            known=known,
            what=what,
        )


class UnknownAgent(UsageError):
    """There is no agent with this id, in memory or in the store."""

    agent_id: str

    def __init__(self, *, agent_id: str) -> None:
        super().__init__(
            f"There is no agent {agent_id!r}: create it with spawn(agent, id={agent_id!r})",
            agent_id=agent_id,
        )


class UnknownMessage(UsageError):
    """The agent was sent no message with this id, or it was cancelled: no run took it."""

    agent_id: str
    message_id: str

    def __init__(self, *, agent_id: str, message_id: str) -> None:
        super().__init__(
            f"Agent {agent_id!r} has no message {message_id!r}: it was never accepted, or it was "
            "cancelled. Send it with this `message_id` first",
            agent_id=agent_id,
            message_id=message_id,
        )


class OtherRun(UsageError):
    """A call named a run that is not the open run of the agent, so it did nothing."""

    agent_id: str
    run_id: str
    open_run: str | None

    def __init__(self, *, agent_id: str, run_id: str, open_run: str | None) -> None:
        there = "no run is open" if open_run is None else f"the open run is {open_run!r}"
        super().__init__(
            f"Run {run_id!r} of agent {agent_id!r} is over, or there was none: {there}. Nothing "
            "was done",
            agent_id=agent_id,
            run_id=run_id,
            open_run=open_run,
        )


class OtherAgent(UsageError):
    """The agent with this id has another definition; it is left unchanged."""

    agent_id: str
    agent: str
    wanted: str

    def __init__(self, *, agent_id: str, agent: str, wanted: str) -> None:
        super().__init__(
            f"Agent {agent_id!r} is a {agent!r} already, not this {wanted!r}: use another id, or "
            "runtime.get(id)",
            agent_id=agent_id,
            agent=agent,
            wanted=wanted,
        )


class UnknownToken(UsageError):
    """No wait has this token: it is malformed, of another store, or of an agent that is gone.

    These are told alike, and the message has nothing of the token, which is a secret.
    """

    def __init__(self) -> None:
        super().__init__("No wait of a tool has this token")


class Expired(UsageError):
    """The wait of this token is over, so its answer comes too late: nothing is recorded."""

    agent_id: str
    name: str

    def __init__(self, *, agent_id: str, name: str) -> None:
        super().__init__(
            f"The wait {name!r} of agent {agent_id!r} is over: this answer comes too late",
            agent_id=agent_id,
            name=name,
        )


class ForkedRuntime(UsageError):
    """The runtime belongs to the parent of this forked process: its event loop is not here.

    So is what its calls have returned: a future that was pending at the fork, a feed, a list.
    """

    def __init__(self) -> None:
        super().__init__(
            "This runtime belongs to the parent of this forked process: create a Runtime after "
            "the fork"
        )


class WouldDeadlock(UsageError):
    """Waiting here would block the event loop that has to answer: it runs in this thread.

    It is raised at once, before anything is sent. Where another loop runs in this thread, such as
    a notebook's, one may wait. A wait that times out raises `TimeoutError`.
    """

    what: str
    remedy: str

    def __init__(self, *, what: str, remedy: str) -> None:
        super().__init__(
            f"{what} would block the event loop that runs in this thread: {remedy}.",
            what=what,
            remedy=remedy,
        )


class RunError(UnderstudyError):
    """Why a run ended as `Failed`: the `error` of the outcome. A run never raises it."""


class ModelFailed(RunError):
    """No model answered: each raised, refused, or gave an empty reply.

    `__cause__` is the last of what they raised.
    """

    failures: list[dict[str, str]]
    """One for each model: its name as `model`, and the `type` and `message` of what it raised.

    The type is `RefusedReply` or `EmptyReply` where it raised nothing. A long message, such as a
    page of HTML, is here by its first lines; `__cause__` has it all.
    """

    def __init__(self, *, failures: Sequence[Mapping[str, str]]) -> None:
        causes = "; ".join(f"{f['model']}: {f['type']}: {f['message']}" for f in failures)
        super().__init__(f"{self._what}: {causes}", failures=[dict(f) for f in failures])

    _what = "No model answered"


class ModelRefused(ModelFailed):
    """The model refused to answer, or a content filter stopped it; and so with every fallback."""

    _what = "The model refused to answer"


class StreamBroken(RunError):
    """A stream broke in the middle of a reply; the part received is kept in the state."""

    model: str
    cause: str

    def __init__(self, *, model: str, cause: str) -> None:
        super().__init__(
            f"The stream of {model!r} broke in the middle of a reply: {cause}",
            model=model,
            cause=cause,
        )


class ReplyCut(RunError):
    """A reply was cut by its length limit, and so was the one before it, at the same length.

    Asking for it again would cost the same once more.
    """

    max_tokens: int | None
    """Of the agent's `model_settings`; None where the model's own limit holds."""
    output_tokens: int
    """The tokens of the reply, as the provider counts them; 0 where it does not."""

    def __init__(self, *, max_tokens: int | None, output_tokens: int) -> None:
        limit = "the model's own" if max_tokens is None else f"max_tokens={max_tokens}"
        length = f" after {output_tokens} tokens" if output_tokens else ""
        super().__init__(
            f"The reply was cut by its length limit ({limit}){length}, as the one before it: raise "
            "max_tokens in the model_settings, or ask for less at once.",
            max_tokens=max_tokens,
            output_tokens=output_tokens,
        )


class RunLimitExceeded(RunError):
    """The run needed one more model call than `max_runs` allows. The state is kept."""

    max_runs: int

    def __init__(self, *, max_runs: int) -> None:
        super().__init__(
            f"The run made its {max_runs} model calls and was not finished: raise max_runs, or "
            "run it again from the state of this outcome.",
            max_runs=max_runs,
        )


class UntilToolNotCalled(RunError):
    """The model stopped without a result of the until tool, or without a successful one."""

    tools: list[str]
    success_required: bool

    def __init__(self, *, tools: Sequence[str], success_required: bool) -> None:
        names = ", ".join(repr(name) for name in tools)
        result = "a successful result" if success_required else "a result"
        super().__init__(
            f"The model stopped without {result} of {names}.",
            tools=list(tools),
            success_required=success_required,
        )


class MiddlewareError(RunError):
    """A hook raised. The error names the middleware and the hook; `__cause__` is what it raised."""

    middleware: str
    hook: str

    def __init__(self, *, middleware: str, hook: str, cause: str) -> None:
        super().__init__(
            f"{hook} of middleware {middleware!r} raised {cause}",
            middleware=middleware,
            hook=hook,
            cause=cause,
        )


class CostUnknown(MiddlewareError):
    """A limit needs to know what the run has cost, and a model that was asked has no price."""

    models: list[str]
    requests: int

    def __init__(self, *, middleware: str, hook: str, models: Sequence[str], requests: int) -> None:
        named = ", ".join(map(repr, models)) or "a model without a name"
        cause = (
            f"nobody knows what {requests} of its requests to {named} cost: give the model a price "
            "in the `pricing` of Limits or Runtime"
        )
        RunError.__init__(
            self,
            f"{middleware} cannot tell what the run has cost: {cause}",
            middleware=middleware,
            hook=hook,
            cause=cause,
            models=list(models),
            requests=requests,
        )


class StepFailed(RunError):
    """A step of the pipeline raised; `__cause__` is what it raised."""

    step: str

    def __init__(self, *, step: str, cause: str) -> None:
        super().__init__(f"Step {step!r} raised {cause}", step=step, cause=cause)


class AgentFailed(RunError):
    """An agent of a workflow failed, and so did the workflow.

    `error` is the agent's own error as data: `error_from_dict(failed.error)` rebuilds it.
    """

    agent: str
    error: dict[str, Any]

    def __init__(self, *, agent: str, error: Mapping[str, Any]) -> None:
        super().__init__(
            f"Agent {agent!r} failed: {error['type']}: {error['message']}",
            agent=agent,
            error=dict(error),
        )


class DefinitionChanged(RunError):
    """The agents of a workflow are not those with which its run started."""

    agent: str
    was: str
    now: str

    def __init__(self, *, agent: str, was: str, now: str) -> None:
        super().__init__(
            f"The workflow {agent!r} was {was} when its run started and is {now} now: continue "
            "with the definition that it started with, or start a new run.",
            agent=agent,
            was=was,
            now=now,
        )


class NotHaltable(RunError):
    """A tool raised `Halt`, and no agent from it up to the root has the `Haltable` middleware.

    The run ends nevertheless: a halt is never ignored.
    """

    tool: str
    agent_path: list[str]

    def __init__(self, *, tool: str, agent_path: Sequence[str], message: str) -> None:
        super().__init__(
            f"{tool!r} halted the run ({message}), but none of {' > '.join(agent_path)} has the "
            "Haltable middleware: add middleware=[Haltable()], so that a person gets the request.",
            tool=tool,
            agent_path=list(agent_path),
        )


class Quarantined(RunError):
    """The run was cut off several times in a row without progress.

    It keeps its state, and only `ref.retry()` continues it.
    """

    attempts: int
    cause: str

    def __init__(self, *, attempts: int, cause: str) -> None:
        super().__init__(
            f"The run was cut off {attempts} times in a row without progress, last by {cause}: "
            "remove the cause, then call ref.retry()",
            attempts=attempts,
            cause=cause,
        )


class WaitEnded(UnderstudyError):
    """A wait of a tool ended without a value: `ctx.wait_for` raises it, in every run of the tool.

    Where the tool does not catch it, it is the error that the model sees as the call's result.
    """

    name: str
    """The tool's name for the wait."""


class WaitExpired(WaitEnded):
    """Nobody answered the wait within its `timeout`."""

    def __init__(self, *, name: str) -> None:
        super().__init__(f"Nobody answered {name!r} in time", name=name)


class WaitRejected(WaitEnded):
    """The wait was answered by `reject`: it will have no value."""

    reason: str

    def __init__(self, *, name: str, reason: str) -> None:
        super().__init__(f"{name!r} was rejected: {reason}", name=name, reason=reason)


class NotExtracted(UnderstudyError):
    """`extract` ended without a value: `outcome` says how the run ended instead."""

    outcome: str

    def __init__(self, *, tool: str, outcome: str) -> None:
        super().__init__(
            f"No value of {tool!r}: the run ended as {outcome}", tool=tool, outcome=outcome
        )


class AgentNotMade(UnderstudyError):
    """`Runtime(factory=)` raised: the agent is not activated. The next call asks the factory again.

    What the factory raised is the `__cause__`, in this process.
    """

    agent_id: str
    agent: str
    """The name of the definition that was asked for."""
    cause: str

    def __init__(self, *, agent_id: str, agent: str, cause: str) -> None:
        super().__init__(
            f"The agent {agent_id!r} is not activated: Runtime(factory=) raised for the name "
            f"{agent!r}: {cause}",
            agent_id=agent_id,
            agent=agent,
            cause=cause,
        )


class CallLost(UnderstudyError):
    """The host of a cluster ended before it answered: whether the call was made is not known.

    Only of calls that must not be made twice. Look at the agent before you call again.
    """

    call: str
    host: str

    def __init__(self, *, call: str, host: str) -> None:
        super().__init__(
            f"Host {host!r} ended before it answered {call}(): whether that was done is not known, "
            "and it must not be done twice. Look at the agent's state, then call again if it must",
            call=call,
            host=host,
        )


class JournalFailed(UnderstudyError):
    """The journal refused a record, so the run stopped at once. Earlier records are kept.

    The caller gets it as an exception, as after a crash: continue from the journal.
    """


class StoreError(JournalFailed):
    """The store failed, or this runtime may not use it."""


class StoreInUse(StoreError):
    """The database serves one runtime, and another one has it open.

    Where another runtime owns a single agent, it is `OwnedElsewhere` instead.
    """

    path: str

    def __init__(self, *, path: str, holder: str = "") -> None:
        by = f" ({holder})" if holder else ""
        super().__init__(
            f"{path!r} is in use by another runtime{by}: a SQLite file serves one runtime. "
            "Stop that one, or let both use a PostgreSQL store.",
            path=path,
            holder=holder,
        )


class StoreUnavailable(StoreError):
    """The database cannot be reached or is locked; the operation is retried for some time."""

    cause: str

    def __init__(self, *, cause: str) -> None:
        super().__init__(
            f"The store cannot be reached: {cause}. Runs wait and retry; none continues without "
            "its records.",
            cause=cause,
        )


class StoreBroken(StoreError):
    """The store cannot write until it is repaired; the message says how."""

    cause: str
    is_final: bool
    """This process does not retry: after an I/O error it is unknown what is on disk."""

    def __init__(self, *, cause: str, remedy: str, is_final: bool = False) -> None:
        super().__init__(
            f"The store cannot write: {cause}. {remedy}",
            cause=cause,
            remedy=remedy,
            is_final=is_final,
        )


class StoreDamaged(StoreBroken):
    """Stored data cannot be read."""

    what: str

    def __init__(self, *, what: str, cause: str) -> None:
        UnderstudyError.__init__(
            self,
            f"The store is damaged: {what} cannot be read ({cause}). Restore it from a backup; "
            "the other agents in it are not affected.",
            what=what,
            cause=cause,
            is_final=False,
        )


class OwnedElsewhere(StoreError):
    """Another live runtime owns this agent, and cannot be asked: send to it there.

    It is of a version that answers no others, or it or this one has `any_host=False`.
    """

    agent_id: str
    host: str
    must_post: bool = False
    """This runtime must not run the agent. Of this process: it is no fact of the error."""

    def __init__(self, *, agent_id: str, host: str) -> None:
        super().__init__(
            f"Agent {agent_id!r} is owned by {host!r}: send to it there, or wait until that "
            "runtime stops or its lease ends",
            agent_id=agent_id,
            host=host,
        )


class UnfitHost(StoreError):
    """This runtime must not run this agent, and no other one that could lives now.

    It lacks a label that the agent needs, or has an older definition than the one that began its
    run, or is being drained. The agent is as it was: a host that fits goes on with it.
    """

    agent_id: str
    agent: str
    """The name of its definition."""
    missing: list[str]
    """The labels that it needs and this runtime lacks."""
    version: str | None
    """The fingerprint of the definition that began its run, where that is why."""
    draining: bool

    def __init__(
        self,
        *,
        agent_id: str,
        agent: str,
        missing: Collection[str] = (),
        version: str | None = None,
        waits: bool = False,
        draining: bool = False,
    ) -> None:
        super().__init__(
            f"Agent {agent_id!r} ({agent!r}) {_why_unfit(sorted(missing), version, waits=waits)}",
            agent_id=agent_id,
            agent=agent,
            missing=sorted(missing),
            version=version,
            waits=waits,
            draining=draining,
        )


def _why_unfit(missing: Sequence[str], version: str | None, *, waits: bool) -> str:
    if missing:
        labels = ", ".join(map(repr, missing))
        return (
            f"needs a host with {labels}, which this runtime has not, and no other one that has "
            f"can be reached: start one with Runtime(labels={{{labels}}}) and this definition"
        )
    if version is None:
        return (
            "is not taken by this runtime, which is being drained, and no other one that could run "
            "it can be reached: send to it when one has started"
        )
    remedy = (
        "start one, or give this definition on_version='newest'"
        if waits
        else "start one, or give this definition a higher `version`"
    )
    what = "does not continue those of others" if waits else "is older"
    return (
        f"has a run that was begun by another definition ({version}); the one of this runtime "
        f"{what}, and no other runtime that could go on with it can be reached: {remedy}"
    )


class Fenced(StoreError):
    """The agent has a later epoch, so what runs under this one may not write to it any more.

    Another runtime has taken it over. That is an orderly end: the agent continues there, and the
    next call to it here tries to claim it again. Or this runtime has abandoned the code that gets
    this error, because it went on after its cancellation.
    """

    agent_id: str

    def __init__(self, *, agent_id: str, why: str) -> None:
        super().__init__(
            f"Agent {agent_id!r} is no longer owned by this runtime: {why}",
            agent_id=agent_id,
            why=why,
        )


class StoreConflict(StoreError):
    """A record's number is not the next one: two writers use one epoch, a defect."""

    agent_id: str

    def __init__(self, *, agent_id: str, expected: int, got: int) -> None:
        super().__init__(
            f"Agent {agent_id!r}: the next record must be number {expected}, got {got}",
            agent_id=agent_id,
            expected=expected,
            got=got,
        )


class RecordRefused(StoreError):
    """No store accepts this record; other records are not affected."""

    kind: str

    def __init__(self, *, kind: str, why: str) -> None:
        super().__init__(f"A record of kind {kind!r} cannot be stored: {why}", kind=kind, why=why)


def _rebuild(cls: type[UnderstudyError], message: str, facts: dict[str, Any]) -> UnderstudyError:
    error = cls.__new__(cls)
    UnderstudyError.__init__(error, message, **facts)
    return error


def _subclasses(cls: type[UnderstudyError]) -> dict[str, type[UnderstudyError]]:
    """By name, `cls` and all of its subclasses that are loaded."""
    found = {cls.__name__: cls}
    for child in cls.__subclasses__():
        found.update(_subclasses(child))
    return found


def error_from_dict(data: Mapping[str, Any]) -> UnderstudyError:
    """Rebuild an error from its `to_dict`. An unknown type becomes a `RunError`."""
    cls = _subclasses(UnderstudyError).get(str(data["type"]), RunError)
    return _rebuild(cls, str(data["message"]), dict(data["facts"]))
