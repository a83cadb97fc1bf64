"""Decisions of people on requests: checked, then recorded with the run that asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Protocol

from understudy._base.authors import Login
from understudy._base.clock import Clock
from understudy._base.context_codecs import Context
from understudy._base.json_values import checked_json
from understudy.approvals import (
    Approval,
    Vote,
    Voter,
    equal_vote,
    represented_by,
    why_excluded,
    why_not_settled_by,
    why_not_vouched,
)
from understudy.errors import (
    AlreadyDecided,
    DecisionError,
    PeopleUnavailable,
    RecordRefused,
    RequestChanged,
    RequestExpired,
    UsageError,
    VoteRefused,
)
from understudy.interrupts import (
    Decision,
    Request,
    approved_at,
    checked_decision,
    decision_by_votes,
    decision_on_only,
    decision_word,
    decisions_by_id,
)
from understudy.run.definition import AgentDefinition
from understudy.run.ledger import Ledger, ledger_tree
from understudy.run.run import inside_run
from understudy.state.agent_state import AgentState
from understudy.state.folds.grants import MAX_GRANTS, room_for_grants
from understudy.state.next_due import votes_of
from understudy.state.records import Decided, GlassBroken, Record, voted_on
from understudy.state.reviews import Review
from understudy.tools import InvalidArguments

Decisions = Mapping[str, Decision | Mapping[str, Any]]
"""Decisions, or their plain form such as `{"type": "approve"}`, by request id."""

RESULT_BYTES = 1024
"""The size of a call's result without the value that a person gives for it, rounded up."""


def check_decisions(
    definition: AgentDefinition,
    state: AgentState,
    decisions: object,
    clock: Clock,
    *,
    expect: Mapping[str, str] | None = None,
    voters: Mapping[str, Voter] = MappingProxyType({}),
) -> dict[str, Decision | Vote]:
    """The new decisions, checked. Decisions that were made before are left out.

    A decision on a request that asks several persons is a vote, by the voter whose name is in the
    decision.

    Raises:
        DecisionError: if a decision does not fit its request, or its request is unknown or stale.
        RequestChanged: if the digest of a request is not the one that `expect` has for it.
        RequestExpired: if the time of its request is over.
        AlreadyDecided: if a request has another decision.
        VoteRefused: if the person may not vote on the request.
        PeopleUnavailable: if nobody can say now who the person is.

    """
    if isinstance(decisions, Decision):
        decisions = decision_on_only(state.requests, decisions)
    decisions = decisions_by_id(decisions)
    if not isinstance(decisions, Mapping):
        raise DecisionError(
            f"resume takes a mapping of request ids to decisions, got {decisions!r}: "
            "interrupted.decide(approve(), ...) makes one from decisions in request order"
        )
    if not decisions:
        raise DecisionError("resume got no decision: answer at least one request")
    pending = {request.id: request for request in state.requests}
    current = state.run.run_id if state.run is not None else ""
    before = {record.request.id: record for inner in state.tree for record in inner.decisions}
    known = {request_id: record.request for request_id, record in before.items()} | pending
    for request_id, digest in (expect or {}).items():
        if request_id in known and known[request_id].digest != digest:
            raise RequestChanged(
                request_id=request_id, digest=known[request_id].digest, expected=digest
            )
    new: dict[str, Decision | Vote] = {}
    for request_id, given in decisions.items():
        if request_id in pending:
            request, votes = pending[request_id], votes_of(state).get(request_id, ())
            decision = _in_time(definition, request, votes, given, clock)
            if request.approval is None:
                _check_may_settle(request, decision, voters, clock)
                new[request_id] = decision
                continue
            vote = _vote(request, decision, voters, votes, clock)
            if not equal_vote(votes, vote) and not _too_late(request, votes, vote):
                new[request_id] = vote
            continue
        earlier = before.get(request_id)
        if earlier is not None:
            if earlier.decision.origin == "expiry":
                raise _expired(earlier.request)
            if not _checked(definition, earlier.request, given).same_as(earlier.decision):
                word = decision_word(earlier.decision.to_dict())
                raise AlreadyDecided(request_id=request_id, decision=word)
        if earlier is None or not _belongs_to_run(earlier.request.run_id, current):
            there = ", ".join(map(repr, pending)) or "none"
            raise DecisionError(
                f"Request {request_id!r} is not pending (stale or unknown); pending: {there}",
                request_id=str(request_id),
            )
    _check_room(state, new, clock)
    return new


