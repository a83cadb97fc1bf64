"""`NestedRuns`: agents that run inside another run, in its attempt and in its ledger."""

from __future__ import annotations

import inspect
from dataclasses import replace
from datetime import datetime
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import ValidationError
from pydantic_ai.messages import ModelRequest, ModelResponse
from pydantic_ai.models import Model

from understudy._base.error_texts import error_text
from understudy.agent.model_options import check_models
from understudy.errors import UsageError
from understudy.models import resolve_model
from understudy.models.attribution import go_on_prompt
from understudy.models.model_names import refresh_client
from understudy.models.prices import Prices
from understudy.models.requirements import check_can_be_forced, native_names
from understudy.modes.pipeline import run_pipeline
from understudy.modes.steps.run_end import call_end_hooks, outcome_of
from understudy.outcomes import Outcome
from understudy.run.definition import AgentDefinition, ChildAgent, Gate, PauseWhen
from understudy.run.ledger import ChildLedger, end_run
from understudy.run.run import AttemptEnded, ChildRunner, Run
from understudy.state.agent_state import AgentState
from understudy.state.records import End, RunStarted
from understudy.state.run_state import RunState
from understudy.stopping import StopSignals


class NestedRuns(ChildRunner):
    """Runs the children of a run: the agents of its tool calls, or of its workflow."""

    run_type: type[Run] = Run
    """The class of each run, also of the outermost one."""

    def __init__(self) -> None:
        self._models: WeakKeyDictionary[AgentDefinition, tuple[Model, ...]] = WeakKeyDictionary()
        self._asked: dict[str, Model] = {}
        """The models that were given to `Run.ask_model`, by name."""

    async def run(
        self, parent: Run, key: str, child: ChildAgent, message: ModelRequest | None
    ) -> Outcome:
        """Start the child's run, or continue the one with this key in the parent's state."""
        definition = child.definition
        shares = message is None
        ledger = ChildLedger(parent.ledger, key, definition.name)
        models = self._models_of(definition)
        agent_id = f"{parent.agent_id}/{definition.name if shares else key}"
        state = ledger.state
        before = state.run
        stops = parent.environment.trust.stops
        if stops is not None and (before is None or before.end is None):
            stop = stops.of_agent((*parent.agent_path, definition.name))
            if stop is not None:
                raise AttemptEnded(stop)
        if before is None or before.is_taken_over:
            _check_gates(definition, (*parent.definition.gates, *parent.gates))
            if child.force:
                check_can_be_forced(models, agent=definition.name)
            at = parent.clock.now()
            values = seeds_of(definition, parent.state if before is None else state)
            if before is not None:
                message = message_to_go_on(state, at)
            elif not shares:  # a copy: changes do not reach the parent
                values = {**AgentState(values=parent.state.values).values, **values}
            ledger.record(
                RunStarted(
                    run_id=key,
                    agent=definition.name,
                    at=at,
                    message=message,
                    until_tool=child.until_tool,
                    require_tool_success=child.require_tool_success,
                    forced=child.force,
                    max_runs=definition.max_runs,
                    early_stopping=definition.early_stopping,
                    fingerprint=definition.fingerprint,
                    deps_given=False,
                    pause_when_given=False,
                    values=values,
                    shares=shares,
                    contents=definition.include_contents,
                    # If the agents of a workflow have changed, its step says so.
                    workflow=definition.workflow if before is None else before.workflow,
                    agent_id=agent_id,
                    deadline=parent.running_seconds_left,
                    max_overrides=definition.max_overrides,
                    initial=child.initial_messages if before is None else (),
                    told=child.instructions,
                    continues=None if before is None else before.run_id,
                    doubt_ends=parent.current.doubt_ends,
                )
            )
        elif before.end is not None:
            return outcome_of(before.end, state, definition, {})
        run = self._run(parent, definition, ledger, models)
        return await run_pipeline(run, definition.mode)

    def view(self, parent: Run, key: str) -> Run | None:
        """This child's run, for hooks; None if it is over or its agent is not known here."""
        child = parent.state.children[key].run
        if child is None or child.over:
            return None
        definition = self._definition_of(parent.definition, child)
        if definition is None:
            return None
        return self._run(parent, definition, ChildLedger(parent.ledger, key, definition.name), ())

    async def stop(self, parent: Run, key: str, signals: StopSignals) -> None:
        """End this child as stopped, because a sibling has failed. Its pipeline does not run
        now.
        """
        child = parent.state.children[key]
        assert child.run is not None, "only a child that has begun is stopped"
        run = self.view(parent, key)
        if run is not None:
            await call_end_hooks(run, run.stopped(signals), final=True)
        end = End(outcome="stopped", signals=signals.to_dict())
        ledger = ChildLedger(parent.ledger, key, child.run.agent)
        end_run(ledger, end, parent.clock.now(), cut_off=True)

    async def ask_model(
        self, run: Run, key: str, messages: Any, model: Any, output_type: Any
    ) -> Any:
        """Ask a model, for `Run.ask_model`."""
        from understudy.modes.steps.model_call.ask_separately import (
            ask_separately,  # few runs need it
        )

        if not run.models and run.definition.model is not None:
            run.models = self._models_of(run.definition)  # a run for hooks only has no models yet
        return await ask_separately(run, key, messages, model, output_type, self._asked)

    def _run(
        self,
        parent: Run,
        definition: AgentDefinition,
        ledger: ChildLedger,
        models: tuple[Model, ...],
    ) -> Run:
        assert ledger.state.run is not None, "a child's run is made once its start is recorded"
        shares = ledger.state.run.shared is not None
        environment = parent.environment
        pause_when = _pause_when(parent) if shares else None
        if environment.pause_when is not pause_when:
            environment = replace(environment, pause_when=pause_when)
        return self.run_type(
            definition, ledger, environment, models=models, children=self, parent=parent
        )

    def _definition_of(self, parent: AgentDefinition, child: RunState) -> AgentDefinition | None:
        """The definition of a child: declared by its parent, or run by a tool in this process."""
        declared = [agent.definition for agent in (*parent.mode.agents, *parent.children.values())]
        for definition in declared:
            if definition.name == child.agent:
                return definition
        for definition in list(self._models):
            if definition.name == child.agent and definition.fingerprint == child.fingerprint:
                return definition
        return None

    def models_below(self, definition: AgentDefinition) -> tuple[Model, ...]:
        """The models of the agents of this workflow, at any depth."""
        models: tuple[Model, ...] = ()
        for child in definition.mode.agents:
            inner = child.definition
            models += (*self._models_of(inner), *self.models_below(inner))
        return models

    def check_prices(
        self,
        definition: AgentDefinition,
        models: tuple[Model, ...],
        prices: Prices | None,
        *,
        needed: bool = False,
    ) -> None:
        """Check that prices are known if a middleware must know the cost of replies.

        Args:
            definition: the agent; the agents that it declares are checked too.
            models: the models that it asks.
            prices: the prices of the runtime, or of the agent above; None without prices.
            needed: whether a middleware of an agent above must know the cost.

        Raises:
            UsageError: for the first model without a price.

        """
        needed = needed or definition.needs_cost
        prices = definition.prices or prices or definition.default_prices
        for model in models if needed else ():
            assert prices is not None, "where they are needed, published ones are the default"
            if not prices.knows(model):
                name = model.model_name
                raise UsageError(
                    f"Agent {definition.name!r}: a limit needs to know what its model {name!r} "
                    f"costs, and {prices!r} has no price for it: give one, in USD per million "
                    f"tokens, as Limits(..., pricing={{{name!r}: Price(input='0.25', output=2)}}) "
                    "or in Runtime(pricing=...)"
                )
        for child in (*definition.mode.agents, *definition.children.values()):
            if needed or child.definition.needs_cost_inside:
                try:
                    inside = self._models_of(child.definition)
                except UsageError:  # the run of a model that cannot be asked says so
                    inside = ()
                self.check_prices(child.definition, inside, prices, needed=needed)

    def _models_of(self, definition: AgentDefinition) -> tuple[Model, ...]:
        known = self._models.get(definition)
        if known is None:
            known = self._models[definition] = models_of(definition)
        for model in known:
            refresh_client(model)
        return known


