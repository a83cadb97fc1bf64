"""`Limits(max_cost=)`: what a run may cost, and what happens where nobody knows what it costs.

Rules: J93.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.usage import RequestUsage

from tests.support.agents import by_turn, completed, interrupted, reloaded, results
from understudy import (
    Agent,
    CostUnknown,
    Failed,
    Interrupted,
    Outcome,
    Price,
    Prices,
    Run,
    Runtime,
    ScriptedModel,
    Stopped,
    UsageError,
    approve,
    tool,
)
from understudy.middleware import Limits, Middleware, SubAgent
from understudy.modes import Sequential

CENTS = {"scripted": Price(input=10_000, output=10_000)}
"""A cent for each token."""


@tool
async def work() -> str:
    """Work."""
    return "worked"


def reply(*parts: Any, tokens: int = 2, model: str | None = "scripted") -> ModelResponse:
    """A reply of so many tokens, of which each costs a cent."""
    return ModelResponse(
        parts=[TextPart(part) if isinstance(part, str) else part for part in parts],
        usage=RequestUsage(input_tokens=tokens - 1, output_tokens=1),
        model_name=model,
    )


def works(tokens: int = 2, model: str | None = "scripted") -> ModelResponse:
    return reply(ToolCallPart("work", {}), tokens=tokens, model=model)


def run_of(turns: Any, *stack: Middleware, **limits: Any) -> tuple[Outcome, ScriptedModel]:
    model = ScriptedModel(turns)
    limits = {"pricing": CENTS, **limits}
    agent = Agent("a", model, tools=[work], middleware=[Limits(**limits), *stack])
    return agent.execute_sync("go"), model


def reasons(outcome: Outcome) -> list[str]:
    assert isinstance(outcome, Stopped), outcome
    return [signal.reason.value for signal in outcome.signals]


@pytest.mark.parametrize(("limit", "steps"), [("0.01", 1), (0.1, 1), ("0.11", 2), (0.2, 2)])
def test_a_run_stops_before_the_model_call_after_its_limit(limit: Any, steps: int) -> None:
    """J93."""
    outcome, model = run_of([works(10)] * 5, max_cost=limit)
    assert reasons(outcome) == ["cost_limit"]
    assert len(model.requests) == steps
    assert outcome.cost.usd == outcome.usage.cost == Decimal("0.10") * steps


def test_a_run_says_by_how_much_it_was_stopped() -> None:
    outcome, _ = run_of([works(10)] * 5, max_cost="0.05")
    assert outcome.explain() == (
        "Stopped after 1 model call: cost_limit: $0.1000 of $0.0500 were spent (from "
        "'limits.max_cost')."
    )


def test_a_final_answer_that_costs_too_much_is_completed() -> None:
    outcome, _ = run_of([works(4), reply("done", tokens=100)], max_cost="0.05")
    assert completed(outcome).text == "done"
    assert str(outcome.cost) == "$1.04"


def test_what_children_cost_counts() -> None:
    """J93."""
    child = Agent("child", ScriptedModel([works(40), reply("child done", tokens=40)]), tools=[work])
    task = ToolCallPart("task", {"task_name": "child", "instructions": "go"})
    sub_agents = SubAgent(agents=[child], general_purpose=False)
    outcome, _ = run_of([reply(task), "never"], sub_agents, max_cost="0.82")
    assert reasons(outcome) == ["cost_limit"], "2 cents of its own and 80 of its child"
    assert results(outcome.state)[0].content == "child done"
    assert {name: str(cost.usd) for name, cost in outcome.cost.by_agent.items()} == {
        "a": "0.02",
        "a/child": "0.8",
    }


def test_what_the_agents_of_a_workflow_cost_is_that_of_the_workflow() -> None:
    limit = Limits(max_cost=1, pricing=CENTS)
    agents = [
        Agent(name, ScriptedModel([reply("done", tokens=3)]), middleware=[limit])
        for name in ("first", "second")
    ]
    outcome = Agent("both", mode=Sequential(agents)).execute_sync("go")
    assert outcome.cost.usd == Decimal("0.06")
    assert list(outcome.cost.by_agent) == ["both/first", "both/second"]


def test_the_limit_counts_over_the_resumes_of_a_run() -> None:
    def build() -> Agent:
        model = by_turn(works(30), works(30), works(30))
        limit = Limits(max_cost="0.60", pricing=CENTS)
        return Agent("a", model, tools=[work], middleware=[limit], interrupt_on={"work": True})

    outcome = interrupted(build().execute_sync("go"))
    for _ in range(2):
        state = reloaded(outcome.state)
        last = build().resume_sync(state, {r.id: approve() for r in state.requests})
        if isinstance(last, Stopped):
            break
        outcome = interrupted(last)
    assert reasons(last) == ["cost_limit"]
    assert last.cost.usd == Decimal("0.60")


def test_what_a_middleware_asks_a_model_counts() -> None:
    class Asks(Middleware):
        async def after_step(self, run: Run) -> None:
            await run.ask_model("about", "What of it?")

    outcome, model = run_of([works(3), reply("it", tokens=7), works(3)], Asks(), max_cost="0.10")
    assert reasons(outcome) == ["cost_limit"]
    assert len(model.requests) == 2


# ------------------------------------------------------------------------- unknown


def test_a_run_does_not_begin_where_its_model_has_no_price() -> None:
    """J93."""
    agent = Agent("a", ScriptedModel(["never"]), middleware=[Limits(max_cost=1)])
    with pytest.raises(UsageError, match=r"'scripted' costs, and .* has no price for it: give one"):
        agent.execute_sync("go")


@pytest.mark.parametrize("where", ["fallback", "child", "workflow"])
def test_nor_where_another_model_has_none(where: str) -> None:
    other = ScriptedModel(["never"], name="other")
    limit = Limits(max_cost=1, pricing=CENTS)
    model = ScriptedModel(["never"])
    if where == "fallback":
        agent = Agent("a", model, fallback_models=[other], middleware=[limit])
    elif where == "child":
        children = SubAgent(agents=[Agent("b", other)], general_purpose=False)
        agent = Agent("a", model, middleware=[children, limit])
    else:
        agent = Agent("a", mode=Sequential([Agent("b", other, middleware=[limit])]))
    with pytest.raises(UsageError, match="'other' costs"):
        agent.execute_sync("go")


def test_the_limit_of_a_child_needs_prices_for_the_child_alone() -> None:
    child = Agent("b", ScriptedModel(["never"], name="other"), middleware=[Limits(max_cost=1)])
    model = ScriptedModel(["never"])
    agent = Agent("a", model, middleware=[SubAgent(agents=[child], general_purpose=False)])
    with pytest.raises(UsageError, match=r"Agent 'b': a limit needs .* 'other' costs"):
        agent.execute_sync("go")


def test_a_reply_of_unknown_cost_fails_the_run_before_the_next_call() -> None:
    def price_of(reply: ModelResponse) -> Decimal | None:
        return None if reply.model_name == "surprise" else Decimal("0.01")

    prices = Prices(price_of, published=False)
    turns = [works(), works(model="surprise"), works()]
    outcome, model = run_of(turns, max_cost=1, pricing=prices)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, CostUnknown)
    assert outcome.error.models == ["surprise"]
    assert "'surprise' cost: give the model a price" in outcome.error.message
    assert len(model.requests) == 2
    assert outcome.cost.usd is None
    assert str(outcome.cost) == "at least $0.0100"


def test_a_last_reply_of_unknown_cost_is_an_answer() -> None:
    prices = Prices(
        lambda reply: None if reply.model_name == "surprise" else Decimal(0), published=False
    )
    outcome, _ = run_of([reply("done", model="surprise")], max_cost=1, pricing=prices)
    assert completed(outcome).text == "done"
    assert str(outcome.cost) == "unknown"


def test_a_reply_whose_usage_nobody_measured_has_an_unknown_cost() -> None:
    unmeasured = ModelResponse(parts=[ToolCallPart("work", {})], model_name="scripted")
    outcome, _ = run_of([unmeasured, "never"], max_cost=1)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, CostUnknown)


def test_a_free_model_costs_nothing_whatever_is_measured() -> None:
    free = {"scripted": Price(input=0, output=0)}
    outcome, _ = run_of(
        [ModelResponse(parts=[ToolCallPart("work", {})]), "done"], max_cost=1, pricing=free
    )
    assert completed(outcome).cost.usd == 0


def test_what_was_recorded_before_there_was_a_limit_is_not_judged() -> None:
    """A run that was open when the limit came continues: what it has cost so far stays unknown."""

    def build(*stack: Middleware) -> Agent:
        model = by_turn(works(30), works(30), reply("done", tokens=30))
        return Agent("a", model, tools=[work], middleware=stack, interrupt_on={"work": True})

    asked = interrupted(build().execute_sync("go"))
    limited = build(Limits(max_cost=1, pricing=CENTS))
    for _ in range(2):
        state = reloaded(asked.state)
        outcome = limited.resume_sync(state, {each.id: approve() for each in state.requests})
        if not isinstance(outcome, Interrupted):
            break
        asked = outcome
    assert completed(outcome).text == "done"
    assert str(outcome.cost) == "at least $0.6000"


# ------------------------------------------------------------------ under a runtime


async def test_a_limit_without_prices_of_its_own_uses_those_of_the_runtime() -> None:
    limit = Limits(max_cost="0.2")
    agent = Agent("a", ScriptedModel([works(10)] * 5), tools=[work], middleware=[limit])
    async with Runtime([agent], pricing=CENTS) as runtime:
        outcome = await runtime.spawn(agent, "a-1").run("go")
    assert reasons(outcome) == ["cost_limit"]
    assert outcome.cost.usd == Decimal("0.20")


async def test_a_run_that_may_not_begin_is_refused_and_the_agent_goes_on() -> None:
    """Its caller gets the error; nothing is recorded."""
    known = ["other"]

    def price_of(reply: ModelResponse) -> Decimal | None:
        return Decimal(0) if reply.model_name in known else None

    agent = Agent("a", ScriptedModel(["done"]), middleware=[Limits(max_cost=1)])
    async with Runtime([agent], pricing=price_of) as runtime:
        ref = runtime.spawn(agent, "a-1")
        with pytest.raises(UsageError, match="'scripted' costs"):
            await ref.run("go")
        assert (await ref.state()).run is None
        known.append("scripted")
        assert completed(await ref.run("go")).text == "done"


# ----------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "limits",
    [
        {"max_cost": 0},
        {"max_cost": -1},
        {"max_cost": True},
        {"max_cost": "a lot"},
        {"max_cost": "nan"},
        {"max_cost": Decimal("Infinity")},
        {"max_cost": 10**10},
        {"pricing": CENTS},
        {"max_cost": 1, "pricing": 7},
        {"max_cost": 1, "pricing": {"scripted": 0.1}},
        {"max_cost": 1, "pricing": {7: Price(input=0, output=0)}},
    ],
)
def test_bad_limits_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Limits(**limits)


def test_one_agent_has_one_set_of_prices() -> None:
    """A reply has one cost: a second limit would count in prices that are not its own."""
    dear = {"scripted": Price(input=20_000, output=20_000)}
    first, second = Limits(max_cost=1, pricing=CENTS), Limits(max_cost=2, pricing=dear)
    with pytest.raises(UsageError, match=r"Agent 'a': .*pricing"):
        Agent("a", ScriptedModel(["done"]), middleware=[first, second])
    shared = Prices(CENTS)
    stack = [Limits(max_cost=1, pricing=shared), Limits(max_cost=2, pricing=shared)]
    outcome = Agent("a", ScriptedModel(["done"]), middleware=stack).execute_sync("go")
    assert completed(outcome).text == "done"
