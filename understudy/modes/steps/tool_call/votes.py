"""Requests that ask several persons: who has asked for the call, and whether those who agreed may.

Rights are looked at twice: where a vote is cast, and again right before the call starts. So are the
rights of those who gave a grant: where it decides a request, and right before the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from understudy.approvals import Approval, Vote, Voter, tally
from understudy.interrupts import Grant, Request
from understudy.modes.steps.tool_call.grants import (
    GRANT_OVER,
    Standing,
    covers_request,
    holding_grant,
)
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall
from understudy.state.records import Record, Requested, Voted

NO_LONGER = "{names} had agreed, and may not vote any more: {text} must agree."
"""Why persons are asked once more about a call that enough of them had agreed to."""
UNKNOWN_NOW = "Nobody can say now whether {names} may still vote: {text} must agree."


async def with_requesters(run: Run, requests: Sequence[Request]) -> list[Request]:
    """The requests, those that exclude who has asked for the call with the ids of these persons.

    Who has edited arguments, or answered for a call, since the conversation began has asked for
    what follows as well: the audit knows them, also where their request was replaced.

    Args:
        run: of the call.
        requests: as they were made.

    """
    if not any(each.approval is not None and each.approval.never for each in requests):
        return list(requests)
    shaped = (
        record.decision.by
        for state in run.root.state.whole_tree
        for record in state.decisions
        if record.decision.type in ("edit", "respond")
    )
    names = {*run.root.state.authors, *shaped}
    people, found = run.environment.trust.people, None
    if people is not None and names and None not in names:
        voters = await people.voters(sorted(name for name in names if name is not None))
        ids = {voter.person for voter in voters.values()}
        found = None if "" in ids else tuple(sorted(ids))
    return [
        replace(each, requesters=found) if each.approval and each.approval.never else each
        for each in requests
    ]


async def still_agreed(run: Run, call: ToolCall) -> bool:
    """Whether enough of those who agreed to the call may still vote, and its grants still hold.

    Where that is not so, persons are asked once more, and the votes that still count are kept.
    """
    asked_again: list[Record] = []
    for request in list(call.call.requests.values()):
        if await _is_by_ended_grant(run, call, request):
            asked_again += _again(call, request, GRANT_OVER, ())
            continue
        votes = call.call.votes.get(request.id, ())
        if request.approval is None or not votes:
            continue
        voters = await _voters(run, votes)
        standing = [each for each in votes if _may_vote(each, voters.get(each.login), request)]
        if tally(request.approval, standing).result == "approve":
            continue
        lost = [each for each in votes if each not in standing]
        why = _why_again(request.approval, lost, voters)
        asked_again += _again(call, request, why, standing)
    if asked_again:
        run.record(*asked_again)
    return not asked_again


async def standing_grants(run: Run, requests: Sequence[Request]) -> Standing:
    """The grants that may decide one of these requests by the roles that persons have now.

    Args:
        run: of the calls.
        requests: about calls.

    """
    found: set[tuple[str, str]] = set()
    # Race: while people are asked for, a grant may be revoked, or given in an agent inside.
    for grant in list(run.root.state.grants.values()):
        covered = [each for each in requests if covers_request(grant, each, run.root.agent_id)]
        if covered:
            voters = await _voters(run, grant.votes)
            found |= {(grant.id, r.id) for r in covered if has_standing(grant, r, voters)}
    return frozenset(found)


def has_standing(grant: Grant, request: Request, voters: dict[str, Voter]) -> bool:
    """Whether those who gave the grant might agree to this request now."""
    asked = request.approval
    if asked is None or grant.approval is None:
        return asked is grant.approval
    if asked != grant.approval or ("requester" in asked.never and request.requesters is None):
        return False
    standing = [each for each in grant.votes if _may_vote(each, voters.get(each.login), request)]
    return tally(asked, standing).result == grant.type


async def _is_by_ended_grant(run: Run, call: ToolCall, request: Request) -> bool:
    """Whether a grant has decided the request that does not hold any more.

    A call whose body was entered continues: the grant held when it started.
    """
    decision = call.call.decisions.get(request.id)
    if decision is None or decision.by_grant is None or call.call.entered:
        return False
    grant = holding_grant(run, call.call, request)
    return grant is None or not has_standing(grant, request, await _voters(run, grant.votes))


async def _voters(run: Run, votes: Sequence[Vote]) -> dict[str, Voter]:
    people = run.environment.trust.people
    if people is None:
        return {}
    found: dict[str, Voter] = {}
    for assurance in dict.fromkeys(each.assurance for each in votes):
        logins = [each.login for each in votes if each.assurance == assurance]
        found |= await people.voters(logins, assurance)
    return found


def _may_vote(vote: Vote, voter: Voter | None, request: Request) -> bool:
    """Whether the person is still the same, and still has the roles that the vote stands for."""
    return (
        voter is not None
        and voter.person == vote.person
        and voter.kind == "person"
        and set(vote.roles) <= set(voter.roles)
        and vote.person not in (request.requesters or ())
    )


def _why_again(approval: Approval, lost: Sequence[Vote], voters: dict[str, Voter]) -> str:
    """Why persons are asked once more, where these votes do not count any more."""
    unknown = any(voters[each.login].why_unknown for each in lost if each.login in voters)
    names = ", ".join(dict.fromkeys(each.name for each in lost)) or "nobody"
    return (UNKNOWN_NOW if unknown else NO_LONGER).format(names=names, text=approval.text)


def _again(call: ToolCall, request: Request, why: str, standing: Sequence[Vote]) -> list[Record]:
    """The records by which the request is open again, with the votes that still count."""
    fresh = call.request_in_place_of(request, asked_again=why)
    again = replace(fresh, earlier=request.earlier)
    return [
        Requested(request=again, replaces=(request.id,)),
        *(Voted(request_id=again.id, vote=each) for each in standing),
    ]
