"""Which calls with effects a run has finished: what a failed agent tells of what it did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol, Self

from pydantic_core import to_json

from understudy.interrupts import DoubtfulCall

MOST = 20
"""So many calls are kept of a run: the newest ones. The others are counted."""
MOST_CHARACTERS = 200
STANDS = "It has done, and this stands:"
NOT_KNOWN = "Nobody knows whether these took effect:"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneCall:
    """A finished call with effects, or one that has done something and was not finished."""

    tool_name: str
    arguments: str
    """As JSON; the first characters of them."""
    agent: str = ""
    """The agent that made it, of one whose run is inside this one; empty for the run's own."""
    in_part: str = ""
    """What it had done when it ended; empty for a call that was finished."""

    @classmethod
    def of(cls, tool_name: str, arguments: object, *, agent: str = "", in_part: str = "") -> Self:
        """With so much of the arguments as is kept."""
        text = arguments if isinstance(arguments, str) else to_json(arguments or {}).decode()
        short = text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."
        return cls(tool_name=tool_name, arguments=short, agent=agent, in_part=in_part)

    def __str__(self) -> str:
        call = f"{self.tool_name}({self.arguments})"
        call = f"{self.agent}: {call}" if self.agent else call
        return f"{call} in part: {self.in_part}" if self.in_part else call


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneCalls:
    """The finished calls with effects of a run, and of the agents inside it that have ended."""

    newest: tuple[DoneCall, ...] = ()
    """Oldest first."""
    others: int = 0
    """How many came before them."""

    def adding(self, *calls: DoneCall, others: int = 0) -> DoneCalls:
        """These, and later ones."""
        newest = (*self.newest, *calls)
        dropped = max(0, len(newest) - MOST)
        return DoneCalls(newest=newest[dropped:], others=self.others + others + dropped)

    def with_agent(self, agent: str, inside: DoneCalls) -> DoneCalls:
        """These, and those of an agent inside."""
        if not inside:
            return self
        told = (done if done.agent else replace(done, agent=agent) for done in inside.newest)
        return self.adding(*told, others=inside.others)

    def __bool__(self) -> bool:
        return bool(self.newest)


NOTHING_DONE = DoneCalls()


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
    def done(self) -> DoneCalls:
        """Its finished calls with effects."""

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


def done_in(state: StateWithDone) -> DoneCalls:
    """What the last run of this state has done, with the agents that it runs now."""
    run = state.run
    done = NOTHING_DONE if run is None else run.done
    for child in state.children.values():
        if child.run is not None:
            done = done.with_agent(child.run.agent, done_in(child))
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
    calls = (
        DoneCall.of(
            doubt.tool_name, doubt.arguments, agent="" if doubt.agent == agent else doubt.agent
        )
        for doubt in doubts
    )
    return NOTHING_DONE.adding(*calls)


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
