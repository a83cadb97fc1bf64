"""The conversation: Pydantic AI's messages, in a list that is shared and only grows.

A `Messages` is a view: a shared list and a length. Appending through the newest view is O(1);
appending through an older one copies what that view shows first, so two runs that start from
one state never see each other's messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, cast, overload

from pydantic import PlainSerializer, PlainValidator
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    is_multi_modal_content,
    repair_messages,
)

from understudy.errors import UsageError

__all__ = [
    "Messages",
    "UserInput",
    "messages_from_dicts",
    "messages_to_dicts",
    "user_message",
]

UserInput = str | Sequence[UserContent]
"""What a person may send: text, or text with images, documents and the like."""

_ALWAYS_PLAIN = frozenset({TextPart, ThinkingPart, ToolCallPart})
_NO_FILES = frozenset({str, int, float, bool, dict, type(None)})
"""What most tools return, told at a glance."""
_UNSET_BUT_REQUIRED = {"instruction-delta": ("content", "id")}
"""Fields of parts that may be None and have no default; `content` may be, of any part."""


class _Log:
    """What views share: the messages, and the tool call ids that occur in them."""

    __slots__ = ("call_ids", "items", "lent")

    def __init__(self, items: list[ModelMessage]) -> None:
        self.items = items
        self.lent = 0
        """How many model calls read the list now: meanwhile nobody may append to it."""
        self.call_ids: set[str] = set()
        for message in items:
            self.note_call_ids(message)

    def note_call_ids(self, message: ModelMessage) -> None:
        if isinstance(message, ModelResponse):
            for part in message.parts:
                if isinstance(part, ToolCallPart):
                    self.call_ids.add(part.tool_call_id)


class Messages(Sequence[ModelMessage]):
    """A read-only view of a conversation."""

    __slots__ = ("_length", "_log", "plain")

    plain: bool
    """Whether every model takes all of it as it is.

    Files, system prompts in the middle and the like are not plain: the model's own
    `prepare_messages` must see them before they are sent. It walks the whole history, so text and
    tool calls go without.
    """

    def __init__(self, messages: Iterable[ModelMessage] = ()) -> None:
        self._log = _Log(list(messages))
        self._length = len(self._log.items)
        self.plain = all(_is_plain(m, first=i == 0) for i, m in enumerate(self._log.items))

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> ModelMessage: ...
    @overload
    def __getitem__(self, index: slice) -> list[ModelMessage]: ...
    def __getitem__(self, index: int | slice) -> ModelMessage | list[ModelMessage]:
        if isinstance(index, slice):
            return [self._log.items[i] for i in range(*index.indices(self._length))]
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError(f"message {index} of {self._length}")
        return self._log.items[position]

    def __iter__(self) -> Iterator[ModelMessage]:
        # An index, not the list's iterator: the list may grow while this view is read.
        for index in range(self._length):
            yield self._log.items[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Messages):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # a view compares by content, as a list does

    def __repr__(self) -> str:
        return f"Messages({self[:]!r})"

    def appending(self, *messages: ModelMessage) -> Messages:
        """The view with `messages` at its end: O(1), unless another view grew past this one."""
        log = self._log
        if len(log.items) != self._length or log.lent:
            log = _Log(log.items[: self._length])
        plain = self.plain
        for message in messages:
            log.items.append(message)
            log.note_call_ids(message)
            plain = plain and _is_plain(message, first=self._length == 0)
        view = Messages.__new__(Messages)
        view._log, view._length, view.plain = log, len(log.items), plain
        return view

    def has_call_id(self, tool_call_id: str) -> bool:
        """Whether a tool call of this id occurs (or occurs in a longer view of the same list)."""
        return tool_call_id in self._log.call_ids

    def lent(self) -> _Lent:
        """The messages as the list that a model takes, while it is asked: `with view.lent() as x`.

        Where this is the newest view it is the shared list itself, so a model call costs the same
        at message 10 and at message 1,000: read it, and copy what you keep. Meanwhile an append by
        anybody goes to a copy.

        Raises:
            RuntimeError: on leaving, if somebody appended to the list; that is taken back.

        """
        return _Lent(self._log, self._length)


class _Lent:
    """What `Messages.lent` gives. A generator with `contextmanager` takes 3 times as long."""

    __slots__ = ("_is_newest", "_length", "_log")

    def __init__(self, log: _Log, length: int) -> None:
        self._log = log
        self._length = length
        self._is_newest = len(log.items) == length

    def __enter__(self) -> list[ModelMessage]:
        if not self._is_newest:
            return self._log.items[: self._length]
        self._log.lent += 1
        return self._log.items

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if not self._is_newest:
            return
        items = self._log.items
        self._log.lent -= 1
        changed = len(items) != self._length
        del items[self._length :]
        if changed and error is None:
            raise RuntimeError("it changed the conversation that it was given: it must copy it")


def _is_plain(message: ModelMessage, *, first: bool) -> bool:
    for part in message.parts:
        if type(part) in _ALWAYS_PLAIN:
            continue
        if isinstance(part, (UserPromptPart, ToolReturnPart)):
            content = part.content
            if isinstance(content, str) or not _holds_files(content):
                continue
            return False
        if not (first and isinstance(part, SystemPromptPart)):
            return False
    return True


def _holds_files(content: Any) -> bool:
    if type(content) in _NO_FILES:
        return False
    if isinstance(content, (list, tuple)):
        return any(not isinstance(item, str) and is_multi_modal_content(item) for item in content)
    return is_multi_modal_content(content)


def normalised(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """An imported history made valid for any provider, once, on entry.

    Dangling tool calls get a result that says so, orphaned results go.
    """
    repaired = repair_messages(list(messages))
    return [_without_instructions(message) for message in repaired]


def _without_instructions(message: ModelMessage) -> ModelMessage:
    """Less the system prompt of whoever recorded it: ours is built fresh for each call (R3)."""
    if isinstance(message, ModelRequest) and message.instructions is not None:
        return replace(message, instructions=None)
    return message


def user_message(given: object, *, at: datetime) -> ModelRequest:
    """What a user says, as it enters the conversation.

    Raises:
        UsageError: if it is empty or cannot be sent.

    """
    return ModelRequest(parts=[UserPromptPart(_checked_input(given), timestamp=at)], timestamp=at)


def _checked_input(given: object) -> UserInput:
    if isinstance(given, str):
        if not given.strip():
            raise UsageError("The input is empty: say what the agent is to do")
        return given
    if isinstance(given, Sequence) and not isinstance(given, (bytes, bytearray)):
        if not any(not isinstance(item, str) or item.strip() for item in given):
            raise UsageError("The input is empty: say what the agent is to do")
        try:
            UserPromptPart(given)
        except ValueError as error:
            raise UsageError(f"The input cannot be sent: {error}") from error
        return list(given)
    raise UsageError(f"The input is text, or a list of text, images and the like; not {given!r}")


def messages_to_dicts(messages: Iterable[ModelMessage]) -> list[dict[str, Any]]:
    """Messages as JSON-able dicts in Pydantic AI's own format, less the fields that are unset."""
    dumped = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    return [_without_unset(message) for message in cast("list[dict[str, Any]]", dumped)]


