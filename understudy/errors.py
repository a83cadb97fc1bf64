"""Everything that can go wrong, drawn as a tree and divided by whose move is next.

    UnderstudyError
    ├── UsageError                the caller: a wrong argument, raised before anything runs
    │   ├── DecisionError         an answer that does not fit the request it names
    │   ├── NotInterrupted        there is no request that waits for this answer
    │   ├── MissingValue          the instructions read a key that the state lacks
    │   ├── UnknownAgent          there is no agent of this id
    │   ├── OtherAgent            there is an agent of another definition under this id
    │   ├── SchemaVersionError    a stored state of a newer schema than this version knows
    │   ├── ForkedRuntime         a runtime of the process that this one was forked from
    │   └── WouldDeadlock         waiting here would block the event loop that has to answer
    ├── RunError                  why a run ended as `Failed`; never raised at the caller
    │   ├── ModelFailed           the model and all of its fallbacks
    │   ├── StreamBroken          the model, in the middle of a reply
    │   ├── RunLimitExceeded      the run's own limit
    │   ├── UntilToolNotCalled    the model, which stopped without the tool it had to call
    │   ├── MiddlewareError       a middleware's hook
    │   ├── AgentFailed           an agent of a workflow
    │   ├── DefinitionChanged     who changed the workflow while it was going on
    │   ├── NotHaltable           a tool that halts an agent which cannot be halted
    │   ├── Quarantined           whatever crashes the run whenever it is tried
    │   └── StepFailed            a step of the pipeline
    ├── NotExtracted              `extract` ended without a value
    └── JournalFailed             the journal: nothing may go on unrecorded
        └── StoreError            the store under it, or who else uses it
            ├── StoreInUse        another runtime has the database, which is for one alone
            ├── StoreUnavailable  the database cannot be reached just now: try again
            ├── StoreBroken       disk full, read-only, I/O error: mend it, then go on
            │   └── StoreDamaged  what it holds cannot be read
            ├── OwnedElsewhere    another runtime owns this agent
            ├── Fenced            another runtime took this agent over: leave it alone
            ├── StoreConflict     two writers under one epoch: a defect of ours
            └── RecordRefused     this one record is too large, or cannot be written

What a tool raises on purpose (`Retry`, `Interrupt`) is no error: see `tools` and `interrupts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "AgentFailed",
    "DecisionError",
    "DefinitionChanged",
    "Fenced",
    "ForkedRuntime",
    "JournalFailed",
    "MiddlewareError",
    "MissingValue",
    "ModelFailed",
    "NotExtracted",
    "NotHaltable",
    "NotInterrupted",
    "OtherAgent",
    "OwnedElsewhere",
    "Quarantined",
    "RecordRefused",
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
    "UnknownAgent",
    "UntilToolNotCalled",
    "UsageError",
    "WouldDeadlock",
    "error_from_dict",
]


class UnderstudyError(Exception):
    """The root of the tree.

    The facts of an error are attributes of it and JSON-able, so that it can be pickled, stored
    with a run's outcome and told in another process.
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
    """The caller gave something that cannot be right; nothing has run, nothing is lost."""


class DecisionError(UsageError):
    """An answer does not fit: an unknown or stale request id, a decision that is not allowed.

    Nothing ran, the interrupt still stands, and a right answer still works (I5). When no request
    stands at all, or this one was answered differently before, it is `NotInterrupted` instead.
    """

    request_id: str | None

    def __init__(self, message: str, *, request_id: str | None = None) -> None:
        super().__init__(message, request_id=request_id)


class NotInterrupted(UsageError):
    """There is nothing to answer: the run is not interrupted, or the answer came before (I5)."""


class MissingValue(UsageError):
    """The instructions read `{key}`, and the agent's values have no such key (W4)."""

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
            f"{known}: upgrade understudy, or read the {what} where it was written.",
            version=version,
            known=known,
            what=what,
        )


class UnknownAgent(UsageError):
    """There is no agent of this id, in memory or in the store."""

    agent_id: str

    def __init__(self, *, agent_id: str) -> None:
        super().__init__(
            f"There is no agent {agent_id!r}: spawn(agent, id={agent_id!r}) makes it",
            agent_id=agent_id,
        )


class OtherAgent(UsageError):
    """Under this id there is an agent of another definition; it is not touched."""

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


