"""The answers of the API, as its OpenAPI document describes them.

`tests/web/test_shapes.py` compares each answer with its shape: no field too many, none too few.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeVar

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from understudy.interrupts import Decision

_ShapeT = TypeVar("_ShapeT")
Time = str
"""ISO 8601."""


def exactly(shape: type[_ShapeT]) -> type[_ShapeT]:
    """The shape has these fields, and no other."""
    return with_config(ConfigDict(extra="forbid"))(shape)


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
    now: Time


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
class OfferShape(TypedDict):
    """The largest grant that a decision may be. Null stands for no limit, of `free` for all."""

    seconds: float | None
    uses: int | None
    free: list[str] | None
    scope: Literal["run", "agent"]


@exactly
class TermsShape(TypedDict):
    """How far a decision holds for later calls."""

    until: Time | None
    seconds: float | None
    uses: int | None
    match: list[str] | None
    scope: Literal["run", "agent"] | None


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
    earlier: list[Any]
    asked_again: str
    schema: dict[str, Any] | None
    question_key: str
    approval: dict[str, Any] | None
    requesters: list[str] | None
    offer: OfferShape | None


@exactly
class VoteShape(TypedDict):
    """What a person says of a request that asks several."""

    person: str
    name: str
    roles: list[str]
    type: Literal["approve", "reject"]
    message: str | None
    note: str | None
    assurance: Literal["host", "login", "idp"]
    grant: TermsShape | None
    at: Time


@exactly
class InboxRow(RequestShape):
    """A request of the list, with what the store tells of it.

    `must_agree` says who must agree, and `missing` whose votes are missing, in words; both are
    empty where one decision of anybody with the right is enough.
    """

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
    impossible: str | None
    must_agree: str
    votes: list[VoteShape]
    missing: str


@exactly
class Inbox(TypedDict):
    """Requests that wait, and the `after` of the next page."""

    requests: list[InboxRow]
    next: str | None
    filters: Filters


@exactly
class DoubtRow(TypedDict):
    """A call in doubt.

    `state`: a person is `asked` by the request, the check of its tool is asked at `checks_at`
    (`checked`), or only the model was `told`.
    """

    agent_id: str
    agent: str
    made_by: str
    run_id: str
    call_key: str
    tool_call_id: str
    tool_name: str
    arguments: Any
    reason: str
    since: Time
    ends_at: Time | None
    checks_at: Time | None
    state: Literal["asked", "checked", "told"]
    request_id: str | None
    summary: str


@exactly
class Doubts(TypedDict):
    """Calls in doubt, and the `after` of the next page."""

    doubts: list[DoubtRow]
    next: str | None
    filters: Filters


class Story(TypedDict):
    """What became of a request."""

    what: Literal["decided", "withdrawn", "expired", "deleted", "void", "unknown"]
    at: Time | None
    by: str | None
    decision: Decision | None
    votes: NotRequired[list[VoteShape]]


@exactly
class Sibling(TypedDict):
    """Another request of the same reply."""

    id: str
    tool_name: str
    about: str
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
    position: str
    seq: int | None
    detail: dict[str, Any]
    depth: int


@exactly
class RequestPage(TypedDict):
    """One request, whether it waits or not. Null where it is not known any more.

    `must_agree` and `missing` are as in the list. `has_voted` says whether the user has, and
    `why_no_vote` why they may not; null where they may, or where no votes are asked for.
    """

    request: RequestShape | None
    is_pending: bool
    is_expired: bool
    story: Story | None
    agent_id: str
    agent: str | None
    tool_description: str | None
    tool_parameters: dict[str, Any] | None
    impossible: str | None
    doubts: list[dict[str, Any]]
    last_rows: list[RowShape]
    reply: Reply
    must_agree: str
    votes: list[VoteShape]
    missing: str
    has_voted: bool
    why_no_vote: str | None


@exactly
class Taken(TypedDict):
    """Decisions that are recorded; whether they were so before.

    `open` has the requests that wait for more votes: by id, what is missing, in words.
    """

    agent_id: str
    recorded: list[str]
    repeated: bool
    open: dict[str, str]


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
