"""`Story`: the acts of callers and persons with agents whose hosts are killed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from understudy._base.json_values import digest, shown
from understudy.agent.agent import Agent
from understudy.errors import AlreadyDecided, NotInterrupted, Quarantined, UnknownAgent, UsageError
from understudy.interrupts import Decision, Request, approve, reject, respond
from understudy.outcomes import Completed, Failed, Interrupted, Outcome, Stopped, Waiting
from understudy.state.next_due import next_due
from understudy.testing.effects import Effects
from understudy.testing.people import FakePeople
from understudy.testing.points import Entry, Watch
from understudy.testing.remote import FakeRemote
from understudy.testing.story_hosts import Hangs, Killed, Setting, StoryHost

DoubtAnswer = Literal["truthfully", "run it again"] | Callable[[Request], Decision]
"""How the persons of a story answer a request about a call in doubt."""

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_SPAN = re.compile(r"(\d+(?:\.\d+)?) (second|minute|hour|day|week)s?")
KNOWN_FOR = 61.0
"""Seconds after which a runtime looks a person up again."""
MOST_STEPS = 50
"""The maximum number of times that a call is continued. A longer story counts as endless."""


class StoryFailed(AssertionError):
    """A play of a story has failed. Its text is the story, with the place of the failure marked."""


class Story:
    """The agents and hosts of a test, and the calls of a test on them. Each call waits for its
    answer.

    A call whose host is killed is repeated at the next host, under the same id, like a retry of a
    caller. `crash_points` makes stories.
    """

    effects: Effects
    """The effects so far. Effects that are counted elsewhere are not seen."""

    def __init__(
        self,
        setting: Setting,
        start: Callable[[Setting], StoryHost],
        *,
        hosts: int = 1,
        baseline: Mapping[str, tuple[str, str]] | None = None,
        is_careless: bool = False,
    ) -> None:
        self.effects = setting.effects
        self._setting = setting
        self._start = start
        self._hosts_wanted = hosts
        self._hosts: list[StoryHost] = []
        self._has_started = self._turn = 0
        self._baseline = baseline
        self._is_careless = is_careless
        self._ids: list[str] = []
        """The agents of the story, in the order in which they were spawned."""
        self._definitions: dict[str, str] = {}
        self._messages = self._kills = 0
        self._votes: dict[str, list[_Vote]] = {}
        """The votes of persons, by agent and equal call. They are cast again after a doubt about a
        call that took no effect."""
        self._again: set[str] = set()
        """The calls that persons vote on again."""
        self._doubts: DoubtAnswer = "run it again" if is_careless else "truthfully"
        self._ends: dict[str, Outcome] = {}
        self.is_finished: bool = False
        """Whether `finish` has ended the hosts."""
        self._is_finishing = False

    # ------------------------------------------------------------------- what a test calls

    def spawn(self, agent: Agent[Any, Any], *, id: str | None = None, deps: Any = None) -> str:
        """Spawn an agent, and return its id.

        Args:
            agent: the definition.
            deps: the deps of its tools, at each host. With `kill="process"` each process has a
                copy.
            id: the id; by default the name of the definition, with a number from the second
                agent on.

        Returns:
            The id.

        Raises:
            UsageError: if it is not an agent, or the story has another definition of this name:
                use `deploy`.

        """
        name = _checked(agent, "spawn").name
        if self._setting.agents.setdefault(name, agent) is not agent:
            raise UsageError(
                f"story.spawn: the story has another agent {name!r} already: spawn the same object "
                "again, or put the new one in its place by story.deploy(agent)"
            )
        number = 1 + sum(each == name for each in self._definitions.values())
        id = id or (name if number == 1 else f"{name}-{number}")
        if id in self._definitions:
            raise UsageError(f"story.spawn: an agent {id!r} is in the story already")
        self._definitions[id] = name
        if deps is not None:
            self._setting.deps[id] = deps
        self._ids.append(id)
        self._end_hosts()  # the next host knows the definition
        return id

    def remote(
        self, *, dedupe: bool = False, lookup: bool = True, fails: Any = (), verb: str = "done"
    ) -> FakeRemote:
        """Make a remote service whose effects are the story's effects. See `FakeRemote`."""
        return FakeRemote(
            dedupe=dedupe, lookup=lookup, fails=fails, verb=verb, effects=self.effects
        )

    def say(self, prompt: Any, *, to: str | None = None, **options: Any) -> Outcome:
        """Send a message to an agent, wait for its run, and return the outcome.

        Args:
            prompt: the message.
            to: the id of the agent; by default the only agent.
            options: as in `AgentRef.run`.

        """
        id, message_id = self._only(to), self._next_message()
        self._note("say", id, shown(prompt))
        return self._outcome(
            id, lambda host: host.do("run", self._definitions[id], id, prompt, message_id, options)
        )

    def send(self, prompt: Any, *, to: str | None = None, **options: Any) -> str:
        """Send a message to an agent, wait until it is recorded, and return its id.

        Args:
            prompt: the message.
            to: the id of the agent; by default the only agent.
            options: as in `AgentRef.send`.

        """
        id, message_id = self._only(to), self._next_message()
        self._note("send", id, shown(prompt))
        answer: str = self._do(
            lambda host: host.do("send", self._definitions[id], id, prompt, message_id, options)
        )
        return answer

    def steer(self, prompt: Any, *, to: str | None = None) -> str:
        """Add a message to the current run, and return its id."""
        return self.send(prompt, to=to, steer=True)

    def answer(
        self,
        decision: Decision | Callable[[Request], Decision],
        *,
        to: str | None = None,
        tool: str | None = None,
    ) -> Outcome:
        """Decide the pending requests, and wait for the outcome of the run.

        Args:
            decision: the decision on each of them; or a function of the request that returns
                it.
            to: the id of the agent; by default the only agent.
            tool: only requests about this tool.

        Raises:
            StoryFailed: if no such request is pending, and none was answered before a host of
                the story was killed.
            UsageError: if it is not a decision.

        """
        if not isinstance(decision, Decision) and not callable(decision):
            raise UsageError(
                "story.answer takes a decision, such as approve(), or a function of the request, "
                f"got {shown(decision)}"
            )
        id = self._only(to)
        outcome = self.outcome(of=id)
        requests = outcome.requests if isinstance(outcome, Interrupted) else ()
        wanted = [each for each in requests if tool in (None, each.tool_name)]
        if not wanted:
            raise StoryFailed(
                f"story.answer: no request {f'about {tool!r} ' if tool else ''}is pending: the "
                f"outcome is {_shown(outcome)}"
            )
        decisions = {each.id: decision(each) if callable(decision) else decision for each in wanted}
        said = ", ".join(f"{decisions[each.id].type} {each.tool_name}" for each in wanted)
        self._note("answer", id, said)
        return self._outcome(id, lambda host: host.do("resume", id, decisions))

    def vote(
        self,
        by: str,
        decision: Decision | None = None,
        *,
        to: str | None = None,
        assurance: Literal["host", "login"] = "host",
    ) -> Outcome | None:
        """Vote as a person on the requests of an agent that need several votes.

        Args:
            by: the login name of the person.
            decision: the vote; by default to approve.
            to: the id of the agent; by default the only agent.
            assurance: the source of the identity: `"login"` for a login of the pages.

        Returns:
            The outcome of the run.

        Raises:
            StoryFailed: if no request is pending.
            UsageError: if `assurance` is anything else.

        """
        if assurance not in ("host", "login"):
            raise UsageError(
                f"story.vote(assurance=...) must be 'host' or 'login', got {shown(assurance)}"
            )
        id = self._only(to)
        vote = replace(decision or approve(), by=by)
        outcome = self.outcome(of=id)
        requests = outcome.requests if isinstance(outcome, Interrupted) else ()
        decisions = {each.id: vote for each in requests}
        if not decisions:
            raise StoryFailed(f"story.vote: nothing is pending: the outcome is {_shown(outcome)}")
        self._note("vote", id, f"{by}: {vote.type}")
        login = by if assurance == "login" else None
        for each in requests:
            self._votes.setdefault(_equal_of(id, each), []).append(_Vote(vote, login))
        self._do_once(lambda host: host.do("decide", id, decisions, login), id)
        return self._outcome(id, lambda host: host.do("outcome", id))

    def lose_role(self, name: str, role: str) -> None:
        """Take a role from a person of `people`, and wait until the runtime sees it.

        Raises:
            UsageError: if the story has no `FakePeople`.

        """
        if not isinstance(self._setting.options.get("people"), FakePeople):
            raise UsageError(
                "story.lose_role needs persons whose roles can change: "
                "@crash_points(people=FakePeople({...}))"
            )
        self._note("lose_role", text=f"{name}: {role}")
        is_done = False

        def lose(host: StoryHost) -> None:
            nonlocal is_done
            if not is_done:
                is_done = True
                host.do("people", "lose_role", name, role)

        self._do(lose)
        self.wait(KNOWN_FOR)

    def answer_doubts(self, how: DoubtAnswer) -> None:
        """Say how persons answer requests about calls in doubt, from now on.

        Args:
            how: `"truthfully"`, the default: they look into `effects`, and respond with what
                has happened, or let the call run if nothing has. If that needs new votes, they
                reject the call, and the same persons vote on the next equal call again.
                `"run it again"`: they let it run in any case. Or a function of the request that
                returns the decision. A decision without `by=` counts as made by the last person
                who voted.

        """
        if not callable(how) and how not in ("truthfully", "run it again"):
            raise UsageError(
                "story.answer_doubts takes 'truthfully', 'run it again', or a function of the "
                f"request, got {shown(how)}"
            )
        if not self._is_careless:
            self._doubts = how

    def cancel(self, *, to: str | None = None) -> Outcome | None:
        """Cancel the run of an agent, and return its outcome; None if the agent got no
        message yet.
        """
        id = self._only(to)
        self._note("cancel", id)
        with suppress(UnknownAgent):
            outcome: Outcome | None = self._do(lambda host: host.do("cancel", id))
            return outcome
        return None

    def wait(self, span: str | timedelta | float) -> None:
        """Let time pass by the clock of the story, with everything that is due in it.

        Args:
            span: `"3 days"`, a timedelta, or seconds.

        Raises:
            UsageError: if the span is none of these, or below zero.

        """
        seconds = _seconds(span)
        self._note("wait", text=shown(span))
        self._advance(self._setting.clock.now() + timedelta(seconds=seconds))
        self._rest()

    def deploy(self, *agents: Agent[Any, Any]) -> None:
        """Stop the host in order, and start a host with these definitions instead of the old ones.

        Args:
            agents: the new versions, with the names of the old versions; none for a mere
                restart.

        """
        for agent in agents:
            if _checked(agent, "deploy").name not in self._setting.agents:
                raise UsageError(f"story.deploy: no agent {agent.name!r} is in the story: spawn it")
            self._setting.agents[agent.name] = agent
        self._note("deploy", text=", ".join(agent.name for agent in agents))
        self._end_hosts()
        self._rest()

    def finish(self) -> None:
        """Wait until no run is in progress, and end the hosts. Time passes for runs that sleep."""
        self._is_finishing = True
        self._rest()
        # Race: the point at which the host is killed may be behind the answer to the last call.
        while self._end_hosts():
            self._rest()
        self.is_finished, self._is_finishing = True, False

    def outcome(self, *, of: str | None = None) -> Outcome | None:
        """Return the outcome of the run of an agent; None if the agent got no message yet."""
        id = self._only(of)
        with suppress(UnknownAgent):
            return self._outcome(id, lambda host: host.do("outcome", id))
        return None

    def same_outcome(self) -> None:
        """Assert that each agent has the outcome that it has if no host is killed.

        If a call that must not be repeated was cut off, the model is informed that nobody knows
        what it did. Outcomes of agents with such a doubt may differ.

        Raises:
            AssertionError: if an outcome differs.

        """
        __tracebackhide__ = True
        if not self.is_finished:
            self.finish()
        if self._baseline is None or self._setting.watch.doubts():
            return
        for id, outcome in self._ends.items():
            found, wanted = _compared(outcome), self._baseline.get(id)
            if found != wanted:
                raise AssertionError(f"{id} ends as {found}, and undisturbed as {wanted}")

    # ------------------------------------------------------------------- for the plays

    def ends(self) -> dict[str, tuple[str, str]]:
        """Return the outcomes of the last runs by agent id, in the form in which they are
        compared.
        """
        return {id: _compared(outcome) for id, outcome in self._ends.items()}

    def destroy(self) -> None:
        """End what is still running. Raises nothing."""
        for host in self._hosts:
            with suppress(Hangs, Killed):
                host.end()
        self._hosts = []

    # ------------------------------------------------------------------- how it is done

    @property
    def _watch(self) -> Watch:
        return self._setting.watch

    def _note(self, verb: str, agent: str = "", text: str = "") -> None:
        self._watch.note(Entry(what=verb, agent=agent, text=text))

    def _next_message(self) -> str:
        self._messages += 1
        return f"story-{self._messages}"

    def _only(self, id: str | None) -> str:
        if id is None:
            if len(self._ids) != 1:
                raise UsageError(
                    f"which agent? The story has {', '.join(self._ids) or 'none'}: name it by `to=`"
                )
            return self._ids[0]
        if id not in self._definitions:
            raise UsageError(f"no agent {id!r} is in the story: {', '.join(self._ids) or 'none'}")
        return id

    def _there(self) -> StoryHost:
        """A living host: each in turn. Missing hosts are started."""
        while True:
            self._hosts = [host for host in self._hosts if host.is_there()]
            if len(self._hosts) == self._hosts_wanted:
                self._turn += 1
                return self._hosts[self._turn % len(self._hosts)]
            again = " again" if self._has_started >= self._hosts_wanted else ""
            self._note("host", text=f"starts{again}")
            self._has_started += 1
            with suppress(Killed):
                host = self._start(self._setting)
                self._hosts.append(host)  # from here on `destroy` ends it in any case
                host.do("recover")

    def _end_hosts(self) -> bool:
        """End the living hosts. Returns whether one of them was killed before it had ended."""
        hosts, self._hosts = self._hosts, []
        ended = [host.end() for host in hosts if host.is_there()]
        return any(ended)

    def _do(self, ask: Callable[[StoryHost], Any]) -> Any:
        """Ask a host, and the next host if the first is killed before it has answered."""
        self.is_finished = False
        while True:
            host = self._there()
            try:
                return ask(host)
            except Killed:
                self._kills += 1

    def _outcome(self, id: str, ask: Callable[[StoryHost], Any]) -> Outcome:
        """The outcome of a run, once the doubts that a kill leaves are answered."""
        outcome: Outcome = self._do_once(ask, id)
        for _ in range(MOST_STEPS):
            if isinstance(outcome, Failed) and isinstance(outcome.error, Quarantined):
                outcome = self._do_once(lambda host: host.do("retry", id), id)
                continue
            if isinstance(outcome, Waiting) and self._passes(outcome):
                outcome = self._do_once(lambda host: host.do("outcome", id), id)
                continue
            if self._vote_again(id, outcome):
                outcome = self._do_once(lambda host: host.do("outcome", id), id)
                continue
            doubts = self._doubtful(outcome)
            if not doubts:
                self._ends[id] = outcome
                return outcome
            decisions = {each.id: self._decision(each) for each in doubts}
            said = ", ".join(f"{decisions[each.id].type} {each.tool_name}" for each in doubts)
            self._note("doubt", id, said)
            login = None
            for each in doubts:
                call, given = _equal_of(id, each), decisions[each.id]
                voters = self._votes.get(call, ())
                if given.by is None and voters:  # a voter may say what the call did
                    given = replace(given, by=voters[-1].vote.by)
                    decisions[each.id], login = given, voters[-1].login
                if given.type == "reject" and "approve" not in each.allowed:
                    self._again.add(call)
            outcome = self._do_once(
                lambda host: host.do("resume", id, decisions, login),  # noqa: B023
                id,
            )
        raise AssertionError(f"{id} comes to no end: its outcome is {_compared(outcome)} again")

    def _passes(self, outcome: Waiting) -> bool:
        """Let the time pass until the run continues, if it will. Returns whether time has passed.

        A call in doubt is checked after a minute. The callers of a story do not wait for that.
        """
        due = next_due(outcome.state)
        if due is None or not (
            self._is_finishing or all(wait.kind == "check" for wait in outcome.waits)
        ):
            return False
        self._advance(due)
        return True

    def _advance(self, to: datetime) -> None:
        clock = self._setting.clock

        def advance(host: StoryHost) -> None:
            left = (to - clock.now()).total_seconds()
            if left > 0:
                host.do("advance", left)

        self._do(advance)

    def _do_once(self, ask: Callable[[StoryHost], Any], id: str) -> Any:
        """Ask a host. If it is repeated after a kill, it may find that the act was done before."""
        kills = self._kills
        try:
            return self._do(ask)
        except NotInterrupted:
            if self._kills == kills:
                raise
            return self._do(lambda host: host.do("outcome", id))

    def _doubtful(self, outcome: Outcome) -> list[Request]:
        if not isinstance(outcome, Interrupted):
            return []
        return [
            each
            for each in outcome.requests
            if each.kind == "doubt" or (each.doubts and each.approval is None)
        ]

    def _vote_again(self, id: str, outcome: Outcome) -> bool:
        """Cast the votes of a call that took no effect on the call that the model made instead."""
        requests = outcome.requests if isinstance(outcome, Interrupted) else ()
        wanted = [
            each
            for each in requests
            if each.approval is not None and _equal_of(id, each) in self._again
        ]
        for each in wanted:
            call = _equal_of(id, each)
            self._again.discard(call)
            for vote, login in self._votes.get(call, ()):
                self._note("vote", id, f"{vote.by}: {vote.type}, again")
                decisions = {each.id: vote}
                with suppress(AlreadyDecided):
                    self._do_once(lambda host: host.do("decide", id, decisions, login), id)  # noqa: B023
        return bool(wanted)

    def _decision(self, request: Request) -> Decision:
        if callable(self._doubts):
            return self._doubts(request)
        again = approve() if "approve" in request.allowed else reject()
        if self._doubts == "run it again":
            return again
        keys = [request.call_key, *(each.call_key for each in request.doubts)]
        for key in keys:
            if happened := self._watch.happened(key):
                return respond(happened[0])
        if unknown := self._watch.effects_of_unknown_calls():
            raise UsageError(
                f"whether the call of {request.tool_name!r} in doubt had the effect {unknown[0]!r} "
                "cannot be known, since several calls were under way: give the effect its key, "
                "effects.add(what, key=ctx.call_key), or say how by story.answer_doubts(...)"
            )
        return again

    def _rest(self) -> None:
        """Wait until no agent has a run under way."""
        before = -1
        # An agent may have got a message from another agent whose run ended later.
        while before != (before := len(self._watch.entries)):
            for id in self._ids:
                if id in self._ends or self._messages:
                    self._end_of(id)

    def _end_of(self, id: str) -> None:
        try:
            outcome = self._do(lambda host: host.do("outcome", id))
        except UnknownAgent:
            return  # it got no message yet
        if outcome is None:
            return
        plans = self._outcome(id, lambda _: outcome).state.plans
        for call in () if plans is None else plans.background.values():
            self._end_of(call.agent_id)


