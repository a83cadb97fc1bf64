"""`Agent`: a definition with `execute`, `resume`, `stream` and `extract`. No actor, no store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
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
from understudy.approvals import why_not_settled_by
from understudy.errors import UsageError, VoteRefused, WouldDeadlock
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
"""The default of `output_type`. It is typed `Any`, because None itself would be taken for the
type."""


class RunLimits(TypedDict, total=False):
    """The options of a run that `extract` takes too."""

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
    """An LLM agent: its definition, and the methods that run it.

    Type checkers infer the type of `deps` from its tools and middleware, and the type of
    `outcome.output` from `output_type`. `Agent[Db, Invoice]` declares both. In a bare `Agent` both
    are `Any`.

    Args:
        name: the name, of letters, digits, `_` and `-`.
        model: a Pydantic AI model, or its name, such as `"openai:gpt-5-mini"`. A name is looked
            up at the first run, so an agent can be defined without an API key. A workflow
            (`mode=Sequential([...])`) has no model: its agents have their own.
        instructions: a text, in which `{key}` stands for a value of the state; or a function of
            the state.
        tools: functions and `@tool` functions.
        middleware: the middleware around model and tool calls, the outermost first.
        mode: the pipeline; by default `AgentExecution()`.
        description: the purpose of the agent, shown to agents that may delegate to it.
        max_runs: the maximum number of model calls in one run.
        early_stopping: what happens if another call is due: `"force"` fails the run;
            `"generate"` lets the model answer once more, without calling a tool, and completes
            the run.
        early_stopping_prompt: the user message that asks for this last answer, also if a limit
            or a signal asks for it. The default says that a limit is reached.
        max_overrides: the number of times in a row that a stop signal of one guard may be
            overridden.
        fallback_models: the models that are asked, in order, if the model fails; for that call
            only.
        model_settings: settings of Pydantic AI, such as `{"temperature": 0}`.
        retry: Tenacity's `AsyncRetrying`, around each model call. By default only the
            provider's client retries, so that retries never multiply.
        interrupt_on: short for `middleware=[HumanInTheLoop(...)]`.
        output_key: the key in `state.values` for the final text, or for its value with
            `output_type`. So `{key}` in the instructions of other agents reads it. Text next to
            tool calls is not final, and an empty text is not stored.
        output_type: the type of the final text, which is parsed from JSON. The model gets the
            schema. An answer that does not fit goes back to the model with the errors, which
            costs a model call.
        output_mode: how the model is asked for it. `"native"`: by its API, which enforces the
            schema. `"tool"`: by a tool `final_result`. `"prompted"`: by a prompt, and the API's
            JSON mode if it has one. None: by the instructions alone, which works with all
            models.
        native_tools: tools that the provider runs, such as `WebSearchTool()` of
            `pydantic_ai.native_tools`. They have run when the reply comes: nobody approves
            them.
        include_contents: how much of the conversation before this run the model sees: by
            default all of it; with `"none"` only the run's input and, in a workflow, the latest
            turn by another author.
        pause_when: a function without arguments, called after each model reply. True or a
            reason pauses the run.
        idle_timeout: seconds after which a `Runtime` passivates the idle agent; None = never;
            by default the runtime's own.
        stays_for_subscribers: keep the agent in memory while its events have a subscriber, such
            as an open chat screen, however long it is idle.
        undeclared: the effect of its tools that do not declare what calling them again does:
            `"effects"` (it may harm) or `"read_only"` (it never harms), for instance for an
            agent with many look-ups. It never covers a tool that a gate names, or that has
            `key`, `check` or `unknown_after`. By default the runtime's own.
        unknown_after: errors after which nobody knows what a call did, besides those that all
            tools have. They are classes, or names such as `"shop.errors.Unavailable"`.
            `Exception` covers every error.
        tool_errors: what happens with an unexpected error of a tool, besides that the model
            gets its text. `"log"`: a warning in the log. `"traceback"`: the warning with its
            traceback. `"raise"`: the run also fails with `ToolRaised`, for tests. By default
            the runtime's own, or `"log"`.
        movable: whether another host of a shared store may take the agent from a living host
            while it is at rest. Use False if it is bound to its process, for instance by a warm
            cache or a connection. Calls then reach it at its host.
        needs: the labels that a host must have to run it and the agents inside it: see
            `Runtime(labels=...)`.
        version: the version of this definition. Of two definitions of one name, the higher
            version is newer. Of equal versions, the one that the hosts of a shared store saw
            later is newer. A run never continues on an older definition than the one that began
            it.
        on_version: what happens to a run that an older definition has begun. `"newest"`: it
            continues on this definition. `"wait"`: it waits for a host that has its own
            definition.

    Raises:
        UsageError: if an option is invalid; the message has the remedy.

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
        """The frozen description of the agent, including the middleware's instructions and
        tools."""
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
        """Make an agent of this library from an agent of Pydantic AI: durable, with approvals and
        an inbox.

        It keeps its model, settings, instructions, system prompts, tools, toolsets, output,
        validators, retries and capabilities. Its functions get a `RunContext` with the `deps` of
        the run. A tool that needs approval, or whose calls are deferred, asks by a request. If
        something cannot be carried over, an error names it. An exception of a tool ends the run, as
        in Pydantic AI; with `tool_errors="log"` the model gets the error instead.

        A run takes a message history as `state=AgentState(messages=...)`. A different model,
        toolsets, output type or instructions for one run need an agent of their own.

        Args:
            agent: an `Agent` of `pydantic_ai`. It is read when it is needed, and not changed.
            name: the name under which runs are stored; by default the agent's own.
            model: the model; by default the agent's own.
            interrupt_on: more tools that need a person, as for `Agent`.
            middleware: middleware as for `Agent`, around the work of the agent's capabilities.
            tools: more tools, as for `Agent`.
            tool_options: options of `Tool`, by the name of the tool: such as `{"find":
                {"read_only": True}}`. A tool without options has effects, and does not run
                again by itself.
            listed_with: the deps with which toolsets list their tools now, if they need deps.
            usage_limits: the limits of a run's usage; a run that exceeds them fails.
            output_key: as for `Agent`.
            options: as for `Agent`, of those that `AdoptedOptions` has.

        Raises:
            UsageError: if `agent` is not an `Agent` of `pydantic_ai`, has no name or no model,
                or cannot be carried over; if there is no such option; and as `Agent` does.

        """
        from understudy.adopted import adopted_options

        if unknown := options.keys() - AdoptedOptions.__annotations__.keys():
            known = ", ".join(sorted(AdoptedOptions.__annotations__))
            raise UsageError(
                f"from_pydantic_ai takes no {'=, '.join(sorted(unknown))}=: what an agent of "
                f"Pydantic AI has itself is given to that agent. More options are {known}"
            )
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
        """Run the agent on a message, and return the outcome.

        A failure of the model or of a tool does not raise: it is part of the outcome. If a run is
        open in `state`, the new message ends that run, and withdraws its pending requests.

        Args:
            input: the user's message.
            state: the conversation so far; by default empty.
            until_tool: end the run as soon as this tool has a result.
            until_tool_success: end the run as soon as this tool has a result that is not an
                error.
            force: make the model call the until tool, and no other tool, in each of its
                replies. Some models cannot be forced, such as those of Anthropic while they
                think with a budget. If the profile of a model says so, it is a `UsageError`.
            max_runs: the maximum number of model calls, instead of the agent's own.
            deadline: the seconds that the run may take, over all its resumes, without the waits
                for people. Then it stops at once, even in the middle of a call.
            early_stopping_prompt: instead of the agent's own.
            ends_at: the point in time, with a time zone, at which the run stops at once. The
                waits for people count.
            go_on: if the last run of `state` failed, continue it as `retry` does, with this
                message. Otherwise it has no effect.
            cancellation: one or more sources that may cancel the run. They are called before
                each step.
            deps: passed to tools as `ctx.deps`; never stored.
            pause_when: a function without arguments, called after each model reply, in addition
                to the agent's own.
            clock, new_id: the sources of time and ids, to simulate or replay a run.
            journal: gets each record as it is made.
            on_event: called with each event, from any thread. Replies are then streamed.
            telemetry: a `Telemetry` of `understudy.telemetry`, which makes spans and metrics.

        Raises:
            UsageError: for a mistake of the caller, before anything runs; with `go_on` also as
                `retry` does.
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
        """Return the options of a run, checked, with the two until options made into one.

        Raises:
            UsageError: if both until options are given, a tool is unknown, a limit is invalid,
                a workflow has `max_runs`, or `force` is given without an until tool or for a
                model that cannot be forced.

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
        """Run `execute` in code that cannot await, with the same options and errors.

        It also works in a notebook. If an event loop runs in this thread, the run gets a thread and
        a loop of its own, with this context, and the loop here stands still until it ends. Ctrl-C
        cancels the run.

        Raises:
            WouldDeadlock: on the event loop of a `Runtime`, or of other actors, which would
                stand still with it. Use `await agent.execute(...)` there.

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
        """Continue a run that waits, that was interrupted or paused, or that a crash cut off.

        A state is a value: two calls with the same state continue two copies of the run, and each
        copy runs its tools. If that must not happen, let a `Runtime` keep the state.

        Args:
            state: the state of an outcome, or of `AgentState.from_dict` in another process.
            decisions: the decisions by request id, or by request. You may give only some of
                them: the other requests stay pending, in a new outcome. A single decision, such
                as `approve()`, is for the only request that is pending. Without decisions, a
                paused run continues.
            answers: the values of waits, by token, as `runtime.resolve` takes them.
            cancellation: as in `execute`. Sources are not stored, so give them again.
            deps, pause_when: give them again if the run had them. Without them the outcome is
                `Paused("needs deps")`.
            clock, new_id, journal, on_event, telemetry: as in `execute`.

        Raises:
            DecisionError: if a decision does not fit, or its request is not pending. Nothing
                ran, and a valid decision is still accepted.
            NotInterrupted: without decisions, if no run is open; with decisions, if the request
                already has a different decision.
            UnknownToken, Expired: if one of `answers` cannot answer a wait. Nothing ran.
            UsageError: if the state or an option is invalid.
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
        """Run `resume` in code that cannot await, as `execute_sync` runs `execute`.

        Raises:
            WouldDeadlock: on the event loop of a `Runtime`, or of other actors: use `await
                agent.resume(...)` there.

        """
        return self._sync(lambda: self.resume(state, decisions, answers, **options), "resume")

    async def retry(
        self, state: AgentState, **options: Unpack[EnvironmentOptions[DepsT_contra]]
    ) -> OutcomeOf[OutputT_co]:
        """Continue the last run of this state, which failed, as a new run. Return the outcome.

        Everything that the failed run has finished stays: agents of a workflow, results of tools,
        replies of models. A call that was started and has no result is in doubt, as after a crash,
        unless it is idempotent or read-only. The new run has the options of the failed run. Its
        limits count anew.

        Args:
            state: the state of the failed outcome, or of `AgentState.from_dict` in another
                process.
            options: the options of `resume`.

        Raises:
            NotInterrupted: if the last run has not failed.
            NoProgress: if five retries in a row got no further.
            OtherWorkflow: if the agents of the workflow, or their order, have changed.
            UsageError: if the state or an option is invalid.
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
        """Run `retry` in code that cannot await, as `execute_sync` runs `execute`.

        Raises:
            WouldDeadlock: on the event loop of a `Runtime`, or of other actors: use `await
                agent.retry(...)` there.

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
        """Run the agent, and iterate over its events and then its outcome.

        With a `state` and no input it resumes the run, with `decisions` and `answers` if given. It
        takes the options of `execute` or `resume`. Closing the iterator cancels the run. To leave
        the loop early, use `async with contextlib.aclosing(agent.stream(...)) as events`.

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
                raise UsageError("stream() takes an input, or a state to continue")
            fixed = [name for name in options if name not in EnvironmentOptions.__annotations__]
            if fixed:
                raise UsageError(
                    f"stream() resumes a run, and its state already has {fixed[0]}: leave it out"
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
        """Run until a tool succeeds, and return the return value of the tool.

        `tool` is one tool or several. The other options are those of `execute`, without the two
        until options.

        Raises:
            UsageError: as `execute` does.
            NotExtracted: if the run ended in another way. The error of the run is its cause.

        """
        refuse_until(tool, options)
        return value_of(tool, await self.execute(input, **options, until_tool_success=tool))

    def revoke(self, state: AgentState, grant_id: str) -> AgentState:
        """Return the state without a grant. A grant is a decision that holds for later calls.

        Args:
            state: the state with the grant.
            grant_id: the id of the grant; `state.grants` has all grants by their ids.

        Raises:
            UsageError: if the state has no such grant.

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
        """Return the state without the doubt about a call, once somebody knows what the call did.

        While a call is in doubt, each call that equals it needs a decision. `state.doubts_in_tree`
        has the calls in doubt, by call key. If the call waits for its check, the model gets `how`
        when the run is resumed.

        Args:
            state: the state with the doubt.
            call_key: the key of the call in doubt.
            how: what was found out, for the record.
            happened: whether the call took effect, or may have; see `AgentRef.settle`.

        Raises:
            UsageError: if this call is not in doubt, or `how` is not text that can be stored.
            VoteRefused: if the approval of the call had `never`: no people are known here.

        """
        checked_text(how, what="`how`", may_be_empty=True)
        checked_flag(happened, what="`happened`")
        if call_key not in (doubts := state.doubts_in_tree):
            known = ", ".join(map(repr, doubts)) or "none"
            why = why_not_settled(state.requests, call_key)
            raise UsageError(f"Call {call_key!r} is not in doubt; in doubt are: {known}{why}")
        refused = why_not_settled_by(doubts[call_key], None, None, datetime.now(UTC))
        if refused is not None:
            raise VoteRefused(
                f"Call {call_key!r}: {refused}, at its runtime", request_id="", person=""
            )
        ledger = Ledger(state.copied())
        ledger.record(Settled(call_key=call_key, how=how, happened=happened))
        return ledger.state

    def display(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        """Return the messages as a person should see them, through `transform_display_message`.

        If a hook raises, the error is logged, and the message is shown unchanged.
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
