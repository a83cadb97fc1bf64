"""`NativeEvents`: an agent's events as events of Pydantic AI, for a protocol.

The events of a subscription may begin in the middle of a reply, miss pieces, and have pieces that
become void. The events of this module are in order: each part of a reply begins, grows and ends
once. If the given events differ from what is recorded, `Differs` says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.messages import (
    FilePart,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    NativeToolReturnPart,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolReturnPart,
)

from understudy import events as e
from understudy.actors import EventsDropped, Gap
from understudy.interrupts import Request
from understudy.state.agent_state import AgentState

Native = (
    PartStartEvent | PartDeltaEvent | PartEndEvent | FunctionToolCallEvent | FunctionToolResultEvent
)
ROOT = ""
"""The name of the root agent's run. Runs of inner agents have ids."""


@dataclass(frozen=True, slots=True)
class ReplyBegins:
    """The event that a model writes a reply, whose first part follows."""

    run: str
    number: int
    """The number of the reply in its agent's conversation, from 0."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a reply, a call, or a result."""

    run: str
    event: Native


@dataclass(frozen=True, slots=True)
class AgentBegins:
    """The event of the first activity of an inner agent in this stream."""

    run: str
    name: str
    parent: str
    """The run around it."""
    tool_call_id: str | None
    """The id of the call that runs it; None if it is not known."""


@dataclass(frozen=True, slots=True)
class AgentOver:
    """The event that an inner agent is over, or waits for a person."""

    run: str
    error: str | None = None
    requests: tuple[str, ...] | None = None
    """The ids of its own requests, if it waits; None if it is over."""


@dataclass(frozen=True, slots=True)
class Emitted:
    """The event that a tool called `ctx.emit(data)`."""

    run: str
    tool_call_id: str
    tool_name: str
    data: Any


@dataclass(frozen=True, slots=True)
class Differs:
    """The event that the given events differ from what is recorded."""


Given = ReplyBegins | Piece | AgentBegins | AgentOver | Emitted | Differs


@dataclass(slots=True)
class _Writing:
    """A reply that is being written."""

    turn: int
    is_whole: bool = True
    """Whether its whole text so far was given out."""
    has_begun: bool = False
    texts: dict[int, str] = field(default_factory=dict)
    """The text that was given out, by the index of the part."""
    open: int | None = None
    """The index of the open part; None if none is open."""
    kind: type[TextPart] | type[ThinkingPart] = TextPart

    def part(self, index: int) -> TextPart | ThinkingPart:
        return self.kind(content=self.texts[index])


