"""`patch_history`: what comes from elsewhere, cut and in any order, becomes well-formed (R20)."""

from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from tests.support.agents import by_turn, calls_made, completed, results
from understudy import Agent, AgentState, Run, ScriptedModel, UsageError, patch_history
from understudy.middleware import Middleware, ModelInput

AT = datetime(2030, 1, 1, tzinfo=timezone.utc)


def user(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text, timestamp=AT)], timestamp=AT)


def reply(*parts: Any) -> ModelResponse:
    return ModelResponse(parts=[*parts], model_name="m", timestamp=AT)


def calling(*ids: str) -> ModelResponse:
    return reply(*[ToolCallPart("note", {"text": "x"}, tool_call_id=each) for each in ids])


def result(call_id: str, content: str = "ok") -> ToolReturnPart:
    return ToolReturnPart("note", content, tool_call_id=call_id, timestamp=AT)


def results_of(*given: tuple[str, str]) -> ModelRequest:
    return ModelRequest(parts=[result(*each) for each in given], timestamp=AT)


GOOD: list[ModelMessage] = [
    user("Hello"),
    calling("a", "b"),
    results_of(("a", "1"), ("b", "2")),
    reply(TextPart("Done.")),
]
DUMP: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Two kettles."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}},
            {"id": "c2", "type": "function", "function": {"name": "buy", "arguments": '{"n": 2'}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "found"},
    {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "bought"}]},
    {"role": "assistant", "content": "Bought.", "refusal": None},
    {"role": "user", "content": ""},
    {"role": "user", "content": [{"type": "text", "text": "Thank you."}]},
    {"role": "assistant", "content": ""},
    {"role": "assistant", "function_call": {"name": "wave", "arguments": "{}"}, "content": None},
    {"role": "function", "name": "wave", "content": "waved"},
    {"role": "assistant", "content": "You are welcome.", "tool_calls": []},
]


def assert_valid_history(state: AgentState) -> None:
    """Each call has an id of its own, and one result in the message behind it."""
    messages = list(state.messages)
    for message, following in zip(messages, [*messages[1:], None], strict=True):
        asked = [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]
        parts = following.parts if asked and following is not None else ()
        got = [part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)]
        assert sorted(got) == sorted(asked)
    ids = [part.tool_call_id for part in calls_made(state)]
    assert len(set(ids)) == len(ids) == len(results(state))


def shape(messages: Any) -> list[str]:
    """Who says what, in short."""
    found = []
    for message in messages:
        for part in message.parts:
            call_id = getattr(part, "tool_call_id", None)
            said = getattr(part, "tool_name", None) if call_id else part.content
            found.append(f"{part.part_kind} {said}{f' {call_id}' if call_id else ''}")
    return found


def test_what_is_well_formed_stays_the_same() -> None:
    """R20."""
    assert patch_history(GOOD) == GOOD
    assert list(AgentState(messages=GOOD).messages) == GOOD
    assert patch_history([]) == []


def test_a_dump_of_openai_becomes_a_conversation() -> None:
    assert shape(patch_history(DUMP)) == [
        "system-prompt Be kind.",
        "user-prompt Two kettles.",
        "tool-call find c1",
        "tool-call buy c2",
        "tool-return find c1",
        "tool-return buy c2",
        "text Bought.",
        "user-prompt ['Thank you.']",
        "tool-call wave wave",
        "tool-return wave wave",
        "text You are welcome.",
    ]


def test_pictures_and_files_of_a_dump_are_kept() -> None:
    data = "data:image/png;base64,AQI="
    content = [
        "look",
        {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}},
        {"type": "image_url", "image_url": {"url": data}},
        {"type": "input_audio", "input_audio": {"data": "AQI=", "format": "wav"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,AQI="}},
    ]
    (message,) = patch_history([{"role": "user", "content": content}])
    assert isinstance(message.parts[0], UserPromptPart)
    text, url, picture, audio, file = list(message.parts[0].content)
    assert text == "look"
    assert isinstance(url, ImageUrl)
    kinds = [each.media_type for each in (picture, audio, file) if isinstance(each, BinaryContent)]
    assert kinds == ["image/png", "audio/wav", "application/pdf"]


def test_objects_and_stored_messages_are_read_too() -> None:
    said = SimpleNamespace(model_dump=lambda: {"role": "assistant", "content": "Hello."})
    given: Any = [{"role": "user", "content": "Hi"}, said]
    assert shape(patch_history(given)) == ["user-prompt Hi", "text Hello."]
    assert patch_history(ModelMessagesTypeAdapter.dump_python(GOOD, mode="json")) == GOOD


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        (
            [
                user("Hi"),
                calling("a"),
                results_of(("a", "1")),
                calling("a"),
                results_of(("a", "2")),
            ],
            ["a 1", "a-2 2"],
        ),
        ([user("Hi"), calling("a", "a"), results_of(("a", "1"), ("a", "2"))], ["a 1", "a-2 2"]),
        ([user("Hi"), calling("a"), results_of(("a", "1"), ("a", "2"))], ["a 1"]),
        ([user("Hi"), calling(""), results_of(("", "1"))], ["call-2 1"]),
        ([user("Hi"), calling("a", "a-2", "a")], ["a -", "a-2 -", "a-3 -"]),
        ([user("Hi"), calling("a"), reply(TextPart("x")), results_of(("a", "1"))], ["a 1"]),
        (
            [
                user("Hi"),
                calling("a", "b"),
                results_of(("b", "2")),
                calling("c"),
                results_of(("a", "1")),
            ],
            ["a 1", "b 2", "c -"],
        ),
        ([user("Hi"), results_of(("a", "1")), calling("a")], ["a -"]),
    ],
)
def test_each_call_has_an_id_of_its_own_and_one_result(
    history: list[ModelMessage], expected: list[str]
) -> None:
    state = AgentState(messages=history)
    found = [
        f"{part.tool_call_id} {'-' if part.outcome == 'interrupted' else part.content}"
        for part in results(state)
    ]
    assert sorted(found) == expected
    assert_valid_history(completed(Agent("a", by_turn()).execute_sync("go", state=state)).state)


