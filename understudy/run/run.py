"""`Run`: the object by which steps and hooks read the state and add records. It decides nothing."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Generic, TypeVar, overload

from pydantic_ai.messages import ModelMessage, ModelRequest
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.usage import RunUsage

from understudy._base.clock import Clock, NewId
from understudy._base.context_codecs import Context
from understudy._base.event_loops import call_on_and_wait
from understudy._base.json_values import checked_flag, checked_json, checked_text, digest, shown
from understudy._base.log_fields import log_extra
from understudy._base.type_variables import DepsT_co
from understudy._base.worker_threads import WorkerThreads
from understudy.errors import ToolRaised, UnderstudyError, UsageError
from understudy.events import Event
from understudy.interrupts import Decision
from understudy.models.messages import UserInput, normalised
from understudy.models.prices import Prices
from understudy.outcomes import (
    Completed,
    Failed,
    Interrupted,
    Outcome,
    Paused,
    Stopped,
    ToolCallResult,
    Waiting,
)
from understudy.run.cancellation import CancellationSource
from understudy.run.definition import AgentDefinition, ChildAgent, Gate
from understudy.run.environment import RunEnvironment
from understudy.run.file_edits import FileEdits
from understudy.run.hooks import current_hook
from understudy.run.instrument import Instrument
from understudy.run.ledger import Ledger
from understudy.run.model_input import ModelInput
from understudy.run.running_parts import RunningParts
from understudy.state.agent_state import AgentState
from understudy.state.continuation import continuation_of
from understudy.state.costs import Cost
from understudy.state.records import (
    End,
    HistoryReplaced,
    ModelAsked,
    Once,
    Override,
    Record,
    Signalled,
    TimeSpent,
)
from understudy.state.run_state import RunState, own_key
from understudy.state.waits import waits_of
from understudy.stopping import ExecutionContinuation, StopSignal, StopSignals
from understudy.tools import Tool
from understudy.tools.shared_resources import SharedResources
from understudy.tools.tool_defaults import ToolDefaults, Undeclared
from understudy.trust.freezes import Stop, Stops

T = TypeVar("T")

inside_run: contextvars.ContextVar[Run | None] = contextvars.ContextVar("inside_run", default=None)
"""The run whose pipeline runs now, also in tools, hooks and models: `resume` is refused there."""


def log_fields() -> dict[str, str]:
    """The `extra=` of a log entry of the code that runs now: the fields of its run."""
    run = inside_run.get()
    return {} if run is None else log_extra(run.agent_id, run.run_id)


_RUN_IS_OVER = "the run is over: nothing can be signalled any more"

ESCALATED = "run/escalated"
"""The key in a run's state that says that `Run.escalate` was called in the run."""


class AttemptEnded(BaseException):
    """The runtime ended this attempt between two steps. The run stays open; nothing is lost.

    Args:
        stop: why the run may not continue here now; None if its agent leaves memory.

    """

    def __init__(self, stop: Stop | None = None) -> None:
        super().__init__()
        self.stop = stop


def outermost_workflow(run: Run) -> Run:
    """The run whose conversation gets the messages of this run: its outermost workflow, or
    itself.
    """
    while run.parent is not None and run.current.shared is not None:
        run = run.parent
    return run


def stop_of(run: Run) -> Stop | None:
    """Why the agent of a run may not run now; None if it may."""
    stops = run.environment.trust.stops
    if stops is run.passed_stops:
        return None
    stop = None if stops is None else stops.of_agent(run.agent_path)
    if stop is None:
        run.passed_stops = stops
    return stop


def end_if_stopped(run: Run) -> None:
    """End the attempt if its agent may not run now."""
    stop = stop_of(run)
    if stop is not None:
        raise AttemptEnded(stop)


