"""`Runner`: starts a run of one definition, or continues one, on the state or ledger of a caller.

Both are the same operation: add the new records, then run the pipeline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Generic, TypedDict, Unpack

from pydantic_ai.messages import ModelRequest
from pydantic_ai.models import Model

from understudy._base.clock import Clock, NewId, SystemClock, new_random_id
from understudy._base.context_codecs import NO_CODECS, Context, ContextCodecs
from understudy._base.json_values import checked_json, shown
from understudy._base.points_in_time import checked_clock
from understudy._base.request_timing import EXPIRY
from understudy._base.shared_resources import SharedResources
from understudy._base.type_variables import DepsT
from understudy._base.worker_threads import WorkerThreads
from understudy.agent.nested_runs import NestedRuns, models_of, seeds_of
from understudy.errors import (
    DecisionError,
    NotInterrupted,
    RecordRefused,
    RequestChanged,
    UnknownToken,
    UsageError,
)
from understudy.events import Event
from understudy.interrupts import Decision, Request, checked_decision
from understudy.journal import Journal
from understudy.models.messages import UserInput, user_message
from understudy.models.model_names import refresh_client
from understudy.models.prices import Prices
from understudy.modes.pipeline import run_pipeline
from understudy.modes.steps.check_stop import ANSWER_PROMPT
from understudy.modes.steps.run_end import call_end_hooks, end_of, outcome_of, withdrawn_by
from understudy.outcomes import Interrupted, Outcome, Paused
from understudy.run.answers import Answer, record_answer, resolved
from understudy.run.cancellation import CancellationSource, as_sources
from understudy.run.definition import AgentDefinition, PauseWhen
from understudy.run.instructions import render
from understudy.run.instrument import GivesInstrument, Instrument, instrument_of
from understudy.run.ledger import Ledger, ledger_tree
from understudy.run.run import Run, inside_run
from understudy.run.tokens import agent_of, hash_of
from understudy.state.agent_state import AgentState
from understudy.state.plans import Occurrence
from understudy.state.records import (
    CancelRequested,
    Decided,
    End,
    Once,
    RunEnded,
    RunStarted,
    Unpaused,
    Withdrawn,
)
from understudy.stopping import StopSignal, StopSignals
from understudy.tools import InvalidArguments

Decisions = Mapping[str, Decision | Mapping[str, Any]]
"""Decisions, or their plain form such as `{"type": "approve"}`, by request id."""

RESULT_BYTES = 1024
"""The size of a call's result without the value that a person gives for it, rounded up."""

WITHDRAWN = withdrawn_by("a new message took the place of the run")

_THREADS = WorkerThreads()


