"""Planned faults: each happens at its call, takes the path of a real one, and leaves no trace."""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError, ModelRateLimitError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from tenacity import AsyncRetrying, stop_after_attempt

from tests.support.agents import by_turn, completed, contents, interrupted, results
from tests.support.hosts import host, opened
from tests.support.loops import SECONDS, soon, until
from tests.support.postgres import Hosts
from understudy import (
    Agent,
    AgentState,
    Completed,
    Failed,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Stopped,
    ToolContext,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.errors import Fenced, ModelRefused, StoreBroken, StoreUnavailable
from understudy.middleware import SubAgent
from understudy.modes import Sequential
from understudy.testing import ModelFault, PlannedFaults, StoreFault, ToolFault, faults
from understudy.tools import Tool
from understudy.trust import Budget, tokens

PAY = call("pay", {"order": "17"})


def task(agent: str) -> Any:
    return call("task", {"task_name": agent, "instructions": "go"})


class Shop:
    """An agent with a tool that pays, and what was paid."""

    def __init__(self, *, is_async: bool = True) -> None:
        self.paid: list[str] = []
        self.is_async = is_async

    def pay(self, **options: Any) -> Tool[Any]:
        def plain(order: str) -> str:
            self.paid.append(order)
            return f"paid {order}"

        async def on_loop(order: str) -> str:
            return plain(order)

        function: Any = on_loop if self.is_async else plain
        return Tool(function, name="pay", **options)

    def desk(self, *turns: Any, tools: Any = None, **options: Any) -> Agent:
        given = [self.pay()] if tools is None else tools
        return Agent("desk", by_turn(*(turns or (PAY, "done"))), tools=given, **options)


@pytest.fixture(params=["async", "plain"])
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(is_async=request.param == "async")


def failed(outcome: Any) -> Failed:
    assert isinstance(outcome, Failed), outcome
    return outcome


def texts(state: AgentState) -> list[str]:
    """What the model got for its calls."""
    return [text for _, text in contents(state)]


def doubtful(outcome: Any) -> list[str]:
    return [part.tool_name for part in results(outcome.state) if part.outcome == "interrupted"]


# ------------------------------------------------------------------------------------ models


async def test_an_empty_reply_is_asked_for_once_more_by_a_second_request() -> None:
    model = ScriptedModel(["Hello."])
    with faults(model=ModelFault.empty()):
        outcome = completed(await Agent("a", model).execute("Hi"))
    assert outcome.text == "Hello."
    assert len(model.requests) == 1, "the script is for what the model says when it is well"
    assert outcome.usage.requests == 2


async def test_two_empty_replies_fail_the_run() -> None:
    with faults(model=ModelFault.empty(times=2)):
        outcome = failed(await Agent("a", ScriptedModel(["never"])).execute("Hi"))
    assert "EmptyReply" in str(outcome.error)


async def test_a_refused_reply_is_a_refusal_of_the_model() -> None:
    with faults(model=ModelFault.refused()):
        outcome = failed(await Agent("a", ScriptedModel(["never"])).execute("Hi"))
    assert isinstance(outcome.error, ModelRefused)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (ModelFault.bad_arguments(), "JSON"),
        (ModelFault.bad_arguments("pay"), "JSON"),
        (ModelFault.unknown_tool(), "Unknown tool 'no_such_tool'"),
        (ModelFault.unknown_tool("payy"), "Unknown tool 'payy'"),
    ],
)
async def test_a_malformed_call_is_told_to_the_model_which_calls_again(
    fault: ModelFault, told: str
) -> None:
    shop = Shop()
    model = ScriptedModel([PAY, "done"])
    with faults(model=fault):
        outcome = completed(await Agent("desk", model, tools=[shop.pay()]).execute("Pay"))
    first, second = texts(outcome.state)
    assert told in first
    assert second == "paid 17"
    assert shop.paid == ["17"]


async def test_bad_arguments_without_a_tool_are_refused_at_the_end_of_the_block() -> None:
    plan = faults(model=ModelFault.bad_arguments())
    with pytest.raises(UsageError, match="no tool that a reply could call"), plan:
        await Agent("a", ScriptedModel(["never"])).execute("Hi")


