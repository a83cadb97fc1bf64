"""Requests to a person and the decisions on them, both plain data.

A middleware makes a `Request` for an approval, it or a tool makes one by raising `Interrupt` (a
question), a tool by `Halt`, and the pipeline makes one for a call in doubt. All pending requests
are in one flat list, whatever made them, and one `resume` may decide all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Literal, cast

from pydantic import TypeAdapter, ValidationError

from understudy._base.authors import Login, checked_author
from understudy._base.context_codecs import StoredContext
from understudy._base.grant_terms import (
    ALWAYS,
    GrantOffer,
    GrantScope,
    GrantTerms,
    fitting_terms,
)
from understudy._base.json_schema import fault_text, faults_of, json_schema_of
from understudy._base.json_values import checked_json, checked_text, digest, shown, storable_text
from understudy._base.points_in_time import checked_time
from understudy._base.request_summary import decision_word as decision_word
from understudy._base.request_timing import (
    EscalateAfter,
    Escalation,
    OnExpiry,
    RequestTiming,
    Seconds,
    checked_delay,
    request_timing,
)
from understudy._base.titles import checked_title, filled_title
from understudy.approvals import BUDGET, RULE, Approval, Vote, starts_at, tally
from understudy.errors import DecisionError, UsageError

__all__ = [
    "CallStatus",
    "Decision",
    "DecisionOrigin",
    "DecisionRecord",
    "DecisionType",
    "Defer",
    "DoubtfulCall",
    "EarlierCall",
    "GivenDecisions",
    "Grant",
    "GrantType",
    "Halt",
    "Interrupt",
    "Request",
    "Seen",
    "approve",
    "dismiss",
    "edit",
    "reject",
    "respond",
]

DecisionType = Literal["approve", "edit", "reject", "respond", "dismiss"]
"""Which of the decisions one is."""
DECISION_TYPES: tuple[DecisionType, ...] = ("approve", "edit", "reject", "respond")
"""All but `dismiss`, which is the one decision on a halt."""
Seen = Literal["at_once", "unfolded", "scrolled"]
"""How a page has shown a request: all of it in the window at once; what was folded was opened; or
it was scrolled to its end."""
DecisionOrigin = Literal["person", "expiry", "executor"]
"""What a decision comes from: a person, or code that speaks for a person; the end of the time for
an answer; or the program that executes a call elsewhere, and says that the call failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A person's decision on one request.

    Create one with `approve`, `edit`, `reject`, `respond` or, for a halt, `dismiss`.
    """

    type: DecisionType
    arguments: dict[str, Any] | None = None
    """For `edit`: the arguments that the tool is called with."""
    message: str | None = None
    """For `reject`: a text for the model."""
    value: Any = None
    """For `respond`: the result of the call, or the answer to a tool's own question."""
    grant: GrantTerms | None = None
    """How far it holds for later calls; None for this call alone. Only for approve and reject."""
    by_grant: str | None = None
    """The id of the grant by which it was decided; None where somebody decided. The library says
    so, and nobody else."""
    by: str | None = None
    """Who decided, for the audit."""
    note: str | None = None
    """Why, for the audit; the model does not see it."""
    completed: dict[str, Any] | None = None
    """For `edit`, once it is recorded: all arguments of the call, with the values of defaults that
    the edit left out. None where it left out nothing."""
    origin: DecisionOrigin = "person"
    """What the decision comes from. Only the library says that it is no person. Both others go with
    `reject`: `expiry` counts as a rejection, and `executor` gives the model an error of the tool,
    with `message`."""
    break_glass: bool = False
    """For `approve`: one person alone lets the call run at once, for the reason of `note`."""
    seen: Seen | None = None
    """How a page has shown the request before it was decided; None where that is not known."""

    @property
    def edited(self) -> dict[str, Any] | None:
        """For `edit`: all arguments that the call runs with."""
        return self.arguments if self.completed is None else self.completed

    def same_as(self, other: Decision) -> bool:
        """Whether both have the same effect; `by` and `note` do not count."""
        return self._digest() == other._digest()

    def _digest(self) -> str:
        told = [self.type, self.arguments, self.message, self.value, self.origin]
        if self.grant is not None:
            told.append(self.grant.to_dict())
        return digest(told)

    def to_dict(self) -> dict[str, Any]:
        """The decision as plain data; `resume` takes this form as well."""
        data = _decision_adapter().dump_python(self, mode="json", exclude_defaults=True)
        if self.type == "respond":
            data.setdefault("value", None)
        return cast("dict[str, Any]", data)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Decision:
        """Read `{"type": "approve"}` and the like. `always` stands for a grant without an end.

        Raises:
            DecisionError: if it is not a decision; the message names the field.

        """
        known = {"always", *Decision.__dataclass_fields__}
        unknown = [key for key in data if key not in known]
        if unknown:
            raise DecisionError(
                f"{shown(dict(data))} is not a decision: unknown field {unknown[0]!r}"
            )
        try:
            return _decision_adapter().validate_python(_without_always(data))
        except ValidationError as error:
            why = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise DecisionError(f"{shown(dict(data))} is not a decision: {why}") from error


