"""The doubts of an agent, for lists: calls whose effect nobody knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from understudy._base.json_values import jsonable
from understudy._base.points_in_time import time_text
from understudy.interrupts import DoubtfulCall, Request
from understudy.state.run_state import Call, RunState
from understudy.state.state_tree import StateTree

DoubtState = Literal["asked", "checked", "told"]
"""The state of a doubt: a person is asked, its check is, or only the model was informed."""
DOUBT_STATES: dict[DoubtState, str] = {
    "asked": "a person is asked",
    "checked": "its check is asked",
    "told": "only the model was informed",
}
"""The states in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """One call in doubt, as `runtime.doubts()` lists it."""

    agent_id: str
    """The id of the agent whose run made the call. Call `settle` and `resume` on this agent."""
    agent: str
    """The name of the agent's definition."""
    made_by: str
    """The name of the agent that made the call: the same agent, or an agent inside it."""
    run_id: str
    """The id of the run that made the call."""
    call_key: str
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]
    reason: str
    """The reason why nobody knows what the call did."""
    since: datetime
    """The time at which the call came to be in doubt, or at which a person was asked."""
    ends_at: datetime | None
    """The time at which the doubt ends by itself; None = never. If a person is asked, the request
    expires then."""
    checks_at: datetime | None = None
    """The next time at which the tool's check is asked what the call did; None if no check
    is due."""
    request_id: str | None = None
    """The id of the request by which a person is asked; None if nobody is asked."""

    @property
    def state(self) -> DoubtState:
        """Who is asked: a person, or the tool's `check`. `told` means that only the model was
        informed.
        """
        if self.request_id is not None:
            return "asked"
        return "told" if self.checks_at is None else "checked"

    @property
    def is_asked(self) -> bool:
        """Whether a person is asked. If so, `ref.resume` answers; if not, `ref.settle` settles the
        doubt.
        """
        return self.request_id is not None

    def _repr_html_(self) -> str:
        """For notebooks: the call, and why nobody knows what it did."""
        from understudy._base import notebook_html as h

        ends = "" if self.ends_at is None else f"ends at {h.at(self.ends_at)}"
        parts = [h.words(self.reason), h.table(self.arguments)]
        parts.append(h.quiet(self.agent, h.code(self.agent_id), f"since {h.at(self.since)}", ends))
        about = f"in doubt: {DOUBT_STATES[self.state]}"
        return h.card(self.tool_name, about, parts, colour=h.ENDED)

    def to_dict(self) -> dict[str, Any]:
        """Return the doubt as JSON-able data."""
        return {
            "agent_id": self.agent_id,
            "agent": self.agent,
            "made_by": self.made_by,
            "run_id": self.run_id,
            "call_key": self.call_key,
            "tool_call_id": self.tool_call_id,
            "tool_name": self.tool_name,
            "arguments": jsonable(self.arguments),
            "reason": self.reason,
            "since": time_text(self.since),
            "ends_at": time_text(self.ends_at),
            "checks_at": time_text(self.checks_at),
            "state": self.state,
            "request_id": self.request_id,
        }


MOST_FINDINGS = 100
"""The number of findings that an agent keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a person has found out about a call in doubt of which only the model was informed."""

    by: str
    """The name under which the person settled it."""
    how: str
    happened: bool
    """Whether the call took effect, or may have."""

    @property
    def text(self) -> str:
        """The finding, as text for people."""
        return self.how if self.happened else f"it took no effect: {self.how}"


def has_doubtful_call(state: StateTree) -> bool:
    """Whether a call of this agent itself is, or may come to be, in doubt. Inner agents do not
    count.
    """
    return bool(state.doubts) or any(map(_may_be_in_doubt, _calls_of(state.run)))


def _calls_of(run: RunState | None) -> Iterable[Call]:
    """The open calls of a run, and the calls that it left."""
    if run is None:
        return ()
    left = run.left.turn if run.left is not None else None
    return run.calls if left is None else (*run.calls, *left.calls.values())


def _may_be_in_doubt(call: Call) -> bool:
    is_asked = any(request.kind == "doubt" for request in call.requests.values())
    return call.running or call.unknown or is_asked


def next_end(state: StateTree) -> datetime | None:
    """The time at which the next doubt ends by itself; None if no doubt does."""
    if not state.may_be_in_doubt:
        return None
    ends = (doubt.ends_at for doubt in state.doubts_in_tree.values() if doubt.ends_at is not None)
    return min(ends, default=None)


def doubt_told(doubt: DoubtfulCall, agent_id: str, agent: str) -> Doubt:
    """A doubt that nobody is asked about: only the model was informed."""
    return Doubt(
        agent_id=agent_id,
        agent=agent,
        made_by=doubt.agent,
        run_id=run_of(doubt.call_key),
        call_key=doubt.call_key,
        tool_call_id=doubt.tool_call_id,
        tool_name=doubt.tool_name,
        arguments=doubt.arguments,
        reason=doubt.reason,
        since=doubt.since,
        ends_at=doubt.ends_at,
        checks_at=doubt.checks_at,
    )


def doubt_asked(request: Request, agent_id: str, agent: str) -> Doubt:
    """A doubt about which a person is asked by this request."""
    payload = request.payload  # a middleware may ask by a request of this kind, with any payload
    reason = payload.get("reason") if isinstance(payload, Mapping) else None
    return Doubt(
        agent_id=agent_id,
        agent=agent,
        made_by=request.agent_path[-1],
        run_id=request.run_id,
        call_key=request.call_key,
        tool_call_id=request.tool_call_id,
        tool_name=request.tool_name,
        arguments=request.arguments,
        reason=reason if isinstance(reason, str) else "",
        since=request.created_at,
        ends_at=request.expires_at,
        request_id=request.id,
    )


def why_not_settled(requests: Iterable[Request], call_key: str) -> str:
    """The end of the error for a call that cannot be settled: who decides about it instead."""
    for request in requests:
        if request.kind == "doubt" and request.call_key == call_key:
            return f". A person is asked about it: answer request {request.id!r} by resume()"
    return ""


def run_of(call_key: str) -> str:
    """The id of the run of a call, whose key is `run.turn.index`."""
    return call_key.rsplit(".", 2)[0]
