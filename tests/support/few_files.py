"""A process that may open few files more."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

__all__ = ["few_files"]


@contextmanager
def few_files(free: int) -> Iterator[None]:
    """Only so many file descriptors are left."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as undo:
        held = os.open(os.devnull, os.O_RDONLY)
        undo.callback(os.close, held)
        gc.disable()  # else what an earlier test has left open may be closed in between
        undo.callback(gc.enable)
        resource.setrlimit(resource.RLIMIT_NOFILE, (held + 40, hard))
        undo.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        more = []
        try:
            while True:
                more.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            for _ in range(free):
                os.close(more.pop())
        for file in more:
            undo.callback(os.close, file)
        yield
