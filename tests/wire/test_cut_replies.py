"""R6: replies that end before their end, as each provider's real client reads them.

The body ends well, as after a proxy that gave up, so no connection breaks and no JSON is damaged.
"""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.profiles.openai import OpenAIModelProfile

from tests.support.agents import completed, results
from tests.support.wire.providers import (
    ANTHROPIC,
    GOOGLE,
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    PROVIDERS,
    Provider,
    Told,
    Way,
    run,
)
from tests.support.wire.script import Cut, Reply, wire_call
from tests.support.wire.server import WireServer
from understudy import Completed, Failed, ModelFailed, Outcome, ScriptedModel, StreamBroken, call
from understudy.events import ToolStarted

PAY = wire_call("pay", {"amount": 5}, id="call_a")
Place = Literal["call", "arguments", "content"]


class Desk:
    """A tool that can be called without arguments, and what it paid."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    def pay(self, amount: int = 100) -> str:
        """Pay an amount."""
        self.paid.append(amount)
        return "paid"


def assert_not_run(desk: Desk, told: Told) -> Failed:
    """The run failed, and nothing of the reply was executed."""
    assert desk.paid == []
    assert not any(isinstance(event, ToolStarted) for event in told.events)
    assert isinstance(told.outcome, Failed), told.outcome
    assert [part.outcome for part in results(told.outcome.state)] in ([], ["interrupted"])
    return told.outcome


def text_of(failed: Failed) -> str | None:
    """The text of the reply that broke, which is kept once."""
    (reply,) = [m for m in failed.state.messages if isinstance(m, ModelResponse)]
    assert reply.state == "interrupted"
    return reply.text


@pytest.mark.slow
@pytest.mark.parametrize("after", ["call", "arguments", "content"])
async def test_no_call_of_a_stream_that_ends_early_is_run(provider: Provider, after: Place) -> None:
    desk = Desk()
    cut = Reply(text="I pay.", calls=(PAY,), cut=Cut(after))
    with WireServer([cut]) as server:
        told = await run("stream", provider.model(server), tools=[desk.pay])
    failed = assert_not_run(desk, told)
    assert isinstance(failed.error, StreamBroken)
    assert len(server.requests) == 1


@pytest.mark.slow
async def test_nor_of_one_whose_connection_closes(provider: Provider) -> None:
    desk = Desk()
    cut = Reply(text="I pay.", calls=(PAY,), cut=Cut("call", clean=False))
    with WireServer([cut]) as server:
        told = await run("stream", provider.model(server), tools=[desk.pay])
    failed = assert_not_run(desk, told)
    assert isinstance(failed.error, StreamBroken)
    assert text_of(failed) == "I pay."


@pytest.mark.parametrize("after", ["call", "arguments", "content"])
async def test_a_client_that_streams_by_itself_does_not_run_them_either(after: Place) -> None:
    """Anthropic's client streams long replies also where nobody follows the text."""
    desk = Desk()
    cut = Reply(text="I pay.", calls=(PAY,), cut=Cut(after))
    with WireServer([cut]) as server:
        told = await run("execute", ANTHROPIC.model(server), tools=[desk.pay])
    assert server.requests[0]["stream"] is True
    failed = assert_not_run(desk, told)
    assert isinstance(failed.error, ModelFailed)
    (failure,) = failed.error.failures
    assert failure["type"] == "UnfinishedReply"


async def test_a_fallback_answers_where_nobody_has_seen_the_reply_that_ended_early() -> None:
    desk = Desk()
    cut = Reply(text="I pay.", calls=(PAY,), cut=Cut("call"))
    with WireServer([cut]) as server, WireServer([Reply(text="I do not.")]) as spare:
        models = ANTHROPIC.model(server), GOOGLE.model(spare)
        told = await run("execute", *models, tools=[desk.pay])
    assert completed(told.outcome).text == "I do not."
    assert desk.paid == []


