"""The file of a cassette: requests to models, and the replies that came, in the library's format.

Conversations are kept as the messages that a state keeps. The context of a request (the model,
instructions, tools, settings) is kept beside them. An export of an agent can be read as a cassette
too: it has the conversations without contexts.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse

from understudy._base.json_values import digest, reason
from understudy.actors.reads.export import Exported, read_export
from understudy.errors import SchemaVersionError, UsageError
from understudy.journal.store_format import library_version
from understudy.models.messages import messages_from_dicts, messages_to_dicts
from understudy.state.agent_state import AgentState
from understudy.state.fold import apply
from understudy.state.records import ChildRecord, Record, Reply, ReplyHeld

CASSETTE_VERSION = 1
_MESSAGE = ("kind", "parts", "finish_reason", "model_name", "provider_name", "usage")
_PART = (
    "part_kind",
    "content",
    "tool_name",
    "args",
    "tool_call_id",
    "outcome",
    "id",
    "signature",
    "provider_name",
    "citations",
)
_USAGE = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "input_audio_tokens",
    "output_audio_tokens",
    "cache_audio_read_tokens",
    "cost",
)
"""The fields that are kept of a message, of its parts and of its usage. Headers, URLs and details
of a provider, metadata and ids of runs are not kept."""
LONGEST_LINE = 200
MOST_LINES = 60
"""The maximum lines of a difference that are shown."""
LAST_CHARACTERS = 500
"""The last characters of a request that are compared to choose between requests with equally many
common lines."""
MOST_COMPARED = 200
"""The maximum number of exchanges among which the nearest is searched."""


@dataclass(slots=True)
class Exchange:
    """A request to a model, as it is kept, and its reply.

    Args:
        context: the context of the request beside its messages; None if it is not known.
        messages: the messages of the request.
        reply: the reply that came.

    """

    context: dict[str, Any] | None
    messages: list[dict[str, Any]]
    reply: dict[str, Any]
    played: bool = False
    """Whether it was played, or has just been recorded."""
    lines: list[str] = field(init=False)
    """The request as lines, in the form that is compared and that people read."""
    key: str = field(init=False)
    """The key of the request. Equal requests have the same key."""

    def __post_init__(self) -> None:
        self.lines = request_lines(self.context, self.messages)
        self.key = digest(self.lines)

    @property
    def response(self) -> ModelResponse:
        """The reply as a message."""
        found = messages_from_dicts([self.reply])[0]
        assert isinstance(found, ModelResponse), "checked when it was read"
        return found


def kept_message(message: ModelMessage) -> dict[str, Any]:
    """The part of a message that a cassette keeps."""
    data = messages_to_dicts([message])[0]
    kept = {name: data[name] for name in _MESSAGE if data.get(name) is not None}
    kept["parts"] = [
        {name: part[name] for name in _PART if part.get(name) is not None} for part in data["parts"]
    ]
    if "usage" in kept:
        usage = kept["usage"]
        kept["usage"] = {name: usage[name] for name in _USAGE if usage.get(name)}
    return kept


def request_lines(
    context: Mapping[str, Any] | None, messages: Sequence[Mapping[str, Any]]
) -> list[str]:
    """A request as lines. Equal requests have equal lines; ids of calls count only by their
    order.
    """
    lines: list[str] = []
    for name, value in (context or {}).items():
        if name == "tools":
            lines += [f"tool {tool}: {_json(schema)}" for tool, schema in sorted(value.items())]
        elif value not in (None, "", {}, []):
            lines += _said(name, value)
    ids: dict[str, int] = {}
    for message in messages:
        for part in message["parts"]:
            kind = part["part_kind"]
            content = part.get("content", "")
            call = ids.setdefault(part.get("tool_call_id", ""), len(ids) + 1)
            if kind == "tool-call":
                lines += _said(f"call {call} of {part['tool_name']}", _arguments(part.get("args")))
            elif "tool_name" in part:
                outcome = part.get("outcome", "success")
                said = "" if outcome == "success" else f" ({outcome})"
                lines += _said(f"result of call {call} of {part['tool_name']}{said}", content)
            else:
                lines += _said(kind, content)
    return lines


def _said(what: str, value: Any) -> list[str]:
    text = value if isinstance(value, str) else _json(value)
    first, *rest = text.splitlines() or [""]
    return [f"{what}: {first}", *(f"    {line}" for line in rest)]


def _arguments(given: Any) -> Any:
    """The arguments of a call, whether the model wrote them as text or as an object."""
    if not isinstance(given, str):
        return given or {}
    try:
        return json.loads(given)
    except ValueError:
        return given


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def difference(recorded: Exchange, lines: Sequence[str]) -> str:
    """The difference of another request, for people."""
    before = recorded.lines
    if recorded.context is None:  # an unknown context cannot differ
        lines = [line for line in lines if not line.startswith(CONTEXT_LINES)]
    found = list(difflib.unified_diff(before, lines, "recorded", "asked now", n=2, lineterm=""))
    shown = [line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…" for line in found]
    left = len(shown) - MOST_LINES
    more = [f"… and {left} more lines"] if left > 0 else []
    return "\n".join(f"  {line}" for line in (*shown[:MOST_LINES], *more))


CONTEXT_LINES = ("model: ", "settings: ", "instructions: ", "tool ", "output: ", "native tools: ")
"""The beginnings of the lines of a context."""


def nearest(exchanges: Sequence[Exchange], lines: Sequence[str]) -> int | None:
    """The index of the exchange whose request is most like this one; None without any."""
    found = exchanges[:MOST_COMPARED]
    if not found:
        return None
    likeness = [_likeness(each.lines, lines) for each in found]
    best = max(likeness)
    text = "\n".join(lines)[-LAST_CHARACTERS:]

    def rank(at: int) -> tuple[float, bool]:
        # Of requests with equally many common lines, the most similar text that was not played
        # wins.
        other = "\n".join(found[at].lines)[-LAST_CHARACTERS:]
        return _likeness(other, text), not found[at].played

    return max((at for at, each in enumerate(likeness) if each == best), key=rank)


def _likeness(one: Sequence[str], other: Sequence[str]) -> float:
    return difflib.SequenceMatcher(None, one, other, autojunk=False).ratio()


# -------------------------------------------------------------------------------- the file


def written(exchanges: Iterable[Exchange]) -> dict[str, Any]:
    """The exchanges as the data of a file. A message of a conversation is in it once."""
    conversations: list[dict[str, Any]] = []
    for each in exchanges:
        for conversation in conversations:
            before = conversation["messages"]
            begins = each.messages[: len(before)] == before
            if begins and conversation["context"] == each.context and _ends_in_reply(conversation):
                break
        else:
            conversation = {"context": each.context, "replies": [], "messages": []}
            conversations.append(conversation)
        conversation["messages"] = [*each.messages, each.reply]
        conversation["replies"].append(len(each.messages))
    return {
        "cassette_version": CASSETTE_VERSION,
        "library": library_version(),
        "conversations": conversations,
    }


def _ends_in_reply(conversation: Mapping[str, Any]) -> bool:
    return bool(conversation["replies"]) and (
        conversation["replies"][-1] == len(conversation["messages"]) - 1
    )


def read(path: Path) -> list[Exchange]:
    """The exchanges of a file: of a cassette, or of an export.

    Raises:
        UsageError: if it is neither, or damaged; the error names the file.
        SchemaVersionError: if it has another format.

    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise UsageError(
            f"the cassette {path} cannot be read: {reason(error)}. Record it anew, by "
            "--understudy-record=all"
        ) from error
    if isinstance(data, dict) and "export_version" in data:
        return list(_of_export(read_export(data)))
    version = data.get("cassette_version") if isinstance(data, dict) else None
    if version is None:
        raise UsageError(
            f"{path} is neither a cassette nor an exported agent: it has no 'cassette_version'"
        )
    if version != CASSETTE_VERSION:
        raise SchemaVersionError(
            version=version,
            known=CASSETTE_VERSION,
            what=f"cassette {path}",
            library=str(data.get("library", "")),
        )
    try:
        return list(_of_conversations(data["conversations"]))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"the cassette {path} is damaged: {reason(error)}. Record it anew, by "
            "--understudy-record=all"
        ) from error


def _of_conversations(conversations: Iterable[Mapping[str, Any]]) -> Iterator[Exchange]:
    for conversation in conversations:
        messages = conversation["messages"]
        for at in conversation["replies"]:
            if messages[at]["kind"] != "response":
                raise ValueError(f"message {at} is no reply")
            messages_from_dicts([messages[at]])
            yield Exchange(conversation["context"], messages[:at], messages[at])


def _of_export(export: Exported) -> Iterator[Exchange]:
    for state, record in _folded(export):
        if isinstance(record, (Reply, ReplyHeld)):
            before = [kept_message(message) for message in state.messages]
            yield Exchange(None, before, kept_message(record.response))


def _folded(export: Exported) -> Iterator[tuple[AgentState, Record]]:
    """Each record, also of agents inside, with the state of its agent right before it."""
    state = AgentState()
    for record in export.records:
        place, inner = state, record
        while isinstance(inner, ChildRecord):
            place = place.children.get(inner.child) or AgentState()
            inner = inner.record
        yield place, inner
        apply(state, record)
