"""Which calls with effects a run has finished: what a failed agent tells of what it did."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import PlainSerializer
from pydantic_core import to_json

from understudy.interrupts import DoubtfulCall

MOST = 20
"""So many calls are kept of a run: the newest ones. The others are counted."""
MOST_CHARACTERS = 200


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


def whole_arguments(done: DoneCall) -> str | None:
    """Its arguments as JSON; None where only the first characters of them are kept."""
    text = shortened(done.arguments)
    return None if text.endswith("...") else text


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


def in_a_sentence(calls: DoneCalls) -> str:
    """The calls in one line, for a model or a person; empty if there is none."""
    parts = [str(call) for call in calls.newest]
    return ", ".join([*parts, f"and {before(calls)}"] if calls.others else parts)


def before(calls: DoneCalls) -> str:
    """How many came before the newest ones, in words."""
    return "1 call before these" if calls.others == 1 else f"{calls.others} calls before these"
