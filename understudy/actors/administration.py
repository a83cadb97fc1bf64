"""`Administration`: what persons must agree to before it is done: `Runtime(protect=...)`.

Who asks for it gets `ApprovalNeeded`, and a request is in the log of trust of the store. Persons
vote on that. Then the same person asks for the same once more: that uses the votes up, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal, get_args

from understudy._base.clock import new_random_id
from understudy._base.json_values import digest, shown
from understudy.actors.trust_watch import TrustWatch
from understudy.agent.decisions import vote_of, why_no_voter
from understudy.approvals import (
    Approval,
    Caller,
    Vote,
    Voter,
    equal_vote,
    starts_at,
    still_counts,
    stricter,
    tally,
)
from understudy.errors import (
    ApprovalNeeded,
    DecisionError,
    UsageError,
    VoteRefused,
)
from understudy.interrupts import Decision
from understudy.state.trust_facts import AdminRequested, AdminUsed, AdminVoted, FactContent
from understudy.trust.fold import AdminRequest, TrustState

Protected = Literal[
    "compact",
    "delegate",
    "delete",
    "export",
    "import",
    "recover",
    "retire",
    "retire_rules",
    "thaw",
]
"""A verb that may be protected. `delegate` is for others' roles: people give their own alone."""
WITHIN = timedelta(days=1)
"""How long a request waits for votes, and its votes for the operation, if nothing is said."""
MOST = 1000
"""The number of requests that may wait at once."""


