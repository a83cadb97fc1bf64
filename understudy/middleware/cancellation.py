"""`Cancellation`: sources that may cancel any run of an agent, wherever it runs.

It only holds the sources. The pipeline calls them before each step. It owns no interrupts.
"""

from __future__ import annotations

from understudy.errors import UsageError
from understudy.middleware.base import Middleware
from understudy.run.cancellation import CancellationSource, as_sources


class Cancellation(Middleware):
    """A middleware with cancellation sources, which are asked when a run starts and before each
    step.

    For a single run use `execute(cancellation=...)`. The sources are also asked in the agents that
    tools run, each time with the state of that agent.

    Args:
        sources: objects with a method `check(state)`, async or plain.

    Raises:
        UsageError: if there is no source, or a source has no `check`.

    """

    def __init__(self, *sources: CancellationSource) -> None:
        if not sources:
            raise UsageError("Cancellation(...) needs at least one source")
        self.sources: tuple[CancellationSource, ...] = as_sources(sources)