def _without_always(data: Mapping[str, Any]) -> dict[str, Any]:
    """The plain form of a decision, with the terms that `always` stands for."""
    given = dict(data)
    always = given.pop("always", False)
    if not isinstance(always, bool):
        raise DecisionError(f"{shown(dict(data))} is not a decision: `always` must be a bool")
    if always and given.get("grant") is not None:
        raise DecisionError(f"{shown(dict(data))} is not a decision: give `always` or `grant`")
    return {**given, "grant": ALWAYS} if always else given


def _terms(always: bool, grant: GrantTerms | None) -> GrantTerms | None:
    """The terms of a decision.

    Raises:
        DecisionError: if it has two, or what is no such thing.

    """
    if not isinstance(always, bool):
        raise DecisionError(f"`always` must be a bool, got {shown(always)}")
    if grant is not None and not isinstance(grant, GrantTerms):
        raise DecisionError(f"`grant` must be what grant(...) makes, got {shown(grant)}")
    if always and grant is not None:
        raise DecisionError("A decision takes `always` or `grant`, not both")
    return ALWAYS if always else grant


def approve(
    *,
    always: bool = False,
    grant: GrantTerms | None = None,
    by: str | None = None,
    note: str | None = None,
    break_glass: bool = False,
) -> Decision:
    """Run the call exactly as it was shown.

    Args:
        always: and so all later calls of this tool by this agent, until that is revoked. Short for
            a grant without an end, for all arguments.
        grant: and so later calls, as far as these terms say: see `understudy.grant`.
        by: who decides.
        note: why, for the audit.
        break_glass: in an emergency, approve alone what several must agree to, where the approval
            of the request says who may. A `note` is needed, and somebody else reviews it.

    Raises:
        DecisionError: if `always` and `grant` are given, or not what they must be.

    """
    terms = _terms(always, grant)
    return Decision(type="approve", grant=terms, by=by, note=note, break_glass=break_glass)


def edit(
    arguments: Mapping[str, Any], *, by: str | None = None, note: str | None = None
) -> Decision:
    """Run the call with these arguments instead; they replace all of the shown ones.

    Raises:
        DecisionError: if `arguments` is not a mapping.

    """
    if not isinstance(arguments, Mapping):
        raise DecisionError(f"edit() takes a mapping of arguments, got {shown(arguments)}")
    return Decision(type="edit", arguments=dict(arguments), by=by, note=note)


def reject(
    message: str | None = None,
    *,
    always: bool = False,
    grant: GrantTerms | None = None,
    by: str | None = None,
    note: str | None = None,
) -> Decision:
    """Do not run the call; the model gets a result that says so, with `message`.

    `always` and `grant` are as of `approve`: later calls are rejected.
    """
    return Decision(type="reject", message=message, grant=_terms(always, grant), by=by, note=note)


def respond(value: Any, *, by: str | None = None, note: str | None = None) -> Decision:
    """Do not run the call: `value` is its result, or the answer to a tool's own question."""
    return Decision(type="respond", value=value, by=by, note=note)


def dismiss(*, by: str | None = None, note: str | None = None) -> Decision:
    """Acknowledge a halt. It is the only decision on one, and the run does not continue."""
    return Decision(type="dismiss", by=by, note=note)


