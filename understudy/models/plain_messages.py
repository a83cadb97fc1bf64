"""Finds the messages that are sent unchanged to every model, whatever its `prepare_messages`
does.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import Any

from pydantic_ai.messages import (
    FilePart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model

_TEXTLESS = frozenset({int, float, bool, type(None)})
"""The types of content that holds neither text nor a file: it is sent as JSON."""
PLAIN_REPLIES: frozenset[type] = frozenset(
    {TextPart, ThinkingPart, ToolCallPart, NativeToolCallPart, NativeToolReturnPart, FilePart}
)
"""The types of the parts of a reply that is sent unchanged."""
_BEGIN_TAGS = ("<", "&", "\uff1c", "\ufe64", "\uff06", "\ufe60")
"""The characters that Unicode folds to `<`, or to the `&` of an entity for it. A text without them
opens no tag (`test_the_characters_that_begin_a_tag_are_all_known`)."""


def is_plain(message: ModelRequest, previous: ModelMessage | None) -> bool:
    """Whether this message is sent unchanged to every model, whatever the other messages are.

    A reply is, if its parts are of `PLAIN_REPLIES`. For a few messages that are sent unchanged the
    answer is False. Two things depend on the model and are not looked at here: see
    `preparation.needs_preparation`.

    Args:
        message: a message of a conversation.
        previous: the message before it; None for the first one.

    """
    opens_no_tag = True
    results = 0
    for index, part in enumerate(message.parts):
        if type(part) is ToolReturnPart:
            if results != index:  # results come first, in the order of the calls
                return False
            results += 1
            text = part.content
            if type(text) in _TEXTLESS:
                continue
            if not isinstance(text, str):
                if part.files:
                    return False
                text = part.model_response_str(wrap_if_error=False)
            opens_no_tag &= _opens_no_tag(text)
        elif type(part) is UserPromptPart:
            opens_no_tag &= isinstance(part.content, str) and _opens_no_tag(part.content)
        elif not (previous is None and _is_standing(message.parts[: index + 1])):
            return False
    if results > 1 and not _in_call_order(message.parts[:results], previous):
        return False
    return opens_no_tag or _is_left_as_it_is(message)


def kind_of_thinking(response: ModelResponse, part: ThinkingPart) -> Hashable:
    """The kind by which models distinguish their own thinking from that of other models."""
    return (
        bool(part.signature),
        part.id,
        part.provider_name,
        response.provider_name,
        response.provider_url,
        response.canonical_system,
    )


def _opens_no_tag(text: str) -> bool:
    if text.isascii():  # the common case, in a fifth of the time
        return "<" not in text and "&" not in text
    return not any(character in text for character in _BEGIN_TAGS)


def _is_standing(parts: Any) -> bool:
    """Whether these parts, which open the first message, are a system prompt like any other."""
    return all(
        type(part) is SystemPromptPart and part.context_id is None and part.scope != "request"
        for part in parts
    )


def _in_call_order(results: Any, previous: ModelMessage | None) -> bool:
    calls = previous.parts if isinstance(previous, ModelResponse) else ()
    return [part.tool_call_id for part in results] == [
        part.tool_call_id for part in calls if isinstance(part, ToolCallPart)
    ]


def _is_left_as_it_is(message: ModelMessage) -> bool:
    """Whether a model's preparation leaves this message unchanged. Only asked if a tag may open."""
    return _any_model().prepare_messages([message])[0] is message


@cache
def _any_model() -> Model:
    return _AnyModel(profile={"context_window": None})


class _AnyModel(Model):
    """A model with Pydantic AI's default profile. It is never sent a request."""

    model_name = system = "any"

    async def request(self, *_: Any) -> Any:
        raise AssertionError("this model only prepares messages")
