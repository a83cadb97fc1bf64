"""The half of a message that is for people, if it differs from what the model gets.

It is in the metadata of the message, which is not sent to providers. So it is stored, exported and
compacted with the message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    TextContent,
    UserContent,
    UserPromptPart,
)

_CALLS = "display_texts"
DISPLAY = "display"
"""The key of the display half: in the metadata of a `TextContent`, and of a tool's result."""


def with_display_texts(response: ModelResponse, texts: Mapping[str, str]) -> ModelResponse:
    """The reply with what a person reads of its calls, by tool call id."""
    return replace(response, metadata={**(response.metadata or {}), _CALLS: dict(texts)})


def display_texts_of(response: ModelResponse) -> Mapping[str, str]:
    """The texts that a person reads of the reply's calls, by tool call id, if they have one."""
    found = (response.metadata or {}).get(_CALLS)
    if not isinstance(found, Mapping):
        return {}
    return {str(key): text for key, text in found.items() if isinstance(text, str)}


def display_of(metadata: object) -> str | None:
    """The display half in this metadata; None if there is none."""
    found = metadata.get(DISPLAY) if isinstance(metadata, Mapping) else None
    return found if isinstance(found, str) else None


def halves_of(message: ModelRequest) -> tuple[str, str]:
    """A user's message as a person reads it and as the model gets it; files are named by their
    type.
    """
    shown: list[str] = []
    given: list[str] = []
    for part in message.parts:
        if isinstance(part, UserPromptPart):
            items: Sequence[UserContent] = (
                [part.content] if isinstance(part.content, str) else part.content
            )
            for item in items:
                text = _text_of(item)
                display = display_of(item.metadata) if isinstance(item, TextContent) else None
                given.append(text)
                if display != "":
                    shown.append(text if display is None else display)
    return "\n".join(shown), "\n".join(given)


def _text_of(item: Any) -> str:
    if isinstance(item, str):
        return item
    if isinstance(item, TextContent):
        return item.content
    return f"[{getattr(item, 'media_type', None) or getattr(item, 'kind', 'file')}]"