CallStatus = Literal["in_doubt", "open", "done"]
"""What is known of a call that another one equals. `open`: it is under way."""
DOUBT_ENDS = 7 * 24 * 3600.0
"""Seconds after which a doubt ends of which only the model was told, if nobody says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtfulCall:
    """A call that was started and whose outcome is unknown.

    In `Request.doubts` also one that has the same key (`@tool(key=)`), whatever its `status`.
    """

    call_key: str
    tool_name: str
    tool_call_id: str
    arguments: dict[str, Any]
    reason: str
    agent: str
    """The name of the agent that made the call."""
    since: datetime
    """When it came to be in doubt."""
    token_hashes: tuple[str, ...] = ()
    """Of the tokens for its waits that have no answer: one by them settles the doubt."""
    agent_id: str = ""
    """Of another agent whose call has the same key (`@tool(key=)`); empty for the agent's own."""
    status: CallStatus = "in_doubt"
    checks_at: datetime | None = None
    """When its check is asked next what it did; None where none is waited for."""
    ends_at: datetime | None = None
    """When the doubt ends by itself, unsettled; None for never, and while a person or a check is
    asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierCall:
    """A call of the same tool with the same arguments that was made before.

    Or a `task` of the same agent that was not finished, whatever it was told.
    """

    tool_call_id: str
    """Empty where it is not known any more: of an agent inside whose run is over."""
    outcome: str
    """As of `ToolEnded`; `open` where it has no result yet: another call of the same reply."""
    content: str
    """The beginning of its result, as text: of a `task`, also what its agent has done."""
    at: datetime | None
    """When it had its result."""
    agent: str = ""
    """The agent that made it; empty where it is the one that asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a person is asked about one tool call, or by a middleware.

    `resume` takes the decision by its `id`, or by the request itself: `{request: approve()}`.
    """

    id: str
    """Opaque and used once. A decision on it holds for exactly what is shown here."""
    kind: str
    """`approval`, `interrupt` (a question of a tool or a middleware), `doubt`, `halt`, or a
    middleware's own."""
    agent_id: str
    run_id: str
    agent_path: tuple[str, ...]
    call_key: str
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]
    """Canonical: validated, with defaults filled in. An approval holds for exactly these."""
    display: str | dict[str, Any] | None = None
    """What the gate's `display` returned, to be shown in addition to the arguments."""
    title_format: str = ""
    """Its title, such as `Refund {amount} to {customer}`, in which a name stands for a value of the
    question or an argument; empty where the application gives none. `title` has the values."""
    payload: Any = None
    """For a question: its content. For a halt: the reason."""
    allowed: tuple[DecisionType, ...] = DECISION_TYPES
    created_at: datetime
    expires_at: datetime | None = None
    """From then on a decision is refused, and the request counts as `on_expiry` says."""
    remind_at: tuple[datetime, ...] = ()
    """When the person is reminded, as long as no decision is recorded; in order."""
    escalations: tuple[Escalation, ...] = ()
    """Who else is told, and when, as long as no decision is recorded; in order."""
    on_expiry: OnExpiry = "reject"
    fingerprint: str
    """Of the tool's name, schema and version at the time of the request."""
    digest: str
    """Of everything that a decision holds for: agent, run, call, tool and arguments; and what is
    shown besides: `kind`, `display`, `title_format`, `payload`, `allowed`, `schema`, `approval` and
    `offer`. Also of `salt`."""
    source: str = ""
    """The middleware that made the request."""
    doubts: tuple[DoubtfulCall, ...] = ()
    """Earlier calls of this tool whose outcome is unknown, and calls with the same key: check them
    before you approve. An approval holds for this call beside these."""
    earlier: tuple[EarlierCall, ...] = ()
    """Equal calls that were made before, newest first: look whether this one repeats them. Of a
    `task` also those that its agent did not finish, with what it has done."""
    asked_again: str = ""
    """Why a person is asked once more about a call; empty where that is not so."""
    schema: dict[str, Any] | None = None
    """The JSON schema that the value of `respond(value)` must fit; None where it may be any."""
    question_key: str = ""
    """Of a middleware's own question: the key of `run.answer(key)`."""
    context: StoredContext = field(default_factory=dict)
    """That of the run which asks."""
    approval: Approval | None = None
    """Who must agree; None where a decision of anybody with the right to decide is enough."""
    requesters: tuple[str, ...] | None = None
    """The ids of the persons who must not vote: by `never` of the approval those who have asked for
    the call; or, where it asks more than one, those who have edited the arguments. None where one
    of them is not known, and where the approval excludes nobody."""
    offer: GrantOffer | None = None
    """How far a decision may hold for later calls; None where it holds for this call alone."""
    salt: str = field(default="", repr=False)
    """Random, and kept with the request alone: no form that is shown has it. Without it the digest
    would tell a hidden argument to whoever guesses: they would compute the digest of each guess."""

    def __hash__(self) -> int:
        """By its id: it can be a key of decisions, though it holds data."""
        return hash(self.id)

    def decide(self, decision: Decision | Mapping[str, Any]) -> dict[str, Decision]:
        """The decision on this request, as the mapping that `resume` takes.

        Raises:
            DecisionError: if it does not fit.

        """
        return {self.id: checked_decision(self, decision)}

    @property
    def rule(self) -> str:
        """The name of the rule of the application that asks; empty where none does."""
        return self.source.removeprefix(RULE) if self.source.startswith(RULE) else ""

    @property
    def budget(self) -> str:
        """The name of the budget that has no room for it; empty where none asks."""
        return self.source.removeprefix(BUDGET) if self.source.startswith(BUDGET) else ""

    @property
    def title(self) -> str:
        """What the application calls it, in a line; empty where it says nothing."""
        return filled_title(self.title_format, self.payload, self.arguments)

    @property
    def about(self) -> str:
        """What it is about, in a word: the tool, or the middleware whose own question it is."""
        return self.tool_name or self.source

    @property
    def timing(self) -> RequestTiming:
        """How long it waits, for a request that takes its place."""

        def after(at: datetime) -> float:
            return (at - self.created_at).total_seconds()

        return RequestTiming(
            remind_after=tuple(after(at) for at in self.remind_at),
            escalate_after=tuple((after(e.at), e.audience) for e in self.escalations),
            expires_after=None if self.expires_at is None else after(self.expires_at),
            on_expiry=self.on_expiry,
        )

    def to_dict(self) -> dict[str, Any]:
        """The request as plain data, to be shown: without its `salt`."""
        data = _request_adapter().dump_python(self, mode="json", exclude={"salt"})
        return cast("dict[str, Any]", data)

    def _repr_html_(self) -> str:
        """For notebooks: what a person decides on, escaped, and with nothing cut."""
        from understudy._base import notebook_html as h

        said = (self.title or None, self.display, self.payload)
        parts = [h.shown(value) for value in said if value is not None]
        parts.append(h.table(self.arguments))
        for doubt in self.doubts:
            what = "in doubt" if doubt.status == "in_doubt" else "made"
            parts.append(h.warning(f"An equal call is {what}, since {h.at(doubt.since)}."))
            parts.append(h.words(doubt.reason))
        parts += [h.quiet("made before", each.outcome, each.content) for each in self.earlier]
        parts.append(h.quiet(self.asked_again))
        needs = "" if self.approval is None else f"needs {tally(self.approval, ()).text}"
        expires = "" if self.expires_at is None else f"expires at {h.at(self.expires_at)}"
        parts.append(h.quiet(f"may be: {', '.join(self.allowed)}", needs, expires, h.code(self.id)))
        about = f"{self.kind} of {' › '.join(self.agent_path)}"
        return h.card(self.about, about, parts, colour=h.WAITS)


