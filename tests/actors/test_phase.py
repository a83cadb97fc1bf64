"""The phases of an agent, as a graph. That no other change happens is asserted wherever one is."""

from __future__ import annotations

import pytest

from understudy.actors.agent.phase import NEXT_PHASES, Phase


def reachable(start: Phase) -> set[Phase]:
    seen = {start}
    ahead = [start]
    while ahead:
        for phase in NEXT_PHASES[ahead.pop()] - seen:
            seen.add(phase)
            ahead.append(phase)
    return seen


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_is_reached_from_passive_and_leads_back_to_it(phase: Phase) -> None:
    assert phase in reachable(Phase.PASSIVE)
    assert Phase.PASSIVE in reachable(phase)


@pytest.mark.parametrize("phase", Phase)
def test_an_agent_with_a_run_task_is_never_released(phase: Phase) -> None:
    if phase.has_run_task:
        assert Phase.RELEASING not in NEXT_PHASES[phase]
        assert Phase.PASSIVE not in NEXT_PHASES[phase]
