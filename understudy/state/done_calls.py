"""Which calls with effects a run has finished: what a failed agent tells of what it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Protocol

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
    """A finished call with effects."""

    tool_name: str
    arguments: Annotated[Any, PlainSerializer(shortened, return_type=str)]
    """As they ran. Stored, they are text: the first characters of their JSON."""
    agent: str = ""
    """The agent that made it, of one whose run is inside this one; empty for the run's own."""


@dataclass(slots=True)
class DoneCalls:
    """The finished calls with effects of a run, and of the agents inside it that have ended."""

    newest: list[DoneCall] = field(default_factory=list)
    """Oldest first."""
    others: int = 0
    """How many came before them."""

    def add(self, tool_name: str, arguments: object) -> None:
        """One more is finished."""
        self.newest.append(DoneCall(tool_name, arguments))
        if len(self.newest) > MOST:
            del self.newest[0]
            self.others += 1

    def add_all(self, agent: str, inside: DoneCalls) -> None:
        """Those of an agent inside whose run is over."""
        for done in inside.newest:
            self.newest.append(replace(done, agent=done.agent or agent))
        dropped = max(0, len(self.newest) - MOST)
        del self.newest[:dropped]
        self.others += inside.others + dropped

    def copied(self) -> DoneCalls:
        """Of its own; a finished call does not change."""
        return DoneCalls(list(self.newest), self.others)


class RunWithDone(Protocol):
    """What is needed of a `RunState`, which is defined above."""

    @property
    def run_id(self) -> str:
        """Its id."""

    @property
    def done(self) -> DoneCalls | None:
        """Its finished calls with effects."""


class StateWithDone(Protocol):
    """What is needed of an `AgentState`, which is defined above."""

    @property
    def run(self) -> RunWithDone | None:
        """Its last run."""

    @property
    def doubts(self) -> Mapping[str, DoubtfulCall]:
        """By call key, the calls whose outcome is unknown."""


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


def _listed(done: DoneCalls | None, doubts: Sequence[tuple[str, object]]) -> str:
    """What was done, and what may have been, by tool: for a model or a person.

    Args:
        done: the finished calls with effects, if there are any.
        doubts: the tool's name and the arguments of each call whose outcome is unknown.

    """
    lines = []
    by_tool: dict[str, list[str]] = {}
    for call in () if done is None else done.newest:
        of = f"{call.agent}: {call.tool_name}" if call.agent else call.tool_name
        by_tool.setdefault(of, []).append(shortened(call.arguments))
    if by_tool:
        lines.append("It has done, and this stands:")
        lines += [f"- {tool}({given})" for tool, each in by_tool.items() for given in each]
        if done is not None and done.others:
            lines.append(f"- and {done.others} calls before these")
    if doubts:
        lines.append("Nobody knows whether these took effect:")
        lines += [f"- {tool}({shortened(given)})" for tool, given in doubts]
    return "\n".join(lines)
