"""The answers of the API, as its OpenAPI document describes them.

`tests/web/test_shapes.py` checks that each answer has exactly the fields of its shape.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeVar

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from understudy.interrupts import Decision

_ShapeT = TypeVar("_ShapeT")
Time = str
"""A time in ISO 8601."""


def exactly(shape: type[_ShapeT]) -> type[_ShapeT]:
    """Declare that the shape has only these fields."""
    return with_config(ConfigDict(extra="forbid"))(shape)


@exactly
class UserShape(TypedDict):
    """Who is logged in."""

    name: str
    may: list[str]


@exactly
class Overview(TypedDict):
    """The runtime. Values of a process are null where the pages read a store without a runtime."""

    title: str
    user: UserShape
    read_only: bool
    agents: dict[str, int]
    in_memory: int | None
    running: int | None
    abandoned_threads: int | None
    abandoned_tasks: int | None
    held: str | None
    tree: str | None
    now: Time


@exactly
class Filters(TypedDict):
    """What was asked for."""

    tool: NotRequired[str | None]
    agent: str | None
    kind: NotRequired[str | None]
    within: NotRequired[int | None]
    search: NotRequired[str | None]
    order: NotRequired[str]
    of: NotRequired[str | None]
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
    title_format: str
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
    call_approval: dict[str, Any] | None
    requesters: list[str] | None
    offer: OfferShape | None


@exactly
class VoteShape(TypedDict):
    """What a person says of a request that asks several."""

    person: str
    name: str
    login: str
    roles: list[str]
    type: Literal["approve", "reject"]
    message: str | None
    note: str | None
    assurance: Literal["host", "login", "idp"]
    auth_at: Time | None
    break_glass: bool
    grant: TermsShape | None
    at: Time
    issuer: str
    subject: str
    acting_for: str
    represents: str | None


@exactly
class VotesForShape(TypedDict):
    """For whom the user votes, by a delegation, and until when."""

    person: str
    name: str
    until: Time


class StandingShape(TypedDict):
    """What the user may do about a request on which persons vote.

    `why_no_vote` says why they may not vote, or answer for a call in doubt; null where they may.
    Where they may, `counts_as` has the roles by which their vote counts, and `votes_for` for whom
    they vote by a delegation; at `login_until` their login is too old. `needs_login`: another login
    is all that they lack. `may_break_glass`: they may approve it alone.
    """

    has_voted: bool
    why_no_vote: str | None
    counts_as: list[str]
    votes_for: VotesForShape | None
    login_until: Time | None
    needs_login: bool
    may_break_glass: bool


class PersonShape(TypedDict):
    """A person by name, and by issuer and subject of an identity provider where that is known."""

    name: str
    issuer: str
    subject: str


@exactly
class ClaimShape(PersonShape):
    """Who looks after a request, until when, and from whom they have taken it over."""

    at: Time
    until: Time
    over: PersonShape | None


@exactly
class AssignmentShape(PersonShape):
    """Who is to look after a request, and who says so."""

    by: PersonShape
    at: Time


@exactly
class CommentShape(PersonShape):
    """What somebody has written beside a request."""

    at: Time
    text: str


@exactly
class NotesShape(TypedDict):
    """What people have written beside a request, as the user sees it.

    `is_yours` and `was_yours`: the user has taken it, or somebody has taken it over from them.
    `is_for_you`: it is assigned to them.
    """

    claim: ClaimShape | None
    assignment: AssignmentShape | None
    comment_count: int
    snoozed_until: Time | None
    is_yours: bool
    was_yours: bool
    is_for_you: bool


@exactly
class NotesPage(NotesShape):
    """What is written beside a request, with the comments, and who looks at its page now."""

    comments: list[CommentShape]
    looking: list[str]


@exactly
class InboxRow(RequestShape, StandingShape):
    """A request of the list, with what the store knows of it.

    `rule` is the name of the rule that asks; empty if none does. `must_agree` says who must
    agree, and `missing` whose votes are missing, in words; both are empty if a decision of
    anybody with the right is enough. `terms` says what else holds. At `approved_at` it is approved,
    as enough have agreed.
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
    title: str
    summary: str
    details: str
    impossible: str | None
    rule: str
    budget: str
    must_agree: str
    terms: list[str]
    votes: list[VoteShape]
    missing: str
    approved_at: Time | None
    notes: NotesShape


