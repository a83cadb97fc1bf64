"""The tool behind `make mutate`: its map is up to date, and what it makes are changed modules."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.mutation.modules import MODULES
from tests.support.mutation.mutants import mutants_of

ROOT = Path(__file__).parents[1]
CODE = """
import logging

logger = logging.getLogger(__name__)

async def keep(journal, records, *, lock: bool = False) -> bool:
    assert records
    logger.info("called")
    if journal is None or not records:
        return False
    with journal.lock:
        journal.append(records)
    await journal.durable()
    return len(records) + 1 > 2
"""


def test_each_module_and_its_tests_exist() -> None:
    assert [module for module in MODULES if not (ROOT / module).is_file()] == []
    assert [module for module, tests in MODULES.items() if not tests] == []
    named = {test for tests in MODULES.values() for test in tests}
    assert [test for test in named if not (ROOT / test).exists()] == []


def test_a_mutant_has_one_place_changed(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(CODE, encoding="utf-8")
    mutants = mutants_of(Path("code.py"), tmp_path)
    assert {(mutant.before, mutant.after) for mutant in mutants} >= {
        ("journal is None", "(journal is not None)"),
        ("not records", "(records)"),
        ("journal is None or not records", "(journal is None and (not records))"),
        ("journal is None or not records", "(not records)"),
        ("journal is None or not records", "False"),
        ("False", "True"),
        ("journal.lock", "__import__('contextlib').nullcontext()"),
        ("journal.append(records)", "pass"),
        ("await journal.durable()", "pass"),
        ("len(records) + 1", "(len(records))"),
        ("len(records) + 1 > 2", "(len(records) + 1 >= 2)"),
    }
    assert not any("logger" in mutant.before or "assert" in mutant.before for mutant in mutants)
    for mutant in mutants:
        ast.parse(mutant.text)
        assert mutant.text != CODE
        assert mutant.text.replace(mutant.after, "", 1) != CODE


@pytest.mark.slow
def test_every_mutant_of_a_module_is_a_module() -> None:
    for mutant in mutants_of(Path("understudy/run/ledger.py"), ROOT):
        ast.parse(mutant.text)