async def test_a_rate_limit_is_an_http_429_with_its_header() -> None:
    raised: list[ModelHTTPError] = []

    def noted(state: Any) -> bool:
        error = state.outcome.exception()
        raised.append(error)
        return isinstance(error, ModelRateLimitError)

    agent = Agent(
        "a",
        ScriptedModel(["Hello."]),
        retry=AsyncRetrying(retry=noted, stop=stop_after_attempt(2)),
    )
    with faults(model=ModelFault.rate_limited(retry_after=30)):
        assert completed(await agent.execute("Hi")).text == "Hello."
    (error,) = [each for each in raised if each is not None]
    assert error.status_code == 429
    assert error.retry_after == 30
    assert error.headers == {"retry-after": "30"}


async def test_a_fallback_answers_where_the_model_cannot_be_reached() -> None:
    agent = Agent("a", ScriptedModel(["one"]), fallback_models=[ScriptedModel(["two"])])
    with faults(model=ModelFault.unreachable()):
        assert completed(await agent.execute("Hi")).text == "two"


async def test_a_client_raises_what_the_test_makes() -> None:
    fault = ModelFault.raises(lambda model: OSError(f"{model.model_name} is on fire"))
    with faults(model=fault):
        outcome = failed(await Agent("a", ScriptedModel(["never"])).execute("Hi"))
    assert "OSError: scripted is on fire" in str(outcome.error)


async def streamed(agent: Agent) -> tuple[Any, str]:
    """The outcome, and the text that came before."""
    texts: list[str] = []

    def note(event: Any) -> None:
        if event.kind == "text_delta":
            texts.append(event.text)

    outcome = await agent.execute("Hi", on_event=note)
    return outcome, "".join(texts)


@pytest.mark.parametrize("after", [0, 1, 2])
async def test_a_stream_that_is_cut_keeps_what_came_before(after: int) -> None:
    model = ScriptedModel(["Hello there, you."], delta_size=4)
    with faults(model=ModelFault.cut(after=after)):
        outcome, text = await streamed(Agent("a", model))
    error = failed(outcome).error
    assert "the connection was reset" in str(error)
    assert text == "Hello there, you."[: 4 * after]
    assert type(error).__name__ == ("StreamBroken" if after else "ModelFailed")
    assert len(model.requests) == 1, "it was asked"


async def test_a_model_that_is_asked_and_whose_answer_is_lost_was_paid() -> None:
    model = ScriptedModel(["one", "two"])
    agent = Agent("a", model, retry=AsyncRetrying(stop=stop_after_attempt(2)))
    with faults(model=ModelFault.answer_lost()):
        assert completed(await agent.execute("Hi")).text == "two"
    assert len(model.requests) == 2


async def test_an_answer_that_is_lost_counts_in_a_budget_as_what_it_may_have_cost() -> None:
    agent = Agent("a", ScriptedModel(["never"]), model_settings={"max_tokens": 100})
    with faults(model=ModelFault.answer_lost()):
        async with Runtime([agent], budgets=[Budget("day", tokens(1000))]) as runtime:
            failed(await soon(runtime.spawn("a", "x").run("Hi")))
            (use,) = await soon(runtime.budgets())
    assert use.unknown == use.used >= 100


@pytest.mark.parametrize("streams", [False, True])
async def test_an_answer_that_is_lost_is_lost_whole(streams: bool) -> None:
    model = ScriptedModel(["a long answer"])
    with faults(model=ModelFault.answer_lost()):
        if streams:
            outcome, text = await streamed(Agent("a", model))
            assert text == ""
        else:
            outcome = await Agent("a", model).execute("Hi")
    assert "no answer in time" in str(failed(outcome).error)
    assert len(model.requests) == 1


@pytest.mark.parametrize("streams", [False, True])
async def test_a_slow_model_answers_when_the_clock_of_the_run_is_advanced(streams: bool) -> None:
    clock, model = SimulatedClock(), ScriptedModel(["Hello."])
    note: Callable[[Any], None] | None = (lambda _: None) if streams else None
    with faults(model=ModelFault.slow(3600)) as plan:
        run = asyncio.ensure_future(Agent("a", model).execute("Hi", clock=clock, on_event=note))
        await soon(plan.until_slow())
        await soon(clock.advance(3599))
        assert model.requests == []
        await soon(clock.advance(1))
        assert completed(await soon(run)).text == "Hello."