class Interrupt(Exception):
    """Raised by a tool, or a middleware, that needs an answer from outside before it can continue.

    Its siblings finish and are recorded. After `resume` this tool alone runs again from its start,
    with the answer in `ctx.resume_value`: the value of `respond(value)`, or True for `approve()`.
    Several raised at once, in an exception group, are answered by a list in the same order.
    So a side effect that must not happen twice comes after the question, not before it.

    A middleware asks by a `key`, in `before_model`, in `after_model`, or in `wrap_tool_call` before
    `next`. Its hook is called again, and `run.answer(key)` is the decision.

    Args:
        payload: what is asked: JSON-able, for `request.payload`.
        title: what lists of requests call it, such as `"Which seat for {passenger}?"`. It is no
            f-string: a name stands for a value of the payload, or for an argument of the call.
        schema: what the value of `respond(value)` must be: a JSON schema as a dict, a Pydantic
            model, or any other type. A value that does not fit is a `DecisionError`.
        key: of a middleware's question, by which its answer is read; one question of the run has
            it. A tool's question has none.
        allowed: the decisions that a person may take; `edit` is not possible.
        remind_after: seconds after which the person is reminded, or timedeltas; one or several.
        escalate_after: who else is told, by the seconds after which.
        expires_after: seconds, or a timedelta, after which an unanswered question expires; None =
            never.
        on_expiry: what it counts as then: `"reject"`, or `"stop"`, which stops the whole run.

    Raises:
        UsageError: if `allowed` is empty or holds an unknown decision, a time is not possible, or
            `schema` is none or can have no answer.

    """

    def __init__(
        self,
        payload: Any = None,
        *,
        title: str | None = None,
        schema: object = None,
        key: str | None = None,
        allowed: Sequence[DecisionType] = ("respond", "reject"),
        remind_after: Seconds | Sequence[Seconds] = (),
        escalate_after: EscalateAfter | None = None,
        expires_after: Seconds | None = None,
        on_expiry: OnExpiry = "reject",
    ) -> None:
        super().__init__(payload)
        self.payload = payload
        self.title: str = checked_title(title, what="Interrupt(title=...)")
        self.timing: RequestTiming = request_timing(
            "Interrupt",
            remind_after=remind_after,
            escalate_after=escalate_after,
            expires_after=expires_after,
            on_expiry=on_expiry,
        )
        self.allowed: tuple[DecisionType, ...] = checked_allowed(
            allowed, what="Interrupt(allowed=...)"
        )
        if "edit" in self.allowed:
            raise UsageError(
                "Interrupt(allowed=...) cannot offer 'edit': a tool's own question is answered "
                "by respond(value), approve() or reject()"
            )
        self.schema: dict[str, Any] | None = None
        if schema is not None:
            if "respond" not in self.allowed:
                raise UsageError(
                    "Interrupt(schema=...) is for the value of respond(value): name 'respond' in "
                    "`allowed`, or leave the schema out"
                )
            self.schema = json_schema_of(schema, what="Interrupt(schema=...)")
        self.key: str | None = None if key is None else checked_text(key, what="Interrupt(key=...)")