class ForkedRuntime(UsageError):
    """This process was forked from the one whose runtime this is: its loop is not here."""

    def __init__(self) -> None:
        super().__init__(
            "This runtime belongs to the process that this one was forked from: make a Runtime "
            "after the fork"
        )


class WouldDeadlock(UsageError):
    """To wait here would block the event loop that runs in this thread, perhaps for ever.

    It is raised at once, before anything is sent. A wait whose time is over is `pykka.Timeout`.
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
    """Why a run ended as `Failed`. It is found in `outcome.error`; a run never raises it."""


class ModelFailed(RunError):
    """The model raised, and so did every fallback (R5). The last cause is `__cause__`."""

    failures: list[dict[str, str]]

    def __init__(self, *, failures: Sequence[Mapping[str, str]]) -> None:
        told = "; ".join(f"{f['model']}: {f['type']}: {f['message']}" for f in failures)
        super().__init__(f"No model answered: {told}", failures=[dict(f) for f in failures])


class StreamBroken(RunError):
    """A stream ended in the middle of a reply; what had come is kept in the state (R6)."""

    model: str
    cause: str

    def __init__(self, *, model: str, cause: str) -> None:
        super().__init__(
            f"The stream of {model!r} broke in the middle of a reply: {cause}",
            model=model,
            cause=cause,
        )


class RunLimitExceeded(RunError):
    """One more model call was due than `max_runs` allows (R1). The state is kept."""

    max_runs: int

    def __init__(self, *, max_runs: int) -> None:
        super().__init__(
            f"The run made its {max_runs} model calls and was not finished: raise max_runs, or "
            "run it again from the state of this outcome.",
            max_runs=max_runs,
        )


class UntilToolNotCalled(RunError):
    """The model stopped without a (successful, if asked so) result of the until tool (U5)."""

    tools: list[str]
    success_required: bool

    def __init__(self, *, tools: Sequence[str], success_required: bool) -> None:
        names = ", ".join(repr(name) for name in tools)
        wanted = "a successful result" if success_required else "a result"
        super().__init__(
            f"The model stopped without {wanted} of {names}.",
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


class StepFailed(RunError):
    """A step of the pipeline raised; `__cause__` is what it raised."""

    step: str

    def __init__(self, *, step: str, cause: str) -> None:
        super().__init__(f"Step {step!r} raised {cause}", step=step, cause=cause)


class AgentFailed(RunError):
    """An agent of a workflow failed, and so did the workflow (W6).

    `error` is the agent's own, as data: `error_from_dict(failed.error)` makes it again.
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
    """The agents of a workflow are not those with which its run began (J12)."""

    agent: str
    was: str
    now: str

    def __init__(self, *, agent: str, was: str, now: str) -> None:
        super().__init__(
            f"The workflow {agent!r} was {was} when its run began and is {now} now: go on with "
            "the definition that it began with, or start a new run.",
            agent=agent,
            was=was,
            now=now,
        )


class NotHaltable(RunError):
    """A tool raised `Halt`, and no agent from it up to the root has the `Haltable` middleware.

    The run ends all the same: a halt is never ignored.
    """

    tool: str
    agent_path: list[str]

    def __init__(self, *, tool: str, agent_path: Sequence[str], message: str) -> None:
        super().__init__(
            f"{tool!r} halted the run ({message}), but none of {' > '.join(agent_path)} has the "
            "Haltable middleware: add middleware=[Haltable()], so that a person is told.",
            tool=tool,
            agent_path=list(agent_path),
        )


class Quarantined(RunError):
    """The run crashed again and again without getting any further (J10).

    It stands where it stood, and nothing wakes it but `ref.retry()`.
    """

    attempts: int
    cause: str

    def __init__(self, *, attempts: int, cause: str) -> None:
        super().__init__(
            f"The run crashed {attempts} times in a row without getting further, last by {cause}: "
            "mend the cause, then ref.retry()",
            attempts=attempts,
            cause=cause,
        )


class NotExtracted(UnderstudyError):
    """`extract` ended without a value: `outcome` says how the run ended instead (U7)."""

    outcome: str

    def __init__(self, *, tool: str, outcome: str) -> None:
        super().__init__(
            f"No value of {tool!r}: the run ended as {outcome}", tool=tool, outcome=outcome
        )


