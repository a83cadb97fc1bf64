"""Requests that ask several persons: who has asked for the call, and whether those who agreed may.

The rights of a voter are checked twice: when the vote is cast, and again right before the call
starts. The rights of a person who gave a grant are checked when it decides a request, and right
before the start. If then and now ask different things, the stricter counts, whether a gate or a
rule asks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from understudy._base.authors import By
from understudy._base.request_timing import span_text
from understudy.approvals import (
    Approval,
    Caller,
    Vote,
    Voter,
    caller_by,
    roles_now,
    still_counts,
    stricter,
    tally,
    why_not_vouched,
)
from understudy.interrupts import Grant, Request, decision_by_votes
from understudy.modes.steps.tool_call.grants import (
    GRANT_OVER,
    Standing,
    covers_request,
    has_grants,
    holding_grant,
)
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall
from understudy.state.records import Record, Requested, voted_on
from understudy.state.run_state import Call

NO_LONGER = "{names} had agreed, and may not vote any more: {text} must agree."
"""The reason for asking once more about a call that enough persons had agreed to."""
UNKNOWN_NOW = "Nobody can say now whether {names} may still vote: {text} must agree."
ENDED = "{names} had agreed, and that delegation has ended: persons must agree anew."
TOO_LATE = "It was approved, and did not start within {span}: {text} must agree anew."
STRICTER_NOW = "More is asked now than when persons were asked before: {text} must agree."
ASKED_BY_RULE_NOW = "No rule asked about this call before. One does now."


class AskedNow(NamedTuple):
    """A request about a call that a gate or a rule of today makes, and did not make before."""

    request: Request
    replaces: tuple[str, ...] = ()
    votes: tuple[Vote, ...] = ()
    """The votes that were cast before and still count."""

    def votes_on(self) -> list[Record]:
        """The records of these votes."""
        return _recorded(self.request, self.votes)


async def with_requesters(run: Run, requests: Sequence[Request]) -> list[Request]:
    """The requests, with the ids of the persons who must not vote on them.

    With `never` these are all persons who have asked for the call. A person who has edited
    arguments, or answered for a call, since the conversation began has asked for what follows as
    well: the audit knows them, also if their request was replaced. Without `never`, if more than
    one person must agree, they are the persons who have edited the arguments of this call.

    Args:
        run: the run of the call.
        requests: the requests as they were made.

    """
    found: list[Request] = []
    of_all: tuple[tuple[str, ...] | None] | None = None
    for request in requests:
        asked = request.approval
        if asked is None or not asked.excludes:
            found.append(request)
        elif asked.never:
            if of_all is None:
                # Where no message has a name, somebody without a name has asked.
                authors = {*(run.root.state.authors or (None,)), *_shaped(run, "edit", "respond")}
                of_all = (await _ids_of(run, authors),)
            found.append(replace(request, requesters=of_all[0]))
        else:
            editors = _shaped(run, "edit", call_key=request.call_key)
            found.append(replace(request, requesters=await _ids_of(run, editors)))
    return found


def _shaped(run: Run, *types: str, call_key: str | None = None) -> set[By | None]:
    """The persons who decided in this way about calls of the conversation, or about one call.

    None stands for persons without a name.
    """
    return {
        record.login or record.decision.by
        for state in run.root.state.whole_tree
        for record in state.decisions
        if record.decision.type in types and call_key in (None, record.request.call_key)
    }


async def _ids_of(run: Run, authors: set[By | None]) -> tuple[str, ...] | None:
    """The ids of these persons; None if the id of one of them is not known."""
    people = run.environment.trust.people
    if not authors:
        return ()
    if people is None or None in authors:
        return None
    voters = await people.voters(caller_by(each) for each in authors if each is not None)
    ids = {voter.person for voter in voters.values()}
    return None if "" in ids else tuple(sorted(ids))


async def _as_of_now(run: Run, request: Request) -> Request:
    """The request, with the persons who must not vote on it by now.

    A person who edits the arguments of another call of the reply has asked for this call as well:
    it starts after the edit, and what it does may depend on it.
    """
    asked, known = request.approval, request.requesters
    if asked is None or not asked.never or known is None:
        return request
    editors = await _ids_of(run, _shaped(run, "edit"))
    if editors is None or not set(editors) <= set(known):
        known = None if editors is None else tuple(sorted({*known, *editors}))
        return replace(request, requesters=known)
    return request


async def still_agreed(run: Run, call: ToolCall) -> bool:
    """Whether enough persons who agreed may still vote, grants hold, and it is not too late.

    If not, persons are asked once more, and the votes that still count are kept. A call whose body
    was entered continues: it was approved when it started.
    """
    if call.call.entered:
        return True
    asked_again: list[Record] = []
    for asked in list(call.call.requests.values()):
        request = await _as_of_now(run, asked)
        if await _is_by_ended_grant(run, call, request):
            asked_again += _again(call, request, GRANT_OVER, ())
            continue
        votes = call.call.votes.get(request.id, ())
        if request.approval is None or not votes:
            continue
        if _is_too_late(run, request, request.approval):
            span = span_text(request.approval.use_within or 0)
            why = TOO_LATE.format(span=span, text=request.approval.text)
            asked_again += _again(call, request, why, ())
            continue
        voters = await _voters(run, votes)
        standing = [
            each
            for each in votes
            if _may_count(request)
            and still_counts(each, voters.get(each.caller), request.requesters or ())
        ]
        if _is_approved(run, request, standing):
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
        run: the run of the calls.
        requests: requests about calls.

    """
    found: set[tuple[str, str]] = set()
    # Race: while the persons are looked up, a grant may be revoked, or given in an agent inside.
    for grant in list(run.root.state.grants.values()):
        covered = [each for each in requests if covers_request(grant, each, run.root.agent_id)]
        if covered:
            found |= {(grant.id, r.id) for r in covered if await has_standing(run, grant, r)}
    return frozenset(found)


