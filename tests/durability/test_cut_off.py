"""A run that is cut off after any record, and continues elsewhere, ends the same way."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import Phase, given, settings

from tests.support.agents import FakeClock
from tests.support.cut_off import Crash, Disk, finished_calls, ids, model_calls, told
from tests.support.programs import ran
from tests.support.scenarios import (
    PARTS,
    RICH,
    Scenario,
    live,
    make_agent,
    pause_when,
    scenarios,
    to_the_end,
)
from understudy import (
    AgentState,
    Interrupted,
    Outcome,
    Paused,
)


def came_of(outcome: Outcome) -> dict[str, Any]:
    """The events of the run. Calls of one reply ask at the same time, so in any order."""
    end = told(outcome)
    return {**end, "audit": sorted(end["audit"], key=repr)}


def cut_and_go_on(scenario: Scenario, limit: int) -> dict[str, Any]:
    """The same life, whose process ends after `limit` records; another process continues it."""
    disk = Disk(limit)
    with pytest.raises(Crash):
        live(scenario, disk, [])
    state = AgentState.from_dict(json.loads(json.dumps(disk.load().to_dict())))
    after: list[str] = []
    rest = Disk()
    agent = make_agent(scenario, after)
    outcome = agent.resume_sync(
        state, new_id=ids(), journal=rest, clock=FakeClock(), **pause_when(scenario)
    )
    end = came_of(to_the_end(agent, outcome, scenario, rest))
    repeated = finished_calls(disk) & set(after)
    assert not repeated, f"finished calls ran again: {repeated}"
    assert len(after) == len(set(after))
    asked = model_calls(disk) + model_calls(rest)
    assert len(asked) == len(set(asked)), "a reply is recorded twice"
    return end


def cut_off_anywhere(scenario: Scenario, places: int | None = None) -> dict[str, Any]:
    """What came of it: the same wherever it was cut off; at so many places, or after any record."""
    disk, ran = Disk(), list[str]()
    whole = came_of(live(scenario, disk, ran))
    assert len(ran) == len(set(ran)), "undisturbed, each call runs once"
    each = 1 if places is None else max(1, len(disk.lines) // places)
    for limit in range(each, len(disk.lines), each):
        assert cut_and_go_on(scenario, limit) == whole, f"cut after record {limit}"
    return whole


def drawn(examples: int) -> settings:
    return settings(
        max_examples=examples,
        derandomize=True,
        phases=[Phase.generate],  # to shrink a scenario takes minutes
    )


@pytest.mark.slow
@drawn(4)
@given(scenarios)
def test_a_run_that_is_cut_off_ends_the_same_way_elsewhere(scenario: Scenario) -> None:
    cut_off_anywhere(scenario, places=4)


@pytest.mark.slow
@pytest.mark.faults
@drawn(60)
@given(scenarios)
def test_a_run_cut_off_after_any_record_ends_the_same_way_elsewhere(scenario: Scenario) -> None:
    cut_off_anywhere(scenario)


@pytest.mark.slow
def test_a_run_with_all_that_asks_and_waits_is_cut_off_after_any_record() -> None:
    stack = ("gate", "before", "after", "around", "late", "guard")
    whole = cut_off_anywhere(Scenario(turns=((("note", 3), ("gated", 0)),), stack=stack))
    assert len(whole["audit"]) == 7  # twice before, twice after, twice around, and the gate


@pytest.mark.slow
@pytest.mark.parametrize("nested", [False, True])
def test_a_run_with_every_part_that_is_cut_off_ends_the_same_way_elsewhere(nested: bool) -> None:
    turns = ((("judge", 1),), (("gated", 0),), (("note", 1),))
    scenario = Scenario(turns=turns, stack=PARTS, nested=nested)
    whole = cut_off_anywhere(scenario, places=4)
    if not nested:
        assert list(whole["files"]) == ["b.txt"]


@pytest.mark.slow
def test_a_run_goes_on_in_another_process() -> None:
    """The state crosses as JSON text; nothing else does."""
    agent = make_agent(RICH, [])
    outcome = agent.execute_sync("go")
    assert isinstance(outcome, Interrupted)
    script = (
        "import json, sys\n"
        "from tests.support.cut_off import told\n"
        "from tests.support.scenarios import RICH, answers, make_agent, to_the_end\n"
        "from understudy import AgentState\n"
        "state = AgentState.from_dict(json.load(sys.stdin))\n"
        "agent = make_agent(RICH, [])\n"
        "outcome = agent.resume_sync(state, answers(state.requests))\n"
        "print(json.dumps(told(to_the_end(agent, outcome, RICH))))\n"
    )
    other = ran("-c", script, input=json.dumps(outcome.state.to_dict()))
    assert other.returncode == 0, other.stderr
    here = told(to_the_end(agent, outcome, RICH))
    assert json.loads(other.stdout) == json.loads(json.dumps(here))


def test_a_paused_run_goes_on_where_it_stood() -> None:
    ran: list[str] = []
    scenario = Scenario(turns=((("note", 1),),), pauses=True)
    agent = make_agent(scenario, ran)
    outcome = agent.execute_sync("go", pause_when=lambda: "look first")
    assert isinstance(outcome, Paused)
    assert ran == [], "its tools have not started"
