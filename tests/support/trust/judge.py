"""The judge of a story: whether each call that ran was allowed, by the records of its agent alone.

It folds the records as JSON, and asks nothing of the library: neither its state, nor its tally, nor
its rules. What it knows besides are the logs of the story: who had which role when, which rules
held at which host, and which bodies were entered with which arguments.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import permutations
from typing import Any

from tests.support.trust.specs import ApprovalSpec, RulesSpec

__all__ = ["Delegated", "DelegationLog", "Entered", "Judge", "RoleLog"]

KEPT = timedelta(seconds=60)
"""For so long a runtime may keep what it was answered about a person."""
RULE = "rule: "
OF_DEFAULT = "whatever no rule names (ask)"
AGREED = ("approve", "edit")
ASSURANCES = ("host", "login", "idp")


class RoleLog:
    """Who was known under which login, and who had which role, at each time."""

    def __init__(self) -> None:
        self._at: list[tuple[datetime, dict[str, tuple[str, str, frozenset[str]]]]] = []

    def note(self, at: datetime, logins: Mapping[str, tuple[str, str, frozenset[str]]]) -> None:
        """From now on these are known: by login the id, the kind and the roles."""
        self._at.append((at, dict(logins)))

    def _within(self, at: datetime) -> Iterator[dict[str, tuple[str, str, frozenset[str]]]]:
        """What a runtime may take for true at a time: all that was true in the minute before."""
        before = [each for since, each in self._at if since <= at - KEPT]
        yield from before[-1:] or [self._at[0][1]]
        yield from (each for since, each in self._at if at - KEPT < since <= at)

    def person(self, login: str) -> str | None:
        """The id of a person. A login is one person's for the whole story."""
        return next((each[login][0] for _, each in self._at if login in each), None)

    def may_have(self, login: str, role: str, at: datetime) -> bool:
        """Whether a person can have counted for a role then."""
        return any(
            login in each and each[login][1] == "person" and role in each[login][2]
            for each in self._within(at)
        )

    def surely_has(self, login: str, role: str, at: datetime) -> bool:
        """Whether a person must have counted for a role then."""
        return all(
            login in each and each[login][1] == "person" and role in each[login][2]
            for each in self._within(at)
        )


@dataclass(slots=True)
class Delegated:
    """Roles that somebody has given to another one."""

    giver: str
    """The login."""
    getter: str
    roles: frozenset[str]
    until: datetime
    ended: datetime | None = None

    def holds(self, at: datetime) -> bool:
        """Whether it may count then."""
        return at < self.until and (self.ended is None or at <= self.ended)


DelegationLog = dict[str, Delegated]
"""All that was ever given, by the id."""


@dataclass(frozen=True, slots=True)
class Entered:
    """A body that was entered."""

    call_key: str
    agent_id: str
    tool: str
    agents: tuple[str, ...]
    arguments: Mapping[str, Any]
    rules: RulesSpec | None
    """Those of its host, in this moment."""
    number: int
    """How many bodies of this call were entered before."""
    newest: int | None = None
    """The version of the rules that each host must have, in this moment; None if none."""


@dataclass(slots=True)
class _Asked:
    """A request that stands."""

    request: Mapping[str, Any]
    excluded: frozenset[str] | None
    """The ids of who must not vote on the call as it is shown; None if one is not known."""
    votes: list[Mapping[str, Any]] = field(default_factory=list)
    decision: Mapping[str, Any] | None = None
    decided: datetime | None = None
    since: datetime | None = None
    """When it was asked."""

    @property
    def approval(self) -> ApprovalSpec | None:
        given = self.request.get("approval")
        return None if given is None else ApprovalSpec.of(given)

    @property
    def source(self) -> str:
        return str(self.request.get("source", ""))

    @property
    def kind(self) -> str:
        return str(self.request.get("kind", "approval"))

    @property
    def what(self) -> str:
        return f"{self.source or self.kind} about {self.request['call_key']}"