class JournalFailed(UnderstudyError):
    """The journal refused a record, so the run stopped at once: what it recorded still stands.

    This is raised at the caller, as a crash is: continue from the journal.
    """


class StoreError(JournalFailed):
    """Something is wrong with the store, or with who may use it."""


class StoreInUse(StoreError):
    """The database is for one runtime, and another one has it now.

    Where another runtime owns one agent only, it is `OwnedElsewhere`.
    """

    path: str

    def __init__(self, *, path: str, holder: str = "") -> None:
        by = f" ({holder})" if holder else ""
        super().__init__(
            f"{path!r} is in use by another runtime{by}: one SQLite file is for one runtime. "
            "Stop that one, or let both use a PostgreSQL store.",
            path=path,
            holder=holder,
        )


class StoreUnavailable(StoreError):
    """The database cannot be reached or is locked just now; it is tried again for a while."""

    cause: str

    def __init__(self, *, cause: str) -> None:
        super().__init__(
            f"The store cannot be reached just now: {cause}. Runs wait and try again; nothing "
            "goes on unrecorded.",
            cause=cause,
        )


class StoreBroken(StoreError):
    """The store can keep nothing until somebody mends it; the message says how."""

    cause: str
    is_final: bool
    """It is not tried again in this process: after an I/O error nobody knows what is on disk."""

    def __init__(self, *, cause: str, remedy: str, is_final: bool = False) -> None:
        super().__init__(
            f"The store keeps nothing: {cause}. {remedy}",
            cause=cause,
            remedy=remedy,
            is_final=is_final,
        )


class StoreDamaged(StoreBroken):
    """What the store holds cannot be read."""

    what: str

    def __init__(self, *, what: str, cause: str) -> None:
        UnderstudyError.__init__(
            self,
            f"The store is damaged: {what} cannot be read ({cause}). Restore it from a copy; "
            "the other agents in it are not touched.",
            what=what,
            cause=cause,
            is_final=False,
        )


class OwnedElsewhere(StoreError):
    """Another runtime owns this agent, and is alive (J6): speak to it there."""

    agent_id: str
    host: str

    def __init__(self, *, agent_id: str, host: str) -> None:
        super().__init__(
            f"Agent {agent_id!r} is owned by {host!r}: send to it there, or wait until that "
            "runtime stops or its lease ends",
            agent_id=agent_id,
            host=host,
        )


class Fenced(StoreError):
    """Another runtime has taken this agent over, so this one writes nothing to it any more (J7).

    An orderly end: the agent goes on there. The next call to it here tries to claim it anew.
    """

    agent_id: str

    def __init__(self, *, agent_id: str, why: str) -> None:
        super().__init__(
            f"Agent {agent_id!r} is not this runtime's any more: {why}", agent_id=agent_id, why=why
        )


class StoreConflict(StoreError):
    """A record's number is not the next one: two writers under one epoch, which must not be."""

    agent_id: str

    def __init__(self, *, agent_id: str, expected: int, got: int) -> None:
        super().__init__(
            f"Agent {agent_id!r}: the next record is number {expected}, not {got}",
            agent_id=agent_id,
            expected=expected,
            got=got,
        )


class RecordRefused(StoreError):
    """This record is kept by no store; others are not concerned (J16)."""

    kind: str

    def __init__(self, *, kind: str, why: str) -> None:
        super().__init__(f"A record of kind {kind!r} cannot be kept: {why}", kind=kind, why=why)


def _rebuild(cls: type[UnderstudyError], message: str, facts: dict[str, Any]) -> UnderstudyError:
    error = cls.__new__(cls)
    UnderstudyError.__init__(error, message, **facts)
    return error


def _tree(cls: type[UnderstudyError]) -> dict[str, type[UnderstudyError]]:
    found = {cls.__name__: cls}
    for child in cls.__subclasses__():
        found.update(_tree(child))
    return found


def error_from_dict(data: Mapping[str, Any]) -> UnderstudyError:
    """Rebuild an error from `to_dict`. A type that is not known here becomes a `RunError`."""
    cls = _tree(UnderstudyError).get(str(data["type"]), RunError)
    return _rebuild(cls, str(data["message"]), dict(data["facts"]))
