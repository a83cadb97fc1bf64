"""What runs cost: recorded with each reply, summed by run, agent and model, estimated when read.

Rules: J92.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import (
    ModelRequestAttempt,
    ModelResponse,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.usage import RequestUsage

from tests.support.agents import completed, interrupted, reloaded
from understudy import (
    Agent,
    AgentState,
    Cost,
    Costs,
    Defer,
    Interrupt,
    Outcome,
    Price,
    Prices,
    Run,
    Runtime,
    ScriptedModel,
    UsageError,
    approve,
    costs_of,
    respond,
    tool,
)
from understudy._base.usd import exact, shown_usd, usd_text
from understudy.actors import AgentRef
from understudy.history import history_of
from understudy.middleware import Limits, Middleware, SubAgent
from understudy.models.prices import Pricing
from understudy.state import records as r
from understudy.state.costs import CostLine

AT = datetime(2026, 11, 22, tzinfo=timezone.utc)
CENTS = {
    "scripted": Price(input=10_000, output=10_000),
    "other": Price(input=10_000, output=10_000),
}
"""A cent for each token."""
KNOWN = {"model_name": "gpt-5-mini", "provider_name": "openai", "finish_reason": "stop"}
"""Of a reply whose model has a published price: 0.25 USD for a million tokens that it reads."""


@tool
async def work() -> str:
    """Work."""
    return "worked"


def reply(*parts: Any, tokens: int = 2, model: str | None = "scripted", **more: Any) -> Any:
    return ModelResponse(
        parts=[TextPart(part) if isinstance(part, str) else part for part in parts],
        usage=RequestUsage(input_tokens=tokens - 1, output_tokens=1),
        **{"model_name": model, **more},
    )


def works(tokens: int = 2, **more: Any) -> ModelResponse:
    return reply(ToolCallPart("work", {}), tokens=tokens, **more)  # type: ignore[no-any-return]


def place_of(store: str, folder: Path) -> str:
    return f"sqlite:///{folder / 'store.db'}" if store == "sqlite" else store


async def costs(ref: AgentRef, **options: Any) -> Costs:
    return costs_of((await ref.history(limit=10_000)).entries, **options)


def amounts(sums: dict[str, Cost]) -> dict[str, str]:
    return {name: str(cost.usd) for name, cost in sums.items()}


in_each_store = pytest.mark.parametrize("store", ["memory:", "sqlite"])

# ------------------------------------------------------------------- what is recorded


@in_each_store
async def test_what_was_paid_is_kept_with_each_reply(store: str, tmp_path: Path) -> None:
    """J92."""
    place = place_of(store, tmp_path)
    agent = Agent("desk", ScriptedModel([works(3), reply("done", tokens=4)]), tools=[work])
    async with Runtime([agent], store=place, pricing=CENTS) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        outcome = completed(await ref.run("go"))
        assert outcome.cost.usd == outcome.usage.cost == Decimal("0.07")
        # Prices that come later change nothing of it.
        dearer = {"scripted": Price(input=99, output=99)}
        assert (await costs(ref, pricing=dearer)).total == outcome.cost
        state = await ref.state()
    assert state.cost == outcome.cost
    assert [m.usage.cost for m in state.messages if isinstance(m, ModelResponse)] == [
        Decimal("0.03"),
        Decimal("0.04"),
    ]


@in_each_store
async def test_all_runs_of_an_agent_add_up_after_passivation_and_compaction(
    store: str, tmp_path: Path
) -> None:
    place = place_of(store, tmp_path)

    def build() -> Agent:
        model = ScriptedModel(lambda request: reply("done", tokens=len(request.messages)))
        return Agent("desk", model)

    async with Runtime([build()], store=place, pricing=CENTS) as runtime:
        ref = runtime.spawn("desk", "desk-1")
        first = await ref.run("one")
        second = await ref.run("two")
        found = await costs(ref)
        assert {k: v.usd for k, v in found.by_run.items()} == {
            first.run_id: Decimal("0.01"),
            second.run_id: Decimal("0.03"),
        }
        await ref.compact()
        third = await ref.run("three")
        found = await costs(ref)
        assert {k: v.usd for k, v in found.by_run.items()} == {
            None: Decimal("0.01"),
            second.run_id: Decimal("0.03"),
            third.run_id: Decimal("0.05"),
        }
        state = await ref.state()
        assert state.total_cost == found.total
        assert state.total_cost.usd == Decimal("0.09")
        assert state.cost.usd == Decimal("0.05")
        moved = await runtime.export("desk-1")
    async with Runtime([build()], store="memory:") as elsewhere:
        imported = await elsewhere.import_(moved, id="desk-2")
        assert (await imported.state()).total_cost.usd == Decimal("0.09")


async def test_a_run_that_is_replayed_costs_the_same(tmp_path: Path) -> None:
    """Its replies are not priced again: their records say what they cost."""
    place = place_of("sqlite", tmp_path)

    def build(turns: Any) -> Agent:
        return Agent("desk", ScriptedModel(turns), tools=[work], interrupt_on={"work": True})

    async with Runtime([build([works(5)])], store=place, pricing=CENTS) as runtime:
        asked = interrupted(await runtime.spawn("desk", "d").run("go"))
    dearer = {"scripted": Price(input=10**6, output=10**6)}
    async with Runtime([build([reply("done")])], store=place, pricing=dearer) as runtime:
        outcome = completed(await runtime.get("d").resume(asked.decide(approve())))
    assert outcome.cost.usd == Decimal("2.05")


def test_a_streamed_reply_is_priced() -> None:
    limit = Limits(max_cost=1, pricing=CENTS)
    agent = Agent("desk", ScriptedModel(["hello world"]), middleware=[limit])
    events: list[object] = []
    outcome = agent.execute_sync("go", on_event=events.append)
    assert events
    assert outcome.cost.usd == outcome.usage.total_tokens * Decimal("0.01")


def test_the_model_that_answers_is_the_one_that_is_priced() -> None:
    prices = {"scripted": Price(input=10**6, output=0), "other": Price(input=10**3, output=0)}
    agent = Agent(
        "desk",
        ScriptedModel([ConnectionError("gone")]),
        fallback_models=[ScriptedModel([reply("hi", tokens=5, model=None)], name="other")],
        middleware=[Limits(max_cost=1, pricing=prices)],
    )
    outcome = completed(agent.execute_sync("go"))
    assert outcome.cost.usd == Decimal("0.004")


def test_replies_that_were_no_answer_cost_what_they_cost() -> None:
    """An empty one is asked for once more."""
    limit = Limits(max_cost=1, pricing=CENTS)
    empty = ModelResponse(parts=[], usage=RequestUsage(input_tokens=4), model_name="scripted")
    outcome = Agent("desk", ScriptedModel([empty, reply("hi")]), middleware=[limit]).execute_sync(
        "go"
    )
    assert (outcome.cost.requests, outcome.cost.usd) == (2, Decimal("0.06"))


def test_attempts_inside_a_model_are_priced_too() -> None:
    attempt = ModelRequestAttempt(
        model_name="other",
        outcome="rejected",
        timestamp=AT,
        duration=AT - AT,
        usage=RequestUsage(input_tokens=7),
    )
    model = ScriptedModel([reply("hi", failed_attempts=[attempt])])
    outcome = Agent("desk", model, middleware=[Limits(max_cost=1, pricing=CENTS)]).execute_sync(
        "go"
    )
    assert amounts(outcome.cost.by_model) == {"scripted": "0.02", "other": "0.07"}
    assert attempt.usage is not None
    assert attempt.usage.cost is None, "the object of the model stays as it is"


async def test_an_attempt_of_unknown_cost_is_unknown_after_it_was_stored_too(
    tmp_path: Path,
) -> None:
    attempt = ModelRequestAttempt(
        model_name="unheard of",
        outcome="rejected",
        timestamp=AT,
        duration=AT - AT,
        usage=RequestUsage(input_tokens=7),
    )
    agent = Agent("desk", ScriptedModel([reply("hi", failed_attempts=[attempt])]))
    url = f"sqlite:///{tmp_path / 'agents.db'}"
    async with Runtime([agent], store=url, pricing=CENTS) as runtime:
        before = completed(await runtime.spawn(agent, "d").run("go")).cost
    async with Runtime([agent], store=url, pricing=CENTS) as runtime:
        after = (await runtime.spawn(agent, "d").state()).cost
    assert (before.usd, before.unknown, before.requests) == (None, 1, 2)
    assert after == before


@pytest.mark.parametrize("compacted", [False, True])
async def test_a_reply_that_waits_for_a_person_is_counted_once(compacted: bool) -> None:
    class Asks(Middleware):
        async def after_model(self, run: Run, reply: ModelResponse) -> None:
            if run.answer("fine?") is None:
                raise Interrupt("Is it?", key="fine?", allowed=("respond",))

    agent = Agent("desk", ScriptedModel([reply("hi", tokens=9)]), middleware=[Asks()])
    async with Runtime([agent], pricing=CENTS) as runtime:
        ref = runtime.spawn(agent, "d")
        asked = interrupted(await ref.run("go"))
        assert asked.cost.usd == Decimal("0.09")
        if compacted:
            await ref.compact()
        outcome = completed(await ref.resume(asked.decide(respond("yes"))))
        assert outcome.cost.usd == Decimal("0.09")
        assert (await costs(ref)).total == outcome.cost


def test_what_an_agent_inside_has_cost_counts_while_it_waits() -> None:
    helper = Agent("helper", ScriptedModel([works(5)]), tools=[work], interrupt_on={"work": True})
    task = ToolCallPart("task", {"task_name": "helper", "instructions": "go"})
    stack = [
        SubAgent(agents=[helper], general_purpose=False),
        Limits(max_cost=1, pricing=CENTS),
    ]
    agent = Agent("desk", ScriptedModel([reply(task, tokens=3)]), middleware=stack)
    asked = interrupted(agent.execute_sync("go"))
    assert amounts(asked.cost.by_agent) == {"desk": "0.03", "desk/helper": "0.05"}
    assert reloaded(asked.state).cost == asked.cost


def test_a_reply_that_comes_again_is_priced_again_and_the_model_keeps_its_own() -> None:
    """It was of unknown cost when a cache has kept it."""
    kept = reply("hi", tokens=9)
    kept.usage.unpriced_requests = 1

    class Cache(Middleware):
        async def wrap_model_call(self, run: Run, request: Any, next: Any) -> ModelResponse:
            return kept  # type: ignore[no-any-return]

    stack = [Cache(), Limits(max_cost=1, pricing=CENTS)]
    outcome = Agent("desk", ScriptedModel([]), middleware=stack).execute_sync("go")
    assert (outcome.cost.usd, vars(outcome.usage).get("unpriced_requests", 0)) == (
        Decimal("0.09"),
        0,
    )
    assert kept.usage.cost is None


async def test_what_was_paid_before_a_model_call_was_put_off_counts() -> None:
    class PutsOff(Middleware):
        tried = False

        async def wrap_model_call(self, run: Run, request: Any, next: Any) -> ModelResponse:
            try:
                return await next(request)  # type: ignore[no-any-return]
            except Exception as error:
                if self.tried:
                    raise
                self.tried = True
                raise Defer(0.0) from error

    empty = ModelResponse(parts=[], usage=RequestUsage(input_tokens=4), model_name="scripted")
    model = ScriptedModel([empty, empty, reply("hi")])
    agent = Agent("desk", model, middleware=[PutsOff()])
    async with Runtime([agent], pricing=CENTS) as runtime:
        ref = runtime.spawn(agent, "d")
        outcome = completed(await ref.run("go"))
        assert (outcome.cost.requests, outcome.cost.usd) == (3, Decimal("0.10"))
        found = await costs(ref)
    assert found.total.usd == outcome.cost.usd
    assert found.total.by_agent == outcome.cost.by_agent


def test_a_model_that_is_asked_beside_the_conversation_counts() -> None:
    class Titles(Middleware):
        async def on_run_start(self, run: Run) -> None:
            other = ScriptedModel([reply("Kettles", tokens=6)], name="other")
            await run.ask_model("title", "Give it a title", model=other)

    stack = [Titles(), Limits(max_cost=1, pricing=CENTS)]
    outcome = Agent("desk", ScriptedModel([reply("hi")]), middleware=stack).execute_sync("go")
    assert outcome.cost.usd == Decimal("0.08")


def test_a_reply_of_a_middleware_that_asked_no_model_costs_nothing() -> None:
    class Cache(Middleware):
        async def wrap_model_call(self, run: Run, request: Any, next: Any) -> ModelResponse:
            return ModelResponse(parts=[TextPart("from the cache")])

    stack = [Cache(), Limits(max_cost=1, pricing=CENTS)]
    outcome = Agent("desk", ScriptedModel([]), middleware=stack).execute_sync("go")
    assert outcome.cost.usd == 0


def test_a_cost_that_the_provider_tells_is_the_one_that_is_kept() -> None:
    told = reply("hi", tokens=9)
    told.usage.cost = Decimal("0.5000")
    agent = Agent("desk", ScriptedModel([told]), middleware=[Limits(max_cost=1, pricing=CENTS)])
    assert agent.execute_sync("go").cost.usd == Decimal("0.5")
    without = Agent("desk", ScriptedModel([told])).execute_sync("go")
    assert without.cost.usd == Decimal("0.5"), "it needs no prices"


@pytest.mark.parametrize("told", [-1, "nan", 10**12])
def test_a_cost_that_cannot_be_is_unknown(told: Any) -> None:
    odd = reply("hi", tokens=9)
    odd.usage.cost = Decimal(told)
    assert Agent("desk", ScriptedModel([odd])).execute_sync("go").cost.usd is None


def test_a_price_function_that_raises_loses_no_reply(caplog: pytest.LogCaptureFixture) -> None:
    def price_of(reply: ModelResponse) -> Decimal:
        if reply.parts:
            raise RuntimeError("no price list")
        return Decimal(0)

    limit = Limits(max_cost=1, pricing=price_of)
    outcome = completed(Agent("d", ScriptedModel(["hi"]), middleware=[limit]).execute_sync("go"))
    assert outcome.cost.usd is None
    assert "no price list" in caplog.text


# ------------------------------------------------------------------- without prices


async def test_without_prices_nothing_is_recorded_and_the_history_is_estimated() -> None:
    model = ScriptedModel([reply("hi", tokens=1_000_001, **KNOWN)])
    async with Runtime([Agent("desk", model)]) as runtime:
        ref = runtime.spawn("desk", "d")
        outcome = completed(await ref.run("go"))
        assert (outcome.cost.usd, outcome.cost.unknown, str(outcome.cost)) == (None, 1, "unknown")
        assert outcome.usage.cost is None
        assert outcome.state.run is not None
        assert outcome.state.run.costs == ()
        found = (await costs(ref)).total
        assert (found.is_estimated, found.recorded, found.unknown) == (True, Decimal(0), 0)
        assert found.usd == Decimal("0.250002")
        assert str(found) == "≈ $0.2500"
        assert (await costs(ref, pricing=None)).total.usd is None


def test_replies_that_were_recorded_without_a_cost_are_estimated() -> None:
    replied = {
        "kind": "reply",
        "turn": 0,
        "response": {
            "parts": [{"content": "hi", "part_kind": "text"}],
            "usage": {"input_tokens": 1000, "output_tokens": 0, "details": {}},
            "timestamp": "2026-11-22T00:00:00Z",
            "kind": "response",
            **KNOWN,
        },
    }
    found = costs_of(history_of([r.record_from_dict(replied)], "desk")).total
    assert found.usd == Decimal("0.00025")
    assert found.is_estimated


async def test_a_model_that_nobody_knows_is_unknown_and_never_free() -> None:
    """J92."""
    model = ScriptedModel([works(9), reply("hi", tokens=1001, **KNOWN)])
    async with Runtime([Agent("desk", model, tools=[work])]) as runtime:
        ref = runtime.spawn("desk", "d")
        await ref.run("go")
        found = await costs(ref)
    assert (found.total.usd, found.total.unknown) == (None, 1)
    assert str(found.total) == "at least ≈ $0.00025"
    assert amounts(found.total.by_model) == {"scripted": "None", "gpt-5-mini": "0.000252"}


# --------------------------------------------------------------------------- sums


tree: st.SearchStrategy[Any] = st.recursive(
    st.tuples(st.integers(2, 10**6), st.just([])),
    lambda inner: st.tuples(st.integers(2, 10**6), st.lists(inner, max_size=3)),
    max_leaves=6,
)


def build_tree(node: Any, name: str, paid: list[int]) -> Agent:
    tokens, below = node
    children = [build_tree(each, f"{name}{i}", paid) for i, each in enumerate(below)]
    calls = [
        ToolCallPart("task", {"task_name": child.name, "instructions": "go"}) for child in children
    ]
    model = ["scripted", "other"][len(name) % 2]
    turns = [reply(one, tokens=tokens, model=model) for one in calls]
    turns.append(reply("done", tokens=tokens, model=model))
    paid += [tokens] * len(turns)
    sub_agents = [SubAgent(agents=children, general_purpose=False)] if children else []
    return Agent(name, ScriptedModel(turns, name=model), middleware=sub_agents)


@settings(max_examples=12)
@given(tree)
async def test_the_parts_of_a_tree_of_agents_add_up_to_the_whole(node: Any) -> None:
    """J92."""
    paid: list[int] = []
    prices = {name: Price(input="0.123456789", output="0.123456789") for name in CENTS}
    async with Runtime([build_tree(node, "a", paid)], pricing=prices) as runtime:
        ref = runtime.spawn("a", "a-1")
        outcome = completed(await ref.run("go"))
        found = await costs(ref)
    whole = outcome.cost
    assert whole.usd == sum(paid) * Decimal("0.123456789") / 10**6
    assert whole.requests == len(paid) == outcome.usage.requests
    for parts in (whole.by_agent, whole.by_model):
        assert sum((part.at_least for part in parts.values()), Decimal(0)) == whole.usd
        assert sum(part.requests for part in parts.values()) == whole.requests
    assert whole.of_agent("a") == whole
    assert found.by_run.keys() == {outcome.run_id}
    assert found.total.by_agent == whole.by_agent, "the records tell the same as the state"
    stored = json.loads(json.dumps(outcome.state.to_dict()))
    assert AgentState.from_dict(stored).cost == whole
    assert AgentState.from_dict(stored).to_dict() == stored


costs_below = st.decimals(0, 10**6, places=15)


@given(st.lists(costs_below, max_size=20), st.randoms())
def test_sums_are_exact_in_any_order_and_have_one_text(amounts: Any, random: Any) -> None:
    def total(some: list[Decimal]) -> str:
        with localcontext(prec=3):  # of the application
            found = Cost()
            for each in some:
                found += Cost((CostLine(agent="a", model="m", requests=1, cost=exact(each)),))
            return str(found.to_dict()["usd"])

    shuffled = list(amounts)
    random.shuffle(shuffled)
    assert total(amounts) == total(shuffled)
    with localcontext(prec=60):
        assert Decimal(total(amounts)) == sum(amounts)


@given(costs_below)
def test_a_cost_has_the_same_text_after_json(cost: Decimal) -> None:
    line = CostLine(agent="a", model="m", requests=1, cost=exact(cost))
    point = r.PointReached(call_key="k", name="n", what="sleep", at=AT, costs=(line,))
    data = json.loads(json.dumps(r.record_to_dict(point)))
    assert r.record_from_dict(data) == point
    assert r.record_to_dict(r.record_from_dict(data)) == data
    if cost:
        assert data["costs"][0]["cost"] == usd_text(exact(cost))
        assert "E" not in data["costs"][0]["cost"]


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("0", "$0"),
        ("0.000000123", "$0.00000012"),
        ("0.0095", "$0.0095"),
        ("0.012345", "$0.0123"),
        ("1.005", "$1.00"),
        ("12345.678", "$12,345.68"),
    ],
)
def test_an_amount_is_shown_with_the_digits_that_people_need(amount: str, text: str) -> None:
    assert shown_usd(Decimal(amount)) == text


# ------------------------------------------------------------------------ bad input


async def asked_over_the_network(reply: ModelResponse) -> Decimal:
    return Decimal(1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Price(input=-1, output=0),
        lambda: Price(input="free", output=0),
        lambda: Price(input=True, output=0),
        lambda: Price(input=None, output=0),  # type: ignore[arg-type]
        lambda: Price(input=0, output=float("inf")),
        lambda: Prices(7),  # type: ignore[arg-type]
        lambda: Prices(asked_over_the_network),  # type: ignore[arg-type]
        lambda: Runtime(pricing=asked_over_the_network),  # type: ignore[arg-type]
        lambda: Prices(published=False),
        lambda: Prices({}, published=False),
        lambda: Prices(published="no"),  # type: ignore[arg-type]
        lambda: Prices({"m": 0.5}),  # type: ignore[dict-item]
        lambda: Runtime(pricing="genai-prices"),  # type: ignore[call-overload]
        lambda: costs_of([], pricing=7),  # type: ignore[arg-type]
    ],
)
def test_bad_prices_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        make()


@pytest.mark.parametrize(
    ("pricing", "cost"),
    [
        ({"my-model": Price(input=1, output=0)}, "0.000001"),
        ({"scripted:my-model": Price(input=2, output=0)}, "0.000002"),
        (lambda reply: Decimal("0.3") if reply.model_name == "my-model" else None, "0.3"),
        (lambda reply: None, None),
        (Prices(lambda reply: Decimal("0.25")), "0.25"),
        (True, None),
    ],
)
async def test_own_prices_are_asked_first(pricing: Pricing, cost: str | None) -> None:
    more: Any = {"model_name": "my-model", "provider_name": "scripted"}
    agent = Agent("desk", ScriptedModel([reply("hi", **more)]))
    async with Runtime([agent], pricing=pricing) as runtime:
        outcome: Outcome = await runtime.spawn(agent, "d").run("go")
    assert outcome.cost.usd == (None if cost is None else Decimal(cost))
