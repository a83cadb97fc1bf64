"""Requests to a person and the decisions on them, both plain data.

Four things make a `Request`: a middleware that needs an approval, a tool or a middleware that asks
a question by raising `Interrupt`, a tool that raises `Halt`, and a call in doubt. All pending
requests are in one flat list. One `resume` may decide all of them.
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
"""The type of a decision."""
DECISION_TYPES: tuple[DecisionType, ...] = ("approve", "edit", "reject", "respond")
"""All but `dismiss`, which is the one decision on a halt."""
Seen = Literal["at_once", "unfolded", "scrolled"]
"""How a page has shown a request.

- `at_once`: all of it was in the window at once.
- `unfolded`: the folded part was opened.
- `scrolled`: it was scrolled to its end.
"""
DecisionOrigin = Literal["person", "expiry", "executor"]
"""The source of a decision.

- `person`: a person, or code that speaks for a person.
- `expiry`: the time for an answer is over.
- `executor`: the program that executes the call elsewhere reports that the call failed.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A person's decision on one request.

    Create one with `approve`, `edit`, `reject`, `respond` or, for a halt, `dismiss`.
    """

    type: DecisionType
    arguments: dict[str, Any] | None = None
    """For `edit`: the arguments with which the tool is called. None for any other decision."""
    message: str | None = None
    """For `reject`: a text for the model. None = no text."""
    value: Any = None
    """For `respond`: the result of the call, or the answer to a tool's own question."""
    grant: GrantTerms | None = None
    """The terms on which the decision also holds for later calls. None = for this call alone.

    Only `approve` and `reject` can have a grant.
    """
    by_grant: str | None = None
    """The id of the grant that made this decision; None if a person or other code made it.

    Only the library sets it.
    """
    by: str | None = None
    """The name of the person who decided, for the audit; None if nobody was named."""
    note: str | None = None
    """The reason for the decision, for the audit. The model does not see it."""
    completed: dict[str, Any] | None = None
    """For a recorded `edit`: all arguments of the call, with the defaults that the edit left out.

    None if the edit left out nothing.
    """
    origin: DecisionOrigin = "person"
    """The source of the decision: `person`, `expiry` or `executor`.

    Only the library sets `expiry` and `executor`. Both belong to a `reject`. `expiry` counts as a
    rejection. `executor` gives the model an error of the tool, with the text of `message`.
    """
    break_glass: bool = False
    """For `approve`: whether one person alone lets the call run at once, for the reason in
    `note`."""
    seen: Seen | None = None
    """How the page had shown the request when the person decided; None if that is not known."""

    @property
    def edited(self) -> dict[str, Any] | None:
        """For `edit`: all arguments with which the call runs. None for any other decision."""
        return self.arguments if self.completed is None else self.completed

    def same_as(self, other: Decision) -> bool:
        """Return whether both decisions have the same effect. `by` and `note` are not compared."""
        return self._digest() == other._digest()

    def _digest(self) -> str:
        parts = [self.type, self.arguments, self.message, self.value, self.origin]
        if self.grant is not None:
            parts.append(self.grant.to_dict())
        return digest(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as plain data. `resume` takes this form too."""
        data = _decision_adapter().dump_python(self, mode="json", exclude_defaults=True)
        if self.type == "respond":
            data.setdefault("value", None)
        return cast("dict[str, Any]", data)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Decision:
        """Read a decision from plain data, such as `{"type": "approve"}`.

        `"always": True` means a grant without an end.

        Raises:
            DecisionError: if the data is not a decision; the message names the field.

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
        always: also approve all later calls of this tool by this agent, until the grant is
            revoked. Short for a grant without an end, for all arguments.
        grant: also approve later calls, within these terms: see `understudy.grant`.
        by: the name of the person who decides.
        note: the reason, for the audit.
        break_glass: in an emergency, approve alone what several persons must agree to. The
            approval of the request says who may. A `note` is needed, and another person reviews
            it later.

    Raises:
        DecisionError: if both `always` and `grant` are given, or if one of them is invalid.

    """
    terms = _terms(always, grant)
    return Decision(type="approve", grant=terms, by=by, note=note, break_glass=break_glass)


def edit(
    arguments: Mapping[str, Any], *, by: str | None = None, note: str | None = None
) -> Decision:
    """Run the call with these arguments instead. They replace all arguments that were shown.

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
    """Do not run the call. The model gets a result that says so, with `message`.

    `always` and `grant` are the same as for `approve`: later calls are rejected too.
    """
    return Decision(type="reject", message=message, grant=_terms(always, grant), by=by, note=note)


def respond(value: Any, *, by: str | None = None, note: str | None = None) -> Decision:
    """Do not run the call. `value` is its result, or the answer to a tool's own question."""
    return Decision(type="respond", value=value, by=by, note=note)


def dismiss(*, by: str | None = None, note: str | None = None) -> Decision:
    """Acknowledge a halt. No other decision on a halt is possible, and the run does not
    continue.
    """
    return Decision(type="dismiss", by=by, note=note)


CallStatus = Literal["in_doubt", "open", "done"]
"""The state of a call that equals another call: its outcome, or `open` while it is under way."""
DOUBT_ENDS = 7 * 24 * 3600.0
"""Seconds after which a doubt ends of which only the model was informed, unless set otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtfulCall:
    """A call that was started and whose outcome is unknown.

    In `Request.doubts` it may also be a call with the same key (`@tool(key=)`), of any `status`.
    """

    call_key: str
    tool_name: str
    tool_call_id: str
    arguments: dict[str, Any]
    reason: str
    """The reason why the outcome is unknown."""
    agent: str
    """The name of the agent that made the call."""
    since: datetime
    """The time at which the outcome of the call became unknown."""
    token_hashes: tuple[str, ...] = ()
    """The hashes of the tokens of its unanswered waits. An answer by one of these settles the
    doubt."""
    agent_id: str = ""
    """The id of the other agent that made the call, if both calls have the same key
    (`@tool(key=)`).

    Empty for a call of the agent itself.
    """
    status: CallStatus = "in_doubt"
    checks_at: datetime | None = None
    """The next time at which the check of the tool is asked what the call did; None = no check is
    due."""
    ends_at: datetime | None = None
    """The time at which the doubt ends by itself, unsettled.

    None = never. It is None also while a person or a check is asked.
    """
    call_approval: Approval | None = None
    """The approval that says who had to agree to the call. A person whom its `never` excludes
    cannot settle the doubt."""
    requesters: tuple[str, ...] | None = None
    """The ids of the persons whom `never` excludes; None if one of them is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierCall:
    """An earlier call of the same tool with the same arguments.

    It may also be a `task` of the same agent that was not finished, with any arguments.
    """

    tool_call_id: str
    """The id that the model gave the call.

    Empty if it is not known any more: the call is of an inner agent whose run is over.
    """
    outcome: str
    """How the call ended, as in `ToolEnded.outcome`; `open` if it has no result yet.

    An open call belongs to the same reply.
    """
    content: str
    """The beginning of the result, as text. For a `task` also the work that its agent has done."""
    at: datetime | None
    """The time of its result."""
    agent: str = ""
    """The name of the agent that made it; empty if it is the agent that asks now."""
    found_by: str = ""
    """The name of the person who said what the call did, if it was in doubt; else empty."""
    found: str = ""
    """The words of this person, if `content` does not have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A question to a person about one tool call, or a question of a middleware.

    `resume` takes the decision by the request's `id`, or by the request itself: `{request:
    approve()}`.
    """

    id: str
    """The id of the request: opaque, and used once. A decision holds for exactly what is shown
    here."""
    kind: str
    """The kind of the request: `approval`, `interrupt`, `doubt`, `halt`, or a middleware's own
    kind.

    `interrupt` is a question of a tool or of a middleware.
    """
    agent_id: str
    """The id of the agent whose run asks; without a runtime, the agent's name."""
    run_id: str
    agent_path: tuple[str, ...]
    """The names of the agents, from the outermost agent to the agent that asks."""
    call_key: str
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]
    """The canonical arguments of the call: validated, with defaults filled in.

    An approval holds for exactly these arguments.
    """
    display: str | dict[str, Any] | None = None
    """The return value of the gate's `display`, to be shown in addition to the arguments."""
    title_format: str = ""
    """The format of the title, such as `Refund {amount} to {customer}`.

    Each name stands for a value of the question or for an argument. Empty if the application gives
    no title. The property `title` has the values filled in.
    """
    payload: Any = None
    """For a question: its content. For a halt: the reason."""
    allowed: tuple[DecisionType, ...] = DECISION_TYPES
    """The types of decision that may answer the request."""
    created_at: datetime
    expires_at: datetime | None = None
    """The time from which a decision is refused. The request then counts as `on_expiry` says."""
    remind_at: tuple[datetime, ...] = ()
    """The times at which the person is reminded, in order, while no decision is recorded."""
    escalations: tuple[Escalation, ...] = ()
    """The other people to notify, with the times, in order, while no decision is recorded."""
    on_expiry: OnExpiry = "reject"
    """The effect of the expiry: `reject` rejects the call, `stop` stops the whole run."""
    fingerprint: str
    """The fingerprint of the tool's name, schema and version at the time of the request."""
    digest: str
    """The digest of everything for which a decision holds, and of `salt`.

    It covers agent, run, call, tool and arguments. It also covers what is shown: `kind`, `display`,
    `title_format`, `payload`, `allowed`, `schema`, `approval` and `offer`.
    """
    source: str = ""
    """The name of the middleware that made the request."""
    doubts: tuple[DoubtfulCall, ...] = ()
    """Earlier calls of this tool whose outcome is unknown, and calls with the same key.

    Check them before you approve. An approval holds for this call in addition to these calls.
    """
    earlier: tuple[EarlierCall, ...] = ()
    """Earlier calls that equal this call, newest first. Look whether this call repeats them.

    For a `task` it also has the tasks that its agent did not finish, with the work done in them.
    """
    asked_again: str = ""
    """The reason why a person is asked again about the call; empty if this is the first request."""
    schema: dict[str, Any] | None = None
    """The JSON schema that the value of `respond(value)` must fit; None = any value."""
    question_key: str = ""
    """For a middleware's question: the key for `run.answer(key)`."""
    context: StoredContext = field(default_factory=dict)
    """The context of the run that asks, by the names of the codecs."""
    approval: Approval | None = None
    """The approval that says who must agree; None if anybody with the right to decide is enough."""
    call_approval: Approval | None = None
    """For a call in doubt: the approval that says who had to agree to the call.

    One answer is enough. A person whom its `never` excludes cannot give it.
    """
    requesters: tuple[str, ...] | None = None
    """The ids of the persons who must not vote, or not answer for a call in doubt.

    With `never` in the approval, they are the persons who have asked for the call. If the approval
    asks more than one person, they are also the persons who have edited the arguments. None if a
    person is not known, or if the approval excludes nobody.
    """
    offer: GrantOffer | None = None
    """The largest grant that a decision may give; None if it holds for this call alone."""
    salt: str = field(default="", repr=False)
    """Random text that makes the digest unguessable. It is kept with the request alone.

    No form that is shown has it. Without it, a guess at a hidden argument could be checked by its
    digest.
    """

    def __hash__(self) -> int:
        """By its id: it can be a key of decisions, though it holds data."""
        return hash(self.id)

    def decide(self, decision: Decision | Mapping[str, Any]) -> dict[str, Decision]:
        """Return the mapping that `resume` takes, with this decision on this request.

        Raises:
            DecisionError: if the decision does not fit the request.

        """
        return {self.id: checked_decision(self, decision)}

    @property
    def rule(self) -> str:
        """The name of the application's rule that asks; empty if no rule asks."""
        return self.source.removeprefix(RULE) if self.source.startswith(RULE) else ""

    @property
    def budget(self) -> str:
        """The name of the budget that has no room for the call; empty if no budget asks."""
        return self.source.removeprefix(BUDGET) if self.source.startswith(BUDGET) else ""

    @property
    def title(self) -> str:
        """The title of the request, in one line; empty if the application gives none."""
        return filled_title(self.title_format, self.payload, self.arguments)

    @property
    def about(self) -> str:
        """The subject of the request in a word: the tool, or the middleware that asks its own
        question.
        """
        return self.tool_name or self.source

    @property
    def timing(self) -> RequestTiming:
        """The reminders, escalations and expiry of this request, for a request that replaces it."""

        def after(at: datetime) -> float:
            return (at - self.created_at).total_seconds()

        return RequestTiming(
            remind_after=tuple(after(at) for at in self.remind_at),
            escalate_after=tuple((after(e.at), e.audience) for e in self.escalations),
            expires_after=None if self.expires_at is None else after(self.expires_at),
            on_expiry=self.on_expiry,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the request as plain data that may be shown: without its `salt`."""
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
    """Raise it in a tool or a middleware that needs an answer from outside before it can continue.

    The other calls of the reply finish and are recorded. After `resume` this tool alone runs again
    from its start. `ctx.resume_value` is then the answer: the value of `respond(value)`, or True
    for `approve()`. If several are raised at once, in an exception group, the answer is a list in
    the same order. Put a side effect that must not happen twice after the question, not before it.

    A middleware asks with a `key`, in `before_model`, in `after_model`, or in `wrap_tool_call`
    before `next`. Its hook is then called again, and `run.answer(key)` returns the decision.

    Args:
        payload: the content of the question, JSON-able, for `request.payload`.
        title: the title in lists of requests, such as `"Which seat for {passenger}?"`. It is no
            f-string: each name stands for a value of the payload or for an argument of the
            call.
        schema: what the value of `respond(value)` must be: a JSON schema as a dict, a Pydantic
            model, or any other type. A value that does not fit is a `DecisionError`.
        key: the key of a middleware's question, by which its answer is read. Each question of a
            run needs its own key. A tool's question has none.
        allowed: the decisions that a person may take; `edit` is not possible.
        remind_after: seconds or timedeltas, one or several, after which the person is reminded.
        escalate_after: the other people to notify, by the seconds after which they are notified.
        expires_after: seconds, or a timedelta, after which an unanswered question expires; None
            = never.
        on_expiry: the effect of an expired question: `"reject"`, or `"stop"`, which stops the
            whole run.

    Raises:
        UsageError: if `allowed` is empty or holds an unknown decision, if a time is not
            possible, or if `schema` is not a schema or no answer can fit it.

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
    """Raise it in `wrap_model_call` to put the model call off until a later time.

    The run waits. Meanwhile its agent may be passive, and its process may end. Then the call begins
    again, with the instructions, `before_model` and `wrap_model_call`. `Defer` passes through the
    middleware around it. Raise it before there is a reply; failures of models before it do no harm.
    A call by `run.ask_model` cannot be put off.

    Args:
        until: seconds or a timedelta from now, or a point in time with a time zone.
        key: the name of the wait in lists of waits; by default the middleware's name with a
            number.
        reason: the reason, for people.

    Raises:
        UsageError: if `until` is not a time, or `key` or `reason` is not text.

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
        """Return the time until which the call waits if this `Defer` is raised now."""
        return self._until if isinstance(self._until, datetime) else now + self._until


class Halt(Exception):
    """Raise it in a tool to stop the whole run for good.

    It halts the run of the root agent, at whatever depth the tool's agent is nested. Running calls
    finish, and no other call starts. The run is then `Interrupted` by one request of kind `halt`,
    until a person dismisses the request. The run never continues. The tool's agent, or an agent
    above it, needs the `Haltable` middleware. Without it the run ends as `Failed` by `NotHaltable`.

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
    """One entry of the audit: a request, the decision on it, and the time of the decision."""

    request: Request
    decision: Decision
    at: datetime
    context: StoredContext = field(default_factory=dict)
    """The context of the person who decided, by the names of the codecs."""
    votes: tuple[Vote, ...] = ()
    """All votes on the request, in the order in which they were cast. Empty if nobody votes
    on it."""
    login: Login | None = None
    """The login of the person who decided; None if nothing is known but the name in the
    decision."""


GrantType = Literal["approve", "reject"]
"""What a grant decides: `approve` lets the call run, `reject` does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A decision that also holds for later calls of a tool, within its terms."""

    id: str
    """The id of the grant: the id of the request whose decision gave it."""
    type: GrantType
    tool_name: str
    fingerprint: str
    """The fingerprint of the tool. The grant ends when the tool changes."""
    agent_id: str
    """The id of the outermost agent."""
    agent_path: tuple[str, ...]
    """The names of the agents from the outermost to the agent that makes the calls."""
    source: str
    """The name of the gate or rule that asked."""
    approval: Approval | None = None
    """The approval that says who had to agree. The grant ends when the approval changes."""
    offer: GrantOffer | None = None
    """The largest grant that was offered. The grant ends when the offer changes."""
    scope: GrantScope
    """The calls for which the grant holds: those of one run, or of the agent in all its runs."""
    run_id: str
    """The id of the run for which the grant holds, if its scope is a run."""
    arguments: dict[str, Any]
    """The arguments that a call must have, by name, each with this value."""
    free: tuple[str, ...] | None = None
    """The names of the other arguments that a call may have; None = any names."""
    until: datetime | None = None
    """The time at which the grant ends; None = never."""
    uses: int | None = None
    """The number of calls that the grant lets through; None = any number."""
    used: int = 0
    """The number of calls that the grant has let through. Calls that did nothing do not count."""
    open: tuple[str, ...] = ()
    """The keys of counted calls that may still turn out to have done nothing."""
    by: str | None = None
    """The name of the person who gave the grant."""
    message: str | None = None
    """For a rejection: a text for the model."""
    at: datetime
    votes: tuple[Vote, ...] = ()
    """The votes by which the grant was given, if several persons had to agree."""

    @property
    def left(self) -> int | None:
        """The number of uses that are left; None = any number."""
        return None if self.uses is None else max(0, self.uses - self.used)

    def is_over(self, now: datetime) -> bool:
        """Return whether the grant has ended by its time."""
        return self.until is not None and self.until <= now

    def covers(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether the grant holds for a call with these arguments."""
        others = arguments.keys() - self.arguments.keys()
        if self.free is not None and not others <= set(self.free):
            return False
        given = {name: arguments[name] for name in self.arguments if name in arguments}
        return digest(given) == digest(self.arguments)

    def to_dict(self) -> dict[str, Any]:
        """Return the grant as plain data, with the number of uses that are `left`."""
        data = _grant_adapter().dump_python(self, mode="json")
        return {**data, "left": self.left, "votes": [vote.to_dict() for vote in self.votes]}


GivenDecisions = (
    Decision
    | Mapping[str, Decision | Mapping[str, Any]]
    | Mapping[Request, Decision | Mapping[str, Any]]
)
"""The decisions that `resume` takes.

A mapping has a decision by each request or its id. A decision may be plain data, such as `{"type":
"approve"}`. One decision alone is enough if exactly one request is pending.
"""


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

    None if not enough have agreed, and where nobody has to wait for that.
    """
    return None if request.approval is None else starts_at(request.approval, votes)


def decision_by_votes(request: Request, votes: Sequence[Vote], now: datetime) -> Decision | None:
    """The decision that these votes come to by now.

    None if more persons must vote, or enough have agreed and the call is not to start yet. It is
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
                f"`expect` has a digest for {shown(request_id)}, but no decision is on this "
                f"request: {there}"
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
            "A decision without its request needs exactly one pending request, and "
            f"{len(requests)} are pending: {pending}. Give a mapping, such as "
            "request.decide(approve())"
        )
    return requests[0].decide(decision)


def decision_from_outside(data: Mapping[str, Any]) -> Decision:
    """Read a decision from JSON that was not stored. Its author must give all its values.

    Raises:
        DecisionError: if it is not a decision, or lacks what its type needs.

    """
    decision = Decision.from_dict(data)
    if decision.type == "respond" and "value" not in data:
        raise DecisionError(
            f"{shown(dict(data))} is not a decision: 'respond' needs a `value`; write null if "
            "the answer is None"
        )
    if decision.type == "edit" and decision.arguments is None:
        raise DecisionError(f"{shown(dict(data))} is not a decision: 'edit' needs `arguments`")
    if decision.origin != "person":
        raise DecisionError(
            f"{shown(dict(data))} is not a decision: only the library sets `origin`; leave it out"
        )
    return decision


def checked_decision(request: Request, decision: object, now: datetime | None = None) -> Decision:
    """The decision, if it is well-formed and `request` allows it.

    Args:
        request: that it is on.
        decision: or its plain form.
        now: the time; None if a time at which a grant ends is checked later.

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
            f"{where}: only the library sets `origin`; a person rejects by reject(message)",
            request_id=request.id,
        )
    if decision.by_grant is not None:
        raise DecisionError(
            f"{where}: only the library sets `by_grant`; a person approves by approve(), and "
            "rejects by reject(message)",
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
            f"{where}: only the library sets `origin`, and 'executor' only to reject a question "
            "of a tool; a person rejects by reject(message)",
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
            f"{where}: a person who breaks the glass must say why: approve(break_glass=True, "
            "note=...)",
            request_id=request.id,
        )
    if decision.grant is not None:
        raise DecisionError(
            f"{where}: breaking the glass lets only this call run: leave `grant` and `always` out",
            request_id=request.id,
        )


def _checked_grant(request: Request, decision: Decision, now: datetime | None) -> GrantTerms:
    if not isinstance(decision.grant, GrantTerms):
        raise UsageError(f"`grant` must be what grant(...) makes, got {shown(decision.grant)}")
    if decision.type not in ("approve", "reject") or request.kind != "approval":
        raise UsageError("`grant` and `always` go with approve or reject of an approval only")
    return fitting_terms(decision.grant, request.offer, request.arguments.keys(), now)
