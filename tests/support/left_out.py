"""A build with one rule left out fails the test that guards it: else that would prove nothing.

These rules are about what is recorded, indexed and cached; no process has to die to show them.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.sqlite_connections import close_left_open

__all__ = ["LeftOut", "left_out"]

LeftOut = Callable[[Callable[[], None], Callable[[Path], Any]], Awaitable[None]]


@pytest.fixture
def left_out(tmp_path: Path) -> LeftOut:
    """Calls the guarding test in two new folders: it passes, and without the rule it fails."""

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder in (whole, broken):
        folder.mkdir()

    async def passes(guard: Callable[[Path], Any], folder: Path) -> None:
        guarding = guard(folder)
        if inspect.isawaitable(guarding):
            await guarding

    async def check(leave_out: Callable[[], None], guard: Callable[[Path], Any]) -> None:
        await passes(guard, whole)
        leave_out()
        with pytest.raises(AssertionError):
            await passes(guard, broken)
        close_left_open()

    return check
