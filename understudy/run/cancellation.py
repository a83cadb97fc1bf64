"""Cancelling a run from anywhere: sources that are asked whether it is to stop (P7).

They are cooperative: asked at the start of a run and before each of its steps, always, whatever
else is signalled or overridden. To interrupt a model call at once use `ref.cancel()`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol, runtime_checkable

from understudy.errors import UsageError
from understudy.state.agent_state import AgentState
from understudy.stopping import StopSignal

__all__ = ["CancellationSource", "InMemoryCancellation", "as_sources", "signal_of"]

Answer = StopSignal | str | bool | None
"""A signal, a message or true cancels; false, None or an empty text does not."""


@runtime_checkable
class CancellationSource(Protocol):
    """Anything that can say whether a run is to be cancelled."""

    def check(self, state: AgentState) -> Answer | Awaitable[Answer]:
        """Whether this run is cancelled. Plain ones are called in a worker thread.

        `state.run.agent_id` and `state.run.run_id` tell whose run it is; inside an agent that a
        tool runs both begin with those of the agent above. A source that raises fails the run.
        """


class InMemoryCancellation:
    """A switch in this process. Thread-safe.

    Args:
        agent_id: cancels runs of this agent alone, and of agents inside it. Outside a `Runtime` the
            id of an agent is its name.
        run_id: cancels this run alone, and those inside it.

    Raises:
        UsageError: for an id that is no text.

    """

    def __init__(self, *, agent_id: str | None = None, run_id: str | None = None) -> None:
        for what, given in (("agent_id", agent_id), ("run_id", run_id)):
            if given is not None and (not isinstance(given, str) or not given):
                raise UsageError(f"InMemoryCancellation({what}=...) is text, not {given!r}")
        self._agent_id = agent_id
        self._run_id = run_id
        self._signal: StopSignal | None = None

    @property
    def cancelled(self) -> bool:
        """Whether it is switched on."""
        return self._signal is not None

    def cancel(self, message: str = "cancelled") -> None:
        """Cancel what is in scope, at its next step, until `reset()`."""
        self._signal = StopSignal.user_requested(message, source="cancellation")

    def reset(self) -> None:
        """Arm it again: runs that begin or go on from now on are not cancelled."""
        self._signal = None

    async def check(self, state: AgentState) -> StopSignal | None:
        return self._signal if self._covers(state) else None

    def _covers(self, state: AgentState) -> bool:
        run = state.run
        return run is not None and all(
            wanted is None or given == wanted or given.startswith(wanted + end)
            for wanted, given, end in (
                (self._agent_id, run.agent_id, "/"),
                (self._run_id, run.run_id, "."),
            )
        )


def as_sources(given: object) -> tuple[CancellationSource, ...]:
    """What was given as `cancellation=`: a source, a list of them, or None.

    Raises:
        UsageError: for what has no `check(state)`.

    """
    if given is None:
        return ()
    sources = tuple(given) if isinstance(given, Sequence) else (given,)
    for source in sources:
        if isinstance(source, type) or not callable(getattr(source, "check", None)):
            raise UsageError(
                f"cancellation takes a source with a method check(state), or a list of them; not "
                f"{source!r}"
            )
    return sources


def signal_of(answer: object, source: object) -> StopSignal | None:
    """What a source said, as a signal.

    Raises:
        UsageError: for what is no answer: a cancellation must not get lost in it.

    """
    if isinstance(answer, StopSignal):
        return answer
    name = type(source).__name__
    if isinstance(answer, str) and answer:
        return StopSignal.user_requested(answer, source=name)
    if answer is True:
        return StopSignal.user_requested("cancelled", source=name)
    if answer is None or answer is False or answer == "":
        return None
    raise UsageError(f"{name}.check returned {answer!r}: a StopSignal, text, True, False or None")
