"""Who said what in a conversation of several agents, and what each of them is shown of it (W5).

What an agent of a workflow says enters the conversation with its name on it. To itself it is shown
as its own; to the others as something that they are told, marked with the author.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

__all__ = ["author_of", "for_itself", "from_user", "is_for_itself", "signed", "view_for"]

_KEY = "author"
_OWN = "for_itself"

GO_ON = "Go on with your part, as your instructions say."
"""Said where an agent would answer itself: models answer others."""


def author_of(message: ModelMessage) -> str | None:
    """The agent of a workflow that said it; None for the user, and outside of workflows."""
    author = (message.metadata or {}).get(_KEY)
    return author if isinstance(author, str) else None


def signed(message: ModelMessage, author: str) -> ModelMessage:
    """The message with its author on it, unless it is known already whose it is."""
    if message.metadata and _KEY in message.metadata:
        return message
    return replace(message, metadata={**(message.metadata or {}), _KEY: author})


def from_user(message: ModelRequest) -> ModelRequest:
    """The message as one of the user, wherever in a workflow it arrives."""
    return replace(message, metadata={**(message.metadata or {}), _KEY: None})


def for_itself(message: ModelRequest) -> ModelRequest:
    """The message as one that holds for this run of this agent alone (P8).

    It does not enter the conversation of a workflow: "call no tools, answer now" is meant neither
    for the others nor for the agent's next part.
    """
    return replace(message, metadata={**(message.metadata or {}), _OWN: True})


def is_for_itself(message: ModelMessage) -> bool:
    """Whether `for_itself` made it."""
    return _OWN in (message.metadata or {})


def view_for(
    name: str, messages: Sequence[ModelMessage], *, at: datetime, latest: bool, raw: bool
) -> list[ModelMessage]:
    """The conversation as the agent of this name is shown it when its turn comes.

    Args:
        name: the agent; what it said itself is left as it is.
        messages: the whole conversation.
        at: when its turn came, for what is said to it in between.
        latest: only the latest turn by somebody else.
        raw: as it is, for a workflow: its agents are shown it, not itself.

    """
    told = _latest_by_others(name, messages) if latest else messages
    if raw:
        return list(told)
    view: list[ModelMessage] = []
    for message in _shown(name, told, at):
        if view and isinstance(view[-1], ModelResponse) and isinstance(message, ModelResponse):
            view.append(_prompt(GO_ON, at))
        view.append(message)
    if view and isinstance(view[-1], ModelResponse):
        view.append(_prompt(GO_ON, at))
    return view


def _latest_by_others(name: str, messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
    """The last reply of another agent with its results, or the last message of the user."""
    for index in range(len(messages) - 1, -1, -1):
        author = author_of(messages[index])
        if author == name:
            continue
        whole = index
        if author is not None:
            while isinstance(messages[whole], ModelRequest) and whole > 0:
                if author_of(messages[whole - 1]) != author:
                    break
                whole -= 1
        return list(messages[whole : index + 1])
    return messages


def _shown(name: str, messages: Sequence[ModelMessage], at: datetime) -> Iterator[ModelMessage]:
    for message in messages:
        author = author_of(message)
        if author is None or author == name:
            yield message
            continue
        content = _told(author, message)
        if content:
            yield _prompt(content, message.timestamp or at)


def _prompt(content: str | list[UserContent], at: datetime) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(content, timestamp=at)], timestamp=at)


def _told(author: str, message: ModelMessage) -> str | list[UserContent]:
    """What another agent said and did, in words; files as they are."""
    lines: list[str] = []
    files: list[UserContent] = []
    for part in message.parts:
        match part:
            case TextPart(content=text) if text:
                lines.append(f"[{author}] said: {text}")
            case ToolCallPart(tool_name=tool):
                lines.append(f"[{author}] called {tool}({_arguments(part.args)})")
            case ToolReturnPart(tool_name=tool):
                text, more = part.model_response_str_and_user_content()
                lines.append(f"[{author}] got from {tool}: {text}")
                files += more
            case UserPromptPart(content=content):
                lines.append(f"[{author}] was told: {_text(content)}")
                files += [item for item in content if not isinstance(item, str)]
            case _:
                pass  # thoughts and what only one provider understands are nobody else's
    text = "\n".join(lines)
    return [text, *files] if files else text


def _text(content: str | Sequence[UserContent]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(item for item in content if isinstance(item, str))


def _arguments(args: Any) -> str:
    if not args:
        return ""
    return args if isinstance(args, str) else json.dumps(args)