@pytest.mark.parametrize(
    ("provider", "way"),
    [
        (ANTHROPIC, "execute"),
        (ANTHROPIC, "stream"),
        (GOOGLE, "execute"),
        (GOOGLE, "stream"),
        (OPENAI_RESPONSES, "execute"),
        (OPENAI_RESPONSES, "stream"),
        (OPENAI_CHAT, "stream"),
    ],
    ids=str,
)
async def test_a_call_without_a_finish_reason_is_not_run_where_there_is_always_one(
    provider: Provider, way: Way
) -> None:
    """R6."""
    desk = Desk()
    with WireServer([Reply(calls=(PAY,), finish_reason=None)]) as server:
        told = await run(way, provider.model(server), tools=[desk.pay])
    assert_not_run(desk, told)


async def test_text_without_a_finish_reason_is_no_final_answer(provider: Provider) -> None:
    with WireServer([Reply(text="I will look int", cut=Cut("content"))]) as server:
        told = await run("stream", provider.model(server))
    assert isinstance(told.outcome, Failed)
    assert isinstance(told.outcome.error, StreamBroken)
    assert text_of(told.outcome) == "I will look int"


async def test_a_stream_that_ends_before_its_first_word_is_answered_by_a_fallback(
    provider: Provider,
) -> None:
    cut = Reply(text="Hi", cut=Cut("head"))
    with WireServer([cut]) as server, WireServer([Reply(text="I am here.")]) as spare:
        told = await run("stream", provider.model(server), provider.model(spare))
    assert completed(told.outcome).text == "I am here."


@pytest.mark.parametrize("inner", PROVIDERS, ids=str)
async def test_a_reply_is_judged_by_its_own_provider_inside_another_model(inner: Provider) -> None:
    """`ModelResponse.provider_name` tells which."""
    desk = Desk()
    cut = Reply(text="I pay.", calls=(PAY,), cut=Cut("call"))
    with WireServer([cut]) as server:
        model = WrapperModel(inner.model(server))
        told = await run("stream", model, tools=[desk.pay])
    failed = assert_not_run(desk, told)
    assert isinstance(failed.error, StreamBroken)


# ------------------------------------------------------------- models without finish reasons


async def test_an_answer_without_a_finish_reason_is_one_of_a_server_whose_profile_says_so() -> None:
    """It speaks OpenAI's format, under OpenAI's name, and leaves the reason out."""
    desk = Desk()
    profile = OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=False)
    script = [Reply(calls=(PAY,), finish_reason=None), Reply(text="Done.", finish_reason=None)]
    with WireServer(script) as server:
        model = OPENAI_CHAT.model(server, profile=profile)
        told = await run("stream", model, tools=[desk.pay])
    assert completed(told.outcome).text == "Done."
    assert desk.paid == [5]


async def test_a_whole_chat_completion_without_a_finish_reason_is_an_answer() -> None:
    """Its JSON could be read to its end, so nothing is missing: many local servers leave it out."""
    desk = Desk()
    script = [Reply(calls=(PAY,), finish_reason=None), Reply(text="Done.", finish_reason=None)]
    with WireServer(script) as server:
        told = await run("execute", OPENAI_CHAT.model(server), tools=[desk.pay])
    assert completed(told.outcome).text == "Done."
    assert desk.paid == [5]


async def test_models_that_never_give_a_finish_reason_are_believed(way: Way) -> None:
    def reply(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        if any(isinstance(message, ModelResponse) for message in messages):
            return ModelResponse(parts=[TextPart("Done.")])
        return ModelResponse(parts=[ToolCallPart("pay", {"amount": 5})])

    outcomes: list[Outcome] = []
    desk = Desk()
    for model in (FunctionModel(reply), ScriptedModel([call("pay", {"amount": 5}), "Done."])):
        if isinstance(model, FunctionModel) and way == "stream":
            continue  # it takes another function for that
        outcomes.append((await run(way, model, tools=[desk.pay])).outcome)
    assert all(isinstance(outcome, Completed) for outcome in outcomes)
    assert desk.paid == [5] * len(outcomes)