def messages_from_dicts(data: Sequence[dict[str, Any]]) -> list[ModelMessage]:
    """The messages that `messages_to_dicts` told."""
    return ModelMessagesTypeAdapter.validate_python(list(data))


def _without_unset(message: dict[str, Any]) -> dict[str, Any]:
    slim = {key: value for key, value in message.items() if value is not None}
    slim["parts"] = [
        {
            key: value
            for key, value in part.items()
            if value is not None or key in _UNSET_BUT_REQUIRED.get(part["part_kind"], ("content",))
        }
        for part in message["parts"]
    ]
    return slim


def _read_one(data: Any) -> Any:
    return messages_from_dicts([data])[0] if isinstance(data, dict) else data


def _tell_one(message: ModelMessage) -> dict[str, Any]:
    return messages_to_dicts([message])[0]


def _read_part(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    return messages_from_dicts([{"kind": "request", "parts": [data]}])[0].parts[0]


def _tell_part(part: ToolReturnPart) -> dict[str, Any]:
    told = messages_to_dicts([ModelRequest(parts=[part])])[0]["parts"][0]
    return cast("dict[str, Any]", told)


StoredRequest = Annotated[ModelRequest, PlainValidator(_read_one), PlainSerializer(_tell_one)]
StoredResponse = Annotated[ModelResponse, PlainValidator(_read_one), PlainSerializer(_tell_one)]
StoredMessage = Annotated[ModelMessage, PlainValidator(_read_one), PlainSerializer(_tell_one)]
StoredToolReturn = Annotated[
    ToolReturnPart, PlainValidator(_read_part), PlainSerializer(_tell_part)
]
