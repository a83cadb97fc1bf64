"""Records as bytes: whoever writes them, by hand or by the adapters, the same comes back (J92)."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ImageUrl,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestAttempt,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.usage import RequestUsage

from understudy.errors import RecordRefused
from understudy.journal.codec import EncodedRecord, decode, encode, encode_messages
from understudy.models.messages import Messages
from understudy.state.records import (
    ChildRecord,
    HistoryReplaced,
    Reply,
    Result,
    record_from_dict,
    record_to_dict,
)

NOW = datetime(2026, 11, 21, 12, 30, 15, 123456, tzinfo=timezone.utc)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
maybe = st.none() | texts
times = st.datetimes(timezones=st.just(timezone.utc)) | st.datetimes().map(
    lambda at: at.replace(tzinfo=timezone(timedelta(hours=5, minutes=30)))
)
numbers = st.integers(0, 2**63 - 1)
scalars = st.none() | st.booleans() | st.integers() | texts | st.floats(allow_nan=False)
jsons = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)
objects = st.dictionaries(texts, jsons, max_size=3)
details = st.none() | objects
usages = st.builds(
    RequestUsage,
    input_tokens=numbers,
    output_tokens=numbers,
    cache_read_tokens=numbers,
    audio_seconds=st.floats(0, 1e6),
    details=st.dictionaries(texts, numbers, max_size=2),
    cost=st.none() | st.decimals(0, 100, places=4),
)
text_parts = st.builds(TextPart, texts, id=maybe, provider_name=maybe, provider_details=details)
thinking_parts = st.builds(ThinkingPart, texts, id=maybe, signature=maybe, provider_name=maybe)
call_parts: st.SearchStrategy[ToolCallPart] = st.builds(
    ToolCallPart,
    texts,
    st.none() | texts | objects,
    tool_call_id=texts,
    id=maybe,
    provider_details=details,
)
file_parts = st.builds(
    lambda data: FilePart(BinaryContent(data, media_type="image/png")), st.binary(max_size=8)
)
responses = st.builds(
    ModelResponse,
    parts=st.lists(text_parts | thinking_parts | call_parts | file_parts, max_size=3),
    usage=usages,
    model_name=maybe,
    timestamp=times,
    provider_name=maybe,
    provider_details=details,
    provider_response_id=maybe,
    finish_reason=st.sampled_from([None, "stop", "length", "tool_call"]),
    metadata=details,
    state=st.sampled_from(["complete", "interrupted"]),
)
replies = st.builds(
    Reply,
    turn=st.integers(0, 1000),
    response=responses,
    cut=st.booleans(),
    broken=st.none() | objects,
)
results = st.builds(
    Result,
    call_key=texts,
    part=st.builds(
        ToolReturnPart,
        texts,
        jsons,
        tool_call_id=texts,
        timestamp=times,
        metadata=details,
        outcome=st.sampled_from(["success", "failed", "denied", "interrupted"]),
    ),
    value=jsons,
    value_is=st.sampled_from(["content", "separate", "given", "lost"]),
    state=st.none() | objects,
    doubt=maybe,
)


@pytest.mark.slow
@given(replies | results)
def test_what_is_read_back_is_what_the_adapters_of_all_records_bring(record: Any) -> None:
    assert decode(encode(record)) == record_from_dict(record_to_dict(record))


@pytest.mark.slow
@given(replies | results)
def test_what_was_read_back_once_stays_what_it_is(record: Any) -> None:
    once = decode(encode(record))

    assert decode(encode(once)) == once


def reply(**fields: Any) -> Reply:
    part = ToolCallPart("add", '{"a": 1}', tool_call_id="call_1")
    return Reply(turn=3, response=ModelResponse(parts=[part], timestamp=NOW, **fields))


def test_a_plain_reply_is_written_without_what_is_at_its_default() -> None:
    payload = encode(reply(usage=RequestUsage(input_tokens=7), model_name="fake")).payload

    assert json.loads(payload) == {
        "turn": 3,
        "response": {
            "parts": [
                {
                    "tool_name": "add",
                    "args": '{"a": 1}',
                    "tool_call_id": "call_1",
                    "part_kind": "tool-call",
                }
            ],
            "usage": {"input_tokens": 7},
            "model_name": "fake",
            "timestamp": "2026-11-21T12:30:15.123456Z",
            "kind": "response",
        },
    }


def test_the_defaults_that_are_left_out_are_still_those_that_are_read_back() -> None:
    """A release of the message types with another default would change what is stored."""
    response = {
        "parts": [{"content": "hi", "part_kind": "text"}],
        "kind": "response",
        "timestamp": NOW.isoformat(),
        "usage": {},
    }
    part = {
        "tool_name": "t",
        "content": None,
        "tool_call_id": "c",
        "part_kind": "tool-return",
        "timestamp": NOW.isoformat(),
    }

    told = decode(stored("reply", turn=0, response=response))
    brought = decode(stored("result", call_key="r.0.0", part=part))

    assert isinstance(told, Reply)
    assert told.response == ModelResponse(
        parts=[TextPart("hi")], timestamp=NOW, usage=RequestUsage(), state="complete"
    )
    assert not any(dataclasses.asdict(told.response.usage).values())
    assert isinstance(brought, Result)
    assert brought.part == ToolReturnPart(
        "t", None, tool_call_id="c", timestamp=NOW, outcome="success"
    )


def stored(kind: str, **fields: Any) -> EncodedRecord:
    return EncodedRecord(kind, 1, json.dumps(fields).encode())


def test_a_counter_of_the_provider_comes_back() -> None:
    """Pydantic AI adds up what it has no field for, such as the searches of a provider."""
    usage = RequestUsage(input_tokens=3, web_searches=2)
    reply = Reply(turn=0, response=ModelResponse(parts=[TextPart("hi")], usage=usage))
    found = decode(encode(reply))
    assert found == reply
    assert isinstance(found, Reply)
    assert vars(found.response.usage)["web_searches"] == 2


def test_a_counter_of_a_provider_comes_back_of_an_attempt_inside_a_reply_too() -> None:
    attempt = ModelRequestAttempt(
        model_name="first",
        outcome="rejected",
        timestamp=NOW,
        duration=timedelta(seconds=1),
        usage=RequestUsage(input_tokens=3, web_searches=2, cost=Decimal("0.1234567890123456789")),
    )
    failed = dataclasses.replace(attempt, usage=None)
    record = reply(failed_attempts=[attempt, failed])
    (kept,) = encode_messages([record.response])

    (held,) = Messages.packed([b"[" + kept + b"]"], 1)
    assert isinstance(held, ModelResponse)
    found = decode(encode(record))
    assert isinstance(found, Reply)
    replaced = decode(encode(HistoryReplaced(messages=(record.response,))))
    assert isinstance(replaced, HistoryReplaced)
    for response in (found.response, held, replaced.messages[0]):
        assert response == record.response
        assert isinstance(response, ModelResponse)
        assert response.failed_attempts is not None
        assert vars(response.failed_attempts[0].usage)["web_searches"] == 2


def test_a_cost_which_no_json_number_holds_exactly_comes_back_exactly() -> None:
    record = reply(usage=RequestUsage(cost=Decimal("0.1234567890123456789")))

    assert decode(encode(record)) == record


PICTURE = {"kind": "image-url", "url": "https://example.com/a.png", "media_type": "image/png"}


@pytest.mark.parametrize(
    "content",
    [
        PICTURE,
        {**PICTURE, "force_download": True, "title": "a kettle"},
        [PICTURE, "text"],
        {"found": [{**PICTURE, "kind": "document-url"}]},
        {"kind": "uploaded-file", "file_id": "f", "provider_name": "openai"},
        {"kind": ["image-url"]},
        [ImageUrl("https://example.com/a.png"), {**PICTURE, "title": "a kettle"}],
    ],
    ids=["alone", "more_keys", "in_a_list", "deep", "uploaded", "unhashable", "beside_a_file"],
)
def test_a_mapping_that_looks_like_a_file_stays_what_the_tool_returned(content: Any) -> None:
    part = ToolReturnPart("t", content, tool_call_id="c", timestamp=NOW)
    result = Result(call_key="r.0.0", part=part)
    message = ModelRequest(parts=[part], timestamp=NOW)
    (kept,) = encode_messages([message])

    assert decode(encode(result)) == result
    assert decode(encode(child := ChildRecord(child="k", name="a", record=result))) == child
    assert ModelMessagesTypeAdapter.validate_json(b"[" + kept + b"]") == [message]


@pytest.mark.parametrize(
    "content",
    [
        TextPart("hi"),
        {"usage": RequestUsage(input_tokens=7)},
        [ModelResponse(parts=[TextPart("hi")], timestamp=NOW)],
    ],
    ids=["part", "usage", "response"],
)
def test_a_message_type_inside_of_content_is_written_whole(content: Any) -> None:
    """Its defaults are left out only where an adapter of its type reads it back."""
    part = ToolReturnPart("t", content, tool_call_id="c", timestamp=NOW)
    record = Result(call_key="r.0.0", part=part)

    assert decode(encode(record)) == record_from_dict(record_to_dict(record))


def test_the_parts_of_a_reply_may_be_any_sequence() -> None:
    response = ModelResponse(parts=(TextPart("hi"),), timestamp=NOW)
    record = Reply(turn=0, response=response)

    assert decode(encode(record)) == record_from_dict(record_to_dict(record))


def deep(levels: int, *, mappings: bool = False) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"in": value} if mappings else [value]
    return value


def ring() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "content", ["\ud800", deep(2000), deep(2000, mappings=True), ring(), object()]
)
def test_a_result_that_is_no_json_is_refused(content: Any) -> None:
    """J16."""
    part = ToolReturnPart("t", content, tool_call_id="c", timestamp=NOW)

    with pytest.raises(RecordRefused, match="result"):
        encode(Result(call_key="r.0.0", part=part))
