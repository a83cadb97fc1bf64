"""`Runner`: starts or continues runs of one definition, on the state or ledger of a caller.

Both are the same operation: add the new records, then run the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pydantic_ai.messages import ModelRequest
from pydantic_ai.models import Model

from understudy._base.authors import By
from understudy._base.clock import Clock
from understudy._base.context_codecs import Context
from understudy._base.json_values import shown
from understudy.agent.decisions import check_decisions, decide, refuse_inside_run
from understudy.agent.nested_runs import NestedRuns, message_to_go_on, models_of, seeds_of
from understudy.agent.run_environment import RunOptions
from understudy.errors import (
    NoProgress,
    NotInterrupted,
    OtherWorkflow,
    UnknownToken,
    UsageError,
)
from understudy.interrupts import GivenDecisions
from understudy.models.messages import UserInput, user_message
from understudy.models.model_names import refresh_client
from understudy.modes.pipeline import run_pipeline
from understudy.modes.steps.check_stop import ANSWER_PROMPT
from understudy.modes.steps.run_end import (
    WITHDRAWN,
    call_end_hooks,
    end_of,
    outcome_of,
    status_after,
)
from understudy.outcomes import Interrupted, Outcome, Paused
from understudy.run.definition import AgentDefinition
from understudy.run.environment import RunEnvironment
from understudy.run.instructions import render
from understudy.run.ledger import Ledger, end_run, ledger_tree
from understudy.run.run import Run
from understudy.run.waits.answers import Answer, record_answer, resolved
from understudy.run.waits.tokens import agent_of, hash_of
from understudy.state.agent_state import AgentState
from understudy.state.plans import BackgroundCall, Occurrence
from understudy.state.records import (
    CancelRequested,
    End,
    Once,
    RunStarted,
    Unpaused,
    Withdrawn,
)
from understudy.state.run_state import RunState
from understudy.stopping import StopSignal, StopSignals

MAX_RETRIES = 5
"""The maximum number of times in a row that a failed run is continued without getting further."""


class Runner:
    """Starts and continues runs of one definition.

    Args:
        definition: the definition of the runs.
        children: the object that runs inner agents and makes each `Run`; by default a new one.

    """

    def __init__(self, definition: AgentDefinition, children: NestedRuns | None = None) -> None:
        self._definition = definition
        self._fingerprint = definition.fingerprint
        self._models: tuple[Model, ...] | None = None
        self._children = NestedRuns() if children is None else children

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
        go_on: bool = False,
    ) -> Outcome:
        """Start a run with a message. A run that is open in `state` is withdrawn."""
        self._check_runs_alone()
        message = user_message(input, at=environment.clock.now())
        given = _checked_state(state) if state is not None else AgentState()
        await self.check_start(given)
        ledger = self._ledger(given, environment, fresh=state is None)
        return await self.begin(
            ledger, message, options=options, environment=environment, go_on=go_on
        )

    async def retry(self, state: AgentState, *, environment: RunEnvironment) -> Outcome:
        """Start a run that continues the last run of this state, which failed."""
        self._check_runs_alone()
        state = _checked_state(state)
        refuse_inside_run()
        self.check_goes_on(state)
        await self.check_start(state)
        ledger = self._ledger(state, environment, fresh=False)
        return await self.begin(ledger, None, environment=environment, go_on=True)

    def _check_runs_alone(self) -> None:
        """Raise a `UsageError` if the agent needs a runtime, because only a runtime brings later
        results.
        """
        names = self._definition.background_inside
        if names:
            raise UsageError(
                f"Agent {self._definition.name!r} has tools that run in the background "
                f"({', '.join(names)}), whose results come later: run it in a Runtime"
            )

    async def check_start(self, state: AgentState) -> None:
        """Raise a `UsageError` if a run cannot begin with this state."""
        for model in self.all_models:
            refresh_client(model)
        seeds = seeds_of(self._definition, state)
        await self._check_instructions(state, seeds)

    def check_goes_on(self, state: AgentState) -> RunState:
        """The last run of this state, which failed, if another run may continue it.

        Raises:
            NotInterrupted: if the last run did not fail.
            NoProgress: if it was continued too often without getting further.
            OtherWorkflow: if the agents of its workflow have changed.

        """
        run, name = state.run, self._definition.name
        if run is None or not run.has_failed:
            raise NotInterrupted(
                f"Agent {name!r}: its last run has not failed, so there is nothing to retry. A "
                "message begins a new run"
            )
        if run.continues is not None and run.continues.retries >= MAX_RETRIES:
            raise NoProgress(agent=name, run_id=run.run_id, retries=MAX_RETRIES)
        _check_workflow(self._definition, state)
        return run

    async def begin(
        self,
        ledger: Ledger,
        message: ModelRequest | None,
        *,
        options: RunOptions | None = None,
        environment: RunEnvironment,
        run_id: str | None = None,
        message_ids: tuple[str, ...] = (),
        occurrence: Occurrence | None = None,
        context: Context = MappingProxyType({}),
        go_on: bool = False,
        by: tuple[By, ...] = (),
        also_unnamed: bool = False,
        makes: BackgroundCall | None = None,
        signal: Callable[[], StopSignal | None] = lambda: None,
    ) -> Outcome:
        """Record the start of a run in this ledger, and run its pipeline.

        Args:
            ledger: the ledger that records the run.
            message: the input; None for a retry of the last run, which failed.
            options: the options of this run; None = the options of the retried run.
            environment: the environment of this attempt.
            run_id: the id of the run; None = a new id.
            message_ids: the ids of the queued messages from which `message` is made.
            occurrence: the occurrence of a schedule for which it runs; None for any other run.
            context: the context of the sender of the message.
            go_on: continue the last run, if that failed.
            by: the people who sent the messages, or asked for a retry.
            also_unnamed: whether nobody was named for one of the messages.
            makes: the background call that it makes; None for any other run.
            signal: called once the start is recorded; a signal stops the run at once.

        Raises:
            UsageError: if the context cannot be applied, if the cost of a model is unknown that a
                middleware must know, or if the failed run cannot be continued. Nothing is recorded
                then.

        """
        definition = self._definition
        if definition.needs_cost_inside:
            self._children.check_prices(definition, self.models, environment.prices)
        last = ledger.state.run
        failed = None
        if go_on and (message is None or (last is not None and last.has_failed)):
            failed = self.check_goes_on(ledger.state)
        if failed is not None and message is None:
            message = message_to_go_on(ledger.state, environment.clock.now())
            context, occurrence = failed.context, failed.occurrence
        if options is None:
            assert failed is not None, "any other run has options of its own"
            options = _options_of(failed)

        given_at = None if message is None else message.timestamp
        began = given_at or environment.clock.now()

        def started() -> RunStarted:
            return RunStarted(
                run_id=run_id or environment.new_id(),
                agent=definition.name,
                at=began,
                message=message,
                continues=None if failed is None else failed.run_id,
                until_tool=options.until_tool,
                require_tool_success=options.require_tool_success,
                forced=options.force,
                max_runs=options.max_runs,
                early_stopping=definition.early_stopping,
                fingerprint=self._fingerprint,
                deps_given=environment.deps is not None
                or (failed is not None and failed.deps_given),
                pause_when_given=environment.pause_when is not None
                or (failed is not None and failed.pause_when_given),
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
                doubt_ends=environment.doubt_ends,
                by=by,
                also_unnamed=bool(by) and also_unnamed,
                makes=makes,
                status=environment.status_in_run(ledger.state),
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
            if failed is not None:  # the caller may lack what the failed run was given
                return await self.go_on(ledger, environment=environment)
            return await run_pipeline(self._run(ledger, environment), self._definition.mode)

    async def resume(
        self,
        state: AgentState,
        decisions: GivenDecisions | None,
        answers: Mapping[str, Any],
        *,
        environment: RunEnvironment,
    ) -> Outcome:
        """Continue the open run of this state, with decisions and answers if they are given."""
        self._check_runs_alone()
        state = _checked_state(state)
        refuse_inside_run()
        current = state.run
        new = (
            check_decisions(self._definition, state, decisions, environment.clock)
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
            return self.ended(state)  # the same decisions were given again
        given = _checked_answers(answers)
        if given:  # first on a copy: if a decision is refused, nothing is recorded
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
        if state.requests:  # requests take precedence over a pause
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
        """End the open run as stopped. Finished calls are kept; other calls are marked in the
        history.
        """
        run = self._run(ledger, environment, models=())
        if run.current.cancelled is None:
            # Race: a crash while the hooks run. The run must not be continued after it.
            ledger.record(CancelRequested(signal=signal.to_dict()))
        outcome = run.stopped(StopSignals((signal,)))
        with environment.codecs.applied(run.context, is_strict=False):
            await call_end_hooks(run, outcome, final=True)
        end = end_of(run, outcome)
        end_run(ledger, end, environment.clock.now(), status=status_after(run, end))
        ended = self.ended(ledger.state)  # before the wait, as in `run_pipeline`
        await ledger.end_is_durable()
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
        return self._children.run_type(
            self._definition,
            ledger,
            environment,
            models=self.models if models is None else models,
            children=self._children,
        )

    async def _check_instructions(self, state: AgentState, seeds: Mapping[str, Any]) -> None:
        """Raise before anything runs if instructions read a key that is not in the values."""
        texts = [i for i in self._definition.instructions if isinstance(i, str) and "{" in i]
        if texts:
            seen = AgentState(values={**state.values, **seeds})
            for text in texts:
                await render(text, seen, agent=self._definition.name)


def _check_workflow(definition: AgentDefinition, state: AgentState) -> None:
    """Raise `OtherWorkflow` if the agents are not those that the failed run of this state had."""
    run = state.run
    assert run is not None, "only called for a run that failed, or was cut off"
    if run.workflow != definition.workflow:
        was, now = run.workflow or "no workflow", definition.workflow or "no workflow"
        raise OtherWorkflow(agent=definition.name, was=was, now=now)
    inside = {agent.definition.name: agent.definition for agent in definition.mode.agents}
    for child in state.left.values():
        if child.run is not None and child.run.shared is not None and child.run.left is not None:
            _check_workflow(inside[child.run.agent], child)


def _options_of(run: RunState) -> RunOptions:
    return RunOptions(
        until_tool=run.until_tool,
        require_tool_success=run.require_tool_success,
        force=run.forced,
        max_runs=run.max_runs,
        deadline=run.deadline,
        early_stopping_prompt=run.once.get(ANSWER_PROMPT),
        ends_at=run.ends_at,
    )


async def _held_up(run: Run, reason: str) -> Paused:
    """The outcome of a run that must not continue without something that it was given before."""
    paused = replace(run.paused(reason), state=run.state.copied())
    await run.durable()  # otherwise the pipeline does it, for the next attempt's record
    return paused


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


def unpause(ledger: Ledger, by: By | None = None) -> None:
    """Record that the run, and each paused run inside it, is no longer paused."""
    for place in list(ledger_tree(ledger)):
        run = place.state.run
        if run is not None and not run.over and run.paused is not None:
            place.record(Unpaused(by=by))


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
    end_run(ledger, End(outcome="withdrawn"), clock.now())
