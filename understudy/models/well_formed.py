"""Makes a history well-formed, beyond what Pydantic AI repairs.

In a well-formed history, calls have different ids, each result follows its call, no message is
empty, and a user begins. Such a history stays as it is.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TypeGuard

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)

BEGINNING = "(The beginning of this conversation is not known.)"
"""The user's message in front of a history that begins with a reply."""


def well_formed(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The history with everything that providers expect; the same messages if nothing is wrong.

    It changes nothing in a history that it returned.
    """
    # Empty messages are removed before the repair, which merges them, and after it, which makes new
    # ones.
    repaired = repair_messages(_filled(_paired(messages)))
    filled = _filled(repaired)
    place = _missing_beginning(filled)
    if place is not None:
        at = filled[place].timestamp
        prompt = UserPromptPart(BEGINNING, timestamp=at or datetime.now(timezone.utc))
        filled.insert(place, ModelRequest(parts=[prompt], timestamp=at))
    elif len(filled) == len(repaired):
        return repaired
    return repair_messages(filled)


def _paired(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The messages with a different id for each call, and its result after it.

    If several calls have one id, the first call without a result gets the next result with this id.
    A result that no call waits for is left out.
    """
    taken = {part.tool_call_id for message in messages for part in _calls(message)}
    used = set[str]()
    waiting: dict[str, deque[tuple[int, str]]] = defaultdict(deque)
    late: dict[int, list[ModelRequestPart]] = defaultdict(list)
    paired: list[ModelMessage] = []
    turn = -1  # the index of the last reply
    for message in messages:
        if isinstance(message, ModelResponse):
            turn = len(paired)
            renamed: dict[int, ToolCallPart] = {}
            for index, part in enumerate(message.parts):
                if not isinstance(part, ToolCallPart):
                    continue
                call_id = part.tool_call_id
                if not call_id or call_id in used:
                    call_id = _free_id(call_id, taken)
                    renamed[index] = replace(part, tool_call_id=call_id)
                used.add(call_id)
                waiting[part.tool_call_id].append((turn, call_id))
            if renamed:
                parts = [renamed.get(index, part) for index, part in enumerate(message.parts)]
                message = replace(message, parts=parts)
            paired.append(message)
            continue
        kept: list[ModelRequestPart] = []
        for given in message.parts:
            if not _is_result(given):
                kept.append(given)
                continue
            if not waiting[given.tool_call_id]:
                continue
            called_in, call_id = waiting[given.tool_call_id].popleft()
            own = given if call_id == given.tool_call_id else replace(given, tool_call_id=call_id)
            (kept if called_in == turn else late[called_in]).append(own)
        same = len(kept) == len(message.parts) and all(map(_is_same, kept, message.parts))
        paired.append(message if same else replace(message, parts=kept))
    if not late:
        return paired
    return [
        each for index, message in enumerate(paired) for each in _and_late(message, late[index])
    ]


def _and_late(message: ModelMessage, late: list[ModelRequestPart]) -> list[ModelMessage]:
    """The message, and the results of its calls that came after a later reply."""
    return [message, ModelRequest(parts=late)] if late else [message]


def _is_same(part: object, other: object) -> bool:
    return part is other


def _is_result(part: ModelRequestPart) -> TypeGuard[ToolReturnPart | RetryPromptPart]:
    if isinstance(part, RetryPromptPart):
        return part.tool_name is not None
    return isinstance(part, ToolReturnPart)


def _calls(message: ModelMessage) -> Iterable[ToolCallPart]:
    return (part for part in message.parts if isinstance(part, ToolCallPart))


def _free_id(call_id: str, taken: set[str]) -> str:
    """An id that no call has. It is the same each time."""
    number = 2
    while (found := f"{call_id or 'call'}-{number}") in taken:
        number += 1
    taken.add(found)
    return found


def _filled(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The messages without those that say nothing."""
    return [message for message in messages if not all(map(_is_blank, message.parts))]


def _is_blank(part: object) -> bool:
    if isinstance(part, TextPart):  # a part without text may carry its provider's signature
        return not part.content.strip() and part.provider_details is None
    if isinstance(part, SystemPromptPart):
        return not part.content.strip()
    if not isinstance(part, UserPromptPart):
        return False
    if isinstance(part.content, str):
        return not part.content.strip()
    return all(isinstance(item, str) and not item.strip() for item in part.content)


def _missing_beginning(messages: Sequence[ModelMessage]) -> int | None:
    """The index of a reply that comes before any other message; None if there is none."""
    for index, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            return index
        if not all(isinstance(part, SystemPromptPart) for part in message.parts):
            return None
    return None
