"""The benchmark of telemetry runs and brings its numbers; how fast anything is, no test asks."""

from __future__ import annotations

import pytest

from benchmarks.telemetry import measure


@pytest.mark.slow
async def test_each_kind_of_telemetry_is_measured() -> None:
    found = await measure(rounds=1)

    assert list(found) == ["off", "off again", "on, without an SDK", "on, with an SDK"]
    assert all(seconds > 0 and ratio > 0 for seconds, ratio in found.values())
