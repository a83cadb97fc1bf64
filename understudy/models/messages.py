"""The conversation: Pydantic AI's messages in an append-only list that views share.

A `Messages` is a view: a shared list and a length. Appending through the newest view is O(1).
Appending through an older one copies its messages first, so two runs that start from one state
never see each other's messages.

The beginning of the list may be packed: JSON that is decoded when any message or call id is looked
at. An activated agent has its conversation in this form.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar, cast, overload

from pydantic import PlainSerializer, PlainValidator, TypeAdapter
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestAttempt,
    ModelResponse,
    SystemPromptPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage
from pydantic_core import from_json

from understudy._base.json_values import check_sendable, read_json, reason, shown
from understudy._base.pieces import ITEMS
from understudy.errors import UsageError
from understudy.models.call_arguments import as_arguments
from understudy.models.plain_messages import PLAIN_REPLIES, is_plain, kind_of_thinking
from understudy.models.well_formed import well_formed

T = TypeVar("T")
UserInput = str | Sequence[UserContent]
"""What a user may send: text, or a list of text, images, documents and the like."""

MESSAGES_DEPTH = 140
"""The maximum depth of the data of messages; a record has some levels around them."""
_UNSET_BUT_REQUIRED = {"instruction-delta": ("content", "id")}
"""The fields that may be None and have no default, by kind of part; else only `content`."""


_FEW_CALL_IDS = 8
_MAY_BE_READ_AS_OTHER = frozenset({dict, list, tuple, BinaryContent})
_DECODING = threading.Lock()
"""A lock to decode a packed beginning, and to append after it: an outcome with its state may be in
another thread than the agent that continues."""


class _Packed:
    """The beginning of a conversation that is not decoded, and what was appended since."""

    __slots__ = ("call_ids", "count", "decoded", "later", "read", "segments")

    def __init__(self, segments: Sequence[bytes], count: int) -> None:
        self.segments: Sequence[bytes] = segments
        """The JSON arrays of messages."""
        self.count: int = count
        """The number of messages in the segments."""
        self.later: list[ModelMessage] = []
        self.read: int = 0
        """The number of segments decoded so far."""
        self.decoded: list[ModelMessage] = []
        self.call_ids: set[str] = set()


class _Unmade:
    """The beginning of a conversation that is made from another conversation, and what was appended
    since.
    """

    __slots__ = ("above", "count", "later", "make")

    def __init__(self, above: Messages, count: int, make: Callable[[Messages], Messages]) -> None:
        self.above: Messages = above
        self.count: int = count
        """The number of messages in the beginning."""
        self.make: Callable[[Messages], Messages] = make
        self.later: list[ModelMessage] = []


class Plain:
    """The facts that are known about the plain messages at the beginning of a list.

    Views share it, so some facts may be about messages after the end of a view.
    """

    __slots__ = ("begins_with_system_prompt", "count", "kinds_of_thinking")

    def __init__(self) -> None:
        self.count: int = 0
        """The number of messages, from the first on, that are known to be plain."""
        self.begins_with_system_prompt: bool = False
        self.kinds_of_thinking: dict[Hashable, tuple[ModelResponse, ThinkingPart]] | None = None
        """A part of each kind of thinking in them, with its message; None while there is none."""


class _Origin:
    """The list from whose parts another list begins, and the messages of that list that are in no
    part.
    """

    __slots__ = ("count", "length", "log", "seams", "singles")

    def __init__(
        self, log: _Log, length: int, count: int, singles: Sequence[int], seams: Sequence[int]
    ) -> None:
        self.log: _Log = log
        self.length: int = length
        """The number of its messages that may be in the parts."""
        self.count: int = count
        """The number of messages with which the other list begins."""
        self.singles: Sequence[int] = singles
        """The indices in the other list of messages that are in no part."""
        self.seams: Sequence[int] = seams
        """The indices in the other list of messages that follow a different message than in the
        origin."""


class _Log(Plain):
    """The part that views share: the messages, and what is known of them."""

    __slots__ = (
        "_call_ids",
        "_items",
        "_origin",
        "_packed",
        "borrows",
        "derived",
        "length",
        "lineage",
    )

    def __init__(
        self,
        items: list[ModelMessage],
        packed: _Packed | _Unmade | None = None,
        origin: _Origin | None = None,
    ) -> None:
        super().__init__()
        self._packed: _Packed | _Unmade | None = packed
        self._origin: _Origin | None = origin
        self.derived: Any = None
        """An object that is made from the messages, and kept beside them."""
        self._items: list[ModelMessage]  # both are not set while the beginning is packed
        # It is a tuple while there are few ids: a set takes 0.2 KB from the first id on.
        self._call_ids: tuple[str, ...] | set[str]
        self.length: int = len(items) if packed is None else packed.count
        self.lineage: object = object()
        """An object that is the same in copies, which begin with the same messages."""
        self.borrows: int = 0
        """The number of model calls that read the list now: meanwhile nothing is appended to it."""
        if packed is None:
            own: Iterable[ModelMessage] = items
            if origin is not None:
                own = [*map(items.__getitem__, origin.singles), *items[origin.count :]]
            self._set_items(items, set(_call_ids_of(own)))

    @property
    def is_packed(self) -> bool:
        return self._packed is not None

    @property
    def items(self) -> list[ModelMessage]:
        if self._packed is not None:
            self._decode()
        return self._items

    @property
    def call_ids(self) -> Collection[str]:
        """The ids of the calls in the list, without calls in parts of another list."""
        if self._packed is not None:
            self._decode()
        return self._call_ids

    def has_call_id(self, tool_call_id: str) -> bool:
        log: _Log | None = self
        while log is not None:
            if tool_call_id in log.call_ids:
                return True
            log = None if log._origin is None else log._origin.log
        return False

    def append(self, message: ModelMessage) -> None:
        if self._packed is not None:
            with _DECODING:
                if self._packed is not None:
                    self._packed.later.append(message)
                    self.length += 1
                    return
        self._items.append(message)
        self.length += 1
        if isinstance(message, ModelResponse):
            for part in message.parts:
                if isinstance(part, ToolCallPart):
                    self._add_call_id(part.tool_call_id)

    def copied(self, length: int) -> _Log:
        """Another list that begins with this number of messages."""
        origin = self._origin
        if origin is not None and origin.count > length:
            origin = None
        twin = _Log(self.items[:length], origin=origin)
        twin.lineage = self.lineage
        return twin

    def since(self, start: int, end: int) -> list[ModelMessage]:
        """The messages from `start` to `end`. It decodes none behind the packed beginning."""
        packed = self._packed
        if packed is not None and start >= packed.count:
            return packed.later[start - packed.count : end - packed.count]
        return self.items[start:end]

    def own(self, length: int) -> Sequence[ModelMessage]:
        """The messages up to a length, without a beginning that is made of another list."""
        packed = self._packed
        if isinstance(packed, _Unmade):
            return packed.later[: length - packed.count]
        return self.items[:length]

    def _decode(self) -> None:
        while self.decode_more():
            pass

    def decode_more(self) -> bool:
        """Decode the next segment of a packed beginning. Returns whether a segment was left."""
        if isinstance(self._packed, _Unmade):
            self._make(self._packed)
            return False
        # Race: two threads, or a thread and an append. Once the messages are there, and not before,
        # nothing is packed (test_messages_are_decoded_once_while_others_are_appended). The lock is
        # held for one segment: an append waits for no more than that.
        with _DECODING:
            packed = self._packed
            if not isinstance(packed, _Packed):
                return False
            if packed.read < len(packed.segments):
                messages = messages_from_json(packed.segments[packed.read])
                packed.read += 1
                packed.decoded += messages
                packed.call_ids.update(_call_ids_of(messages))
                return True
            packed.decoded += packed.later
            packed.call_ids.update(_call_ids_of(packed.later))
            self._set_items(packed.decoded, packed.call_ids)
            self._packed = None
            return False

    def _make(self, unmade: _Unmade) -> None:
        """Make the beginning. It is done outside of the lock, because its source may have to be
        decoded.
        """
        made = unmade.make(unmade.above)._log
        if made.length != unmade.count:
            raise UsageError(
                "This stored AgentState is damaged: an agent of a workflow was shown "
                f"{unmade.count} messages, and {made.length} can be made of the conversation"
            )
        with _DECODING:
            if self._packed is not unmade:
                return  # another thread was first
            own = {*made.call_ids, *_call_ids_of(unmade.later)}
            self._origin = made._origin
            self._set_items([*made._items, *unmade.later], own)
            self._packed = None

    def follow(self, above: Messages) -> None:
        """Note that more of the conversation is known from which the beginning is to be made."""
        if isinstance(self._packed, _Unmade):
            self._packed.above = above

    def _add_call_id(self, call_id: str) -> None:
        if isinstance(self._call_ids, set):
            self._call_ids.add(call_id)
        elif len(self._call_ids) < _FEW_CALL_IDS:
            self._call_ids += (call_id,)
        else:
            self._call_ids = {*self._call_ids, call_id}

    def _set_items(self, items: list[ModelMessage], call_ids: set[str]) -> None:
        self._call_ids = call_ids if len(call_ids) > _FEW_CALL_IDS else tuple(call_ids)
        self._items = items

    def plain_until(self, length: int) -> Plain | None:
        """The facts about the messages up to this number; None unless all of them are plain.

        It looks at each message once; at messages in parts of another list, once for all such
        lists.
        """
        plain: Plain = self
        origin = self._origin
        if origin is not None and plain.count < origin.count and length >= origin.count:
            known = origin.log.plain_until(origin.length)
            if known is None or not all(map(self._is_plain, origin.seams)):
                return None
            if known.kinds_of_thinking:
                plain.kinds_of_thinking = {**known.kinds_of_thinking}
            plain.count = origin.count
        for index in range(plain.count, length):
            if not self._is_plain(index):
                return None
            plain.count = index + 1
        return plain

    def unseen(self, length: int) -> int:
        """The number of messages, up to this length, that `plain_until` would look at."""
        origin = self._origin
        if origin is not None and self.count < origin.count <= length:
            return origin.log.unseen(origin.length) + length - origin.count
        return length - self.count

    def looking(self, length: int) -> Generator[None, None, None]:
        """The work of `plain_until` in pieces, without the last piece."""
        origin, begin = self._origin, self.count
        if origin is not None and begin < origin.count <= length:
            yield from origin.log.looking(origin.length)
            begin = origin.count
        for end in range(begin + ITEMS, length, ITEMS):
            if self.plain_until(end) is None:
                return
            yield

    def _is_plain(self, index: int) -> bool:
        """Whether the message at this index is plain. If so, its facts are kept."""
        plain: Plain = self
        items = self.items
        message = items[index]
        if isinstance(message, ModelResponse):
            for part in message.parts:
                if type(part) not in PLAIN_REPLIES:
                    return False
                if isinstance(part, ThinkingPart) and part.content:
                    kinds = plain.kinds_of_thinking = plain.kinds_of_thinking or {}
                    kinds[kind_of_thinking(message, part)] = message, part
        elif not is_plain(message, items[index - 1] if index else None):
            return False
        elif not index:
            first = next(iter(message.parts), None)
            plain.begins_with_system_prompt = isinstance(first, SystemPromptPart)
        return True


def _call_ids_of(messages: Iterable[ModelMessage]) -> Iterator[str]:
    for message in messages:
        if isinstance(message, ModelResponse):
            for part in message.parts:
                if isinstance(part, ToolCallPart):
                    yield part.tool_call_id


class Messages(Sequence[ModelMessage]):
    """A read-only view of a conversation."""

    __slots__ = ("_length", "_log")

    def __init__(self, messages: Iterable[ModelMessage] = ()) -> None:
        self._log: _Log = _Log(list(messages))
        self._length: int = self._log.length

    @classmethod
    def packed(cls, segments: Sequence[bytes], count: int) -> Messages:
        """Messages that are decoded when one of them is looked at.

        Args:
            segments: JSON arrays of messages in Pydantic AI's format, which can surely be read.
            count: the number of messages in them.

        """
        view = cls.__new__(cls)
        view._log, view._length = _Log([], _Packed(segments, count)), count
        return view

    @classmethod
    def spliced(cls, origin: Messages, pieces: Iterable[slice | ModelMessage]) -> Messages:
        """Messages made from parts of another conversation and from single messages between them.

        The parts are neither looked at nor copied: the list points to the same messages.

        Args:
            origin: the other conversation.
            pieces: the pieces in order; a slice of the origin has a start, a stop and no step.

        """
        log, items = origin._log, origin._log.items
        joined: list[ModelMessage] = []
        singles: list[int] = []
        seams: dict[int, None] = {}
        count = 0
        gaps: list[tuple[int, int, list[ModelMessage]]] = []
        between: list[ModelMessage] = []
        start = stop = None
        for piece in pieces:
            seams[count] = None
            if isinstance(piece, slice):
                if start is None:
                    start = piece.start
                gaps.append((start if stop is None else stop, piece.start, between))
                between, stop = [], piece.stop
                count += piece.stop - piece.start
            else:
                singles.append(count)
                between.append(piece)
                count += 1
        if start is not None:
            # The whole origin is appended at once, not its parts one after the other.
            joined = items[start:stop]
            for begin, end, instead in reversed(gaps):
                joined[begin - start : end - start] = instead
        joined += between
        seams.pop(count, None)  # an empty slice at the end
        view = cls.__new__(cls)
        view._log = _Log(
            joined, origin=_Origin(log, origin._length, len(joined), singles, tuple(seams))
        )
        view._length = len(joined)
        return view

    @classmethod
    def of_another(
        cls, above: Messages, count: int, make: Callable[[Messages], Messages]
    ) -> Messages:
        """Messages that are made from another conversation when one of them is looked at.

        Args:
            above: the other conversation.
            count: the number of messages that are made from it.
            make: the function that makes the messages.

        """
        view = cls.__new__(cls)
        view._log, view._length = _Log([], _Unmade(above, count, make)), count
        return view

    def follow(self, above: Messages) -> None:
        """Note that more of the other conversation is known: see `of_another`.

        It changes nothing if these messages are made already.
        """
        self._log.follow(above)

    @property
    def own(self) -> Sequence[ModelMessage]:
        """These messages, without messages that are still to be made from another conversation."""
        return self._log.own(self._length)

    def until(self, length: int) -> Messages:
        """The view of this number of messages."""
        view = Messages.__new__(Messages)
        view._log, view._length = self._log, min(length, self._length)
        return view

    def derived(self, make: Callable[[], T]) -> T:
        """The object that is kept beside the list that views share; it is made the first time.

        It may know messages after the end of this view.
        """
        log = self._log
        if log.derived is None:
            log.derived = make()
        return cast("T", log.derived)

    @property
    def lineage(self) -> object:
        """An object that is the same for all views that begin with the same messages."""
        return self._log.lineage

    def since(self, start: int) -> list[ModelMessage]:
        """The messages from this index on. A packed beginning before the index stays packed."""
        return self._log.since(start, self._length)

    @property
    def is_unread(self) -> bool:
        """Whether many messages were not looked at yet, or are not even decoded."""
        return self._log.is_packed or self._log.unseen(self._length) > ITEMS

    def reading(self) -> Generator[None, None, None]:
        """The work that the first look at a long conversation would do at once: see `pieces`."""
        log = self._log
        while log.decode_more():
            yield
        yield from log.looking(self._length)

    @property
    def plain(self) -> Plain | None:
        """What is known of these messages if each is sent as it is; None if one may not be.

        See `plain_messages.is_plain`.
        """
        return self._log.plain_until(self._length)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> ModelMessage: ...
    @overload
    def __getitem__(self, index: slice) -> list[ModelMessage]: ...
    def __getitem__(self, index: int | slice) -> ModelMessage | list[ModelMessage]:
        if isinstance(index, slice):
            items = self._log.items
            return [items[i] for i in range(*index.indices(self._length))]
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError(f"message {index} of {self._length}")
        return self._log.items[position]

    def __iter__(self) -> Iterator[ModelMessage]:
        # By index, as the list may grow while this view is read.
        items = self._log.items if self._length else []
        for index in range(self._length):
            yield items[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Messages):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # a view compares by content, as a list does

    def __repr__(self) -> str:
        return f"Messages({self[:]!r})"

    def appending(self, *messages: ModelMessage) -> Messages:
        """A view with `messages` at its end. O(1), unless another view has appended already."""
        log = self._log
        if log.length != self._length or log.borrows:
            log = log.copied(self._length)
        for message in messages:
            log.append(message)
        view = Messages.__new__(Messages)
        view._log, view._length = log, log.length
        return view

    def has_call_id(self, tool_call_id: str) -> bool:
        """Whether a tool call has this id, in this view or in a longer one of the same list.

        For a view of parts of another conversation, the whole other conversation counts too.
        """
        return self._log.has_call_id(tool_call_id)

    @property
    def own_call_ids(self) -> Collection[str]:
        """The ids of the tool calls for `has_call_id`, without calls of another conversation."""
        return self._log.call_ids

    def borrowed(self) -> _Borrowed:
        """The messages as a list for a model call: `with view.borrowed() as messages`.

        The newest view gives the shared list itself, so a model call costs the same at message 10
        and at message 1,000. Read it, and copy what is kept. Until the block is left, views append
        to a copy of the list.

        Raises:
            RuntimeError: on leaving, if the list has grown; what was added is removed.

        """
        return _Borrowed(self._log, self._length)


class _Borrowed:
    """The context manager of `Messages.borrowed`; one by `contextmanager` takes 3 times as long."""

    __slots__ = ("_is_newest", "_items", "_length", "_log")

    def __init__(self, log: _Log, length: int) -> None:
        self._log: _Log = log
        self._length: int = length
        self._items: list[ModelMessage] = log.items
        self._is_newest: bool = len(self._items) == length

    def __enter__(self) -> list[ModelMessage]:
        if not self._is_newest:
            return self._items[: self._length]
        self._log.borrows += 1
        return self._items

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if not self._is_newest:
            return
        items = self._items
        self._log.borrows -= 1
        changed = len(items) != self._length
        del items[self._length :]
        if changed and error is None:
            raise RuntimeError(
                "a model call changed the list of messages that it got: copy it before changing it"
            )


def normalised(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """An imported history, made valid for any provider. What is well-formed stays as it is.

    Tool calls without a result get a result that says so. Results without a call and empty messages
    are removed. Repeated ids of calls are replaced. A user's message comes first.

    Raises:
        UsageError: if an item is no message, or cannot be stored.

    """
    given = [_with_arguments(message) for message in messages]
    for index, message in enumerate(given):
        if not isinstance(message, (ModelRequest, ModelResponse)):
            raise UsageError(
                f"messages[{index}] must be a message of Pydantic AI, a ModelRequest or a "
                f"ModelResponse, got {shown(message)}: patch_history() reads other histories"
            )
    repaired = well_formed(given)
    try:
        read_json(ModelMessagesTypeAdapter.dump_json(repaired), max_depth=MESSAGES_DEPTH)
    except Exception as error:  # an object in them may raise anything
        raise UsageError(
            f"The messages cannot be stored as JSON ({reason(error)}): remove what is no plain "
            "data from them"
        ) from error
    return [_without_instructions(message) for message in repaired]


def _with_arguments(message: ModelMessage) -> ModelMessage:
    """The message with the arguments of each call in the shape in which replies are recorded."""
    if not isinstance(message, ModelResponse):
        return message
    parts: list[Any] = [
        replace(part, args=cast("Any", as_arguments(part.args)))
        if isinstance(part, ToolCallPart)
        else part
        for part in message.parts
    ]
    return message if parts == message.parts else replace(message, parts=parts)


def _without_instructions(message: ModelMessage) -> ModelMessage:
    """The message without the instructions that it was recorded with: each call adds its own."""
    if isinstance(message, ModelRequest) and message.instructions is not None:
        return replace(message, instructions=None)
    return message


def user_message(given: object, *, at: datetime) -> ModelRequest:
    """The message of a user's input.

    Raises:
        UsageError: if the input is empty or cannot be sent.

    """
    return ModelRequest(parts=[UserPromptPart(_checked_input(given), timestamp=at)], timestamp=at)


def _checked_input(given: object) -> UserInput:
    if isinstance(given, str):
        if not given.strip():
            raise UsageError("The input is empty: say what the agent is to do")
        check_sendable(given, what="The input")
        return given
    if isinstance(given, Sequence) and not isinstance(given, (bytes, bytearray)):
        if not any(not isinstance(item, str) or item.strip() for item in given):
            raise UsageError("The input is empty: say what the agent is to do")
        check_sendable(given, what="The input")
        try:
            UserPromptPart(given)
        except ValueError as error:
            raise UsageError(f"The input cannot be sent: {error}") from error
        return cast("UserInput", as_read_back(list(given)))
    raise UsageError(
        f"The input must be text, or a list of text, images and the like, got {given!r}"
    )


def as_read_back(content: Any) -> Any:
    """The content of a result or prompt in the form that it has after it was stored.

    Pydantic AI reads a picture back as a `BinaryImage`, and a mapping that has the form of a stored
    file as that file.
    """
    if not _is_read_as_other(content):
        return content
    if isinstance(content, list):
        return [_file_read_back(item) for item in content]
    return _file_read_back(content)


def _is_read_as_other(content: Any) -> bool:
    """Whether the content is, or holds, an object that is read back as another object."""
    kind = type(content)
    if kind is dict:
        if content.get("kind") == BinaryContent.kind:
            return True
        inside = content.values()
    elif kind is list or kind is tuple:
        inside = content
    else:
        return kind is BinaryContent
    return any(type(item) in _MAY_BE_READ_AS_OTHER and _is_read_as_other(item) for item in inside)


def _file_read_back(item: Any) -> Any:
    if type(item) is BinaryContent:
        return BinaryContent.narrow_type(item)
    if not _is_read_as_other(item):
        return item
    return _load_part(_dump_part(ToolReturnPart("", item, tool_call_id=""))).content


def dumped_messages(messages: Sequence[ModelMessage]) -> list[dict[str, Any]]:
    """Messages as Pydantic AI's own adapter dumps them.

    In a thread, the loop has its turn between two calls of Pydantic, and not during one.
    """
    dumped: list[dict[str, Any]] = []
    for start in range(0, len(messages), ITEMS):
        part = list(messages[start : start + ITEMS])
        dumped += ModelMessagesTypeAdapter.dump_python(part, mode="json")
    return dumped


def messages_to_dicts(messages: Iterable[ModelMessage]) -> list[dict[str, Any]]:
    """Messages as JSON-able dicts in Pydantic AI's own format, without the fields that are None."""
    given = list(messages)
    dumped = dumped_messages(given)
    for message, data in zip(given, dumped, strict=True):
        for attempt, written in _attempts(message, data):
            if attempt.usage is not None:
                written["usage"] = _usages().dump_python(attempt.usage, mode="json")
    return [_without_unset(message) for message in dumped]


