"""Everything that can go wrong, drawn as a tree and divided by whose move is next.

    UnderstudyError
    ├── UsageError                the caller: a wrong argument, raised before anything runs
    │   ├── DecisionError         an answer that does not fit the request it names
    │   ├── NotInterrupted        there is no request that waits for this answer
    │   ├── MissingValue          the instructions read a key that the state lacks
    │   ├── SchemaVersionError    a stored state of a newer schema than this version knows
    │   └── WouldDeadlock         waiting here would block the event loop that has to answer
    ├── RunError                  why a run ended as `Failed`; never raised at the caller
    │   ├── ModelFailed           the model and all of its fallbacks
    │   ├── StreamBroken          the model, in the middle of a reply
    │   ├── RunLimitExceeded      the run's own limit
    │   ├── UntilToolNotCalled    the model, which stopped without the tool it had to call
    │   ├── MiddlewareError       a middleware's hook
    │   ├── Quarantined           whatever crashes the run whenever it is tried
    │   └── StepFailed            a step of the pipeline
    ├── NotExtracted              `extract` ended without a value
    └── JournalFailed             the store: nothing may go on unrecorded

What a tool raises on purpose (`Retry`, `Interrupt`) is no error: see `tools` and `interrupts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "DecisionError",
    "JournalFailed",
    "MiddlewareError",
    "MissingValue",
    "ModelFailed",
    "NotExtracted",
    "NotInterrupted",
    "Quarantined",
    "RunError",
    "RunLimitExceeded",
    "SchemaVersionError",
    "StepFailed",
    "StreamBroken",
    "UnderstudyError",
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

    def __init__(self, *, version: object, known: int) -> None:
        super().__init__(
            f"This state has schema version {version!r}, but this understudy reads versions up to "
            f"{known}: upgrade understudy, or read the state where it was written.",
            version=version,
            known=known,
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
