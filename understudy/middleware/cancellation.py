"""`Cancellation`: sources that may cancel any run of an agent, wherever it runs (P7).

It carries them along, and no more: they are asked by the pipeline, before every step.
"""

from __future__ import annotations

from understudy.errors import UsageError
from understudy.middleware.base import Middleware
from understudy.run.cancellation import CancellationSource, as_sources

__all__ = ["Cancellation"]


class Cancellation(Middleware):
    """Asks these sources at the start of each run and before each of its steps.

    For one run alone give them to `execute(cancellation=...)`. They are asked in the agents that
    tools run, too, each time with the state of that agent.

    Args:
        sources: objects with `check(state)`, async or plain.

    Raises:
        UsageError: for none, or one without `check`.

    """

    def __init__(self, *sources: CancellationSource) -> None:
        if not sources:
            raise UsageError("Cancellation(...) takes one source at least")
        self.sources = as_sources(sources)
