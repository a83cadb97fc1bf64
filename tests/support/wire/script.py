"""What a model says, in words that fit every provider. A format puts them on its wire."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic_ai.messages import FinishReason

Natural = Literal["natural"]


@dataclass(frozen=True, slots=True)
class WireCall:
    """A tool call as it stands on the wire: its arguments are a string, well-formed or not."""

    name: str
    arguments: str
    id: str


def wire_call(name: str, arguments: Mapping[str, Any] | str, *, id: str) -> WireCall:
    """A tool call; arguments given as a string are sent as they are."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return WireCall(name, text, id)


@dataclass(frozen=True, slots=True)
class Thinking:
    """What the model thought before it spoke, with the provider's signature of it."""

    text: str
    signature: str = "c2lnbmVk"
    """Base64, as Google's are bytes."""


@dataclass(frozen=True, slots=True)
class Search:
    """A search of the web by the provider itself, and the page that it found."""

    query: str
    url: str = "https://example.com/kettles"
    title: str = "Kettles"


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a reply costs."""

    input: int = 7
    output: int = 3


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a streamed reply ends before its end. A reply that is not streamed is not cut."""

    after: int | Literal["head", "call", "arguments", "content"]
    """So many events; or what opens the reply; or the start of its last call; or the middle of
    that call's arguments; or everything but the end of the reply.

    A provider that sends a call in one piece is cut inside that piece in place of `arguments`.
    """
    clean: bool = True
    """The body ends well. Otherwise the connection closes in the middle of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the model says. Streamed, text comes in the pieces given, arguments in threes."""

    text: str | tuple[str, ...] = ""
    calls: tuple[WireCall, ...] = ()
    thinking: Thinking | None = None
    search: Search | None = None
    """Done before it spoke. OpenAI's chat completions say nothing of theirs."""
    refusal: str | None = None
    """Said instead of an answer, in the way that the provider has for it."""
    finish_reason: FinishReason | Natural | None = "natural"
    """By default the one that fits; None if the reply ends without one."""
    tokens: Tokens | None = Tokens()
    """None if the provider does not say."""
    cut: Cut | None = None

    @property
    def pieces(self) -> tuple[str, ...]:
        return (self.text,) if isinstance(self.text, str) else self.text

    @property
    def whole_text(self) -> str:
        return "".join(self.pieces)

    @property
    def ended_by(self) -> FinishReason | None:
        if self.finish_reason != "natural":
            return self.finish_reason
        if self.refusal is not None:
            return "content_filter"
        return "tool_call" if self.calls else "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpError:
    """An error in the provider's own form instead of a reply."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = "refused by the script"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawBody:
    """A body that is sent as it is, whatever was asked for."""

    body: str | bytes
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Reply | HttpError | RawBody
"""To one request."""

Kind = Literal["head", "content", "call", "arguments", "end"]


@dataclass(frozen=True, slots=True)
class WireEvent:
    """One server-sent event, and which part of a reply it is."""

    kind: Kind
    data: Mapping[str, Any] | str
    name: str | None = None

    def encoded(self) -> bytes:
        text = self.data if isinstance(self.data, str) else json.dumps(self.data)
        head = f"event: {self.name}\n" if self.name else ""
        return f"{head}data: {text}\n\n".encode()


def in_threes(text: str) -> list[str]:
    return [text[start : start + 3] for start in range(0, len(text), 3)]


def sent(events: list[WireEvent], cut: Cut | None) -> list[bytes]:
    """What of the events comes through."""
    encoded = [event.encoded() for event in events]
    if cut is None:
        return encoded
    if isinstance(cut.after, int):
        return encoded[: cut.after]
    last_call = max((i for i, e in enumerate(events) if e.kind == "call"), default=-1)
    match cut.after:
        case "head":
            count = next(i for i, event in enumerate(events) if event.kind != "head")
        case "content":
            count = next(i for i, event in enumerate(events) if event.kind == "end")
        case "call":
            assert last_call >= 0, "a reply without a call is not cut in one"
            count = last_call + 1
        case "arguments":
            assert last_call >= 0, "a reply without a call is not cut in one"
            bits = [i for i in range(last_call, len(events)) if events[i].kind == "arguments"]
            if not bits:
                piece = encoded[last_call]
                return [*encoded[:last_call], piece[: len(piece) // 2]]
            count = bits[len(bits) // 2]
    return encoded[:count]