class EnvironmentOptions(TypedDict, Generic[DepsT], total=False):
    """The options that `Agent.execute` and `Agent.resume` have in common; none is stored."""

    deps: DepsT | None
    pause_when: PauseWhen | None
    clock: Clock | None
    new_id: NewId | None
    journal: Journal | None
    on_event: Callable[[Event], None] | None
    cancellation: CancellationSource | Sequence[CancellationSource] | None
    telemetry: GivesInstrument | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnvironment:
    """What a caller gives to one attempt at a run. None of it is stored."""

    deps: Any = None
    pause_when: PauseWhen | None = None
    clock: Clock = field(default_factory=SystemClock)
    new_id: NewId = new_random_id
    journal: Journal | None = None
    emit: Callable[[Event], None] | None = None
    """Called with each event."""
    streaming: Callable[[], bool] | None = None
    """Whether replies are streamed now; by default they are if there is an `emit`."""
    agent_id: str | None = None
    """The id of the actor that runs the agent; None without one: then it is the agent's name."""
    is_to_end_attempt: Callable[[], bool] | None = None
    """Called before each step: True ends this attempt, and leaves the run open."""
    pause_requested: Callable[[], str | None] | None = None
    """Called after each reply: a reason pauses the run."""
    abandon_later: Callable[[], asyncio.Task[None]] | None = None
    """As `Run.abandon_later`; None without a runtime."""
    threads: WorkerThreads | None = None
    """Where plain tools and hooks run; by default a pool that the whole process shares."""
    shared: SharedResources = field(default_factory=SharedResources)
    """What its tools have opened; closed by its owner."""
    cancellation: tuple[CancellationSource, ...] = ()
    """Called before each step, in addition to those of the agent's middleware."""
    codecs: ContextCodecs = NO_CODECS
    """By which the context of a run holds for its code."""
    instrument: Instrument | None = None
    """What watches the run."""
    prices: Prices | None = None
    """By which replies are priced; None where only what the definition wants is."""

    @classmethod
    def of(cls, **options: Unpack[EnvironmentOptions]) -> RunEnvironment:
        """The environment that these options of `execute` or `resume` describe."""
        return cls(
            deps=options.get("deps"),
            pause_when=options.get("pause_when"),
            clock=checked_clock(options.get("clock"), what="`clock`") or SystemClock(),
            new_id=options.get("new_id") or new_random_id,
            journal=options.get("journal"),
            emit=options.get("on_event"),
            cancellation=as_sources(options.get("cancellation")),
            instrument=instrument_of(options.get("telemetry")),
        )

    def __post_init__(self) -> None:
        for what, function in (
            ("pause_when", self.pause_when),
            ("new_id", self.new_id),
            ("on_event", self.emit),
        ):
            if function is not None and not callable(function):
                raise UsageError(f"`{what}` must be a function, got {function!r}")
        if self.journal is not None:
            _check_methods("journal", self.journal, "append", "durable")


def _check_methods(what: str, given: object, *methods: str) -> None:
    for method in methods:
        if not callable(getattr(given, method, None)):
            raise UsageError(f"`{what}` must have a method {method}(), got {given!r}")


