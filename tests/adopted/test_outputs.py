"""The output of an adopted agent comes back as what it was, or the run says why not (M9)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any, Self

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import ModelRetry, TextOutput, ToolOutput
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.support.agents import by_turn, completed
from understudy import Agent, Failed, Runtime, UsageError, call


class Answer(BaseModel):
    text: str

    def given(self, text: str) -> Self:
        return type(self)(text=text)


@dataclass
class Note:
    text: str


def saying(*parts: list[Any]) -> FunctionModel:
    """A model whose n-th reply has the n-th parts."""

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = sum(isinstance(message, ModelResponse) for message in messages)
        return ModelResponse(parts=parts[turn])

    return FunctionModel(reply)


NOTHING: list[list[Any]] = [[], [TextPart("")], [ThinkingPart("It is paid.")]]


def given(model: Any, output_type: Any) -> PydanticAgent[None, Any]:
    return PydanticAgent(model, name="support", output_type=output_type)


@pytest.mark.parametrize("parts", NOTHING)
def test_an_empty_reply_is_none_where_the_output_may_be_none(parts: list[Any]) -> None:
    """M9."""
    agent = given(saying(parts), int | None)
    seen: list[Any] = []

    @agent.output_validator
    def look(value: Any) -> Any:
        seen.append(value)
        return value

    outcome = completed(Agent.from_pydantic_ai(agent).execute_sync("go"))
    assert (outcome.output, outcome.text, seen) == (None, "", [None])


def test_an_empty_reply_that_is_streamed_is_none_too() -> None:
    """M9."""
    agent = Agent.from_pydantic_ai(given(by_turn(""), int | None))
    events: list[Any] = []
    outcome = completed(agent.execute_sync("go", on_event=events.append))
    assert outcome.output is None
    assert events != []


def test_an_empty_reply_is_none_after_the_run_is_read_from_its_store() -> None:
    """M9."""
    agent = given(saying([]), Answer | None)
    with Runtime([Agent.from_pydantic_ai(agent)]) as runtime:
        ref = runtime.spawn("support", "a")
        assert completed(ref.run("go").get(timeout=10)).output is None
        read = ref.outcome().get(timeout=10)
        assert read is not None
        assert completed(read).output is None


def test_a_validator_may_want_more_than_an_empty_reply() -> None:
    """M9."""
    agent = given(saying([], [TextPart("fine")]), [str, type(None)])

    @agent.output_validator
    def look(value: Any) -> Any:
        if value is None:
            raise ModelRetry("Say something.")
        return value

    assert completed(Agent.from_pydantic_ai(agent).execute_sync("go")).output == "fine"


def test_an_empty_reply_is_no_answer_where_the_output_is_a_text() -> None:
    """M9."""
    agent = PydanticAgent(saying([], [], []), name="support")
    outcome = Agent.from_pydantic_ai(agent).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert "it is empty" in str(outcome.error)


def test_a_method_that_returns_self_gives_a_value_of_its_class() -> None:
    """M9."""
    method = Answer(text="").given
    asks: list[Any] = [method, ToolOutput(method)]
    for output_type in asks:
        agent = given(by_turn(call("final_result", {"text": "paid"})), output_type)
        outcome = completed(Agent.from_pydantic_ai(agent).execute_sync("go"))
        assert outcome.output == Answer(text="paid")
    texts = given(by_turn("paid"), TextOutput(method))
    assert completed(Agent.from_pydantic_ai(texts).execute_sync("go")).output == Answer(text="paid")


def without_type(text: str):  # type: ignore[no-untyped-def]  # that is tested
    """Return what its text says."""
    values: dict[str, Any] = {
        "answer": Answer(text="paid"),
        "answers": [Answer(text="paid")],
        "inside": {"notes": [Note("paid")]},
        "day": date(2026, 11, 30),
        "text": "paid",
        "plain": {"cents": [1, 2.5, None, True]},
        "pair": ("a", 1),
    }
    return values[text]


@pytest.mark.parametrize(
    ("text", "kind"),
    [("answer", "Answer"), ("answers", "list"), ("inside", "dict"), ("day", "date")],
)
@pytest.mark.parametrize("output_type", [without_type, TextOutput(without_type)])
def test_a_value_that_no_type_makes_again_fails_the_run(
    text: str, kind: str, output_type: Any
) -> None:
    """M9: it would come back as a dict, or as a text."""
    turn = text if isinstance(output_type, TextOutput) else call("final_result", {"text": text})
    agent = given(by_turn(turn), output_type)
    outcome = Agent.from_pydantic_ai(agent).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert f"type '{kind}' cannot be made of JSON again: name its type" in str(outcome.error)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("text", "paid"),
        ("plain", {"cents": [1, 2.5, None, True]}),
        ("pair", ["a", 1]),
    ],
)
def test_a_value_that_is_json_needs_no_type(text: str, value: Any) -> None:
    """M9."""
    turn = call("final_result", {"text": text})
    agent = given(by_turn(turn), without_type)
    assert completed(Agent.from_pydantic_ai(agent).execute_sync("go")).output == value


class Plain:
    """Is nothing to Pydantic."""


def plain(text: str) -> Plain:
    """Return what JSON does not know."""
    return Plain()


@pytest.mark.filterwarnings("ignore:Could not generate return schema")
@pytest.mark.parametrize("output_type", [plain, [str, plain], TextOutput(plain)])
def test_an_output_that_pydantic_cannot_make_again_is_refused(output_type: Any) -> None:
    """M9."""
    agent = given(by_turn("go"), output_type)
    with pytest.raises(UsageError, match=r"Agent 'support'.*cannot be made of it again.*Plain"):
        Agent.from_pydantic_ai(agent)