@dataclass(slots=True)
class _Grant:
    """A decision that holds for later calls."""

    asked: _Asked
    terms: Mapping[str, Any]
    at: datetime
    run_id: str
    revoked: int | None = None
    """The number of the record that revokes it."""
    entered: set[str] = field(default_factory=set)
    """The calls that it has let through."""

    @property
    def until(self) -> datetime | None:
        """When it ends."""
        seconds, until = self.terms.get("seconds"), self.terms.get("until")
        if seconds is not None:
            return self.at + timedelta(seconds=seconds)
        return None if until is None else _time(until)


@dataclass(slots=True)
class _Call:
    asked: dict[str, _Asked] = field(default_factory=dict)
    started: datetime | None = None
    started_by: int = 0
    """The number of the record that starts it."""
    ended: bool = False


class Judge:
    """Reads the records of one agent as they come, and says what is wrong.

    Args:
        roles: who had which role when.
        gates: by the name of a tool who must agree to it, as the gate of the agent asks.
        counts: what is counted is added there.
        delegations: what was ever delegated.
        violations: what is wrong is added there.

    """

    def __init__(
        self,
        roles: RoleLog,
        gates: Mapping[str, ApprovalSpec | None],
        counts: dict[str, int] | None = None,
        delegations: DelegationLog | None = None,
        violations: list[str] | None = None,
    ) -> None:
        self.violations: list[str] = [] if violations is None else violations
        self._roles = roles
        self._gates = gates
        self._calls: dict[str, _Call] = {}
        self._names: set[str | None] = set()
        """Who has sent what stands in the conversation, edited, or answered; None for unnamed."""
        self._editors: dict[str, set[str | None]] = {}
        """Who has edited the arguments of a call, by its key; None for unnamed."""
        self._delegations = {} if delegations is None else delegations
        self._grants: dict[str, _Grant] = {}
        self._reviews: dict[str, str] = {}
        """By the request, the person who has broken its glass, until it is closed."""
        self._number = 0
        """So many records were read, before a compaction as well."""
        self._is_open = False
        self._status = ""
        self.cursor = 0
        """So many of the agent's records are read."""
        self.counts: dict[str, int] = {} if counts is None else counts
        """How often there was something to judge, by what it was."""

    # ------------------------------------------------------------------------ records

    def read(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Read what was recorded since."""
        for record in records[self.cursor :]:
            self._number += 1
            at = None if record.get("at") is None else _time(record["at"])
            depth = 0
            while record["kind"] == "child_record":
                record, depth = record["record"], depth + 1
            self._read(record, at, depth)
        self.cursor = len(records)

    def _read(self, record: Mapping[str, Any], at: datetime | None, depth: int) -> None:
        if depth == 0 and record["kind"] in ("status_noted", "run_started", "attempt", "run_ended"):
            self._status = record.get("status", self._status)
        match record["kind"]:
            case "run_started" if depth == 0:
                self._calls.clear()
                self._is_open = True
                if record.get("message") is not None:
                    self._names |= {*(record.get("by") or (None,))}
                    self._names |= {None} if record.get("also_unnamed") else set()
            case "user_message" if depth == 0:
                self._names.add(record.get("by"))
            case "run_ended" if depth == 0:
                self._is_open = False
                # Nothing here fails: a build that raises would seem to forbid all it must.
                assert record["end"]["outcome"] != "failed", f"the run has failed: {record['end']}"
            case "revoked":
                if record["grant_id"] in self._grants:
                    self._grants[record["grant_id"]].revoked = self._number
            case "glass_broken":
                self._reviews[record["review"]["id"]] = record["review"]["person"]
            case "review_closed":
                breaker = self._reviews.pop(record["review_id"], None)
                if breaker is None or breaker == record["person"]:
                    self._note(f"{record['person']} closes a review of what {breaker} has done")
                self._count("reviews closed")
            case "imported":
                self._names.add(None)  # the author of the file says who they are
                for grant in self._grants.values():
                    grant.revoked = grant.revoked or self._number
                for call in self._calls.values():
                    if not call.ended:
                        call.asked.clear()
            case "interrupts_checked":
                for request in record.get("requests", ()):
                    self._ask(request, (), at)
                for each in record.get("decided", ()):
                    self._decide(each)
            case "requested":
                self._ask(record["request"], record.get("replaces", ()), at)
            case "voted":
                asked = self._of(record["request_id"])
                if asked is None:
                    self._note(f"{record['vote']['login']} votes on what does not stand")
                else:
                    asked.votes.append(record["vote"])
            case "decided":
                self._decide(record)
            case "withdrawn":
                for call in self._calls.values():
                    for request_id in record["request_ids"]:
                        call.asked.pop(request_id, None)
            case "started":
                call = self._call(record["call_key"])
                call.started, call.started_by = at, self._number
            case "result":
                for key, call in self._calls.items():
                    if key == record["call_key"] or key.startswith(record["call_key"] + "."):
                        call.ended = True

    def _call(self, key: str) -> _Call:
        return self._calls.setdefault(key, _Call())

    def _of(self, request_id: str) -> _Asked | None:
        """The request, if it stands."""
        found = (c.asked[request_id] for c in self._calls.values() if request_id in c.asked)
        return next(found, None)

    def _ask(
        self, request: Mapping[str, Any], replaces: Iterable[str], at: datetime | None
    ) -> None:
        call = self._call(request["call_key"])
        before = [call.asked.pop(each) for each in replaces if each in call.asked]
        asked = _Asked(request, frozenset(), since=at)
        approval = asked.approval
        if approval is not None and approval.never:
            asked.excluded = self._ids_of(self._names)
            for each in before:  # who asks for it as it is now had asked then
                if each.request["arguments"] == request["arguments"]:
                    asked.excluded = each.excluded
        elif approval is not None and approval.is_of_several:
            asked.excluded = self._ids_of(self._editors.get(request["call_key"], set()))
        call.asked[request["id"]] = asked

    def _ids_of(self, names: Iterable[str | None]) -> frozenset[str] | None:
        ids = {None if name is None else self._roles.person(name) for name in names}
        return None if None in ids else frozenset(filter(None, ids))

    def _decide(self, record: Mapping[str, Any]) -> None:
        asked, decision = self._of(record["request_id"]), record["decision"]
        if asked is None:
            self._note(f"{decision.get('by')} decides about what does not stand")
            return
        asked.decision, asked.decided = decision, _time(record["at"])
        if decision.get("grant") is not None:
            run_id = _run_of(asked.request)
            self._grants[asked.request["id"]] = _Grant(
                asked, decision["grant"], asked.decided, run_id
            )
        if decision["type"] in ("edit", "respond"):
            self._names.add(decision.get("by"))
        if decision["type"] == "edit":
            of_call = self._editors.setdefault(asked.request["call_key"], set())
            of_call.add(decision.get("by"))
        if asked.approval is None or decision.get("by_grant") is not None:
            return
        if decision.get("origin") == "expiry":
            self._count("expired")
            return
        self._count(f"decided: {decision['type']}")
        wrong = (
            self._lacks_votes(asked, None)
            if decision["type"] == "approve"
            else self._lacks_rejections(asked)
        )
        if decision["type"] == "approve":
            wrong += self._lacks_terms(asked, asked.decided)
        for each in wrong:
            self._note(f"{decision['type']} of {asked.what}: {each}")

    # ------------------------------------------------------------------------ the votes

    def _counted(self, asked: _Asked, *, at_start: bool = False) -> list[Mapping[str, Any]]:
        """The last vote of each person who may have had a role, and has not asked for it.

        Right before the start who has edited any call of the conversation has asked, too.
        """
        approval, excluded = asked.approval, asked.excluded
        assert approval is not None, "only of what several vote on"
        if at_start and approval.never and excluded is not None:
            editors = self._ids_of(itertools.chain(*self._editors.values()))
            excluded = None if editors is None else excluded | editors
        if excluded is None:
            return []
        last = {self._roles.person(each["login"]): each for each in asked.votes}
        return [
            each
            for person, each in last.items()
            if person and excluded.isdisjoint(self._persons(each)) and self._is_vouched(asked, each)
        ]

    def _persons(self, vote: Mapping[str, Any]) -> frozenset[str]:
        """The ids of who has voted, and of whom they represent."""
        by = vote.get("represents")
        ids = (self._roles.person(vote["login"]), None if by is None else by["person"])
        return frozenset(filter(None, ids))

    def _is_vouched(self, asked: _Asked, vote: Mapping[str, Any]) -> bool:
        """Whether somebody has vouched for who votes as much as is asked, and not too long ago."""
        assert asked.approval is not None, "only of what several vote on"
        terms = asked.approval.terms
        has = ASSURANCES.index(vote.get("assurance", "host"))
        if has < ASSURANCES.index(terms.assurance):
            return False
        if terms.max_auth_age is None:
            return True
        since = vote.get("auth_at")
        age = timedelta(seconds=terms.max_auth_age)
        return since is not None and _time(vote["at"]) - _time(since) <= age

    def _lacks_terms(self, asked: _Asked, at: datetime) -> list[str]:
        """Why it could not be approved at this time."""
        assert asked.approval is not None, "only of what several vote on"
        terms, since = asked.approval.terms, asked.since
        if self._is_broken(asked, None):
            self._count("broken glass")
            is_reviewed = asked.request["id"] in self._reviews
            return [] if is_reviewed else ["its glass is broken, and nobody is to review that"]
        if terms.within is not None and since is not None:
            self._count("within its time")
            if at > since + timedelta(seconds=terms.within):
                return [f"it was approved later than {terms.within} s"]
        if terms.use_after is not None:
            self._count("cooled off")
            began = at - timedelta(seconds=terms.use_after)
            for number in range(len(asked.votes) + 1):
                later = asked.votes[number:]
                if later and _time(later[0]["at"]) <= began:
                    continue
                if self._lacks_votes(replace(asked, votes=asked.votes[:number]), None):
                    return [f"by its {number} first votes too few had agreed for so long"]
        return []

    def _is_broken(self, asked: _Asked, start: datetime | None) -> bool:
        """Whether a person who may has let the call run alone."""
        assert asked.approval is not None, "only of what several vote on"
        role = asked.approval.terms.glass
        return role is not None and any(
            each.get("break_glass")
            and each["type"] == "approve"
            and each.get("note")
            and each.get("represents") is None
            and self._had(each, role)
            and (start is None or self._roles.may_have(each["login"], role, start))
            for each in self._counted(asked, at_start=start is not None)
        )

    def _lacks_rejections(self, asked: _Asked) -> list[str]:
        assert asked.approval is not None, "only of what several vote on"
        roles = {role for way in asked.approval.ways for role in way}
        rejected = [
            each["login"]
            for each in self._counted(asked)
            if each["type"] == "reject" and any(self._had(each, role) for role in roles)
        ]
        few = len(rejected) < asked.approval.deny
        return [f"{rejected} have rejected, {asked.approval.deny} must"] if few else []

    def _lacks_votes(self, asked: _Asked, start: datetime | None) -> list[str]:
        """Why nobody could say that the votes are enough; empty if they are.

        Who has voted had the role then, and still has it at the start of the call.
        """
        approval = asked.approval
        assert approval is not None, "only of what several vote on"
        counted = self._counted(asked, at_start=start is not None)
        if self._is_broken(asked, start):
            return []
        roles = {role for way in approval.ways for role in way}
        against = [
            each
            for each in counted
            if each["type"] == "reject" and any(self._surely_had(each, role) for role in roles)
        ]
        if len(against) >= approval.deny:
            return [f"{len(against)} persons had rejected it"]
        agreed = [each for each in counted if each["type"] == "approve"]

        def may_stand(vote: Mapping[str, Any], role: str) -> bool:
            still = start is None or self._had(vote, role, start)
            return self._had(vote, role) and still

        if self._can_be_given(approval, agreed, may_stand):
            return []
        who = ", ".join(each["login"] for each in agreed) or "nobody"
        return [f"{approval} must agree, and of persons who count {who} did"]

    def _had(self, vote: Mapping[str, Any], role: str, at: datetime | None = None) -> bool:
        """Whether the vote may count for a role, at the time of the vote or another one."""
        when, by = at or _time(vote["at"]), vote.get("represents")
        if by is None:
            return self._roles.may_have(vote["login"], role, when)
        given = self._delegations.get(by["delegation"])
        return (
            given is not None
            and given.holds(when)
            and role in given.roles
            and self._roles.person(given.getter) == self._roles.person(vote["login"])
            and self._roles.person(given.giver) == by["person"]
            and self._roles.may_have(given.giver, role, when)
        )

    def _surely_had(self, vote: Mapping[str, Any], role: str) -> bool:
        if vote.get("represents") is not None:
            return False  # nobody can be sure of it
        return self._roles.surely_has(vote["login"], role, _time(vote["at"]))

    def _can_be_given(
        self, approval: ApprovalSpec, votes: Sequence[Mapping[str, Any]], may_stand: Any
    ) -> bool:
        """Whether each place of one of the ways can be given to another vote: all are tried.

        Nobody stands for two of them, neither as who votes nor as who is represented.
        """
        for way in approval.ways:
            places = [role for role, number in way.items() for _ in range(number)]
            for chosen in permutations(votes, len(places)):
                persons = [self._persons(each) for each in chosen]
                if len(frozenset().union(*persons)) == sum(map(len, persons)) and all(
                    may_stand(vote, role) for vote, role in zip(chosen, places, strict=True)
                ):
                    return True
        return False

    # ------------------------------------------------------------------------ the verdict

    def entered(self, body: Entered) -> None:
        """Judge a body that was entered, once all that was recorded before is read."""
        call = self._calls.get(body.call_key)
        if call is None or call.started is None:
            self._note(f"{body.call_key} was entered, and no record says that it starts")
            return
        self._count("entered")
        for each in self._lacks(body, call, call.started):
            self._note(f"{body.call_key}, {body.tool}({dict(body.arguments)}): {each}")

    def _lacks(self, body: Entered, call: _Call, at: datetime) -> Iterator[str]:
        if body.newest is not None:
            self._count("entered by rules of a version")
            version = None if body.rules is None else body.rules.version
            if version is None or version < body.newest:
                yield f"its host has rules version {version}, and {body.newest} hold"
        amount = int(body.arguments.get("amount", 0))
        rules = body.rules or RulesSpec(())
        matching = [each for each in rules.rules if each.matches(body.tool, amount, body.agents)]
        for each in matching:
            if each.kind == "deny":
                yield f"the rule {each.name!r} denies it"
        wanted = {each.name: each.approval for each in matching if each.kind == "ask"}
        if not matching and rules.default == "ask":
            wanted[OF_DEFAULT] = None
        for name, approval in wanted.items():
            if not any(
                asked.source == RULE + name and asked.approval == approval
                for asked in call.asked.values()
            ):
                yield f"the rule {name!r} has asked nobody"
        own = [each for each in call.asked.values() if each.kind == "approval"]
        if body.tool in self._gates and not any(
            not each.source.startswith(RULE) and each.approval == self._gates[body.tool]
            for each in own
        ):
            yield "its gate has asked nobody"
        for asked in call.asked.values():
            if asked.request.get("question_key") or asked.kind == "interrupt":
                continue
            decision = asked.decision
            if decision is None or decision["type"] not in AGREED:
                yield f"nobody has approved {asked.what}"
                continue
            self._count("entered after a decision")
            shown = decision.get("arguments") or asked.request["arguments"]
            if shown != body.arguments:
                yield f"{asked.what} was decided about with {shown}"
            if decision.get("by_grant") is not None:
                self._count("entered by a grant")
                for why in self._lacks_grant(asked, body, call, at):
                    yield f"{asked.what}, by a grant: {why}"
            elif asked.approval is not None:
                self._count("entered after votes")
                if any(each.get("represents") for each in asked.votes):
                    self._count("entered by a vote for another")
                yield from self._too_late(asked, at)
                for why in self._lacks_votes(asked, at):
                    yield f"{asked.what}: {why}"

    def _too_late(self, asked: _Asked, at: datetime) -> Iterator[str]:
        assert asked.approval is not None, "only of what several vote on"
        soon = asked.approval.terms.use_within
        if soon is not None and asked.decided is not None:
            self._count("started soon")
            if at > asked.decided + timedelta(seconds=soon):
                yield f"{asked.what} was approved at {asked.decided}, and starts at {at}"

    def _lacks_grant(
        self, asked: _Asked, body: Entered, call: _Call, at: datetime
    ) -> Iterator[str]:
        """Why the grant by which a call has started does not let it through."""
        assert asked.decision is not None, "seen before"
        grant = self._grants.get(asked.decision["by_grant"])
        if grant is None:
            yield "nobody has given it"
            return
        given, now, terms = grant.asked.request, asked.request, grant.terms
        same = ("tool_name", "agent_path", "source", "approval", "offer")
        for name in (each for each in same if given.get(each) != now.get(each)):
            yield f"it is for another {name}"
        free, match = (given.get("offer") or {}).get("free"), terms.get("match")
        held = set(given["arguments"]) - set(free or ()) if match is None else set(match)
        if any(body.arguments.get(name) != given["arguments"].get(name) for name in held):
            yield f"it is for {given['arguments']}"
        if grant.until is not None and at >= grant.until:
            yield f"it had ended at {grant.until}"
        if grant.revoked is not None and grant.revoked < call.started_by:
            yield "it was revoked"
        run_id = _run_of(now)
        in_run = run_id == grant.run_id or run_id.startswith(f"{grant.run_id}.")
        is_inside = len(given["agent_path"]) > 1
        if (terms.get("scope", "run") or ("run" if is_inside else "agent")) == "run" and not in_run:
            yield "it is for another run"
        grant.entered.add(body.call_key)
        uses = terms.get("uses")
        if uses is not None and len(grant.entered) > uses:
            yield f"it is for {uses} calls, and lets {len(grant.entered)} through"
        if asked.approval is not None:
            yield from self._lacks_votes(replace(asked, votes=grant.asked.votes), at)

    def at_rest(self) -> None:
        """Judge an agent whose run waits for people: each request that is open lacks something."""
        if self._status != "interrupted" or not self._is_open:
            return
        waiting = [
            asked
            for call in self._calls.values()
            if not call.ended
            for asked in call.asked.values()
            if asked.decision is None
        ]
        if not waiting:
            self._note("the run waits for people, and nobody is asked")
        for asked in waiting:
            if asked.approval is None:
                continue
            self._count("at rest with votes" if asked.votes else "at rest")
            counted = self._counted(asked, at_start=True)
            agreed = [each for each in counted if each["type"] == "approve"]
            rejected = [each for each in counted if each["type"] == "reject"]

            if asked.approval.terms.use_after is not None:
                continue  # they may be enough, and not for so long
            if not rejected and self._can_be_given(asked.approval, agreed, self._surely_had):
                who = ", ".join(each["login"] for each in agreed)
                self._note(f"{asked.what} waits, and {who} are enough for {asked.approval}")

    def refused(self, request_id: str, login: str, now: datetime) -> None:
        """Judge that somebody was not let vote, where the directory answered."""
        found = self._of(request_id)
        if found is None or found.approval is None or found.decision is not None:
            return
        given = {"login": login, "at": now.isoformat()}
        asked = replace(found, votes=[given])
        assert asked.approval is not None, "seen above"
        person = self._roles.person(login)
        if any(person in self._persons(each) for each in found.votes if each.get("represents")):
            return  # who has voted for them counts as they
        roles = {role for way in asked.approval.ways for role in way}
        has_role = any(self._roles.surely_has(login, role, now) for role in roles)
        is_known = asked.request.get("requesters") is not None
        if has_role and is_known and self._counted(asked, at_start=True):
            self._note(f"{login} may vote on {asked.what}, and was refused")

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _note(self, what: str) -> None:
        self.violations.append(what)


def _run_of(request: Mapping[str, Any]) -> str:
    """The id of the run that asks."""
    return str(request["run_id"])


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