def test_the_others_of_a_changed_reply_stay() -> None:
    given = reply(TextPart("first"), *calling("a", "a").parts)
    first, second, third = patch_history([user("Hi"), given])[1].parts
    assert [first, second] == given.parts[:2]
    assert isinstance(third, ToolCallPart)
    assert third.tool_call_id == "a-2"


@pytest.mark.parametrize(
    "history",
    [
        [reply(TextPart("Hello"))],
        [ModelRequest(parts=[SystemPromptPart("Be kind.")]), reply(TextPart("Hello"))],
        [results_of(("a", "1")), reply(TextPart("Hello"))],
        [user(" "), reply(TextPart("Hello"))],
        [reply(TextPart("")), reply(TextPart("Hello"))],
    ],
)
def test_a_user_begins(history: list[ModelMessage]) -> None:
    patched = patch_history(history)
    assert [message.kind for message in patched] == ["request", "response"]
    assert isinstance(patched[0].parts[-1], UserPromptPart)
    assert "not known" in str(patched[0].parts[-1].content)
    assert patch_history(patched) == patched


def test_empty_messages_are_left_out() -> None:
    empty: list[ModelMessage] = [user(""), reply(), reply(TextPart(" ")), ModelRequest(parts=[])]
    assert patch_history([*empty, *GOOD, *empty]) == GOOD
    signed = reply(TextPart("", provider_name="p", provider_details={"signature": "s"}))
    assert patch_history([user("Hi"), signed]) == [user("Hi"), signed]


async def test_every_door_does_it() -> None:
    """R20."""

    class Forgets(Middleware):
        async def before_model(self, run: Run, request: ModelInput) -> None:
            if not run.current.turns:
                await run.replace_history([calling("x"), *run.state.messages])

    model = ScriptedModel(["done"])
    outcome = completed(await Agent("a", model, middleware=[Forgets()]).execute("go"))
    assert [message.kind for message in outcome.state.messages] == [
        "request",
        "response",
        "request",
        "response",
    ]
    assert_valid_history(outcome.state)


def calls(*items: Any) -> list[dict[str, Any]]:
    return [{"role": "assistant", "tool_calls": [*items]}]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("Hello", "must be a list of messages"),
        ({"messages": []}, "must be a list of messages"),
        (7, "must be a list of messages"),
        (["Hello"], r"messages\[0\] must be a message"),
        ([{}], r"messages\[0\] must be a message"),
        ([GOOD[0], {"content": "x"}], r"messages\[1\] must be a message"),
        ([{"role": "robot", "content": "x"}], "the role 'robot'; roles are"),
        ([{"role": "user", "content": 7}], "`content` must be text or a list"),
        ([{"role": "tool", "content": 7}], "`content` must be text or a list"),
        ([{"role": "user", "content": [{"type": "video"}]}], "the type 'video'"),
        ([{"role": "user", "content": [7]}], r"messages\[0\] cannot be read"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], r"messages\[0\] cannot be read"),
        (calls({"id": "c"}), "without a function"),
        (calls({"id": "c", "function": {"arguments": "{}"}}), "needs `name` as text"),
        (calls({"id": 7, "function": {"name": "f"}}), "needs `id` as text"),
        (calls({"id": "c", "function": {"name": "f", "arguments": 7}}), "must be JSON text"),
        (calls("c"), r"messages\[0\] cannot be read"),
        ([{"kind": "request"}], r"messages\[0\] cannot be read"),
        ([{"kind": "else", "parts": []}], r"messages\[0\] cannot be read"),
    ],
)
def test_what_is_no_message_is_refused_by_its_place(given: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        patch_history(given)


@pytest.mark.slow
@settings(max_examples=50, derandomize=True)
@given(st.lists(st.sampled_from(range(len(DUMP))), max_size=15))
def test_any_cut_and_any_order_of_a_dump_is_taken_by_an_agent(order: list[int]) -> None:
    patched = patch_history([DUMP[index] for index in order])
    assert patch_history(patched) == patched
    state = AgentState(messages=patched)
    assert list(state.messages) == patched
    outcome = completed(Agent("a", ScriptedModel(["done"])).execute_sync("go", state=state))
    assert_valid_history(outcome.state)
    assert outcome.state.messages[0].kind == "request"


def test_any_cut_of_messages_is_taken_by_an_agent() -> None:
    """R20."""
    for start in range(len(GOOD)):
        for end in range(start, len(GOOD) + 1):
            patched = patch_history(GOOD[start:end])
            assert patch_history(patched) == patched
            state = AgentState(messages=patched)
            assert_valid_history(
                completed(Agent("a", ScriptedModel(["done"])).execute_sync("go", state=state)).state
            )
