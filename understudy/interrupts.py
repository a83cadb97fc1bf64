"""Questions to a person and their answers, both plain data.

A `Request` says what is asked; a `Decision` answers it. Requests are made by middleware (an
approval), by a tool that raises `Interrupt` (a question of its own), and by the pipeline itself
for a call in doubt. Whoever asks, all of them stand in one flat list and are answered in one go
(I9).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, cast

from pydantic import TypeAdapter, ValidationError

from understudy._base.json_values import digest
from understudy.errors import DecisionError, UsageError

__all__ = [
    "Decision",
    "DecisionRecord",
    "DecisionType",
    "DoubtfulCall",
    "Halt",
    "Interrupt",
    "Request",
    "Sticky",
    "approve",
    "dismiss",
    "edit",
    "reject",
    "respond",
]

DecisionType = Literal["approve", "edit", "reject", "respond", "dismiss"]
DECISION_TYPES: tuple[DecisionType, ...] = ("approve", "edit", "reject", "respond")
"""Those that answer a question; `dismiss` only takes note of a halt (I11)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A person's answer to one request.

    Make one with `approve`, `edit`, `reject`, `respond` or, for a halt, `dismiss`.
    """

    type: DecisionType
    arguments: dict[str, Any] | None = None
    """For `edit`: what the tool is to be called with, as a whole."""
    message: str | None = None
    """For `reject`: what the model is told."""
    value: Any = None
    """For `respond`: the result (or what a tool's own question is answered with)."""
    always: bool = False
    """Sticks for this tool and agent, until revoked (I3). Only for approve and reject."""
    by: str | None = None
    """Who decided, for the audit (I14)."""
    note: str | None = None
    """Why, for the audit; the model does not see it."""

    def same_as(self, other: Decision) -> bool:
        """Whether both decide the same; who says so and why does not matter."""
        return self._decided() == other._decided()

    def _decided(self) -> str:
        return digest([self.type, self.arguments, self.message, self.value, self.always])

    def to_dict(self) -> dict[str, Any]:
        """The decision as plain data; `resume` takes this form as well."""
        data = _decision_adapter().dump_python(self, mode="json", exclude_defaults=True)
        return cast("dict[str, Any]", data)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Decision:
        """Read `{"type": "approve"}` and the like.

        Raises:
            DecisionError: naming what is wrong with it.

        """
        unknown = [key for key in data if key not in Decision.__dataclass_fields__]
        if unknown:
            raise DecisionError(f"{dict(data)!r} is no decision: it has no field {unknown[0]!r}")
        try:
            if not isinstance(data.get("always", False), bool):
                raise DecisionError(f"{dict(data)!r}: always is true or false")
            return _decision_adapter().validate_python(dict(data))
        except ValidationError as error:
            told = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise DecisionError(f"{dict(data)!r} is no decision: {told}") from error


def approve(*, always: bool = False, by: str | None = None, note: str | None = None) -> Decision:
    """Run the call exactly as it was shown."""
    return Decision(type="approve", always=always, by=by, note=note)


def edit(
    arguments: Mapping[str, Any], *, by: str | None = None, note: str | None = None
) -> Decision:
    """Run the call with these arguments instead, which replace the shown ones as a whole (I6)."""
    if not isinstance(arguments, Mapping):
        raise DecisionError(f"edit takes a mapping of arguments, not {arguments!r}")
    return Decision(type="edit", arguments=dict(arguments), by=by, note=note)


def reject(
    message: str | None = None,
    *,
    always: bool = False,
    by: str | None = None,
    note: str | None = None,
) -> Decision:
    """Do not run the call; the model is told so, with `message`."""
    return Decision(type="reject", message=message, always=always, by=by, note=note)


def respond(value: Any, *, by: str | None = None, note: str | None = None) -> Decision:
    """Do not run the call: `value` is its result (for a tool's own question: its answer)."""
    return Decision(type="respond", value=value, by=by, note=note)


def dismiss(*, by: str | None = None, note: str | None = None) -> Decision:
    """Take note of a halt, the only answer to one: the run is over, nothing of it goes on (I11)."""
    return Decision(type="dismiss", by=by, note=note)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtfulCall:
    """A call that was started and whose outcome is unknown (J3, J4)."""

    call_key: str
    tool_name: str
    tool_call_id: str
    arguments: dict[str, Any]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question to a person. Answer it by its `id`, in `resume`."""

    id: str
    """Opaque and used once; it stands for exactly what is shown here (J5)."""
    kind: str
    """`approval`, `interrupt` (a tool's own question), `doubt`, `halt`, or a middleware's word."""
    agent_id: str
    run_id: str
    agent_path: tuple[str, ...]
    call_key: str
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]
    """Canonical: validated, with defaults filled in. What is approved is exactly this (I12)."""
    display: str | dict[str, Any] | None = None
    """What the host's gate shows beside the arguments, never instead of them (I14)."""
    payload: Any = None
    """For a tool's own question: what it asks. For a halt: why."""
    allowed: tuple[DecisionType, ...] = DECISION_TYPES
    created_at: datetime
    expires_at: datetime | None = None
    """From then on an answer is refused, and the request counts as rejected (I14)."""
    fingerprint: str
    """The tool's name, schema and version, as they were when this was asked (I12)."""
    digest: str
    """Of everything that an answer holds for: agent, run, call, tool and arguments (I12)."""
    source: str = ""
    """The middleware that asks."""
    doubts: tuple[DoubtfulCall, ...] = ()
    """Calls of this tool whose outcome is unknown: look at them before you approve (J4)."""

    def to_dict(self) -> dict[str, Any]:
        """The request as plain data."""
        data = TypeAdapter(Request).dump_python(self, mode="json")
        return cast("dict[str, Any]", data)


class Interrupt(Exception):
    """Raised by a tool that needs an answer from outside before it can go on (I8).

    Its siblings finish and are recorded. After `resume` this tool alone runs again from its start,
    with the answer in `ctx.resume_value`: the value of `respond(value)`, or True for `approve()`.
    So put what must not happen twice behind the question, not before it.
    """

    def __init__(
        self,
        payload: Any = None,
        *,
        allowed: Sequence[DecisionType] = ("respond", "reject"),
    ) -> None:
        super().__init__(payload)
        self.payload = payload
        self.allowed = checked_allowed(allowed, what="Interrupt(allowed=...)")
        if "edit" in self.allowed:
            raise UsageError(
                "Interrupt(allowed=...) cannot offer 'edit': a tool's own question is answered "
                "with respond(value), approve() or reject()."
            )


class Halt(Exception):
    """Raised by a tool to stop everything, for good (I11).

    The whole run is halted, whichever agent below it the tool belongs to: calls that are running
    finish, nothing else starts, and the run waits, `Interrupted` by the one request of kind
    `halt`, for a person to dismiss it. It never goes on. An agent with such tools, or one above
    it, needs the `Haltable` middleware; without, the run fails.
    """

    def __init__(self, message: str) -> None:
        if not isinstance(message, str) or not message.strip():
            raise UsageError(f"Halt(message) says in words why, not {message!r}")
        super().__init__(message)
        self.message = message


def checked_allowed(
    allowed: Iterable[str], *, what: str, kind: str = "approval"
) -> tuple[DecisionType, ...]:
    """The decision names as given, or a `UsageError`: a gate is never silently off (I1)."""
    known = ("dismiss",) if kind == "halt" else DECISION_TYPES
    if isinstance(allowed, str):
        raise UsageError(f"{what} takes a list of decisions, not the string {allowed!r}")
    if not isinstance(allowed, Iterable):
        raise UsageError(f"{what} takes a list of decisions, not {allowed!r}")
    names = tuple(allowed)
    if not names:
        raise UsageError(
            f"{what} is empty, so nobody could ever answer: name at least one of {', '.join(known)}"
        )
    for name in names:
        if name not in known:
            raise UsageError(f"{what} holds {name!r}, which is no decision: use {', '.join(known)}")
    return cast("tuple[DecisionType, ...]", names)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """One line of the audit: what was asked, what was answered, when and by whom (I14)."""

    request: Request
    decision: Decision
    at: datetime
    sticky: bool = False
    """The answer came from an earlier `always=True`, not from a person now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sticky:
    """An answer that holds for a tool until it is revoked, or the tool changes (I3, I12)."""

    agent_id: str
    source: str
    tool_name: str
    fingerprint: str
    decision: Decision
    at: datetime
    request_id: str = field(default="")


def _decision_adapter() -> TypeAdapter[Decision]:
    global _DECISIONS
    if _DECISIONS is None:
        _DECISIONS = TypeAdapter(Decision)
    return _DECISIONS


_DECISIONS: TypeAdapter[Decision] | None = None


def checked_decision(request: Request, decision: object) -> Decision:
    """A well-formed decision that `request` allows, or a `DecisionError` naming it (I5)."""
    where = f"Request {request.id!r} ({request.tool_name})"
    if isinstance(decision, Mapping):
        try:
            decision = Decision.from_dict(decision)
        except DecisionError as error:
            raise DecisionError(f"{where}: {error}", request_id=request.id) from error
    if not isinstance(decision, Decision):
        raise DecisionError(
            f"{where}: {decision!r} is no decision: use approve(), edit(arguments), "
            "reject(message) or respond(value)",
            request_id=request.id,
        )
    if decision.type not in request.allowed:
        raise DecisionError(
            f"{where} does not allow {decision.type!r}; allowed: {', '.join(request.allowed)}",
            request_id=request.id,
        )
    if not isinstance(decision.always, bool):
        raise DecisionError(
            f"{where}: always is True or False, not {decision.always!r}", request_id=request.id
        )
    if (decision.type == "edit") is not (decision.arguments is not None):
        raise DecisionError(
            f"{where}: arguments belong to 'edit', and 'edit' needs them", request_id=request.id
        )
    if decision.always and (
        decision.type not in ("approve", "reject") or request.kind != "approval"
    ):
        raise DecisionError(
            f"{where}: always=True goes with approve or reject of an approval only",
            request_id=request.id,
        )
    return decision
