"""What we rely on in Pydantic AI and its documentation does not promise.

Each test names the place of ours that rests on it: when one fails after an upgrade, look there.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import types
import typing
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime, timezone
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from pydantic import BaseModel
from pydantic_ai import messages as ai
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    BinaryImage,
    CachePoint,
    DocumentUrl,
    FilePart,
    ImageUrl,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponseStreamEvent,
    NativeToolCallPart,
    NativeToolReturnPart,
    PartStartEvent,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    VideoUrl,
    is_multi_modal_content,
    repair_messages,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers import Provider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import Tool as SchemaTool
from pydantic_ai.usage import RequestUsage

from understudy import ScriptedModel, UsageError, tool
from understudy.models.messages import messages_from_dicts, messages_to_dicts

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
PIXEL = b"\x89PNG\r\n\x1a\n not a real picture"


# --------------------------------------------------------------------------- models


def test_a_model_replaces_the_client_of_a_dead_loop_by_this_private_name() -> None:
    """`models.refresh_client`: Pydantic AI's own agent calls it at the start of each run."""
    assert list(inspect.signature(Model._refresh_http_client).parameters) == ["self"]
    assert not inspect.iscoroutinefunction(Model._refresh_http_client)
    refreshed = []

    class Recorded(OpenAIProvider):
        def _refresh_http_client(self) -> None:
            refreshed.append(self)

    assert "_refresh_http_client" in vars(Provider)
    provider = Recorded(base_url="http://127.0.0.1:9/v1", api_key="test")
    OpenAIChatModel("any", provider=provider)._refresh_http_client()
    assert refreshed == [provider]
    ScriptedModel([])._refresh_http_client()  # a model without a provider has nothing to do


def test_a_model_has_the_methods_that_are_called_past_pydantic_ais_agent() -> None:
    """`modes.model_steps`: requests go to the model itself."""
    request = list(inspect.signature(Model.request).parameters)
    assert request == ["self", "messages", "model_settings", "model_request_parameters"]
    stream = list(inspect.signature(Model.request_stream).parameters)
    assert stream[:4] == request
    assert all(
        parameter.default is None
        for parameter in list(inspect.signature(Model.request_stream).parameters.values())[4:]
    ), "a stream is asked for with three arguments"
    prepare = list(inspect.signature(Model.prepare_messages).parameters)
    assert prepare == ["self", "messages", "model_request_parameters"]
    assert isinstance(ScriptedModel([]).profile, dict), "profile.get(...) is a mapping's"


def test_instructions_go_to_a_model_in_its_parameters() -> None:
    """`model_input.ModelInput.parameters`."""
    names = {field.name for field in dataclasses.fields(ModelRequestParameters)}
    assert {"function_tools", "instruction_parts"} <= names
    parameters = ModelRequestParameters(instruction_parts=[InstructionPart(content="Be brief.")])
    assert ScriptedModel([]).prepare_request(None, parameters)[1].instruction_parts == [
        InstructionPart(content="Be brief.")
    ]


class ScriptedStream(StreamedResponse):
    """One that brings nothing."""

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        return
        yield

    @property
    def model_name(self) -> str:
        return "any"

    @property
    def provider_name(self) -> str | None:
        return None

    @property
    def provider_url(self) -> str | None:
        return None

    @property
    def timestamp(self) -> datetime:
        return NOW