@exactly
class ReviewShape(TypedDict):
    """What a person alone has let run, and somebody else is to review.

    `why_not_close` says why the user does not close it; null where they may.
    """

    id: str
    agent_id: str
    agent: str
    agent_path: list[str]
    run_id: str
    call_key: str
    tool_name: str
    arguments: Any
    must_agree: str
    text: str
    roles: list[str]
    person: str
    by: str
    login: str
    note: str
    assurance: Literal["host", "login", "idp"]
    at: Time
    why_not_close: str | None


@exactly
class CountsShape(TypedDict):
    """How many requests wait: that fit the filters, and in all.

    And by each value of each filter, how many there are beside the other filters: `within` by the
    seconds in which they expire. `total` is null where values are hidden from the user, who
    searches.
    """

    total: int | None
    all: int
    kinds: dict[str, int]
    tools: dict[str, int]
    agents: dict[str, int]
    within: dict[str, int]


@exactly
class Inbox(TypedDict):
    """Requests that wait, and the `after` of the next page.

    `reviews` has the oldest reviews that are open: on a first page without filters.
    """

    requests: list[InboxRow]
    reviews: list[ReviewShape]
    next: str | None
    counts: CountsShape
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


@exactly
class HitShape(TypedDict):
    """A request, or a part of a conversation, that has what was looked for."""

    agent_id: str
    agent: str
    where: Literal["request", "conversation"]
    kind: Literal["request", "user", "agent", "call", "result"]
    at: Time | None
    request_id: str | None
    seq: int | None
    row: int
    tool_call_id: str | None
    inside: list[str]
    tool_name: str
    snippet: str
    marks: list[list[int]]


@exactly
class SearchFilters(TypedDict):
    """What was looked for."""

    text: str
    where: str | None


@exactly
class Found(TypedDict):
    """What was found, the newest first, and the `after` of the next page.

    `behind` is how many agents, at least, have texts that the index does not have yet.
    """

    hits: list[HitShape]
    next: str | None
    behind: int
    filters: SearchFilters


class PartyShape(TypedDict):
    """A person."""

    person: str
    name: str


@exactly
class DelegationShape(TypedDict):
    """Roles that a person has given to another person."""

    id: str
    giver: PartyShape
    getter: PartyShape
    roles: list[str]
    until: Time
    reason: str
    at: Time
    by: str | None


@exactly
class DelegationRow(DelegationShape):
    """A delegation of the list. `may_end`: the user may end it."""

    may_end: bool


@exactly
class Delegations(TypedDict):
    """The delegations that hold."""

    delegations: list[DelegationRow]


@exactly
class Ended(TypedDict):
    """The delegation that has ended."""

    id: str
    ended: bool


@exactly
class EnteredCallShape(TypedDict):
    """A call that was under way when something was frozen."""

    agent_id: str
    path: list[str]
    run_id: str
    tool: str
    call_key: str
    since: Time | None


@exactly
class FreezeShape(TypedDict):
    """What begins no more, by whom and why. Of a list, `entered` is empty: ask by `?id=`."""

    id: str
    what: Literal["store", "definition", "tool"]
    name: str
    why: str
    by: str | None
    at: Time
    text: str
    entered: list[EnteredCallShape]
    silent_hosts: list[str]
    warning: str


@exactly
class Freezes(TypedDict):
    """What is frozen."""

    freezes: list[FreezeShape]


@exactly
class NoticeShape(TypedDict):
    """A notice of a request to people by one channel, delivered or not."""

    no: int
    agent_id: str
    agent: str
    request_id: str
    what: Literal["asked", "reminder", "escalation", "ended", "expired"]
    count: int
    channel: str
    state: Literal["new", "done", "dropped", "failed"]
    due: Time | None
    attempts: int
    at: Time | None
    host: str
    detail: str


@exactly
class Notifications(TypedDict):
    """A page of notices, newest first."""

    notifications: list[NoticeShape]
    next: str | None
    filters: dict[str, str | None]


@exactly
class Retried(TypedDict):
    """Whether there was such a notice that had failed."""

    no: int
    retried: bool