class Defer(Exception):
    """Raised in `wrap_model_call` to put the model call off until a later time.

    The run waits, and its agent may be passive, or its process end, meanwhile. Then the call begins
    again: instructions, `before_model`, `wrap_model_call`. It must be raised before there is a
    reply; where models failed before, it may be. It passes the middleware around it. A call by
    `run.ask_model` cannot be put off.

    Args:
        until: seconds or a timedelta from now, or a point in time with a time zone.
        key: its name in lists of waits; by default the middleware's name with a number.
        reason: why, for people.

    Raises:
        UsageError: for what is no time, or no text.

    """

    def __init__(
        self, until: Seconds | datetime, *, key: str | None = None, reason: str | None = None
    ) -> None:
        super().__init__(until)
        self._until: timedelta | datetime = (
            checked_time(until, what="Defer(until)")
            if isinstance(until, datetime)
            else checked_delay(until, what="Defer(until)")
        )
        self.key: str | None = None if key is None else checked_text(key, what="Defer(key=...)")
        self.reason: str | None = (
            None if reason is None else checked_text(reason, what="Defer(reason=...)")
        )

    def due(self, now: datetime) -> datetime:
        """The time until which it waits, for one that is raised now."""
        return self._until if isinstance(self._until, datetime) else now + self._until


class Halt(Exception):
    """Raised by a tool to stop the whole run for good.

    It halts the run of the root agent, however deep the tool's agent is nested: running calls
    finish, no other starts, and the run is `Interrupted` by one request of kind `halt` until a
    person dismisses it. It never continues. The tool's agent, or one above it, needs the
    `Haltable` middleware; otherwise the run ends as `Failed` by `NotHaltable`.

    Raises:
        UsageError: if `message` is empty or not text.

    """

    def __init__(self, message: str) -> None:
        if not isinstance(message, str) or not message.strip():
            raise UsageError(f"Halt(message): `message` must be a non-empty text, got {message!r}")
        message = storable_text(message)  # a halt is never refused
        super().__init__(message)
        self.message = message