def test_a_streamed_response_has_what_the_scripted_stream_is_made_of() -> None:
    """`models._ScriptedStream`."""
    for name in ("_get_event_iterator", "close_stream", "get"):
        assert callable(getattr(StreamedResponse, name))
    fields = {field.name for field in dataclasses.fields(StreamedResponse)}
    assert {"model_request_parameters", "_usage"} <= fields
    manager = ScriptedStream(ModelRequestParameters())._parts_manager
    (started,) = manager.handle_text_delta(vendor_part_id=0, content="Hi")
    assert isinstance(started, PartStartEvent)
    whole = manager.handle_part(vendor_part_id=1, part=ToolCallPart("look", {}))
    assert isinstance(whole, PartStartEvent)
    required = [
        field.name
        for field in dataclasses.fields(StreamedResponse)
        if field.init
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    assert required == ["model_request_parameters"]


def test_a_reply_tells_its_state_and_why_it_finished_in_these_words() -> None:
    """`modes.model_steps`, `modes.end_steps`: what is broken, cut or to be continued."""
    states = get_args(get_type_hints(ModelResponse)["state"])
    assert {"complete", "incomplete", "interrupted", "suspended"} == set(states)
    assert "length" in get_args(ai.FinishReason)
    outcomes = get_args(get_type_hints(ToolReturnPart)["outcome"])
    assert {"success", "failed", "denied", "interrupted"} <= set(outcomes)


# --------------------------------------------------------------------------- tools


class Point(BaseModel):
    x: int
    y: int = 0


def several(order: str, amount: float = 1.0) -> str:
    """Two parameters."""
    return ""


def single(point: Point) -> str:
    """One parameter that is a model: its fields are the schema."""
    return ""


def positional(first: int, /, second: int) -> str:
    """One that goes by its place only."""
    return ""


@pytest.mark.parametrize(
    ("function", "given", "validated"),
    [
        (several, '{"order": "1"}', {"order": "1", "amount": 1.0}),
        (single, '{"x": 1}', {"point": Point(x=1)}),
        (positional, '{"first": 1, "second": 2}', {"first": 1, "second": 2}),
    ],
)
def test_a_schema_validates_arguments_to_a_mapping_by_parameter(
    function: Callable[..., str], given: str, validated: dict[str, Any]
) -> None:
    """`tools.Tool.validate`."""
    schema = SchemaTool(function, takes_ctx=False).function_schema
    assert schema.validator.validate_json(given) == validated
    assert schema.validator.validate_python(json.loads(given)) == validated


@pytest.mark.parametrize(
    ("function", "single_arg", "by_place"),
    [
        (several, None, []),
        (single, "point", []),
        (positional, None, ["first"]),
    ],
)
def test_a_schema_tells_how_its_arguments_are_passed(
    function: Callable[..., str], single_arg: str | None, by_place: list[str]
) -> None:
    """`tools.Tool.bind` and `canonical`."""
    schema = SchemaTool(function, takes_ctx=False).function_schema
    assert schema.single_arg_name == single_arg
    assert schema.positional_fields == by_place
    assert schema.takes_ctx is False


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (several, {"order": "1", "amount": 2.5}),
        (single, {"x": 1, "y": 2}),
        (positional, {"first": 1, "second": 2}),
    ],
)
def test_arguments_come_back_as_they_were_and_reach_their_parameters(
    function: Callable[..., str], arguments: dict[str, Any]
) -> None:
    """`tools.Tool`: validated, written down, read back, passed on."""
    made = tool(function)
    checked = made.validate(json.dumps(arguments))
    canonical = made.canonical(checked)
    assert canonical == arguments
    assert made.revalidate(canonical) == checked
    by_place, by_name = made.bind(checked)
    bound = inspect.signature(function).bind(*by_place, **by_name)
    assert set(bound.arguments) == set(inspect.signature(function).parameters)


def test_without_a_context_no_parameter_is_taken_for_one() -> None:
    """`tools._schema_tool`: takes_ctx=False, so that the stand-in's parameters all count."""

    def stand_in(ctx: str, rest: int) -> None:
        """Its first parameter looks like a context by its name."""

    made = SchemaTool(stand_in, takes_ctx=False)
    assert made.takes_ctx is False
    assert list(made.tool_def.parameters_json_schema["properties"]) == ["ctx", "rest"]


