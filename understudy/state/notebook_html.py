"""A state, as a notebook shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from understudy._base import notebook_html as h
from understudy.interrupts import DoubtfulCall, Request
from understudy.state.state_tree import StateTree

MESSAGES = 20
"""The number of messages at the end of a conversation that are shown."""
CHARACTERS = 2000
"""The characters of each text that are shown; a longer text is cut, and says so."""
COLOURS = {"waiting": h.WAITS, "paused": h.WAITS, "failed": h.ENDED, "cancelled": h.ENDED}


def state_html(
    state: StateTree,
    status: str,
    messages: Sequence[ModelMessage],
    values: Mapping[str, Any],
    requests: Sequence[Request],
    doubts: Mapping[str, DoubtfulCall],
) -> str:
    """The state of an agent: its values, what is open, and the end of its conversation."""
    run = state.run
    count = len(messages)
    parts = [
        h.quiet(
            "" if run is None else run.agent,
            "no run" if run is None else h.code(run.run_id),
            "1 message" if count == 1 else f"{count} messages",
        ),
        h.table(values),
        *(h.Html(request._repr_html_()) for request in requests),
    ]
    for doubt in doubts.values():
        parts.append(h.warning(f"{doubt.tool_name!r} is in doubt since {h.at(doubt.since)}."))
        parts += [h.words(doubt.reason), h.table(doubt.arguments)]
    if count:
        last = messages[-MESSAGES:]
        summary = "Conversation" if count <= MESSAGES else f"The last {MESSAGES} messages"
        parts.append(h.folded(summary, h.Html("".join(_said(last)))))
    if requests:
        status = "waits for a person"  # without an actor, no such status was emitted
    colour = h.WAITS if requests else COLOURS.get(status, h.QUIET)
    return h.card("AgentState", status, parts, colour=colour)


def _said(messages: Sequence[ModelMessage]) -> Iterator[str]:
    for message in messages:
        for part in message.parts:
            match part:
                case UserPromptPart(content=content):
                    yield _line("user", content)
                case TextPart(content=content):
                    yield _line("agent", content)
                case ToolCallPart(tool_name=name, args=arguments):
                    yield _line(f"calls {name}", arguments)
                case ToolReturnPart(tool_name=name, content=content):
                    yield _line(f"result of {name}", content)
                case RetryPromptPart(tool_name=name, content=content):
                    yield _line(f"error of {name}" if name else "error", content)
                case _:
                    yield h.quiet(part.part_kind)


def _line(who: str, said: object) -> str:
    text = said if isinstance(said, str) else h.as_text(said)
    if len(text) > CHARACTERS:
        text = f"{text[:CHARACTERS]} ... ({len(text)} characters)"
    return f"{h.quiet(who)}{h.words(text)}"
