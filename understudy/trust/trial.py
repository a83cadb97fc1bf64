"""`Trial`: tries rules on the calls that agents have made.

People who change rules cannot see the effect of a change. The records have the arguments of each
call, the agent, and who had asked. So they show what other rules would have said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from understudy._base.authors import shown_author
from understudy.models.call_arguments import invalid_json
from understudy.state.agent_state import AgentState
from understudy.state.fold import apply
from understudy.state.records import Record, Result, Snapshot, agents_inside, innermost
from understudy.state.run_state import Call
from understudy.trust.rules import DENIED_BY_RULE, CallView, Rules

Fate = Literal["denied", "asked", "unasked"]
"""The fate of a call: what happened, or would happen under the tried rules."""
Change = Literal["newly_denied", "newly_asked", "newly_unasked", "no_longer_denied", "asked_others"]
"""The change of a call's fate. `newly_denied`: it ran, or persons were asked. `newly_asked`: it ran
without being asked about. `newly_unasked`: it was denied or asked about, and would run.
`no_longer_denied`: persons would be asked. `asked_others`: persons were asked, and others or more
or fewer would be."""
CHANGES: tuple[Change, ...] = (
    "newly_denied",
    "newly_asked",
    "newly_unasked",
    "no_longer_denied",
    "asked_others",
)
EXAMPLES = 5
"""The maximum number of kept examples of each change."""


class KnownTool(NamedTuple):
    """The facts of today's definition about a recorded call."""

    names: tuple[str, ...]
    """The name of the tool, and its earlier names."""
    arguments: Mapping[str, Any]
    """The arguments as rules see them: validated, with defaults."""


Known = Callable[[tuple[str, ...], str, Mapping[str, Any]], KnownTool | str]
"""A function that finds the tool of a call by the names of its agents, the tool's name and its
arguments; or returns the kind of untriable calls to which this call belongs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedCall:
    """A call on which the tried rules disagree with what happened."""

    change: Change
    """The kind of difference."""
    agent_id: str
    """The id of the outermost agent."""
    agent_path: tuple[str, ...]
    """The names of the agents from the outermost to the agent that made the call."""
    call_key: str
    """The key of the call."""
    tool: str
    """The name of the tool."""
    at: datetime | None
    """The recorded time of the call; None if it is not known."""
    before: Fate
    """What happened to the call."""
    now: Fate
    """What would happen under the tried rules."""
    rules: tuple[str, ...]
    """The names of the rules that decide this now; empty if no rule does."""

    def to_dict(self) -> dict[str, Any]:
        """Return the call as plain data."""
        return {
            "change": self.change,
            "agent_id": self.agent_id,
            "agent_path": list(self.agent_path),
            "call": self.call_key,
            "tool": self.tool,
            "at": None if self.at is None else self.at.isoformat(),
            "before": self.before,
            "now": self.now,
            "rules": list(self.rules),
        }


@dataclass(slots=True)
class Trial:
    """A trial of rules on recorded calls. Give it the records of each agent through `of_agent`.

    Args:
        rules: the rules to try.
        since: a time; calls that ended earlier are left out. None = all calls.
        known: finds tools of today's definitions. None = arguments are taken as recorded,
            without the defaults of the tool.

    """

    rules: Rules
    since: datetime | None = None
    known: Known | None = None
    agents: int = 0
    """The number of agents that were read."""
    calls: int = 0
    """The number of calls that were tried."""
    by_tool: dict[str, Counter[str]] = field(default_factory=dict)
    """The counts by tool.

    `calls` is the number of calls. `denied_before`, `asked_now` and so on count what happened to
    them. Each change has a count too.
    """
    examples: dict[Change, list[TriedCall]] = field(default_factory=dict)
    """The first calls of each change."""
    untried: Counter[str] = field(default_factory=Counter)
    """The number of calls or agents that could not be tried, by reason."""
    unknown: Counter[str] = field(default_factory=Counter)
    """The number of calls for which a rule's `when` raised or took too long, by rule.

    These calls are judged on the safe side.
    """

    def of_agent(self, agent_id: str, agent: str) -> TrialOfAgent:
        """Return a reader that takes the records of an agent, in order."""
        self.agents += 1
        return TrialOfAgent(self, agent_id, agent)

    def count(self, change: Change) -> int:
        """Return the number of calls with this change."""
        return sum(counted[change] for counted in self.by_tool.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the trial as plain data."""
        return {
            "agents": self.agents,
            "calls": self.calls,
            "changes": {change: self.count(change) for change in CHANGES},
            "tools": {tool: dict(self.by_tool[tool]) for tool in sorted(self.by_tool)},
            "examples": {
                change: [each.to_dict() for each in self.examples.get(change, ())]
                for change in CHANGES
            },
            "untried": dict(self.untried),
            "when_failed": dict(self.unknown),
        }

    def note(self, tried: TriedCall | None, tool: str, before: Fate, now: Fate) -> None:
        """Count a call that was tried."""
        self.calls += 1
        counted = self.by_tool.setdefault(tool, Counter())
        counted.update(("calls", f"{before}_before", f"{now}_now"))
        if tried is not None:
            counted[tried.change] += 1
            examples = self.examples.setdefault(tried.change, [])
            if len(examples) < EXAMPLES:
                examples.append(tried)