def checked_protect(given: object, *, has_people: bool) -> dict[str, Approval]:
    """The approval that each protected verb needs, by verb, checked.

    Raises:
        UsageError: for what cannot be protected so.

    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise UsageError(
            'Runtime(protect=...) must be a mapping such as {"delete": approval({"ops": 2})}, got '
            f"{shown(given)}"
        )
    for verb, asked in given.items():
        if verb not in get_args(Protected):
            known = ", ".join(get_args(Protected))
            raise UsageError(f"Runtime(protect=...) has {shown(verb)}: use {known}")
        if not isinstance(asked, Approval):
            raise UsageError(
                f"Runtime(protect=...): {verb!r} takes what approval() makes, got {shown(asked)}"
            )
        if asked.break_glass is not None:
            raise UsageError(f"Runtime(protect=...): {verb!r} cannot have break_glass=")
    if given and not has_people:
        raise UsageError("Runtime(protect=...) needs people who agree: give people= as well")
    found: dict[str, Approval] = dict(given)
    # Agents that are retired are exported and deleted.
    for verb in ("delete", "export"):
        if verb in given:
            found["retire"] = stricter(found.get("retire", found[verb]), found[verb])
    return found


class Administration:
    """The protected operations of one runtime, and the votes on them. On the runtime's loop.

    Args:
        watch: of its store.
        protect: by verb, who must agree.

    """

    def __init__(self, watch: TrustWatch, protect: Mapping[str, Approval]) -> None:
        self._watch = watch
        self._trust = watch.trust
        self._clock = watch.services.clock
        self._protect = protect

    async def allow(self, verb: str, about: str, arguments: Any, caller: Caller | None) -> None:
        """Return if the operation may be done now, and count the votes as used.

        Args:
            verb: what is to be done.
            about: what that is, in words.
            arguments: of the verb, JSON-able: votes are for these alone.
            caller: who wants it; None where nobody is named.

        Raises:
            ApprovalNeeded: where persons must agree first.
            UsageError: if nobody is named, or who is named is not known.
            PeopleUnavailable: if nobody can say now who it is.

        """
        asked = self._protect.get(verb)
        if asked is None:
            return
        if caller is None:
            raise UsageError(
                f"{about}: persons must agree ({asked.text}), so it must be known who wants it: "
                "say it by by="
            )
        wanted, now = digest([verb, arguments]), self._clock.now()
        voter = await self._trust.known_voter(caller, now, about)
        if not voter.person:
            raise UsageError(f"{about}: `people` knows nobody by the name {caller.name!r}")
        while True:
            await self._look()
            found = self._found(self._trust.state, wanted, voter)
            if found is None:
                found = await self._asked(verb, about, wanted, asked, voter, caller)
            missing = await self._missing(found, asked)
            if missing is None and self._is_too_old(found, asked):
                await self._used(found)  # then it is asked for anew
                continue
            if missing is not None:
                raise ApprovalNeeded(request_id=found.id, verb=verb, about=about, missing=missing)
            if await self._used(found):
                return

    async def vote(self, id: str, decision: Decision, caller: Caller) -> AdminRequest:
        """Record the vote of a person.

        Raises:
            DecisionError: if there is no such request, or the decision is no vote.
            VoteRefused: if the person may not vote on it.
            PeopleUnavailable: if nobody can say now who it is.

        """
        if (
            decision.type not in ("approve", "reject")
            or decision.grant is not None
            or decision.break_glass
        ):
            raise DecisionError(f"Request {id!r} takes approve() or reject()", request_id=id)
        now = self._clock.now()
        await self._look()
        found = self._pending(self._trust.state, id)
        asked = found.said.approval
        voter = await self._trust.known_voter(caller, now, found.said.about)
        why = why_no_voter(found, asked, voter, now, found.votes)
        if why is not None:
            raise VoteRefused(
                f"Request {id!r} ({found.said.about}): {why}", request_id=id, person=caller.name
            )
        vote = vote_of(found, asked, voter, decision, found.votes, now)

        def to_vote(state: TrustState) -> FactContent | None:
            votes = self._pending(state, id).votes
            return None if equal_vote(votes, vote) else AdminVoted(id=id, vote=vote)

        await self._watch.add(to_vote, caller.shown)
        return self._trust.state.administration[id]

    async def requests(self) -> list[AdminRequest]:
        """Return the requests whose time is not over and that were not used, the oldest first."""
        await self._trust.look()
        now = self._clock.now()
        found = (each for each in self._trust.state.administration.values() if each.holds(now))
        return sorted(found, key=lambda each: each.number)

    # ------------------------------------------------------------------------- one request

    def _found(self, state: TrustState, wanted: str, voter: Voter) -> AdminRequest | None:
        now = self._clock.now()
        for each in state.administration.values():
            if each.said.digest == wanted and each.said.person == voter.person and each.holds(now):
                return each
        return None

    def _pending(self, state: TrustState, id: str) -> AdminRequest:
        found = state.administration.get(id)
        if found is None or not found.holds(self._clock.now()):
            raise DecisionError(
                f"Request {id!r} of administration is not pending: it is unknown, used, or its "
                "time is over",
                request_id=id,
            )
        if tally(found.said.approval, found.votes).result == "reject":
            raise DecisionError(f"Request {id!r} of administration is rejected", request_id=id)
        return found

    async def _asked(
        self, verb: str, about: str, wanted: str, asked: Approval, voter: Voter, caller: Caller
    ) -> AdminRequest:
        now = self._clock.now()
        within = WITHIN if asked.within is None else timedelta(seconds=asked.within)
        said = AdminRequested(
            id=new_random_id(),
            verb=verb,
            about=about,
            digest=wanted,
            approval=asked,
            person=voter.person,
            name=voter.name,
            until=now + within,
        )

        def to_ask(state: TrustState) -> FactContent | None:
            # Race: this against the same person who asks at another host. One request is enough
            # (test_the_same_asked_for_again_is_one_request).
            if self._found(state, wanted, voter) is not None:
                return None
            if sum(each.holds(now) for each in state.administration.values()) >= MOST:
                raise UsageError(f"{MOST} requests of administration wait already")
            return said

        await self._watch.add(to_ask, caller.shown)
        found = self._found(self._trust.state, wanted, voter)
        assert found is not None, "it is there, or was added"
        return found

    async def _missing(self, found: AdminRequest, today: Approval) -> str | None:
        """The votes that a request lacks, in words; None: it may be done, empty: it is rejected."""
        now, asked = self._clock.now(), stricter(found.said.approval, today)
        standing = await self._standing(found, asked)
        result = tally(asked, standing)
        if result.result is None:
            return result.text
        if result.result == "reject":
            return ""
        due = starts_at(asked, standing)
        if due is not None and due > now:
            return f"the time until {due.isoformat(timespec='seconds')}"
        return None

    def _is_too_old(self, found: AdminRequest, today: Approval) -> bool:
        """Whether the time is over within which the operation of a request had to be done."""
        asked = stricter(found.said.approval, today)
        if asked.use_within is None or not found.votes:
            return False
        since = max(found.votes[-1].at, starts_at(asked, found.votes) or found.at)
        return self._clock.now() > since + timedelta(seconds=asked.use_within)

    async def _standing(self, found: AdminRequest, asked: Approval) -> list[Vote]:
        """The votes of a request by persons who may still vote."""
        excluded = found.requesters if asked.never else ()
        voters = await self._trust.voters((each.caller for each in found.votes), self._clock.now())
        return [each for each in found.votes if still_counts(each, voters[each.caller], excluded)]

    async def _used(self, found: AdminRequest) -> bool:
        """Use up the votes of a request; False if something has changed meanwhile."""

        def to_use(state: TrustState) -> FactContent | None:
            # Race: this against a vote that is changed, and against the same at another host: it is
            # done once (test_what_was_agreed_to_is_done_once).
            return AdminUsed(id=found.id) if state.administration.get(found.id) == found else None

        return await self._watch.add(to_use, found.said.name) is not None

    async def _look(self) -> None:
        """Read each new fact of the store: another host may have added a fact unheard of here."""
        self._trust.follow(self._watch.services.store)
        await self._trust.look()