async def has_standing(run: Run, grant: Grant, request: Request) -> bool:
    """Whether the persons who gave the grant may agree to this request now."""
    asked = request.approval
    if asked is None or grant.approval is None:
        return asked is grant.approval
    if asked != grant.approval or not _may_count(request):
        return False
    standing = await _standing(run, grant.votes, request)
    decision = decision_by_votes(request, standing, run.clock.now())
    return decision is not None and decision.type == grant.type


async def _is_by_ended_grant(run: Run, call: ToolCall, request: Request) -> bool:
    """Whether the request was decided by a grant that does not hold any more."""
    decision = call.call.decisions.get(request.id)
    if decision is None or decision.by_grant is None:
        return False
    grant = holding_grant(run, call.call, request)
    return grant is None or not await has_standing(run, grant, request)


def requests_of_ended_grants(run: Run, call: Call) -> list[Request]:
    """The requests about the call that were decided by grants which do not hold any more.

    It awaits nothing, and asks nobody: it is for the moment before the body is entered.
    """
    ended = []
    for request in call.requests.values() if has_grants(call) else ():
        decision = call.decisions.get(request.id)
        if decision is not None and decision.by_grant is not None:
            grant = holding_grant(run, call, request)
            if grant is None or any(_has_lost_delegation(run, vote) for vote in grant.votes):
                ended.append(request)
    return ended


async def asked_now(
    run: Run, call: ToolCall, today: Sequence[Request], why: str = ASKED_BY_RULE_NOW
) -> list[AskedNow]:
    """What gates and rules ask of persons today, beyond what these were asked before.

    Args:
        run: the run of the call.
        call: the call that is asked about.
        today: the requests that gates and rules make about it now.
        why: the reason for which a gate or rule asks that has not asked before.

    """
    asked: list[AskedNow] = []
    for now in today:
        if is_covered(call, now):
            continue
        before = [each for each in call.call.requests.values() if each.source == now.source]
        several = [each for each in before if each.approval is not None]
        if now.approval is not None and several:
            more = await _stricter(run, call, now, several)
            asked += () if more is None else (more,)
            continue
        pending = tuple(each.id for each in before if each.id not in call.call.decisions)
        text = why
        if before and now.approval is not None:
            text = STRICTER_NOW.format(text=now.approval.text)
        asked.append(AskedNow(replace(now, asked_again=text), pending))
    return asked


def is_covered(call: ToolCall, now: Request) -> bool:
    """Whether what was asked about a call before asks as much as a request of today.

    It does if the same gate or rule asked as many persons, or if one decision is enough today and
    there is one. A decision by a grant is enough only if the same grant is offered today.
    """
    before = [
        each
        for each in call.call.requests.values()
        if each.source == now.source and not _is_by_grant_of_another_offer(call, each, now)
    ]
    if now.approval is None:
        decisions = (call.call.decisions.get(each.id) for each in before)
        return any(each is not None and each.type != "reject" for each in decisions)
    return any(
        each.approval is not None
        and stricter(each.approval, now.approval) == stricter(each.approval, each.approval)
        for each in before
    )


def _is_by_grant_of_another_offer(call: ToolCall, before: Request, now: Request) -> bool:
    decision = call.call.decisions.get(before.id)
    return decision is not None and decision.by_grant is not None and before.offer != now.offer


