"""Interfaces to watch runs from outside: their attempts, calls and records. They decide nothing.

The package that reports to OpenTelemetry is a layer above. A run knows only these interfaces.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic_ai.models import Model

from understudy._base.json_values import shown
from understudy.errors import UsageError

if TYPE_CHECKING:
    from understudy.outcomes import Outcome
    from understudy.run.ledger import Ledger
    from understudy.state.records import Result
    from understudy.state.run_state import Call

RunT_contra = TypeVar("RunT_contra", contravariant=True)


class AttemptWatch(ABC):
    """Watches one attempt at a run."""

    trace: str | None
    """The trace that is recorded with the attempt and given to the watch of the next attempt."""

    @abstractmethod
    def ended(self, outcome: Outcome) -> None:
        """Note that the attempt has ended with an outcome, and not with an exception."""


class CallWatch(ABC):
    """Watches one attempt at a tool call."""

    @abstractmethod
    def ended(self, result: Result | None) -> None:
        """Note that the call has this result; None if it has asked a person instead."""


class Instrument(ABC, Generic[RunT_contra]):
    """Watches runs. None of its methods raises, and none of them blocks.

    `RunT_contra` is `Run`, which is defined in `run.run`: a run holds its instrument.

    A context manager is entered in the task that it watches. So the context variables that it sets
    reach the code inside, also in threads. It lets every exception pass.
    """

    @abstractmethod
    def attempt(self, run: RunT_contra) -> AbstractContextManager[AttemptWatch]:
        """Watch an attempt at a run, also at a run inside another run. A wait is not watched."""

    @abstractmethod
    def tool_call(self, run: RunT_contra, call: Call) -> AbstractContextManager[CallWatch]:
        """Watch an attempt at a tool call. A finished call that is read back is not watched."""

    @abstractmethod
    def model_call(self, run: RunT_contra, model: Model) -> AbstractContextManager[Model]:
        """Watch a request to a model. It gives the model to ask in its place."""

    @abstractmethod
    def follow(self, ledger: Ledger) -> None:
        """Follow the records of a ledger, by `Ledger.follow`."""

    @abstractmethod
    def restarted(self, ledger: Ledger) -> None:
        """Note that the actor of this ledger's agent has crashed, and another actor replaces it."""


class GivesInstrument(ABC):
    """An object that `telemetry=` takes."""

    @abstractmethod
    def instrument(self) -> Instrument[Any] | None:
        """The instrument for runs from now on; None if nobody would get its reports."""


def checked_telemetry(given: object) -> GivesInstrument | None:
    """The object that `telemetry=` was given.

    Raises:
        UsageError: if the object is something else.

    """
    if given is None or (isinstance(given, GivesInstrument) and not isinstance(given, type)):
        return given
    raise UsageError(f"`telemetry` must be a Telemetry of understudy.telemetry, got {shown(given)}")


def instrument_of(given: object) -> Instrument[Any] | None:
    """The instrument of a run that gets this `telemetry=`.

    Raises:
        UsageError: as in `checked_telemetry`.

    """
    telemetry = checked_telemetry(given)
    return None if telemetry is None else telemetry.instrument()
