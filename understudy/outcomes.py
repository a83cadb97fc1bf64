"""The outcomes of a run: how it ends, or why it waits. Handle an outcome with `match`.

`explain()` reads only the state. So an outcome that is rebuilt from a stored state explains itself
as the original outcome did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic

from pydantic_ai.messages import FinishReason, ModelRequest, ModelResponse
from pydantic_ai.usage import RunUsage

from understudy._base.type_variables import OutputT, OutputT_co
from understudy._base.usd import shown_usd
from understudy.errors import DecisionError, UnderstudyError
from understudy.interrupts import Decision, Request, checked_decision
from understudy.state.agent_state import AgentState
from understudy.state.continuation import (
    continuation_of,
    overridden_signals,
    override_requested,
    overrides_exhausted,
)
from understudy.state.costs import Cost
from understudy.state.run_state import RunState
from understudy.state.waits import Wait
from understudy.state.why import model_calls
from understudy.state.workflow_progress import AgentResult, Progress
from understudy.stopping import StopSignal, StopSignals

__all__ = [
    "Completed",
    "Failed",
    "Interrupted",
    "Outcome",
    "OutcomeOf",
    "Paused",
    "Stopped",
    "ToolCallResult",
    "Waiting",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallResult:
    """The result of the until tool's call."""

    tool_name: str
    call_key: str
    tool_call_id: str
    arguments: dict[str, Any]
    """The arguments with which the tool ran."""
    content: Any
    """The content of the result, for the model."""
    value: Any
    """The return value of the tool; None if the result is an error.

    After a recovery it is rebuilt through the tool's return annotation.
    """
    is_error: bool
    value_lost: bool = False
    """Whether the tool's return value is lost.

    It is lost if it could not be stored, or if the return annotation has changed since.
    """
    metadata: Any = None
    """The `metadata` of the `ToolReturn` that the tool returned, as JSON."""


