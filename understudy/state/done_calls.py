"""Which calls with effects a run has finished: what a failed agent tells of what it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic_core import to_json

from understudy.interrupts import DoubtfulCall

MOST = 20
"""So many calls are kept of a run: the newest ones. The others are counted."""
MOST_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneCall:
    """A finished call with effects."""

    tool_name: str
    arguments: str
    """As JSON; the first characters of them."""
    agent: str = ""
    """The agent that made it, of one whose run is inside this one; empty for the run's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneCalls:
    """The finished calls with effects of a run, and of the agents inside it that have ended."""

    newest: tuple[DoneCall, ...] = ()
    """Oldest first."""
    others: int = 0
    """How many came before them."""

    def with_call(self, tool_name: str, arguments: object) -> DoneCalls:
        """These, and one more."""
        done = DoneCall(tool_name=tool_name, arguments=_shortened(arguments))
        return self._adding((done,), 0)

    def with_agent(self, agent: str, inside: DoneCalls) -> DoneCalls:
        """These, and those of an agent inside whose run is over."""
        if inside is NOTHING_DONE or not inside.newest:
            return self
        told = tuple(
            done
            if done.agent
            else DoneCall(tool_name=done.tool_name, arguments=done.arguments, agent=agent)
            for done in inside.newest
        )
        return self._adding(told, inside.others)

    def _adding(self, later: tuple[DoneCall, ...], others: int) -> DoneCalls:
        newest = (*self.newest, *later)
        dropped = max(0, len(newest) - MOST)
        return DoneCalls(newest=newest[dropped:], others=self.others + others + dropped)

    def __bool__(self) -> bool:
        return bool(self.newest)


NOTHING_DONE = DoneCalls()


class RunWithDone(Protocol):
    """What is needed of a `RunState`, which is defined above."""

    @property
    def run_id(self) -> str:
        """Its id."""

    @property
    def done(self) -> DoneCalls:
        """Its finished calls with effects."""


class StateWithDone(Protocol):
    """What is needed of an `AgentState`, which is defined above."""

    @property
    def run(self) -> RunWithDone | None:
        """Its last run."""

    @property
    def doubts(self) -> Mapping[str, DoubtfulCall]:
        """By call key, the calls whose outcome is unknown."""


def _shortened(arguments: object) -> str:
    text = arguments if isinstance(arguments, str) else to_json(arguments or {}).decode()
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


def is_shortened(done: DoneCall) -> bool:
    """Whether only the first characters of its arguments are known."""
    return len(done.arguments) > MOST_CHARACTERS


def what_it_did(state: StateWithDone) -> str:
    """What the last run of this state has done, and what it may have done; empty if nothing."""
    run = state.run
    if run is None or not (run.done or state.doubts):
        return ""
    own = f"{run.run_id}."
    doubts = [
        (doubt.tool_name, doubt.arguments)
        for key, doubt in state.doubts.items()
        if key.startswith(own)
    ]
    return _listed(run.done, doubts)


def _listed(done: DoneCalls, doubts: Sequence[tuple[str, object]]) -> str:
    """What was done, and what may have been, by tool: for a model or a person.

    Args:
        done: the finished calls with effects.
        doubts: the tool's name and the arguments of each call whose outcome is unknown.

    """
    lines = []
    by_tool: dict[str, list[str]] = {}
    for call in done.newest:
        of = f"{call.agent}: {call.tool_name}" if call.agent else call.tool_name
        by_tool.setdefault(of, []).append(call.arguments)
    if by_tool:
        lines.append("It has done, and this stands:")
        lines += [f"- {tool}({given})" for tool, each in by_tool.items() for given in each]
        if done.others:
            lines.append(f"- and {done.others} calls before these")
    if doubts:
        lines.append("Nobody knows whether these took effect:")
        lines += [f"- {tool}({_shortened(given)})" for tool, given in doubts]
    return "\n".join(lines)
