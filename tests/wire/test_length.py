"""R6: replies that are cut by a length limit, of each provider's real client."""

from __future__ import annotations

import json
from itertools import repeat
from typing import Any

from pydantic import BaseModel
from pydantic_ai.messages import ModelResponse

from tests.support.agents import completed, results
from tests.support.wire.providers import OPENAI_CHAT, Provider, Way, run
from tests.support.wire.script import Reply, Thinking, Tokens, wire_call
from tests.support.wire.server import WireServer
from understudy import (
    Agent,
    AgentState,
    Completed,
    Failed,
    Outcome,
    ReplyCut,
    ToolContext,
    UntilToolNotCalled,
)
from understudy.middleware import Limits, Middleware, ModelInput

SETTINGS: Any = {"max_tokens": 256}
AT_LIMIT = Tokens(output=256)


class Order(BaseModel):
    number: int


def cut(text: str = "", **rest: Any) -> Reply:
    return Reply(**{"text": text, "finish_reason": "length", "tokens": AT_LIMIT, **rest})


def look(order: str = "all") -> str:
    """Look an order up."""
    return f"seen: {order}"


LOOK = wire_call("look", {"order": "17"}, id="call_a")


def failed_by_limit(outcome: Outcome) -> ReplyCut:
    assert isinstance(outcome, Failed), outcome
    assert isinstance(outcome.error, ReplyCut), outcome.error
    return outcome.error


async def test_an_answer_that_is_cut_says_so(provider: Provider, way: Way) -> None:
    with WireServer([cut("First you open the")]) as server:
        told = await run(way, provider.model(server))
    outcome = completed(told.outcome)
    assert outcome.text == "First you open the"
    assert outcome.finish_reason == "length"
    assert "cut by its length limit" in outcome.explain()


async def test_an_answer_that_is_whole_says_nothing_of_a_limit(
    provider: Provider, way: Way
) -> None:
    with WireServer([Reply(text="Open it.")]) as server:
        told = await run(way, provider.model(server))
    outcome = completed(told.outcome)
    assert outcome.finish_reason == "stop"
    assert outcome.explain() == "Completed after 1 model call: the model gave its final answer."


async def test_a_typed_answer_that_is_cut_is_asked_for_once_more(
    provider: Provider, way: Way
) -> None:
    with WireServer([cut('{"numb'), Reply(text='{"number": 17}')]) as server:
        told = await run(way, provider.model(server), output_type=Order, model_settings=SETTINGS)
    assert completed(told.outcome).output == Order(number=17)
    asked = json.dumps(server.conversations[1])
    assert "cut off at its length limit" in asked
    assert "does not fit" not in asked


async def test_one_that_is_cut_again_ends_the_run_with_the_limit(
    provider: Provider, way: Way
) -> None:
    with WireServer(repeat(cut('{"numb'))) as server:
        told = await run(way, provider.model(server), output_type=Order, model_settings=SETTINGS)
    error = failed_by_limit(told.outcome)
    assert (error.max_tokens, error.output_tokens) == (256, 256)
    assert "max_tokens=256" in told.outcome.explain()
    assert len(server.requests) == 2


async def test_calls_that_are_cut_again_end_the_run_with_the_limit(
    provider: Provider, way: Way
) -> None:
    with WireServer(repeat(cut("I look.", calls=(LOOK,)))) as server:
        told = await run(way, provider.model(server), tools=[look])
    error = failed_by_limit(told.outcome)
    assert (error.max_tokens, error.output_tokens) == (None, 256)
    assert "the model's own" in str(error)
    assert len(server.requests) == 2
    assert [part.outcome for part in results(told.outcome.state)] == ["interrupted"] * 2


async def test_thinking_that_takes_all_tokens_twice_ends_the_run_with_the_limit(
    provider: Provider, way: Way
) -> None:
    with WireServer(repeat(cut(thinking=Thinking("Hm, " * 50)))) as server:
        told = await run(way, provider.model(server), model_settings=SETTINGS)
    failed_by_limit(told.outcome)
    assert len(server.requests) == 2


# The rest is the same for all providers.


