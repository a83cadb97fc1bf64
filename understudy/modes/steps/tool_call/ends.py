"""What ends a tool call, whatever the middleware around it does with exceptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from understudy._base.json_values import text_of
from understudy.errors import JournalFailed, MiddlewareError
from understudy.interrupts import Halt, Interrupt, Request
from understudy.run.child_calls import CallSuspended
from understudy.run.run import AttemptEnded
from understudy.run.tool_call import ToolCall
from understudy.stopping import StopAgent, StopSignal, StopSignals
from understudy.tools import OutcomeUnknown


class CallEnded(BaseException):
    """Ends a call, whatever the middleware around it does with exceptions."""


class NeedsDecision(CallEnded):
    """What is about to run is not what was approved, or needs an approval now."""

    def __init__(self, call: ToolCall, requests: Sequence[Request] = ()) -> None:
        super().__init__()
        self.call = call
        self.requests = requests


class ToolInterrupt(CallEnded):
    """The tool raised `Interrupt`: several times, if it raised a group of exceptions."""

    def __init__(self, interrupts: Sequence[Interrupt], *, child_suspended: bool) -> None:
        super().__init__()
        self.interrupts = interrupts
        self.child_suspended = child_suspended
        """An agent that the call runs waits, or another part of it at a point, too."""


class HookAsks(CallEnded):
    """A middleware around the call raised `Interrupt` before the call was passed on."""

    def __init__(self, call: ToolCall, interrupts: list[Interrupt], error: MiddlewareError) -> None:
        super().__init__()
        self.call = call
        self.interrupts = interrupts
        self.error = error


class ToolStop(CallEnded):
    """The tool, or a middleware around it, raised `StopAgent`."""

    def __init__(self, signal: StopSignal) -> None:
        super().__init__()
        self.signal = signal


class ToolHalt(CallEnded):
    """The tool raised `Halt`."""

    def __init__(self, halt: Halt) -> None:
        super().__init__()
        self.halt = halt


class TimedOut(CallEnded):
    """The time limit of a tool that is not idempotent passed."""

    def __init__(self, *, entered: bool) -> None:
        super().__init__()
        self.entered = entered


class InDoubt(CallEnded):
    """A tool that is not idempotent raised `OutcomeUnknown`."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason


def control_signal(error: BaseException) -> BaseException | None:
    """What an exception of a tool asks of the run, if it is more than an error of the tool.

    In an exception group it is found at any depth, whatever else is there. A store that
    failed comes first, then a halt, then questions, then a stop.
    """
    leaves = list(_leaves(error))
    for leaf in leaves:
        if isinstance(leaf, JournalFailed):
            return leaf
    halts = [leaf for leaf in leaves if isinstance(leaf, Halt)]
    if halts:
        return ToolHalt(halts[0])
    interrupts = [leaf for leaf in leaves if isinstance(leaf, Interrupt)]
    suspended = any(isinstance(leaf, (CallSuspended, AttemptEnded)) for leaf in leaves)
    if interrupts:
        return ToolInterrupt(interrupts, child_suspended=suspended)
    if suspended:
        return CallSuspended()
    signals = StopSignals(tuple(leaf.signal for leaf in leaves if isinstance(leaf, StopAgent)))
    return None if signals.highest is None else ToolStop(signals.highest)


def unknown_outcome(error: BaseException) -> InDoubt | None:
    """The doubt about a call whose tool raised `OutcomeUnknown`, at any depth of a group."""
    for leaf in _leaves(error):
        if isinstance(leaf, OutcomeUnknown):
            return InDoubt(text_of(leaf) or "the tool cannot know whether it took effect")
    return None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group, at any depth; of any other exception, the exception itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
