"""Which calls with effects a run has finished: what a failed agent tells of what it did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Any, Protocol

from pydantic import PlainSerializer
from pydantic_core import to_json

from understudy.interrupts import DoubtfulCall

MOST = 20
"""So many calls are kept of a run: the newest ones. The others are counted."""
MOST_CHARACTERS = 200
STANDS = "It has done, and this stands:"
NOT_KNOWN = "Nobody knows whether these took effect:"


def shortened(arguments: object) -> str:
    """Arguments as JSON; the first characters of them."""
    text = arguments if isinstance(arguments, str) else to_json(arguments or {}).decode()
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."


@dataclass(slots=True)  # not frozen, which takes 4 times as long for each call
class DoneCall:
    """A finished call with effects, or one that has done something and was not finished."""

    tool_name: str
    arguments: Annotated[Any, PlainSerializer(shortened, return_type=str)]
    """As they ran. Stored, they are text: the first characters of their JSON."""
    agent: str = ""
    """The agent that made it, of one whose run is inside this one; empty for the run's own."""
    in_part: str = ""
    """What it had done when it ended; empty for a call that was finished."""

    def __str__(self) -> str:
        call = f"{self.tool_name}({shortened(self.arguments)})"
        call = f"{self.agent}: {call}" if self.agent else call
        return f"{call} in part: {self.in_part}" if self.in_part else call


@dataclass(slots=True)
class DoneCalls:
    """The finished calls with effects of a run, and of the agents inside it that have ended."""

    newest: list[DoneCall] = field(default_factory=list)
    """Oldest first."""
    others: int = 0
    """How many came before them."""

    def add(self, call: DoneCall) -> None:
        """One more is finished."""
        newest = self.newest
        newest.append(call)
        if len(newest) > MOST:
            del newest[0]
            self.others += 1

    def add_agent(self, agent: str, inside: DoneCalls) -> None:
        """Add those of an agent inside."""
        self.others += inside.others
        for done in inside.newest:
            self.add(done if done.agent else replace(done, agent=agent))

    def copied(self) -> DoneCalls:
        """To be added to for itself; a finished call does not change."""
        return DoneCalls(list(self.newest), self.others)

    def __bool__(self) -> bool:
        return bool(self.newest)


class Continues(Protocol):
    """What is needed of a `Continued`, which is defined above."""

    @property
    def since(self) -> datetime | None:
        """When the first of the failed runs that it continues started."""


class RunWithDone(Protocol):
    """What is needed of a `RunState`, which is defined above."""

    @property
    def run_id(self) -> str:
        """Its id."""

    @property
    def agent(self) -> str:
        """The agent's name."""

    @property
    def done(self) -> DoneCalls | None:
        """Its finished calls with effects; None where there is none."""

    @property
    def continues(self) -> Continues | None:
        """The failed run that it continues."""


class StateWithDone(Protocol):
    """What is needed of an `AgentState`, which is defined above."""

    @property
    def run(self) -> RunWithDone | None:
        """Its last run."""

    @property
    def doubts(self) -> Mapping[str, DoubtfulCall]:
        """By call key, the calls whose outcome is unknown."""

    @property
    def children(self) -> Mapping[str, StateWithDone]:
        """The agents that it runs."""


def whole_arguments(done: DoneCall) -> str | None:
    """Its arguments as JSON; None where only the first characters of them are kept."""
    text = shortened(done.arguments)
    return None if text.endswith("...") else text


def done_in(state: StateWithDone) -> DoneCalls:
    """What the last run of this state has done, with the agents that it runs now."""
    run = state.run
    done = DoneCalls() if run is None or run.done is None else run.done.copied()
    for child in state.children.values():
        if child.run is not None:
            done.add_agent(child.run.agent, done_in(child))
    return done


def doubts_in(state: StateWithDone) -> Iterator[DoubtfulCall]:
    """The calls in doubt of the last run of this state, and of the agents that it runs now."""
    run = state.run
    if run is None:
        return
    since = None if run.continues is None else run.continues.since
    for key, doubt in state.doubts.items():
        # One of a failed run that this one continues has the id of that.
        is_own = key.startswith(f"{run.run_id}.")
        if is_own or (since is not None and doubt.since >= since):
            yield doubt
    for child in state.children.values():
        yield from doubts_in(child)


def what_it_did(state: StateWithDone) -> str:
    """What the last run of this state has done, and what it may have done; empty if nothing."""
    run = state.run
    if run is None:
        return ""
    lines = _lines(STANDS, done_in(state))
    lines += _lines(NOT_KNOWN, doubtful(doubts_in(state), agent=run.agent))
    return "\n".join(lines)


def doubtful(doubts: Iterable[DoubtfulCall], *, agent: str) -> DoneCalls:
    """Calls in doubt, as those that are done are told.

    Args:
        doubts: the calls.
        agent: whose run it is that tells of them.

    """
    calls = DoneCalls()
    for doubt in doubts:
        by = "" if doubt.agent == agent else doubt.agent
        calls.add(DoneCall(doubt.tool_name, doubt.arguments, by))
    return calls


def _lines(title: str, calls: DoneCalls) -> list[str]:
    """The calls by tool, for a model or a person."""
    if not calls:
        return []
    by_tool: dict[tuple[str, str], list[DoneCall]] = {}
    for call in calls.newest:
        by_tool.setdefault((call.agent, call.tool_name), []).append(call)
    lines = [title, *(f"- {call}" for each in by_tool.values() for call in each)]
    return [*lines, f"- and {before(calls)}"] if calls.others else lines


def in_a_sentence(calls: DoneCalls) -> str:
    """The calls in one line, for a model or a person; empty if there is none."""
    parts = [str(call) for call in calls.newest]
    return ", ".join([*parts, f"and {before(calls)}"] if calls.others else parts)


def before(calls: DoneCalls) -> str:
    """How many came before the newest ones, in words."""
    return "1 call before these" if calls.others == 1 else f"{calls.others} calls before these"
