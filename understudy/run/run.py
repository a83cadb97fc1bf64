"""`Run`: what a step and a hook get. It reads the state and writes facts; it decides nothing."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol

from pydantic_ai.messages import ModelMessage, ModelRequest
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.usage import RunUsage

from understudy._base.clock import Clock, NewId
from understudy._base.json_values import checked_json
from understudy._base.worker_threads import WorkerThreads
from understudy.errors import UnderstudyError, UsageError
from understudy.events import Event
from understudy.models.messages import normalised
from understudy.outcomes import (
    Completed,
    Failed,
    Interrupted,
    Outcome,
    Paused,
    Stopped,
    ToolCallResult,
)
from understudy.run.cancellation import CancellationSource
from understudy.run.definition import AgentDefinition, ChildAgent, Gate, PauseWhen
from understudy.run.hooks import in_hook
from understudy.run.ledger import Ledger
from understudy.run.model_input import ModelInput
from understudy.state.continuation import continuation_of
from understudy.state.records import HistoryReplaced, Once, Override, Record, Signalled, TimeSpent
from understudy.state.run_state import RunState
from understudy.stopping import ExecutionContinuation, StopSignal, StopSignals

__all__ = ["ChildRunner", "Halted", "Run"]

inside_run: contextvars.ContextVar[Run | None] = contextvars.ContextVar("inside_run", default=None)
"""Set wherever a tool, a hook or a model is called: decisions cannot come from there (I13)."""


class Halted(BaseException):
    """The host wants the drive to end between two steps; the run stays open, nothing is lost."""


class ChildRunner(Protocol):
    """Runs an agent for a call of another one, or goes on with one that it ran before."""

    async def run(
        self, parent: Run, key: str, child: ChildAgent, message: ModelRequest | None
    ) -> Outcome:
        """The child's outcome. `key` is the same whenever the same call runs the same child.

        Without a message it is an agent of the parent's workflow, and shares its state (W5).
        """

    def stop(self, parent: Run, key: str, signals: StopSignals) -> None:
        """Record that this child, which nobody drives now, is stopped."""


class Run:
    """One drive of one run."""

    def __init__(
        self,
        *,
        definition: AgentDefinition,
        ledger: Ledger,
        models: tuple[Model, ...],
        clock: Clock,
        new_id: NewId,
        threads: WorkerThreads,
        agent_id: str,
        agent_path: tuple[str, ...],
        deps: Any = None,
        pause_when: PauseWhen | None = None,
        streaming: Callable[[], bool] = lambda: False,
        parent: Run | None = None,
        children: ChildRunner | None = None,
        halting: Callable[[], bool] | None = None,
        pause_requested: Callable[[], str | None] | None = None,
        cancellation: tuple[CancellationSource, ...] = (),
    ) -> None:
        self.definition = definition
        self.ledger = ledger
        self.state = ledger.state
        """The agent's state, to read: the same object for the whole drive, each fact changes it."""
        self.models = models
        """The agent's model, then its fallbacks."""
        self.clock = clock
        self.new_id = new_id
        self.threads = threads
        self.agent_id = agent_id
        self.agent_path = agent_path
        self.deps = deps
        self.pause_when = pause_when
        self._streaming = streaming
        self.parent = parent
        """The run whose call, or workflow, runs this one."""
        self.root: Run = parent.root if parent is not None else self
        """The run that no other one runs."""
        self.children = children
        """How its calls run other agents."""
        self.gates: tuple[Gate, ...] = (
            (*parent.definition.gates, *parent.gates) if parent is not None else ()
        )
        """Of the agents above: they hold here too (S5)."""
        self.halting = halting
        """Asked before each step: true ends this drive, and leaves the run open."""
        self.pause_requested = pause_requested
        """Asked where `pause_when` is: what the host wants now, not a part of the run."""
        above = parent.cancellation if parent is not None else ()
        sources = (*above, *definition.cancellation, *cancellation)
        self.cancellation: tuple[CancellationSource, ...] = tuple(
            {id(source): source for source in sources}.values()
        )
        """Asked at the start and before each step: those of the agents above, too (P7)."""
        self.asking = False
        """The step has begun: what a hook signals now counts after it (P3)."""
        self.timed = False
        """Whether it is recorded how long the run goes on: only where something limits it."""
        self._driven_since = clock.monotonic()
        self._loop = asyncio.get_running_loop()
        self._driven = False
        self.tools = tuple(definition.tools.values())
        self.parameters: tuple[ModelInput, ModelRequestParameters] | None = None
        """What the model was asked with last, to be used again while it stays the same."""
        self.live_values: dict[str, Any] = {}
        """Return values of until tools that this process still has, by call key."""
        self.inner_tasks: dict[str, set[asyncio.Task[Any]]] = {}
        """Those in which calls run other agents now, by call key."""
        self._doing: dict[str, asyncio.Event] = {}
        self.closed = False
        """This drive has told its outcome: no fact may be added by it any more."""

    # -------------------------------------------------------------------- reading

    @property
    def current(self) -> RunState:
        """Where this run stands."""
        run = self.state.run
        assert run is not None, "a Run is made where a run is open"
        return run

    @property
    def run_id(self) -> str:
        return self.current.run_id

    @property
    def usage(self) -> RunUsage:
        """Used so far, by the agents that it runs now, too."""
        return self.state.usage

    @property
    def seconds(self) -> float:
        """How long this run has been going, in all its drives, without the waits for people."""
        return self.current.seconds + self.clock.monotonic() - self._driven_since

    @property
    def seconds_left(self) -> float | None:
        """Until its deadline; None where it has none (P9)."""
        deadline = self.current.deadline
        return None if deadline is None else max(deadline - self.seconds, 0.0)

    @property
    def continuation(self) -> ExecutionContinuation:
        """Whether the run goes on as things stand: who signalled, and whether it is overridden."""
        return continuation_of(self.current)

    @property
    def streaming(self) -> bool:
        """Whether somebody follows the model's text as it comes."""
        return self._streaming()

    @property
    def observed(self) -> bool:
        """Whether anybody listens to events."""
        return self.ledger.observed

    # -------------------------------------------------------------------- writing

    def record(self, *records: Record) -> None:
        """Write facts down: for steps. A hook has `once` and `replace_history` (I13)."""
        if in_hook.get():
            raise UsageError("a hook cannot record facts: use run.once or run.replace_history")
        self.ledger.record(*records)

    def durable(self) -> Coroutine[Any, Any, None]:
        """Wait until all that was recorded is durable."""
        return self.ledger.durable()

    def emit(self, event: Event) -> None:
        """Tell an event that is no fact to whoever listens; facts are told as they are recorded."""
        self.ledger.tell(event)

    async def once(self, key: str, function: Callable[[], Any]) -> Any:
        """What `function` returned when it first ran to its end in this run (J15).

        Hooks run at least once: a crash makes the last of them run again. Put a side effect in
        here, under a key of its own. What it returns must be JSON-able.

        Raises:
            UsageError: if it cannot be stored.

        """
        while key not in self.current.once:
            doing = self._doing.get(key)
            if doing is None:
                await self._do_once(key, function)
            else:
                await doing.wait()
        return self.current.once[key]

    async def _do_once(self, key: str, function: Callable[[], Any]) -> None:
        done = self._doing[key] = asyncio.Event()
        try:
            result = function()
            if inspect.isawaitable(result):
                result = await result
            value = checked_json({"result": result}, what=f"run.once({key!r})")["result"]
            self.ledger.record(Once(key=key, value=value))
            await self.durable()
        finally:
            del self._doing[key]
            done.set()

    def signal(self, signal: StopSignal, *, answer: bool = False) -> None:
        """Ask the run to stop, from any hook (P3).

        It stops after the step that goes on, or before the one that is about to begin, unless
        somebody asks to continue. The same signal for the same place is recorded once.

        Args:
            signal: why. Give it a `source`: signals of one source are of one guard (P4).
            answer: let the model answer once more, without tools, before the run ends, as
                `early_stopping="generate"` does. Any other signal beside it is stronger.

        Raises:
            UsageError: for anything but a signal, or when the run is over.

        """
        if not isinstance(signal, StopSignal):
            raise UsageError(f"run.signal takes a StopSignal, not {signal!r}")
        told = signal.to_dict()
        self._give(lambda turn: Signalled(turn=turn, signal=told, answer=answer))

    def request_continuation(self, *, prompt: str | None = None, source: str | None = None) -> None:
        """Ask the run to go on whatever signals stand, from any hook (P3).

        It holds for one step: for what is decided after the step that goes on, and before the next
        one. After a reply without tool calls the model is asked again. Only a cancellation, a
        deadline and `max_runs` cannot be overridden, nor one guard too often in a row (P4).

        Args:
            prompt: what the model is told where it had no tool call to go on from.
            source: who asks, for the record.

        Raises:
            UsageError: when the run is over.

        """
        self._give(lambda turn: Override(turn=turn, source=source, prompt=prompt))

    def _give(self, make: Callable[[int], Signalled | Override]) -> None:
        """Write it down for the next boundary, on the loop: a plain hook runs in a thread."""

        def write() -> None:
            run = self.state.run
            if self.closed or run is None or run.over:
                raise UsageError("the run is over: nothing can be signalled any more")
            # Beside a drive, in a hook that is none of its steps, the step counts as begun: whether
            # it was decided about already is not known there, and nothing must get lost.
            # The steps of a workflow are its agents' parts: they are no turns.
            asks = self.definition.asks_model
            begun = asks and (self.asking or not self._driven)
            record = make(run.turns + (begun and run.turn is None))
            if record not in run.signals and record not in run.overrides:
                self.ledger.record(record)

        async def written() -> None:
            write()

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run_coroutine_threadsafe(written(), self._loop).result()
        else:
            write()

    def driven(self) -> None:
        """This run is driven from now on."""
        self._driven = True
        limited = self.definition.hooks.keeps_time or self.current.deadline is not None
        self.timed = limited or (self.parent is not None and self.parent.timed)
        self._driven_since = self.clock.monotonic()

    def keep_time(self) -> None:
        """Record how long the run has been going: for steps, where it is `timed` (P5).

        Of the runs above, too: while it goes on, none of their own steps would.
        """
        now = self.clock.monotonic()
        spent = self.current.seconds + now - self._driven_since
        self._driven_since = now
        self.ledger.record(TimeSpent(seconds=spent))
        if self.parent is not None and self.parent.timed:
            self.parent.keep_time()

    async def replace_history(self, messages: Iterable[ModelMessage]) -> None:
        """Rewrite the conversation for good, for instance by a summary (J15).

        Raises:
            UsageError: while calls of the last reply have no results in it yet.

        """
        turn = self.current.turn
        if turn is not None and turn.calls and not turn.propagated:
            raise UsageError(
                "The history cannot be replaced while tool calls of its last reply are open: do it "
                "in before_model"
            )
        self.ledger.record(HistoryReplaced(messages=tuple(normalised(messages))))
        await self.durable()

    # ------------------------------------------------------------------- outcomes

    def completed(self, text: str, tool_result: ToolCallResult | None = None) -> Completed:
        """The outcome of a run that is done, for a step to return."""
        run = self.current
        results = run.progress.results if run.progress is not None else {}
        return Completed(
            text=text,
            tool_result=tool_result,
            early_stopped=run.early_stop is not None,
            output=text,
            results=tuple(results[index] for index in sorted(results)),
            run_id=run.run_id,
            state=self.state,
            usage=self.usage,
        )

    def failed(self, error: UnderstudyError) -> Failed:
        """The outcome of a run that cannot go on, for a step to return."""
        run = self.current
        return Failed(error=error, run_id=run.run_id, state=self.state, usage=self.usage)

    def interrupted(self) -> Interrupted:
        """The outcome of a run whose standing requests wait for a person."""
        run = self.current
        return Interrupted(
            requests=self.state.requests, run_id=run.run_id, state=self.state, usage=self.usage
        )

    def stopped(self, signals: StopSignals) -> Stopped:
        """The outcome of a run that was stopped, for a step to return."""
        run = self.current
        return Stopped(signals=signals, run_id=run.run_id, state=self.state, usage=self.usage)

    def paused(self, reason: str) -> Paused:
        """The outcome of a run that stands still."""
        run = self.current
        return Paused(reason=reason, run_id=run.run_id, state=self.state, usage=self.usage)
