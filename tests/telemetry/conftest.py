"""Fixtures for the tests of telemetry."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def gauges_wait_for_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection gives up after seconds, which a machine that is busy can take."""
    monkeypatch.setattr("understudy.telemetry.gauges.PATIENCE", 60.0)