class TrialOfAgent:
    """A reader that tries rules on the calls of an agent, and of the agents inside it."""

    def __init__(self, trial: Trial, agent_id: str, agent: str) -> None:
        self._trial = trial
        self._agent_id = agent_id
        self._agent = agent
        self._state = AgentState()

    def add(self, record: Record) -> None:
        """Take the next record. A call is tried when it has its result."""
        inside, inner = agents_inside(record), innermost(record)
        if isinstance(inner, Result):
            call = _call_of(self._state, [each.child for each in inside], inner.call_key)
            if call is not None:
                path = (self._agent, *(each.name for each in inside))
                self._try(path, call, inner, inner.at or inner.part.timestamp)
        elif isinstance(inner, Snapshot) and record is inner:
            since = self._trial.since
            if since is None or (inner.at is not None and inner.at > since):
                self._trial.untried["agents whose records were compacted in the period"] += 1
        apply(self._state, record)

    def end(self) -> None:
        """Try the calls that are still open after the last record."""
        for path, call in _open_calls(self._state, (self._agent,)):
            if call.result is None:
                self._try(path, call, None, None)

    def _try(
        self, path: tuple[str, ...], call: Call, result: Result | None, at: datetime | None
    ) -> None:
        trial, part = self._trial, call.part
        if trial.since is not None and at is not None and at < trial.since:
            return
        names: tuple[str, ...] = (part.tool_name,)
        arguments = call.made_arguments
        if invalid_json(arguments) is not None:
            trial.untried["calls whose arguments are no JSON"] += 1
            return
        if trial.known is not None:
            found = trial.known(path, part.tool_name, arguments)
            if isinstance(found, str):
                trial.untried[found] += 1
                return
            names, arguments = found.names, dict(found.arguments)
        view = CallView(
            tool=names[0],
            agent=path[-1],
            agent_id=self._agent_id,
            agent_path=path,
            run_id=call.key.partition(".")[0],
            requesters=tuple(map(shown_author, self._state.authors)),
        )
        verdict = trial.rules.verdict(names, arguments, view)
        trial.unknown.update(trial.rules.failing(names, arguments, view))
        gates, by_rules = _asked_before(call)
        before: Fate = "asked" if gates or by_rules else "unasked"
        if result is not None and _is_denied_by_rule(result):
            before = "denied"
        now: Fate = "asked" if gates else "unasked"
        if verdict.result in ("deny", "ask"):
            now = "denied" if verdict.result == "deny" else "asked"
        asked_now = {
            *(() if verdict.result != "ask" else (_text(rule.approval) for rule in verdict.rules)),
            *gates,
        }
        change = change_of(before, now, {*gates, *by_rules}, asked_now)
        tried = None
        if change is not None:
            tried = TriedCall(
                change=change,
                agent_id=self._agent_id,
                agent_path=path,
                call_key=call.key,
                tool=part.tool_name,
                at=at,
                before=before,
                now=now,
                rules=tuple(rule.name for rule in verdict.rules),
            )
        trial.note(tried, part.tool_name, before, now)


def change_of(before: Fate, now: Fate, asked: set[str], asked_now: set[str]) -> Change | None:
    """The change of a call's fate; None if it has not changed.

    Args:
        before: the fate of the call then.
        now: its fate under the tried rules.
        asked: the persons who had to agree, in words.
        asked_now: the persons who would have to agree now, in words.

    """
    if now == "denied":
        return None if before == "denied" else "newly_denied"
    if now == "unasked":
        return None if before == "unasked" else "newly_unasked"
    if before == "denied":
        return "no_longer_denied"
    if before == "unasked":
        return "newly_asked"
    return None if asked == asked_now else "asked_others"


def _asked_before(call: Call) -> tuple[set[str], set[str]]:
    """The persons who had to agree to a call, in words: by gates, and by rules."""
    gates: set[str] = set()
    rules: set[str] = set()
    for request in call.requests.values():
        if request.kind == "approval":
            (rules if request.rule else gates).add(_text(request.approval))
    return gates, rules


def _text(approval: Any) -> str:
    return "" if approval is None else str(approval.text)


def _is_denied_by_rule(result: Result) -> bool:
    content = result.part.content
    return (
        result.part.outcome == "denied"
        and isinstance(content, str)
        and content.startswith(DENIED_BY_RULE)
    )


def _call_of(state: AgentState, keys: Iterable[str], call_key: str) -> Call | None:
    for key in keys:
        child = state.children.get(key)
        if child is None:
            return None
        state = child
    calls = () if state.run is None else state.run.calls
    return next((call for call in calls if call.key == call_key), None)


def _open_calls(state: AgentState, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Call]]:
    if state.run is not None and not state.run.over and state.run.turn is not None:
        yield from ((path, call) for call in state.run.turn.calls.values())
    for child in state.children.values():
        if child.run is not None:
            yield from _open_calls(child, (*path, child.run.agent))