def _check_room(state: AgentState, new: Mapping[str, Decision | Vote], clock: Clock) -> None:
    """Refuse grants if the agent has the maximum number of grants.

    Raises:
        DecisionError: if it has the maximum number.

    """
    given = [request_id for request_id, each in new.items() if each.grant is not None]
    room = room_for_grants(state.grants.values(), clock.now()) if given else 0
    if len(given) > room:
        raise DecisionError(
            f"The agent has {MAX_GRANTS - room} grants, and at most {MAX_GRANTS} are allowed: "
            "revoke some, or decide without `grant`",
            request_id=given[0],
        )


def _check_may_settle(
    request: Request, decision: Decision, voters: Mapping[str, Voter], clock: Clock
) -> None:
    """Refuse an answer about a call in doubt by a person whom the approval of the call excludes.

    Raises:
        VoteRefused: if the person is excluded.
        PeopleUnavailable: if nobody can say now who the person is.

    """
    voter = voters.get(decision.by or "")
    if request.call_approval is not None and voter is not None and voter.why_unknown:
        raise PeopleUnavailable(
            f"Request {request.id!r} ({request.about}): {voter.why_unknown}. Answer again later"
        )
    why = why_not_settled_by(request, decision.by or None, voter, clock.now())
    if why is not None:
        raise VoteRefused(
            f"Request {request.id!r} ({request.about}): {why}",
            request_id=request.id,
            person=decision.by or "",
        )


def _vote(
    request: Request,
    decision: Decision,
    voters: Mapping[str, Voter],
    votes: Sequence[Vote],
    clock: Clock,
) -> Vote:
    """The decision as the vote of a person who may vote.

    Raises:
        VoteRefused: if nobody is named, or the named person may not vote.
        PeopleUnavailable: if nobody can say now who the person is.

    """
    asked, name = request.approval, decision.by or ""
    assert asked is not None, "only called for a request that asks several persons"
    voter = voters.get(name)
    why = None
    if not name:
        why = f"{asked.text} must agree, and nobody is named: {decision.type}(by=...)"
    elif voter is None:
        why = f"{asked.text} must agree, and no people are known: give Runtime(people=...)"
    elif voter.why_unknown:
        raise PeopleUnavailable(
            f"Request {request.id!r} ({request.about}): {voter.why_unknown}. Vote again later"
        )
    else:
        now, alone = clock.now(), decision.break_glass
        why = why_no_voter(request, asked, voter, now, votes, break_glass=alone)
        wants = why is not None and decision.type == "approve" and asked.break_glass and not alone
        if wants and why_no_voter(request, asked, voter, now, break_glass=True) is None:
            why = f"{why}; they may break the glass: approve(break_glass=True, note=...)"
    if why is not None:
        raise VoteRefused(
            f"Request {request.id!r} ({request.about}): {why}", request_id=request.id, person=name
        )
    assert voter is not None, "else it is refused"
    return vote_of(request, asked, voter, decision, votes, clock.now())


def vote_of(
    request: AskedOf,
    asked: Approval,
    voter: Voter,
    decision: Decision,
    votes: Sequence[Vote],
    now: datetime,
) -> Vote:
    """The decision as the vote of a person who may vote."""
    other = None
    if not decision.break_glass:
        other = represented_by(asked, voter, votes, excluded_from(request, asked), now)
    return Vote(
        person=voter.person,
        name=voter.name,
        login=voter.login,
        roles=tuple(
            role
            for role in (voter.roles if other is None else other.roles)
            if role in asked.roles or (decision.break_glass and role in asked.glass_roles)
        ),
        represents=other,
        type="approve" if decision.type == "approve" else "reject",
        message=decision.message,
        note=decision.note,
        assurance=voter.assurance,
        auth_at=voter.auth_at,
        break_glass=decision.break_glass,
        grant=decision.grant,
        at=now,
        issuer=voter.issuer,
        subject=voter.subject,
        acting_for=voter.acting_for,
    )


def _too_late(request: Request, votes: Sequence[Vote], vote: Vote) -> bool:
    """Whether the request is approved already, though that is not recorded yet.

    Raises:
        AlreadyDecided: if it is approved, and the vote says something else.

    """
    # Race: the time has come, and the clock has not reached the agent yet. A veto that comes now
    # would undo a decision that everybody was notified of (test_a_veto_after_its_time_is_too_late).
    due = approved_at(request, votes)
    if due is None or due > vote.at:
        return False
    if vote.type != "approve":
        raise AlreadyDecided(request_id=request.id, decision="approve")
    return True