class _Vote(NamedTuple):
    """A vote, and the login by which it came; None without a login."""

    vote: Decision
    login: str | None


def _equal_of(id: str, request: Request) -> str:
    """The key that equal calls of an agent have in common."""
    return digest([id, request.tool_name, request.arguments])


def _checked(agent: Any, verb: str) -> Agent[Any, Any]:
    if not isinstance(agent, Agent):
        raise UsageError(f"story.{verb} takes an Agent, got {shown(agent)}")
    return agent


def _seconds(span: Any) -> float:
    if isinstance(span, timedelta):
        span = span.total_seconds()
    elif isinstance(span, str) and (found := _SPAN.fullmatch(span)) is not None:
        return float(found[1]) * _UNITS[found[2]]
    is_number = isinstance(span, (int, float)) and not isinstance(span, bool)
    if not is_number or not 0 <= span < math.inf:
        raise UsageError(
            "story.wait takes a span as '3 days' or '90 seconds', a timedelta, or seconds from 0 "
            f"on, got {shown(span)}"
        )
    return float(span)


def _shown(outcome: Outcome | None) -> str:
    return "none: nothing was said to it yet" if outcome is None else f"{_compared(outcome)}"


def _compared(outcome: Outcome | None) -> tuple[str, str]:
    """An outcome, in the form that is compared and shown."""
    match outcome:
        case Completed(text=text):
            return "Completed", text or ""
        case Failed(error=error):
            return "Failed", error.message
        case Stopped():
            return "Stopped", ""
        case Interrupted(requests=requests):
            return "Interrupted", ", ".join(each.tool_name for each in requests)
    return type(outcome).__name__, ""