async def test_a_run_whose_model_is_slow_can_be_cancelled() -> None:
    clock = SimulatedClock()
    with faults(model=ModelFault.slow(3600)) as plan:
        async with Runtime([Agent("a", ScriptedModel(["never"]))], clock=clock) as runtime:
            ref = runtime.spawn("a", "x")
            run = ref.run("Hi")
            await soon(plan.until_slow())
            await soon(ref.cancel("too long"))
            assert isinstance(await soon(run), Stopped)


async def test_the_faults_of_one_agent_are_none_of_another_one() -> None:
    inner = Agent("inner", by_turn("from inside"))
    outer = Agent(
        "outer",
        by_turn(task("inner"), "done"),
        middleware=[SubAgent([inner], general_purpose=False)],
    )
    with faults(model={"inner": ModelFault.empty()}) as plan:
        assert completed(await outer.execute("go")).text == "done"
    assert plan.missing == ()
    with faults(model={"outer": ModelFault.refused(at=2)}):
        assert isinstance(failed(await outer.execute("go")).error, ModelRefused)


async def test_a_function_model_streams_and_fails_as_well() -> None:
    async def said(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        for text in ("Hel", "lo"):
            yield text

    def whole(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart("Hello")])

    with faults(model=ModelFault.cut(after=1)):
        outcome, text = await streamed(Agent("a", FunctionModel(whole, stream_function=said)))
    assert type(failed(outcome).error).__name__ == "StreamBroken"
    assert text == "Hel"


# ------------------------------------------------------------------------------------- tools


async def test_an_error_of_a_tool_is_told_to_the_model_and_its_body_does_not_run(
    shop: Shop,
) -> None:
    with faults(tool={"pay": ToolFault.raises(ValueError("no such order"))}):
        outcome = completed(await shop.desk().execute("Pay"))
    assert "no such order" in texts(outcome.state)[0]
    assert shop.paid == []


@pytest.mark.parametrize(
    "error", [ConnectionResetError, ConnectionResetError("gone"), lambda: ConnectionResetError()]
)
async def test_an_error_that_leaves_it_open_what_happened_puts_the_call_in_doubt(
    shop: Shop, error: Any
) -> None:
    with faults(tool={"pay": ToolFault.raises(error)}):
        outcome = completed(await shop.desk().execute("Pay"))
    assert doubtful(outcome) == ["pay"]


async def test_a_refusal_is_told_as_it_is(shop: Shop) -> None:
    with faults(tool={"pay": ToolFault.refuses("The card was declined.")}):
        outcome = completed(await shop.desk().execute("Pay"))
    assert texts(outcome.state) == ["The card was declined."]
    assert shop.paid == []
    assert doubtful(outcome) == []


async def test_a_call_whose_answer_is_lost_has_paid_and_is_in_doubt(shop: Shop) -> None:
    with faults(tool={"pay": ToolFault.answer_lost()}):
        outcome = completed(await shop.desk().execute("Pay"))
    assert shop.paid == ["17"]
    assert doubtful(outcome) == ["pay"]


async def test_an_answer_is_lost_by_the_error_that_the_client_raises(shop: Shop) -> None:
    with faults(tool={"pay": ToolFault.answer_lost(ValueError("unreadable"))}):
        outcome = completed(await shop.desk().execute("Pay"))
    assert shop.paid == ["17"]
    assert "unreadable" in texts(outcome.state)[0]


@pytest.mark.usefixtures("repeats_at_once")
async def test_an_idempotent_tool_whose_answer_is_lost_runs_again_under_its_key() -> None:
    keys: list[str] = []

    @tool(idempotent=True)
    async def pay(ctx: ToolContext, order: str) -> str:
        keys.append(ctx.call_key)
        return f"paid {order}"

    with faults(tool={"pay": ToolFault.answer_lost()}):
        outcome = completed(await soon(Agent("desk", by_turn(PAY), tools=[pay]).execute("Pay")))
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert texts(outcome.state) == ["paid 17"]