@exactly
class RequirementShape(TypedDict):
    """Something that each host may have to have."""

    name: str
    required: bool
    by: str | None
    at: Time | None
    lacking: list[str]


@exactly
class Requirements(TypedDict):
    """What may be required of hosts."""

    requirements: list[RequirementShape]


@exactly
class Set(TypedDict):
    """What is required, or is not any more, and whether that is new."""

    name: str
    required: bool
    changed: bool


@exactly
class Thawed(TypedDict):
    """The freeze that is over, and whether it stood."""

    id: str
    thawed: bool


@exactly
class AdminRequestShape(TypedDict):
    """What persons are to agree to, and their votes. `result` is null where more must vote."""

    id: str
    verb: str
    about: str
    must_agree: str
    by: PartyShape
    at: Time
    until: Time
    votes: list[VoteShape]
    missing: str
    result: Literal["approve", "reject"] | None


@exactly
class AdminRow(AdminRequestShape, StandingShape):
    """A request of administration, with what the user may do about it."""


@exactly
class Administration(TypedDict):
    """What persons are to agree to."""

    requests: list[AdminRow]


@exactly
class RuleRow(TypedDict):
    """A rule of a version, as its host has registered it."""

    name: str
    kind: Literal["deny", "ask", "allow"]
    tool: str
    agent: str
    approval: str
    has_when: bool


@exactly
class RulesVersion(TypedDict):
    """Rules of a version, and the host that registered them."""

    version: int
    fingerprint: str
    host: str
    python: str
    at: Time
    default: str
    rules: list[RuleRow]


@exactly
class RulesPage(TypedDict):
    """The rules of the store, the newest version first.

    `holds` is the version that each host must have; null where none holds. `here` is that of this
    host, and `held` says why no call starts here. Versions up to `retired` were retired.
    """

    holds: int | None
    here: int | None
    held: str | None
    retired: int
    versions: list[RulesVersion]


@exactly
class Retired(TypedDict):
    """The version of the retired rules."""

    version: int
    retired: bool


@exactly
class RaisedShape(TypedDict):
    """What a person has added to a budget, until its window ends. `text` is for people."""

    budget: str
    key: str
    added: str
    text: str
    until: Time | None
    why: str
    at: Time
    by: str | None


@exactly
class AmountTexts(TypedDict):
    """The amounts of a budget, as people read them."""

    used: str
    spent: str
    reserved: str
    unknown: str
    limit: str
    left: str


@exactly
class BudgetShape(TypedDict):
    """A budget for one key, as it is now. Amounts are decimal numbers with all their digits.

    `at_limit` is null where a rule allows calls within the budget: beyond it they do not run alone.
    """

    budget: str
    allows: str
    counts: str
    key: str
    unit: str
    at_limit: Literal["stop", "ask"] | None
    used: str
    spent: str
    reserved: str
    unknown: str
    limit: str
    left: str
    is_low: bool
    text: str
    texts: AmountTexts
    window: Literal["day", "week", "month", "last"] | None
    since: Time | None
    until: Time | None
    raised: list[RaisedShape]


@exactly
class Budgets(TypedDict):
    """The budgets; of each the keys first that have used most. `left_off` are not listed."""

    budgets: list[BudgetShape]
    left_off: int


@exactly
class AuthorShape(TypedDict):
    """The login of a person who decided."""

    name: str
    issuer: str
    subject: str
    acting_for: str
    assurance: Literal["host", "login", "idp"]


@exactly
class DecidedRow(TypedDict):
    """A decision. `waited` is in seconds. Of votes, `by` has the ids of the persons.

    Where the agent was deleted since, `request` and `decision` are null, and `votes` and `summary`
    are empty.
    """

    no: int
    agent_id: str
    agent: str
    incarnation: int
    agent_path: list[str]
    request_id: str
    kind: str
    tool_name: str
    type: Literal["approve", "edit", "reject", "respond", "dismiss"]
    origin: Literal["person", "votes", "grant", "expiry", "executor"]
    by: str | None
    login: AuthorShape | None
    asked_at: Time
    at: Time
    waited: float
    request: RequestShape | None
    decision: dict[str, Any] | None
    votes: list[VoteShape]
    summary: str


