"""How often the process was forked, so that what was made before a fork is told from the rest.

In the child of a fork only the thread that forked goes on: what another thread was to do there,
nobody does.
"""

from __future__ import annotations

import os
from collections.abc import Callable

count: int = 0
"""The forks between the first process and this one. Read it as `forks.count`."""


def call_in_child(function: Callable[[], object]) -> None:
    """Call it in each child that this process is forked into, before anything else runs there."""
    if hasattr(os, "register_at_fork"):  # Windows has no fork
        os.register_at_fork(after_in_child=function)


def _count() -> None:
    global count
    count += 1


call_in_child(_count)
