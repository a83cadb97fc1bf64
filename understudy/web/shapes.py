"""The answers of the API, as its OpenAPI document describes them.

`tests/web/test_shapes.py` compares each answer with its shape: no field too many, none too few.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from understudy.interrupts import Decision
from understudy.state.waits import Wait

exactly = with_config(ConfigDict(extra="forbid"))
Time = str
"""ISO 8601."""


@exactly
class UserShape(TypedDict):
    """Who is logged in."""

    name: str
    may: list[str]


@exactly
class Overview(TypedDict):
    """The runtime. What is of one process is null where the pages look beside the runtimes."""

    title: str
    user: UserShape
    read_only: bool
    agents: dict[str, int]
    in_memory: int | None
    running: int | None
    abandoned_threads: int | None
    abandoned_tasks: int | None
    tree: str | None


@exactly
class Filters(TypedDict):
    """What was asked for."""

    tool: NotRequired[str | None]
    agent: str | None
    kind: NotRequired[str | None]
    order: NotRequired[str]
    status: NotRequired[str | None]
    prefix: NotRequired[str | None]


@exactly
class RequestShape(TypedDict):
    """A request, as it was asked."""

    id: str
    kind: str
    agent_id: str
    run_id: str
    agent_path: list[str]
    call_key: str
    tool_call_id: str
    tool_name: str
    arguments: Any
    display: Any
    payload: Any
    allowed: list[str]
    created_at: Time
    expires_at: Time | None
    remind_at: list[Time]
    escalations: list[Any]
    on_expiry: str
    fingerprint: str
    digest: str
    source: str
    doubts: list[Any]


@exactly
class InboxRow(RequestShape):
    """A request of the list, with what the store tells of it."""

    agent: str
    tool_description: str | None
    tool_parameters: dict[str, Any] | None
    reminders: int
    escalated_to: list[str]
    next_due: Time | None
    reply: str
    reply_size: int
    reply_answered: int
    summary: str


@exactly
class Inbox(TypedDict):
    """Requests that wait, and the `after` of the next page."""

    requests: list[InboxRow]
    next: str | None
    filters: Filters


@exactly
class ActionShape(TypedDict):
    """Something that may be done, or the reason why not."""

    name: str
    enabled: bool
    reason: str | None


@exactly
class AgentRow(TypedDict):
    """An agent of the list."""

    id: str
    agent: str
    status: str
    status_at: Time | None
    is_active: bool
    host: str | None
    waits_for: str
    due: Time | None
    version: str | None
    damage: str | None


@exactly
class Agents(TypedDict):
    """Agents, and the `after` of the next page."""

    agents: list[AgentRow]
    next: str | None
    filters: Filters
    statuses: list[str]


@exactly
class StickyShape(TypedDict):
    """A decision that always holds."""

    decision: Decision
    at: Time | None


@exactly
class AgentPage(AgentRow):
    """One agent: what it does now, what it asks, and what may be done with it."""

    why: str
    run_id: str | None
    is_open: bool
    quarantined: str | None
    requests: list[RequestShape]
    waits: list[Wait]
    doubts: list[dict[str, Any]]
    sticky: dict[str, StickyShape]
    queue: list[str]
    next_due: Time | None
    actions: list[ActionShape]


class Story(TypedDict):
    """What became of a request."""

    what: Literal["decided", "withdrawn", "expired", "deleted", "void", "unknown"]
    at: Time | None
    by: str | None
    decision: Decision | None
    sticky: NotRequired[bool]


@exactly
class Sibling(TypedDict):
    """Another request of the same reply."""

    id: str
    tool_name: str
    summary: str


@exactly
class Reply(TypedDict):
    """The reply that a request belongs to. Nothing of it starts until all are answered."""

    answered: int
    size: int
    others: list[Sibling]


@exactly
class RowShape(TypedDict):
    """A row of a conversation."""

    id: str
    kind: str
    state: str
    text: str
    model_text: str | None
    agent_path: list[str]
    run_id: str | None
    parent: str | None
    at: Time | None
    position: list[int]
    seq: int | None
    detail: dict[str, Any]
    depth: int


@exactly
class RequestPage(TypedDict):
    """One request, whether it waits or not. Null where it is not known any more."""

    request: RequestShape | None
    is_pending: bool
    is_expired: bool
    story: Story | None
    agent_id: str
    agent: str | None
    tool_description: str | None
    tool_parameters: dict[str, Any] | None
    doubts: list[dict[str, Any]]
    last_rows: list[RowShape]
    reply: Reply


@exactly
class Conversation(TypedDict):
    """Rows, oldest first: a page of them, counted from the newest; or what has changed."""

    id: str
    rows: list[RowShape]
    seq: int | None
    reset: bool
    more: bool
    earlier: NotRequired[int | None]
    later: NotRequired[int | None]


@exactly
class Messages(TypedDict):
    """The conversation, as the model's messages."""

    id: str
    messages: list[dict[str, Any]]