class NativeEvents:
    """Gives out the events of a subscription, and what a state has in addition.

    Args:
        state: the state that the client has already; None = nothing.
        but_its_run: whether the client lacks the last run of this state.

    """

    def __init__(self, state: AgentState | None, *, but_its_run: bool = False) -> None:
        self._writing: dict[str, _Writing] = {}
        self._known: set[object] = set()
        self._numbers: dict[str, int] = {}
        self._calls: dict[str, str] = {}
        """The ids of calls, by call key."""
        self._open: dict[str, tuple[str, ...]] = {}
        """The agents that were begun and are not over, with their paths."""
        if state is not None:
            self.knows(state, but_its_run=but_its_run)

    def knows(self, state: AgentState, *, but_its_run: bool = False) -> None:
        """Note that the client has this state, so that it is not given out."""
        for run, messages, results in conversations(state):
            if but_its_run and run == ROOT and state.run is not None:
                messages, results = messages[: state.run.first_message], []
            replies = [message for message in messages if isinstance(message, ModelResponse)]
            self._numbers[run] = len(replies)
            self._known.update(_reply_key(run, reply) for reply in replies)
            self._known.update((run, part.tool_call_id) for part in results_in(messages))
            self._known.update((run, part.tool_call_id) for part in results)

    # ------------------------------------------------------------------------- live

    def event(self, event: object) -> Iterator[Given]:
        """The events that follow from an event of the subscription."""
        match event:
            case e.ReplyStarted(run_id=run_id, turn=turn, agent_path=path):
                run, begins = self._run(run_id, path)
                yield from begins
                yield from self._drop(run)
                self._writing[run] = _Writing(turn)
            case e.TextDelta() | e.ThinkingDelta():
                run, begins = self._run(event.run_id, event.agent_path)
                yield from begins
                yield from self._delta(run, event)
            case e.ReplyEnded(response=response, turn=turn, run_id=run_id, agent_path=path):
                run, begins = self._run(run_id, path)
                yield from begins
                yield from self._reply(run, turn, response)
            case e.ToolStarted(call_key=key, tool_call_id=call_id, agent_path=path):
                self._calls[key] = call_id
                yield from self._run(run_of(key), path)[1]
            case e.ToolEmitted(call_key=key, agent_path=path):
                run, begins = self._run(run_of(key), path)
                yield from begins
                yield Emitted(run, event.tool_call_id, event.tool_name, event.data)
            case e.ToolEnded(call_key=key, agent_path=path):
                run, begins = self._run(run_of(key), path)
                yield from begins
                part = ToolReturnPart(
                    event.tool_name,
                    event.content,
                    tool_call_id=event.tool_call_id,
                    outcome=event.outcome,
                )
                yield from self._result(run, part)
            case e.AttemptDiscarded(agent_path=path):
                void = [ROOT] if len(path) == 1 else []
                void += [run for run, inner in self._open.items() if inner[: len(path)] == path]
                for run in void:
                    yield from self._drop(run)
            case e.RunFinished(agent_path=path, run_id=run) if len(path) > 1:
                if run in self._open:
                    del self._open[run]
                    error = None if event.outcome == "completed" else _why(event)
                    yield AgentOver(run, error=error)
            case EventsDropped():
                for writing in self._writing.values():
                    writing.is_whole = False
            case Gap():
                yield Differs()

    def _run(self, run_id: str, path: tuple[str, ...]) -> tuple[str, list[Given]]:
        """The run of an event, and its beginning if it is new here."""
        if len(path) == 1:
            return ROOT, []
        if run_id in self._open:
            return run_id, []
        self._open[run_id] = path
        call_key = run_id.partition("+")[0]
        parent = run_of(call_key) if len(path) > 2 else ROOT
        return run_id, [AgentBegins(run_id, path[-1], parent, self._calls.get(call_key))]

    def _delta(self, run: str, event: e.TextDelta | e.ThinkingDelta) -> Iterator[Given]:
        writing = self._writing.get(run)
        if writing is None or writing.turn != event.turn:
            # It began before the subscription: its beginning comes with its end.
            writing = self._writing[run] = _Writing(event.turn, is_whole=event.n == 0)
        if not writing.is_whole:
            return
        kind = TextPart if isinstance(event, e.TextDelta) else ThinkingPart
        if writing.open == event.part:
            writing.texts[event.part] += event.text
            yield Piece(run, _grown(event.part, kind, event.text))
            return
        yield from self._end_part(run, writing)
        if event.part in writing.texts:  # a provider that goes back to an earlier part
            writing.is_whole = False
            return
        yield from self._begin(run, writing)
        writing.open, writing.kind = event.part, kind
        writing.texts[event.part] = event.text
        yield Piece(run, PartStartEvent(index=event.part, part=kind(content=event.text)))

    def _begin(self, run: str, writing: _Writing) -> Iterator[Given]:
        if not writing.has_begun:
            writing.has_begun = True
            yield ReplyBegins(run, self._numbers.get(run, 0))

    def _end_part(self, run: str, writing: _Writing) -> Iterator[Given]:
        if writing.open is not None:
            index, writing.open = writing.open, None
            yield Piece(run, PartEndEvent(index=index, part=writing.part(index)))

    def _drop(self, run: str) -> Iterator[Given]:
        """Drop what was written, because another model is asked, or another attempt begins."""
        writing = self._writing.pop(run, None)
        if writing is not None and writing.texts:
            yield from self._end_part(run, writing)
            yield Differs()

    # --------------------------------------------------------------------- recorded

    def _reply(self, run: str, turn: int | None, response: ModelResponse) -> Iterator[Given]:
        """The rest of a reply; without a turn, of the reply that is being written, if it fits."""
        is_known = _reply_key(run, response) in self._known
        if is_known and turn is None:
            return  # a later reply is being written
        writing = self._writing.pop(run, None)
        if writing is not None:
            is_other = not _fits(writing, response) if turn is None else writing.turn != turn
            if is_known or is_other:
                yield from self._end_part(run, writing)
                writing = None
        if is_known:
            return
        self._known.add(_reply_key(run, response))
        if writing is None:
            writing = _Writing(turn or 0)
        yield from self._begin(run, writing)
        self._numbers[run] = self._numbers.get(run, 0) + 1
        differs = False
        for index, part in enumerate(response.parts):
            if isinstance(part, (TextPart, ThinkingPart)) and index in writing.texts:
                given = writing.texts[index]
                rest = part.content[len(given) :]
                if not part.content.startswith(given) or (rest and writing.open != index):
                    differs = True
                elif writing.open == index:
                    if rest:
                        text = TextPartDelta if isinstance(part, TextPart) else ThinkingPartDelta
                        yield Piece(
                            run, PartDeltaEvent(index=index, delta=text(content_delta=rest))
                        )
                    writing.open = None
                    yield Piece(run, PartEndEvent(index=index, part=part))
                continue
            yield from self._end_part(run, writing)
            yield from _whole(run, index, part)
        yield from self._end_part(run, writing)
        for call in response.parts:
            if isinstance(call, ToolCallPart):
                yield Piece(run, FunctionToolCallEvent(call, args_valid=True))
        if differs or any(index >= len(response.parts) for index in writing.texts):
            yield Differs()

    def _result(self, run: str, part: ToolReturnPart) -> Iterator[Given]:
        if (run, part.tool_call_id) not in self._known:
            self._known.add((run, part.tool_call_id))
            yield Piece(run, FunctionToolResultEvent(part))

    def catch_up(self, state: AgentState) -> Iterator[Given]:
        """The events for what the run of this state has and no event has brought.

        An event may be lost between hosts, or come later than the outcome does.
        """
        if state.run is None:
            return
        for run, messages, results in conversations(state):
            if run != ROOT:
                continue  # inner agents are shown only live
            for message in messages[state.run.first_message :]:
                if isinstance(message, ModelResponse):
                    yield from self._reply(run, None, message)
                for part in results_in([message]):
                    yield from self._result(run, part)
            for part in results:
                yield from self._result(run, part)

    def end(self, requests: Iterable[Request]) -> Iterator[Given]:
        """End the open parts, because the stream is over."""
        asked: dict[str, list[str]] = {}
        for request in requests:
            asked.setdefault(request.run_id, []).append(request.id)
        for run in [ROOT, *self._open]:
            writing = self._writing.pop(run, None)
            if writing is not None:
                yield from self._end_part(run, writing)
        # The innermost agents come first.
        for run in sorted(self._open, key=lambda run: -len(self._open[run])):
            is_asking = any(of.startswith(run) for of in asked)
            own = tuple(asked.get(run, ())) if is_asking else None
            yield AgentOver(run, error=None if is_asking else "It was stopped.", requests=own)
        self._open.clear()


