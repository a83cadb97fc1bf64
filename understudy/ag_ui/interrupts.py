"""Requests as AG-UI's interrupts, and its answers as decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, cast

from ag_ui.core import Interrupt, ResumeEntry

from understudy._base.grant_terms import GrantOffer, GrantTerms, grant
from understudy._base.json_schema import fault_text, faults_of
from understudy._base.request_summary import headline, summary
from understudy.agent.standing import Standing
from understudy.approvals import Vote, tally
from understudy.errors import UsageError
from understudy.interrupts import Decision, DecisionType, Request, approved_at
from understudy.login.problems import refused

REASONS = {"approval": "tool_call", "interrupt": "input_required"}
_DEFS = ("$defs", "definitions")


def interrupt_of(
    request: Request,
    *,
    tool_call_id: str,
    parameters: Mapping[str, Any] | None,
    votes: Sequence[Vote] = (),
    standing: Standing | None = None,
) -> Interrupt:
    """The interrupt that stands for a request.

    Args:
        request: the request to a person.
        tool_call_id: the id under which the client knows the call.
        parameters: the JSON schema of the tool's arguments, where it is known.
        votes: the votes so far, if several persons must agree.
        standing: what the user may do about it then.

    """
    data = request.to_dict()
    about = {
        "digest": request.digest,
        "kind": request.kind,
        "allowed": list(request.allowed),
        "agentPath": list(request.agent_path),
        "toolName": request.tool_name,
        "title": headline(data),
        "arguments": data["arguments"],
        "display": data["display"],
        "payload": data["payload"],
        "createdAt": data["created_at"],
        "doubts": [doubt["tool_name"] for doubt in data["doubts"]],
        "earlier": data["earlier"],
        "askedAgain": data["asked_again"],
    }
    if request.rule:
        about |= {"rule": request.rule}
    if request.budget:
        about |= {"budget": request.budget}
    if request.approval is not None:
        due = approved_at(request, votes)
        about |= {
            "mustAgree": request.approval.text,
            "terms": list(request.approval.terms),
            "missing": tally(request.approval, votes).text,
            "approvedAt": None if due is None else due.isoformat(),
            "votes": [
                {
                    "name": vote.name,
                    "type": vote.type,
                    "breakGlass": vote.break_glass,
                    "at": vote.at.isoformat(),
                }
                for vote in votes
            ],
        }
    if standing is not None:
        about |= {_camel(name): value for name, value in standing.to_dict().items()}
    if request.offer is not None:
        about |= {"offer": request.offer.to_dict()}
    return Interrupt(
        id=request.id,
        reason=REASONS.get(request.kind, f"understudy:{request.kind}"),
        message=f"{request.about}: {summary(data)}".removesuffix(": "),
        tool_call_id=tool_call_id or None,
        response_schema=response_schema(request, parameters),
        expires_at=None if request.expires_at is None else request.expires_at.isoformat(),
        metadata={"understudy": about},
        subagent_run_id=request.run_id if len(request.agent_path) > 1 else None,
    )


def _camel(name: str) -> str:
    """The name of a field, as AG-UI writes names: "whyNoVote"."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def response_schema(request: Request, parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """The schema of the payload that answers a request.

    For an approval it is `{approved, editedArgs, reason, value, grant}`, as far as these are
    allowed and a grant for later calls is offered; of a question its own schema, where that is one
    of an object, else `{value}`; of anything else `{decision, editedArgs, reason, value}`.
    """
    allowed = request.allowed
    if request.kind == "interrupt" and "respond" in allowed:
        schema = request.schema or {}
        return deepcopy(schema) if _is_answer(request) else _value_schema(schema)
    properties: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    ways: list[str] = []
    if request.kind in REASONS:
        can = [value for value, name in ((True, "approve"), (False, "reject")) if name in allowed]
        if "edit" in allowed and True not in can:
            can.append(True)
        if can:
            properties["approved"] = {"type": "boolean", "enum": can}
            ways.append("approved")
    else:
        properties["decision"] = {"type": "string", "enum": list(allowed)}
        ways.append("decision")
    if "edit" in allowed:
        arguments = deepcopy(dict(parameters)) if parameters is not None else {"type": "object"}
        definitions = {name: arguments.pop(name) for name in _DEFS if name in arguments}
        properties["editedArgs"] = arguments
    if "reject" in allowed:
        properties["reason"] = {"type": "string"}
    if request.approval is not None and request.approval.break_glass:
        properties["breakGlass"] = {"type": "boolean"}
    if request.offer is not None and {"approve", "reject"} & set(allowed):
        properties["grant"] = _grant_schema(request.offer, list(request.arguments))
    if "respond" in allowed:
        properties["value"] = {}
        if "approved" in ways:
            ways.append("value")
    needed = {"required": ways} if len(ways) == 1 else {"anyOf": [{"required": [w]} for w in ways]}
    return {
        "type": "object",
        "properties": properties,
        **(needed if ways else {}),
        "additionalProperties": False,
        **definitions,
    }


def _grant_schema(offered: GrantOffer, arguments: list[str]) -> dict[str, Any]:
    """The schema of the terms of a decision for later calls."""
    most = {} if offered.seconds is None else {"maximum": offered.seconds}
    uses = {} if offered.uses is None else {"maximum": offered.uses}
    scopes = ["run"] if offered.scope == "run" else ["run", "agent"]
    needed = [name for name, cap in (("seconds", most), ("uses", uses)) if cap]
    return {
        "type": "object",
        "properties": {
            "seconds": {"type": "number", "exclusiveMinimum": 0, **most},
            "uses": {"type": "integer", "minimum": 1, **uses},
            "match": {"type": "array", "items": {"type": "string", "enum": arguments}},
            "scope": {"type": "string", "enum": scopes},
        },
        **({"required": needed} if needed else {}),
        "additionalProperties": False,
    }


def _is_answer(request: Request) -> bool:
    """Whether the payload is the answer itself: a form can be made of an object."""
    return request.schema is not None and request.schema.get("type") == "object"


def _value_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    value = deepcopy(dict(schema))
    definitions = {name: value.pop(name) for name in _DEFS if name in value}
    return {
        "type": "object",
        "properties": {"value": value},
        "required": ["value"],
        "additionalProperties": False,
        **definitions,
    }


def decision_of(request: Request, entry: ResumeEntry, by: str) -> Decision:
    """The decision in an answer.

    Raises:
        Refused: if the answer does not fit the request.

    """
    if entry.status == "cancelled":
        if "reject" in request.allowed:
            return Decision(type="reject", note="cancelled", by=by)
        if "dismiss" in request.allowed:
            return Decision(type="dismiss", by=by)
        raise _bad(request, "it cannot be cancelled: answer it")
    payload: Any = entry.payload
    faults = faults_of(_checked_schema(request), payload)
    if faults:
        raise _bad(request, fault_text(faults))
    if request.kind == "interrupt" and "respond" in request.allowed:
        return Decision(
            type="respond", value=payload if _is_answer(request) else payload["value"], by=by
        )
    given = cast("dict[str, Any]", payload)
    edited, reason = given.get("editedArgs"), given.get("reason")
    if "decision" in given:
        chosen = cast("DecisionType", given["decision"])
    elif "approved" in given:
        chosen = "reject" if not given["approved"] else "approve" if edited is None else "edit"
    else:
        chosen = "respond"
    if given.get("grant") is not None and chosen not in ("approve", "reject"):
        raise _bad(request, "`grant` goes with an approval or a rejection only")
    if edited is not None and chosen != "edit":
        raise _bad(request, "`editedArgs` go with an approval only")
    if "value" in given and chosen != "respond":
        raise _bad(request, "`value` is an answer of its own: give it without an approval")
    if "value" not in given and chosen == "respond":
        raise _bad(request, "'respond' needs a `value`; write null where the answer is none")
    return Decision(
        type=chosen,
        grant=_terms(request, given),
        arguments=edited,
        message=reason if chosen == "reject" else None,
        value=given.get("value"),
        note=reason if chosen != "reject" else None,
        by=by,
        break_glass=bool(given.get("breakGlass", False)),
    )


def _terms(request: Request, given: Mapping[str, Any]) -> GrantTerms | None:
    terms = given.get("grant")
    if terms is None:
        return None
    try:
        return grant(
            until=terms.get("seconds"),
            uses=terms.get("uses"),
            match=terms.get("match"),
            scope=terms.get("scope", "run"),
        )
    except UsageError as error:
        raise _bad(request, str(error)) from error


def _checked_schema(request: Request) -> dict[str, Any]:
    """The schema without that of the arguments: the tool's validator gives better errors."""
    return response_schema(request, None)


def _bad(request: Request, why: str) -> Exception:
    return refused(422, "BadAnswer", f"The answer to {request.id!r} does not fit: {why}")