async def test_a_whole_reply_between_two_cut_ones_begins_the_count_anew() -> None:
    calls = cut("I look.", calls=(LOOK,))
    whole = Reply(calls=(wire_call("look", {}, id="call_b"),))
    with WireServer([calls, whole, calls, Reply(text="Seen.")]) as server:
        told = await run("execute", OPENAI_CHAT.model(server), tools=[look])
    assert completed(told.outcome).text == "Seen."


async def test_a_reply_of_an_earlier_run_does_not_count() -> None:
    with WireServer([cut("Fir"), cut('{"numb'), Reply(text='{"number": 1}')]) as server:
        first = await run("execute", OPENAI_CHAT.model(server))
        told = await run(
            "execute", OPENAI_CHAT.model(server), output_type=Order, state=first.outcome.state
        )
    assert completed(told.outcome).output == Order(number=1)


async def test_a_hook_that_raises_the_limit_is_given_the_chance() -> None:
    class Doubles(Middleware):
        limit = 128

        async def before_model(self, run: Any, input: ModelInput) -> ModelInput:
            self.limit *= 2
            return input.replace(settings={"max_tokens": self.limit})

    def at(tokens: int) -> Reply:
        return cut('{"numb', tokens=Tokens(output=tokens))

    script = [at(256), at(512), at(1024), Reply(text='{"number": 1}')]
    with WireServer(script) as server:
        told = await run(
            "execute", OPENAI_CHAT.model(server), output_type=Order, middleware=[Doubles()]
        )
    assert completed(told.outcome).output == Order(number=1)


async def test_a_cut_reply_without_the_until_tool_does_not_end_the_run() -> None:
    script = [cut("I am about to"), Reply(calls=(LOOK,))]
    with WireServer(script) as server:
        model = OPENAI_CHAT.model(server)
        async with model:
            agent = Agent("support", model, tools=[look])
            outcome = await agent.execute("Look.", until_tool="look")
    assert completed(outcome).tool_result is not None


async def test_a_whole_reply_after_it_does() -> None:
    script = [cut("I am about to"), Reply(text="No.")]
    with WireServer(script) as server:
        model = OPENAI_CHAT.model(server)
        async with model:
            agent = Agent("support", model, tools=[look])
            outcome = await agent.execute("Look.", until_tool="look")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, UntilToolNotCalled)


async def test_a_guard_on_the_finish_reason_goes_before_the_second_attempt() -> None:
    with WireServer([cut('{"numb')]) as server:
        told = await run(
            "execute",
            OPENAI_CHAT.model(server),
            output_type=Order,
            middleware=[Limits(finish_reasons=["length"])],
        )
    outcome = completed(told.outcome)
    assert outcome.output is None
    assert "finish_reason" in outcome.explain()


async def test_the_finish_reason_is_that_of_a_stored_outcome_too() -> None:
    with WireServer([cut("First you open the")]) as server:
        told = await run("execute", OPENAI_CHAT.model(server))
    stored = AgentState.from_dict(json.loads(json.dumps(told.outcome.state.to_dict())))
    reply = stored.messages[-1]
    assert isinstance(reply, ModelResponse)
    again = Completed(text="First you open the", state=stored, usage=stored.usage)
    assert again.finish_reason == "length"
    assert again.explain() == told.outcome.explain()


async def test_an_agent_above_is_told_that_the_answer_below_was_cut() -> None:
    with (
        WireServer([cut("Fir")]) as below,
        WireServer(
            [Reply(calls=(wire_call("ask", {}, id="call_a"),)), Reply(text="Sorry.")]
        ) as above,
    ):
        inner, outer = OPENAI_CHAT.model(below), OPENAI_CHAT.model(above)
        helper = Agent("helper", inner)

        async def ask(ctx: ToolContext) -> Any:
            """Ask the helper."""
            return await ctx.run_agent(helper, "How?")

        async with inner, outer:
            outcome = await Agent("support", outer, tools=[ask]).execute("Hi")
    completed(outcome)
    (result,) = results(outcome.state)
    assert "Fir" in str(result.content)
    assert "cut off here by its length limit" in str(result.content)
