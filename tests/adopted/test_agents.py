"""An agent of Pydantic AI as one of this library: tools, deps, approvals, answers (M9)."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import (
    ApprovalRequired,
    CallDeferred,
    CustomEvent,
    DeferredToolRequests,
    ModelRetry,
    NativeOutput,
    PromptedOutput,
    RunContext,
    TextOutput,
    ToolOutput,
)
from pydantic_ai import ToolFailed as PydanticToolFailed
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import FunctionToolset

from tests.support.agents import by_turn, completed, contents, interrupted, reloaded
from tests.support.sources import ROOT
from understudy import (
    Agent,
    Failed,
    Interrupted,
    Runtime,
    ToolContext,
    approve,
    call,
    edit,
    reject,
    respond,
    tool,
)
from understudy.agent.agent import AdoptedOptions
from understudy.errors import UsageError
from understudy.middleware import SubAgent
from understudy.modes import Sequential


@dataclass
class Shop:
    orders: dict[str, str] = field(default_factory=lambda: {"17": "kettle"})
    paid: list[Any] = field(default_factory=list)


class Answer(BaseModel):
    text: str
    cents: int


def given(*turns: Any, **options: Any) -> PydanticAgent[Shop, Any]:
    """An agent of Pydantic AI "support" whose model replies these turns."""
    return PydanticAgent(by_turn(*turns), name="support", deps_type=Shop, **options)


def test_tools_get_the_deps_and_the_ids_of_the_run() -> None:
    """M9."""
    agent = given(call("look_up", {"order_id": "17"}))
    seen: list[RunContext[Shop]] = []

    @agent.tool
    def look_up(ctx: RunContext[Shop], order_id: str) -> str:
        """Look an order up."""
        seen.append(ctx)
        return ctx.deps.orders[order_id]

    shop = Shop()
    outcome = completed(Agent.from_pydantic_ai(agent).execute_sync("What is 17?", deps=shop))
    assert contents(outcome.state) == [("success", "kettle")]
    (ctx,) = seen
    assert ctx.deps is shop
    assert (ctx.run_id, ctx.prompt, ctx.run_step) == (outcome.run_id, "What is 17?", 1)
    assert (ctx.tool_name, ctx.retry, ctx.agent) == ("look_up", 0, agent)
    assert [type(message).__name__ for message in ctx.messages] == ["ModelRequest", "ModelResponse"]
    assert ctx.usage.requests == 1


def paying(*turns: Any) -> PydanticAgent[Shop, Any]:
    agent = given(*turns, output_type=[str, DeferredToolRequests])

    @agent.tool(requires_approval=True)
    def refund(ctx: RunContext[Shop], order_id: str, amount: float) -> str:
        """Pay money back."""
        ctx.deps.paid.append((order_id, amount, ctx.tool_call_approved))
        return f"refunded {amount}"

    return agent


REFUND = call("refund", {"order_id": "17", "amount": 20})


@pytest.mark.parametrize(
    ("decision", "paid", "told"),
    [
        (approve(), [("17", 20.0, True)], "refunded 20.0"),
        (edit({"order_id": "17", "amount": 5}), [("17", 5.0, True)], "refunded 5.0"),
        (respond("by hand"), [], "by hand"),
        (reject("No."), [], "No."),
    ],
)
def test_a_tool_that_requires_approval_waits_for_a_person_in_any_process(
    decision: Any, paid: list[Any], told: str
) -> None:
    """M9."""
    shop = Shop()
    first = Agent.from_pydantic_ai(paying(REFUND)).execute_sync("Refund 17.", deps=shop)
    (request,) = interrupted(first).requests
    assert (request.kind, request.tool_name, shop.paid) == ("approval", "refund", [])
    other = Agent.from_pydantic_ai(paying(REFUND))
    outcome = completed(other.resume_sync(reloaded(first.state), decision, deps=shop))
    assert shop.paid == paid
    assert told in str(contents(outcome.state))


@pytest.mark.parametrize("asks", [False, True])
def test_a_tool_knows_the_reply_that_calls_it_also_after_it_has_waited(asks: bool) -> None:
    """M9."""
    seen: list[Any] = []

    def made() -> Agent[Shop, Any]:
        agent = given(call("look_up", {}))

        @agent.tool(requires_approval=asks)
        def look_up(ctx: RunContext[Shop]) -> str:
            """Look."""
            kinds = [type(message).__name__ for message in ctx.messages]
            seen.append((kinds, ctx.usage.requests, ctx.usage.tool_calls))
            return "found"

        return Agent.from_pydantic_ai(agent)

    outcome = made().execute_sync("go", deps=Shop())
    if asks:
        outcome = made().resume_sync(reloaded(interrupted(outcome).state), approve(), deps=Shop())
    completed(outcome)
    assert seen == [(["ModelRequest", "ModelResponse"], 1, 0)]


class Opening(FunctionToolset[Shop]):
    """Says when it is opened and closed."""

    def __init__(self, said: list[str], *tools: Any) -> None:
        super().__init__(tools)
        self.said = said

    async def __aenter__(self) -> Opening:
        self.said.append("opened")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.said.append("closed")


def test_a_toolset_that_opens_something_is_open_while_an_attempt_runs() -> None:
    """M9."""
    said: list[str] = []

    def look() -> str:
        """Look."""
        said.append("looked")
        return "a kettle"

    def made() -> Agent[Shop, Any]:
        toolset = Opening(said, look).prefixed("shop")
        agent = given(call("shop_look"), call("shop_look"), toolsets=[toolset])
        return Agent.from_pydantic_ai(agent, interrupt_on={"shop_look": True})

    agent = made()
    said.clear()  # its tools were listed
    first = interrupted(agent.execute_sync("go", deps=Shop()))
    assert said == ["opened", "closed"]
    agent = made()
    said.clear()
    second = interrupted(agent.resume_sync(reloaded(first.state), approve(), deps=Shop()))
    assert said == ["opened", "looked", "closed"]
    completed(agent.resume_sync(second.state, reject("no"), deps=Shop()))
    assert said[3:] == ["opened", "closed"]


@dataclass
class Looked(CustomEvent):
    """Somebody has looked."""

    at: str


def test_an_event_that_a_tool_emits_goes_to_the_subscribers_of_the_run() -> None:
    agent = given(call("look"))

    @agent.tool
    async def look(ctx: RunContext[Shop]) -> str:
        """Look."""
        await ctx.emit(Looked(at="the shelf"))
        return "a kettle"

    heard: list[Any] = []
    completed(Agent.from_pydantic_ai(agent).execute_sync("go", deps=Shop(), on_event=heard.append))
    (emitted,) = [each for each in heard if each.kind == "tool_emitted"]
    assert (emitted.tool_name, emitted.data["at"]) == ("look", "the shelf")


def test_nobody_is_asked_about_arguments_that_do_not_fit() -> None:
    """M9."""
    agent = paying(call("refund", {"order_id": "17", "amount": "much"}))
    outcome = completed(Agent.from_pydantic_ai(agent).execute_sync("Refund 17.", deps=Shop()))
    assert contents(outcome.state)[0][0] == "failed"


def test_a_gate_for_a_tool_decides_in_place_of_the_tools_own() -> None:
    agent = Agent.from_pydantic_ai(paying(REFUND), interrupt_on={"refund": False})
    shop = Shop()
    completed(agent.execute_sync("Refund 17.", deps=shop))
    assert shop.paid == [("17", 20.0, True)]


def test_a_tool_that_asks_while_it_runs_goes_on_when_it_is_approved() -> None:
    def made() -> Agent[Shop, Any]:
        agent = given(call("drop", {"table": "orders"}))

        @agent.tool
        def drop(ctx: RunContext[Shop], table: str) -> str:
            """Drop a table."""
            if not ctx.tool_call_approved:
                raise ApprovalRequired({"rows": 3})
            return f"dropped {table}"

        return Agent.from_pydantic_ai(agent)

    first = interrupted(made().execute_sync("go", deps=Shop()))
    (request,) = first.requests
    assert request.payload["metadata"] == {"rows": 3}
    outcome = completed(made().resume_sync(reloaded(first.state), approve(), deps=Shop()))
    assert contents(outcome.state) == [("success", "dropped orders")]


def test_a_deferred_call_gets_the_value_of_the_answer_as_its_result() -> None:
    def made() -> Agent[Shop, Any]:
        agent = given(call("survey", {}))

        @agent.tool
        async def survey(ctx: RunContext[Shop]) -> str:
            """Ask the customers."""
            raise CallDeferred({"job": 7})

        return Agent.from_pydantic_ai(agent)

    first = interrupted(made().execute_sync("go", deps=Shop()))
    (request,) = first.requests
    assert (request.payload["metadata"], request.allowed) == ({"job": 7}, ("respond", "reject"))
    outcome = made().resume_sync(reloaded(first.state), respond({"happy": 9}), deps=Shop())
    assert contents(completed(outcome).state) == [("success", {"happy": 9})]


def test_an_exception_of_a_tool_ends_the_run_unless_the_model_is_to_be_told() -> None:
    agent = given(call("look_up", {}))

    @agent.tool
    def look_up(ctx: RunContext[Shop]) -> str:
        """Look an order up."""
        raise KeyError("17")

    outcome = Agent.from_pydantic_ai(agent).execute_sync("go", deps=Shop())
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error.__cause__, KeyError)
    told = Agent.from_pydantic_ai(agent, tool_errors="log")
    assert contents(completed(told.execute_sync("go", deps=Shop())).state)[0][0] == "failed"


# --------------------------------------------------------------------------------- retries


def test_a_tool_knows_how_often_the_model_was_told_to_try_again() -> None:
    """M9."""
    agent = given(*[call("guess", {"n": n}) for n in (1, 2, 3)])
    seen = []

    @agent.tool(retries=2)
    def guess(ctx: RunContext[Shop], n: int) -> str:
        """Guess."""
        seen.append((ctx.retry, ctx.max_retries, ctx.last_attempt))
        if n < 3:
            raise ModelRetry("More.")
        return "right"

    outcome = completed(Agent.from_pydantic_ai(agent).execute_sync("go", deps=Shop()))
    assert seen == [(0, 2, False), (1, 2, False), (2, 2, True)]
    assert contents(outcome.state) == [
        ("failed", "More."),
        ("failed", "More."),
        ("success", "right"),
    ]


def test_more_retries_than_a_tool_allows_end_the_run() -> None:
    agent = given(*[call("guess", {})] * 3)
    tries = []

    @agent.tool_plain(retries=1)
    def guess() -> str:
        """Guess."""
        tries.append(1)
        raise ModelRetry("More.")

    outcome = Agent.from_pydantic_ai(agent).execute_sync("go", deps=Shop())
    assert isinstance(outcome, Failed)
    assert "exceeded max retries count of 1" in str(outcome.error)
    assert len(tries) == 2


def test_a_failure_that_is_not_to_be_retried_does_not_count() -> None:
    agent = given(*[call("pay", {"n": n}) for n in range(3)])

    @agent.tool_plain(retries=0)
    def pay(n: int) -> str:
        """Pay."""
        raise PydanticToolFailed("The bank is closed.")

    outcome = completed(Agent.from_pydantic_ai(agent).execute_sync("go", deps=Shop()))
    assert contents(outcome.state) == [("failed", "The bank is closed.")] * 3


# --------------------------------------------------------------------------------- answers


def shout(ctx: RunContext[Shop], text: str) -> str:
    return f"{text.upper()} {len(ctx.deps.orders)}"


def in_cents(ctx: RunContext[Shop], euros: float) -> Answer:
    if euros < 0:
        raise ModelRetry("Not below 0.")
    return Answer(text="paid", cents=round(euros * 100))


def as_json(text: str, cents: int) -> str:
    return Answer(text=text, cents=cents).model_dump_json()


ANSWER = call("final_result", {"text": "ok", "cents": 3})


@pytest.mark.parametrize(
    ("output_type", "turns", "output"),
    [
        (str, ["fine"], "fine"),
        (Answer, [ANSWER], Answer(text="ok", cents=3)),
        (int, [call("final_result", {"response": 7})], 7),
        ([Answer, int], [call("final_result_int", {"response": 7})], 7),
        ([str, Answer], ["fine"], "fine"),
        ([str, Answer], [ANSWER], Answer(text="ok", cents=3)),
        (
            ToolOutput(Answer, name="say"),
            [call("say", {"text": "a", "cents": 1})],
            Answer(text="a", cents=1),
        ),
        (TextOutput(shout), ["fine"], "FINE 1"),
        (in_cents, [call("final_result", {"euros": 1.5})], Answer(text="paid", cents=150)),
        (
            in_cents,
            [call("final_result", {"euros": -1}), call("final_result", {"euros": 2})],
            Answer(text="paid", cents=200),
        ),
        (PromptedOutput(Answer), [as_json("ok", 4)], Answer(text="ok", cents=4)),
        (PromptedOutput(Answer), ["no JSON", as_json("ok", 4)], Answer(text="ok", cents=4)),
        (Answer | None, [call("final_result_None", {"response": None})], None),
    ],
)
def test_an_output_is_what_it_was(output_type: Any, turns: list[Any], output: Any) -> None:
    """M9."""
    agent = Agent.from_pydantic_ai(given(*turns, output_type=output_type))
    outcome = completed(agent.execute_sync("go", deps=Shop()))
    assert outcome.output == output
    assert outcome.state.run is not None


def test_an_output_of_the_providers_own_format_is_read() -> None:
    def reply(messages: list[Any], info: AgentInfo) -> ModelResponse:
        assert info.model_request_parameters.output_mode == "native"
        return ModelResponse(parts=[TextPart(as_json("ok", 5))])

    model = FunctionModel(reply, profile={"supports_json_schema_output": True})
    agent: PydanticAgent[None, Answer] = PydanticAgent(
        model, name="support", output_type=NativeOutput(Answer)
    )
    outcome = completed(Agent.from_pydantic_ai(agent).execute_sync("go"))
    assert outcome.output == Answer(text="ok", cents=5)


def test_a_validator_may_refuse_an_answer_and_change_it() -> None:
    agent = given("short", "long enough")
    seen = []

    @agent.output_validator
    def check(ctx: RunContext[Shop], text: str) -> str:
        seen.append((text, ctx.retry))
        if len(text) < 6:
            raise ModelRetry("Longer.")
        return text.upper()

    outcome = completed(Agent.from_pydantic_ai(agent).execute_sync("go", deps=Shop()))
    assert outcome.output == "LONG ENOUGH"
    assert seen == [("short", 0), ("long enough", 1)]


def test_answers_that_are_refused_too_often_end_the_run() -> None:
    agent = given("a", "b", "c", output_type=TextOutput(refuse))
    outcome = Agent.from_pydantic_ai(agent).execute_sync("go", deps=Shop())
    assert isinstance(outcome, Failed)
    assert "Exceeded maximum output retries (1)" in str(outcome.error)
    assert "the model asks for the impossible" in str(outcome.error)


def refuse(text: str) -> str:
    raise ModelRetry("the model asks for the impossible")


def test_a_retry_beside_an_answer_comes_first() -> None:
    agent = given([call("guess", {}), ANSWER], [call("guess", {}), ANSWER], output_type=Answer)
    tries = []

    @agent.tool_plain
    def guess() -> str:
        """Guess."""
        tries.append(1)
        if len(tries) == 1:
            raise ModelRetry("More.")
        return "right"

    outcome = completed(Agent.from_pydantic_ai(agent).execute_sync("go", deps=Shop()))
    assert (outcome.output, len(tries)) == (Answer(text="ok", cents=3), 2)


def test_an_output_goes_to_the_values_under_its_key() -> None:
    agent = Agent.from_pydantic_ai(given(ANSWER, output_type=Answer), output_key="answer")
    outcome = completed(agent.execute_sync("go", deps=Shop()))
    assert outcome.state.values["answer"] == {"text": "ok", "cents": 3}
    told = "Completed after 1 model call: the model gave its final answer."
    assert outcome.explain() == told


def test_an_agent_that_is_not_adopted_is_refused_with_the_way_to_adopt_it() -> None:
    agent = given("done")

    @tool
    async def hand_over(ctx: ToolContext) -> str:
        await ctx.run_agent(agent, "go")  # type: ignore[call-overload]
        return "done"

    remedy = r"an agent of Pydantic AI 'support': use Agent\.from_pydantic_ai\(\.\.\.\)"
    makers: list[Any] = [
        lambda: Agent("boss", by_turn(), middleware=[SubAgent([agent])]),  # type: ignore[list-item]
        lambda: Agent("flow", mode=Sequential([agent])),  # type: ignore[list-item]
        lambda: Runtime([agent]),  # type: ignore[list-item]
    ]
    for make in makers:
        with pytest.raises(UsageError, match=remedy):
            make()
    boss = Agent("boss", by_turn(call("hand_over"), "over"), tools=[hand_over])
    ((_, result),) = contents(boss.execute_sync("go").state)
    assert re.search(remedy, result)


def test_calls_of_one_reply_share_a_step() -> None:
    agent = given([call("look", {"n": 1}), call("look", {"n": 2})])
    contexts = []

    @agent.tool
    async def look(ctx: RunContext[Shop], n: int) -> int:
        """Look."""
        contexts.append(ctx.tool_manager)
        await asyncio.sleep(0)
        return n

    first = Agent.from_pydantic_ai(agent, interrupt_on={"look": True})
    waiting = first.execute_sync("go", deps=Shop())
    assert isinstance(waiting, Interrupted)
    decisions = waiting.decide(approve(), approve())
    completed(first.resume_sync(reloaded(waiting.state), decisions, deps=Shop()))
    assert len(contexts) == 2
    assert contexts[0] is contexts[1]


def test_one_agent_runs_inside_of_another_with_its_deps() -> None:
    inner = given(call("look_up", {}))

    @inner.tool
    def look_up(ctx: RunContext[Shop]) -> str:
        """Look an order up."""
        return ctx.deps.orders["17"]

    boss = Agent(
        "boss",
        by_turn(call("task", {"task_name": "support", "instructions": "Look."})),
        middleware=[SubAgent([Agent.from_pydantic_ai(inner)])],
    )
    outcome = completed(boss.execute_sync("go", deps=Shop()))
    assert contents(outcome.state)[0][0] == "success"


def test_tools_of_both_libraries_are_in_one_agent() -> None:
    def now() -> str:
        """Say what time it is."""
        return "noon"

    agent = given([call("math_add", {"a": 1, "b": 2}), call("now", {})])

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    added: Any = FunctionToolset([add])

    whole = PydanticAgent(agent.model, name="support", toolsets=[added.prefixed("math")])
    outcome = completed(Agent.from_pydantic_ai(whole, tools=[now]).execute_sync("go"))
    assert contents(outcome.state) == [("success", 3), ("success", "noon")]


@pytest.mark.parametrize(
    "option", ["instructions", "output_type", "native_tools", "mode", "colour"]
)
def test_an_option_that_the_adopted_agent_has_itself_is_refused_by_its_name(option: str) -> None:
    options: Any = {option: "x", "model_settings": {}}
    first, second = sorted(options)
    with pytest.raises(UsageError, match=rf"takes no {first}=, {second}=: .* retry, .*version"):
        Agent.from_pydantic_ai(given("done"), **options)


def test_the_page_names_all_options_of_an_adopted_agent() -> None:
    text = (ROOT / "docs" / "from_pydantic_ai.md").read_text(encoding="utf-8")
    assert [name for name in AdoptedOptions.__annotations__ if f"`{name}=`" not in text] == []