@pytest.mark.parametrize("happened", [False, True])
async def test_a_time_limit_passes_at_once_and_the_call_is_in_doubt(
    shop: Shop, happened: bool
) -> None:
    agent = shop.desk(tools=[shop.pay(timeout=3600)])
    with faults(tool={"pay": ToolFault.times_out(happened=happened)}):
        outcome = completed(await soon(agent.execute("Pay")))
    assert doubtful(outcome) == ["pay"]
    assert "3600" in texts(outcome.state)[0]
    assert shop.paid == ["17"] * happened


async def test_a_time_limit_passes_in_a_runtime_too_which_goes_on(shop: Shop) -> None:
    agent = shop.desk(tools=[shop.pay(timeout=3600)])
    with faults(tool={"pay": ToolFault.times_out()}):
        async with Runtime([agent]) as runtime:
            ref = runtime.spawn("desk", "x")
            assert doubtful(await soon(ref.run("Pay"))) == ["pay"]
            await until(lambda: runtime.status().abandoned_threads == 0)
            assert completed(await soon(ref.run("And?"))).text == "done"


async def test_a_tool_without_a_limit_cannot_time_out(shop: Shop) -> None:
    plan = faults(tool={"pay": ToolFault.times_out()})
    with pytest.raises(UsageError, match="'pay' has no time limit: give it a `timeout`"), plan:
        await shop.desk().execute("Pay")
    assert shop.paid == []


async def test_a_slow_tool_goes_on_when_the_clock_of_the_run_is_advanced(shop: Shop) -> None:
    clock = SimulatedClock()
    with faults(tool={"pay": ToolFault.slow(60)}) as plan:
        run = asyncio.ensure_future(shop.desk().execute("Pay", clock=clock))
        await soon(plan.until_slow())
        await soon(clock.advance(59))
        assert shop.paid == []
        await soon(clock.advance(1))
        assert completed(await soon(run)).text == "done"
    assert shop.paid == ["17"]


def test_a_thread_waits_for_each_slow_call_in_turn(shop: Shop) -> None:
    clock, turns = SimulatedClock(), [[PAY, PAY], "done"]
    with (
        faults(tool={"pay": ToolFault.slow(60, times=2)}) as plan,
        Runtime([shop.desk(*turns)], clock=clock) as runtime,
    ):
        run = runtime.spawn("desk", "x").run("Pay")
        for _ in range(2):  # they run beside each other
            plan.until_slow().get(timeout=SECONDS)
        third = plan.until_slow()
        clock.advance(60).get(timeout=SECONDS)
        assert completed(run.get(timeout=SECONDS)).text == "done"
        assert not third.done()
    assert shop.paid == ["17", "17"]


async def test_an_inline_tool_cannot_be_slow() -> None:
    shop = Shop(is_async=False)
    plan = faults(tool={"pay": ToolFault.slow(60)})
    with pytest.raises(UsageError, match="'pay' is inline"), plan:
        await shop.desk(tools=[shop.pay(inline=True)]).execute("Pay")


async def test_a_tool_keeps_its_context_its_alias_and_its_check() -> None:
    seen: list[str] = []

    @tool(aliases=["settle"])
    async def pay(ctx: ToolContext, order: str) -> str:
        seen.append(ctx.tool_name)
        return order

    agent = Agent("desk", by_turn(call("settle", {"order": "17"}), PAY), tools=[pay])
    with faults(tool={"settle": ToolFault.refuses("no", at=2)}):
        outcome = completed(await agent.execute("Pay"))
    assert seen == ["settle"]
    assert texts(outcome.state) == ["17", "no"]


async def test_a_plain_tool_that_returns_a_coroutine_loses_the_answer_of_that() -> None:
    paid: list[str] = []

    async def later(order: str) -> str:
        paid.append(order)
        return "paid"

    def pay(order: str) -> Any:
        return later(order)

    with faults(tool={"pay": ToolFault.answer_lost()}):
        outcome = completed(await Agent("desk", by_turn(PAY), tools=[pay]).execute("Pay"))
    assert paid == ["17"]
    assert doubtful(outcome) == ["pay"]


