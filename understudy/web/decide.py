"""Decisions on requests: the logged-in user decides on exactly what was shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from understudy._base.grant_terms import GrantTerms
from understudy._base.request_summary import SEVERAL, why_alone
from understudy.agent.decisions import run_of_decisions
from understudy.errors import (
    AlreadyDecided,
    DecisionError,
    NotInterrupted,
    RequestChanged,
    RequestExpired,
    UnknownAgent,
    VoteRefused,
)
from understudy.interrupts import Decision, decision_from_outside
from understudy.login.problems import Problem, Refused, problem_of, refused
from understudy.login.redaction import HIDDEN
from understudy.state.next_due import open_votes
from understudy.web.views.asks import doubts_about, story_of
from understudy.web.visit import Visit

BROKE = "broke the glass and approved it alone"
SAYS = {
    "approve": "approved it",
    "edit": "approved it with other arguments",
    "reject": "rejected it",
    "respond": "answered it",
    "dismiss": "dismissed it",
}


class DecisionBody(BaseModel):
    """A decision, as the API takes it. Its author is the user who is logged in."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    type: Literal["approve", "edit", "reject", "respond", "dismiss"]
    arguments: dict[str, Any] | None = None
    message: str | None = None
    value: Any = None
    always: bool = False
    grant: GrantTerms | None = None
    note: str | None = None
    break_glass: bool = False

    def decision(self, by: str) -> Decision:
        """The decision of this person.

        Raises:
            DecisionError: if it lacks a value that its type needs.

        """
        given = self.model_dump(exclude_unset=True, exclude={"grant"})
        if self.grant is not None:
            given["grant"] = self.grant
        return decision_from_outside({**given, "by": by})


class DecisionsBody(BaseModel):
    """Decisions on the requests of one agent, each for the digest of what was shown."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    decisions: dict[str, DecisionBody] = Field(min_length=1, max_length=1000)
    expect: dict[str, str]


class BulkItem(BaseModel):
    """One of the requests of a bulk decision."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    agent_id: str
    request_id: str
    digest: str


