"""`Review`: the open review of a call that one person alone has let run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from understudy.approvals import Assurance, Vote
from understudy.interrupts import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A review by another person, after one person has broken the glass. It does not hold the
    run.
    """

    id: str
    """The id of the request that was approved so."""
    agent_id: str
    agent: str
    """The name of the agent's definition."""
    agent_path: tuple[str, ...]
    run_id: str
    call_key: str
    tool_name: str
    arguments: dict[str, Any]
    """The arguments that were shown, with which the call was approved."""
    must_agree: str
    """The persons who would have had to agree, in words."""
    roles: tuple[str, ...]
    """The roles of the persons who would have been asked."""
    person: str
    """The id of the person who broke the glass."""
    by: str
    """The name of that person."""
    login: str
    """The login under which the person did it."""
    note: str
    """The person's reason."""
    assurance: Assurance = "host"
    at: datetime
    requesters: tuple[str, ...] = ()
    """The ids of the persons who asked for the call and must not vote on it."""

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
        """What happened, in words."""
        return (
            f"{self.by} has broken the glass: {self.tool_name} was approved without "
            f"{self.must_agree}. The reason: {self.note}"
        )

    def why_not_by(self, person: str) -> str | None:
        """Why this person may not close it, in words; None if the person may."""
        if person == self.person:
            return "the person who broke the glass does not review it; somebody else must"
        if person in self.requesters:
            return "a requester of the call does not review it; somebody else must"
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the review as plain data."""
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
