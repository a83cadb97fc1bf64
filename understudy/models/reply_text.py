"""A model's reply with text that can be stored and sent: valid Unicode.

A provider's JSON may hold the escape of half a surrogate pair. A stream that is cut without regard
for characters holds many.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart

from understudy._base.json_values import holds_invalid_text, is_storable_text, storable_text

_HALF = re.compile("[\ud800-\udfff]")


def with_valid_text(response: ModelResponse) -> ModelResponse:
    """The reply with U+FFFD for each half of a surrogate pair in its text, and the pairs joined.

    Arguments of a tool call keep what they say, as escapes in their JSON: so they are no valid
    arguments, and the call goes back to the model.
    """
    if not all(map(_is_valid, response.parts)):
        parts = [part if _is_valid(part) else _made_valid(part) for part in response.parts]
        response = replace(response, parts=parts)
    if response.provider_details and holds_invalid_text(response.provider_details):
        response = replace(response, provider_details=_valid(response.provider_details))
    return response


def _is_valid(part: Any) -> bool:
    if isinstance(part, ToolCallPart):
        args, name, identity = part.args, part.tool_name, part.tool_call_id
        if isinstance(args, str):
            return is_storable_text(f"{args}{name}{identity}")
        for key, value in (args or {}).items():  # the common case, in a fifth of the time
            if type(value) is not str or not value.isascii() or not str(key).isascii():
                break
        else:
            return is_storable_text(f"{name}{identity}")
        return not holds_invalid_text((args, name, identity))
    return not isinstance(part, (TextPart, ThinkingPart)) or is_storable_text(part.content)


def _made_valid(part: Any) -> Any:
    if isinstance(part, ToolCallPart):
        return _with_escapes(part)
    return replace(part, content=storable_text(part.content))


def _with_escapes(part: ToolCallPart) -> ToolCallPart:
    text = json.dumps(part.args) if isinstance(part.args, dict) else part.args
    return replace(
        part,
        args=text and _HALF.sub(lambda half: f"\\u{ord(half.group()):04x}", text),
        tool_name=storable_text(part.tool_name),
        tool_call_id=storable_text(part.tool_call_id),
    )


def _valid(value: Any) -> Any:
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, dict):
        return {_valid(key): _valid(item) for key, item in value.items()}
    return [_valid(item) for item in value] if isinstance(value, list) else value
