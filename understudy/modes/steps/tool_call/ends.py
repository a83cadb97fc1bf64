"""What ends a tool call, whatever the middleware around it does with exceptions."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence

from understudy._base.error_texts import error_text
from understudy._base.json_values import text_of
from understudy.errors import JournalFailed, MiddlewareError
from understudy.interrupts import Halt, Interrupt, Request
from understudy.modes.steps.tool_call.arguments import ReadyCall
from understudy.modes.steps.tool_call.votes import AskedNow
from understudy.run.child_calls import CallSuspended
from understudy.run.run import AttemptEnded, Run
from understudy.run.tool_call import ToolCall
from understudy.state.folds.ends import done_by_call
from understudy.stopping import StopAgent, StopSignal, StopSignals
from understudy.tools import OutcomeUnknown
from understudy.tools.effects import Known, what_is_known
from understudy.tools.result import FAILURES, RETRIES, RemoteToolError, ResultLost
from understudy.trust.freezes import Stop


class CallEnded(BaseException):
    """Ends a call, whatever the middleware around it does with exceptions."""


class NeedsDecision(CallEnded):
    """What is about to run is not what was approved, or needs an approval now."""

    def __init__(
        self,
        ready: ReadyCall,
        asked: Sequence[AskedNow] = (),
        why: str | None = None,
        ended: Sequence[Request] = (),
    ) -> None:
        super().__init__()
        self.ready = ready
        self.asked = asked
        """The additional questions; if there are none, everything that was asked is asked again."""
        self.why = why
        """The reason; None if the reason is that something else is about to run."""
        self.ended = ended
        """Its requests that were decided by grants which do not hold any more. They alone are asked
        again."""


class ToolInterrupt(CallEnded):
    """The tool raised `Interrupt`: several times, if it raised a group of exceptions."""

    def __init__(self, interrupts: Sequence[Interrupt], *, child_suspended: bool) -> None:
        super().__init__()
        self.interrupts = interrupts
        self.child_suspended = child_suspended
        """Whether an agent that the call runs waits too, or another part of the call at a point."""


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
        self.is_before_body = False
        """Whether a middleware raised it and had not passed the call on."""
        self.doubt: str | None = None
        """The reason for which nobody knows what else the call did; None if it is known."""


class ToolHalt(CallEnded):
    """The tool raised `Halt`."""

    def __init__(self, halt: Halt) -> None:
        super().__init__()
        self.halt = halt
        self.doubt: str | None = None
        """The reason for which nobody knows what else the call did; None if it is known."""


class NotEntered(CallEnded):
    """The time limit of a tool passed before its body was entered: it waited for a thread."""


class Held(CallEnded):
    """The call may not start now, at this host or at all: its start counts as never entered.

    The attempt ends. The run continues where calls may start, or once it is not frozen any more.

    Args:
        stop: the reason.

    """

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.why)
        self.stop = stop


class DeniedByRule(CallEnded):
    """A rule of the application denies the call with the arguments that a middleware gave it.

    Args:
        text: for the model.

    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class InDoubt(CallEnded):
    """The body of a tool was entered, and nobody knows what it did.

    The call is not made again by itself, unless the tool is idempotent: then under the same key.
    """

    def __init__(self, reason: str, error: BaseException | None = None) -> None:
        super().__init__()
        self.reason = reason
        self.error = error
        """The exception that the body raised; None if it raised none."""


def control_signal(error: BaseException) -> BaseException | None:
    """What an exception of a tool asks of the run, if it is more than an error of the tool.

    In an exception group the signal is found at any depth, whatever else is there. A store that
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


def signal_or_doubt(run: Run, ready: ReadyCall, error: BaseException) -> BaseException | None:
    """What ends a call whose body raised; None if it is an error like any other.

    In a group the worst member counts: a question or a wait beside an error that leaves it open
    would enter the body again, and a stop or a halt ends the run and leaves the doubt.
    """
    signal = control_signal(error)
    if signal is None:
        return doubt_after(run, ready, error)
    if isinstance(signal, JournalFailed) or not isinstance(error, BaseExceptionGroup):
        return signal
    others = error.split(lambda each: not isinstance(each, BaseExceptionGroup) and _asks(each))[1]
    doubt = None if others is None else doubt_after(run, ready, others)
    if doubt is None:
        return signal
    if not isinstance(signal, (ToolStop, ToolHalt)):
        return doubt
    signal.doubt = doubt.reason
    return signal


def _asks(error: BaseException) -> bool:
    """Whether the exception asks something of the run, and is no error of the tool."""
    return isinstance(error, (Halt, Interrupt, CallSuspended, AttemptEnded, StopAgent))


def doubt_after(run: Run, ready: ReadyCall, error: BaseException) -> InDoubt | None:
    """The doubt about a call whose body raised; None if the error says that it took no effect.

    It is None also if nobody needs to be asked: for a tool that only looks something up, for a call
    that ran and whose result is lost, and after an error that is not known to leave the effect
    open.
    """
    tool, call = ready.tool, ready.call
    if call.effect == "read_only" or isinstance(error, ResultLost):
        return None
    leaves = list(_leaves(error))
    for leaf in leaves:
        if isinstance(leaf, OutcomeUnknown):
            return InDoubt(text_of(leaf) or "the tool cannot know whether it took effect", error)
    known = what_is_known(
        error,
        nothing_happened=tool.nothing_happened,
        unknown_after=(
            *tool.unknown_after,
            *run.definition.tool_defaults.unknown_after,
            # The tool's own declaration counts. The agent's for the same class is refused.
            *(e for e in run.tool_defaults.unknown_after if e not in tool.nothing_happened),
        ),
        is_strict=tool.is_known_to_have_effects,
    )
    if known is Known.UNKNOWN:
        return InDoubt(f"it raised {_in_a_sentence(error)}, which leaves open what it did", error)
    if all(isinstance(leaf, (*RETRIES, *FAILURES, RemoteToolError)) for leaf in leaves):
        return None
    if done_by_call(run.state, call):  # the reason says what
        return InDoubt(f"it raised {_in_a_sentence(error)}", error)
    return None


def _in_a_sentence(error: BaseException) -> str:
    """The error's text in one line without a full stop: the sentence continues after it."""
    return " ".join(error_text(error).split()).rstrip(".")


def was_cancelled_inside(error: BaseException) -> bool:
    """Whether the exception is a group of a cancellation and mere errors."""
    more = [leaf for leaf in _leaves(error) if not isinstance(leaf, Exception)]
    return bool(more) and all(isinstance(leaf, asyncio.CancelledError) for leaf in more)


def uncancel_after_task_group(run: Run) -> None:
    """Take back the cancel request that a failed `TaskGroup` left with its task.

    Before Python 3.13 a group whose child fails cancels its own task to wake it, and leaves the
    count raised, so that `cancelled()` is true without a cancellation from outside
    (`test_a_task_group_that_fails_while_it_closes_is_an_error_like_any_other`). If the run is
    really cancelled, a record says so.
    """
    task = asyncio.current_task()
    if task is not None and sys.version_info < (3, 13) and run.current.cancelled is None:
        task.uncancel()


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group, at any depth; of any other exception, the exception itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