class Runner:
    """Starts and continues runs of one definition."""

    def __init__(self, definition: AgentDefinition) -> None:
        self._definition = definition
        self._fingerprint = definition.fingerprint
        self._models: tuple[Model, ...] | None = None
        self._children = NestedRuns()

    @property
    def models(self) -> tuple[Model, ...]:
        """The agent's model, then its fallbacks; names are looked up at the first use."""
        if self._models is None:
            self._models = models_of(self._definition)
        return self._models

    @property
    def all_models(self) -> tuple[Model, ...]:
        """The models of the agent, and of the agents of its workflow, at any depth."""
        return (*self.models, *self._children.models_below(self._definition))

    async def start(
        self,
        input: UserInput,
        state: AgentState | None,
        *,
        options: RunOptions,
        environment: RunEnvironment,
    ) -> Outcome:
        """Start a run with a message. A run that is open in `state` is withdrawn."""
        message = user_message(input, at=environment.clock.now())
        given = _checked_state(state) if state is not None else AgentState()
        await self.check_start(given)
        ledger = self._ledger(given, environment, fresh=state is None)
        return await self.begin(ledger, message, options=options, environment=environment)

    async def check_start(self, state: AgentState) -> None:
        """Raise a `UsageError` if a run cannot begin with this state."""
        for model in self.all_models:
            refresh_client(model)
        seeds = seeds_of(self._definition, state)
        await self._check_instructions(state, seeds)

    async def begin(
        self,
        ledger: Ledger,
        message: ModelRequest,
        *,
        options: RunOptions,
        environment: RunEnvironment,
        message_ids: tuple[str, ...] = (),
        occurrence: Occurrence | None = None,
        context: Context = MappingProxyType({}),
        signal: Callable[[], StopSignal | None] = lambda: None,
    ) -> Outcome:
        """Record the start of a run in this ledger, and run its pipeline.

        Args:
            ledger: where the run is recorded.
            message: the input.
            options: of this run.
            environment: of this attempt.
            message_ids: the ids of the queued messages that `message` is made of.
            occurrence: the time of a schedule that it is the run of.
            context: of who sent the message.
            signal: called once the start is recorded; a signal stops the run at once.

        Raises:
            UsageError: if the context cannot be applied, or the cost of a model is not known that a
                middleware must know. Nothing is recorded then.

        """
        definition = self._definition
        if definition.needs_cost_inside:
            self._children.check_prices(definition, self.models, environment.prices)

        def started() -> RunStarted:
            return RunStarted(
                run_id=environment.new_id(),
                agent=definition.name,
                at=environment.clock.now(),
                message=message,
                until_tool=options.until_tool,
                require_tool_success=options.require_tool_success,
                forced=options.force,
                max_runs=options.max_runs,
                early_stopping=definition.early_stopping,
                fingerprint=self._fingerprint,
                deps_given=environment.deps is not None,
                pause_when_given=environment.pause_when is not None,
                message_ids=message_ids,
                values=seeds_of(definition, ledger.state),
                contents=definition.include_contents,
                workflow=definition.workflow,
                agent_id=environment.agent_id or definition.name,
                deadline=options.deadline,
                ends_at=options.ends_at,
                occurrence=occurrence,
                max_overrides=definition.max_overrides,
                context=dict(context),
            )

        codecs = environment.codecs
        run = ledger.state.run
        if run is not None and not run.over:
            # A start that is refused, by the journal or a codec, must not withdraw the open run.
            with codecs.applied(context):
                ledger.check(started())
            open_run = self._run(ledger, environment, models=())
            with codecs.applied(run.context, is_strict=False):
                await call_end_hooks(open_run, open_run.stopped(WITHDRAWN), final=True)
            withdraw(ledger, environment.clock)
        prompt = options.early_stopping_prompt
        own = (Once(key=ANSWER_PROMPT, value=prompt),) if prompt is not None else ()
        with codecs.applied(context):
            ledger.record(started(), *own)
            # Race: an actor may get `cancel` before the start of the run is recorded. There is no
            # run to cancel then, so the actor keeps the signal until here
            # (test_a_cancel_before_a_run_begins_over_a_standing_one_is_for_the_new_run).
            stop_signal = signal()
            if stop_signal is not None:
                return await self.stop(ledger, stop_signal, environment=environment)
            return await run_pipeline(self._run(ledger, environment), self._definition.mode)

    async def resume(
        self,
        state: AgentState,
        decisions: Decisions | None,
        answers: Mapping[str, Any],
        *,
        environment: RunEnvironment,
    ) -> Outcome:
        """Continue the open run of this state, with decisions and answers if there are some."""
        state = _checked_state(state)
        refuse_inside_run()
        current = state.run
        new = (
            self.check_decisions(state, decisions, environment.clock)
            if decisions is not None
            else {}
        )
        if current is None:
            raise NotInterrupted("This state has no run to resume: use execute(input, state=...)")
        if current.end is not None:
            if decisions is None or current.end.outcome == "withdrawn":
                raise NotInterrupted(
                    "The run of this state is over: use execute(input, state=...) for a new one"
                )
            return self.ended(state)  # the same decisions again
        given = _checked_answers(answers)
        if given:  # on a copy first: where one of them is refused, nothing is recorded
            _record_answers(Ledger(state.copied()), given, environment.clock)
        ledger = self._ledger(state, environment, fresh=False)
        decide(ledger, new, environment.clock)
        _record_answers(ledger, given, environment.clock)
        if decisions is None:
            unpause(ledger)
        return await self.go_on(ledger, environment=environment)

    async def go_on(self, ledger: Ledger, *, environment: RunEnvironment) -> Outcome:
        """Continue the open run of this ledger."""
        for model in self.models:
            refresh_client(model)
        run = self._run(ledger, environment)
        current = run.current
        for given, value, what in (
            (current.deps_given, environment.deps, "deps"),
            (current.pause_when_given, environment.pause_when, "pause_when"),
        ):
            if given and value is None:
                return await _held_up(run, f"needs {what}")
        with ExitStack() as stack:
            try:
                stack.enter_context(environment.codecs.applied(current.context))
            except UsageError as error:
                return await _held_up(run, str(error))
            return await run_pipeline(run, self._definition.mode)

    def ended(self, state: AgentState) -> Outcome:
        """The outcome of the last run of this state, which is over."""
        assert state.run is not None, "only called after a run"
        assert state.run.end is not None, "only called after its end"
        return outcome_of(state.run.end, state.copied(), self._definition, {})

    def suspended_outcome(self, state: AgentState) -> Interrupted | Paused | None:
        """The outcome of the open run of this state, if it is interrupted or paused."""
        run = state.run
        if run is None or run.over:
            return None
        state = state.copied()
        usage = state.usage
        if state.requests:  # they take precedence over a pause
            return Interrupted(requests=state.requests, run_id=run.run_id, state=state, usage=usage)
        if state.pause is not None:
            return Paused(reason=state.pause, run_id=run.run_id, state=state, usage=usage)
        return None

    def view(self, ledger: Ledger, environment: RunEnvironment) -> Run:
        """A `Run` for hooks that are called outside the pipeline, between runs or during one."""
        return self._run(ledger, environment, models=())

    async def stop(
        self, ledger: Ledger, signal: StopSignal, *, environment: RunEnvironment
    ) -> Outcome:
        """End the open run as stopped. Finished calls are kept, the others marked in history."""
        run = self._run(ledger, environment, models=())
        if run.current.cancelled is None:
            # Race: a crash while the hooks run. The run must not be continued after it.
            ledger.record(CancelRequested(signal=signal.to_dict()))
        outcome = run.stopped(StopSignals((signal,)))
        with environment.codecs.applied(run.context, is_strict=False):
            await call_end_hooks(run, outcome, final=True)
        ledger.record(RunEnded(end=end_of(run, outcome), at=environment.clock.now()))
        ended = self.ended(ledger.state)  # before the wait, as in `run_pipeline`
        await ledger.durable()
        return ended

    def _ledger(self, state: AgentState, environment: RunEnvironment, *, fresh: bool) -> Ledger:
        path = (self._definition.name,)
        own = state if fresh else state.copied()  # the caller's state must not change
        ledger = Ledger(
            own,
            environment.journal,
            agent_path=path,
            listener=environment.emit,
            clock=environment.clock,
        )
        if environment.instrument is not None:
            environment.instrument.follow(ledger)
        ledger.open(fresh=fresh)
        return ledger

    def _run(
        self,
        ledger: Ledger,
        environment: RunEnvironment,
        *,
        models: tuple[Model, ...] | None = None,
    ) -> Run:
        definition = self._definition
        return Run(
            definition=definition,
            ledger=ledger,
            models=self.models if models is None else models,
            clock=environment.clock,
            new_id=environment.new_id,
            threads=environment.threads or _THREADS,
            shared=environment.shared,
            agent_id=environment.agent_id or definition.name,
            agent_path=(definition.name,),
            deps=environment.deps,
            pause_when=environment.pause_when,
            streaming=environment.streaming or (lambda: environment.emit is not None),
            is_to_end_attempt=environment.is_to_end_attempt,
            pause_requested=environment.pause_requested,
            abandon_later=environment.abandon_later,
            cancellation=environment.cancellation,
            children=self._children,
            instrument=environment.instrument,
            prices=environment.prices,
        )

    async def _check_instructions(self, state: AgentState, seeds: Mapping[str, Any]) -> None:
        """Raise before anything runs if instructions read a key that is not in the values."""
        texts = [i for i in self._definition.instructions if isinstance(i, str) and "{" in i]
        if texts:
            seen = AgentState(values={**state.values, **seeds})
            for text in texts:
                await render(text, seen, agent=self._definition.name)

    # ------------------------------------------------------------------ decisions

    def check_decisions(
        self,
        state: AgentState,
        decisions: object,
        clock: Clock,
        *,
        expect: Mapping[str, str] | None = None,
    ) -> dict[str, Decision]:
        """The decisions that are new, checked. Those that were made before are left out.

        Raises:
            DecisionError: if one does not fit its request, or its request is unknown or stale.
            RequestChanged: if the digest of a request is not the one that `expect` has for it.
            NotInterrupted: if a request was answered before by another decision.

        """
        if not isinstance(decisions, Mapping):
            raise DecisionError(
                f"resume takes a mapping of request ids to decisions, got {decisions!r}: "
                "interrupted.decide(approve(), ...) makes one from decisions in request order"
            )
        if not decisions:
            raise DecisionError("resume got no decision: answer at least one request")
        pending = {request.id: request for request in state.requests}
        current = state.run.run_id if state.run is not None else ""
        before = {
            record.request.id: record
            for inner in state.tree
            for record in inner.decisions
            if belongs_to_run(record.request.run_id, current)
        }
        known = {request_id: record.request for request_id, record in before.items()} | pending
        for request_id, digest in (expect or {}).items():
            if request_id in known and known[request_id].digest != digest:
                raise RequestChanged(
                    request_id=request_id, digest=known[request_id].digest, expected=digest
                )
        new = {}
        for request_id, given in decisions.items():
            if request_id in pending:
                new[request_id] = self._in_time(pending[request_id], given, clock)
            elif request_id in before:
                earlier = before[request_id]
                if earlier.decision.by == EXPIRY:
                    raise _expired(earlier.request)
                if not self._checked(earlier.request, given).same_as(earlier.decision):
                    raise NotInterrupted(
                        f"Request {request_id!r} was answered before, with "
                        f"{earlier.decision.type!r}: that decision cannot be changed"
                    )
            else:
                there = ", ".join(map(repr, pending)) or "none"
                raise DecisionError(
                    f"Request {request_id!r} is not pending (stale or unknown); pending: {there}",
                    request_id=str(request_id),
                )
        return new

    def _in_time(self, request: Request, given: object, clock: Clock) -> Decision:
        """The decision, checked, if the request has not expired."""
        if request.expires_at is not None and request.expires_at <= clock.now():
            raise _expired(request)
        return self._checked(request, given)

    def _checked(self, request: Request, given: object) -> Decision:
        """The decision as plain JSON data, with arguments that the tool accepts."""
        decision = checked_decision(request, given)
        try:
            checked_json(
                {"message": decision.message, "by": decision.by, "note": decision.note},
                what=f"{decision.type}(...)",
            )
            plain = checked_json({"value": decision.value}, what="respond(...)")
            arguments = decision.arguments
            if arguments is not None:
                arguments = checked_json(arguments, what="edit(...)")
                definition = _requester(self._definition, request)
                if definition is not None:  # else they are checked when the call is due
                    tool = definition.tools.get(request.tool_name)
                    if tool is None:
                        raise InvalidArguments(
                            f"agent {definition.name!r} has no such tool any more"
                        )
                    tool.canonical(tool.revalidate(arguments))
            return replace(decision, value=plain["value"], arguments=arguments)
        except (InvalidArguments, UsageError) as error:
            raise DecisionError(
                f"Request {request.id!r} ({request.about}): {error}", request_id=request.id
            ) from error


