"""Messages with a time, schedules, runs that end at a time, and pauses of idle agents."""

from __future__ import annotations

import pytest

from tests.support.agents import by_turn, completed
from tests.support.loops import soon
from understudy import Agent, Runtime, SimulatedClock
from datetime import timedelta


async def test_smoke() -> None:
    clock = SimulatedClock()
    agent = Agent("desk", by_turn("Hello."))
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.send("Later.", at=clock.now() + timedelta(hours=1)))
        await soon(ref.stop(block=False))
        await soon(clock.advance(3601))
        completed(await soon(ref.outcome()))
        s = await soon(runtime.schedule("a", "nightly", cron="0 3 * * *", input="Report."))
        print(s)
        await soon(clock.advance(3 * 86400))
        print((await soon(ref.outcome())).explain())
        for e in (await soon(ref.history())).entries:
            print(e.what, e.at, e.detail)
