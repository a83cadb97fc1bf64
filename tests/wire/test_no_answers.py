"""R5: refusals, filtered and empty replies, and bodies that are no reply, of each provider."""

from __future__ import annotations

import json
from itertools import repeat

import pytest
from pydantic_ai.messages import ModelResponse

from tests.support.agents import completed, reloaded
from tests.support.wire.providers import (
    ANTHROPIC,
    AT_ONCE,
    GOOGLE,
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    Provider,
    Told,
    Way,
    run,
)
from tests.support.wire.script import Answer, RawBody, Reply, Thinking, wire_call
from tests.support.wire.server import WireServer
from understudy import Failed, ModelFailed, ModelRefused, Outcome
from understudy.events import TextDelta

REFUSED = Reply(refusal="I can't help with that.")
EMPTY = Reply(text="")
BLANK = Reply(text=" \n")
CALL = wire_call("pay", {"amount": 5}, id="call_a")


def pay(amount: int = 100) -> str:
    """Pay an amount."""
    raise AssertionError(f"{amount} must not be paid")


def failed(outcome: Outcome) -> ModelFailed:
    assert isinstance(outcome, Failed), outcome
    assert isinstance(outcome.error, ModelFailed), outcome.error
    return outcome.error


def text_seen(told: Told) -> str:
    return "".join(event.text for event in told.events if isinstance(event, TextDelta))


# ------------------------------------------------------------------------------- refusals


async def test_a_refusal_says_so_and_what_the_provider_says_of_it(
    provider: Provider, way: Way
) -> None:
    with WireServer([REFUSED]) as server:
        told = await run(way, provider.model(server))
    error = failed(told.outcome)
    assert isinstance(error, ModelRefused)
    assert error.failures[0]["type"] == "RefusedReply"
    assert "I can't help with that." in told.outcome.explain()
    assert "refused" in told.outcome.explain()


@pytest.mark.parametrize(
    "reply",
    [
        Reply(text="First, you", finish_reason="content_filter"),
        Reply(calls=(CALL,), finish_reason="content_filter"),
        Reply(finish_reason="content_filter"),
    ],
    ids=["text", "call", "nothing"],
)
async def test_a_filtered_reply_is_no_answer_and_none_of_its_calls_runs(
    provider: Provider, way: Way, reply: Reply
) -> None:
    with WireServer([reply]) as server:
        told = await run(way, provider.model(server), tools=[pay])
    assert isinstance(failed(told.outcome), ModelRefused)


async def test_a_fallback_answers_what_the_model_refused(provider: Provider, way: Way) -> None:
    with WireServer([REFUSED]) as server, WireServer([Reply(text="With pleasure.")]) as spare:
        told = await run(way, provider.model(server), provider.model(spare))
    outcome = completed(told.outcome)
    assert outcome.text == "With pleasure."
    assert (outcome.usage.requests, outcome.usage.output_tokens) == (2, 6), "both were paid for"
    answer = outcome.state.messages[-1]
    assert isinstance(answer, ModelResponse)
    assert answer.failed_attempts is not None
    (attempt,) = answer.failed_attempts
    assert attempt.error is not None
    assert attempt.error.startswith("RefusedReply")
    assert reloaded(outcome.state) == outcome.state


async def test_a_refusal_of_all_models_costs_what_they_cost(provider: Provider, way: Way) -> None:
    with WireServer([REFUSED]) as server, WireServer([REFUSED]) as spare:
        told = await run(way, provider.model(server), provider.model(spare))
    error = failed(told.outcome)
    assert isinstance(error, ModelRefused)
    assert len(error.failures) == 2
    assert told.outcome.usage.requests == 2
    assert told.outcome.usage.output_tokens == 6


async def test_after_a_refusal_the_conversation_goes_on(provider: Provider, way: Way) -> None:
    with WireServer([REFUSED, Reply(text="Of course.")]) as server:
        model = provider.model(server)
        refused = await run(way, model, input="Do harm.")
        told = await run(way, provider.model(server), input="Help.", state=refused.outcome.state)
    assert completed(told.outcome).text == "Of course."
    assert "I can't help" not in json.dumps(server.conversations[1])
    roles = [message["role"] for message in server.conversations[1]]
    assert set(roles) <= {"system", "user"}


@pytest.mark.parametrize("provider", [ANTHROPIC, GOOGLE, OPENAI_CHAT], ids=str)
async def test_what_a_person_has_read_before_the_refusal_is_not_said_again_by_another(
    provider: Provider,
) -> None:
    filtered = Reply(text="First, you", finish_reason="content_filter")
    with WireServer([filtered]) as server, WireServer([Reply(text="No.")]) as spare:
        told = await run("stream", provider.model(server), provider.model(spare))
    assert isinstance(failed(told.outcome), ModelRefused)
    assert spare.requests == []
    assert text_seen(told) == "First, you"
    reply = told.outcome.state.messages[-1]
    assert isinstance(reply, ModelResponse)
    assert (reply.text, reply.state) == ("First, you", "interrupted")
    assert reply.finish_reason == "content_filter"