def checked_allowed(
    allowed: Iterable[str], *, what: str, kind: str = "approval"
) -> tuple[DecisionType, ...]:
    """The names of decisions as a tuple, for a request of this kind.

    Raises:
        UsageError: if there is none or an unknown one: a gate is never silently off.

    """
    known = ("dismiss",) if kind == "halt" else DECISION_TYPES
    if isinstance(allowed, str):
        raise UsageError(f"{what} takes a list of decisions, got the string {allowed!r}")
    if not isinstance(allowed, Iterable):
        raise UsageError(f"{what} takes a list of decisions, got {allowed!r}")
    names = tuple(allowed)
    if not names:
        raise UsageError(
            f"{what} is empty, so no decision is possible: name at least one of {', '.join(known)}"
        )
    for name in names:
        if name not in known:
            raise UsageError(
                f"{what} holds {name!r}, which is not a decision: use {', '.join(known)}"
            )
    return cast("tuple[DecisionType, ...]", names)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """One entry of the audit: a request, the decision on it, and when it was taken."""

    request: Request
    decision: Decision
    at: datetime
    context: StoredContext = field(default_factory=dict)
    """That of who decided."""
    votes: tuple[Vote, ...] = ()
    """All votes on the request, in the order in which they were cast; empty where nobody votes."""
    login: Login | None = None
    """The login of who decided, where more is known of it than the name in the decision."""


GrantType = Literal["approve", "reject"]
"""What a grant decides: the call runs, or it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A decision that holds for later calls of a tool, as far as its terms say."""

    id: str
    """That of the request by whose decision it was given."""
    type: GrantType
    tool_name: str
    fingerprint: str
    """Of the tool: a grant ends where the tool is another one."""
    agent_id: str
    """Of the outermost agent."""
    agent_path: tuple[str, ...]
    """The names of the agents from the outermost to the agent that makes the calls."""
    source: str
    """The gate or rule that asked."""
    approval: Approval | None = None
    """Who had to agree. A grant ends where it is another approval today."""
    offer: GrantOffer | None = None
    """What was offered. A grant ends where it is another offer today."""
    scope: GrantScope
    run_id: str
    """The run that it is for, where its scope is a run."""
    arguments: dict[str, Any]
    """The arguments that a call must have to be let through."""
    free: tuple[str, ...] | None = None
    """The names of the other arguments that a call may have; None for any."""
    until: datetime | None = None
    """When it ends; None for never."""
    uses: int | None = None
    """The number of calls that it lets through; None for any number."""
    used: int = 0
    """The number of calls that it has let through, without those that did nothing."""
    open: tuple[str, ...] = ()
    """The keys of calls among these that may still turn out to have done nothing."""
    by: str | None = None
    """Who gave it."""
    message: str | None = None
    """Of a rejection: a text for the model."""
    at: datetime
    votes: tuple[Vote, ...] = ()
    """The votes by which it was given, where several persons had to agree."""

    @property
    def left(self) -> int | None:
        """The number of uses that are left; None for any number."""
        return None if self.uses is None else max(0, self.uses - self.used)

    def is_over(self, now: datetime) -> bool:
        """Whether its time is over."""
        return self.until is not None and self.until <= now

    def covers(self, arguments: Mapping[str, Any]) -> bool:
        """Whether a call with these arguments is one that it was given for."""
        others = arguments.keys() - self.arguments.keys()
        if self.free is not None and not others <= set(self.free):
            return False
        given = {name: arguments[name] for name in self.arguments if name in arguments}
        return digest(given) == digest(self.arguments)

    def to_dict(self) -> dict[str, Any]:
        """The grant as plain data, with its `left`."""
        data = _grant_adapter().dump_python(self, mode="json")
        return {**data, "left": self.left, "votes": [vote.to_dict() for vote in self.votes]}


GivenDecisions = (
    Decision
    | Mapping[str, Decision | Mapping[str, Any]]
    | Mapping[Request, Decision | Mapping[str, Any]]
)
"""What is decided: by request id, or by request, each also in its plain form such as `{"type":
"approve"}`; or one decision alone, where one request is pending."""


@cache
def _decision_adapter() -> TypeAdapter[Decision]:
    return TypeAdapter(Decision)


@cache
def _grant_adapter() -> TypeAdapter[Grant]:
    return TypeAdapter(Grant)


