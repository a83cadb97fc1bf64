"""`patch_history`: a history from elsewhere becomes one that any model takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from understudy._base.json_values import reason, shown
from understudy.errors import UsageError
from understudy.models.messages import messages_from_dicts, normalised


def patch_history(messages: Iterable[object]) -> list[ModelMessage]:
    """Make a history from elsewhere well-formed, to begin a conversation with it.

    The history may be cut anywhere, at its beginning and at its end. A well-formed history stays
    unchanged, so you can patch it again.

    - A call without a result gets a result that says so.
    - A result without a call is left out.
    - Of repeated ids, all but the first are replaced.
    - A result that comes too late is moved behind its call.
    - Empty messages are left out.
    - A history that begins with a reply gets a message of the user in front.

    `AgentState(messages=...)`, `run.replace_history` and `initial_messages` do the same with
    messages of Pydantic AI.

    Args:
        messages: messages of Pydantic AI, or their JSON as dicts; or messages of OpenAI's chat
            completions, as dicts with a `role` or as objects of its package.

    Raises:
        UsageError: if an item is not a message, or cannot be stored. The error names its index.

    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise UsageError(
            f"patch_history: `messages` must be a list of messages, got {shown(messages)}"
        )
    chat = _Chat()
    return normalised([chat.read(index, given) for index, given in enumerate(messages)])


class _Chat:
    """A reader of chat messages in order, which knows the tool names of the calls so far."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        """The tool names of the calls so far, by call id."""

    def read(self, index: int, given: Any) -> ModelMessage:
        if isinstance(given, (ModelRequest, ModelResponse)):
            return given
        if not isinstance(given, Mapping) and callable(getattr(given, "model_dump", None)):
            given = given.model_dump()
        place = f"messages[{index}]"
        if not isinstance(given, Mapping) or not ("role" in given or "kind" in given):
            raise UsageError(
                f"patch_history: {place} must be a message of Pydantic AI, or a dict with a `role` "
                f"as OpenAI's, got {shown(given)}"
            )
        try:
            if "role" not in given:
                return messages_from_dicts([dict(given)])[0]
            return self._of_openai(given, place)
        except (ValidationError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise UsageError(f"patch_history: {place} cannot be read: {reason(error)}") from error

    def _of_openai(self, given: Mapping[str, Any], place: str) -> ModelMessage:
        content = given.get("content")
        match given["role"]:
            case "system" | "developer":
                return ModelRequest(parts=[SystemPromptPart(_text(content, place))])
            case "user":
                items = content if isinstance(content, str) else _items(content, place)
                return ModelRequest(parts=[UserPromptPart(items)])
            case "assistant":
                return self._reply(given, place)
            case "tool":
                call_id = _word(given, "tool_call_id", place, needed=False)
            case "function":  # before calls had ids, the tool name identified a call
                call_id = _word(given, "name", place)
            case role:
                raise UsageError(
                    f"patch_history: {place} has the role {shown(role)}; roles are system, "
                    "developer, user, assistant, tool and function"
                )
        name = self._names.get(call_id) or _word(given, "name", place, needed=False) or "unknown"
        result = ToolReturnPart(name, _text(content, place), tool_call_id=call_id)
        return ModelRequest(parts=[result])

    def _reply(self, given: Mapping[str, Any], place: str) -> ModelResponse:
        parts: list[ModelResponsePart] = []
        for text in (_text(given.get("content"), place), given.get("refusal")):
            if text:
                parts.append(TextPart(_text(text, place)))
        for call in given.get("tool_calls") or ():
            call_id = _word(call, "id", place, needed=False)
            parts.append(self._call(call.get("function") or call.get("custom"), call_id, place))
        old = given.get("function_call")
        if old:
            parts.append(self._call(old, _word(old, "name", place), place))
        return ModelResponse(parts=parts)

    def _call(self, given: Any, call_id: str, place: str) -> ToolCallPart:
        if not isinstance(given, Mapping):
            raise UsageError(f"patch_history: {place} has a tool call without a function")
        name = _word(given, "name", place)
        arguments = given.get("arguments")
        if arguments is None and isinstance(given.get("input"), str):  # of a tool with plain text
            arguments = {"input": given["input"]}
        if arguments is not None and not isinstance(arguments, (str, dict)):
            raise UsageError(
                f"patch_history: {place}: the arguments of {shown(name)} must be JSON text, got "
                f"{shown(arguments)}"
            )
        self._names[call_id] = name
        return ToolCallPart(name, arguments, tool_call_id=call_id)


def _word(given: Any, key: str, place: str, *, needed: bool = True) -> str:
    word = given.get(key) if isinstance(given, Mapping) else None
    if word is None and not needed:
        return ""
    if not isinstance(word, str) or (needed and not word):
        raise UsageError(f"patch_history: {place} needs `{key}` as text, got {shown(word)}")
    return word


def _text(content: Any, place: str) -> str:
    """The text of a content; for a list, the texts of its items, one per line."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise UsageError(f"patch_history: {place}: `content` must be text or a list of parts")
    return "\n".join(
        item if isinstance(item, str) else str(item.get("text") or item.get("refusal") or "")
        for item in content
    )


def _items(content: Any, place: str) -> list[UserContent]:
    if content is None:
        return []
    if not isinstance(content, list):
        raise UsageError(f"patch_history: {place}: `content` must be text or a list of parts")
    return [item if isinstance(item, str) else _item(item, place) for item in content]


def _item(item: Mapping[str, Any], place: str) -> UserContent:
    match item.get("type"):
        case "text":
            return _word(item, "text", place, needed=False)
        case "image_url":
            url = item["image_url"]
            address = _word(url if isinstance(url, Mapping) else {"url": url}, "url", place)
            return _of_data(address) if address.startswith("data:") else ImageUrl(address)
        case "input_audio":
            audio = item["input_audio"]
            return _of_data(f"data:audio/{audio['format']};base64,{audio['data']}")
        case "file" if "file_data" in item.get("file", {}):
            return _of_data(item["file"]["file_data"])
        case kind:
            raise UsageError(
                f"patch_history: {place} has a part of the type {shown(kind)}, which cannot be "
                "read: leave it out, or put text in its place"
            )


def _of_data(address: str) -> BinaryContent:
    return BinaryContent.narrow_type(BinaryContent.from_data_uri(address))
