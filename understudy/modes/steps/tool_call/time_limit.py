"""`TimeLimit`: the time limit of an attempt at a call, which its tool may pause, and begin anew."""

from __future__ import annotations

import asyncio
from types import TracebackType

from understudy.modes.steps.tool_call.results import LIMIT_PASSED
from understudy.run.run import Run
from understudy.state.records import Once
from understudy.state.run_state import Call
from understudy.tools.context import CallLimit


class TimeLimit(CallLimit):
    """Cancels what is in its `async with` when the limit passes: `TimeoutError`.

    If that code continues nevertheless, a runtime gives up the attempt at the run. The next attempt
    finds that the limit passed: an idempotent call is not called once more.
    """

    def __init__(self, run: Run, call: Call, seconds: float) -> None:
        self._run = run
        self._call = call
        self._seconds = seconds
        self._scope = asyncio.timeout(None)
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    @property
    def has_passed(self) -> bool:
        return self._scope.expired()

    async def __aenter__(self) -> TimeLimit:
        await self._scope.__aenter__()
        self.restart()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over = True
        try:
            await self._scope.__aexit__(kind, error, traceback)
        finally:
            self._stop_timer()
            if self._ending is not None:
                self._ending.cancel()
                ledger = self._run.root.ledger
                ledger.on_fence = tuple(each for each in ledger.on_fence if each != self._record)

    def pause(self) -> None:
        if not self._is_over and not self.has_passed:
            self._scope.reschedule(None)
            self._stop_timer()

    def restart(self) -> None:
        if self._is_over or self.has_passed:
            return
        loop = asyncio.get_running_loop()
        self._scope.reschedule(loop.time() + self._seconds)
        self._stop_timer()
        if self._run.environment.abandon_later is not None:
            self._timer = loop.call_later(self._seconds, self._pass)

    def pass_now(self) -> None:
        """Let the limit pass now, as if its seconds were over. For tests; on the loop."""
        self._seconds = 0.0
        self.restart()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _pass(self) -> None:
        abandon_later = self._run.environment.abandon_later
        assert abandon_later is not None, "the timer is set where it is known"
        self._run.root.ledger.on_fence += (self._record,)
        self._ending = abandon_later()

    def _record(self) -> None:
        self._run.ledger.record(Once(key=LIMIT_PASSED + self._call.key, value=self._seconds))