async def _stricter(
    run: Run, call: ToolCall, now: Request, before: Sequence[Request]
) -> AskedNow | None:
    """The request that asks what the earlier ones of its source and today's ask together.

    Together they may ask for one person more than both need, because a person with two roles counts
    once. None if the votes on one of the earlier requests are enough for both.
    """
    wanted = now.approval
    assert wanted is not None, "the caller has looked"
    for old in before:
        assert old.approval is not None, "the caller has looked"
        both = stricter(old.approval, wanted)
        again = call.request_in_place_of(old, approval=both, grant=now.offer or False)
        standing = await _standing(run, call.call.votes.get(old.id, ()), again)
        if old.id in call.call.decisions and all(
            _is_approved(run, replace(again, approval=each), standing)
            for each in (old.approval, wanted)
        ):
            return None
    text = STRICTER_NOW.format(text=both.text)
    [again] = await with_requesters(run, [replace(again, asked_again=text)])
    return AskedNow(again, (old.id,), tuple(standing))


async def _standing(run: Run, votes: Sequence[Vote], request: Request) -> list[Vote]:
    """The votes that count on another request about the same call, with the roles that it asks."""
    asked = request.approval
    assert asked is not None, "it asks several persons"
    voters, standing = await _voters(run, votes), []
    for vote in votes:
        voter = voters.get(vote.caller)
        if voter is None or not still_counts(vote, voter, request.requesters or ()):
            continue
        if why_not_vouched(asked, vote.assurance, vote.auth_at, vote.at) is not None:
            continue
        wanted = asked.roles | (asked.glass_roles if vote.break_glass else frozenset())
        roles = tuple(role for role in roles_now(vote, voter) if role in wanted)
        standing.append(replace(vote, roles=roles))
    return standing


def _may_count(request: Request) -> bool:
    """Whether votes on the request may count: it is known which persons are excluded, if any."""
    asked = request.approval
    return asked is None or not asked.excludes or request.requesters is not None


def _is_approved(run: Run, request: Request, votes: Sequence[Vote]) -> bool:
    decision = decision_by_votes(request, votes, run.clock.now())
    return decision is not None and decision.type == "approve"


def _is_too_late(run: Run, request: Request, asked: Approval) -> bool:
    """Whether the call was to start by now."""
    if asked.use_within is None:
        return False
    for record in reversed(run.state.decisions):
        if record.request.id == request.id:
            return run.clock.now() > record.at + timedelta(seconds=asked.use_within)
    return True  # nobody knows when it was decided


async def _voters(run: Run, votes: Sequence[Vote]) -> dict[Caller, Voter]:
    trust = run.environment.trust
    if trust.people is None:
        return {}
    return await trust.voters((each.caller for each in votes), run.clock.now())


def why_ended(run: Run, call: Call) -> str | None:
    """Why persons must agree anew: a delegation behind a vote has ended; None if none has.

    It awaits nothing, and asks nobody: it is for the moment before the body is entered.
    """
    ended = [
        vote.shown_name
        for id, votes in call.votes.items()
        for vote in _counted(call.requests[id], votes)
        if _has_lost_delegation(run, vote)
    ]
    if not ended:
        return None
    return ENDED.format(names=", ".join(dict.fromkeys(ended)))


def _has_lost_delegation(run: Run, vote: Vote) -> bool:
    """Whether the delegation has ended by which the vote was cast."""
    by = vote.represents
    if by is None:
        return False
    held = run.environment.trust.state.delegations
    return by.delegation not in held or by.until <= run.clock.now()


def _counted(request: Request, votes: Sequence[Vote]) -> tuple[Vote, ...]:
    return () if request.approval is None else tally(request.approval, votes).counted


def _why_again(approval: Approval, lost: Sequence[Vote], voters: dict[Caller, Voter]) -> str:
    """The reason for asking once more, if these votes do not count any more."""
    unknown = any(voters[each.caller].why_unknown for each in lost if each.caller in voters)
    names = ", ".join(dict.fromkeys(each.shown_name for each in lost)) or "nobody"
    return (UNKNOWN_NOW if unknown else NO_LONGER).format(names=names, text=approval.text)


def _again(call: ToolCall, request: Request, why: str, standing: Sequence[Vote]) -> list[Record]:
    """The records by which the request is open again, with the votes that still count."""
    fresh = call.request_in_place_of(request, asked_again=why)
    again = replace(fresh, earlier=request.earlier)
    return [Requested(request=again, replaces=(request.id,)), *_recorded(again, standing)]


def _recorded(request: Request, votes: Sequence[Vote]) -> list[Record]:
    return [voted_on(request, votes[:number], vote) for number, vote in enumerate(votes)]