class ChildRunner(ABC):
    """Runs other agents inside a run, and asks models. It is `NestedRuns`, in a layer above."""

    @abstractmethod
    async def run(
        self, parent: Run, key: str, child: ChildAgent, message: ModelRequest | None
    ) -> Outcome:
        """Start or continue the child's run, and return its outcome.

        Args:
            parent: the run whose call, or workflow, runs the child.
            key: the child's run id: the same whenever the same call runs the same child.
            child: the agent to run.
            message: the child's input; None for an agent of the parent's workflow, which shares
                the conversation and values.

        """

    @abstractmethod
    def view(self, parent: Run, key: str) -> Run | None:
        """This child's run, for hooks, while its pipeline does not run.

        None if it is over, or if its agent is not known here.
        """

    @abstractmethod
    async def stop(self, parent: Run, key: str, signals: StopSignals) -> None:
        """End this child as stopped, because a sibling has failed. Its pipeline does not run
        now.
        """

    @abstractmethod
    async def ask_model(
        self, run: Run, key: str, messages: Any, model: Any, output_type: Any
    ) -> Any:
        """Ask a model, for `Run.ask_model`."""


class Run(Generic[DepsT_co]):
    """One attempt at a run, as steps and hooks see it.

    `Run[Db]` declares that `deps` is a `Db`.
    """

    tool_raised: ToolRaised | None = None
    """The error by which the run fails once the calls of the reply have their results; None = no
    error."""
    stopped_by: Stop | None = None
    """The reason why no call of the reply may start or continue now; None if all calls may.

    The attempt ends once the other calls have their results.
    """
    ends_by: End | None = None
    """The end of the run that the turn has just decided. The record of the end of the run
    has it."""
    opened: SharedResources | None = None
    """The resources that this attempt has opened for itself. They are closed at its end. None =
    nothing."""
    passed_stops: Stops | None = None
    """The stops that let the agent run when they were last asked. Other stops are asked again."""

    def __init__(
        self,
        definition: AgentDefinition,
        ledger: Ledger,
        environment: RunEnvironment,
        *,
        models: tuple[Model, ...],
        children: ChildRunner,
        parent: Run | None = None,
    ) -> None:
        self.definition = definition
        self.ledger = ledger
        self.state: AgentState = ledger.state
        """The agent's state, to read. It is one object for the whole attempt, and each record
        changes it."""
        self.environment = environment
        """The options that the caller gave to the attempt. The runs inside it have them too."""
        self.clock: Clock = environment.clock
        self.new_id: NewId = environment.new_id
        self.threads: WorkerThreads = environment.threads
        self.shared: SharedResources = environment.shared
        """The resources that tools of this run, and of all other runs of its owner, have opened."""
        self.deps: DepsT_co = environment.deps
        self.instrument: Instrument[Run] | None = environment.instrument
        """The instrument that watches the run."""
        self.models = models
        """The agent's model, then its fallbacks."""
        self.parent = parent
        """The run whose call, or workflow, executes this run; None for the outermost run."""
        # None for the outermost run: only the garbage collector frees an object that points to
        # itself, and with it the whole conversation.
        self._root: Run | None = parent.root if parent is not None else None
        self.children = children
        """The object by which calls of this run execute other agents."""
        self.agent_id: str = (
            environment.agent_id or definition.name if parent is None else self.current.agent_id
        )
        self.agent_path: tuple[str, ...] = (
            definition.path if parent is None else (*parent.agent_path, definition.name)
        )
        self.gates: tuple[Gate, ...] = (
            (*parent.definition.gates, *parent.gates) if parent is not None else ()
        )
        """The gates of the agents above, which apply here too."""
        hooks, has_keys = definition.hooks, definition.has_keys
        self.has_gates: bool = parent is not None or has_keys or bool(hooks.check_tool_calls)
        """Whether calls may need a decision, by the definition or by agents above."""
        above = parent.cancellation if parent is not None else ()
        sources = (*above, *definition.cancellation, *environment.cancellation)
        self.cancellation: tuple[CancellationSource, ...] = (
            tuple({id(source): source for source in sources}.values()) if sources else ()
        )
        """The sources that may cancel the run, including those of the agents above."""
        above_it = environment.prices if parent is None else parent.prices
        self.prices: Prices | None = definition.prices or above_it or definition.default_prices
        """The prices of its replies; None if nobody asks what they cost."""
        self.tool_defaults: ToolDefaults = environment.tool_defaults
        """The defaults for tools, if neither the tools nor their agents say something else."""
        self.undeclared: Undeclared | None = (
            definition.tool_defaults.undeclared or self.tool_defaults.undeclared
        )
        """The effect of tools that do not declare the effect of calling them again."""
        self.file_edits: dict[str, FileEdits] = {}
        """The file changes of the calls that run now, by call key."""
        self.not_begun: frozenset[str] = frozenset()
        """The keys of calls that were cancelled in this attempt before their effect."""
        self.in_model_call = False
        """Whether the next turn has begun. A signal of a hook then counts after that turn."""
        self.timed: bool = False
        """Whether the time spent is recorded: only if a deadline or a middleware limits it."""
        self._seconds_recorded_at = self.clock.monotonic()  # the pipeline begins right after
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        """The event loop on which it runs."""
        self._attempt_begun = False
        self.cut_off: frozenset[str] = frozenset()
        """The keys of the calls that this attempt found started. Only the outermost run has
        them."""
        self.tools: tuple[Tool, ...] = definition.tools_to_run
        self.parameters: tuple[ModelInput, ModelRequestParameters] | None = None
        """The last model request and its parameters, for reuse while they do not change."""
        self.live_values: dict[str, Any] = {}
        """The return values of until tools, as live objects of this process, by call key."""
        self.running_parts: dict[str, RunningParts] = {}
        """The parts of calls that run agents or reach points, by call key."""
        self._once_pending: dict[str, asyncio.Event] = {}
        self.closed = False
        """Whether this attempt has returned its outcome. It must not add records after that."""

    # -------------------------------------------------------------------- reading

    @cached_property
    def call_ids(self) -> set[str]:
        """The ids of the running calls of all agents of this workflow, at any depth.

        It does not have all ids of the calls in the conversation. The code that makes an id adds it
        here, so that nothing has to search all agents again.
        """
        return {id for state in self.state.tree for id in state.messages.own_call_ids}

    @property
    def root(self) -> Run:
        """The outermost run."""
        return self if self._root is None else self._root

    @property
    def asked_by(self) -> str:
        """The name of the gates that apply here, in this process: its own, and those of agents
        above.

        An agent object may run in another agent than before, and so have other gates.
        """
        own = self.definition.asked_by
        return own if self.parent is None else digest([self.parent.asked_by, own])[:16]

    @property
    def gates_let_pass(self) -> bool:
        """Whether the present gates let all calls of the turn pass, and no record says so yet.

        The start of the first call will record it. After a crash before that, the gates are asked
        again.
        """
        asked, turn = self.root.ledger.gates_asked, self.current.turn
        if not asked or turn is None or turn.interrupts_checked:
            return False
        return asked.get(self.run_id) == (turn.index, self.asked_by)

    @cached_property
    def current(self) -> RunState:
        """The state of this run."""
        run = self.state.run
        assert run is not None, "only a hook that is called between runs has a Run without one"
        return run

    def is_until_tool(self, name: str) -> bool:
        """Return whether a result of the tool with this name ends the run.

        The run keeps the name that the tool had when the run began. A call keeps the name that the
        tool had then.
        """
        until = self.current.until_tool
        if until is None or name in until:
            return until is not None
        tool = self.definition.tool_of(name)
        return tool is not None and not set(tool.names).isdisjoint(until)

    @property
    def has_own_state(self) -> bool:
        """Whether nothing changes its state after its outcome.

        That is so if it has no journal and no actor, or if an agent above runs it and it has ended
        for good.
        """
        if self.parent is None:
            return self.ledger.is_of_one_run
        run = self.current
        return run.over and run.left is None

    @property
    def run_id(self) -> str:
        return self.current.run_id

    @property
    def context(self) -> Context:
        """The context that was captured when its message was sent, by the names of the codecs."""
        return MappingProxyType(self.root.current.context)

    @property
    def usage(self) -> RunUsage:
        """The usage so far, including the agents that it runs now."""
        return self.state.usage

    @property
    def cost(self) -> Cost:
        """The cost so far, including the agents that it runs now."""
        return self.state.cost

    @property
    def seconds(self) -> float:
        """The seconds spent running, over all attempts, without the waits for people."""
        return self.current.seconds + self.clock.monotonic() - self._seconds_recorded_at

    @property
    def seconds_left(self) -> float | None:
        """The seconds until the deadline or the end of the run, at least 0; None if it has
        neither.
        """
        left, ends_at = self.running_seconds_left, self.current.ends_at
        if ends_at is None:
            return left
        until_end = max((ends_at - self.clock.now()).total_seconds(), 0.0)
        return until_end if left is None else min(left, until_end)

    @property
    def running_seconds_left(self) -> float | None:
        """The seconds until the deadline, at least 0; None without a deadline."""
        deadline = self.current.deadline
        return None if deadline is None else max(deadline - self.seconds, 0.0)

    @property
    def continuation(self) -> ExecutionContinuation:
        """The decision whether the run continues now: the active signals, and whether they are
        overridden.
        """
        return continuation_of(self.current)

    @property
    def streaming(self) -> bool:
        """Whether replies are streamed, because a subscriber follows the text."""
        given = self.environment.streaming
        return self.environment.emit is not None if given is None else given()

    @property
    def observed(self) -> bool:
        """Whether there is a listener for events."""
        return self.ledger.observed

    # -------------------------------------------------------------------- writing

    def record(self, *records: Record) -> None:
        """Add records, in order. Only steps call it; a hook uses `once`, `ask_model` and
        `replace_history`.

        Raises:
            UsageError: if a hook calls it.

        """
        if current_hook.get() is not None:
            raise UsageError("a hook cannot add records: use run.once or run.replace_history")
        self.ledger.record(*records)

    def durable(self) -> Coroutine[Any, Any, None]:
        """Wait until all records so far are durable."""
        return self.ledger.durable()

    def emit(self, event: Event) -> None:
        """Emit an event that is not recorded. Records emit their own events, once they are
        durable.
        """
        self.ledger.emit(event)

    async def once(self, key: str, function: Callable[[], Any]) -> Any:
        """Call `function` once in this run, and return its stored result each time.

        Hooks run at least once: after a crash the last hook runs again. So put each side effect of
        a hook here, with a key of its own. If the function raises, nothing is recorded, and it may
        be called again. A run that continues a failed run also has the stored results of that run:
        put `run_id` into the key of a side effect that each run must repeat.

        Args:
            key: the key of the side effect within the run.
            function: a plain or async function; its return value must be JSON-able.

        Raises:
            UsageError: if the key or the return value cannot be stored.

        """
        checked_text(key, what="run.once: `key`")

        async def call() -> Once:
            result = function()
            if inspect.isawaitable(result):
                result = await result
            value = checked_json({"result": result}, what=f"run.once({key!r})")["result"]
            return Once(key=key, value=value)

        return await self.recorded(key, call)

    async def recorded(self, key: str, make: Callable[[], Awaitable[Once | ModelAsked]]) -> Any:
        """Return the value that is recorded in `RunState.once` under this key; else let `make` make
        it.

        Several callers may ask for one key: one of them makes the record.
        """
        # Race: hooks of two tool calls run at the same time and use one key. The second waits for
        # the first, and tries itself if the first failed
        # (test_once_runs_a_side_effect_once_for_hooks_that_run_at_the_same_time).
        while key not in self.current.once:
            pending = self._once_pending.get(key)
            if pending is not None:
                await pending.wait()
                continue
            done = self._once_pending[key] = asyncio.Event()
            try:
                self.ledger.record(await make())
                await self.durable()
            finally:
                del self._once_pending[key]
                done.set()
        return self.current.once[key]

    @overload
    async def ask_model(
        self,
        key: str,
        messages: UserInput | Sequence[ModelMessage],
        model: str | Model | None = None,
        output_type: None = None,
    ) -> str: ...
    @overload
    async def ask_model(
        self,
        key: str,
        messages: UserInput | Sequence[ModelMessage],
        model: str | Model | None = None,
        *,
        output_type: type[T],
    ) -> T: ...
    @overload
    async def ask_model(
        self,
        key: str,
        messages: UserInput | Sequence[ModelMessage],
        model: str | Model | None = None,
        output_type: Any = None,
    ) -> Any: ...
    async def ask_model(
        self,
        key: str,
        messages: UserInput | Sequence[ModelMessage],
        model: str | Model | None = None,
        output_type: Any = None,
    ) -> Any:
        """Ask a model outside the conversation, from a hook: for a title, a summary or a judgement.

        The answer is recorded once under its key. After a crash, or on another host, it is returned
        without a call, even if the messages have changed. A call that was cut off is made again.
        Its cost counts as the run's cost, but it is not a step of the run. A cancellation of the
        run ends it.

        Args:
            key: the key of the question within the run, among the questions of this middleware.
            messages: a user's input, or messages of Pydantic AI, the last of which asks. The
                agent's own instructions, conversation and tools are not sent. The instructions
                are those of the last message that has some.
            model: the model; None = the agent's own, with its settings, retries and fallbacks.
            output_type: the type of the answer, as for an agent; None = text. If an answer does
                not fit, the model is asked again, at most twice.

        Raises:
            ModelFailed: if no model answers, or the answers do not fit. That is not recorded as
                an answer: another call asks the model again.
            RecordRefused: if the answer is too large to be kept.
            UsageError: if an argument is invalid, the model cannot be used, no run is open, or
                another middleware has the same name.

        """
        run = self.state.run
        if run is None or run.over:
            raise UsageError("run.ask_model: no run is open that could record the answer")
        return await self.children.ask_model(self, key, messages, model, output_type)

    def answer(self, key: str) -> Decision | None:
        """Return the decision on the question that the middleware asked by `Interrupt(payload,
        key=key)`.

        None if it was not asked in this run, or is not answered. A question that expired, or that a
        new message withdrew, counts as rejected. A middleware reads only its own answers.

        Raises:
            UsageError: if `key` is not text, or another middleware has the same name.

        """
        checked_text(key, what="run.answer: `key`")
        key = self.key_of_asker(key)
        run = self.state.run
        return None if run is None or run.answers is None else run.answers.get(key)

    def key_of_asker(self, key: str) -> str:
        """Return the key under which the question of the present middleware is stored.

        It includes the name of the middleware. So no other middleware reads the answer, even after
        its place in the stack has changed. Outside hooks it is the given key itself.

        Raises:
            UsageError: if another middleware has the same name.

        """
        hook = current_hook.get()
        if hook is None:
            return key
        self.check_asker(hook.middleware)
        return own_key(hook.middleware, key)

    def check_asker(self, name: str) -> None:
        """Raise a `UsageError` if two middlewares that may ask in this run have this name."""
        if [each.name for each in (*self.definition.middleware, *self.gates)].count(name) > 1:
            raise UsageError(
                f"Agent {self.definition.name!r} has two middlewares named {name!r}, and what a "
                "middleware asks is kept under its name: give each one a `name` of its own"
            )

    def signal(self, signal: StopSignal, *, answer: bool = False) -> None:
        """Request that the run stops. Any hook may call it.

        The run stops after the current step, or before the step that is about to begin, unless a
        continuation is requested. The same signal for the same step is recorded once.

        Args:
            signal: the reason. Give it a `source`: signals with one source count as one guard.
            answer: let the model answer once more, without a tool, before the run ends, as
                `early_stopping="generate"` does. Another signal without `answer` takes
                precedence.

        Raises:
            UsageError: if `signal` is not a `StopSignal`, `answer` is not a bool, or the run is
                over.

        """
        if not isinstance(signal, StopSignal):
            raise UsageError(f"run.signal takes a StopSignal, got {signal!r}")
        checked_flag(answer, what="run.signal(answer=...)")
        data = signal.to_dict()
        self._record_for_next_step(lambda turn: Signalled(turn=turn, signal=data, answer=answer))

    def request_continuation(self, *, prompt: str | None = None, source: str | None = None) -> None:
        """Request that the run continues in spite of active signals. Any hook may call it.

        It counts for one step: for the decision after the current step, and before the next step.
        After a reply without tool calls the model is asked again. It cannot override a
        cancellation, a deadline or `max_runs`, nor one guard more than `max_overrides` times in a
        row.

        Args:
            prompt: the next user message, if there is no tool result to continue from.
            source: the name of the requester, for the record.

        Raises:
            UsageError: if the run is over, or a text cannot be stored.

        """
        for what, text in (("prompt", prompt), ("source", source)):
            if text is not None:
                checked_text(text, what=f"run.request_continuation: `{what}`", may_be_empty=True)
        self._record_for_next_step(lambda turn: Override(turn=turn, source=source, prompt=prompt))

    def escalate(self) -> None:
        """End the nearest loop around this agent, as soon as the agent is done.

        It is for steps and hooks; tools return `ToolResult(escalate=True)`. Without a loop around
        the agent it has no effect.

        - In a hook of a `Loop` itself, such as `on_message`, it ends that loop after the agent that
          runs now.
        - In a hook of a `Sequential` or `Parallel` inside a loop, such as `on_run_start`, no
          further agent of it runs. A `Sequential` ends after the agent that runs now. A `Parallel`
          whose agents have begun ends when all of them are done.

        Raises:
            UsageError: if the run is over.

        """

        def record() -> None:
            run = self.state.run
            if self.closed or run is None or run.over:
                raise UsageError(_RUN_IS_OVER)
            if ESCALATED not in run.once:
                self.ledger.record(Once(key=ESCALATED, value=True))

        self._call_on_loop(record)

    def _record_for_next_step(self, make: Callable[[int], Signalled | Override]) -> None:
        """Record what `make` returns for the turn before which it counts."""

        def record() -> None:
            run = self.state.run
            if self.closed or run is None or run.over:
                raise UsageError(_RUN_IS_OVER)
            # `on_message` has a `Run` of its own, beside the one that runs the pipeline. It cannot
            # know whether the boundary before the next turn is decided already. So the turn counts
            # as begun: the signal waits for the next boundary, and does not get lost
            # (test_a_message_to_a_middleware_during_a_model_call_stops_the_run_after_that_step).
            # A workflow has no turns of its own: its agents' runs have them.
            has_turns = self.definition.asks_model
            begun = has_turns and (self.in_model_call or not self._attempt_begun)
            fact = make(run.turns + (begun and run.turn is None))
            if fact not in run.signals and fact not in run.overrides:
                self.ledger.record(fact)

        self._call_on_loop(record)

    def _call_on_loop(self, function: Callable[[], None]) -> None:
        """Call `function` on the loop of this run, from any thread; raise what it raises.

        A plain hook runs in a worker thread, and only the loop may change the state
        (`test_a_plain_hook_may_signal_from_its_thread`).

        Raises:
            UsageError: if the loop does not run any more.

        """
        if not call_on_and_wait(self.loop, function):
            raise UsageError(_RUN_IS_OVER)

    def begin_attempt(self) -> None:
        """Mark that the pipeline runs from now on."""
        self._attempt_begun = True
        if self.parent is None:
            self.cut_off = frozenset(
                call.key
                for state in self.state.tree
                for call in (state.run.open_calls if state.run is not None else ())
                if call.running
            )
            if self.cut_off:
                self.state.look_for_doubts()
        limited = self.definition.hooks.keeps_time or self.current.deadline is not None
        self.timed = limited or (self.parent is not None and self.parent.timed)

    def keep_time(self) -> None:
        """Record the time spent so far. Only for steps, if the run is `timed`.

        The runs above record their time too, because they make no step of their own meanwhile.
        """
        now = self.clock.monotonic()
        spent = self.current.seconds + now - self._seconds_recorded_at
        self._seconds_recorded_at = now
        self.ledger.record(TimeSpent(seconds=spent))
        if self.parent is not None and self.parent.timed:
            self.parent.keep_time()

    async def replace_history(self, messages: Iterable[ModelMessage]) -> None:
        """Replace the stored conversation, for instance by a summary.

        Raises:
            UsageError: while tool calls of the last reply have no results in it yet.

        """
        turn = self.current.turn
        if turn is not None and turn.calls and not turn.propagated:
            raise UsageError(
                "The history cannot be replaced while tool calls of its last reply are open: call "
                "run.replace_history in before_model"
            )
        self.ledger.record(HistoryReplaced(messages=tuple(normalised(messages))))
        await self.durable()

    # ------------------------------------------------------------------- outcomes

    def completed(self, text: str, tool_result: ToolCallResult | None = None) -> Completed:
        """Return the outcome of a completed run, for a step.

        Raises:
            UsageError: if the text is not text.

        """
        if not isinstance(text, str):
            raise UsageError(f"run.completed(text) must be text, got {shown(text)}")
        run = self.current
        results = run.progress.results if run.progress is not None else {}
        return Completed(
            text=text,
            tool_result=tool_result,
            early_stopped=run.early_stop is not None,
            output=self.definition.untyped(text),
            results=tuple(results[index] for index in sorted(results)),
            run_id=run.run_id,
            state=self.state,
            usage=self.usage,
        )

    def failed(self, error: UnderstudyError) -> Failed:
        """Return the outcome of a run that cannot continue, for a step.

        Raises:
            UsageError: if the error is not an error of this library, because it cannot be
                stored.

        """
        if not isinstance(error, UnderstudyError):
            raise UsageError(
                f"run.failed(error) takes an UnderstudyError, got {shown(error)}: raise any other "
                "one, and the run fails with it"
            )
        run = self.current
        return Failed(error=error, run_id=run.run_id, state=self.state, usage=self.usage)

    def interrupted(self) -> Interrupted:
        """Return the outcome of a run with pending requests, for a step."""
        run = self.current
        return Interrupted(
            requests=self.state.requests, run_id=run.run_id, state=self.state, usage=self.usage
        )

    def stopped(self, signals: StopSignals) -> Stopped:
        """Return the outcome of a run that signals stopped, for a step."""
        run = self.current
        return Stopped(signals=signals, run_id=run.run_id, state=self.state, usage=self.usage)

    def held(self, reason: str) -> Interrupted | Paused:
        """Return the outcome of a run that is paused. It is interrupted if a person is asked
        too.
        """
        return self.interrupted() if self.state.requests else self.paused(reason)

    def paused(self, reason: str) -> Paused:
        """Return the outcome of a paused run, for a step.

        Raises:
            UsageError: if the reason is not text.

        """
        if not isinstance(reason, str):
            raise UsageError(f"run.paused(reason) must be text, got {shown(reason)}")
        run = self.current
        return Paused(reason=reason, run_id=run.run_id, state=self.state, usage=self.usage)

    def waiting(self) -> Waiting:
        """Return the outcome of a run whose tools sleep or wait for an answer from outside, for a
        step.
        """
        run = self.current
        return Waiting(
            waits=waits_of(self.state, self.root.agent_id),
            run_id=run.run_id,
            state=self.state,
            usage=self.usage,
        )
