"""The reasons why a run stops: signals, their priority, and the decision whether to continue.

All values here are immutable, and `from_dict(value.to_dict())` is equal to `value`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from understudy._base.json_values import checked_json, storable_text
from understudy.errors import UsageError

__all__ = ["ExecutionContinuation", "StopAgent", "StopReason", "StopSignal", "StopSignals"]


class StopReason(str, Enum):
    """The reason why a run stops. Of several reasons the one with the lowest `priority` wins.

    A reason is equal to its text: `StopReason.ERROR == "error"`.
    """

    ERROR = "error"
    """An error after which the run must not continue."""
    STOP_REQUESTED = "stop_requested"
    """A tool or a hook stops the run."""
    STEPS_LIMIT = "steps_limit"
    """The run has made as many steps as it may."""
    USER_REQUESTED = "user_requested"
    """A person stops the run."""
    TOKEN_LIMIT = "token_limit"  # noqa: S105  # no password: tokens of a model
    """The run has used as many tokens as it may."""
    COST_LIMIT = "cost_limit"
    """The run has cost as much as it may."""
    BUDGET = "budget"
    """A budget of the runtime has no room for the next action of the run."""
    TIME_LIMIT = "time_limit"
    """The run has taken as long as it may."""
    RETRY_LIMIT = "retry_limit"
    """An operation has failed too often."""
    FINISH_REASON = "finish_reason"
    """The model's finish reason ends the run. It is not a forced stop."""
    COMPLETED = "completed"
    """The work is done. It is not a forced stop."""
    UNKNOWN = "unknown"

    @property
    def priority(self) -> int:
        """The priority, from 0 (the strongest) to 9."""
        return _PRIORITIES[self]

    @property
    def was_force_stopped(self) -> bool:
        """Whether the run was forced to stop. False for `COMPLETED` and `FINISH_REASON`."""
        return self not in (StopReason.COMPLETED, StopReason.FINISH_REASON)

    @classmethod
    def of(cls, name: str) -> StopReason:
        """Return the reason with this value.

        Raises:
            UsageError: if there is no such reason; the message lists all of them.

        """
        try:
            return cls(name)
        except ValueError:
            known = ", ".join(reason.value for reason in cls)
            raise UsageError(f"{name!r} is not a stop reason; there are: {known}") from None


_PRIORITIES = {
    StopReason.ERROR: 0,
    StopReason.STOP_REQUESTED: 1,
    StopReason.STEPS_LIMIT: 2,
    StopReason.USER_REQUESTED: 2,
    StopReason.TOKEN_LIMIT: 3,
    StopReason.COST_LIMIT: 3,
    StopReason.BUDGET: 3,
    StopReason.TIME_LIMIT: 4,
    StopReason.RETRY_LIMIT: 5,
    StopReason.FINISH_REASON: 6,
    StopReason.COMPLETED: 8,
    StopReason.UNKNOWN: 9,
}


