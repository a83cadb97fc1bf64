"""`Cancellation`: sources that may cancel any run of an agent, wherever it runs.

It only holds the sources. The pipeline calls them before each step. It owns no interrupts.
"""

from __future__ import annotations

from understudy.errors import UsageError
from understudy.middleware.base import Middleware
from understudy.run.cancellation import CancellationSource, as_sources


class Cancellation(Middleware):
    """Sources that are called when a run starts, and before each of its steps.

    For a single run pass them to `execute(cancellation=...)`. They are also called in the agents
    that tools run, each time with the state of that agent.

    Args:
        sources: objects with a method `check(state)`, async or plain.

    Raises:
        UsageError: for no source, or one without `check`.

    """

    def __init__(self, *sources: CancellationSource) -> None:
        if not sources:
            raise UsageError("Cancellation(...) needs at least one source")
        self.sources: tuple[CancellationSource, ...] = as_sources(sources)
