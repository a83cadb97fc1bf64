"""The ids of tool calls: a provider's own where they can be used, else ours (T7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic_ai.messages import ModelResponse, ToolCallPart

from understudy.run.run import Run

__all__ = ["with_own_ids"]


def with_own_ids(run: Run, response: ModelResponse) -> ModelResponse:
    """The reply with each unusable tool call id replaced (T7)."""
    seen: set[str] = set()
    parts: list[Any] | None = None
    for index, part in enumerate(response.parts):
        if not isinstance(part, ToolCallPart):
            continue
        identity = part.tool_call_id
        if not identity or "/" in identity or identity in seen or _occurs(identity, run):
            identity = f"call_{run.run_id[:20]}_{run.current.turns}_{index}"
            while identity in seen or _occurs(identity, run):
                identity += "x"
            parts = list(response.parts) if parts is None else parts
            parts[index] = replace(part, tool_call_id=identity)
        seen.add(identity)
    return response if parts is None else replace(response, parts=parts)


def _occurs(identity: str, run: Run) -> bool:
    """Whether a call has this id; in a workflow those of all of its agents will stand together."""
    if run.current.shared is None:
        return run.state.messages.has_call_id(identity)
    while run.parent is not None and run.current.shared is not None:
        run = run.parent
    return any(state.messages.has_call_id(identity) for state in run.state.tree)