async def test_each_attempt_of_a_retried_tool_counts() -> None:
    paid: list[str] = []

    @tool(read_only=True, retry=AsyncRetrying(stop=stop_after_attempt(3)))
    async def pay(order: str) -> str:
        paid.append(order)
        return "paid"

    with faults(tool={"pay": ToolFault.raises(ConnectionError, times=2)}):
        outcome = completed(await soon(Agent("desk", by_turn(PAY), tools=[pay]).execute("Pay")))
    assert paid == ["17"]
    assert texts(outcome.state) == ["paid"]


async def test_a_call_that_waits_for_a_person_is_counted_when_it_runs(shop: Shop) -> None:
    agent = shop.desk(interrupt_on={"pay": True})
    with faults(tool={"pay": ToolFault.refuses("no")}) as plan:
        asked = interrupted(await agent.execute("Pay"))
        assert plan.missing == ("tool 'pay': a refusal, at call 1; calls in the block: 0",)
        outcome = completed(await agent.resume(asked.state, asked.decide(approve())))
    assert texts(outcome.state) == ["no"]


# ------------------------------------------------------------------------------------ stores


def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.mark.parametrize(
    "of",
    [
        "run_started",
        "started",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("reply", "result", "run_ended")),
    ],
)
async def test_a_write_that_finds_no_database_is_made_again(
    tmp_path: Path, shop: Shop, of: str
) -> None:
    with faults(store=StoreFault.unavailable(of=of, times=2)):
        async with Runtime([shop.desk()], store=store(tmp_path)) as runtime:
            assert completed(await soon(runtime.spawn("desk", "x").run("Pay"))).text == "done"
    assert shop.paid == ["17"]


@pytest.mark.parametrize("of", ["run_started", "reply", "started", "result", "run_ended"])
async def test_a_write_whose_answer_is_lost_is_made_once(
    tmp_path: Path, shop: Shop, of: str
) -> None:
    with faults(store=StoreFault.answer_lost(of=of)):
        async with Runtime([shop.desk()], store=store(tmp_path)) as runtime:
            ref = runtime.spawn("desk", "x")
            assert completed(await soon(ref.run("Pay"))).text == "done"
            records = (await soon(runtime.export("x")))["records"]
    assert [each["kind"] for each in records].count(of) == 1 + (of == "reply")
    assert shop.paid == ["17"]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (StoreFault.broken(of="result"), StoreBroken),
        (StoreFault.away(of="result"), StoreUnavailable),
    ],
)
async def test_who_waits_is_told_of_a_store_that_fails_and_the_call_is_in_doubt(
    tmp_path: Path, shop: Shop, fault: StoreFault, error: type[Exception]
) -> None:
    with faults(store=fault):
        async with Runtime([shop.desk()], store=store(tmp_path)) as runtime:
            ref = runtime.spawn("desk", "x")
            with pytest.raises(error):
                await soon(ref.run("Pay"))
            outcome = await soon(ref.outcome())
            assert isinstance(outcome, Completed)
    assert shop.paid == ["17"], "it was paid once"
    assert doubtful(outcome) == ["pay"]


async def test_who_waits_is_told_of_a_lease_that_is_lost_before_a_tool_is_entered(
    tmp_path: Path, shop: Shop
) -> None:
    with faults(store=StoreFault.lease_lost(of="started")):
        async with Runtime([shop.desk()], store=store(tmp_path)) as runtime:
            with pytest.raises(Fenced):
                await soon(runtime.spawn("desk", "x").run("Pay"))
    assert shop.paid == []


async def test_who_waits_has_the_outcome_of_a_run_that_ended_as_the_lease_was_lost(
    tmp_path: Path, shop: Shop
) -> None:
    """Its end is in the store, so no other host continues it."""
    with faults(store=StoreFault.lease_lost(of="run_ended")):
        async with Runtime([shop.desk()], store=store(tmp_path)) as runtime:
            outcome = completed(await soon(runtime.spawn("desk", "x").run("Pay")))
            assert outcome.state.status == "idle"
    assert shop.paid == ["17"]