async def _held_up(run: Run, reason: str) -> Paused:
    """The outcome of a run that must not continue without something that it had."""
    paused = replace(run.paused(reason), state=run.state.copied())
    await run.durable()  # else the pipeline waits, for the next attempt's record
    return paused


def _expired(request: Request) -> DecisionError:
    at = "" if request.expires_at is None else f" at {request.expires_at.isoformat()}"
    counts = "counts as rejected" if request.on_expiry == "reject" else "stops the run"
    return DecisionError(
        f"Request {request.id!r} expired{at} and {counts}: call resume(state) without a decision "
        "about it",
        request_id=request.id,
    )


def _requester(definition: AgentDefinition, request: Request) -> AgentDefinition | None:
    """The definition of the agent that the request is of; None if only a tool knows that agent."""
    for name in request.agent_path[1:]:
        child = definition.children.get(name)
        if child is None:
            return None
        definition = child.definition
    return definition


def belongs_to_run(run_id: str, root: str) -> bool:
    """Whether this run is `root`, or one inside it: its id begins with that of the outer run."""
    return run_id == root or run_id.startswith(root + ".")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options that are recorded when a run begins."""

    until_tool: tuple[str, ...] | None = None
    require_tool_success: bool = False
    force: bool = False
    """The model must call the until tool."""
    max_runs: int = 50
    deadline: float | None = None
    early_stopping_prompt: str | None = None
    """Instead of the agent's own; None for that."""
    ends_at: datetime | None = None


