"""Answers from the outside, by token, to the waits of tools."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from understudy._base.authors import By, checked_author
from understudy._base.json_values import checked_json, checked_text, digest
from understudy.approvals import SETTLE, Voter, why_excluded
from understudy.errors import Expired, PeopleUnavailable, VoteRefused
from understudy.interrupts import DoubtfulCall
from understudy.run.ledger import Ledger, ledger_tree
from understudy.run.ledger import open_calls as calls_of
from understudy.state.agent_state import AgentState
from understudy.state.records import (
    Imported,
    PointAnswered,
    Record,
    Settled,
    Snapshot,
    TokenMade,
    innermost,
)
from understudy.state.run_state import Call, Point, PointAnswer
from understudy.state.waits import open_calls

TOKEN_RECORDS = ("token_made", "child_record", "snapshot")
"""The kinds of records that may have the hash of a token that was made."""
LATE_ANSWER = "late answer"
"""The word for how a doubt was settled by an answer to a wait of its call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer to a wait. Make one with `resolved` or `rejected`."""

    how: Literal["value", "rejected"]
    value: Any = None
    reason: str | None = None
    by: By | None = None
    """The person who gives it; None if nobody is named."""

    def same_as(self, known: Answer) -> bool:
        """Whether it equals another answer, as JSON. The person who gives it does not count."""
        return digest([self.how, self.value, self.reason]) == digest(
            [known.how, known.value, known.reason]
        )


def resolved(value: object, by: object = None) -> Answer:
    """The answer that the wait has this value.

    Raises:
        UsageError: for a value that cannot be stored as JSON and read back, or if `by` is no name.

    """
    plain = checked_json({"value": value}, what="resolve(...)")["value"]
    return Answer(how="value", value=plain, by=checked_author(by, what="resolve(by=...)"))


def rejected(reason: object, by: object = None) -> Answer:
    """The answer that the wait will have no value.

    Raises:
        UsageError: for a reason that is no text, or empty, or if `by` is no name.

    """
    text = checked_text(reason, what="reject(...): `reason`")
    return Answer(how="rejected", reason=text, by=checked_author(by, what="reject(by=...)"))


def is_for_voted_doubt(state: AgentState, token_hash: str) -> bool:
    """Whether an answer by this token settles the doubt about a call that excludes persons."""
    return any(
        token_hash in doubt.token_hashes and doubt.call_approval and doubt.call_approval.never
        for doubt in state.doubts_in_tree.values()
    )


def _check_may_settle(doubt: DoubtfulCall, voter: Voter | None) -> None:
    """Refuse an answer of a requester. Any other holder of the token may answer, also a program.

    Raises:
        PeopleUnavailable: if nobody can say now who the voter is.
        VoteRefused: if the voter is a requester.

    """
    asked = doubt.call_approval
    if asked is None or not asked.never or voter is None:
        return
    if voter.why_unknown:
        raise PeopleUnavailable(f"The doubt about {doubt.call_key!r}: {voter.why_unknown}")
    why = why_excluded(asked, doubt.requesters, voter, does=SETTLE) if voter.person else None
    if why is not None:
        raise VoteRefused(
            f"The doubt about call {doubt.call_key!r}: {why}", request_id="", person=voter.login
        )


def record_answer(
    ledger: Ledger,
    token_hash: str,
    answer: Answer,
    now: datetime,
    *,
    agent_id: str,
    voter: Voter | None = None,
) -> bool | None:
    """Record an answer for the wait that has this token, in any agent of the tree.

    It may come before the tool waits for it. If the call is in doubt instead, the answer settles
    the doubt.

    Args:
        ledger: the ledger of the agent.
        token_hash: the hash of the token that came with the answer.
        answer: the answer.
        now: the time at which it came.
        agent_id: the id of the agent.
        voter: the person who gives it; None if nobody is named, or if it does not matter.

    Returns:
        True if this is the answer, recorded now or before. False if an earlier answer stands. None
        if nothing here has this token.

    Raises:
        Expired: if the wait is over without an answer.
        RecordRefused: if the answer is too large to be kept.
        VoteRefused: if a requester would settle a doubt that requesters must not settle.

    """
    for place in list(ledger_tree(ledger)):
        for call_key, doubt in place.state.doubts.items():
            if token_hash in doubt.token_hashes:
                _check_may_settle(doubt, voter)
                place.record(
                    Settled(
                        call_key=call_key,
                        how=LATE_ANSWER,
                        token_hash=token_hash,
                        answer=answer.how,
                        value=answer.value,
                        reason=answer.reason,
                        by=answer.by,
                        at=now,
                    )
                )
                return True
    found = _find(ledger, token_hash)
    if found is None:
        return None
    place, call, point = found
    known = None if point.answer is None else _answer_of(point.answer)
    if known is not None:
        return answer.same_as(known)
    is_late = point.since is not None and point.due is not None and point.due <= now
    run = ledger.state.run
    is_cancelled = run is not None and run.cancelled is not None  # no tool gets it any more
    if point.answer is not None or is_late or is_cancelled or call.result is not None:
        raise Expired(agent_id=agent_id, name=point.name)
    place.record(
        PointAnswered(
            call_key=call.key,
            name=point.name,
            what="wait",
            how=answer.how,
            value=answer.value,
            reason=answer.reason,
            by=answer.by,
            at=now,
        )
    )
    for notify in ledger.on_answer:
        notify()
    return True


def _find(ledger: Ledger, token_hash: str) -> tuple[Ledger, Call, Point] | None:
    for place, call in calls_of(ledger):
        for point in call.points.values():
            if token_hash in point.token_hashes:
                return place, call, point
    return None


@dataclass(frozen=True, slots=True)
class MadeToken:
    """A token that an agent has made, as its records say."""

    name: str
    """The id of the run of the wait."""
    answer: Answer | None
    """The answer of its wait; None if there is none, or if the wait has expired."""


class TokenReading:
    """Reads the records of an agent, and of agents that it ran, for one token."""

    def __init__(self, token_hash: str) -> None:
        self._token_hash = token_hash
        self._points: dict[str, tuple[str, str]] = {}
        """The call and point of each token, by the hash of the token: a point may have several."""
        self._answers: dict[tuple[str, str], Answer | None] = {}

    @property
    def found(self) -> MadeToken | None:
        """The facts about the token.

        None if no agent has made the token, if it was made before an import, or if its records were
        compacted.
        """
        made = self._points.get(self._token_hash)
        return None if made is None else MadeToken(made[1], self._answers.get(made))

    def add(self, seq: int, record: Record) -> None:
        """Add the next record, with its number."""
        record = innermost(record)
        points, answers = self._points, self._answers
        match record:
            case TokenMade():
                points[record.token_hash] = record.call_key, record.name
            case PointAnswered():
                answers[record.call_key, record.name] = _answer_of(record)
            case Settled() if record.token_hash in points:
                answers[points[record.token_hash]] = _late_answer_of(record)
            case Snapshot():
                self._points, self._answers = _tokens_of(AgentState.from_dict(record.state))
            case Imported():
                points.clear()  # tokens hold only where they were made
            case _:
                pass


def _answer_of(known: PointAnswer | PointAnswered) -> Answer | None:
    """The answer that came from outside; None if none came in time."""
    if known.how not in ("value", "rejected"):
        return None
    return Answer(how=known.how, value=known.value, reason=known.reason)


def _late_answer_of(settled: Settled) -> Answer | None:
    if settled.answer not in ("value", "rejected"):
        return None
    return Answer(how=settled.answer, value=settled.value, reason=settled.reason)


def _tokens_of(
    state: AgentState,
) -> tuple[dict[str, tuple[str, str]], dict[tuple[str, str], Answer | None]]:
    """The tokens that still count in this state, with their points and answers."""
    points: dict[str, tuple[str, str]] = {}
    answers: dict[tuple[str, str], Answer | None] = {}
    for doubt in state.doubts_in_tree.values():  # their points have no names any more
        points.update((each, (doubt.call_key, "")) for each in doubt.token_hashes)
    for call in open_calls(state):
        for point in call.points.values():
            key = call.key, point.name
            points.update((each, key) for each in point.token_hashes)
            if point.answer is not None:
                answers[key] = _answer_of(point.answer)
    return points, answers
