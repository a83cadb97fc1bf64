"""`Agent`: a definition with `execute`, `resume`, `stream` and `extract`. No actor, no store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Literal, TypedDict, TypeVar, Unpack, cast, overload

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from tenacity import AsyncRetrying

from understudy._base.clock import Clock, NewId, SystemClock, new_random_id
from understudy.agent.build_definition import assemble, check_deadline, check_limits
from understudy.agent.runner import Decisions, RunEnvironment, Runner, RunOptions
from understudy.agent.streaming import streamed
from understudy.errors import NotExtracted, UsageError
from understudy.events import Event
from understudy.journal import Journal
from understudy.middleware.base import Middleware
from understudy.middleware.human_in_the_loop import Rule
from understudy.models.messages import UserInput
from understudy.modes import Mode, collapse_until_tool
from understudy.outcomes import Completed, Failed, Outcome
from understudy.run.cancellation import CancellationSource, as_sources
from understudy.run.definition import PauseWhen
from understudy.run.instructions import Instructions
from understudy.run.ledger import Ledger
from understudy.run.until_tool import UntilTool, check_known, refuse_both
from understudy.state.agent_state import AgentState
from understudy.state.records import Revoked, Settled
from understudy.tools import Tool, ToolResult

__all__ = ["Agent"]

T = TypeVar("T")


class EnvironmentOptions(TypedDict, total=False):
    """What `execute` and `resume` both take."""

    deps: Any
    pause_when: PauseWhen | None
    clock: Clock | None
    new_id: NewId | None
    journal: Journal | None
    on_event: Callable[[Event], None] | None
    cancellation: CancellationSource | Sequence[CancellationSource] | None


class ExecuteOptions(EnvironmentOptions, total=False):
    """What `execute` takes beside the input."""

    state: AgentState | None
    until_tool: UntilTool | None
    until_tool_success: UntilTool | None
    max_runs: int | None
    deadline: float | None


class Agent:
    """An LLM agent: what it is, and how to run it.

    Args:
        name: letters, digits, `_` and `-` (T7).
        model: any Pydantic AI model, or its name, such as `"openai:gpt-5-mini"`. A name is looked
            up at the first run, so an agent can be defined without an API key. A workflow
            (`mode=Sequential([...])`) takes none: its agents have their own.
        instructions: text with `{key}` from the state's values, or a function of the state (W4).
        tools: functions and `@tool` functions.
        middleware: wrapped around model and tool calls, in this order.
        mode: the pipeline; `AgentExecution()` by default.
        description: what the agent is for, told to agents that may delegate to it.
        max_runs: how many model calls one run may make (R1).
        early_stopping: what happens when one more is due: `"force"` fails the run; `"generate"`
            lets the model answer once more, without tools, and completes it (R1).
        max_overrides: how often in a row a stop signal of one guard may be overridden (P4).
        fallback_models: asked in order when the model fails, for that call only (R5).
        model_settings: Pydantic AI's, such as `{"temperature": 0}`.
        retry: Tenacity's `AsyncRetrying`, around each model call. By default only the provider's
            client retries, so that retries never multiply.
        interrupt_on: short for `middleware=[HumanInTheLoop(...)]`.
        output_key: where in `state.values` the final text is put (or its value under
            `output_type`), for the `{key}` of other agents. A reply with tool calls is not final,
            and an empty one puts nothing (W4).
        output_type: what the final text is read as: JSON that Pydantic accepts as this type. The
            model is told the schema; an answer that does not fit goes back to it with the errors,
            which costs a model call of the run (W4).
        include_contents: how much of the conversation before this run the model is shown: all of
            it, or with `"none"` only the run's input and, in a workflow, the latest turn by
            somebody else (W5).
        pause_when: asked after each model reply; true or a reason pauses the run (R7).
        idle_timeout: seconds after which a `Runtime` puts the idle agent out of memory; None =
            never; by default as the runtime says (A5).

    Raises:
        UsageError: naming what is wrong and what would be right (R8).

    """

    def __init__(
        self,
        name: str,
        model: str | Model | None = None,
        instructions: Instructions = "",
        tools: Sequence[Any] = (),
        middleware: Sequence[Middleware] = (),
        mode: Mode | None = None,
        description: str = "",
        *,
        max_runs: int = 50,
        early_stopping: str = "force",
        max_overrides: int = 3,
        fallback_models: Sequence[str | Model] = (),
        model_settings: ModelSettings | None = None,
        retry: AsyncRetrying | None = None,
        interrupt_on: Mapping[str, Rule] | None = None,
        output_key: str | None = None,
        output_type: Any = None,
        include_contents: Literal["default", "none"] = "default",
        pause_when: PauseWhen | None = None,
        idle_timeout: float | Literal["runtime"] | None = "runtime",
    ) -> None:
        self.definition = assemble(
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
            max_overrides=max_overrides,
            fallback_models=fallback_models,
            model_settings=model_settings,
            retry=retry,
            pause_when=pause_when,
            output_key=output_key,
            output_type=output_type,
            include_contents=include_contents,
            idle_timeout=idle_timeout,
        )
        """The frozen description, with the middleware's instructions and tools in it."""
        self.runner = Runner(self.definition)
        self._plain_options = RunOptions(max_runs=self.definition.max_runs)

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
        max_runs: int | None = None,
        deadline: float | None = None,
        cancellation: CancellationSource | Sequence[CancellationSource] | None = None,
        deps: Any = None,
        pause_when: PauseWhen | None = None,
        clock: Clock | None = None,
        new_id: NewId | None = None,
        journal: Journal | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> Outcome:
        """Run the agent on a message, to an outcome.

        What the model or a tool does never raises: it ends in an outcome. If `state` stands in the
        middle of a run, the new message withdraws what it waited for.

        Args:
            input: what the user says.
            state: the conversation so far; an empty one by default.
            until_tool: end the run as soon as this tool has a result (U1).
            until_tool_success: the same, but only for a result that is no error.
            max_runs: instead of the agent's own.
            deadline: seconds that the run may take, all its resumes together and the waits for
                people not counted; then it stops at once, whatever it is doing (P9).
            cancellation: one or more sources that are asked before each step whether the run is
                cancelled (P7).
            deps: handed to tools as `ctx.deps`; never stored.
            pause_when: asked after each model reply, beside the agent's own (R7).
            clock, new_id: where time and ids come from, to simulate or replay a run.
            journal: keeps each record as it is made.
            on_event: called with each event, from any thread; replies are streamed then.

        Raises:
            UsageError: for what the caller did wrong, before anything runs.
            JournalFailed: if the journal refuses a record.

        """
        run_options = self.run_options(until_tool, until_tool_success, max_runs, deadline)
        environment = RunEnvironment(
            deps=deps,
            pause_when=pause_when,
            clock=clock or SystemClock(),
            new_id=new_id or new_random_id,
            journal=journal,
            emit=on_event,
            cancellation=as_sources(cancellation),
        )
        return await self.runner.start(input, state, options=run_options, environment=environment)

    def run_options(
        self,
        until_tool: UntilTool | None = None,
        until_tool_success: UntilTool | None = None,
        max_runs: int | None = None,
        deadline: float | None = None,
    ) -> RunOptions:
        """The options of a run, checked, with the until pair collapsed.

        Raises:
            UsageError: for both until variants, an unknown tool, or a limit that is none or that
                would count nothing.

        """
        given = (until_tool, until_tool_success, max_runs, deadline)
        if all(option is None for option in given):
            return self._plain_options
        refuse_both(until_tool, until_tool_success)
        names, require_success = collapse_until_tool(until_tool, until_tool_success)
        definition = self.definition
        if max_runs is not None and not definition.asks_model:
            raise UsageError(
                f"Agent {self.name!r} runs other agents by {definition.mode!r} and asks no model "
                "itself, so max_runs would count nothing: give it to its agents, or a deadline here"
            )
        if names is not None:
            check_known(names, definition.tools, agent=self.name)
        limit = definition.max_runs if max_runs is None else max_runs
        check_limits(limit, definition.early_stopping, agent=self.name)
        return RunOptions(
            until_tool=names,
            require_tool_success=require_success,
            max_runs=limit,
            deadline=check_deadline(deadline),
        )

    def execute_sync(self, input: UserInput, **options: Unpack[ExecuteOptions]) -> Outcome:
        """`execute` for code without an event loop; takes the same options.

        Raises:
            UsageError: inside a running event loop: `await agent.execute(...)` there.

        """
        return self._sync(lambda: self.execute(input, **options), "execute")

    async def resume(
        self,
        state: AgentState,
        decisions: Decisions | None = None,
        *,
        cancellation: CancellationSource | Sequence[CancellationSource] | None = None,
        deps: Any = None,
        pause_when: PauseWhen | None = None,
        clock: Clock | None = None,
        new_id: NewId | None = None,
        journal: Journal | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> Outcome:
        """Go on with a run from where its state stands: interrupted, paused, or cut off.

        A state is a value: going on twice from the same one makes two runs of it, and each runs
        its tools. Where that must not happen let a `Runtime` keep the state.

        Args:
            state: from an outcome, or from `AgentState.from_dict` in another process.
            decisions: answers by request id; some of them are enough, the rest is asked again
                (I4). Without them a paused run goes on.
            cancellation: as in `execute`; sources are not stored, so give them again.
            deps, pause_when: must be given again if the run had them (J12): without them it
                stays `Paused("needs deps")`.
            clock, new_id, journal, on_event: as in `execute`.

        Raises:
            DecisionError: if an answer does not fit; nothing ran, a right one still works (I5).
            NotInterrupted: if nothing waits for an answer, or it was answered differently before.

        """
        environment = RunEnvironment(
            deps=deps,
            pause_when=pause_when,
            clock=clock or SystemClock(),
            new_id=new_id or new_random_id,
            journal=journal,
            emit=on_event,
            cancellation=as_sources(cancellation),
        )
        return await self.runner.resume(state, decisions, environment=environment)

    def resume_sync(
        self,
        state: AgentState,
        decisions: Decisions | None = None,
        **options: Unpack[EnvironmentOptions],
    ) -> Outcome:
        """`resume` for code without an event loop; takes the same options."""
        return self._sync(lambda: self.resume(state, decisions, **options), "resume")

    def stream(
        self,
        input: UserInput | None = None,
        *,
        decisions: Decisions | None = None,
        **options: Unpack[ExecuteOptions],
    ) -> AsyncIterator[Event | Outcome]:
        """Run and tell what happens, text as it comes; last comes the outcome.

        With a `state` and no input it resumes, with `decisions` if there are some. Takes the
        options of `execute` and `resume`. Closing the iterator cancels the run: leave the loop
        early inside `async with contextlib.aclosing(agent.stream(...)) as events`.

        Raises:
            UsageError: as `execute` and `resume` do, from the first step of the loop.

        """

        async def begin(emit: Callable[[Event], None]) -> Outcome:
            listener = options.get("on_event")
            options["on_event"] = emit if listener is None else _both(emit, listener)
            if input is not None:
                if decisions is not None:
                    raise UsageError("stream() takes an input or decisions, not both")
                return await self.execute(input, **options)
            state = options.pop("state", None)
            if state is None:
                raise UsageError("stream() takes an input, or a state to go on with")
            fixed = [name for name in options if name not in EnvironmentOptions.__annotations__]
            if fixed:
                raise UsageError(f"stream() resumes a run: {fixed[0]} is in its state already")
            return await self.resume(state, decisions, **cast("EnvironmentOptions", options))

        return streamed(begin)

    @overload
    async def extract(
        self, tool: Tool[ToolResult[T]], input: UserInput, **options: Unpack[ExecuteOptions]
    ) -> T: ...
    @overload
    async def extract(
        self, tool: Tool[T], input: UserInput, **options: Unpack[ExecuteOptions]
    ) -> T: ...
    @overload
    async def extract(
        self,
        tool: str | Callable[..., Any],
        input: UserInput,
        **options: Unpack[ExecuteOptions],
    ) -> Any: ...
    async def extract(
        self,
        tool: Tool[Any] | Callable[..., Any] | str,
        input: UserInput,
        **options: Unpack[ExecuteOptions],
    ) -> Any:
        """Run until `tool` succeeds, and return the value that it returned (U7).

        Raises:
            UsageError: as `execute` does.
            NotExtracted: if the run ended otherwise; the run's own error is its cause.

        """
        for fixed in ("until_tool", "until_tool_success"):
            if fixed in options:
                raise UsageError(f"extract() runs until {tool!r} succeeds: leave {fixed} out")
        options["until_tool_success"] = tool
        outcome = await self.execute(input, **options)
        if isinstance(outcome, Completed) and outcome.tool_result is not None:
            return outcome.tool_result.value
        name = collapse_until_tool(None, tool)[0]
        error = NotExtracted(tool=", ".join(name or ()), outcome=repr(outcome))
        raise error from (outcome.error if isinstance(outcome, Failed) else None)

    def revoke(self, state: AgentState, tool: str) -> AgentState:
        """The state without the answer that was given with `always=True` for this tool (I3).

        Raises:
            UsageError: if there is none.

        """
        if tool not in state.sticky:
            known = ", ".join(map(repr, state.sticky)) or "none"
            raise UsageError(f"No standing answer for {tool!r}; there are: {known}")
        ledger = Ledger(state.copied())
        ledger.record(Revoked(tool_name=tool))
        return ledger.state

    def settle(self, state: AgentState, call_key: str, *, how: str) -> AgentState:
        """The state without the doubt about this call: somebody found out what it did (J4).

        While a doubt stands, every call of its tool needs a person. The doubts are in
        `state.doubts`, by call key.

        Args:
            how: what was found out, for the record.

        Raises:
            UsageError: if no doubt stands about this call.

        """
        if call_key not in state.doubts:
            known = ", ".join(map(repr, state.doubts)) or "none"
            raise UsageError(f"No doubt stands about call {call_key!r}; there are: {known}")
        ledger = Ledger(state.copied())
        ledger.record(Settled(call_key=call_key, how=how))
        return ledger.state

    def display(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        """The messages as a person should see them, through the middleware."""
        shown = []
        for message in messages:
            for hook in self.definition.hooks.transform_display_message:
                message = hook.function(message) or message
            shown.append(message)
        return shown

    def _sync(self, start: Callable[[], Coroutine[Any, Any, Outcome]], what: str) -> Outcome:
        async def go() -> Outcome:
            # Entered, a provider closes the client that it made: its loop ends here.
            async with AsyncExitStack() as clients:
                for model in self.runner.all_models:
                    await clients.enter_async_context(model)
                return await start()

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(go())
        raise UsageError(
            f"{what}_sync was called inside an event loop: await agent.{what}(...) there"
        )


def _both(
    first: Callable[[Event], None], second: Callable[[Event], None]
) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        first(event)
        second(event)

    return tell
