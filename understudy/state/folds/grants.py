"""Folds of grants: who gave them, the calls that have a use of them, and when they end.

The outermost agent has the grants of all agents inside it. So it folds them from all records in
order, its own and the records of inner agents: two calls never take the same use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from understudy._base.grant_terms import GrantTerms
from understudy.approvals import Vote, tally
from understudy.interrupts import DecisionType, Grant, Request
from understudy.state import records as r
from understudy.state.agent_state import AgentState
from understudy.state.folds.calls import was_found_undone
from understudy.state.folds.places import call_of_request
from understudy.state.run_state import Call
from understudy.state.shared_empties import with_item
from understudy.state.waits import open_calls

MAX_GRANTS = 100
"""The largest number of grants that an agent has at once."""
_ENDS_RUNS = (r.RunEnded, r.SubRunEnded, r.Result)


def room_for_grants(grants: Iterable[Grant], now: datetime) -> int:
    """The number of grants that an agent with these grants may still get.

    Args:
        grants: the grants of the outermost agent.
        now: the time; grants that are over by then do not count.

    """
    return max(0, MAX_GRANTS - sum(not each.is_over(now) for each in grants))


def calls_with_uses(state: AgentState) -> dict[str, Call]:
    """The open calls that have a use of a grant, by their keys."""
    keys = {key for grant in state.grants.values() for key in grant.open}
    return {call.key: call for call in open_calls(state) if call.key in keys} if keys else {}


def revoked(state: AgentState, record: r.Revoked) -> None:
    state.grants.pop(record.grant_id, None)


def change_grants(
    state: AgentState, record: r.Record, inner: r.Record, used: Mapping[str, Call]
) -> None:
    """Change the grants by a record that is folded already.

    Args:
        state: the state of the outermost agent.
        record: a record of this agent, or of an agent inside it.
        inner: the record as the inner agent made it.
        used: the calls that had a use before the record, by key.

    """
    chain = _states(state, record)
    for decided in _decided(inner):
        if decided.decision.grant is not None:
            _give(state, chain, decided, decided.decision.grant)
        elif decided.decision.by_grant is not None:
            _take_use(state, chain[-1], decided.decision.by_grant, decided.request_id)
    _end_uses(state, inner, used)
    _drop_ended(state, inner)


def _states(state: AgentState, record: r.Record) -> list[AgentState]:
    """The states from the outermost agent to the agent that made the record, if it is there."""
    found = [state]
    while isinstance(record, r.ChildRecord) and record.child in found[-1].children:
        found.append(found[-1].children[record.child])
        record = record.record
    return found


def _decided(inner: r.Record) -> tuple[r.Decided, ...]:
    if isinstance(inner, r.Decided):
        return (inner,)
    return inner.decided if isinstance(inner, r.InterruptsChecked) else ()


def _give(
    state: AgentState, chain: list[AgentState], decided: r.Decided, terms: GrantTerms
) -> None:
    call = call_of_request(chain[-1], decided.request_id)
    request, decision = call.requests[decided.request_id], decided.decision
    base = state
    for inside in chain[1:]:  # the agents of a workflow share its run
        if inside.run is not None and inside.run.shared is None:
            base = inside
    assert state.run is not None, "it has asked"
    assert base.run is not None, "as above"
    assert decision.type in ("approve", "reject"), "no other decision is a grant"
    until = terms.until
    if terms.seconds is not None:
        until = decided.at + timedelta(seconds=terms.seconds)
    arguments, free = _held(request, terms)
    grant = Grant(
        id=request.id,
        type="approve" if decision.type == "approve" else "reject",
        tool_name=request.tool_name,
        fingerprint=request.fingerprint,
        agent_id=state.run.agent_id,
        agent_path=request.agent_path,
        source=request.source,
        approval=request.approval,
        offer=request.offer,
        scope=terms.scope or ("agent" if base is state else "run"),
        run_id=base.run.run_id,
        arguments=arguments,
        free=free,
        until=until,
        uses=terms.uses,
        by=decision.by,
        message=decision.message,
        at=decided.at,
        votes=_votes_for(request, call.votes.get(request.id, ()), decision.type),
    )
    for other in list(state.grants.values()):
        if not other.open and _about(other) == _about(grant):
            del state.grants[other.id]
    state.grants = with_item(state.grants, grant.id, grant)


def _votes_for(
    request: Request, votes: tuple[Vote, ...], decided: DecisionType
) -> tuple[Vote, ...]:
    """The votes by which the request was decided, without votes that were changed later."""
    if request.approval is None:
        return ()
    counted = tally(request.approval, votes).counted
    return tuple(vote for vote in counted if vote.type == decided)


def _held(request: Request, terms: GrantTerms) -> tuple[dict[str, object], tuple[str, ...] | None]:
    """The arguments that later calls must have, and the names of the free arguments."""
    offered = None if request.offer is None else request.offer.free
    if terms.match is None:  # arguments that this call lacks are not free either
        free = offered or ()
        return {k: v for k, v in request.arguments.items() if k not in free}, free
    return {name: request.arguments[name] for name in terms.match}, offered


def _about(grant: Grant) -> list[object]:
    """The subject of a grant: of two grants with the same subject, the later one counts."""
    return [
        grant.tool_name,
        grant.agent_path,
        grant.source,
        grant.scope,
        grant.run_id if grant.scope == "run" else "",
        grant.arguments,
        grant.free,
    ]


def _take_use(state: AgentState, place: AgentState, grant_id: str, request_id: str) -> None:
    grant = state.grants.get(grant_id)
    if grant is None:  # it was revoked while its decision was on the way to the state
        return
    key = call_of_request(place, request_id).key
    state.grants[grant_id] = replace(grant, used=grant.used + 1, open=(*grant.open, key))


def _end_uses(state: AgentState, inner: r.Record, used: Mapping[str, Call]) -> None:
    """Note for each call that is over whether it has used its grant.

    A use is given back only if it is known that nothing happened: the body was never entered, or
    somebody has found out that it did nothing.
    """
    if not any(grant.open for grant in state.grants.values()):
        return
    in_doubt = {key for each in state.whole_tree for key in each.doubts}
    still_open = {call.key: call for call in open_calls(state)}
    for grant in list(state.grants.values()):
        kept: list[str] = []
        given_back = 0
        for key in grant.open:
            call = still_open.get(key)
            if key in in_doubt or (call is not None and _is_by(call, grant)):
                kept.append(key)
            elif grant.type == "approve" and not has_happened(key, inner, used.get(key)):
                given_back += 1
        if len(kept) < len(grant.open):
            state.grants[grant.id] = replace(grant, open=tuple(kept), used=grant.used - given_back)


def _is_by(call: Call, grant: Grant) -> bool:
    """Whether the grant lets the open call through."""
    if call.result is not None:
        return False
    return any(decision.by_grant == grant.id for decision in call.decisions.values())


def has_happened(key: str, inner: r.Record, call: Call | None) -> bool:
    """Whether a call that is over may have done something."""
    if isinstance(inner, r.Settled) and inner.call_key == key:
        return inner.happened
    if call is None:
        return True
    if call.result is not None and call.result.part.outcome == "denied" and was_found_undone(call):
        return False
    return call.entered


def _drop_ended(state: AgentState, inner: r.Record) -> None:
    """Drop the grants that can let nothing through any more.

    A grant that was over at one record stays over, also if a clock is set back.
    """
    at: datetime | None = getattr(inner, "at", None)
    runs = set(_open_runs(state)) if isinstance(inner, _ENDS_RUNS) else None
    for grant in list(state.grants.values()):
        is_over = at is not None and grant.is_over(at)
        is_used_up = grant.left == 0 and not grant.open
        if is_over or is_used_up or (runs is not None and _has_lost_run(grant, runs)):
            del state.grants[grant.id]


def _has_lost_run(grant: Grant, runs: set[str]) -> bool:
    return grant.scope == "run" and grant.run_id not in runs


def _open_runs(state: AgentState) -> Iterator[str]:
    for each in state.tree:
        if each.run is not None and not each.run.over:
            yield each.run.run_id