async def test_a_failing_fallback_of_a_refusal_is_no_refusal(provider: Provider) -> None:
    """Asked later, it may answer."""
    with WireServer([REFUSED]) as server, WireServer([]) as spare:
        told = await run("execute", provider.model(server), provider.model(spare))
    error = failed(told.outcome)
    assert not isinstance(error, ModelRefused)
    assert error.failures[0]["type"] == "RefusedReply"


# ---------------------------------------------------------------------------- empty replies


@pytest.mark.parametrize("empty", [EMPTY, BLANK], ids=["nothing", "white space"])
async def test_an_empty_reply_is_asked_for_again(
    provider: Provider, way: Way, empty: Reply
) -> None:
    with WireServer([empty, Reply(text="Here I am.")]) as server:
        told = await run(way, provider.model(server))
    outcome = completed(told.outcome)
    assert outcome.text == "Here I am."
    assert server.conversations[0] == server.conversations[1]
    assert outcome.usage.requests == 2
    assert outcome.usage.input_tokens == 14


async def test_a_second_empty_reply_is_a_failing_model(provider: Provider, way: Way) -> None:
    with WireServer([EMPTY, EMPTY]) as server:
        told = await run(way, provider.model(server))
    error = failed(told.outcome)
    assert [failure["type"] for failure in error.failures] == ["EmptyReply"]
    assert "empty" in told.outcome.explain()
    assert told.outcome.usage.requests == 2


@pytest.mark.parametrize("empty", [EMPTY, BLANK], ids=["nothing", "white space"])
async def test_a_fallback_answers_where_the_model_says_nothing(
    provider: Provider, way: Way, empty: Reply
) -> None:
    with WireServer([empty, empty]) as server, WireServer([Reply(text="I am here.")]) as spare:
        told = await run(way, provider.model(server), provider.model(spare))
    assert completed(told.outcome).text == "I am here."


@pytest.mark.parametrize("provider", [ANTHROPIC, GOOGLE, OPENAI_RESPONSES], ids=str)
async def test_thinking_alone_is_no_answer(provider: Provider, way: Way) -> None:
    thought = Reply(thinking=Thinking("Hmm."))
    with WireServer([thought, Reply(text="Here.")]) as server:
        told = await run(way, provider.model(server))
    assert completed(told.outcome).text == "Here."
    places = [getattr(e, "n") for e in told.events if hasattr(e, "n")]  # noqa: B009
    assert places == list(range(len(places))), "of both streams together"


async def test_an_empty_reply_after_a_tool_is_asked_for_again(provider: Provider, way: Way) -> None:
    def look() -> str:
        """Look."""
        return "seen"

    script = [Reply(calls=(wire_call("look", {}, id="call_a"),)), EMPTY, Reply(text="Seen.")]
    with WireServer(script) as server:
        told = await run(way, provider.model(server), tools=[look])
    assert completed(told.outcome).text == "Seen."


async def test_a_page_of_html_is_kept_by_its_status_and_its_first_lines(
    provider: Provider, way: Way
) -> None:
    page = "<html>\n<title>Bad gateway</title>\n" + "<p>Please wait.</p>\n" * 2500
    script = repeat(RawBody(body=page, status=502, content_type="text/html", headers=AT_ONCE))
    with WireServer(script) as server:
        told = await run(way, provider.model(server))
    failed(told.outcome)
    explained = told.outcome.explain()
    assert len(page) > 50_000
    assert len(explained) < 2_000
    assert len(json.dumps(told.outcome.state.to_dict())) < 5_000
    assert "502" in explained
    assert "Bad gateway" in explained
    assert "characters)" in explained, "it says that there is more"


async def test_white_space_is_no_answer() -> None:
    with WireServer([Reply(text=" \n"), Reply(text="Here.")]) as server:
        told = await run("execute", OPENAI_CHAT.model(server))
    assert completed(told.outcome).text == "Here."


# ------------------------------------------------------------------- bodies that are no reply

STREAMED = "text/event-stream"
ERROR = '{"error": {"message": "no capacity", "type": "server_error", "code": 503}}'


@pytest.mark.parametrize("body", ["{}", "null", "[]", '"hi"', "", "<html>", ERROR])
async def test_a_body_that_is_no_reply_is_an_error_of_the_model(
    provider: Provider, way: Way, body: str
) -> None:
    kind = "application/json"
    if way == "stream" or provider is ANTHROPIC:
        kind, body = STREAMED, f"data: {body}\n\n" if body else ""
    with WireServer(repeat(RawBody(body=body, content_type=kind))) as server:
        told = await run(way, provider.model(server))
    failed(told.outcome)


@pytest.mark.parametrize("body", ["{}", "null", ERROR])
async def test_a_fallback_answers_where_the_body_is_no_reply(
    provider: Provider, way: Way, body: str
) -> None:
    kind = "application/json"
    if way == "stream" or provider is ANTHROPIC:
        kind, body = STREAMED, f"data: {body}\n\n"
    script: list[Answer] = [RawBody(body=body, content_type=kind)] * 5
    with WireServer(script) as server, WireServer([Reply(text="I am here.")]) as spare:
        told = await run(way, provider.model(server), provider.model(spare))
    assert completed(told.outcome).text == "I am here."