# `from` cannot be the name of a field in Python.
DecidedFilters = TypedDict(
    "DecidedFilters",
    {
        "person": str | None,
        "tool": str | None,
        "agent": str | None,
        "agent_id": str | None,
        "type": str | None,
        "origin": str | None,
        "from": str | None,
        "to": str | None,
    },
)


@exactly
class Decided(TypedDict):
    """What was decided on the requests of all agents, and the `after` of the next page."""

    decisions: list[DecidedRow]
    next: str | None
    filters: DecidedFilters


class UsageSums(TypedDict):
    """What requests to models used. `cost` is in USD, and `text` is the cost as people read it.

    `unknown` is how many requests have a cost that nobody knows. `cached_tokens` are among
    `input_tokens`.
    """

    requests: int
    unknown: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    tokens: int
    cost: str
    text: str


@exactly
class UsageSum(UsageSums):
    """All of it."""


@exactly
class UsageUnder(UsageSums):
    """That of a definition, or of a model."""

    name: str


@exactly
class UsageLine(UsageSums):
    """That of a definition and a model on a day."""

    agent: str
    model: str


@exactly
class UsageDay(UsageSums):
    """That of a day, in UTC."""

    day: str
    lines: list[UsageLine]


@exactly
class UsageFilters(TypedDict):
    """What was asked for."""

    agent: str | None
    model: str | None


@exactly
class UsageOfAll(TypedDict):
    """What requests to models used over all agents, from the day `first` to the day `last`.

    The newest day comes first. `is_counted` says whether this runtime counts; null where the pages
    look beside the runtimes.
    """

    days: list[UsageDay]
    by_agent: list[UsageUnder]
    by_model: list[UsageUnder]
    total: UsageSum
    first: str
    last: str
    is_counted: bool | None
    filters: UsageFilters


class ReviewFilters(TypedDict):
    """How the list of reviews was asked for."""

    tool: str | None
    agent: str | None


@exactly
class Reviews(TypedDict):
    """What is to be reviewed, and the `after` of the next page."""

    reviews: list[ReviewShape]
    next: str | None
    filters: ReviewFilters


class Story(TypedDict):
    """What became of a request."""

    what: Literal["decided", "withdrawn", "expired", "failed", "deleted", "void", "unknown"]
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
class EqualCall(TypedDict):
    """A call with the same arguments, made before or after a call in doubt, and what came of it."""

    when: Literal["before", "after"]
    outcome: str
    content: str
    at: Time | None


@exactly
class EvidenceShape(TypedDict):
    """What is known of a call in doubt, as far as the records say.

    `host` is that on which it was started, and `attempt` how often it was started. `last_sign_at`
    is the last record before somebody else continued, at `went_on_at`. Its check was asked at each
    time of `checks`, and could not tell.
    """

    started_at: Time | None
    attempt: int | None
    host: str | None
    last_sign_at: Time | None
    went_on_at: Time | None
    went_on_host: str | None
    checks: list[Time]
    equal: list[EqualCall]


@exactly
class RequestPage(StandingShape):
    """One request, whether it waits or not. Null where it is not known any more.

    Of a request of the kind `doubt`, `evidence` has what is known of the call. Of each of `doubts`,
    `is_equal` says whether it equals the call that is asked about, and `is_open` whether nobody has
    settled it.

    `title`, `rule`, `must_agree`, `terms`, `missing` and `approved_at` are as in the list.
    """

    request: RequestShape | None
    title: str
    is_pending: bool
    is_expired: bool
    story: Story | None
    agent_id: str
    agent: str | None
    tool_description: str | None
    tool_parameters: dict[str, Any] | None
    impossible: str | None
    doubts: list[dict[str, Any]]
    evidence: EvidenceShape | None
    last_rows: list[RowShape]
    reply: Reply
    rule: str
    budget: str
    must_agree: str
    terms: list[str]
    votes: list[VoteShape]
    missing: str
    approved_at: Time | None
    notes: NotesPage


@exactly
class Taken(TypedDict):
    """Decisions that are recorded; whether they were so before.

    `open` has the requests that still wait: by id, for what, such as "1 more of finance is
    missing".
    """

    agent_id: str
    recorded: list[str]
    repeated: bool
    open: dict[str, str]


class Result(TypedDict):
    """What became of a decision among many. A refused decision has the fields of a problem."""

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
