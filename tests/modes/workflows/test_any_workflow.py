"""Whatever a workflow is made of: cut off anywhere it ends the same way, and twice it is the same.

The rules are W1, W2, W6 and W7; the agents say something, use a tool, ask a person, escalate, fail.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.agents import authors, by_turn, reloaded
from tests.support.cut_off import Crash, Disk, ids, told
from understudy import (
    Agent,
    Completed,
    Failed,
    Interrupted,
    Outcome,
    ToolContext,
    ToolResult,
    approve,
    call,
    tool,
)
from understudy.modes import Loop, Parallel, Sequential
from understudy.tools import exit_loop


@dataclass(frozen=True)
class Part:
    """An agent that does this in its turns, or a workflow of parts."""

    kind: str
    does: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()


leaves = st.builds(
    Part,
    kind=st.just("agent"),
    does=st.lists(
        st.sampled_from(["say", "note", "gated", "exit", "fail"]), min_size=1, max_size=4
    ).map(tuple),
)
trees = st.recursive(
    leaves,
    lambda inner: st.builds(
        Part,
        kind=st.sampled_from(["sequential", "loop", "parallel"]),
        parts=st.lists(inner, min_size=1, max_size=3).map(tuple),
    ),
    max_leaves=5,
).filter(lambda part: part.kind != "agent")


def built(part: Part, ran: list[str], names: Iterator[int]) -> Agent:
    """The agent, newly made: nothing is shared with another process's."""
    name = f"{part.kind}-{next(names)}"
    if part.kind == "agent":
        return leaf(name, part.does, ran)
    agents = [built(inner, ran, names) for inner in part.parts]
    if part.kind == "sequential":
        return Agent(name, mode=Sequential(agents))
    if part.kind == "loop":
        return Agent(name, mode=Loop(agents, max_iterations=2))
    return Agent(name, mode=Parallel(agents, return_failures=True))


def leaf(name: str, does: tuple[str, ...], ran: list[str]) -> Agent:
    @tool(idempotent=True)
    async def note(ctx: ToolContext) -> ToolResult[str]:
        ran.append(ctx.call_key)
        return ToolResult("noted", state={"notes": {name: True}, "last": name})

    @tool(idempotent=True)
    async def gated(ctx: ToolContext) -> str:
        ran.append(ctx.call_key)
        return "done"

    def turn(i: int, what: str) -> Any:
        if what == "say":
            return f"{name} says {i}"
        if what == "fail":
            return ValueError("down")
        return [call("exit_loop" if what == "exit" else what, id=f"{name}-{i}")]

    model = by_turn(*(turn(i, what) for i, what in enumerate(does)))
    return Agent(
        name,
        model,
        tools=[note, gated, exit_loop],
        interrupt_on={"gated": True},
        output_key=f"text-{name}",
    )


def made(part: Part, ran: list[str]) -> Agent:
    return built(part, ran, count())


def to_the_end(agent: Agent, outcome: Outcome, journal: Disk | None = None) -> Outcome:
    while isinstance(outcome, Interrupted):
        answers = {request.id: approve() for request in outcome.requests}
        state = reloaded(outcome.state)
        outcome = agent.resume_sync(state, answers, new_id=ids(), journal=journal)
    assert isinstance(outcome, (Completed, Failed))
    return outcome


def live(part: Part, disk: Disk) -> Outcome:
    agent = made(part, [])
    return to_the_end(agent, agent.execute_sync("go", journal=disk, new_id=ids()), disk)


def finished(disk: Disk) -> set[str]:
    keys = set()
    for record in map(json.loads, disk.lines):
        while record["kind"] == "child_record":
            record = record["record"]
        if record["kind"] == "result":
            keys.add(record["call_key"])
    return keys


@pytest.mark.slow
@settings(
    max_examples=15,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(trees)
def test_any_workflow_that_is_cut_off_anywhere_ends_the_same_way(part: Part) -> None:
    """W7, J3: and no finished call runs again."""
    disk, ran = Disk(), list[str]()
    agent = made(part, ran)
    outcome = to_the_end(agent, agent.execute_sync("go", journal=disk, new_id=ids()), disk)
    whole = told(outcome)
    assert len(ran) == len(set(ran))
    assert outcome.state.children == {}
    for limit in range(1, len(disk.lines)):
        cut = Disk(limit)
        with pytest.raises(Crash):
            live(part, cut)
        after: list[str] = []
        agent = made(part, after)
        end = to_the_end(agent, agent.resume_sync(cut.load(), new_id=ids()))
        assert told(end) == whole, f"cut after record {limit}"
        assert not finished(cut) & set(after), f"cut after record {limit}"


class _Played:
    def __init__(self, part: Part, names: Iterator[int]) -> None:
        self.part = part
        self.name = f"{part.kind}-{next(names)}"
        self.parts = [_Played(inner, names) for inner in part.parts]

    def play(self, turn: dict[str, int], *, inside_loop: bool) -> tuple[list[str], str]:
        """The replies' authors, and how it ended: `done`, `escalated` or `failed`."""
        if self.part.kind == "agent":
            return self.speak(turn)
        said: list[str] = []
        loops = self.part.kind == "loop"
        escalated = False
        for _ in range(2 if loops else 1):
            for inner in self.parts:
                words, how = inner.play(turn, inside_loop=inside_loop or loops)
                said += words
                if how == "failed" and self.part.kind != "parallel":
                    return said, "failed"
                escalated = escalated or how == "escalated"
                if how == "escalated" and (
                    loops or (self.part.kind == "sequential" and inside_loop)
                ):
                    return said, "done" if loops else "escalated"
        return said, "escalated" if escalated and not loops else "done"

    def speak(self, turn: dict[str, int]) -> tuple[list[str], str]:
        said: list[str] = []
        while True:
            at = turn.get(self.name, 0)
            does = self.part.does[at] if at < len(self.part.does) else "say"
            if does == "fail":
                return said, "failed"
            turn[self.name] = at + 1
            said.append(self.name)
            if does in ("say", "exit"):
                return said, "done" if does == "say" else "escalated"


@pytest.mark.slow
@settings(max_examples=150, derandomize=True)
@given(trees)
def test_any_workflow_lets_its_agents_speak_in_the_order_of_the_rules(part: Part) -> None:
    """W1, W2, W6: against a few lines that say who comes next."""
    agent = made(part, [])
    outcome = to_the_end(agent, agent.execute_sync("go", new_id=ids()))
    speakers = [
        author
        for author, message in zip(authors(outcome.state), outcome.state.messages, strict=True)
        if message.kind == "response" and author is not None
    ]
    said, how = _Played(part, count()).play({}, inside_loop=False)
    assert speakers == said
    assert isinstance(outcome, Failed) is (how == "failed")


def test_the_agents_of_these_tests_do_what_they_are_told() -> None:
    """The tests above would show little if nothing ever asked or failed."""
    agent = leaf("a", ("note", "gated", "say"), [])
    assert isinstance(agent.execute_sync("go"), Interrupted)
    assert isinstance(leaf("a", ("fail",), []).execute_sync("go"), Failed)