def test_a_schema_is_made_from_the_signature_that_a_stand_in_says_it_has() -> None:
    """`tools._schema_tool`: `__signature__`, `__annotations__`, `__doc__` are believed."""

    def stand_in() -> None: ...

    stand_in.__doc__ = "Find it.\n\nArgs:\n    order: its number."
    stand_in.__annotations__ = {"order": str}
    parameter = inspect.Parameter("order", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=str)
    stand_in.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]  # as ours
    made = SchemaTool(stand_in, takes_ctx=False, name="find")
    assert made.tool_def.name == "find"
    assert made.tool_def.description == "Find it."
    properties = made.tool_def.parameters_json_schema["properties"]
    assert properties == {"order": {"type": "string", "description": "its number."}}


def test_a_type_without_a_schema_is_the_callers_error() -> None:
    """`tools._schema_tool`: which errors mean that no schema can be made."""

    class Opaque:
        pass

    def takes(thing: Any) -> str:
        """Do."""
        return ""

    takes.__annotations__["thing"] = Opaque
    with pytest.raises(UsageError, match="'takes'"):
        tool(takes)


@pytest.mark.parametrize(
    "content",
    [
        ImageUrl("https://example.com/a.png"),
        AudioUrl("https://example.com/a.mp3"),
        VideoUrl("https://example.com/a.mp4"),
        DocumentUrl("https://example.com/a.pdf"),
        BinaryContent(PIXEL, media_type="image/png"),
    ],
)
def test_files_are_told_from_data(content: Any) -> None:
    """`tools.model_content`."""
    assert is_multi_modal_content(content)
    assert not is_multi_modal_content("text")
    assert not is_multi_modal_content({"kind": "image-url"})


# --------------------------------------------------------------------------- messages


def conversation() -> list[ModelMessage]:
    """Every kind of part that a normal conversation has, each with its fields set."""
    return [
        ModelRequest(
            parts=[
                SystemPromptPart("Be brief.", timestamp=NOW),
                UserPromptPart(
                    [
                        "Look:",
                        ImageUrl("https://example.com/a.png", force_download=True),
                        BinaryImage(PIXEL, media_type="image/png", identifier="pixel"),
                        BinaryContent(b"\xff\x00 sound", media_type="audio/wav"),
                        DocumentUrl("https://example.com/a.pdf", vendor_metadata={"page": 1}),
                        AudioUrl("https://example.com/a.mp3"),
                        VideoUrl("https://example.com/noextension", media_type="video/mp4"),
                        CachePoint(),
                    ],
                    timestamp=NOW,
                ),
            ],
            timestamp=NOW,
            run_id="run-1",
            metadata={"who": "me", "empty": None},
        ),
        ModelResponse(
            parts=[
                ThinkingPart("Hm.", id="t1", signature="s", provider_name="openai"),
                TextPart("I look.", provider_details={"nothing": None}),
                ToolCallPart("as_text", '{"a": 1', tool_call_id="c1"),
                ToolCallPart("as_dict", {"a": None, "b": [None]}, tool_call_id="c2"),
                ToolCallPart("bare", None, tool_call_id="c3"),
                NativeToolCallPart("web_search", {"q": "x"}, tool_call_id="n1"),
                NativeToolReturnPart("web_search", {"r": None}, tool_call_id="n1", timestamp=NOW),
            ],
            usage=RequestUsage(input_tokens=3, output_tokens=2, details={"reasoning": 1}),
            model_name="m",
            timestamp=NOW,
            provider_name="openai",
            provider_details={"finish_reason": "tool_calls"},
            provider_response_id="r1",
            finish_reason="tool_call",
        ),
        ModelRequest(
            parts=[
                ToolReturnPart("as_text", "no", tool_call_id="c1", timestamp=NOW, outcome="failed"),
                ToolReturnPart(
                    "as_dict", {"a": None, "b": [1, None]}, tool_call_id="c2", timestamp=NOW
                ),
                ToolReturnPart("bare", None, tool_call_id="c3", timestamp=NOW, outcome="denied"),
            ],
            timestamp=NOW,
        ),
        ModelResponse(
            parts=[
                TextPart("Half an ans"),
                FilePart(BinaryImage(PIXEL, media_type="image/png")),
            ],
            timestamp=NOW,
            state="interrupted",
        ),
    ]


