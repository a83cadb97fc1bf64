"""What a turn records: one fact is one record, and what nobody may come between is in one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.agents import by_turn, completed, interrupted, reloaded
from tests.support.cut_off import Crash, CutBefore
from understudy import (
    Agent,
    Outcome,
    Run,
    StopAgent,
    StopSignal,
    ToolContext,
    approve,
    call,
    tool,
)
from understudy.journal import MemoryJournal, replay
from understudy.middleware import Middleware
from understudy.modes import AgentExecution
from understudy.state.records import RunEnded

PLAIN = ["reply", "started", "result"]
CLOSED = [*PLAIN, "propagated", "turn_closed"]
END = ["reply", "run_ended"]


@tool
async def note(text: str) -> str:
    """Note a text."""
    return f"noted {text}"


@tool(name="note", sequential=True, read_only=True)
async def in_turn(text: str) -> str:
    """Note a text, one after the other."""
    return f"noted {text}"


@tool
async def end() -> str:
    """End the run."""
    raise StopAgent(StopSignal.stop_requested("enough"))


class Counts(Middleware):
    """Counts the steps."""

    def __init__(self) -> None:
        self.steps = 0

    async def after_step(self, run: Run) -> None:
        self.steps += 1


class Farewell(Middleware):
    """Has something to do at the end of a run."""

    async def on_run_end(self, run: Run, outcome: Outcome) -> None:
        pass


async def look(run: Run) -> None:
    """A step of an application."""


def note_of(text: str) -> Any:
    return call("note", {"text": text})


def records(agent: Agent, **options: Any) -> list[str]:
    """The kinds of what a run records behind its first attempt."""
    journal = MemoryJournal()
    outcome = agent.execute_sync("Go.", journal=journal, **options)
    assert replay(journal.records) == outcome.state
    kinds: list[str] = [record.kind for record in journal.records]
    assert kinds[:2] == ["run_started", "attempt"]
    return kinds[2:]


def test_a_step_with_a_tool_is_three_records() -> None:
    """J1."""
    agent = Agent("a", by_turn(note_of("1"), note_of("2")), tools=[note])
    assert records(agent) == [*PLAIN, *PLAIN, *END]


def test_the_last_of_several_results_closes_the_turn() -> None:
    agent = Agent("a", by_turn([note_of("1"), note_of("2")]), tools=[note])
    found = records(agent)
    assert sorted(found[:5]) == sorted(["reply", "started", "started", "result", "result"])
    assert found[5:] == END


@pytest.mark.parametrize(
    "options",
    [
        {"middleware": [Counts()]},
        {"mode": AgentExecution().inserting(after="execute_tools", step=look)},
        {"mode": AgentExecution().inserting(before="check_stop", step=look)},
    ],
    ids=["a hook after the step", "a step behind the tools", "a step of an application"],
)
def test_what_may_end_the_run_has_the_end_of_the_turn_recorded(options: Any) -> None:
    """J1."""
    agent = Agent("a", by_turn(note_of("1")), tools=[note], **options)
    assert records(agent) == [*CLOSED, "reply", "turn_closed", "run_ended"]


def test_a_tool_that_ends_the_run_has_the_end_of_the_turn_recorded() -> None:
    agent = Agent("a", by_turn(note_of("1"), call("end", {})), tools=[note, end])
    assert records(agent) == [*PLAIN, *CLOSED, "run_ended"]
    agent = Agent("a", by_turn(note_of("1"), call("end", {})), tools=[note, end])
    assert records(agent, until_tool="end") == [*PLAIN, *CLOSED, "run_ended"]


def test_a_run_that_ends_at_once_records_that_alone() -> None:
    """J1."""
    journal = MemoryJournal()
    outcome = Agent("a", by_turn(), output_key="said").execute_sync("Go.", journal=journal)
    assert [record.kind for record in journal.records][2:] == END
    ended = journal.records[-1]
    assert isinstance(ended, RunEnded)
    assert ended.closes_turn
    assert outcome.state.values == {"said": "done"}
    assert records(Agent("a", by_turn(), middleware=[Farewell()])) == [
        "reply",
        "turn_closed",
        "run_ended",
    ]


# ----------------------------------------------------------------- gates that ask nobody


def test_gates_that_let_a_reply_pass_are_recorded_with_the_start_of_its_first_call() -> None:
    """I7."""
    asked: list[str] = []

    def when(arguments: Mapping[str, Any], ctx: ToolContext) -> bool:
        asked.append(arguments["text"])
        return False

    def agent() -> Agent:
        turn = [note_of("1"), note_of("2")]
        gate: Any = {"note": {"when": when}}
        return Agent("a", by_turn(turn), tools=[in_turn], interrupt_on=gate)

    two = agent()
    assert records(two) == ["reply", "started", "result", "started", "result", *END]
    assert asked == ["1", "2"], "each call once"

    class CutBeforeSecond(CutBefore):
        starts = 0

        def append(self, records: Any) -> None:
            self.starts += sum(record.kind == "started" for record in records)
            if self.starts == 2 and self.limit is None:
                self.limit = len(self.lines)
            super().append(records)

    disk = CutBeforeSecond("never")
    with pytest.raises(Crash):
        two.execute_sync("Go.", journal=disk)
    asked.clear()
    completed(two.resume_sync(disk.load()))
    assert asked == [], "the same process has asked"
    completed(agent().resume_sync(reloaded(disk.load())))
    assert asked == ["2"], "another one asks about what has not run"


def test_gates_are_asked_as_for_the_first_time_where_no_start_says_that_they_were() -> None:
    asked: list[str] = []

    def when(arguments: Mapping[str, Any], ctx: ToolContext) -> bool:
        asked.append(arguments["text"])
        return len(asked) > 1

    def agent() -> Agent:
        gate: Any = {"note": {"when": when}}
        return Agent("a", by_turn(note_of("1")), tools=[note], interrupt_on=gate)

    disk = CutBefore("started")
    with pytest.raises(Crash):
        agent().execute_sync("Go.", journal=disk)
    outcome = interrupted(agent().resume_sync(disk.load()))
    assert [request.asked_again for request in outcome.requests] == [""]
    completed(agent().resume_sync(outcome.state, outcome.decide(approve())))
    assert asked == ["1", "1"]
