"""The answers of the API about one agent and about actions on it: see `shapes`."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from understudy.state.waits import Wait
from understudy.web.shapes import (
    DecidedRow,
    DoubtRow,
    Filters,
    FreezeShape,
    NoticeShape,
    OfferShape,
    RequestShape,
    ReviewShape,
    RowShape,
    Time,
    VoteShape,
    exactly,
)


@exactly
class ActionShape(TypedDict):
    """Something that may be done, or the reason why not."""

    name: str
    enabled: bool
    reason: str | None


@exactly
class TroubledAgent(TypedDict):
    """An agent that needs a person."""

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
class AgentRow(TroubledAgent):
    """An agent of the list."""

    frozen: str | None
    """The freeze of the agent or of its open run: who ordered it and why; null without a freeze."""


@exactly
class TroubledAgents(TypedDict):
    """How many there are, and the first of them."""

    count: int
    rows: list[TroubledAgent]


@exactly
class FrozenStore(TypedDict):
    """Freezes of the whole store."""

    count: int
    rows: list[FreezeShape]


@exactly
class TroublingDoubts(TypedDict):
    """How many calls are in doubt, and the first of them."""

    count: int
    rows: list[DoubtRow]


@exactly
class OverdueRow(TypedDict):
    """A request that is overdue."""

    agent_id: str
    agent: str
    agent_path: list[str]
    id: str
    kind: str
    tool_name: str
    source: str
    created_at: Time
    expires_at: Time | None
    reminders: int
    escalated_to: list[str]
    title: str
    summary: str


@exactly
class OverdueRequests(TypedDict):
    """How many requests are overdue, and the first of them."""

    count: int
    rows: list[OverdueRow]


@exactly
class ExpiredRequests(TypedDict):
    """How many requests nobody answered in time, and the newest of them."""

    count: int
    rows: list[DecidedRow]


@exactly
class GoneHostRow(TypedDict):
    """A host that has ended, and how many open runs it has left."""

    name: str
    runs: int
    since: Time | None


@exactly
class FailedNotices(TypedDict):
    """The number of notices that were given up, and the newest of these notices."""

    count: int
    rows: list[NoticeShape]


@exactly
class GoneHosts(TypedDict):
    """The hosts that have left open runs."""

    count: int
    rows: list[GoneHostRow]


@exactly
class AttentionPage(TypedDict):
    """What needs a person. Failed and expired are those of the last 24 hours."""

    at: Time
    count: int
    frozen: FrozenStore
    quarantined: TroubledAgents
    doubts: TroublingDoubts
    overdue: OverdueRequests
    failed: TroubledAgents
    expired: ExpiredRequests
    expired_in_week: int
    hosts: GoneHosts
    notices: FailedNotices


@exactly
class Agents(TypedDict):
    """Agents, and the `after` of the next page."""

    agents: list[AgentRow]
    next: str | None
    filters: Filters
    statuses: list[str]


@exactly
class CostShape(TypedDict):
    """What requests to models cost, in USD, as texts with all digits; `text` is for people.

    `usd` is null where the cost of any request is unknown: then it is at least the sum of what is
    `recorded` and `estimated`.
    """

    usd: str | None
    recorded: str
    estimated: str
    is_estimated: bool
    requests: int
    unknown: int
    text: str


@exactly
class GrantShape(TypedDict):
    """A decision that holds for later calls.

    They must have these `arguments`, and others of the names in `free`: null for any. `left` is the
    number of uses that are left, null for any number.
    """

    id: str
    type: Literal["approve", "reject"]
    tool_name: str
    fingerprint: str
    agent_id: str
    agent_path: list[str]
    source: str
    approval: dict[str, Any] | None
    offer: OfferShape | None
    scope: Literal["run", "agent"]
    run_id: str
    arguments: dict[str, Any]
    free: list[str] | None
    until: Time | None
    uses: int | None
    used: int
    open: list[str]
    by: str | None
    message: str | None
    at: Time
    votes: list[VoteShape]
    left: int | None
    is_over: bool


@exactly
class QueuedShape(TypedDict):
    """A message that waits for a run."""

    message_id: str
    text: str
    what: Literal["run", "send", "steer", "schedule"]
    at: Time | None
    by: str | None


@exactly
class BackgroundShape(TypedDict):
    """A call that continues in the background: `agent_id` is the agent that makes it."""

    agent_id: str
    tool_name: str
    call_key: str
    at: Time


@exactly
class AgainShape(TypedDict):
    """The run that `retry` would continue, and what is then repeated and what is not."""

    run_id: str
    label: str
    text: str


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
    reviews: list[ReviewShape]
    grants: list[GrantShape]
    queue: list[QueuedShape]
    background: list[BackgroundShape]
    next_due: Time | None
    files: int
    cost: CostShape | None
    reserved: dict[str, str]
    again: AgainShape | None
    actions: list[ActionShape]


@exactly
class FileRow(TypedDict):
    """A file, and how many bytes it has."""

    path: str
    size: int


@exactly
class UsageShape(TypedDict):
    """The tokens of the run."""

    input_tokens: int
    output_tokens: int


@exactly
class RequestNow(RequestShape):
    """A request that waits, and which votes it lacks: `still` says it as a clause."""

    missing: str
    approved_at: Time | None
    still: str


@exactly
class TreeRow(TypedDict):
    """An agent that runs inside, or an open call of it."""

    depth: int
    what: Literal["agent", "call"]
    name: str
    state: str
    call_key: str | None


@exactly
class AgentNow(TypedDict):
    """How an agent stands. `cost` is that of its last run, and `total_cost` that of all runs."""

    id: str
    why: str
    run_id: str | None
    model_calls: int
    usage: UsageShape
    cost: CostShape
    total_cost: CostShape
    requests: list[RequestNow]
    waits: list[Wait]
    doubts: list[dict[str, Any]]
    reviews: list[dict[str, Any]]
    grants: list[dict[str, Any]]
    queue: list[QueuedShape]
    background: list[BackgroundShape]
    next_due: Time | None
    files: list[FileRow]
    tree: list[TreeRow]


@exactly
class Conversation(TypedDict):
    """Rows, oldest first: a page of them, counted from the newest; or what has changed.

    `found`: the id of the row that was asked for by `call`, `request`, `run` or `at`; `is_missing`:
    whether no row is about that.
    """

    id: str
    rows: list[RowShape]
    seq: int | None
    reset: bool
    more: bool
    earlier: NotRequired[int | None]
    later: NotRequired[int | None]
    page: NotRequired[int]
    found: NotRequired[str | None]
    is_missing: NotRequired[bool]


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
        "seq": int,
        "run_id": str,
        "inside": str | None,
        "root": str,
        "call_key": str | None,
        "request_id": str | None,
        "start": Time,
        "end": Time | None,
        "seconds": float | None,
        "outcome": str,
        "in_doubt": bool,
        "look": str,
        "detail": str,
        "cost": str,
        "from": float,
        "to": float,
    },
)
Mark = TypedDict(
    "Mark", {"kind": str, "label": str, "at": Time, "seq": int, "root": str, "from": float}
)


@exactly
class RunRow(TypedDict):
    """A run of the outermost agent. Its numbers are those of the run, and of all inside it.

    `is_whole`: whether all of it was read; else its numbers are of what was.
    """

    run_id: str
    label: str
    start: Time | None
    end: Time | None
    seconds: float | None
    outcome: str
    look: str
    calls: int
    replies: int
    in_doubt: int
    cost: str
    is_whole: bool
    began_before: bool
    breaks: list[float]


@exactly
class AgentOfTree(TypedDict):
    """An agent that runs inside, or the outermost one, and how its last run stands."""

    name: str
    agent_path: list[str]
    depth: int
    runs: int
    calls: int
    run_id: str
    outcome: str
    look: str
    waits_for: list[str]
    waits_inside: bool
    in_doubt: int


@exactly
class Timeline(TypedDict):
    """A page of bars, with what happened between them. `from`, `to` and `breaks`: 0 to 100.

    They are places in the outermost run, whose id is `root`. `inside` is the run around a bar, as
    far as the page has it. `earlier` is the `before` of the page of earlier records.
    """

    id: str
    runs: list[RunRow]
    bars: list[Bar]
    marks: list[Mark]
    agents: list[AgentOfTree]
    earlier: int | None
    is_newest: bool


@exactly
class InstructionsShape(TypedDict):
    """A text, in which `{key}` stands for a value of the agent; or the name of a function."""

    text: str | None
    function: str | None


@exactly
class GateShape(TypedDict):
    """What a person may decide about calls of a tool. `when`: the function that says which calls.

    `must_agree`: which persons, where several must.
    """

    allowed: list[str]
    when: str | None
    display: str | None
    must_agree: str


@exactly
class ToolShape(TypedDict):
    """A tool. `effect`: `effects`, `idempotent` or `read_only`; `is_declared`: by the tool."""

    name: str
    description: str
    parameters: dict[str, Any]
    effect: str
    is_declared: bool
    has_key: bool
    has_check: bool
    on_unknown: str | None
    timeout: float | None
    sequential: bool
    aliases: list[str]
    version: str
    gate: GateShape | None


@exactly
class MiddlewareShape(TypedDict):
    """A middleware: its class, the first paragraph of what that says of itself, and its hooks."""

    name: str
    class_name: str
    about: str
    hooks: list[str]


@exactly
class DefinitionShape(TypedDict):
    """The definition of an agent, or of an agent inside it."""

    agent_path: list[str]
    name: str
    description: str
    version: int
    model: str | None
    fallback_models: list[str]
    model_settings: dict[str, Any]
    instructions: list[InstructionsShape]
    tools: list[ToolShape]
    native_tools: list[str]
    middleware: list[MiddlewareShape]
    mode: str
    steps: list[str]
    max_runs: int
    early_stopping: str
    output_key: str | None
    needs: list[str]
    on_version: str


@exactly
class DefinitionPage(TypedDict):
    """The definition that this server has of the name; `why_unknown`: why it has none.

    `has_rules`: whether the rules of the store may ask a person as well.
    """

    id: str
    name: str
    why_unknown: str | None
    has_rules: bool
    agents: list[DefinitionShape]


@exactly
class StatePage(TypedDict):
    """The values, and the whole state as it is stored."""

    id: str
    values: dict[str, Any]
    state: dict[str, Any]


@exactly
class LoginShape(TypedDict):
    """A login of an identity provider: the name is for display, and others may have it too."""

    name: str
    issuer: str
    subject: str


@exactly
class DecisionRow(TypedDict):
    """A decision of the audit."""

    request_id: str
    at: Time | None
    by: str | None
    logins: list[LoginShape]
    waited_seconds: float | None
    agent_path: list[str]
    decision: dict[str, Any]
    tool_name: str | None
    proposed: dict[str, Any] | None
    imported_by: str | None
    votes: list[dict[str, Any]]


@exactly
class Decisions(TypedDict):
    """Who decided what, newest first, and the `before` of the page of earlier ones."""

    id: str
    decisions: list[DecisionRow]
    earlier: int | None
    is_newest: bool


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
    """The usage of replies, and the cost of all requests to models, also of unanswered requests."""

    replies: int
    input_tokens: int
    output_tokens: int
    cost: CostShape


@exactly
class UsagePage(TypedDict):
    """What the replies of a page used and cost. `by_run` has the ids of runs, oldest first.

    `total` is what all runs have cost, where that was recorded. `earlier` is the `before` of the
    page of earlier records.
    """

    id: str
    cost: CostShape
    total: CostShape | None
    by_model: dict[str, Tokens]
    by_agent: dict[str, Tokens]
    by_run: dict[str, Tokens]
    earlier: int | None
    is_newest: bool


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
    by: str | None
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
class FilesPage(TypedDict):
    """The files that belong to the agent."""

    id: str
    files: list[FileRow]


@exactly
class FilePage(TypedDict):
    """One file: `text` if it is in UTF-8, else `base64`. Both are null where bytes are hidden."""

    id: str
    path: str
    size: int
    text: str | None
    base64: str | None


@exactly
class OutcomePage(TypedDict):
    """How the run stands; `outcome` is null while the run continues."""

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
    """The agents whose runs were cut off, and continue."""

    continued: list[str]