async def test_a_database_that_stays_away_in_the_middle_of_its_attempts_is_given_up(
    tmp_path: Path, shop: Shop
) -> None:
    plan = [StoreFault.unavailable(of="result"), StoreFault.away(of="result", at=2)]
    with faults(store=plan):
        async with Runtime([shop.desk()], store=store(tmp_path)) as runtime:
            with pytest.raises(StoreUnavailable):
                await soon(runtime.spawn("desk", "x").run("Pay"))


async def test_a_store_that_was_opened_before_the_block_fails_in_it(
    tmp_path: Path, shop: Shop
) -> None:
    async with Runtime([shop.desk()], store=store(tmp_path)) as runtime:
        ref = runtime.spawn("desk", "x")
        with faults(store=StoreFault.broken()), pytest.raises(StoreBroken):
            await soon(ref.run("Pay"))
        assert completed(await soon(ref.run("Pay"))).text == "done"


async def test_a_lease_that_a_store_does_not_have_cannot_be_lost(
    tmp_path: Path, shop: Shop
) -> None:
    async with Runtime([shop.desk()], store=store(tmp_path)) as runtime:
        plan = faults(store=StoreFault.lease_lost())
        with pytest.raises(UsageError, match="open the runtime inside the block"), plan:
            await soon(runtime.spawn("desk", "x").run("Pay"))


async def test_a_host_goes_on_with_a_new_lease_after_it_has_lost_one(
    hosts: Hosts, shop: Shop
) -> None:
    async with opened(host(hosts, "first"), shop.desk(), any_host=False) as runtime:
        ref = runtime.spawn("desk", "x")
        with faults(store=StoreFault.lease_lost(of="started")), pytest.raises(Fenced):
            await soon(ref.run("Pay"))
        assert completed(await soon(ref.run("And?"))).text == "done"


async def test_a_call_of_which_the_lease_is_lost_goes_on_at_whichever_host_has_the_agent(
    hosts: Hosts, shop: Shop
) -> None:
    async with opened(host(hosts, "first"), shop.desk()) as runtime:
        ref = runtime.spawn("desk", "x")
        with faults(store=StoreFault.lease_lost(of="result")):
            assert completed(await soon(ref.run("Pay"))).text == "done"
    assert shop.paid == ["17"]


async def test_records_of_agents_inside_of_agents_count_by_their_own_kinds(
    tmp_path: Path, shop: Shop
) -> None:
    outer = Agent("outer", mode=Sequential([shop.desk()]))
    with faults(store=StoreFault.broken(of="started")):
        async with Runtime([outer], store=store(tmp_path)) as runtime:
            with pytest.raises(StoreBroken):
                await soon(runtime.spawn("outer", "x").run("Pay"))
    assert shop.paid == []


# ------------------------------------------------------------------------------------- plans


def test_what_never_happens_fails_the_block_and_says_what_there_was() -> None:
    shop = Shop()
    with (
        pytest.raises(AssertionError) as raised,
        faults(
            model={"dsk": ModelFault.empty(at=2, times=3)},
            tool={"pya": ToolFault.answer_lost()},
            store=StoreFault.away(of="result"),
        ),
    ):
        shop.desk().execute_sync("Pay")
    assert str(raised.value).splitlines() == [
        "planned faults that did not happen, so the test proves nothing about them:",
        "  model of agent 'dsk': an empty reply, at requests 2 to 4; requests in the block: 0",
        "  tool 'pya': a result that is lost, at call 1; calls in the block: 0",
        "  store: a database that stays away, at write 1; writes of 'result' in the block: 0",
        "  agents that asked a model: 'desk'",
        "  tools that were called: 'pay'",
        "  nothing was written to a database, as a store in memory has none: give the runtime one, "
        "such as store='sqlite:///...'",
    ]


def test_a_fault_of_a_record_that_never_comes_says_which_records_came(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError) as raised,
        faults(store=StoreFault.broken(of="requested")),
        Runtime([Agent("a", ScriptedModel(["Hello."]))], store=store(tmp_path)) as runtime,
    ):
        runtime.spawn("a", "x").run("Hi").get(timeout=SECONDS)
    last = str(raised.value).splitlines()[-1]
    assert last.startswith("  records that were written: ")
    assert "'reply', 'run_ended', 'run_started'" in last
    assert "in memory" not in str(raised.value)


