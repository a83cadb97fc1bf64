"""`Agent`: a definition with `execute`, `resume`, `stream` and `extract`. No actor, no store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, cast, overload

from pydantic_ai.messages import ModelMessage, ToolReturn
from pydantic_ai.models import Model
from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits
from typing_extensions import TypeForm

from understudy._base.clock import Clock, NewId
from understudy._base.json_values import checked_flag, checked_text
from understudy._base.type_variables import DepsT, DepsT_contra, OutputT, OutputT_co
from understudy.agent.build_definition import (
    build_definition,
    check_deadline,
    check_ends_at,
    check_limits,
    check_prompt,
)
from understudy.agent.run_environment import EnvironmentOptions, RunOptions, environment_of
from understudy.agent.run_sync import run_sync
from understudy.agent.runner import Runner
from understudy.agent.streaming import streamed
from understudy.agent.value_of_tool import refuse_until, value_of
from understudy.errors import UsageError, WouldDeadlock
from understudy.events import Event
from understudy.interrupts import GivenDecisions
from understudy.journal import Journal
from understudy.loop_actors.live_actors import has_actors
from understudy.middleware.base import Middleware
from understudy.models.messages import UserInput
from understudy.models.requirements import OutputMode, check_can_be_forced
from understudy.modes import Mode, collapse_until_tool
from understudy.outcomes import Outcome, OutcomeOf
from understudy.run.cancellation import CancellationSource
from understudy.run.definition import AgentDefinition, EarlyStopping, OnVersion, PauseWhen
from understudy.run.instructions import Instructions
from understudy.run.instrument import GivesInstrument
from understudy.run.ledger import Ledger
from understudy.run.until_tool import UntilTool, check_force, check_known, refuse_both
from understudy.state.agent_state import AgentState
from understudy.state.doubts import why_not_settled
from understudy.state.records import Revoked, Settled
from understudy.tools import ToolFunction, ToolResult
from understudy.tools.base_agent import BaseAgent
from understudy.tools.effects import Errors
from understudy.tools.function_tool import ToolOptions
from understudy.tools.gate_rule import Rule
from understudy.tools.tool_defaults import Undeclared
from understudy.tools.tool_errors import ToolErrors

if TYPE_CHECKING:
    from pydantic_ai import Agent as PydanticAgent
    from tenacity import AsyncRetrying

logger: logging.Logger = logging.getLogger(__name__)
T = TypeVar("T")


_TEXT: Any = None
"""The default of `output_type`. As an object of type `Any`: None by itself would be the type."""


class RunLimits(TypedDict, total=False):
    """The options of a run that `extract` takes, too."""

    force: bool
    max_runs: int | None
    deadline: float | None
    early_stopping_prompt: str | None
    ends_at: datetime | None
    go_on: bool


class ExtractOptions(EnvironmentOptions[DepsT], RunLimits, total=False):
    """The options of `extract`."""

    state: AgentState | None


class ExecuteOptions(ExtractOptions[DepsT], total=False):
    """The options of `execute`. A test compares its signature, and that of `resume`, with these."""

    until_tool: UntilTool | None
    until_tool_success: UntilTool | None


class AdoptedOptions(TypedDict, total=False):
    """The options of `Agent` that `Agent.from_pydantic_ai` takes as they are."""

    description: str
    max_runs: int
    early_stopping: EarlyStopping
    early_stopping_prompt: str | None
    fallback_models: Sequence[str | Model]
    retry: AsyncRetrying | None
    pause_when: PauseWhen | None
    idle_timeout: float | Literal["runtime"] | None
    stays_for_subscribers: bool
    undeclared: Undeclared | None
    unknown_after: Errors
    tool_errors: ToolErrors | None
    movable: bool
    needs: Collection[str]
    version: int
    on_version: OnVersion


class Agent(BaseAgent[DepsT_contra, OutputT_co]):
    """An LLM agent: its definition, and the ways to run it.

    Type checkers take what its `deps` must be from its tools and middleware, and the type of
    `outcome.output` from `output_type`. `Agent[Db, Invoice]` says so itself; in a bare `Agent` both
    are `Any`.

    Args:
        name: letters, digits, `_` and `-`.
        model: a Pydantic AI model, or the name of one, such as `"openai:gpt-5-mini"`. A name is
            looked up at the first run, so an agent can be defined without an API key. A workflow
            (`mode=Sequential([...])`) has none: its agents have their own.
        instructions: a text, with `{key}` from the state's values; or a function of the state.
        tools: functions and `@tool` functions.
        middleware: wrapped around model and tool calls, in this order.
        mode: the pipeline; `AgentExecution()` by default.
        description: what the agent is for, shown to agents that may delegate to it.
        max_runs: the maximum number of model calls in one run.
        early_stopping: what happens when one more is due: `"force"` fails the run; `"generate"`
            lets the model answer once more, without calling a tool, and completes it.
        early_stopping_prompt: the user message that asks for that last answer, also where a limit
            or a signal asks for it; by default one that says that a limit is reached.
        max_overrides: how many times in a row a stop signal of one guard may be overridden.
        fallback_models: asked in order if the model fails, for that call only.
        model_settings: Pydantic AI's, such as `{"temperature": 0}`.
        retry: Tenacity's `AsyncRetrying`, around each model call. By default only the provider's
            client retries, so that retries never multiply.
        interrupt_on: short for `middleware=[HumanInTheLoop(...)]`.
        output_key: the key in `state.values` for the final text (or its value, with `output_type`),
            so that `{key}` in the instructions of other agents reads it. Text next to tool calls is
            not final, and an empty text is not stored.
        output_type: a type that the final text is parsed as, from JSON. The model gets the schema;
            an answer that does not fit goes back to it with the errors, which costs a model call.
        output_mode: how the model is asked for it: `"native"` by its API, which then holds it to
            the schema; `"tool"` by a tool `final_result`; `"prompted"` by a prompt, and its API's
            JSON mode where there is one. None is by the instructions alone, which all models take.
        native_tools: tools that the provider runs, such as `WebSearchTool()` of
            `pydantic_ai.native_tools`. They have run when the reply comes: nobody approves them.
        include_contents: how much of the conversation before this run the model sees: all of it,
            or with `"none"` only the run's input and, in a workflow, the latest turn by another
            author.
        pause_when: called without arguments after each model reply; True or a reason pauses the
            run.
        idle_timeout: seconds after which a `Runtime` passivates the idle agent; None = never; by
            default the runtime's own.
        stays_for_subscribers: whether it stays in memory while its events have a subscriber,
            however long it is idle: a chat screen that is open, for instance.
        undeclared: what holds for its tools that do not say what it does to call them again:
            `"effects"` (it may harm) or `"read_only"` (it never harms), for an agent of thirty
            look-ups. It never covers a tool that a gate names, or that has `key`, `check` or
            `unknown_after`. By default what the runtime says.
        unknown_after: errors after which nobody knows what a call did, besides those that all
            tools have: classes, or names such as `"shop.errors.Unavailable"`. `Exception` is each.
        tool_errors: what happens with an error that a tool raises by accident, besides that the
            model gets its text: `"log"`: a line of the log, as a warning; `"traceback"`: its
            traceback as well; `"raise"`: also the run fails with `ToolRaised`, for tests. By
            default what the runtime says, or `"log"`.
        movable: whether another host of a shared store may take the agent from a living one while
            nothing of it goes on. False where it is bound to what its process has: a warm cache, a
            connection. Calls reach it at its host then.
        needs: labels that a host must have to run it, and the agents inside it: see
            `Runtime(labels=...)`.
        version: of this definition: of two of one name the one with the higher version is newer.
            Among those of one version it is the one that came later, as hosts of a shared store
            have seen them. A run never goes on on an older definition than that which began it.
        on_version: `"newest"`: a run that an older definition has begun goes on on this one;
            `"wait"`: it waits for a host that has its own.

    Raises:
        UsageError: for an invalid option, with the remedy.

    """

    def __init__(
        self,
        name: str,
        model: str | Model | None = None,
        instructions: Instructions = "",
        tools: Sequence[ToolFunction[DepsT_contra]] | Sequence[object] | tuple[()] = (),
        middleware: Sequence[Middleware[DepsT_contra]] | tuple[()] = (),
        mode: Mode[DepsT_contra] | None = None,
        description: str = "",
        *,
        max_runs: int = 50,
        early_stopping: EarlyStopping = "force",
        early_stopping_prompt: str | None = None,
        max_overrides: int = 3,
        fallback_models: Sequence[str | Model] = (),
        model_settings: ModelSettings | None = None,
        retry: AsyncRetrying | None = None,
        interrupt_on: Mapping[str, Rule] | None = None,
        output_key: str | None = None,
        output_type: TypeForm[OutputT_co] = _TEXT,
        output_mode: OutputMode | None = None,
        native_tools: Sequence[AbstractNativeTool] = (),
        include_contents: Literal["default", "none"] = "default",
        pause_when: PauseWhen | None = None,
        idle_timeout: float | Literal["runtime"] | None = "runtime",
        stays_for_subscribers: bool = False,
        undeclared: Undeclared | None = None,
        unknown_after: Errors = (),
        tool_errors: ToolErrors | None = None,
        movable: bool = True,
        needs: Collection[str] = frozenset(),
        version: int = 0,
        on_version: OnVersion = "newest",
    ) -> None:
        self.definition: AgentDefinition = build_definition(
            name=name,
            model=model,
            description=description,
            instructions=instructions,
            tools=tools,
            middleware=middleware,
            mode=mode,
            interrupt_on=interrupt_on,
            max_runs=max_runs,
            early_stopping=early_stopping,
            early_stopping_prompt=early_stopping_prompt,
            max_overrides=max_overrides,
            fallback_models=fallback_models,
            model_settings=model_settings,
            retry=retry,
            pause_when=pause_when,
            output_key=output_key,
            output_type=output_type,
            output_mode=output_mode,
            native_tools=native_tools,
            include_contents=include_contents,
            idle_timeout=idle_timeout,
            stays_for_subscribers=stays_for_subscribers,
            undeclared=undeclared,
            unknown_after=unknown_after,
            tool_errors=tool_errors,
            movable=movable,
            needs=needs,
            version=version,
            on_version=on_version,
        )
        """The frozen description, including the middleware's instructions and tools."""
        self.runner: Runner = Runner(self.definition)
        self._plain_options = RunOptions(max_runs=self.definition.max_runs)

    @classmethod
    def from_pydantic_ai(
        cls,
        agent: PydanticAgent[DepsT, OutputT],
        *,
        name: str | None = None,
        model: str | Model | None = None,
        interrupt_on: Mapping[str, Rule] | None = None,
        middleware: Sequence[Middleware[DepsT]] | tuple[()] = (),
        tools: Sequence[ToolFunction[DepsT]] | Sequence[object] | tuple[()] = (),
        tool_options: Mapping[str, ToolOptions] | None = None,
        listed_with: DepsT | None = None,
        usage_limits: UsageLimits | None = None,
        output_key: str | None = None,
        **options: Unpack[AdoptedOptions],
    ) -> Agent[DepsT, OutputT]:
        """An agent of Pydantic AI as one of this library: durable, with approvals and an inbox.

        It keeps its model, settings, instructions, system prompts, tools, toolsets, output,
        validators, retries and capabilities. Its functions get a `RunContext` with the `deps` of
        the run. A tool that needs approval, or whose calls are deferred, asks by a request. What
        cannot be carried over is an error that names it. An exception of a tool ends the run, as
        it does there: `tool_errors="log"` tells the model of it.

        A run takes a message history as `state=AgentState(messages=...)`. A model, toolsets, an
        output type or instructions for one run need an agent of their own.

        Args:
            agent: an `Agent` of `pydantic_ai`. It is read when it is needed and not changed.
            name: under which runs are stored; by default the agent's own.
            model: by default the agent's own.
            interrupt_on: as of `Agent`: more tools that need a person.
            middleware: as of `Agent`, around what the agent's capabilities do.
            tools: more tools, as of `Agent`.
            tool_options: by the name of a tool, options of `Tool`: such as `{"find": {"read_only":
                True}}`. A tool that says nothing has effects, and does not run again by itself.
            listed_with: deps with which toolsets list their tools now, where they need some.
            usage_limits: what a run may use; a run that exceeds them fails.
            output_key: as of `Agent`.
            options: as of `Agent`.

        Raises:
            UsageError: for anything but an `Agent` of `pydantic_ai`, one without a name or a model,
                what cannot be carried over, and as `Agent` does.

        """
        from understudy.adopted import adopted_options

        given = adopted_options(
            agent,
            name=name,
            model=model,
            tools=tools,
            middleware=middleware,
            tool_options=tool_options,
            listed_with=listed_with,
            usage_limits=usage_limits,
            output_key=output_key,
        )
        given |= {"interrupt_on": interrupt_on, "tool_errors": "raise", **options}
        return Agent(**given)

    @property
    def name(self) -> str:
        return self.definition.name

    def __repr__(self) -> str:
        definition = self.definition
        return f"Agent({self.name!r}, tools={list(definition.tools)}, mode={definition.mode!r})"

    # -------------------------------------------------------------------- running

    async def execute(
        self,
        input: UserInput,
        *,
        state: AgentState | None = None,
        until_tool: UntilTool | None = None,
        until_tool_success: UntilTool | None = None,
        force: bool = False,
        max_runs: int | None = None,
        deadline: float | None = None,
        early_stopping_prompt: str | None = None,
        ends_at: datetime | None = None,
        go_on: bool = False,
        cancellation: CancellationSource | Sequence[CancellationSource] | None = None,
        deps: DepsT_contra | None = None,
        pause_when: PauseWhen | None = None,
        clock: Clock | None = None,
        new_id: NewId | None = None,
        journal: Journal | None = None,
        on_event: Callable[[Event], None] | None = None,
        telemetry: GivesInstrument | None = None,
    ) -> OutcomeOf[OutputT_co]:
        """Run the agent on a message, to an outcome.

        A failure of the model or of a tool does not raise: it is part of the outcome. If a run is
        open in `state`, the new message ends it, and withdraws its pending requests.

        Args:
            input: the user's message.
            state: the conversation so far; empty by default.
            until_tool: end the run as soon as this tool has a result.
            until_tool_success: the same, but only for a result that is not an error.
            force: make the model call the until tool, and no other one, in each of its replies.
                Some models cannot be forced, such as those of Anthropic while they think with a
                budget. A model whose profile says so is a `UsageError`.
            max_runs: instead of the agent's own.
            deadline: seconds that the run may take, over all its resumes, without the waits for
                people. Then it stops at once, also in the middle of a call.
            early_stopping_prompt: instead of the agent's own.
            ends_at: the time of day, with a time zone, at which the run stops at once; the waits
                for people count.
            go_on: where the last run of `state` failed, continue it as `retry` does, with this
                message; any other run begins as without it.
            cancellation: one or more sources, called before each step, that may cancel the run.
            deps: passed to tools as `ctx.deps`; never stored.
            pause_when: called without arguments after each model reply, in addition to the agent's
                own.
            clock, new_id: where time and ids come from, to simulate or replay a run.
            journal: gets each record as it is made.
            on_event: called with each event, from any thread; replies are streamed then.
            telemetry: a `Telemetry` of `understudy.telemetry`, which makes spans and metrics.

        Raises:
            UsageError: for a mistake of the caller, before anything runs; with `go_on`, as `retry`.
            JournalFailed: if the journal refuses a record.

        """
        checked_flag(go_on, what="execute(go_on=...)")
        run_options = self.run_options(
            until_tool,
            until_tool_success,
            max_runs,
            deadline,
            early_stopping_prompt,
            force=force,
            ends_at=ends_at,
        )
        environment = environment_of(
            deps=deps,
            pause_when=pause_when,
            clock=clock,
            new_id=new_id,
            journal=journal,
            on_event=on_event,
            cancellation=cancellation,
            telemetry=telemetry,
        )
        try:
            return await self.runner.start(
                input, state, options=run_options, environment=environment, go_on=go_on
            )
        finally:
            await environment.shared.close()

    def run_options(
        self,
        until_tool: UntilTool | None = None,
        until_tool_success: UntilTool | None = None,
        max_runs: int | None = None,
        deadline: float | None = None,
        early_stopping_prompt: str | None = None,
        *,
        force: bool = False,
        ends_at: datetime | None = None,
    ) -> RunOptions:
        """The options of a run, checked, with the until pair collapsed.

        Raises:
            UsageError: for both until options, an unknown tool, an invalid limit, `max_runs` of a
                workflow, or `force` without an until tool or of a model that cannot be forced.

        """
        limits = (max_runs, deadline, early_stopping_prompt, ends_at)
        given = (until_tool, until_tool_success, *limits)
        if all(option is None for option in given) and force is False:
            return self._plain_options
        refuse_both(until_tool, until_tool_success)
        names, require_success = collapse_until_tool(until_tool, until_tool_success)
        definition = self.definition
        if max_runs is not None and not definition.asks_model:
            raise UsageError(
                f"Agent {self.name!r} runs other agents by {definition.mode!r} and calls no model "
                "itself, so max_runs would count nothing: give it to its agents, or a deadline here"
            )
        if early_stopping_prompt is not None and not definition.asks_model:
            raise UsageError(
                f"Agent {self.name!r} runs other agents by {definition.mode!r} and calls no model "
                "itself, so nothing would read early_stopping_prompt: give it to its agents"
            )
        if names is not None:
            check_known(names, definition.tools, agent=self.name)
        check_force(force, names, agent=self.name)
        if force:
            check_can_be_forced(self.runner.models, agent=self.name)
        check_prompt(early_stopping_prompt, agent=self.name)
        limit = definition.max_runs if max_runs is None else max_runs
        check_limits(limit, definition.early_stopping, agent=self.name)
        return RunOptions(
            until_tool=names,
            require_tool_success=require_success,
            force=force,
            max_runs=limit,
            deadline=check_deadline(deadline),
            early_stopping_prompt=early_stopping_prompt,
            ends_at=check_ends_at(ends_at),
        )

    def execute_sync(
        self, input: UserInput, **options: Unpack[ExecuteOptions[DepsT_contra]]
    ) -> OutcomeOf[OutputT_co]:
        """`execute` for code that cannot await, with the same options and errors.

        It works in a notebook too: where an event loop runs in this thread, the run has a thread
        and a loop of its own, with this context, and the loop here stands still until it ends.
        Ctrl-C cancels the run.

        Raises:
            WouldDeadlock: on the event loop of a `Runtime`, or of other actors, which would stand
                still with it: use `await agent.execute(...)` there.

        """
        return self._sync(lambda: self.execute(input, **options), "execute")

    async def resume(
        self,
        state: AgentState,
        decisions: GivenDecisions | None = None,
        answers: Mapping[str, Any] | None = None,
        *,
        cancellation: CancellationSource | Sequence[CancellationSource] | None = None,
        deps: DepsT_contra | None = None,
        pause_when: PauseWhen | None = None,
        clock: Clock | None = None,
        new_id: NewId | None = None,
        journal: Journal | None = None,
        on_event: Callable[[Event], None] | None = None,
        telemetry: GivesInstrument | None = None,
    ) -> OutcomeOf[OutputT_co]:
        """Continue a run that was interrupted, paused, or cut off by a crash, or that waits.

        A state is a value: two calls with the same one continue two copies of the run, and each
        runs its tools. Where that must not happen, let a `Runtime` keep the state.

        Args:
            state: from an outcome, or from `AgentState.from_dict` in another process.
            decisions: by request id, or by request. Some of them are enough: the others stay
                pending, in a new outcome. One alone, such as `approve()`, is for the only request
                that is pending. Without any, a paused run continues.
            answers: by token, the values of waits, as `runtime.resolve` takes them.
            cancellation: as in `execute`; sources are not stored, so give them again.
            deps, pause_when: must be given again if the run had them; without them its outcome is
                `Paused("needs deps")`.
            clock, new_id, journal, on_event, telemetry: as in `execute`.

        Raises:
            DecisionError: if a decision does not fit, or its request is not pending. Nothing ran,
                and a right one still works.
            NotInterrupted: without decisions, if no run is open; with them, if the request was
                answered differently before.
            UnknownToken, Expired: if a wait cannot be answered by one of `answers`. Nothing ran.
            UsageError: for an invalid state or option.
            JournalFailed: if the journal refuses a record.

        """
        environment = environment_of(
            deps=deps,
            pause_when=pause_when,
            clock=clock,
            new_id=new_id,
            journal=journal,
            on_event=on_event,
            cancellation=cancellation,
            telemetry=telemetry,
        )
        try:
            return await self.runner.resume(
                state, decisions, answers or {}, environment=environment
            )
        finally:
            await environment.shared.close()

    def resume_sync(
        self,
        state: AgentState,
        decisions: GivenDecisions | None = None,
        answers: Mapping[str, Any] | None = None,
        **options: Unpack[EnvironmentOptions[DepsT_contra]],
    ) -> OutcomeOf[OutputT_co]:
        """`resume` for code that cannot await, as `execute_sync` is `execute`.

        Raises:
            WouldDeadlock: on the event loop of a `Runtime`, or of other actors: use
                `await agent.resume(...)` there.

        """
        return self._sync(lambda: self.resume(state, decisions, answers, **options), "resume")

    async def retry(
        self, state: AgentState, **options: Unpack[EnvironmentOptions[DepsT_contra]]
    ) -> OutcomeOf[OutputT_co]:
        """Continue where the last run of this state failed, in a new run; to its outcome.

        What that run has finished stays: agents of a workflow that have ended, results of tools,
        replies of models. A call that was started and has no result is in doubt, unless it is
        idempotent or read-only: as after a crash. The new run has the options of the failed one;
        its limits count anew.

        Args:
            state: of the outcome that failed, or from `AgentState.from_dict` in another process.
            options: those of `resume`.

        Raises:
            NotInterrupted: if the last run has not failed.
            NoProgress: if five retries in a row got no further.
            OtherWorkflow: if the agents of the workflow are others now, or in another order.
            UsageError: for an invalid state or option.
            JournalFailed: if the journal refuses a record.

        """
        environment = environment_of(**options)
        try:
            return await self.runner.retry(state, environment=environment)
        finally:
            await environment.shared.close()

    def retry_sync(
        self, state: AgentState, **options: Unpack[EnvironmentOptions[DepsT_contra]]
    ) -> OutcomeOf[OutputT_co]:
        """`retry` for code that cannot await, as `execute_sync` is `execute`.

        Raises:
            WouldDeadlock: on the event loop of a `Runtime`, or of other actors: use
                `await agent.retry(...)` there.

        """
        return self._sync(lambda: self.retry(state, **options), "retry")

    def stream(
        self,
        input: UserInput | None = None,
        *,
        decisions: GivenDecisions | None = None,
        answers: Mapping[str, Any] | None = None,
        **options: Unpack[ExecuteOptions[DepsT_contra]],
    ) -> AsyncIterator[Event | OutcomeOf[OutputT_co]]:
        """Run the agent, and iterate over its events and, last, its outcome.

        With a `state` and no input it resumes, with `decisions` and `answers` if given. Takes the
        options of `execute` or `resume`. Closing the iterator cancels the run; to leave the loop
        early use `async with contextlib.aclosing(agent.stream(...)) as events`.

        Raises:
            UsageError: as `execute` and `resume` do, when the iteration begins.

        """

        async def begin(emit: Callable[[Event], None]) -> Outcome:
            listener = options.get("on_event")
            options["on_event"] = emit if listener is None else _both(emit, listener)
            if input is not None:
                if decisions is not None or answers is not None:
                    raise UsageError("stream() takes an input, or decisions and answers, not both")
                return await self.execute(input, **options)
            state = options.pop("state", None)
            if state is None:
                raise UsageError("stream() takes an input, or a state to go on with")
            fixed = [name for name in options if name not in EnvironmentOptions.__annotations__]
            if fixed:
                raise UsageError(
                    f"stream() resumes a run, whose state holds {fixed[0]} already: leave it out"
                )
            environment = cast("EnvironmentOptions", options)
            return await self.resume(state, decisions, answers, **environment)

        return streamed(begin)

    @overload
    async def extract(
        self,
        tool: Callable[..., Coroutine[Any, Any, ToolReturn[T]] | ToolReturn[T]],
        input: UserInput,
        **options: Unpack[ExtractOptions[DepsT_contra]],
    ) -> T: ...
    @overload
    async def extract(
        self,
        tool: Callable[..., Coroutine[Any, Any, ToolResult[T]] | ToolResult[T]],
        input: UserInput,
        **options: Unpack[ExtractOptions[DepsT_contra]],
    ) -> T: ...
    @overload
    async def extract(
        self,
        tool: Callable[..., Coroutine[Any, Any, T]],
        input: UserInput,
        **options: Unpack[ExtractOptions[DepsT_contra]],
    ) -> T: ...
    @overload
    async def extract(
        self,
        tool: Callable[..., T],
        input: UserInput,
        **options: Unpack[ExtractOptions[DepsT_contra]],
    ) -> T: ...
    @overload
    async def extract(
        self,
        tool: str | Sequence[str | Callable[..., Any]],
        input: UserInput,
        **options: Unpack[ExtractOptions[DepsT_contra]],
    ) -> Any: ...
    async def extract(
        self,
        tool: UntilTool,
        input: UserInput,
        **options: Unpack[ExtractOptions[DepsT_contra]],
    ) -> Any:
        """Run until `tool`, or one of several, succeeds, and return its return value.

        Takes the options of `execute` but the two that say until which tool.

        Raises:
            UsageError: as `execute` does.
            NotExtracted: if the run ended in another way; the run's own error is its cause.

        """
        refuse_until(tool, options)
        return value_of(tool, await self.execute(input, **options, until_tool_success=tool))

    def revoke(self, state: AgentState, grant_id: str) -> AgentState:
        """The state without a grant: a decision that holds for later calls.

        Args:
            state: with the grant.
            grant_id: of the grant; `state.grants` lists them.

        Raises:
            UsageError: if there is none.

        """
        if grant_id not in state.grants:
            known = ", ".join(map(repr, state.grants)) or "none"
            raise UsageError(f"There is no grant {grant_id!r}; there are: {known}")
        ledger = Ledger(state.copied())
        ledger.record(Revoked(grant_id=grant_id))
        return ledger.state

    def settle(
        self, state: AgentState, call_key: str, *, how: str, happened: bool = True
    ) -> AgentState:
        """The state without the doubt about this call, once it is known what it did.

        While a call is in doubt, each call that equals it needs a decision. The calls in doubt are
        in `state.doubts_in_tree`, by call key. Of a call that waits for its check the model is told
        `how`, when the run is resumed.

        Args:
            state: with the doubt.
            call_key: the call in doubt.
            how: what was found out, for the record.
            happened: whether the call took effect, or may have; see `AgentRef.settle`.

        Raises:
            UsageError: if this call is not in doubt, or `how` is not text that can be stored.

        """
        checked_text(how, what="`how`", may_be_empty=True)
        checked_flag(happened, what="`happened`")
        if call_key not in (doubts := state.doubts_in_tree):
            known = ", ".join(map(repr, doubts)) or "none"
            why = why_not_settled(state.requests, call_key)
            raise UsageError(f"Call {call_key!r} is not in doubt; in doubt are: {known}{why}")
        ledger = Ledger(state.copied())
        ledger.record(Settled(call_key=call_key, how=how, happened=happened))
        return ledger.state

    def display(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        """The messages as a person should see them: through `transform_display_message`.

        A hook that raises is logged, and changes nothing about that message.
        """
        shown = []
        for message in messages:
            for hook in self.definition.hooks.transform_display_message:
                try:
                    message = hook.function(message) or message
                except Exception as error:  # one message must not hide all the others
                    logger.exception("%s", hook.failure(error))
            shown.append(message)
        return shown

    def _sync(self, start: Callable[[], Coroutine[Any, Any, Outcome]], what: str) -> Outcome:
        async def go() -> Outcome:
            # The event loop ends with this call. A model that was entered closes its HTTP client.
            async with AsyncExitStack() as clients:
                for model in self.runner.all_models:
                    await clients.enter_async_context(model)
                return await start()

        running = asyncio._get_running_loop()  # get_running_loop, but without an exception
        if running is not None and has_actors(running):
            raise WouldDeadlock(what=f"{what}_sync", remedy=f"await agent.{what}(...) instead")
        return run_sync(go)


def _both(
    first: Callable[[Event], None], second: Callable[[Event], None]
) -> Callable[[Event], None]:
    def emit(event: Event) -> None:
        first(event)
        second(event)

    return emit