def refuse_inside_run() -> None:
    """Raise a `DecisionError` inside a tool, hook or model: only the application may decide."""
    run = inside_run.get()
    if run is not None and not run.closed:
        raise DecisionError(
            "resume was called from inside a tool, hook or model: call it from the application"
        )


def decide(
    ledger: Ledger,
    decisions: Mapping[str, Decision],
    clock: Clock,
    context: Context = MappingProxyType({}),
) -> None:
    """Record decisions that were checked, each in the ledger of the agent that requested it.

    Raises:
        DecisionError: if one is too large to be kept; none is recorded then.

    """
    places: list[tuple[Ledger, Request]] = []
    root = ledger.state.run
    if root is not None and root.halt is not None and root.halt.id in decisions:
        places.append((ledger, root.halt))
    else:
        for place in ledger_tree(ledger):
            run = place.state.run
            for request in run.pending_requests if run is not None and not run.over else ():
                if request.id in decisions:
                    places.append((place, request))
    now = clock.now()
    records = []
    for place, request in places:
        decision = decisions[request.id]
        record = Decided(request_id=request.id, decision=decision, at=now, context=dict(context))
        try:
            # What is accepted must fit into the call's result as well.
            place.check(record, spare=RESULT_BYTES if record.decision.type == "respond" else 0)
        except RecordRefused as refused:
            raise DecisionError(
                f"Request {request.id!r} ({request.about}): the decision cannot be kept: {refused}",
                request_id=request.id,
            ) from refused
        records.append((place, record))
    for place, record in records:
        place.record(record)