def test_a_fault_that_happens_less_often_than_planned_is_not_complete() -> None:
    with (
        pytest.raises(AssertionError, match="at calls 1 to 2, of which 1 was reached; calls"),
        faults(tool={"pay": ToolFault.refuses("no", times=2)}),
    ):
        Shop().desk().execute_sync("Pay")


def test_a_fault_of_each_call_from_one_on_must_happen_once() -> None:
    shop = Shop()
    desk = shop.desk(PAY, PAY, PAY, "done")
    with faults(tool={"pay": ToolFault.refuses("no", at=2, times=None)}):
        desk.execute_sync("Pay")
    assert shop.paid == ["17"]
    with (
        pytest.raises(AssertionError, match="at call 4 and each one after it; calls in the"),
        faults(tool={"pay": ToolFault.refuses("no", at=4, times=None)}),
    ):
        desk.execute_sync("Pay")


def test_the_error_of_a_block_is_raised_and_says_what_did_not_happen() -> None:
    with pytest.raises(KeyError) as raised, faults(model=ModelFault.empty()):
        raise KeyError("the test itself")
    assert "model: an empty reply, at request 1" in raised.value.__notes__[0]


def test_a_block_that_may_run_without_its_fault_says_so() -> None:
    with faults(model=ModelFault.empty(), must_happen=False) as plan:
        pass
    with pytest.raises(AssertionError, match="an empty reply"):
        plan.assert_complete()


plan: Any = faults  # whatever its types say
tool_fault: Any = ToolFault