def test_a_conversation_comes_back_from_json_as_it_was() -> None:
    """`messages.messages_to_dicts` and `messages_from_dicts`."""
    before = conversation()
    written = json.dumps(messages_to_dicts(before))
    after = messages_from_dicts(json.loads(written))
    assert after == before
    assert [type(part) for message in after for part in message.parts] == [
        type(part) for message in before for part in message.parts
    ]
    assert json.dumps(messages_to_dicts(after)) == written


def test_files_that_a_tool_returned_come_back_from_json_as_files() -> None:
    """`messages.messages_to_dicts`: a tool's content may be files, or hold some."""
    picture = BinaryImage(PIXEL, media_type="image/png")
    contents = [picture, ["See:", picture], [ImageUrl("https://example.com/a.png"), picture]]
    for content in contents:
        part = ToolReturnPart("look", content, tool_call_id="c1", timestamp=NOW)
        before = [ModelRequest(parts=[part], timestamp=NOW)]
        after = messages_from_dicts(json.loads(json.dumps(messages_to_dicts(before))))
        assert after == before


def test_data_that_only_looks_like_a_file_stays_data() -> None:
    """`messages.messages_to_dicts`: a tool may return any JSON."""
    contents: tuple[Any, ...] = (
        {"kind": "image-url", "url": "x"},
        {"kind": "binary"},
        [],
        {},
        0,
        False,
        "",
    )
    for content in contents:
        part = ToolReturnPart("look", content, tool_call_id="c1", timestamp=NOW)
        before = [ModelRequest(parts=[part], timestamp=NOW)]
        (after,) = messages_from_dicts(json.loads(json.dumps(messages_to_dicts(before))))
        (returned,) = after.parts
        assert isinstance(returned, ToolReturnPart)
        assert returned.content == content
        assert type(returned.content) is type(content)


def _classes(annotation: Any) -> Iterator[type]:
    """The classes in an annotation of messages or parts."""
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        yield annotation
        return
    for inner in get_args(annotation):
        yield from _classes(inner)


