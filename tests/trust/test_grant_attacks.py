"""What grants must not let through; and that each of these tests would notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.grant_attacks import ATTACKS


@pytest.mark.parametrize("name", ATTACKS)
async def test_no_call_runs_that_a_grant_does_not_cover(name: str, tmp_path: Path) -> None:
    """V21, V22, V23, V24."""
    attack, _ = ATTACKS[name]
    assert await attack(tmp_path) == []


@pytest.mark.parametrize("name", ATTACKS)
async def test_a_build_with_a_rule_of_grants_left_out_is_found_out(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V21, V22, V23, V24: or the attack would prove nothing."""
    attack, broken = ATTACKS[name]
    broken(monkeypatch)
    assert await attack(tmp_path) != []