def _checked_answers(answers: object) -> dict[str, Answer]:
    if not isinstance(answers, Mapping):
        raise UsageError(f"`answers` must be a mapping of tokens to values, got {shown(answers)}")
    for token in answers:
        agent_of(token)
    return {hash_of(token): resolved(value) for token, value in answers.items()}


def _record_answers(ledger: Ledger, answers: Mapping[str, Answer], clock: Clock) -> None:
    for token_hash, answer in answers.items():
        now, agent_id = clock.now(), "" if ledger.state.run is None else ledger.state.run.agent_id
        if record_answer(ledger, token_hash, answer, now, agent_id=agent_id) is None:
            raise UnknownToken


def unpause(ledger: Ledger) -> None:
    """Record that the run, and each paused run inside it, is no longer paused."""
    for place in list(ledger_tree(ledger)):
        run = place.state.run
        if run is not None and not run.over and run.paused is not None:
            place.record(Unpaused())


def _checked_state(given: object) -> AgentState:
    if isinstance(given, AgentState):
        return given
    if isinstance(given, Mapping):
        raise UsageError(
            "`state` must be an AgentState: read stored data with AgentState.from_dict(data)"
        )
    raise UsageError(f"`state` must be an AgentState, such as outcome.state, got {given!r}")


def withdraw_requests(ledger: Ledger) -> None:
    """Record that a new message withdraws the pending requests, in the whole tree of agents."""
    for place in list(ledger_tree(ledger)):
        run = place.state.run
        if run is None or run.over:
            continue
        ids = tuple(request.id for request in run.pending_requests)
        if ids:
            place.record(Withdrawn(request_ids=ids))


def withdraw(ledger: Ledger, clock: Clock) -> None:
    """Record that the open run ends because of a new message."""
    withdraw_requests(ledger)
    ledger.record(RunEnded(end=End(outcome="withdrawn"), at=clock.now()))
