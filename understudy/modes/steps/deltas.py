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

from understudy.events import TextDelta, ThinkingDelta
from understudy.run.run import Run


class DeltaEmitter:
    """Emits the text and thinking of a model call as events, numbered over all of its streams."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._count = 0
        self._enabled = run.observed and run.definition.hooks.streams_safely
        self.said_text = False
        """Text was emitted, so a person may have read it."""

    def emit(self, event: Any) -> None:
        """Emit what this event of a stream adds."""
        if not self._enabled:
            return
        match event:
            case (
                PartStartEvent(part=TextPart(content=text))
                | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
            ):
                self.emit_text(text)
            case (
                PartStartEvent(part=ThinkingPart(content=text))
                | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text)))
            ):
                if text:
                    self._run.emit(ThinkingDelta(text=text, **self._next_place()))

    def emit_text(self, text: str) -> None:
        """Emit a piece of text."""
        if text:
            self.said_text = True
            self._run.emit(TextDelta(text=text, **self._next_place()))

    def _next_place(self) -> dict[str, Any]:
        current = self._run.current
        self._count += 1
        return {
            "agent_path": self._run.agent_path,
            "turn": current.turns,
            "attempt": current.attempts,
            "n": self._count - 1,
        }
