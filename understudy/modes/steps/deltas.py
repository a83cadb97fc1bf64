"""The text and thinking of one model call as events, while they are streamed."""

from __future__ import annotations

from typing import Any

from pydantic_ai.messages import (
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)

from understudy._base.json_values import storable_text
from understudy.events import TextDelta, ThinkingDelta
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
        self.said_text: bool = False
        """Text was emitted, more than white space, so a person may have read it."""

    def emit(self, event: Any) -> None:
        """Emit what this event of a stream adds."""
        if not self._enabled:
            return
        match event:
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                self._emit(TextDelta, text)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))):
                self._emit(ThinkingDelta, text)
            case PartStartEvent(part=part):
                self.end()
                if isinstance(part, TextPart):
                    self._emit(TextDelta, part.content)
                elif isinstance(part, ThinkingPart):
                    self._emit(ThinkingDelta, part.content)

    def emit_text(self, text: str) -> None:
        """Emit a whole text."""
        self._emit(TextDelta, text)

    def end(self) -> None:
        """Emit the half of a character that nothing comes to any more."""
        if self._half:
            half, self._half = self._half, ""
            self._send(self._half_of, storable_text(half))

    def _emit(self, delta: Delta, text: str) -> None:
        if text.isascii() and not self._half:
            self._send(delta, text)
            return
        if self._half_of is not delta:
            self.end()
        text, self._half = self._half + text, ""
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._half, self._half_of = text[:-1], text[-1], delta
        self._send(delta, storable_text(text))

    def _send(self, delta: Delta, text: str) -> None:
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
            )
        )