def messages_from_dicts(data: Sequence[dict[str, Any]]) -> list[ModelMessage]:
    """The messages from their `messages_to_dicts`."""
    messages = ModelMessagesTypeAdapter.validate_python(list(data))
    for message, given in zip(messages, data, strict=True):
        for attempt, written in _attempts(message, given):
            if attempt.usage is not None:
                attempt.usage.__dict__.update(vars(_usages().validate_python(written["usage"])))
    return messages


def messages_from_json(text: bytes) -> list[ModelMessage]:
    """The messages from the JSON of their `messages_to_dicts`, or that of the adapter itself."""
    if b'"failed_attempts":[' in text:
        return messages_from_dicts(from_json(text))
    return ModelMessagesTypeAdapter.validate_json(text)


def messages_to_json(messages: list[ModelMessage]) -> bytes:
    """Messages as JSON, written without a look at each value in Python.

    Compare what `messages_from_json` reads from it: it may lack a field that has no default and is
    None.
    """
    return ModelMessagesTypeAdapter.dump_json(messages, exclude_none=True)


def _attempts(
    message: ModelMessage, data: dict[str, Any]
) -> Iterable[tuple[ModelRequestAttempt, dict[str, Any]]]:
    """The attempts inside a reply, each with its data.

    The schema of messages knows a provider's counters only in the usage of a reply: in the usage of
    an attempt it leaves out what is no field.
    """
    if not isinstance(message, ModelResponse) or not message.failed_attempts:
        return ()
    return zip(message.failed_attempts, data["failed_attempts"], strict=True)


@cache
def _usages() -> TypeAdapter[RequestUsage]:
    return TypeAdapter(RequestUsage)


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


def _load_message(data: Any) -> Any:
    return messages_from_dicts([data])[0] if isinstance(data, dict) else data


def _dump_message(message: ModelMessage) -> dict[str, Any]:
    return messages_to_dicts([message])[0]


def _load_part(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    return messages_from_dicts([{"kind": "request", "parts": [data]}])[0].parts[0]


def _dump_part(part: ToolReturnPart | UserPromptPart) -> dict[str, Any]:
    dumped = messages_to_dicts([ModelRequest(parts=[part])])[0]["parts"][0]
    return cast("dict[str, Any]", dumped)


_load, _dump = PlainValidator(_load_message), PlainSerializer(_dump_message)
StoredRequest = Annotated[ModelRequest, _load, _dump]
StoredResponse = Annotated[ModelResponse, _load, _dump]
StoredMessage = Annotated[ModelMessage, _load, _dump]
_load_one, _dump_one = PlainValidator(_load_part), PlainSerializer(_dump_part)
StoredToolReturn = Annotated[ToolReturnPart, _load_one, _dump_one]
StoredUserPrompt = Annotated[UserPromptPart, _load_one, _dump_one]
