"""Grants: the requests about calls that they decide, and whether they still hold at the start."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.interrupts import Decision, Grant, Request
from understudy.run.run import Run
from understudy.state.records import Decided
from understudy.state.run_state import Call
from understudy.tools import Tool

GRANT_OVER = "The grant by which it was decided does not hold any more."
"""Why a person is asked about a call that a grant had let through."""

Standing = frozenset[tuple[str, str]]
"""Pairs of ids: a grant, and a request that it covers and may decide."""


def decided_by_grants(run: Run, requests: Sequence[Request], standing: Standing) -> list[Decided]:
    """The decisions by grants on those of the requests that a grant covers. Each takes a use.

    They are to be recorded before anything is awaited.

    Args:
        run: the run of the calls.
        requests: about calls that no person was asked about yet, in call order.
        standing: the result of `standing_grants`.

    """
    decided: list[Decided] = []
    taken: dict[str, int] = {}
    now = run.clock.now()
    for request in requests:
        tool = run.definition.tool_of(request.tool_name)
        if tool is None:
            continue
        fitting = [
            grant
            for grant in run.root.state.grants.values()
            if (grant.id, request.id) in standing
            and (grant.left is None or grant.left > taken.get(grant.id, 0))
            and _is_same_tool(grant, tool)
            and not grant.is_over(now)
        ]
        if not fitting:
            continue
        # A denial counts most, then a grant without a limit: so the other grants keep their uses.
        grant = min(fitting, key=lambda each: (each.type != "reject", each.uses is not None))
        taken[grant.id] = taken.get(grant.id, 0) + 1
        decision = Decision(type=grant.type, message=grant.message, by=grant.by, by_grant=grant.id)
        decided.append(Decided(request_id=request.id, decision=decision, at=now))
    return decided


def covers_request(grant: Grant, request: Request, agent_id: str) -> bool:
    """Whether the grant is about such a request, as it is today.

    Args:
        grant: a grant of the outermost agent.
        request: a request about a call.
        agent_id: the id of the outermost agent.

    """
    in_run = grant.run_id == request.run_id or request.run_id.startswith(grant.run_id + ".")
    return (
        request.kind == "approval"
        and not request.doubts
        and grant.type in request.allowed
        and grant.agent_id == agent_id
        and grant.agent_path == request.agent_path
        and grant.source == request.source
        and grant.approval == request.approval
        and grant.offer == request.offer
        and (grant.scope == "agent" or in_run)
        and grant.covers(request.arguments)
    )


def _is_same_tool(grant: Grant, tool: Tool) -> bool:
    return grant.tool_name in tool.names and grant.fingerprint == tool.fingerprint_as(
        grant.tool_name
    )


def has_grants(call: Call) -> bool:
    """Whether a grant has decided a request about the call."""
    return any(decision.by_grant is not None for decision in call.decisions.values())


def _by_grant(call: Call, request: Request) -> str | None:
    decision = call.decisions.get(request.id)
    return None if decision is None else decision.by_grant


def holding_grant(run: Run, call: Call, request: Request) -> Grant | None:
    """The grant that has decided the request, if it holds now and the call has its use."""
    grant = run.root.state.grants.get(_by_grant(call, request) or "")
    if grant is None or call.key not in grant.open or grant.is_over(run.clock.now()):
        return None
    return grant
