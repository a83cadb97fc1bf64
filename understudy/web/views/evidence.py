"""The evidence of a doubt: the known facts of a call whose effect nobody knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from pydantic_ai.messages import ModelRequest, ModelResponse, ToolReturnPart
from pydantic_core import from_json

from understudy._base.json_values import digest, jsonable
from understudy._base.points_in_time import time_text
from understudy.errors import UnderstudyError
from understudy.history import HistoryEntry
from understudy.interrupts import Request
from understudy.state.agent_state import AgentState
from understudy.web.views.newest_first import NEWEST, page_before
from understudy.web.visit import Visit

STEP, MOST = 200, 2_000
"""The numbers of records of one read of an agent's history, and of all reads about one call."""
EQUAL = 10
"""The maximum number of equal calls that are shown with a doubt."""
CONTENT = 400
"""The maximum characters of the result of an equal call."""


async def evidence(
    visit: Visit,
    state: AgentState | None,
    *,
    call_key: str,
    tool: str,
    given: Any,
    besides: str | None = None,
) -> dict[str, Any]:
    """The evidence: when and where the call was started, who has continued since, and equal calls.

    Args:
        visit: a visit about the agent.
        state: the state of the agent; None if it cannot be read.
        call_key: the key of the call in doubt.
        tool: the name of its tool.
        given: the arguments, as plain data.
        besides: the id of a call that is shown anyway and does not count as an equal call.

    """
    found: dict[str, Any] = {
        "started_at": None,
        "attempt": None,
        "host": None,
        "last_sign_at": None,
        "went_on_at": None,
        "went_on_host": None,
        "checks": [],
        "equal": [] if state is None else list(_equal_calls(state, call_key, tool, given, besides)),
    }
    try:
        await _look_back(visit, call_key, found)
    except UnderstudyError:  # as above
        return found
    return found


async def _look_back(visit: Visit, call_key: str, found: dict[str, Any]) -> None:
    """Fill in the facts from the records, newest first."""
    before: int | None = NEWEST
    looked = 0
    newer: HistoryEntry | None = None  # the entry that was recorded after this one
    next_attempt: HistoryEntry | None = None
    next_sign: datetime | None = None
    while before is not None and looked < MOST:
        page = await page_before(visit, before, STEP)
        before, looked = page.next, looked + STEP
        for entry in reversed(page.entries):
            is_of_call = entry.call_key == call_key
            if newer is not None and newer is next_attempt:
                next_sign = entry.at
            newer = entry
            if entry.what == "attempt_started":
                if found["started_at"] is not None:  # the call was started in this step
                    found["host"] = entry.detail["host"]
                    return
                next_attempt = entry
            elif is_of_call and entry.what == "wait_over" and entry.detail["what"] == "check":
                found["checks"].insert(0, time_text(entry.at))
            elif is_of_call and entry.what == "tool_started" and found["started_at"] is None:
                found["started_at"] = time_text(entry.at)
                found["attempt"] = entry.detail["attempt"]
                if next_attempt is not None and next_attempt.run_id == entry.run_id:
                    found["last_sign_at"] = time_text(next_sign)
                    found["went_on_at"] = time_text(next_attempt.at)
                    found["went_on_host"] = next_attempt.detail["host"]


def _equal_calls(
    state: AgentState, call_key: str, tool: str, given: Any, besides: str | None
) -> Iterator[dict[str, Any]]:
    """The calls of the same tool with the same arguments, in order, each with its result."""
    if not isinstance(given, Mapping):
        return
    own = {
        call.part.tool_call_id
        for inner in state.tree
        for call in (() if inner.run is None else inner.run.calls)
        if call.key == call_key
    }
    own |= {
        doubt.tool_call_id for doubt in state.doubts_in_tree.values() if doubt.call_key == call_key
    }
    count = 0
    for inner in state.tree:
        results = {
            part.tool_call_id: part
            for message in inner.messages
            if isinstance(message, ModelRequest)
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        }
        is_after = False
        for message in inner.messages:
            for call in message.tool_calls if isinstance(message, ModelResponse) else ():
                if call.tool_call_id in own:
                    is_after = True
                elif call.tool_call_id == besides:
                    continue
                elif call.tool_name == tool and count < EQUAL and _is_equal(call.args, given):
                    count += 1
                    result = results.get(call.tool_call_id)
                    yield {
                        "when": "after" if is_after else "before",
                        "outcome": "open" if result is None else result.outcome,
                        "content": "" if result is None else _shortened(result),
                        "at": None if result is None else time_text(result.timestamp),
                    }


def _is_equal(written: object, given: Mapping[str, Any]) -> bool:
    """Whether a call, as the model wrote it, has these arguments. Defaults may be left out."""
    if isinstance(written, str):
        try:
            written = from_json(written)
        except ValueError:
            return False
    if not isinstance(written, Mapping):
        return False
    return all(name in given and jsonable(value) == given[name] for name, value in written.items())


def _shortened(part: ToolReturnPart) -> str:
    text = part.content if isinstance(part.content, str) else part.model_response_str()
    return text if len(text) <= CONTENT else f"{text[:CONTENT]}…"


# ------------------------------------------------------- an approval beside a doubt


async def with_evidence(
    visit: Visit, state: AgentState, request: Request, doubts: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The doubts that a request shows, each with evidence and whether it equals the request's
    call.
    """
    arguments = jsonable(request.arguments)
    rows = []
    for doubt in doubts:
        is_equal = bool(doubt["agent_id"]) or doubt["arguments"] == arguments
        is_open = doubt["status"] == "in_doubt" and doubt["settled"] is None
        row = {**doubt, "is_equal": is_equal, "is_open": is_open, "evidence": None}
        if is_equal and is_open and not doubt["agent_id"]:
            row["evidence"] = await evidence(
                visit,
                state,
                call_key=doubt["call_key"],
                tool=doubt["tool_name"],
                given=doubt["arguments"],
                besides=request.tool_call_id,
            )
        rows.append(row)
    return rows


def despite_of(data: Mapping[str, Any]) -> str:
    """A text that names the equal calls in doubt, by which a person confirms them with an approval.

    It is empty if there is no such call, and changes with each further call.
    """
    request = data["request"]
    if request is None or request["kind"] == "doubt" or not data["is_pending"]:
        return ""
    keys = sorted(
        f"{doubt['agent_id']}/{doubt['call_key']}"
        for doubt in data["doubts"]
        if doubt["is_equal"] and doubt["is_open"]
    )
    return digest(keys)[:32] if keys else ""