@dataclass(frozen=True, slots=True)
class StopSignal:
    """A request to stop the run, for one reason and from one source.

    Each reason has a factory, such as `StopSignal.token_limit("900 of 800 used", used=900)`. The
    keywords of a factory are the context. If a message or source is not valid Unicode, each invalid
    character is stored as `?`.

    Raises:
        UsageError: if the reason is unknown, or the context is not JSON-able.

    """

    reason: StopReason
    message: str = ""
    context: Mapping[str, Any] = field(default_factory=dict, hash=False)
    source: str | None = None
    """The name of the guard that emitted the signal. Overrides are counted for each source."""

    def __post_init__(self) -> None:
        reason = self.reason if isinstance(self.reason, StopReason) else StopReason.of(self.reason)
        if not isinstance(self.message, str):
            raise UsageError(f"StopSignal(message=...) must be text, got {self.message!r}")
        if self.source is not None and not isinstance(self.source, str):
            raise UsageError(f"StopSignal(source=...) must be text or None, got {self.source!r}")
        context = checked_json(self.context, what="StopSignal(context=...)", is_shown=True)
        object.__setattr__(self, "reason", reason)
        object.__setattr__(self, "context", context)
        # Mended, not refused: a stop must not get lost because of its wording.
        object.__setattr__(self, "message", storable_text(self.message))
        if self.source is not None:
            object.__setattr__(self, "source", storable_text(self.source))

    @classmethod
    def error(cls, message: str = "", *, source: str | None = None, **context: Any) -> StopSignal:
        """Return a signal for an error after which the run must not continue."""
        return cls(StopReason.ERROR, message, context, source)

    @classmethod
    def stop_requested(
        cls, message: str = "", *, source: str | None = None, **context: Any
    ) -> StopSignal:
        """Return a signal by which a tool or a hook stops the run."""
        return cls(StopReason.STOP_REQUESTED, message, context, source)

    @classmethod
    def steps_limit(
        cls, message: str = "", *, source: str | None = None, **context: Any
    ) -> StopSignal:
        """Return a signal for a run that has made as many steps as it may."""
        return cls(StopReason.STEPS_LIMIT, message, context, source)

    @classmethod
    def user_requested(
        cls, message: str = "", *, source: str | None = None, **context: Any
    ) -> StopSignal:
        """Return a signal by which a person stops the run."""
        return cls(StopReason.USER_REQUESTED, message, context, source)

    @classmethod
    def token_limit(
        cls, message: str = "", *, source: str | None = None, **context: Any
    ) -> StopSignal:
        """Return a signal for a run that has used as many tokens as it may."""
        return cls(StopReason.TOKEN_LIMIT, message, context, source)

    @classmethod
    def cost_limit(
        cls, message: str = "", *, source: str | None = None, **context: Any
    ) -> StopSignal:
        """Return a signal for a run that has cost as much as it may."""
        return cls(StopReason.COST_LIMIT, message, context, source)

    @classmethod
    def budget(cls, message: str = "", *, source: str | None = None, **context: Any) -> StopSignal:
        """Return a signal for a run whose next action has no room in a budget of the runtime."""
        return cls(StopReason.BUDGET, message, context, source)

    @classmethod
    def time_limit(
        cls, message: str = "", *, source: str | None = None, **context: Any
    ) -> StopSignal:
        """Return a signal for a run that has taken as long as it may."""
        return cls(StopReason.TIME_LIMIT, message, context, source)

    @classmethod
    def retry_limit(
        cls, message: str = "", *, source: str | None = None, **context: Any
    ) -> StopSignal:
        """Return a signal for an operation that has failed too often."""
        return cls(StopReason.RETRY_LIMIT, message, context, source)

    @classmethod
    def finish_reason(
        cls, message: str = "", *, source: str | None = None, **context: Any
    ) -> StopSignal:
        """Return a signal for a run that the model's finish reason ends. It is not a forced
        stop.
        """
        return cls(StopReason.FINISH_REASON, message, context, source)

    @classmethod
    def completed(
        cls, message: str = "", *, source: str | None = None, **context: Any
    ) -> StopSignal:
        """Return a signal for a run whose work is done. It is not a forced stop."""
        return cls(StopReason.COMPLETED, message, context, source)

    def __str__(self) -> str:
        text = self.reason.value + (f": {self.message}" if self.message else "")
        return text + (f" (from {self.source!r})" if self.source else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the signal as plain data."""
        return {
            "reason": self.reason.value,
            "message": self.message,
            "context": dict(self.context),
            "source": self.source,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> StopSignal:
        """Return the signal from its `to_dict`.

        Raises:
            UsageError: if `data` is not a stored signal, or its reason is unknown.

        """
        if not isinstance(data, Mapping) or "reason" not in data:
            raise UsageError(f"This is not a stored StopSignal: it has no 'reason': {data!r}")
        return cls(
            StopReason.of(data["reason"]),
            data.get("message", ""),
            data.get("context", {}),
            data.get("source"),
        )


class StopAgent(Exception):
    """Raise it in a tool to stop the run.

    Calls that were started finish. The other calls get a result that says that they did not run.
    Then the run stops by exactly this signal. No middleware can swallow it.

    Raises:
        UsageError: if `signal` is not a `StopSignal`.

    """

    def __init__(self, signal: StopSignal) -> None:
        if not isinstance(signal, StopSignal):
            raise UsageError(
                f"StopAgent takes a StopSignal, such as StopSignal.stop_requested('why'), got "
                f"{signal!r}"
            )
        super().__init__(signal)
        self.signal = signal

    def __str__(self) -> str:
        return str(self.signal)


@dataclass(frozen=True, slots=True)
class StopSignals:
    """The stop signals of a run, in the order in which they were added."""

    signals: tuple[StopSignal, ...] = ()

    def __post_init__(self) -> None:
        signals = tuple(self.signals) if isinstance(self.signals, Iterable) else (self.signals,)
        for signal in signals:
            if not isinstance(signal, StopSignal):
                raise UsageError(f"StopSignals takes StopSignal objects, got {signal!r}")
        object.__setattr__(self, "signals", signals)

    def with_signal(self, signal: StopSignal) -> StopSignals:
        """Return a copy with one more signal at its end."""
        return StopSignals((*self.signals, signal))

    @property
    def first(self) -> StopSignal | None:
        """The earliest signal; None if there is none."""
        return self.signals[0] if self.signals else None

    @property
    def highest(self) -> StopSignal | None:
        """The strongest signal; None if there is no signal.

        It has the lowest `priority`. Of equal priorities `USER_REQUESTED` wins, then the earliest
        signal.
        """
        return min(self.signals, key=_rank, default=None)

    def __len__(self) -> int:
        return len(self.signals)

    def __iter__(self) -> Iterator[StopSignal]:
        return iter(self.signals)

    def to_dict(self) -> dict[str, Any]:
        """Return the signals as plain data."""
        return {"signals": [signal.to_dict() for signal in self.signals]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> StopSignals:
        """Return the signals from their `to_dict`.

        Raises:
            UsageError: if `data` is not stored signals.

        """
        if not isinstance(data, Mapping) or not isinstance(data.get("signals"), Sequence):
            raise UsageError(f"These are not stored StopSignals: no list of 'signals': {data!r}")
        return cls(tuple(StopSignal.from_dict(signal) for signal in data["signals"]))


def _rank(signal: StopSignal) -> tuple[int, bool]:
    return signal.reason.priority, signal.reason is not StopReason.USER_REQUESTED


@dataclass(frozen=True, slots=True)
class ExecutionContinuation:
    """The decision whether a run continues: signals stop it unless a continuation was requested."""

    signals: StopSignals = field(default_factory=StopSignals)
    continuation_requested: bool = False

    @property
    def should_stop(self) -> bool:
        """Whether the run stops: there is a signal, and no continuation was requested."""
        return bool(self.signals.signals) and not self.continuation_requested

    def with_signal(self, signal: StopSignal) -> ExecutionContinuation:
        """Return a copy with one more signal."""
        return replace(self, signals=self.signals.with_signal(signal))

    def with_continuation(self, *, requested: bool = True) -> ExecutionContinuation:
        """Return a copy in which the signals are overridden. With `requested=False` they are
        not.
        """
        return replace(self, continuation_requested=requested)

    def explain(self) -> str:
        """Return one sentence that says whether the run continues, and why."""
        highest = self.signals.highest
        if highest is None:
            return "Goes on: nothing asks to stop."
        more = len(self.signals) - 1
        why = f"{highest}" + (f", and {more} more" if more else "")
        if self.continuation_requested:
            return f"Goes on: a continuation was requested, although this asks to stop: {why}."
        return f"Stops: {why}."

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as plain data."""
        return {**self.signals.to_dict(), "continuation_requested": self.continuation_requested}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ExecutionContinuation:
        """Return the decision from its `to_dict`.

        Raises:
            UsageError: if `data` is not a stored decision.

        """
        signals = StopSignals.from_dict(data)
        requested = data.get("continuation_requested")
        if not isinstance(requested, bool):
            raise UsageError(
                "This is not a stored ExecutionContinuation: 'continuation_requested' must be a "
                f"bool, got {requested!r}"
            )
        return cls(signals, requested)