class AskedOf(Protocol):
    """The subject of votes: a request of an agent, or a request of administration."""

    @property
    def requesters(self) -> tuple[str, ...] | None:
        """The ids of the persons who want it; None if they are not known."""


def why_no_voter(
    request: AskedOf,
    asked: Approval,
    voter: Voter,
    now: datetime,
    votes: Sequence[Vote] = (),
    *,
    break_glass: bool = False,
) -> str | None:
    """Why a person may not vote on the request, in words; None if the person may.

    Args:
        request: to vote on.
        asked: the approval of the request.
        voter: who it is.
        now: the time of the vote.
        votes: the earlier votes.
        break_glass: whether the person would approve it alone.

    """
    name, nobody = voter.login, voter.why_no_person("vote")
    if nobody is not None:
        return nobody
    if break_glass and asked.glass_roles.isdisjoint(voter.roles):
        roles = ", ".join(sorted(asked.glass_roles))
        return f"{name!r} does not have the role that may break the glass: {roles}"
    other = represented_by(asked, voter, votes, excluded_from(request, asked), now)
    if not break_glass and other is None and asked.roles.isdisjoint(voter.roles):
        return (
            f"{name!r} has none of the roles that vote: {', '.join(sorted(asked.roles))}"
            + _why_not_for_others(request, asked, voter, votes, now)
        )
    for each in votes:
        by = each.represents
        if by is not None and by.person == voter.person and by.delegation in voter.given:
            return (
                f"{each.name} has voted for {name!r}, by a delegation, and both count as one: end "
                "the delegation first"
            )
    if _excludes(request, asked):
        known = request.requesters is not None
        excluded = why_excluded(asked, excluded_from(request, asked) if known else None, voter)
        if excluded is not None:
            return excluded
    return why_not_vouched(asked, voter.assurance, voter.auth_at, now)


def excluded_from(request: AskedOf, asked: Approval) -> tuple[str, ...]:
    """The ids of persons who must not vote."""
    return (request.requesters or ()) if _excludes(request, asked) else ()


def _excludes(request: AskedOf, asked: Approval) -> bool:
    """Whether some persons must not vote. Requests of administration have no editors."""
    return asked.excludes if isinstance(request, Request) else bool(asked.never)


def _why_not_for_others(
    request: AskedOf, asked: Approval, voter: Voter, votes: Sequence[Vote], now: datetime
) -> str:
    """Why a person may not vote by delegated roles; empty without delegations."""
    for each in voter.represents:
        if each.until <= now or asked.roles.isdisjoint(each.roles):
            continue
        if each.person in excluded_from(request, asked):
            return f"; {each.name}, for whom they might vote, has asked for the call"
        if any(each.person in vote.persons for vote in votes):
            return f"; the vote of {each.name}, for whom they might vote, is cast already"
    return ""


def _in_time(
    definition: AgentDefinition,
    request: Request,
    votes: Sequence[Vote],
    given: object,
    clock: Clock,
) -> Decision:
    """The decision, checked, if the request has not expired.

    A request to which enough persons have agreed was answered in time, and does not expire.
    """
    is_over = request.expires_at is not None and request.expires_at <= clock.now()
    if is_over and approved_at(request, votes) is None:
        raise _expired(request)
    return _checked(definition, request, given, clock.now())


def _checked(
    definition: AgentDefinition, request: Request, given: object, now: datetime | None = None
) -> Decision:
    """The decision as plain JSON data, with arguments that the tool accepts."""
    decision = checked_decision(request, given, now)
    try:
        checked_json(
            {"message": decision.message, "by": decision.by, "note": decision.note},
            what=f"{decision.type}(...)",
        )
        plain = checked_json({"value": decision.value}, what="respond(...)")
        arguments, completed = decision.arguments, None
        _check_possible(definition, request, decision)
        if arguments is not None:
            arguments = checked_json(arguments, what="edit(...)")
            asker = _requester(definition, request)
            if asker is not None:  # otherwise the arguments are checked when the call is due
                tool = asker.tool_of(request.tool_name)
                assert tool is not None, "checked above"
                completed = tool.made(arguments, tool.revalidate(arguments))
        return replace(decision, value=plain["value"], arguments=arguments, completed=completed)
    except (InvalidArguments, UsageError) as error:
        raise DecisionError(
            f"Request {request.id!r} ({request.about}): {error}", request_id=request.id
        ) from error


def _check_possible(definition: AgentDefinition, request: Request, decision: Decision) -> None:
    """Refuse to let a call run whose tool the agent does not have any more.

    Raises:
        InvalidArguments: if it lets such a call run.

    """
    why = why_impossible(definition, request) if decision.type in ("approve", "edit") else None
    if why is not None:
        raise InvalidArguments(why)