def message_to_go_on(state: AgentState, at: datetime) -> ModelRequest | None:
    """The prompt with which a run continues the failed run of this state; None if none is needed.

    A model needs a prompt if its own reply would be the last message.
    """
    run = state.run
    assert run is not None, "only called for a run that failed, or was cut off"
    assert run.left is not None, "as above"
    left = run.left
    if left.turn is not None or left.unread or not left.messages or run.workflow is not None:
        return None
    last = state.messages[left.messages - 1]
    return go_on_prompt(at) if isinstance(last, ModelResponse) else None


def _check_gates(definition: AgentDefinition, gates: tuple[Gate, ...]) -> None:
    """Raise a `UsageError` if a gate above the agent names one of its native tools."""
    for name in native_names(definition.native_tools) - set(definition.tools):
        if any(gate.covers(name) for gate in gates):
            raise UsageError(
                f"A gate applies to {name!r}, a native tool of agent {definition.name!r}: its "
                "provider runs it, so nobody can approve it"
            )


def models_of(definition: AgentDefinition) -> tuple[Model, ...]:
    """The agent's model, then its fallbacks; names are looked up.

    Raises:
        UsageError: if a name cannot be used, or a model lacks what the agent needs.

    """
    given = (definition.model, *definition.fallback_models)
    models = tuple(resolve_model(model) for model in given if model is not None)
    check_models(definition, models)
    return models


def _pause_when(parent: Run) -> PauseWhen | None:
    """The `pause_when` of an agent of a workflow: the workflow's own also pauses its agents."""
    both = (parent.definition.pause_when, parent.environment.pause_when)
    given = [pause_when for pause_when in both if pause_when is not None]
    if len(given) < 2:
        return given[0] if given else None

    async def either() -> bool | str | None:
        for pause_when in given:
            answer = pause_when()
            if inspect.isawaitable(answer):
                answer = await answer
            if answer:
                return answer
        return None

    return either


def seeds_of(definition: AgentDefinition, state: AgentState) -> dict[str, Any]:
    """The defaults of the typed values of middleware that the state lacks.

    Raises:
        UsageError: if values in the state do not fit.

    """
    seeds: dict[str, Any] = {}
    for owner, schema in definition.schemas.items():
        held = {key: state.values[key] for key in schema.model_fields if key in state.values}
        try:
            whole = schema.model_validate(held).model_dump(mode="json")
        except Exception as error:  # a validator of the schema may raise anything
            why = str(error) if isinstance(error, ValidationError) else error_text(error)
            raise UsageError(f"The state's values do not fit what {owner} keeps: {why}") from error
        seeds.update({key: value for key, value in whole.items() if key not in held})
    return seeds
