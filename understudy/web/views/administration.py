"""Delegations, and what persons must agree to before it is done."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from understudy.errors import DecisionError, UsageError
from understudy.interrupts import Decision
from understudy.login.bodies import checked_as
from understudy.login.problems import refused
from understudy.trust.fold import Delegation
from understudy.web.visit import Form, Visit


class DelegateBody(BaseModel):
    """Roles of one's own, or with the rights `admin` and `impersonate` those of somebody else."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    to: str | tuple[str, str]
    """The name of a login, or issuer and subject of an identity provider."""
    roles: list[str] = Field(min_length=1)
    until: datetime
    reason: str
    from_: str | tuple[str, str] | None = None
    """Who gives them, if it is not who is logged in."""


class EndBody(BaseModel):
    """Which delegation ends."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: str


class VoteBody(BaseModel):
    """A vote on a request of administration."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    request_id: str
    type: Literal["approve", "reject"]
    note: str | None = None


async def delegations(visit: Visit) -> dict[str, Any]:
    """The delegations that hold now."""
    found = await visit.wait(visit.runtime.delegations()) if visit.has_people else []
    return {"delegations": [each.to_dict() for each in found]}


async def administration(visit: Visit) -> dict[str, Any]:
    """What persons are to agree to before it is done."""
    found = await visit.wait(visit.runtime.administration()) if visit.has_people else []
    return {"requests": [each.to_dict() for each in found]}


async def page(visit: Visit) -> dict[str, Any]:
    """Both, for the page."""
    return {**await administration(visit), **await delegations(visit)}


async def delegate(visit: Visit) -> dict[str, Any]:
    """Let another person vote with roles of one's own, until a time."""
    visit.need("decide")
    return await _delegate(visit, await visit.body(DelegateBody))


async def _delegate(visit: Visit, body: DelegateBody) -> dict[str, Any]:
    if body.from_ is not None:
        for right in ("admin", "impersonate"):
            visit.need(right)
    made = await visit.wait(
        visit.runtime.delegate(
            from_=visit.user.caller if body.from_ is None else body.from_,
            to=body.to,
            roles=body.roles,
            until=body.until,
            reason=body.reason,
            by=visit.user.by,
        )
    )
    return made.to_dict()


async def end_delegation(visit: Visit) -> dict[str, Any]:
    """Let a delegation hold no longer: one's own; with the right `admin` any."""
    visit.need("decide")
    return await _end(visit, await visit.body(EndBody))


async def _end(visit: Visit, body: EndBody) -> dict[str, Any]:
    found = await visit.wait(visit.runtime.delegations()) if visit.has_people else []
    of = next((each for each in found if each.id == body.id), None)
    if of is None:
        raise refused(404, "UnknownDelegation", "There is no such delegation any more.")
    if not await is_own(visit, of):
        visit.need("admin")
    await visit.wait(visit.runtime.end_delegation(body.id, by=visit.user.by))
    return {"id": body.id, "ended": True}


async def is_own(visit: Visit, delegation: Delegation) -> bool:
    """Whether the user gives or gets it."""
    people = visit.runtime.people
    if people is None:
        return False
    person = (await people.voter(visit.user.caller)).person
    return person in (delegation.said.from_person, delegation.said.to_person)


async def vote(visit: Visit) -> dict[str, Any]:
    """Vote on what somebody wants to be done that is protected."""
    visit.need("decide")
    return await _vote(visit, await visit.body(VoteBody))


async def _vote(visit: Visit, body: VoteBody) -> dict[str, Any]:
    decision = Decision(type=body.type, note=body.note, by=visit.user.by)
    try:
        found = await visit.wait(visit.runtime.vote(body.request_id, decision))
    except DecisionError as error:
        if type(error) is not DecisionError:
            raise
        raise refused(409, "Stale", str(error)) from error
    return found.to_dict()


async def by_form(visit: Visit, action: str, form: Form) -> str:
    """Do what a form of the page asks for; the code of what is said of it."""
    visit.need("decide")
    match action:
        case "vote":
            given: dict[str, Any] = {"request_id": form.get("id"), "type": form.get("type")}
            await _vote(visit, checked_as(VoteBody, given | {"note": form.get("note") or None}))
        case "end_delegation":
            await _end(visit, checked_as(EndBody, {"id": form.get("id")}))
        case "delegate":
            roles = [each.strip() for each in form.get("roles").split(",") if each.strip()]
            until = form.get("until")
            given = {"to": form.get("to").strip(), "roles": roles, "reason": form.get("reason")}
            # A browser sends the time of its field without a zone: the page says that it is UTC.
            zone = "" if until.endswith("Z") or "+" in until else "Z"
            await _delegate(visit, checked_as(DelegateBody, given | {"until": f"{until}{zone}"}))
        case _:
            raise UsageError("There is no such form.")
    return action