_FACTS = frozenset(
    {"text", "output", "tool_result", "requests", "reason", "waits", "signals", "error"}
)
"""What only some outcomes have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OneOutcome:
    """Says what a run came to, where a caller takes its outcome for another one."""

    _seq: int = field(init=False, default=0, repr=False, compare=False)
    """The number of the last record of its agent when it was there; 0 without a store."""

    @property
    def cost(self) -> Cost:
        """What the run has cost so far, as recorded: `outcome.state.cost`."""
        state: AgentState = getattr(self, "state")  # noqa: B009  # each outcome has it
        return state.cost

    def _repr_html_(self) -> str:
        """For notebooks: why the run ended or waits, and what it came to."""
        from understudy._base import notebook_html as h

        parts: list[h.Html] = []
        colour = h.WAITS
        match self:
            case Completed(text=text, tool_result=result):
                colour = h.DONE
                parts.append(h.words(text) if text else h.Html())
                if result is not None:
                    parts.append(h.table({result.tool_name: result.content}))
            case Interrupted(requests=requests):
                parts += [h.Html(request._repr_html_()) for request in requests]
            case Stopped() | Failed():
                colour = h.ENDED
            case _:
                pass
        state: AgentState = getattr(self, "state")  # noqa: B009  # each outcome has it
        for doubt in state.doubts_in_tree.values():
            parts.append(h.warning(f"{doubt.tool_name!r} is in doubt since {h.at(doubt.since)}."))
        run, usd = _run(state), self.cost.usd
        cost = "" if usd is None else shown_usd(usd)
        tokens = f"{state.usage.total_tokens} tokens"
        parts.append(h.quiet(run.agent, h.code(run.run_id), model_calls(state, run), tokens, cost))
        explained: str = getattr(self, "explain")()  # noqa: B009  # each outcome has it
        name = type(self).__name__
        return h.card(name, explained.removeprefix(name).strip(), parts, colour=colour)

    if not TYPE_CHECKING:  # a type checker knows the attributes of each

        def __getattr__(self, name: str) -> Any:
            error = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in _FACTS:
                error = f"{error}. {self.explain()} Match the outcome before you read it"
            raise AttributeError(error, name=name, obj=self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed(_OneOutcome, Generic[OutputT_co]):
    """The outcome of a run that came to its own end."""

    text: str
    """The model's final text. It may be empty if an until tool ended the run."""
    tool_result: ToolCallResult | None = None
    """The result of the until tool, if it ended the run; None otherwise."""
    output: OutputT_co | None = field(default=None, repr=False)
    """The final text as a value of the agent's `output_type`; without such a type the text itself.

    None if the agent has an `output_type` and the run ended without a text that fits it: by an
    until tool, by another tool, or early.
    """
    results: tuple[AgentResult, ...] = field(default=(), repr=False)
    """For a workflow: the outcome of each of its agents, in declared order. For a loop: of the last
    round."""
    early_stopped: bool = False
    """Whether the run reached a limit, and the model then answered with what it had."""
    run_id: str = ""
    state: AgentState = field(repr=False)
    usage: RunUsage = field(repr=False)

    @property
    def finish_reason(self) -> FinishReason | None:
        """The reason why the last reply ended, as its provider gives it; None if it gives none.

        `stop` for a complete reply, `length` for a reply that was cut by its length limit.
        """
        for message in reversed(self.state.messages):
            if isinstance(message, ModelResponse):
                return message.finish_reason
        return None

    def explain(self) -> str:
        """Return one sentence that says why the run ended."""
        run = _run(self.state)
        if self.early_stopped:
            why = f"{_limit(run)}, so the model answered{self._cut}"
            return _sentence(self.state, "Completed early", why)
        if self.tool_result is not None:
            why = f"the tool {self.tool_result.tool_name!r} has its result"
        elif (signal := _unforced(run)) is not None:
            why = str(signal)
        elif run.progress is not None:
            why = _agents_ended(run.progress)
        elif self._ends_with_request and not (run.end is not None and run.end.has_output):
            why = "a tool that it called ended it"
        else:
            why = "the model gave its final answer"
        return _sentence(self.state, "Completed", f"{why}{self._cut}")

    @property
    def _ends_with_request(self) -> bool:
        """Whether no reply came behind the last results of tools."""
        return bool(self.state.messages) and isinstance(self.state.messages[-1], ModelRequest)

    @property
    def _cut(self) -> str:
        cut = self.finish_reason == "length"
        return " (the last reply is cut by its length limit)" if cut else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted(_OneOutcome):
    """The outcome of a run that waits for a person.

    Answer with `agent.resume(outcome.state, {request.id: ...})`.
    """

    requests: tuple[Request, ...]
    run_id: str = ""
    state: AgentState = field(repr=False)
    usage: RunUsage = field(repr=False)

    def explain(self) -> str:
        """Return one sentence that says what the run waits for."""
        asked = Counter(
            f"{request.kind} of {request.about!r}{_beside(request)}" for request in self.requests
        )
        requests = ", ".join(f"{n} x {what}" if n > 1 else what for what, n in asked.items())
        n = len(self.requests)
        pending = "1 request is pending" if n == 1 else f"{n} requests are pending"
        return _sentence(self.state, "Waits for a person", f"{pending}: {requests}")

    def decide(self, *decisions: Decision | Mapping[str, Any]) -> dict[str, Decision]:
        """Return the mapping that `resume` takes, with one decision for each request, in order.

        Raises:
            DecisionError: if there are more or fewer decisions than requests, or if a decision
                does not fit its request.

        """
        if len(decisions) != len(self.requests):
            raise DecisionError(
                f"{len(self.requests)} requests are pending, got {len(decisions)} decisions: "
                "give one decision for each request in order, or a mapping of request ids to "
                "resume()"
            )
        return {
            request.id: checked_decision(request, decision)
            for request, decision in zip(self.requests, decisions, strict=True)
        }

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused(_OneOutcome):
    """The outcome of a run that is paused until `agent.resume(outcome.state)` continues it."""

    reason: str
    run_id: str = ""
    state: AgentState = field(repr=False)
    usage: RunUsage = field(repr=False)

    def explain(self) -> str:
        """Return one sentence that says why the run is paused."""
        return _sentence(self.state, "Paused", self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(_OneOutcome):
    """The outcome of a run whose tools sleep, or wait for an answer from outside.

    `agent.resume(outcome.state)` continues the run if a sleep is over, a wait has timed out, or an
    answer is given. Otherwise the outcome is the same again. A `Runtime` continues the run by
    itself, so its callers never get this outcome.
    """

    waits: tuple[Wait, ...]
    """The sleeps and waits of the run, oldest first."""
    run_id: str = ""
    state: AgentState = field(repr=False)
    usage: RunUsage = field(repr=False)

    @property
    def due(self) -> datetime | None:
        """The time at which the next wait or sleep is over by itself; None = never."""
        return min((w.expires_at for w in self.waits if w.expires_at is not None), default=None)

    def explain(self) -> str:
        """Return one sentence that says what the run waits for."""
        return _sentence(self.state, "Waits", ", ".join(_wait(wait) for wait in self.waits))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(_OneOutcome):
    """The outcome of a run that was stopped. The state holds everything that was finished
    before.
    """

    signals: StopSignals
    run_id: str = ""
    state: AgentState = field(repr=False)
    usage: RunUsage = field(repr=False)

    def explain(self) -> str:
        """Return one sentence that says what stopped the run."""
        highest = self.signals.highest
        why = str(highest)
        others = [signal for signal in self.signals if signal is not highest]
        if others:
            why += f", and also {_listed(others)}"
        run = _run(self.state)
        if (
            run.cancelled is None
            and override_requested(run)
            and (guards := overrides_exhausted(run))
        ):
            why += (
                f", although a continuation was requested: {', '.join(guards)} was overridden "
                f"{run.max_overrides} times in a row already"
            )
        return _sentence(self.state, "Stopped", why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(_OneOutcome):
    """The outcome of a run that ended by an error. The state holds everything that was finished
    before.
    """

    error: UnderstudyError
    run_id: str = ""
    state: AgentState = field(repr=False)
    usage: RunUsage = field(repr=False)

    def explain(self) -> str:
        """Return one sentence that says why the run failed."""
        return _sentence(self.state, "Failed", f"{type(self.error).__name__}: {self.error}")


Outcome = Completed | Interrupted | Paused | Waiting | Stopped | Failed
"""The outcome of a run: how it ended, or why it waits.

`isinstance(value, Outcome)` tells an outcome from an event.
"""

OutcomeOf = Completed[OutputT] | Interrupted | Paused | Waiting | Stopped | Failed
"""The outcome of an agent with a given output type: `OutcomeOf[Invoice]` for `Invoice`."""


def _sentence(state: AgentState, how: str, why: str) -> str:
    run = _run(state)
    calls = model_calls(state, run)
    overridden = overridden_signals(run)
    before = f" (it had gone on in spite of {_listed(overridden)})" if len(overridden) else ""
    return f"{how} after {calls}: {why.rstrip('.')}{before}."


def _wait(wait: Wait) -> str:
    until = "" if wait.expires_at is None else f" until {wait.expires_at.isoformat()}"
    verb = "sleeps" if wait.kind == "sleep" else "waits"
    if not wait.tool_name:
        return f"the model call is put off at {wait.name!r}{until}"
    if wait.kind == "check":
        return f"{wait.tool_name!r} is in doubt, and waits for its check{until}"
    return f"{wait.tool_name!r} {verb} at {wait.name!r}{until}"


def _limit(run: RunState) -> str:
    """What made the model answer early."""
    signals = [
        StopSignal.from_dict(given.signal)
        for given in run.signals
        if given.turn == run.early_stop and given.answer
    ]
    return _listed(signals) if signals else f"its max_runs={run.max_runs} were used up"


def _beside(request: Request) -> str:
    """Because of which call a person is asked, where it is not for the call alone."""
    if any(doubt.status == "in_doubt" for doubt in request.doubts):
        return " (an equal call, or one of the tool, is in doubt)"
    return " (an equal call was made)" if request.doubts else ""


def _unforced(run: RunState) -> StopSignal | None:
    """The signal by which the run came to its own end."""
    decision = continuation_of(run)
    highest = decision.signals.highest
    if highest is None or highest.reason.was_force_stopped or not decision.should_stop:
        return None
    return highest


def _agents_ended(progress: Progress) -> str:
    """How the agents of a workflow ended."""
    results = [result for _, result in sorted(progress.results.items())]
    rounds = f" in round {progress.round + 1}" if progress.round else ""
    text = f"its agents have done their part{rounds}"
    for result in results:
        if result.escalated:
            text = f"its agent {result.agent!r} escalated{rounds}"
    for result in results:
        if result.signals is not None:
            highest = StopSignals.from_dict(result.signals).highest
            text += f"; {result.agent!r} was stopped by {highest}"
        elif result.error is not None:
            text += f"; {result.agent!r} failed: {result.error['message']}"
    return text


def _listed(signals: Iterable[StopSignal]) -> str:
    counts = Counter(str(signal) for signal in signals)
    return ", ".join(f"{text} ({n} times)" if n > 1 else text for text, n in counts.items())


def _run(state: AgentState) -> RunState:
    assert state.run is not None, "an outcome is of a run"
    return state.run
