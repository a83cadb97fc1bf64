"""The benchmarks run and print; how fast anything is, no test asks."""

from typing import Any

import pytest

from benchmarks.adapter import Adapter
from benchmarks.cases import CASES, measure
from benchmarks.ours import BareLoop, Understudy
from benchmarks.table import Measured, budget, render


@pytest.mark.slow
@pytest.mark.parametrize("adapter", [Understudy, BareLoop])
@pytest.mark.parametrize("case", CASES)
def test_each_case_of_ours_runs_and_brings_numbers_above_zero(
    adapter: type[Adapter], case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.cases.TOGETHER", 3)
    monkeypatch.setattr("benchmarks.cases.EARLY", (2, 3))
    monkeypatch.setattr("benchmarks.cases.LATE", (4, 6))
    monkeypatch.setattr("benchmarks.cases.gc.freeze", lambda: None)

    found = measure(adapter.name, case, [1, 2, 3], runs=1, seconds=0.0)

    wanted = {
        "run": {"steps", "cold", "answer", "build"},
        "growth": {"early", "late"},
        "concurrent": {"steps_per_second"},
    }
    assert set(found) == wanted[case]
    if case == "run":
        for how in ("steps", "cold"):
            assert set(found[how]) == {"1", "2", "3"}
            assert all(value > 0 for value in found[how].values())


@pytest.mark.slow
def test_a_run_whose_tool_was_not_called_as_often_as_it_must_be_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def too_short(self: Understudy, steps: int) -> None:
        await BareLoop().run(steps)  # counts the calls of another adapter

    monkeypatch.setattr(Understudy, "run", too_short)
    with pytest.raises(AssertionError, match="called the tool 0 times instead of 2"):
        measure("understudy", "run", [3], runs=1, seconds=0.0)


def round_of(step: float, **more: Any) -> dict[str, Any]:
    steps = {"10": step, "50": step, "200": step}
    return {
        "run": {"steps": steps, "cold": steps, "answer": 2.0, "build": 400.0},
        "concurrent": {"steps_per_second": 1e6 / step},
        **more,
    }


def ours_of(*steps: float, late: float = 41.0, seconds: float = 0.5) -> Measured:
    more = {
        "growth": {"early": 40.0, "late": late},
        "import": {"seconds": seconds, "clients": []},
        "import_messages": {"seconds": 0.4, "clients": []},
    }
    return Measured("understudy", {"understudy": "0.1"}, [round_of(s, **more) for s in steps])


def table(*measured: Measured) -> str:
    return render(
        measured, ours="understudy", floor="bare loop", machine="a machine", lengths=(10, 200)
    )


def test_the_table_shows_ours_and_the_rivals_with_the_ratio_to_the_fastest() -> None:
    slow, fast = Measured("slow", {}, [round_of(2000.0)]), Measured("fast", {}, [round_of(1000.0)])

    shown = table(ours_of(40.0), slow, fast)

    assert "a machine" in shown
    assert "understudy 0.1" in shown
    assert "| understudy | 40.0 | 40.0 |" in shown
    assert "| slow | 2,000.0 | 2,000.0 |" in shown
    assert "| **fastest rival / ours** | **25.0 ×** | **25.0 ×** |" in shown


def test_a_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    """One round on a busy machine slows both sides down, and changes no ratio."""
    ours = ours_of(40.0, 80.0, 40.0)
    rival = Measured("rival", {}, [round_of(800.0), round_of(1600.0), round_of(8000.0)])

    assert "**20.0 ×**" in table(ours, rival)


def test_the_bare_loop_is_no_rival() -> None:
    floor, rival = Measured("bare loop", {}, [round_of(8.0)]), Measured("r", {}, [round_of(800.0)])

    assert "| **fastest rival / ours** | **20.0 ×** |" in table(ours_of(40.0), floor, rival)


def test_a_rival_that_is_not_installed_is_named_and_the_rest_is_shown() -> None:
    gone = Measured("gone", problem="not installed (No module named 'gone')")
    rival = Measured("rival", {}, [round_of(800.0)])

    shown = table(ours_of(40.0), gone, rival)

    assert "- gone: not installed (No module named 'gone')" in shown
    assert "| gone | - | - |" in shown
    assert "**20.0 ×**" in shown


def test_without_any_rival_the_budget_says_what_could_not_be_measured() -> None:
    shown = table(ours_of(40.0))

    assert "| one step, runs of 10 | ≥ 20 × the fastest rival | - | not measured |" in shown


def test_the_budget_tells_which_lines_are_met_and_which_are_not() -> None:
    rival = Measured("rival", {}, [round_of(1000.0)])

    met = [line.met for line in budget(ours_of(40.0), [rival])]
    missed = [line.met for line in budget(ours_of(60.0, late=50.0, seconds=0.6), [rival])]

    assert met == [True] * 6
    assert missed == [False] * 6


def test_an_import_that_loads_a_providers_client_misses_the_budget_however_fast_it_is() -> None:
    ours = ours_of(40.0)
    ours.rounds[0]["import"]["clients"] = ["openai"]

    last = budget(ours, [])[-1]

    assert last.met is False
    assert "openai" in last.shown
