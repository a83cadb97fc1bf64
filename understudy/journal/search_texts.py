"""The texts that a search looks in: of conversations, and of what people are asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)

from understudy._base.json_values import jsonable
from understudy.interrupts import Request
from understudy.journal.search_words import flat
from understudy.models.attribution import is_for_itself
from understudy.models.display_halves import display_of, display_texts_of, halves_of
from understudy.state import records as r
from understudy.state.agent_state import AgentState

SaidKind = Literal["user", "agent", "call", "result"]
"""What is said: by a user, by the agent, the arguments of a call of a tool, or what came of it."""

KINDS: tuple[str, ...] = (
    "child_record",
    "reply",
    "result",
    "run_started",
    "snapshot",
    "snapshot_messages",
    "user_message",
)
"""The kinds of the records in which something is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One text of a conversation. The same record always has the same texts, in the same order."""

    kind: SaidKind
    at: datetime | None
    row: dict[str, Any]
    """The row that shows the text, as `display.Row.to_dict`. Whoever hides values finds them
    there."""
    inside: tuple[str, ...] = ()
    """The names of the agents inside of the agent, down to the agent that said the text."""

    @property
    def tool_call_id(self) -> str | None:
        """The id of the tool call that the text is about; None if it is about none."""
        found = self.row.get("detail", {}).get("tool_call_id")
        return found if isinstance(found, str) else None


def row_number(texts: Sequence[Said], part: int) -> int:
    """Which of the rows that a record makes one of its texts is in; a result makes none."""
    return sum(each.kind != "result" for each in texts[:part])


def text_of_row(row: Mapping[str, Any]) -> str:
    """What is looked through of a row of a conversation."""
    detail = row.get("detail")
    about = detail if isinstance(detail, Mapping) else {}
    names = ("tool_name", "arguments", "result_display", "result")
    said = [row.get("text"), row.get("model_text"), *(about.get(name) for name in names)]
    return _joined(said)


def text_of_request(request: Mapping[str, Any]) -> str:
    """What is looked through of a request, as plain data."""
    names = ("display", "tool_name", "arguments", "payload")
    return _joined([request.get(name) for name in names])


def _joined(values: list[Any]) -> str:
    texts = (flat(value) for value in values if value not in (None, "", [], {}))
    return " · ".join(dict.fromkeys(text for text in texts if text))


def text_asked(request: Request) -> str:
    """As `text_of_request`, of the request itself."""
    return text_of_request(request.to_dict())


def said_in(record: r.Record) -> list[Said]:
    """The texts of a record."""
    inside = tuple(each.name for each in r.agents_inside(record))
    return list(_said(r.innermost(record), inside))


def _said(record: r.Record, inside: tuple[str, ...]) -> Iterator[Said]:
    match record:
        case r.RunStarted(message=ModelRequest() as message):
            if record.continues is None or not is_for_itself(message):
                yield from _by_user(message, record.at, inside)
        case r.UserMessage():
            yield from _by_user(record.message, record.at, inside)
        case r.Reply():
            yield from _by_agent(record.response, record.at, inside)
        case r.Result():
            yield _result(record.part, record.at, inside)
        case r.Snapshot():
            yield from _in_state(AgentState.from_dict(record.state), record.at, inside)
        case r.SnapshotMessages():
            yield from _in_messages(record.messages, record.at, inside)
        case _:
            pass


def _by_user(message: ModelRequest, at: datetime | None, inside: tuple[str, ...]) -> Iterator[Said]:
    text, given = halves_of(message)
    if text or given:
        model_text = given if given != text else None
        row: dict[str, Any] = {"kind": "user", "text": text, "model_text": model_text}
        yield Said(kind="user", at=at, row=row, inside=inside)


def _by_agent(
    response: ModelResponse, at: datetime | None, inside: tuple[str, ...]
) -> Iterator[Said]:
    texts = display_texts_of(response)
    for part in response.parts:
        if isinstance(part, TextPart) and part.content:
            row: dict[str, Any] = {"kind": "text", "text": part.content}
            yield Said(kind="agent", at=at, row=row, inside=inside)
        elif isinstance(part, ToolCallPart):
            detail = {"tool_name": part.tool_name, "tool_call_id": part.tool_call_id}
            row = {
                "kind": "call",
                "text": texts.get(part.tool_call_id, part.tool_name),
                "detail": {**detail, "arguments": jsonable(part.args)},
            }
            yield Said(kind="call", at=at, row=row, inside=inside)


def _result(part: ToolReturnPart, at: datetime | None, inside: tuple[str, ...]) -> Said:
    detail = {
        "tool_name": part.tool_name,
        "tool_call_id": part.tool_call_id,
        "result": part.model_response_str(),
        "result_display": display_of(part.metadata),
    }
    row = {"kind": "call", "text": part.tool_name, "detail": detail}
    return Said(kind="result", at=at, row=row, inside=inside)


def _in_messages(
    messages: Iterable[ModelMessage], at: datetime | None, inside: tuple[str, ...]
) -> Iterator[Said]:
    for message in messages:
        said_at: datetime | None = message.timestamp
        if isinstance(message, ModelResponse):
            yield from _by_agent(message, said_at or at, inside)
            continue
        results = [part for part in message.parts if isinstance(part, ToolReturnPart)]
        for part in results:
            yield _result(part, part.timestamp, inside)
        if not results:
            yield from _by_user(message, said_at or at, inside)


def _in_state(state: AgentState, at: datetime | None, inside: tuple[str, ...]) -> Iterator[Said]:
    """The texts of the state that stands for the records before it."""
    shared = state.run.shared if state.run is not None else None
    first = shared.inherited if shared is not None else 0
    yield from _in_messages(state.messages[first:], at, inside)
    if state.run is None or state.run.over:
        return
    for call in state.run.calls:
        if call.result is not None:  # its turn is not over: it is in no message yet
            yield _result(call.result.part, call.result.at, inside)
    for child in state.children.values():
        name = child.run.agent if child.run is not None else ""
        yield from _in_state(child, at, (*inside, name))
