"""Delegations, acts to which persons must agree, and the rules of the store."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from understudy.actors import Runtime
from understudy.agent.standing import standing_of
from understudy.approvals import Voter
from understudy.errors import DecisionError, UsageError
from understudy.interrupts import Decision
from understudy.login.bodies import checked_as
from understudy.login.problems import refused
from understudy.trust.fold import AdminRequest, Delegation, RegisteredRules
from understudy.web.views import asks
from understudy.web.visit import Form, Visit

MOST_VERSIONS = 20
"""The maximum number of versions of rules that are shown."""


class DelegateBody(BaseModel):
    """Roles of the user, or with the rights `admin` and `impersonate` roles of somebody else."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    to: str | tuple[str, str]
    """The name of a login, or issuer and subject of an identity provider."""
    roles: list[str] = Field(min_length=1)
    until: datetime
    reason: str
    from_: str | tuple[str, str] | None = None
    """The giver, if it is not the user."""


class EndBody(BaseModel):
    """Which delegation ends."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: str


class RetireBody(BaseModel):
    """The version of the rules that hold: what was shown is what is retired."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    version: int


class VoteBody(BaseModel):
    """A vote on a request of administration."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    request_id: str
    type: Literal["approve", "reject"]
    note: str | None = None


async def delegations(visit: Visit) -> dict[str, Any]:
    """The delegations that hold now."""
    found = await visit.wait(visit.runtime.delegations()) if visit.has_people else []
    user = await asks.voter(visit)
    may_all = visit.why_not("admin") is None
    return {
        "delegations": [
            {**each.to_dict(), "may_end": may_all or _is_party(user, each)} for each in found
        ]
    }


async def administration(visit: Visit) -> dict[str, Any]:
    """The acts that wait for the votes of persons."""
    found = await visit.wait(visit.runtime.administration()) if visit.has_people else []
    user, now = await asks.voter(visit), await visit.time()
    return {"requests": [_request(each, user, now) for each in found]}


def _request(found: AdminRequest, user: Voter | None, now: datetime) -> dict[str, Any]:
    """A request as plain data, with what the user may do about it."""
    standing = standing_of(found, found.said.approval, found.votes, user, now)
    return {**found.to_dict(), **standing.to_dict()}


async def rules(visit: Visit) -> dict[str, Any]:
    """The rules that hosts have registered in the store, the newest first."""
    source = visit.source
    if not isinstance(source, Runtime) or not visit.has_administration:
        return {"holds": None, "here": None, "held": None, "retired": 0, "versions": []}
    found = await visit.wait(source.registered_rules())
    state = source.trust.state
    return {
        "holds": None if state.rules is None else state.rules.version,
        "here": None if source.rules is None else source.rules.version,
        "held": source.trust.held,
        "retired": state.retired,
        "versions": [_version(each) for each in found[:MOST_VERSIONS]],
    }


def _version(found: RegisteredRules) -> dict[str, Any]:
    said = found.said
    return {
        "version": said.version,
        "fingerprint": said.fingerprint,
        "host": said.host,
        "python": said.python,
        "at": found.at.isoformat(),
        "default": said.default,
        "rules": [asdict(each) for each in said.rules],
    }


async def retire_rules(visit: Visit) -> dict[str, Any]:
    """Retire the rules of the store, so that none hold until a higher version is registered."""
    visit.need("admin")
    return await _retire(visit, await visit.body(RetireBody))


async def _retire(visit: Visit, body: RetireBody) -> dict[str, Any]:
    await visit.wait(visit.runtime.registered_rules())
    newest = visit.runtime.trust.state.rules
    if newest is None or newest.version != body.version:
        hold = "no rules hold" if newest is None else f"rules version {newest.version} hold"
        raise refused(409, "Stale", f"The store has changed: {hold} now.")
    await visit.wait(visit.runtime.retire_rules(version=body.version, by=visit.user.by))
    return {"version": body.version, "retired": True}


async def page(visit: Visit) -> dict[str, Any]:
    """All values of the page."""
    return {
        **await administration(visit),
        **await delegations(visit),
        "rules": await rules(visit),
    }


async def form_values(visit: Visit) -> dict[str, Any]:
    """The choices of the form of a delegation: the roles of the user, and the persons to choose."""
    user = await asks.voter(visit)
    people = visit.source.people if isinstance(visit.source, Runtime) else None
    listed = {} if people is None else people.listed or {}
    others: dict[str, str] = {}
    for key, person in listed.items():
        if person.kind == "person" and (user is None or person.id != user.person):
            others.setdefault(person.id, key if isinstance(key, str) else ",".join(key))
    return {
        "roles": [] if user is None or user.kind != "person" else list(user.roles),
        "others": sorted(others.values()),
        "tomorrow": (await visit.time() + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M"),
    }


async def delegate(visit: Visit) -> dict[str, Any]:
    """Let another person vote with roles of the user, until a time."""
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
    """End a delegation of the user; with the right `admin` any delegation."""
    visit.need("decide")
    return await _end(visit, await visit.body(EndBody))


async def _end(visit: Visit, body: EndBody) -> dict[str, Any]:
    found = await visit.wait(visit.runtime.delegations()) if visit.has_people else []
    of = next((each for each in found if each.id == body.id), None)
    if of is None:
        raise refused(404, "UnknownDelegation", "The delegation has ended.")
    if not _is_party(await asks.voter(visit), of):
        visit.need("admin")
    await visit.wait(visit.runtime.end_delegation(body.id, by=visit.user.by))
    return {"id": body.id, "ended": True}


def _is_party(user: Voter | None, delegation: Delegation) -> bool:
    """Whether the user gives or gets the delegation."""
    said = delegation.said
    return (
        user is not None
        and bool(user.person)
        and (user.person in (said.from_person, said.to_person))
    )


async def vote(visit: Visit) -> dict[str, Any]:
    """Vote on a protected act that somebody wants."""
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
    """Do what a form of the page asks for; the code of the text about it."""
    visit.need("decide")
    match action:
        case "vote":
            given: dict[str, Any] = {"request_id": form.get("id"), "type": form.get("type")}
            await _vote(visit, checked_as(VoteBody, given | {"note": form.get("note") or None}))
        case "retire_rules":
            if form.get("confirm").strip() != form.get("version"):
                raise refused(400, "NotConfirmed", "Type the version to retire it.")
            visit.need("admin")
            await _retire(visit, checked_as(RetireBody, {"version": form.get("version")}))
        case "end_delegation":
            await _end(visit, checked_as(EndBody, {"id": form.get("id")}))
        case "delegate":
            until = form.get("until")
            given = {
                "to": _party(form.get("to").strip()),
                "roles": form.all("roles"),
                "reason": form.get("reason"),
            }
            # A browser sends the time of its field without a zone: the page says that it is UTC.
            zone = "" if until.endswith("Z") or "+" in until else "Z"
            await _delegate(visit, checked_as(DelegateBody, given | {"until": f"{until}{zone}"}))
        case _:
            raise UsageError("The page has no form of this name.")
    return action


def _party(given: str) -> str | list[str]:
    """The name of a login; for an identity provider, `ISSUER,SUBJECT`."""
    issuer, comma, subject = given.partition(",")
    return [issuer, subject] if comma and "://" in issuer else given
