"""The authors of messages: the persons who sent them, and the agents of a workflow.

A message of an agent carries the agent's name in its metadata. In the view of that agent it is the
model's own message; in the view of another agent it is a user prompt that names the author.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

_AUTHOR = "author"
_FOR_ITSELF = "for_itself"
_SENT_BY = "sent_by"

GO_ON = "Go on with your part, as your instructions say."
"""The prompt after a reply of the agent's own that would be the last message: models need a
prompt."""


def author_of(message: ModelMessage) -> str | None:
    """The name of the agent that is the author; None for the user, and outside of workflows."""
    author = (message.metadata or {}).get(_AUTHOR)
    return author if isinstance(author, str) else None


def with_author(message: ModelMessage, author: str) -> ModelMessage:
    """The message with its author in the metadata, unless the metadata name an author already."""
    if message.metadata and _AUTHOR in message.metadata:
        return message
    # `replace` makes each field anew: with it a branch that answers once takes 6 % longer.
    twin: ModelMessage = object.__new__(type(message))
    vars(twin).update(vars(message))
    twin.metadata = {**(message.metadata or {}), _AUTHOR: author}
    return twin


def from_user(message: ModelRequest) -> ModelRequest:
    """The message with the user as its author, whichever agent of a workflow it is sent to."""
    return replace(message, metadata={**(message.metadata or {}), _AUTHOR: None})


def sent_by(message: ModelRequest, persons: Iterable[object]) -> ModelRequest:
    """The message with the names of the persons who sent it, which are not sent to models.

    Args:
        message: a message of a conversation.
        persons: names, or objects whose text is a name.

    """
    given = [str(each) for each in persons]
    if not given:
        return message
    return replace(message, metadata={**(message.metadata or {}), _SENT_BY: given})


def senders_of(message: ModelRequest) -> list[str]:
    """The names of the persons who sent a message of a conversation; empty if nobody is named."""
    found = (message.metadata or {}).get(_SENT_BY)
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def for_itself(message: ModelRequest) -> ModelRequest:
    """The message marked as one for this run of this agent alone.

    It does not become part of a workflow's conversation: "call no tools, answer now" applies
    neither to other agents nor to the agent's next run.
    """
    return replace(message, metadata={**(message.metadata or {}), _FOR_ITSELF: True})


def go_on_prompt(at: datetime) -> ModelRequest:
    """The prompt where the model's own reply is the last message, marked by `for_itself`."""
    return for_itself(ModelRequest(parts=[UserPromptPart(GO_ON, timestamp=at)], timestamp=at))


def is_for_itself(message: ModelMessage) -> bool:
    """Whether `for_itself` marked it."""
    return _FOR_ITSELF in (message.metadata or {})


def in_words(author: str, message: ModelMessage) -> str | list[UserContent]:
    """A message of another agent as text; files as they are."""
    lines: list[str] = []
    files: list[UserContent] = []
    for part in message.parts:
        match part:
            case TextPart(content=text) if text:
                lines.append(f"[{author}] said: {text}")
            case ToolCallPart(tool_name=tool):
                lines.append(f"[{author}] called {tool}({json.dumps(part.args_as_dict())})")
            case ToolReturnPart(tool_name=tool):
                text, more = part.model_response_str_and_user_content()
                lines.append(f"[{author}] got from {tool}: {text}")
                files += more
            case UserPromptPart(content=content):
                lines.append(f"[{author}] was told: {_text(content)}")
                files += [item for item in content if not isinstance(item, str)]
            case _:
                pass  # thinking, and parts that only one provider understands
    text = "\n".join(lines)
    return [text, *files] if files else text


def _text(content: str | Sequence[UserContent]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(item for item in content if isinstance(item, str))
