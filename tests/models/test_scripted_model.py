"""`ScriptedModel`: the public fake, and how it streams."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.usage import RequestUsage

from tests.support.agents import completed
from understudy import Agent, Completed, Failed, ModelFailed, Outcome, ScriptedModel, call
from understudy.events import TextDelta, ThinkingDelta
from understudy.models import ScriptedRequest


def note(text: str) -> str:
    return f"noted {text}"


async def streamed(agent: Agent, text: str) -> tuple[list[Any], Outcome]:
    *events, outcome = [item async for item in agent.stream(text)]
    assert isinstance(outcome, (Completed, Failed))
    return events, outcome


def run(agent: Agent, stream: bool) -> Outcome:
    return asyncio.run(streamed(agent, "go"))[1] if stream else agent.execute_sync("go")


EITHER_WAY = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@EITHER_WAY
def test_a_reply_may_be_text(stream: bool) -> None:
    outcome = run(Agent("a", ScriptedModel(["a longer text than one delta"])), stream)
    assert isinstance(outcome, Completed)
    assert outcome.text == "a longer text than one delta"


@EITHER_WAY
def test_a_reply_may_be_a_list_of_text_and_calls(stream: bool) -> None:
    reply: list[Any] = [
        "I note",
        call("note", {"text": "x"}),
        call("note", '{"text": "y"}', id="c-9"),
    ]
    outcome = run(Agent("a", ScriptedModel([reply, "done"]), tools=[note]), stream)
    assert isinstance(outcome, Completed)
    said = outcome.state.messages[1]
    assert isinstance(said, ModelResponse)
    assert said.text == "I note"
    assert [part.args_as_dict() for part in said.tool_calls] == [{"text": "x"}, {"text": "y"}]
    assert said.tool_calls[1].tool_call_id == "c-9"
    assert said.tool_calls[0].tool_call_id != "c-9"
    answers = [part for part in outcome.state.messages[2].parts if isinstance(part, ToolReturnPart)]
    assert [part.content for part in answers] == ["noted x", "noted y"]


@EITHER_WAY
def test_a_reply_may_be_a_function_of_the_request(stream: bool) -> None:
    async def slow(request: ScriptedRequest) -> Any:
        await asyncio.sleep(0)
        return call("note", {"text": request.prompt})

    model = ScriptedModel([slow, lambda request: f"asked {len(request.messages)} messages"])
    outcome = run(Agent("a", model, tools=[note]), stream)
    assert isinstance(outcome, Completed)
    assert outcome.text == "asked 3 messages"


def test_one_function_instead_of_a_list_answers_every_request() -> None:
    def answer(request: ScriptedRequest) -> Any:
        return call("note", {"text": "x"}) if len(request.messages) < 5 else "enough"

    model = ScriptedModel(answer)
    outcome = Agent("a", model, tools=[note]).execute_sync("go")
    assert isinstance(outcome, Completed)
    assert outcome.text == "enough"
    assert len(model.requests) == 3


@EITHER_WAY
def test_a_reply_may_be_an_exception(stream: bool) -> None:
    outcome = run(Agent("a", ScriptedModel([OSError("down")])), stream)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ModelFailed)
    assert "down" in str(outcome.error)


@EITHER_WAY
def test_a_function_may_raise(stream: bool) -> None:
    def fail(request: ScriptedRequest) -> Any:
        raise OSError("down")

    outcome = run(Agent("a", ScriptedModel([fail])), stream)
    assert isinstance(outcome, Failed)
    assert "down" in str(outcome.error)


@EITHER_WAY
def test_a_reply_may_be_a_whole_response_and_keeps_what_it_says(stream: bool) -> None:
    reply = ModelResponse(
        parts=[ThinkingPart("hm"), TextPart("done")],
        usage=RequestUsage(input_tokens=70, output_tokens=3),
        finish_reason="length",
        model_name="a-real-one",
    )
    outcome = run(Agent("a", ScriptedModel([reply])), stream)
    assert isinstance(outcome, Completed)
    said = outcome.state.messages[1]
    assert isinstance(said, ModelResponse)
    assert [part.part_kind for part in said.parts] == ["thinking", "text"]
    assert said.finish_reason == "length"
    assert said.model_name == "a-real-one"
    assert outcome.usage.input_tokens == 70
    assert outcome.usage.output_tokens == 3


@EITHER_WAY
def test_a_response_in_a_script_is_not_changed_by_being_played(stream: bool) -> None:
    reply = ModelResponse(parts=[TextPart("done")])
    at = reply.timestamp
    model = ScriptedModel([reply, reply])
    run(Agent("a", model), stream)
    assert reply.parts == [TextPart("done")]
    assert reply.timestamp == at


@EITHER_WAY
def test_a_script_that_is_used_up_says_so(stream: bool) -> None:
    model = ScriptedModel([call("note", {"text": "x"})], name="short")
    outcome = run(Agent("a", model, tools=[note]), stream)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ModelFailed)
    assert all(word in str(outcome.error) for word in ("short", "1 replies", "2 times"))


def test_what_is_no_reply_is_told() -> None:
    replies: list[Any] = [[3]]
    outcome = Agent("a", ScriptedModel(replies)).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert "3 is not a scripted reply" in str(outcome.error)


def test_requests_hold_what_the_model_was_asked() -> None:
    model = ScriptedModel([call("note", {"text": "x"}), "done"])
    agent = Agent(
        "a", model, "Be kind.", tools=[note], model_settings={"temperature": 0.0, "max_tokens": 5}
    )
    agent.execute_sync("go there")
    first, second = model.requests
    assert first.prompt == second.prompt == "go there"
    assert first.instructions == "Be kind."
    assert first.tools == ("note",)
    assert first.settings == {"temperature": 0.0, "max_tokens": 5}
    assert len(first.messages) == 1, "a later turn does not change what was asked before"
    assert len(second.messages) == 3


async def test_streamed_text_comes_in_pieces_of_the_size_that_was_said() -> None:
    model = ScriptedModel(["abcdefgh"], delta_size=3)
    events, _ = await streamed(Agent("a", model), "go")
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["abc", "def", "gh"]


async def test_streamed_thinking_is_told_apart_from_text() -> None:
    reply = ModelResponse(parts=[ThinkingPart("hm"), TextPart("done")])
    events, _ = await streamed(Agent("a", ScriptedModel([reply])), "go")
    assert [e.text for e in events if isinstance(e, ThinkingDelta)] == ["hm"]
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "done"


async def test_it_works_as_any_pydantic_ai_model() -> None:
    model = ScriptedModel(["hello"], name="fake")
    messages: list[Any] = [ModelRequest(parts=[UserPromptPart("hi")])]
    response = await model.request(messages, None, ModelRequestParameters())
    assert response.text == "hello"
    assert response.model_name == model.model_name == "fake"


async def test_a_script_tells_the_steps_of_a_run_apart_by_their_results() -> None:
    def look(at: str) -> str:
        """Look."""
        return f"saw {at}"

    asked: list[list[tuple[str, object]]] = []

    def script(request: ScriptedRequest) -> Any:
        asked.append([(part.tool_name, part.content) for part in request.results])
        if not request.results:
            return [call("look", {"at": request.prompt}), call("look", {"at": "twice"})]
        return call("look", {"at": "again"}) if len(request.results) == 2 else "done"

    agent = Agent("a", ScriptedModel(script), tools=[look])
    state = completed(await agent.execute("one")).state
    completed(await agent.execute("two", state=state))
    one, two, again = ("look", "saw one"), ("look", "saw twice"), ("look", "saw again")
    first = [[], [one, two], [one, two, again]]
    assert asked[:3] == first
    assert asked[3:] == [[], [("look", "saw two"), two], [("look", "saw two"), two, again]]


# ------------------------------------------------------------------------- assert_complete


async def pay(order: str) -> str:
    return f"paid {order}"


def test_a_script_that_was_played_is_complete() -> None:
    model = ScriptedModel([call("pay", {"order": "17"}), "Done."])
    Agent("desk", model, tools=[pay]).execute_sync("Pay")
    model.assert_complete()


def test_the_replies_that_were_not_asked_for_are_named() -> None:
    model = ScriptedModel(["Hello.", call("pay", {"order": "17"}), "Done."], name="desk")
    Agent("desk", model).execute_sync("Hi")
    with pytest.raises(AssertionError) as raised:
        model.assert_complete()
    assert str(raised.value).splitlines() == [
        "'desk' got 1 request, and these replies were not asked for:",
        "  2. ScriptedCall(tool_name='pay', arguments={'order': '17'}, id=None)",
        "  3. 'Done.'",
    ]


def test_a_script_that_nobody_asked_is_not_complete() -> None:
    with pytest.raises(AssertionError, match="got 0 requests"):
        ScriptedModel(["Hello."]).assert_complete()


def test_a_function_and_an_empty_script_have_nothing_left() -> None:
    ScriptedModel(lambda _: "Hello.").assert_complete()
    ScriptedModel([]).assert_complete()
