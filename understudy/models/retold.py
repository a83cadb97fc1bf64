"""A workflow's conversation, retold for each of its agents.

In the view of an agent, its own messages are the model's own, and messages of other agents are user
prompts that name the author. So the views of a hundred agents differ in few messages. Each message
is put into words once, for all agents and all runs, and the views share it.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from datetime import datetime

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolReturnPart,
    UserPromptPart,
)

from understudy.models.attribution import GO_ON, author_of, in_words
from understudy.models.messages import Messages, UserInput


def view_for(
    name: str, messages: Messages, *, start: int, at: datetime, latest: bool, raw: bool
) -> Messages:
    """A workflow's conversation as the agent of this name gets it when its run starts.

    It takes the same time however much of the conversation other views have had before.

    Args:
        name: the name of the agent; its own messages are left as they are.
        messages: the whole conversation.
        start: the index of the first message that the agent may see.
        at: the time at which the run starts, for a prompt after a reply of its own.
        latest: only the latest turn of another author.
        raw: leave all messages as they are, for an agent that is a workflow itself: its own agents
            get a view each.

    """
    if latest:
        turn = Messages(messages[_latest_by_others(name, messages, start)])
        return turn if raw else Retold().view_for(name, turn, 0, at)
    if raw:
        return Messages.spliced(messages, (slice(start, len(messages)),))
    return messages.derived(Retold).view_for(name, messages, start, at)


def _latest_by_others(name: str, messages: Messages, first: int) -> slice:
    """The last reply of another agent with its results, or the last message of the user."""
    for index in range(len(messages) - 1, first - 1, -1):
        author = author_of(messages[index])
        if author == name:
            continue
        start = index
        if author is not None:
            while isinstance(messages[start], ModelRequest) and start > first:
                if author_of(messages[start - 1]) != author:
                    break
                start -= 1
        return slice(start, index + 1)
    return slice(first, len(messages))


class Retold:
    """A conversation as it is retold for an agent without messages in it.

    It is kept beside the list of messages, and grows with it.
    """

    __slots__ = ("_by", "_ends", "_inserted", "_lock", "_retold")

    def __init__(self) -> None:
        self._retold: Messages = Messages()
        self._ends: list[int] = [0]
        """The length of the retold conversation up to each message of the original."""
        self._by: dict[str, list[int]] = {}
        """The indices of the messages that have an author, by author."""
        self._inserted: set[int] = set()
        """The indices in the retold conversation of prompts between two replies."""
        self._lock: threading.Lock = threading.Lock()

    def view_for(self, name: str, messages: Messages, start: int, at: datetime) -> Messages:
        """The conversation as the agent of this name gets it, from this index on."""
        self._tell(messages)
        retold, ends, end = self._retold, self._ends, len(messages)
        own = self._by.get(name, [])
        pieces: list[slice | ModelMessage] = []
        last: ModelMessage | None = None
        for index in (*own[bisect_left(own, start) : bisect_left(own, end)], end):
            first, stop = ends[start], ends[index]
            if first < stop:
                if not isinstance(last, ModelResponse):
                    first += first in self._inserted
                elif isinstance(retold[first], ModelResponse):
                    pieces.append(_prompt(GO_ON, last.timestamp))
                pieces.append(slice(first, stop))
                last = retold[stop - 1]
            if index < end:
                message = messages[index]
                if isinstance(last, ModelResponse) and isinstance(message, ModelResponse):
                    pieces.append(_prompt(GO_ON, last.timestamp))
                pieces.append(message)
                last = message
            start = index + 1
        if isinstance(last, ModelResponse):
            pieces.append(_prompt(GO_ON, at))
        return Messages.spliced(retold, pieces)

    def _tell(self, messages: Messages) -> None:
        """Retell the messages that are new in the conversation."""
        if len(self._ends) > len(messages):
            return
        # Race: two runs in two threads may begin with the same state
        # (test_runs_in_two_threads_from_one_state_get_the_same_conversation).
        with self._lock:
            for index in range(len(self._ends) - 1, len(messages)):
                self._tell_one(index, messages[index])

    def _tell_one(self, index: int, message: ModelMessage) -> None:
        author = author_of(message)
        retold = self._retold
        if author is not None:
            self._by.setdefault(author, []).append(index)
            content = in_words(author, message)
            if content:
                retold = retold.appending(_prompt(content, _time_of(message)))
        else:
            last = retold[-1] if retold else None
            if isinstance(last, ModelResponse) and isinstance(message, ModelResponse):
                self._inserted.add(len(retold))
                retold = retold.appending(_prompt(GO_ON, last.timestamp))
            retold = retold.appending(message)
        self._retold = retold
        self._ends.append(len(retold))  # last: from here on others read it, without the lock


def _time_of(message: ModelMessage) -> datetime:
    """The time of a message. A message that is put into words has it itself, or in a part."""
    if message.timestamp is not None:
        return message.timestamp
    return next(
        part.timestamp
        for part in message.parts
        if isinstance(part, (UserPromptPart, ToolReturnPart))
    )


def _prompt(content: UserInput, at: datetime) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(content, timestamp=at)], timestamp=at)