def why_impossible(definition: AgentDefinition, request: Request) -> str | None:
    """Why nobody can let this call run; None if its agent has the tool, or is not known here."""
    if request.kind not in ("approval", "doubt") or request.question_key:
        return None
    asker = _requester(definition, request)
    if asker is None or asker.tool_of(request.tool_name) is not None:
        return None
    return (
        f"agent {asker.name!r} has no tool {request.tool_name!r} any more, so the call cannot run: "
        f"reject it, or give the tool that it is now aliases=[{request.tool_name!r}]"
    )


def _expired(request: Request) -> RequestExpired:
    assert request.expires_at is not None, "only called for a request that has expired"
    return RequestExpired(
        request_id=request.id,
        expires_at=request.expires_at.isoformat(),
        on_expiry=request.on_expiry,
    )


def _requester(definition: AgentDefinition, request: Request) -> AgentDefinition | None:
    """The definition of the agent that made the request; None if only a tool knows this agent."""
    for name in request.agent_path[1:]:
        child = definition.children.get(name)
        if child is None:
            return None
        definition = child.definition
    return definition


def run_of_decisions(state: AgentState, decisions: Mapping[str, Any]) -> str | None:
    """The id of the run that continued by these decisions; None unless all of them are recorded."""
    made = {record.request.id: record for inner in state.tree for record in inner.decisions}
    run_id: str | None = None
    for request_id, given in decisions.items():
        record = made.get(request_id)
        if record is None:
            return None
        try:
            is_same = checked_decision(record.request, given).same_as(record.decision)
        except DecisionError:
            return None
        if not is_same:
            return None
        run_id = record.request.run_id.partition(".")[0]
    return run_id


def _belongs_to_run(run_id: str, root: str) -> bool:
    """Whether this run is `root`, or a run inside it, whose id begins with the outer run's id."""
    return run_id == root or run_id.startswith(root + ".")


def refuse_inside_run() -> None:
    """Raise a `DecisionError` inside a tool, hook or model: only the application may decide."""
    run = inside_run.get()
    if run is not None and not run.closed:
        raise DecisionError(
            "resume was called from inside a tool, hook or model: call it from the application"
        )


def decide(
    ledger: Ledger,
    decisions: Mapping[str, Decision | Vote],
    clock: Clock,
    context: Context = MappingProxyType({}),
    login: Login | None = None,
) -> None:
    """Record checked decisions, each in the ledger of the agent that requested it.

    Raises:
        DecisionError: if a decision is too large to be kept; none is recorded then.

    """
    places: list[tuple[Ledger, Request]] = []
    root = ledger.state.run
    if root is not None and root.halt is not None and root.halt.id in decisions:
        places.append((ledger, root.halt))
    else:
        for place in ledger_tree(ledger):
            run = place.state.run
            for request in run.pending_requests if run is not None and not run.over else ():
                if request.id in decisions:
                    places.append((place, request))
    now = clock.now()
    records: list[tuple[Ledger, Record]] = []
    for place, request in places:
        decision = decisions[request.id]
        if isinstance(decision, Vote):
            before = votes_of(ledger.state).get(request.id, ())
            voted = voted_on(request, before, decision)
            place.check(voted)
            completed = decision_by_votes(request, (*before, decision), now)
            if completed is not None and completed.break_glass:
                # The outermost agent records it: an inner agent may be gone before anybody reviews
                # it.
                records.append((ledger, GlassBroken(review=Review.of(request, decision))))
            records.append((place, voted))
            if completed is None:
                continue
            decision = completed
        known = login if login is not None and decision.by == login.shown else None
        made = Decided(
            request_id=request.id, decision=decision, at=now, context=dict(context), login=known
        )
        try:
            # An accepted value must fit into the call's result too.
            place.check(made, spare=RESULT_BYTES if decision.type == "respond" else 0)
        except RecordRefused as refused:
            raise DecisionError(
                f"Request {request.id!r} ({request.about}): the decision cannot be kept: {refused}",
                request_id=request.id,
            ) from refused
        records.append((place, made))
    # A vote and the decision that it completes are one fact: otherwise a crash between them would
    # leave a request to which enough persons have agreed, and that nobody can answer
    # (test_two_votes_are_two_votes_whoever_is_killed_between_them).
    for place, of_place in groupby(records, key=itemgetter(0)):
        place.record(*(record for _, record in of_place))
