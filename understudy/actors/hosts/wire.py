"""Calls and their replies as they go from one host to another, as rows of the store or by a socket.

The body of a call is the call's message as JSON, by a Pydantic adapter of the message's class. What
belongs to one host alone is no part of it: `_HERE`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import cache
from typing import Any, get_type_hints

from pydantic import Base64Bytes, TypeAdapter
from typing_extensions import TypedDict

from understudy._base.json_values import NotJsonError, checked_json, read_json, shown
from understudy.actors.agent.messages import (
    AgentCall,
    AgentMessage,
    CallNotes,
    Decide,
    Expectation,
    Notify,
    Send,
)
from understudy.actors.agent.replies import as_stored
from understudy.actors.verbs import ROWS, VERB_OF
from understudy.errors import DecisionError, RecordRefused, UsageError
from understudy.interrupts import Decision, decision_from_outside
from understudy.journal.codec import MAX_RECORD_BYTES, MAX_RECORD_DEPTH
from understudy.journal.shared import error_reply, to_reply
from understudy.loop_actors.future import Future
from understudy.outcomes import Outcome

Data = dict[str, Any]

_HERE = frozenset({"callers", "given", "is_look"})
"""The names of the message fields that stay at their host."""
_PLAIN: Mapping[str, Any] = {"decisions": Any, "blobs": dict[str, Base64Bytes]}
"""The types by which message fields go as JSON, where the field's own type does not say it."""


@cache
def _names(kind: str) -> tuple[str, ...]:
    """The names of the message fields that a row of this kind has."""
    message: Any = ROWS[kind].message
    return tuple(each.name for each in dataclasses.fields(message) if each.name not in _HERE)


@cache
def _adapter(kind: str) -> TypeAdapter[Data]:
    hints = get_type_hints(ROWS[kind].message, include_extras=True)
    types = {name: _PLAIN.get(name, hints[name]) for name in _names(kind)}
    make: Any = TypedDict
    return TypeAdapter(make(kind, {**types, "expects": str | None, "needs_deps": bool}))


def body_of(
    message: AgentMessage, *, owner: str, expects: str | None, has_deps: bool = False
) -> tuple[str, bytes]:
    """The kind and the body of a call.

    Args:
        message: the call.
        owner: the host that it goes to, for errors.
        expects: the definition that the agent must have for it; None: whichever it has.
        has_deps: whether the agent was spawned with deps where this is asked for.

    Raises:
        RecordRefused: if it is too large, or cannot be stored.
        UsageError: if something in it cannot go to another host.

    """
    kind, message = VERB_OF[type(message)].row_kind, _sendable(message, owner)
    begins = isinstance(message, Send) and not message.queued.steer
    data = {name: getattr(message, name) for name in _names(kind)}
    data |= {"expects": expects, "needs_deps": has_deps and begins}
    try:
        body = _adapter(kind).dump_json(data, exclude_defaults=True)
        if body.count(b"[") + body.count(b"{") > MAX_RECORD_DEPTH:
            read_json(body, max_depth=MAX_RECORD_DEPTH)
    except NotJsonError as error:
        raise RecordRefused(kind=kind, why=f"it could not be read again: {error}") from None
    except Exception as error:  # the methods of an object in it may raise anything
        why = f"it cannot be written as JSON: {error}"
        raise RecordRefused(kind=kind, why=why) from None
    if len(body) > MAX_RECORD_BYTES:
        why = f"it has {len(body):,} bytes; at most {MAX_RECORD_BYTES:,} are kept"
        raise RecordRefused(kind=kind, why=why)
    return kind, body


def message_of(kind: str, body: bytes) -> tuple[AgentMessage, str | None, bool]:
    """The message that a row says, with what its caller expects of the agent.

    Returns:
        The call; the name of the definition that the agent must have for it, or None for whichever
        it has; and whether the agent was spawned with deps where the call is asked for.

    """
    data = _adapter(kind).validate_json(body)
    expects, needs_deps = data.pop("expects"), data.pop("needs_deps")
    message: Any = ROWS[kind].message
    if isinstance(data.get("decisions"), Mapping):
        data["decisions"] = {id: _read(given) for id, given in data["decisions"].items()}
    return message(**data), expects, needs_deps


def call_of(
    kind: str, body: bytes, future: Future[Any], notes: CallNotes, number: float = math.inf
) -> AgentCall:
    """The call that another host has sent, as the agent gets it.

    Args:
        kind: of the call, as of `body_of`.
        body: of the call.
        future: gets the answer.
        notes: notes what becomes of it.
        number: as of `AgentCall`.

    """
    message, expects, needs_deps = message_of(kind, body)
    expectation = None if expects is None else Expectation(expects)
    return AgentCall(
        message,
        future,
        expectation,
        notes,
        was_elsewhere=True,
        number=number,
        needs_deps=needs_deps,
    )


def reply_to(kind: str, value: object) -> bytes:
    """The reply to a call that brought this value."""
    if isinstance(value, Outcome):
        # It was there already, and its run may be another step further when it is read
        # (test_a_run_of_a_quarantined_agent_has_failed_though_it_is_cancelled_right_behind).
        is_over = value.state.run is not None and value.state.run.over
        return to_reply({"run": value.run_id, "at": None if is_over else value._seq})
    return to_reply({"value": _result(kind).dump_python(value, mode="json")})


def refusal_of(error: Exception) -> bytes:
    """The reply to a call that brought this error."""
    return error_reply(as_stored(error))


def value_of_reply(call: AgentMessage, data: Mapping[str, Any]) -> Any:
    """The value of a call, from a reply without a run."""
    return _result(VERB_OF[type(call)].row_kind).validate_python(data.get("value"))


@cache
def _result(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(ROWS[kind].result)


# ---------------------------------------------------------------- what cannot go as it is


def _sendable(message: AgentMessage, owner: str) -> AgentMessage:
    match message:
        case Notify(middleware=middleware, message=given):
            what = f"notify({middleware!r}, ...): the agent runs at {owner!r}, so its message"
            checked = checked_json({"message": given}, what=what)
            return dataclasses.replace(message, **checked)
        case Decide():
            plain: Any = _decisions(message.decisions)
            return dataclasses.replace(message, decisions=plain)
    return message


def _decisions(decisions: object) -> object:
    """The decisions as JSON. The agent checks whether they fit."""
    if not isinstance(decisions, Mapping):
        return shown(decisions)
    made = {}
    for id, decision in decisions.items():
        is_made = isinstance(decision, Decision)
        given = {"arguments": decision.arguments, "value": decision.value} if is_made else decision
        what = f"resume(...): the decision about {shown(id)}"
        try:
            plain = checked_json({"given": given}, what=what)
        except UsageError as error:
            raise DecisionError(error.message, request_id=str(id)) from error
        if not is_made and isinstance(decision, Mapping) and "origin" in decision:
            decision_from_outside(decision)  # else the owner would take it for the library's
        made[str(id)] = decision.to_dict() if is_made else plain["given"]
    return made


def _read(given: object) -> object:
    """The decision in a row. Only a host may give a decision an origin other than a person."""
    if isinstance(given, Mapping) and "origin" in given:
        return Decision.from_dict(given)
    return given