@pytest.mark.parametrize(
    ("planned", "told"),
    [
        (lambda: plan(), "plans nothing"),
        (lambda: plan(tool={}), "plans nothing"),
        (lambda: plan(model=[]), "plans nothing"),
        (lambda: plan(tool=ToolFault.answer_lost()), "by the name of the tool, such as {'pay'"),
        (lambda: plan(tool={"": ToolFault.answer_lost()}), "has the name of the tool as its key"),
        (lambda: plan(model=ToolFault.answer_lost()), "ModelFault objects, one or a list of"),
        (lambda: plan(store={"a": StoreFault.away()}), "faults without a name"),
        (lambda: plan(model=[ModelFault.empty(), ModelFault.refused()]), "another `at`"),
        (
            lambda: plan(model=[ModelFault.empty(times=None), ModelFault.refused(at=9)]),
            "another `at`",
        ),
        (lambda: plan(model=ModelFault.empty(), must_happen=1), "must_happen"),
        (lambda: ModelFault.empty(at=0), "`at` must be a whole number from 1 on, got 0"),
        (lambda: ToolFault.refuses("no", times=True), "`times` must be a whole number from 1 on"),
        (lambda: StoreFault.away(of="results"), "did you mean 'result'"),
        (lambda: StoreFault.away(of="xyz"), "one of agent_created"),
        (lambda: ModelFault.slow(0), "`seconds` must be a number of seconds above 0"),
        (lambda: ModelFault.cut(after=-1), "`after` must be a whole number from 0 on"),
        (lambda: ModelFault.rate_limited(retry_after=-1), "`retry_after` must be a number of"),
        (lambda: ModelFault.raises(OSError), "a function of the model that returns an error"),
        (lambda: ModelFault.unknown_tool(""), "`tool` must be text"),
        (lambda: ModelFault.bad_arguments(""), "`tool` must be text"),
        (lambda: tool_fault.raises("broken"), "takes an error, its class, or a function"),
        (lambda: ToolFault.refuses(""), "must be text"),
        (lambda: tool_fault.slow("1"), "`seconds` must be a number"),
        (lambda: tool_fault.times_out(happened=None), "`happened`"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_before_anything_runs(
    planned: Callable[[], Any], told: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        planned()


def test_two_faults_of_one_place_happen_each_at_its_call() -> None:
    shop = Shop()
    desk = shop.desk(PAY, PAY, PAY, "done")
    with faults(tool={"pay": [ToolFault.refuses("first"), ToolFault.refuses("third", at=3)]}):
        outcome = completed(desk.execute_sync("Pay"))
    assert texts(outcome.state) == ["first", "paid 17", "third"]


def test_a_plan_is_for_one_block() -> None:
    plan = faults(model=ModelFault.empty(), must_happen=False)
    with plan:
        pass
    with pytest.raises(UsageError, match="make another one"), plan:
        pass


# ------------------------------------------------------------------------------------ blocks


def test_a_decorated_test_plans_its_faults_at_each_call() -> None:
    @faults(tool={"pay": ToolFault.refuses("no")})
    def told(name: str, *, loud: bool = False) -> str:
        """Its own words."""
        outcome = completed(Shop().desk().execute_sync("Pay"))
        return f"{name}: {texts(outcome.state)[0]}{'!' if loud else ''}"

    assert told("a") == "a: no"
    assert told("b", loud=True) == "b: no!"
    assert list(inspect.signature(told).parameters) == ["name", "loud"], "its fixtures are found"
    assert told.__doc__ == "Its own words."


async def test_a_decorated_async_test_is_still_async() -> None:
    @faults(tool={"pay": ToolFault.refuses("no")})
    async def told() -> list[str]:
        return texts(completed(await Shop().desk().execute("Pay")).state)

    assert inspect.iscoroutinefunction(told)
    assert [await told(), await told()] == [["no"], ["no"]]


def seams() -> list[object]:
    from understudy.journal.committer import Committer
    from understudy.journal.lease import Lease
    from understudy.modes.steps.model_call.ask_model import ModelCall
    from understudy.modes.steps.tool_call import body

    return [
        vars(ModelCall)["_answered"],
        body._body,
        vars(Committer)["_run_transaction"],
        vars(Committer)["_commit"],
        vars(Lease)["_renew"],
    ]


def plan_of_all() -> PlannedFaults:
    return faults(
        model=ModelFault.empty(),
        tool={"pay": ToolFault.answer_lost()},
        store=StoreFault.lease_lost(),
        must_happen=False,
    )


def test_behind_a_block_the_library_is_as_before_also_after_an_error() -> None:
    before = seams()
    with plan_of_all():
        assert all(now is not then for now, then in zip(seams(), before, strict=True))
    assert seams() == before
    with pytest.raises(KeyError), plan_of_all():
        raise KeyError
    assert seams() == before


def test_blocks_that_overlap_end_in_any_order() -> None:
    before = seams()
    first, second = plan_of_all(), plan_of_all()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    outcome = completed(Shop().desk().execute_sync("Pay"))
    assert doubtful(outcome) == ["pay"], "the second one holds"
    second.__exit__(None, None, None)
    assert seams() == before
    assert doubtful(completed(Shop().desk().execute_sync("Pay"))) == []


def test_a_block_inside_of_another_one_counts_for_itself() -> None:
    with faults(tool={"pay": ToolFault.refuses("outer", at=2)}):
        with faults(tool={"pay": ToolFault.refuses("inner")}):
            assert texts(completed(Shop().desk().execute_sync("Pay")).state) == ["inner"]
        assert texts(completed(Shop().desk().execute_sync("Pay")).state) == ["outer"]


def test_a_runtime_with_a_thread_of_its_own_fails_as_planned(tmp_path: Path) -> None:
    shop = Shop(is_async=False)
    with Runtime([shop.desk()], store=store(tmp_path)) as runtime:
        ref = runtime.spawn("desk", "x")
        with faults(tool={"pay": ToolFault.answer_lost()}, model=ModelFault.empty()):
            assert doubtful(ref.run("Pay").get(timeout=SECONDS)) == ["pay"]
        assert threading.active_count() > 1


def test_the_tool_and_the_model_of_the_agent_stay_as_they_are() -> None:
    shop = Shop()
    desk = shop.desk()
    pay, model = desk.definition.tools["pay"], desk.definition.model
    function, fingerprint = pay.function, desk.definition.fingerprint
    with faults(tool={"pay": ToolFault.refuses("no")}, model=ModelFault.empty()):
        desk.execute_sync("Pay")
    assert desk.definition.tools["pay"] is pay
    assert pay.function is function
    assert desk.definition.model is model
    assert desk.definition.fingerprint == fingerprint
