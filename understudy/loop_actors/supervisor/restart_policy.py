"""The policy of restarts: which children restart together, after which wait, and how often."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from understudy._base.clock import Clock
from understudy.errors import UsageError
from understudy.loop_actors.supervisor.child import Child
from understudy.loop_actors.supervisor.spec import check_choice, is_seconds

if TYPE_CHECKING:
    from tenacity import RetryCallState
    from tenacity.wait import wait_base

Strategy = Literal["one_for_one", "one_for_all", "rest_for_one"]
"""The children that restart when one child fails: it alone, all, or it and later children."""

RestartWait: TypeAlias = "wait_base | Callable[[RetryCallState], float]"
"""Seconds between a failure and the restart: one of Tenacity's waits, or a function like one."""


class RestartPolicy:
    """A supervisor's strategy, restart intensity, and wait between a failure and the restart."""

    def __init__(
        self,
        strategy: Strategy,
        *,
        max_restarts: int,
        period: float,
        wait: RestartWait | None,
        clock: Clock,
    ) -> None:
        check_choice(strategy, Strategy, "strategy")
        if not isinstance(max_restarts, int) or isinstance(max_restarts, bool) or max_restarts < 0:
            raise UsageError(f"max_restarts must be at least 0, got {max_restarts!r}")
        if not is_seconds(period) or period == 0:
            raise UsageError(f"period must be more than 0 seconds, got {period!r}")
        if wait is not None and not callable(wait):
            raise UsageError(f"wait must be a Tenacity wait, a function or None, got {wait!r}")
        self.strategy = strategy
        self.max_restarts = max_restarts
        self.period = period
        self._wait = wait
        if wait is not None:
            # It is imported here, because at a restart the loop would stand still for the import.
            from tenacity import RetryCallState, Retrying

            # The constructor takes a policy, but waits read only the attempt and the outcome.
            self._new_state = partial(RetryCallState, Retrying(), None, (), {})
        self._clock = clock
        self._restarts: deque[float] = deque()  # their times, within the latest period

    def count(self, child: Child) -> bool:
        """Count a restart of the child; False if that exceeds `max_restarts` within the period."""
        now = self._clock.monotonic()
        self._restarts.append(now)
        while now - self._restarts[0] > self.period:
            self._restarts.popleft()
        if child.running_since is not None and now - child.running_since > self.period:
            child.attempt = 0
        child.running_since = None
        child.attempt += 1
        return len(self._restarts) <= self.max_restarts

    def group(self, child: Child, children: list[Child]) -> list[Child]:
        """The children that restart with this one, itself included, in start order."""
        if self.strategy == "one_for_one":
            return [child]
        return children if self.strategy == "one_for_all" else children[children.index(child) :]

    def delay(self, child: Child, reason: BaseException | None) -> float:
        """Seconds to wait before the restart of the child that was counted last."""
        if self._wait is None:
            return 0.0
        state = self._new_state()
        state.attempt_number = child.attempt
        if reason is None:
            state.set_result(None)
        else:
            state.set_exception((type(reason), reason, reason.__traceback__))
        return float(self._wait(state))