class BulkBody(BaseModel):
    """One decision on many requests."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    decision: DecisionBody
    requests: list[BulkItem] = Field(min_length=1, max_length=1000)


async def decide(visit: Visit) -> dict[str, Any]:
    """Answer requests of one agent. All of them are taken, or none."""
    body = await visit.body(DecisionsBody)
    missing = sorted(set(body.decisions) - set(body.expect))
    if missing:
        raise refused(400, "UsageError", f"`expect` has no digest for {missing[0]!r}.")
    unused = sorted(set(body.expect) - set(body.decisions))
    if unused:
        raise refused(400, "UsageError", f"`expect` has {unused[0]!r}, which is not decided.")
    given = {key: item.decision(visit.user.by) for key, item in body.decisions.items()}
    return await take(visit, visit.agent_id, given, body.expect)


async def take(
    visit: Visit, agent_id: str, given: Mapping[str, Decision], expect: Mapping[str, str]
) -> dict[str, Any]:
    """Record decisions. Equal decisions again are a success.

    Raises:
        Refused: 409 if a request is not open any more as it was shown, with what became of it; 422
            if a decision does not fit.

    """
    visit.need("decide")
    about = visit.about(agent_id)
    if visit.site.redaction.is_on and any(each.type == "edit" for each in given.values()):
        await _refuse_blind_edits(about, given)
    try:
        await _refuse_guesses(about, given)
        repeated = run_of_decisions(await about.state(), given) is not None
        ref = visit.own(visit.runtime.get(agent_id))
        await visit.wait(ref.decide(given, expect=dict(expect)))
        # Race: another person makes the same decision between the two
        # (test_no_answer_tells_a_guess_of_a_hidden_value_from_another_one).
        await _refuse_guesses(about, given)
    except VoteRefused:
        raise  # the request stays as it was; only this person may not decide it
    except (DecisionError, NotInterrupted, UnknownAgent) as error:
        return await _explained(visit, agent_id, given, expect, error)
    for request_id in given:  # viewers are notified at once, also without a feed
        visit.source.presence.tell(agent_id, request_id)
    still_open = await _still_open(about, given)
    return _taken(agent_id, given, repeated=repeated, still_open=still_open)


def _taken(
    agent_id: str,
    given: Iterable[str],
    *,
    repeated: bool = False,
    still_open: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """The answer when all decisions are recorded."""
    return {
        "agent_id": agent_id,
        "recorded": sorted(given),
        "repeated": repeated,
        "open": dict(still_open),
    }


async def _still_open(visit: Visit, given: Iterable[str]) -> dict[str, str]:
    """What requests still wait for, votes or their time, by request id."""
    if visit.runtime.people is None:
        return {}  # nobody votes here
    try:
        return open_votes(await visit.state(), given)
    except UnknownAgent:
        return {}  # the agent, with its recorded requests, is gone


async def _refuse_blind_edits(visit: Visit, given: Mapping[str, Decision]) -> None:
    """Refuse an edit by a user who does not see the arguments that it replaces."""
    try:
        requests = (await visit.state()).requests
    except UnknownAgent:
        return  # the decision itself is refused
    for each in requests:
        decision = given.get(each.id)
        is_edit = decision is not None and decision.type == "edit"
        if is_edit and visit.hides({"request": {"arguments": each.arguments}}):
            raise refused(403, "NotAllowed", HIDDEN)


async def _refuse_guesses(visit: Visit, given: Mapping[str, Decision]) -> None:
    """Refuse decisions on requests whose earlier decision by another person is hidden from the
    user.

    They are refused before anything is recorded, so that nothing reveals whether they are equal.

    Raises:
        AlreadyDecided: as for a different decision.

    """
    redaction = visit.site.redaction
    if not redaction.is_on:
        return
    for inner in (await visit.state()).tree:
        for record in inner.decisions:
            request_id, before = record.request.id, record.decision
            if request_id in given and redaction.hides_decision(
                visit.user, before.to_dict(), before.by
            ):
                raise AlreadyDecided(request_id=request_id, decision=before.type)


async def _explained(
    visit: Visit,
    agent_id: str,
    given: Mapping[str, Decision],
    expect: Mapping[str, str],
    error: Exception,
) -> dict[str, Any]:
    """Whether the same decisions are recorded already, which is a success; otherwise the problem is
    raised.
    """
    if isinstance(error, UnknownAgent):
        raise refused(
            409, "AgentDeleted", f"The agent {agent_id!r} does not exist any more."
        ) from error
    visit = visit.about(agent_id)
    state = await visit.state()
    pending = {request.id for request in state.requests}
    stories: dict[str, dict[str, Any]] = {}
    repeated: set[str] = set()
    for request_id in given:
        if request_id not in pending:
            try:
                story, request = await story_of(visit, request_id, state)
            except Refused:
                story, request = {"what": "unknown", "at": None}, None
            stories[request_id] = story
            is_shown = request is None or request.digest == expect[request_id]
            if is_shown and _is_same(visit, given[request_id], story):
                repeated.add(request_id)
    if len(repeated) == len(given):
        return _taken(agent_id, given, repeated=True)
    problem = problem_of(error)
    if stories:
        first, story = next(iter(stories.items()))
        problem = Problem(
            409,
            "Stale",
            story_text(story),
            {"request_id": first, "story": story, "stories": stories},
        )
    elif isinstance(error, RequestChanged):
        problem = Problem(
            409,
            "RequestChanged",
            "The request is not what was shown. Look at it as it is now, and decide again.",
            {"request_id": error.request_id},
        )
    elif isinstance(error, RequestExpired):
        problem = Problem(
            409,
            "Stale",
            "The time for an answer is over.",
            {"request_id": error.request_id, "story": {"what": "expired"}},
        )
    raise Refused(problem) from error


def _is_same(visit: Visit, decision: Decision, story: Mapping[str, Any]) -> bool:
    if story["what"] != "decided":
        return False
    if visit.site.redaction.hides_decision(visit.user, story["decision"], story["by"]):
        return False  # right and wrong guesses of a hidden value must have the same answer
    return Decision.from_dict(story["decision"]).same_as(decision)


def story_text(story: Mapping[str, Any]) -> str:
    """What became of a request, in a sentence."""
    match story["what"]:
        case "decided":
            who = story["by"] or "Somebody"
            decision = story["decision"] or {}
            done = SAYS.get(decision.get("type", ""), "answered it")
            done = BROKE if decision.get("break_glass") else done
            before = " by a grant for such calls" if decision.get("by_grant") else ""
            return f"{who} {done}{before}."
        case "withdrawn":
            return "A new message to the agent withdrew it: nobody needs to answer it any more."
        case "expired":
            return "Its time was over before somebody answered."
        case "failed":
            who = story["by"] or "somebody"
            return f"Nobody decided it: the program of {who}, which executes the call, failed."
        case "deleted":
            return "The agent is deleted."
        case "void":
            return "It is no longer asked: the run continued or ended without an answer."
        case _:
            return "This agent has never asked that."


async def bulk(visit: Visit) -> dict[str, Any]:
    """Take one decision on many requests, each separately.

    Raises:
        Refused: for an edit or an answer, which are only for a single request.

    """
    body = await visit.body(BulkBody)
    if body.decision.type not in ("approve", "reject"):
        raise refused(400, "UsageError", "Many requests at once can be approved or rejected only.")
    items = [(item.agent_id, item.request_id, item.digest) for item in body.requests]
    return await take_all(visit, items, body.decision.decision(visit.user.by))


async def _alone(visit: Visit) -> dict[str, str]:
    """The reasons why requests of the agent are not decided together with others, by request id.

    An agent that does not exist has none.
    """
    try:
        state = await visit.state()
    except UnknownAgent:
        return {}
    found = {}
    for each in state.requests:
        # Later doubts count too: the request's own page asks once more about an equal call.
        doubts = await doubts_about(visit, state, each)
        approval = None if each.approval is None else each.approval.to_dict()
        why = why_alone({"kind": each.kind, "doubts": doubts, "approval": approval})
        if why is not None:
            found[each.id] = why
    return found


async def take_all(
    visit: Visit, items: list[tuple[str, str, str]], decision: Decision
) -> dict[str, Any]:
    """Approve or reject each item: an agent, a request, and the digest of what was shown."""
    visit.need("decide")
    results = []
    alone: dict[str, dict[str, str]] = {}
    """By agent, the reasons why requests are not decided together with others, by request id."""
    for agent_id, request_id, digest in items:
        row: dict[str, Any] = {"agent_id": agent_id, "request_id": request_id}
        try:
            if agent_id not in alone:
                alone[agent_id] = await _alone(visit.about(agent_id))
            if request_id in alone[agent_id]:
                why = alone[agent_id][request_id]
                raise refused(409, "SeveralVote" if why == SEVERAL else "InDoubt", why)
            taken = await take(visit, agent_id, {request_id: decision}, {request_id: digest})
            missing = taken["open"].get(request_id)
            said = "Recorded." if missing is None else f"Recorded: {missing}."
            results.append({**row, "ok": True, "repeated": taken["repeated"], "detail": said})
        except Exception as error:
            problem = problem_of(error)
            results.append({**row, "ok": False, "status": problem.status, **problem.to_dict()})
    done = sum(result["ok"] for result in results)
    return {"results": results, "recorded": done, "refused": len(results) - done}
