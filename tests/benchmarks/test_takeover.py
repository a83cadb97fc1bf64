"""The benchmark of takeovers measures what it says."""

from __future__ import annotations

import pytest

from benchmarks.takeover import left
from tests.support.loops import soon

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("again", [False, True], ids=["another host", "the same host again"])
async def test_a_run_whose_host_was_killed_goes_on(postgres_url: str, again: bool) -> None:
    # The host itself does not wait for any heartbeat.
    lease = 600.0 if again else 2.0
    assert await soon(left(postgres_url, "takeover", "SIGKILL", again=again, lease=lease)) > 0
