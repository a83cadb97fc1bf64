"""`Review`: what stays open after a person alone has let a call run, until another looks at it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from understudy.approvals import Assurance, Vote
from understudy.interrupts import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A person has broken the glass: somebody else is to look at it. It does not hold the run."""

    id: str
    """That of the request that was approved so."""
    agent_id: str
    agent: str
    """The name of the agent's definition."""
    agent_path: tuple[str, ...]
    run_id: str
    call_key: str
    tool_name: str
    arguments: dict[str, Any]
    """Those that were shown, with which the call was approved."""
    must_agree: str
    """Who would have had to agree, in words."""
    roles: tuple[str, ...]
    """The roles of those who would have been asked."""
    person: str
    """The id of the person who broke the glass."""
    by: str
    """The name of that person."""
    login: str
    """The name under which they did it."""
    note: str
    """Why."""
    assurance: Assurance = "host"
    at: datetime
    requesters: tuple[str, ...] = ()
    """The ids of those who have asked for the call, where they must not vote on it."""

    @classmethod
    def of(cls, request: Request, vote: Vote) -> Review:
        """The review of a request that this vote approves alone."""
        assert request.approval is not None, "else no vote is cast"
        return cls(
            id=request.id,
            agent_id=request.agent_id,
            agent=request.agent_path[0],
            agent_path=request.agent_path,
            run_id=request.run_id,
            call_key=request.call_key,
            tool_name=request.tool_name,
            arguments=request.arguments,
            must_agree=request.approval.who,
            roles=tuple(sorted(request.approval.roles)),
            person=vote.person,
            by=vote.shown_name,
            login=vote.login,
            note=vote.note or "",
            assurance=vote.assurance,
            at=vote.at,
            requesters=request.requesters or (),
        )

    @property
    def text(self) -> str:
        """What has happened, in words."""
        return (
            f"{self.by} has broken the glass: {self.tool_name} was approved without "
            f"{self.must_agree}. The reason: {self.note}"
        )

    def why_not_by(self, person: str) -> str | None:
        """Why this person may not close it, in words; None where they may."""
        if person == self.person:
            return "the person who broke the glass does not review it; somebody else must"
        if person in self.requesters:
            return "a requester of the call does not review it; somebody else must"
        return None

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "id": self.id,
            "agent_id": self.agent_id,
            "agent": self.agent,
            "agent_path": list(self.agent_path),
            "run_id": self.run_id,
            "call_key": self.call_key,
            "tool_name": self.tool_name,
            "arguments": self.arguments,
            "must_agree": self.must_agree,
            "text": self.text,
            "roles": list(self.roles),
            "person": self.person,
            "by": self.by,
            "login": self.login,
            "note": self.note,
            "assurance": self.assurance,
            "at": self.at.isoformat(),
        }
