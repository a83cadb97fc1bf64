"""The calls with effects that a run has finished: a failed agent reports them as what it did."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import PlainSerializer
from pydantic_core import to_json

from understudy.interrupts import DoubtfulCall

MOST = 20
"""The number of newest calls that are kept of a run. Older calls are only counted."""
MOST_CHARACTERS = 200


def shortened(arguments: object) -> str:
    """The first characters of arguments, as JSON."""
    text = arguments if isinstance(arguments, str) else to_json(arguments or {}).decode()
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."


@dataclass(slots=True)  # not frozen, which takes 4 times as long for each call
class DoneCall:
    """A finished call with effects, or one that has done something and was not finished."""

    tool_name: str
    arguments: Annotated[Any, PlainSerializer(shortened, return_type=str)]
    """The arguments with which the call ran; stored, the first characters of their JSON."""
    agent: str = ""
    """The name of the inner agent that made the call; empty for a call of the run itself."""
    in_part: str = ""
    """What the call had done when it ended; empty for a finished call."""

    def __eq__(self, other: object) -> bool:
        """Whether both are equal. A call that was read back has only the beginning of its JSON."""
        return str(self) == str(other) if isinstance(other, DoneCall) else NotImplemented

    def __str__(self) -> str:
        call = f"{self.tool_name}({shortened(self.arguments)})"
        call = f"{self.agent}: {call}" if self.agent else call
        return f"{call} in part: {self.in_part}" if self.in_part else call


@dataclass(slots=True)
class DoneCalls:
    """The finished calls with effects of a run, and of the agents inside it that have ended."""

    newest: list[DoneCall] = field(default_factory=list)
    """The newest calls, oldest first."""
    others: int = 0
    """The number of calls before the newest."""

    def add(self, call: DoneCall) -> None:
        """Add a finished call."""
        newest = self.newest
        newest.append(call)
        if len(newest) > MOST:
            del newest[0]
            self.others += 1

    def add_agent(self, agent: str, inside: DoneCalls) -> None:
        """Add the calls of an agent inside."""
        self.others += inside.others
        for done in inside.newest:
            self.add(done if done.agent else replace(done, agent=agent))

    def copied(self) -> DoneCalls:
        """A copy; the calls in it, which do not change, are shared."""
        return DoneCalls(list(self.newest), self.others)

    def __bool__(self) -> bool:
        return bool(self.newest)


def whole_arguments(done: DoneCall) -> str | None:
    """The arguments of a call as JSON; None if only their first characters are kept."""
    text = shortened(done.arguments)
    return None if text.endswith("...") else text


def doubtful(doubts: Iterable[DoubtfulCall], *, agent: str) -> DoneCalls:
    """The calls in doubt, in the form of finished calls.

    Args:
        doubts: the calls.
        agent: the agent whose run reports them.

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
    """The number of calls before the newest, in words."""
    return "1 call before these" if calls.others == 1 else f"{calls.others} calls before these"