def conversations(
    state: AgentState,
) -> Iterator[tuple[str, list[ModelMessage], list[ToolReturnPart]]]:
    """The conversations of the agent and of the agents that it runs now, each with its run.

    Each also has the results of calls that are not in the conversation yet, which gets a reply's
    results only together.
    """
    yield ROOT, list(state.messages), _open_results(state)
    for inner in state.tree:
        for key, child in inner.children.items():
            yield key, list(child.messages), _open_results(child)


def _open_results(state: AgentState) -> list[ToolReturnPart]:
    turn = None if state.run is None else state.run.turn
    if turn is None or turn.propagated:
        return []
    return [call.result.part for call in turn.calls.values() if call.result is not None]


def results_in(messages: Iterable[ModelMessage]) -> Iterator[ToolReturnPart]:
    """The results in a conversation."""
    for message in messages:
        if isinstance(message, ModelRequest):
            yield from (part for part in message.parts if isinstance(part, ToolReturnPart))


def run_of(call_key: str) -> str:
    """The run of a call: its key is `run.turn.index`."""
    return call_key.rsplit(".", 2)[0]


def _reply_key(run: str, response: ModelResponse) -> object:
    calls = tuple(part.tool_call_id for part in response.parts if isinstance(part, ToolCallPart))
    return (run, response.timestamp, response.text, calls)


def _fits(writing: _Writing, response: ModelResponse) -> bool:
    """Whether the given events may belong to this reply."""
    parts = response.parts
    return all(
        index < len(parts)
        and isinstance(part := parts[index], (TextPart, ThinkingPart))
        and part.content.startswith(text)
        for index, text in writing.texts.items()
    )


def _grown(index: int, kind: type[TextPart | ThinkingPart], text: str) -> PartDeltaEvent:
    delta = TextPartDelta if kind is TextPart else ThinkingPartDelta
    return PartDeltaEvent(index=index, delta=delta(content_delta=text))


def _whole(run: str, index: int, part: ModelResponsePart) -> Iterator[Given]:
    """The events of a part of which nothing was given out."""
    if isinstance(part, (TextPart, ThinkingPart)) and not part.content:
        return
    if isinstance(part, (TextPart, ThinkingPart, ToolCallPart, NativeToolCallPart)):
        yield Piece(run, PartStartEvent(index=index, part=part))
        yield Piece(run, PartEndEvent(index=index, part=part))
    elif isinstance(part, (NativeToolReturnPart, FilePart)):
        yield Piece(run, PartStartEvent(index=index, part=part))


def _why(event: e.RunFinished) -> str:
    if event.error is not None:
        return str(event.error.get("message") or event.error.get("type") or event.outcome)
    return f"It was {event.outcome}."
