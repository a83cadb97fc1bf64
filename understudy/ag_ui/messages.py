"""The conversation as AG-UI's messages, and the ids by which clients know messages and calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ag_ui.core import ToolMessage, UserMessage
from ag_ui.core.types import Message, TextPart
from pydantic_ai.messages import ModelRequest, ModelResponse
from pydantic_ai.ui.ag_ui import AGUIAdapter

from understudy.ag_ui import native_events as n
from understudy.ag_ui.conversation import OWN_ID
from understudy.interrupts import Request
from understudy.state.agent_state import AgentState


def messages_of(
    state: AgentState, own: Iterable[UserMessage] = (), own_results: Mapping[str, str] | None = None
) -> list[Message]:
    """The conversation as AG-UI's messages, with the messages of agents that it runs now.

    Args:
        state: the state of the agent.
        own: the user's messages as the client has them. A client puts the messages of a snapshot
            in the places of those that it has, by their ids, so what it has keeps its ids.
        own_results: the ids of its messages of results, by the ids of their calls.

    """
    found: list[Message] = []
    left = list(own)
    for run, messages, results in n.conversations(state):
        replies = users = 0
        for message in messages:
            counts = {"assistant": 0, "reasoning": 0}
            for dumped in AGUIAdapter.dump_messages([message]):
                _name(dumped, run, replies, users, counts)
                if isinstance(dumped, UserMessage) and not run:
                    _keep_id(dumped, left)
                found.append(dumped)
            replies += isinstance(message, ModelResponse)
            users += isinstance(message, ModelRequest)
        for dumped in AGUIAdapter.dump_messages([ModelRequest(parts=list(results))]):
            _name(dumped, run, replies, users, {})
            found.append(dumped)
    for result in found:
        if isinstance(result, ToolMessage) and own_results:
            result.id = own_results.get(result.tool_call_id, result.id)
    return found


def _keep_id(message: UserMessage, left: list[UserMessage]) -> None:
    """Give a message the id of the client's next message with the same text, if there is one."""
    text = _text(message)
    at = next((n for n, each in enumerate(left) if _text(each) == text), None)
    if at is not None:
        message.id = left[at].id
        del left[: at + 1]


def _text(message: UserMessage) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


def _name(message: Any, run: str, reply: int, user: int, counts: dict[str, int]) -> None:
    """Give a message a stable id, and its run."""
    match message.role:
        case "assistant" | "reasoning" as role:
            kind = "reply" if role == "assistant" else "thinking"
            message.id = message_id(kind, run, reply, counts[role])
            counts[role] += 1
        case "tool":
            message.tool_call_id = wire_id(run, message.tool_call_id)
            message.id = result_id(run, message.tool_call_id)
        case role:
            counts[role] = counts.get(role, 0) + 1
            message.id = message_id(role, run, user, counts[role] - 1)
    for call in getattr(message, "tool_calls", None) or ():
        call.id = wire_id(run, call.id)
        call.encrypted_value = None
    if getattr(message, "encrypted_value", None) is not None:
        message.encrypted_value = None  # nothing that a client sends back is trusted
    if run and hasattr(message, "subagent_run_id"):
        message.subagent_run_id = run


def message_id(kind: str, run: str, number: int, part: int) -> str:
    """The id of a message that the server has made, or knows only by its place."""
    return f"{OWN_ID}{kind}-{f'{run}-' if run else ''}{number}{f'-{part}' if part else ''}"


def result_id(run: str, call_id: str) -> str:
    """The id of the message of a result."""
    return f"{OWN_ID}result-{wire_id(run, call_id)}"


def run_in(request: Request) -> str:
    """The run that asks, as `NativeEvents` names it."""
    return request.run_id if len(request.agent_path) > 1 else n.ROOT


def call_at(request: Request) -> str:
    """The id of the call of a request, as clients know it."""
    return wire_id(run_in(request), request.tool_call_id)


def wire_id(run: str, call_id: str) -> str:
    """The id of a call in a stream, because two agents may have calls with the same id."""
    prefix = f"{run}/"
    return call_id if not run or call_id.startswith(prefix) else f"{prefix}{call_id}"