@cache
def _request_adapter() -> TypeAdapter[Request]:
    return TypeAdapter(Request)


def approved_at(request: Request, votes: Sequence[Vote]) -> datetime | None:
    """When a pending request is approved to which enough have agreed, unless somebody objects.

    None where not enough have agreed, and where nobody has to wait for that.
    """
    return None if request.approval is None else starts_at(request.approval, votes)


def decision_by_votes(request: Request, votes: Sequence[Vote], now: datetime) -> Decision | None:
    """The decision that these votes come to by now.

    None where more persons must vote, or enough have agreed and the call is not to start yet. It is
    a grant only where all of them want the same terms.
    """
    assert request.approval is not None, "only called for a request that asks several persons"
    result = tally(request.approval, votes)
    if result.result is None:
        return None
    due = approved_at(request, votes)
    if due is not None and due > now:
        return None
    said = [
        each
        for each in result.counted
        if each.type == result.result and (each.break_glass or not result.is_broken)
    ]
    messages = [each.message for each in said if each.message]
    terms = {each.grant for each in said}
    return Decision(
        type=result.result,
        grant=terms.pop() if len(terms) == 1 else None,
        by=", ".join(each.shown_name for each in said),
        message="\n".join(messages) or None,
        note=said[0].note if result.is_broken else None,
        break_glass=result.is_broken,
    )


def checked_expect(expect: object, decisions: object) -> dict[str, str] | None:
    """What the person was shown, if it is the digests of requests that are decided.

    Raises:
        UsageError: if it is anything else; a digest that is for no decision would check nothing.

    """
    if expect is None:
        return None
    if not isinstance(expect, Mapping):
        raise UsageError(
            f"`expect` must be a mapping of request ids to digests, got {shown(expect)}: "
            "pass {request.id: request.digest}"
        )
    for request_id, expected in expect.items():
        if not isinstance(expected, str):
            raise UsageError(
                f"`expect` must have the digest of request {shown(request_id)} as text, "
                f"got {shown(expected)}: pass {{request.id: request.digest}}"
            )
        if isinstance(decisions, Mapping) and request_id not in decisions:
            there = ", ".join(map(shown, decisions)) or "none"
            raise UsageError(
                f"`expect` has a digest for {shown(request_id)}, which is not among the requests "
                f"that are decided: {there}"
            )
    return dict(expect)


def decisions_by_id(given: object) -> Any:
    """Decisions by the ids of their requests, where requests themselves are keys among them."""
    if not isinstance(given, Mapping):
        return given
    return {key.id if isinstance(key, Request) else key: value for key, value in given.items()}


def decision_on_only(requests: Sequence[Request], decision: Decision) -> dict[str, Decision]:
    """A decision without the name of a request, on the only one that is pending.

    Raises:
        DecisionError: if there is none, or more than one.

    """
    if len(requests) != 1:
        pending = ", ".join(f"{request.id!r} ({request.about})" for request in requests) or "none"
        raise DecisionError(
            f"A decision without its request is for one that is pending, and {len(requests)} are: "
            f"{pending}. Give a mapping, such as request.decide(approve()) makes it"
        )
    return requests[0].decide(decision)


def decision_from_outside(data: Mapping[str, Any]) -> Decision:
    """A decision as JSON that was not stored: whoever wrote it said all that belongs to it.

    Raises:
        DecisionError: if it is not a decision, or lacks what its type needs.

    """
    decision = Decision.from_dict(data)
    if decision.type == "respond" and "value" not in data:
        raise DecisionError(
            f"{shown(dict(data))} is not a decision: 'respond' needs a `value`; write null where "
            "the answer is none"
        )
    if decision.type == "edit" and decision.arguments is None:
        raise DecisionError(f"{shown(dict(data))} is not a decision: 'edit' needs `arguments`")
    if decision.origin != "person":
        raise DecisionError(
            f"{shown(dict(data))} is not a decision: `origin` is of the library, leave it out"
        )
    return decision