def _may_be_none(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin is typing.Annotated:
        return _may_be_none(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return any(_may_be_none(inner) for inner in get_args(annotation))
    if origin is Literal:
        return None in get_args(annotation)
    if isinstance(annotation, typing.TypeVar):
        return annotation.__bound__ is None or _may_be_none(annotation.__bound__)
    value = getattr(annotation, "__value__", annotation)  # a `TypeAliasType`
    if value is not annotation:
        return _may_be_none(value)
    return annotation in (None, type(None), Any, object)


STORED = sorted(
    {*_classes(ModelMessage), *_classes(ai.ModelRequestPart), *_classes(ai.ModelResponsePart)},
    key=lambda cls: cls.__name__,
)


def test_the_classes_that_are_stored_are_all_found() -> None:
    """The next test walks them; it must not walk an empty list."""
    assert {
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        UserPromptPart,
        ToolReturnPart,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        NativeToolCallPart,
        NativeToolReturnPart,
        FilePart,
    } <= set(STORED)
    optional = [f.name for f in dataclasses.fields(ThinkingPart) if f.default is None]
    hints = get_type_hints(ThinkingPart, include_extras=True)
    assert optional
    assert all(_may_be_none(hints[name]) for name in optional), "the walk knows what may be None"


KEPT = {("InstructionDeltaPart", "id"), ("InstructionDeltaPart", "content")}
"""What may be None and must be given: it is written down even if it is None."""


@pytest.mark.parametrize("cls", STORED, ids=lambda cls: cls.__name__)
def test_what_may_be_none_is_none_by_default(cls: type) -> None:
    """`messages._without_unset` drops None where it is the default; `content` it keeps."""
    hints = get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        if field.name == "content" or not _may_be_none(hints[field.name]):
            continue
        kept = (cls.__name__, field.name) in KEPT
        assert (field.default is None) is not kept, f"{cls.__name__}.{field.name} may be None"


def test_what_may_be_none_and_has_no_default_comes_back_from_json() -> None:
    """`messages._without_unset`: a change of an instruction whose source is not known here."""
    withdrawn = ai.InstructionDeltaPart(id=None, content=None)
    known = ai.InstructionDeltaPart(id=None, content="Be brief.")
    before = [ModelRequest(parts=[withdrawn, known], timestamp=NOW)]
    assert messages_from_dicts(json.loads(json.dumps(messages_to_dicts(before)))) == before


@pytest.mark.parametrize("cls", [ModelRequest, ModelResponse], ids=lambda cls: cls.__name__)
def test_a_message_has_no_content_of_its_own(cls: type) -> None:
    """`messages._without_unset` keeps None under this name in parts alone."""
    assert "content" not in {field.name for field in dataclasses.fields(cls)}
    assert "parts" in {field.name for field in dataclasses.fields(cls)}


# --------------------------------------------------------------------------- histories


def test_a_call_without_a_result_gets_one_and_a_result_without_a_call_goes() -> None:
    """`messages.normalised`."""
    history: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart("Hi", timestamp=NOW)], timestamp=NOW),
        ModelResponse(
            parts=[
                ToolCallPart("look", "{}", tool_call_id="c1"),
                ToolCallPart("look", "{}", tool_call_id="c2"),
            ],
            timestamp=NOW,
        ),
        ModelRequest(
            parts=[
                ToolReturnPart("look", "found", tool_call_id="c1", timestamp=NOW),
                ToolReturnPart("look", "of no call", tool_call_id="c9", timestamp=NOW),
            ],
            timestamp=NOW,
        ),
        ModelResponse(parts=[ToolCallPart("look", "{}", tool_call_id="c3")], timestamp=NOW),
    ]
    untouched = messages_to_dicts(history)
    repaired = repair_messages(history)
    found = {
        part.tool_call_id: part
        for message in repaired
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    }
    assert set(found) == {"c1", "c2", "c3"}
    assert found["c1"].content == "found"
    assert {found["c2"].outcome, found["c3"].outcome} == {"interrupted"}
    assert messages_to_dicts(history) == untouched, "it works on a copy"
    assert repair_messages(repaired) == repaired


def test_a_valid_history_is_left_as_it_is() -> None:
    """`messages.normalised`, and what the fold makes needs no repair."""
    history = conversation()
    assert messages_to_dicts(repair_messages(history)) == messages_to_dicts(conversation())


def test_a_plain_conversation_needs_no_preparation_for_a_model_that_reads_all_of_it() -> None:
    """`modes.model_steps._ask` leaves `prepare_messages` out for conversations like this."""
    history: list[ModelMessage] = [
        message
        for message in conversation()
        if not any(isinstance(part, FilePart) for part in message.parts)
    ]
    provider = OpenAIProvider(base_url="http://127.0.0.1:9/v1", api_key="test")
    models: list[Model[Any]] = [ScriptedModel([]), OpenAIChatModel("gpt-5-mini", provider=provider)]
    for model in models:
        prepared = model.prepare_messages(list(history), ModelRequestParameters())
        assert messages_to_dicts(prepared) == messages_to_dicts(history), model


def test_a_part_tells_a_listener_of_its_start_with_all_that_it_holds() -> None:
    """`modes.model_steps._Teller`: the first text of a part comes with its start."""
    assert {field.name for field in dataclasses.fields(PartStartEvent)} >= {"index", "part"}
    assert dataclasses.fields(ai.TextPartDelta)[0].name == "content_delta"
    assert dataclasses.fields(ai.ThinkingPartDelta)[0].name == "content_delta"
