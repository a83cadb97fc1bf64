"""Cancelling a run from anywhere: sources that say whether it is cancelled.

Cancellation by a source is cooperative. A source is called when a run starts and before each of its
steps, whatever signals or overrides are active. To interrupt a model call at once, use
`ref.cancel()`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from understudy.errors import UsageError
from understudy.state.agent_state import AgentState
from understudy.stopping import StopReason, StopSignal

Answer = StopSignal | str | bool | None
"""A signal, a message or True cancels; False, None or an empty text does not.

The run is `Stopped` by a signal for whatever reason, also by `StopSignal.completed`: to complete a
run, use `run.signal` in a hook.
"""


@runtime_checkable
class CancellationSource(Protocol):
    """A source that can say whether a run is cancelled."""

    def check(self, state: AgentState) -> Answer | Awaitable[Answer]:
        """Return whether this run is cancelled. A plain method is called in a worker thread.

        `state.run.agent_id` and `state.run.run_id` identify the run. Inside an agent that a tool
        runs, both begin with the ids of the parent agent. If a source raises, the run fails.
        """


class InMemoryCancellation:
    """A cancellation switch in this process. Thread-safe.

    Args:
        agent_id: cancel only runs of this agent, and of agents inside it. Outside a `Runtime`
            the id of an agent is its name.
        run_id: cancel only this run, and the runs inside it.

    Raises:
        UsageError: if an id is not a non-empty text.

    """

    def __init__(self, *, agent_id: str | None = None, run_id: str | None = None) -> None:
        for option, given in (("agent_id", agent_id), ("run_id", run_id)):
            if given is not None and (not isinstance(given, str) or not given):
                raise UsageError(
                    f"InMemoryCancellation: `{option}` must be a non-empty text, got {given!r}"
                )
        self._agent_id = agent_id
        self._run_id = run_id
        self._signal: StopSignal | None = None

    @property
    def cancelled(self) -> bool:
        """Whether `cancel()` was called, and `reset()` was not called after it."""
        return self._signal is not None

    def cancel(
        self, message: str = "cancelled", *, context: Mapping[str, Any] | None = None
    ) -> None:
        """Cancel each run in scope at its next step, until `reset()`.

        Args:
            message: the reason.
            context: more facts, such as who cancelled; JSON-able, and kept in the signal.

        Raises:
            UsageError: if `message` is not text, or `context` cannot be stored.

        """
        self._signal = StopSignal(
            StopReason.USER_REQUESTED,
            message,
            {} if context is None else context,
            source="cancellation",
        )

    def reset(self) -> None:
        """Stop cancelling: runs that start or continue from now on are not cancelled."""
        self._signal = None

    async def check(self, state: AgentState) -> StopSignal | None:
        return self._signal if self._covers(state) else None

    def _covers(self, state: AgentState) -> bool:
        run = state.run
        return run is not None and all(
            scope is None or actual == scope or actual.startswith(scope + separator)
            for scope, actual, separator in (
                (self._agent_id, run.agent_id, "/"),
                (self._run_id, run.run_id, "."),
            )
        )


def as_sources(given: object) -> tuple[CancellationSource, ...]:
    """The sources in a `cancellation=` option: one source, a list of them, or None.

    Raises:
        UsageError: for an object without a method `check(state)`.

    """
    if given is None:
        return ()
    sources = tuple(given) if isinstance(given, Sequence) else (given,)
    for source in sources:
        if isinstance(source, type) or not callable(getattr(source, "check", None)):
            raise UsageError(
                "`cancellation` must be a source with a method check(state), or a list of sources, "
                f"got {source!r}"
            )
    return sources


def signal_of(answer: object, source: object) -> StopSignal | None:
    """The return value of a source's `check`, as a signal.

    Raises:
        UsageError: for any other value: a cancellation must not get lost because of a wrong type.

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
    raise UsageError(
        f"{name}.check returned {answer!r}: return a StopSignal, a text, True, False or None"
    )
