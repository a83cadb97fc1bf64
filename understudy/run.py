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

from understudy.clock import Clock, NewId
from understudy.definition import AgentDefinition, ChildAgent, Gate, PauseWhen
from understudy.errors import UnderstudyError, UsageError
from understudy.events import Event
from understudy.hooks import in_hook
from understudy.ledger import Ledger
from understudy.messages import normalised
from understudy.model_input import ModelInput
from understudy.outcomes import (
    Completed,
    Failed,
    Interrupted,
    Outcome,
    Paused,
    Stopped,
    ToolCallResult,
)
from understudy.records import HistoryReplaced, Once, Record
from understudy.state import RunState
from understudy.stopping import StopSignals
from understudy.threads import WorkerThreads
from understudy.values import checked_json

__all__ = ["ChildRunner", "Halted", "Run"]

inside_run: contextvars.ContextVar[Run | None] = contextvars.ContextVar("inside_run", default=None)
"""Set wherever a tool, a hook or a model is called: decisions cannot come from there (I13)."""


class Halted(BaseException):
    """The host wants the drive to end between two steps; the run stays open, nothing is lost."""


class ChildRunner(Protocol):
    """Runs an agent for a call of another one, or goes on with one that it ran before."""

    async def run(self, parent: Run, key: str, child: ChildAgent, message: ModelRequest) -> Outcome:
        """The child's outcome. `key` is the same whenever the same call runs the same child."""


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
        """The run whose call runs this one."""
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
        return self.current.usage

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
        return Completed(
            text=text, tool_result=tool_result, run_id=run.run_id, state=self.state, usage=run.usage
        )

    def failed(self, error: UnderstudyError) -> Failed:
        """The outcome of a run that cannot go on, for a step to return."""
        run = self.current
        return Failed(error=error, run_id=run.run_id, state=self.state, usage=run.usage)

    def interrupted(self) -> Interrupted:
        """The outcome of a run whose standing requests wait for a person."""
        run = self.current
        return Interrupted(
            requests=self.state.requests, run_id=run.run_id, state=self.state, usage=run.usage
        )

    def stopped(self, signals: StopSignals) -> Stopped:
        """The outcome of a run that was stopped, for a step to return."""
        run = self.current
        return Stopped(signals=signals, run_id=run.run_id, state=self.state, usage=run.usage)

    def paused(self, reason: str) -> Paused:
        """The outcome of a run that stands still."""
        run = self.current
        return Paused(reason=reason, run_id=run.run_id, state=self.state, usage=run.usage)
