"""Who waits until no part of a tool call runs: each by itself."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.loops import soon
from understudy.run.running_parts import RunningParts


async def test_who_waits_for_the_parts_no_longer_disturbs_nobody_else() -> None:
    """The first of two waiters is cancelled in the very turn in which the last part ends."""
    parts = RunningParts(1)
    begun = asyncio.Event()

    async def waiting() -> None:
        begun.set()
        await parts.wait_until_none_runs()

    with parts.running():
        first, second = asyncio.ensure_future(waiting()), asyncio.ensure_future(waiting())
        await soon(begun.wait())
        await asyncio.sleep(0)  # the turn that a wait begins with
        await asyncio.sleep(0)
        first.cancel()
    await soon(second)
    with pytest.raises(asyncio.CancelledError):
        await first
