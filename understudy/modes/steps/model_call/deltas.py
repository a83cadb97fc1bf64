"""The text, thinking and tool calls of one model call as events, while they are streamed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import (
    ModelResponsePart,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
)

from understudy._base.json_values import storable_text
from understudy.events import TextDelta, ThinkingDelta, ToolCallAnnounced
from understudy.run.run import Run

Delta = type[TextDelta] | type[ThinkingDelta]


class DeltaEmitter:
    """Emits the text and thinking of a model call as events, numbered over all of its streams.

    A stream may be cut in the middle of a character: then the first half of its surrogate pair
    waits for the other one. Together the deltas are the text that is recorded.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._count = 0
        self._enabled = run.observed and run.definition.hooks.streams_safely
        self._half = ""
        self._half_of: Delta = TextDelta
        self._half_part = 0
        self.said_text: bool = False
        """Whether text was emitted, more than white space: a person may have read it."""

    def emit(self, event: Any) -> None:
        """Emit what this event of a stream adds."""
        if not self._enabled:
            return
        match event:
            case PartDeltaEvent(index=index, delta=TextPartDelta(content_delta=text)):
                self._emit(TextDelta, index, text)
            case PartDeltaEvent(index=index, delta=ThinkingPartDelta(content_delta=str(text))):
                self._emit(ThinkingDelta, index, text)
            case PartStartEvent(index=index, part=part):
                self.end()
                if isinstance(part, TextPart):
                    self._emit(TextDelta, index, part.content)
                elif isinstance(part, ThinkingPart):
                    self._emit(ThinkingDelta, index, part.content)
                elif isinstance(part, ToolCallPart):
                    self._announce(index, part.tool_name)

    def emit_parts(self, parts: Sequence[ModelResponsePart]) -> None:
        """Emit a reply that came as a whole."""
        for index, part in enumerate(parts):
            self.emit(PartStartEvent(index=index, part=part))
        self.end()

    def emit_text(self, text: str) -> None:
        """Emit a whole text."""
        self._emit(TextDelta, 0, text)

    def _announce(self, index: int, tool_name: str) -> None:
        run = self._run
        tool = run.definition.tool_of(tool_name)
        text = tool.display_text if tool is not None else None
        run.emit(
            ToolCallAnnounced(
                agent_path=run.agent_path,
                turn=run.current.turns,
                attempt=run.current.attempts,
                part=index,
                tool_name=storable_text(tool_name),
                display_text=text if isinstance(text, str) else None,
                run_id=run.run_id,
            )
        )

    def end(self) -> None:
        """Emit a held half of a character: its other half will not come any more."""
        if self._half:
            half, self._half = self._half, ""
            self._send(self._half_of, self._half_part, storable_text(half))

    def _emit(self, delta: Delta, part: int, text: str) -> None:
        if text.isascii() and not self._half:
            self._send(delta, part, text)
            return
        if self._half_of is not delta or self._half_part != part:
            self.end()
        text, self._half = self._half + text, ""
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._half, self._half_of, self._half_part = text[:-1], text[-1], delta, part
        self._send(delta, part, storable_text(text))

    def _send(self, delta: Delta, part: int, text: str) -> None:
        if not text:
            return
        if delta is TextDelta and not text.isspace():
            self.said_text = True
        current = self._run.current
        self._count += 1
        self._run.emit(
            delta(
                agent_path=self._run.agent_path,
                turn=current.turns,
                attempt=current.attempts,
                n=self._count - 1,
                text=text,
                run_id=self._run.run_id,
                part=part,
            )
        )