def checked_decision(request: Request, decision: object, now: datetime | None = None) -> Decision:
    """The decision, if it is well-formed and `request` allows it.

    Args:
        request: that it is on.
        decision: or its plain form.
        now: the time; None where a time at which a grant ends is checked later.

    Raises:
        DecisionError: if not; it names the request.

    """
    where = f"Request {request.id!r} ({request.about})"
    if isinstance(decision, Mapping):
        try:
            decision = decision_from_outside(decision)
        except DecisionError as error:
            raise DecisionError(f"{where}: {error}", request_id=request.id) from error
    if not isinstance(decision, Decision):
        raise DecisionError(
            f"{where}: {shown(decision)} is not a decision: use approve(), edit(arguments), "
            "reject(message) or respond(value)",
            request_id=request.id,
        )
    if decision.type not in request.allowed:
        raise DecisionError(
            f"{where} does not allow {decision.type!r}; allowed: {', '.join(request.allowed)}",
            request_id=request.id,
        )
    try:
        checked_author(decision.by, what="`by`")
    except UsageError as error:
        raise DecisionError(f"{where}: {error}", request_id=request.id) from error
    for name in ("message", "note"):
        text = getattr(decision, name)
        if text is not None and not isinstance(text, str):
            raise DecisionError(
                f"{where}: `{name}` must be text, got {shown(text)}", request_id=request.id
            )
    if decision.origin not in ("person", "executor"):
        raise DecisionError(
            f"{where}: `origin` is of the library: a person rejects by reject(message)",
            request_id=request.id,
        )
    if decision.by_grant is not None:
        raise DecisionError(
            f"{where}: `by_grant` is of the library: a person approves by approve(), and rejects "
            "by reject(message)",
            request_id=request.id,
        )
    if (decision.type == "edit") is not (decision.arguments is not None):
        raise DecisionError(
            f"{where}: `arguments` go with 'edit' only, and 'edit' needs them",
            request_id=request.id,
        )
    if decision.grant is not None:
        try:
            terms = _checked_grant(request, decision, now)
        except UsageError as error:
            raise DecisionError(f"{where}: {error}", request_id=request.id) from error
        decision = replace(decision, grant=terms)
    if not isinstance(decision.break_glass, bool):
        raise DecisionError(
            f"{where}: `break_glass` must be a bool, got {shown(decision.break_glass)}",
            request_id=request.id,
        )
    if decision.break_glass:
        _check_glass(request, decision, where)
    if decision.origin == "executor" and (
        decision.type != "reject" or request.kind != "interrupt" or decision.grant is not None
    ):
        raise DecisionError(
            f"{where}: `origin` is of the library, and an executor says only that a call failed "
            "which a tool's own question is about: a person rejects by reject(message)",
            request_id=request.id,
        )
    if decision.type == "respond" and request.schema is not None:
        try:
            value = checked_json({"value": decision.value}, what="respond(...)")["value"]
        except UsageError as error:
            raise DecisionError(f"{where}: {error}", request_id=request.id) from error
        faults = faults_of(request.schema, value)
        if faults:
            raise DecisionError(
                f"{where}: the answer does not fit what is asked for: {fault_text(faults)}. Answer "
                f"by respond(value) with a value of its schema: {shown(request.schema)}",
                request_id=request.id,
            )
    return decision


def _check_glass(request: Request, decision: Decision, where: str) -> None:
    if decision.type != "approve":
        raise DecisionError(
            f"{where}: `break_glass=True` goes with approve only", request_id=request.id
        )
    if request.approval is None or not request.approval.break_glass:
        raise DecisionError(
            f"{where}: nobody may break the glass here: leave `break_glass` out",
            request_id=request.id,
        )
    if decision.note is None or not decision.note.strip():
        raise DecisionError(
            f"{where}: who breaks the glass says why: approve(break_glass=True, note=...)",
            request_id=request.id,
        )
    if decision.grant is not None:
        raise DecisionError(
            f"{where}: who breaks the glass lets this call alone run: leave `grant` and `always` "
            "out",
            request_id=request.id,
        )


def _checked_grant(request: Request, decision: Decision, now: datetime | None) -> GrantTerms:
    if not isinstance(decision.grant, GrantTerms):
        raise UsageError(f"`grant` must be what grant(...) makes, got {shown(decision.grant)}")
    if decision.type not in ("approve", "reject") or request.kind != "approval":
        raise UsageError("`grant` and `always` go with approve or reject of an approval only")
    return fitting_terms(decision.grant, request.offer, request.arguments.keys(), now)
