"""`Agent`: a definition with `execute`, `resume`, `stream` and `extract`. No actor, no store."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from pydantic import ValidationError
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from tenacity import AsyncRetrying

from understudy.clock import Clock, NewId, SystemClock, new_random_id
from understudy.definition import AgentDefinition, PauseWhen
from understudy.errors import DecisionError, NotExtracted, NotInterrupted, UsageError
from understudy.events import Event
from understudy.instructions import Instructions, check_instructions, render
from understudy.interrupts import Decision, Request, checked_decision
from understudy.journal import Journal
from understudy.ledger import Ledger
from understudy.messages import UserInput
from understudy.middleware.base import Middleware, Prepared, collect_hooks
from understudy.middleware.human_in_the_loop import HumanInTheLoop, Rule
from understudy.models import refresh_client, resolve_model
from understudy.modes import AgentExecution, Mode, collapse_until_tool
from understudy.modes.ends import outcome_of
from understudy.modes.pipeline import drive
from understudy.modes.until import UntilTool, check_known, refuse_both
from understudy.outcomes import Completed, Failed, Outcome
from understudy.records import (
    Decided,
    End,
    Revoked,
    RunEnded,
    RunStarted,
    Unpaused,
    UserMessage,
    Withdrawn,
)
from understudy.run import Run, inside_run
from understudy.state import AgentState
from understudy.threads import WorkerThreads
from understudy.tools import InvalidArguments, Tool, as_tool
from understudy.values import checked_json

__all__ = ["Agent"]

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_THREADS = WorkerThreads()


class Agent:
    """An LLM agent: what it is, and how to run it.

    Args:
        name: letters, digits, `_` and `-` (T7).
        model: any Pydantic AI model, or its name, such as `"openai:gpt-5-mini"`. A name is looked
            up at the first run, so an agent can be defined without an API key.
        instructions: text with `{key}` from the state's values, or a function of the state (W4).
        tools: functions and `@tool` functions.
        middleware: wrapped around model and tool calls, in this order.
        mode: the pipeline; `AgentExecution()` by default.
        description: what the agent is for, told to agents that may delegate to it.
        max_runs: how many model calls one run may make (R1).
        early_stopping: what happens when one more is due: `"force"` fails the run.
        fallback_models: asked in order when the model fails, for that call only (R5).
        model_settings: Pydantic AI's, such as `{"temperature": 0}`.
        retry: Tenacity's `AsyncRetrying`, around each model call. By default only the provider's
            client retries, so that retries never multiply.
        interrupt_on: short for `middleware=[HumanInTheLoop(...)]`.
        pause_when: asked after each model reply; true or a reason pauses the run (R7).

    Raises:
        UsageError: naming what is wrong and what would be right (R8).

    """

    def __init__(
        self,
        name: str,
        model: str | Model,
        instructions: Instructions = "",
        tools: Sequence[Any] = (),
        middleware: Sequence[Middleware] = (),
        mode: Mode | None = None,
        description: str = "",
        *,
        max_runs: int = 50,
        early_stopping: str = "force",
        fallback_models: Sequence[str | Model] = (),
        model_settings: ModelSettings | None = None,
        retry: AsyncRetrying | None = None,
        interrupt_on: Mapping[str, Rule] | None = None,
        pause_when: PauseWhen | None = None,
    ) -> None:
        _check_options(
            name,
            model=model,
            description=description,
            instructions=instructions,
            fallback_models=fallback_models,
            retry=retry,
            mode=mode,
            pause_when=pause_when,
        )
        _check_limits(max_runs, early_stopping, agent=name)
        stack = _stack(middleware, interrupt_on, agent=name)
        self._mode = mode if mode is not None else AgentExecution()
        definition = AgentDefinition(
            name=name,
            model=model,
            description=description,
            instructions=(instructions,) if instructions else (),
            tools=_merge_tools({}, tools, agent=name, owner="tools"),
            middleware=stack,
            hooks=collect_hooks(stack),
            schemas=_schemas(stack, agent=name),
            mode=self._mode,
            max_runs=max_runs,
            early_stopping=early_stopping,
            fallback_models=tuple(fallback_models),
            model_settings=model_settings,
            retry=retry,
            pause_when=pause_when,
        )
        self.definition = _prepared(definition, stack)
        """The frozen description, with the middleware's instructions and tools in it."""
        for item in stack:
            item.check(self.definition)
        self._fingerprint = self.definition.fingerprint
        self._models: tuple[Model, ...] | None = None

    @property
    def name(self) -> str:
        return self.definition.name

    def __repr__(self) -> str:
        return f"Agent({self.name!r}, tools={list(self.definition.tools)}, mode={self._mode!r})"

    # -------------------------------------------------------------------- running

    async def execute(
        self,
        input: UserInput,
        *,
        state: AgentState | None = None,
        until_tool: UntilTool | None = None,
        until_tool_success: UntilTool | None = None,
        max_runs: int | None = None,
        deps: Any = None,
        pause_when: PauseWhen | None = None,
        clock: Clock | None = None,
        new_id: NewId | None = None,
        journal: Journal | None = None,
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
            deps: handed to tools as `ctx.deps`; never stored.
            pause_when: asked after each model reply, beside the agent's own (R7).
            clock, new_id: where time and ids come from, to simulate or replay a run.
            journal: keeps each record as it is made.

        Raises:
            UsageError: for what the caller did wrong, before anything runs.
            JournalFailed: if the journal refuses a record.

        """
        return await self._started(
            input,
            state,
            until_tool,
            until_tool_success,
            max_runs,
            deps,
            pause_when,
            clock,
            new_id,
            journal,
            None,
        )

    def execute_sync(self, input: UserInput, **options: Any) -> Outcome:
        """`execute` for code without an event loop; takes the same options.

        Raises:
            UsageError: inside a running event loop: `await agent.execute(...)` there.

        """
        return _run_sync(lambda: self.execute(input, **options), "execute")

    async def resume(
        self,
        state: AgentState,
        decisions: Mapping[str, Decision | Mapping[str, Any]] | None = None,
        *,
        deps: Any = None,
        pause_when: PauseWhen | None = None,
        clock: Clock | None = None,
        new_id: NewId | None = None,
        journal: Journal | None = None,
    ) -> Outcome:
        """Go on with a run from where its state stands: interrupted, paused, or cut off.

        Args:
            state: from an outcome, or from `AgentState.from_dict` in another process.
            decisions: answers by request id; some of them are enough, the rest is asked again
                (I4). Without them a paused run goes on.
            deps, pause_when: must be given again if the run had them (J12): without them it
                stays `Paused("needs deps")`.
            clock, new_id, journal: as in `execute`.

        Raises:
            DecisionError: if an answer does not fit; nothing ran, a right one still works (I5).
            NotInterrupted: if nothing waits for an answer, or it was answered differently before.

        """
        return await self._resumed(state, decisions, deps, pause_when, clock, new_id, journal, None)

    def resume_sync(
        self,
        state: AgentState,
        decisions: Mapping[str, Decision | Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> Outcome:
        """`resume` for code without an event loop; takes the same options."""
        return _run_sync(lambda: self.resume(state, decisions, **options), "resume")

    def stream(
        self,
        input: UserInput | None = None,
        *,
        state: AgentState | None = None,
        decisions: Mapping[str, Decision | Mapping[str, Any]] | None = None,
        until_tool: UntilTool | None = None,
        until_tool_success: UntilTool | None = None,
        max_runs: int | None = None,
        deps: Any = None,
        pause_when: PauseWhen | None = None,
        clock: Clock | None = None,
        new_id: NewId | None = None,
        journal: Journal | None = None,
    ) -> AsyncIterator[Event | Outcome]:
        """Run, or with a `state` and no input resume, and tell what happens; last the outcome.

        Leaving the loop early cancels the run.

        Raises:
            UsageError: as `execute` and `resume` do, from the first step of the loop.

        """

        def begin(emit: Callable[[Event], None]) -> Any:
            if input is None:
                if state is None:
                    raise UsageError("stream() takes an input, or a state to go on with")
                return self._resumed(
                    state, decisions, deps, pause_when, clock, new_id, journal, emit
                )
            if decisions is not None:
                raise UsageError("stream() takes an input or decisions, not both")
            return self._started(
                input,
                state,
                until_tool,
                until_tool_success,
                max_runs,
                deps,
                pause_when,
                clock,
                new_id,
                journal,
                emit,
            )

        return _streamed(begin)

    async def extract(
        self, tool: Tool | Callable[..., Any] | str, input: UserInput, **options: Any
    ) -> Any:
        """Run until `tool` succeeds, and return the value that it returned (U7).

        Raises:
            UsageError: as `execute` does.
            NotExtracted: if the run ended otherwise; the run's own error is its cause.

        """
        outcome = await self.execute(input, until_tool_success=tool, **options)
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

    def display(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        """The messages as a person should see them, through the middleware."""
        shown = []
        for message in messages:
            for hook in self.definition.hooks.transform_display_message:
                message = hook.function(message) or message
            shown.append(message)
        return shown

    # -------------------------------------------------------------------- inside

    async def _started(
        self,
        input: UserInput,
        state: AgentState | None,
        until_tool: UntilTool | None,
        until_tool_success: UntilTool | None,
        max_runs: int | None,
        deps: Any,
        pause_when: PauseWhen | None,
        clock: Clock | None,
        new_id: NewId | None,
        journal: Journal | None,
        emit: Callable[[Event], None] | None,
    ) -> Outcome:
        definition = self.definition
        refuse_both(until_tool, until_tool_success)
        names, require_success = collapse_until_tool(until_tool, until_tool_success)
        if names is not None:
            check_known(names, definition.tools, agent=self.name)
        limit = definition.max_runs if max_runs is None else max_runs
        _check_limits(limit, definition.early_stopping, agent=self.name)
        content = _checked_input(input)
        given = _checked_state(state) if state is not None else AgentState()
        seeds = _seeds(definition, given)
        clock = clock or SystemClock()
        run = self._run(given, deps, pause_when, clock, new_id, journal, emit, fresh=state is None)
        await self._check_instructions(given, seeds)
        now = clock.now()
        _withdraw(run, given)
        prompt = UserPromptPart(content, timestamp=now)
        run.record(
            RunStarted(
                run_id=run.new_id(),
                at=now,
                until_tool=names,
                require_tool_success=require_success,
                max_runs=limit,
                early_stopping=definition.early_stopping,
                fingerprint=self._fingerprint,
                deps_given=deps is not None,
                pause_when_given=pause_when is not None,
                values=seeds,
            ),
            UserMessage(message=ModelRequest(parts=[prompt], timestamp=now)),
        )
        return await drive(run, self._mode)

    async def _resumed(
        self,
        state: AgentState,
        decisions: Mapping[str, Decision | Mapping[str, Any]] | None,
        deps: Any,
        pause_when: PauseWhen | None,
        clock: Clock | None,
        new_id: NewId | None,
        journal: Journal | None,
        emit: Callable[[Event], None] | None,
    ) -> Outcome:
        state = _checked_state(state)
        current = state.run
        if inside_run.get() and decisions is not None:
            raise DecisionError(
                "A decision came from inside a tool, hook or model: only the host decides (I13)"
            )
        if current is None:
            raise NotInterrupted("This state has no run to resume: use execute(input, state=...)")
        clock = clock or SystemClock()
        new = self._checked_decisions(state, decisions, clock) if decisions is not None else {}
        if current.end is not None:
            if decisions is None or current.end.outcome == "withdrawn":
                raise NotInterrupted(
                    "The run of this state is over: use execute(input, state=...) for a new one"
                )
            return outcome_of(current.end, state.copied(), dict(self.definition.tools), {})
        run = self._run(state, deps, pause_when, clock, new_id, journal, emit, fresh=False)
        now = clock.now()
        for request_id, decision in new.items():
            run.record(Decided(request_id=request_id, decision=decision, at=now))
        await run.durable()
        for given, value, what in (
            (current.deps_given, deps, "deps"),
            (current.pause_when_given, pause_when, "pause_when"),
        ):
            if given and value is None:
                return replace(run.paused(f"needs {what}"), state=run.state.copied())
        if current.paused is not None and decisions is None:
            run.record(Unpaused())
        return await drive(run, self._mode)

    def _run(
        self,
        state: AgentState,
        deps: Any,
        pause_when: PauseWhen | None,
        clock: Clock,
        new_id: NewId | None,
        journal: Journal | None,
        emit: Callable[[Event], None] | None,
        *,
        fresh: bool,
    ) -> Run:
        if pause_when is not None and not callable(pause_when):
            raise UsageError(f"pause_when must be a function, not {pause_when!r}")
        if self._models is None:
            definition = self.definition
            self._models = tuple(
                resolve_model(m) for m in (definition.model, *definition.fallback_models)
            )
        for model in self._models:
            refresh_client(model)
        ledger = Ledger(state.copied(), journal)
        ledger.open(fresh=fresh)
        return Run(
            definition=self.definition,
            ledger=ledger,
            models=self._models,
            clock=clock,
            new_id=new_id or new_random_id,
            threads=_THREADS,
            agent_id=self.name,
            agent_path=(self.name,),
            deps=deps,
            pause_when=pause_when,
            emit=emit,
            streaming=emit is not None,
        )

    async def _check_instructions(self, state: AgentState, seeds: Mapping[str, Any]) -> None:
        """Raise before anything runs where text instructions read a key that is not there (W4)."""
        texts = [i for i in self.definition.instructions if isinstance(i, str) and "{" in i]
        if texts:
            seen = AgentState(values={**state.values, **seeds})
            for text in texts:
                await render(text, seen, agent=self.name)

    def _checked_decisions(
        self, state: AgentState, decisions: object, clock: Clock
    ) -> dict[str, Decision]:
        """The answers that are new; all of them fit, or a `DecisionError` names one (I5)."""
        if not isinstance(decisions, Mapping):
            raise DecisionError(
                f"resume takes a mapping of request ids to decisions, not {decisions!r}: "
                "interrupted.decide(approve(), ...) makes one from decisions in order"
            )
        if not decisions:
            raise DecisionError("resume got no decision: answer at least one request")
        standing = {request.id: request for request in state.requests}
        before = {record.request.id: record for record in state.decisions}
        new = {}
        for request_id, given in decisions.items():
            if request_id in standing:
                decision = checked_decision(standing[request_id], given)
                self._check_content(standing[request_id], decision)
                if (until := standing[request_id].expires_at) and until <= clock.now():
                    raise DecisionError(
                        f"Request {request_id!r} expired at {until.isoformat()} and counts as "
                        "rejected: resume(state) without it goes on",
                        request_id=request_id,
                    )
                new[request_id] = decision
            elif request_id in before:
                record = before[request_id]
                decision = checked_decision(record.request, given)
                if not decision.same_as(record.decision):
                    raise NotInterrupted(
                        f"Request {request_id!r} was answered before, with "
                        f"{record.decision.type!r}: the answer stands"
                    )
            else:
                known = ", ".join(map(repr, standing)) or "none"
                raise DecisionError(
                    f"Request {request_id!r} does not stand now (stale or unknown); standing: "
                    f"{known}",
                    request_id=str(request_id),
                )
        return new

    def _check_content(self, request: Request, decision: Decision) -> None:
        where = f"Request {request.id!r} ({request.tool_name})"
        try:
            if decision.arguments is not None:
                tool = self.definition.tools.get(request.tool_name)
                if tool is None:
                    raise InvalidArguments(f"agent {self.name!r} has no such tool any more")
                tool.canonical(tool.revalidate(checked_json(decision.arguments, what="edit(...)")))
            checked_json({"value": decision.value}, what="respond(...)")
        except (InvalidArguments, UsageError) as error:
            raise DecisionError(f"{where}: {error}", request_id=request.id) from error


# ---------------------------------------------------------------------- building


def _check_options(
    name: object,
    *,
    model: object,
    description: object,
    instructions: object,
    fallback_models: object,
    retry: object,
    mode: object,
    pause_when: object,
) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(f"An agent's name is made of letters, digits, _ and -; not {name!r}")
    if isinstance(fallback_models, (str, Model)) or not isinstance(fallback_models, Sequence):
        raise UsageError(f"Agent {name!r}: fallback_models is a list, not {fallback_models!r}")
    for given in (model, *fallback_models):
        if not isinstance(given, (str, Model)) or not given:
            raise UsageError(
                f"Agent {name!r}: a model is a Pydantic AI model or its name, such as "
                f"'openai:gpt-5-mini'; not {given!r}"
            )
    if not isinstance(description, str):
        raise UsageError(f"Agent {name!r}: description is text, not {description!r}")
    if retry is not None and not isinstance(retry, AsyncRetrying):
        raise UsageError(f"Agent {name!r}: retry is a tenacity.AsyncRetrying, not {retry!r}")
    if mode is not None and not isinstance(mode, Mode):
        raise UsageError(f"Agent {name!r}: mode is a Mode, such as AgentExecution(); not {mode!r}")
    if pause_when is not None and not callable(pause_when):
        raise UsageError(f"Agent {name!r}: pause_when is a function, not {pause_when!r}")
    check_instructions(instructions, agent=name)


def _check_limits(max_runs: object, early_stopping: object, *, agent: str) -> None:
    if not isinstance(max_runs, int) or isinstance(max_runs, bool) or max_runs < 1:
        raise UsageError(f"Agent {agent!r}: max_runs is a number from 1 on, not {max_runs!r}")
    if early_stopping == "generate":
        raise UsageError(
            f"Agent {agent!r}: early_stopping='generate' is not built yet; use 'force'"
        )
    if early_stopping != "force":
        raise UsageError(f"Agent {agent!r}: early_stopping is 'force', not {early_stopping!r}")


def _stack(
    middleware: object, interrupt_on: Mapping[str, Rule] | None, *, agent: str
) -> tuple[Middleware, ...]:
    if isinstance(middleware, Middleware) or not isinstance(middleware, Sequence):
        raise UsageError(f"Agent {agent!r}: middleware is a list, not {middleware!r}")
    for item in middleware:
        if not isinstance(item, Middleware):
            raise UsageError(
                f"Agent {agent!r}: {item!r} is no middleware: give an instance of a subclass of "
                "understudy.middleware.Middleware"
            )
    stack = cast("tuple[Middleware, ...]", tuple(middleware))
    if interrupt_on is not None:
        if any(isinstance(item, HumanInTheLoop) for item in stack):
            raise UsageError(
                f"Agent {agent!r}: interrupt_on and HumanInTheLoop are both given: use one"
            )
        stack = (*stack, HumanInTheLoop(interrupt_on))
    return stack


def _merge_tools(
    into: Mapping[str, Tool], tools: object, *, agent: str, owner: str
) -> dict[str, Tool]:
    if isinstance(tools, (str, Tool)) or not isinstance(tools, Sequence):
        raise UsageError(f"Agent {agent!r}: {owner} is a list of functions, not {tools!r}")
    merged = dict(into)
    for given in tools:
        tool = as_tool(given)
        if tool.name in merged:
            raise UsageError(
                f"Agent {agent!r} has two tools named {tool.name!r} (the second from {owner}): "
                "rename one with @tool(name=...)"
            )
        merged[tool.name] = tool
    return merged


def _schemas(stack: Sequence[Middleware], *, agent: str) -> dict[str, Any]:
    owners: dict[str, str] = {}
    schemas = {}
    for item in stack:
        if item.state_schema is None:
            continue
        for key in item.state_schema.model_fields:
            if key in owners:
                raise UsageError(
                    f"Agent {agent!r}: {item.name} and {owners[key]} both add the value {key!r}"
                )
            owners[key] = item.name
        schemas[item.name] = item.state_schema
    return schemas


def _prepared(definition: AgentDefinition, stack: Sequence[Middleware]) -> AgentDefinition:
    instructions, tools = list(definition.instructions), dict(definition.tools)
    for item in stack:
        added = item.prepare(definition)
        if not isinstance(added, Prepared):
            raise UsageError(f"{item.name}.prepare must return Prepared(...), not {added!r}")
        check_instructions(added.instructions, agent=definition.name)
        if added.instructions:
            instructions.append(added.instructions)
        tools = _merge_tools(tools, added.tools, agent=definition.name, owner=item.name)
    return replace(definition, instructions=tuple(instructions), tools=tools)


# ---------------------------------------------------------------------- running


def _checked_input(given: object) -> UserInput:
    if isinstance(given, str):
        if not given.strip():
            raise UsageError("The input is empty: say what the agent is to do")
        return given
    if isinstance(given, Sequence) and not isinstance(given, (bytes, bytearray)):
        if not given:
            raise UsageError("The input is empty: say what the agent is to do")
        try:
            UserPromptPart(given)
        except ValueError as error:
            raise UsageError(f"The input cannot be sent: {error}") from error
        return given
    raise UsageError(f"The input is text, or a list of text, images and the like; not {given!r}")


def _checked_state(given: object) -> AgentState:
    if isinstance(given, AgentState):
        return given
    if isinstance(given, Mapping):
        raise UsageError("state is an AgentState: read stored data with AgentState.from_dict(data)")
    raise UsageError(f"state is an AgentState (outcome.state), not {given!r}")


def _seeds(definition: AgentDefinition, state: AgentState) -> dict[str, Any]:
    """The defaults of the middleware's typed values that the state lacks."""
    seeds: dict[str, Any] = {}
    for owner, schema in definition.schemas.items():
        held = {key: state.values[key] for key in schema.model_fields if key in state.values}
        try:
            whole = schema.model_validate(held).model_dump(mode="json")
        except ValidationError as error:
            raise UsageError(
                f"The state's values do not fit what {owner} keeps: {error}"
            ) from error
        seeds.update({key: value for key, value in whole.items() if key not in held})
    return seeds


def _withdraw(run: Run, given: AgentState) -> None:
    """A message from outside ends the run that it overtakes (I10)."""
    if given.run is None or given.run.over:
        return
    ids = tuple(request.id for request in given.requests)
    if ids:
        run.record(Withdrawn(request_ids=ids))
    run.record(RunEnded(end=End(outcome="withdrawn"), at=run.clock.now()))


def _run_sync(start: Callable[[], Any], what: str) -> Outcome:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return cast("Outcome", asyncio.run(start()))
    raise UsageError(f"{what}_sync was called inside an event loop: await agent.{what}(...) there")


async def _streamed(
    begin: Callable[[Callable[[Event], None]], Any],
) -> AsyncIterator[Event | Outcome]:
    """Runs in a task of its own; what it emits, from any thread, comes out here in order."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Event | None] = asyncio.Queue()

    def emit(event: Event) -> None:
        try:
            on_loop = asyncio.get_running_loop() is loop
        except RuntimeError:
            on_loop = False
        if on_loop:
            queue.put_nowait(event)
        else:
            loop.call_soon_threadsafe(queue.put_nowait, event)

    task = asyncio.ensure_future(begin(emit))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (event := await queue.get()) is not None:
            yield event
        yield await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