Bar = TypedDict(
    "Bar",
    {
        "kind": Literal["run", "reply", "call", "person", "wait"],
        "label": str,
        "depth": int,
        "start": Time,
        "end": Time | None,
        "seconds": float | None,
        "outcome": str,
        "in_doubt": bool,
        "look": str,
        "detail": str,
        "from": float,
        "to": float,
    },
)
Mark = TypedDict("Mark", {"kind": str, "label": str, "at": Time, "from": float})


@exactly
class Timeline(TypedDict):
    """A page of bars, with what happened between them. `from`, `to` and `breaks`: 0 to 100."""

    id: str
    bars: list[Bar]
    marks: list[Mark]
    breaks: list[float]
    earlier: int | None
    later: int | None


@exactly
class StatePage(TypedDict):
    """The values, and the whole state as it is stored."""

    id: str
    values: dict[str, Any]
    state: dict[str, Any]


@exactly
class DecisionRow(TypedDict):
    """A decision of the audit."""

    request_id: str
    at: Time | None
    by: str | None
    waited_seconds: float | None
    agent_path: list[str]
    decision: dict[str, Any]
    sticky: bool
    tool_name: str | None


@exactly
class Decisions(TypedDict):
    """Who decided what, oldest first."""

    id: str
    decisions: list[DecisionRow]


@exactly
class Entry(TypedDict):
    """Something that happened."""

    seq: int
    what: str
    at: Time | None
    agent_path: list[str]
    run_id: str | None
    call_key: str | None
    tool_name: str | None
    who: str | None
    seconds: float | None
    detail: dict[str, Any]


@exactly
class History(TypedDict):
    """What happened, and the `after` of the next page."""

    id: str
    entries: list[Entry]
    next: int | None


@exactly
class Tokens(TypedDict):
    """What replies cost."""

    replies: int
    input_tokens: int
    output_tokens: int


@exactly
class UsagePage(TypedDict):
    """What the replies cost."""

    id: str
    by_model: dict[str, Tokens]
    by_agent: dict[str, Tokens]


@exactly
class LatestShape(TypedDict):
    """The last time of a schedule."""

    due: Time | None
    triggered: bool
    skipped: str | None


@exactly
class ScheduleShape(TypedDict):
    """A schedule, and what may be done with it."""

    id: str
    name: str
    cron: str
    timezone: str
    text: str
    missed: str
    overlap: str
    paused: bool
    created_at: Time | None
    next_due: Time | None
    latest: LatestShape | None
    actions: list[ActionShape]


@exactly
class SchedulesPage(TypedDict):
    """What the agent is to do by itself."""

    id: str
    schedules: list[ScheduleShape]


@exactly
class OutcomePage(TypedDict):
    """How the run stands; `outcome` is null while it goes on."""

    id: str
    outcome: (
        Literal["completed", "interrupted", "paused", "waiting", "stopped", "failed", "withdrawn"]
        | None
    )
    run_id: str | None
    model_calls: NotRequired[int]
    text: NotRequired[str | None]
    error: NotRequired[dict[str, Any] | None]
    signals: NotRequired[dict[str, Any] | None]
    requests: NotRequired[list[RequestShape]]
    reason: NotRequired[str]
    waits: NotRequired[list[str]]


@exactly
class Taken(TypedDict):
    """Decisions that are recorded; whether they were so before."""

    agent_id: str
    recorded: list[str]
    repeated: bool


class Result(TypedDict):
    """What became of one decision of many. A refused one has the fields of a problem."""

    agent_id: str
    request_id: str
    ok: bool
    detail: str
    repeated: NotRequired[bool]
    status: NotRequired[int]
    error: NotRequired[str]


@exactly
class Results(TypedDict):
    """What became of each."""

    results: list[Result]
    recorded: int
    refused: int


@exactly
class Sent(TypedDict):
    """A message that is recorded."""

    id: str
    message_id: str


@exactly
class Done(TypedDict):
    """It is done; or has begun, where `done` is false."""

    id: str
    done: NotRequired[bool]


@exactly
class Deleted(TypedDict):
    """An agent that is deleted."""

    id: str
    deleted: Literal[True]


@exactly
class Changed(TypedDict):
    """What became of a schedule."""

    id: str
    schedule: str
    result: dict[str, Any] | None


@exactly
class Imported(TypedDict):
    """An agent that is imported."""

    id: str


@exactly
class Continued(TypedDict):
    """The agents whose runs were cut off, and go on."""

    continued: list[str]
