"""A blocked event loop is noticed, and what blocks it is named."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from tests.support.loops import soon
from understudy import Agent, Runtime, ScriptedModel, call, tool
from understudy._base.clock import SystemClock
from understudy.actors import LoopBlocked, loop_monitor


@pytest.mark.slow
async def test_whoever_holds_the_loop_up_is_named_in_the_log_and_to_subscribers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    noticed = threading.Event()

    class Notice(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "blocked" in record.getMessage():
                noticed.set()

    @tool
    async def holds_the_loop() -> str:
        """Block, as an async tool must not."""
        assert noticed.wait(60)
        return "done"

    logger = logging.getLogger("understudy.actors.loop_monitor")
    handler = Notice()
    logger.addHandler(handler)
    try:
        model = ScriptedModel([call("holds_the_loop"), "done"])
        async with Runtime([Agent("a", model, tools=[holds_the_loop])]) as runtime:
            ref = runtime.spawn("a")
            events = ref.events()
            await soon(ref.run("go"))
            async for told in events:
                if isinstance(told.event, LoopBlocked):
                    assert told.seq is None
                    assert told.event.where.startswith("wait")  # the innermost: of the event
                    assert told.event.seconds >= 1
                    break
    finally:
        logger.removeHandler(handler)
    assert "the event loop is blocked in wait" in caplog.text


def test_a_monitor_that_waits_for_a_loop_that_runs_no_more_ends_when_it_is_told_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_monitor, "LIMIT", 0.0)
    looks = threading.Event()

    class LookingNow(SystemClock):
        def monotonic(self) -> float:
            # The monitor asks the loop next, and waits for it this long.
            monkeypatch.setattr(loop_monitor, "LIMIT", 600.0)
            looks.set()
            return super().monotonic()

    before = set(threading.enumerate())
    loop = asyncio.new_event_loop()
    try:
        monitor = loop_monitor.LoopMonitor(loop, LookingNow(), lambda seconds, where: None)
        monitor.start()
        (thread,) = set(threading.enumerate()) - before
        assert looks.wait(60)
        monitor.stop()
        thread.join(60)
        assert not thread.is_alive()
    finally:
        loop.close()
